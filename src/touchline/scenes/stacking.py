"""Sensors that show their last few frames: oldest first, newest last, zeros before an episode's first frame.

Source: ML-Agents 3.0.0, `StackingSensor.cs`; order and fill confirmed by Unity's own 3DBallHard policy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Stack:
    """The frames that each agent remembers of one sensor: float32 [agents, depth, size]."""

    def __init__(self, num_agents: int, depth: int, size: int) -> None:
        self.frames = np.zeros((num_agents, depth, size), np.float32)

    def push(self, agents: NDArray[np.intp], frame: NDArray[Any]) -> NDArray[np.float32]:
        """Add a frame [K, size] for each of K agents; what they now see, [K, depth * size], a fresh array."""
        seen = np.empty((len(agents), *self.frames.shape[1:]), np.float32)
        seen[:, :-1] = self.frames[agents, 1:]
        seen[:, -1] = frame
        self.frames[agents] = seen
        return seen.reshape(len(agents), -1)

    def clear(self, agents: NDArray[np.intp]) -> None:
        """Forget everything these agents saw."""
        self.frames[agents] = 0.0
