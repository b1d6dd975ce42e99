"""Which reward signals there are, and their settings: the blocks below `reward_signals`.

Keys, meanings and defaults are those of `mlagents-learn` 1.1.0, except where a key says otherwise.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from touchline.plugins import Plugins
from touchline.training.config.network_settings import NetworkSettings
from touchline.training.config.values import (
    NotNegative,
    Part,
    Positive,
    Share,
    Switch,
    Text,
    Whole,
    mistake_at,
)

WORLD_REWARD = "extrinsic"
"""The environment's own reward: what a behavior learns from unless its block says otherwise."""
WORLD_REWARD_TAG = "Policy/Extrinsic Reward"
"""TensorBoard's tag of its mean return, as in ML-Agents."""
REWARD_SIGNALS = {
    WORLD_REWARD: "touchline.training.rewards.settings:ExtrinsicSettings",
    "curiosity": "touchline.training.rewards.settings:CuriositySettings",
    "rnd": "touchline.training.rewards.settings:RNDSettings",
    "gail": "touchline.training.rewards.settings:GAILSettings",
}
"""Key in `reward_signals` -> the settings of its block; imported when used, without torch."""
SIGNAL_PLUGINS = Plugins(
    "a reward signal",
    "touchline.reward_signals",
    REWARD_SIGNALS,
    "touchline.training.rewards.settings:SignalSettings",
)
"""These and those of other packages."""


class SignalSettings(Part):
    """What every reward signal has; a subclass adds the keys of its own block."""

    signal: ClassVar[str]
    """What makes the signal that these settings are for, as "module:name"; imported when a run
    starts."""
    metric_tags: ClassVar[Mapping[str, str]] = {}
    """Metric of its updates -> tag in TensorBoard; others stand under `Training/`. `{signal}` and
    `{Signal}` stand for its name."""

    gamma: Share = 0.99
    """Discount per decision."""
    strength: NotNegative = 1.0
    """Multiplier on the reward."""

    @classmethod
    def differs_from_official(cls, given: Mapping[str, Any]) -> str:  # noqa: ARG003
        """In what a block with these keys means something else than in ML-Agents; mostly ""."""
        return ""


def signal_settings(name: str) -> type[SignalSettings]:
    """The model of a signal's block.

    Raises a KeyError for an unknown name, and a UsageError when the package that adds it breaks the
    contract.
    """
    found: type[SignalSettings] = SIGNAL_PLUGINS.load(name)
    return found


class ExtrinsicSettings(SignalSettings):
    """The environment's own reward."""

    signal: ClassVar[str] = "touchline.training.rewards.signal:Extrinsic"


class LearnedSettings(SignalSettings):
    """What the signals that learn have in common."""

    metric_tags: ClassVar[Mapping[str, str]] = {
        "{signal}_reward": "Policy/{Signal} Reward"
    }

    learning_rate: Positive = 3e-4
    """Adam's step size; it does not change in the course of training."""
    network_settings: NetworkSettings = Field(default_factory=NetworkSettings)
    """The signal's own network; memory, orthogonal_init and deterministic have no effect."""
    num_epoch: Whole | None = None
    """Passes over the experience of an update. None: as the algorithm's; no effect with sac (not in
    ML-Agents)."""

    @model_validator(mode="after")
    def _has_an_effect(self) -> Self:
        # With strength 0 the signal's network would still be trained at every update.
        if self.strength:
            return self
        raise mistake_at(
            "strength",
            "expected a number above 0; leave the block out to train without this signal",
        )


class CuriositySettings(LearnedSettings):
    """Pays for what an agent could not predict of the effects of its actions."""

    signal: ClassVar[str] = "touchline.training.rewards.curiosity:make"
    metric_tags: ClassVar[Mapping[str, str]] = {
        **LearnedSettings.metric_tags,
        "curiosity_forward_loss": "Losses/Curiosity Forward Loss",
        "curiosity_inverse_loss": "Losses/Curiosity Inverse Loss",
    }

    normalized: Switch = False
    """The predicted features are a constant for the forward loss, so that they do not shrink, and
    rewards are divided by the spread of their discounted sums. False: as in ML-Agents, whose
    strengths count on features that shrink (not in ML-Agents)."""


class RNDSettings(LearnedSettings):
    """Pays for observations that are unlike those seen so far."""

    signal: ClassVar[str] = "touchline.training.rewards.rnd:make"
    metric_tags: ClassVar[Mapping[str, str]] = {
        **LearnedSettings.metric_tags,
        "rnd_loss": "Losses/RND Loss",
    }

    learning_rate: Positive = 1e-4
    """Adam's step size; it does not change in the course of training."""
    normalized: Switch = True
    """As in the paper: observations shifted and scaled by what was seen so far, rewards divided by
    the spread of their discounted sums. False: as in ML-Agents (not in ML-Agents)."""

    @classmethod
    def differs_from_official(cls, given: Mapping[str, Any]) -> str:
        if "normalized" in given:
            return ""
        return (
            "rewards are normalized as in the paper, and smaller than ML-Agents'; normalized: "
            "false gives those that its strengths are for"
        )


class GAILSettings(LearnedSettings):
    """Pays for looking like demonstrations."""

    signal: ClassVar[str] = "touchline.training.rewards.gail:make"
    metric_tags: ClassVar[Mapping[str, str]] = {
        **LearnedSettings.metric_tags,
        "gail_policy_estimate": "Policy/GAIL Policy Estimate",
        "gail_expert_estimate": "Policy/GAIL Expert Estimate",
        "gail_loss": "Losses/GAIL Loss",
        "gail_grad_mag_loss": "Policy/GAIL Grad Mag Loss",
        "gail_kl_loss": "Losses/GAIL KL Loss",
        "gail_beta": "Policy/GAIL Beta",
    }

    demo_path: Text
    """A `.demo` file, or a folder of them."""
    demo_actions: Literal["same", "next"] | None = None
    """Which record of a demonstration holds the action of an observation. None: what the file's
    traits say (not in ML-Agents)."""
    use_actions: Switch = False
    """Judge what is done, and whether it ends an episode, in addition to what is observed."""
    use_vail: Switch = False
    """Judge through a noisy bottleneck, so that small differences do not decide."""
    reward_form: Literal["positive", "signed", "negative"] = "positive"
    """With D, the chance that an action is a demonstrator's: -ln(1 - D), ln D - ln(1 - D) or ln D.
    The first pays for staying in an episode, the last for ending it (not in ML-Agents)."""
    absorbing_ends: Switch = False
    """The end of an episode is judged too, and paid for as if it lasted: whether episodes should be
    long or short is then learned from the demonstrations (not in ML-Agents)."""

    @model_validator(mode="after")
    def _ends_are_worth_something_finite(self) -> Self:
        if not (self.absorbing_ends and self.gamma == 1.0):
            return self
        raise mistake_at(
            "absorbing_ends",
            "expected a gamma below 1 with it, because what lasts forever is paid for",
        )
