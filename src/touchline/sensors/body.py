"""What ragdolls observe of their bodies, in the frame of an orientation cube.

The orientation cube is a frame that stays level: its origin is a body, and its z axis points to the
agent's target. Functions work on one agent; vectors are (x, y, z), quaternions (x, y, z, w), all in
Unity's frame.

Source: ML-Agents 3.0.0, `OrientationCubeController.cs`, `PoseExtractor.cs`, and the walking
scenes' agent scripts; signs of quaternions as Unity's own routines give them.
"""

import math

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, inlined
from touchline.physics.ragdoll.lanes import (
    Quaternion,
    conjugate,
    cross,
    dot,
    multiply,
    rotate,
)
from touchline.physics.shapes import Floats, Vector

Ahead = tuple[float, float]
"""The level unit vector (x, z) along a cube's z axis."""


@inlined
def in_cube(ahead: Ahead, v: Vector) -> Vector:
    """A vector's components along the cube's axes."""
    x, z = ahead
    across = v[0] * z - v[2] * x
    along = v[0] * x + v[2] * z
    return across, v[1], along


@inlined
def forward_of(rotation: Quaternion) -> Vector:
    """A body's own z axis in the world."""
    return rotate(rotation, (0.0, 0.0, 1.0))


@compiled
def shortest_turn(start: Vector, end: Vector) -> Quaternion:
    """The shortest rotation from one unit vector to another, as Unity's `FromToRotation`."""
    # (start × end, 1 + start · end) has half the angle between them, once it is of length 1.
    axis = cross(start, end)
    w = 1.0 + dot(start, end)
    length = math.sqrt(dot(axis, axis) + w * w)
    if length < 1e-6:  # opposite vectors: half a turn about any axis across
        # About y, unless the vectors are nearly vertical themselves.
        if abs(start[1]) < 0.9:
            return 0.0, 1.0, 0.0, 0.0
        return 1.0, 0.0, 0.0, 0.0
    return axis[0] / length, axis[1] / length, axis[2] / length, w / length


@compiled
def cube_rotation(ahead: Ahead) -> Quaternion:
    """The cube's rotation, as Unity's `LookRotation` gives it."""
    # That takes w > 0 while the matrix's trace is positive (turns of up to 120 degrees), else y >
    # 0.
    x, z = ahead
    trace = 1.0 + 2.0 * z
    if trace > 0.0:
        w = 0.5 * math.sqrt(1.0 + trace)
        return 0.0, 0.5 * x / w, 0.0, w
    y = 0.5 * math.sqrt(2.0 - 2.0 * z)
    return 0.0, y, 0.0, 0.5 * x / y


@inlined
def relative_turn(parent: Quaternion, child: Quaternion) -> Quaternion:
    """A child's rotation in its parent's frame."""
    return multiply(conjugate(parent), child)


@inlined
def write(out: NDArray[np.float32], at: int, v: Vector) -> int:
    """Write a vector; returns the next index."""
    out[at] = v[0]
    out[at + 1] = v[1]
    out[at + 2] = v[2]
    return at + 3


@inlined
def write_turn(out: NDArray[np.float32], at: int, q: Quaternion) -> int:
    """Write a quaternion; returns the next index."""
    out[at] = q[0]
    out[at + 1] = q[1]
    out[at + 2] = q[2]
    out[at + 3] = q[3]
    return at + 4


@compiled
def mean_velocity(velocity: Floats, count: int) -> Vector:
    """The mean of the velocities [B, 3] of the first `count` parts."""
    # Summed part by part, as Unity's scripts do; all parts count alike, whatever their masses.
    x, y, z = 0.0, 0.0, 0.0
    for i in range(count):
        x += velocity[i, 0]
        y += velocity[i, 1]
        z += velocity[i, 2]
    return x / count, y / count, z / count
