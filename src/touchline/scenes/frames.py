"""Unity's axes and MuJoCo's.

Unity is left-handed with y up; MuJoCo is right-handed with z up. Swapping y and z maps one to the other:
positions (x, y, z) become (x, z, y), and a Unity quaternion (x, y, z, w) becomes MuJoCo's (w, -x, -z, -y).
Every interface of Touchline shows Unity's frame; only a scene's own physics sees the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_SWAP = [0, 2, 1]


def swap_axes(vector: NDArray[Any]) -> NDArray[Any]:
    """A position or velocity [..., 3] of one world in the other; the map is its own inverse."""
    return vector[..., _SWAP]


def to_mujoco_quaternion(quaternion: NDArray[np.float64]) -> NDArray[np.float64]:
    """MuJoCo's (w, x, y, z) [..., 4] for Unity's (x, y, z, w) [..., 4]."""
    return quaternion[..., [3, 0, 2, 1]] * (1.0, -1.0, -1.0, -1.0)


def turned(quaternion: NDArray[np.float64], axis: int, angle_rad: NDArray[np.float64]) -> NDArray[np.float64]:
    """Unity quaternions [K, 4] after a turn about their own x, y or z axis, as `Transform.Rotate` does it."""
    turn = np.zeros_like(quaternion)
    turn[:, axis] = np.sin(angle_rad / 2)
    w, c = quaternion[:, 3], np.cos(angle_rad / 2)
    v, u = quaternion[:, :3], turn[:, :3]
    out = np.empty_like(quaternion)
    out[:, :3] = w[:, None] * u + c[:, None] * v + np.cross(v, u)
    out[:, 3] = w * c - np.einsum("ij,ij->i", v, u)
    return out
