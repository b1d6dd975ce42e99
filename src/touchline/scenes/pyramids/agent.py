"""What stands in an area, and the upright half of the physics: the agent and the switch."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, makes_arrays
from touchline.physics.shapes import Floats, X, Z, box, boxes
from touchline.physics.upright.boxes import Body, Boxes, step_boxes
from touchline.physics.upright.contacts import TOUCH_M, Contacts, new_records

TAGS = ["block", "wall", "goal", "switchOff", "switchOn", "stone"]
BLOCK, WALL, GOAL, SWITCH_OFF, SWITCH_ON, STONE = range(6)

AGENT, SWITCH = 0, 1
BODIES = 2
"""The upright boxes that move; stones follow in the table of boxes."""
AGENT_KG, SWITCH_KG, SWITCH_M = 25.0, 1.0, 4.0
BUTTON_SIZE_M = (2.0, 0.75, 2.0)
"""The switch's button: an untagged box inside it."""
BUTTON_UP_M = 1.375
"""How high its center is above the floor."""
BRICK_KG = 2.0
"""Each of them, gold too."""
BRICK_M, GOLD_M = 1.0, 2.0
PYRAMIDS = 6

NUM_STONES = 25
"""In a pyramid."""

PLACE_CENTERS_M = (-30.0, 0.0, 30.0)
"""x and z of the nine places."""
PLACE_SPREAD_M = 11.905
SPAWN_Y = 2.0

Point = tuple[float, float, float]
_RING = (
    (-1.34, 0.101), (-1.34, -1.06), (-0.213, -1.06), (2.2, 0.101), (1.087, -1.06), (2.2, -1.06),
    (-1.34, 2.62), (-0.213, 2.62), (-1.34, 1.451), (1.087, 2.62), (2.2, 2.62), (2.2, 1.451),
)  # fmt: skip


def _pyramid(
    heights: Point, eight_x: Point, four_x: tuple[float, float], top: Point
) -> list[Point]:
    """The centers (x, y, z) of a pyramid's 25 cubes: a ring of twelve, eight, four, one."""
    eight_z = (-0.473, 0.771, 2.121)
    four_z = (0.131, 1.375)
    middle = (eight_x[1], eight_z[1])
    grid = [(x, z) for z in eight_z for x in eight_x]
    twelve = [(x, heights[0], z) for x, z in _RING]
    eight = [(x, heights[1], z) for x, z in grid if (x, z) != middle]
    four = [(x, heights[2], z) for z in four_z for x in four_x]
    return [*twelve, *eight, *four, top]


STONES = _pyramid((0.5, 1.5, 2.5), (-0.82, 0.37, 1.67), (-0.27, 0.92), (0.34, 3.5, 0.8))
"""Places where stones come to rest, from the prefab's heights of 0.151, 1.25, 2.38 and 3.52 above
the spawn height."""
STONES_REACH_M = 2.4
"""Distance from the top stone's center to the pyramid's sides."""
BRICKS = _pyramid(
    (0.151, 1.60, 3.11), (-0.803, 0.387, 1.687), (-0.143, 1.047), (0.52, 4.29, 0.8)
)
GOLD = (0.45, 6.0, 0.8)
NUM_BRICKS = len(BRICKS) + 1
"""The golden one is the last."""

_FLOOR = box((0, -0.5, 0), (99, 1, 99))
_SIDES = ((-1, -1), (-1, 1), (1, -1), (1, 1))
INNER_WALLS = [
    *(box((sx * 16.54, 0.91, sz * 16.56), (15.15, 7.22, 1), WALL) for sx, sz in _SIDES),
    *(box((sx * 16.54, 0.91, sz * 16.56), (1, 7.22, 15), WALL) for sx, sz in _SIDES),
    *(box((sx * 42.25, 0.91, sz * 16.5), (14.5, 7.22, 1), WALL) for sx, sz in _SIDES),
    *(box((sx * 16.5, 0.91, sz * 42.25), (1, 7.22, 14.5), WALL) for sx, sz in _SIDES),
]


def outer_walls(top_m: float) -> list[list[float]]:
    """The walls around an area, up to this height."""
    low = [box((s * 50, top_m / 2, 0), (1, top_m, 101), WALL) for s in (-1, 1)]
    return low + [box((0, top_m / 2, z), (101, top_m, 1), WALL) for z in (49.6, -50.1)]


VISIBLE_TOP_M, SOLID_TOP_M = 5.0, 60.0
"""For the physics the outer walls continue upwards, so that nothing can leave."""
_X_M, _NORTH_M, _SOUTH_M = 49.5, 49.1, -49.6
PLANES = np.array(
    [
        (0.0, 1.0, 0.0, 0.0),
        (1.0, 0.0, 0.0, -_X_M),
        (-1.0, 0.0, 0.0, -_X_M),
        (0.0, 0.0, 1.0, _SOUTH_M),
        (0.0, 0.0, -1.0, -_NORTH_M),
    ]
)
"""The floor and the inner faces of the outer walls, which bricks stay above: normal, offset."""
VISIBLE = boxes(_FLOOR, *INNER_WALLS, *outer_walls(VISIBLE_TOP_M))
"""[B, 9] what rays can hit."""
SOLID = boxes(_FLOOR, *INNER_WALLS, *outer_walls(SOLID_TOP_M))
"""[B, 9] what bodies can touch."""
STONE_BOXES = boxes(*(box(at, (1, 1, 1), STONE) for at in STONES))
"""[stones, 9] a pyramid in the area's middle."""
BUTTON = BODIES + PYRAMIDS * len(STONES)
"""The last row in the table of boxes."""
_SWITCH_AT_M = (0, SPAWN_Y + SWITCH_M / 2, 0)
UPRIGHT = [
    Body(box((0, SPAWN_Y, 0), (1, 1, 1)), AGENT_KG, drag=2.0),
    # Locked axes respond, too: see `_hold_switch`.
    Body(box(_SWITCH_AT_M, (SWITCH_M,) * 3, SWITCH_OFF), SWITCH_KG, 0.0, turns=True),
]
SWITCH_COLUMN = len(SOLID) + SWITCH
"""The switch in `Boxes.gaps`."""


class Upright(NamedTuple):
    """What a time step of the upright bodies of A areas reads and writes, for kernels."""

    world: Boxes
    """Agent and switch, then all stones, and the button inside the switch."""
    moving: Floats
    """[A, 3] the velocity with which the last step moved the agent."""
    before: Floats
    """[A, 3] where the agent was before that step."""
    pressed: NDArray[np.bool_]
    """[A] whether the agent touched the switch in that step."""


@makes_arrays
def step_upright(first: int, last: int, upright: Upright) -> None:
    """One time step of these areas."""
    records = new_records()
    poses = np.zeros((BODIES + 1, 6))
    world = upright.world
    # Coefficients are the same in every area, and gaps are read below only: one area's arrays stay
    # in the processor's nearest memory, those of all would not.
    friction = world.friction[0]
    gaps = np.empty_like(world.gaps[0])
    for a in range(first, last):
        upright.before[a] = world.boxes[a, AGENT, :3]
        x = world.boxes[a, SWITCH, X]
        z = world.boxes[a, SWITCH, Z]
        step_boxes(
            Contacts(records, world.velocity[a], world.inverse),
            world.fixed,
            world.boxes[a],
            world.yaw[a],
            world.drag[a],
            world.gravity[a],
            friction,
            poses,
            gaps,
        )
        _hold_switch(world.boxes[a, SWITCH], world.velocity[a, SWITCH], x, z)
        upright.moving[a] = poses[AGENT, :3]
        upright.pressed[a] = gaps[AGENT, SWITCH_COLUMN] < TOUCH_M


@compiled
def _hold_switch(switch: Floats, velocity: Floats, x: float, z: float) -> None:
    """Undo what a step did along the switch's locked axes."""
    # Agents recorded in Unity (ML-Agents' ExpertPyramid.demo) are slowed by the switch as by a
    # loose box of 1 kg, a little in every step, and wade through it. It moves as if PhysX solved
    # contacts without the locks, and dropped the locked velocities afterwards: inferred from that
    # recording, not read in PhysX (`docs/scenes.md`).
    switch[X] = x
    switch[Z] = z
    velocity[0] = velocity[2] = 0.0
