"""The same training with several seeds: one process each, and one result with its uncertainty.

A single run says little, since seeds differ more than many methods do. The result of n seeds is
their mean x̄ with its standard error s / √n, and the interquartile mean: the mean of the middle
half, which one lucky or failed seed does not move (Agarwal et al. 2021, arXiv:2108.13264, section
4.3). Its 95 % interval is the percentile bootstrap over seeds of the same section.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from touchline.errors import RunError, UsageError
from touchline.interrupts import sigterm_as_ctrl_c
from touchline.jobs.job import Job, Place, follow
from touchline.log import Log
from touchline.operating_systems import remove_file, remove_folder
from touchline.policies.files.run_layout import RunLayout, recorded, runs_in, scores_of
from touchline.studies.runs import job_of, place_for_runs, settings_of, world_of
from touchline.whole import write_whole

if TYPE_CHECKING:
    from touchline.envs.env import EnvRecipe
    from touchline.training.config.request import Changes, RunRequest
    from touchline.training.config.settings import RunConfig

MOST_SEEDS = 1000
BETWEEN_LINES_S = 10.0
"""Seconds between two lines about the same seed."""
_RESAMPLES = 2000


@dataclass(frozen=True)
class SeedFigures:
    """Figures of one behavior over several seeds.

    A seed's score is that of its last evaluation: the mean return, with group returns, or the
    rating in self-play. Where nothing was evaluated, it is the mean return of the last 100
    episodes in training.
    """

    scores: dict[int, float]
    """One score for each seed."""
    mean: float
    standard_error: float | None
    """Standard error of the mean; None for a single seed."""
    interquartile_mean: float
    interquartile_mean_ci95: list[float] | None
    """[low, high]; None for a single seed."""
    curve: Path | None
    """The mean learning curve with its 95 % interval; None if no episode ended."""


@dataclass(frozen=True)
class SeedsResult:
    """Results of runs with several seeds."""

    folder: Path
    interrupted: bool
    """Then there are no figures yet; `resume` continues the seeds that are not done."""
    failed: dict[int, str]
    """Seed -> why its process failed."""
    behaviors: dict[str, SeedFigures]
    """Figures by base name, over the seeds that are done."""


# which seeds


def parse_seeds(text: str | Iterable[int]) -> list[int]:
    """Seeds in the order given: `0-4`, `0,3,7`, or both mixed; numbers are checked as well."""
    parts = text.split(",") if isinstance(text, str) else [str(seed) for seed in text]
    seeds: list[int] = []
    for part in parts:
        match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        if match is None:
            raise UsageError(
                f"--seeds: expected a range (0-4) or a list (0,3,7), got {part!r}"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(
                f"--seeds: {part.strip()} is reversed; did you mean {last}-{first}?"
            )
        # Before the range is listed: 0-999999999 would fill the memory.
        if len(seeds) + last - first >= MOST_SEEDS:
            raise UsageError(f"--seeds: expected at most {MOST_SEEDS} seeds")
        seeds += range(first, last + 1)
    if not seeds:
        raise UsageError("--seeds: expected a range (0-4) or a list (0,3,7), got none")
    twice = next((seed for seed in seeds if seeds.count(seed) > 1), None)
    if twice is not None:
        raise UsageError(f"--seeds: {twice} is given twice")
    return seeds


# from the settings to one run for each seed


def train_seeds(
    config: str | os.PathLike[str] | RunRequest | None,
    seeds: str | Iterable[int],
    *,
    env: str | None = None,
    run_id: str | None = None,
    resume: bool = False,
    changes: Changes = (),
    to_wandb: bool = False,
    log: Log = print,
    settings: Mapping[str, Any] | None = None,
) -> SeedsResult:
    """Train a run for each of several seeds, one process each, and summarize them.

    As many run at once as there are cores; with `cluster_settings.cluster` and without collectors,
    on the nodes of that cluster, as many as it has processors for. Run N is that of `train` with
    the seed N, bit for bit; its folder is `seed-N` below that of `run_id`. The report, the curves
    and `seeds.json` are next to these folders.

    Parameters
    ----------
    seeds
        Numbers, or a text such as `0-4` or `0,3,7`.
    resume
        Continue the seeds that are not done. The figures are those of all seeds that are done,
        also of those that the folder holds besides.
    config, env, run_id, changes, to_wandb, log, settings
        As in `train`.

    Raises
    ------
    UsageError
        As `train`, before anything is written; also for seeds that make no sense.
    RunError
        The processes of some seeds failed; the others are done, and their figures written.
    """
    from touchline.training.config.request import (
        SEED,
        RunRequest,
        is_changed,
        listed,
        read_run,
    )

    numbers = parse_seeds(seeds)
    if isinstance(config, RunRequest):
        request = config
    else:
        changes = listed(changes)
        if "seed" in (settings or {}) or is_changed(SEED, changes):
            raise UsageError("--seed and --seeds are given: leave one of them out")
        given = {"env": env, "run_id": run_id, "resume": resume, **(settings or {})}
        request = read_run(config, changes, given, of_several=True)
    own_scene = request.preset
    for note in request.notes:
        log(note)
    run = request.config
    checkpoints = run.checkpoint_settings
    study = RunLayout(Path(checkpoints.results_dir) / checkpoints.run_id)
    _check(run, study, numbers)
    runs = _runs(run, study, numbers, own_scene, log)
    unfinished = {
        seed: job_of(f"seed {seed}", study.seed(seed), *one, to_wandb=to_wandb)
        for seed, one in runs.items()
        if not (checkpoints.resume and _is_done(study.seed(seed), run))
    }
    skipped = [str(seed) for seed in numbers if seed not in unfinished]
    if skipped:
        log(f"done before: seed {', '.join(skipped)}")
    others = [] if checkpoints.force else _done_besides(study, numbers, run, log)
    recipe = runs[numbers[0]][1]
    try:
        with sigterm_as_ctrl_c(), place_for_runs(run, recipe) as place:
            if checkpoints.force:
                _remove(study)
            failed = _train_all(unfinished, place, log)
    except KeyboardInterrupt:
        return SeedsResult(study.path, True, {}, {})
    done = [seed for seed in numbers if seed not in failed]
    figures = _figures(study, sorted([*done, *others]))
    result = SeedsResult(study.path, False, failed, figures)
    _write(study, result, log)
    if failed:
        names = ", ".join(map(str, failed))
        raise RunError(
            f"seed {names} failed, {len(done)} of {len(numbers)} are done; "
            f"to continue: the same command with --resume --run-id {checkpoints.run_id}"
        )
    return result


def _check(config: RunConfig, study: RunLayout, seeds: Sequence[int]) -> None:
    """Refuse what several processes cannot share, and a folder that holds something else."""
    settings = config.checkpoint_settings
    if settings.inference:
        raise UsageError("--seeds trains, and --inference only acts: give one of them")
    if settings.resume and settings.force:
        raise UsageError(
            "--resume continues a run and --force overwrites it: give one of them"
        )
    if study.configuration.exists():
        raise UsageError(
            f"{study.path}: this folder holds a single run; choose another --run-id"
        )
    if study.journal.exists():
        raise UsageError(
            f"{study.path}: this folder holds a search; choose another --run-id"
        )
    from touchline.training.run.claim import refuse_links

    # A run that was killed before it began has none.
    exists = [seed for seed in seeds if study.seed(seed).resume_point.exists()]
    if settings.resume and not study.path.is_dir():
        raise UsageError(
            f"{study.path}: there is no run to resume; leave --resume out to start it"
        )
    if exists and not (settings.resume or settings.force):
        raise UsageError(
            f"{study.seed(exists[0]).path}: this run exists; "
            "--resume continues it, --force overwrites it"
        )
    refuse_links(study.path)


def _remove(study: RunLayout) -> None:
    """Delete the runs of all seeds, and the figures over them."""
    from touchline.training.run.claim import locked

    # Also those that are not trained again: they would be taken for seeds of the new training. And
    # runs that were put aside, which would come back.
    found = [*study.path.glob("seed-*"), *study.path.glob(".seed-*.replaced")]
    folders = [path for path in found if path.is_dir()]
    curves = {
        study.curve(name) for one in folders for name in RunLayout(one).behaviors()
    }
    with ExitStack() as locks:
        for folder in folders:
            locks.callback(locked(folder, "trains this run").release)
        for file in (study.seeds, study.report, *curves):
            remove_file(file)
        for folder in folders:
            remove_folder(folder)


def _runs(
    config: RunConfig,
    study: RunLayout,
    seeds: Sequence[int],
    own_scene: str | None,
    log: Log,
) -> dict[int, tuple[RunConfig, EnvRecipe]]:
    """The settings and the world of each seed; mistakes in them are found here."""
    from touchline.log import silent
    from touchline.training.world import check_files

    runs: dict[int, tuple[RunConfig, EnvRecipe]] = {}
    for position, seed in enumerate(seeds):
        own = settings_of(config, study.seed(seed), seed, position)
        to = silent if runs else log  # what is said of one is true of all
        runs[seed] = own, world_of(own, own_scene, "--seeds", to)
    # One that has not begun, if there is one: it needs the most files.
    settings = [own for own, _ in runs.values()]
    settings.sort(key=lambda own: own.checkpoint_settings.resume)
    check_files(settings[0])
    return runs


# a job for each


def _train_all(jobs: Mapping[int, Job], place: Place, log: Log) -> dict[int, str]:
    """Run all to their ends; returns why seeds failed. Ctrl-C ends all with everything saved."""
    failed: dict[int, str] = {}
    if not jobs:
        return failed
    log(f"seeds to train: {len(jobs)}, {min(place.at_once, len(jobs))} at a time")
    seeds = {job.name: seed for seed, job in jobs.items()}
    latest: dict[str, float] = {}
    with closing(follow(place, jobs.values(), log)) as runs:
        for run in runs:
            name = run.name
            for line in filter(None, map(str.strip, run.lines())):
                if run.took_s - latest.get(name, 0.0) >= BETWEEN_LINES_S:
                    latest[name] = run.took_s
                    log(f"{name}: {line}")
            if run.outcome is None:
                continue
            if why := run.outcome.why:
                failed[seeds[name]] = why
                log(f"{name}: failed: {why}")
            else:
                log(f"{name}: done after {run.took_s:.0f} s")
    return failed


# from the folders to one result


def _is_done(layout: RunLayout, config: RunConfig) -> bool:
    """Whether every behavior has all of its steps, and the run's last evaluation is written."""
    behaviors = recorded(layout)
    for name, part in behaviors.items():
        settings, steps = config.behavior(name), part["checkpoints"][-1]["steps"]
        if settings is None or steps < settings.max_steps:
            return False
        evaluations = part.get("evaluations")
        if evaluations and evaluations[-1]["steps"] != steps:
            return False
    return bool(behaviors) and layout.report.exists()


def _done_besides(
    study: RunLayout, seeds: Sequence[int], config: RunConfig, log: Log
) -> list[int]:
    """The other seeds of this folder that are done, which belong to its figures, too."""
    names = [run.name.partition("-") for run in runs_in(study.path)]
    others = [int(number) for prefix, _, number in names if prefix == "seed"]
    others = [seed for seed in others if seed not in seeds]
    done = [seed for seed in others if _is_done(study.seed(seed), config)]
    if left_out := [str(seed) for seed in others if seed not in done]:
        log(f"not done, so left out of the figures: seed {', '.join(left_out)}")
    return done


def _figures(study: RunLayout, seeds: Sequence[int]) -> dict[str, SeedFigures]:
    scores: dict[str, dict[int, float]] = {}
    for seed in seeds:
        for name, score in scores_of(study.seed(seed)).items():
            scores.setdefault(name, {})[seed] = score
    return {name: _summary(study, name, own) for name, own in scores.items()}


def _summary(study: RunLayout, name: str, scores: dict[int, float]) -> SeedFigures:
    from touchline.studies.plot import interquartile_mean, interval_of

    values = np.array(list(scores.values()))
    error, interval = None, None
    if len(values) > 1:
        error = float(values.std(ddof=1) / np.sqrt(len(values)))
        low, high = interval_of(values, interquartile_mean, _RESAMPLES)
        interval = [float(low), float(high)]
    return SeedFigures(
        scores=scores,
        mean=float(values.mean()),
        standard_error=error,
        interquartile_mean=float(interquartile_mean(values)),
        interquartile_mean_ci95=interval,
        curve=_draw(study, name, list(scores)),
    )


def _draw(study: RunLayout, behavior: str, seeds: Sequence[int]) -> Path | None:
    from touchline.studies import plot

    layouts = map(study.seed, seeds)
    # A file is there from the start, and empty until the first summary.
    runs = [own.path for own in layouts if own.metrics(behavior).stat().st_size]
    panel = plot.panel_of(
        behavior, {study.path.name: [plot.read_series(run) for run in runs]}
    )
    if not panel.curves:
        return None
    path = study.curve(behavior)
    plot.write_figure(plot.new_figure([panel], [study.path.name]), path)
    return path


# for people


def _write(study: RunLayout, result: SeedsResult, log: Log) -> None:
    """Write `seeds.json` and the report, and log the table."""
    if not result.behaviors:
        return
    figures = {name: asdict(own) for name, own in result.behaviors.items()}
    for name, own in result.behaviors.items():
        figures[name]["curve"] = own.curve and own.curve.name
    content = {"failed": result.failed, "behaviors": figures}
    write_whole(study.seeds, (json.dumps(content, indent=2) + "\n").encode())
    lines = [f"# {study.path.name}", "", *_table(result), ""]
    for name, own in result.behaviors.items():
        lines += [f"## {name}", "", "| seed | score |", "| --- | --- |"]
        lines += [f"| {seed} | {score:.3f} |" for seed, score in own.scores.items()]
        lines += [""] if own.curve is None else ["", f"![{name}]({own.curve.name})", ""]
    lines += [f"- seed {seed} failed: {why}" for seed, why in result.failed.items()]
    write_whole(study.report, ("\n".join(lines).rstrip() + "\n").encode())
    for line in _table(result):
        log(line)
    log(f"report {study.report}")


def _table(result: SeedsResult) -> Iterator[str]:
    yield "| behavior | seeds | mean ± standard error | interquartile mean [95 %] |"
    yield "| --- | --- | --- | --- |"
    for name, own in result.behaviors.items():
        error = "" if own.standard_error is None else f" ± {own.standard_error:.3f}"
        interval = ""
        if own.interquartile_mean_ci95 is not None:
            low, high = own.interquartile_mean_ci95
            interval = f" [{low:.3f}, {high:.3f}]"
        middle = f"{own.interquartile_mean:.3f}{interval}"
        yield f"| {name} | {len(own.scores)} | {own.mean:.3f}{error} | {middle} |"
