"""The state that scenes show to critics: a last sensor beside all else as it was."""

import numpy as np
import pytest

from touchline.envs.env import EnvRecipe, make
from touchline.envs.scene_env import SceneEnv
from touchline.errors import UsageError
from touchline.scenes.basic import Basic


@pytest.mark.parametrize(
    "scene",
    [
        "3DBallHard",
        "CooperativePushBlock",
        "DungeonEscape",
        "Hallway",
        "PushBlock",
        "Pyramids",
        "SoccerTwos",
        "StrikersVsGoalie",
        "Visual3DBall",
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


def test_a_size_without_the_method_is_one_line():
    class Half(Basic):
        state_size = 2

    scene = Half(1)
    scene.show_state()
    with pytest.raises(UsageError, match="state_size is 2, so it needs the method"):
        SceneEnv(scene).reset()
