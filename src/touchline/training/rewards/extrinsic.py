"""The environment's own reward: what agents and their groups were paid."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from touchline.training.experience.trajectories import Trajectories
from touchline.training.rewards.settings import SignalSettings
from touchline.training.rewards.signal import SignalSetup


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
