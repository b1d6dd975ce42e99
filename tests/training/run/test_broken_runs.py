"""Broken files of a run: --resume refuses each with one line, and leaves all files as they are."""

import json
import shutil

import numpy as np
import pytest

from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.policies.files.checkpoints import read_arrays, write_arrays
from touchline.policies.files.run_layout import RunLayout
from touchline.training.config.reading import read_config
from touchline.training.trainer import train

LONGEST = 400


def run(results, *, resume, force=False):
    changes = {
        "checkpoint_settings.results_dir": str(results),
        "checkpoint_settings.run_id": "r",
        "checkpoint_settings.resume": resume,
        "checkpoint_settings.force": force,
        "env_settings.seed": 1,
        "env_settings.num_areas": 4,
        "behaviors.Basic.max_steps": 200 if resume else 64,
        "behaviors.Basic.hyperparameters.buffer_size": 32,
        "behaviors.Basic.hyperparameters.batch_size": 16,
    }
    train(read_config("Basic_official", (), changes), EnvRecipe("scene", "Basic"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    results = tmp_path_factory.mktemp("whole")
    run(results, resume=False)
    return results


def rewritten(change):
    """A resume point whose arrays and metadata were changed."""

    def broken(layout):
        arrays, metadata = read_arrays(layout.resume_point)
        metadata.pop("format", None)
        change(arrays, metadata)
        write_arrays(layout.resume_point, arrays, metadata)

    return broken


def without(*keys):
    def change(arrays, metadata):
        at = metadata
        for key in keys[:-1]:
            at = at[key]
        del at[keys[-1]]

    return rewritten(change)


def first_array(value):
    def change(arrays, metadata):
        name = next(n for n in sorted(arrays) if n.startswith("learners"))
        if value is None:
            del arrays[name]
        else:
            arrays[name] = value

    return rewritten(change)


def resume_point_is(content):
    return lambda layout: layout.resume_point.write_bytes(content)


def status_is(text):
    return lambda layout: layout.status.write_text(text)


BROKEN = {
    "no resume point": lambda layout: layout.resume_point.unlink(),
    "an empty resume point": resume_point_is(b""),
    "half a resume point": lambda layout: layout.resume_point.write_bytes(
        layout.resume_point.read_bytes()[:5000]
    ),
    "a resume point of another kind": resume_point_is(b"PK\x03\x04" + bytes(50)),
    "a resume point of another format": rewritten(
        lambda a, m: m.update(resume_format=99)
    ),
    "no worlds": without("worlds"),
    "other areas": rewritten(lambda a, m: m["worlds"].update(num_areas=7)),
    "no curriculum": without("curriculum"),
    "no behaviors": without("behaviors"),
    "no counters": rewritten(lambda a, m: m["behaviors"].update(Basic={})),
    "no seconds": without("seconds"),
    "seconds that are a text": rewritten(lambda a, m: m.update(seconds="long")),
    "no arrays": rewritten(lambda a, m: a.clear()),
    "a weight less": first_array(None),
    "a weight of another shape": first_array(np.zeros((3, 3), np.float32)),
    "no status": lambda layout: layout.status.write_text(""),
    "half a status": status_is('{"world": "sce'),
    "a status that is a list": status_is("[]"),
    "a status of another world": status_is(
        json.dumps({"world": "unity", "target": "x"})
    ),
    "a status of another scene": status_is(
        json.dumps({"world": "scene", "target": "3DBall"})
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_run_is_refused_in_one_line_and_left_alone(whole, tmp_path, name):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    layout = RunLayout(tmp_path / "r")
    # Otherwise a damaged point would be replaced by the one before it.
    layout.resume_point_before.unlink()
    BROKEN[name](layout)
    before = contents(layout)
    with pytest.raises(UsageError) as caught:
        run(tmp_path, resume=True)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) - len(str(tmp_path)) < LONGEST, line
    assert contents(layout) == before


def contents(layout):
    """What a resumed run would replace."""
    kept = (layout.resume_point, layout.status, layout.latest("Basic"))
    return [path.read_bytes() if path.exists() else None for path in kept]
