"""`touchline record`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from touchline.cli.options import Deterministic, Policies, World
from touchline.cli.output import log
from touchline.cli.progress import shown


def record(
    world: World,
    policy: Policies,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="FILE.demo", help="The demonstration to write."
        ),
    ],
    episodes: Annotated[
        int,
        typer.Option(
            "--episodes",
            min=1,
            help="Complete episodes of each behavior, shared evenly among its agents.",
        ),
    ] = 20,
    min_return: Annotated[
        float,
        typer.Option(
            "--min-return",
            metavar="FLOAT",
            show_default=False,
            help="Leave out episodes that return less. Default: keep all.",
        ),
    ] = -math.inf,
    deterministic: Deterministic = False,
) -> None:
    """Record a policy's episodes as a demonstration that ML-Agents and Unity load."""
    from touchline import api
    from touchline.training.demonstrations import read_demonstration

    recipe = world.recipe()
    with shown(f"record {world.env}", "episodes", recipe) as progress:
        paths = api.record(
            recipe,
            policy,
            output,
            episodes=episodes,
            min_return=min_return,
            deterministic=deterministic,
            seed=world.seed,
            progress=progress,
        )
    for path in paths:
        log(f"wrote {path}")
        log(read_demonstration(path).lines[0])
