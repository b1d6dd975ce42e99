"""`touchline push`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from touchline.cli.output import log, show


def push(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    repo: Annotated[
        str, typer.Option("--repo", metavar="USER/NAME", help="The model repository.")
    ],
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="List the files and show the model card, without uploading.",
        ),
    ] = False,
) -> None:
    """Upload a trained policy to the Hugging Face Hub."""
    # Lines of a log cannot be redrawn as the library's bars are.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from touchline import hub

    upload = hub.push(run, repo, dry_run=dry_run, log=log)
    if upload.url is not None:
        show(upload.url)
        return
    for name, size in upload.files.items():
        show(f"{size:12,}  {name}")
    show(f"\n{upload.card}")
