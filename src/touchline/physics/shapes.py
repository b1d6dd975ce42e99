"""Colliders as rows of numbers, shared by the physics, the sensors and the drawings.

Everything is upright and in Unity's frame (x right, y up, z forward, left-handed; meters), relative
to its area. A box may be turned about the vertical axis. Its yaw grows clockwise seen from above,
so local z is (sin, 0, cos) and local x is (cos, 0, -sin).

    box    x, y, z of the center · half sizes x, y, z · cos and sin of the yaw · tag
    round  x, y, z of the center · radius · half height of the upright segment (0: a sphere) · tag

A tag is the index of the collider's tag in its scene's list. `UNTAGGED` colliders are solid and
detected without a tag; `ABSENT` ones do not exist for physics or sensors.
"""

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Vector = tuple[float, float, float]
Three = Annotated[Floats, (3,)]
Four = Annotated[Floats, (4,)]
"""Fields of records: a vector, and a quaternion (`kernels.record_type`)."""

UNTAGGED = -1
ABSENT = -2

X, Y, Z, HALF_X, HALF_Y, HALF_Z, COS, SIN, BOX_TAG = range(9)
BOX_COLUMNS = 9
RADIUS, HALF_HEIGHT, ROUND_TAG = 3, 4, 5
ROUND_COLUMNS = 6


def box(
    center: Sequence[float],
    size: Sequence[float],
    tag: int = UNTAGGED,
    yaw_deg: float = 0.0,
) -> list[float]:
    """A box's row, from its center and its full sizes as Unity's inspector shows them."""
    yaw = math.radians(yaw_deg)
    half = [0.5 * length for length in size]
    return [*center, *half, math.cos(yaw), math.sin(yaw), float(tag)]


def ball(center: Sequence[float], radius: float, tag: int = UNTAGGED) -> list[float]:
    """A sphere's row."""
    return [*center, radius, 0.0, float(tag)]


def pillar(
    center: Sequence[float], radius: float, height: float, tag: int = UNTAGGED
) -> list[float]:
    """An upright capsule's row; `height` is its full height, caps included."""
    half_segment = max(0.5 * height - radius, 0.0)
    return [*center, radius, half_segment, float(tag)]


def boxes(*rows: list[float]) -> Floats:
    """Rows of boxes as one array [B, 9]."""
    return np.array(rows, np.float64).reshape(-1, BOX_COLUMNS)


def rounds(*rows: list[float]) -> Floats:
    """Rows of round shapes as one array [S, 6]."""
    return np.array(rows, np.float64).reshape(-1, ROUND_COLUMNS)
