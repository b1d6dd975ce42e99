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
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from touchline.physics.frames import product, rotate
from touchline.physics.shapes import (
    ABSENT,
    COS,
    HALF_HEIGHT,
    HALF_X,
    HALF_Z,
    RADIUS,
    SIN,
    Floats,
    X,
    Y,
    Z,
)

Color = tuple[float, float, float, float]
"""Red, green, blue and opacity, each in 0 to 1."""
Point = tuple[float, float, float]

FLOOR_COLOR: Color = (0.80, 0.82, 0.84, 1.0)
WALL_COLOR: Color = (0.64, 0.67, 0.72, 1.0)
GLASS: Color = (0.64, 0.67, 0.72, 0.35)
BLUE: Color = (0.16, 0.45, 0.85, 1.0)
PURPLE: Color = (0.55, 0.28, 0.78, 1.0)
GREEN: Color = (0.30, 0.72, 0.38, 1.0)
CLEAR_GREEN: Color = (0.30, 0.72, 0.38, 0.35)
ORANGE: Color = (0.95, 0.56, 0.15, 1.0)
RED: Color = (0.85, 0.26, 0.22, 1.0)
YELLOW: Color = (0.96, 0.80, 0.20, 1.0)
WHITE: Color = (0.97, 0.97, 0.97, 1.0)
DARK: Color = (0.13, 0.14, 0.17, 1.0)

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


class Pattern(IntEnum):
    """What is drawn on a shape's surface; all but PLAIN darken its color in places."""

    PLAIN = 0
    EDGED = 1
    """Thin lines along the edges of a box."""
    BRICK = 2
    """Thick lines along the edges of a box, whose front (toward its -z) is dark."""
    SHADED = 3
    """A ball that is darker at one end."""
    CHECKERED = 4
    """A plane of 20 x 20 squares in two shades."""


class Surface(NamedTuple):
    """How a surface reflects light, in OpenGL's terms."""

    pattern: Pattern = Pattern.PLAIN
    specular: float = 0.5
    """How strong highlights are, 0 to 1."""
    shininess: float = 0.5
    """How small they are, 0 to 1."""


PLAIN = Surface()
BRICK = Surface(Pattern.BRICK)


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
    pattern: NDArray[np.int8]
    """[S] of `Pattern`"""
    specular: NDArray[np.float32]
    """[S], see `Surface`"""
    shininess: NDArray[np.float32]
    """[S], see `Surface`"""

    def __len__(self) -> int:
        return len(self.kind)

    def attached_to(self, position: Floats, rotation: Floats) -> Self:
        """These shapes, given in the frame of a body, where that body is now."""
        return replace(
            self,
            position=position + rotate(rotation, self.position),
            rotation=product(rotation, self.rotation),
        )

    def differs_only_in_pose(self, other: DrawnShapes) -> bool:
        """Whether the same S bodies are shown, up to poses, colors and which of them are shown.

        A viewer that has built `other` then needs to update only those.
        """
        return np.array_equal(self.kind, other.kind) and np.array_equal(
            self.size, other.size
        )


class Light(NamedTuple):
    """The light of a scene; brightnesses in 0 to 1."""

    ambient: float = 0.38
    headlight: float = 0.3
    """Diffuse light from the eye."""
    glare: float = 0.0
    """Highlights of the light from the eye."""
    sun: float = 0.42
    """Diffuse light from far away, with shadows; 0: there is no sun."""
    sun_position: Point = (-8.0, 30.0, -14.0)
    """Position from which shadows are worked out, m."""
    sun_direction: Point = (0.25, -1.0, 0.4)
    """Direction of the sun's light."""


DAYLIGHT = Light()


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
    with the next one. Sizes rarely change (WallJump's wall): see `differs_only_in_pose`.
    """

    static: DrawnShapes
    """Floor, walls: what neither moves nor changes during an episode."""
    moving: DrawnShapes
    camera: Camera
    light: Light = DAYLIGHT

    @property
    def shapes(self) -> DrawnShapes:
        """All shapes, the static ones first."""
        return join(self.static, self.moving)


def make_shapes(
    kind: Kind,
    size: ArrayLike,
    position: ArrayLike,
    color: ArrayLike,
    rotation: ArrayLike = UPRIGHT,
    surface: Surface = PLAIN,
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
        pattern=np.full(count, surface.pattern, np.int8),
        specular=np.full(count, surface.specular, np.float32),
        shininess=np.full(count, surface.shininess, np.float32),
    )


def box_shapes(
    rows: Floats, color: Color | Sequence[Color] | Floats, surface: Surface = PLAIN
) -> DrawnShapes:
    """Boxes from rows [S, 9] of `physics.shapes`, all of one color or each of its own."""
    yaw = np.arctan2(rows[:, SIN], rows[:, COS])
    boxes = make_shapes(
        Kind.BOX,
        rows[:, HALF_X : HALF_Z + 1],
        rows[:, X : Z + 1],
        color,
        yaw_quaternion(yaw),
        surface,
    )
    return replace(boxes, shown=rows[:, -1] != ABSENT)


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


def yaw_quaternion(yaw: Floats) -> Floats:
    """Unit quaternions [S, 4] of turns about the vertical axis by angles [S] in radians."""
    rotation = np.zeros((*yaw.shape, 4))
    rotation[..., Y] = np.sin(yaw / 2)
    rotation[..., 3] = np.cos(yaw / 2)
    return rotation


def join(*parts: DrawnShapes) -> DrawnShapes:
    """The shapes of all parts, in that order."""
    arrays: dict[str, Any] = {}
    for field in fields(DrawnShapes):
        columns = [getattr(part, field.name) for part in parts]
        arrays[field.name] = np.concatenate(columns)
    return DrawnShapes(**arrays)


NO_SHAPES = make_shapes(Kind.BOX, (0.0, 0.0, 0.0), np.zeros((0, 3)), WHITE)
