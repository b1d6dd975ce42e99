"""Where two boxes touch that may be turned in every way.

A box is a row of 15 numbers (a "cuboid"): its center, its half sizes, and its three axes as unit
vectors. Of two boxes one of 15 axes separates them, or nothing does: three of each box, and the
cross products of their edges. The axis with the widest gap is the normal of the contact. If it is
across a face, the points are where the other box's face lies over that face; if it is across two
edges, the point is where these pass each other.

Source: Gottschalk, Lin and Manocha, "OBBTree" (1996), for the axes; Sutherland and Hodgman,
"Reentrant Polygon Clipping" (1974), for the points.
"""

import math
from typing import NamedTuple

import numpy as np

from touchline.physics.kernels import compiled, inlined, makes_arrays
from touchline.physics.ragdoll.ground import set_point, swap
from touchline.physics.ragdoll.lanes import (
    cross,
    dot,
    minus,
    plus,
    set_vector,
    times,
    vector_of,
)
from touchline.physics.shapes import COS, SIN, Floats, Vector
from touchline.physics.upright.contacts import TOUCH_M

HALF, AXES = 3, 6
"""Columns of a cuboid: the center comes first, then the half sizes, then three axes."""
CUBOID_COLUMNS = 15
GAP = 3
"""The column after a point's place."""
MAX_POINTS = 4

_MOST_CORNERS = 8
"""A rectangle cut by the four sides of another one has at most eight."""
_EDGE_HANDICAP_M = 0.005
"""Edges must part two boxes by so much more than faces do: a face holds a box with four points.
Chosen by trial: without it, boxes that lie flat rock."""
_PARALLEL = 1e-6
"""Two edges with a smaller squared sine between them have no axis of their own."""


class Touching(NamedTuple):
    """Room for one test of two boxes."""

    cosines: Floats
    """[3, 3] of each axis of a with each axis of b."""
    apart: Floats
    """[2, 3] from b to a along the axes of a, and along those of b, m."""
    normal: Floats
    """[3] from b to a, of length 1."""
    points: Floats
    """[corners, 4] where they touch: x, y, z, gap (negative inside)."""
    corners: Floats
    """[corners, 3] of a face that is being cut: along the other face's edges, and the gap."""
    cut: Floats
    """[corners, 3] likewise, after the next cut."""


@makes_arrays
def new_touching() -> Touching:
    return Touching(
        np.empty((3, 3)),
        np.empty((2, 3)),
        np.empty(3),
        np.empty((_MOST_CORNERS, 4)),
        np.empty((_MOST_CORNERS, 3)),
        np.empty((_MOST_CORNERS, 3)),
    )


@inlined
def _center(own: Floats) -> Vector:
    return vector_of(own)


@inlined
def _axis(own: Floats, k: int) -> Vector:
    return vector_of(own, AXES + 3 * k)


@compiled
def set_upright(cuboid: Floats, box: Floats) -> None:
    """Make a cuboid of an upright box (`shapes.box`), whose first columns are the same."""
    for k in range(AXES):
        cuboid[k] = box[k]
    axes = cuboid[AXES:]
    axes[:] = 0.0
    # One axis after the other; Unity's yaw turns clockwise seen from above.
    axes[0] = box[COS]
    axes[2] = -box[SIN]
    axes[4] = 1.0
    axes[6] = box[SIN]
    axes[8] = box[COS]


@compiled
def touch(a: Floats, b: Floats, room: Touching) -> int:
    """Find the points where cuboids a and b touch, the deepest first; their number, up to four."""
    gap, axis = part(a, b, room)
    if gap >= TOUCH_M:
        return 0
    if axis >= 6:
        between = _cross_edges(a, b, (axis - 6) // 3, (axis - 6) % 3, room)
        set_point(room.points, 0, between, gap)
        return 1
    if axis < 3:
        n = _lay_face(b, a, axis, -1.0, room)
    else:
        n = _lay_face(a, b, axis - 3, 1.0, room)
    return _choose_points(room.points, n)


@compiled
def touch_plane(a: Floats, normal: Vector, offset: float, room: Touching) -> int:
    """As `touch` with everything below a plane, normal · x < offset.

    Only the corners of the face that is turned most against the plane count.
    """
    height = dot(normal, _center(a)) - offset
    reach = 0.0
    for k in range(3):
        reach += a[HALF + k] * abs(dot(normal, _axis(a, k)))
    if height - reach >= TOUCH_M:
        return 0
    set_vector(room.normal, normal)
    nx, ny, nz = normal
    facing, out = _face_against(a, normal)
    found = 0
    for c in range(4):
        corner = _corner(a, facing, out, c)
        gap = height + nx * corner[0] + ny * corner[1] + nz * corner[2]
        if gap < TOUCH_M:
            # In the middle of the gap, or of the overlap.
            at = minus(plus(_center(a), corner), times(normal, 0.5 * gap))
            set_point(room.points, found, at, gap)
            found += 1
    return _choose_points(room.points, found)


@compiled
def part(a: Floats, b: Floats, room: Touching) -> tuple[float, int]:
    """The widest gap between cuboids along one of 15 axes, and which axis; sets `room.normal`.

    Axes 0 to 2 are those of a, 3 to 5 those of b, then come a's first edge with each of b's, and so
    on. Once an axis shows `TOUCH_M` or more the rest is not looked at.
    """
    best, chosen = -np.inf, 0
    # Faces before edges, because these also set the cosines and distances that edges are tested by.
    for k in range(15):
        if k < 6:
            gap = _part_by_face(a, b, k, room)
            handicap = 0.0
        else:
            gap = _part_by_edges(a, b, (k - 6) // 3, (k - 6) % 3, room)
            handicap = _EDGE_HANDICAP_M
        if gap - handicap > best:
            best, chosen = gap, k
            if best >= TOUCH_M:
                return best, chosen
    set_vector(room.normal, _normal(a, b, chosen, room))
    return best, chosen


@compiled
def _part_by_face(a: Floats, b: Floats, k: int, room: Touching) -> float:
    """The gap along axis k of six; sets how far a is apart along it, and of a's the cosines."""
    own, other = (a, b) if k < 3 else (b, a)
    axis = _axis(own, k % 3)
    along = dot(minus(_center(a), _center(b)), axis)
    reach: float = own[HALF + k % 3]
    for j in range(3):
        cosine = dot(axis, _axis(other, j))
        reach += other[HALF + j] * abs(cosine)
        if k < 3:
            room.cosines[k, j] = cosine
    room.apart[k // 3, k % 3] = along
    return abs(along) - reach


@compiled
def _part_by_edges(a: Floats, b: Floats, i: int, j: int, room: Touching) -> float:
    """The gap along the cross product of a's axis i and b's axis j."""
    c = room.cosines
    sine_square = 1.0 - c[i, j] * c[i, j]
    if sine_square < _PARALLEL:
        return -np.inf
    i1, i2 = (i + 1) % 3, (i + 2) % 3
    j1, j2 = (j + 1) % 3, (j + 2) % 3
    # Of a's other two axes, A1 · (A × B) = −A2 · B and A2 · (A × B) = A1 · B; likewise for b.
    along = room.apart[0, i2] * c[i1, j] - room.apart[0, i1] * c[i2, j]
    reach: float = a[HALF + i1] * abs(c[i2, j]) + a[HALF + i2] * abs(c[i1, j])
    reach += b[HALF + j1] * abs(c[i, j2]) + b[HALF + j2] * abs(c[i, j1])
    gap: float = (abs(along) - reach) / math.sqrt(sine_square)
    return gap


@compiled
def _normal(a: Floats, b: Floats, chosen: int, room: Touching) -> Vector:
    """The unit vector of the chosen axis, from b to a."""
    if chosen < 6:
        axis = _axis(a if chosen < 3 else b, chosen % 3)
        return times(axis, math.copysign(1.0, room.apart[chosen // 3, chosen % 3]))
    across = cross(_axis(a, (chosen - 6) // 3), _axis(b, (chosen - 6) % 3))
    along = dot(across, minus(_center(a), _center(b)))
    return times(across, math.copysign(1.0 / math.sqrt(dot(across, across)), along))


@compiled
def _cross_edges(a: Floats, b: Floats, i: int, j: int, room: Touching) -> Vector:
    """The point in the middle between a's edge along i and b's along j."""
    normal = vector_of(room.normal)
    on_a = _edge_middle(a, i, normal, -1.0)
    on_b = _edge_middle(b, j, normal, 1.0)
    cosine = room.cosines[i, j]
    between = minus(on_b, on_a)
    from_a = dot(between, _axis(a, i))
    from_b = dot(between, _axis(b, j))
    # Where two lines are nearest: Ericson, "Real-Time Collision Detection", 5.1.8.
    sine_square = 1.0 - cosine * cosine
    s = (from_a - cosine * from_b) / sine_square
    t = (cosine * from_a - from_b) / sine_square
    s = min(max(s, -a[HALF + i]), a[HALF + i])
    t = min(max(t, -b[HALF + j]), b[HALF + j])
    at_a = plus(on_a, times(_axis(a, i), s))
    at_b = plus(on_b, times(_axis(b, j), t))
    return times(plus(at_a, at_b), 0.5)


@compiled
def _edge_middle(own: Floats, axis: int, normal: Vector, side: float) -> Vector:
    """The middle of the edge along an axis that lies farthest along side · normal."""
    middle = _center(own)
    for k in range(3):
        if k != axis:
            along = dot(normal, _axis(own, k))
            step = math.copysign(own[HALF + k], side * along)
            middle = plus(middle, times(_axis(own, k), step))
    return middle


@compiled
def _lay_face(top: Floats, base: Floats, axis: int, side: float, room: Touching) -> int:
    """Set the points where the face of `top` lies over the face of `base` across an axis.

    `side` * normal points from base to top. Returns the number of points with gaps below
    `TOUCH_M`, up to eight.
    """
    u, v = (axis + 1) % 3, (axis + 2) % 3
    normal = times(vector_of(room.normal), side)
    facing, out = _face_against(top, normal)
    corners = room.corners
    for c in range(4):
        between = minus(_center(top), _center(base))
        corner = plus(_corner(top, facing, out, c), between)
        corners[c, 0] = dot(corner, _axis(base, u))
        corners[c, 1] = dot(corner, _axis(base, v))
        corners[c, 2] = dot(normal, corner) - base[HALF + axis]
    n = _cut(corners, 4, 0, 1.0, base[HALF + u], room.cut)
    n = _cut(room.cut, n, 0, -1.0, base[HALF + u], corners)
    n = _cut(corners, n, 1, 1.0, base[HALF + v], room.cut)
    n = _cut(room.cut, n, 1, -1.0, base[HALF + v], corners)
    found = 0
    for c in range(n):
        gap = corners[c, 2]
        if gap < TOUCH_M:
            # In the middle of the gap, or of the overlap.
            up = times(normal, base[HALF + axis] + 0.5 * gap)
            at = plus(_center(base), times(_axis(base, u), corners[c, 0]))
            at = plus(at, times(_axis(base, v), corners[c, 1]))
            set_point(room.points, found, plus(at, up), gap)
            found += 1
    return found


@compiled
def _face_against(own: Floats, normal: Vector) -> tuple[int, float]:
    """The face that is turned most against a direction: its axis, and how far it lies along it."""
    facing, least = 0, 0.0
    for k in range(3):
        along = dot(normal, _axis(own, k))
        if abs(along) > abs(least):
            facing, least = k, along
    return facing, -math.copysign(own[HALF + facing], least)


@compiled
def _corner(own: Floats, facing: int, out: float, c: int) -> Vector:
    """The c-th corner of the face that lies `out` along an axis, from the box's center."""
    first, second = (facing + 1) % 3, (facing + 2) % 3
    # Around the face: (+, +), (−, +), (−, −), (+, −).
    e = own[HALF + first] if c in (0, 3) else -own[HALF + first]
    f = own[HALF + second] if c < 2 else -own[HALF + second]
    middle = times(_axis(own, facing), out)
    on_side = plus(middle, times(_axis(own, first), e))
    return plus(on_side, times(_axis(own, second), f))


@compiled
def _cut(
    corners: Floats, n: int, column: int, side: float, limit: float, kept: Floats
) -> int:
    """Keep of a polygon what has side * coordinate <= limit; the number of its corners."""
    count = 0
    for c in range(n):
        following = c + 1 if c + 1 < n else 0
        over = side * corners[c, column] - limit
        next_over = side * corners[following, column] - limit
        # Rounding might make a ninth corner, and compiled code checks no bounds.
        if over <= 0.0 and count < _MOST_CORNERS:
            for d in range(3):
                kept[count, d] = corners[c, d]
            count += 1
        # A corner on the line itself is kept above, and makes no second one.
        if (over < 0.0 < next_over or next_over < 0.0 < over) and count < _MOST_CORNERS:
            share = over / (over - next_over)
            for d in range(3):
                step = corners[following, d] - corners[c, d]
                kept[count, d] = corners[c, d] + share * step
            count += 1
    return count


@compiled
def _choose_points(points: Floats, n: int) -> int:
    """Put the deepest point first; of more than four keep those that are wide apart."""
    # The second is the one farthest from the first, the others lie farthest on either side of the
    # line through these two: PhysX's rule.
    if n < 2:
        return n
    deepest = 0
    for i in range(1, n):
        if points[i, GAP] < points[deepest, GAP]:
            deepest = i
    swap(points, 0, deepest)
    for k in range(1, MAX_POINTS if n > MAX_POINTS else 2):
        widest, most = k, -1.0
        for i in range(k, n):
            square = _aside(points, i, k)
            if square > most:
                widest, most = i, square
        swap(points, k, widest)
    return min(n, MAX_POINTS)


@compiled
def _aside(points: Floats, i: int, k: int) -> float:
    """How far point i, as the k-th, lies from those before it, squared: from the first, from the
    first two's line, or from that line on the other side than the third.
    """
    first = vector_of(points[0])
    step = minus(vector_of(points[i]), first)
    if k == 1:
        return dot(step, step)
    along = minus(vector_of(points[1]), first)
    aside = cross(along, step)
    if k == 3:
        third = cross(along, minus(vector_of(points[2]), first))
        # On the third's side a fourth point counts little.
        if dot(aside, third) >= 0.0:
            return 0.0
    return dot(aside, aside)
