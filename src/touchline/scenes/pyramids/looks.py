"""What an area looks like: walls, stones, the switch, the agent and bricks."""

from dataclasses import replace

import numpy as np

from touchline.drawing.look import BLUE, WALL_COLOR, WHITE
from touchline.drawing.tableau import (
    Camera,
    DrawnShapes,
    Kind,
    Tableau,
    box_shapes,
    eye_shapes,
    floor_shapes,
    join,
    make_shapes,
)
from touchline.physics.shapes import Floats, box
from touchline.scenes.pyramids.layout import (
    AGENT,
    BODIES,
    BRICK_M,
    BUTTON,
    GOLD_M,
    SWITCH,
    VISIBLE,
)

CAMERA = Camera(eye=(0.0, 97.0, -83.0), target=(0.0, 18.0, -22.0), extent_m=217.5)
STONE_COLOR = (0.55, 0.55, 0.58, 1.0)
BRICK_COLOR = (0.80, 0.45, 0.30, 1.0)
GOLD_COLOR = (0.95, 0.75, 0.20, 1.0)
SWITCH_OFF_COLOR = (0.75, 0.25, 0.20, 1.0)
SWITCH_ON_COLOR = (0.30, 0.75, 0.35, 1.0)

_FLOOR = floor_shapes(box((0.0, -0.5, 0.0), (120.0, 1.0, 120.0)), cells=(20, 20))
_WALLS = box_shapes(VISIBLE[1:], WALL_COLOR)  # without the collider of the floor


def tableau_of(boxes: Floats, agent_yaw: float, bricks: Floats, is_on: bool) -> Tableau:
    """The tableau of one area.

    Parameters
    ----------
    boxes
        [agent, switch, stones and button, 9], see `layout`.
    agent_yaw
        In radians.
    bricks
        [NUM_BRICKS, 7], position and quaternion of each; gold is the last.
    is_on
        Whether the switch was pressed; bricks are shown from then on.
    """
    agent = boxes[[AGENT]]
    switch = boxes[[SWITCH]]
    return Tableau(
        static=join(_FLOOR, _WALLS),
        moving=join(
            box_shapes(agent, BLUE),
            eye_shapes(agent, np.array([agent_yaw]), WHITE),
            box_shapes(switch, SWITCH_ON_COLOR if is_on else SWITCH_OFF_COLOR),
            box_shapes(boxes[BODIES:BUTTON], STONE_COLOR),
            _brick_shapes(bricks, is_on),
        ),
        camera=CAMERA,
    )


def _brick_shapes(bricks: Floats, shown: bool) -> DrawnShapes:
    position = bricks[:, :3]
    rotation = bricks[:, 3:]
    red = make_shapes(Kind.BOX, BRICK_M / 2, position[:-1], BRICK_COLOR, rotation[:-1])
    gold = make_shapes(
        Kind.BOX,
        GOLD_M / 2,
        position[-1:],
        GOLD_COLOR,
        rotation[-1:],
    )
    pyramid = join(red, gold)
    return replace(pyramid, shown=np.full(len(pyramid), shown))
