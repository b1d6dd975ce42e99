"""The seam between a scene and the engine that moves its bodies, and Unity's physics settings.

A scene names its engine in one line: `upright.boxes.BoxWorld` for boxes that stay upright,
`mujoco_batch.MujocoBatch` for bodies that tumble, or its own kernels over `upright`'s contacts.
Beyond this seam each engine offers its poses and velocities as named arrays [A, bodies, ...],
which the scene reads and writes in place, in the engine's own frame.

Source of the settings: Unity's defaults, which ML-Agents' project keeps (TimeManager.asset,
DynamicsManager.asset, Rigidbody).
"""

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

DT_S = 0.02
"""Fixed time step."""
GRAVITY = 9.81
"""Downward acceleration, m/s²."""
ANGULAR_DRAG = 0.05
"""A rigid body's default, 1/s."""
MAX_SPIN = 7.0
"""A rigid body's greatest angular speed, rad/s."""

Arrays = dict[str, NDArray[Any]]


class PhysicsWorld(Protocol):
    """The bodies of A areas, stepped together; no area affects another."""

    def step(self, rounds: int = 1) -> None:
        """Advance all areas by this many time steps."""

    def arrays(self) -> Arrays:
        """Everything that the next step depends on, by name: the world's own memory, not copies."""

    def state(self) -> Arrays:
        """Copies of `arrays`."""
        return {name: array.copy() for name, array in self.arrays().items()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue exactly from what `state` returned; other keys are ignored."""
        for name, array in self.arrays().items():
            array[...] = state[name]
