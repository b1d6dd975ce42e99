"""The upright boxes of all areas, as arrays, and their time step: what the cube-agent scenes have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.scenes.compiled import Threads, compiled
from touchline.scenes.shapes import HALF_X, HALF_Z, Floats
from touchline.scenes.upright import MU, contact_room, step_boxes


class Body(NamedTuple):
    """What makes a box of a scene move."""

    row: list[float]
    """Its shape (`shapes.box`)."""
    mass_kg: float
    drag: float
    turns: bool = False
    """Whether contacts may turn it about the vertical axis."""
    falls: bool = True
    """Whether its height is free."""


class BoxWorld:
    """A areas of B boxes each, the first of which are bodies; the others are put where the scene wants them.

    `boxes` [A, B, 9] · `yaw` [A, bodies] rad · `velocity` [A, bodies + 1, 6] (the last row stays 0) ·
    `drag` [A, bodies] 1/s · `gravity` [A] m/s² · `friction` [A, bodies, fixed + B, 2] static and dynamic,
    negative between shapes that never touch · `gaps` [A, bodies, fixed + B] m, before the last step.
    """

    def __init__(
        self, num_areas: int, fixed: Floats, bodies: Sequence[Body], placed: Sequence[list[float]], gravity: float
    ) -> None:
        count, total = len(bodies), len(bodies) + len(placed)
        self.fixed = fixed
        self.boxes: Floats = np.tile(np.array([b.row for b in bodies] + list(placed)), (num_areas, 1, 1))
        self.yaw: Floats = np.zeros((num_areas, count))
        self.velocity: Floats = np.zeros((num_areas, count + 1, 6))
        self.drag: Floats = np.tile([b.drag for b in bodies], (num_areas, 1))
        self.gravity: Floats = np.full(num_areas, gravity)
        self.friction: Floats = np.full((num_areas, count, len(fixed) + total, 2), MU)
        self.gaps: Floats = np.full((num_areas, count, len(fixed) + total), np.inf)
        self._inverse: Floats = np.zeros((count + 1, 6))
        for i, body in enumerate(bodies):
            self._inverse[i, [0, 2]] = 1.0 / body.mass_kg
            self._inverse[i, 1] = 1.0 / body.mass_kg if body.falls else 0.0
            lever = (body.row[HALF_X] ** 2 + body.row[HALF_Z] ** 2) / 3.0
            self._inverse[i, 4] = 1.0 / (body.mass_kg * lever) if body.turns else 0.0

    def step(self, threads: Threads) -> None:
        """One time step of every area."""
        threads.run(step_areas, len(self.boxes), *self.physics())

    def physics(self) -> tuple[NDArray[Any], ...]:
        """What `step_areas` needs."""
        return (
            self.fixed,
            self.boxes,
            self.yaw,
            self.velocity,
            self._inverse,
            self.drag,
            self.gravity,
            self.friction,
            self.gaps,
        )

    def kept(self) -> dict[str, Floats]:
        """All that the next step depends on."""
        names = ("boxes", "yaw", "velocity", "drag", "gravity", "friction")
        return {name: getattr(self, name) for name in names}


@compiled
def step_areas(
    first: int,
    last: int,
    fixed: Floats,
    boxes: Floats,
    yaw: Floats,
    velocity: Floats,
    inverse: Floats,
    drag: Floats,
    gravity: Floats,
    friction: Floats,
    gaps: Floats,
) -> None:
    """One time step of these areas, for kernels that go on from there."""
    room = contact_room()
    moving = np.zeros_like(inverse)
    for area in range(first, last):
        step_boxes(
            room,
            fixed,
            boxes[area],
            yaw[area],
            velocity[area],
            inverse,
            drag[area],
            gravity[area],
            friction[area],
            moving,
            gaps[area],
        )
