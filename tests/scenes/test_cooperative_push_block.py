"""CooperativePushBlock: names, places, the grid, heavy blocks, group rewards and ends."""

import numpy as np
import pytest

from touchline.envs.scene_env import SceneEnv
from touchline.physics.shapes import ABSENT, BOX_TAG, HALF_X, X, Y, Z
from touchline.scenes.cooperative_push_block import (
    AGENT_TAG,
    AGENTS,
    BEHAVIOR,
    BLOCK_TAGS,
    FLOOR,
    GOAL_TAG,
    LARGE,
    SMALL,
    VERY_LARGE,
    WALL,
    CooperativePushBlock,
)
from touchline.scenes.cube_agents import turn_to
from touchline.specs import ActionTuple

FORWARD = 1


def opened(num_areas=1):
    env = SceneEnv(CooperativePushBlock(num_areas, 1))
    env.reset()
    return env, env.scene


def empty(num_areas=1):
    """Agents on the ground along one side, facing +z, and no blocks."""
    env, scene = opened(num_areas)
    scene.world.boxes[:, AGENTS:, BOX_TAG] = ABSENT
    for i, x in enumerate([-11.0, -9.0, -7.0]):
        put(scene, i, x, 11.0, 0.0)
    scene.world.velocity[:] = 0.0
    return env, scene


def put(scene, body, x, z, yaw=0.0):
    """Put a body on the ground, at rest, present."""
    height = 0.5 if body < AGENTS else 0.375
    for area in range(scene.num_areas):
        scene.world.boxes[area, body, : Z + 1] = x, height, z
        turn_to(yaw, body, scene.world.boxes[area], scene.world.yaw[area])
    scene.world.velocity[:, body] = 0.0
    if body >= AGENTS:
        scene.world.boxes[:, body, BOX_TAG] = BLOCK_TAGS[body - AGENTS]


def block_of(tag):
    """The first block of a size, as a body."""
    return AGENTS + BLOCK_TAGS.index(tag)


def act(env, choices=0):
    count = len(env.steps(BEHAVIOR)[0])
    if count:
        choices = np.broadcast_to(choices, count).reshape(-1, 1)
        env.set_actions(BEHAVIOR, ActionTuple(discrete=choices))
    env.step()
    return env.steps(BEHAVIOR)


def test_has_unitys_sensors_ids_and_groups():
    env, scene = opened(2)
    assert [(o.name, o.shape) for o in env.behaviors[BEHAVIOR].observation_specs] == [
        ("GridSensor-OneHot", (6, 20, 20)),
        ("RBSensor", (10,)),
    ]
    assert env.behaviors[BEHAVIOR].action_spec.discrete_branches == (7,)
    decisions, _ = env.steps(BEHAVIOR)
    np.testing.assert_array_equal(decisions.agent_id, np.arange(6))
    np.testing.assert_array_equal(decisions.group_id, [1, 1, 1, 2, 2, 2])
    np.testing.assert_array_equal(decisions.obs[1][:, 3:], [[0, 0, 0, 0, 0, 0, 1]] * 6)
    assert scene.unity_areas == 4


def test_bodies_start_a_meter_up_turned_at_random_with_nothing_near_their_centers():
    _, scene = opened(400)
    bodies = scene.world.boxes
    assert (np.abs(bodies[..., [X, Z]]) <= 6.25).all()
    np.testing.assert_array_equal(bodies[..., Y], 1.0)
    np.testing.assert_array_equal(scene.world.velocity, 0.0)
    yaw = scene.world.yaw
    assert yaw.min() < 0.01
    assert yaw.max() > 2 * np.pi - 0.01
    for i in range(9):
        for k in range(i + 1, 9):
            # From the middle of i to the flat box of 3 m that k was placed with.
            apart = np.abs(bodies[:, i, [X, Z]] - bodies[:, k, [X, Z]])
            gap = np.linalg.norm(np.maximum(apart - 1.5, 0.0), axis=1)
            assert gap.min() > bodies[0, i, HALF_X], (
                "the circle inside i is clear of it"
            )


def test_old_places_of_agents_are_in_the_way_and_those_of_blocks_are_too_low():
    _, scene = opened(400)
    put(scene, 2, 0.0, 0.0)
    put(scene, 0, -20.0, 0.0)
    put(scene, 1, -20.0, 5.0)
    small = block_of(SMALL)
    put(scene, small, 4.5, 4.5)
    scene._reset(np.arange(400))
    for first in (0, 1):
        place = scene.world.boxes[:, first, [X, Z]]
        assert np.abs(place).max(axis=1).min() >= 2.0
        assert np.abs(place - 4.5).max(axis=1).min() < 1.0


def test_the_grid_lies_ahead_and_shows_blocks_goal_and_the_others_but_not_oneself():
    """Worked by hand: cell [., 19 - i, j] spans i - 10 to i - 9 m to the right, j to j + 1 ahead."""
    _, scene = empty()
    put(scene, 0, 0.0, 0.25, np.pi)  # faces the goal, at -z; its right is -x
    put(scene, 1, -2.6, -1.35)  # from 2.1 to 3.1 m right, from 1.1 to 2.1 m ahead
    put(scene, block_of(LARGE), 4.1, -5.35)  # from 3.1 to 5.1 m left, 4.6 to 6.6 ahead
    grid = scene.observe(BEHAVIOR, np.arange(3))[0][0]
    agents, large = np.zeros((20, 20)), np.zeros((20, 20))
    agents[[[19 - 12], [19 - 13]], [1, 2]] = 1
    large[[[19 - 4], [19 - 5], [19 - 6]], [4, 5, 6]] = 1
    np.testing.assert_array_equal(grid[AGENT_TAG], agents)
    np.testing.assert_array_equal(grid[LARGE], large)
    # The goal begins 8.60025 m ahead and ends at 12.89975; the wall begins at 12.75.
    np.testing.assert_array_equal(
        grid[GOAL_TAG].any(axis=0), np.isin(range(20), range(8, 13))
    )
    np.testing.assert_array_equal(grid[WALL].all(axis=0), np.arange(20) == 13)
    assert grid[[SMALL, VERY_LARGE]].sum() == 0


def test_the_body_sensor_shows_the_velocity_in_the_agents_frame():
    _, scene = empty()
    put(scene, 0, 0.0, 0.0, np.pi / 2)  # faces +x; its right is -z
    scene.world.velocity[0, 0, :3] = 3.0, -1.0, 2.0
    body = scene.observe(BEHAVIOR, np.arange(1))[1]
    np.testing.assert_allclose(body, [[-2, -1, 3, 0, 0, 0, 0, 0, 0, 1]], atol=1e-6)


@pytest.mark.parametrize(
    ("friction", "tag", "agents", "steps", "speed_mps"),
    [
        (0.6, SMALL, 1, 27, 16.3),
        (0.6, SMALL, 2, 27, 20.9),
        (0.6, SMALL, 3, 27, 16.3),
        (0.6, LARGE, 1, 80, 0.0),
        (0.6, LARGE, 2, 80, 4.4),
        (0.6, LARGE, 3, 28, 5.9),
        (0.6, VERY_LARGE, 1, 80, 0.0),
        (0.6, VERY_LARGE, 2, 80, 0.0),
        (0.6, VERY_LARGE, 3, 80, 4.4),
        (0.3, SMALL, 1, 27, 18.9),
        (0.3, SMALL, 2, 27, 23.2),
        (0.3, SMALL, 3, 27, 18.9),
        (0.3, LARGE, 1, 80, 3.4),
        (0.3, LARGE, 2, 28, 6.0),
        (0.3, LARGE, 3, 27, 9.0),
        (0.3, VERY_LARGE, 1, 80, 0.0),
        (0.3, VERY_LARGE, 2, 80, 6.3),
        (0.3, VERY_LARGE, 3, 28, 6.0),
    ],
)
def test_a_blocks_speed_depends_on_its_size_and_on_how_many_push(
    friction, tag, agents, steps, speed_mps
):
    """Small blocks need one agent, large ones two, very large ones all three.

    Source: a prototype in which Unity's policy returns 11.6, with the floor's friction and with
    half of it. Its figures are speeds after 0.54 s, those of slow blocks after 1.6 s. Agents push
    side by side, so only the middle one of three touches a small block.
    """
    _, scene = empty()
    block = block_of(tag)
    half_m = scene.world.boxes[0, block, HALF_X]
    put(scene, block, 0.0, 10.0 - 0.5 - half_m)
    for i in range(agents):
        put(scene, i, i - (agents - 1) / 2, 10.0, np.pi)
    scene.world.friction[:, :, FLOOR] = friction
    scene.academy.discrete[0, :agents, 0] = FORWARD
    for _ in range(steps):
        scene.play(1)
    speed = -scene.world.velocity[0, block, 2]
    assert speed == pytest.approx(speed_mps, rel=0.03, abs=1e-9)


def test_a_block_that_is_pushed_off_center_turns():
    _, scene = empty()
    small = block_of(SMALL)
    put(scene, small, 0.0, 5.0)
    put(scene, 0, 0.9, 6.0, np.pi)
    scene.academy.discrete[0, 0, 0] = FORWARD
    for _ in range(10):
        scene.play(1)
    # A push along -z at +x of the center turns it clockwise, seen from above. (Nearer to the center
    # friction between the two keeps it from turning.)
    assert scene.world.yaw[0, small] > 0.1


@pytest.mark.parametrize(("tag", "value"), [(SMALL, 1), (LARGE, 2), (VERY_LARGE, 3)])
def test_a_block_in_the_goal_pays_its_value_to_the_group_and_vanishes(tag, value):
    env, scene = empty()
    inside, far = block_of(tag), AGENTS + len(BLOCK_TAGS) - 1  # a large block stays
    put(scene, far, 0.0, 0.0)
    put(scene, inside, 5.0, -9.0)
    act(env)
    decisions, ends = env.steps(BEHAVIOR)
    assert len(ends) == 0
    np.testing.assert_allclose(decisions.group_reward, value - 0.0005, atol=1e-6)
    np.testing.assert_array_equal(decisions.reward, 0.0)
    assert scene.world.boxes[0, inside, BOX_TAG] == ABSENT
    assert scene.world.boxes[0, far, BOX_TAG] != ABSENT
    assert decisions.obs[0][:, tag].sum() == 0


def test_the_last_block_in_the_goal_ends_the_episode_with_its_reward():
    env, scene = empty(2)
    put(scene, block_of(SMALL), 5.0, -10.0)
    put(scene, block_of(LARGE), -5.0, -10.0)
    scene.world.boxes[1, block_of(LARGE), Z] = 0.0
    _, ends = act(env)
    np.testing.assert_array_equal(ends.agent_id, [0, 1, 2])
    np.testing.assert_array_equal(ends.group_id, [1, 1, 1])
    assert not ends.interrupted.any()
    # The step that ends it is not charged any more.
    np.testing.assert_allclose(ends.group_reward, 3.0, atol=1e-6)
    assert (scene.world.boxes[0, AGENTS:, BOX_TAG] == BLOCK_TAGS).all()
    assert scene.timer.tolist() == [1, 2]


def test_an_episode_is_interrupted_after_5000_steps_and_costs_half_a_point():
    env, scene = opened()
    paid, ends_seen = [0.0, 0.0], 0
    steps = 0
    while ends_seen < 2:
        scene.world.boxes[0, AGENTS:, Y] = 50.0  # out of reach
        decisions, ends = act(env)
        if len(ends):
            assert ends.interrupted.all()
            paid[ends_seen] += ends.group_reward[0]
            ends_seen += 1
        if ends_seen < 2 and len(decisions):
            paid[ends_seen] += decisions.group_reward[0]
        steps += 1
    # The first episode begins with the controllers' first update; its reward came with the first
    # decision, before `act`.
    assert paid[0] == pytest.approx(-4998 / 10000, abs=2e-5)
    assert paid[1] == pytest.approx(-0.5, abs=2e-5)


def test_gravity_reaches_the_physics_at_once():
    env, scene = opened(2)
    env.set_parameters({"gravity": 3.0})
    np.testing.assert_array_equal(scene.world.gravity, 3.0)


def test_block_progress_pays_the_way_towards_the_goal_times_the_blocks_value():
    env, scene = empty()
    env.set_parameters({"block_progress": 0.1})
    small, large = block_of(SMALL), block_of(LARGE)
    put(scene, small, 0.0, 0.0)
    put(scene, large, 6.0, 0.0)
    scene.world.velocity[0, small, 2] = -5.0
    scene.world.velocity[0, large, 2] = 2.0  # away from it
    decisions, _ = act(env)
    z = scene.world.boxes[0, :, Z]
    assert z[small] < -0.1
    assert z[large] > 0.01
    earned = 0.1 * (-z[small] - 2.0 * z[large])
    np.testing.assert_allclose(decisions.group_reward, earned - 0.0005, atol=1e-6)


def test_the_number_of_threads_does_not_change_what_block_progress_pays():
    paths = []
    for threads in (1, 3):
        scene = CooperativePushBlock(160, threads)
        with SceneEnv(scene, parameters={"block_progress": 0.1}) as env:
            env.reset(seed=3)
            rng = np.random.default_rng(0)
            earned = []
            for _ in range(60):
                count = len(env.steps(BEHAVIOR)[0])
                others = rng.integers(0, 7, count)
                is_ahead = rng.random(count) < 0.8
                decisions, _ = act(env, np.where(is_ahead, FORWARD, others))
                earned.append(decisions.group_reward)
            paths.append(np.array(earned))
    np.testing.assert_array_equal(*paths)
    assert np.any(np.abs(paths[0]) > 0.01)
