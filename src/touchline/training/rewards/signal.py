"""What every reward signal does, and the environment's own.

A signal gives each action of a batch of trajectories a reward of its own kind. A learner keeps one
value head, one discount and one advantage per signal, so signals never mix before the policy loss.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float32
from numpy.typing import NDArray
from torch import Tensor

from touchline.log import Log, silent
from touchline.specs import BehaviorSpec
from touchline.training.experience.trajectories import Trajectories
from touchline.training.experience.transitions import Transitions
from touchline.training.rewards.settings import (
    SIGNAL_PLUGINS,
    SignalSettings,
    signal_settings,
)


@dataclass(frozen=True)
class SignalSetup:
    """What a signal is made from, besides its own settings."""

    behavior: str
    """Base name."""
    spec: BehaviorSpec
    device: torch.device
    seed: int
    batch_size: int
    """Experiences in one of its gradient steps."""
    num_epoch: int
    """Passes over the experience of an update, unless its settings say otherwise."""
    log: Log = silent


@runtime_checkable
class RewardSignal(Protocol):
    """Made by `signal_maker(name)(name, settings, setup)`."""

    name: str
    strength: float
    """Multiplier on the reward."""
    discount: float
    """γ of this signal's value and advantage."""
    ignores_ends: bool
    """Whether its value continues past the end of an episode: the value of the last observation
    counts there, although nothing follows."""

    def observe(self, team: str, trajectories: Trajectories) -> None:
        """Include new experience in the signal's statistics.

        Comes once for all experience of each full behavior name, in order of time, and before
        rewards and updates from it.
        """

    def reward(self, trajectories: Trajectories) -> NDArray[np.float32]:
        """[T, N] per action, `strength` not yet applied; 0 where there is no result."""

    def update(
        self, experience: Sequence[Trajectories], generator: torch.Generator
    ) -> dict[str, float]:
        """Train what the signal learns, if anything; returns metrics by name."""

    def state(self) -> dict[str, Tensor]:
        """Everything that the signal has learned, on the CPU."""

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state` returned."""


@runtime_checkable
class PaysGroups(RewardSignal, Protocol):
    """A signal that pays agents and their groups, which learners of groups keep apart."""

    def parts(
        self, trajectories: Trajectories
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """[T, N] own rewards and [T, N] those of groups; `reward` is their sum."""


@runtime_checkable
class Rejudging(RewardSignal, Protocol):
    """A signal that learns step by step: what it thinks of old experience changes."""

    def reward_of(self, transitions: Transitions) -> Tensor:
        """[B] what it thinks now of actions of a replay, `strength` not yet applied."""

    def gradient_step(
        self, transitions: Transitions, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Learn from a minibatch; returns figures by name."""

    def metrics(self, steps: Sequence[dict[str, Tensor]]) -> dict[str, float]:
        """Metrics of an update from the figures of its gradient steps."""


def signal_maker(name: str) -> Callable[[str, Any, SignalSetup], RewardSignal]:
    """What makes the signal of a name: a class or a function, named by its settings."""
    # Two packages with one name: which of them is meant cannot be known.
    SIGNAL_PLUGINS.refuse_twice(name)
    place = signal_settings(name).signal
    contract = f"{__name__}:RewardSignal"
    maker: Callable[[str, Any, SignalSetup], RewardSignal]
    maker = SIGNAL_PLUGINS.require(name, place, contract)
    return maker


def make_signals(
    settings: Mapping[str, SignalSettings], setup: SignalSetup
) -> list[RewardSignal]:
    """The signals of a behavior's `reward_signals` block, in its order."""
    signals = []
    for number, (name, block) in enumerate(settings.items(), start=1):
        # Networks of two signals, and of the policy, start with different weights.
        own = replace(setup, seed=setup.seed + number)
        made = signal_maker(name)(name, block, own)
        SIGNAL_PLUGINS.require_made(name, made, RewardSignal)
        signals.append(made)
    return signals


class Extrinsic:
    """Own reward and group reward, added up: each agent is paid what its group is paid.

    ML-Agents' PPO does the same (`ppo/trainer.py` 1.1.0).
    """

    ignores_ends = False

    def __init__(self, name: str, settings: SignalSettings, setup: SignalSetup) -> None:
        self.name = name
        self.strength = settings.strength
        self.discount = settings.gamma

    def observe(self, team: str, trajectories: Trajectories) -> None:
        """There are no statistics."""

    def parts(
        self, trajectories: Trajectories
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """[T, N] own rewards and [T, N] those of the group; see `PaysGroups`."""
        return trajectories.reward, trajectories.group_reward

    def reward(self, trajectories: Trajectories) -> Float32[np.ndarray, "T N"]:
        """[T, N] what each action was paid, 0 where it has no result."""
        own, of_group = self.parts(trajectories)
        return np.asarray(own + of_group)

    def update(
        self, experience: Sequence[Trajectories], generator: Any
    ) -> dict[str, float]:
        """There is nothing to learn."""
        return {}

    def state(self) -> dict[str, Any]:
        """There is nothing to save."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """There is nothing to restore."""
