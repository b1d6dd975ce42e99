"""What stands in an area, and how the agent moves: pushes, jumps, rounds up to the goal or a fall.

What is below a body, rays and boxes cast downwards find out, as Unity's script does.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled
from touchline.physics.shapes import (
    COS,
    HALF_X,
    HALF_Y,
    HALF_Z,
    SIN,
    Floats,
    X,
    Y,
    Z,
    box,
    boxes,
)
from touchline.physics.upright.boxes import Boxes, box_gap, step_areas
from touchline.physics.world import DT_S
from touchline.scenes.academy import Agents
from touchline.scenes.cube_agents import turn_to
from touchline.scenes.random import StreamArrays, draw

TAGS = ["wall", "goal", "block", "walkableSurface"]
GROUND, GOAL = 0, 1
FIXED = boxes(
    box((0.0, -0.05, -4.0), (21.0, 1.0, 21.0), TAGS.index("walkableSurface")),
    # A trigger: it holds nothing up.
    box((6.37, 2.99, 2.93), (4.0, 5.0, 4.0), TAGS.index("goal")),
)
GROUND_CENTER_M = (0.0, 0.0, -4.0)
"""The agent observes its place relative to this."""

AGENT, BLOCK, WALL_BOX = 0, 1, 2
START_SPREAD_X_M, START_Y_M, START_Z_M = 9.0, 1.0, -12.0
BLOCK_M, BLOCK_SPREAD_M = (0.0, 1.5, -6.27), (8.1, 3.5)
"""The block's center, and how far it starts from there along x and z."""
CONFIGURATIONS = 5
"""Unity draws one of these per episode."""

DEEP_M = 20.0
"""No collider within this distance below: fallen off."""


@compiled
def stands(fixed: Floats, shapes: Floats) -> bool:
    """Whether the agent has something to stand on within a meter of just below its center."""
    x = shapes[AGENT, X]
    y = shapes[AGENT, Y] - 0.05
    z = shapes[AGENT, Z]
    return (
        _top_below(fixed[GROUND], x, y, z, 1.0)
        or _top_below(shapes[BLOCK], x, y, z, 1.0)
        or _top_below(shapes[WALL_BOX], x, y, z, 1.0)
    )


@compiled
def has_ground(fixed: Floats, shapes: Floats) -> bool:
    """Whether the agent's foot touches something: its own box, a little lower and narrower."""
    agent = shapes[AGENT]
    y = agent[Y]
    half_x = agent[HALF_X]
    half_z = agent[HALF_Z]
    # 0.05 and 0.95 of a meter: the script's Physics.OverlapBox. The agent's own row is used and
    # put back, since kernels make no arrays.
    agent[Y] -= 0.05
    agent[HALF_X] = agent[HALF_Z] = 0.475
    touches = (
        box_gap(agent, fixed[GROUND])[0] < 0.0
        or box_gap(agent, shapes[BLOCK])[0] < 0.0
        or box_gap(agent, shapes[WALL_BOX])[0] < 0.0
    )
    agent[Y] = y
    agent[HALF_X] = half_x
    agent[HALF_Z] = half_z
    return touches


@compiled
def has_fallen(fixed: Floats, shapes: Floats, but: int) -> bool:
    """Whether the agent has nothing at all below it, or the block nothing `but` this shape."""
    return not (
        _is_above(fixed, shapes, AGENT, AGENT) and _is_above(fixed, shapes, BLOCK, but)
    )


@compiled
def _is_above(fixed: Floats, shapes: Floats, body: int, but: int) -> bool:
    """Whether any box, `but` one of the shapes, lies below a body's center."""
    x = shapes[body, X]
    y = shapes[body, Y]
    z = shapes[body, Z]
    found = False
    for k in range(len(fixed)):
        found = found or _top_below(fixed[k], x, y, z, DEEP_M)
    for k in range(len(shapes)):
        if k != but:
            found = found or _top_below(shapes[k], x, y, z, DEEP_M)
    return found


@compiled
def _top_below(shape: Floats, x: float, y: float, z: float, depth_m: float) -> bool:
    """Whether a ray straight down from a point hits this box's top; one from within does not."""
    wx = x - shape[X]
    wz = z - shape[Z]
    lx = wx * shape[COS] - wz * shape[SIN]
    lz = wx * shape[SIN] + wz * shape[COS]
    top = shape[Y] + shape[HALF_Y]
    return bool(
        abs(lx) <= shape[HALF_X]
        and abs(lz) <= shape[HALF_Z]
        and y - depth_m <= top <= y
    )


STEP_REWARD = -0.0005
RUN_SPEED_MPS = 3.0
SIDEWAYS = 0.6
IN_THE_AIR = 0.5
TURN_RAD = math.radians(300.0) * DT_S
FALLING_MPS2 = 111.0
"""Pulls down an agent that is neither jumping nor on something, on top of gravity."""
JUMP_STEPS = 10
JUMP_HEIGHT_M = 2.75
JUMP_GAIN_PER_S = 777.0 * DT_S
JUMP_CHANGE_MPS = 10.0

PLACE_SCALE_M = 20.0
"""Observed places are in this unit."""


class Game(NamedTuple):
    """What the rounds of A areas read and write, for kernels."""

    discrete: NDArray[np.int32]
    """[A, 1, 4] stored actions."""
    reward: NDArray[np.float32]
    jump_steps: NDArray[np.int64]
    """[A] steps for which the running jump lasts."""
    jump_from_m: Floats
    """[A] height at which it began."""
    fallen: NDArray[np.bool_]
    """[A] whether agent or block has nothing below it."""
    in_goal: NDArray[np.bool_]
    """[A] whether the agent stands within the goal."""
    world: Boxes


@compiled
def place(
    areas: Agents,
    streams: StreamArrays,
    shapes: Floats,
    velocity: Floats,
    configuration: NDArray[np.int64],
) -> None:
    """Put block and agent somewhere on their side, at rest but for spin; draws the next wall."""
    for area in areas:
        u, v, w, wall = draw(streams, area)
        block = shapes[area, BLOCK]
        agent = shapes[area, AGENT]
        block[X] = BLOCK_M[0] + BLOCK_SPREAD_M[0] * (2.0 * u - 1.0)
        block[Z] = BLOCK_M[2] + BLOCK_SPREAD_M[1] * (2.0 * v - 1.0)
        agent[X] = START_SPREAD_X_M * (2.0 * w - 1.0)
        agent[Y] = START_Y_M
        agent[Z] = START_Z_M
        velocity[area, BLOCK] = 0.0
        velocity[area, AGENT, :3] = 0.0
        configuration[area] = int(CONFIGURATIONS * wall)


@compiled
def observe_place(agents: Agents, world: Boxes, place: NDArray[np.float32]) -> None:
    """Fill `place` [K, 4]: relative to the ground, and whether the agent stands on something."""
    ground_x, ground_y, ground_z = GROUND_CENTER_M
    for row in range(len(agents)):
        shapes = world.boxes[agents[row]]
        body = shapes[AGENT]
        place[row, 0] = (body[X] - ground_x) / PLACE_SCALE_M
        place[row, 1] = (body[Y] - ground_y) / PLACE_SCALE_M
        place[row, 2] = (body[Z] - ground_z) / PLACE_SCALE_M
        place[row, 3] = 1.0 if stands(world.fixed, shapes) else 0.0


@compiled
def play_rounds(first: int, last: int, most: int, game: Game) -> int:
    """Play rounds, from the first one's physics on; returns how many.

    Until an agent stands within the goal, or before a round in which something may have fallen.
    """
    for played in range(1, most + 1):
        if played > 1:
            act(first, last, game)
        step_areas(first, last, game.world)
        if _find_in_goal(first, last, game):
            return played
        if played < most:
            # Acting moves nothing, but it turns the agent, on which a block may stand: so the
            # agent does not count as something below a block.
            for area in range(first, last):
                if has_fallen(game.world.fixed, game.world.boxes[area], AGENT):
                    return played
    return most


@compiled
def find_fallen(first: int, last: int, game: Game) -> None:
    """Mark the areas whose agent or block has fallen."""
    for area in range(first, last):
        game.fallen[area] = has_fallen(game.world.fixed, game.world.boxes[area], BLOCK)


@compiled
def _find_in_goal(first: int, last: int, game: Game) -> bool:
    """Mark the areas whose agent stands within the goal; returns whether there are any."""
    goal = game.world.fixed[GOAL]
    found = False
    for area in range(first, last):
        agent = game.world.boxes[area, AGENT]
        game.in_goal[area] = (
            # A cheap test first: most agents are far from the goal.
            abs(agent[X] - goal[X]) < goal[HALF_X] + 1.0
            and box_gap(agent, goal)[0] < 0.0
            and stands(game.world.fixed, game.world.boxes[area])
        )
        found = found or game.in_goal[area]
    return found


@compiled
def act(first: int, last: int, game: Game) -> None:
    """Let every agent pay for the step, and jump, turn and push by its action."""
    world = game.world
    for area in range(first, last):
        game.reward[area, 0] += np.float32(STEP_REWARD)
        ahead, turn, side, jump = game.discrete[area, 0]
        shapes = world.boxes[area]
        speed = world.velocity[area, AGENT]
        body = shapes[AGENT]
        # Two tests of Unity's script: a ray from the center allows a jump, the foot's box
        # decides about speed and fall.
        can_jump = stands(world.fixed, shapes)
        on_something = has_ground(world.fixed, shapes)

        share = 1.0 if on_something else IN_THE_AIR
        cos = body[COS]
        sin = body[SIN]
        mx, mz = 0.0, 0.0
        if side != 0:
            # Sideways wins over ahead: the script overwrites one with the other.
            share *= -SIDEWAYS if side == 1 else SIDEWAYS
            mx, mz = share * cos, -share * sin
        elif ahead != 0:
            share *= 1.0 if ahead == 1 else -1.0
            mx, mz = share * sin, share * cos

        if jump == 1 and game.jump_steps[area] <= 0 and can_jump:
            game.jump_steps[area] = JUMP_STEPS
            game.jump_from_m[area] = body[Y]
        if turn != 0:
            change = -TURN_RAD if turn == 1 else TURN_RAD
            yaw = world.yaw[area]
            turn_to(yaw[AGENT] + change, AGENT, shapes, yaw)
        if game.jump_steps[area] > 0:
            _jump(game.jump_from_m[area], body[Y], mx, mz, speed)
        elif not on_something:
            speed[1] -= FALLING_MPS2 * DT_S
        speed[0] += RUN_SPEED_MPS * mx
        speed[2] += RUN_SPEED_MPS * mz
        game.jump_steps[area] = max(game.jump_steps[area] - 1, 0)


@compiled
def _jump(from_m: float, height_m: float, mx: float, mz: float, speed: Floats) -> None:
    """Pull a jumping agent's velocity towards the jump's, by a limited change per step."""
    wx = JUMP_GAIN_PER_S * mx - speed[0]
    wy = JUMP_GAIN_PER_S * (from_m + JUMP_HEIGHT_M - height_m) - speed[1]
    wz = JUMP_GAIN_PER_S * mz - speed[2]
    length = math.sqrt(wx * wx + wy * wy + wz * wz)
    part = JUMP_CHANGE_MPS / length if length > JUMP_CHANGE_MPS else 1.0
    speed[0] += part * wx
    speed[1] += part * wy
    speed[2] += part * wz
