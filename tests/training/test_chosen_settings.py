"""`touchline train GAME` without a configuration."""

import sys

import pytest

import touchline
from touchline.cli import run
from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.player import build
from touchline.policies.nets.encoders import check_images
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training import chosen_settings
from touchline.training.chosen_settings import Seen, choices_for, look_at, settings_text
from touchline.training.config.reading import read_config

BASIC = "touchline.scenes.basic:Basic"


@pytest.fixture(autouse=True)
def short_look(monkeypatch):
    monkeypatch.setattr(chosen_settings, "LOOKS_FOR_S", 0.3)


def chosen(seen):
    return {choice.key: choice.value for choice in choices_for(seen)}


def seen(**more):
    spec = BehaviorSpec((ObservationSpec.vector(8, "a"),), ActionSpec(2))
    what = {"spec": spec, "agents": 12, "teams": {0}, "steps_per_s": 3000.0}
    return Seen(**(what | more))


@pytest.mark.parametrize(
    ("scene", "trainer", "plays_itself", "normalizes"),
    [
        ("3DBall", "ppo", False, True),
        ("PushBlock", "ppo", False, False),
        ("DungeonEscape", "poca", False, True),
        ("StrikersVsGoalie", "poca", True, False),
    ],
)
def test_groups_teams_and_large_numbers_decide(
    scene, trainer, plays_itself, normalizes
):
    text = settings_text("game.x86_64", look_at(EnvRecipe.parse(scene)))
    reasons = [line for line in text.splitlines() if not line.endswith(":")][3:]
    assert all("  # " in line for line in reasons), "each choice has its reason"
    config = read_config("settings.yaml", text=text)
    for block in config.behaviors.values():
        assert block.trainer_type == trainer
        assert (block.self_play is not None) == plays_itself
        assert block.network_settings.normalize == normalizes


def test_a_slow_game_with_few_agents_learns_from_each_step_many_times():
    slow = chosen(seen(agents=1, steps_per_s=50.0))
    assert slow["trainer_type"] == "sac"
    assert slow["max_steps"] < chosen(seen())["max_steps"]


def test_more_agents_fill_larger_buffers():
    few, many = chosen(seen(agents=1)), chosen(seen(agents=128))
    for key in ("buffer_size", "batch_size", "learning_rate"):
        assert few[f"hyperparameters.{key}"] < many[f"hyperparameters.{key}"]


def test_games_between_teams_fill_the_largest_buffer():
    alone, teams = chosen(seen(agents=4)), chosen(seen(agents=4, teams={0, 1}))
    for key in ("buffer_size", "batch_size"):
        assert alone[f"hyperparameters.{key}"] < teams[f"hyperparameters.{key}"]


def test_many_continuous_actions_fill_the_largest_buffer_in_smaller_steps():
    few = seen(agents=128)
    many = seen(
        agents=10, spec=BehaviorSpec(few.spec.observation_specs, ActionSpec(39))
    )
    few, many = chosen(few), chosen(many)
    assert few["hyperparameters.buffer_size"] == many["hyperparameters.buffer_size"]
    assert few["hyperparameters.learning_rate"] > many["hyperparameters.learning_rate"]


@pytest.mark.parametrize("side", [1, 4, 5, 19, 20])
def test_the_encoder_takes_the_smallest_picture(side):
    picture = ObservationSpec((3, 84, side), name="grid")
    spec = BehaviorSpec((picture,), ActionSpec(2))
    check_images(chosen(seen(spec=spec))["network_settings.vis_encode_type"], spec)


def test_pictures_are_encoded_once_for_policy_and_value_function():
    picture = ObservationSpec((3, 84, 84), name="picture")
    of_pictures = BehaviorSpec((picture,), ActionSpec(2))
    assert chosen(seen(spec=of_pictures))["hyperparameters.shared_critic"]
    assert "hyperparameters.shared_critic" not in chosen(seen())


def test_long_episodes_look_further_ahead():
    key = "reward_signals.extrinsic.gamma"
    assert chosen(seen(lengths=[20, 30]))[key] < chosen(seen(lengths=[900]))[key]


def test_a_game_is_trained_with_reasons_in_its_folder_and_resumed_with_the_same(
    tmp_path, capsys
):
    where = ["--results-dir", str(tmp_path), "--run-id", "r", "--seed", "1"]
    assert run(["train", BASIC, *where, "--max-steps", "4000"]) == 0
    lines = capsys.readouterr().err
    assert f"settings chosen for {BASIC}; the run keeps them, with reasons: " in lines
    assert run(["train", BASIC, "--set", "behaviors.Basic.trainer_type=sac"]) == 2
    error = capsys.readouterr().err
    assert f"settings chosen for {BASIC}:" in error
    assert "hyperparameters.beta: unknown key; it belongs to ppo" in error
    said = lines.partition("Basic: ppo: no groups")[2].splitlines()[1:5]
    reasons = ("agents decide", "numbers", "episodes lasted", "agent steps a second")
    assert all(reason in line for reason, line in zip(reasons, said, strict=True))
    path = tmp_path / "r" / "settings.yaml"
    text = path.read_text()
    assert "max_steps: 5000000  # random play made" in text
    path.write_text(text.replace("hidden_units: 128", "hidden_units: 128  # mine"))
    assert run(["train", BASIC, *where, "--max-steps", "8000", "--resume"]) == 0
    assert "settings chosen" not in capsys.readouterr().err
    assert "# mine" in path.read_text()
    assert read_config(str(path)).behaviors["Basic"].max_steps == 5_000_000


@pytest.mark.skipif(
    sys.platform == "win32", reason="a player is a program of another kind there"
)
def test_a_player_is_a_game_and_learns(tmp_path):
    player = build("Basic", tmp_path / "builds")
    changes = [
        "behaviors.*.max_steps=12000",
        "behaviors.*.hyperparameters.buffer_size=512",
        "behaviors.*.hyperparameters.batch_size=64",
        f"checkpoint_settings.results_dir={tmp_path / 'results'}",
    ]
    result = touchline.train(str(player), changes=changes)
    assert result.folder.name == "Basic"
    assert result.behaviors["Basic"].mean_return > 0.6


def test_two_games_at_once_are_refused_in_one_line():
    with pytest.raises(
        UsageError, match=r"basic:Basic and 3DBall \(--env\) are two games"
    ):
        touchline.train(BASIC, env="3DBall")


def test_what_is_no_game_is_refused_in_one_line(tmp_path):
    for name in ("missing/game.x86_64", "3DBal"):
        with pytest.raises(UsageError):
            touchline.train(name)
