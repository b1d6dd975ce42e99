"""A page that follows a training run."""

import os
import time
from pathlib import Path

import pytest

import touchline
from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.viewer.opening import ViewOptions, opened
from touchline.viewer.run_panel import is_run, scene_of, sources_of, steps_of

SHORT = (
    "behaviors.Basic.max_steps=256",
    "behaviors.Basic.summary_freq=64",
    "behaviors.Basic.checkpoint_interval=128",
    "behaviors.Basic.hyperparameters.buffer_size=64",
    "behaviors.Basic.hyperparameters.batch_size=32",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run of Basic."""
    folder = tmp_path_factory.mktemp("results")
    request = {"checkpoint_settings.results_dir": str(folder)}
    for text in SHORT:
        key, _, value = text.partition("=")
        request[key] = int(value)
    return touchline.train("Basic", changes=request, log=lambda line: None).folder


def test_a_run_says_where_it_learned_and_what_it_kept(run):
    assert is_run(str(run))
    assert scene_of(run) == "Basic"
    assert sources_of(run) == [f"Basic={run / 'Basic' / 'checkpoint.safetensors'}"]
    steps = steps_of(run)
    assert steps == sorted(steps, reverse=True)
    assert str(steps[0]) in sources_of(run, str(steps[0]))[0]


def test_a_folder_of_a_run_that_is_still_starting_is_one_line(tmp_path):
    (tmp_path / "configuration.yaml").write_text("behaviors: {}\n")
    with pytest.raises(UsageError, match="still starting"):
        scene_of(tmp_path)
    with pytest.raises(UsageError, match="no checkpoint yet"):
        sources_of(tmp_path)


def test_a_newer_checkpoint_takes_over_and_the_curve_is_drawn(run):
    recipe = EnvRecipe("scene", "Basic", num_areas=1)
    options = ViewOptions(port=0, run=Path(run))
    with opened(recipe, sources_of(run), options) as page:
        panel, simulation = page.run, page.simulation
        panel.refresh()
        step, score = panel._curve.data
        assert len(step) == len(score) > 1
        first = dict(simulation.actors)
        checkpoint = run / "Basic" / "checkpoint.safetensors"
        later = checkpoint.stat().st_mtime_ns + 10**9
        os.utime(checkpoint, ns=(later, later))
        panel._looked_s = float("-inf")
        panel.refresh()
        end = time.monotonic() + 10.0
        while dict(simulation.actors) == first:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert simulation.failure is None
