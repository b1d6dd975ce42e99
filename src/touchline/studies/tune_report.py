"""What a search for settings found: figures, a table, a picture, and the best settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from touchline.log import Log
from touchline.policies.files.run_layout import RunLayout
from touchline.training.config.reading import write_config
from touchline.whole import write_whole

if TYPE_CHECKING:
    import optuna

    from touchline.training.config.settings import RunConfig

ENOUGH_FOR_IMPORTANCE = 4
"""Finished trials below which a picture of importance would show chance alone."""
SHOWN = 10
"""Trials in the table that is logged."""


@dataclass(frozen=True)
class TrialFigures:
    """One trial of a search."""

    number: int
    state: str
    """complete, pruned (stopped because others did better), fail or running."""
    score: float | None
    """Mean score of its last evaluation over behaviors; None unless it is complete."""
    values: dict[str, Any]
    """Key -> the value that was tried."""
    why: str | None = None
    """Why it failed."""


@dataclass(frozen=True)
class TuneResult:
    """Result of a search for settings."""

    folder: Path
    interrupted: bool
    """Then `resume` continues with it."""
    best: TrialFigures | None
    """None if no trial was finished."""
    trials: list[TrialFigures]
    importance: dict[str, float]
    """Key -> its share of what explains good scores; empty with few finished trials."""


def result_of(
    study: optuna.Study, layout: RunLayout, *, interrupted: bool
) -> TuneResult:
    """What is known of a search."""
    trials = [
        TrialFigures(
            number=trial.number,
            state=trial.state.name.lower(),
            # Of a trial that was stopped Optuna gives its last return in training.
            score=trial.value if trial.state.name == "COMPLETE" else None,
            values=dict(trial.params),
            why=trial.user_attrs.get("why"),
        )
        for trial in study.trials
    ]
    finished = [trial for trial in trials if trial.score is not None]
    best = max(finished, key=lambda trial: trial.score or 0.0, default=None)
    importance = {}
    if len(finished) >= ENOUGH_FOR_IMPORTANCE:
        importance = _importance(study)
    return TuneResult(layout.path, interrupted, best, trials, importance)


def _importance(study: optuna.Study) -> dict[str, float]:
    """By PED-ANOVA (Watanabe et al. 2023, arXiv:2304.10255), which needs no model of the scores."""
    import warnings

    import optuna

    with warnings.catch_warnings():
        # It is announced as experimental.
        warnings.simplefilter("ignore")
        found = optuna.importance.get_param_importances(
            study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
        )
    return {key: float(share) for key, share in found.items()}


def write_result(
    result: TuneResult, layout: RunLayout, best: RunConfig, log: Log
) -> None:
    """Write `report.md`, `tune.json`, the picture and the best settings, and log the table."""
    write_config(best, layout.best_settings)
    content = {
        "trials": [asdict(trial) for trial in result.trials],
        "best": None if result.best is None else result.best.number,
        "importance": result.importance,
    }
    write_whole(layout.tune, (json.dumps(content, indent=2) + "\n").encode())
    if result.importance:
        _draw(result.importance, layout.importance)
    lines = [f"# {layout.path.name}", "", *_table(result), ""]
    if result.importance:
        lines += [f"![importance]({layout.importance.name})", ""]
    lines += [
        f"The best settings: [{layout.best_settings.name}]({layout.best_settings.name})"
    ]
    write_whole(layout.report, ("\n".join(lines) + "\n").encode())
    for line in list(_table(result))[: SHOWN + 2]:
        log(line)
    log(f"best settings {layout.best_settings}")
    log(f"report {layout.report}")


def _table(result: TuneResult) -> Iterator[str]:
    """The best first, then those without a score."""
    keys = sorted({key for trial in result.trials for key in trial.values})
    header = ["trial", "score", *(key.removeprefix("behaviors.*.") for key in keys)]
    yield f"| {' | '.join(header)} |"
    yield f"| {' | '.join('---' for _ in header)} |"

    def order(trial: TrialFigures) -> tuple[bool, float, int]:
        return trial.score is None, -(trial.score or 0.0), trial.number

    for trial in sorted(result.trials, key=order):
        score = trial.state if trial.score is None else f"{trial.score:.3f}"
        values = [_shown(trial.values.get(key)) for key in keys]
        yield f"| {' | '.join([str(trial.number), score, *values])} |"


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _draw(importance: dict[str, float], path: Path) -> None:
    from matplotlib.figure import Figure

    from touchline.studies.plot import write_figure

    keys = [key.removeprefix("behaviors.*.") for key in importance]
    figure = Figure(figsize=(8, 1 + 0.4 * len(keys)), layout="constrained")
    axes = figure.subplots()
    axes.barh(keys, list(importance.values()))
    axes.invert_yaxis()  # the most important on top
    axes.set(xlabel="share of what explains good scores (PED-ANOVA)", xlim=(0, 1))
    axes.grid(axis="x", alpha=0.3)
    write_figure(figure, path, dpi=120)
