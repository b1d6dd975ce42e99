"""DungeonEscape: deaths, the key, the door, the portal, the dragon, new ids and off-grid decisions."""

import numpy as np
import pytest

from touchline.envs.scene_env import SceneEnv
from touchline.physics.shapes import ABSENT, BOX_TAG
from touchline.scenes.dungeon_escape.game import BEHAVIOR, DungeonEscape
from touchline.scenes.dungeon_escape.rounds import (
    AGENTS,
    CARRIED_KEY,
    DRAGON,
    KEY,
    PATIENCE,
    TOMB_STONE,
)
from touchline.specs import ActionTuple


def opened(num_areas=1):
    env = SceneEnv(DungeonEscape(num_areas, 1))
    env.reset()
    return env, env.scene


def calm(num_areas=1):
    """Agents on the ground far from everything, the dragon slow and far."""
    env, scene = opened(num_areas)
    for i, place in enumerate([(-10, 0.5, -10), (-10, 0.5, 0), (-10, 0.5, 10)]):
        scene.world.boxes[:, i, :3] = place
    scene.world.velocity[:] = 0.0
    scene.world.boxes[:, DRAGON, :3] = 0.0, 0.75, 0.0
    scene.dragon_speed_mps[:] = 0.01
    return env, scene


def sacrifice(env, scene, who=1):
    """Put one agent at the dragon; returns the exchange with its end."""
    dragon = scene.world.boxes[0, DRAGON]
    scene.world.boxes[0, who, :3] = dragon[0] - 1.26, 0.5, dragon[2]
    env.step()
    return env.steps(BEHAVIOR)


def test_has_unitys_sensors_ids_and_groups():
    env, scene = opened(3)
    assert [(o.name, o.shape) for o in env.behaviors[BEHAVIOR].observation_specs] == [
        ("RBSensor", (10,)),
        ("StackingSensor_size3_RayPerceptionSensor", (360,)),
        ("VectorSensor_size1", (1,)),
    ]
    decisions, _ = env.steps(BEHAVIOR)
    np.testing.assert_array_equal(decisions.agent_id, np.arange(9))
    np.testing.assert_array_equal(decisions.group_id, [1, 1, 1, 2, 2, 2, 3, 3, 3])
    np.testing.assert_array_equal(decisions.obs[0][:, 3:], [[0, 0, 0, 0, 0, 0, 1]] * 9)
    assert scene.unity_areas == 12


def test_agents_start_clear_of_each_other_and_the_dragon_on_one_of_four_sides():
    _, scene = opened(400)
    agents, dragon = scene.world.boxes[:, :AGENTS], scene.world.boxes[:, DRAGON]
    assert (np.abs(agents[..., [0, 2]]) <= 6.25).all()
    for i, k in ((0, 1), (0, 2), (1, 2)):
        # Corner to corner.
        assert (
            np.abs(agents[:, i, [0, 2]] - agents[:, k, [0, 2]]).max(axis=1).min()
            >= 2.85
        )
    sides = {tuple(p) for p in np.abs(dragon[:, [0, 2]]).round(6).tolist()}
    assert sides == {(0.0, 8.0), (8.0, 0.0)}
    to_portal = np.linalg.norm(dragon[:, [0, 2]] - [11.58, -11.59], axis=1).round(1)
    assert set(to_portal.tolist()) <= {12.1, 22.8, 22.7}
    assert 1.0 <= scene.dragon_speed_mps.min() < 1.3
    assert 6.7 < scene.dragon_speed_mps.max() <= 7.0


def test_the_old_place_of_a_living_agent_is_in_its_way():
    _, scene = opened(400)
    scene.world.boxes[:, :AGENTS, :3] = [(0, 0.5, 0), (-20, 0.5, 0), (-20, 0.5, 10)]
    scene._end(np.arange(400))
    # 3.0 beside a face; 2.86 past the corner of an agent that is turned by 45 degrees
    assert np.abs(scene.world.boxes[:, 0, [0, 2]]).max(axis=1).min() >= 2.85


def test_where_old_places_leave_no_room_they_no_longer_count():
    env, scene = opened(200)
    rng = np.random.default_rng(0)
    tries = 0
    for _ in range(150):
        for _ in range(rng.integers(1, 25)):
            count = len(env.steps(BEHAVIOR)[0])
            env.execute(BEHAVIOR, ActionTuple(discrete=rng.integers(0, 7, (count, 1))))
            env.step()
        env.reset()
        tries = max(tries, int(scene.streams.drawn.max()))
    assert PATIENCE < tries < 8 * PATIENCE, (
        "one of these 30,000 begins has no room, and ends all the same"
    )


def test_an_agent_that_touches_the_dragon_dies_with_it_and_leaves_a_tomb_and_the_key():
    env, scene = calm()
    decisions, ends = sacrifice(env, scene)
    assert len(decisions) == 0
    np.testing.assert_array_equal(ends.agent_id, [1])
    np.testing.assert_array_equal(ends.group_id, [1])
    assert ends.reward[0] == ends.group_reward[0] == 0.0
    assert not ends.interrupted[0]
    boxes = scene.world.boxes[0]
    assert (
        boxes[DRAGON, BOX_TAG]
        == boxes[CARRIED_KEY, BOX_TAG]
        == boxes[1, BOX_TAG]
        == ABSENT
    )
    assert boxes[TOMB_STONE, 0] == pytest.approx(boxes[1, 0])
    assert np.linalg.norm(boxes[KEY, [0, 2]] - boxes[DRAGON, [0, 2]]) == pytest.approx(
        0.19, abs=1e-6
    )
    env.step()
    np.testing.assert_array_equal(env.steps(BEHAVIOR)[0].agent_id, [0, 2])


def test_the_key_opens_the_door_for_a_group_reward_and_the_dead_return_as_new_agents():
    env, scene = calm(2)
    sacrifice(env, scene)
    key = scene.world.boxes[0, KEY]
    scene.world.boxes[0, 0, :3] = key[0], 0.5, key[2]
    scene.world.velocity[:] = 0.0
    env.step()
    assert scene.has_key[0].tolist() == [True, False, False]
    scene.world.boxes[0, 0, :3] = 0.0, 0.5, 11.56
    while not len(env.steps(BEHAVIOR)[1]):
        assert (env.steps(BEHAVIOR)[0].obs[2][:1] == 1.0).all(), (
            "it observes that it has the key"
        )
        env.step()
    decisions, ends = env.steps(BEHAVIOR)
    np.testing.assert_array_equal(ends.agent_id, [0, 2])
    np.testing.assert_array_equal(ends.group_reward, 1.0)
    np.testing.assert_array_equal(ends.reward, 0.0)
    assert not ends.interrupted.any()
    if not len(decisions):
        env.step()
    decisions, _ = env.steps(BEHAVIOR)
    assert 6 in decisions.agent_id, "the next free id, and no other changes"
    assert scene.academy.agent_id[0].tolist() == [0, 6, 2]
    assert decisions.group_id[list(decisions.agent_id).index(6)] == 1


def test_a_new_agent_decides_at_once_even_off_the_decision_period():
    env, scene = calm()
    sacrifice(env, scene)
    env.step()  # a grid point passes: the dead agent's requester goes on asking
    scene.has_key[0, 0] = True
    scene.at_door[:] = False
    scene.world.boxes[0, 0, :3] = 0.0, 0.5, 11.56
    scene.world.velocity[:] = 0.0
    env.step()
    decisions, ends = env.steps(BEHAVIOR)
    assert len(ends) == 2
    np.testing.assert_array_equal(decisions.agent_id, [3])
    assert (scene.academy.clock - 1) % 5 != 0, "off the grid"


def test_the_door_without_the_key_is_only_a_door():
    env, scene = calm()
    scene.world.boxes[0, 0, :3] = 0.0, 0.5, 11.56
    env.step()
    assert len(env.steps(BEHAVIOR)[1]) == 0


def test_the_portal_takes_an_agent_and_ends_the_episode_with_the_last_or_with_the_key():
    env, scene = calm()
    at_portal = (10.86, 0.5, -10.8)
    scene.world.boxes[0, 0, :3] = at_portal
    env.step()
    ends = env.steps(BEHAVIOR)[1]
    np.testing.assert_array_equal(ends.agent_id, [0])
    assert scene.academy.enabled[0].tolist() == [False, True, True]
    scene.has_key[0, 2] = True
    scene.world.boxes[0, 2, :3] = at_portal
    while not len(env.steps(BEHAVIOR)[1]) or 0 in env.steps(BEHAVIOR)[1].agent_id:
        env.step()
    ends = env.steps(BEHAVIOR)[1]
    np.testing.assert_array_equal(ends.agent_id, [1, 2])
    np.testing.assert_array_equal(ends.group_reward, 0.0)
    assert scene.academy.agent_id[0].tolist() == [3, 1, 2]


def test_a_dragon_that_gets_away_ends_the_episode():
    env, scene = calm()
    scene.world.boxes[0, DRAGON, [0, 2]] = 10.0, -10.0
    scene.dragon_speed_mps[:] = 7.0
    while not len(env.steps(BEHAVIOR)[1]):
        env.step()
    ends = env.steps(BEHAVIOR)[1]
    assert len(ends) == 3
    np.testing.assert_array_equal(ends.group_reward, 0.0)
    assert not ends.interrupted.any()


def test_the_areas_own_clock_interrupts():
    env, scene = calm()
    scene.timer[:] = 14999
    env.step()
    ends = env.steps(BEHAVIOR)[1]
    assert len(ends) == 3
    assert ends.interrupted.all()


def test_velocity_is_observed_in_the_agents_own_frame():
    _, scene = calm()
    scene.world.velocity[0, 0, :3] = 1.0, 2.0, 3.0
    scene.world.boxes[0, 0, 6:8] = 0.0, 1.0  # facing +x: ahead is x, right is -z
    obs = scene.observe(BEHAVIOR, np.array([0]))[0][0]
    np.testing.assert_allclose(obs[:3], [-3.0, 2.0, 1.0], atol=1e-6)


def test_columns_are_half_as_rough():
    _, scene = opened()
    np.testing.assert_allclose(np.unique(scene.world.friction[0, 0, 7:11]), 0.3)
