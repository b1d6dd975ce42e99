"""Files, names and texts of other people: one line each, and nothing that they can break."""

import gzip
import io
import json
import signal
import struct
import subprocess
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from tests.training.run.interrupts import SAVED
from touchline.cli import run
from touchline.cli.output import visible
from touchline.cli.training_table import TrainingTable
from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.log import EvaluationLine
from touchline.policies.files.checkpoints import (
    load_network,
    network_metadata,
    read_arrays,
    write_arrays,
    write_checkpoint,
)
from touchline.policies.files.official_weights import read_official
from touchline.policies.network import Architecture, make_network
from touchline.protocol.demonstrations import BRAIN_AT, _with_length, read_demo
from touchline.protocol.dialect import Dialect
from touchline.protocol.recording import read_frames
from touchline.protocol.schema import MESSAGES
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.config.reading import read_config
from touchline.training.run.progress import BehaviorProgress

SPEC = BehaviorSpec((ObservationSpec.vector(4, "a"),), ActionSpec(2, ()))


@pytest.fixture
def checkpoint(tmp_path):
    """A function that writes the checkpoint of a small network, with what it describes changed."""

    def written(weights=None, **architecture):
        network = make_network(SPEC, Architecture(hidden_units=8))
        tensors = {f"network.{n}": w for n, w in network.state_dict().items()}
        if weights is not None:
            tensors = {name: weights(tensor) for name, tensor in tensors.items()}
        metadata = network_metadata(network)
        metadata["network"] |= architecture
        path = tmp_path / "a.safetensors"
        write_checkpoint(path, tensors, metadata)
        return path

    return written


@pytest.mark.parametrize(
    "absurd",
    [
        {"num_layers": 10**9},
        {"hidden_units": 10**9},
        {"memory_size": 10**9},
        {"hidden_units": 300, "num_layers": 300},
    ],
)
def test_a_small_checkpoint_that_describes_a_huge_network_takes_no_memory(
    checkpoint, absurd
):
    path = checkpoint(**absurd)
    began = time.perf_counter()
    with pytest.raises(UsageError, match=r"a\.safetensors: .*(holds|do not fit)"):
        load_network(path)
    assert time.perf_counter() - began < 5


def test_weights_that_are_not_finite_are_refused(checkpoint):
    path = checkpoint(lambda w: torch.full_like(w, float("nan")))
    with pytest.raises(UsageError, match="some of its weights are NaN or infinite"):
        load_network(path)


def test_a_flipped_bit_in_saved_arrays_is_noticed(tmp_path):
    path = tmp_path / "a.safetensors"
    write_arrays(path, {"x": np.arange(9), "y": np.zeros((0, 3))}, {"a": 1})
    assert read_arrays(path)[1] == {"a": 1}
    content = bytearray(path.read_bytes())
    content[-1] ^= 4
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"a\.safetensors: damaged"):
        read_arrays(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("".join(f"{'  ' * n}a:\n" for n in range(950)), "nested too deeply"),
        ("# " + "x" * 1_000_000, "larger than 1,000,000 bytes"),
    ],
)
def test_settings_that_are_too_deep_or_too_large_are_one_line(tmp_path, text, expected):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=expected):
        read_config(str(path))


@pytest.mark.parametrize(
    "setting",
    [
        "behaviors.3DBall.max_steps=" + "9" * 400,
        "behaviors.3DBall.network_settings.hidden_units=1e11",
        "behaviors.3DBall.network_settings.num_layers=1e6",
        "behaviors.3DBall.hyperparameters.buffer_size=1e15",
        "env_settings.num_areas=1000000000",
        'checkpoint_settings.run_id="a\\nb"',
        "checkpoint_settings.run_id=a\u202eb",
        "checkpoint_settings.run_id=~",
        "checkpoint_settings.run_id=-x",
        "checkpoint_settings.run_id=.hidden",
        "checkpoint_settings.run_id=CON",
        "checkpoint_settings.run_id=" + "x" * 300,
    ],
)
def test_numbers_and_names_that_nothing_can_hold_are_refused_with_their_key(setting):
    with pytest.raises(UsageError, match=setting.partition("=")[0]):
        read_config("3DBall", [setting])


def test_a_version_of_ten_thousand_digits_is_taken_for_a_new_one():
    assert Dialect(package_version="9" * 10_000).channels_first


def test_control_characters_do_not_reach_the_terminal():
    text = visible("a\x1b[2J\x00\r\x9b\u202eb\tc\nd")
    assert (
        text
        == "a\N{REPLACEMENT CHARACTER}[2J" + "\N{REPLACEMENT CHARACTER}" * 4 + "b\tc\nd"
    )


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("a.onnx", "a policy"),
        ("a.safetensors", "a policy"),
        ("a.yaml", "settings"),
        ("a.demo", "a demonstration"),
        ("a.png", "a picture"),
        ("a.mp4", "a film"),
    ],
)
def test_a_file_that_is_no_world_is_named_by_what_it_is(tmp_path, name, what):
    path = tmp_path / name
    path.write_bytes(b"")
    with pytest.raises(UsageError, match=f"is {what}"):
        EnvRecipe.parse(str(path))


@pytest.mark.parametrize(
    ("inside", "what"),
    [
        ("configuration.yaml", "is a run"),
        ("seed-3/configuration.yaml", "several seeds"),
        ("trials.journal", "a folder of a search"),
    ],
)
def test_a_folder_that_is_no_world_is_named_by_what_it_is(tmp_path, inside, what):
    (tmp_path / inside).parent.mkdir(exist_ok=True)
    (tmp_path / inside).write_text("{}")
    with pytest.raises(UsageError, match=what):
        EnvRecipe.parse(str(tmp_path))


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("train a.onnx", "a.onnx is a policy"),
        ("train a.demo", "a.demo is a demonstration"),
        ("train run", "run is a run"),
        ("plan run", "run is a run"),
        ("plan seeds", "seeds is a folder of runs with several seeds"),
        ("tune a.png --space a.yaml", "a.png is a picture"),
        ("tune Basic --space a.onnx", "a.onnx is a policy"),
        ("convert a.onnx -o b.yaml", "a.onnx is a policy"),
        ("eval a.yaml --policy zero", "a.yaml is settings"),
        ("eval Basic --policy a.yaml", "a.yaml is settings"),
        ("eval Basic --policy a.demo", "a.demo is a demonstration"),
        ("export a.demo -o b.onnx", "a.demo is a demonstration"),
        ("export a.onnx -o b.onnx", "a.onnx is a policy"),
        ("build a.onnx -o b", "a.onnx is a policy"),
        ("exploit a.onnx --policy zero", "a.onnx is a policy"),
        ("tournament a.demo --policy zero --policy zero", "a.demo is a demonstration"),
        ("parity a.png --policy zero", "a.png is a picture"),
        ("record run --policy zero --episodes 1 -o b.demo", "run is a run"),
        ("play a.mp4 --policy zero --record b.mp4", "a.mp4 is a film"),
        ("inspect a.yaml", "a.yaml is settings"),
        ("doctor a.demo", "a.demo is a demonstration"),
        ("view a.png", "a.png is a picture"),
    ],
)
def test_every_command_names_what_it_got_instead(
    tmp_path, monkeypatch, capsys, command, what
):
    monkeypatch.chdir(tmp_path)
    for name in ("a.onnx", "a.demo", "a.yaml", "a.png", "a.mp4"):
        (tmp_path / name).write_bytes(b"")
    for name in ("run", "seeds/seed-1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "configuration.yaml").write_text("behaviors: {}")
    assert run(command.split()) == 2
    error = capsys.readouterr().err
    assert f"{what}" in error
    assert "expected" in error


@pytest.mark.skipif(
    sys.platform == "win32", reason="Windows knows programs by their suffix"
)
def test_a_text_file_is_not_made_executable(capsys, tmp_path):
    path = tmp_path / "notes"
    path.write_text("a line of text\n")
    assert run(["inspect", str(path)]) == 2
    error = capsys.readouterr().err
    assert "neither a program nor a script" in error
    assert "chmod" not in error


def test_a_demonstration_of_more_actions_than_memory_is_refused_before_they_are_made(
    tmp_path,
):
    """A header of a million actions, and 300 records that hold none: 5 kB stand for 1.2 GB."""
    meta = MESSAGES.DemonstrationMetaProto(api_version=1, number_steps=300)
    brain = MESSAGES.BrainParametersProto(brain_name="a")
    brain.action_spec.num_continuous_actions = 2**20
    pair = MESSAGES.AgentInfoActionPairProto()
    pair.agent_info.reward = 1.0
    head = _with_length(meta.SerializeToString()).ljust(BRAIN_AT, b"\0")
    records = 300 * _with_length(pair.SerializeToString())
    path = tmp_path / "a.demo"
    path.write_bytes(head + _with_length(brain.SerializeToString()) + records)
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="more than a demonstration can hold"):
            read_demo(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50e6


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no /proc")
def test_a_folder_that_cannot_be_written_to_is_not_called_busy(capsys):
    code = run(["train", "Basic", "--results-dir", "/proc", "--max-steps", "10"])
    assert code in (1, 2)
    error = capsys.readouterr().err
    assert "another process" not in error
    assert "/proc" in error


@pytest.mark.skipif(
    sys.platform == "win32" or not Path("/dev/full").exists(),
    reason="needs a device that is always full",
)
def test_a_list_on_a_full_disk_says_nothing_of_a_run():
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "touchline", "scenes"],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr
    assert "--resume" not in done.stderr
    assert "saved" not in done.stderr


def test_a_start_from_a_folder_that_is_no_run_is_one_line(capsys, tmp_path):
    results = tmp_path / "a" / "b" / "c"
    results.mkdir(parents=True)
    arguments = ["train", "Basic", "--results-dir", str(results), "--max-steps", "10"]
    assert run([*arguments, "--initialize-from", "../../.."]) == 2
    error = capsys.readouterr().err
    assert "no such" in error
    assert error.count("\n") == 1
    assert not list(results.iterdir())


def test_control_characters_do_not_reach_the_table_of_a_training():
    terminal = io.StringIO()
    table = TrainingTable(Console(file=terminal, force_terminal=True))
    hostile = "a\x1b[2Jb\x9b\u202e"
    table.log(f"player {hostile} says {hostile}")
    table.log(EvaluationLine(hostile, "evaluated: 1.0"))
    progress = BehaviorProgress(hostile, 10, 100, 0.0, 0.0, False, None)
    table.watch(lambda: [progress])
    table._console.print(table.draw())
    shown = terminal.getvalue()
    assert "a\N{REPLACEMENT CHARACTER}[2Jb" in shown
    assert "\x1b[2J" not in shown
    assert not {"\x9b", "\u202e"} & set(shown)


def test_a_compressed_checkpoint_of_ml_agents_is_refused_before_it_is_unpacked(
    tmp_path,
):
    whole, path = tmp_path / "whole.pt", tmp_path / "a.pt"
    torch.save({"Policy": {"a": torch.zeros(10_000_000)}}, whole)
    read_official(whole)
    with (
        zipfile.ZipFile(whole) as there,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as here,
    ):
        for entry in there.infolist():
            here.writestr(entry.filename, there.read(entry))
    assert path.stat().st_size < 100_000
    with pytest.raises(UsageError, match=r"a\.pt: not a checkpoint.*compressed"):
        read_official(path)


def test_a_message_that_unpacks_to_a_gigabyte_is_refused(tmp_path):
    path = tmp_path / "a.wire.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(struct.pack("<I", 2) + b"{}")
        file.write(b"Q" + struct.pack("<I", 1 << 30))
    with pytest.raises(UsageError, match="expected frame 0 to begin"):
        list(read_frames(path))


def test_a_header_of_brackets_is_no_header_of_a_recording(tmp_path):
    path = tmp_path / "a.wire.gz"
    with gzip.open(path, "wb") as file:
        file.write(struct.pack("<I", 100_000) + b"[" * 100_000)
    with pytest.raises(UsageError, match="not a recording"):
        list(read_frames(path))


RUN = ("train", "Basic", "--force", "--max-steps", "100000000", "--run-id", "r")
READY = "import touchline.cli; print('ready', flush=True); touchline.cli.main()"
"""The command, which first says that Python itself has started."""


IN_A_DESTRUCTOR = """
import os, signal, time
from touchline.interrupts import raise_on_ctrl_c

class Odd:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.01)

raise_on_ctrl_c()
try:
    Odd()
    time.sleep(30)
except KeyboardInterrupt:
    print("raised")
"""


def test_an_interrupt_that_python_ignores_is_raised_a_moment_later():
    done = subprocess.run(
        [sys.executable, "-c", IN_A_DESTRUCTOR],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("raised\n", "")


INTERRUPTED_MODULE = """
import signal
from touchline.interrupts import raise_on_ctrl_c

raise_on_ctrl_c(resumes=False)
signal.raise_signal(signal.SIGINT)
print("goes on")
"""


@pytest.mark.parametrize("resumes", [False, True])
def test_an_interrupt_while_modules_load_ends_at_once(tmp_path, resumes):
    """An exception once ended the process in torch's `std::terminate`, or became pydantic's."""
    module = INTERRUPTED_MODULE.replace("False", str(resumes))
    (tmp_path / "distributed.py").write_text(module)
    done = subprocess.run(
        [sys.executable, "-c", "import distributed"], cwd=tmp_path,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith("ended at once")
    assert done.stderr.count("\n") == 1
    # Most commands save nothing, and have no --resume.
    assert ("what a run saved before is whole" in done.stderr) == resumes


def test_an_interrupt_in_a_program_that_another_one_executes_is_raised():
    """Notebooks and pytest-xdist execute code under a name of their own: nothing is loaded."""
    program = f"exec({INTERRUPTED_MODULE!r}, {{'__name__': 'a cell'}})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.stderr.endswith("KeyboardInterrupt\n"), done.stderr


WHILE_THE_FIRST_IS_HANDLED = """
import signal
from touchline.training.run.process import stop_on_signals

with stop_on_signals() as stop:
    stop.set = lambda: signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
"""


def test_an_interrupt_while_a_run_handles_one_ends_at_once():
    """The second one once waited for the lock of an event that the first one held, forever."""
    done = subprocess.run(
        [sys.executable, "-c", WHILE_THE_FIRST_IS_HANDLED],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert done.stderr.startswith("ended at once")


@pytest.mark.skipif(
    sys.platform == "win32",
    reason="send_signal(SIGINT) is refused there; Ctrl-C reaches a whole console",
)
@pytest.mark.parametrize("after_s", [0.1, 0.3, 1.5, 6.0])
def test_three_interrupts_end_a_run_without_a_traceback(tmp_path, after_s):
    process = subprocess.Popen(
        [sys.executable, "-c", READY, *RUN, "--results-dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(after_s)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    _, error = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT), error
    assert "Traceback" not in error
    assert "Fatal" not in error
    if process.returncode == 130:
        assert any(line in error for line in SAVED), error
    if (tmp_path / "r" / "resume.safetensors").exists():
        again = ["train", "Basic", "--resume", "--run-id", "r", "--max-steps", "1000"]
        subprocess.run(
            [sys.executable, "-m", "touchline", *again, "--results-dir", str(tmp_path)],
            check=True,
        )
        status = tmp_path / "r" / "run_logs" / "training_status.json"
        assert json.loads(status.read_text(encoding="utf-8"))["Basic"]
