"""`touchline tournament`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from touchline.cli.options import AsJson, Deterministic, World
from touchline.cli.output import log, show_figures
from touchline.cli.progress import shown

Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="WHERE",
        help="Play on a Ray cluster: local:N, auto or HOST:PORT.",
    ),
]


def tournament(
    world: World,
    policy: Annotated[
        list[str],
        typer.Option(
            "--policy",
            metavar="ENTRANT",
            help=(
                "A run folder, a checkpoint, an ONNX file, `random` or `zero`; "
                "Striker=a.onnx,Goalie=b.onnx where sides differ. Repeat it for every entrant."
            ),
        ),
    ],
    games: Annotated[
        int,
        typer.Option(
            "--games", min=2, help="Games of each pair, half of them in each seat."
        ),
    ] = 200,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture",
            metavar="FILE.png",
            help="Draw ratings and matrix into this file.",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            min=1,
            help="Matches at the same time; default: one per core.",
        ),
    ] = None,
    cluster: Cluster = None,
    deterministic: Deterministic = False,
    as_json: AsJson = False,
) -> None:
    """Let policies play each other, everyone against everyone in both seats; rate them."""
    from touchline import api
    from touchline.training.studies.tournament import tournament_lines

    recipe = world.recipe()
    with shown(f"tournament {world.env}", "games", recipe) as progress:
        figures = api.tournament(
            recipe,
            policy,
            games=games,
            picture=picture,
            processes=cluster or processes,
            deterministic=deterministic,
            progress=progress,
        )
    if picture is not None:
        log(f"wrote {picture}")
    show_figures(figures, tournament_lines, as_json=as_json)
