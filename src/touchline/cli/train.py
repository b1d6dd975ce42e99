"""`touchline train`."""

from __future__ import annotations

import logging
import shlex
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from touchline.cli.generate import TypedSettings
from touchline.cli.options import RecordWire
from touchline.cli.output import log, show
from touchline.cli.progress import until_first_line
from touchline.cli.training_table import training_table
from touchline.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from touchline.api import RunRequest
    from touchline.training.run.result import TrainingResult


def _preset_names() -> list[str]:
    """What shell completion offers for CONFIG."""
    from touchline.training.config.reading import preset_names

    return preset_names()


Wandb = Annotated[
    bool,
    typer.Option(
        "--wandb",
        help="Also log to Weights & Biases; offline unless WANDB_MODE says otherwise.",
    ),
]
Seeds = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        metavar="0-4",
        help="Train once with each of these seeds (0-4 or 0,3,7).",
    ),
]


def train(
    settings: TypedSettings,
    config: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG",
            help="A preset's name (3DBall), or an ML-Agents YAML; not needed with --env.",
            autocompletion=_preset_names,
        ),
    ] = None,
    record_wire: RecordWire = None,
    to_wandb: Wandb = False,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="A.B.C=VALUE",
            help="Change one setting; the key is that of the YAML.",
        ),
    ] = None,
    seeds: Seeds = None,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config", help="Print all settings, defaults included, and stop."
        ),
    ] = False,
) -> None:
    """Train the behaviors of an environment; write checkpoints, metrics, a learning curve and an
    ONNX model for Unity.
    """
    from touchline.api import read_run

    if config is None and "env_settings.env_path" not in settings.values:
        raise UsageError(
            "train what? give a preset's name (3DBall), a YAML file, or a player with --env"
        )
    several = None if seeds is None else _several_seeds(seeds, settings, record_wire)
    request = read_run(
        config, changes or (), settings.values, of_several=several is not None
    )
    request = replace(request, notes=(*settings.notes, *request.notes))
    if print_config:
        _print_config(request)
        return
    if several is not None:
        _set_up_logging(is_debugging=request.config.debug)
        _train_seeds(request, several, to_wandb=to_wandb)
        return
    result = _run(request, record_wire, to_wandb=to_wandb)
    _summarize(result)
    _suggest(request, result)
    if result.interrupted:
        raise typer.Exit(130)


def _run(
    request: RunRequest, record_wire: Path | None, *, to_wandb: bool
) -> TrainingResult:
    """Train, with a table on a terminal and with lines elsewhere."""
    from touchline.api import start_run

    is_training = not request.config.checkpoint_settings.inference
    with training_table() if is_training else nullcontext() as table:
        # Inside: its lines, too, go above the table.
        _set_up_logging(is_debugging=request.config.debug)
        with ExitStack() as starting:
            if table is None:
                to = starting.enter_context(until_first_line("train", log))
            else:
                to = table.log
            return start_run(
                request,
                record_wire=record_wire,
                to_wandb=to_wandb,
                log=to,
                watch=table.watch if table else None,
            )


def _set_up_logging(*, is_debugging: bool) -> None:
    logging.basicConfig(
        level=logging.DEBUG if is_debugging else logging.WARNING,
        format="%(name)s: %(message)s" if is_debugging else "%(message)s",
    )


def _several_seeds(
    seeds: str, settings: TypedSettings, record_wire: Path | None
) -> list[int]:
    """The seeds of `--seeds`, which some other flags exclude."""
    from touchline.api import SEED
    from touchline.studies.seeds import parse_seeds

    if SEED in settings.values:
        raise UsageError("--seed and --seeds are given: leave one of them out")
    if record_wire is not None:
        raise UsageError(
            "--record-wire records one run, and --seeds trains several: give one of them"
        )
    return parse_seeds(seeds)


def _train_seeds(request: RunRequest, seeds: list[int], *, to_wandb: bool) -> None:
    from touchline.api import start_seeds

    result = start_seeds(request, seeds, to_wandb=to_wandb, log=log)
    if result.interrupted:
        same = f"the same command with --resume --run-id {result.folder.name}"
        log(f"stopped early, all is saved; to continue: {same}")
        raise typer.Exit(130)


def _print_config(request: RunRequest) -> None:
    from touchline.training.config.reading import config_text

    for note in request.notes:
        log(note)
    show(config_text(request.config).rstrip())


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
        same = f"the same command with --resume --run-id {result.folder.name}"
        log(f"stopped early, all is saved; to continue: {same}")


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
