"""`touchline play`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from touchline.cli.options import (
    Deterministic,
    Env,
    Parameters,
    Policies,
    Seed,
    parameter_values,
)
from touchline.cli.output import log
from touchline.cli.progress import shown


@dataclass(frozen=True)
class Picture:
    """What the film shows."""

    versus: Annotated[
        str | None,
        typer.Option("--versus", metavar="FILE", help="The policy of the other team."),
    ] = None
    area: Annotated[int, typer.Option("--area", min=0, help="Which area to film.")] = 0
    width: Annotated[
        int, typer.Option("--width", min=16, help="Width of the picture in pixels.")
    ] = 640
    height: Annotated[
        int, typer.Option("--height", min=16, help="Height of the picture in pixels.")
    ] = 480


def play(
    env: Env,
    policy: Policies,
    picture: Picture,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="FILE.mp4",
            help="The film to write; not needed for a Unity player, which has a window.",
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", min=0.1, help="Length of the film, in simulated time."
        ),
    ] = 20.0,
    deterministic: Deterministic = False,
    seed: Seed = 0,
    parameters: Parameters = None,
) -> None:
    """Watch a policy play: film a scene, or run a Unity player in its window at normal speed."""
    from touchline import api
    from touchline.envs.env import EnvRecipe

    recipe = EnvRecipe.parse(env, seed=seed, parameters=parameter_values(parameters))
    with shown(f"play {env}", "pictures", recipe) as progress:
        api.play(
            recipe,
            api.Sides(policy, picture.versus or ()),
            record=record,
            seconds=seconds,
            area=picture.area,
            size=(picture.width, picture.height),
            deterministic=deterministic,
            progress=progress,
        )
    if record is not None:
        log(f"wrote {record}")
