"""The commands of MicroRTS: `touchline microrts ...`."""

import sys
from typing import Annotated

import typer

app = typer.Typer(help="Download the MicroRTS engine.", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def microrts(context: typer.Context) -> None:
    """Download the MicroRTS engine."""
    # Without a callback, typer makes the only command the whole program, and `fetch` an argument.
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def fetch(
    bots: Annotated[
        bool,
        typer.Option(
            "--bots",
            help="Also the jars of the competition bots, which carry no license text.",
        ),
    ] = False,
) -> None:
    """Download the engine (GPL-3.0) into the cache, from the package index that pip uses.

    Its hash is checked.
    """
    # `touchline --help` imports this module, so anything that takes time is imported here.
    from touchline.microrts.download import fetch as fetch_engine

    engine = fetch_engine(bots=bots)
    num_maps = len(engine.maps)
    num_jars = len(engine.bot_jars)
    line = f"engine, {num_maps} maps and {num_jars} bot jars in {engine.folder}"
    print(line, file=sys.stderr, flush=True)  # noqa: T201
