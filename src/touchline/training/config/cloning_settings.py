"""Settings of behavioral cloning: the `behavioral_cloning` block of a behavior.

Keys, meanings and defaults are those of `mlagents-learn` 1.1.0, except where a key says otherwise.
"""

from collections.abc import Iterable
from typing import Literal, Self

from pydantic import model_validator

from touchline.training.algorithms.settings import (
    HyperparameterSettings,
    algorithms_with,
)
from touchline.training.config.values import (
    Count,
    NotNegative,
    Part,
    Positive,
    Text,
    Whole,
    mistake_at,
)


class CloningSettings(Part):
    """How a policy imitates demonstrations in addition to what it learns from rewards."""

    demo_path: Text
    """A `.demo` file, or a folder of them."""
    strength: Positive = 1.0
    """Adam's step size as a multiple of the algorithm's first learning_rate."""
    steps: Count = 0
    """Agent steps over which cloning fades; 0: it stays. With max_steps 0: how many demonstrated
    actions are learned from, repeats included."""
    batch_size: Whole | None = None
    """Demonstrated actions in one gradient step. None: the algorithm's batch_size."""
    num_epoch: Whole | None = None
    """Passes over the demonstrations after every update, with sac after each of its gradient steps.
    None: 3."""
    samples_per_update: Count = 0
    """Demonstrated actions in one pass at most; 0: all. With sac and long demonstrations, a small
    number saves most of the time."""
    demo_actions: Literal["same", "next"] | None = None
    """Which record of a demonstration holds the action of an observation. None: what the file's
    traits say (not in ML-Agents)."""
    first_passes: Count = 0
    """Passes over the demonstrations before the first agent step (not in ML-Agents)."""
    clone_kl: NotNegative = 0.0
    """With ppo and first_passes: instead of cloning on, PPO's loss gets so much of KL(clone ‖
    policy), which falls to 0 over `steps` (not in ML-Agents)."""

    @model_validator(mode="after")
    def _the_clone_comes_first(self) -> Self:
        # The clone is the network after the first passes, and its weight falls over `steps`.
        if self.clone_kl and not (self.first_passes and self.steps):
            missing = "steps" if self.first_passes else "first_passes"
            raise mistake_at(
                "clone_kl",
                f"needs a clone to stay near, and for how long: give {missing}, too",
            )
        return self

    def conflict(
        self, trainer_type: str, hyperparameters: HyperparameterSettings
    ) -> tuple[str, str] | None:
        """Key and reason of what cannot be combined with the behavior's algorithm."""
        if not hyperparameters.clones:
            others = algorithms_with("clones")
            return (
                "behavioral_cloning",
                f"{trainer_type} cannot imitate; take {others}",
            )
        if self.clone_kl and not hyperparameters.stays_near_clone:
            others = algorithms_with("stays_near_clone")
            return (
                "behavioral_cloning.clone_kl",
                f"only {others} stays near its clone, not {trainer_type}",
            )
        return None

    def resume_obstacle(self, state: Iterable[str]) -> str:
        """Why a learner whose saved state has these names cannot continue so; mostly ""."""
        if not self.clone_kl or any("cloning.clone." in name for name in state):
            return ""
        return (
            "behavioral_cloning.clone_kl: this run made no clone to stay near before its first "
            "step; resume without the key, or start a new run"
        )
