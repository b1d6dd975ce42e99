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
            "--games", min=2, help="Games of each pair, half of them on each side."
        ),
    ] = 200,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture",
            metavar="FILE.png",
            help="Draw ratings and the table of results into this file.",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            min=1,
            help="Matches to play in parallel. Default: one per core.",
        ),
    ] = None,
    cluster: Cluster = None,
    deterministic: Deterministic = False,
    as_json: AsJson = False,
) -> None:
    """Rate policies by games of each against each, half of them with sides exchanged."""
    from touchline import api
    from touchline.studies.tournament import tournament_lines

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
