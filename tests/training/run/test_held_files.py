"""A virus scanner, a cloud folder or an editor opens a run's files while it trains."""

import subprocess
import sys
from contextlib import contextmanager
from threading import Thread

import pytest

from touchline.envs.env import EnvRecipe
from touchline.errors import FileHeldError
from touchline.operating_systems import HELD_S, SYSTEM
from touchline.policies.files.checkpoints import read_checkpoint
from touchline.policies.files.run_layout import RunLayout
from touchline.training.config.reading import read_config
from touchline.training.trainer import train

pytestmark = [
    pytest.mark.usefixtures("unchecked_shapes"),
    pytest.mark.skipif(
        SYSTEM != "win32", reason="only Windows refuses to replace a file that is open"
    ),
]

SCANNER = """
import sys, time
from pathlib import Path
seen = set()
print("ready", flush=True)
while True:
    for path in list(Path(sys.argv[1]).rglob("*")):
        try:
            with path.open("rb"):
                if path not in seen:
                    print(path, flush=True)
                    seen.add(path)
                time.sleep(float(sys.argv[2]))
        except OSError:
            pass  # a folder, or gone by now
    time.sleep(0.001)
"""
HOLDER = """
import sys, time
file = open(sys.argv[1])
print("ready", flush=True)
time.sleep(600)
"""


@contextmanager
def _running(program, *arguments):
    """A second process, until the end of the block."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def _config(tmp_path, **changes):
    overrides = {
        "checkpoint_settings.results_dir": str(tmp_path),
        "checkpoint_settings.run_id": "run",
        "behaviors.Basic.max_steps": 3000,
        "behaviors.Basic.checkpoint_interval": 500,
        "behaviors.Basic.keep_checkpoints": 2,
        "env_settings.seed": 1,
    }
    return read_config("Basic_official", (), overrides | changes)


def test_a_training_ends_whole_while_another_process_opens_each_of_its_files(tmp_path):
    opened = set()
    with _running(SCANNER, tmp_path, 0.2) as scanner:
        # A pipe of Windows holds 4 KiB: the scanner must not wait with a file open.
        reader = Thread(target=lambda: opened.update(map(str.rstrip, scanner.stdout)))
        reader.start()
        recipe = EnvRecipe("scene", "Basic")
        train(_config(tmp_path), recipe)
        again = _config(
            tmp_path,
            **{
                "checkpoint_settings.resume": True,
                "behaviors.Basic.max_steps": 5000,
            },
        )
        result = train(again, recipe)
        scanner.kill()
        reader.join()
    folder = RunLayout(result.folder)
    kept = [folder.latest("Basic"), folder.model("Basic"), folder.resume_point]
    assert {str(path) for path in kept} <= opened
    read_checkpoint(folder.latest("Basic"))
    assert result.behaviors["Basic"].steps >= 5000
    assert not list(result.folder.rglob("*.part"))


def test_a_model_that_stays_open_elsewhere_is_in_the_checkpoint_before_the_run_ends(
    tmp_path,
):
    train(_config(tmp_path), EnvRecipe("scene", "Basic"))
    model = RunLayout(tmp_path / "run").model("Basic")
    with _running(HOLDER, model):
        changes = {
            "checkpoint_settings.resume": True,
            "behaviors.Basic.max_steps": 3300,
        }
        with pytest.raises(FileHeldError, match=rf"Basic\.onnx.*{HELD_S:g} s") as held:
            train(_config(tmp_path, **changes), EnvRecipe("scene", "Basic"))
    assert "\n" not in str(held.value)
    newest = max(
        RunLayout(tmp_path / "run").folder("Basic").glob("Basic-*.onnx"),
        key=lambda path: path.stat().st_mtime,
    )
    assert int(newest.stem.partition("-")[2]) >= 3300
