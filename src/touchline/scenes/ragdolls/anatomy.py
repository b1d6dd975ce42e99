"""A ragdoll as its prefab lists it, and the tables that the scenes' kernels read."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.ragdoll.model import (
    FREE,
    LOCKED,
    Frame,
    Joint,
    Part,
    Quaternion,
    Ragdoll,
    joint_frame,
    seen_from,
)
from touchline.physics.shapes import Floats, Vector

UPRIGHT: Quaternion = (0.0, 0.0, 0.0, 1.0)
STILL = -1
"""In place of an action: this axis keeps the middle of its range."""


@dataclass(frozen=True)
class Bone:
    """A joint of the prefab, with the actions that drive it; degrees and meters."""

    owner: str
    connected: str
    anchor: Vector
    axis: Vector
    secondary: Vector
    x_deg: tuple[float, float] | None = None
    """Range of the twist; None: locked."""
    y_deg: float | None = None
    """Range of the swing, either way; None: locked."""
    z_deg: float | None = None
    actions: tuple[int, int, int] | None = None
    """The actions that set its target angles about x, y and z; None: it has no drive."""
    strength: int = STILL
    """The action that sets its torque."""
    free: bool = False
    """A ball joint without limits."""
    inverse_mass_scale: tuple[float, float] = (1.0, 1.0)


class Motors(NamedTuple):
    """What the actions do to D drives."""

    actions: NDArray[np.int64]
    """[D, 3] the action of each axis, or STILL"""
    low: Floats
    """[D, 3] rad"""
    high: Floats
    strength: NDArray[np.int64]
    """[D] the action that sets the torque"""
    max_torque: float
    """N m"""


@dataclass(frozen=True)
class Anatomy:
    """A ragdoll, how it starts, and what its actions do."""

    ragdoll: Ragdoll
    position: Floats
    """[B, 3] at the start, facing along z"""
    rotation: Floats
    """[B, 4]"""
    motors: Motors
    parents: NDArray[np.int64]
    """[B] the part whose transform is the parent's; the root is its own"""
    index: Mapping[str, int]

    def chosen(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """[B] True for these parts."""
        mask = np.zeros(len(self.position), np.bool_)
        mask[[self.index[name] for name in names]] = True
        return mask


def assemble(
    parts: Sequence[Part],
    poses: Sequence[tuple[Sequence[float], Sequence[float]]],
    bones: Sequence[Bone],
    parents: Mapping[str, str],
    *,
    spring: tuple[float, float, float],
    drag: float,
    max_spin: Mapping[str, float],
) -> Anatomy:
    """The anatomy of `bones` in the order of their creation; drives are numbered by strength.

    `spring` is the drives' spring, damper and greatest torque. `parents` names parts whose parent
    is another than the body they are joined to. `max_spin` names those with other limits than 50.
    """
    index = {part.name: i for i, part in enumerate(parts)}
    position = np.array([p for p, _ in poses], np.float64)
    rotation = np.array([q for _, q in poses], np.float64)
    # Observations list strengths in this order, which is not that of the joints' creation.
    with_drive = [bone for bone in bones if bone.actions]
    driven = sorted(with_drive, key=lambda bone: bone.strength)
    drives = {bone.owner: k for k, bone in enumerate(driven)}
    start = zip(position, rotation, strict=True)
    frames = [_frame(p, q) for p, q in start]
    # In the order given, which decides how joints are solved.
    joints = [_joint(bone, index, frames, drives) for bone in bones]
    joined = {bone.owner: bone.connected for bone in bones}
    joined |= parents
    root = parts[0].name
    hangs_on = [joined.get(part.name, root) for part in parts]
    return Anatomy(
        ragdoll=Ragdoll(
            parts=parts,
            joints=joints,
            spring=spring[0],
            damper=spring[1],
            drag=[drag] * len(parts),
            # Unity's defaults for a rigid body, and the limit that JointDriveController.cs
            # sets.
            angular_drag=[0.05] * len(parts),
            max_spin=[max_spin.get(part.name, 50.0) for part in parts],
        ),
        position=position,
        rotation=rotation,
        motors=_motors(driven, spring[2]),
        parents=np.array([index[name] for name in hangs_on]),
        index=index,
    )


def _frame(position: Floats, rotation: Floats) -> Frame:
    x, y, z = position.tolist()
    # The prefab's text has seven digits: not quite of length 1.
    unit = rotation / np.linalg.norm(rotation)
    qx, qy, qz, qw = unit.tolist()
    return Frame((x, y, z), (qx, qy, qz, qw))


def _joint(
    bone: Bone,
    index: Mapping[str, int],
    frames: Sequence[Frame],
    drives: Mapping[str, int],
) -> Joint:
    owner = index[bone.owner]
    connected = index[bone.connected]
    own = Frame(bone.anchor, joint_frame(bone.axis, bone.secondary))
    limits = [_limit(bone, degrees) for degrees in (bone.x_deg, bone.y_deg, bone.z_deg)]
    return Joint(
        owner=owner,
        connected=connected,
        owner_frame=own,
        connected_frame=seen_from(own, frames[owner], frames[connected]),
        x=limits[0],
        y=limits[1][1],
        z=limits[2][1],
        drive=drives.get(bone.owner, -1),
        inverse_mass_scale=bone.inverse_mass_scale,
        preprocess=not bone.free,
    )


def _limit(
    bone: Bone, degrees: tuple[float, float] | float | None
) -> tuple[float, float]:
    if bone.free:
        return FREE, FREE
    if degrees is None:
        return LOCKED, LOCKED
    # A twist has two limits in Unity; a swing has one, which holds either way.
    low, high = degrees if isinstance(degrees, tuple) else (-degrees, degrees)
    return math.radians(low), math.radians(high)


def _motors(driven: Sequence[Bone], max_torque: float) -> Motors:
    ranges = np.zeros((len(driven), 3, 2))
    for k, bone in enumerate(driven):
        for axis, degrees in enumerate((bone.x_deg, bone.y_deg, bone.z_deg)):
            if degrees is not None:
                ranges[k, axis] = _limit(bone, degrees)
    return Motors(
        actions=np.array([bone.actions for bone in driven], np.int64),
        low=ranges[..., 0].copy(),
        high=ranges[..., 1].copy(),
        strength=np.array([bone.strength for bone in driven], np.int64),
        max_torque=max_torque,
    )
