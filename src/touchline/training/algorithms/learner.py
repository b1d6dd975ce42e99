"""What every learner does.

A learner belongs to one behavior (its base name): it keeps its own experience, says when it is
ready, improves its policy, and names the figures of each update. It never sees a world.

To add an algorithm, write its settings (a `HyperparameterSettings` whose `learner` names the class)
and its learner, and name the settings in `ALGORITHMS` (`settings.py`) or, from another package, in
an entry point of the group `touchline.algorithms`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from touchline.errors import UsageError
from touchline.log import Log, silent
from touchline.policies.network import Architecture, Network
from touchline.policies.network_policy import NetworkPolicy
from touchline.specs import BehaviorSpec
from touchline.training.algorithms.settings import (
    ALGORITHM_PLUGINS,
    HyperparameterSettings,
    algorithm_settings,
)
from touchline.training.config.settings import BehaviorConfig
from touchline.training.experience.replay import Replay
from touchline.training.experience.trajectories import Trajectories

if TYPE_CHECKING:
    # It brings ONNX, which few runs need.
    from touchline.policies.files.official_weights import OfficialWeights

Settings = TypeVar("Settings", bound=HyperparameterSettings)


class SettingError(UsageError):
    """A setting does not fit what its behavior observes and does."""

    def __init__(self, key: str, why: str) -> None:
        """`key` is dotted, within the behavior's block."""
        super().__init__(f"{key}: {why}")
        self.key, self.why = key, why


Metrics = dict[str, float]
"""Name -> value of one update, such as `policy_loss`; `docs/training.md` defines them."""


@dataclass(frozen=True)
class LearnerSetup:
    """Everything that a learner is made from."""

    behavior: str
    """Base name."""
    spec: BehaviorSpec
    config: BehaviorConfig
    seed: int
    device: torch.device
    log: Log = silent

    def hyperparameters(self, kind: type[Settings]) -> Settings:
        """The algorithm's own settings, which are of this kind."""
        found = self.config.hyperparameters
        assert isinstance(found, kind), f"{kind.__name__} expected, got {found!r}"
        return found


class Learner(Protocol):
    """Made by `learner_class(trainer_type)(setup)`."""

    steps: int
    """Agent steps learned from so far."""
    policy: NetworkPolicy
    """What acts; changes with every update."""
    generator: torch.Generator
    """Random draws of this run: of the updates, and of acting in this process."""

    def __init__(self, setup: LearnerSetup) -> None: ...

    @property
    def wanted(self) -> int:
        """How many more results of actions this learner needs before its next update."""

    @property
    def ready(self) -> bool:
        """Whether enough was added for an update."""

    def add(self, team: str, trajectories: Trajectories) -> None:
        """Keep what the slots of one full behavior name experienced."""

    def update(self) -> Metrics:
        """Improve the policy with what was added.

        Raises a NonFiniteError when weights are NaN or infinite afterwards.
        """

    def state(self) -> dict[str, Tensor]:
        """Everything needed to continue learning from here bit for bit, on the CPU."""

    def learned(self) -> dict[str, Tensor]:
        """The part of `state` that a checkpoint holds: what was learned, without experience."""

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state` or `learned` returned, with the same configuration."""


@runtime_checkable
class Imitating(Protocol):
    """A learner that can imitate demonstrations before its first step."""

    def clone_first(self) -> None:
        """Do so, where the configuration has it."""


@runtime_checkable
class Remembering(Protocol):
    """A learner that also keeps experience, too much of it to be a part of its state."""

    @property
    def experience(self) -> Replay | None:
        """What resume points hold of it; None: nothing."""


@runtime_checkable
class Delayed(Protocol):
    """A learner that can learn from actions of an earlier version of its policy."""

    acting_network: Network | None
    """That version; None: the present one."""


@runtime_checkable
class TakesOfficialNetworks(Protocol):
    """A learner that takes more from files of ML-Agents than the policy and its values."""

    def official_networks(
        self, weights: OfficialWeights, signals: Sequence[str]
    ) -> dict[str, Tensor]:
        """What such a file holds of `learned`; `signals` are the names of its value heads."""


def learner_class(trainer_type: str) -> type[Learner]:
    """The learner of a trainer type, named by its settings."""
    ALGORITHM_PLUGINS.refuse_twice(trainer_type)
    place = algorithm_settings(trainer_type).learner
    contract = f"{__name__}:Learner"
    found: type[Learner] = ALGORITHM_PLUGINS.require(trainer_type, place, contract)
    return found


def architecture_of(
    config: BehaviorConfig, *, shared_critic: bool = False, squashed: bool = False
) -> Architecture:
    """The network that a behavior's configuration describes."""
    settings = config.network_settings
    # Left out where there is none, so that an `Architecture` has its own defaults.
    memory: dict[str, Any] = {}
    if settings.memory is not None:
        memory = {
            "memory_size": settings.memory.memory_size,
            "memory_type": settings.memory.type,
        }
    return Architecture(
        hidden_units=settings.hidden_units,
        num_layers=settings.num_layers,
        normalize=settings.normalize,
        vis_encode_type=settings.vis_encode_type,
        goal_conditioning_type=settings.goal_conditioning_type,
        shared_critic=shared_critic,
        orthogonal_init=settings.orthogonal_init,
        squashed=squashed,
        **memory,
    )
