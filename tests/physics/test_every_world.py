"""What every physics world promises, on all of them."""

import mujoco
import numpy as np
import pytest

from touchline.physics.mujoco_batch import MujocoBatch
from touchline.physics.ragdoll.model import Ragdoll, sphere
from touchline.physics.ragdoll.world import RagdollWorld
from touchline.physics.shapes import box, boxes
from touchline.physics.threads import Threads
from touchline.physics.upright.boxes import Body, BoxWorld
from touchline.physics.world import DT_S, GRAVITY

AREAS = 3
BALL_ON_PLANE = f"""
<mujoco>
  <option timestep="{DT_S}"/>
  <worldbody>
    <geom type="plane" size="9 9 1"/>
    <body name="ball" pos="0 0 1"><freejoint/><geom name="ball" size=".5" mass="1"/></body>
  </worldbody>
</mujoco>"""


def box_world():
    floor = boxes(box((0, -0.5, 0), (50, 1, 50)))
    bodies = [
        Body(box((0, 1, 0), (1, 1, 1)), 10.0, 2.0, turns=True),
        Body(box((1.2, 0.5, 0.3), (1, 1, 1)), 5.0, 0.5),
    ]
    world = BoxWorld(AREAS, floor, bodies, [], GRAVITY, Threads(1))
    world.velocity[:, 0, 0] = [2.0, 4.0, 6.0]
    return world


def mujoco_batch():
    world = MujocoBatch(mujoco.MjModel.from_xml_string(BALL_ON_PLANE), AREAS, 1)
    world.reset()
    world.qvel[:, 0] = [2.0, 4.0, 6.0]
    return world


def ragdoll_world():
    ball = Ragdoll([sphere("ball", 1.0, 0.5)], [], 0.0, 0.0, [0.05], [0.05], [50.0])
    world = RagdollWorld(ball, AREAS)
    world.current.position[:, 0, 1] = 1.0
    world.current.velocity[:, 0, 0] = [2.0, 4.0, 6.0]
    return world


WORLDS = [box_world, mujoco_batch, ragdoll_world]


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.parametrize("make", WORLDS)
def test_a_saved_state_continues_exactly(make):
    world = make()
    world.step(40)
    saved = world.state()
    world.step(40)
    later = world.state()
    other = make()
    other.load_state(saved)
    other.step(40)
    assert_same(other.state(), later)


@pytest.mark.parametrize("make", WORLDS)
def test_many_rounds_are_that_many_steps(make):
    at_once, one_by_one = make(), make()
    at_once.step(30)
    for _ in range(30):
        one_by_one.step()
    assert_same(at_once.state(), one_by_one.state())


@pytest.mark.parametrize("make", WORLDS)
def test_state_is_copied_and_arrays_are_not(make):
    world = make()
    state, arrays = world.state(), world.arrays()
    before = {name: array.copy() for name, array in state.items()}
    world.step(5)
    assert_same(state, before)
    assert_same(arrays, world.state())
    assert any((arrays[name] != before[name]).any() for name in arrays)


def test_mujoco_steps_only_the_chosen_areas():
    world, all_areas = mujoco_batch(), mujoco_batch()
    start = world.qpos.copy()
    world.step_areas(np.array([0, 2]))
    all_areas.step()
    np.testing.assert_array_equal(world.qpos[1], start[1])
    np.testing.assert_array_equal(world.qpos[[0, 2]], all_areas.qpos[[0, 2]])


def test_mujoco_fields_per_area_act_on_their_areas_only():
    world, plain = mujoco_batch(), mujoco_batch()
    world.per_area("opt.gravity")[1, 2] = 0.0
    world.update_constants()
    world.step(5)
    plain.step(5)
    assert (world.qvel[1, 2], plain.qvel[1, 2]) == (
        0.0,
        pytest.approx(-5 * DT_S * GRAVITY),
    )
    np.testing.assert_array_equal(world.qpos[[0, 2]], plain.qpos[[0, 2]])
