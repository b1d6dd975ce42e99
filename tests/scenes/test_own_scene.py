"""A scene of your own, `module:Class`: the one of the tutorial, examples/chase.py."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import touchline
from touchline.envs.env import EnvRecipe, make
from touchline.envs.scene_env import SceneEnv
from touchline.errors import RunError, UsageError
from touchline.player import build
from touchline.scenes import academy
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


def test_a_scene_without_an_enabled_agent_does_not_step_for_ever(monkeypatch):
    from chase import Chase  # found where the fixture looks

    class Deserted(Chase):
        def act(self):
            if self.academy.clock == 7:
                self.academy.disable(self, np.arange(self.num_areas))

    monkeypatch.setattr(academy, "MAX_ROUNDS_WITHOUT_EXCHANGE", 500)
    env = SceneEnv(Deserted(2))
    for _ in range(3):
        env.step()
    assert len(env.steps("Chase?team=0")[1]) == 2, "both have ended"
    with pytest.raises(RunError, match="in 500 steps of the scene; 2 of its 2 agents"):
        env.step()


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


def _chase_that_observes(change):
    from chase import Chase  # found where the fixture looks

    class Changed(Chase):
        def observe(self, behavior, agents):
            return change(*super().observe(behavior, agents))

    return SceneEnv(Changed(2), seed=3)


@pytest.mark.parametrize("kind", [np.float64, np.int64, np.bool_])
def test_numbers_of_another_type_are_observed_as_float32(kind):
    env = _chase_that_observes(lambda puck: [puck.astype(kind)])
    plain = _chase_that_observes(lambda puck: [puck.astype(kind).astype(np.float32)])
    for _ in range(60):
        for each in (env, plain):
            each.step()
        pairs = zip(env.steps("Chase?team=0"), plain.steps("Chase?team=0"), strict=True)
        for steps, expected in pairs:
            assert steps.obs[0].dtype == np.float32
            np.testing.assert_array_equal(steps.obs[0], expected.obs[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda puck: [], "returned 0 arrays, expected 1: Puck"),
        (lambda puck: [puck, puck], "returned 2 arrays, expected 1: Puck"),
        (
            lambda puck: [puck[:, :1]],
            r"sensor 'Puck': `observe` returned float32 of shape \(2, 1\), expected float32 of "
            r"shape \(2, 2\)",
        ),
        (
            lambda puck: [puck[:1]],
            r"of shape \(1, 2\), expected float32 of shape \(2, 2\)",
        ),
        (lambda puck: [puck.astype(str)], "returned <U32 of shape"),
    ],
)
def test_observations_that_are_not_those_of_the_spec_are_one_line(change, message):
    with pytest.raises(UsageError, match=rf"^scene Chase: Chase\?team=0: .*{message}"):
        _chase_that_observes(change).reset()
