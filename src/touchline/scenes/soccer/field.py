"""What stands on a soccer field: tags, players, ball, walls and goals."""

from typing import NamedTuple

from touchline.physics.shapes import box, boxes

BLUE, PURPLE = 0, 1
TAGS = ["ball", "blueGoal", "purpleGoal", "wall", "blueAgent", "purpleAgent"]
BALL_TAG, BLUE_GOAL, PURPLE_GOAL, WALL, BLUE_AGENT, PURPLE_AGENT = range(6)

PLAYER_RADIUS_M, PLAYER_KG, PLAYER_DRAG = 0.5, 50.0, 3.0
BALL_RADIUS_M = 0.6242
BALL_KG = 3.0
BALL_DRAG = 1.0
"""1/s, as all drags"""
BALL_SPIN_DRAG = 1.0
BOUNCE = 0.8
"""Restitution of the ball against everything; players have none."""
FLOOR_MU = 0.35
"""The field's reducedFriction (0.1) averaged with 0.6."""
GOAL_FLOOR_X_M = 15.5
"""Beyond this |x| the floor is a goal's, of default friction."""
HEIGHT_M = 0.5
"""All centers stay this high: players stand on the floor, the ball is sunk 0.124 m into it."""

START_X_M, START_Z_M = 3.19, 1.2
START_SHIFT_M, START_SPREAD_M = 5.0, 5.0
"""Players start up to 5 m on either side of 5 m behind their places."""
START_YAW_DEG = (80.0, 100.0)
BALL_SPREAD_M = 2.5

FIELD = boxes(
    box((0.0, 1.76, 7.738), (31.0, 4.531, 0.461), WALL),
    box((0.0, 1.76, -7.738), (31.0, 4.531, 0.461), WALL),
    box((14.46, 1.76, 6.41), (4.8, 4.531, 0.461), WALL, 60.0),
    box((14.46, 1.76, -6.41), (4.8, 4.531, 0.461), WALL, -60.0),
    box((-14.46, 1.76, 6.41), (4.8, 4.531, 0.461), WALL, -60.0),
    box((-14.46, 1.76, -6.41), (4.8, 4.531, 0.461), WALL, 60.0),
    box((-16.5, -0.25, 0.0), (2.0, 0.5, 8.5), BLUE_GOAL),
    box((16.5, -0.25, 0.0), (2.0, 0.5, 8.5), PURPLE_GOAL),
    box((-16.5, 1.92, 4.2), (2.0, 3.84, 0.1), BLUE_GOAL),
    box((-16.5, 1.92, -4.2), (2.0, 3.84, 0.1), BLUE_GOAL),
    box((16.47, 1.92, 4.2), (2.0, 3.84, 0.1), PURPLE_GOAL),
    box((16.47, 1.92, -4.2), (2.0, 3.84, 0.1), PURPLE_GOAL),
    box((-17.436, 1.92, 0.0), (0.127, 3.84, 8.3), BLUE_GOAL),
    box((17.406, 1.92, 0.0), (0.1, 3.84, 8.3), PURPLE_GOAL),
)
"""The walls and goals around every field."""
BLUE_GOAL_BLOCK = box((-15.51, 1.55, 0.0), (1.0, 3.96, 7.915), WALL)
"""StrikersVsGoalie has no way into the blue goal."""
FLOOR = boxes(box((0.0, -0.5, 0.0), (31.0, 1.0, 15.0)))[0]
"""Only drawn. The physics locks heights, and level rays that start above it never hit it."""


class Player(NamedTuple):
    """One player of a field, in the order of the agent ids."""

    behavior: str
    """Full name."""
    team: int
    start_x_m: float
    start_z_m: float
    ahead_mps: float
    """What a push ahead or back adds to the velocity in one step."""
    sideways_mps: float
    always_kicks: bool
    """Whether every touch of the ball kicks it, or only one while going ahead."""
    step_reward: float
