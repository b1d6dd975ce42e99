"""Boxes that turn about the vertical axis only: where they touch, and their time step.

What it leaves to the scenes: pushes, teleports, and what a touch means.

Source: PhysX 3 and 4 as observed: fitted to every physics step of running Unity scenes (PushBlock).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, inlined, makes_arrays
from touchline.physics.shapes import (
    ABSENT,
    BOX_TAG,
    COS,
    HALF_X,
    HALF_Y,
    HALF_Z,
    SIN,
    Floats,
    Vector,
    X,
    Y,
    Z,
)
from touchline.physics.threads import Threads
from touchline.physics.upright.contacts import (
    COUPLED,
    FLAT,
    MU,
    STRAIGHT,
    TOUCH_M,
    Contacts,
    add_friction,
    begin_contact,
    new_records,
    set_direction,
    set_target_velocity,
)
from touchline.physics.upright.solve import solve
from touchline.physics.world import ANGULAR_DRAG, DT_S, MAX_SPIN, Arrays, PhysicsWorld

ANCHORS = 2.0
"""Between flat faces friction is doubled: a patch has two anchors, and each may carry μ times
the whole normal force. A ball touches at one point and has one."""

_SPIN_LEVER_M = 0.7
"""Half the diagonal of a cube agent's foot, where its two anchors are. Inferred, not measured."""


class Body(NamedTuple):
    """A box of a scene that moves."""

    row: list[float]
    """Its shape (`shapes.box`)."""
    mass_kg: float
    drag: float
    """1/s."""
    turns: bool = False
    """Whether contacts may turn it about the vertical axis."""
    falls: bool = True


class Boxes(NamedTuple):
    """What the time step of A areas of B boxes reads and writes, for kernels."""

    fixed: Floats
    """[fixed, 9] boxes that every area has; the first is the floor."""
    boxes: Floats
    """[A, B, 9], the first of which are bodies; the others are put where the scene wants them."""
    yaw: Floats
    """[A, bodies] rad."""
    velocity: Floats
    """[A, bodies + 1, 6]; the last row stays 0."""
    inverse: Floats
    """[bodies + 1, 6] inverse masses."""
    drag: Floats
    """[A, bodies] 1/s."""
    gravity: Floats
    """[A] m/s²."""
    friction: Floats
    """[A, bodies, fixed + B, 2] combined coefficients, static and dynamic; negative between shapes
    that never touch (triggers)."""
    gaps: Floats
    """[A, bodies, fixed + B] m, at the poses before the last step, as Unity's collision messages
    see them; inf between shapes that are nowhere near."""


class BoxWorld(PhysicsWorld):
    """The arrays of `Boxes`, made from descriptions of an area's shapes."""

    def __init__(
        self,
        num_areas: int,
        fixed: Floats,
        bodies: Sequence[Body],
        placed: Sequence[list[float]],
        gravity: float,
        threads: Threads,
    ) -> None:
        """`fixed` boxes stand in every area alike; `placed` ones are moved by the scene alone."""
        count = len(bodies)
        total = count + len(placed)
        rows = np.array([body.row for body in bodies] + list(placed))
        pairs = (num_areas, count, len(fixed) + total)
        self.fixed = fixed
        self.boxes: Floats = np.tile(rows, (num_areas, 1, 1))
        self.yaw: Floats = np.zeros((num_areas, count))
        self.velocity: Floats = np.zeros((num_areas, count + 1, 6))
        drag = [body.drag for body in bodies]
        self.drag: Floats = np.tile(drag, (num_areas, 1))
        self.gravity: Floats = np.full(num_areas, gravity)
        self.friction: Floats = np.full((*pairs, 2), MU)
        self.gaps: Floats = np.full(pairs, np.inf)
        self.inverse: Floats = np.zeros((count + 1, 6))
        for i, body in enumerate(bodies):
            self.inverse[i] = _inverse_mass(body)
        # A kernel's argument, by the names above.
        own = {name: getattr(self, name) for name in Boxes._fields}
        self.kernel_arrays = Boxes(**own)
        """All of these, for `step_areas`."""
        self._threads = threads

    def step(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            self._threads.run(step_areas, len(self.boxes), self.kernel_arrays)

    def arrays(self) -> Arrays:
        names = ("boxes", "yaw", "velocity", "drag", "gravity", "friction")
        return {name: getattr(self, name) for name in names}


def _inverse_mass(body: Body) -> list[float]:
    """A body's row of inverse mass and inertia, 0 where an axis is locked."""
    across = 1.0 / body.mass_kg
    up = across if body.falls else 0.0
    # A solid box about its vertical axis: m (x² + z²) / 3 with half sizes.
    half_x = body.row[HALF_X]
    half_z = body.row[HALF_Z]
    square_m2 = (half_x**2 + half_z**2) / 3.0
    about_y = 1.0 / (body.mass_kg * square_m2) if body.turns else 0.0
    return [across, up, across, 0.0, about_y, 0.0]


@makes_arrays
def step_areas(first: int, last: int, world: Boxes) -> None:
    """One time step of these areas, for kernels that continue from there."""
    _step_each(first, last, world, new_records(), np.zeros_like(world.inverse))


@compiled
def _step_each(
    first: int, last: int, world: Boxes, records: NDArray[np.void], moving: Floats
) -> None:
    for area in range(first, last):
        step_boxes(
            Contacts(records, world.velocity[area], world.inverse),
            world.fixed,
            world.boxes[area],
            world.yaw[area],
            world.drag[area],
            world.gravity[area],
            world.friction[area],
            moving,
            world.gaps[area],
        )


@compiled
def step_boxes(
    contacts: Contacts,
    fixed: Floats,
    boxes: Floats,
    yaw: Floats,
    drag: Floats,
    gravity: float,
    friction: Floats,
    moving: Floats,
    gaps: Floats,
) -> None:
    """One time step of one area, with the arrays of `Boxes`.

    `moving` [bodies + 1, 6] gets the velocity that the poses moved with.
    """
    bodies = len(yaw)
    _slow_down(boxes, contacts, drag, gravity)
    gaps[:] = np.inf
    area = _Area(contacts, boxes, friction, gaps)
    # Later contacts override earlier ones: bodies among themselves, then walls, then the floor.
    # With the floor first, friction lifts a pushing agent up to 3 cm off it; Unity's never leave
    # it.
    n = 0
    for i in range(bodies):
        if boxes[i, BOX_TAG] != ABSENT:
            n = _touch_each(area, n, i, boxes[:bodies], i + 1, len(fixed), True)
    for i in range(bodies):
        if boxes[i, BOX_TAG] != ABSENT:
            n = _touch_each(area, n, i, boxes, bodies, len(fixed), False)
            n = _touch_each(area, n, i, fixed, 0, 0, False)
    solve(contacts, n, moving)
    for i in range(bodies):
        boxes[i, X] += moving[i, 0] * DT_S
        boxes[i, Y] += moving[i, 1] * DT_S
        boxes[i, Z] += moving[i, 2] * DT_S
        # Most bodies never turn by themselves, and sine and cosine are expensive.
        if moving[i, 4] != 0.0:
            yaw[i] += moving[i, 4] * DT_S
            boxes[i, COS] = math.cos(yaw[i])
            boxes[i, SIN] = math.sin(yaw[i])


class _Area(NamedTuple):
    """One area while its contacts are found: its part of `Boxes`, and its contacts."""

    contacts: Contacts
    boxes: Floats
    friction: Floats
    gaps: Floats


@compiled
def _slow_down(boxes: Floats, contacts: Contacts, drag: Floats, gravity: float) -> None:
    """Gravity and drag, as PhysX applies them: drag slows what gravity has just added, too."""
    velocity, inverse = contacts.velocity, contacts.inverse
    for i in range(len(drag)):
        if boxes[i, BOX_TAG] == ABSENT:
            # All poses move by their velocities, below in `step_boxes`.
            velocity[i] = 0.0
            continue
        keep = 1.0 - drag[i] * DT_S
        for k in range(3):
            velocity[i, k] *= keep
        if inverse[i, 1] > 0.0:  # a body whose height is locked does not fall
            velocity[i, 1] -= gravity * DT_S * keep
        spin = velocity[i, 4] * (1.0 - ANGULAR_DRAG * DT_S)
        velocity[i, 4] = min(max(spin, -MAX_SPIN), MAX_SPIN)


@inlined
def _touch_each(
    area: _Area,
    n: int,
    i: int,
    others: Floats,
    start: int,
    first: int,
    are_bodies: bool,
) -> int:
    """Add the contacts of body i with others[start:], the last of them first.

    Their pairs with i begin at column `first` of `friction` and `gaps`; the number of contacts.
    """
    static = len(area.contacts.velocity) - 1
    # The floor comes first, so it is solved last.
    for k in range(len(others) - 1, start - 1, -1):
        j = first + k
        if area.friction[i, j, 1] >= 0.0 and _is_near(area.boxes, i, others, k):
            n, area.gaps[i, j] = touch_boxes(
                area.contacts,
                n,
                i,
                area.boxes[i],
                k if are_bodies else static,
                others[k],
                area.friction[i, j, 0],
                area.friction[i, j, 1],
            )
    return n


@inlined
def _is_near(a: Floats, i: int, b: Floats, j: int) -> bool:
    """Whether box a[i] may touch box b[j]: a quick test with a circle around a[i]."""
    if b[j, BOX_TAG] == ABSENT:
        return False
    dx = a[i, X] - b[j, X]
    dy = a[i, Y] - b[j, Y]
    dz = a[i, Z] - b[j, Z]
    if abs(dy) >= a[i, HALF_Y] + b[j, HALF_Y] + TOUCH_M:
        return False
    # The sum of the half sizes is at least half the diagonal, and needs no square root.
    reach = a[i, HALF_X] + a[i, HALF_Z] + TOUCH_M
    # Along the other box's own axes.
    cos = b[j, COS]
    sin = b[j, SIN]
    across = abs(dx * cos - dz * sin)
    along = abs(dx * sin + dz * cos)
    return bool(across < b[j, HALF_X] + reach and along < b[j, HALF_Z] + reach)


@compiled
def touch_boxes(
    contacts: Contacts,
    n: int,
    a: int,
    box_a: Floats,
    b: int,
    box_b: Floats,
    friction_static: float,
    friction_dynamic: float,
) -> tuple[int, float]:
    """Add the contact of two boxes, if they touch. Returns the number of contacts, and the gap."""
    velocity, inverse = contacts.velocity, contacts.inverse
    gap, nx, ny, nz, face = box_gap(box_a, box_b)
    if gap >= TOUCH_M:
        return n, gap
    turns = inverse[a, 4] > 0.0 or inverse[b, 4] > 0.0
    # About the vertical axis, a side's impulse turns by its arm; a top turns by friction alone.
    kind = STRAIGHT
    if turns:
        kind = FLAT if face == _LEVEL else COUPLED
    contact = contacts.records[n]
    static, dynamic = ANCHORS * friction_static, ANCHORS * friction_dynamic
    begin_contact(contact, a, b, kind, static, dynamic, _SPIN_LEVER_M)
    normal = (nx, ny, nz)
    no_arm = (0.0, 0.0, 0.0)
    if kind != COUPLED:
        set_direction(contact, contact.normal, normal, no_arm, no_arm, inverse)
        set_target_velocity(contact, contact.normal, gap, 0.0, velocity)
        add_friction(contact, normal, no_arm, no_arm, velocity, inverse)
        if kind == FLAT:
            contact.spin.mass = 1.0 / (inverse[a, 4] + inverse[b, 4])
            contact.spin.impulse = 0.0
        return n + 1, gap
    px, pz, gap_p, qx, qz, gap_q = _side_points(box_a, box_b, nx, nz, face)
    if gap_q < gap_p:  # the deeper point comes first; the other may not touch at all
        px, qx = qx, px
        pz, qz = qz, pz
        gap_p, gap_q = gap_q, gap_p
    arm_a, arm_b = _arm(box_a, px, pz), _arm(box_b, px, pz)
    set_direction(contact, contact.normal, normal, arm_a, arm_b, inverse)
    set_target_velocity(contact, contact.normal, gap_p, 0.0, velocity)
    # Two points that coincide would be one contact counted twice.
    are_apart = abs(px - qx) + abs(pz - qz) > 1e-6
    if gap_q < TOUCH_M and are_apart:
        arm_a, arm_b = _arm(box_a, qx, qz), _arm(box_b, qx, qz)
        set_direction(contact, contact.second_normal, normal, arm_a, arm_b, inverse)
        set_target_velocity(contact, contact.second_normal, gap_q, 0.0, velocity)
        contact.num_normals = 2
        # Friction acts in the middle of the line along which they touch.
        px = 0.5 * (px + qx)
        pz = 0.5 * (pz + qz)
    arm_a, arm_b = _arm(box_a, px, pz), _arm(box_b, px, pz)
    add_friction(contact, normal, arm_a, arm_b, velocity, inverse)
    return n + 1, gap


@inlined
def _arm(box: Floats, x: float, z: float) -> Vector:
    return x - box[X], 0.0, z - box[Z]


_FACE_B_X, _FACE_B_Z, _FACE_A_X, _FACE_A_Z, _LEVEL = range(5)
"""Whose face two boxes touch with: across local x or z of b or of a, or a top."""


@compiled
def box_gap(a: Floats, b: Floats) -> tuple[float, float, float, float, int]:
    """The gap of two boxes along the axis that separates them most (negative: their overlap).

    Returns the gap, the normal from b to a, and whose face it belongs to. Once an axis shows
    `TOUCH_M` or more the rest is not looked at: such a gap means "no contact" and nothing else.
    """
    dx = a[X] - b[X]
    dy = a[Y] - b[Y]
    dz = a[Z] - b[Z]
    best = abs(dy) - a[HALF_Y] - b[HALF_Y]
    nx = 0.0
    ny = math.copysign(1.0, dy)
    nz = 0.0
    face = _LEVEL
    if best >= TOUCH_M:
        return best, nx, ny, nz, face
    # Cosine and sine of the angle between the boxes.
    # Without signs: the extent of a box along an axis is the same for both directions.
    cos = abs(a[COS] * b[COS] + a[SIN] * b[SIN])
    sin = abs(a[SIN] * b[COS] - a[COS] * b[SIN])
    # Upright boxes are separated by an axis of one of them or overlap: four axes in the plane.
    for k in range(4):
        own, other = (b, a) if k in (_FACE_B_X, _FACE_B_Z) else (a, b)
        if k in (_FACE_B_X, _FACE_A_X):
            ux = own[COS]
            uz = -own[SIN]
            reach = own[HALF_X] + cos * other[HALF_X] + sin * other[HALF_Z]
        else:
            ux = own[SIN]
            uz = own[COS]
            reach = own[HALF_Z] + sin * other[HALF_X] + cos * other[HALF_Z]
        along = dx * ux + dz * uz
        gap = abs(along) - reach
        if gap > best:  # of equal gaps the first counts: a top, then b's faces
            side = math.copysign(1.0, along)
            best = gap
            nx = side * ux
            ny = 0.0
            nz = side * uz
            face = k
            if best >= TOUCH_M:
                break
    return best, nx, ny, nz, face


@compiled
def _side_points(
    a: Floats, b: Floats, nx: float, nz: float, face: int
) -> tuple[float, float, float, float, float, float]:
    """Where two boxes touch sideways: two points (x, z, gap)."""
    # They are the ends of the edge of one box that faces the other, cut to the width of the other's
    # face.
    if face in (_FACE_B_X, _FACE_B_Z):
        own, other = b, a
    else:
        own, other = a, b
        nx, nz = -nx, -nz
    if face in (_FACE_B_X, _FACE_A_X):
        depth = own[HALF_X]
        width = own[HALF_Z]
    else:
        depth = own[HALF_Z]
        width = own[HALF_X]
    # The edge of the other box: its middle m and half of its length e.
    right = nx * other[COS] - nz * other[SIN]
    ahead = nx * other[SIN] + nz * other[COS]
    if abs(right) > abs(ahead):
        side = -math.copysign(other[HALF_X], right)
        mx = other[X] + side * other[COS]
        mz = other[Z] - side * other[SIN]
        ex = other[HALF_Z] * other[SIN]
        ez = other[HALF_Z] * other[COS]
    else:
        side = -math.copysign(other[HALF_Z], ahead)
        mx = other[X] + side * other[SIN]
        mz = other[Z] + side * other[COS]
        ex = other[HALF_X] * other[COS]
        ez = -other[HALF_X] * other[SIN]
    # The edge along the face: m lies `middle` from the face's middle, and e is `run` long.
    tx, tz = nz, -nx
    middle = (mx - own[X]) * tx + (mz - own[Z]) * tz
    run = ex * tx + ez * tz
    # The part of the edge over the face, from m + low e to m + high e.
    low, high = -1.0, 1.0
    if abs(run) > 1e-9:  # else the edge points at the face, and its whole length counts
        first = (-width - middle) / run
        second = (width - middle) / run
        low = min(max(min(first, second), -1.0), 1.0)
        high = min(max(max(first, second), -1.0), 1.0)
    px = mx + low * ex
    pz = mz + low * ez
    qx = mx + high * ex
    qz = mz + high * ez
    gap_p = (px - own[X]) * nx + (pz - own[Z]) * nz - depth
    gap_q = (qx - own[X]) * nx + (qz - own[Z]) * nz - depth
    return px, pz, gap_p, qx, qz, gap_q
