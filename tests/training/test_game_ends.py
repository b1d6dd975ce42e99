"""What ends of groups and games count for: group returns, and results that the scene states."""

import numpy as np
import pytest
from tests.slot_rows import slot_rows

from touchline.envs.env import EnvRecipe, make
from touchline.envs.side_by_side import SideBySide, copies_of
from touchline.envs.slots import Slots
from touchline.jobs.job import RestartLimits
from touchline.protocol.errors import PlayerExitedError
from touchline.scenes.soccer.field import BLUE, BLUE_GOAL, PURPLE, PURPLE_GOAL
from touchline.scenes.soccer.game import MAX_FIELD_STEPS
from touchline.training.collect.local import EpisodeMeter
from touchline.training.self_play.games import Games


def _rows(group, reward=0.0, ends=(), begins=(), deciding=True):
    ended = np.isin(np.arange(len(group)), ends)
    return slot_rows(
        [np.zeros((len(group), 1), np.float32)],
        group_id=group,
        group_reward=reward,
        closed=True,
        terminated=ended,
        final_slot=ends,
        begins=np.isin(np.arange(len(group)), begins),
        deciding=deciding,
    )


def test_a_groups_return_counts_once_and_all_of_it_when_its_last_member_ends():
    group = [1, 1, 1, 2, 2, 2]
    meter = EpisodeMeter(_rows(group))
    assert meter.add(_rows(group, 0.5, ends=[0, 3])).group_returns == []
    assert meter.add(_rows(group, 1.0, ends=[1])).group_returns == []
    # Of group 1 the last member saw it all; of group 2 both that are left did.
    ended = meter.add(_rows(group, [0, 0, 2.0, 0, 4.0, 4.0], ends=[2, 4, 5]))
    assert ended.group_returns == [3.5, 5.5]
    assert len(ended.returns) == 3


def test_the_next_episode_of_a_group_begins_at_zero_and_agents_without_one_do_not_count():
    group = [1, 1, 0]
    meter = EpisodeMeter(_rows(group))
    meter.add(_rows(group, 1.0))
    ended = meter.add(_rows(group, 1.0, ends=[0, 1, 2], begins=[0, 1, 2]))
    assert ended.group_returns == [2.0]
    assert meter.add(_rows(group, 5.0)).group_returns == []
    assert meter.add(_rows(group, 5.0, ends=[0, 1, 2])).group_returns == [10.0]


def test_a_meter_goes_on_from_its_state():
    group = [1, 1]
    meter, restored = EpisodeMeter(_rows(group)), EpisodeMeter()
    meter.add(_rows(group, 1.0, ends=[0]))
    restored.load_state(meter.state())
    assert restored.add(_rows(group, 1.0, ends=[1])).group_returns == [2.0]


def _score(scene, area, goal):
    """Let the ball lie in a goal, so that the next step ends the game."""
    scene.fields.goal[area] = goal
    scene._end_at_goals()
    scene.fields.goal[area] = 0


@pytest.mark.parametrize("scene", ["SoccerTwos", "StrikersVsGoalie"])
def test_soccer_states_who_won_and_that_time_limits_are_draws(scene):
    with make(EnvRecipe("scene", scene, num_areas=3)) as env:
        env.reset(seed=1)
        game = env.scene
        _score(game, 0, PURPLE_GOAL)
        _score(game, 1, BLUE_GOAL)
        group = game.academy.group_id
        teams = game._teams
        assert {game.game_scores[g] for g in group[0, teams == BLUE]} == {1.0}
        assert {game.game_scores[g] for g in group[0, teams == PURPLE]} == {0.0}
        assert {game.game_scores[g] for g in group[1, teams == BLUE]} == {0.0}
        assert not set(group[2]) & game.game_scores.keys()
        game.timer[2] = MAX_FIELD_STEPS - 1
        game._rounds_to_spare = 0
        env.step()
        assert {env.game_scores[g] for g in group[2]} == {0.5}
        env.step()
        assert not env.game_scores, "of the last exchange only"


def test_a_game_ends_as_the_scene_states_whatever_own_rewards_say():
    """With a high price for touches of the ball, the side that lost may have been paid more."""
    worlds = [
        make(EnvRecipe("scene", "SoccerTwos", num_areas=2, seed=seed))
        for seed in (1, 2)
    ]
    with SideBySide(worlds) as slots:
        games = Games()
        rows = slots.reset(0)
        games.follow(rows, {})
        scene = worlds[1].scene
        scene.academy.reward[0, scene._teams == PURPLE] += 100.0
        act = scene.act

        def score_first():
            scene.act = act
            _score(scene, 0, PURPLE_GOAL)
            act()

        scene.act = score_first
        actions = {
            name: spec.action_spec.empty_action(len(rows[name]))
            for name, spec in slots.behaviors.items()
        }
        (result,) = games.follow(slots.step(actions), slots.game_scores)
        assert (result.area, result.score(BLUE, PURPLE)) == (2, 1.0)


def test_worlds_that_state_nothing_are_read_by_their_last_rewards():
    with make(EnvRecipe("scene", "SoccerTwos", num_areas=1)) as env:
        slots, games = Slots(env), Games()
        rows = slots.reset(0)
        games.follow(rows, {})
        ended = {
            name: slot_rows(
                list(row.obs),
                group_id=row.group_id,
                agent_id=row.agent_id,
                group_reward=-1.0 if name.endswith("1") else 0.3,
                closed=True,
                terminated=True,
                final_slot=[0, 1],
            )
            for name, row in rows.items()
        }
        (result,) = games.follow(ended, {})
        assert result.score(0, 1) == 1.0


@pytest.mark.parametrize("scene", ["SoccerTwos", "3DBall"])
def test_games_that_are_lost_with_their_world_have_no_result(scene):
    """With groups and without; the next games of the world that replaces it are in their areas."""
    recipe = EnvRecipe("scene", scene, num_areas=2, seed=5)

    def crash():
        raise PlayerExitedError("boom", 1)

    with SideBySide(copies_of(recipe, 2), RestartLimits()) as slots:
        games = Games()
        games.follow(slots.reset(0), {})
        areas = {name: games.area(name).tolist() for name in slots.behaviors}
        lost = slots.slots[1].env
        lost.step = crash
        actions = {
            name: spec.action_spec.empty_action(len(games.area(name)))
            for name, spec in slots.behaviors.items()
        }
        results = games.follow(slots.step(actions), slots.game_scores)
        second = {area for own in areas.values() for area in own[len(own) // 2 :]}
        assert {result.area for result in results} == second
        assert all(not result.points for result in results)
        assert {name: games.area(name).tolist() for name in slots.behaviors} == areas
        assert games.follow(slots.step(actions), slots.game_scores) == []
        assert not slots.game_scores
