"""What the solver works on during one step, for a block of 16 agents: nothing of it is kept."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import record_type
from touchline.physics.ragdoll.lanes import (
    LANES,
    Lane,
    Lane3,
    Lane4,
    Lane6,
    Lane9,
)
from touchline.physics.shapes import Three

POINTS, ANCHORS = 4, 2
"""The most contact points and friction anchors of a part on the ground."""
OWN_CONTACTS = 24
"""The most contacts among an agent's own parts; further ones are left out."""


class Body:
    """A part: pose and velocity of its center of mass."""

    center: Lane3
    rotation: Lane4
    velocity: Lane3
    spin: Lane3
    inertia: Lane6
    """Inverse, in the world's axes"""
    reach: Lane
    """The distance at which the part makes contacts, grown by its speed before the step"""


class JointFrame:
    """A joint's frames in the world."""

    owner: Lane4
    connected: Lane4
    relative: Lane4
    """The connected frame as the owner's sees it, w ≥ 0"""
    target: Lane4
    """Rotation to which the drive turns the connected frame: seen by the owner's frame, then in the
    world"""
    torque: Lane
    """The drive's greatest"""
    axes: Lane9
    """The owner's x, y and z"""
    twist_axis: Lane3
    """The connected frame's x"""
    owner_arm: Lane3
    """Arm from the owner's center of mass to its anchor"""
    connected_arm: Lane3
    offset: Lane3
    """Vector from the owner's anchor to the connected body's"""
    jacobian: Lane9
    """Three rows: how an angular velocity changes the vector part of a relative rotation"""
    error: Lane3
    """That vector part"""
    near: Lane
    """Whether two parts may touch; room for `own_contacts`"""


class Row:
    """One equation between two bodies. An impulse f pushes the owner and pulls the connected body.

    v = linear · (V₀ − V₁) + turn₀ · W₀ − turn₁ · W₁
    f ← clip(decay f − gain v + constant, low, high)
    """

    linear: Lane3
    turn0: Lane3
    turn1: Lane3
    push0: Lane3
    """The owner's inverse inertia times `turn0`"""
    push1: Lane3
    error: Lane
    decay: Lane
    gain: Lane
    constant: Lane
    kept_constant: Lane
    """`constant` in the sweeps for the velocity that is kept"""
    high: Lane
    """Largest impulse of drives, which are clipped at ± this"""
    impulse: Lane
    change: Lane
    low: float
    """Smallest impulse of locked axes and limits: no bound, or 0"""
    mass0: float
    """Inverse masses, scaled"""
    mass1: float
    active: int
    """Whether any lane has this row"""


class Normal:
    """A contact point of a part on the ground: f ← max(0, f − gain (v + bias))."""

    turn: Lane3
    push: Lane3
    gain: Lane
    bias: Lane
    kept_bias: Lane
    impulse: Lane
    change: Lane


class Friction:
    """A direction of friction at an anchor: f ← f − gain (v + bias), up to ± μ the normal force."""

    along: Lane3
    turn: Lane3
    push: Lane3
    gain: Lane
    bias: Lane
    impulse: Lane
    change: Lane


class Patch:
    """What a part has on the ground."""

    num_points: int
    """The most of any lane; 0: no lane touches"""
    num_anchors: int
    load: Lane
    """Sum of the normal impulses"""
    slips: Lane
    """Whether friction reached its limit in the last sweep"""
    lowest: Lane
    """Gap between ground and collider"""


class OwnContact:
    """A contact between two parts of one agent: a normal and two directions of friction."""

    a: int
    b: int
    normal: Three
    arm_a: Three
    """Arm from a's center of mass to the point"""
    arm_b: Three
    along: Three
    """The first direction of friction"""
    gain: float
    bias: float
    kept_bias: float
    impulse: float
    t_gain: float
    t_impulse: float
    u_gain: float
    u_impulse: float


BODY = record_type(Body)
JOINT_FRAME = record_type(JointFrame)
ROW = record_type(Row)
NORMAL = record_type(Normal)
FRICTION = record_type(Friction)
PATCH = record_type(Patch)
OWN_CONTACT = record_type(OwnContact)


class Work(NamedTuple):
    """Rooms, as many as blocks, to work out the step of a block; one room alone has no first axis.

    The system gives no memory for those that are never used.
    """

    bodies: NDArray[np.void]
    frames: NDArray[np.void]
    rows: NDArray[np.void]
    patches: NDArray[np.void]
    normals: NDArray[np.void]
    frictions: NDArray[np.void]
    own: NDArray[np.void]
    num_own: NDArray[np.int64]
    points: NDArray[np.float64]


def new_work(num_blocks: int, num_parts: int, num_rows: int) -> Work:
    def room(*shape: int, dtype: Any) -> NDArray[Any]:
        return np.zeros((num_blocks, *shape), dtype)

    return Work(
        bodies=room(num_parts, dtype=BODY),
        frames=room(1, dtype=JOINT_FRAME),
        rows=room(num_rows, dtype=ROW),
        patches=room(num_parts, dtype=PATCH),
        normals=room(num_parts * POINTS, dtype=NORMAL),
        frictions=room(num_parts * ANCHORS * 2, dtype=FRICTION),
        # Each lane has its own stretch: own contacts are not solved side by side.
        own=room(LANES * OWN_CONTACTS, dtype=OWN_CONTACT),
        num_own=room(LANES, dtype=np.int64),
        # A box has up to four corners and four crossings of its edges before they are reduced.
        points=room(2 * POINTS, 4, dtype=np.float64),
    )
