"""`touchline pull`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from touchline.cli.output import log, show


def pull(
    repo: Annotated[
        str, typer.Argument(metavar="USER/NAME", help="The model repository.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FOLDER",
            help="The run folder to write, results/NAME by default.",
        ),
    ] = None,
) -> None:
    """Download a policy from the Hugging Face Hub as a run folder."""
    # Lines of a log cannot be redrawn as the library's bars are.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from touchline import hub

    show(str(hub.pull(repo, output, log=log)))
