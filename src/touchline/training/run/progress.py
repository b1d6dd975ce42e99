"""How far a run is, for whoever shows it while the run continues."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from touchline.training.behavior_training import BehaviorTraining
from touchline.training.collect.collector import Collector


@dataclass(frozen=True)
class BehaviorProgress:
    """How far one behavior is."""

    name: str
    step: int
    """Agent steps, with those that no update has used yet."""
    max_steps: int
    mean_return: float | None
    """Mean over the latest episodes; before the first end, over the open episodes so far."""
    std_return: float
    is_so_far: bool
    """Whether no episode has ended yet."""
    rating: float | None
    """ELO with self-play, as of the latest summary."""


Watch = Callable[[Callable[[], Sequence[BehaviorProgress]]], None]
"""Called at every step with a function that returns the progress; calls it when it wants to."""


def unwatched(progress: Callable[[], Sequence[BehaviorProgress]]) -> None:
    """The watch of callers who want none."""
    del progress


def progress_of(
    trainings: Iterable[BehaviorTraining], collector: Collector
) -> list[BehaviorProgress]:
    """The progress of every behavior, between two steps."""
    return [_progress(training, collector) for training in trainings]


def _progress(training: BehaviorTraining, collector: Collector) -> BehaviorProgress:
    num_results, so_far = collector.underway(training.name)
    finished = training.latest_returns
    returns = finished or so_far
    return BehaviorProgress(
        name=training.name,
        step=training.learner.steps + num_results,
        max_steps=training.config.max_steps,
        mean_return=float(np.mean(returns)) if returns else None,
        std_return=float(np.std(returns)) if returns else 0.0,
        is_so_far=not finished,
        rating=training.rating,
    )
