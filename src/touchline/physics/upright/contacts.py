"""The contacts of one area: what touches where, and in which directions impulses may act.

A contact acts on two bodies a and b along one or two normals, along two tangents (friction), and,
between flat faces, about the normal. Contacts and directions are records with named fields; a
record is passed to a kernel as one pointer, where views of arrays are seven numbers each.

Velocities are rows of six (x, y, z, then angular x, y, z) and so are inverse masses, 0 where an
axis is locked. The row after the last body stands for everything static.

Source: PhysX 3 and 4 as observed: fitted to every physics step of running Unity scenes (SoccerTwos,
PushBlock).
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import inlined, makes_arrays, record_type
from touchline.physics.ragdoll.lanes import (
    cross,
    dot,
    minus,
    set_vector,
    times,
    vector_of,
)
from touchline.physics.shapes import Floats, Three, Vector
from touchline.physics.world import DT_S

TOUCH_M = 0.02
"""Shapes this close touch: two contact offsets of 0.01 (Unity's DynamicsManager.asset)."""
APPROACH = 0.8
"""Share of a gap that may close, and of a penetration that is removed, in one step."""
BOUNCE_MPS = 2.0
"""Slower approaches do not rebound (DynamicsManager.asset, bounce threshold)."""
MU = 0.6
"""Unity's default friction, static and dynamic; two materials combine by their average."""

MAX_CONTACTS = 128
"""Kernels do not check it. Enough for all pairs that may touch (81 in CooperativePushBlock, 69 in
Sorter), wherever they are; GridFoodCollector brings its own number, and checks it."""

STRAIGHT, ROUND, FLAT, COUPLED = range(4)
"""Kinds of contact.

    STRAIGHT  neither body turns
    ROUND     arms along the normal, so that directions do not disturb each other
    FLAT      horizontal faces: as ROUND, and friction also resists a turn about the normal
    COUPLED   arms across the normal: directions disturb each other
"""


class Direction:
    """A direction in which a contact's impulse acts, with its Jacobian."""

    along: Three
    """The unit vector n along which a is pushed; b is pushed along -n."""
    turn_a: Three
    """How the impulse turns a: arm x n. Not set for STRAIGHT contacts."""
    turn_b: Three
    """How it turns b: -(arm x n)."""
    mass: float
    """Effective mass, kg; 0 if nothing can move."""
    impulse: float
    """The impulse so far, N s."""
    target_moving: float
    """Normals only: the relative speed to reach while poses move, m/s."""
    target_kept: float
    """Normals only: the relative speed to reach in the velocity that is kept, m/s."""


class Contact:
    """One contact of bodies a and b."""

    a: int
    b: int
    kind: int
    """STRAIGHT, ROUND, FLAT or COUPLED."""
    num_normals: int
    """1, or 2 where the faces of two boxes touch along a line."""
    static: float
    """Friction coefficient of contacts that stick."""
    dynamic: float
    """Friction coefficient of contacts that slide."""
    lever: float
    """FLAT only: the arm of the friction that resists a turn about the normal, m."""
    normal: Direction
    second_normal: Direction
    tangent: Direction
    second_tangent: Direction
    spin: Direction
    """FLAT only: mass (here 1 / (kg m²)⁻¹) and impulse (N m s) about the normal."""


CONTACT: np.dtype[Any] = record_type(Contact)


class Contacts(NamedTuple):
    """The contacts of one area, and the bodies that they act on."""

    records: NDArray[np.void]
    """[most contacts] with the fields of `Contact`."""
    velocity: Floats
    """[bodies + 1, 6]"""
    inverse: Floats
    """[bodies + 1, 6] inverse masses."""


@makes_arrays
def new_records(count: int = MAX_CONTACTS) -> NDArray[np.void]:
    """Room for this many contacts, uninitialized."""
    return np.empty(count, CONTACT)


@inlined
def begin_contact(
    contact: Contact,
    a: int,
    b: int,
    kind: int,
    static: float,
    dynamic: float,
    lever: float,
) -> None:
    """Set all of a contact but its directions, for one normal."""
    contact.a = a
    contact.b = b
    contact.kind = kind
    contact.num_normals = 1
    contact.static = static
    contact.dynamic = dynamic
    contact.lever = lever


@inlined
def set_direction(
    contact: Contact,
    direction: Direction,
    normal: Vector,
    arm_a: Vector,
    arm_b: Vector,
    inverse: Floats,
) -> None:
    """Make a direction of a contact act along `normal`, at these arms from the two centers."""
    a, b = contact.a, contact.b
    set_vector(direction.along, normal)
    # The inverse of the effective mass: J M⁻¹ Jᵀ.
    total = 0.0
    for k in range(3):
        total += normal[k] * normal[k] * (inverse[a, k] + inverse[b, k])
    if contact.kind != STRAIGHT:
        turn_a = cross(arm_a, normal)
        # In the other order, because b gets the opposite impulse.
        turn_b = cross(normal, arm_b)
        set_vector(direction.turn_a, turn_a)
        set_vector(direction.turn_b, turn_b)
        for k in range(3):
            # Each axis' pair is summed first: the order of additions decides the last bit.
            about = turn_a[k] ** 2 * inverse[a, 3 + k]
            about += turn_b[k] ** 2 * inverse[b, 3 + k]
            total += about
    # Two bodies that cannot move along the normal: no impulse would change anything.
    direction.mass = 1.0 / total if total > 0.0 else 0.0
    direction.impulse = 0.0


@inlined
def relative_speed(contact: Contact, direction: Direction, velocity: Floats) -> float:
    """How fast a moves away from b along a direction, where they touch, m/s."""
    a, b = contact.a, contact.b
    apart = minus(vector_of(velocity[a]), vector_of(velocity[b]))
    speed = dot(vector_of(direction.along), apart)
    if contact.kind != STRAIGHT:
        for k in range(3):
            by_a = direction.turn_a[k] * velocity[a, 3 + k]
            speed += by_a + direction.turn_b[k] * velocity[b, 3 + k]
    return speed


@inlined
def set_target_velocity(
    contact: Contact, normal: Direction, gap: float, bounce: float, velocity: Floats
) -> None:
    """Set the speeds along a normal that the contact rule wants at this gap (m, negative inside).

    A fast approach that would close the gap within the step rebounds. Otherwise most of the gap
    may close, or most of a penetration is removed, and no speed remains of that removal.
    """
    approach = -relative_speed(contact, normal, velocity)
    # A rebound removes no penetration, however deep: as observed in Unity.
    if bounce > 0.0 and approach > BOUNCE_MPS and approach * DT_S > gap:
        moving = kept = bounce * approach
    else:
        moving = -APPROACH * gap / DT_S
        kept = min(moving, 0.0)  # the speed that removes a penetration is not kept
    normal.target_moving = moving
    normal.target_kept = kept


@inlined
def add_friction(
    contact: Contact,
    normal: Vector,
    arm_a: Vector,
    arm_b: Vector,
    velocity: Floats,
    inverse: Floats,
) -> None:
    """Set both tangents, each with a limit of its own as in PhysX's patch friction.

    The first tangent follows the relative linear velocity of the two centers; where there is none,
    it is level.
    """
    a, b = contact.a, contact.b
    sliding = minus(vector_of(velocity[a]), vector_of(velocity[b]))
    # What remains of it across the normal.
    tx, ty, tz = minus(sliding, times(normal, dot(sliding, normal)))
    length = math.sqrt(tx * tx + ty * ty + tz * tz)
    if length > 1e-6:
        tangent = (tx / length, ty / length, tz / length)
    elif abs(normal[1]) > 0.5:  # at rest on something: any level direction will do
        tangent = (1.0, 0.0, 0.0)
    else:  # at rest against something: level, along its side
        length = math.sqrt(normal[0] * normal[0] + normal[2] * normal[2])
        tangent = (normal[2] / length, 0.0, -normal[0] / length)
    set_direction(contact, contact.tangent, tangent, arm_a, arm_b, inverse)
    across = cross(normal, tangent)
    set_direction(contact, contact.second_tangent, across, arm_a, arm_b, inverse)
