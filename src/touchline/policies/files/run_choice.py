"""Which run a folder stands for: itself, or the best one of several seeds or of a search."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from touchline.bounded import read_json
from touchline.errors import UsageError
from touchline.log import Log
from touchline.policies.files.run_layout import RunLayout, is_run

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
    interval = entry.get("ci95", [0, 0])
    figures = [entry.get("mean_return") or 0, *interval] if _is_pair(interval) else [""]
    if is_evaluation:
        figures += [entry.get("score")]
    has_lessons = isinstance(entry.get("lessons", {}), dict)
    return has_steps and has_lessons and all(map(_is_figure, figures))


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2


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
    scores = [_score(run) for run in runs]
    best = max(
        range(len(runs)), key=lambda n: -float("inf") if (s := scores[n]) is None else s
    )
    score = scores[best]
    why = (
        "none has an evaluation"
        if score is None
        else f"its evaluation, {score:.3f}, is the best"
    )
    other = runs[best - 1]
    log(
        f"{folder}: takes {runs[best].name} of {len(runs)} runs: {why}"
        + (f"; to take another: {other}" if len(runs) > 1 else "")
    )
    return runs[best]


def with_run(source: str, log: Log = logger.warning) -> str:
    """A policy's `[BEHAVIOR=]SOURCE` with the run in place of a folder of several."""
    before, equals, rest = source.rpartition("=")
    for start, path in (("", source), (before + equals, rest)):
        if has_runs(path):
            run = run_of(Path(path), log)
            return source if run == Path(path) else start + os.fspath(run)
    return source


def _score(run: Path) -> float | None:
    """The mean over behaviors; None where the run does not say it, or says nonsense."""
    try:
        scores: Sequence[float] = list(scores_of(RunLayout(run)).values())
    # The status may be damaged, or of another program: such a run is no reason to refuse the rest.
    except (UsageError, LookupError, TypeError, ValueError):
        return None
    return sum(scores) / len(scores) if scores else None
