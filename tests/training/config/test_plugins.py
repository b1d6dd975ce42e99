"""Settings of an algorithm and of a reward signal that another package or another file adds."""

import os
import subprocess
import sys
from typing import ClassVar

import pytest
from tests.stderr import without_progress

from touchline.errors import UsageError
from touchline.training.config.reading import config_text, read_config
from touchline.training.config.values import Positive, Whole
from touchline.training.rewards import settings as rewards
from touchline.training.rewards.settings import SignalSettings

SETTINGS = '''
from typing import ClassVar

from touchline.training.algorithms.settings import HyperparameterSettings
from touchline.training.config.values import Positive, Whole


class HillClimberSettings(HyperparameterSettings):
    """Keeps the better of two policies."""

    learner: ClassVar[str] = "toy_package.learner:HillClimber"

    noise: Positive = 0.1
    """Spread of the changes."""
'''

YAML = """\
behaviors:
  A:
    trainer_type: hill_climber
    hyperparameters:
      noise: 3e-1
  B:
    trainer_type: hill_climber
  C:
    trainer_type: ppo
"""


@pytest.fixture
def read(tmp_path):
    """Reads a YAML in a process that has a package with an algorithm installed."""
    package, about = tmp_path / "toy_package", tmp_path / "toy_package-1.0.dist-info"
    package.mkdir()
    about.mkdir()
    (package / "__init__.py").write_text("")
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: toy_package\nVersion: 1.0\n"
    )
    entry = "hill_climber = toy_package.settings:HillClimberSettings"
    (about / "entry_points.txt").write_text(f"[touchline.algorithms]\n{entry}\n")

    def read(text, settings=SETTINGS):
        (package / "settings.py").write_text(settings)
        (tmp_path / "config.yaml").write_text(text)
        path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "touchline",
                "train",
                "config.yaml",
                "--print-config",
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )

    return read


def test_an_installed_package_adds_an_algorithm_with_its_own_hyperparameters(read):
    done = read(YAML)
    assert done.returncode == 0, done.stderr
    assert "    hyperparameters:\n      noise: 0.3\n" in done.stdout
    assert "    hyperparameters:\n      noise: 0.1\n" in done.stdout
    assert "    hyperparameters:\n      batch_size: 1024\n" in done.stdout
    again = read(done.stdout)
    assert again.stdout == done.stdout


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("noise: 3e-1", "nois: 3", "config.yaml:5:7: behaviors.A.hyperparameters.nois: unknown key; did you mean 'noise'?"),
        ("noise: 3e-1", "batch_size: 3", "config.yaml:5:7: behaviors.A.hyperparameters.batch_size: unknown key; known keys: noise"),
        ("noise: 3e-1", "noise: loud", "config.yaml:5:7: behaviors.A.hyperparameters.noise: expected a valid number, unable to parse string as a number, got 'loud'"),
        ("noise: 3e-1", "noise: 0", "config.yaml:5:7: behaviors.A.hyperparameters.noise: expected greater than 0, got 0"),
        ("type: hill_climber", "type: hill_climbr", "config.yaml:3:5: behaviors.A.trainer_type: expected 'hill_climber' or 'ppo' or 'sac' or 'poca' or 'mappo', got 'hill_climbr'; did you mean 'hill_climber'?"),
    ],
)  # fmt: skip
def test_a_mistake_in_them_is_named_with_its_place_and_what_was_meant(
    read, old, new, expected
):
    done = read(YAML.replace(old, new, 1))
    assert done.returncode == 2
    assert without_progress(done.stderr) == [f"touchline: {expected}"]


def test_a_package_that_cannot_be_imported_is_one_line(read):
    for broken in ("import no_such_module", "nothing = 3"):
        done = read(YAML, broken)
        assert done.returncode == 2
        (line,) = without_progress(done.stderr)
        assert (
            "entry point 'hill_climber' of touchline.algorithms: "
            "toy_package.settings:HillClimberSettings cannot be imported: " in line
        )


class NoveltySettings(SignalSettings):
    """A reward for what is new."""

    signal: ClassVar[str] = "nowhere:Novelty"

    decay: Positive
    """How quickly things get old."""
    memory: Whole = 100
    """How many things are remembered."""


@pytest.fixture
def novelty(monkeypatch):
    monkeypatch.setitem(
        rewards.REWARD_SIGNALS, "novelty", f"{__name__}:NoveltySettings"
    )


def _signals(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(f"behaviors:\n  A:\n    reward_signals:\n{text}")
    return read_config(str(path))


def test_every_reward_signal_is_read_by_the_settings_of_its_key(novelty, tmp_path):
    text = (
        "      extrinsic: {gamma: 0.9}\n      novelty: {decay: 1e-2, strength: 0.5}\n"
    )
    config = _signals(tmp_path, text)
    signals = config.behaviors["A"].reward_signals
    assert list(signals) == ["extrinsic", "novelty"], (
        "their order is that of the value heads"
    )
    assert signals["novelty"] == NoveltySettings(decay=0.01, strength=0.5)
    saved = tmp_path / "saved.yaml"
    saved.write_text(config_text(config))
    assert read_config(str(saved)) == config


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("      novelty: {decai: 1}\n", r"yaml:4:17: .*novelty.decai: unknown key; did you mean 'decay'"),
        ("      novelty: {}\n", r"yaml:4:7: behaviors.A.reward_signals.novelty.decay: missing"),
        ("      novelty: {decay: 1, memory: 0}\n", r"yaml:4:27: .*novelty.memory: expected greater than 0"),
        ("      novelti: {}\n", r"yaml:4:7: .*novelti: unknown key; did you mean 'novelty'\?"),
        ("      extrinsic: {}\n      zzz: {}\n", r"yaml:5:7: .*zzz: unknown key; known keys: curiosity, extrinsic, .*novelty, rnd"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_reward_signal_is_named_with_its_place(
    novelty, tmp_path, text, expected
):
    with pytest.raises(UsageError, match=expected):
        _signals(tmp_path, text)
