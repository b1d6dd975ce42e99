"""`touchline bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from touchline.cli.output import log, show_json


def bench(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT", help="scenes, learn, teams, sac, wire or adapters"
        ),
    ] = "scenes",
    scene: Annotated[
        list[str] | None, typer.Option("--scene", help="Only these scenes.")
    ] = None,
    policies: Annotated[
        Path | None,
        typer.Option(
            "--policies",
            metavar="DIR",
            help="For scenes: act with DIR/BEHAVIOR.onnx where it exists.",
        ),
    ] = None,
) -> None:
    """Measure speed compared with other libraries; print figures as JSON."""
    from touchline.bench import run_bench

    show_json(run_bench(what, scene or None, log, policies))
