"""A policy plays the game that it was trained in, unless another is wanted."""

from pathlib import Path

import pytest

from touchline.envs.env import EnvRecipe
from touchline.policies.loading import as_trained, trained_options

POLICY = str(Path(__file__).parents[2] / "models" / "microrts-8x8.safetensors")
MAP = "microrts:8x8/basesWorkers8x8"


def test_the_options_of_training_are_used_and_named_in_one_line():
    lines = []
    recipe = as_trained(EnvRecipe.parse(MAP), [POLICY], lines.append)
    assert recipe.options["form"] == "grid"
    assert recipe.options["turned"] == "1"
    (line,) = lines
    assert (
        line == f"{POLICY} plays form=grid&economy=1&turned=1&skip=1, as it was trained"
    )


@pytest.mark.parametrize("given", ["turned=0", "turned=false"])
def test_other_options_win_and_the_difference_is_reported(given):
    lines = []
    recipe = as_trained(
        EnvRecipe.parse(f"{MAP}?form=grid&economy=1&skip=1&{given}"),
        [POLICY],
        lines.append,
    )
    assert recipe.options["turned"] == given.partition("=")[2]
    assert lines == [f"{POLICY} was trained with turned=1, and plays turned=0"]


@pytest.mark.parametrize("turned", ["1", "true", True])
def test_the_same_options_change_and_report_nothing(turned):
    options = {"form": "grid", "economy": "1", "turned": turned, "skip": "1"}
    lines = []
    recipe = as_trained(EnvRecipe.parse(MAP, options=options), [POLICY], lines.append)
    assert {name: recipe.options[name] for name in options} == options
    assert lines == []


def test_only_checkpoints_of_the_same_kind_of_world_have_options():
    assert trained_options(POLICY, "microrts")["turned"] == "1"
    assert trained_options(f"MicroRTS={POLICY}", "microrts")["turned"] == "1"
    assert trained_options(POLICY, "scene") == {}
    for source in ("random", "zero", "some.onnx", __file__):
        assert trained_options(source, "microrts") == {}
