"""Records for kernels, and where their machine code is kept."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import touchline
from touchline.physics.kernels import compiled, record_type


class Limb:
    length: float


class Body:
    number: int
    mass: float
    limb: Limb


def test_a_record_has_the_annotated_fields_in_order():
    body = record_type(Body)
    assert body.names == ("number", "mass", "limb")
    assert body["number"] == np.int64
    assert body["mass"] == np.float64
    assert body["limb"] == record_type(Limb)
    assert body.isalignedstruct


@compiled
def _grow(bodies, k, by):
    body = bodies[k]
    body.limb.length += by
    body.mass = 2.0 * body.limb.length


def test_a_kernel_writes_the_fields_of_a_record_in_place():
    bodies = np.zeros(3, record_type(Body))
    _grow(bodies, 1, 0.5)
    _grow(bodies, 1, 0.25)
    assert bodies["limb"]["length"].tolist() == [0.0, 0.75, 0.0]
    assert bodies["mass"].tolist() == [0.0, 1.5, 0.0]


PACKAGE = Path(touchline.__file__).parent
LAYERS = "adapters", "drawing", "envs", "physics", "protocol", "scenes", "sensors"
"""What importing an environment needs."""
USE_A_KERNEL = """
import numpy as np
from touchline.physics.kernels import announce_as
from touchline.envs.scene_env import _are_finite
announce_as("Basic", 7)
print(_are_finite((np.zeros(3, np.float32),)), len(_are_finite.stats.cache_misses))
"""


@pytest.fixture
def use_a_kernel(tmp_path):
    """A function that uses a kernel in a process of its own, with one cache directory for all."""

    def use(source, home=tmp_path / "home"):
        variables = {
            "PYTHONPATH": str(source),
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.run(
            [sys.executable, "-c", USE_A_KERNEL],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=True,
        )

    return use


@pytest.fixture
def another_environment(tmp_path):
    """The same package in another place, as a second environment has it."""
    for folder in LAYERS:
        shutil.copytree(PACKAGE / folder, tmp_path / "site" / "touchline" / folder)
    for file in PACKAGE.glob("*.py*"):
        shutil.copy2(file, tmp_path / "site" / "touchline")
    return tmp_path / "site"


def test_the_first_use_says_once_that_it_compiles(use_a_kernel):
    first, second = use_a_kernel(PACKAGE.parent), use_a_kernel(PACKAGE.parent)
    assert first.stdout.split() == ["True", "1"]
    assert first.stderr == "compiling Basic for this machine, about 7 s, once\n"
    assert second.stdout.split() == ["True", "0"]
    assert second.stderr == ""


def test_environments_with_the_same_sources_share_their_machine_code(
    use_a_kernel, another_environment
):
    use_a_kernel(PACKAGE.parent)
    assert use_a_kernel(another_environment).stdout.split() == ["True", "0"]


@pytest.mark.parametrize(
    ("changed", "compiled_again"),
    [
        ("scenes/academy.py", "1"),  # imported by what the kernel's module imports
        ("scenes/basic.py", "0"),  # imported by none of them
    ],
)
def test_a_change_compiles_again_what_imports_the_changed_file(
    use_a_kernel, another_environment, changed, compiled_again
):
    use_a_kernel(another_environment)
    source = another_environment / "touchline" / changed
    text = source.read_text(encoding="utf-8") + "# changed\n"
    source.write_text(text, encoding="utf-8")
    assert use_a_kernel(another_environment).stdout.split() == ["True", compiled_again]


def test_without_a_place_to_write_kernels_work_all_the_same(use_a_kernel, tmp_path):
    blocked = tmp_path / "blocked"
    blocked.touch()  # a file, below which there can be no folder
    assert use_a_kernel(PACKAGE.parent, blocked).stdout.split() == ["True", "1"]
