"""`touchline train`."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from touchline.cli.output import log, show
from touchline.cli.progress import until_first_line
from touchline.cli.results import say_how_to_continue
from touchline.cli.training_table import training_table
from touchline.errors import UsageError
from touchline.flag import Flag

if TYPE_CHECKING:
    from touchline.cli.generate import Call
    from touchline.training.config.request import RunRequest
    from touchline.training.run.result import TrainingResult


def train(
    call: Call,
    seeds: Annotated[str | None, Flag(metavar="0-4")] = None,
    print_config: bool = False,
) -> None:
    """Train with one seed or with several.

    Parameters
    ----------
    seeds
        Train once with each of these seeds (0-4 or 0,3,7).
    print_config
        Print all settings, defaults included, and stop.
    """
    from touchline.training.config.request import read_run

    given = call.values
    settings, record_wire = given["settings"], given.get("record_wire")
    to_wandb = given.get("to_wandb", False)
    several = None if seeds is None else _several_seeds(seeds, settings, record_wire)
    request = read_run(
        given.get("config"),
        given.get("changes", ()),
        settings,
        of_several=several is not None,
    )
    if print_config:
        for note in request.notes:
            log(note)
        from touchline.training.config.reading import config_text

        show(config_text(request.config).rstrip())
        return
    if several is not None:
        from touchline.studies.seeds import train_seeds

        _set_up_logging(is_debugging=request.config.debug)
        result = train_seeds(request, several, to_wandb=to_wandb, log=log)
        if result.interrupted:
            say_how_to_continue(result.folder)
            raise typer.Exit(130)
        return
    trained = _run(request, record_wire, to_wandb=to_wandb)
    _summarize(trained)
    _suggest(request, trained)
    if trained.interrupted:
        raise typer.Exit(130)


def _run(
    request: RunRequest, record_wire: Path | None, *, to_wandb: bool
) -> TrainingResult:
    """Train, with a table on a terminal and with lines elsewhere."""
    from touchline.training.run.progress import unwatched
    from touchline.training.start import train as start

    is_training = not request.config.checkpoint_settings.inference
    with training_table() if is_training else nullcontext() as table:
        # Inside: its lines, too, go above the table.
        _set_up_logging(is_debugging=request.config.debug)
        with ExitStack() as starting:
            if table is None:
                to = starting.enter_context(until_first_line("train", log))
            else:
                to = table.log
            return start(
                request,
                record_wire=record_wire,
                to_wandb=to_wandb,
                log=to,
                watch=table.watch if table else unwatched,
            )


def _set_up_logging(*, is_debugging: bool) -> None:
    logging.basicConfig(
        level=logging.DEBUG if is_debugging else logging.WARNING,
        format="%(name)s: %(message)s" if is_debugging else "%(message)s",
    )


def _several_seeds(
    seeds: str, given: Mapping[str, Any], record_wire: Path | None
) -> list[int]:
    """The seeds of `--seeds`, which some other flags exclude."""
    from touchline.studies.seeds import parse_seeds

    if "seed" in given:
        raise UsageError("--seed and --seeds are given: leave one of them out")
    if record_wire is not None:
        raise UsageError(
            "--record-wire records one run, and --seeds trains several: give one of them"
        )
    return parse_seeds(seeds)


def _summarize(result: TrainingResult) -> None:
    for name, figures in result.behaviors.items():
        mean = figures.mean_return
        shown = "none ended" if mean is None else f"{mean:.3f}"
        log(
            f"{name}: {figures.steps:,} steps; return of the last 100 episodes: {shown}"
        )
        # A run that was stopped early may not have reached its first line of metrics.
        log(
            f"  model {figures.model}"
            + (f"  curve {figures.curve}" if figures.curve else "")
        )
    if result.interrupted:
        say_how_to_continue(result.folder)


def _suggest(request: RunRequest, result: TrainingResult) -> None:
    """The report, and the commands to look at the policy with."""
    from touchline.envs.env import EnvRecipe
    from touchline.policies.files.run_layout import RunLayout

    report = RunLayout(result.folder).report
    env = request.config.env_settings.env_path or request.preset
    if not result.behaviors or not report.exists():
        return
    log(f"report: {report}")
    if env is None:
        return  # the Editor, which plays only while it is in play mode
    policy = f"{shlex.quote(env)} --policy {shlex.quote(str(result.folder))}"
    kind = EnvRecipe.parse(env).kind
    if kind.is_scene:
        log(f"watch: touchline view {policy}")
    elif kind.is_player:
        log(f"watch: touchline play {policy}")  # in the player's own window
    else:
        log(f"watch: touchline play {policy} --record film.mp4")
    log(f"evaluate: touchline eval {policy}")
