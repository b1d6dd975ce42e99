"""`touchline parity`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from touchline.cli.options import (
    AsJson,
    Deterministic,
    Policies,
    UnityReference,
    World,
)
from touchline.cli.output import log, show_figures
from touchline.cli.progress import shown


def parity(
    world: World,
    policy: Policies,
    reference: UnityReference,
    episodes: Annotated[
        int,
        typer.Option(
            "--episodes",
            min=2,
            help="Episodes per behavior in each of the two; with groups of agents, games.",
        ),
    ] = 100,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture", metavar="FILE.png", help="Draw all differences into this file."
        ),
    ] = None,
    deterministic: Deterministic = False,
    as_json: AsJson = False,
) -> None:
    """Compare a scene with Unity: the same policy plays in both, and returns, lengths and
    observations are compared with the differences that chance explains.

    Without --env and --statistics, the reference is what is stored of Unity for this scene and
    policy, else the policy's own normalizer.
    """
    from touchline import api
    from touchline.studies.parity import parity_lines

    other = reference.source()
    recipe = world.recipe()
    with shown(f"parity {world.env}", "episodes", recipe) as progress:
        figures = api.parity(
            recipe,
            policy,
            reference=other,
            save=reference.save,
            episodes=episodes,
            picture=picture,
            deterministic=deterministic,
            progress=progress,
        )
    if picture is not None:
        log(f"wrote {picture}")
    show_figures(figures, parity_lines, as_json=as_json)
