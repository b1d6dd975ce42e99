"""SoccerTwos and StrikersVsGoalie: names, ids, groups, places, moves, kicks, goals and ends."""

import numpy as np
import pytest

from touchline.envs.actions import ActionError
from touchline.envs.scene_env import SceneEnv
from touchline.errors import UsageError
from touchline.scenes.soccer.field import BLUE_GOAL, PURPLE_GOAL
from touchline.scenes.soccer.games import SoccerTwos, StrikersVsGoalie
from touchline.scenes.soccer.physics import KICK_MPS
from touchline.specs import ActionTuple

BLUE, PURPLE = "SoccerTwos?team=0", "SoccerTwos?team=1"
FAR = 8.0


def opened(scene=SoccerTwos, num_areas=1, **parameters):
    env = SceneEnv(scene(num_areas, 1), 0, parameters)
    env.reset()
    return env, env.scene


def clear_field(scene):
    """Players in their corners, ball in the middle, everything at rest."""
    players = len(scene.players)
    scene.velocity[:] = 0.0
    scene.rounds[:, :, [0, 2]] = 0.0
    for i in range(players):
        scene.rounds[:, i, 0], scene.rounds[:, i, 2] = -FAR + 4 * i, -5.0
    scene.yaw[:] = 0.0


def do(env, name, choices):
    env.set_actions(name, ActionTuple(discrete=np.array(choices)))


def steps_until_exchange(env):
    env.step()
    return {name: env.steps(name) for name in env.behaviors}


def test_soccer_twos_has_unitys_behaviors_sensors_ids_and_groups():
    env, scene = opened(num_areas=8)
    assert list(env.behaviors) == [PURPLE, BLUE]
    assert [(o.name, o.shape) for o in env.behaviors[BLUE].observation_specs] == [
        ("StackingSensor_size3_BlueRayPerceptionSensor", (264,)),
        ("StackingSensor_size3_BlueRayPerceptionSensorReverse", (72,)),
    ]
    assert (
        env.behaviors[PURPLE].observation_specs[0].name
        == "StackingSensor_size3_PurpleRayPerceptionSensor"
    )
    assert env.behaviors[BLUE].action_spec.discrete_branches == (3, 3, 3)
    blue, purple = env.steps(BLUE)[0], env.steps(PURPLE)[0]
    np.testing.assert_array_equal(purple.agent_id[:4], [0, 2, 4, 6])
    np.testing.assert_array_equal(blue.agent_id[:4], [1, 3, 5, 7])
    np.testing.assert_array_equal(blue.group_id[:4], [1, 1, 3, 3])
    np.testing.assert_array_equal(purple.group_id[:4], [2, 2, 4, 4])
    assert scene.unity_areas == 8


def test_strikers_vs_goalie_has_unitys_behaviors_sensors_ids_and_groups():
    env, _ = opened(StrikersVsGoalie, num_areas=2)
    strikers, goalies = env.steps("Striker?team=0")[0], env.steps("Goalie?team=1")[0]
    assert [o.shape for o in env.behaviors["Striker?team=0"].observation_specs] == [
        (231,),
        (63,),
    ]
    assert [
        (o.name, o.shape) for o in env.behaviors["Goalie?team=1"].observation_specs
    ] == [("StackingSensor_size3_PurpleGoalieRayPerceptionSensor", (738,))]
    np.testing.assert_array_equal(strikers.agent_id, [0, 2, 3, 5])
    np.testing.assert_array_equal(goalies.agent_id, [1, 4])
    np.testing.assert_array_equal(strikers.group_id, [1, 1, 3, 3])
    np.testing.assert_array_equal(goalies.group_id, [2, 4])


def test_players_start_on_their_halves_facing_the_other_goal():
    _, scene = opened(num_areas=400)
    x, z, yaw = scene.rounds[:, :4, 0], scene.rounds[:, :4, 2], np.degrees(scene.yaw)
    assert ((x[:, [1, 3]] >= -13.19) & (x[:, [1, 3]] <= -3.19)).all()
    assert ((x[:, [0, 2]] >= 3.19) & (x[:, [0, 2]] <= 13.19)).all()
    assert np.ptp(x[:, 0]) > 9.5
    assert set(np.abs(z).round(3).ravel().tolist()) == {1.2}
    assert ((yaw[:, [1, 3]] >= 80) & (yaw[:, [1, 3]] <= 100)).all()
    assert ((yaw[:, [0, 2]] <= -80) & (yaw[:, [0, 2]] >= -100)).all()
    ball = scene.rounds[:, 4, [0, 2]]
    assert (np.abs(ball) <= 2.5).all()
    assert np.ptp(ball, axis=0).min() > 4.5


def test_a_sideways_move_wins_over_ahead_and_a_turn_takes_two_degrees_per_step():
    env, scene = opened()
    clear_field(scene)
    do(env, BLUE, [[1, 1, 2], [2, 0, 1]])
    scene.act()
    np.testing.assert_allclose(scene.velocity[0, 1, [0, 2]], [0.6, 0.0], atol=1e-12)
    np.testing.assert_allclose(scene.velocity[0, 3, [0, 2]], [0.0, -2.0], atol=1e-12)
    np.testing.assert_allclose(np.degrees(scene.yaw[0]), [0, 2, 0, -2], atol=1e-9)


def test_a_touch_under_ahead_kicks_once_in_the_next_step():
    env, scene = opened()
    clear_field(scene)
    scene.rounds[0, 1, [0, 2]] = 0.0, -1.13  # blue, 6 mm behind the ball, facing it
    do(env, BLUE, [[1, 0, 0], [0, 0, 0]])
    scene.play(1)
    assert scene.kick[0, 1] == pytest.approx(KICK_MPS, rel=0.01)
    before = scene.velocity[0, 4, 2]
    scene.play(1)
    assert scene.velocity[0, 4, 2] > before + 10.0
    scene.rounds[0, 1, [0, 2]] = scene.rounds[0, 4, [0, 2]] - [0.0, 1.13]
    scene.play(1)
    assert not scene.kick.any(), "the contact lasts: no second kick"


def test_only_a_goalie_kicks_without_going_ahead():
    _, scene = opened(StrikersVsGoalie)
    clear_field(scene)
    scene.rounds[0, 1, [0, 2]] = 0.0, -1.13
    scene.play(1)
    assert scene.kick.any()
    clear_field(scene)
    scene.kick[:] = 0.0
    scene.touching[:] = False
    scene.rounds[0, 0, [0, 2]] = 0.0, -1.13
    scene.play(1)
    assert not scene.kick.any()


@pytest.mark.parametrize(("x", "goal"), [(15.2, PURPLE_GOAL), (-15.2, BLUE_GOAL)])
def test_a_goal_pays_the_scorers_by_speed_and_ends_both_episodes_between_decisions(
    x, goal
):
    env, scene = opened(num_areas=2)
    clear_field(scene)
    scene.rounds[1, 4, 0] = x
    scene.timer[:] = 1000
    exchange = steps_until_exchange(env)
    winner, loser = (BLUE, PURPLE) if goal == PURPLE_GOAL else (PURPLE, BLUE)
    for name, earned in ((winner, 1 - 1000 / 5000), (loser, -1.0)):
        decisions, ends = exchange[name]
        assert len(decisions) == 0
        assert len(ends) == 2
        assert not ends.interrupted.any()
        np.testing.assert_allclose(ends.group_reward, earned, rtol=1e-6)
        np.testing.assert_array_equal(ends.reward, 0.0)
        assert set(ends.group_id.tolist()) == {3 if name == BLUE else 4}
    assert abs(scene.rounds[1, 4, 0]) <= 2.5, "the field restarts"
    assert scene.timer[0] == 1001, "the other one goes on"


def test_a_ball_at_a_goal_post_scores():
    _, scene = opened()
    clear_field(scene)
    scene.rounds[0, 4, [0, 2]] = 15.47 - 0.63, 4.2
    scene.play(1)
    assert scene.streams.episode[0] == 2, "a new episode has begun"


def test_the_last_observation_precedes_the_new_places_and_has_one_more_frame():
    env, scene = opened()
    do(env, BLUE, [[0, 0, 0], [0, 0, 0]])
    first = env.steps(BLUE)[0].obs[0].reshape(2, 3, 88)
    clear_field(scene)
    scene.rounds[0, 4, 0] = 15.2
    (_, ends) = steps_until_exchange(env)[BLUE]
    last = ends.obs[0].reshape(2, 3, 88)
    np.testing.assert_array_equal(
        last[:, 1], first[:, 2], "the decision's frame has moved back"
    )
    assert last[:, 2].any()
    assert not last[:, 0].any()
    decisions = steps_until_exchange(env)[BLUE][0]
    assert not decisions.obs[0].reshape(2, 3, 88)[:, :2].any(), (
        "the new episode starts with zeros"
    )


def test_the_time_limit_interrupts_both_groups_without_a_reward():
    env, scene = opened()
    clear_field(scene)
    scene.timer[:] = 4999
    scene.load_state(scene.state())
    exchange = steps_until_exchange(env)
    for name in (BLUE, PURPLE):
        ends = exchange[name][1]
        assert len(ends) == 2
        assert ends.interrupted.all()
        np.testing.assert_array_equal(ends.group_reward, 0.0)


def test_strikers_pay_for_time_and_the_goalie_earns_it():
    env, scene = opened(StrikersVsGoalie)
    clear_field(scene)
    exchange = steps_until_exchange(env)
    np.testing.assert_allclose(
        exchange["Striker?team=0"][0].reward, -5 / 5000, rtol=1e-5
    )
    np.testing.assert_allclose(exchange["Goalie?team=1"][0].reward, 5 / 5000, rtol=1e-5)


def test_ball_touch_pays_a_fifth_for_each_touch():
    env, scene = opened(ball_touch=1.0)
    clear_field(scene)
    scene.rounds[0, 1, [0, 2]] = 0.0, -1.13
    exchange = steps_until_exchange(env)
    np.testing.assert_allclose(exchange[BLUE][0].reward, [0.2, 0.0], rtol=1e-6)


def test_ball_progress_pays_one_team_what_the_other_loses():
    env, scene = opened(ball_progress=0.5)
    clear_field(scene)
    scene.velocity[0, 4, 0] = 3.0
    exchange = steps_until_exchange(env)
    moved_m = scene.rounds[0, 4, 0]
    assert moved_m > 0.1
    np.testing.assert_allclose(exchange[BLUE][0].reward, 0.5 * moved_m, rtol=1e-6)
    np.testing.assert_allclose(exchange[PURPLE][0].reward, -0.5 * moved_m, rtol=1e-6)


def test_a_fast_ball_stops_at_a_wall_and_rebounds_with_four_fifths():
    _, scene = opened()
    clear_field(scene)
    scene.rounds[0, 4, [0, 2]] = 0.0, 6.3
    scene.velocity[0, 4, 2] = 60.0
    scene.play(1)
    assert scene.rounds[0, 4, 2] == pytest.approx(7.5075 - 0.6242, abs=1e-3)
    assert -48.0 < scene.velocity[0, 4, 2] < -46.0


def test_nothing_leaves_the_field_in_long_random_play():
    env, scene = opened(num_areas=64)
    rng = np.random.default_rng(0)
    for _ in range(300):
        for name, spec in env.behaviors.items():
            env.set_actions(
                name, spec.action_spec.random_action(len(env.steps(name)[0]), rng)
            )
        env.step()
    assert np.abs(scene.rounds[:, :, 0]).max() < 17.5
    assert np.abs(scene.rounds[:, :, 2]).max() < 7.6


def test_bad_actions_and_parameters_are_refused_with_names_and_ranges():
    env, _ = opened()
    with pytest.raises(
        ActionError,
        match=r"SoccerTwos: SoccerTwos\?team=0: agent 3, branch 1: expected 0 to 2, got 3",
    ):
        do(env, BLUE, [[0, 0, 0], [0, 3, 0]])
    with pytest.raises(
        UsageError, match=r"SoccerTwos: parameter 'gravity' .* takes 0 to 1000, got -1"
    ):
        env.set_parameters({"gravity": -1.0})


def shown(scene, num_areas=3):
    world = scene(num_areas, 1)
    world.show_state()
    env = SceneEnv(world, 0)
    env.reset()
    for _ in range(20):  # balls and players move
        for name in env.behaviors:
            count = len(env.steps(name)[0])
            do(env, name, np.arange(3 * count).reshape(count, 3) % 3)
        env.step()
    return env, world


def test_the_state_of_a_player_holds_what_moves_from_its_side():
    env, scene = shown(SoccerTwos)
    blue, purple = env.steps(BLUE)[0], env.steps(PURPLE)[0]
    for steps, side, ids in ((purple, -1.0, [0, 2, 1, 3]), (blue, 1.0, [1, 3, 0, 2])):
        row = steps.obs[-1][0]  # the first field's first player of the team
        players = row[:28].reshape(4, 7)
        ball = scene.rounds[0, 4, [0, 2]]
        for i, seen in zip(ids, players, strict=True):
            place = scene.rounds[0, i, [0, 2]]
            np.testing.assert_allclose(seen[:2] * [8, 4], side * place, atol=1e-5)
            speed = scene.velocity[0, i, [0, 2]]
            np.testing.assert_allclose(seen[2:4] * 8, side * speed, atol=1e-5)
            yaw = scene.yaw[0, i]
            faces = side * np.array([np.sin(yaw), np.cos(yaw)])
            np.testing.assert_allclose(seen[4:6], faces, atol=1e-6)
            away = np.linalg.norm(ball - place)
            np.testing.assert_allclose((seen[6] + 0.5) * 8, away, atol=1e-5)
        to_ball = side * (ball - scene.rounds[0, ids[0], [0, 2]])
        np.testing.assert_allclose(row[28:30] * 5, to_ball, atol=1e-5)
        np.testing.assert_allclose(row[30:32] * [8, 4], side * ball, atol=1e-5)
        rolls = side * scene.velocity[0, 4, [0, 2]]
        np.testing.assert_allclose(row[32:34] * 8, rolls, atol=1e-5)
        kicked = side * scene.kick[0]
        np.testing.assert_allclose(row[34:36] * 10, kicked, atol=1e-5)
        np.testing.assert_allclose(row[36] * 1000, scene.timer[0], rtol=1e-6)


def test_a_field_turned_by_half_looks_the_same_to_the_other_team():
    _, scene = shown(SoccerTwos, num_areas=1)
    scene.velocity[:] = 0.0
    blue = np.array([[-3.0, 1.0], [-5.0, 2.0]])
    scene.rounds[0, [1, 3], 0], scene.rounds[0, [1, 3], 2] = blue.T
    scene.rounds[0, [0, 2], 0], scene.rounds[0, [0, 2], 2] = -blue.T
    scene.rounds[0, 4, [0, 2]] = 0.0
    scene.yaw[0] = [0.5 + np.pi, 0.5, 0.7 + np.pi, 0.7]
    scene.kick[:] = 0.0
    states = [
        scene.observe_state(name, np.array(ids))
        for name, ids in ((BLUE, [1, 3]), (PURPLE, [0, 2]))
    ]
    np.testing.assert_allclose(*states, atol=1e-6)
