"""The one place that knows which files a training run's folder holds, and where.

<results>/<run-id>/
    configuration.yaml          all resolved settings, written when the run starts or is resumed
    settings.yaml               settings that were chosen for a game without any, with reasons
    <behavior>.onnx             the latest model for Unity
    <behavior>.png              the learning curve
    report.md                   for people: figures, curve, where the time went, settings
    resume.safetensors          everything that --resume needs to continue bit for bit
    resume-before.safetensors   the one before it
    replay.npz                  after a failure: the actions that led to a NaN
    <behavior>/
        checkpoint.safetensors  the latest policy
        best.safetensors, .onnx the policy with the best evaluation
        <behavior>-<step>.safetensors, .onnx   the last few
        experience/             SAC's replay with save_replay_buffer, in pieces of some actions each
        metrics.csv, events.out.tfevents.*
    run_logs/training_status.json   versions, seed, checkpoints with their returns, evaluations
    run_logs/timers.json        seconds by part of the work

A training with several seeds has a folder around the runs:

<results>/<run-id>/
    seed-<n>/                   a run's folder, as above
    <behavior>.png              the mean learning curve with a band
    report.md, seeds.json       figures over seeds, for people and for programs

So has a search for settings:

<results>/<run-id>/
    trial-<n>/                  a run's folder, as above
    trial-<n>.txt               what its process printed
    trials.journal              the search itself, as Optuna keeps it
    best.yaml                   the settings of the best trial
    importance.png              how much each searched key matters
    report.md, tune.json        all trials, for people and for programs
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from touchline.bounded import read_json
from touchline.errors import UsageError, shortened
from touchline.log import Log

CHECKPOINT, MODEL = ".safetensors", ".onnx"
"""Suffixes of a policy that can learn on, and of the model that Unity loads."""
LATEST = f"checkpoint{CHECKPOINT}"
OFFICIAL_LATEST = "checkpoint.pt"
"""Latest checkpoint of ML-Agents' own runs, which have the same folders."""
_LOGS = "run_logs"
_TAKEN = (_LOGS, "touchline", "python", "world", "target", "seed", "lessons")
"""What a run has under names of its own: a folder, and keys of its status."""
# Bytes of a behavior's name: file systems allow 255, steps and suffixes come after it.
_LONGEST_NAME = 200


def is_run(target: str | Path) -> bool:
    """Whether this is the folder of a training run."""
    return RunLayout(Path(target)).configuration.is_file()


class _File:
    """A file of a run, by its place in the folder."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __get__(self, layout: RunLayout, owner: type | None = None) -> Path:
        return layout.path / self._place


@dataclass(frozen=True)
class RunLayout:
    """The files of the run in the folder `path`; none of them needs to exist.

    Files of a behavior are named after it. The name may come from a Unity build, so one that cannot
    be a file name, or leads out of the folder, raises a UsageError.
    """

    path: Path

    configuration = _File("configuration.yaml")
    chosen_settings = _File("settings.yaml")
    """The settings that were chosen for a game without a configuration, with reasons."""
    logs = _File(_LOGS)
    status = _File(f"{_LOGS}/training_status.json")
    timers = _File(f"{_LOGS}/timers.json")
    resume_point = _File("resume.safetensors")
    resume_point_before = _File("resume-before.safetensors")
    """The resume point that the latest one replaced, in case the latest is damaged."""
    report = _File("report.md")
    replay = _File("replay.npz")
    seeds = _File("seeds.json")
    """Figures over the runs of several seeds."""
    journal = _File("trials.journal")
    """The trials of a search."""
    tune = _File("tune.json")
    """Figures of a search."""
    best_settings = _File("best.yaml")
    """The configuration of a search's best trial."""
    importance = _File("importance.png")
    """The picture of how much each searched key matters."""

    def seed(self, seed: int) -> RunLayout:
        """The run of one of several seeds."""
        return RunLayout(self.path / f"seed-{seed}")

    def trial(self, number: int) -> RunLayout:
        """The run of one trial of a search."""
        return RunLayout(self.path / f"trial-{number}")

    def printed(self, number: int) -> Path:
        """What the process of a trial printed."""
        return self.path / f"trial-{number}.txt"

    def model(self, behavior: str) -> Path:
        """The latest model for Unity."""
        return self.path / f"{_as_file_name(behavior)}{MODEL}"

    def curve(self, behavior: str) -> Path:
        return self.path / f"{_as_file_name(behavior)}.png"

    def folder(self, behavior: str) -> Path:
        """Where a behavior's checkpoints and metrics are."""
        return self.path / _as_file_name(behavior)

    def latest(self, behavior: str) -> Path:
        """The latest checkpoint."""
        return self.folder(behavior) / LATEST

    def start(self, behavior: str) -> Path:
        """What another run may start with: the latest checkpoint, also of a run of ML-Agents."""
        official = self.folder(behavior) / OFFICIAL_LATEST
        own = self.latest(behavior)
        return official if official.is_file() and not own.is_file() else own

    def best(self, behavior: str, suffix: str = CHECKPOINT) -> Path:
        """The policy with the best evaluation, as a checkpoint or as a model."""
        return self.folder(behavior) / f"best{suffix}"

    def numbered(self, behavior: str, steps: int, suffix: str = CHECKPOINT) -> Path:
        """The policy after a number of steps, as a checkpoint or as a model."""
        return self.folder(behavior) / f"{behavior}-{steps}{suffix}"

    def experience(self, behavior: str) -> Path:
        """The folder of what a learner remembers, which resume points refer to."""
        return self.folder(behavior) / "experience"

    def metrics(self, behavior: str) -> Path:
        return self.folder(behavior) / "metrics.csv"

    def checkpoints(self) -> dict[str, Path]:
        """The latest checkpoint of each behavior that has one, by base name."""
        found = sorted(self.path.glob(f"*/{LATEST}"))
        return {path.parent.name: path for path in found}

    def behaviors(self) -> list[str]:
        """Base names of the behaviors that have a model or a checkpoint."""
        models = {path.stem for path in self.path.glob(f"*{MODEL}")}
        return sorted(models | set(self.checkpoints()))

    def newest(self, behavior: str | None = None) -> Path:
        """The model for Unity, or the latest checkpoint of a policy that has none.

        `behavior` is a base name, None: the run's only one. Raises a UsageError that names the
        run's behaviors when there is no such file.
        """
        found = self.behaviors()
        if behavior is None and len(found) == 1:
            behavior = found[0]
        names = ", ".join(found)
        if behavior is None and found:
            raise UsageError(f"{self.path}: say which behavior: {names}")
        if behavior is None:
            raise UsageError(f"{self.path}: no run folder with a model")
        for path in (self.model(behavior), self.latest(behavior)):
            if path.is_file():
                return path
        has = f"it has models for {names}" if found else "it has no models"
        raise UsageError(
            f"{self.path}: no run folder with a model for {behavior}; {has}"
        )

    def checkpoint(self, behavior: str | None = None) -> Path:
        """The latest checkpoint of a behavior; None: of the only one.

        Raises a UsageError when there is none, or several to choose from.
        """
        found = self.checkpoints()
        if not found:
            raise UsageError(f"{self.path}: no run folder with a checkpoint")
        if behavior is None and len(found) == 1:
            return next(iter(found.values()))
        if behavior is None or behavior not in found:
            unknown = "" if behavior is None else f"no behavior {behavior!r}; "
            raise UsageError(
                f"{self.path}: {unknown}say which --behavior: {', '.join(found)}"
            )
        return found[behavior]


def _as_file_name(behavior: str) -> str:
    """The behavior's name; raises a UsageError unless files and a folder can be named so."""
    is_a_file_name = (
        behavior.isprintable()
        and not set(behavior) & set("/\\")
        # "." and ".." are this folder and the one above; Windows takes ". " for the same.
        and behavior.strip(". ") != ""
        and behavior not in _TAKEN
        and len(behavior.encode()) <= _LONGEST_NAME
    )
    if not is_a_file_name:
        raise UsageError(
            f"behavior {shortened(repr(behavior), 80)}: a run's files are named after it: expected "
            f"a name without separators, of up to {_LONGEST_NAME} bytes, none of "
            f"{', '.join(_TAKEN)}; "
            "rename it in Unity (Behavior Parameters)"
        )
    return behavior


logger = logging.getLogger(__name__)


def recorded(layout: RunLayout) -> dict[str, dict[str, Any]]:
    """Base name -> checkpoints and evaluations, as the run's status has them."""
    if not layout.status.exists():
        return {}
    status = read_json(layout.status)
    check_progress(layout.status, status)
    return {
        name: part
        for name, part in status.items()
        if isinstance(part, dict) and part.get("checkpoints")
    }


def check_progress(path: Path, status: Mapping[str, Any]) -> None:
    """Raise a UsageError unless checkpoints and evaluations are at steps and have figures."""
    # Files are named after these numbers, and old ones are deleted by name: text such as "/../../x"
    # from another person's run would delete files outside its folder.
    for behavior, part in status.items():
        for key in ("checkpoints", "evaluations") if isinstance(part, dict) else ():
            entries = part.get(key, [])
            if not isinstance(entries, list):
                raise UsageError(f"{path}: {behavior}: {key}: expected a list")
            for entry in entries:
                if not _is_progress(entry, is_evaluation=key == "evaluations"):
                    raise UsageError(
                        f"{path}: {behavior}: {key}: expected steps as a whole number, and "
                        f"figures, got {str(entry)[:80]!r}; remove the entry, or pull the run again"
                    )


def _is_progress(entry: Any, *, is_evaluation: bool) -> bool:
    if not isinstance(entry, dict):
        return False
    # A bool is an int to Python.
    has_steps = type(entry.get("steps")) is int and entry["steps"] >= 0
    interval = entry.get("ci95")
    if interval is None:  # not played, or a single game, whose error is unknown
        interval = [0, 0]
    if not isinstance(interval, list) or len(interval) != 2:
        return False
    figures = [entry.get("mean_return") or 0, *interval]
    figures += [entry.get("score")] if is_evaluation else []
    has_lessons = isinstance(entry.get("lessons", {}), dict)
    return has_steps and has_lessons and all(map(_is_figure, figures))


def _is_figure(value: Any) -> bool:
    """Whether this is a number that a float holds; NaN is one."""
    return type(value) is float or (type(value) is int and abs(value) < 1 << 63)


def scores_of(layout: RunLayout) -> dict[str, float]:
    """The score of each behavior of a run: of its last evaluation, or else of training."""
    scores = {}
    for name, part in recorded(layout).items():
        evaluations = part.get("evaluations")
        score = part["checkpoints"][-1]["mean_return"]
        if evaluations:
            score = evaluations[-1]["score"]
        if score is not None:
            scores[name] = float(score)
    return scores


def runs_in(folder: Path) -> list[Path]:
    """The folder itself if it is a run, or else its seeds or trials, in order of their numbers."""
    if is_run(folder):
        return [folder]
    found = [
        (prefix, int(number), path)
        for path in (folder.iterdir() if folder.is_dir() else ())
        for prefix, _, number in [path.name.partition("-")]
        if prefix in ("seed", "trial") and number.isdecimal() and len(number) < 10
    ]
    return [path for _, _, path in sorted(found) if is_run(path)]


def has_runs(target: str | Path) -> bool:
    """Whether this is the folder of a run, of several seeds or of a search."""
    return bool(runs_in(Path(target)))


def is_search(folder: Path) -> bool:
    """Whether this is the folder of a search for settings."""
    return RunLayout(folder).journal.is_file()


def run_of(folder: Path, log: Log = logger.warning) -> Path:
    """The run to use of a folder: of several seeds or trials, the best by evaluation.

    `log` gets a line that names it. A folder without runs is returned as it is. Raises a UsageError
    for several runs of which none has a checkpoint yet.
    """
    found = runs_in(folder)
    if found in ([], [folder]):
        return folder
    runs = [run for run in found if RunLayout(run).behaviors()]
    if not runs:
        raise UsageError(f"{folder}: none of its runs has saved a policy yet")
    # Runs without a score count as the worst; of equal ones the first is taken.
    scores = [_score(run) for run in runs]
    best = scores.index(max(scores))
    why = f"its evaluation, {scores[best]:.3f}, is the best"
    if scores[best] == -math.inf:
        why = "none has an evaluation"
    another = f"; to take another: {runs[best - 1]}" if len(runs) > 1 else ""
    log(f"{folder}: takes {runs[best].name} of {len(runs)} runs: {why}{another}")
    return runs[best]


def with_run(source: str, log: Log = logger.warning) -> str:
    """A policy's `[BEHAVIOR=]SOURCE` with the run in place of a folder of several."""
    # At the last one, because full names have one of their own: `Ball?team=0=RUN`.
    before, path = _split(source)
    if not has_runs(path):
        return source
    run = run_of(Path(path), log)
    return source if run == Path(path) else before + os.fspath(run)


def path_of(source: str) -> Path:
    """The file or folder of `[BEHAVIOR=]SOURCE`."""
    return Path(_split(source)[1])


def is_one(sources: str) -> bool:
    """Whether this is one `[BEHAVIOR=]SOURCE`; a file name may hold commas, too."""
    before, path = _split(sources)
    return Path(path).exists() and "," not in before


def _split(source: str) -> tuple[str, str]:
    """`BEHAVIOR=`, or nothing, and the rest; both may have equals signs of their own."""
    pieces = source.split("=")
    rests = ["=".join(pieces[n:]) for n in range(len(pieces))]
    rest = next((rest for rest in rests if Path(rest).exists()), rests[-1])
    return source.removesuffix(rest), rest


def _score(run: Path) -> float:
    """The mean over behaviors; -inf where the run does not say it, or says nonsense."""
    try:
        scores: Sequence[float] = list(scores_of(RunLayout(run)).values())
    # The status may be damaged, or of another program: such a run is no reason to refuse the rest.
    except (UsageError, LookupError, TypeError, ValueError):
        return -math.inf
    score = sum(scores) / len(scores) if scores else -math.inf
    return -math.inf if math.isnan(score) else score
