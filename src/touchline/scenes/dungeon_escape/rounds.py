"""A round of areas: agents act, bodies move, the dragon walks, and what touched what."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled
from touchline.physics.shapes import ABSENT, BOX_TAG, Floats
from touchline.physics.upright.boxes import Boxes, box_gap, step_areas
from touchline.physics.upright.contacts import TOUCH_M
from touchline.physics.world import DT_S
from touchline.scenes.cube_agents import move_cube
from touchline.scenes.dungeon_escape.dragon import step_dragon
from touchline.scenes.dungeon_escape.hall import AGENTS, DOOR, DRAGON, KEY, PORTAL

RUN_SPEED_MPS = 3.0
TURN_RAD = math.radians(200.0) * DT_S


class Halls(NamedTuple):
    """What the rounds of A areas read and write, for kernels."""

    discrete: NDArray[np.int32]
    """[A, AGENTS, 1] stored actions."""
    enabled: NDArray[np.bool_]
    """[A, AGENTS] whether the agent is alive."""
    has_key: NDArray[np.bool_]
    """[A, AGENTS]"""
    dragon_speed_mps: Floats
    """[A]"""
    world: Boxes
    at_dragon: NDArray[np.bool_]
    """[A, AGENTS], likewise all that follow: what the agent touched in the last round."""
    at_key: NDArray[np.bool_]
    at_portal: NDArray[np.bool_]
    at_door: NDArray[np.bool_]
    opens: NDArray[np.bool_]
    """Whether it came to the door in that round, and has the key."""
    escaped: NDArray[np.bool_]
    """[A] whether the dragon was at the portal before that round."""


def new_halls(
    discrete: NDArray[np.int32], enabled: NDArray[np.bool_], world: Boxes
) -> Halls:
    """Nothing touches anything, and dragons stand still."""
    shape = enabled.shape
    return Halls(
        discrete=discrete,
        enabled=enabled,
        has_key=np.zeros(shape, np.bool_),
        dragon_speed_mps=np.zeros(shape[0]),
        world=world,
        at_dragon=np.zeros(shape, np.bool_),
        at_key=np.zeros(shape, np.bool_),
        at_portal=np.zeros(shape, np.bool_),
        at_door=np.zeros(shape, np.bool_),
        opens=np.zeros(shape, np.bool_),
        escaped=np.zeros(shape[0], np.bool_),
    )


@compiled
def play_rounds(first: int, last: int, most: int, halls: Halls) -> int:
    """Play rounds until a touch has consequences; how many."""
    for played in range(1, most + 1):
        for area in range(first, last):
            _act(area, halls)
            _find_triggers(area, halls)
        step_areas(first, last, halls.world)
        any_touch = False
        for area in range(first, last):
            if halls.world.boxes[area, DRAGON, BOX_TAG] != ABSENT:
                step_dragon(halls.world.boxes[area], halls.dragon_speed_mps[area])
            any_touch |= _find_touches(area, halls)
        if any_touch:
            return played
    return most


@compiled
def _act(area: int, halls: Halls) -> None:
    """Let every agent that is alive execute its action."""
    world = halls.world
    for i in range(AGENTS):
        if halls.enabled[area, i]:
            move_cube(
                halls.discrete[area, i, 0],
                i,
                RUN_SPEED_MPS,
                TURN_RAD,
                world.boxes[area],
                world.yaw[area],
                world.velocity[area],
            )


@compiled
def _find_triggers(area: int, halls: Halls) -> None:
    """Mark agents in the key's trigger, and a dragon at the portal."""
    # Triggers act on the places before a step.
    shapes = halls.world.boxes[area]
    portal = halls.world.fixed[PORTAL]
    key = shapes[KEY]
    dragon = shapes[DRAGON]
    for i in range(AGENTS):
        both_present = key[BOX_TAG] != ABSENT and shapes[i, BOX_TAG] != ABSENT
        halls.at_key[area, i] = both_present and box_gap(shapes[i], key)[0] < 0.0
    halls.escaped[area] = (
        dragon[BOX_TAG] != ABSENT and box_gap(dragon, portal)[0] < TOUCH_M
    )


@compiled
def _find_touches(area: int, halls: Halls) -> bool:
    """Mark what the agents touched in the step; whether anything has consequences."""
    first_box = len(halls.world.fixed)
    has_consequences = halls.escaped[area]
    for i in range(AGENTS):
        gaps = halls.world.gaps[area, i]
        was_at_door = halls.at_door[area, i]
        is_at_door = gaps[DOOR] < TOUCH_M
        halls.at_door[area, i] = is_at_door
        halls.opens[area, i] = is_at_door and not was_at_door and halls.has_key[area, i]
        halls.at_dragon[area, i] = gaps[first_box + DRAGON] < TOUCH_M
        halls.at_portal[area, i] = gaps[PORTAL] < TOUCH_M
        has_consequences |= halls.opens[area, i] or halls.at_key[area, i]
        has_consequences |= halls.at_dragon[area, i] or halls.at_portal[area, i]
    return bool(has_consequences)
