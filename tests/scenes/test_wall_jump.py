"""WallJump: two behaviors under one id, walls, jumps, ground checks, goal and falls."""

import numpy as np
import pytest

from touchline.envs.scene_env import SceneEnv
from touchline.errors import UsageError
from touchline.scenes.wall_jump.game import BIG, SMALL, WallJump
from touchline.scenes.wall_jump.motion import AGENT, BLOCK, WALL_BOX
from touchline.specs import ActionTuple


def opened(num_areas=1, seed=0, **parameters):
    env = SceneEnv(WallJump(num_areas, 1), seed, parameters)
    env.reset()
    return env, env.scene


def act(env, *choice):
    for name in (SMALL, BIG):
        count = len(env.steps(name)[0])
        if count:
            env.set_actions(name, ActionTuple(discrete=np.tile(choice, (count, 1))))
    env.step()
    return {name: env.steps(name) for name in (SMALL, BIG)}


def standing(num_areas=1):
    """An agent at rest on the ground, facing the wall; the block aside."""
    env, scene = opened(num_areas)
    scene.world.boxes[:, AGENT, :3] = 0.0, 0.95, -9.0
    scene.world.boxes[:, BLOCK, :3] = -7.0, 1.5, -12.0
    scene.world.boxes[:, AGENT, 6:8] = 1.0, 0.0
    scene.world.yaw[:, AGENT] = 0.0
    scene.world.velocity[:] = 0.0
    return env, scene


def test_has_unitys_sensors_and_branches():
    env, scene = opened()
    for name in (SMALL, BIG):
        assert [(o.name, o.shape) for o in env.behaviors[name].observation_specs] == [
            ("StackingSensor_size6_OffsetRayPerceptionSensor", (210,)),
            ("StackingSensor_size6_RayPerceptionSensor", (210,)),
            ("StackingSensor_size6_VectorSensor_size4", (24,)),
        ]
        assert env.behaviors[name].action_spec.discrete_branches == (3, 3, 3, 2)
    assert scene.unity_areas == 24


def test_every_agent_ends_once_under_small_wall_jump_at_the_start():
    env, _ = opened(24)
    ends = env.steps(SMALL)[1]
    np.testing.assert_array_equal(ends.agent_id, np.arange(24))
    np.testing.assert_array_equal(ends.reward, 0.0)
    assert not ends.interrupted.any()
    assert len(env.steps(BIG)[1]) == 0
    small, big = env.steps(SMALL)[0], env.steps(BIG)[0]
    assert len(small) + len(big) == 24
    assert len(small) > 0
    assert len(big) > 0


def test_some_agents_end_again_one_step_later_and_show_up_under_the_other_behavior():
    env, _ = opened(200)
    was_big = set(env.steps(BIG)[0].agent_id.tolist())
    exchange = act(env, 0, 0, 0, 0)
    left_big, left_small = exchange[BIG][1], exchange[SMALL][1]
    assert len(exchange[SMALL][0]) == len(exchange[BIG][0]) == 0, (
        "this exchange holds ends alone"
    )
    assert set(left_big.agent_id.tolist()) <= was_big
    assert not set(left_small.agent_id.tolist()) & was_big
    assert 0.3 < (len(left_big) + len(left_small)) / 200 < 0.65  # 2 * 0.4 * 0.6
    exchange = act(env, 0, 0, 0, 0)
    assert set(left_big.agent_id.tolist()) <= set(exchange[SMALL][0].agent_id.tolist())


def test_behavior_and_wall_go_together():
    env, scene = opened(500)
    act(env, 0, 0, 0, 0)
    heights = 2 * scene.world.boxes[:, WALL_BOX, 4]
    is_big = scene.academy.behavior[:, 0] == scene.academy.names.index(BIG)
    np.testing.assert_array_equal(heights[is_big], 8.0)
    assert set(heights[~is_big].tolist()) == {0.0, 4.0}
    assert 0.5 < is_big.mean() < 0.7


def test_wall_heights_follow_the_parameters():
    env, scene = opened(100, big_wall_height=5.0, small_wall_height=2.0)
    act(env, 0, 0, 0, 0)
    assert set((2 * scene.world.boxes[:, WALL_BOX, 4]).tolist()) == {0.0, 2.0, 5.0}
    with pytest.raises(
        UsageError, match=r"'big_wall_height' .* takes 0 to 100, got -3"
    ):
        env.set_parameters({"big_wall_height": -3.0})


def test_places_at_the_start_of_an_episode():
    _, scene = opened(400)
    agent, block = scene.world.boxes[:, AGENT], scene.world.boxes[:, BLOCK]
    assert (np.abs(agent[:, 0]) <= 9.0).all()
    assert np.ptp(agent[:, 0]) > 17
    np.testing.assert_array_equal(agent[:, 1:3], [[1.0, -12.0]] * 400)
    assert (np.abs(block[:, 0]) <= 8.1).all()
    assert (np.abs(block[:, 2] + 6.27) <= 3.5).all()
    np.testing.assert_array_equal(block[:, 1], 1.5)


def test_a_jump_lifts_by_almost_its_height_and_needs_ground_to_begin():
    env, scene = standing()
    heights = []
    for jump in (1, 0, 0, 0, 0):
        act(env, 0, 0, 0, jump)
        heights.append(scene.world.boxes[0, AGENT, 1])
    assert 2.2 < max(heights) - 0.95 < 2.8
    assert heights[-1] == pytest.approx(0.95, abs=1e-3)
    scene.world.boxes[0, AGENT, 1] = 3.0
    act(env, 0, 0, 0, 1)
    assert scene.jump_steps[0] == 0


def test_in_the_air_the_push_is_halved():
    _, scene = standing(2)
    scene.world.boxes[1, AGENT, 1] = 3.0
    scene.academy.discrete[:, 0] = [1, 0, 0, 0]
    scene.act()
    np.testing.assert_allclose(scene.world.velocity[:, AGENT, 2], [3.0, 1.5])
    assert scene.world.velocity[1, AGENT, 1] == pytest.approx(-111 * 0.02), (
        "and something pulls down"
    )


def test_the_vector_holds_place_and_ground():
    env, scene = standing()
    act(env, 0, 0, 0, 0)
    name = scene.academy.names[scene.academy.behavior[0, 0]]
    obs = scene.observe(name, np.array([0]))[2][0, -4:]
    np.testing.assert_allclose(obs, [0.0, 0.95 / 20, -5.0 / 20, 1.0], atol=1e-4)


def test_standing_within_the_goal_sets_one_and_flying_through_it_does_not():
    env, scene = standing(2)
    scene.world.boxes[:, AGENT, :3] = [[6.4, 0.95, 3.0], [6.4, 4.0, 3.0]]
    exchange = act(env, 0, 0, 0, 0)
    ends = [exchange[name][1] for name in (SMALL, BIG)]
    ids = np.concatenate([e.agent_id for e in ends])
    rewards = np.concatenate([e.reward for e in ends])
    assert 0 in ids
    assert rewards[list(ids).index(0)] == pytest.approx(1.0)


@pytest.mark.parametrize("body", [AGENT, BLOCK])
def test_falling_off_the_ground_sets_a_loss(body):
    env, scene = standing()
    act(env, 0, 0, 0, 0)
    scene.world.boxes[0, body, 0] = 12.0
    for _ in range(3):
        exchange = act(env, 0, 0, 0, 0)
        ends = [exchange[name][1] for name in (SMALL, BIG) if len(exchange[name][1])]
        if ends:
            break
    assert ends[0].reward[0] == pytest.approx(-1.0)
    assert abs(scene.world.boxes[0, BLOCK, 0]) <= 8.1
    assert scene.academy.agent_id[0, 0] == 0, "the id stays"


def test_yaw_is_kept_in_the_next_episode():
    env, scene = standing()
    act(env, 0, 2, 0, 0)
    turned = scene.world.yaw[0, AGENT]
    assert turned > 0.1
    scene.begin_episodes(np.array([0]))
    assert scene.world.yaw[0, AGENT] == turned


def test_later_changes_of_behavior_add_no_end():
    env, scene = opened(50)
    rng = np.random.default_rng(0)
    ends, switches, before = 0, 0, None
    act(env, 0, 0, 0, 0)
    act(env, 0, 0, 0, 0)
    begun = int(scene.streams.episode.sum())
    for _ in range(400):
        for name in (SMALL, BIG):
            count = len(env.steps(name)[0])
            if count:
                env.set_actions(
                    name, env.behaviors[name].action_spec.random_action(count, rng)
                )
        env.step()
        ends += sum(len(env.steps(name)[1]) for name in (SMALL, BIG))
        now = scene.academy.behavior.copy()
        switches += 0 if before is None else int((now != before).sum())
        before = now
    assert ends == int(scene.streams.episode.sum()) - begun, "one end per episode"
    assert switches > 5
