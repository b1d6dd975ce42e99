"""What a camera sensor sees: one ray through the middle of each pixel, and matt surfaces.

It knows Unity's camera (place, field of view, left-handed axes) and where rays meet balls and
boxes. Colors are an approximation: no engine's shadows, reflections or anti-aliasing.

Source: ML-Agents 3.0.0, `CameraSensor.cs` (the camera fills the whole picture, whose aspect ratio
it takes).
"""

import math
from collections.abc import Sequence

import numpy as np

from touchline.physics.kernels import inlined
from touchline.physics.shapes import Floats, Vector

MISS = math.inf
"""The distance of what a ray does not hit."""
DIFFUSE = 0.779
"""The share of light that Unity's standard shader leaves to the diffuse part."""
AMBIENT, LAMP = 0.8, 0.7
"""Flat ambient light, and the lamp of ML-Agents' example scenes, in gamma space."""
TO_LAMP = (
    math.cos(math.radians(40.0)) * math.sqrt(0.5),
    math.sin(math.radians(40.0)),
    -math.cos(math.radians(40.0)) * math.sqrt(0.5),
)
"""Towards the lamp, which is turned by (40, -45, 0) degrees in the scene files."""


def view_rays(
    pitch_deg: float, field_of_view_deg: float, height: int, width: int
) -> Floats:
    """Unit vectors through the pixels' middles [height, width, 3], of a camera that faces +z.

    `pitch_deg` turns it down; row 0 is the top of the picture. The field of view is vertical, as
    Unity's.
    """
    pitch = math.radians(pitch_deg)
    ahead = np.array([0.0, -math.sin(pitch), math.cos(pitch)])
    above = np.array([0.0, math.cos(pitch), math.sin(pitch)])
    right = np.array([1.0, 0.0, 0.0])
    pixel = 2.0 * math.tan(math.radians(field_of_view_deg) / 2) / height
    x = (np.arange(width) + 0.5 - width / 2) * pixel
    y = (height / 2 - np.arange(height) - 0.5) * pixel
    rays = ahead + x[None, :, None] * right + y[:, None, None] * above
    length = np.linalg.norm(rays, axis=2, keepdims=True)
    directions: Floats = rays / length
    return directions


@inlined
def meet_ball(
    eye: Sequence[float], ray: Sequence[float], center: Sequence[float], radius: float
) -> float:
    """How far along a ray (a unit vector) a ball is met, or `MISS`."""
    x = center[0] - eye[0]
    y = center[1] - eye[1]
    z = center[2] - eye[2]
    along = x * ray[0] + y * ray[1] + z * ray[2]
    # Pythagoras: what the square of the radius leaves after the ray's distance from the center.
    square_aside = x * x + y * y + z * z - along * along
    inside = radius * radius - square_aside
    if inside < 0.0 or along <= 0.0:
        return MISS
    return along - math.sqrt(inside)


@inlined
def meet_box(eye: Vector, ray: Vector, half: Vector) -> tuple[float, int]:
    """How far along a ray a box is met, or `MISS`; and the axis (0 to 2) of the face.

    Eye and ray are in the box's own frame; `half` is half of its size along each axis.
    """
    near = -math.inf
    far = math.inf
    face = 0
    for axis in range(3):
        # Along an axis that the ray does not follow both are infinite, of the right signs.
        # Dividing once draws Visual3DBall 8 % faster.
        per_m = 1.0 / ray[axis]
        one = (-half[axis] - eye[axis]) * per_m
        other = (half[axis] - eye[axis]) * per_m
        first = min(one, other)
        last = max(one, other)
        if first > near:
            near, face = first, axis
        far = min(far, last)
        if near > far:
            return MISS, face
    if near <= 0.0:
        return MISS, face
    return near, face


@inlined
def brightness(x: float, y: float, z: float) -> float:
    """Of a matt surface with this normal."""
    toward = x * TO_LAMP[0] + y * TO_LAMP[1] + z * TO_LAMP[2]
    return DIFFUSE * (AMBIENT + LAMP * max(toward, 0.0))
