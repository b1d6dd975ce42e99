"""A run is cut off at each file operation, and each file fills its disk: what is left is whole.

A child process trains; the operation of a given number is its last (`os._exit`, as `kill -9` ends
it), or writes half of its bytes first. Then every file is read, and the run goes on.
"""

import io
import json
import os
import shutil
import sys
import traceback
from pathlib import Path

import matplotlib.pyplot  # noqa: F401 - not again in each child
import onnx
import pytest
import yaml
from tests.training.run.kills import ID, state_of
from torch.utils.tensorboard import SummaryWriter  # noqa: F401

from touchline.envs.env import EnvRecipe
from touchline.policies.files.checkpoints import read_checkpoint
from touchline.training import evaluator, trainer
from touchline.training.config.reading import read_config
from touchline.training.trainer import train

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="child processes are forked"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
CUT = 77
"""The exit code of a child that was cut off."""
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
WAYS = ("before", "amid")


class Operations:
    """Counts the operations on files below a folder, and ends the process at one of them."""

    def __init__(self, folder, last, way):
        self.count, self._folder, self._last, self._way = 0, str(folder), last, way
        self._open = io.open
        sys.addaudithook(self._audit)
        io.open = self._opened

    def next(self, path=None, half=b""):
        """Count an operation; `half` is that of the bytes which it writes to `path`."""
        self.count += 1
        if self.count == self._last:
            if self._way == "amid" and path is not None:
                with self._open(path, "ab") as file:
                    file.write(half)
            os._exit(CUT)

    def _audit(self, event, given):
        path = str(given[0]) if given else ""
        if event in CHANGES and path.startswith(self._folder):
            self.next()

    def _opened(self, file, mode="r", *more, **named):
        if set(mode) & set("wax+") and str(file).startswith(self._folder):
            self.next()
            if "b" in mode:
                return _Cut(self, file, mode)
            return io.TextIOWrapper(_Cut(self, file, mode), **named)
        return self._open(file, mode, *more, **named)


class Snapshots(Operations):
    """Copies the folder as each operation would leave it, were it the last.

    `check` gets each copy; the same as ending a process at each operation, and hundreds of times
    faster.
    """

    def __init__(self, folder, way, copies, check):
        super().__init__(folder, None, way)
        self._copies, self._check = copies, check

    def next(self, path=None, half=b""):
        self.count += 1
        if self._way == "amid" and path is None:
            return  # only a write can end half way
        copy = self._copies / str(self.count)
        shutil.copytree(self._folder, copy)
        if self._way == "amid":
            with self._open(copy / Path(path).relative_to(self._folder), "ab") as file:
                file.write(half)
        self._check(copy, self.count)


class _Cut(io.FileIO):
    """A file whose write may end half way."""

    def __init__(self, operations, path, mode):
        super().__init__(path, mode.replace("b", ""))
        self._operations = operations

    def write(self, content):
        self._operations.next(self.name, bytes(content[: len(content) // 2]))
        return super().write(content)


def in_child(work):
    """Run `work` in a forked process; its exit code, 1 after an exception."""
    child = os.fork()
    if child == 0:
        errors, code = os.dup(2), 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            code = work() or 0
        except BaseException:
            os.write(errors, traceback.format_exc().encode())
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


BUFFERS = {
    "ppo": {"buffer_size": 16, "batch_size": 8},
    # A replay that goes round, with a piece of it for each resume point.
    "sac": {"buffer_size": 20, "batch_size": 8, "save_replay_buffer": True},
}


def run(folder, trainer_type, *, resume=False):
    """A short run with everything that is written on the way: the folder's last state."""
    # Often, and nothing that takes long: an evaluation is one episode, and no disk is waited for.
    trainer.RESUME_EVERY_S, evaluator.EPISODES, os.fsync = 0.0, 1, lambda file: None
    changes = {
        "checkpoint_settings.results_dir": str(folder / "results"),
        "checkpoint_settings.run_id": ID,
        "checkpoint_settings.resume": resume,
        "checkpoint_settings.force": not resume,
        "env_settings.seed": 3,
        "env_settings.num_areas": 8,
        "behaviors.Basic.trainer_type": trainer_type,
        "behaviors.Basic.hyperparameters": BUFFERS[trainer_type],
        "behaviors.Basic.max_steps": 64,
        "behaviors.Basic.summary_freq": 32,
        "behaviors.Basic.checkpoint_interval": 24,
        "behaviors.Basic.keep_checkpoints": 2,
    }
    train(read_config("Basic_official", (), changes), EnvRecipe("scene", "Basic"))


def assert_whole(folder):
    """Each file under a final name can be read to its end."""
    for path in folder.rglob("*"):
        if path.is_dir() or path.name.endswith((".part", ".lock")):
            continue
        if path.suffix == ".safetensors":
            read_checkpoint(path)
        elif path.suffix == ".onnx":
            onnx.checker.check_model(onnx.load(path))
        elif path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix == ".yaml":
            assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict), (
                path
            )


def cut_off_at(folder, kind, last, way):
    """Train and be cut off; whether there was such an operation."""

    def work():
        Operations(folder, last, way)
        run(folder, kind)

    code = in_child(work)
    assert code in (0, CUT), code
    return code == CUT


@pytest.fixture(
    scope="module", params=["ppo", pytest.param("sac", marks=pytest.mark.slow)]
)
def alone(request, tmp_path_factory):
    """The trainer, the last state of a run that nothing cuts off, and its number of operations."""
    kind = request.param
    folder = tmp_path_factory.mktemp("alone")
    counted = folder / "operations"

    def work():
        operations = Operations(folder, None, "before")
        run(folder, kind)
        io.open = operations._open
        counted.write_text(str(operations.count))

    assert in_child(work) == 0
    return kind, state_of(folder), int(counted.read_text(encoding="utf-8"))


def goes_on(folder, kind):
    """Start the command again, with --resume where there is a resume point; its state at the end."""
    has_point = (folder / "results" / ID / "resume.safetensors").exists()
    assert in_child(lambda: run(folder, kind, resume=has_point)) == 0
    assert_whole(folder)
    return state_of(folder)


@pytest.mark.parametrize(
    ("share", "way"), [(0.02, "before"), (0.8, "amid")], ids=["first", "late"]
)
def test_a_run_cut_off_at_a_file_operation_goes_on_as_if_it_had_not(
    alone, tmp_path, share, way
):
    kind, expected, count = alone
    assert cut_off_at(tmp_path, kind, int(share * count), way)
    assert_whole(tmp_path)
    assert goes_on(tmp_path, kind) == expected


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_run_cut_off_at_any_file_operation_leaves_whole_files_only(
    alone, tmp_path, way
):
    kind, expected, count = alone
    folder, copies = tmp_path / "run", tmp_path / "copies"
    folder.mkdir()

    def check(copy, number):
        assert_whole(copy)
        if number % 8:
            shutil.rmtree(copy)

    def work():
        Snapshots(folder, way, copies, check)
        run(folder, kind)

    assert in_child(work) == 0
    kept = sorted(copies.iterdir())
    for copy in kept:
        assert goes_on(copy, kind) == expected
    print(f"cut off {way} each of {count} operations; {len(kept)} of them resumed")


def fill_at(folder, kind, size):
    """Train on a disk that has room for files of so many bytes; the child's exit code."""
    resource = pytest.importorskip(
        "resource", reason="only Unix limits the size of files"
    )

    def work():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        run(folder, kind)

    return in_child(work)


def test_a_full_disk_leaves_whole_files_only(alone, tmp_path):
    kind, expected, _ = alone
    assert fill_at(tmp_path, kind, 20_000) == 1
    assert_whole(tmp_path)
    assert goes_on(tmp_path, kind) == expected


@pytest.mark.slow
def test_disks_of_any_size_leave_whole_files_only(alone, tmp_path):
    kind, expected, _ = alone
    code, size, disks = 1, 1, 0
    while code:
        folder = tmp_path / str(size)
        code = fill_at(folder, kind, size)
        assert_whole(folder)
        assert goes_on(folder, kind) == expected
        size, disks = int(size * 1.5) + 1, disks + 1
    print(f"{disks} disks, the last with files of at most {size} bytes")
    assert disks > 20
