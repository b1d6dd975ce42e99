"""An ENV as people type it, and what worlds can do, by type."""

import re
from pathlib import Path

import numpy as np
import pytest

import touchline
from touchline.envs.env import (
    WORLDS,
    Drawable,
    Env,
    EnvRecipe,
    Reporting,
    Stateful,
    TeamMerging,
    Waiting,
    Watchable,
    make,
)
from touchline.envs.unity_env import UnityEnvironment
from touchline.errors import UsageError

SOURCE = Path(touchline.__file__).parent


@pytest.mark.parametrize(
    ("typed", "world"),
    [
        ("3DBall", "scene"),
        ("3DBal", "scene"),  # a misspelled scene is answered with the nearest name
        ("editor", "unity"),
        ("builds/3DBall", "unity"),
        ("./3DBall", "unity"),
        ("game.x86_64", "unity"),
        ("C:/games/game.exe", "unity"),
        ("Game.app", "unity"),
        ("session.wire.gz", "recording"),
        ("somewhere/session.wire.gz", "recording"),
    ],
)
def test_an_env_is_a_scene_a_player_the_editor_or_a_recording(typed, world):
    assert EnvRecipe.parse(typed) == EnvRecipe(world, typed)
    assert EnvRecipe.parse(typed, seed=3).seed == 3


@pytest.mark.parametrize("env", [None, 3, ["Basic"]])
def test_what_is_no_text_is_one_line(env):
    with pytest.raises(
        UsageError, match="expected an ENV as text or an EnvRecipe, got"
    ):
        touchline.make(env)


def test_a_recipe_knows_its_kind_of_world():
    assert EnvRecipe.parse("3DBall").kind.is_scene
    assert EnvRecipe.parse("a/player").kind.is_player
    assert EnvRecipe.parse("session.wire.gz").kind.is_replay
    assert EnvRecipe.parse("editor").is_editor
    assert not EnvRecipe.parse("a/player").is_editor
    with pytest.raises(UsageError, match="unknown world 'moon'; worlds: scene, unity"):
        EnvRecipe("moon", "crater")


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_some_generator_does_not_take_is_refused(seed):
    assert EnvRecipe.parse("3DBall", seed=2**63 - 1).seed == 2**63 - 1
    with pytest.raises(UsageError, match=rf"seed must be 0 to \d+, got {seed}"):
        EnvRecipe.parse("3DBall", seed=seed)


def test_a_number_of_areas_that_no_memory_holds_is_refused():
    with pytest.raises(UsageError, match="must be 1,000,000 or less, got 1000001"):
        EnvRecipe.parse("3DBall", num_areas=1_000_001)


@pytest.mark.skipif(
    "microrts" not in WORLDS, reason="the folder of MicroRTS is not there"
)
def test_options_follow_a_question_mark():
    recipe = EnvRecipe.parse("microrts:maps/8x8.xml?form=grid&turned=1", seed=2)
    assert recipe == EnvRecipe(
        "microrts", "maps/8x8.xml", seed=2, options={"form": "grid", "turned": "1"}
    )
    with pytest.raises(UsageError, match="expected option=value"):
        EnvRecipe.parse("microrts:maps/8x8.xml?form")


def test_a_scene_is_saved_drawn_filmed_and_reports_but_waits_for_no_process():
    with make("Basic") as env:
        for capability in (Env, Stateful, Drawable, Watchable, Reporting, TeamMerging):
            assert isinstance(env, capability), capability
        assert not isinstance(env, Waiting)


def test_the_first_step_of_a_scene_is_a_reset():
    with make(EnvRecipe("scene", "3DBall", 2, seed=3)) as env:
        env.step()
        stepped = env.state()
    with make(EnvRecipe("scene", "3DBall", 2, seed=3)) as env:
        env.reset()
        for name, values in env.state().items():
            np.testing.assert_array_equal(stepped[name], values, err_msg=name)


def test_a_unity_player_reports_but_cannot_be_saved_or_drawn():
    methods = vars(UnityEnvironment)
    assert "take_statistics" in methods
    assert not {"state", "load_state", "render", "watched"} & set(methods)


def test_no_module_probes_for_attributes_or_compares_names_of_worlds():
    """A capability is a protocol, and what is known of a kind of world is in `WORLDS`."""
    comparison = re.compile(r"\.world (==|!=|in \(|not in \()")
    probe = re.compile(r"\bhasattr\(")
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert comparison.search(text) is None, path
        # The first meets errors of the option parser, the second agents of scripts and libraries,
        # which share no class.
        if not {"cli", "to_unity"} & set(path.parts):
            assert probe.search(text) is None, path
