"""What an area of a scene looks like, as plain arrays.

A tableau is a list of simple shapes and the camera and light that suit them. It knows no renderer:
`drawing.pixels` makes a picture of it, and anything else that can place boxes and spheres could.

Everything is in Unity's frame (x right, y up, z forward, left-handed; meters), relative to the
area. A rotation is Unity's quaternion (x, y, z, w). To show a tableau in a right-handed frame with
z up, swap y and z of each position and size; `physics.frames` has the same for quaternions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from touchline.drawing.look import (
    DARK,
    DAYLIGHT,
    FLOOR_COLORS,
    WHITE,
    Color,
    Light,
    Point,
)
from touchline.physics.frames import product, rotate, turn_about
from touchline.physics.shapes import (
    ABSENT,
    COS,
    HALF_HEIGHT,
    HALF_X,
    HALF_Y,
    HALF_Z,
    RADIUS,
    SIN,
    Floats,
    X,
    Y,
    Z,
)

UPRIGHT = (0.0, 0.0, 0.0, 1.0)
"""The rotation of what is not turned."""


class Kind(IntEnum):
    """What a shape is, and what the three numbers of its size mean in its own axes."""

    BOX = 0
    """Half of its width, height and depth."""
    SPHERE = 1
    """Its radius, three times."""
    ELLIPSOID = 2
    """Its three radii."""
    CAPSULE = 3
    """Radius, half the distance between the centers of its caps, radius; it stands along y."""
    PLANE = 4
    """Half of its width, 0, half of its depth; it faces up along y."""


@dataclass(frozen=True, eq=False)
class DrawnShapes:
    """S shapes in a fixed order; a shape's index is its identity."""

    kind: NDArray[np.int8]
    """[S] of `Kind`"""
    size: Floats
    """[S, 3], what `Kind` says"""
    position: Floats
    """[S, 3] of the center"""
    rotation: Floats
    """[S, 4], unit quaternions (x, y, z, w)"""
    color: NDArray[np.float32]
    """[S, 4], red, green, blue, opacity in 0 to 1"""
    shown: NDArray[np.bool_]
    """[S]: a shape that is not there at the moment keeps its place in the order"""

    def __len__(self) -> int:
        return len(self.kind)

    def attached_to(self, position: Floats, rotation: Floats) -> Self:
        """These shapes, given in the frame of a body, where that body is now."""
        return replace(
            self,
            position=position + rotate(rotation, self.position),
            rotation=product(rotation, self.rotation),
        )


@dataclass(frozen=True)
class Camera:
    """From where an area is best seen."""

    eye: Point
    target: Point
    """What is in the middle of the picture."""
    field_of_view_deg: float = 45.0
    """Angle between the picture's bottom and its top."""
    height_m: float | None = None
    """If given, rays are parallel, and this is the height of the picture in meters."""
    extent_m: float = 25.0
    """The size of what is to be seen; shadows fall within it."""
    smooth: bool = True
    """Whether edges are smoothed (anti-aliasing)."""


@dataclass(frozen=True, eq=False)
class Tableau:
    """What an area looks like at one moment.

    The number and order of its shapes stay the same during an episode; only GridWorld changes them
    with the next one. Sizes rarely change (WallJump's wall).
    """

    static: DrawnShapes
    """Floor, walls: what neither moves nor changes during an episode."""
    moving: DrawnShapes
    camera: Camera
    light: Light = DAYLIGHT
    ground_m: float | None = None
    """Height of the ground around it; None: at 0, or under the static shapes that reach lower."""

    @property
    def shapes(self) -> DrawnShapes:
        """All shapes, the static ones first."""
        return join(self.static, self.moving)

    @property
    def ground_y_m(self) -> float:
        """Height of the ground, a little below what stands on it, so that one hides the other."""
        if self.ground_m is not None:
            return self.ground_m
        static = self.static
        bottom = static.position[:, Y] - static.size[:, Y]
        return float(bottom.min(initial=0.0)) - 0.02


def make_shapes(
    kind: Kind,
    size: ArrayLike,
    position: ArrayLike,
    color: ArrayLike,
    rotation: ArrayLike = UPRIGHT,
) -> DrawnShapes:
    """S shapes of one kind; size, color and rotation are broadcast to the positions [S, 3]."""
    positions = np.array(position, np.float64).reshape(-1, 3)
    count = len(positions)

    def for_each(values: ArrayLike, width: int) -> Floats:
        given = np.asarray(values, np.float64)
        # A copy, because a broadcast array is one row in memory and cannot be written to.
        return np.broadcast_to(given, (count, width)).copy()

    return DrawnShapes(
        kind=np.full(count, kind, np.int8),
        size=for_each(size, 3),
        position=positions,
        rotation=for_each(rotation, 4),
        color=for_each(color, 4).astype(np.float32),
        shown=np.ones(count, np.bool_),
    )


def box_shapes(rows: Floats, color: Color | Sequence[Color] | Floats) -> DrawnShapes:
    """Boxes from rows [S, 9] of `physics.shapes`, all of one color or each of its own."""
    yaw = np.arctan2(rows[:, SIN], rows[:, COS])
    boxes = make_shapes(
        Kind.BOX,
        rows[:, HALF_X : HALF_Z + 1],
        rows[:, X : Z + 1],
        color,
        turn_about(Y, yaw),
    )
    return replace(boxes, shown=rows[:, -1] != ABSENT)


def floor_shapes(
    row: Sequence[float] | Floats,
    colors: tuple[Color, Color] = FLOOR_COLORS,
    cells: tuple[int, int] = (10, 10),
) -> DrawnShapes:
    """A box of `physics.shapes` as a floor, whose top has cells of two colors along x and z."""
    floor = np.asarray(row)
    across, along = np.indices(cells).reshape(2, -1)
    cell = 2.0 * floor[[HALF_X, HALF_Z]] / cells
    corner = floor[[X, Z]] - floor[[HALF_X, HALF_Z]]
    middle = corner + (np.stack([across, along], axis=1) + 0.5) * cell
    # A little above the box, or renderers could not say which of the two is in front.
    top = floor[Y] + floor[HALF_Y] + 2e-4 * max(floor[HALF_X], floor[HALF_Z])
    position = np.insert(middle, 1, top, axis=1)
    size = (0.5 * cell[0], 0.0, 0.5 * cell[1])
    color = np.array(colors)[(across + along) % 2]
    return join(
        box_shapes(floor[None], colors[0]),
        make_shapes(Kind.PLANE, size, position, color),
    )


def lowered(rows: Floats, top_m: float) -> Floats:
    """These boxes [S, 9] cut off at this height: walls that hide nothing behind them."""
    low = rows.copy()
    bottom = rows[:, Y] - rows[:, HALF_Y]
    top = np.minimum(rows[:, Y] + rows[:, HALF_Y], top_m)
    low[:, Y] = 0.5 * (top + bottom)
    low[:, HALF_Y] = 0.5 * (top - bottom)
    return low


def round_shapes(rows: Floats, color: Color | Sequence[Color] | Floats) -> DrawnShapes:
    """Spheres and capsules from rows [S, 6] of `physics.shapes`."""
    radius = rows[:, RADIUS]
    half_height = rows[:, HALF_HEIGHT]
    is_sphere = half_height == 0.0
    height = np.where(is_sphere, radius, half_height)
    size = np.stack([radius, height, radius], axis=1)
    center = rows[:, X : Z + 1]
    rounds = make_shapes(Kind.SPHERE, size, center, color)
    kind = np.where(is_sphere, Kind.SPHERE, Kind.CAPSULE).astype(np.int8)
    return replace(rounds, kind=kind, shown=rows[:, -1] != ABSENT)


def eye_shapes(rows: Floats, yaw: Floats, color: Color = DARK) -> DrawnShapes:
    """Two eyes for each of N agents, so that a picture shows which way they face.

    `rows` are the agents' boxes [N, 9] or balls [N, 6] of `physics.shapes`; `yaw` [N] is in
    radians, clockwise seen from above.
    """
    sin = np.sin(yaw)
    cos = np.cos(yaw)
    zero = np.zeros_like(yaw)
    ahead = np.stack([sin, zero, cos], axis=1)  # [N, 3]
    right = np.stack([cos, zero, -sin], axis=1)
    half = rows[:, HALF_X, None]  # of a ball, this column is the radius
    # Just inside the front of a cube of this half size, a little above its middle.
    to_middle = 0.95 * ahead + (0.0, 0.35, 0.0)
    middle = rows[:, X : Z + 1] + half * to_middle
    aside = 0.4 * half * right
    position = np.stack([middle - aside, middle + aside], axis=1)  # [N, 2, 3]
    radius = np.repeat(0.22 * half, 2, axis=0)
    is_there = rows[:, -1] != ABSENT
    eyes = make_shapes(Kind.SPHERE, radius, position, color)
    return replace(eyes, shown=np.repeat(is_there, 2))


def join(*parts: DrawnShapes) -> DrawnShapes:
    """The shapes of all parts, in that order."""
    arrays: dict[str, Any] = {}
    for field in fields(DrawnShapes):
        columns = [getattr(part, field.name) for part in parts]
        arrays[field.name] = np.concatenate(columns)
    return DrawnShapes(**arrays)


NO_SHAPES = make_shapes(Kind.BOX, (0.0, 0.0, 0.0), np.zeros((0, 3)), WHITE)
