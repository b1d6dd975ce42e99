"""Benchmarks are timed by hand; the tests are about what they prepare."""

from pathlib import Path

import pytest
import torch
from bench.sac import SIZES, Ours

from touchline.bench import run_bench
from touchline.bench.scenes import bricks_speed
from touchline.envs.env import EnvRecipe, make
from touchline.errors import UsageError


def test_bricks_fly_in_every_area_while_pyramids_is_timed():
    with make(EnvRecipe("scene", "Pyramids", num_areas=3)) as env:
        figures = bricks_speed(env)
        state = env.state()
        assert figures["agent_decisions_per_s"] == pytest.approx(
            3e6 / figures["step_us"], rel=0.01
        )
        assert (abs(state["scene/brick_velocity"]).max(axis=(1, 2)) > 1.0).sum() >= 2, (
            "a lucky agent may have its gold by now"
        )


@pytest.mark.parametrize("scene", ["3DBall", "PushBlock"])
def test_sac_is_timed_with_gradient_steps_that_learn(scene):
    ours = Ours(SIZES[scene] | {"steps_per_turn": 2, "hidden_units": 8})
    before = [p.clone() for p in ours.learner.networks.critics.parameters()]
    assert set(ours.turn()) == {"sampling", "gradient_steps"}
    after = ours.learner.networks.critics.parameters()
    assert not any(map(torch.equal, before, after))


def test_a_clone_refuses_a_scene_without_sizes(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1])
    with pytest.raises(UsageError, match="no sizes of Walker; known: 3DBall"):
        run_bench("sac", ["Walker"])
