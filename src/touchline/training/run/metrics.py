"""The figures of a run: TensorBoard under ML-Agents' tags, a plain CSV, lines for people, a curve.

Metrics are names with values; every name and tag is defined in `docs/training.md`, "Metrics".
"""

from __future__ import annotations

import csv
import io
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from touchline.bounded import MOST_TABLE, read_bounded
from touchline.errors import UsageError
from touchline.extras import explain_missing
from touchline.log import Log
from touchline.operating_systems import open_to_append
from touchline.policies.files.run_layout import RunLayout
from touchline.statistics import EnvironmentStats, StatsAggregationMethod
from touchline.training.config.settings import BehaviorConfig, RunConfig
from touchline.training.rewards.settings import WORLD_REWARD_TAG
from touchline.whole import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = (
    "step",
    "time_s",
    "steps_per_s",
    "episodes",
    "mean_return",
    "std_return",
    "mean_length",
)
"""Columns of every row; a learner's metrics follow in its order."""
_TAGS = {
    "mean_return": "Environment/Cumulative Reward",
    "mean_length": "Environment/Episode Length",
    "mean_group_return": "Environment/Group Cumulative Reward",
    "pretraining_loss": "Losses/Pretraining Loss",
    "steps_per_s": "Time/Steps per Second",
    "elo": "Self-play/ELO",
    "elo_error": "Self-play/ELO Error",
}
_NOT_TAGGED = ("step", "time_s", "episodes", "std_return")
_WIN_RATE = "win_rate_"
_EVALUATED = "evaluated_win_rate_"
MOST_COLUMNS = 1 << 16
"""Characters of the first line of a metrics.csv."""
CURVE_POINTS = 1000
"""Most points of a learning curve: its picture is 960 pixels wide."""
Point = tuple[float, ...]


def tags_of(config: BehaviorConfig) -> dict[str, str]:
    """Metric -> TensorBoard's tag, also for what a behavior's algorithm and signals measure."""
    algorithm = config.hyperparameters.metric_tags
    tags = dict(_TAGS)
    for signal, settings in config.reward_signals.items():
        names = {"signal": signal, "Signal": signal.capitalize()}
        for metric, tag in {**algorithm, **settings.metric_tags}.items():
            tags[metric.format(**names)] = tag.format(**names)
    return tags


def tag_of(metric: str, tags: Mapping[str, str]) -> str:
    """TensorBoard's tag of a metric: ML-Agents' own where it has one."""
    if metric in tags:
        return tags[metric]
    if metric.startswith(_WIN_RATE):
        opponent = metric.removeprefix(_WIN_RATE)
        return f"Self-play/Win Rate vs {opponent[:1].upper()}{opponent[1:]}"
    if metric.startswith(_EVALUATED):
        return f"Evaluation/Win Rate vs {metric.removeprefix(_EVALUATED)}"
    return f"Training/{metric}"


@dataclass(frozen=True)
class Summary:
    """What happened since the last summary of one behavior."""

    step: int
    returns: Sequence[float]
    """Returns of the episodes that ended."""
    lengths: Sequence[int]
    metrics: Mapping[str, float] = field(default_factory=dict)
    lessons: Mapping[str, int] = field(default_factory=dict)
    """The current lesson number of each environment parameter."""
    statistics: EnvironmentStats = field(default_factory=dict)
    group_returns: Sequence[float] = ()
    """Returns of the groups whose last member ended."""


class MetricsWriter:
    """Writes the metrics of one behavior: TensorBoard events and `metrics.csv`."""

    def __init__(
        self, layout: RunLayout, behavior: str, tags: Mapping[str, str]
    ) -> None:
        """`tags` are those of `tags_of`."""
        self._behavior = behavior
        self._tags = tags
        self._folder = layout.folder(behavior)
        self._csv_path = layout.metrics(behavior)
        self._curve_path = layout.curve(behavior)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._started = time.perf_counter()
        self._last_time_s, self._last_step = 0.0, 0
        self._columns = list(COLUMNS)
        self._open()

    def _open(self, purge_after: int | None = None) -> None:
        # Loading the writer takes a second; only runs need it.
        from torch.utils.tensorboard import SummaryWriter

        # TensorBoard hides what an earlier file holds from this step on.
        purge_step = None if purge_after is None else purge_after + 1
        # By default torch writes every 120 s, and curves would be as far behind the run.
        self._events = SummaryWriter(
            str(self._folder), flush_secs=5, purge_step=purge_step
        )
        path = self._csv_path
        if path.exists() and path.stat().st_size:
            self._columns = _header_of(path)
        self._csv = open_to_append(path)

    def drop_after(self, step: int) -> None:
        """Continue from a resume point: what a killed run wrote after it will be written again."""
        # Windows refuses to replace a file that is still open.
        self.close()
        lines = read_bounded(self._csv_path, MOST_TABLE).splitlines(keepends=True)
        # A kill may leave half a line at the end.
        whole = [line for line in lines if line.endswith(b"\n")]
        kept = []
        for line in whole[1:]:
            written_at, _, _ = line.partition(b",")
            # What is no number was damaged outside of a run.
            # Python refuses to read thousands of digits; any step has at most 19.
            if written_at.isdigit() and int(written_at[:19]) <= step:
                kept.append(line)
        write_whole(self._csv_path, b"".join(whole[:1] + kept))
        self._last_step = step
        self._last_time_s = 0.0
        if kept:
            # A damaged row has no time: the next one counts from zero.
            with suppress(ValueError, IndexError):
                at = self._columns.index("time_s")
                self._last_time_s = float(kept[-1].split(b",")[at])
        # Time continues where the kept rows end, as if the run had not been interrupted.
        self._started = time.perf_counter() - self._last_time_s
        self._open(purge_after=step)

    def write(self, summary: Summary) -> dict[str, Any]:
        """Write one summary; returns the row as written."""
        row = self._row(summary)
        self._write_csv(row)
        step = summary.step
        for name, value in row.items():
            if name not in _NOT_TAGGED:
                self._events.add_scalar(tag_of(name, self._tags), value, step)
        self._write_histogram("mean_return", summary.returns, step)
        self._write_histogram("mean_group_return", summary.group_returns, step)
        # ML-Agents has the mean return under this tag as well as under its own.
        if summary.returns:
            self._events.add_scalar(WORLD_REWARD_TAG, row["mean_return"], step)
        for name, number in summary.lessons.items():
            self._events.add_scalar(f"Environment/Lesson Number/{name}", number, step)
        for name, values in summary.statistics.items():
            if values:  # earlier resume points may hold names without any
                self._write_statistic(name, values, step)
        return row

    def write_evaluation(self, step: int, win_rates: Mapping[str, float]) -> None:
        """Write the win rates of a checkpoint against each opponent, in a row of their own."""
        time_s = round(time.perf_counter() - self._started, 3)
        rates = {f"{_EVALUATED}{name}": rate for name, rate in win_rates.items()}
        self._write_csv({"step": step, "time_s": time_s, **rates})
        for metric, rate in rates.items():
            self._events.add_scalar(tag_of(metric, self._tags), rate, step)

    def _write_histogram(self, metric: str, values: Sequence[float], step: int) -> None:
        if values:
            self._events.add_histogram(f"{_TAGS[metric]}_hist", np.array(values), step)

    def _row(self, summary: Summary) -> dict[str, Any]:
        now = time.perf_counter() - self._started
        # A clock may show the same time twice.
        elapsed = max(now - self._last_time_s, 1e-9)
        speed = (summary.step - self._last_step) / elapsed
        self._last_time_s, self._last_step = now, summary.step
        row: dict[str, Any] = {
            "step": summary.step,
            "time_s": round(now, 3),
            "steps_per_s": round(speed, 1),
            "episodes": len(summary.returns),
        }
        if summary.returns:
            row["mean_return"] = float(np.mean(summary.returns))
            row["std_return"] = float(np.std(summary.returns))
            row["mean_length"] = float(np.mean(summary.lengths))
        if summary.group_returns:
            row["mean_group_return"] = float(np.mean(summary.group_returns))
        return row | dict(summary.metrics)

    def _write_csv(self, row: Mapping[str, Any]) -> None:
        """Append a row; a metric that is new to the file gets a column in all earlier rows too."""
        is_empty = self._csv.tell() == 0
        new = [name for name in row if name not in self._columns]
        self._columns += new
        if new and not is_empty:
            self._widen()
        writer = csv.DictWriter(self._csv, self._columns)
        if is_empty:
            writer.writeheader()
        writer.writerow(row)
        self._csv.flush()

    def _widen(self) -> None:
        # Before it is replaced, which Windows refuses while the file is open.
        self._csv.close()
        with self._csv_path.open(newline="", encoding="utf-8") as file:
            earlier = list(csv.DictReader(file))
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self._columns)
        writer.writeheader()
        writer.writerows(earlier)
        write_whole(self._csv_path, text.getvalue().encode())
        self._csv = open_to_append(self._csv_path)

    def _write_statistic(
        self, name: str, reported: list[tuple[float, StatsAggregationMethod]], step: int
    ) -> None:
        values, (*_, method) = zip(*reported, strict=True)
        match method:
            case StatsAggregationMethod.AVERAGE:
                self._events.add_scalar(name, float(np.mean(values)), step)
            case StatsAggregationMethod.MOST_RECENT:
                self._events.add_scalar(name, values[-1], step)
            case StatsAggregationMethod.SUM:
                self._events.add_scalar(name, sum(values), step)
            case StatsAggregationMethod.HISTOGRAM:
                self._events.add_histogram(name, np.array(values), step)

    def close(self) -> None:
        self._events.close()
        self._csv.close()

    def draw_curve(self) -> Path | None:
        """Draw the learning curve into the run's folder; None while no episode has ended."""
        # With self-play, returns against oneself say nothing.
        rated = self._points("step", "elo", "elo_error")
        if rated:
            return self._draw(rated, "rating (± standard error)")
        # The episode of a member that leaves early has nothing of what its group earns later.
        of_groups = self._points("step", "mean_group_return")
        if of_groups:
            return self._draw(of_groups, "group return of finished episodes (mean)")
        points = self._points("step", "mean_return", "std_return")
        if points:
            label = "return of finished episodes (mean ± standard deviation)"
            return self._draw(points, label)
        return None

    def _points(self, *columns: str) -> list[Point]:
        """These columns of rows that have them all, thinned to what a picture can show."""
        with self._csv_path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            texts = [[row.get(column) for column in columns] for row in rows]
        whole = [known for known in texts if all(known)]
        points = [tuple(float(text) for text in known if text) for known in whole]
        return _thinned(points, CURVE_POINTS)

    def _draw(self, points: Sequence[Point], label: str) -> Path:
        """A line, with a band around it where `points` hold step, middle and spread."""
        # Loading takes a second; only runs need it. A figure of its own leaves the program's
        # pyplot, and its choice of a backend, alone.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        step, middle, *spreads = np.array(points).T
        # One point alone is no line.
        marker = "o" if len(step) == 1 else ""
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.subplots()
        for spread in spreads:
            axes.fill_between(
                step, middle - spread, middle + spread, alpha=0.2, linewidth=0
            )
        axes.plot(step, middle, marker=marker)
        axes.set(title=self._behavior, xlabel="agent steps", ylabel=label)
        axes.grid(alpha=0.3)
        picture = io.BytesIO()
        with names_as_written(figure):
            FigureCanvasAgg(figure).print_figure(picture, dpi=120)
        write_whole(self._curve_path, picture.getvalue())
        return self._curve_path


def _header_of(path: Path) -> list[str]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            columns = next(csv.reader([file.readline(MOST_COLUMNS)]), [])
    except (csv.Error, UnicodeDecodeError):
        columns = []
    if "time_s" not in columns or columns[0] != "step":
        raise UsageError(f"{path}:1: expected step, time_s, ...: delete the file")
    return columns


@contextmanager
def names_as_written(figure: Figure) -> Iterator[None]:
    """Within this context, a figure is drawn whatever the names of behaviors and runs are."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        # Two dollar signs would begin and end mathematics, with an error where it is none.
        text.set_parse_math(False)
    with warnings.catch_warnings():
        # Characters that the font lacks are boxes, without a line of matplotlib's source for each.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def load_drawing() -> None:
    """Load what draws curves: after Ctrl-C, this was two thirds of the work of saving."""
    for module in ("figure", "backends.backend_agg"):
        import_module(f"matplotlib.{module}")


def _thinned(points: Sequence[Point], most: int) -> list[Point]:
    """Every k-th point, for the smallest power of two that leaves at most `most`, and the last."""
    every = 1
    while len(points[::every]) > most:
        every *= 2
    kept = list(points[::every])
    return kept if kept[-1:] == points[-1:] else [*kept, points[-1]]


def progress_line(behavior: str, row: Mapping[str, Any], max_steps: int) -> str:
    """One line for people: steps, speed, return, time left."""
    step, speed = int(row["step"]), float(row["steps_per_s"])
    result = "no episode ended"
    if "mean_return" in row:
        plural = "" if row["episodes"] == 1 else "s"
        spread = f"{row['mean_return']:8.3f} ± {row['std_return']:.3f}"
        result = f"return {spread} ({row['episodes']} episode{plural})"
    if "mean_group_return" in row:
        result += f", of groups {row['mean_group_return']:.3f}"
    if "elo" in row:
        scores = [
            f"{100 * value:.0f} % vs {name.removeprefix(_WIN_RATE)}"
            for name, value in row.items()
            if name.startswith(_WIN_RATE)
        ]
        rating = f"ELO {row['elo']:5.0f} ± {row['elo_error']:.0f}"
        result = ", ".join([rating, *scores]) + f"  {result}"
    left_s = max(0, round((max_steps - step) / max(speed, 1e-9)))
    percent = min(100.0, 100 * step / max_steps)
    # The last update goes beyond the steps that were wanted.
    why_more = ", to the end of a buffer" if step > max_steps else ""
    return (
        f"{behavior}  step {step:>9,} of {max_steps:,} ({percent:3.0f} %){why_more}  "
        f"{speed:>8,.0f} steps/s  {result}  left {left_s // 60}:{left_s % 60:02d}"
    )


@contextmanager
def weights_and_biases(
    config: RunConfig, folder: Path, log: Log, *, enabled: bool
) -> Iterator[None]:
    """Log what the block writes for TensorBoard; offline, below `folder`, unless WANDB_MODE
    differs.
    """
    if not enabled:
        yield
        return
    with explain_missing("--wandb"):
        import wandb
    settings = wandb.Settings(
        # Nothing leaves the machine unless the user says so.
        mode=os.environ.get("WANDB_MODE", "offline"),
        silent=os.environ.get("WANDB_SILENT", "true") == "true",
    )
    run = wandb.init(
        project="touchline",
        name=config.checkpoint_settings.run_id,
        dir=str(folder),
        config=config.model_dump(mode="json"),
        sync_tensorboard=True,
        settings=settings,
    )
    with run:
        yield
    if run.settings.mode == "offline":
        log(f"W&B: offline; to upload the run: wandb sync {run.settings.sync_dir}")
