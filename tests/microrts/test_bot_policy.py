"""The engine's bots as policies: in every form of acting, and as demonstrations to clone."""

import pytest

import touchline
from touchline.cli import run
from touchline.envs.env import EnvRecipe, make
from touchline.errors import UsageError
from touchline.microrts.opponents import play_games
from touchline.policies.loading import load_policies
from touchline.training.demonstrations import read_demonstration


def games_of(policy, engine, **options):
    """The records of two games, one in each seat, of a bot that plays our side."""
    options = {"form": "grid", "max_ticks": "1000", **options}
    options["engine"] = str(engine.folder)
    recipe = EnvRecipe("microrts", "8x8/basesWorkers8x8", 2, options=options)
    with make(recipe) as env:
        policies = load_policies([policy], env.behaviors, world=env)
        return play_games(env, policies, 1, seed=0)


@pytest.mark.parametrize("form", ["grid", "unit", "asker"])
@pytest.mark.parametrize("turned", ["0", "1"])
def test_a_bot_beats_in_every_form_whom_it_beats_in_the_engine(form, turned, engine):
    records = games_of(
        "workerrush", engine, form=form, turned=turned, opponent="lightrush"
    )
    assert [record.result for record in records] == ["win", "win"]
    assert {record.player for record in records} == {0, 1}
    assert [record.invalid_orders for record in records] == [0, 0]


# A bot that is named by its class is timed and checked, and moves on another path.
@pytest.mark.parametrize("opponent", ["lightrush", "ai.abstraction.LightRush"])
def test_skipped_ticks_are_those_in_which_no_unit_has_a_choice(opponent, engine):
    every = games_of("workerrush", engine, opponent=opponent)
    skipped = games_of("workerrush", engine, opponent=opponent, skip="1")
    assert [record.ticks for record in skipped] == [record.ticks for record in every]
    assert [record.rewards for record in skipped] == [
        record.rewards for record in every
    ]
    assert all(record.steps < record.ticks / 2 for record in skipped)


def test_a_game_against_a_copy_of_itself_is_the_same_from_both_seats(engine):
    records = games_of("workerrush", engine, opponent="workerrush", turned="1")
    assert [record.result for record in records] == ["tie", "tie"]


def test_a_clone_of_a_bot_plays_like_it(engine, tmp_path):
    env = (
        "microrts:8x8/basesWorkers8x8?form=grid&turned=1&economy=1&skip=1"
        f"&opponent=lightrush,randombiased&max_ticks=600&engine={engine.folder}"
    )
    demo = tmp_path / "games.demo"
    recipe = EnvRecipe.parse(env, num_areas=4)
    touchline.record(recipe, "workerrush", demo, episodes=12, seed=1)
    recorded = read_demonstration(demo)
    assert recorded.num_episodes == 12
    assert recorded.finished.all()
    settings = {
        "max_steps": 0,
        "hyperparameters.learning_rate": 0.001,
        "behavioral_cloning": f"{{demo_path: {demo}, num_epoch: 20, batch_size: 128, strength: 1.0}}",
    }
    given = [
        part
        for key, value in settings.items()
        for part in ("--set", f"behaviors.MicroRTS.{key}={value}")
    ]
    command = ["train", "microrts-8x8", *given, "--env", env, "--num-areas", "4"]
    assert (
        run([*command, "--seed", "1", "--results-dir", str(tmp_path), "--run-id", "c"])
        == 0
    )
    figures = touchline.evaluate(env, tmp_path / "c", episodes=20, seed=2)["opponents"]
    # An untrained policy wins none of these games.
    assert figures["lightrush"]["win_rate"] >= 0.8


def test_an_unknown_bot_is_refused_as_a_policy(engine):
    with pytest.raises(UsageError, match="workerush"):
        games_of("workerush", engine)


def test_bots_meet_in_a_tournament_as_policies_do(engine):
    recipe = EnvRecipe.parse(
        f"microrts:basesWorkers8x8?skip=1&max_ticks=1500&engine={engine.folder}",
        num_areas=1,
    )
    figures = touchline.tournament(
        recipe, ["lightrush", "workerrush", "zero"], games=2, processes=1
    )
    entrants = figures["entrants"]
    assert [entrant["name"] for entrant in entrants] == [
        "workerrush",
        "lightrush",
        "zero",
    ]
    assert [entrant["won"] for entrant in entrants] == [4, 2, 0]
