"""How a run ended, for programs."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class BehaviorResult:
    """Result of one behavior."""

    steps: int
    mean_return: float | None
    """Mean over the last 100 episodes in training; None if none ended."""
    model: Path
    """The model for Unity, or the checkpoint of a policy that Unity has no form for."""
    curve: Path | None
    """The learning curve; None if no episode ended."""
    evaluation: float | None = None
    """The score of the last evaluation, a rating with self-play; None without any."""
    best_evaluation: float | None = None
    """The highest score of an evaluation in the same lessons."""
    best_step: int | None = None
    """After how many steps it was reached."""


@dataclass(frozen=True)
class TrainingResult:
    """Result of a run."""

    folder: Path
    interrupted: bool
    behaviors: dict[str, BehaviorResult]
    """Results by base name."""
