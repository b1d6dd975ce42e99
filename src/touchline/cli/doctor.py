"""`touchline doctor`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from touchline.cli.generate import Setting
from touchline.cli.options import scene_names
from touchline.cli.output import show, show_json


def doctor(
    target: Annotated[
        str,
        typer.Argument(
            metavar="ENV|RUN",
            help=(
                "A scene's name (3DBall), a Unity player's path, `editor`, a recording "
                "(*.wire.gz), microrts:MAP, or the folder of a run (results/first)."
            ),
            autocompletion=scene_names,
        ),
    ],
    base_port: Annotated[int | None, Setting("--base-port")] = None,
    timeout_wait: Annotated[float, Setting("--timeout-wait")] = 30.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="The report as JSON instead of text.")
    ] = False,
) -> None:
    """Find out why an environment does not connect or a run does not learn, and what to try."""
    from touchline.doctor import examine, findings, is_run
    from touchline.envs.env import EnvRecipe

    if is_run(target):
        if as_json:
            show_json({"run": target, "findings": findings(target)})
        else:
            examine(Path(target), show)
        return
    recipe = EnvRecipe.parse(target)
    if recipe.kind.is_player:
        port = {} if base_port is None else {"base_port": base_port}
        recipe = replace(recipe, options={"timeout_wait": timeout_wait, **port})
    lines: list[str] = []
    works = examine(recipe, lines.append if as_json else show)
    if as_json:
        show_json({"env": target, "works": works, "report": lines})
    if not works:
        raise typer.Exit(1)
