"""Ragdolls and states computed by PhysX 4.1.2, for comparison (`physx-steps` of the shared data)."""

import numpy as np

from touchline.physics.ragdoll.model import BOX, FREE, Frame, Joint, Part, Ragdoll

ARRAYS = ("position", "rotation", "velocity", "spin")


def ragdoll_of(data, **options):
    """The ragdoll that a golden file describes, as exactly as the file does."""
    parts = [
        part_of(str(name), *rest)
        for name, *rest in zip(
            data["body_names"],
            data["mass"],
            data["inertia"],
            data["shape"],
            strict=True,
        )
    ]
    driven = [str(name) for name in data.get("driven", [])]
    joints = [joint_of(data, i, driven) for i in range(len(data["joint_owner"]))]
    return Ragdoll(
        parts=parts,
        joints=joints,
        spring=float(data["spring"]),
        damper=float(data["damper"]),
        drag=data["drag"].tolist(),
        angular_drag=data["angular_drag"].tolist(),
        max_spin=data["max_angular_speed"].tolist(),
        **options,
    )


def part_of(name, mass, inertia, shape):
    kind, center, turn = int(shape[0]), shape[4:7], shape[7:11]
    half = shape[1:4] if kind == BOX else (shape[1], shape[2], 0.0)
    return Part(
        name, float(mass), kind, tuple(half), tuple(center), tuple(turn), tuple(inertia)
    )


def joint_of(data, i, driven):
    owner, connected = data["frame_owner"][i], data["frame_connected"][i]
    low, high, y, z = (float(limit) for limit in data["joint_limits"][i])
    name = str(data["joint_names"][i])
    return Joint(
        owner=int(data["joint_owner"][i]),
        connected=int(data["joint_connected"][i]),
        owner_frame=Frame(tuple(owner[:3]), tuple(owner[3:])),
        connected_frame=Frame(tuple(connected[:3]), tuple(connected[3:])),
        x=(low, FREE if high >= FREE else high),
        y=y,
        z=z,
        drive=driven.index(name) if name in driven else -1,
        inverse_mass_scale=tuple(data["joint_mass_scale"][i].tolist()),
        preprocess=bool(data["joint_preprocess"][i]),
    )


def set_states(world, states):
    """Put agents into states [N, B, 13], with nothing remembered of earlier contacts."""
    current = world.current
    parts = np.split(states.astype(np.float64), [3, 7, 10], axis=2)
    for name, values in zip(ARRAYS, parts, strict=True):
        getattr(current, name)[:] = values
    current.anchors.number[:] = 0
    current.touching[:] = False


def states_of(world):
    return np.concatenate([getattr(world.current, name) for name in ARRAYS], axis=2)


def errors(world, after):
    """Errors per body of velocity and spin: each the median and the 99th percentile."""
    found = states_of(world)
    apart = [
        np.linalg.norm(found[..., k : k + 3] - after[..., k : k + 3], axis=-1)
        for k in (7, 10)
    ]
    return [float(np.quantile(e, q)) for e in apart for q in (0.5, 0.99)]
