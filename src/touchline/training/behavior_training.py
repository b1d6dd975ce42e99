"""One behavior in training: learner, metrics, and when summaries and checkpoints are due."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from touchline.envs.saved_state import Arrays, kept, put_back
from touchline.errors import UsageError
from touchline.log import ProgressLine
from touchline.policies.files.checkpoints import spec_from_json, spec_to_json
from touchline.statistics import EnvironmentStats, StatsAggregationMethod
from touchline.training.algorithms.learner import Learner, Metrics
from touchline.training.collect.collector import Episodes
from touchline.training.config.settings import BehaviorConfig
from touchline.training.run.metrics import MetricsWriter, Summary, progress_line
from touchline.training.self_play.pool import Pool

RECENT_EPISODES = 100
"""The mean return that people see is taken over this many episodes."""
_KEPT = (
    "recent",
    "recent_groups",
    "_returns",
    "_lengths",
    "_group_returns",
    "_metrics",
    "_next_summary",
    "_next_checkpoint",
)
"""Attributes that a resume point holds as they are."""


class BehaviorTraining:
    """Counts the episodes and steps of one behavior (base name) next to its learner."""

    def __init__(
        self, name: str, config: BehaviorConfig, learner: Learner, writer: MetricsWriter
    ) -> None:
        self.name = name
        self.config = config
        self.learner = learner
        self.writer = writer
        self.recent: list[float] = []
        """Returns of the latest episodes, up to the last summary."""
        self.recent_groups: list[float] = []
        """Likewise group returns of the latest group episodes."""
        self.pool: Pool | None = None
        """Its opponents, with self-play."""
        self.rating: float | None = None
        """ELO as of the latest summary, with self-play."""
        self._returns: list[float] = []
        self._lengths: list[int] = []
        self._group_returns: list[float] = []
        self._statistics: dict[str, list[tuple[float, StatsAggregationMethod]]] = {}
        self._metrics: Metrics = {}
        self._next_summary = learner.steps + config.summary_freq
        self._next_checkpoint = learner.steps + config.checkpoint_interval

    @property
    def is_done(self) -> bool:
        return self.learner.steps >= self.config.max_steps

    @property
    def progress(self) -> float:
        """Share of the behavior's steps that are done, 0 to 1."""
        return min(1.0, self.learner.steps / max(1, self.config.max_steps))

    @property
    def recent_mean(self) -> float | None:
        """Mean return of the latest episodes, up to now; None before one has ended."""
        returns = self.latest_returns
        return float(np.mean(returns)) if returns else None

    @property
    def latest_returns(self) -> list[float]:
        """Returns of the latest episodes, up to now."""
        returns = self.recent + self._returns[-RECENT_EPISODES:]
        return returns[-RECENT_EPISODES:]

    def record_episodes(self, episodes: Episodes) -> None:
        """Keep ended episodes for the next summary."""
        self._returns += episodes.returns
        self._lengths += episodes.lengths
        self._group_returns += episodes.group_returns

    def record_statistics(self, statistics: EnvironmentStats) -> None:
        """Keep what the worlds reported for the next summary."""
        for name, values in statistics.items():
            self._statistics.setdefault(name, []).extend(values)

    def update(self) -> None:
        """Let the learner learn from what was added to it."""
        # Figures that an update does not have are those of the latest one that had them.
        self._metrics = self._metrics | self.learner.update()
        if self.pool is not None:
            self.pool.learned(self.learner.steps, is_done=self.is_done)

    def summary_is_due(self) -> bool:
        return self.learner.steps >= self._next_summary or self.is_done

    def summarize(self, lessons: Mapping[str, int]) -> str:
        """Write a summary; returns it as a line for people."""
        step = self.learner.steps
        frequency = self.config.summary_freq
        # The next multiple, as in ML-Agents: an update may pass several at once.
        self._next_summary = step - step % frequency + frequency
        returns = self.recent + self._returns
        self.recent = returns[-RECENT_EPISODES:]
        groups = self.recent_groups + self._group_returns
        self.recent_groups = groups[-RECENT_EPISODES:]
        in_games = {} if self.pool is None else self.pool.metrics()
        summary = Summary(
            step,
            self._returns,
            self._lengths,
            {**in_games, **self._metrics},
            lessons,
            self._statistics,
            self._group_returns,
        )
        row = self.writer.write(summary)
        # New lists: the summary keeps the old ones.
        self._returns = []
        self._lengths = []
        self._statistics = {}
        self._group_returns = []
        self.rating = row.get("elo")
        return ProgressLine(progress_line(self.name, row, self.config.max_steps))

    def checkpoint_is_due(self) -> bool:
        """Whether it is time for one in the middle of training; True once each time."""
        # The checkpoint at the end of training is the trainer's own.
        if self.learner.steps < self._next_checkpoint or self.is_done:
            return False
        self._next_checkpoint = self.learner.steps + self.config.checkpoint_interval
        return True

    def arrays(self) -> Arrays:
        """Weights, optimizer and random state of the learner."""
        return {name: tensor.numpy() for name, tensor in self.learner.state().items()}

    def counters(self) -> dict[str, Any]:
        """Everything else that a resume point holds, as plain values."""
        return kept(self, _KEPT) | {
            "steps": self.learner.steps,
            "statistics": self._statistics,
            "spec": spec_to_json(self.learner.policy.network.spec),
            "reward_signals": list(self.config.reward_signals),
        }

    def restore(self, counters: Mapping[str, Any], arrays: Arrays) -> None:
        old, spec = spec_from_json(counters["spec"]), self.learner.policy.network.spec
        # Specs compare without their network, which is checked next.
        if old != spec:
            raise UsageError(
                f"the behavior {self.name} has changed since this run: "
                "it observes or does something else"
            )
        if old.network != spec.network:
            raise UsageError(
                f"{self.name}: this run's network is {old.network!r}; expected the same as "
                f"network_settings.type, got {spec.network!r}"
            )
        signals = list(self.config.reward_signals)
        known = counters["reward_signals"]
        if known != signals:
            raise UsageError(
                f"{self.name}: this run's reward signals are {', '.join(known)}; expected the same "
                f"in this order, got {', '.join(signals)}"
            )
        cloning = self.config.behavioral_cloning
        obstacle = "" if cloning is None else cloning.resume_obstacle(arrays)
        if obstacle:
            raise UsageError(f"{self.name}: {obstacle}")
        try:
            # Copies: tensors share memory with arrays, and the learner writes to its own.
            copies = {name: array.copy() for name, array in arrays.items()}
            state = {name: torch.from_numpy(copy) for name, copy in copies.items()}
            self.learner.load_state(state)
        except (KeyError, RuntimeError):
            raise UsageError(
                f"{self.name}: the saved learner does not fit the configured one"
                f"{self._difference(arrays)}; resume it with the trainer_type, network_settings "
                "and hyperparameters that it began with, or start another --run-id"
            ) from None
        self.learner.steps = counters["steps"]
        put_back(self, _KEPT, counters)
        # A resumed run may want them more often than before.
        soonest = self.learner.steps + self.config.summary_freq
        self._next_summary = min(self._next_summary, soonest)
        soonest = self.learner.steps + self.config.checkpoint_interval
        self._next_checkpoint = min(self._next_checkpoint, soonest)
        self._statistics = {
            name: [(value, StatsAggregationMethod(method)) for value, method in values]
            for name, values in counters["statistics"].items()
        }
        # A killed run may have written summaries after its resume point; they will be written
        # again.
        self.writer.drop_after(self.learner.steps)

    def _difference(self, arrays: Arrays) -> str:
        """The first part of the learner that a resume point lacks or has in another shape."""
        for name, tensor in self.learner.state().items():
            wanted = tuple(tensor.shape)
            found = arrays[name].shape if name in arrays else None
            if found is None:
                return f": it has no {name}"
            if found != wanted:
                return f": its {name} has the shape {found}, not {wanted}"
        return ""
