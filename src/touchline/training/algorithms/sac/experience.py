"""What SAC learns from: a replay, and reward signals, computed again for each draw."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from touchline.operating_systems import memory_bytes
from touchline.training.algorithms.learner import Metrics, SettingError
from touchline.training.algorithms.sac.settings import SACSettings
from touchline.training.experience.replay import Replay, Sample
from touchline.training.experience.trajectories import Trajectories
from touchline.training.rewards.signal import Rejudging, RewardSignal


class StepRate:
    """Gradient steps at a rate of agent steps, so that the ratio of both holds over a whole run
    however unevenly experience arrives. As in ML-Agents (`trainer/off_policy_trainer.py`).
    """

    def __init__(self, steps_per_update: float) -> None:
        self.steps_per_update = steps_per_update
        self.count = 1
        """Gradient steps, counted from 1 as in ML-Agents."""

    def is_due(self, since: int) -> bool:
        """Whether a gradient step is, this many agent steps after learning began."""
        return since > self.steps_per_update * self.count

    def skip_to(self, since: int) -> None:
        """Do not catch up on what was not learned until now."""
        self.count = max(1, int(since / self.steps_per_update))


class JudgedReplay:
    """A replay next to the reward signals of its learner.

    A signal that learns judges an action again whenever it is drawn, because what it thinks of old
    experience changes.
    """

    def __init__(
        self,
        hyper: SACSettings,
        signals: Sequence[RewardSignal],
        sequence_length: int | None,
        row_bytes: int,
    ) -> None:
        """Raises a SettingError for a replay that is larger than this machine's memory."""
        _refuse_larger_than_memory(hyper.buffer_size, row_bytes)
        self.replay = Replay(hyper.buffer_size, sequence_length=sequence_length)
        self.signals = signals
        self._learning = {
            column: signal
            for column, signal in enumerate(signals)
            if isinstance(signal, Rejudging)
        }
        self._hyper = hyper
        own = hyper.reward_signal_steps_per_update
        self.rate = StepRate(hyper.steps_per_update if own is None else own)
        """Rate of the signals' gradient steps."""

    def add(self, team: str, trajectories: Trajectories) -> None:
        """Keep the actions with the rewards that do not change."""
        columns = np.zeros((*trajectories.valid.shape, len(self.signals)), np.float32)
        for column, signal in enumerate(self.signals):
            signal.observe(team, trajectories)
            if column not in self._learning:
                reward = signal.reward(trajectories)
                columns[..., column] = signal.strength * reward
        self.replay.add(team, trajectories, columns)

    def draw(self, generator: torch.Generator) -> Sample:
        return self.replay.sample(
            self._hyper.batch_size,
            [signal.discount for signal in self.signals],
            generator,
            return_steps=self._hyper.return_steps,
            ignores_ends=[signal.ignores_ends for signal in self.signals],
            rewards=self.rewards,
        )

    def rewards(self, place: NDArray[Any]) -> NDArray[np.float32]:
        """[B, S] of actions in the replay, as the signals judge them now."""
        rewards = self.replay.rewards(place)
        if self._learning:
            transitions = self.replay.transitions(place)
            for column, signal in self._learning.items():
                judged = signal.reward_of(transitions).numpy(force=True)
                rewards[:, column] = signal.strength * judged
        return rewards

    def teach_signals(self, since: int, generator: torch.Generator) -> Metrics:
        """The gradient steps of the signals that are due, on minibatches of their own."""
        steps: dict[int, list[Any]] = {column: [] for column in self._learning}
        while self.rate.is_due(since):
            for column, signal in self._learning.items():
                drawn = self.replay.draw(self._hyper.batch_size, generator)
                transitions = self.replay.transitions(drawn)
                steps[column].append(signal.gradient_step(transitions, generator))
            self.rate.count += 1
        metrics: Metrics = {}
        for column, signal in self._learning.items():
            metrics |= signal.metrics(steps[column])
        return metrics


def _refuse_larger_than_memory(buffer_size: int, row: int) -> None:
    memory, needed = memory_bytes(), buffer_size * row
    if needed > memory:
        raise SettingError(
            "hyperparameters.buffer_size",
            f"{buffer_size:,} experiences of {row:,} bytes need {needed / 1e9:.1f} GB, more than "
            f"the {memory / 1e9:.1f} GB of this machine; take a smaller one",
        )
