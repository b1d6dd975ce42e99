"""`touchline view`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from touchline.cli.options import Deterministic, World
from touchline.cli.output import log


@dataclass(frozen=True)
class Address:
    """Where the page is."""

    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port; 0: any.")
    ] = 8080
    host: Annotated[
        str,
        typer.Option(
            "--host",
            help=(
                "Address to listen on. Any but the default lets whoever reaches it watch and "
                "control the simulation, without a password."
            ),
        ),
    ] = "127.0.0.1"


def view(
    world: World,
    address: Address,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="[BEHAVIOR=]FILE",
            help=(
                "A run folder, a checkpoint, an ONNX file, `random` (the default), `zero`, or "
                "`greedy` (Match3). Repeat it for several behaviors."
            ),
        ),
    ] = None,
    versus: Annotated[
        str | None,
        typer.Option("--versus", metavar="FILE", help="The policy of the other team."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="FILE.demo",
            help="Record what you play in place of an agent into this file.",
        ),
    ] = None,
    deterministic: Deterministic = False,
) -> None:
    """Open a page in the browser on which a scene plays: watch in 3-D, pause, step, go back.

    ENV is a scene's name, or the folder of a run, whose newest checkpoint plays. Of a Unity player
    or a recording the page shows what agents observe and do.
    """
    from touchline import api

    api.view(
        world.recipe(),
        api.Sides(policy or "random", versus or ()),
        host=address.host,
        port=address.port,
        record=record,
        deterministic=deterministic,
        log=log,
    )
