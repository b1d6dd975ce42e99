"""One time step of a court: agents slide, food rolls, and food that an agent touches moves on.

Bodies that touch one another are solved together. All others, which are most, touch at most the
floor; their step is worked out by hand.

Walls and bodies are mixed in the order of contacts; there is no log from Unity that shows which
should be solved last.
"""

import math

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, inlined, makes_arrays
from touchline.physics.shapes import HALF_X, HALF_Y, ROUND_TAG, Floats, X, Y, Z
from touchline.physics.upright.balls import nearest_on_box, touch_at
from touchline.physics.upright.boxes import ANCHORS, touch_boxes
from touchline.physics.upright.contacts import (
    APPROACH,
    MU,
    TOUCH_M,
    Contacts,
    new_records,
)
from touchline.physics.upright.solve import solve
from touchline.physics.world import ANGULAR_DRAG, DT_S, GRAVITY, MAX_SPIN
from touchline.scenes.grid_food_collector.actions import act
from touchline.scenes.grid_food_collector.court import (
    COURT_M,
    FLOOR_Y,
    FOOD,
    FOOD_BACK_Y,
    FOOD_RADIUS_M,
    MOST_BODIES,
    START_SPREAD_M,
    TAG_FOOD,
    Courts,
)
from touchline.scenes.random import StreamArrays, draw

AGENT_DRAG = 0.5
"""1/s; food has none."""
GOOD_REWARD, BAD_REWARD = 1.0, -1.0
MAX_CONTACTS = 160
"""Every body on the floor and a hundred contacts more; two or three are usual."""
_MOST_OTHERS = MAX_CONTACTS - MOST_BODIES
"""What may be added before the floor's contacts."""
_CENTER = (0.0, 0.0, 0.0)
"""The arm of a body that contacts do not turn; nothing here bounces, either."""


@makes_arrays
def play_rounds(
    first: int, last: int, most: int, courts: Courts, streams: StreamArrays
) -> None:
    """Play this many rounds, from the first one's physics on."""
    records = new_records(MAX_CONTACTS)
    bodies = courts.velocity.shape[1] - 1
    moving = np.zeros((bodies + 1, 6))
    touches = np.zeros(bodies, np.bool_)
    eaten = np.zeros((MAX_CONTACTS, 2), np.int64)
    for played in range(most):
        if played > 0:
            act(first, last, courts)
        _step_each(first, last, courts, streams, records, moving, touches, eaten)


@compiled
def _step_each(
    first: int,
    last: int,
    courts: Courts,
    streams: StreamArrays,
    records: NDArray[np.void],
    moving: Floats,
    touches: NDArray[np.bool_],
    eaten: NDArray[np.int64],
) -> None:
    """One time step; the last four are room to work in: `eaten` lists pairs of agent and item."""
    for a in range(first, last):
        agent = courts.agent[a]
        food = courts.food[a]
        v = courts.velocity[a]
        _accelerate(v, courts.push[a])
        touches[:] = False
        contacts = Contacts(records, v, courts.inverse)
        n = _touch_agents(contacts, 0, courts.walls, agent, touches)
        n, meals = _touch_food_with_agents(contacts, n, agent, food, touches, eaten)
        n = _touch_food_and_walls(contacts, n, food, touches)
        n = _touch_floor(contacts, n, agent, food, touches)
        if n > 0:
            solve(contacts, n, moving)
        agents = len(agent)
        for g in range(agents):
            if touches[g]:
                _move(agent[g], moving[g])
            else:
                gap = agent[g, Y] - agent[g, HALF_Y] - FLOOR_Y
                _slide(agent[g], v[g], gap)
        for k in range(FOOD):
            if touches[agents + k]:
                _move(food[k], moving[agents + k])
            else:
                roll(food[k], v[agents + k])
        # Only now, because the collision with the agent must still push the item.
        for meal in range(meals):
            g, k = eaten[meal]
            is_good = food[k, ROUND_TAG] == TAG_FOOD
            courts.reward[a, g] += GOOD_REWARD if is_good else BAD_REWARD
            _place_elsewhere(food[k], a, streams)


@compiled
def _place_elsewhere(item: Floats, area: int, streams: StreamArrays) -> None:
    """Let an eaten item fall from above somewhere, at the speed that the collision gave it."""
    right, ahead, _, _ = draw(streams, area)
    item[X] = START_SPREAD_M * (2.0 * right - 1.0)
    item[Z] = START_SPREAD_M * (2.0 * ahead - 1.0)
    item[Y] = FOOD_BACK_Y


@compiled
def _accelerate(v: Floats, push: Floats) -> None:
    """Apply pushes, gravity, drag, and the limit on how fast anything spins."""
    # As PhysX: a step's pushes and gravity first, then drag on their sum.
    keep = 1.0 - AGENT_DRAG * DT_S
    for g in range(len(push)):
        v[g, 0] = (v[g, 0] + push[g, 0]) * keep
        v[g, 1] = (v[g, 1] - GRAVITY * DT_S) * keep
        v[g, 2] = (v[g, 2] + push[g, 1]) * keep
        push[g, 0] = push[g, 1] = 0.0
    for k in range(len(push), len(v) - 1):
        v[k, 1] -= GRAVITY * DT_S
        spin = math.sqrt(v[k, 3] * v[k, 3] + v[k, 4] * v[k, 4] + v[k, 5] * v[k, 5])
        slower = 1.0 - ANGULAR_DRAG * DT_S
        if spin * slower > MAX_SPIN:
            slower = MAX_SPIN / spin
        for d in range(3, 6):
            v[k, d] *= slower


@compiled
def _move(shape: Floats, moving: Floats) -> None:
    shape[X] += moving[0] * DT_S
    shape[Y] += moving[1] * DT_S
    shape[Z] += moving[2] * DT_S


@compiled
def _land(v: Floats, gap: float) -> tuple[float, float]:
    """Let the floor stop a body's fall.

    Returns the change of its upward speed, and how far it is lifted out of the floor. This and the
    next two are `solve` for a body that touches nothing but the floor.
    """
    if gap >= TOUCH_M:
        return 0.0, 0.0
    # Above the floor a part of the gap may be closed in this step.
    target = -APPROACH * gap / DT_S if gap > 0.0 else 0.0
    change = max(target - v[1], 0.0)
    v[1] += change
    # The speed that removes a penetration moves the body but is not kept.
    lift = max(-APPROACH * gap - v[1] * DT_S, 0.0) if gap < 0.0 else 0.0
    return change, lift


@compiled
def _slide(shape: Floats, v: Floats, gap: float) -> None:
    """Move an agent that touches at most the floor, with the doubled friction of a flat face."""
    change, lift = _land(v, gap)
    speed = math.sqrt(v[0] * v[0] + v[2] * v[2])
    if change > 0.0 and speed > 0.0:
        # Coulomb: friction takes at most μ times what the floor's push changes.
        loss = ANCHORS * MU * change / speed
        keep = max(1.0 - loss, 0.0)
        v[0] *= keep
        v[2] *= keep
    _move(shape, v)
    shape[Y] += lift


@compiled
def roll(shape: Floats, v: Floats) -> None:
    """Move an item that touches at most the floor."""
    # Friction acts along and across its way, each with its own limit.
    change, lift = _land(v, shape[Y] - FOOD_RADIUS_M - FLOOR_Y)
    if change > 0.0:
        speed = math.sqrt(v[0] * v[0] + v[2] * v[2])
        tx, tz = (v[0] / speed, v[2] / speed) if speed > 1e-6 else (1.0, 0.0)
        # At the floor the ball slides with v + spin x (0, -radius, 0). Stopping that takes 1/3.5 of
        # it as an impulse per mass: 1 + 1 / 0.4 for a solid ball.
        slide_x = v[0] + v[5] * FOOD_RADIUS_M
        slide_z = v[2] - v[3] * FOOD_RADIUS_M
        along = slide_x * tx + slide_z * tz
        across = slide_z * tx - slide_x * tz
        limit = MU * change
        along = -min(max(along / 3.5, -limit), limit)
        across = -min(max(across / 3.5, -limit), limit)
        dx = along * tx - across * tz
        dz = along * tz + across * tx
        v[0] += dx
        v[2] += dz
        # 1 / 0.4: how much faster an impulse at the rim turns a solid ball than it moves it.
        v[3] -= 2.5 * dz / FOOD_RADIUS_M
        v[5] += 2.5 * dx / FOOD_RADIUS_M
    _move(shape, v)
    shape[Y] += lift


# Contacts. Every function adds some and returns their number. `touches` [bodies] marks the bodies
# that touch something other than the floor.


@compiled
def _touch_agents(
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
def _touch_food_with_agents(
    contacts: Contacts,
    n: int,
    agent: Floats,
    food: Floats,
    touches: NDArray[np.bool_],
    eaten: NDArray[np.int64],
) -> tuple[int, int]:
    """Contacts of agents with food; lists the pairs in `eaten`, and returns also their number."""
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
def _touch_food_and_walls(
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
def _touch_floor(
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
