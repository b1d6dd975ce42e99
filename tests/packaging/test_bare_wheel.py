"""The built wheel alone in a fresh environment: it connects, steps, records, replays, diagnoses.

Slow, and it downloads the base dependencies. The player on the other side of the connection runs
in the full environment that runs this test.
"""

import json
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from tests.stderr import without_progress

from touchline.extras import EXTRA_OF_MODULE
from touchline.player import build

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="its environments have bin folders"
    ),
]

STEPS_A_PLAYER = """
import sys
import numpy as np
import touchline

player, recording = sys.argv[1:]
rng = np.random.default_rng(0)
with touchline.UnityEnvironment(player, seed=3, record_wire=recording) as env:
    env.reset()
    slots = touchline.Slots(env)
    for _ in range(50):
        for name, spec in env.behavior_specs.items():
            decisions, _ = env.get_steps(name)
            env.set_actions(name, spec.action_spec.random_action(len(decisions), rng))
        env.step()
    (name,) = env.behavior_specs
    print(name, env.get_steps(name)[0].obs[0].shape)
with touchline.make(recording) as replayed:
    print(sum(1 for _ in replayed.replay()), "exchanges")
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The folder of programs of an environment that holds the wheel and its base dependencies."""
    folder = tmp_path_factory.mktemp("bare")
    _run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=True)
    _run(folder / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", wheel)
    return folder / "venv" / "bin"


@pytest.fixture(scope="module")
def player(tmp_path_factory):
    return build("Basic", tmp_path_factory.mktemp("builds"), num_areas=3)


def _run(*command, cwd="/", code=0):
    # In another folder than the project's, so that nothing is imported from its source.
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done


def test_it_installs_no_library_of_an_extra(bare):
    listed = json.loads(
        _run(bare / "python", "-m", "pip", "list", "--format", "json").stdout
    )
    installed = {package["name"].lower().replace("_", "-") for package in listed}
    requirements = {
        re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")
        for extra in set(EXTRA_OF_MODULE.values())
        for requirement in PROJECT["optional-dependencies"][extra]
    }
    assert not installed & (requirements - {"touchline"})


def test_it_steps_records_and_replays_a_player_of_the_full_environment(
    bare, player, tmp_path
):
    recording = tmp_path / "session.wire.gz"
    done = _run(bare / "python", "-c", STEPS_A_PLAYER, player, recording)
    assert done.stdout.splitlines() == ["Basic?team=0 (3, 20)", "51 exchanges"]
    done = _run(bare / "touchline", "inspect", recording, "--json")
    assert list(json.loads(done.stdout)["behaviors"]) == ["Basic?team=0"]


def test_it_diagnoses_a_player(bare, player):
    done = _run(bare / "touchline", "doctor", player)
    assert "FAIL" not in done.stdout + done.stderr


def test_it_replays_recordings_of_real_players(bare, shared):
    for path in sorted((shared / "wire-recordings").glob("*.wire.gz")):
        done = _run(bare / "touchline", "inspect", path, "--json")
        assert json.loads(done.stdout)["behaviors"], path


def test_what_needs_an_extra_says_so_in_one_line(bare):
    for command, extra in (
        (["inspect", "Basic"], "scenes"),
        (["export", "a-run", "-o", "x.onnx"], "train"),
    ):
        done = _run(bare / "touchline", *command, code=2)
        (line,) = without_progress(done.stderr)
        assert line.endswith(f"pip install 'touchline[{extra}]'")
