"""A scene of your own, `module:Class`: the one of the tutorial, examples/chase.py."""

import subprocess
import sys
from pathlib import Path

import pytest

import touchline
from touchline.envs.env import EnvRecipe, make
from touchline.errors import UsageError
from touchline.player import build
from touchline.testing import check_env, check_slots

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)


def test_it_keeps_the_contract():
    check_env(EnvRecipe("scene", "chase:Chase", num_areas=3), exchanges=120)
    with make("chase:Chase") as env:
        check_slots(env, steps=300)


@pytest.mark.slow
def test_it_is_learned_from_the_command_line(tmp_path):
    arguments = ["--env", "chase:Chase", "--max-steps", "61440", "--seed", "1"]
    options = ["--run-id", "chase", "--results-dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "touchline", "train", *arguments, *options],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    figures = touchline.evaluate("chase:Chase", str(tmp_path / "chase"), episodes=64)
    assert figures["mean_return"] > 0.6, "random play has 0.3"


def test_its_player_finds_the_module_from_another_folder(tmp_path, monkeypatch):
    player = build("chase:Chase", tmp_path)
    monkeypatch.chdir(tmp_path)
    with make(str(player)) as env:
        env.reset(seed=1)
        assert list(env.behaviors) == ["Chase?team=0"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "nowhere:Chase",
            "cannot be loaded: ModuleNotFoundError: No module named 'nowhere'",
        ),
        (
            "chase:Chaser",
            "cannot be loaded: AttributeError: .*has no attribute 'Chaser'",
        ),
        (":Chase", "cannot be loaded: ValueError: Empty module name"),
        ("chase:Camera", "is no scene: expected a subclass of"),
    ],
)
def test_what_is_no_scene_is_one_line(name, message):
    with pytest.raises(UsageError, match=message):
        make(name)
