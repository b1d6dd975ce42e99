"""`touchline inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from touchline.cli.options import Areas, scene_names
from touchline.cli.output import show, show_json
from touchline.cli.progress import shown
from touchline.errors import UsageError


def inspect(
    env: Annotated[
        str,
        typer.Argument(
            metavar="ENV",
            help=(
                "A scene's name (3DBall), a Unity player's path, `editor`, a recording "
                "(*.wire.gz), a demonstration (*.demo) or microrts:MAP."
            ),
            autocompletion=scene_names,
        ),
    ],
    num_areas: Areas = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The specs as JSON instead of text.")
    ] = False,
    record: Annotated[
        str | None,
        typer.Option(
            "--record",
            metavar="FILE.mp4",
            help="Film what a demonstration's cameras saw.",
        ),
    ] = None,
) -> None:
    """Show the observations and actions of each behavior, and the first steps; or the content of a
    demonstration.
    """
    from touchline import api
    from touchline.envs.env import EnvRecipe

    if Path(env).suffix == ".demo":
        _inspect_demonstration(env, as_json=as_json)
        if record is not None:
            api.film_demonstration(env, record)
        return
    if record is not None:
        raise UsageError(
            f"--record films a demonstration (*.demo), not {env}; touchline play films a scene"
        )
    recipe = EnvRecipe.parse(env, num_areas=num_areas)
    with shown(f"inspect {env}", recipe=recipe):
        found = api.inspect(recipe) if as_json else api.describe(recipe)
    if as_json:
        show_json({"env": env, "behaviors": found})
    else:
        show(str(found))


def _inspect_demonstration(path: str, *, as_json: bool) -> None:
    from touchline import api
    from touchline.training.demonstrations import describe_demonstration

    figures = api.inspect_demonstration(path)
    if as_json:
        show_json({"demo": path, **figures})
    else:
        show("\n".join(describe_demonstration(figures)))
