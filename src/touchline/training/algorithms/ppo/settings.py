"""Settings of PPO: the `hyperparameters` block of a behavior with `trainer_type: ppo`.

Keys, meanings and defaults are those of `mlagents-learn` 1.1.0, except where a key says otherwise.
"""

from typing import Any, ClassVar, Literal

from touchline.training.algorithms.settings import NOT_WITH_STATE, OnPolicySettings
from touchline.training.config.values import Positive, Switch, Whole


class PPOSettings(OnPolicySettings):
    """How PPO learns."""

    learner: ClassVar[str] = "touchline.training.algorithms.ppo.learner:PPO"
    clones: ClassVar[bool] = True
    stays_near_clone: ClassVar[bool] = True
    takes_delay: ClassVar[bool] = True

    shared_critic: Switch = False
    """Policy and value function share their encoders and layers."""
    clip_value_loss: Switch = False
    """Values gain nothing from moving further than epsilon in one update (ML-Agents means to do
    this, but its clip never acts)."""
    target_kl: Positive | None = None
    """An update ends after the epoch that moved the policy further than this from the one that
    acted (not in ML-Agents)."""
    return_steps: Whole | None = None
    """Advantages from this many rewards and the value after them, instead of GAE (not in
    ML-Agents)."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """In what learning multiplies matrices, for agents that observe vectors alone, without goals or
    a memory. bfloat16 takes half of the time on processors that have it, keeps 8 bits of each
    number, and is float32 on all others (not in ML-Agents)."""
    advantage_normalization: Literal["batch", "minibatch", "none"] = "batch"
    """Over what advantages get mean 0 and spread 1 (not in ML-Agents)."""

    def conflict(self, behavior: Any) -> tuple[str, str] | None:
        if self.critic_sees_state and self.shared_critic:
            return "hyperparameters.shared_critic", NOT_WITH_STATE
        return super().conflict(behavior)
