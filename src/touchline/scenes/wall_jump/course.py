"""What stands in an area: ground, goal, agent, block and wall.

Source: `WallJumpArea.prefab`.
"""

import numpy as np

from touchline.physics.shapes import box, boxes
from touchline.physics.threads import Threads
from touchline.physics.upright.boxes import Body, BoxWorld
from touchline.physics.world import GRAVITY

TAGS = ["wall", "goal", "block", "walkableSurface"]
GROUND, GOAL = 0, 1
FIXED = boxes(
    box((0.0, -0.05, -4.0), (21.0, 1.0, 21.0), TAGS.index("walkableSurface")),
    box(
        (6.37, 2.99, 2.93), (4.0, 5.0, 4.0), TAGS.index("goal")
    ),  # a trigger: it holds nothing up
)
GROUND_CENTER_M = (0.0, 0.0, -4.0)
"""The agent observes its place relative to this."""

AGENT, BLOCK, WALL_BOX = 0, 1, 2
AGENT_KG, AGENT_DRAG = 25.0, 2.0
BLOCK_KG, BLOCK_DRAG = 10.0, 1.0
"""Drags are in 1/s."""
GRAVITY_MULTIPLIER = 2.75

START_SPREAD_X_M, START_Y_M, START_Z_M = 9.0, 1.0, -12.0
BLOCK_M, BLOCK_SPREAD_M = (0.0, 1.5, -6.27), (8.1, 3.5)
"""The block's center, and how far it starts from there along x and z."""

WALL_HEIGHTS = ("no_wall_height", "small_wall_height", "big_wall_height")
"""Kinds of walls: the parameters that give their heights."""
CONFIGURATIONS = 5
"""Unity draws one of these per episode."""
WALL_OF = np.array([0, 1, 2, 2, 2])
"""Configuration -> kind of wall."""
BEHAVIOR_OF = np.array([0, 0, 1])
"""Kind of wall -> behavior, small or big."""


def new_world(num_areas: int, threads: Threads) -> BoxWorld:
    agent = box((0.0, START_Y_M, START_Z_M), (1.0, 1.0, 1.0))
    block = box(BLOCK_M, (3.0, 2.0, 3.0), TAGS.index("block"))
    wall = box((0.0, 0.0, -1.98), (20.0, 0.0, 1.5), TAGS.index("wall"))
    bodies = [
        Body(agent, AGENT_KG, AGENT_DRAG, turns=True),
        Body(block, BLOCK_KG, BLOCK_DRAG, falls=False),
    ]
    world = BoxWorld(
        num_areas, FIXED, bodies, [wall], GRAVITY * GRAVITY_MULTIPLIER, threads
    )
    world.friction[:, :, GOAL] = -1.0  # nothing touches a trigger
    world.friction[:, BLOCK, GROUND] = -1.0  # it hovers 5 cm above
    return world
