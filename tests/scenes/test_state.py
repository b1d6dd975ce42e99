"""The state that scenes show to critics: a last sensor beside all else as it was."""

import numpy as np
import pytest

from touchline.envs.env import EnvRecipe, make
from touchline.envs.scene_env import SceneEnv
from touchline.errors import UsageError
from touchline.physics.shapes import ABSENT, BOX_TAG, COS, SIN, X, Z
from touchline.scenes.ball_3d import STATE_MIDDLE, STATE_SPREAD
from touchline.scenes.basic import Basic
from touchline.scenes.box_scene import STATE_OF_BODY
from touchline.scenes.cooperative_push_block import AGENTS, BEHAVIOR, BLOCKS
from touchline.scenes.dungeon_escape.game import BEHAVIOR as DUNGEON
from touchline.scenes.dungeon_escape.game import DRAGON, KEY
from touchline.scenes.dungeon_escape.game import STATE_M as DUNGEON_M
from touchline.scenes.grid_food_collector.court import GOOD
from touchline.scenes.grid_food_collector.game import NEAREST, STATE_M


@pytest.mark.parametrize(
    "scene",
    [
        "3DBallHard",
        "CooperativePushBlock",
        "DungeonEscape",
        "GridFoodCollector",
        "Hallway",
        "PushBlock",
        "Pyramids",
        "SoccerTwos",
        "StrikersVsGoalie",
        "Visual3DBall",
        "VisualFoodCollector",
        "WallJump",
    ],
)
def test_the_state_is_a_last_sensor_for_critics_and_changes_nothing_else(scene):
    rng = np.random.default_rng(0)
    largest = 0.0
    with (
        make(EnvRecipe("scene", scene, 3)) as plain,
        make(EnvRecipe("scene", scene, 3, options={"state": True})) as shown,
    ):
        for env in (plain, shown):
            env.reset()
        for _ in range(60):
            for name, spec in shown.behaviors.items():
                assert spec.observed == plain.behaviors[name]
                last = spec.observation_specs[-1]
                assert (last.name, last.critic_only) == ("State", True)
                own, also = plain.steps(name)[0], shown.steps(name)[0]
                *observed, state = also.obs
                for before, after in zip(own.obs, observed, strict=True):
                    np.testing.assert_array_equal(before, after)
                assert state.shape == (len(also), spec.state_size)
                assert state.dtype == np.float32
                largest = max(largest, np.abs(state).max(initial=0))
                action = spec.action_spec.random_action(len(also), rng)
                for env in (plain, shown):
                    env.set_actions(name, action)
            for env in (plain, shown):
                env.step()
    assert largest < 8  # in units about as large as the spread


def test_the_critic_of_a_hard_ball_sees_its_velocity():
    """What agents of 3DBall observe, centered and scaled; those of 3DBallHard infer it."""
    easy_name, hard_name = "3DBall?team=0", "3DBallHard?team=0"
    with (
        make(EnvRecipe("scene", "3DBall", 3)) as easy,
        make(EnvRecipe("scene", "3DBallHard", 3, options={"state": True})) as hard,
    ):
        for env in (easy, hard):
            env.reset(7)
        for _ in range(20):
            (seen,) = easy.steps(easy_name)[0].obs
            *_, state = hard.steps(hard_name)[0].obs
            np.testing.assert_array_equal(state, (seen - STATE_MIDDLE) / STATE_SPREAD)
            for env in (easy, hard):
                env.step()  # without actions, cubes do not turn
    velocity = seen[:, -3:]
    assert (np.abs(velocity).max(axis=1) > 0.5).all(), "the balls roll by now"


def test_blocks_in_the_goal_are_zeros_for_the_critic():
    with make(EnvRecipe("scene", "CooperativePushBlock", 2)) as env:
        env.reset()
        scene = env.scene
        agents = np.arange(scene.num_areas * AGENTS)
        before = scene.observe_state(BEHAVIOR, agents)
        scene.world.boxes[1, AGENTS + 2, BOX_TAG] = ABSENT  # the third block of area 1
        after = scene.observe_state(BEHAVIOR, agents)
    is_gone = np.zeros(before.shape, bool)
    is_gone[AGENTS:, STATE_OF_BODY * 3 : STATE_OF_BODY * 4] = True  # after the agent
    is_gone[AGENTS:, STATE_OF_BODY * (1 + BLOCKS) + 2] = True
    assert before[is_gone].any()
    np.testing.assert_array_equal(after, np.where(is_gone, 0.0, before))


def test_a_dragon_that_died_leaves_its_key_for_the_critic():
    with make(EnvRecipe("scene", "DungeonEscape", 1)) as env:
        env.reset()
        scene = env.scene
        place = scene.world.boxes[0, DRAGON, [X, Z]].copy()
        touching = np.array([[True, False, False]])
        scene._die_with_dragon(touching)
        (state,) = scene.observe_state(DUNGEON, np.array([1]))
        key = scene.world.boxes[0, KEY, [X, Z]]
    dragon, lying = np.split(state[STATE_OF_BODY : STATE_OF_BODY + 14], 2)
    assert not dragon.any()
    np.testing.assert_allclose(lying[:2], key / DUNGEON_M, rtol=1e-5)
    np.testing.assert_allclose(lying[2:4], (key / DUNGEON_M) - state[:2], atol=1e-5)
    assert lying[-1] == 1.0
    assert np.linalg.norm(key - place) < 1.0


def test_the_nearest_food_comes_first_as_seen_from_the_agent():
    with make(EnvRecipe("scene", "GridFoodCollector", 2)) as env:
        env.reset()
        scene = env.scene
        courts, agent = scene.courts, 7  # the third agent of area 1
        me = courts.agent[1, 2]
        me[[X, Z]], me[[COS, SIN]] = (10.0, 20.0), (0.0, 1.0)  # it looks along x
        courts.food[..., X] = courts.food[..., Z] = -40.0
        courts.food[1, GOOD - 1, [X, Z]] = 15.0, 20.0  # 5 m ahead
        courts.food[1, GOOD + 3, [X, Z]] = 10.0, 18.0  # bad, 2 m to the right
        courts.frozen[1, 4], courts.frozen[1, 2] = 1, 100
        (state,) = scene.observe_state("GridFoodCollector?team=0", np.array([agent]))
    assert len(state) == scene.state_size
    assert state[STATE_OF_BODY] == 0.5
    is_frozen = state[STATE_OF_BODY + 2 + 8 : STATE_OF_BODY + 2 + 12]
    np.testing.assert_array_equal(is_frozen, [0, 1, 0, 0])  # agents 3, 4, 0, 1
    good, bad = state[-4 * NEAREST :].reshape(2, NEAREST, 2)
    np.testing.assert_allclose(good[0], [0.0, 5.0 / STATE_M], atol=1e-6)
    np.testing.assert_allclose(bad[0], [2.0 / STATE_M, 0.0], atol=1e-6)


def test_a_size_without_the_method_is_one_line():
    class Half(Basic):
        state_size = 2

    scene = Half(1)
    scene.show_state()
    with pytest.raises(UsageError, match="state_size is 2, so it needs the method"):
        SceneEnv(scene).reset()
