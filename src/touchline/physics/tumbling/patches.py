"""Contacts of cuboids as rows: a normal at each point, and friction at one or two of them.

All points of two cuboids share a normal and make one patch. As in PhysX's patch friction, two of
them are anchors (the deepest, and the one farthest from it), and each may carry μ times the normal
force of the whole patch. Each step makes its own anchors.

Velocities are rows of six (x, y, z, then angular x, y, z). A body's inverse mass and its inverse
moment of inertia, which is the same about every axis, are a row of two. The row after the last body
stands for everything static.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, inlined, makes_arrays, record_type
from touchline.physics.ragdoll.ground import (
    FRICTION_GAIN,
    MAX_REMOVAL_MPS,
    REMOVED_SHARE,
)
from touchline.physics.ragdoll.lanes import cross, dot, minus, set_vector, vector_of
from touchline.physics.ragdoll.own_contacts import sliding_direction
from touchline.physics.shapes import Floats, Vector
from touchline.physics.tumbling.touch import GAP, MAX_POINTS, Touching
from touchline.physics.upright.contacts import Direction
from touchline.physics.world import DT_S

MAX_PATCHES = 128
"""Patches of one area; more are left out. 27 cubes that stand or lie about have some 60."""
ROWS = MAX_POINTS + 4
"""Rows of a patch: its normals, then two directions of friction at each of two anchors."""


class Patch:
    """The contact of bodies a and b."""

    a: int
    b: int
    num_points: int
    num_anchors: int
    friction: float
    """The coefficient μ of one anchor."""
    solved_at: int
    """The last tick at which it was solved (`solve`)."""


PATCH: np.dtype[Any] = record_type(Patch)
ROW: np.dtype[Any] = record_type(Direction)


class Contacts(NamedTuple):
    """Room for the contacts of one area."""

    patches: NDArray[np.void]
    """[MAX_PATCHES] records with the fields of `Patch`."""
    rows: NDArray[np.void]
    """[MAX_PATCHES * ROWS] records with the fields of `Direction`; of friction, `mass` is PhysX's
    share of the effective mass."""
    changed_at: NDArray[np.int64]
    """[bodies + 1] the last tick at which a body's velocity changed (`solve`)."""


@makes_arrays
def new_contacts(num_bodies: int) -> Contacts:
    patches = np.empty(MAX_PATCHES, PATCH)
    rows = np.empty(MAX_PATCHES * ROWS, ROW)
    return Contacts(patches, rows, np.zeros(num_bodies + 1, np.int64))


@compiled
def add_patch(
    contacts: Contacts,
    n: int,
    a: int,
    b: int,
    room: Touching,
    num_points: int,
    centers: tuple[Vector, Vector],
    friction: float,
    velocity: Floats,
    inverse: Floats,
) -> int:
    """Add the patch of bodies a and b, which touch at `room.points`; the number of patches.

    `centers` are those of the bodies; that of a static one does not matter. Without `friction`
    there are no anchors.
    """
    if n >= MAX_PATCHES or num_points == 0:
        return n
    patch = contacts.patches[n]
    patch.a = a
    patch.b = b
    patch.num_points = num_points
    patch.num_anchors = min(num_points, 2) if friction > 0.0 else 0
    patch.friction = friction
    normal = vector_of(room.normal)
    first = n * ROWS
    for i in range(num_points):
        point = room.points[i]
        row = contacts.rows[first + i]
        _set_row(row, patch, normal, _arms(point, centers), inverse)
        # What may close of a gap, or is removed of a penetration, within the step.
        speed = -REMOVED_SHARE * point[GAP] / DT_S
        row.target_moving = min(speed, MAX_REMOVAL_MPS)
        # What pushes out of a penetration moves poses alone: kept, it would make the cubes jump.
        row.target_kept = min(speed, 0.0)
    if patch.num_anchors:
        sliding = minus(vector_of(velocity[a]), vector_of(velocity[b]))
        along = sliding_direction(sliding, normal)
        aside = cross(normal, along)
        for i in range(patch.num_anchors):
            arms = _arms(room.points[i], centers)
            row = contacts.rows[first + MAX_POINTS + 2 * i]
            _set_row(row, patch, along, arms, inverse)
            row.mass *= FRICTION_GAIN
            row = contacts.rows[first + MAX_POINTS + 2 * i + 1]
            _set_row(row, patch, aside, arms, inverse)
            row.mass *= FRICTION_GAIN
    return n + 1


@inlined
def _arms(point: Floats, centers: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    at = vector_of(point)
    return minus(at, centers[0]), minus(at, centers[1])


@inlined
def _set_row(
    row: Direction,
    patch: Patch,
    along: Vector,
    arms: tuple[Vector, Vector],
    inverse: Floats,
) -> None:
    a, b = patch.a, patch.b
    turn_a = cross(arms[0], along)
    # In the other order, because b gets the opposite impulse.
    turn_b = cross(along, arms[1])
    set_vector(row.along, along)
    set_vector(row.turn_a, turn_a)
    set_vector(row.turn_b, turn_b)
    # The inverse of the effective mass: J M⁻¹ Jᵀ.
    response = inverse[a, 0] + inverse[b, 0]
    response += inverse[a, 1] * dot(turn_a, turn_a)
    response += inverse[b, 1] * dot(turn_b, turn_b)
    row.mass = 1.0 / response
    row.impulse = 0.0
