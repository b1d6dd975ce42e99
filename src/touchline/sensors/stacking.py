"""Sensors that show their last few frames: oldest first, newest last, zeros before an episode's
first frame.

Source: ML-Agents 3.0.0, `StackingSensor.cs`; order and fill confirmed by Unity's own 3DBallHard
policy.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled
from touchline.specs import ObservationSpec


def stacked_spec(sensor: str, size: int, depth: int) -> ObservationSpec:
    """The observation of a sensor of `size` numbers that shows its last `depth` frames."""
    return ObservationSpec.vector(depth * size, f"StackingSensor_size{depth}_{sensor}")


class Stack:
    """The last frames of one sensor of each agent: float32 [agents, depth, size]."""

    def __init__(self, num_agents: int, depth: int, size: int) -> None:
        self.frames = np.zeros((num_agents, depth, size), np.float32)

    def push(
        self, agents: NDArray[np.intp], frame: NDArray[Any]
    ) -> NDArray[np.float32]:
        """Add a frame [K, size] for each of K agents; returns their stacks, [K, depth * size], as a
        new array.
        """
        obs = np.empty((len(agents), self.frames[0].size), np.float32)
        _push(self.frames.reshape(len(self.frames), -1), agents, frame, obs)
        return obs

    def clear(self, agents: NDArray[np.intp]) -> None:
        """Set the frames of these agents to zeros."""
        self.frames[agents] = 0.0


@compiled
def _push(
    frames: NDArray[np.float32],
    agents: NDArray[np.intp],
    frame: NDArray[Any],
    obs: NDArray[np.float32],
) -> None:
    """One pass over each agent's row: shift, append and copy out. NumPy would need three."""
    size = frame.shape[1]
    older = frames.shape[1] - size
    for row in range(len(agents)):
        agent = agents[row]
        for i in range(older):
            # `i + size` is ahead of `i`, so nothing is read after it was overwritten.
            frames[agent, i] = obs[row, i] = frames[agent, i + size]
        for i in range(size):
            frames[agent, older + i] = obs[row, older + i] = frame[row, i]
