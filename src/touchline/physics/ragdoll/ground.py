"""Contacts of parts with the ground, a level plane, and the friction anchors that persist there.

PhysX's patch friction: all points of a part on the ground share one patch, which holds the part
with up to two anchors. An anchor is a point of the body, and the place in the world where it was
when the anchor was made. Friction pulls the two together, along two directions with limits of their
own. A patch whose friction reached its limit is dropped in the next step, and new anchors are made.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, inlined
from touchline.physics.ragdoll.lanes import (
    LANES,
    apply,
    columns,
    conjugate,
    cross,
    dot,
    get,
    get_symmetric,
    get_turn,
    minus,
    multiply,
    plus,
    put,
    rotate,
    set_vector,
    times,
    turn_of,
    vector_of,
)
from touchline.physics.ragdoll.model import (
    BOX,
    CAPSULE,
    SPHERE,
    PartRecord,
    Settings,
)
from touchline.physics.ragdoll.records import (
    ANCHORS,
    POINTS,
    Body,
    Friction,
    Normal,
    Patch,
    Work,
)
from touchline.physics.shapes import Floats, Vector

GROUND_REACH_M = 0.01
"""The ground's contact offset; Unity's default."""
REMOVED_SHARE = 0.8
"""The share of a gap that a step may close, and of a penetration that it removes."""
# Unity's default (`Physics.defaultMaxDepenetrationVelocity`).
MAX_REMOVAL_MPS = 10.0
_TILT_COS = 0.999
"""A patch tilted further than this (2.56 degrees) since its first anchor is dropped."""
_ANCHOR_LIFT_M = 0.025
"""An anchor that moved so far along the normal drops its patch; also the least distance of two."""
_ANCHOR_GAP_M = 0.04
"""Points with a smaller gap can become anchors."""
_CLOSE_M = 0.02
"""A point with a smaller gap than this is preferred where there are more than four."""
FRICTION_GAIN = 0.8
STILL_SQUARE = 1e-4
"""Below this squared sliding speed, (m/s)², friction takes a fixed direction."""


class Anchors(NamedTuple):
    """The friction anchors of N agents' B parts: what a step keeps for the next one."""

    number: NDArray[np.int64]
    """[N, B] 0 to 2"""
    body: Floats
    """[N, B, 2, 3] from the center of mass, in the body's frame"""
    world: Floats
    """[N, B, 2, 3]"""
    normal: Floats
    """[N, B, 3] the ground's normal in the body's frame when the first anchor was made"""


@compiled
def build_ground(
    part: PartRecord,
    index: int,
    work: Work,
    start: int,
    count: int,
    anchors: Anchors,
    touching: NDArray[np.bool_],
    settings: Settings,
) -> None:
    """Fill a part's patch, contact points and friction, in one block's room."""
    normals, frictions, points = work.normals, work.frictions, work.points
    body = work.bodies[index]
    patch = work.patches[index]
    _find_lowest(part, body, patch, settings.ground_top)
    patch.num_points = 0
    patch.num_anchors = 0
    for lane in range(count):
        agent = start + lane
        # Unity raises its collision messages by the same gate, so this is also the observed
        # touch.
        touching[agent, index] = patch.lowest[lane] <= body.reach[lane] + GROUND_REACH_M
        if not touching[agent, index]:
            # Out of the gate, the patch is gone: PhysX keeps anchors from one step to the very
            # next only.
            anchors.number[agent, index] = 0
        elif patch.num_points == 0:
            patch.num_points = 1
            _clear(normals, frictions, index)
    if patch.num_points == 0:
        return
    for lane in range(count):
        agent = start + lane
        if touching[agent, index]:
            n = _find_points(part, body, lane, points, settings.ground_top)
            patch.num_points = max(patch.num_points, n)
            for i in range(n):
                row = normals[index * POINTS + i]
                _set_normal(row, part, body, lane, points[i], settings)
            _update_anchors(body, lane, agent, index, points, n, anchors)
            kept = anchors.number[agent, index]
            patch.num_anchors = max(patch.num_anchors, kept)
            for i in range(kept):
                at = (index * ANCHORS + i) * 2
                pair = frictions[at], frictions[at + 1]
                own = anchors.body[agent, index, i]
                world = anchors.world[agent, index, i]
                _set_friction(pair, part, body, lane, own, world, settings)


@compiled
def _find_lowest(part: PartRecord, body: Body, patch: Patch, ground_top: float) -> None:
    """The gap between the ground and each lane's collider; of a box, between its lowest corner."""
    turn = turn_of(part.turn)
    half = vector_of(part.half)
    for lane in range(LANES):
        x, y, z = columns(multiply(get_turn(body.rotation, lane), turn))
        # How far the collider reaches down from its center: its axes' heights, added up.
        if part.kind == BOX:
            depth = abs(x[1]) * half[0] + abs(y[1]) * half[1] + abs(z[1]) * half[2]
        else:
            depth = half[0] + abs(x[1]) * half[1]
        patch.lowest[lane] = body.center[1, lane] - depth - ground_top


@compiled
def _clear(normals: Any, frictions: Any, index: int) -> None:
    for i in range(POINTS):
        normal = normals[index * POINTS + i]
        _clear_row(normal)
        normal.kept_bias[:] = 0.0
    for i in range(2 * ANCHORS):
        friction = frictions[index * 2 * ANCHORS + i]
        _clear_row(friction)
        friction.along[:] = 0.0


@inlined
def _clear_row(row: Any) -> None:
    row.turn[:] = 0.0
    row.push[:] = 0.0
    row.gain[:] = 0.0
    row.bias[:] = 0.0
    row.impulse[:] = 0.0


@compiled
def _find_points(
    part: PartRecord, body: Body, lane: int, points: Floats, ground_top: float
) -> int:
    """Write contact points (x, y, z, gap) into `points` [8, 4]; returns their number, up to 4."""
    gate = body.reach[lane] + GROUND_REACH_M
    center = get(body.center, lane)
    rotation = get_turn(body.rotation, lane)
    axes = columns(multiply(rotation, turn_of(part.turn)))
    radius = part.half[0]
    if part.kind == SPHERE:
        gap = center[1] - radius - ground_top
        set_point(points, 0, (center[0], ground_top, center[2]), gap)
        return 1
    if part.kind == CAPSULE:
        n = 0
        for end in (1.0, -1.0):
            at = plus(center, times(axes[0], end * part.half[1]))
            gap = at[1] - radius - ground_top
            # Each cap by itself: a capsule on its end touches in one point.
            if gap <= gate:
                # On the capsule, while a sphere's point is on the ground: as PhysX places them.
                set_point(points, n, (at[0], at[1] - radius, at[2]), gap)
                n += 1
        return n
    return _box_points(part, center, axes, gate, points, ground_top)


@inlined
def set_point(points: Floats, i: int, position: Vector, gap: float) -> None:
    set_vector(points[i], position)
    points[i, 3] = gap


@compiled
def _box_points(
    part: PartRecord,
    center: Vector,
    axes: tuple[Vector, Vector, Vector],
    gate: float,
    points: Floats,
    ground_top: float,
) -> int:
    """The corners of the lowest face within the gate, and where its edges cross the gate."""
    half_x = times(axes[0], part.half[0])
    half_y = times(axes[1], part.half[1])
    half_z = times(axes[2], part.half[2])
    # The face that looks down is across the steepest axis. Its other two are taken in this
    # order, because the corners' order decides the order of the sweep, and with it the result.
    steep_x = abs(axes[0][1])
    steep_y = abs(axes[1][1])
    steep_z = abs(axes[2][1])
    if steep_x >= steep_y and steep_x >= steep_z:
        down, across, along = half_x, half_y, half_z
    elif steep_y >= steep_z:
        down, across, along = half_y, half_x, half_z
    else:
        down, across, along = half_z, half_x, half_y
    face = minus(center, down) if down[1] > 0.0 else plus(center, down)
    corners = (
        plus(face, plus(across, along)),
        plus(face, minus(across, along)),
        minus(face, plus(across, along)),
        minus(face, minus(across, along)),
    )
    n = 0
    for at in corners:
        gap = at[1] - ground_top
        if gap < gate:
            set_point(points, n, (at[0], ground_top, at[2]), gap)
            n += 1
    before = corners[3]
    for at in corners:
        gap = at[1] - ground_top
        gap_before = before[1] - ground_top
        if (gap < gate) != (gap_before < gate):
            share = (gate - gap) / (gap_before - gap)
            x = at[0] + share * (before[0] - at[0])
            z = at[2] + share * (before[2] - at[2])
            set_point(points, n, (x, ground_top, z), gate)
            n += 1
        before = at
    # At most five: three corners and the crossings of two edges.
    return _reduce(points) if n > POINTS else n


@inlined
def swap(points: Floats, i: int, j: int) -> None:
    for k in range(4):
        points[i, k], points[j, k] = points[j, k], points[i, k]


@inlined
def _square_between(points: Floats, i: int, j: int) -> float:
    between = minus(vector_of(points[i]), vector_of(points[j]))
    return dot(between, between)


@compiled
def _reduce(points: Floats) -> int:
    """Keep four of five points, in PhysX's order."""
    # The deepest; the one farthest from it; the extremes on both sides of the line through these
    # two.
    total = POINTS + 1
    best = 0
    for i in range(total):
        if points[i, 3] < points[best, 3]:
            best = i
    swap(points, 0, best)
    best = 1
    for i in range(1, total):
        if _square_between(points, i, 0) > _square_between(points, best, 0):
            best = i
    swap(points, 1, best)
    best = 2
    for i in range(2, total):
        if _aside(points, i) > _aside(points, best):
            best = i
    swap(points, 2, best)
    best = 3
    for i in range(3, total):
        if _aside(points, i) < _aside(points, best):
            best = i
    if _aside(points, best) > 0.0:  # all are on one side: the next farthest
        # Of points 3 and 4 the other one.
        best = 7 - best
    swap(points, 3, best)
    has_close = points[0, 3] < _CLOSE_M
    for i in range(POINTS):
        if has_close and points[i, 3] > _CLOSE_M and points[POINTS, 3] < _CLOSE_M:
            swap(points, i, POINTS)
    return POINTS


@inlined
def _aside(points: Floats, i: int) -> float:
    """How far a point is to one side of the line through points 0 and 1."""
    line_x = points[1, 0] - points[0, 0]
    line_z = points[1, 2] - points[0, 2]
    x = points[i, 0] - points[0, 0]
    z = points[i, 2] - points[0, 2]
    # (p − p₀) · ((p₁ − p₀) × up)
    aside: float = z * line_x - x * line_z
    return aside


@compiled
def _set_normal(
    row: Normal,
    part: PartRecord,
    body: Body,
    lane: int,
    point: Floats,
    settings: Settings,
) -> None:
    """A contact point: 80 % of its gap may be closed in a step, or of its penetration removed."""
    arm = minus(vector_of(point), get(body.center, lane))
    turn = cross(arm, (0.0, 1.0, 0.0))
    push = apply(get_symmetric(body.inertia, lane), turn)
    speed = REMOVED_SHARE * point[3] / settings.dt
    put(row.turn, lane, turn)
    put(row.push, lane, push)
    row.gain[lane] = 1.0 / (part.inverse_mass + dot(turn, push))
    # A deep penetration must not throw the part off.
    row.bias[lane] = max(speed, -MAX_REMOVAL_MPS)
    # A gap keeps its bias, which lets the part come down to it; the speed of a removal is not
    # kept.
    row.kept_bias[lane] = max(speed, 0.0)


@compiled
def _update_anchors(
    body: Body,
    lane: int,
    agent: int,
    index: int,
    points: Floats,
    n: int,
    anchors: Anchors,
) -> None:
    """Drop anchors that no longer hold, and make new ones from the current points."""
    rotation = get_turn(body.rotation, lane)
    center = get(body.center, lane)
    kept = anchors.number[agent, index]
    own = anchors.body[agent, index]
    world = anchors.world[agent, index]
    normal = anchors.normal[agent, index]
    if kept and not _still_holds(rotation, center, kept, own, world, normal):
        kept = 0
    # Two anchors that lie close together hold a wide contact badly; a factor of 2 in length.
    if kept == ANCHORS:
        square = _square_between(own, 0, 1)
        if 4.0 * square < _extent(points, n):
            kept = 0
    # Two that hold are not searched again.
    if kept == ANCHORS:
        return
    # The point of the body, not where it was: they differ while friction holds it back.
    first = plus(center, rotate(rotation, vector_of(own[0])))
    number, first, second = _choose(points, n, kept, first)
    if kept == 0 and number > 0:
        up = rotate(conjugate(rotation), (0.0, 1.0, 0.0))
        set_vector(normal, up)
    for i in range(kept, number):
        position = first if i == 0 else second
        arm = rotate(conjugate(rotation), minus(position, center))
        set_vector(world[i], position)
        set_vector(own[i], arm)
    anchors.number[agent, index] = number


@compiled
def _choose(
    points: Floats, n: int, kept: int, first: Vector
) -> tuple[int, Vector, Vector]:
    """The number of anchors and their places: two points as far apart as PhysX's search finds."""
    number = kept
    second = first
    spread = 0.0  # squared distance of the two
    for i in range(n):
        if points[i, 3] >= _ANCHOR_GAP_M:
            continue
        point = vector_of(points[i])
        to_first = minus(point, first)
        to_second = minus(point, second)
        d0 = dot(to_first, to_first)
        d1 = dot(to_second, to_second)
        if number == 0:
            number, first = 1, point
        elif number == 1:
            if d0 > _ANCHOR_LIFT_M * _ANCHOR_LIFT_M:
                number, second, spread = 2, point, d0
        elif d0 > d1:
            if d0 > spread:
                second, spread = point, d0
        elif d1 > spread:
            first, spread = point, d1
    return number, first, second


@compiled
def _still_holds(
    rotation: tuple[float, float, float, float],
    center: Vector,
    count: int,
    own: Floats,
    world: Floats,
    normal: Floats,
) -> bool:
    """Whether the body has neither tilted nor lifted since its anchors were made."""
    up = rotate(rotation, vector_of(normal))
    # Its y is the cosine of the tilt: the ground's normal is y.
    if up[1] <= _TILT_COS:
        return False
    for i in range(count):
        arm = rotate(rotation, vector_of(own[i]))
        if abs(center[1] + arm[1] - world[i, 1]) >= _ANCHOR_LIFT_M:
            return False
    return True


@compiled
def _extent(points: Floats, n: int) -> float:
    """The squared diagonal of the points' bounding box."""
    total: float = 0.0
    for k in range(3):
        low = points[0, k]
        high = points[0, k]
        for i in range(1, n):
            low = min(low, points[i, k])
            high = max(high, points[i, k])
        side: float = high - low
        total += side * side
    return total


@compiled
def _set_friction(
    pair: tuple[Friction, Friction],
    part: PartRecord,
    body: Body,
    lane: int,
    own: Floats,
    world: Floats,
    settings: Settings,
) -> None:
    """Both directions of friction at an anchor; the first along the body's velocity."""
    arm = rotate(get_turn(body.rotation, lane), vector_of(own))
    at = plus(get(body.center, lane), arm)
    moved = minus(at, vector_of(world))
    # Of the center of mass, without spin, as PhysX takes it.
    vx = body.velocity[0, lane]
    vz = body.velocity[2, lane]
    square = vx * vx + vz * vz
    along = (0.0, 0.0, 1.0)
    if square > STILL_SQUARE:
        speed = math.sqrt(square)
        along = (vx / speed, 0.0, vz / speed)
    aside = cross((0.0, 1.0, 0.0), along)
    _set_direction(pair[0], part, body, lane, arm, along, moved, settings)
    _set_direction(pair[1], part, body, lane, arm, aside, moved, settings)


@inlined
def _set_direction(
    row: Friction,
    part: PartRecord,
    body: Body,
    lane: int,
    arm: Vector,
    along: Vector,
    moved: Vector,
    settings: Settings,
) -> None:
    turn = cross(arm, along)
    push = apply(get_symmetric(body.inertia, lane), turn)
    put(row.along, lane, along)
    put(row.turn, lane, turn)
    put(row.push, lane, push)
    row.gain[lane] = FRICTION_GAIN / (part.inverse_mass + dot(turn, push))
    # Pulls the anchor back to its place within the step.
    row.bias[lane] = dot(along, moved) / settings.dt
