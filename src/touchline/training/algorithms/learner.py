"""What every learner does, and which learners there are.

A learner belongs to one behavior (its base name): it keeps its own experience, says when it is
ready, improves its policy, and names the figures of each update. It never sees a world.

To add an algorithm, write its settings (a `HyperparameterSettings` whose `learner` names the class)
and its learner, and name the settings here or, from another package, in an entry point of the group
`touchline.algorithms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from touchline.errors import UsageError
from touchline.log import Log, silent
from touchline.plugins import Plugins

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from touchline.policies.network import Architecture, Network
    from touchline.policies.network_policy import NetworkPolicy
    from touchline.specs import BehaviorSpec
    from touchline.training.experience.replay import Replay
    from touchline.training.experience.trajectories import Trajectories
    from touchline.training.rewards.signal import SignalSetup

ALGORITHMS = {
    "ppo": "touchline.training.algorithms.ppo.settings:PPOSettings",
    "sac": "touchline.training.algorithms.sac.settings:SACSettings",
    "poca": "touchline.training.algorithms.poca.settings:POCASettings",
    "mappo": "touchline.training.algorithms.poca.settings:MAPPOSettings",
}
"""`trainer_type` -> the settings of its `hyperparameters` block; imported when used, without
torch."""
ALGORITHM_PLUGINS = Plugins(
    "an algorithm",
    "touchline.algorithms",
    ALGORITHMS,
    "touchline.training.algorithms.settings:HyperparameterSettings",
)
"""These and those of other packages."""


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
    config: Any
    """The behavior's `touchline.training.config.settings.BehaviorConfig`."""
    seed: int
    device: torch.device
    log: Log = silent
    """Gets lines for people."""


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
        """Everything needed to go on learning from here bit for bit, on the CPU."""

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave, in a learner of the same behavior and configuration."""


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


def settings_class(trainer_type: str) -> type[Any]:
    """The model of the `hyperparameters` block of a trainer type.

    Raises a KeyError for an unknown type, and a UsageError when the package that adds it breaks the
    contract.
    """
    found: type[Any] = ALGORITHM_PLUGINS.load(trainer_type)
    return found


def learner_class(trainer_type: str) -> type[Learner]:
    """The learner of a trainer type, named by its settings."""
    ALGORITHM_PLUGINS.refuse_twice(trainer_type)
    place = settings_class(trainer_type).learner
    contract = f"{__name__}:Learner"
    found: type[Learner] = ALGORITHM_PLUGINS.require(trainer_type, place, contract)
    return found


def architecture_of(
    config: Any, *, shared_critic: bool = False, squashed: bool = False
) -> Architecture:
    """The network that a behavior's configuration describes."""
    from touchline.policies.network import Architecture

    settings = config.network_settings
    memory = {}
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


def signal_setup(setup: LearnerSetup, num_epoch: int = 1) -> SignalSetup:
    """What the reward signals of a learner are made from."""
    from touchline.training.rewards.signal import SignalSetup

    return SignalSetup(
        behavior=setup.behavior,
        spec=setup.spec,
        device=setup.device,
        seed=setup.seed,
        log=setup.log,
        batch_size=setup.config.hyperparameters.batch_size,
        num_epoch=num_epoch,
    )
