"""What a court holds: agents, food and walls, as numbers and as arrays for kernels."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.shapes import Floats, box, boxes

AGENTS = 5
GOOD, BAD = 25, 25
FOOD = GOOD + BAD
MOST_BODIES = AGENTS + FOOD
"""VisualFoodCollector has an agent less."""

COURT_M = 50.0
"""Distance from the court's middle to the walls' inner faces."""
FLOOR_Y = 0.5
START_SPREAD_M = 45.0
AGENT_START_Y, FOOD_START_Y, FOOD_BACK_Y = 2.0, 1.0, 3.0
"""New food starts 0.25 m deep in the floor and is pushed out; eaten food falls from above."""
FOOD_RADIUS_M = 0.75
AGENT_KG, FOOD_KG = 10.0, 5.0
FOOD_INERTIA = 0.4 * FOOD_KG * FOOD_RADIUS_M**2
BEAM_M = 25.0

TAGS = ["food", "agent", "wall", "badFood", "frozenAgent"]
TAG_FOOD, TAG_AGENT, TAG_WALL, TAG_BAD, TAG_FROZEN = range(5)


def _walls() -> list[list[float]]:
    """A ring 1 m thick, from 3.75 m below the floor to 2.5 m above it."""
    y = FLOOR_Y - 0.625
    far = COURT_M + 0.5
    long = 2 * COURT_M + 2
    sides = [box((side * far, y, 0), (1, 6.25, long), TAG_WALL) for side in (-1, 1)]
    ends = [box((0, y, side * far), (long, 6.25, 1), TAG_WALL) for side in (-1, 1)]
    return sides + ends


WALLS = _walls()
"""In Unity the ring is one mesh: one collider."""
FLOOR = boxes(box((0, FLOOR_Y - 0.5, 0), (2 * COURT_M, 1, 2 * COURT_M)))[0]


class Courts(NamedTuple):
    """What the rounds of A courts with G agents each read and write, for kernels."""

    continuous: NDArray[np.float32]
    """[A, G, 3] stored actions."""
    discrete: NDArray[np.int32]
    """[A, G, 1] stored actions."""
    reward: NDArray[np.float32]
    walls: Floats
    inverse: Floats
    """[G + FOOD + 1, 6] inverse masses; the last row stands for everything static."""
    agent: Floats
    """[A, G, 9] boxes"""
    yaw: Floats
    """[A, G] rad"""
    food: Floats
    """[A, FOOD, 6] balls"""
    velocity: Floats
    """[A, G + FOOD + 1, 6] of agents, then food, then what is static."""
    push: Floats
    """[A, G, 2] what the next physics step adds to the velocity, x and z, m/s."""
    frozen: NDArray[np.int64]
    """[A, G] physics steps for which an agent stays frozen."""
    shooting: NDArray[np.bool_]
    """[A, G] whether an agent shot in this step."""


def inverse_masses(agents: int = AGENTS) -> Floats:
    """`Courts.inverse`: contacts do not turn agents."""
    inverse = np.zeros((agents + FOOD + 1, 6))
    inverse[:agents, :3] = 1.0 / AGENT_KG
    inverse[agents:-1, :3] = 1.0 / FOOD_KG
    inverse[agents:-1, 3:] = 1.0 / FOOD_INERTIA
    return inverse
