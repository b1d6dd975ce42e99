"""A reward signal that learns: what curiosity, RND and GAIL have in common.

A model judges single transitions. On-policy learners let it judge trajectories and learn from them
in shuffled passes; a learner with a replay lets it judge each minibatch again, because what the
model thinks of old experience changes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy.typing import NDArray
from torch import Tensor, nn

from touchline.policies.nets.encoders import Sensors
from touchline.policies.network import Architecture
from touchline.training.algorithms.adam import Adam, FlatParameters
from touchline.training.algorithms.learned_state import copied_part, restore, saved
from touchline.training.algorithms.learner import SettingError
from touchline.training.config.network_settings import NetworkSettings
from touchline.training.experience.trajectories import Trajectories
from touchline.training.experience.transitions import (
    Results,
    Transitions,
    transitions_at,
)
from touchline.training.rewards.settings import LearnedSettings
from touchline.training.rewards.signal import RewardSignal, SignalSetup

CHUNK_SIZE = 2048
"""Transitions judged at a time: the pictures of a whole buffer would need gigabytes."""

Figures = dict[str, Tensor]
"""Metrics of one gradient step, by name."""


# Experience arrives in pieces of any length, one team after the other: these sums continue from
# piece to piece.


class EpisodeSums:
    """The rewards of open episodes, and the mean of those that ended."""

    def __init__(self) -> None:
        self._open: dict[str, NDArray[np.float64]] = {}
        self._ended: list[float] = []

    def add(
        self, team: str, trajectories: Trajectories, reward: Float32[np.ndarray, "T N"]
    ) -> None:
        """Count what the actions of a team's slots were paid."""
        ends = trajectories.terminated | trajectories.truncated
        begins = trajectories.begins
        if trajectories.carried is not None:
            # These steps came before; only the slots whose actions are still open are in them.
            is_new = ~trajectories.carried[:, None]
            begins = begins & (trajectories.acted | is_new)
        total = _widened(self._open.get(team), reward.shape[1])
        for step, paid in enumerate(reward):
            total[begins[step]] = 0.0
            total += paid
            ended = ends[step]
            self._ended += total[ended].tolist()
            total[ended] = 0.0
        self._open[team] = total

    def take_mean(self) -> float | None:
        """Of the episodes that ended since the last time; None where there are none."""
        ended = self._ended
        self._ended = []
        if not ended:
            return None
        return float(np.mean(ended))

    def state(self) -> dict[str, Tensor]:
        state = {f"open.{team}": torch.tensor(v) for team, v in self._open.items()}
        return state | {"ended": torch.tensor(self._ended, dtype=torch.float64)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._open = _of_teams("open.", state)
        self._ended = state["ended"].tolist()


class ReturnScale:
    """1 / standard deviation of the slots' running discounted rewards.

    Rewards that are multiplied by it stay of one size while what earns them becomes familiar.
    Source: Burda et al. 2018, arXiv:1810.12894, section 2.4; as there, the sums run on past the
    ends of episodes.
    """

    def __init__(self, discount: float) -> None:
        self._discount = discount
        self._running: dict[str, NDArray[np.float64]] = {}
        self._count = 0.0
        self._mean = 0.0
        self._squares = 0.0

    @property
    def factor(self) -> float:
        """1 until there is a spread."""
        variance = self._squares / max(self._count, 1.0)
        if variance > 0.0:
            return float(variance**-0.5)
        return 1.0

    def add(
        self, team: str, trajectories: Trajectories, reward: Float32[np.ndarray, "T N"]
    ) -> None:
        """Include the rewards of a team's slots, in order of time."""
        running = _widened(self._running.get(team), reward.shape[1])
        found = []
        for step, paid in enumerate(reward):
            earned = trajectories.valid[step]
            running[earned] = self._discount * running[earned] + paid[earned]
            found.append(running[earned])
        self._running[team] = running
        self._include(np.concatenate(found))

    def _include(self, values: NDArray[np.float64]) -> None:
        """Source: Chan et al. 1979, the pairwise update of mean and squared deviations."""
        if not len(values):
            return
        added = len(values)
        mean = float(values.mean())
        total = self._count + added
        difference = mean - self._mean
        # Deviations from each side's own mean are added: sums of plain squares would cancel
        # where the spread is small compared with the mean.
        self._squares += float(np.square(values - mean).sum())
        self._squares += difference**2 * self._count * added / total
        self._mean += difference * added / total
        self._count = total

    def state(self) -> dict[str, Tensor]:
        figures = [self._count, self._mean, self._squares]
        state = {f"running.{t}": torch.tensor(v) for t, v in self._running.items()}
        return state | {"figures": torch.tensor(figures, dtype=torch.float64)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._running = _of_teams("running.", state)
        self._count, self._mean, self._squares = state["figures"].tolist()


def _widened(values: NDArray[np.float64] | None, width: int) -> NDArray[np.float64]:
    # A table of slots may have grown since.
    found = np.zeros(width)
    if values is not None:
        kept = min(width, len(values))
        found[:kept] = values[:kept]
    return found


def _of_teams(
    prefix: str, state: Mapping[str, Tensor]
) -> dict[str, NDArray[np.float64]]:
    return {team: v.numpy() for team, v in copied_part(prefix, state).items()}


class SignalModel(nn.Module, ABC):
    """What judges transitions."""

    def observe(self, transitions: Transitions) -> None:
        """Include new experience in the statistics of normalizers."""

    @abstractmethod
    def reward(self, transitions: Transitions) -> Float[Tensor, " B"]:
        """What each action earns, before any scaling."""

    @abstractmethod
    def loss(
        self, transitions: Transitions, generator: torch.Generator
    ) -> tuple[Float[Tensor, ""], Figures]:
        """What a gradient step descends; random numbers are drawn on the CPU."""

    def learned(self, figures: Figures) -> None:
        """Take note of a gradient step that was made."""


class LearnedSignal:
    """A `RewardSignal` on a model."""

    def __init__(
        self,
        name: str,
        settings: LearnedSettings,
        setup: SignalSetup,
        model: SignalModel,
        *,
        ignores_ends: bool,
        scale: ReturnScale | None = None,
    ) -> None:
        """`model` is on the setup's device; with a `scale`, it multiplies the rewards."""
        self.name = name
        self.strength = settings.strength
        self.discount = settings.gamma
        self.ignores_ends = ignores_ends
        self.model = model
        self._device = setup.device
        self._vector_size = Sensors.from_spec(setup.spec).vector_size
        self._batch_size = setup.batch_size
        self._num_epoch = settings.num_epoch or setup.num_epoch
        self._learning_rate = settings.learning_rate
        # Fixed parameters, such as those of a random target, must not move.
        self._weights = FlatParameters(p for p in model.parameters() if p.requires_grad)
        self._adam = Adam(self._weights.vector)
        self._scale = scale
        self._episodes = EpisodeSums()

    # rewards

    def observe(self, team: str, trajectories: Trajectories) -> None:
        """Statistics first, so that the rewards of an update are all by the same ones."""
        for _, _, transitions in self._chunks(trajectories):
            self.model.observe(transitions)
        raw = self._raw(trajectories)
        if self._scale is not None:
            self._scale.add(team, trajectories, raw)
        paid = raw * np.float32(self._factor * self.strength)
        self._episodes.add(team, trajectories, paid)

    def reward(self, trajectories: Trajectories) -> Float32[np.ndarray, "T N"]:
        """[T, N] what the model thinks of each action now, 0 where it has no result."""
        return self._raw(trajectories) * np.float32(self._factor)

    @torch.no_grad()
    def reward_of(self, transitions: Transitions) -> Float[Tensor, " B"]:
        """What the model thinks now of actions of a replay; on its device."""
        return self.model.reward(self._seen(transitions)) * self._factor

    @property
    def _factor(self) -> float:
        return 1.0 if self._scale is None else self._scale.factor

    @torch.no_grad()
    def _raw(self, trajectories: Trajectories) -> Float32[np.ndarray, "T N"]:
        reward = np.zeros(trajectories.valid.shape, np.float32)
        for step, slot, transitions in self._chunks(trajectories):
            reward[step, slot] = self.model.reward(transitions).numpy(force=True)
        return reward

    def _chunks(self, trajectories: Trajectories) -> Iterator[tuple[Any, Any, Any]]:
        """Steps, slots and transitions of all actions with results, in order of time."""
        steps, slots = np.nonzero(trajectories.valid)
        for start in range(0, len(steps), CHUNK_SIZE):
            part = slice(start, start + CHUNK_SIZE)
            transitions = transitions_at(trajectories, steps[part], slots[part])
            yield steps[part], slots[part], self._seen(transitions)

    def _seen(self, transitions: Transitions) -> Transitions:
        """What agents observe of them, without what only a critic sees; on the model's device."""
        return transitions.narrowed(self._vector_size).to(self._device)

    # learning

    def update(
        self, experience: Sequence[Trajectories], generator: torch.Generator
    ) -> dict[str, float]:
        """Passes over the experience in shuffled minibatches; metrics are their means."""
        results = Results(experience)
        steps = [
            self.gradient_step(part, generator)
            for _ in range(self._num_epoch)
            for part in results.minibatches(self._batch_size, generator)
        ]
        return self.metrics(steps)

    def gradient_step(
        self, transitions: Transitions, generator: torch.Generator
    ) -> Figures:
        """Descend the model's loss on a minibatch."""
        loss, figures = self.model.loss(self._seen(transitions), generator)
        self._weights.gradient_of(loss)
        # Gradients are not clipped, as in ML-Agents.
        self._adam.step(self._weights.gradient, self._learning_rate, float("inf"))
        figures = {name: value.detach() for name, value in figures.items()}
        self.model.learned(figures)
        return figures

    def metrics(self, steps: Sequence[Figures]) -> dict[str, float]:
        """Means over gradient steps, and the signal's return: what an episode was paid."""
        metrics = {
            name: float(torch.stack([figures[name] for figures in steps]).mean())
            for name in (steps[0] if steps else ())
        }
        of_episodes = self._episodes.take_mean()
        if of_episodes is not None:
            metrics[f"{self.name}_reward"] = of_episodes
        return metrics

    # state

    def state(self) -> dict[str, Tensor]:
        """Weights, statistics, optimizer and open sums, on the CPU."""
        return saved(self._parts())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        restore(state, self._parts())

    def _parts(self) -> dict[str, Any]:
        parts = {
            "model": self.model,
            "optimizer": self._adam,
            "episodes": self._episodes,
        }
        return parts if self._scale is None else {**parts, "scale": self._scale}


def models_of(signals: Sequence[RewardSignal]) -> list[SignalModel]:
    """What a learner's signals have learned."""
    return [signal.model for signal in signals if isinstance(signal, LearnedSignal)]


def body_architecture(settings: NetworkSettings) -> Architecture:
    """The layers of a signal's own network; memory is ignored, as in ML-Agents."""
    return Architecture(
        hidden_units=settings.hidden_units,
        num_layers=settings.num_layers,
        vis_encode_type=settings.vis_encode_type,
        goal_conditioning_type=settings.goal_conditioning_type,
    )


def require_standard(name: str, setup: SignalSetup) -> None:
    """Raise a SettingError for behaviors whose observations only their own network takes."""
    if setup.spec.network != "standard" or setup.spec.action_spec.staged:
        raise SettingError(
            f"reward_signals.{name}",
            f"it cannot judge a behavior of the network {setup.spec.network!r}; leave it out",
        )
