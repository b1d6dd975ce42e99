"""Which algorithms there are, and what their settings have in common.

The settings of an algorithm are the `hyperparameters` block of a behavior; they are read without
torch.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from touchline.plugins import Plugins
from touchline.training.config.values import (
    NotNegative,
    Part,
    Positive,
    Schedule,
    Share,
    Switch,
    Whole,
)

ALGORITHMS = {
    "ppo": "touchline.training.algorithms.ppo.settings:PPOSettings",
    "sac": "touchline.training.algorithms.sac.settings:SACSettings",
    "poca": "touchline.training.algorithms.poca.settings:POCASettings",
    "mappo": "touchline.training.algorithms.poca.settings:MAPPOSettings",
}
"""`trainer_type` -> the settings of its `hyperparameters` block; imported when used."""
DEFAULT_ALGORITHM = "ppo"
"""Trainer of a behavior without a `trainer_type`, as in ML-Agents."""
ALGORITHM_PLUGINS = Plugins(
    "an algorithm",
    "touchline.algorithms",
    ALGORITHMS,
    "touchline.training.algorithms.settings:HyperparameterSettings",
)
"""These and those of other packages."""


class HyperparameterSettings(Part):
    """Base of the settings of an algorithm; a subclass adds the keys of its block."""

    learner: ClassVar[str]
    """The learner that these settings are for, as "module:Class"; imported when a run starts."""
    metric_tags: ClassVar[Mapping[str, str]] = {
        "entropy": "Policy/Entropy",
        "learning_rate": "Policy/Learning Rate",
        "policy_loss": "Losses/Policy Loss",
        "value_loss": "Losses/Value Loss",
        "obs_constant": "Policy/Constant Observations",
        "obs_clipped": "Policy/Clipped Observations",
        "obs_max": "Policy/Largest Observation",
    }
    """Metric of its updates -> tag in TensorBoard; others stand under `Training/`. `{signal}` and
    `{Signal}` stand for the name of each reward signal."""
    faults: ClassVar[str] = ""
    """What `touchline doctor` looks for in its runs, as "module:NAME" of a sequence of `Fault`."""
    clones: ClassVar[bool] = False
    """Whether it takes a `behavioral_cloning` block."""
    stays_near_clone: ClassVar[bool] = False
    """Whether it takes the key `clone_kl` in that block."""
    credits_groups: ClassVar[bool] = False
    """Whether it makes a difference which agents are in one group."""
    collects_in_rounds: ClassVar[bool] = True
    """Whether it learns from a buffer at a time, which several collectors can fill."""
    takes_delay: ClassVar[bool] = False
    """Whether it can learn from actions of an earlier version of its policy: off-policy learners,
    and those that are `Delayed`. `threaded` needs it."""

    @property
    def longest_sequence(self) -> int | None:
        """The longest sequence of decisions that fits into one gradient step; None: any."""
        return None

    @property
    def width_multiple(self) -> int:
        """`hidden_units` must be a multiple of this."""
        return 1

    @property
    def results_per_update(self) -> int | None:
        """Results of actions between two updates; None: unknown."""
        return None

    @classmethod
    def modernize(cls, old: dict[str, Any]) -> list[str]:  # noqa: ARG003
        """Replace keys of ML-Agents before 1.0 in a behavior's block, in place.

        Returns a line for each replacement whose value a person should check, "key: why"; raises a
        ValueError in the same form.
        """
        return []

    def with_early_updates(self, num_results: int) -> Self:
        """The same work per result, but updates from about `num_results` on: for measuring."""
        return self

    def conflict(self, behavior: Any) -> tuple[str, str] | None:
        """Key and reason of what this algorithm refuses in the rest of its behavior's block."""
        return None

    def introduction(self) -> str:
        """What a run says of these settings when it starts; empty: nothing."""
        return ""


def algorithm_settings(trainer_type: str) -> type[HyperparameterSettings]:
    """The model of the `hyperparameters` block of a trainer type.

    Raises a KeyError for an unknown type, and a UsageError when the package that adds it breaks the
    contract.
    """
    found: type[HyperparameterSettings] = ALGORITHM_PLUGINS.load(trainer_type)
    return found


def algorithms_with(flag: str) -> str:
    """The trainer types of Touchline whose settings have a class variable set, for messages."""
    return " or ".join(t for t in ALGORITHMS if getattr(algorithm_settings(t), flag))


LARGEST_BUFFER = 10**9
"""Experiences; as many observations of ten numbers are 40 GB."""


NOT_WITH_STATE = "cannot be combined with critic_sees_state; leave one of them out"


class MinibatchSettings(HyperparameterSettings):
    """What algorithms have in common that take gradient steps on parts of a buffer."""

    batch_size: Whole = 1024
    """Experiences in one gradient step."""
    buffer_size: Annotated[Whole, Field(le=LARGEST_BUFFER)] = 10240
    """Experiences gathered before an update."""
    learning_rate: Positive = 3e-4
    """Adam's step size."""
    critic_sees_state: Switch = False
    """Critics also see the state of the scene, which agents do not observe; policies do without.
    For scenes that can show it (not in ML-Agents)."""

    def conflict(self, behavior: Any) -> tuple[str, str] | None:
        if self.critic_sees_state and behavior.behavioral_cloning is not None:
            return "behavioral_cloning", NOT_WITH_STATE
        return super().conflict(behavior)

    @property
    def longest_sequence(self) -> int:
        return self.batch_size

    def introduction(self) -> str:
        return f"buffer {self.buffer_size}, batch {self.batch_size}"

    @model_validator(mode="after")
    def _batch_fits_the_buffer(self) -> Self:
        # A gradient step would have fewer actions than its settings say, in every update.
        if self.batch_size > self.buffer_size:
            raise ValueError(
                f"batch_size {self.batch_size} is larger than buffer_size {self.buffer_size}"
            )
        return self


class OnPolicySettings(MinibatchSettings):
    """What algorithms that learn from a buffer of fresh experience have in common.

    Keys, meanings and defaults are those of `mlagents-learn` 1.1.0, except where a key says
    otherwise.
    """

    faults: ClassVar[str] = "touchline.training.algorithms.faults:FAULTS"
    metric_tags: ClassVar[Mapping[str, str]] = {
        **HyperparameterSettings.metric_tags,
        "epsilon": "Policy/Epsilon",
        "beta": "Policy/Beta",
        "kl": "Policy/KL",
        "clip_fraction": "Policy/Clip Fraction",
        "advantage_std": "Policy/Advantage Spread",
        "{signal}_value_estimate": "Policy/{Signal} Value Estimate",
    }

    learning_rate_schedule: Schedule = "linear"
    """Linear: to nearly zero at max_steps."""
    beta: NotNegative = 5e-3
    """Weight of the entropy bonus."""
    beta_schedule: Schedule | None = None
    """None: as the learning rate."""
    epsilon: Positive = 0.2
    """Clip range of the probability ratio."""
    epsilon_schedule: Schedule | None = None
    """None: as the learning rate."""
    lambd: Share = 0.95
    """The λ of returns: how far ahead rewards count before values take over."""
    num_epoch: Whole = 3
    """Passes over the buffer in one update."""
    max_grad_norm: Positive = 0.5
    """Gradients are shortened to this length (not in ML-Agents)."""

    @property
    def results_per_update(self) -> int:
        return self.buffer_size

    def with_early_updates(self, num_results: int) -> Self:
        # Whole minibatches, so that a measured update costs what one of a run does.
        most = max(num_results, self.batch_size)
        whole_batches = most // self.batch_size * self.batch_size
        buffer_size = min(self.buffer_size, whole_batches)
        return self.model_copy(update={"buffer_size": buffer_size})

    @model_validator(mode="before")
    @classmethod
    def _other_schedules_follow_the_learning_rate(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        given = {key: value for key, value in values.items() if value is not None}
        schedule = given.get("learning_rate_schedule", "linear")
        # Before the fields are read, so that what a schedule follows is decided in one place.
        return {"beta_schedule": schedule, "epsilon_schedule": schedule} | given


def linear_schedule(start: float, end: float, progress: float) -> float:
    """From `start` to `end` as `progress` goes from 0 to 1, and no further."""
    return start + (end - start) * min(max(progress, 0.0), 1.0)


def scheduled(
    start: float, floor: float, schedule: str | None, progress: float
) -> float:
    """A setting now: constant, or in a straight line from `start` to `floor`.

    Source: ML-Agents 1.1.0, `torch_entities/utils.py`, `DecayedValue`.
    """
    if schedule == "constant":
        return start
    return linear_schedule(start, floor, progress)
