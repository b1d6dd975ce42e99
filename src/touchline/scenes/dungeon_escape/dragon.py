"""How the dragon walks to the portal, whatever is in the way, with the key that it carries."""

import math

from touchline.physics.kernels import compiled
from touchline.physics.shapes import COS, SIN, Floats, X, Y, Z
from touchline.physics.world import DT_S
from touchline.scenes.dungeon_escape.hall import (
    CARRIED_KEY,
    CARRIED_KEY_Y_M,
    DRAGON,
    KEY_AHEAD_M,
    KEY_LEFT_M,
    PORTAL_M,
)


@compiled
def step_dragon(shapes: Floats, speed_mps: float) -> None:
    """One step of one area's dragon; at speed 0 it only turns."""
    dragon = shapes[DRAGON]
    key = shapes[CARRIED_KEY]
    dx = PORTAL_M[0] - dragon[X]
    dz = PORTAL_M[1] - dragon[Z]
    length = math.sqrt(dx * dx + dz * dz)
    sin, cos = dx / length, dz / length
    dragon[COS] = cos
    dragon[SIN] = sin
    dragon[X] += sin * speed_mps * DT_S
    dragon[Z] += cos * speed_mps * DT_S
    key[COS] = cos
    key[SIN] = sin
    # The key hangs on the dragon and turns with it.
    key[X] = dragon[X] + KEY_AHEAD_M * sin - KEY_LEFT_M * cos
    key[Y] = CARRIED_KEY_Y_M
    key[Z] = dragon[Z] + KEY_AHEAD_M * cos + KEY_LEFT_M * sin
