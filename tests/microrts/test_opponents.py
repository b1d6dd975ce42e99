"""Games won, tied and lost against a list of bots."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from touchline.cli import run
from touchline.envs.env import EnvRecipe, GameReporting, make
from touchline.envs.slots import Slots
from touchline.microrts import opponents
from touchline.microrts.env import MicrortsEnv, open_microrts
from touchline.microrts.opponents import evaluate_opponents
from touchline.policies.loading import load_policies
from touchline.policies.policy import ZeroPolicy
from touchline.training.evaluation import evaluate, measure, play
from touchline.training.evaluation_figures import games_table


def test_every_opponent_gets_its_games_from_both_seats(engine):
    recipe = EnvRecipe.parse(
        f"microrts:basesWorkers8x8?max_ticks=400&engine={engine.folder}"
    )
    done = []
    report = evaluate_opponents(
        recipe,
        ["zero"],
        ["workerrush", "passive"],
        4,
        0,
        progress=lambda *numbers: done.append(numbers),
    )
    assert done == sorted(done)
    assert done[-1] == (8, 8)
    rush, passive = report["opponents"]["workerrush"], report["opponents"]["passive"]
    assert (
        rush["games"],
        rush["lost"],
        rush["win_rate"],
        rush["win_rate_by_seat"],
    ) == (
        4,
        4,
        0.0,
        [0.0, 0.0],
    )
    assert (passive["tied"], passive["mean_ticks"]) == (4, 400.0)
    assert report["total"]["games"] == 8
    text = games_table({**report["opponents"], "all": report["total"]}).splitlines()
    assert text[1].split() == [
        "workerrush",
        "4",
        "0",
        "0",
        "4",
        "0.00",
        "[0.00,",
        "0.49]",
    ]


def test_a_bot_is_a_policy_against_opponents(engine):
    recipe = EnvRecipe.parse(
        f"microrts:basesWorkers8x8?max_ticks=2000&engine={engine.folder}"
    )
    report = evaluate_opponents(recipe, ["workerrush"], ["passive"], 2, 0)
    assert report["opponents"]["passive"]["won"] == 2


def test_opponents_may_have_blanks_between_and_none_is_played_twice(engine, capsys):
    env = f"microrts:basesWorkers8x8?max_ticks=20&engine={engine.folder}"
    command = ["eval", env, "--policy", "zero", "--episodes", "2", "--json"]
    assert run([*command, "--opponents", "passive, lightrush"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert list(figures["opponents"]) == ["passive", "lightrush"]
    assert run([*command, "--opponents", "passive, passive"]) == 2
    assert "opponents: passive is given twice" in capsys.readouterr().err


def test_bots_that_search_play_one_game_at_a_time(engine, monkeypatch):
    opened = []

    def open_and_note(recipe):
        opened.append(recipe.num_areas)
        return open_microrts(recipe)

    monkeypatch.setattr(opponents, "open_microrts", open_and_note)
    recipe = EnvRecipe.parse(
        f"microrts:basesWorkers8x8?max_ticks=6&search_ms=1&engine={engine.folder}"
    )
    against = ["passive", "naivemcts", " Passive"]
    report = evaluate_opponents(recipe, ["zero"], against, 4, 0)
    assert opened == [4, 1, 4]
    assert report["opponents"]["naivemcts"]["games"] == 4
    evaluate_opponents(replace(recipe, num_areas=2), ["zero"], ["naivemcts"], 4, 0)
    assert opened[-1] == 2, "as asked for"


def test_an_ordinary_evaluation_counts_wins_too(engine):
    recipe = EnvRecipe.parse(
        f"microrts:basesWorkers8x8?opponent=workerrush,passive&max_ticks=400&engine={engine.folder}"
    )
    with make(replace(recipe, num_areas=2)) as env:
        slots = Slots(env)
        slots.reset(0)
        policies = load_policies(["zero"], slots.behaviors, deterministic=False, seed=0)
        figures = measure(slots, policies, 4, 0)
        assert isinstance(env, GameReporting)
        games = env.game_figures(4)["opponents"]
    assert (games["workerrush"]["games"], games["workerrush"]["lost"]) == (2, 2)
    assert (games["passive"]["games"], games["passive"]["tied"]) == (2, 2)
    both = np.mean([games[bot]["mean_return_by_seat"] for bot in games])
    assert both == pytest.approx(figures["mean_return"], abs=1e-4)


def test_areas_rest_once_they_have_played_their_share(engine):
    """The other areas' games are the same, and so are the results."""
    target = (
        "microrts:basesWorkers8x8?opponent=workerrush:2,passive&max_ticks=300"
        f"&form=grid&engine={engine.folder}"
    )
    recipe = replace(EnvRecipe.parse(target), num_areas=3)
    reports = []
    for rests in (False, True):
        with make(recipe) as env:
            if rests:
                env.rest_after(4)  # two games of the first area, one of each other
            slots = Slots(env)
            slots.reset(0)
            policies = load_policies(
                ["random"], slots.behaviors, deterministic=False, seed=0
            )
            figures = measure(slots, policies, 4, 0)
            records = env.pop_records()
            played = np.bincount([r.area for r in records], minlength=3)
            reports.append((figures["mean_return"], figures["mean_length"]))
    assert reports[0] == reports[1]
    assert played.tolist() == [2, 1, 1]
    assert env.games.resting.all()


def test_every_kind_of_evaluation_lets_areas_rest(engine, monkeypatch):
    shares = []
    monkeypatch.setattr(MicrortsEnv, "rest_after", lambda _, n: shares.append(n))
    recipe = EnvRecipe.parse(
        f"microrts:basesWorkers8x8?opponent=passive&max_ticks=6&engine={engine.folder}"
    )
    recipe = replace(recipe, num_areas=2)
    evaluate_opponents(recipe, ["zero"], ["passive"], 4, 0)
    evaluate(recipe, "zero", episodes=4)
    play(recipe, 4, lambda _, spec: ZeroPolicy(spec))
    assert shares == [4, 4, 4]


@pytest.mark.parametrize("form", ["grid", "unit", "asker"])
def test_a_game_may_be_as_long_as_its_limit(engine, form, monkeypatch):
    monkeypatch.setattr("touchline.training.evaluation.MOST_DECISIONS", 20)
    recipe = EnvRecipe.parse(
        f"microrts:basesWorkers8x8?form={form}&opponent=passive&max_ticks=100&engine={engine.folder}"
    )
    figures = evaluate(replace(recipe, num_areas=1), "zero", episodes=1)
    assert figures["mean_length"] > 20
    assert figures["opponents"]["passive"]["mean_ticks"] == 100.0


def test_the_policy_in_the_repository_still_wins(engine):
    recipe = EnvRecipe.parse(
        f"microrts:8x8/basesWorkers8x8?form=grid&turned=1&economy=1&skip=1&engine={engine.folder}"
    )
    policy = Path(__file__).parents[2] / "models" / "microrts-8x8.safetensors"
    report = evaluate_opponents(recipe, [str(policy)], ["passive", "lightrush"], 4, 0)
    assert report["total"]["won"] == 8
