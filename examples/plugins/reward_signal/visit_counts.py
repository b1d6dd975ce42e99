"""A reward signal of another package: an agent is paid for observations that it rarely made.

Source: Bellemare et al. 2016, "Unifying Count-Based Exploration and Intrinsic Motivation",
arXiv:1606.01868, section 4; here over rounded observations instead of a density model.
"""

from typing import ClassVar

import numpy as np
import torch

from touchline.training.config.values import Positive
from touchline.training.rewards.settings import SignalSettings


class VisitSettings(SignalSettings):
    """How visits are counted."""

    signal: ClassVar[str] = "visit_counts:VisitCounts"

    cell: Positive = 0.5
    """Observations whose vectors fall into the same cells of this size are the same."""


class VisitCounts:
    """Pays 1 / √n where an action led, n being how often that was observed."""

    ignores_ends = True

    def __init__(self, name, settings, setup):
        self.name = name
        self.strength = settings.strength
        self.discount = settings.gamma
        self.cell = settings.cell
        self.counts: dict[tuple[int, ...], int] = {}

    def observe(self, team, trajectories):
        """Count what each action led to."""
        for key in self._keys(trajectories):
            self.counts[key] = self.counts.get(key, 0) + 1

    def reward(self, trajectories):
        """[T, N], 0 where there is no result."""
        reward = np.zeros(trajectories.valid.shape, np.float32)
        counts = [self.counts[key] for key in self._keys(trajectories)]
        reward[trajectories.valid] = 1.0 / np.sqrt(counts)
        return reward

    def update(self, experience, generator):
        """There is nothing to learn; the number of different observations is a metric."""
        return {f"{self.name}_different": float(len(self.counts))}

    def state(self):
        cells, counts = [*self.counts], [*self.counts.values()]
        return {"cells": torch.tensor(cells), "counts": torch.tensor(counts)}

    def load_state(self, state):
        cells, counts = state["cells"].tolist(), state["counts"].tolist()
        self.counts = dict(zip(map(tuple, cells), counts, strict=True))

    def _keys(self, trajectories):
        vectors = trajectories.obs[0][1:][trajectories.valid]
        cells = np.floor(vectors / self.cell).astype(int)
        return [tuple(row) for row in cells.tolist()]
