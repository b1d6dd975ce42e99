"""Stable-Baselines3 on the rows of the VectorEnv: ends, masks, and one update of its PPO."""

from contextlib import closing

import numpy as np
import pytest
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.vec_env import VecMonitor

import touchline
from touchline.errors import UsageError


def test_a_step_tells_what_the_vector_env_tells():
    env = touchline.make_sb3("3DBall", num_envs=4)
    beside = touchline.make_gymnasium("3DBall", num_envs=4)
    env.seed(3)
    np.testing.assert_array_equal(env.reset(), beside.reset(seed=3)[0])
    num_ends = 0
    for _ in range(200):
        actions = beside.action_space.sample()
        obs, reward, done, infos = env.step(actions)
        expected, earned, terminated, truncated, info = beside.step(actions)
        np.testing.assert_array_equal(obs, expected)
        np.testing.assert_array_equal(reward, earned.astype(np.float32))
        np.testing.assert_array_equal(done, terminated | truncated)
        for row, own in enumerate(infos):
            assert bool(own) == done[row]
            if done[row]:
                num_ends += 1
                last = own["terminal_observation"]
                np.testing.assert_array_equal(last, info["final_obs"][row])
                assert own["TimeLimit.truncated"] == truncated[row]
    assert num_ends > 10
    assert reward.dtype == np.float32
    env.close()
    env.close()


def test_an_episode_that_was_cut_short_says_so():
    with closing(touchline.make_sb3("PushBlock", num_envs=1)) as env:
        env.reset()
        num_steps, done = 0, [False]
        while not done[0]:
            _, _, done, infos = env.step(np.zeros(1, int))  # 0: do nothing
            num_steps += 1
    # ML-Agents' PushBlock: MaxStep 5000, a decision every 5 steps.
    assert num_steps == 1000
    assert infos[0]["TimeLimit.truncated"] is True


def test_masks_are_where_maskable_algorithms_look_for_them():
    """As `sb3_contrib.common.maskable.utils.get_action_masks` and `is_masking_supported` do."""
    with closing(touchline.make_sb3("GridWorld", num_envs=3)) as env:
        env.seed(0)
        env.reset()
        assert env.has_attr("action_masks")
        masks = np.stack(env.env_method("action_masks"))
        assert masks.shape == (3, 5)
        assert not masks.all(), "at a wall there is a move that is forbidden"
        np.testing.assert_array_equal(
            np.stack(env.env_method("action_masks", indices=[2])), masks[2:]
        )
    with closing(touchline.make_sb3("PushBlock", num_envs=2)) as env:
        env.reset()
        assert np.stack(env.env_method("action_masks")).tolist() == [[1] * 7] * 2
    with closing(touchline.make_sb3("3DBall", num_envs=2)) as env:
        assert not env.has_attr("action_masks")


def test_attributes_and_methods_are_the_worlds():
    env = touchline.make_sb3("PushBlock", num_envs=3, render_mode="rgb_array")
    with closing(env):
        env.reset()
        assert env.get_attr("render_mode") == ["rgb_array"] * 3
        assert env.get_attr("num_envs", indices=1) == [3]
        env.set_attr("note", "kept")
        assert env.get_attr("note", indices=[0, 2]) == ["kept"] * 2
        assert env.env_is_wrapped(VecMonitor) == [False] * 3
        assert env.render().shape == (480, 640, 3)


def test_teams_become_one_table_by_group_by():
    with closing(touchline.make_sb3("SoccerTwos", num_envs=8, group_by="base")) as env:
        assert env.num_envs == 8
        assert set(env.reset()) == set(env.observation_space)


@pytest.mark.parametrize(
    ("algorithm", "scene", "settings"),
    [
        (PPO, "3DBall", {"n_steps": 32, "batch_size": 32}),
        (DQN, "PushBlock", {"learning_starts": 20, "buffer_size": 1000}),
    ],
)
def test_its_algorithms_learn_from_all_agents(algorithm, scene, settings):
    env = VecMonitor(touchline.make_sb3(scene, num_envs=4, join_vectors=True))
    model = algorithm("MlpPolicy", env, seed=0, device="cpu", **settings)
    before = [p.detach().clone() for p in model.policy.parameters()]
    model.learn(400)
    after = list(model.policy.parameters())
    assert model.num_timesteps >= 400
    assert any((a != b).any() for a, b in zip(after, before, strict=True))
    assert len(model.ep_info_buffer) > 0 or scene == "PushBlock", (
        "its episodes are long"
    )
    env.close()


def test_actions_of_both_kinds_are_refused_with_the_adapter_that_has_them():
    world = touchline.make(touchline.EnvRecipe("scene", "GridFoodCollector", 1))
    with pytest.raises(UsageError, match=r"no algorithm for .* take make_torchrl"):
        touchline.make_sb3(world)
    # It is the caller's, and as open as before.
    touchline.make_torchrl(world).close()


def test_a_scene_whose_agents_leave_is_refused_when_it_is_made():
    with pytest.raises(UsageError, match=r"DungeonEscape are gone .* make_torchrl"):
        touchline.make_sb3("DungeonEscape", num_envs=3)


@pytest.mark.parametrize(
    "option", [{"autoreset_mode": "NextStep"}, {"allow_idle": True}]
)
def test_rows_in_which_nothing_acts_are_refused_when_it_is_made(option):
    with pytest.raises(UsageError, match=r"in every row .* take make_gymnasium"):
        touchline.make_sb3("3DBall", num_envs=2, **option)
