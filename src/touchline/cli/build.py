"""`touchline build`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from touchline.cli.options import Areas
from touchline.cli.output import log
from touchline.cli.progress import shown


def build(
    scene: Annotated[
        str, typer.Argument(metavar="SCENE", help="A scene's name, such as 3DBall.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="DIR", help="Folder to write the player into."
        ),
    ],
    num_areas: Areas = None,
) -> None:
    """Write a scene as a player that official ML-Agents tools start like a Unity build."""
    from touchline import player

    with shown(f"build {scene}"):
        path = player.build(scene, output, num_areas)
    log(f"wrote {path}")
