"""The upright half of the physics: the agent and the switch, among stones and walls."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, makes_arrays
from touchline.physics.shapes import Floats, X, Z
from touchline.physics.upright.boxes import step_boxes
from touchline.physics.upright.contacts import MU, TOUCH_M, Contacts, new_records
from touchline.physics.world import DT_S, GRAVITY
from touchline.scenes.cube_agents import move_cube
from touchline.scenes.pyramids.layout import (
    AGENT,
    AGENT_KG,
    BODIES,
    BUTTON,
    SOLID,
    SWITCH,
    SWITCH_KG,
    SWITCH_M,
)

MAX_STEP = 5000
STEP_REWARD = -1.0 / MAX_STEP
PUSH_MPS = 2.0  # PyramidAgent.cs: ForceMode.VelocityChange, whatever the mass
TURN_RAD = math.radians(200.0) * DT_S  # PyramidAgent.cs: 200 degrees per second
AGENT_DRAG = 2.0
"""1/s; the switch has none."""


class Upright(NamedTuple):
    """What a time step of the upright bodies of A areas reads and writes, for kernels.

    In Unity's frame.
    """

    boxes: Floats
    """[A, BUTTON + 1, 9] agent, switch, all stones, and the button inside the switch."""
    yaw: Floats
    """[A, BODIES] rad"""
    velocity: Floats
    """[A, BODIES + 1, 6]; the last row stays 0."""
    inverse: Floats
    """[BODIES + 1, 6] inverse masses."""
    friction: Floats
    """[BODIES, shapes, 2] of each body with each shape."""
    moving: Floats
    """[A, 3] the velocity with which the last step moved the agent."""
    before: Floats
    """[A, 3] where the agent was before that step."""
    pressed: NDArray[np.bool_]
    """[A] whether the agent touched the switch in that step."""


def new_upright(num_areas: int) -> Upright:
    return Upright(
        boxes=np.zeros((num_areas, BUTTON + 1, 9)),
        yaw=np.zeros((num_areas, BODIES)),
        velocity=np.zeros((num_areas, BODIES + 1, 6)),
        inverse=_inverse_masses(),
        friction=_frictions(),
        moving=np.zeros((num_areas, 3)),
        before=np.zeros((num_areas, 3)),
        pressed=np.zeros(num_areas, np.bool_),
    )


def _inverse_masses() -> Floats:
    inverse = np.zeros((BODIES + 1, 6))
    inverse[AGENT, :3] = 1.0 / AGENT_KG
    # Locked axes respond, too: see `_hold_switch`.
    inverse[SWITCH, :3] = 1.0 / SWITCH_KG
    # A solid cube about an axis through two faces: m a² / 6.
    inverse[SWITCH, 4] = 6.0 / (SWITCH_KG * SWITCH_M**2)
    return inverse


def _frictions() -> Floats:
    """The switch turns freely on the floor and ignores walls and stones (negative)."""
    # Nothing touches the button, which is well inside the switch.
    friction = np.full((BODIES, len(SOLID) + BUTTON + 1, 2), MU)
    friction[:, len(SOLID) + BUTTON] = -1.0
    friction[SWITCH] = -1.0
    friction[SWITCH, 0] = 0.0
    return friction


@compiled
def act(
    first: int,
    last: int,
    discrete: NDArray[np.int32],
    reward: NDArray[np.float32],
    upright: Upright,
) -> None:
    """Give these areas' agents the reward of a step, and push or turn them by their actions."""
    for a in range(first, last):
        # Unity adds rewards up in single precision, and so do these lines.
        reward[a, 0] += np.float32(STEP_REWARD)
        move_cube(
            discrete[a, 0, 0],
            AGENT,
            PUSH_MPS,
            TURN_RAD,
            upright.boxes[a],
            upright.yaw[a],
            upright.velocity[a],
        )


@makes_arrays
def step_upright(first: int, last: int, upright: Upright, solid: Floats) -> None:
    """One time step of these areas among the `solid` boxes."""
    records = new_records()
    drag = np.array([AGENT_DRAG, 0.0])
    poses = np.zeros((BODIES + 1, 6))
    gaps = np.empty(upright.friction.shape[:2])
    for a in range(first, last):
        upright.before[a] = upright.boxes[a, AGENT, :3]
        x = upright.boxes[a, SWITCH, X]
        z = upright.boxes[a, SWITCH, Z]
        step_boxes(
            Contacts(records, upright.velocity[a], upright.inverse),
            solid,
            upright.boxes[a],
            upright.yaw[a],
            drag,
            GRAVITY,
            upright.friction,
            poses,
            gaps,
        )
        _hold_switch(upright.boxes[a, SWITCH], upright.velocity[a, SWITCH], x, z)
        upright.moving[a] = poses[AGENT, :3]
        # Columns of the gaps: fixed boxes first, then the area's own.
        gap = gaps[AGENT, len(solid) + SWITCH]
        upright.pressed[a] = gap < TOUCH_M


@compiled
def _hold_switch(switch: Floats, velocity: Floats, x: float, z: float) -> None:
    """Undo what a step did along the switch's locked axes."""
    # Agents recorded in Unity (ML-Agents' ExpertPyramid.demo) are slowed by the switch as by a
    # loose box of 1 kg, a little in every step, and wade through it. It moves as if PhysX solved
    # contacts without the locks, and dropped the locked velocities afterwards: inferred from that
    # recording, not read in PhysX (`docs/scenes.md`).
    switch[X] = x
    switch[Z] = z
    velocity[0] = velocity[2] = 0.0
