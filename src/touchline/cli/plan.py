"""`touchline plan`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from touchline.cli.generate import TypedSettings
from touchline.cli.output import log, show, show_json
from touchline.cli.progress import shown
from touchline.errors import UsageError


def plan(
    settings: TypedSettings,
    config: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG",
            help="A preset's name (3DBall), or an ML-Agents YAML, as for train.",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="A.B.C=VALUE",
            help="Change one setting; the key is that of the YAML.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Figures as JSON instead of text.")
    ] = False,
) -> None:
    """Predict how long a run takes, what limits it and what helps, from ten seconds of it."""
    from touchline.api import read_run, start_plan
    from touchline.studies.plan import plan_lines

    if config is None and "env_settings.env_path" not in settings.values:
        raise UsageError(
            "plan what? give a preset's name (3DBall), a YAML file, or a player with --env"
        )
    request = read_run(config, changes or (), settings.values)
    for note in (*settings.notes, *request.notes):
        log(note)
    with shown("plan"):
        found = start_plan(request)
    show_json(asdict(found)) if as_json else show("\n".join(plan_lines(found)))
