"""What slots were paid so far: by the episode, and discounted.

Experience arrives in pieces of any length, one team after the other; these sums continue
from piece to piece.
"""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float32
from numpy.typing import NDArray
from torch import Tensor

from touchline.training.experience.trajectories import Trajectories


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
        total = _widened(self._open.get(team), reward.shape[1])
        for step, paid in enumerate(reward):
            total[trajectories.begins[step]] = 0.0
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
    return {
        name.removeprefix(prefix): values.numpy().copy()
        for name, values in state.items()
        if name.startswith(prefix)
    }
