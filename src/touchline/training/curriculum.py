"""Environment parameters over a run: constants, samplers, and lessons that give way to harder ones.

Rules of `mlagents-learn` 1.1.0: a lesson is over when at least `min_lesson_length` episodes of its
behavior have ended and the measure is above the threshold. The reward measure is the mean return of
the latest episodes (as many as the longest `min_lesson_length` asks for), smoothed by 0.25 of its
last value; the progress measure is steps / max_steps. A new lesson of any parameter forgets all
episodes. One difference: the reward is measured when an episode has ended, not at every step, so
that smoothing means something.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from touchline.parameters import ParameterValue
from touchline.training.config.environment_parameters import (
    Lesson,
    lessons_of,
    value_of,
)
from touchline.training.config.settings import RunConfig

OLD_SHARE = 0.25
"""Share of the last measure in a smoothed one. Source: ML-Agents 1.1.0, `settings.py`."""


@dataclass(frozen=True)
class NewLessons:
    """What changes now."""

    values: Mapping[str, ParameterValue]
    needs_reset: bool
    lines: tuple[str, ...]


class Curriculum:
    """Which lesson each environment parameter is in."""

    def __init__(self, config: RunConfig) -> None:
        parameters = config.environment_parameters
        self._lessons = {name: lessons_of(own) for name, own in parameters.items()}
        self._current = dict.fromkeys(self._lessons, 0)
        self._smoothed = dict.fromkeys(self._lessons, 0.0)
        self._has_new_returns: set[str] = set()
        """Behaviors of which an episode has ended since the last call of `advance`."""
        longest: dict[str, int] = {}
        for lesson in chain.from_iterable(self._lessons.values()):
            criteria = lesson.completion_criteria
            if criteria is not None:
                behavior = criteria.behavior
                so_far = longest.get(behavior, 1)
                longest[behavior] = max(so_far, criteria.min_lesson_length)
        self._returns = {
            behavior: deque[float](maxlen=length)
            for behavior, length in longest.items()
        }

    @property
    def values(self) -> dict[str, ParameterValue]:
        """The parameters of the current lessons."""
        return {name: value_of(self._lesson(name)) for name in self._lessons}

    @property
    def numbers(self) -> dict[str, int]:
        """The current lesson of each parameter, from 0."""
        return dict(self._current)

    def record_returns(self, behavior: str, returns: Sequence[float]) -> None:
        """Add the returns of episodes that have ended."""
        if returns and behavior in self._returns:
            self._returns[behavior].extend(returns)
            self._has_new_returns.add(behavior)

    def advance(self, progress: Mapping[str, float]) -> NewLessons | None:
        """Continue to the next lesson where this one is over, and to later ones where that is over,
        too; `progress` is each behavior's steps / max_steps.
        """
        new: dict[str, ParameterValue] = {}
        needs_reset = False
        lines = []
        # All at once: collectors take new parameters between two rounds only.
        while over := self._over(progress):
            for name in over:
                # `require_reset` belongs to the lesson that is over.
                criteria = self._lesson(name).completion_criteria
                needs_reset |= criteria is not None and criteria.require_reset
                self._current[name] += 1
                new[name] = value_of(self._lesson(name))
                lines.append(self._line(name))
            for returns in self._returns.values():
                returns.clear()
        return NewLessons(new, needs_reset, tuple(lines)) if new else None

    def _over(self, progress: Mapping[str, float]) -> list[str]:
        over = [name for name in self._lessons if self._is_over(name, progress)]
        self._has_new_returns.clear()
        return over

    def state(self) -> dict[str, Any]:
        """Everything needed to continue from here, as plain values."""
        returns = {name: list(values) for name, values in self._returns.items()}
        return {
            "lessons": self.numbers,
            "smoothed": dict(self._smoothed),
            "returns": returns,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned; new parameters begin with their first lesson."""
        for name in self._lessons.keys() & state["lessons"].keys():
            # The configuration may have lost lessons since.
            last = len(self._lessons[name]) - 1
            self._current[name] = min(state["lessons"][name], last)
            self._smoothed[name] = state["smoothed"][name]
        for name in self._returns.keys() & state["returns"].keys():
            self._returns[name].extend(state["returns"][name])

    def _is_over(self, name: str, progress: Mapping[str, float]) -> bool:
        criteria = self._lesson(name).completion_criteria
        is_last = self._current[name] == len(self._lessons[name]) - 1
        if criteria is None or is_last or criteria.behavior not in progress:
            return False
        returns = self._returns[criteria.behavior]
        if len(returns) < criteria.min_lesson_length:
            return False
        if criteria.measure == "progress":
            return progress[criteria.behavior] > criteria.threshold
        # Without a new return the same mean would be smoothed again and again.
        if criteria.behavior not in self._has_new_returns or not returns:
            return False
        measure = sum(returns) / len(returns)
        if criteria.signal_smoothing:
            measure = OLD_SHARE * self._smoothed[name] + (1 - OLD_SHARE) * measure
            self._smoothed[name] = measure
        return measure > criteria.threshold

    def _lesson(self, name: str) -> Lesson:
        return self._lessons[name][self._current[name]]

    def _line(self, name: str) -> str:
        lesson = self._lesson(name)
        number = self._current[name] + 1
        count = len(self._lessons[name])
        # A sampler without a seed of its own: people need not read that.
        value = str(value_of(lesson)).replace(", seed=None", "")
        return f"{name}: lesson {number} of {count}, {lesson.name!r}: {value}"
