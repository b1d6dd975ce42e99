"""The bricks: cubes that tumble, and the agent that pushes them.

In a step with bricks, they meet the agent as it was before the step, with the velocity that the
upright physics gave it; what the bricks change about that velocity is added to the agent's. To
bricks, stones, walls and the switch are static. Bricks that lie still are not simulated until
something comes near.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled
from touchline.physics.ragdoll.lanes import turned_by
from touchline.physics.shapes import Floats, X, Z
from touchline.physics.tumbling.solve import solve
from touchline.physics.tumbling.touch import set_upright
from touchline.physics.world import ANGULAR_DRAG, DT_S, GRAVITY, MAX_SPIN, Arrays
from touchline.scenes.pyramids.agent import (
    AGENT,
    BRICKS,
    GOLD,
    NUM_BRICKS,
    SPAWN_Y,
    SWITCH,
    Upright,
)
from touchline.scenes.pyramids.collisions import (
    AGENT_ROW,
    Room,
    find_bounds,
    half_edge,
    is_anything_near,
    set_brick,
    touch_agent,
    touch_boxes,
    touch_each_other,
    touch_planes,
)

STILL_MPS, STILL_STEPS = 0.1, 20
"""Bricks slower than this for so many steps lie still: PhysX's sleep threshold of 0.005 J/kg, and
its 0.4 s."""


class Bricks(NamedTuple):
    """The bricks of A areas, also for kernels."""

    spot: Floats
    """[A, (x, z)] the place of the pyramid that appears next, or is there."""

    on: NDArray[np.bool_]
    """[A] whether there are bricks: the switch was pressed."""
    still: NDArray[np.int64]
    """[A] steps for which no brick has moved."""
    pose: Floats
    """[A, NUM_BRICKS, 7] place, and quaternion x, y, z, w; gold is the last."""
    velocity: Floats
    """[A, NUM_BRICKS, 6]"""
    at_gold: NDArray[np.bool_]
    """[A] whether the agent touched gold in the last step."""

    def arrays(self) -> Arrays:
        return {
            "on": self.on,
            "brick_spot": self.spot,
            "still": self.still,
            "brick_pose": self.pose,
            "brick_velocity": self.velocity,
        }

    def restart(self) -> None:
        """No bricks anywhere."""
        for array in (self.on, self.still, self.pose, self.velocity, self.at_gold):
            array.fill(0)
        self.pose[..., 6] = 1.0  # where no bricks are, their poses are poses, too

    def remove(self, areas: NDArray[np.intp], spot: Floats) -> None:
        """Remove the bricks of K areas, whose next pyramid will appear at `spot` [K, (x, z)]."""
        self.spot[areas] = spot
        self.on[areas] = False
        self.still[areas] = 0

    def place(self, areas: NDArray[np.intp]) -> None:
        """Let the pyramid of these areas appear in the air; it falls."""
        poses = np.zeros((len(areas), NUM_BRICKS, 7))
        poses[..., :3] = np.array([*BRICKS, GOLD]) + (0.0, SPAWN_Y, 0.0)
        poses[..., [X, Z]] += self.spot[areas, None]
        poses[..., 6] = 1.0
        self.pose[areas] = poses
        self.velocity[areas] = 0.0
        self.still[areas] = 0
        self.on[areas] = True


def new_bricks(num_areas: int) -> Bricks:
    bricks = Bricks(
        spot=np.zeros((num_areas, 2)),
        on=np.zeros(num_areas, np.bool_),
        still=np.zeros(num_areas, np.int64),
        pose=np.zeros((num_areas, NUM_BRICKS, 7)),
        velocity=np.zeros((num_areas, NUM_BRICKS, 6)),
        at_gold=np.zeros(num_areas, np.bool_),
    )
    bricks.restart()
    return bricks


@compiled
def step_bricks(
    first: int, last: int, upright: Upright, bricks: Bricks, room: Room
) -> None:
    """One step of the bricks and of the agents near them, after the upright bodies' step."""
    for a in range(first, last):
        bricks.at_gold[a] = False
        if not bricks.on[a]:
            continue
        if bricks.still[a] >= STILL_STEPS:
            # A switch that stands still cannot wake bricks that lie against it.
            is_turning = abs(upright.world.velocity[a, SWITCH, 4]) > 0.01
            if not is_anything_near(upright.world.boxes[a], bricks.pose[a], is_turning):
                continue
            bricks.still[a] = 0
        _begin(upright, bricks, a, room)
        find_bounds(room)
        n = touch_each_other(room, 0)
        n, bricks.at_gold[a] = touch_agent(room, n)
        n = touch_boxes(room, n, upright.world.boxes[a])
        n = touch_planes(room, n)
        solve(room.contacts, n, room.velocity, room.inverse, room.moving)
        fastest = _move(bricks, a, room)
        _take_back(upright, a, room)
        bricks.still[a] = bricks.still[a] + 1 if fastest < STILL_MPS else 0


@compiled
def _begin(upright: Upright, bricks: Bricks, a: int, room: Room) -> None:
    """Set one area's cuboids and velocities, and apply gravity, PhysX's drag and its spin limit."""
    pose = bricks.pose[a]
    velocity = room.velocity
    for k in range(NUM_BRICKS):
        set_brick(room.cuboids[k], pose[k], k)
        for d in range(6):
            velocity[k, d] = bricks.velocity[a, k, d]
        velocity[k, 1] -= GRAVITY * DT_S
        slower = 1.0 - ANGULAR_DRAG * DT_S
        spin = slower * _length(velocity[k, 3], velocity[k, 4], velocity[k, 5])
        if spin > MAX_SPIN:
            slower *= MAX_SPIN / spin
        for d in range(3, 6):
            velocity[k, d] *= slower
    agent = room.cuboids[AGENT_ROW]
    set_upright(agent, upright.world.boxes[a, AGENT])
    for d in range(3):
        agent[d] = upright.before[a, d]
        velocity[AGENT_ROW, d] = upright.moving[a, d]


@compiled
def _length(x: float, y: float, z: float) -> float:
    return math.sqrt(x * x + y * y + z * z)


@compiled
def _move(bricks: Bricks, a: int, room: Room) -> float:
    """Move one area's bricks, and keep their velocities; returns the fastest one's speed."""
    fastest = 0.0
    for k in range(NUM_BRICKS):
        pose = bricks.pose[a, k]
        moving = room.moving[k]
        for d in range(3):
            pose[d] += moving[d] * DT_S
        turn = pose[3], pose[4], pose[5], pose[6]
        spin = moving[3], moving[4], moving[5]
        pose[3], pose[4], pose[5], pose[6] = turned_by(turn, spin, DT_S)
        kept = room.velocity[k]
        for d in range(6):
            bricks.velocity[a, k, d] = kept[d]
        fastest = max(fastest, _length(kept[0], kept[1], kept[2]))
        # The speed of its faces.
        fastest = max(fastest, half_edge(k) * _length(kept[3], kept[4], kept[5]))
    return fastest


@compiled
def _take_back(upright: Upright, a: int, room: Room) -> None:
    """Set where the agent went, and add what bricks did to its velocity."""
    me = upright.world.boxes[a, AGENT]
    for d in range(3):
        me[d] = upright.before[a, d] + room.moving[AGENT_ROW, d] * DT_S
        # The upright physics moved it with a velocity that is not quite the one it keeps: so only
        # the difference that the bricks made is added.
        change = room.velocity[AGENT_ROW, d] - upright.moving[a, d]
        upright.world.velocity[a, AGENT, d] += change
