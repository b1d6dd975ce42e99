"""What agents do: push, turn, shoot, and thaw."""

import math

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled
from touchline.physics.shapes import BOX_TAG, COS, HALF_X, SIN, Floats, X, Y, Z
from touchline.physics.sweeps import sweep_box, sweep_round
from touchline.physics.upright.balls import nearest_on_box
from touchline.scenes.grid_food_collector.court import (
    BEAM_M,
    COURT_M,
    FOOD,
    FOOD_RADIUS_M,
    TAG_AGENT,
    TAG_FROZEN,
    Courts,
)

PUSH_MPS = 2.0
"""Full deflection adds this much to the velocity at every physics step."""
TURN_RAD = math.radians(6.0)  # 300 degrees per second, for a step of 0.02 s
SHOOTING_PUSH = 0.5
SHOOTING_BRAKE = 0.75
# Not a limit: above 5 m/s the velocity is cut by 5 % in every step, and pushes add to it.
FAST_MPS = 5.0
FAST_BRAKE = 0.95
BEAM_RADIUS_M = 2.0
FROZEN_STEPS = 200  # 4 s


@compiled
def act(first: int, last: int, courts: Courts) -> None:
    """Let agents act one after another, as in Unity: a shot hits before the next agent acts."""
    for a in range(first, last):
        # All thaw before any acts, or a shot of this round would lose a step for some.
        for g in range(courts.agent.shape[1]):
            courts.frozen[a, g] = max(courts.frozen[a, g] - 1, 0)
            if courts.frozen[a, g] == 0:
                courts.agent[a, g, BOX_TAG] = TAG_AGENT
        for g in range(courts.agent.shape[1]):
            v = courts.velocity[a, g]
            courts.shooting[a, g] = False
            if courts.frozen[a, g] == 0:
                _act_one(a, g, courts)
            square = v[0] * v[0] + v[1] * v[1] + v[2] * v[2]
            if square > FAST_MPS * FAST_MPS:
                for k in range(3):
                    v[k] *= FAST_BRAKE
            if courts.shooting[a, g]:
                _shoot(courts.agent[a], courts.food[a], g, courts.frozen[a])


@compiled
def _act_one(a: int, g: int, courts: Courts) -> None:
    """Execute the action of agent g of court a: push, turn, and mark a shot."""
    me = courts.agent[a, g]
    v = courts.velocity[a, g]
    push = courts.push[a, g]
    ahead = min(max(float(courts.continuous[a, g, 0]), -1.0), 1.0)
    right = min(max(float(courts.continuous[a, g, 1]), -1.0), 1.0)
    left_turn = min(max(float(courts.continuous[a, g, 2]), -1.0), 1.0)
    strength = PUSH_MPS
    if courts.discrete[a, g, 0] > 0:
        courts.shooting[a, g] = True
        strength *= SHOOTING_PUSH
        for k in range(3):
            v[k] *= SHOOTING_BRAKE
    # By the facing before this step's turn.
    along_x = ahead * me[SIN] + right * me[COS]
    along_z = ahead * me[COS] - right * me[SIN]
    push[0] += strength * along_x
    push[1] += strength * along_z
    courts.yaw[a, g] -= TURN_RAD * left_turn
    me[COS] = math.cos(courts.yaw[a, g])
    me[SIN] = math.sin(courts.yaw[a, g])


@compiled
def _shoot(agent: Floats, food: Floats, g: int, frozen: NDArray[np.int64]) -> None:
    """Freeze the first agent in the beam of agent g of one court."""
    # The beam is the way of a ball. What that ball overlaps at its start does not count.
    me = agent[g]
    way_m, hit = BEAM_M, -1
    for k in range(len(agent)):
        other = agent[k]
        # Unity's SphereCast does not report what the sphere overlaps where it starts.
        if k == g:
            continue
        distance = nearest_on_box(me[X], me[Y], me[Z], other)[0]
        if distance <= BEAM_RADIUS_M:
            continue
        way_to_m = _way_to_agent(me, other)
        if way_to_m < way_m:
            way_m, hit = way_to_m, k
    # A frozen agent has another tag: it stops the beam, and its time is not renewed.
    if hit < 0 or agent[hit, BOX_TAG] != TAG_AGENT:
        return
    if _is_blocked(me, food, way_m):
        return
    agent[hit, BOX_TAG] = TAG_FROZEN
    frozen[hit] = FROZEN_STEPS


@compiled
def _way_to_agent(me: Floats, other: Floats) -> float:
    """How far the beam's ball travels until it touches another agent's cube, m, or inf."""
    dx = me[SIN]
    dz = me[COS]
    wx = me[X] - other[X]
    wy = me[Y] - other[Y]
    wz = me[Z] - other[Z]
    c = other[COS]
    s = other[SIN]
    half = other[HALF_X]
    return sweep_box(
        (wx * c - wz * s, wy, wx * s + wz * c),
        (dx * c - dz * s, 0.0, dx * s + dz * c),
        (half, half, half),
        BEAM_RADIUS_M,
    )


@compiled
def _is_blocked(me: Floats, food: Floats, way_m: float) -> bool:
    """Whether food or a wall stops the beam before it has travelled this far."""
    dx = me[SIN]
    dz = me[COS]
    reach = BEAM_RADIUS_M + FOOD_RADIUS_M
    for k in range(FOOD):
        wx = me[X] - food[k, X]
        wy = me[Y] - food[k, Y]
        wz = me[Z] - food[k, Z]
        if wx * wx + wy * wy + wz * wz <= reach * reach:
            continue  # overlapped at the start
        if sweep_round((wx, wy, wz), (dx, 0.0, dz), reach, 0.0) < way_m:
            return True
    # The walls are one collider: within 2 m of any of them, none stops the beam.
    edge = COURT_M - BEAM_RADIUS_M
    if max(abs(me[X]), abs(me[Z])) < edge:
        # A beam along one pair of walls never meets them. copysign gives how far the agent is on
        # the beam's side of the middle, negative on the other.
        if abs(dx) > 1e-9:
            left_x = edge - math.copysign(me[X], me[X] * dx)
            if left_x / abs(dx) < way_m:
                return True
        if abs(dz) > 1e-9:
            left_z = edge - math.copysign(me[Z], me[Z] * dz)
            if left_z / abs(dz) < way_m:
                return True
    return False
