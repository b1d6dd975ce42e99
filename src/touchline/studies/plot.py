"""Learning curves of several runs in one figure, seeds as one curve with an interval.

The middle of n seeds is their mean or their interquartile mean: the mean of the middle half, which
one lucky or failed seed does not move. The band is the 95 % percentile bootstrap over seeds, point
by point (Agarwal et al. 2021, arXiv:2108.13264, section 4.3). A single run has no band.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from touchline.errors import UsageError
from touchline.flag import Flag
from touchline.log import Log, silent
from touchline.policies.files.run_layout import (
    RunLayout,
    is_search,
    recorded,
    run_of,
    runs_in,
)
from touchline.training.run.figures import SCORES, read_columns
from touchline.training.run.metrics import names_as_written
from touchline.whole import require_writable, write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".svg", ".pdf", ".png")
SCORE, EVALUATION = "score", "evaluation"
"""Names for metrics that are not a column: the most telling one, and the evaluations' scores."""
MOST_RESAMPLES = 1000
# Points of a curve over seeds: seeds report at slightly different steps.
_GRID = 200
# Distinct also for color-blind readers (Okabe & Ito 2008).
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_STYLES = ("-", "--", ":")
"""For curves after those that have a color of their own."""

Values = NDArray[np.float64]


def interquartile_mean(values: Values) -> Values:
    """The mean along the last axis without the lowest and the highest quarter."""
    # A quarter is rounded down, as in the authors' library rliable: of 5 values, 1 on either side.
    count = values.shape[-1]
    cut = count // 4
    in_order = np.sort(values, axis=-1)
    middle: Values = in_order[..., cut : count - cut].mean(axis=-1)
    return middle


AVERAGES: Mapping[str, tuple[Callable[[Values], Values], str]] = {
    "mean": (lambda values: np.asarray(values.mean(axis=-1)), "mean"),
    "iqm": (interquartile_mean, "interquartile mean"),
}
"""Name on the command line -> the function, and its name in a figure."""
AXES = {"steps": "agent steps", "minutes": "minutes"}


def plot(
    runs: Annotated[Sequence[str | os.PathLike[str]], Flag("[NAME=]RUN...")],
    output: Annotated[
        str | os.PathLike[str], Flag(short="-o", metavar="FILE.svg|pdf|png")
    ] = "curves.svg",
    *,
    metric: str = SCORE,
    against: Annotated[str, Flag(metavar="steps|minutes")] = "steps",
    average: Annotated[str, Flag(metavar="mean|iqm")] = "mean",
    log: Log = silent,
) -> Path:
    """Draw the learning curves of several runs in one figure, a panel for each behavior.

    A folder of several seeds is one curve with its 95 % interval, and so are runs with the same
    NAME. Of a search, the best trial is drawn.

    Parameters
    ----------
    runs
        Run folders, or folders of several seeds. The curve is named after the folder, or NAME.
    output
        The figure to write.
    metric
        A column of metrics.csv (entropy, value_loss, ...), `evaluation` for the scores of the
        evaluations, or `score`: the rating, the group return or the return, as the runs have it.
    against
        What the curves are drawn against.
    average
        Over seeds: their mean, or their interquartile mean.
    log
        Gets a line for each curve.

    Returns
    -------
    Path
        The figure.

    Raises
    ------
    UsageError
        A folder is no run, no run has the metric, or the file cannot be written or has another
        ending.
    """
    path = Path(output)
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path}: expected a file that ends in {', '.join(FORMATS)}")
    require_writable(path)
    for name, value, known in (
        ("--against", against, AXES),
        ("--average", average, AVERAGES),
    ):
        if value not in known:
            raise UsageError(f"{name} {value}: expected {' or '.join(known)}")
    groups = _groups(runs, log)
    tables = {
        name: [read_series(run) for run in folders] for name, folders in groups.items()
    }
    behaviors = dict.fromkeys(
        behavior for read in tables.values() for table in read for behavior in table
    )
    panels = [
        panel_of(behavior, tables, metric, against, average) for behavior in behaviors
    ]
    drawn = [panel for panel in panels if panel.curves]
    if not drawn:
        raise UsageError(f"no run has {metric}; {_metrics_in(tables)}")
    for panel in drawn:
        for curve in panel.curves:
            log(f"{panel.behavior}  {curve.name}: {curve.label} {curve.latest}")
    figure = new_figure(drawn, list(groups), AXES[against])
    write_figure(figure, path)
    return path


# from folders to curves


@dataclass(frozen=True)
class Curve:
    """One curve of a panel: a run, or the middle of several."""

    name: str
    x: Values
    middle: Values
    low: Values | None
    """Lower bound of the 95 % interval; None for a single run."""
    high: Values | None
    seeds: Sequence[tuple[Values, Values]]
    """Each run by itself: what it is drawn against, and its values."""
    label: str
    """What its values are."""

    @property
    def latest(self) -> str:
        text = f"{self.middle[-1]:.3f}"
        if self.low is not None and self.high is not None:
            text += f" [{self.low[-1]:.3f}, {self.high[-1]:.3f}]"
        at = round(self.x[-1], 0 if self.x[-1] >= 100 else 3)  # steps, or minutes
        return f"{text} at {at:,.10g}, {seeds_of(len(self.seeds))}"


@dataclass(frozen=True)
class Panel:
    behavior: str
    label: str
    curves: Sequence[Curve]


@dataclass(frozen=True)
class Series:
    """The known values of one metric of a run."""

    steps: Values
    minutes: Values
    values: Values


Table = Mapping[str, Series]
"""Column of metrics.csv -> its values, with `evaluation` where the run has some."""


def seeds_of(count: int) -> str:
    return "1 run" if count == 1 else f"{count} seeds"


def _groups(runs: Sequence[str | os.PathLike[str]], log: Log) -> dict[str, list[Path]]:
    """Name of a curve -> its runs."""
    named = [_split(os.fspath(run)) for run in runs]
    names = [name or folder.name for name, folder in named]
    groups: dict[str, list[Path]] = {}
    for (given, folder), name in zip(named, names, strict=True):
        # Two folders with the same last name are two curves, unless they were named alike.
        is_unique = given or names.count(name) == 1
        folders = [run_of(folder, log)] if is_search(folder) else runs_in(folder)
        if not folders:
            raise UsageError(
                f"{folder}: no run folder: expected results/RUN-ID with a configuration.yaml, or "
                "one of several seeds"
            )
        curve = groups.setdefault(name if is_unique else str(folder), [])
        for one in folders:
            # Twice the same would be two seeds that agree.
            if one in curve:
                raise UsageError(f"{one} is given twice")
            curve.append(one)
    return groups


def _split(run: str) -> tuple[str, Path]:
    name, equals, folder = run.partition("=")
    if equals and not Path(run).exists():
        return name, Path(folder)
    return "", Path(run)


def read_series(run: Path) -> dict[str, Table]:
    """Behavior -> its metrics, and the scores of its evaluations."""
    status = recorded(RunLayout(run))
    found: dict[str, Table] = {}
    for behavior, columns in read_columns(run).items():
        steps, minutes = columns["step"], columns["time_s"] / 60
        table = {}
        for name, values in columns.items():
            known = ~np.isnan(values)
            if known.any() and name not in ("step", "time_s"):
                table[name] = Series(steps[known], minutes[known], values[known])
        evaluations = status.get(behavior, {}).get("evaluations", [])
        if evaluations:
            at = np.array([float(one["steps"]) for one in evaluations])
            scores = np.array([float(one["score"]) for one in evaluations])
            # Evaluations are recorded with their steps alone: summaries have the time.
            table[EVALUATION] = Series(at, np.interp(at, steps, minutes), scores)
        found[behavior] = table
    return found


def _metrics_in(tables: Mapping[str, Sequence[Mapping[str, Table]]]) -> str:
    """The metrics to choose from, for an error."""
    names = {
        name
        for read in tables.values()
        for table in read
        for metrics in table.values()
        for name in metrics
    }
    return f"they have {', '.join(sorted(names))}" if names else "they have no figures"


def panel_of(
    behavior: str,
    tables: Mapping[str, Sequence[Mapping[str, Table]]],
    metric: str = SCORE,
    against: str = "steps",
    average: str = "mean",
) -> Panel:
    """The curves of a behavior; `tables` are those of the runs of each curve, by its name."""
    own = {
        name: [table[behavior] for table in read if behavior in table]
        for name, read in tables.items()
    }
    label = metric.replace("_", " ")
    if metric == SCORE:
        metric = _most_telling([table for read in own.values() for table in read])
        label = SCORES[metric]
    curves = []
    for name, read in own.items():
        series = [table[metric] for table in read if metric in table]
        seeds = [(getattr(one, against), one.values) for one in series]
        if seeds:
            curves.append(curve_of(name, seeds, label, average))
    if any(len(curve.seeds) > 1 for curve in curves):
        label = f"{label} ({AVERAGES[average][1]} over seeds, 95 % interval)"
    return Panel(behavior, label, curves)


def _most_telling(tables: Sequence[Table]) -> str:
    """The metric that says how good these policies are: one that all have, if there is one."""
    for enough in (all, any):
        for metric in SCORES:
            if enough(metric in table for table in tables):
                return metric
    return next(reversed(SCORES))


def curve_of(
    name: str, seeds: Sequence[tuple[Values, Values]], label: str, average: str
) -> Curve:
    """The curve of one run, or the middle of several with its interval where all have values."""
    if len(seeds) == 1:
        ((x, y),) = seeds
        return Curve(name, x, y, None, None, seeds, label)
    first = max(x[0] for x, _ in seeds)
    last = min(x[-1] for x, _ in seeds)
    grid = np.linspace(first, last, _GRID)
    if last <= first:
        # Each has one value, or they do not overlap: their last values stand for all.
        grid = np.array([np.mean([x[-1] for x, _ in seeds])])
    values = np.stack([np.interp(grid, x, y) for x, y in seeds], axis=-1)
    middle = AVERAGES[average][0]
    low, high = interval_of(values, middle)
    return Curve(name, grid, middle(values), low, high, seeds, label)


def interval_of(
    values: Values, middle: Callable[[Values], Values], resamples: int = MOST_RESAMPLES
) -> tuple[Values, Values]:
    """Low and high end of the 95 % percentile bootstrap along the last axis."""
    # The same seeds always give the same interval.
    rng = np.random.default_rng(0)
    count = values.shape[-1]
    drawn = values[..., rng.integers(count, size=(resamples, count))]
    low, high = np.percentile(middle(drawn), [2.5, 97.5], axis=-1)
    return low, high


# from curves to a figure


def new_figure(
    panels: Sequence[Panel], names: Sequence[str], x_label: str = AXES["steps"]
) -> Figure:
    """A figure of panels; a curve has the same color in all of them."""
    # Loading takes a second. A figure of its own leaves the program's pyplot alone.
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    columns = 2 if len(panels) == 4 else min(3, len(panels))
    rows = -(-len(panels) // columns)
    width = 7.2 if columns == 1 else 4.6 * columns
    figure = Figure(figsize=(width, 3.9 * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    places = list(grid.flat)
    for axes in places[len(panels) :]:
        axes.remove()
    handles = {}
    for axes, panel in zip(places, panels, strict=False):
        for curve in panel.curves:
            number = names.index(curve.name)
            color = _COLORS[number % len(_COLORS)]
            style = _STYLES[number // len(_COLORS) % len(_STYLES)]
            handles[curve.name] = _draw(axes, curve, color, style)
        axes.set(title=panel.behavior, xlabel=x_label, ylabel=panel.label)
        if x_label == AXES["steps"]:
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 200k, 1M
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.02)
    figure.legend(
        handles=[handles[name] for name in names if name in handles],
        loc="outside lower center",
        ncols=min(4, len(handles)),
        frameon=False,
    )
    return figure


def _draw(axes: Axes, curve: Curve, color: str, style: str) -> object:
    is_point = len(curve.x) < 2
    marker = "o" if is_point else ""
    if curve.low is not None and curve.high is not None:
        for x, y in curve.seeds:
            axes.plot(x, y, style, color=color, alpha=0.25, linewidth=0.7)
        if is_point:
            axes.vlines(curve.x, curve.low, curve.high, color=color)
        else:
            axes.fill_between(
                curve.x, curve.low, curve.high, color=color, alpha=0.2, linewidth=0
            )
    label = f"{curve.name} ({seeds_of(len(curve.seeds))})"
    (line,) = axes.plot(
        curve.x,
        curve.middle,
        style,
        color=color,
        linewidth=1.8,
        label=label,
        marker=marker,
    )
    return line


def write_figure(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Write a figure; the same curves are the same bytes."""
    import matplotlib as mpl

    kind = path.suffix.lower().removeprefix(".")
    no_date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    content = io.BytesIO()
    # Names of parts of an SVG are random otherwise.
    salt = mpl.rc_context({"svg.hashsalt": "touchline"})
    with salt, names_as_written(figure):
        figure.savefig(content, format=kind, dpi=dpi, metadata=no_date.get(kind))
    write_whole(path, content.getvalue())
