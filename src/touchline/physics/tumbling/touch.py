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

from touchline.physics.kernels import compiled, makes_arrays
from touchline.physics.shapes import COS, HALF_X, SIN, Floats, Vector
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


@compiled
def set_upright(cuboid: Floats, box: Floats) -> None:
    """Make a cuboid of an upright box (`shapes.box`)."""
    for d in range(3):
        cuboid[d] = box[d]
        cuboid[HALF + d] = box[HALF_X + d]
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
        _cross_edges(a, b, (axis - 6) // 3, (axis - 6) % 3, room)
        room.points[0, GAP] = gap
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
    nx, ny, nz = normal
    height = nx * a[0] + ny * a[1] + nz * a[2] - offset
    reach, facing, least = 0.0, 0, 0.0
    for k in range(3):
        along = _along(a, k, nx, ny, nz)
        reach += a[HALF + k] * abs(along)
        if abs(along) > abs(least):
            facing, least = k, along
    if height - reach >= TOUCH_M:
        return 0
    for d in range(3):
        room.normal[d] = normal[d]
    out = -math.copysign(a[HALF + facing], least)
    found = 0
    for c in range(4):
        x, y, z = _corner(a, facing, out, c)
        gap = height + nx * x + ny * y + nz * z
        if gap < TOUCH_M:
            point = room.points[found]
            # In the middle of the gap, or of the overlap.
            point[0] = a[0] + x - 0.5 * gap * nx
            point[1] = a[1] + y - 0.5 * gap * ny
            point[2] = a[2] + z - 0.5 * gap * nz
            point[GAP] = gap
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
    for k in range(6):
        gap = (
            _part_by_a_face(a, b, k, room)
            if k < 3
            else _part_by_b_face(a, b, k - 3, room)
        )
        if gap > best:
            best, chosen = gap, k
            if best >= TOUCH_M:
                return best, chosen
    for i in range(3):
        for j in range(3):
            gap = _part_by_edges(a, b, i, j, room)
            if gap - _EDGE_HANDICAP_M > best:
                best, chosen = gap, 6 + 3 * i + j
                if best >= TOUCH_M:
                    return best, chosen
    _set_normal(a, b, chosen, room)
    return best, chosen


@compiled
def _part_by_a_face(a: Floats, b: Floats, i: int, room: Touching) -> float:
    """The gap along a's axis i; sets the axis's cosines and how far a is apart along it."""
    reach: float = a[HALF + i]
    along = 0.0
    for d in range(3):
        along += (a[d] - b[d]) * a[AXES + 3 * i + d]
    for j in range(3):
        cosine = 0.0
        for d in range(3):
            cosine += a[AXES + 3 * i + d] * b[AXES + 3 * j + d]
        room.cosines[i, j] = cosine
        reach += b[HALF + j] * abs(cosine)
    room.apart[0, i] = along
    return abs(along) - reach


@compiled
def _part_by_b_face(a: Floats, b: Floats, j: int, room: Touching) -> float:
    """The gap along b's axis j, after all of a's."""
    reach: float = b[HALF + j]
    along = 0.0
    for d in range(3):
        along += (a[d] - b[d]) * b[AXES + 3 * j + d]
    for i in range(3):
        reach += a[HALF + i] * abs(room.cosines[i, j])
    room.apart[1, j] = along
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
def _set_normal(a: Floats, b: Floats, chosen: int, room: Touching) -> None:
    """The unit vector of the chosen axis, from b to a."""
    normal = room.normal
    if chosen < 6:
        own = a if chosen < 3 else b
        at = AXES + 3 * (chosen % 3)
        along = room.apart[chosen // 3, chosen % 3]
        side = math.copysign(1.0, along)
        for d in range(3):
            normal[d] = side * own[at + d]
        return
    u = AXES + 3 * ((chosen - 6) // 3)
    v = AXES + 3 * ((chosen - 6) % 3)
    normal[0] = a[u + 1] * b[v + 2] - a[u + 2] * b[v + 1]
    normal[1] = a[u + 2] * b[v] - a[u] * b[v + 2]
    normal[2] = a[u] * b[v + 1] - a[u + 1] * b[v]
    square = 0.0
    along = 0.0
    for d in range(3):
        square += normal[d] * normal[d]
        along += normal[d] * (a[d] - b[d])
    scale = math.copysign(1.0 / math.sqrt(square), along)
    for d in range(3):
        normal[d] *= scale


@compiled
def _cross_edges(a: Floats, b: Floats, i: int, j: int, room: Touching) -> None:
    """Set the first point: in the middle between a's edge along i and b's along j."""
    on_a = _edge_middle(a, i, room.normal, -1.0)
    on_b = _edge_middle(b, j, room.normal, 1.0)
    cosine = room.cosines[i, j]
    from_a = 0.0
    from_b = 0.0
    for d in range(3):
        from_a += (on_b[d] - on_a[d]) * a[AXES + 3 * i + d]
        from_b += (on_b[d] - on_a[d]) * b[AXES + 3 * j + d]
    # Where two lines are nearest: Ericson, "Real-Time Collision Detection", 5.1.8.
    sine_square = 1.0 - cosine * cosine
    s = (from_a - cosine * from_b) / sine_square
    t = (cosine * from_a - from_b) / sine_square
    s = min(max(s, -a[HALF + i]), a[HALF + i])
    t = min(max(t, -b[HALF + j]), b[HALF + j])
    for d in range(3):
        at_a = on_a[d] + s * a[AXES + 3 * i + d]
        at_b = on_b[d] + t * b[AXES + 3 * j + d]
        room.points[0, d] = 0.5 * (at_a + at_b)


@compiled
def _edge_middle(own: Floats, axis: int, normal: Floats, side: float) -> Vector:
    """The middle of the edge along an axis that lies farthest along side · normal."""
    x, y, z = own[0], own[1], own[2]
    for k in range(3):
        if k != axis:
            at = AXES + 3 * k
            along = normal[0] * own[at] + normal[1] * own[at + 1]
            along += normal[2] * own[at + 2]
            step = math.copysign(own[HALF + k], side * along)
            x += step * own[at]
            y += step * own[at + 1]
            z += step * own[at + 2]
    return x, y, z


@compiled
def _lay_face(top: Floats, base: Floats, axis: int, side: float, room: Touching) -> int:
    """Set the points where the face of `top` lies over the face of `base` across an axis.

    `side` * normal points from base to top. Returns the number of points with gaps below
    `TOUCH_M`, up to eight.
    """
    u, v = (axis + 1) % 3, (axis + 2) % 3
    nx, ny, nz = side * room.normal[0], side * room.normal[1], side * room.normal[2]
    # The face of `top` that is turned most against the normal.
    facing, least = 0, 0.0
    for k in range(3):
        at = AXES + 3 * k
        along = nx * top[at] + ny * top[at + 1] + nz * top[at + 2]
        if abs(along) > abs(least):
            facing, least = k, along
    out = -math.copysign(top[HALF + facing], least)
    corners = room.corners
    for c in range(4):
        x, y, z = _corner(top, facing, out, c)
        x += top[0] - base[0]
        y += top[1] - base[1]
        z += top[2] - base[2]
        corners[c, 0] = _along(base, u, x, y, z)
        corners[c, 1] = _along(base, v, x, y, z)
        corners[c, 2] = nx * x + ny * y + nz * z - base[HALF + axis]
    n = _cut_face(base[HALF + u], base[HALF + v], room)
    found = 0
    for c in range(n):
        gap = corners[c, 2]
        if gap < TOUCH_M:
            # In the middle of the gap, or of the overlap.
            up = base[HALF + axis] + 0.5 * gap
            point = room.points[found]
            for d in range(3):
                point[d] = base[d] + corners[c, 0] * base[AXES + 3 * u + d]
                point[d] += corners[c, 1] * base[AXES + 3 * v + d]
            point[0] += up * nx
            point[1] += up * ny
            point[2] += up * nz
            point[GAP] = gap
            found += 1
    return found


@compiled
def _corner(own: Floats, facing: int, out: float, c: int) -> Vector:
    """The c-th corner of the face that lies `out` along an axis, from the box's center."""
    first, second = (facing + 1) % 3, (facing + 2) % 3
    # Around the face: (+, +), (−, +), (−, −), (+, −).
    e = own[HALF + first] if c in (0, 3) else -own[HALF + first]
    f = own[HALF + second] if c < 2 else -own[HALF + second]
    p = AXES + 3 * facing
    q = AXES + 3 * first
    r = AXES + 3 * second
    return (
        out * own[p] + e * own[q] + f * own[r],
        out * own[p + 1] + e * own[q + 1] + f * own[r + 1],
        out * own[p + 2] + e * own[q + 2] + f * own[r + 2],
    )


@compiled
def _along(own: Floats, axis: int, x: float, y: float, z: float) -> float:
    at = AXES + 3 * axis
    along: float = x * own[at] + y * own[at + 1] + z * own[at + 2]
    return along


@compiled
def _cut_face(half_u: float, half_v: float, room: Touching) -> int:
    """Cut the four corners of a face to a rectangle; the number of corners it then has."""
    n = _cut(room.corners, 4, 0, 1.0, half_u, room.cut)
    n = _cut(room.cut, n, 0, -1.0, half_u, room.corners)
    n = _cut(room.corners, n, 1, 1.0, half_v, room.cut)
    return _cut(room.cut, n, 1, -1.0, half_v, room.corners)


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
    _swap(points, 0, deepest)
    farthest, most = 1, -1.0
    for i in range(1, n):
        square = 0.0
        for d in range(3):
            square += (points[i, d] - points[0, d]) ** 2
        if square > most:
            farthest, most = i, square
    _swap(points, 1, farthest)
    if n <= MAX_POINTS:
        return n
    for k in range(2, MAX_POINTS):
        widest, most = k, -1.0
        for i in range(k, n):
            square = _aside(points, i, k)
            if square > most:
                widest, most = i, square
        _swap(points, k, widest)
    return MAX_POINTS


@compiled
def _aside(points: Floats, i: int, k: int) -> float:
    """How far point i lies aside, squared: of the first two's line, or the third point's side."""
    # The fourth point (k = 3) must lie on the other side of the line than the third, or it counts
    # little.
    ux, uy, uz = _step(points, 0, 1)
    wx, wy, wz = _step(points, 0, i)
    cx, cy, cz = uy * wz - uz * wy, uz * wx - ux * wz, ux * wy - uy * wx
    square = cx * cx + cy * cy + cz * cz
    if k == 2:
        return square
    tx, ty, tz = _step(points, 0, 2)
    third_x, third_y, third_z = uy * tz - uz * ty, uz * tx - ux * tz, ux * ty - uy * tx
    side = cx * third_x + cy * third_y + cz * third_z
    return square if side < 0.0 else 0.0


@compiled
def _step(points: Floats, i: int, k: int) -> Vector:
    return (
        points[k, 0] - points[i, 0],
        points[k, 1] - points[i, 1],
        points[k, 2] - points[i, 2],
    )


@compiled
def _swap(points: Floats, i: int, k: int) -> None:
    for d in range(4):
        points[i, d], points[k, d] = points[k, d], points[i, d]
