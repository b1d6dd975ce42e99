"""The core works without the MicroRTS wing: a copy of the package that lacks its folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stderr import without_progress

ROOT = Path(__file__).parents[1]
FAST = (
    "tests/envs/test_env.py",
    "tests/envs/test_slots.py",
    "tests/envs/test_actions.py",
    "tests/policies/test_network.py",
    "tests/policies/test_policy.py",
    "tests/training/config",
)
"""Worlds, slots, networks, policies and settings: the places that name the wing. None of these
compiles a scene, which takes a minute in a new place."""


@pytest.fixture(scope="module")
def core(tmp_path_factory) -> Path:
    """A copy of the sources and of the tests, without the wing and its tests."""
    folder = tmp_path_factory.mktemp("core")
    leave_out = shutil.ignore_patterns("microrts", "__pycache__")
    for name in ("src", "tests", "models", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=leave_out)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder)
    return folder


def python(core: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=core,
        env={**os.environ, "PYTHONPATH": str(core / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_names_of_the_wing_are_absent(core):
    script = """
from touchline.cli.app import COMMANDS
from touchline.envs.env import WORLDS
from touchline.policies.network import NETWORKS
from touchline.training.config.reading import preset_names
assert "scene" in WORLDS and "3DBall" in preset_names() and "train" in COMMANDS
print([*WORLDS, *NETWORKS, *COMMANDS, *preset_names()])
"""
    ran = python(core, "-c", script)
    assert ran.returncode == 0, ran.stderr
    assert "microrts" not in ran.stdout
    assert "board" not in ran.stdout


@pytest.mark.parametrize("command", [["inspect"], ["eval", "--policy", "random"]])
def test_an_env_of_the_wing_is_refused_in_one_line(core, command):
    verb, *options = command
    env = "microrts:basesWorkers8x8"
    main = "from touchline.cli import main; main()"
    ran = python(core, "-c", main, verb, env, *options)
    assert ran.returncode == 2
    (line,) = without_progress(ran.stderr)
    assert env in line


def test_its_tests_pass(core):
    ran = python(core, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *FAST)
    assert ran.returncode == 0, ran.stdout[-3000:]


@pytest.mark.slow
def test_all_its_tests_pass(core):
    """Without this file, which needs the wing, and without those that install packages."""
    skipped = (
        f"--ignore=tests/{name}" for name in ("test_without_microrts.py", "packaging")
    )
    ran = python(core, "-m", "pytest", "-q", "-p", "no:cacheprovider", *skipped)
    assert ran.returncode == 0, ran.stdout[-3000:]
