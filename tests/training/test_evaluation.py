"""Figures of an evaluation: quotas, groups, sides."""

from pathlib import Path

import numpy as np
import pytest
from tests.training.practice import make_learner

import touchline
from touchline.envs.env import WORLDS, EnvRecipe, World, make
from touchline.envs.slots import Slots
from touchline.errors import RunError, UsageError
from touchline.policies.files.run_layout import check_progress
from touchline.policies.policy import RandomPolicy, SlotActor, ZeroPolicy
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.steps import DecisionSteps, TerminalSteps
from touchline.training.config.reading import read_config
from touchline.training.config.settings import BehaviorConfig
from touchline.training.evaluation import clustered_error, measure, play
from touchline.training.evaluation_figures import evaluation_lines, what_was_played
from touchline.training.trainer import train


class Matches:
    """Two teams of two in each of two fields; games of 3 decisions, field 0 is won by team 0, field
    1 by team 1.
    """

    spec = BehaviorSpec(
        (ObservationSpec.vector(1, "t"),), ActionSpec.create_discrete((2,))
    )
    behaviors = {"Game?team=0": spec, "Game?team=1": spec}

    def capacity(self, behavior):
        return 4

    def reset(self, seed=None, parameters=None):
        self.tick = 0

    def set_actions(self, behavior, actions):
        pass

    def step(self):
        self.tick += 1

    def steps(self, behavior):
        team = int(behavior[-1])
        ids = np.array(
            [8 * field + 4 * team + k for field in (0, 1) for k in (0, 1)], np.int32
        )
        groups = np.array(
            [1 + 2 * field + team for field in (0, 1) for _ in (0, 1)], np.int32
        )
        obs, own = [np.full((4, 1), self.tick, np.float32)], np.full(4, 0.5, np.float32)
        nothing = np.zeros(4, np.float32)
        decisions = DecisionSteps(
            obs, own, ids, [np.zeros((4, 2), bool)], groups, nothing
        )
        if self.tick == 0 or self.tick % 3:
            return decisions, TerminalSteps.empty(self.spec)
        won = np.array([1, 1, -1, -1] if team == 0 else [-1, -1, 1, 1], np.float32)
        begins = DecisionSteps(
            obs, nothing, ids, decisions.action_mask, groups, nothing
        )
        return begins, TerminalSteps(obs, own, np.zeros(4, bool), ids, groups, won)


def _random(behaviors):
    return {
        name: SlotActor(RandomPolicy(spec), spec, 0) for name, spec in behaviors.items()
    }


def test_games_count_once_from_the_lower_teams_side():
    actors = _random(Matches.behaviors)
    figures = measure(Slots(Matches()), actors, episodes=10, seed=0)
    games = figures["games"]
    assert games == {
        "played": 10,
        "decided": 10,
        "won": 5,
        "lost": 5,
        "interrupted": 0,
        "mean_length": 3.0,
    }
    assert figures["mean_group_return"] == 0.0
    assert figures["mean_return"] == pytest.approx(1.5), "own rewards only"


def test_one_side_alone_can_be_evaluated():
    actors = _random(Matches.behaviors)
    figures = measure(
        Slots(Matches()), actors, episodes=4, seed=0, evaluated=["Game?team=1"]
    )
    assert figures["games"]["played"] == 4
    assert figures["behaviors"]["Game"]["games"]["won"] == 2


@pytest.mark.parametrize(("episodes", "areas"), [(7, 3), (2, 5), (12, 4)])
def test_every_agent_plays_its_share_and_no_more(episodes, areas):
    with make(EnvRecipe("scene", "3DBall", num_areas=areas)) as env:
        figures = measure(Slots(env), _random(env.behaviors), episodes, seed=0)
    assert figures["episodes"] == episodes


class Uneven(Matches):
    """Two agents with episodes of such lengths."""

    behaviors = {"Game?team=0": Matches.spec}
    lengths = (2, 20)

    def capacity(self, behavior):
        return 2

    def steps(self, behavior):
        ended = [
            i
            for i, length in enumerate(self.lengths)
            if self.tick and self.tick % length == 0
        ]
        one = np.ones(2, np.float32)
        decisions = DecisionSteps(
            [one[:, None]], one, np.arange(2, dtype=np.int32), [np.zeros((2, 2), bool)],
            np.zeros(2, np.int32), 0 * one,
        )  # fmt: skip
        some = one[: len(ended)]
        return decisions, TerminalSteps(
            [some[:, None]],
            some,
            some > 2,
            np.array(ended, np.int32),
            np.zeros(len(ended), np.int32),
            0 * some,
        )


def test_short_episodes_are_not_favoured():
    """Of two agents with episodes of 2 and 20 decisions, each gives half of the episodes."""
    figures = measure(Slots(Uneven()), _random(Uneven.behaviors), episodes=8, seed=0)
    assert figures["mean_length"] == pytest.approx((2 + 20) / 2)


def test_one_agent_that_never_ends_is_reported_though_others_end(monkeypatch):
    class Stuck(Uneven):
        lengths = (2, 10**9)

    monkeypatch.setattr("touchline.training.evaluation.MOST_DECISIONS", 50)
    with pytest.raises(RunError, match="no episode ended within 50 decisions"):
        measure(Slots(Stuck()), _random(Stuck.behaviors), episodes=8, seed=0)


def test_a_policy_that_never_ends_an_episode_is_reported(monkeypatch):
    monkeypatch.setattr("touchline.training.evaluation.MOST_DECISIONS", 50)
    with make("Basic") as env:
        (spec,) = env.behaviors.values()
        idle = {"Basic?team=0": SlotActor(ZeroPolicy(spec), spec, 0)}
        with pytest.raises(RunError, match="no episode ended"):
            measure(Slots(env), idle, 1, seed=0)


def test_a_world_is_waited_for_until_its_own_limit(monkeypatch):
    monkeypatch.setattr("touchline.training.evaluation.MOST_DECISIONS", 50)
    with make(EnvRecipe("scene", "GridWorld", num_areas=2)) as env:
        (spec,) = env.behaviors.values()
        idle = {name: SlotActor(ZeroPolicy(spec), spec, 0) for name in env.behaviors}
        assert measure(Slots(env), idle, 2, seed=0)["mean_length"] == 100.0


def test_two_teams_draw_noise_of_their_own(monkeypatch):
    monkeypatch.setitem(
        WORLDS, "duel", World("tests.training.self_play.duel:open_duel")
    )
    drawn = []

    class Noted(RandomPolicy):
        def __init__(self, spec):
            super().__init__(spec)
            self.actions = []
            drawn.append(self.actions)

        def choose(self, rows, generator):
            actions = super().choose(rows, generator)
            self.actions.append(actions)
            return actions

    play(EnvRecipe("duel", "Duel", seed=5), 20, lambda _, spec: Noted(spec))
    first, second = (np.concatenate([a.discrete for a in actions]) for actions in drawn)
    assert len(first) == len(second)
    assert np.any(first != second)


def _briefly(behavior, folder, **changes):
    """Settings of a run of one update."""
    own = {
        "trainer_type": "ppo",
        "max_steps": 64,
        "hyperparameters": {"batch_size": 64, "buffer_size": 64},
        "network_settings": {"hidden_units": 8, "num_layers": 1},
    }
    keys = {f"behaviors.{behavior}.{key}": value for key, value in own.items()}
    keys["checkpoint_settings.results_dir"] = str(folder)
    return read_config(None, (), keys | changes)


def test_an_evaluation_in_training_that_never_ends_is_a_line_of_its_log(
    monkeypatch, tmp_path
):
    monkeypatch.setattr("touchline.training.evaluation.MOST_DECISIONS", 50)
    lines = []
    monkeypatch.setitem(
        WORLDS, "duel", World("tests.training.self_play.duel:open_duel")
    )
    train(_briefly("Duel", tmp_path), EnvRecipe("duel", "Endless"), log=lines.append)
    line = "no evaluation: no episode ended within 50 decisions: this policy"
    assert sum(text.startswith(line) for text in lines) == 1


def test_a_world_for_evaluation_with_other_behaviors_is_a_line_of_the_log(tmp_path):
    lines = []
    config = _briefly("Basic", tmp_path, **{"evaluation.env": "3DBall"})
    result = train(config, EnvRecipe("scene", "Basic"), log=lines.append)
    line = "no evaluation: its world has the behavior 3DBall, and this run trains Basic"
    assert [text.startswith(line) for text in lines if "evaluation:" in text] == [True]
    assert result.behaviors["Basic"].model.is_file()


def test_a_world_for_evaluation_with_other_observations_is_refused():
    other = BehaviorSpec((ObservationSpec.vector(3, "other"),), ActionSpec(0, (3,)))
    settings = BehaviorConfig.model_validate({"trainer_type": "ppo"})
    policy = make_learner(other, settings).policy
    with pytest.raises(UsageError, match="does not fit Basic"):
        play(EnvRecipe("scene", "Basic"), 2, lambda name, spec: policy)


def test_members_of_a_group_give_episodes_of_counted_games_only():
    with make(EnvRecipe("scene", "SoccerTwos", num_areas=3)) as env:
        figures = measure(Slots(env), _random(env.behaviors), episodes=8, seed=0)
    assert figures["games"]["played"] == 8
    assert figures["episodes"] == 16, "two players in each game of the lower team"


def test_a_member_that_ends_early_counts_once_its_game_is_over():
    """DungeonEscape: an agent that the dragon has eaten is gone until its group ends."""
    with make(EnvRecipe("scene", "DungeonEscape", num_areas=2)) as env:
        figures = measure(Slots(env), _random(env.behaviors), episodes=4, seed=0)
    assert figures["games"]["played"] == 4
    assert figures["episodes"] == 12, "three agents in each game"


def test_teammates_are_not_counted_as_independent():
    """Worked by hand: games of two equal returns are as uncertain as games of one."""
    single = clustered_error(np.array([1.0, 2.0, 6.0]), [1, 1, 1])
    assert single == pytest.approx(np.std([1, 2, 6], ddof=1) / 3**0.5)
    pairs = clustered_error(np.array([1.0, 1.0, 2.0, 2.0, 6.0, 6.0]), [2, 2, 2])
    assert pairs == pytest.approx(single)


def test_the_error_of_a_single_episode_is_unknown():
    with make(EnvRecipe("scene", "Basic", num_areas=1)) as env:
        figures = measure(Slots(env), _random(env.behaviors), episodes=1, seed=0)
    assert figures["ci95"] is None
    assert what_was_played(figures) == "error unknown, 1 episode"
    (line,) = evaluation_lines(figures)
    assert "(error unknown) over 1 episode, " in line
    entry = {"steps": 1, "score": 0.5, "ci95": None}
    check_progress(Path("status.json"), {"Basic": {"evaluations": [entry]}})


def test_games_are_summed_up_by_what_was_won_and_episodes_with_their_interval():
    """The interval is that of agents' own returns, which tells nothing of a game."""
    actors = _random(Matches.behaviors)
    figures = measure(Slots(Matches()), actors, episodes=10, seed=0)
    assert what_was_played(figures) == "won 5 of 10 games"
    without = figures | {"games": None}
    assert what_was_played(without) == "95 % within 1.500 to 1.500, 20 episodes"


def test_progress_counts_up_to_the_quota():
    seen = []
    with make(EnvRecipe("scene", "Basic", num_areas=2)) as env:
        measure(
            Slots(env),
            _random(env.behaviors),
            5,
            seed=0,
            progress=lambda done, total: seen.append((done, total)),
        )
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {5}


def test_an_agent_that_only_takes_another_behavior_has_ended_no_episode():
    """WallJump's agents change their behavior right after the reset; idle ones last to the limit."""
    figures = touchline.evaluate("WallJump", "zero", episodes=24)
    for behavior in figures["behaviors"].values():
        assert behavior["mean_length"] == 400
