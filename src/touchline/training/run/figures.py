"""What a run's folder says about how it learned, read back as numbers: one value per behavior.

A fault is a check of these figures; `touchline doctor` looks for the general ones and for those of
the run's algorithm.

Source of every metric: `docs/training.md`, "Metrics"; of the files, `RunLayout`.
"""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from touchline.bounded import MOST_TABLE, read_bounded, read_json
from touchline.errors import UsageError, shortened
from touchline.policies.files.run_layout import RunLayout, check_progress
from touchline.specs import ActionSpec
from touchline.training.algorithms.settings import DEFAULT_ALGORITHM
from touchline.training.config.yaml_tree import YamlTree

SCORES = {"elo": "rating", "mean_group_return": "group return", "mean_return": "return"}
"""Metrics that say how good a policy is, the most telling first, and their names for people."""
RECENT = 0.25
"""Share of the rows that count as the run's latest."""
_EMPTY = np.empty(0)


@dataclass(frozen=True)
class RunFigures:
    """The figures of one behavior of a run."""

    behavior: str
    columns: Mapping[str, Float[np.ndarray, " R"]]
    """Columns of metrics.csv by name, R rows; NaN where a row has no such figure."""
    max_steps: float = math.inf
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The behavior's block of the configuration, as far as the file says it."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall-clock time of the whole run by part of the work."""
    checkpoints: Sequence[Mapping[str, Any]] = ()
    evaluations: Sequence[Mapping[str, Any]] = ()
    """Both as training_status.json has them, in order of steps."""
    actions: ActionSpec | None = None
    """None where the run has no checkpoint."""
    obs_mean: Float[np.ndarray, " O"] | None = None
    obs_spread: Float[np.ndarray, " O"] | None = None
    """Spread in the normalizer; None without one."""

    def known(self, name: str) -> Float[np.ndarray, " K"]:
        """The K values of a metric, in order; none for a metric that the run does not have."""
        values = self.columns.get(name, _EMPTY)
        return np.asarray(values[~np.isnan(values)])

    def recent(self, name: str) -> float:
        """The median of a metric's latest values; NaN without any."""
        values = self.known(name)
        if not len(values):
            return math.nan
        return float(np.median(values[-math.ceil(RECENT * len(values)) :]))

    def setting(self, *keys: str, default: float) -> float:
        """A number of the behavior's block; the default where the file does not have it."""
        return _number(self.settings, keys, default)

    @property
    def score_name(self) -> str:
        """The metric that says how good the policy was, of `SCORES`; empty without any."""
        return next((name for name in SCORES if len(self.known(name))), "")

    @property
    def trainer_type(self) -> str:
        """The algorithm."""
        return str(self.settings.get("trainer_type") or DEFAULT_ALGORITHM)

    @property
    def score(self) -> Float[np.ndarray, " K"]:
        """How good the policy was over the run: its rating, group return or return."""
        return self.known(self.score_name)

    @property
    def has_gained(self) -> bool:
        """Whether the latest score is above the first by half the episodes' spread at first."""
        score = self.score
        if len(score) < 2:
            return False
        spread = self.known("std_return")
        first = float(spread[0]) if len(spread) else 0.0
        latest = float(np.median(score[-max(1, len(score) // 4) :]))
        return latest - float(score[0]) > 0.5 * first

    @property
    def progress(self) -> float:
        """0 at the start, 1 when the run is over."""
        steps = self.known("step")
        return float(steps[-1]) / self.max_steps if len(steps) else 0.0


@dataclass(frozen=True)
class Fault:
    """Something that may be wrong with a run, how it is recognized, and what to try."""

    name: str
    check: Callable[[RunFigures], str | None]
    """The figure that shows it next to its limit; None where all is well."""
    advice: str


def read_run_figures(run: Path) -> list[RunFigures]:
    """The figures of every behavior of a run.

    Raises a UsageError that names the file for a folder that is no run of Touchline, or whose files
    are damaged.
    """
    columns = read_columns(run)
    layout = RunLayout(run)
    # As plain values: a run of another version may have keys that today's models refuse.
    tree = YamlTree.read(layout.configuration, str(layout.configuration))
    status, seconds = _json(layout.status), _json(layout.timers)
    check_progress(layout.status, status)
    # By type, because a bool passes for an int in `isinstance`.
    if not all(type(spent) in (int, float) for spent in seconds.values()):
        raise UsageError(f"{layout.timers}: expected a number of seconds for each part")
    return [
        RunFigures(
            behavior=behavior,
            columns=own,
            **_configured(tree.values, behavior),
            seconds=seconds,
            **_progress_of(status.get(behavior)),
            **_checkpoint(layout.latest(behavior)),
        )
        for behavior, own in columns.items()
    ]


def read_columns(run: Path) -> dict[str, dict[str, Float[np.ndarray, " R"]]]:
    """Behavior -> the columns of its metrics.csv; raises as `read_run_figures` does."""
    layout = RunLayout(run)
    if not layout.configuration.is_file():
        raise UsageError(
            f"{run}: no run folder: expected results/RUN-ID with a configuration.yaml"
        )
    found = sorted(run.glob("*/metrics.csv"))
    # The file is there from the start, and empty until the first summary.
    files = [path for path in found if path.stat().st_size]
    if not files:
        tree = YamlTree.read(layout.configuration, str(layout.configuration))
        if _only_clones(tree.values):
            raise UsageError(
                f"{run}: a run that only clones has no figures; play its model with touchline eval"
            )
        raise UsageError(
            f"{run}: no figures in metrics.csv yet: a run writes its first figures after "
            "summary_freq steps, and ML-Agents' own runs have none"
        )
    return {path.parent.name: _columns(path) for path in files}


def _only_clones(values: Mapping[str, Any]) -> bool:
    behaviors = values.get("behaviors")
    blocks = list(behaviors.values()) if isinstance(behaviors, Mapping) else []
    steps = [b.get("max_steps") for b in blocks if isinstance(b, Mapping)]
    # A run that clones has 0 in every block; one without the key trains for its default.
    return bool(steps) and not any(steps) and None not in steps


def _configured(values: Mapping[str, Any], behavior: str) -> dict[str, Any]:
    """The behavior's block and its length, as fields of `RunFigures`."""
    behaviors = values.get("behaviors")
    found = behaviors.get(behavior) if isinstance(behaviors, Mapping) else None
    found = found or values.get("default_settings")
    block = found if isinstance(found, Mapping) else {}
    # Infinite where the file does not say it, so that no run counts as finished.
    max_steps = _number(block, ("max_steps",), math.inf)
    return {"settings": block, "max_steps": max_steps if max_steps > 0 else math.inf}


def _number(values: Mapping[str, Any], keys: Sequence[str], default: float) -> float:
    found: Any = values
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    # A whole number in YAML has no limit, but `float` refuses those above 1.8e308.
    try:
        return float(found) if is_number and found is not None else default
    except OverflowError:
        return math.inf


def _progress_of(status: Any) -> dict[str, Any]:
    found = status if isinstance(status, Mapping) else {}
    return {key: found.get(key, []) for key in ("checkpoints", "evaluations")}


def _columns(path: Path) -> dict[str, Float[np.ndarray, " R"]]:
    text = read_bounded(path, MOST_TABLE).decode("utf-8", "replace")
    reader = csv.DictReader(io.StringIO(text.replace("\0", "?"), newline=""))
    try:
        rows = [row for row in reader if None not in row.values()]
    except csv.Error as error:
        raise UsageError(f"{path}:{reader.line_num}: not a table: {error}") from None
    names = reader.fieldnames or []
    if "step" not in names:
        raise UsageError(f"{path}:1:1: expected the columns of a run, with step first")
    # A kill may leave part of the last row; it has no value for the last columns.
    return {name: _numbers(path, name, rows) for name in names}


def _numbers(
    path: Path, name: str, rows: Sequence[Mapping[str, str]]
) -> Float[np.ndarray, " R"]:
    values = np.full(len(rows), np.nan)
    for number, row in enumerate(rows):
        try:
            values[number] = float(row[name] or "nan")
        except ValueError:
            raise UsageError(
                f"{path}:{number + 2}: {shortened(name)}: expected a number, "
                f"got {row[name][:40]!r}"
            ) from None
    return values


def _json(path: Path) -> dict[str, Any]:
    """The values of a file of a run; empty where it was not written yet."""
    if not path.is_file():
        return {}
    return read_json(path)


def _checkpoint(path: Path) -> dict[str, Any]:
    """The policy's actions and its normalizer, as fields of `RunFigures`."""
    if not path.is_file():
        return {}
    # Loading torch takes longer than reading all other files of a run.
    from touchline.policies.files.checkpoints import (
        read_checkpoint,
        read_metadata,
        spec_of,
    )

    found: dict[str, Any] = {"actions": spec_of(path, read_metadata(path)).action_spec}
    tensors, _ = read_checkpoint(path)
    normalizer = "network.normalizer."
    if {f"{normalizer}mean", f"{normalizer}scale"} <= tensors.keys():
        found["obs_mean"] = tensors[f"{normalizer}mean"].double().numpy()
        scale = tensors[f"{normalizer}scale"].double().numpy()
        # A damaged file may hold a scale of 0.
        with np.errstate(all="ignore"):
            found["obs_spread"] = 1.0 / scale
    return found
