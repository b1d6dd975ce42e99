"""How players and ball move: places, pushes, kicks, and the fast ball that must not pass a wall.

`contacts` finds what touches what, `upright` solves it.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, inlined, makes_arrays
from touchline.physics.shapes import COS, HALF_X, HALF_Y, HALF_Z, SIN, Floats, X, Y, Z
from touchline.physics.sweeps import sweep_box
from touchline.physics.upright.balls import nearest_on_box
from touchline.physics.upright.contacts import TOUCH_M, Contacts, new_records
from touchline.physics.upright.solve import solve
from touchline.physics.world import DT_S, MAX_SPIN
from touchline.scenes.random import StreamArrays, draw
from touchline.scenes.soccer.contacts import touch
from touchline.scenes.soccer.field import (
    BALL_DRAG,
    BALL_KG,
    BALL_RADIUS_M,
    BALL_SPIN_DRAG,
    BALL_SPREAD_M,
    BOUNCE,
    HEIGHT_M,
    PLAYER_DRAG,
    PLAYER_KG,
    PLAYER_RADIUS_M,
    PURPLE,
    START_SHIFT_M,
    START_SPREAD_M,
    START_YAW_DEG,
)

BALL_INERTIA = 0.4 * BALL_KG * BALL_RADIUS_M**2  # a solid ball: 2/5 m r²
# AgentSoccer.cs: a kick is a force of 2000 N (k_Power), which acts for one step.
KICK_MPS = 2000.0 * DT_S / BALL_KG
TURN_RAD = math.radians(100.0) * DT_S  # AgentSoccer.cs: 100 degrees per second

_TEAM, _START_X, _START_Z, _AHEAD, _SIDEWAYS, _ALWAYS_KICKS, _STEP_REWARD = range(7)
"""Columns of `Fields.players`."""


class Fields(NamedTuple):
    """What the rounds of A fields with P players and a ball each read and write, for kernels."""

    discrete: NDArray[np.int32]
    """[A, P, 3] stored actions."""
    reward: NDArray[np.float32]
    players: Floats
    """[P, 7] the fields of `Player` after the behavior."""
    field: Floats
    """[walls, 9] the boxes around every field."""
    gravity: Floats
    """[A] m/s²"""
    touch_reward: Floats
    """[A] the reward of each touch of the ball."""
    progress_reward: Floats
    """[A] the reward of each meter by which the ball comes nearer to the other team's goal."""
    inverse: Floats
    """[P + 2, 6] inverse masses; the last row never moves."""
    rounds: Floats
    """[A, P + 1, 6] the players, then the ball."""
    yaw: Floats
    """[A, P] rad"""
    velocity: Floats
    """[A, P + 2, 6]"""
    kick: Floats
    """[A, 2] what the ball gets in the next step, x and z, m/s."""
    touching: NDArray[np.bool_]
    """[A, P] whether a player touched the ball in the last step."""
    goal: NDArray[np.int8]
    """[A] the tag of the goal that the ball touches, or 0."""


def inverse_masses(num_players: int) -> Floats:
    """`Fields.inverse`: players and ball move in the plane, the ball rolls."""
    # An inverse mass of 0 locks an axis: heights of all bodies, and the players' rotations.
    inverse = np.zeros((num_players + 2, 6))
    inverse[:num_players, [0, 2]] = 1.0 / PLAYER_KG
    inverse[num_players, [0, 2]] = 1.0 / BALL_KG
    inverse[num_players, 3:] = 1.0 / BALL_INERTIA
    return inverse


@compiled
def place(areas: NDArray[np.intp], streams: StreamArrays, fields: Fields) -> None:
    """Put players on their halves, facing the other goal, and the ball near the middle, at rest."""
    players = fields.players
    the_ball = len(players)
    low, high = START_YAW_DEG
    for area in areas:
        shapes = fields.rounds[area]
        fields.velocity[area] = 0.0
        for i in range(the_ball):
            side = 1.0 if players[i, _TEAM] == PURPLE else -1.0
            u, v, _, _ = draw(streams, area)
            behind = players[i, _START_X] + side * START_SHIFT_M
            shapes[i, X] = behind + START_SPREAD_M * (2.0 * u - 1.0)
            shapes[i, Z] = players[i, _START_Z]
            yaw_deg = low + (high - low) * v
            # Purple starts at +x and faces -x, so its yaw is mirrored.
            fields.yaw[area, i] = -side * math.radians(yaw_deg)
        u, v, _, _ = draw(streams, area)
        shapes[the_ball, X] = BALL_SPREAD_M * (2.0 * u - 1.0)
        shapes[the_ball, Z] = BALL_SPREAD_M * (2.0 * v - 1.0)


@compiled
def play_rounds(first: int, last: int, most: int, fields: Fields) -> int:
    """Play rounds, from the first one's physics on, until a goal falls; returns how many."""
    # The caller has executed the actions of the first round.
    for played in range(1, most + 1):
        if played > 1:
            act(first, last, fields)
        _step(first, last, fields)
        for area in range(first, last):
            if fields.goal[area] != 0:
                return played
    return most


@compiled
def act(first: int, last: int, fields: Fields) -> None:
    """Reward every player for the step, push it where it faces, then turn it."""
    for area in range(first, last):
        for i in range(len(fields.players)):
            fields.reward[area, i] += np.float32(fields.players[i, _STEP_REWARD])
            ahead, side, turn = fields.discrete[area, i]
            if ahead != 0 or side != 0:
                _push(
                    fields.players[i],
                    ahead,
                    side,
                    fields.yaw[area, i],
                    fields.velocity[area, i],
                )
            if turn != 0:
                # A teleport, as in Unity's script: transform.Rotate gives no spin.
                fields.yaw[area, i] += -TURN_RAD if turn == 1 else TURN_RAD


@inlined
def _push(player: Floats, ahead: int, side: int, yaw: float, speed: Floats) -> None:
    cos = math.cos(yaw)
    sin = math.sin(yaw)
    if side != 0:
        push = player[_SIDEWAYS] if side == 1 else -player[_SIDEWAYS]
        speed[0] += push * cos
        speed[2] -= push * sin
    else:
        push = player[_AHEAD] if ahead == 1 else -player[_AHEAD]
        speed[0] += push * sin
        speed[2] += push * cos


@makes_arrays
def _step(first: int, last: int, fields: Fields) -> None:
    """One time step of these areas."""
    count = len(fields.players)
    moving = np.zeros_like(fields.inverse)
    gaps = np.zeros(count)
    points = np.zeros((count, 2))
    _step_each(first, last, fields, new_records(), moving, gaps, points)


@compiled
def _step_each(
    first: int,
    last: int,
    fields: Fields,
    records: NDArray[np.void],
    moving: Floats,
    gaps: Floats,
    points: Floats,
) -> None:
    field = fields.field
    the_ball = len(fields.players)
    for area in range(first, last):
        body = fields.rounds[area]
        speed = fields.velocity[area]
        slow_down(speed, fields.kick[area])
        contacts = Contacts(records, speed, fields.inverse)
        fields.goal[area], n = touch(
            contacts, field, fields.gravity[area], body, gaps, points
        )
        solve(contacts, n, moving)
        ball_x = body[the_ball, X]
        for i in range(the_ball + 1):
            # Only the ball's material bounces.
            is_ball = i == the_ball
            radius = BALL_RADIUS_M if is_ball else PLAYER_RADIUS_M
            bounce = BOUNCE if is_ball else 0.0
            travel(field, body[i], speed[i], moving[i], radius, bounce)
        _reward_progress(area, fields, body[the_ball, X] - ball_x)
        _kick(area, fields, gaps, points)


@inlined
def _reward_progress(area: int, fields: Fields, towards_purple_m: float) -> None:
    """Pay each player for how far the ball moved towards the goal that it attacks."""
    # A difference of potentials (Ng, Harada and Russell 1999, without their discount): what one
    # team gets the other one loses, and over a game it adds up to where the ball ends.
    reward = fields.progress_reward[area] * towards_purple_m
    for i in range(len(fields.players)):
        is_purple = fields.players[i, _TEAM] == PURPLE
        fields.reward[area, i] += -reward if is_purple else reward


@inlined
def _kick(area: int, fields: Fields, gaps: Floats, points: Floats) -> None:
    """Reward touches of the ball that begin, and set what they kick in the next step."""
    kick = fields.kick[area]
    body = fields.rounds[area]
    kick[:] = 0.0
    for i in range(len(fields.players)):
        touches = gaps[i] < TOUCH_M
        begins = touches and not fields.touching[area, i]
        fields.touching[area, i] = touches
        if not begins:
            continue
        fields.reward[area, i] += fields.touch_reward[area]
        if fields.players[i, _ALWAYS_KICKS] > 0.0 or fields.discrete[area, i, 0] == 1:
            # From where the player is now to where they met: at speed, well off the line of
            # centers.
            dx = points[i, 0] - body[i, X]
            dz = points[i, 1] - body[i, Z]
            length = math.sqrt(dx * dx + dz * dz)
            # Two players may kick at once: in Unity both forces add up.
            if length > 0.0:
                kick[0] += KICK_MPS * dx / length
                kick[1] += KICK_MPS * dz / length


@compiled
def slow_down(speed: Floats, kick: Floats) -> None:
    """Apply drag, and the kick of the step before, to the velocities of one field."""
    the_ball = len(speed) - 2
    keep = 1.0 - PLAYER_DRAG * DT_S
    for i in range(the_ball):
        speed[i, 0] *= keep
        speed[i, 2] *= keep
    keep = 1.0 - BALL_DRAG * DT_S
    # PhysX adds a step's forces first and slows the sum: drag takes its share of the kick, too.
    speed[the_ball, 0] = keep * (speed[the_ball, 0] + kick[0])
    speed[the_ball, 2] = keep * (speed[the_ball, 2] + kick[1])
    spin = 0.0
    for k in range(3, 6):
        speed[the_ball, k] *= 1.0 - BALL_SPIN_DRAG * DT_S
        spin += speed[the_ball, k] ** 2
    if spin > MAX_SPIN**2:
        for k in range(3, 6):
            speed[the_ball, k] *= MAX_SPIN / math.sqrt(spin)


@inlined
def travel(
    field: Floats,
    body: Floats,
    speed: Floats,
    moving: Floats,
    radius: float,
    bounce: float,
) -> None:
    """Move one body; one that would go further than its radius into a wall rebounds there."""
    # This is Unity's continuous collision detection: slower bodies do sink in, and the next
    # contacts push them out.
    dx = moving[0] * DT_S
    dz = moving[2] * DT_S
    length = math.sqrt(dx * dx + dz * dz)
    if length > radius:
        ux, uz = dx / length, dz / length
        best, mx, mz = length, 0.0, 0.0
        for k in range(len(field)):
            wall = field[k]
            wx = body[X] - wall[X]
            wz = body[Z] - wall[Z]
            px = wx * wall[COS] - wz * wall[SIN]
            pz = wx * wall[SIN] + wz * wall[COS]
            gx = max(abs(px) - wall[HALF_X], 0.0)
            gz = max(abs(pz) - wall[HALF_Z], 0.0)
            # The goals' floors: heights are locked, so nothing can run into them.
            is_below = HEIGHT_M - wall[Y] > wall[HALF_Y]
            if is_below or gx * gx + gz * gz <= radius * radius:
                continue  # or touched already: that is the contacts' business
            qx = ux * wall[COS] - uz * wall[SIN]
            qz = ux * wall[SIN] + uz * wall[COS]
            t = sweep_box(
                (px, 0.0, pz),
                (qx, 0.0, qz),
                (wall[HALF_X], wall[HALF_Y], wall[HALF_Z]),
                radius,
            )
            if t < best:
                _, nx, _, nz = nearest_on_box(
                    body[X] + t * ux, HEIGHT_M, body[Z] + t * uz, wall
                )
                # Only where it goes into the wall, and not along it, by more than its radius.
                if -(dx * nx + dz * nz) > radius:
                    best, mx, mz = t, nx, nz
        # Without a hit the normal is 0, and so is this.
        into = min(speed[0] * mx + speed[2] * mz, 0.0)
        speed[0] -= (1.0 + bounce) * into * mx
        speed[2] -= (1.0 + bounce) * into * mz
        dx, dz = best * ux, best * uz
    body[X] += dx
    body[Z] += dz
