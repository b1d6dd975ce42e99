"""What every scene looks like: the colors of its materials, the light, the ground and the sky.

Films and pictures (`drawing.pixels`), the page and the saved replay (`viewer.stage`) take it from
here, so that they look alike. Surfaces are matt. Materials are those of ML-Agents' example scenes
where a comment names one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Color = tuple[float, float, float, float]
"""Red, green, blue and opacity, each in 0 to 1."""
Point = tuple[float, float, float]

BLUE: Color = (0.20, 0.55, 0.87, 1.0)
"""AgentBlue.mat's (0.129, 0.588, 0.953) as nearly as a page can show it."""
PURPLE: Color = (0.554, 0.427, 0.784, 1.0)  # AgentPurple.mat
ORANGE: Color = (0.906, 0.614, 0.252, 1.0)  # Block.mat
RED: Color = (0.929, 0.325, 0.318, 1.0)  # OrangePink.mat
GREEN: Color = (0.404, 0.737, 0.420, 1.0)
CLEAR_GREEN: Color = (*GREEN[:3], 0.35)
YELLOW: Color = (0.96, 0.82, 0.30, 1.0)
HEADBAND: Color = (0.980, 0.651, 0.161, 1.0)  # Headband.mat
WHITE: Color = (0.95, 0.95, 0.95, 1.0)
DARK: Color = (0.13, 0.14, 0.17, 1.0)
FLOOR_COLORS: tuple[Color, Color] = ((0.25, 0.26, 0.275, 1.0), (0.28, 0.29, 0.305, 1.0))
"""Twice as bright as GridMatFloor.mat, on whose near-black no shadow is seen."""
WALL_COLOR: Color = (0.44, 0.49, 0.58, 1.0)
PALE_FLOOR_COLORS: tuple[Color, Color] = (
    (0.74, 0.76, 0.78, 1.0),
    (0.80, 0.82, 0.84, 1.0),
)
"""Floor of ragdolls, whose shadow shows how high they are."""
GRASS: tuple[Color, Color] = ((0.36, 0.57, 0.30, 1.0), (0.40, 0.61, 0.33, 1.0))

_GROUND = np.array((0.66, 0.70, 0.60))
_HORIZON = np.array((0.86, 0.91, 0.95))
_ZENITH = np.array((0.45, 0.66, 0.88))


class Light(NamedTuple):
    """The light of a scene; brightnesses in 0 to 1, which add up to 1 on a floor."""

    ambient: float = 0.40
    sun: float = 0.5
    """Light from far away, with shadows."""
    fill: float = 0.3
    """Light from the other side, without shadows, so that no two sides of a box look alike."""


DAYLIGHT = Light()
FLAT = Light(1.0, 0.0, 0.0)
"""Every surface shows its own color."""
SUN_DIRECTION: Point = (0.306, -0.874, 0.393)
"""Direction of the sun's light; a unit vector."""
FILL_DIRECTION: Point = (-0.743, -0.557, 0.371)


def ground_colors(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Colors [..., 3] of the ground so far from what is seen, in units of the eye's distance."""
    # Its own color up to 1.5 times the eye's distance, the horizon's from 10 times on.
    return _blend(_GROUND, _HORIZON, (distance - 1.5) / 8.5)


def sky_colors(elevation: NDArray[np.float64]) -> NDArray[np.float64]:
    """Colors [..., 3] of the sky at sines of angles above the horizon."""
    return _blend(_HORIZON, _ZENITH, elevation)


GROUND_REACH = 20.0
"""End of the ground, in units of the eye's distance: beyond it is as bright as the sky."""


def _blend(
    low: NDArray[np.float64], high: NDArray[np.float64], share: NDArray[np.float64]
) -> NDArray[np.float64]:
    share = np.sqrt(np.clip(share, 0.0, 1.0))[..., None]
    return np.asarray((1.0 - share) * low + share * high)
