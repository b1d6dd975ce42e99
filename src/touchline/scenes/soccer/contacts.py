"""What touches what on a field: players, ball, walls, goals and floor."""

import math

from touchline.physics.kernels import compiled, inlined
from touchline.physics.shapes import BOX_TAG, COS, HALF_X, HALF_Z, SIN, Floats, X, Z
from touchline.physics.upright.balls import add_floor_friction, nearest_on_box, touch_at
from touchline.physics.upright.contacts import APPROACH, MU, TOUCH_M, Contacts
from touchline.physics.world import DT_S
from touchline.scenes.soccer.field import (
    BALL_DRAG,
    BALL_KG,
    BALL_RADIUS_M,
    BLUE_GOAL,
    BOUNCE,
    FLOOR_MU,
    GOAL_FLOOR_X_M,
    HEIGHT_M,
    PLAYER_DRAG,
    PLAYER_KG,
    PLAYER_RADIUS_M,
    PURPLE_GOAL,
)

SUNK_M = BALL_RADIUS_M - HEIGHT_M
_CENTER = (0.0, 0.0, 0.0)
"""The arm of what contacts do not turn."""
OPEN_X_M, OPEN_Z_M = 11.5, 6.6
"""Nothing within these can touch a wall, whatever the step."""


@inlined
def touch(
    contacts: Contacts,
    field: Floats,
    gravity: float,
    body: Floats,
    gaps: Floats,
    points: Floats,
) -> tuple[int, int]:
    """Find all contacts of one field.

    Returns the tag of the goal that the ball touches (0: none), and the number of contacts.
    `gaps` and `points` (x, z) become those between each player and the ball.

    Later contacts override earlier ones: bodies among themselves, then walls, then the floor.
    """
    the_ball = len(body) - 1
    n = _touch_bodies(contacts, 0, body, gaps, points)
    goal = 0
    for i in range(the_ball + 1):
        if abs(body[i, X]) > OPEN_X_M or abs(body[i, Z]) > OPEN_Z_M:
            tag, n = _touch_walls(contacts, n, field, i, body)
            goal = max(goal, tag)
    n = _touch_floor(contacts, n, gravity, body)
    return goal, n


@inlined
def _touch_floor(contacts: Contacts, n: int, gravity: float, body: Floats) -> int:
    """Add the floor's friction under the ball, and under players that touch something else.

    The floor's impulse is known, because heights are locked: the weight of one step, and for the
    ball what would push it out of the floor. Returns the number of contacts.
    """
    the_ball = len(body) - 1
    speed = contacts.velocity
    others = n
    weight = BALL_KG * gravity * DT_S * (1.0 - BALL_DRAG * DT_S)
    sunk = BALL_KG * APPROACH * SUNK_M / DT_S
    mu = _floor_mu(body[the_ball, X])
    n = add_floor_friction(contacts, n, the_ball, HEIGHT_M, weight + sunk, weight, mu)
    # Drag slows the fall of one step as well, before contacts are solved.
    press = PLAYER_KG * gravity * DT_S * (1.0 - PLAYER_DRAG * DT_S)
    for i in range(the_ball):
        alone = True
        for c in range(others):
            contact = contacts.records[c]
            alone = alone and contact.a != i and contact.b != i
        mu = _floor_mu(body[i, X])
        if alone:
            # Most players touch nothing but the floor, which brakes them along their way: worked
            # out by hand, that needs no contact.
            loss = mu * press / PLAYER_KG
            now = math.sqrt(speed[i, 0] ** 2 + speed[i, 2] ** 2)  # m/s
            share = 1.0 - loss / now if now > loss else 0.0
            speed[i, 0] *= share
            speed[i, 2] *= share
        else:
            n = add_floor_friction(contacts, n, i, HEIGHT_M, press, press, mu)
    return n


@compiled
def _floor_mu(x: float) -> float:
    return MU if abs(x) > GOAL_FLOOR_X_M else FLOOR_MU


@inlined
def _touch_walls(
    contacts: Contacts, n: int, field: Floats, i: int, body: Floats
) -> tuple[int, int]:
    """Find the contacts of one body with walls and goals; returns the same as `touch`."""
    the_ball = len(body) - 1
    is_ball = i == the_ball
    radius = BALL_RADIUS_M if is_ball else PLAYER_RADIUS_M
    bounce = BOUNCE if is_ball else 0.0
    x = body[i, X]
    z = body[i, Z]
    reach = radius + TOUCH_M
    goal = 0
    for k in range(len(field)):
        wall = field[k]
        wx = x - wall[X]
        wz = z - wall[Z]
        # Along the wall's own axes; most walls are far away, and this is the fastest test.
        across = wx * wall[COS] - wz * wall[SIN]
        if abs(across) > wall[HALF_X] + reach:
            continue
        along = wx * wall[SIN] + wz * wall[COS]
        if abs(along) > wall[HALF_Z] + reach:
            continue
        distance, nx, ny, nz = nearest_on_box(x, HEIGHT_M, z, wall)
        gap = distance - radius
        if gap >= TOUCH_M:
            continue
        tag = int(wall[BOX_TAG])
        if i == the_ball and tag in (BLUE_GOAL, PURPLE_GOAL):
            goal = tag
        if abs(ny) < 0.5:  # a goal's floor is below, and heights are locked
            arm = (-distance * nx, 0.0, -distance * nz)
            static, normal = the_ball + 1, (nx, ny, nz)
            n = touch_at(contacts, n, i, static, normal, gap, arm, _CENTER, MU, bounce)
    return goal, n


@inlined
def _touch_bodies(
    contacts: Contacts, n: int, body: Floats, gaps: Floats, points: Floats
) -> int:
    """Find the contacts of players and ball with each other, in the middle of gap or overlap."""
    the_ball = len(body) - 1
    for i in range(the_ball):
        for k in range(i + 1, the_ball + 1):
            dx = body[i, X] - body[k, X]
            dz = body[i, Z] - body[k, Z]
            is_ball = k == the_ball
            radius = BALL_RADIUS_M if is_ball else PLAYER_RADIUS_M
            bounce = BOUNCE if is_ball else 0.0
            distance = math.sqrt(dx * dx + dz * dz)
            gap = distance - PLAYER_RADIUS_M - radius
            if k == the_ball:
                gaps[i] = gap
            if gap >= TOUCH_M:
                continue
            # Bodies in the very same place are parted along x: any direction will do.
            nx, nz = 1.0, 0.0
            if distance > 0.0:
                nx = dx / distance
                nz = dz / distance
            reach_i = PLAYER_RADIUS_M + 0.5 * gap
            reach_k = radius + 0.5 * gap
            arm_i = (-reach_i * nx, 0.0, -reach_i * nz)
            arm_k = (reach_k * nx, 0.0, reach_k * nz)
            if k == the_ball:
                points[i, 0] = body[i, X] + arm_i[0]
                points[i, 1] = body[i, Z] + arm_i[2]
            normal = (nx, 0.0, nz)
            n = touch_at(contacts, n, i, k, normal, gap, arm_i, arm_k, MU, bounce)
    return n
