"""`touchline train`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from touchline.cli.output import log, show
from touchline.cli.progress import until_first_line
from touchline.cli.results import exit_if_stopped
from touchline.cli.training_table import training_table
from touchline.errors import UsageError
from touchline.flag import Flag
from touchline.operating_systems import quoted

if TYPE_CHECKING:
    from touchline.cli.generate import Call
    from touchline.training.config.request import RunRequest
    from touchline.training.run.result import BehaviorResult, TrainingResult


def train(
    call: Call,
    seeds: Annotated[str | None, Flag(metavar="0-4")] = None,
    parameters: Annotated[Sequence[str], Flag("--parameter", "NAME=VALUE")] = (),
    print_config: bool = False,
) -> None:
    """Train with one seed or with several.

    Parameters
    ----------
    seeds
        Train once with each of these seeds (0-4 or 0,3,7).
    parameters
        Set an environment parameter, as --set environment_parameters.NAME=VALUE does.
    print_config
        Print all settings, defaults included, and stop.
    """
    from touchline.training.config.request import read_run

    given = call.values
    set_by_name = [f"environment_parameters.{one}" for one in parameters or ()]
    settings, record_wire = given["settings"], given.get("record_wire")
    to_wandb = given.get("to_wandb", False)
    several = None if seeds is None else _several_seeds(seeds, settings, record_wire)
    request = read_run(
        given.get("config"),
        [*given.get("changes", ()), *set_by_name],
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
        exit_if_stopped(result)
        return
    trained = _run(request, record_wire, to_wandb=to_wandb)
    _summarize(trained)
    _suggest(request, trained)
    exit_if_stopped(trained)


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
    rows = [
        [name, f"{own.steps:,}", _score(own.mean_return), *_evaluation(own), own.model]
        for name, own in result.behaviors.items()
    ]
    if rows:
        titles = [
            "behavior",
            "steps",
            "last 100 episodes",
            "evaluation",
            "best",
            "model",
        ]
        for line in _aligned([titles, *rows]):
            log(line)
    for own in result.behaviors.values():
        # A run that was stopped early may not have reached its first line of metrics.
        if own.curve:
            log(f"curve: {own.curve}")


def _evaluation(own: BehaviorResult) -> list[str]:
    """The last evaluation, and the best with its step where that is another."""
    if own.evaluation is None or own.best_step is None:
        return [_score(own.evaluation), _score(own.best_evaluation)]
    is_latest = own.best_evaluation == own.evaluation
    best = (
        "the last" if is_latest else f"{own.best_evaluation:.3f} at {own.best_step:,}"
    )
    return [_score(own.evaluation), best]


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _aligned(rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Rows as text; the first and the last column begin on the left, the others end together."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for first, *middle, last in texts:
        cells = [first.ljust(widths[0])]
        cells += [
            cell.rjust(width) for cell, width in zip(middle, widths[1:], strict=False)
        ]
        yield "  ".join([*cells, last])


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
    policy = f"{quoted(env)} --policy {quoted(str(result.folder))}"
    kind = EnvRecipe.parse(env).kind
    if kind.is_scene:
        log(f"watch: touchline view {policy}")
    elif kind.is_player:
        log(f"watch: touchline play {policy}")  # in the player's own window
    else:
        log(f"watch: touchline play {policy} --record film.mp4")
    log(f"evaluate: touchline eval {policy}")
