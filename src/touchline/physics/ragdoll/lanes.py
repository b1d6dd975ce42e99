"""Sixteen agents side by side: records whose fields hold a number for each of them.

A loop over the lanes does the same arithmetic for 16 agents, which becomes vector instructions.
What a lane holds never depends on another lane. Vectors and quaternions of one lane are tuples
(x, y, z) and (x, y, z, w) in Unity's frame; the compiler keeps them in registers.

A loop that becomes vector instructions writes to one record only: the compiler cannot know that two
bodies of an array are different ones.
"""

import math
from typing import Annotated

from touchline.physics.kernels import inlined
from touchline.physics.shapes import Floats, Vector

LANES = 16
"""Chosen by measurement: with 8, the compiler finds vector instructions not worth their checks."""

# Lanes come last, so that those of one component are neighbors in memory.
Lane = Annotated[Floats, (LANES,)]
Lane3 = Annotated[Floats, (3, LANES)]
Lane4 = Annotated[Floats, (4, LANES)]
Lane6 = Annotated[Floats, (6, LANES)]
"""A symmetric matrix: xx, xy, xz, yy, yz, zz."""
Lane9 = Annotated[Floats, (9, LANES)]
"""A matrix, row after row."""

Quaternion = tuple[float, float, float, float]
Matrix = tuple[Vector, Vector, Vector]
"""Three rows or three columns, as the name says."""
Symmetric = tuple[float, float, float, float, float, float]


@inlined
def vector_of(values: Floats, at: int = 0) -> Vector:
    """Three numbers of an array."""
    return values[at], values[at + 1], values[at + 2]


@inlined
def turn_of(values: Floats) -> Quaternion:
    """The first four numbers of an array."""
    return values[0], values[1], values[2], values[3]


@inlined
def set_vector(values: Floats, vector: Vector) -> None:
    values[0], values[1], values[2] = vector


@inlined
def get(field: Floats, lane: int) -> Vector:
    """The vector of one lane."""
    return field[0, lane], field[1, lane], field[2, lane]


@inlined
def put(field: Floats, lane: int, vector: Vector) -> None:
    field[0, lane] = vector[0]
    field[1, lane] = vector[1]
    field[2, lane] = vector[2]


@inlined
def add(field: Floats, lane: int, vector: Vector) -> None:
    """Add to the vector of one lane, in place."""
    put(field, lane, plus(get(field, lane), vector))


@inlined
def subtract(field: Floats, lane: int, vector: Vector) -> None:
    """Subtract from the vector of one lane, in place."""
    put(field, lane, minus(get(field, lane), vector))


@inlined
def get_axis(axes: Floats, k: int, lane: int) -> Vector:
    """Axis k of the three that a `Lane9` holds, one after the other."""
    x = 3 * k
    return axes[x, lane], axes[x + 1, lane], axes[x + 2, lane]


@inlined
def put_axis(axes: Floats, k: int, lane: int, axis: Vector) -> None:
    x = 3 * k
    axes[x, lane] = axis[0]
    axes[x + 1, lane] = axis[1]
    axes[x + 2, lane] = axis[2]


@inlined
def get_turn(field: Floats, lane: int) -> Quaternion:
    """The quaternion of one lane."""
    return field[0, lane], field[1, lane], field[2, lane], field[3, lane]


@inlined
def put_turn(field: Floats, lane: int, q: Quaternion) -> None:
    field[0, lane] = q[0]
    field[1, lane] = q[1]
    field[2, lane] = q[2]
    field[3, lane] = q[3]


@inlined
def dot(a: Vector, b: Vector) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@inlined
def cross(a: Vector, b: Vector) -> Vector:
    return (
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    )


@inlined
def plus(a: Vector, b: Vector) -> Vector:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@inlined
def minus(a: Vector, b: Vector) -> Vector:
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


@inlined
def times(a: Vector, factor: float) -> Vector:
    return a[0] * factor, a[1] * factor, a[2] * factor


@inlined
def multiply(a: Quaternion, b: Quaternion) -> Quaternion:
    """Hamilton's product a b: turns by b first."""
    ax, ay, az, aw = a
    bx, by, bz, bw = b
    return (
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    )


@inlined
def conjugate(q: Quaternion) -> Quaternion:
    return -q[0], -q[1], -q[2], q[3]


@inlined
def same_half(q: Quaternion, other: Quaternion) -> Quaternion:
    """Q or −q, whichever is nearer to the other; both are the same rotation."""
    x, y, z, w = q
    # The cosine of half the angle between the two.
    cosine = x * other[0] + y * other[1] + z * other[2] + w * other[3]
    sign = -1.0 if cosine < 0.0 else 1.0
    return sign * x, sign * y, sign * z, sign * w


@inlined
def columns(q: Quaternion) -> Matrix:
    """The three columns of a quaternion's matrix: its own axes, in the frame outside."""
    x, y, z, w = q
    own_x = (1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y))
    own_y = (2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x))
    own_z = (2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y))
    return own_x, own_y, own_z


@inlined
def rotate(q: Quaternion, v: Vector) -> Vector:
    """A vector turned by a unit quaternion."""
    axis = (q[0], q[1], q[2])
    # v + 2w (q × v) + 2 q × (q × v), which needs no matrix.
    twice = times(cross(axis, v), 2.0)
    partly = plus(v, times(twice, q[3]))
    return plus(partly, cross(axis, twice))


@inlined
def apply(m: Symmetric, v: Vector) -> Vector:
    """A symmetric matrix times a vector."""
    xx, xy, xz, yy, yz, zz = m
    return (
        xx * v[0] + xy * v[1] + xz * v[2],
        xy * v[0] + yy * v[1] + yz * v[2],
        xz * v[0] + yz * v[1] + zz * v[2],
    )


@inlined
def get_symmetric(field: Floats, lane: int) -> Symmetric:
    return (
        field[0, lane],
        field[1, lane],
        field[2, lane],
        field[3, lane],
        field[4, lane],
        field[5, lane],
    )


@inlined
def turned_by(q: Quaternion, spin: Vector, dt: float) -> Quaternion:
    """A quaternion after turning for dt at a constant angular velocity: the exact exponential."""
    speed = math.sqrt(dot(spin, spin))
    half = 0.5 * speed * dt
    # sin(half) / speed, which tends to dt / 2 for no spin.
    ratio = math.sin(half) / speed if speed > 0.0 else 0.5 * dt
    turn = (spin[0] * ratio, spin[1] * ratio, spin[2] * ratio, math.cos(half))
    x, y, z, w = multiply(turn, q)
    # Rounding would let the length drift over thousands of steps.
    length = math.sqrt(x * x + y * y + z * z + w * w)
    return x / length, y / length, z / length, w / length


@inlined
def euler(x: float, y: float, z: float) -> Quaternion:
    """Unity's rotation by angles in radians: about z, then x, then y."""
    sx = math.sin(0.5 * x)
    cx = math.cos(0.5 * x)
    sy = math.sin(0.5 * y)
    cy = math.cos(0.5 * y)
    sz = math.sin(0.5 * z)
    cz = math.cos(0.5 * z)
    about_x_then_y = (cy * sx, sy * cx, -sy * sx, cy * cx)
    about_z = (0.0, 0.0, sz, cz)
    return multiply(about_x_then_y, about_z)
