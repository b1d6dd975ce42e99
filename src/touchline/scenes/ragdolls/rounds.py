"""One round of a block of agents: physics, targets, ends and rewards.

Kernels work on blocks of 16 agents (`lanes`), because threads share the agents by blocks. Rewards
belong to the same kernel: agents are paid while their block's numbers are still in the processor's
cache, and a round is handed to threads only once.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled
from touchline.physics.ragdoll.lanes import (
    LANES,
    turn_of,
)
from touchline.physics.ragdoll.records import Work
from touchline.physics.ragdoll.world import Model, State, step_block
from touchline.scenes.academy import Agents
from touchline.scenes.ragdolls.target import TargetPlace, move_target
from touchline.scenes.ragdolls.walk import Walk, angle_deg, match_speed, turn_cube
from touchline.scenes.random import StreamArrays
from touchline.sensors.body import forward_of, mean_velocity

FARTHEST_M = 2000.0
"""A body farther than this from its start, or not finite, has left the world."""
FELL, DROPPED, LOST = 1, 2, 3
"""Why an episode ends: a part touched the ground, the root fell off it, the state broke."""


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
    reactive: NDArray[np.bool_]
    """[B] the parts that move the target by touching it"""
    deadly: NDArray[np.bool_]
    """[B] the parts that may not touch the ground"""
    dropped_below_m: float
    """The height of the root at which an episode ends"""
    place: TargetPlace
    """Its targets' places"""
    rewarded: Rewarded


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
    state, walk = game.state, game.walk
    for block in range(first, last):
        step_block(block, first, game.model, state, game.work)
        # The last block may have fewer than 16 agents.
        for agent in range(block * LANES, min((block + 1) * LANES, len(reward))):
            move_target(
                agent,
                game.model.parts,
                game.reactive,
                state,
                walk.target,
                game.place,
                streams,
            )
            walk.ended[agent] = _why_it_ends(agent, game)
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
def _why_it_ends(agent: int, game: Game) -> int:
    """FELL, DROPPED, LOST, or 0 where the episode continues."""
    state = game.state
    why = 0
    # Later reasons win: what is lost must be restored, whatever else has happened.
    for i in range(len(game.deadly)):
        if game.deadly[i] and state.touching[agent, i]:
            why = FELL
    if state.position[agent, 0, 1] < game.dropped_below_m:
        why = DROPPED
    for i in range(len(game.deadly)):
        for k in range(3):
            # A comparison with NaN is False.
            is_near = abs(state.position[agent, i, k]) < FARTHEST_M
            velocity = state.velocity[agent, i, k]
            spin = state.spin[agent, i, k]
            speed = abs(velocity) + abs(spin)
            if not (is_near and speed < np.inf):
                why = LOST
    return why
