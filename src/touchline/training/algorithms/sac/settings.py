"""Settings of SAC: the `hyperparameters` block of a behavior with `trainer_type: sac`.

Keys, meanings and defaults are those of `mlagents-learn` 1.1.0, except where a key says otherwise.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import model_validator

from touchline.training.algorithms.settings import MinibatchSettings
from touchline.training.config.values import Count, Positive, Schedule, Switch, Whole


class SACSettings(MinibatchSettings):
    """How SAC learns."""

    learner: ClassVar[str] = "touchline.training.algorithms.sac.learner:SAC"
    faults: ClassVar[str] = "touchline.training.algorithms.sac.faults:FAULTS"
    metric_tags: ClassVar[Mapping[str, str]] = {
        **MinibatchSettings.metric_tags,
        "q1_loss": "Losses/Q1 Loss",
        "q2_loss": "Losses/Q2 Loss",
        "continuous_entropy_coeff": "Policy/Continuous Entropy Coeff",
        "discrete_entropy_coeff": "Policy/Discrete Entropy Coeff",
        "{signal}_value": "Policy/{Signal} Value",
    }
    clones: ClassVar[bool] = True
    collects_in_rounds: ClassVar[bool] = False
    takes_delay: ClassVar[bool] = True

    batch_size: Whole = 128
    """Experiences in one gradient step."""
    buffer_size: Whole = 50_000
    """Experiences that are kept; the oldest one makes room for a new one."""
    buffer_init_steps: Count = 0
    """Agent steps before the first gradient step."""
    learning_rate_schedule: Schedule = "constant"
    """Linear: to nearly zero at max_steps."""
    init_entcoef: Positive = 1.0
    """The first weight of the entropy bonus, which is learned from then on."""
    tau: Positive = 0.005
    """How far target networks move towards their originals with every gradient step."""
    steps_per_update: Positive = 1.0
    """Agent steps per gradient step; may be less than 1."""
    reward_signal_steps_per_update: Positive | None = None
    """The same for reward signals that learn. None: as steps_per_update."""
    save_replay_buffer: Switch = False
    """Resume points hold the experience. Without it a resumed run gathers again, for 10 batches or
    buffer_init_steps, before it learns on."""
    target_critics: Switch = False
    """Targets come from slowly moving copies of both critics, and the policy climbs the smaller of
    the two; without it, as in ML-Agents, from a value network, and the policy climbs the first (not
    in ML-Agents)."""
    return_steps: Whole = 1
    """Rewards that count in a target before it continues with a value, within one sequence where
    there is a memory (not in ML-Agents)."""

    @classmethod
    def modernize(cls, old: dict[str, Any]) -> list[str]:
        """It made `num_update` updates every `train_interval` steps of the environment."""
        lines = []
        asked = [key for key in ("num_update", "train_interval") if key in old]
        interval = _positive(old, "train_interval") if "train_interval" in old else 1.0
        if "steps_per_update" in old:
            old.pop("num_update", None)
            lines += [
                f"{key}: left out; the block has steps_per_update" for key in asked
            ]
        elif asked:
            updates = _positive(old, "num_update") if "num_update" in old else 1.0
            old["steps_per_update"] = interval / updates
            lines.append(
                f"steps_per_update: {old['steps_per_update']:g} holds for one agent; multiply it "
                "by the number of agents"
            )
        of_signals = "reward_signal_steps_per_update"
        if "reward_signal_num_update" in old and of_signals in old:
            lines.append(
                f"reward_signal_num_update: left out; the block has {of_signals}"
            )
            del old["reward_signal_num_update"]
        if "reward_signal_num_update" in old:
            updates = _positive(old, "reward_signal_num_update")
            old["reward_signal_steps_per_update"] = interval / updates
        return lines

    @property
    def results_per_update(self) -> int:
        # Below 1 there are several gradient steps for each result, but updates come after results.
        return max(int(self.steps_per_update), 1)

    def with_early_updates(self, num_results: int) -> Self:
        # The buffer stays: it is a ring, which an update does not read as a whole.
        return self.model_copy(update={"buffer_init_steps": 0})

    @model_validator(mode="after")
    def _tau_is_a_share(self) -> Self:
        if self.tau > 1:
            raise ValueError(f"tau {self.tau:g} is larger than 1")
        return self


def _positive(old: dict[str, Any], key: str) -> float:
    value = old.pop(key)
    if isinstance(value, int | float) and value > 0:
        return value
    raise ValueError(f"{key}: expected a positive number, got {str(value)[:80]!r}")
