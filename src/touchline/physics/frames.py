"""Unity's axes and MuJoCo's.

Unity is left-handed with y up; MuJoCo is right-handed with z up. Swapping y and z maps one to the
other: positions (x, y, z) become (x, z, y), and a Unity quaternion (x, y, z, w) becomes MuJoCo's
(w, -x, -z, -y). The mirroring changes the sense of every rotation, hence the signs. Every interface
of Touchline uses Unity's frame; only scenes that MuJoCo steps use the other, inside.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_SWAP = [0, 2, 1]


def swap_axes(vector: NDArray[Any]) -> NDArray[Any]:
    """A position or velocity [..., 3] in the other frame; the map is its own inverse."""
    return vector[..., _SWAP]


def to_mujoco_quaternion(quaternion: NDArray[np.float64]) -> NDArray[np.float64]:
    """MuJoCo's (w, x, y, z) [..., 4] for Unity's (x, y, z, w) [..., 4]."""
    return quaternion[..., [3, 0, 2, 1]] * (1.0, -1.0, -1.0, -1.0)


def from_mujoco_quaternion(quaternion: NDArray[np.float64]) -> NDArray[np.float64]:
    """Unity's (x, y, z, w) [..., 4] for MuJoCo's (w, x, y, z) [..., 4]."""
    return quaternion[..., [1, 3, 2, 0]] * (-1.0, -1.0, -1.0, 1.0)


def product(
    first: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Unity's `first * second` of quaternions (x, y, z, w) [..., 4]: rotates by `second` first."""
    v = first[..., :3]
    w = first[..., 3:]
    u = second[..., :3]
    s = second[..., 3:]
    vector = w * u + s * v + np.cross(v, u)
    scalar = w * s - (v * u).sum(axis=-1, keepdims=True)
    return np.concatenate([vector, scalar], axis=-1)


def rotate(
    quaternion: NDArray[np.float64], vector: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Vectors [..., 3] rotated by Unity's unit quaternions (x, y, z, w) [..., 4]."""
    axis = quaternion[..., :3]
    w = quaternion[..., 3:]
    twice = 2.0 * np.cross(axis, vector)
    return vector + w * twice + np.cross(axis, twice)


def turn_about(axis: int, angle_rad: NDArray[np.float64]) -> NDArray[np.float64]:
    """Unity's unit quaternions [..., 4] of rotations about the x (0), y (1) or z (2) axis."""
    turn = np.zeros((*angle_rad.shape, 4))
    turn[..., axis] = np.sin(angle_rad / 2)
    turn[..., 3] = np.cos(angle_rad / 2)
    return turn
