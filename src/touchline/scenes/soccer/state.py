"""The state of a soccer field as a critic sees it: everything that moves, from one player's side.

Rays show a player some of this, and coarsely. A value function that sees all of it foresees more of
a game's result, and less is left to chance in what it teaches (`docs/lab_log.md`, 2026-11-23).
"""

import math

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled
from touchline.physics.shapes import Floats, X, Z
from touchline.scenes.soccer.field import PURPLE

# Everything is in units of these, so that it is about as spread as a standard normal.
LENGTH_M, WIDTH_M, NEAR_M = 8.0, 4.0, 5.0
SPEED_MPS, STRONG_MPS = 8.0, 10.0
LONG_STEPS = 1000.0


def state_size(num_players: int) -> int:
    """How many numbers describe a field: 7 for each player, 6 for the ball, its kick, the time."""
    return 7 * num_players + 6 + 2 + 1


def team_first(teams: NDArray[np.intp]) -> NDArray[np.intp]:
    """[P, P] for each player: itself, then its team, then the others, in the field's order."""
    players = np.arange(len(teams))
    return np.array(
        [
            sorted(players, key=lambda k: (k != i, teams[k] != teams[i], k))
            for i in players
        ]
    )


@compiled
def write_state(
    agents: NDArray[np.intp],
    order: NDArray[np.intp],
    teams: NDArray[np.intp],
    rounds: Floats,
    velocity: Floats,
    yaw: Floats,
    kick: Floats,
    timer: NDArray[np.int32],
    state: NDArray[np.float32],
) -> None:
    """Write a row of `state` [N, size] for each of these agents; other arrays as in `Soccer`.

    For each player of `order`: its place, its velocity, where it faces and how far the ball is.
    Then the ball: from the agent, its place and its velocity; the kick that it gets next, and the
    time. Purple sees the field turned by half, so that both teams attack towards +x.
    """
    num_players = len(teams)
    the_ball = num_players
    for row in range(len(agents)):
        area, own = agents[row] // num_players, agents[row] % num_players
        side = -1.0 if teams[own] == PURPLE else 1.0
        body, speed = rounds[area], velocity[area]
        ball_x, ball_z = body[the_ball, X], body[the_ball, Z]
        out = state[row]
        n = 0
        for i in order[own]:
            x, z = body[i, X], body[i, Z]
            out[n] = side * x / LENGTH_M
            out[n + 1] = side * z / WIDTH_M
            out[n + 2] = side * speed[i, 0] / SPEED_MPS
            out[n + 3] = side * speed[i, 2] / SPEED_MPS
            out[n + 4] = side * math.sin(yaw[area, i])
            out[n + 5] = side * math.cos(yaw[area, i])
            away_m = math.hypot(ball_x - x, ball_z - z)
            # Distances are positive: less a half, they spread around 0.
            out[n + 6] = away_m / LENGTH_M - 0.5
            n += 7
        out[n] = side * (ball_x - body[own, X]) / NEAR_M
        out[n + 1] = side * (ball_z - body[own, Z]) / NEAR_M
        out[n + 2] = side * ball_x / LENGTH_M
        out[n + 3] = side * ball_z / WIDTH_M
        out[n + 4] = side * speed[the_ball, 0] / SPEED_MPS
        out[n + 5] = side * speed[the_ball, 2] / SPEED_MPS
        out[n + 6] = side * kick[area, 0] / STRONG_MPS
        out[n + 7] = side * kick[area, 1] / STRONG_MPS
        out[n + 8] = timer[area] / LONG_STEPS
