"""One round of a block of agents: physics, targets, ends and rewards; and where a reset puts them.

Kernels work on blocks of 16 agents (`lanes`), because threads share the agents by blocks. Rewards
belong to the same kernel: agents are paid while their block's numbers are still in the processor's
cache, and a round is handed to threads only once.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled
from touchline.physics.ragdoll.lanes import (
    LANES,
    conjugate,
    minus,
    multiply,
    plus,
    rotate,
)
from touchline.physics.ragdoll.records import Work
from touchline.physics.ragdoll.world import Model, State, step_block
from touchline.physics.shapes import Floats
from touchline.scenes.academy import Agents
from touchline.scenes.ragdolls.walk import (
    TargetPlace,
    Walk,
    angle_deg,
    match_speed,
    move_target,
    turn_cube,
)
from touchline.scenes.random import StreamArrays
from touchline.sensors.body import forward_of, mean_velocity, turn_of, vector_of

FARTHEST_M = 2000.0
"""A body farther than this from its start, or not finite, has left the world."""
FELL, DROPPED, LOST = 1, 2, 3
"""Why an episode ends: a part touched the ground, the root fell off it, the state broke."""


class Rules(NamedTuple):
    """What decides the ends of episodes, and where targets appear."""

    reactive: NDArray[np.bool_]
    """[B] the parts that move the target by touching it"""
    deadly: NDArray[np.bool_]
    """[B] the parts that may not touch the ground"""
    dropped_below_m: float
    """The height of the root at which an episode ends"""
    place: TargetPlace


class Rewarded(NamedTuple):
    """What a round is paid for: the speed of some parts, and where one of them faces."""

    parts: int
    """The mean velocity of the first so many parts counts."""
    facing: int
    """The part that should face the target."""
    turned_away_deg: float = 0.0
    """There is no reward beyond this angle between the root and the target, and its share falls
    evenly up to there. 0: the share is half of 1 + the cosine of the level angle of `facing`."""


class Game(NamedTuple):
    """All that a round of N agents reads and writes, but for streams and rewards."""

    model: Model
    state: State
    work: Work
    walk: Walk
    rules: Rules
    rewarded: Rewarded


class Start(NamedTuple):
    """The pose of a reset, and room to work it out."""

    position: Floats
    """[B, 3] facing along z"""
    rotation: Floats
    """[B, 4]"""
    carried: NDArray[np.bool_]
    """[B] the parts that a reset moves along with the root but does not stop"""
    new_position: Floats
    """[B, 3] one agent's, before it is turned"""
    new_rotation: Floats


@compiled
def play_blocks(
    first: int,
    last: int,
    game: Game,
    streams: StreamArrays,
    reward: NDArray[np.float32],
) -> None:
    """A round of the agents of these blocks, with rewards but for those whose episodes end.

    Writes into `walk.ended` who ends.
    """
    rules, state, walk = game.rules, game.state, game.walk
    for block in range(first, last):
        step_block(block, first, game.model, state, game.work)
        # The last block may have fewer than 16 agents.
        for agent in range(block * LANES, min((block + 1) * LANES, len(reward))):
            move_target(
                agent,
                game.model.parts,
                rules.reactive,
                state,
                walk.target,
                rules.place,
                streams,
            )
            walk.ended[agent] = _why_it_ends(agent, state, rules)
            if walk.ended[agent] == 0:
                _reward(agent, state, walk, game.rewarded, reward)


@compiled
def reward_agents(
    agents: Agents,
    state: State,
    walk: Walk,
    rewarded: Rewarded,
    reward: NDArray[np.float32],
) -> None:
    """Turn the orientation cubes of K agents, and add the rewards of a round."""
    for agent in agents:
        _reward(agent, state, walk, rewarded, reward)


@compiled
def _reward(
    agent: int,
    state: State,
    walk: Walk,
    rewarded: Rewarded,
    reward: NDArray[np.float32],
) -> None:
    """How well the velocity matches the goal's, times how well the body faces the target."""
    turn_cube(state, walk, agent)
    velocity = mean_velocity(state.velocity[agent], rewarded.parts)
    match = match_speed(velocity, walk, agent)
    if rewarded.turned_away_deg > 0.0:
        angle = angle_deg(state, walk, agent)
        share = 1.0 - angle / 180.0 if angle < rewarded.turned_away_deg else 0.0
        reward[agent, 0] += match * share
    else:
        # The height is left out, and the rest is not made longer for it.
        forward = forward_of(turn_of(state.rotation[agent, rewarded.facing]))
        cosine = forward[0] * walk.ahead[agent, 0] + forward[2] * walk.ahead[agent, 1]
        reward[agent, 0] += match * 0.5 * (cosine + 1.0)


@compiled
def _why_it_ends(agent: int, state: State, rules: Rules) -> int:
    """FELL, DROPPED, LOST, or 0 where the episode continues."""
    why = 0
    # Later reasons win: what is lost must be restored, whatever else has happened.
    for i in range(len(rules.deadly)):
        if rules.deadly[i] and state.touching[agent, i]:
            why = FELL
    if state.position[agent, 0, 1] < rules.dropped_below_m:
        why = DROPPED
    for i in range(len(rules.deadly)):
        for k in range(3):
            # A comparison with NaN is False.
            is_near = abs(state.position[agent, i, k]) < FARTHEST_M
            velocity = state.velocity[agent, i, k]
            spin = state.spin[agent, i, k]
            speed = abs(velocity) + abs(spin)
            if not (is_near and speed < np.inf):
                why = LOST
    return why


@compiled
def put_back(
    agents: Agents, yaw: Floats, start: Start, state: State, walk: Walk
) -> None:
    """Put ragdolls back to their start, turned by `yaw` [K] rad; drives keep their targets."""
    for k in range(len(agents)):
        find_start(agents[k], start, state)
        stand(agents[k], yaw[k], start, state, walk)


@compiled
def find_start(agent: int, start: Start, state: State) -> None:
    """The pose of an agent's reset, facing along z, into `new_position` and `new_rotation`."""
    root = vector_of(state.position[agent, 0])
    back = conjugate(turn_of(state.rotation[agent, 0]))
    new_root = vector_of(start.position[0])
    new_turn = turn_of(start.rotation[0])
    for i in range(len(start.carried)):
        at = vector_of(start.position[i])
        turn = turn_of(start.rotation[i])
        if start.carried[i]:
            # It follows the root's transform: where it was, seen from that, it stays.
            old = minus(vector_of(state.position[agent, i]), root)
            at = plus(new_root, rotate(new_turn, rotate(back, old)))
            kept = multiply(back, turn_of(state.rotation[agent, i]))
            turn = multiply(new_turn, kept)
        start.new_position[i] = at
        start.new_rotation[i] = turn


@compiled
def stand(agent: int, yaw: float, start: Start, state: State, walk: Walk) -> None:
    """Give an agent the new pose, turned about its root, with nothing left of what was before."""
    facing = (0.0, math.sin(0.5 * yaw), 0.0, math.cos(0.5 * yaw))
    root = vector_of(start.position[0])
    for i in range(len(start.carried)):
        arm = minus(vector_of(start.new_position[i]), root)
        at = plus(root, rotate(facing, arm))
        turn = multiply(facing, turn_of(start.new_rotation[i]))
        state.position[agent, i] = at
        state.rotation[agent, i] = turn
        if not start.carried[i]:
            state.velocity[agent, i] = 0.0
            state.spin[agent, i] = 0.0
        # Friction anchors and touches belong to where the body was before.
        state.anchors.number[agent, i] = 0
        state.touching[agent, i] = False
    turn_cube(state, walk, agent)
