"""What touches what on a court: agents, food, walls and floor.

Every function adds contacts and returns their number. `touches` [bodies] marks the bodies that
touch something other than the floor. Walls and bodies are mixed in the order of contacts; there is
no log from Unity that shows which should be solved last.
"""

import math

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, inlined
from touchline.physics.shapes import HALF_X, HALF_Y, Floats, X, Y, Z
from touchline.physics.upright.balls import nearest_on_box, touch_at
from touchline.physics.upright.boxes import ANCHORS, touch_boxes
from touchline.physics.upright.contacts import MU, TOUCH_M, Contacts
from touchline.scenes.grid_food_collector.court import (
    COURT_M,
    FLOOR_Y,
    FOOD,
    FOOD_RADIUS_M,
    MOST_BODIES,
)

MAX_CONTACTS = 160
"""Every body on the floor and a hundred contacts more; two or three are usual."""
_MOST_OTHERS = MAX_CONTACTS - MOST_BODIES
"""What may be added before the floor's contacts."""
_CENTER = (0.0, 0.0, 0.0)
"""The arm of a body that contacts do not turn; nothing here bounces, either."""


@compiled
def touch_agents(
    contacts: Contacts,
    n: int,
    walls: Floats,
    agent: Floats,
    touches: NDArray[np.bool_],
) -> int:
    """Contacts of agents with each other and with walls."""
    static = len(contacts.velocity) - 1
    for g in range(len(agent)):
        me = agent[g]
        reach = 1.5 * me[HALF_X] + TOUCH_M  # more than half a diagonal
        for k in range(g + 1, len(agent)):
            far = reach + 1.5 * agent[k, HALF_X]
            is_near = abs(me[X] - agent[k, X]) < far and abs(me[Z] - agent[k, Z]) < far
            if is_near and n < _MOST_OTHERS:
                before = n
                n, _ = touch_boxes(contacts, n, g, me, k, agent[k], MU, MU)
                if n > before:
                    touches[g] = touches[k] = True
        if max(abs(me[X]), abs(me[Z])) > COURT_M - reach:
            for w in range(len(walls)):
                if n < _MOST_OTHERS:
                    before = n
                    n, _ = touch_boxes(contacts, n, g, me, static, walls[w], MU, MU)
                    touches[g] = touches[g] or n > before
    return n


@compiled
def touch_food_with_agents(
    contacts: Contacts,
    n: int,
    agent: Floats,
    food: Floats,
    touches: NDArray[np.bool_],
    eaten: NDArray[np.int64],
) -> tuple[int, int]:
    """Contacts of agents with food.

    Lists the pairs (agent, item) in `eaten`; returns also how many there are.
    """
    meals = 0
    agents = len(agent)
    for g in range(agents):
        me = agent[g]
        far = 1.5 * me[HALF_X] + TOUCH_M + FOOD_RADIUS_M
        for k in range(FOOD):
            # The quick test comes first: of fifty items hardly any is near.
            is_near = abs(me[X] - food[k, X]) < far and abs(me[Z] - food[k, Z]) < far
            if is_near and n < _MOST_OTHERS:
                distance, nx, ny, nz = nearest_on_box(
                    food[k, X], food[k, Y], food[k, Z], me
                )
                gap = distance - FOOD_RADIUS_M
                if gap < TOUCH_M:
                    arm = (
                        -FOOD_RADIUS_M * nx,
                        -FOOD_RADIUS_M * ny,
                        -FOOD_RADIUS_M * nz,
                    )
                    item, normal = agents + k, (nx, ny, nz)
                    n = touch_at(
                        contacts, n, item, g, normal, gap, arm, _CENTER, MU, 0.0
                    )
                    touches[g] = touches[item] = True
                    eaten[meals, 0] = g
                    eaten[meals, 1] = k
                    meals += 1
    return n, meals


@compiled
def touch_food_and_walls(
    contacts: Contacts, n: int, food: Floats, touches: NDArray[np.bool_]
) -> int:
    """Contacts of items with each other and with walls."""
    wide = 2.0 * FOOD_RADIUS_M + TOUCH_M
    agents = len(contacts.velocity) - 1 - FOOD
    for k in range(FOOD):
        x = food[k, X]
        y = food[k, Y]
        z = food[k, Z]
        for j in range(k + 1, FOOD):
            dx = x - food[j, X]
            dz = z - food[j, Z]
            if abs(dx) >= wide or abs(dz) >= wide:
                continue
            dy = y - food[j, Y]
            distance = math.sqrt(dx * dx + dy * dy + dz * dz)
            # Items in the very same place have no direction in which to part.
            if 0.0 < distance < wide and n < _MOST_OTHERS:
                nx = dx / distance
                ny = dy / distance
                nz = dz / distance
                half = distance / 2  # they touch in the middle of gap or overlap
                here = (-half * nx, -half * ny, -half * nz)
                there = (half * nx, half * ny, half * nz)
                gap = distance - 2.0 * FOOD_RADIUS_M
                a = agents + k
                b = agents + j
                normal = (nx, ny, nz)
                n = touch_at(contacts, n, a, b, normal, gap, here, there, MU, 0.0)
                touches[a] = touches[b] = True
        n = _touch_walls(contacts, n, k, x, z, touches)
    return n


@inlined
def _touch_walls(
    contacts: Contacts,
    n: int,
    k: int,
    x: float,
    z: float,
    touches: NDArray[np.bool_],
) -> int:
    """Contacts of item k at (x, z) with walls."""
    edge = COURT_M - FOOD_RADIUS_M
    static = len(contacts.velocity) - 1
    item = static - FOOD + k
    if max(abs(x), abs(z)) <= edge - TOUCH_M:
        return n
    for wx, wz, gap in (
        (-math.copysign(1.0, x), 0.0, edge - abs(x)),
        (0.0, -math.copysign(1.0, z), edge - abs(z)),
    ):
        if gap < TOUCH_M and n < _MOST_OTHERS:
            arm = (-FOOD_RADIUS_M * wx, 0.0, -FOOD_RADIUS_M * wz)
            normal = (wx, 0.0, wz)
            n = touch_at(contacts, n, item, static, normal, gap, arm, _CENTER, MU, 0.0)
            touches[item] = True
    return n


@compiled
def touch_floor(
    contacts: Contacts,
    n: int,
    agent: Floats,
    food: Floats,
    touches: NDArray[np.bool_],
) -> int:
    """Contacts of the floor with bodies that touch something else as well."""
    # Bodies that touch nothing else are moved without a contact (`physics`).
    if n == 0:
        return 0
    up = (0.0, 1.0, 0.0)
    agents = len(agent)
    static = len(contacts.velocity) - 1
    flat_mu = ANCHORS * MU
    for g in range(agents):
        gap = agent[g, Y] - agent[g, HALF_Y] - FLOOR_Y
        if touches[g] and gap < TOUCH_M:
            n = touch_at(
                contacts, n, g, static, up, gap, _CENTER, _CENTER, flat_mu, 0.0
            )
    for k in range(FOOD):
        gap = food[k, Y] - FOOD_RADIUS_M - FLOOR_Y
        if touches[agents + k] and gap < TOUCH_M:
            item, arm = agents + k, (0.0, -FOOD_RADIUS_M, 0.0)
            n = touch_at(contacts, n, item, static, up, gap, arm, _CENTER, MU, 0.0)
    return n
