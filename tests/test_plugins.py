"""Other packages add algorithms, reward signals, networks and memories by entry points alone.

Each example is installed as a package of its own, and trained with through the command line.
"""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.stderr import without_progress

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "plugins"
KINDS = {
    "algorithm": ("touchline.algorithms", "reinforce"),
    "reward_signal": ("touchline.reward_signals", "visits"),
    "memory": ("touchline.memories", "leaky"),
    "network": ("touchline.networks", "residual"),
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The folder in which all examples are installed."""
    folder = tmp_path_factory.mktemp("packages")
    # Setuptools builds in the source folder, which is to stay as it is.
    sources = shutil.copytree(EXAMPLES, folder / "sources")
    site = folder / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    install += [
        "--no-build-isolation",
        "--disable-pip-version-check",
        "--target",
        str(site),
    ]
    subprocess.run([*install, *map(str, sorted(sources.iterdir()))], check=True)
    return site


def _train(site, tmp_path, behavior, *arguments, env="Basic"):
    config = tmp_path / "config.yaml"
    block = {"max_steps": 1000, "summary_freq": 300, **behavior}
    config.write_text(yaml.safe_dump({"behaviors": {"Basic": block}}))
    paths = os.pathsep.join(map(str, (site, ROOT / "src")))
    command = [sys.executable, "-m", "touchline", "train", str(config), "--env", env]
    return subprocess.run(
        [*command, *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _rows(tmp_path):
    path = tmp_path / "results" / "plug" / "Basic" / "metrics.csv"
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


PPO = {"trainer_type": "ppo", "hyperparameters": {"batch_size": 32, "buffer_size": 256}}
REINFORCE = {"trainer_type": "reinforce", "hyperparameters": {"num_results": 128}}
LEAKY = {
    **PPO,
    "network_settings": {
        "memory": {"type": "leaky", "memory_size": 8, "sequence_length": 16}
    },
}
RESIDUAL = {**PPO, "network_settings": {"type": "residual"}}
VISITS = {**PPO, "reward_signals": {"extrinsic": {}, "visits": {"strength": 0.1}}}


@pytest.mark.parametrize(
    ("behavior", "env", "metric"),
    [
        pytest.param(REINFORCE, "Basic", "reinforce_loss", id="algorithm"),
        pytest.param(LEAKY, "Basic", "policy_loss", id="memory"),
        pytest.param(VISITS, "Basic", "visits_different", id="reward signal"),
        pytest.param(RESIDUAL, "Basic", "policy_loss", id="network"),
    ],
)
def test_an_installed_package_trains_saves_and_resumes(
    packages, tmp_path, behavior, env, metric
):
    run = ("--run-id", "plug", "--num-areas", "4")
    first = _train(packages, tmp_path, behavior, *run, env=env)
    assert first.returncode == 0, first.stderr
    rows = _rows(tmp_path)
    assert all(row[metric] for row in rows)
    more = (*run, "--resume", "--max-steps", "1500")
    second = _train(packages, tmp_path, behavior, *more, env=env)
    assert second.returncode == 0, second.stderr
    assert len(_rows(tmp_path)) > len(rows)


@pytest.mark.parametrize("folder", sorted(EXAMPLES.iterdir()), ids=lambda f: f.name)
def test_every_example_is_a_whole_package_of_under_100_lines(folder):
    (module,) = folder.glob("*.py")
    assert len(module.read_text(encoding="utf-8").splitlines()) < 100
    group, _ = KINDS[folder.name]
    assert f'[project.entry-points."{group}"]' in (folder / "pyproject.toml").read_text(
        encoding="utf-8"
    )


def test_the_settings_of_a_plug_in_are_checked_with_their_place(packages, tmp_path):
    wrong = {**REINFORCE, "hyperparameters": {"num_result": 128}}
    done = _train(packages, tmp_path, wrong)
    assert done.returncode == 2
    expected = (
        "config.yaml:4:7: behaviors.Basic.hyperparameters.num_result: unknown key"
    )
    assert expected in done.stderr
    assert "did you mean 'num_results'?" in done.stderr


def test_without_the_package_the_type_is_unknown_and_the_line_names_those_that_exist(
    tmp_path,
):
    done = _train(tmp_path, tmp_path, REINFORCE)
    assert done.returncode == 2
    assert "trainer_type" in done.stderr
    assert "ppo" in done.stderr


def _package(site, name, group, entry, source):
    """Install a package of one module by hand."""
    about = site / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    )
    (about / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
    (site / f"{name}.py").write_text(source)


SIGNAL = """
from touchline.training.rewards.settings import SignalSettings
from typing import ClassVar
class Settings(SignalSettings):
    signal: ClassVar[str] = "bad:Signal"
class Signal:
    def __init__(self, name, settings, setup): pass
    def reward(self, trajectories): pass
"""
CONTRACT = "touchline.training.rewards.signal.RewardSignal"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import nothing_of_this_name", "bad:Settings cannot be imported: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("x = 1 / 0", "bad:Settings cannot be imported: ZeroDivisionError: division by zero"),
        ("other = 3", "bad:Settings cannot be imported: AttributeError: module 'bad' has no attribute 'Settings'"),
        ("Settings = 3", "bad:Settings is 3; expected a class as touchline.training.rewards.settings.SignalSettings describes it"),
        ("class Settings: pass", "bad:Settings is no subclass of touchline.training.rewards.settings.SignalSettings; expected one"),
        (SIGNAL.replace("    signal:", "    other:"), "bad:Settings has no signal; expected what touchline.training.rewards.settings.SignalSettings describes"),
        (SIGNAL.replace("bad:Signal", "bad:Signa"), "bad:Signa cannot be imported: AttributeError: module 'bad' has no attribute 'Signa'"),
        (SIGNAL, f"bad:Signal has no observe, update, state, load_state; expected what {CONTRACT} describes"),
    ],
)  # fmt: skip
def test_a_plug_in_that_cannot_be_used_is_one_line_with_its_entry_point(
    tmp_path, source, expected
):
    _package(
        tmp_path, "bad", "touchline.reward_signals", "novel = bad:Settings", source
    )
    done = _train(tmp_path, tmp_path, {"reward_signals": {"novel": {}}})
    assert done.returncode == 2, done.stderr
    lines = without_progress(done.stderr)
    assert len(lines) == 1, done.stderr
    line = lines[0]
    start = "entry point 'novel' of touchline.reward_signals: "
    assert f"{start}{expected}" in line


def test_what_a_plug_in_makes_must_have_the_attributes_of_its_contract(tmp_path):
    methods = "    observe = update = state = load_state = reward\n"
    source = SIGNAL + methods
    _package(
        tmp_path, "bad", "touchline.reward_signals", "novel = bad:Settings", source
    )
    done = _train(tmp_path, tmp_path, {"reward_signals": {"novel": {}}})
    assert done.returncode == 2, done.stderr
    expected = f"Signal has no discount, ignores_ends, name, strength; expected what {CONTRACT}"
    assert expected in without_progress(done.stderr)[-1]


def test_a_name_of_two_packages_is_one_line_that_names_both(tmp_path):
    for name in ("one", "two"):
        entry = f"novel = {name}:Settings"
        _package(tmp_path, name, "touchline.reward_signals", entry, SIGNAL)
    done = _train(tmp_path, tmp_path, {"reward_signals": {"novel": {}}})
    assert done.returncode == 2
    lines = without_progress(done.stderr)
    assert len(lines) == 1, done.stderr
    line = lines[0]
    assert "the name stands for " in line
    assert "one:Settings" in line
    assert "two:Settings" in line


def test_a_name_of_touchline_is_refused_when_a_run_uses_it(tmp_path):
    _package(tmp_path, "bad", "touchline.algorithms", "ppo = bad:Settings", SIGNAL)
    done = _train(tmp_path, tmp_path, PPO)
    assert done.returncode == 2
    expected = (
        "bad:Settings has the name of an algorithm of Touchline; expected another name"
    )
    assert expected in without_progress(done.stderr)[-1]
