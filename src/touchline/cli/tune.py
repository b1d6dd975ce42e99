"""`touchline tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from touchline.cli.generate import TypedSettings
from touchline.cli.output import log
from touchline.errors import UsageError


def tune(
    settings: TypedSettings,
    space: Annotated[
        Path,
        typer.Option(
            "--space",
            metavar="FILE.yaml",
            help="The keys to vary, each with the values to try.",
        ),
    ],
    config: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG",
            help="A preset's name (3DBall), or an ML-Agents YAML, as for train.",
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", help="How many trials to run in all.")
    ] = 30,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="A.B.C=VALUE",
            help="Change one setting; the key is that of the YAML.",
        ),
    ] = None,
) -> None:
    """Search for good settings: each trial is a run, and poor ones are stopped early."""
    from touchline.api import start_tuning

    if config is None and "env_settings.env_path" not in settings.values:
        raise UsageError(
            "tune what? give a preset's name (3DBall), a YAML file, or a player with --env"
        )
    for note in settings.notes:
        log(note)
    result = start_tuning(
        config, space, trials, changes=changes or (), overrides=settings.values, log=log
    )
    if result.interrupted:
        same = f"the same command with --resume --run-id {result.folder.name}"
        log(f"stopped early, all is saved; to continue: {same}")
        raise typer.Exit(130)
