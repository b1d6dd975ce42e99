"""Laws of the ragdoll world, on a small ragdoll that falls, bends and slides."""

import numpy as np
import pytest

from touchline.physics.ragdoll.lanes import LANES
from touchline.physics.ragdoll.model import (
    LOCKED,
    Frame,
    Joint,
    Ragdoll,
    box,
    capsule,
    joint_frame,
    seen_from,
    solving_order,
    sphere,
)
from touchline.physics.ragdoll.world import DT_S, GRAVITY, RagdollWorld
from touchline.physics.threads import Threads

UPRIGHT = (0.0, 0.0, 0.0, 1.0)
PLACES = np.array([(0, 1.0, 0), (0, 0.6, 0), (0, 0.25, 0.05), (0, 1.45, 0)])


def doll(**options):
    """A trunk with a head on a cone joint, a leg on a hinge with a swing, and a foot on a hinge."""
    parts = [
        capsule("trunk", 10.0, 0.1, 0.5, "y"),
        capsule("leg", 4.0, 0.08, 0.4, "y"),
        box("foot", 2.0, (0.1, 0.05, 0.25), (0.0, 0.0, 0.03)),
        sphere("head", 3.0, 0.15),
    ]
    joints = [
        hinge(1, 0, (0, 0.2, 0), (-1.0, 1.0), 0.4, LOCKED, drive=0),
        hinge(2, 1, (0, 0.05, 0), (-0.5, 0.5), LOCKED, LOCKED, drive=1),
        hinge(3, 0, (0, -0.18, 0), (-0.4, 0.4), 0.4, 0.3, drive=2),
    ]
    options = {"spring": 4000.0, "damper": 400.0, **options}
    return Ragdoll(
        parts,
        joints,
        drag=[0.05] * 4,
        angular_drag=[0.05] * 4,
        max_spin=[50.0] * 4,
        **options,
    )


def hinge(owner, connected, anchor, x, y, z, drive):
    own = Frame(anchor, joint_frame((1, 0, 0), (0, 1, 0)))
    bodies = [Frame(tuple(PLACES[i].tolist()), UPRIGHT) for i in (owner, connected)]
    return Joint(owner, connected, own, seen_from(own, *bodies), x, y, z, drive)


def make_world(num_agents, *, threads=1, first=0, **options):
    """Agents `first`, first + 1, …: each starts and is driven in its own way."""
    world = RagdollWorld(doll(), num_agents, Threads(threads, min_share=1), **options)
    for i in range(num_agents):
        generator = np.random.default_rng(first + i)
        current = world.current
        current.position[i] = PLACES
        current.velocity[i] = generator.normal(size=3)
        current.spin[i] = 0.5 * generator.normal(size=(4, 3))
        current.torque[i] = generator.uniform(0, 300, 3)
        half = generator.uniform(-0.4, 0.4, 3)
        current.target[i, :, 0], current.target[i, :, 3] = np.sin(half), np.cos(half)
    return world


def assert_equal_states(one, other, rows=slice(None)):
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name][rows], err_msg=name)


def test_a_body_in_the_air_falls_as_gravity_and_drag_say():
    falling = Ragdoll([sphere("ball", 2.0, 0.1)], [], 0, 0, [0.05], [0.05], [50.0])
    world = RagdollWorld(falling, 1, ground_top=-100.0)
    world.step(2)
    keep = 1 - 0.05 * DT_S
    speed = (0 - GRAVITY * DT_S) * keep
    height = speed * DT_S
    speed = (speed - GRAVITY * DT_S) * keep
    np.testing.assert_allclose(world.current.velocity[0, 0, 1], speed, rtol=1e-14)
    np.testing.assert_allclose(
        world.current.position[0, 0, 1], height + speed * DT_S, rtol=1e-14
    )


def test_joints_hold_and_the_ragdoll_comes_to_lie_on_the_ground():
    world = make_world(20)
    world.step(400)
    current = world.current
    assert np.isfinite(current.position).all()
    assert current.position[..., 1].min() > 0.0
    assert current.position[..., 1].max() < 2.0
    # The leg's anchor, 0.2 m up from its center, stays 0.2 m below the trunk's center.
    trunk, leg = (current.position[:, i] for i in (0, 1))
    assert np.linalg.norm(trunk - leg, axis=1).max() < 0.42
    assert current.touching.any(axis=1).all()


@pytest.mark.parametrize("num_agents", [1, LANES - 1, LANES + 5])
def test_the_number_of_agents_changes_no_bit(num_agents):
    few, many = make_world(num_agents), make_world(40)
    few.step(120)
    many.step(120)
    assert_equal_states(few.state(), many.state(), slice(num_agents))


def test_an_agents_place_among_the_others_changes_no_bit():
    shifted, straight = make_world(30, first=7), make_world(37)
    shifted.step(120)
    straight.step(120)
    assert_equal_states(shifted.state(), straight.state(), slice(7, None))


def test_the_number_of_threads_changes_no_bit():
    one, three = make_world(70), make_world(70, threads=3)
    one.step(100)
    three.step(100)
    assert_equal_states(one.state(), three.state())


def test_a_saved_state_with_its_friction_anchors_continues_exactly():
    world = make_world(9)
    world.step(90)
    saved = world.state()
    assert saved["anchor_number"].any(), "no anchor was there to be restored"
    world.step(60)
    other = make_world(9)
    other.step(10)
    other.load_state(saved)
    other.step(60)
    assert_equal_states(world.state(), other.state())


def test_a_body_that_is_not_finite_harms_no_other_agent_and_ends_no_process():
    broken, whole = make_world(20), make_world(20)
    broken.current.velocity[3, 1, 0] = np.nan
    broken.current.position[5, 2, 1] = np.inf
    broken.step(50)
    whole.step(50)
    for name in ("position", "velocity", "spin"):
        ours, theirs = broken.state()[name], whole.state()[name]
        others = [i for i in range(20) if i not in (3, 5)]
        np.testing.assert_array_equal(ours[others], theirs[others])


def test_joints_of_one_partition_share_no_body():
    joints = doll().joints
    # Last created first: the head's joint (trunk), the foot's (leg, foot), then the leg's.
    assert solving_order(joints) == [2, 1, 0]


def test_a_capsules_inertia_is_that_of_a_cylinder_and_two_half_spheres():
    # Values of the engine for the Walker's hips and thigh, to 5 digits.
    np.testing.assert_allclose(
        capsule("hips", 15, 0.1, 0.42, "x").moments(),
        [0.06934, 0.19885, 0.19885],
        atol=6e-6,
    )
    np.testing.assert_allclose(
        capsule("thigh", 14, 0.09, 0.30, "y").moments(),
        [0.09881, 0.05103, 0.0988],
        atol=2e-5,
    )
