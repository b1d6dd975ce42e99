"""Hallway: names, places, goals, time, and its own decision period."""

import numpy as np
import pytest

from touchline.envs.scene_env import SceneEnv
from touchline.scenes.hallway import (
    AGENT,
    BEHAVIOR,
    BOARD_O,
    PLATE_O,
    PLATE_X,
    SYMBOL_O,
    SYMBOL_X,
    Hallway,
)


def opened(num_areas=1):
    env = SceneEnv(Hallway(num_areas, 1))
    env.reset()
    return env, env.scene


def test_has_unitys_sensors_and_one_branch_of_five():
    env, scene = opened()
    assert [(o.name, o.shape) for o in env.behaviors[BEHAVIOR].observation_specs] == [
        ("StackingSensor_size3_RayPerceptionSensor", (105,)),
        ("StackingSensor_size3_VectorSensor_size1", (3,)),
    ]
    assert env.behaviors[BEHAVIOR].action_spec.discrete_branches == (5,)
    assert scene.unity_areas == 16


def test_one_symbol_is_shown_the_other_is_far_below_and_the_goals_take_sides():
    _, scene = opened(600)
    boxes = scene.world.boxes
    shows_x = scene.shows_x
    assert 0.4 < shows_x.mean() < 0.6
    np.testing.assert_array_equal(
        boxes[:, SYMBOL_X, 1], np.where(shows_x, 2.5, -1000.0)
    )
    np.testing.assert_array_equal(
        boxes[:, SYMBOL_O, 1], np.where(shows_x, -1000.0, 2.5)
    )
    np.testing.assert_array_equal(boxes[:, SYMBOL_X, 0], 0.015)
    assert np.ptp(boxes[:, SYMBOL_O, 0]) > 5.5, "only the O wanders sideways"
    assert np.abs(boxes[:, [SYMBOL_O, SYMBOL_X], 2]).max() <= 5.0
    np.testing.assert_array_equal(boxes[:, PLATE_O, 0], -boxes[:, PLATE_X, 0])
    assert set(boxes[:, PLATE_O, 0].tolist()) == {7.0, -7.0}
    np.testing.assert_allclose(boxes[:, BOARD_O, 2], 24.79)
    agent = boxes[:, AGENT]
    assert (np.abs(agent[:, 0] - 0.015) <= 3.0).all()
    assert ((agent[:, 2] >= -20.0) & (agent[:, 2] <= -10.0)).all()
    assert np.ptp(scene.world.yaw) > 6.0


def test_decisions_come_every_sixth_step_and_hold_the_share_of_time_that_has_passed():
    env, scene = opened()
    clocks, times = [], []
    for _ in range(4):
        decisions, _ = env.steps(BEHAVIOR)
        clocks.append(scene.academy.clock)
        times.append(decisions.obs[1][0])
        env.step()
    np.testing.assert_array_equal(np.diff(clocks), 6)
    np.testing.assert_allclose(times[2] * 3000, [1, 7, 13], rtol=1e-5)


@pytest.mark.parametrize("shows_x", [False, True])
@pytest.mark.parametrize("to_x", [False, True])
def test_the_right_goal_sets_one_and_the_wrong_one_a_small_loss(shows_x, to_x):
    env, scene = opened()
    scene.shows_x[:] = shows_x
    plate = scene.world.boxes[0, PLATE_X if to_x else PLATE_O]
    scene.world.boxes[0, AGENT, :3] = plate[0], 1.0, 19.78
    scene.world.velocity[:] = 0.0
    env.step()
    decisions, ends = env.steps(BEHAVIOR)
    assert (len(decisions), len(ends)) == (0, 1)
    assert ends.reward[0] == pytest.approx(1.0 if shows_x == to_x else -0.1)
    assert not ends.interrupted[0]
    assert scene.world.boxes[0, AGENT, 2] <= -10.0


def test_where_the_wrong_goal_does_not_end_it_costs_once_and_the_right_one_counts():
    env, scene = opened()
    env.set_parameters({"wrong_goal_ends": 0.0})
    env.reset()
    scene.shows_x[:] = True
    body = scene.world.boxes[0, AGENT]
    rewards = []

    def step_at(plate):
        body[:3] = scene.world.boxes[0, plate, 0], 1.0, 19.78
        scene.world.velocity[:] = 0.0
        env.step()
        decisions, ends = env.steps(BEHAVIOR)
        rewards.append(float((ends if len(ends) else decisions).reward[0]))
        return len(ends)

    assert [step_at(PLATE_O), step_at(PLATE_O), step_at(PLATE_X)] == [0, 0, 1]
    paid = [rewards[0] - rewards[1], rewards[2]]
    np.testing.assert_allclose(paid, [-0.1, 1.0], atol=1e-6)
    assert not scene.has_erred[0], "the next episode has its own"


def test_time_runs_out_after_3000_steps():
    env, scene = opened()
    scene.academy.step_count[:] = 2999
    env.step()
    _, ends = env.steps(BEHAVIOR)
    assert ends.interrupted[0]
    assert ends.obs[1][0, -1] == 1.0
