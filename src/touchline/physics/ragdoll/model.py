"""What a ragdoll is made of: its parts and joints, and the constants that the solver reads.

A part is one body with one collider, whose center is the center of mass. A joint's frames say where
and how it sits in its two bodies; its limits are angles, NaN for a locked axis, `FREE` for a free
one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.frames import product, rotate
from touchline.physics.kernels import record_type
from touchline.physics.shapes import Floats, Four, Three, Vector

SPHERE, CAPSULE, BOX = 0, 1, 2
# Limits are angles in rad, so any number above π will do for "free".
LOCKED, FREE = math.nan, 9.0

Quaternion = tuple[float, float, float, float]
NO_TURN: Quaternion = (0.0, 0.0, 0.0, 1.0)
_HALF = math.sqrt(0.5)
ALONG: dict[str, Quaternion] = {
    "x": NO_TURN,
    "y": (0.0, 0.0, _HALF, _HALF),
    "z": (0.0, -_HALF, 0.0, _HALF),
}
"""The rotation that turns x, along which a capsule lies, to an axis."""


@dataclass(frozen=True)
class Part:
    """A body with its collider; meters, kilograms, in the body's own frame."""

    name: str
    mass: float
    kind: int
    """SPHERE, CAPSULE or BOX"""
    half: Vector
    """Box: half sizes. Otherwise radius, half the distance between the caps' centers, 0."""
    center: Vector = (0.0, 0.0, 0.0)
    """Center of collider and mass."""
    turn: Quaternion = NO_TURN
    """Rotation of the collider; a capsule lies along x of this."""
    inertia: Vector | None = None
    """Principal moments about the body's axes; None: of uniform density."""

    def moments(self) -> Floats:
        """Principal moments of inertia about the body's axes, kg m²."""
        if self.inertia is not None:
            return np.array(self.inertia)
        moments = _MOMENTS[self.kind](self.mass, self.half)
        # The axes of the collider are axes of the body, perhaps in another order.
        return np.abs(rotate(np.array(self.turn), np.array(moments)))


def sphere(name: str, mass: float, radius: float, center: Vector = (0, 0, 0)) -> Part:
    return Part(name, mass, SPHERE, (radius, 0.0, 0.0), center)


def capsule(name: str, mass: float, radius: float, height: float, axis: str) -> Part:
    """A capsule of that height, caps included, along the body's axis "x", "y" or "z"."""
    half = (radius, 0.5 * height - radius, 0.0)
    return Part(name, mass, CAPSULE, half, turn=ALONG[axis])


def box(name: str, mass: float, size: Vector, center: Vector) -> Part:
    half = (0.5 * size[0], 0.5 * size[1], 0.5 * size[2])
    return Part(name, mass, BOX, half, center)


def _box_moments(mass: float, half: Vector) -> Vector:
    x, y, z = (h * h for h in half)
    return mass / 3 * (y + z), mass / 3 * (x + z), mass / 3 * (x + y)


def _capsule_moments(mass: float, half: Vector) -> Vector:
    """A cylinder and the two halves of a sphere share the mass by volume."""
    r = half[0]
    length = 2 * half[1]
    cylinder = math.pi * r**2 * length
    ball = 4 / 3 * math.pi * r**3
    m1 = mass * cylinder / (cylinder + ball)
    m2 = mass - m1
    along = 0.5 * m1 * r**2 + 0.4 * m2 * r**2
    across = m1 * (length**2 / 12 + r**2 / 4)
    across += m2 * (0.4 * r**2 + length**2 / 4 + 3 / 8 * length * r)
    return along, across, across


def _sphere_moments(mass: float, half: Vector) -> Vector:
    moment = 0.4 * mass * half[0] ** 2
    return moment, moment, moment


_MOMENTS = {SPHERE: _sphere_moments, CAPSULE: _capsule_moments, BOX: _box_moments}


@dataclass(frozen=True)
class Frame:
    """Where a joint sits in a body."""

    position: Vector
    rotation: Quaternion


@dataclass(frozen=True)
class Joint:
    """A joint between the body that owns it and the one it is connected to."""

    owner: int
    connected: int
    owner_frame: Frame
    connected_frame: Frame
    x: tuple[float, float]
    """Range of the twist about x, rad."""
    y: float
    """The swing about y may be up to this, either way, rad."""
    z: float
    drive: int = -1
    """Index of its drive, -1: none. A drive turns the axes that are not locked."""
    inverse_mass_scale: tuple[float, float] = (1.0, 1.0)
    """Factors on the inverse masses and inertias of owner and connected body, in this joint only"""
    preprocess: bool = True
    """Whether its rows are made orthogonal to those of its locked axes."""


def joint_frame(axis: Vector, secondary: Vector) -> Quaternion:
    """The rotation of a joint's frame from Unity's `axis` and `secondaryAxis`."""
    # x along the axis, z across both, y across x and z: Unity's component formula, whatever the
    # hand.
    x = np.array(axis, np.float64)
    x /= np.linalg.norm(x)
    z = np.cross(x, secondary)
    z /= np.linalg.norm(z)
    y = np.cross(z, x)
    return quaternion_of(np.stack([x, y, z], axis=1))


def quaternion_of(matrix: Floats) -> Quaternion:
    """The unit quaternion of a rotation matrix, w ≥ 0."""
    # Bar-Itzhack 2000: the eigenvector of the largest eigenvalue of a symmetric 4 x 4 matrix.
    m = matrix
    upper = np.zeros((4, 4))
    upper[:3, :3] = m + m.T - np.eye(3) * np.trace(m)
    upper[3, :3] = m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]
    upper[:3, 3] = upper[3, :3]
    upper[3, 3] = np.trace(m)
    # `eigh` lists eigenvalues from least to greatest, with their eigenvectors as columns.
    _, eigenvectors = np.linalg.eigh(upper)
    q = eigenvectors[:, -1]
    # q and -q are the same rotation, and `eigh` may give either.
    x, y, z, w = (q if q[3] >= 0 else -q).tolist()
    return x, y, z, w


def seen_from(frame: Frame, body: Frame, other: Frame) -> Frame:
    """A frame of one body, as another body sees it, both at the given poses."""
    q = np.array(body.rotation)
    p = np.array(body.position)
    back = np.array(other.rotation) * (-1, -1, -1, 1)
    position = p + rotate(q, np.array(frame.position)) - np.array(other.position)
    rotation = product(back, product(q, np.array(frame.rotation)))
    position = rotate(back, position).tolist()
    turn = rotation.tolist()
    return Frame(tuple(position), tuple(turn))


@dataclass(frozen=True)
class Ragdoll:
    """A ragdoll and the numbers that are the same for all its parts."""

    parts: Sequence[Part]
    joints: Sequence[Joint]
    """In the order in which the engine created them, which decides the order of the sweeps."""
    spring: float
    """Stiffness of all drives, N m/rad; acts as a quarter of this (see `joints`)."""
    damper: float
    """N m s/rad, likewise."""
    drag: Sequence[float]
    """Drag of each part, 1/s."""
    angular_drag: Sequence[float]
    max_spin: Sequence[float]
    """rad/s"""
    own_contacts: bool = True
    """Whether parts that no joint connects collide."""
    num_drives: int = field(init=False)

    def __post_init__(self) -> None:
        drives = 1 + max((joint.drive for joint in self.joints), default=-1)
        object.__setattr__(self, "num_drives", drives)


class PartRecord:
    """What the solver reads of a part."""

    inverse_mass: float
    inverse_moments: Three
    """About the body's axes"""
    kind: int
    half: Three
    center: Three
    turn: Four
    bound: float
    """Radius of a sphere about the center that holds the collider"""
    keep: float
    """What drag leaves of a velocity in a step"""
    keep_spin: float
    max_spin: float


class JointRecord:
    """What the solver reads of a joint."""

    owner: int
    connected: int
    owner_position: Three
    owner_rotation: Four
    connected_position: Three
    connected_rotation: Four
    low: float
    high: float
    y: float
    z: float
    twist: int
    """One of the kinds below"""
    swing: int
    drive: int
    num_drive_rows: int
    num_equality_rows: int
    num_limit_rows: int
    first_row: int
    """Drive rows first, then equality rows, then limit rows"""
    owner_scale: float
    connected_scale: float
    preprocess: int


IS_FREE, IS_LOCKED, IS_LIMITED, IS_CONE = 0, 1, 2, 3
"""Kinds of twist (the first three) and swing. IS_LIMITED swing: y limited, z locked."""

PART_RECORD = record_type(PartRecord)
JOINT_RECORD = record_type(JointRecord)


class Settings(NamedTuple):
    """Numbers of a step, one for each agent's whole world."""

    dt: float
    ground_top: float
    friction: float
    spring: float
    damper: float
    friction_from: int
    """The first of the 12 position sweeps with friction: 9 in PhysX, 0 for every sweep."""


def part_records(ragdoll: Ragdoll, dt: float) -> NDArray[np.void]:
    """The parts' constants [B]."""
    records = np.zeros(len(ragdoll.parts), PART_RECORD)
    for i, part in enumerate(ragdoll.parts):
        # Inverses, because the solver multiplies by them in every row of every sweep.
        bound = {
            SPHERE: part.half[0],
            CAPSULE: part.half[0] + part.half[1],
            BOX: math.hypot(*part.half),
        }
        # PhysX's damping is this linear factor, not an exponential.
        keep = max(0.0, 1.0 - ragdoll.drag[i] * dt)
        keep_spin = max(0.0, 1.0 - ragdoll.angular_drag[i] * dt)
        records[i] = (
            1.0 / part.mass,
            1.0 / part.moments(),
            *(part.kind, part.half, part.center, part.turn),
            *(bound[part.kind], keep, keep_spin, ragdoll.max_spin[i]),
        )
    return records


def joint_records(ragdoll: Ragdoll) -> NDArray[np.void]:
    """The joints' constants [J], in the order in which they are solved."""
    records = np.zeros(len(ragdoll.joints), JOINT_RECORD)
    first_row = 0
    for place, i in enumerate(solving_order(ragdoll.joints)):
        joint = ragdoll.joints[i]
        twist = _twist_kind(joint)
        swing = _swing_kind(joint)
        locked = [math.isnan(limit) for limit in (joint.x[0], joint.y, joint.z)]
        # PhysX would drop a drive once an axis is locked; then no policy of Unity's moves. Leaving
        # out the rows of locked axes is what fits those policies best.
        drive_rows = 0 if joint.drive < 0 else locked.count(False)
        # Three keep the anchors together.
        equality_rows = 3 + locked.count(True)
        limit_rows = (twist == IS_LIMITED) + (swing in (IS_LIMITED, IS_CONE))
        a, b = joint.owner_frame, joint.connected_frame
        records[place] = (
            *(joint.owner, joint.connected),
            *(a.position, a.rotation, b.position, b.rotation),
            *(*joint.x, joint.y, joint.z, twist, swing, joint.drive),
            *(drive_rows, equality_rows, limit_rows, first_row),
            *(*joint.inverse_mass_scale, joint.preprocess),
        )
        first_row += drive_rows + equality_rows + limit_rows
    return records


def num_rows(joints: NDArray[np.void]) -> int:
    counts = ("num_drive_rows", "num_equality_rows", "num_limit_rows")
    return int(sum(joints[count].sum() for count in counts))


def _twist_kind(joint: Joint) -> int:
    if math.isnan(joint.x[0]):
        return IS_LOCKED
    return IS_FREE if joint.x[1] >= FREE else IS_LIMITED


def _swing_kind(joint: Joint) -> int:
    if math.isnan(joint.y):
        return IS_LOCKED
    if joint.y >= FREE:
        return IS_FREE
    return IS_LIMITED if math.isnan(joint.z) else IS_CONE


def solving_order(joints: Sequence[Joint]) -> list[int]:
    """The order of the joints in a sweep: PhysX's partitions.

    From the last created to the first, each joint goes to the first partition in which neither of
    its bodies occurs yet. Sweeps do not converge, so the order matters.
    """
    taken: list[set[int]] = []
    members: list[list[int]] = []
    for i in reversed(range(len(joints))):
        bodies = {joints[i].owner, joints[i].connected}
        free = [k for k, others in enumerate(taken) if not others & bodies]
        if not free:
            taken.append(set())
            members.append([])
        first = free[0] if free else -1
        taken[first] |= bodies
        members[first].append(i)
    return [i for partition in members for i in partition]


def colliding_pairs(ragdoll: Ragdoll) -> NDArray[np.int64]:
    """The pairs of parts [P, 2] that may touch: no joint between them, and no box."""
    # Unity's boxes (the Walker's feet) do collide with other parts; that is left out.
    joined = {frozenset((j.owner, j.connected)) for j in ragdoll.joints}
    parts = range(len(ragdoll.parts)) if ragdoll.own_contacts else range(0)
    pairs = [
        (a, b)
        for a in parts
        for b in parts
        if a < b
        and frozenset((a, b)) not in joined
        and BOX not in (ragdoll.parts[a].kind, ragdoll.parts[b].kind)
    ]
    return np.array(pairs, np.int64).reshape(-1, 2)
