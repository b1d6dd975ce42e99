"""Mutated files of every kind that is read from outside, as many as wanted.

    python -m tests.mutated_files 100000

Each is a file of a real run, a demonstration, a recording or a configuration with a few bytes or
words changed. Whatever is read, the outcome is its content or one UsageError, soon, and in bounded
memory. Exits with 1 and the culprit's seed if not.
"""

import argparse
import io
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch

import touchline
from tests.conftest import ROOT
from tests.protocol.mutations import mutated
from touchline.errors import UsageError
from touchline.policies.files.checkpoints import load_network, read_arrays
from touchline.policies.files.official_weights import read_official
from touchline.policies.files.onnx_in import OnnxPolicy
from touchline.protocol.recording import Recorder, read_frames
from touchline.studies.learning_faults import diagnose
from touchline.training.config.old_formats import convert
from touchline.training.config.reading import preset_file, read_config
from touchline.training.demonstrations import read_demonstration

LONGEST_S = 1.0
MOST_GROWTH_BYTES = 256 << 20
WARM_UP = 500
"""Files after which memory should not grow any more."""
TEXTS = [
    "[",
    "]",
    "{",
    "}",
    ": ",
    ", ",
    "- ",
    "\n",
    "'",
    '"',
    "&a ",
    "*a",
    "!!int ",
    "null",
]
NUMBERS = ["true", "nan", "inf", "-1", "1e400", "9" * 30, "9" * 5000, "0.5", "../../x"]
ODDITIES = ["\0", "\u202e", "[" * 2000, '{"a":' * 200]
WORDS = [word.encode() for word in (*TEXTS, *NUMBERS, *ODDITIES)] + [b"\xff\xfe"]
"""What means something to one of the readers of text."""
OLD = b"""
default:
    trainer: ppo
    batch_size: 1024
    beta: 5.0e-3
    max_steps: 5.0e5
    memory_size: 128
    normalize: false
    num_layers: 2
    reward_signals:
        extrinsic:
            strength: 1.0
            gamma: 0.99
BananaLearning:
    batch_size: 64
    use_curiosity: true
"""
"""A configuration as in ML-Agents 0.12."""
OLD_0_17 = b"""
behaviors:
    Wall: {trainer_type: ppo}
curriculum:
    Wall:
        measure: progress
        thresholds: [0.1, 0.3]
        min_lesson_length: 100
        signal_smoothing: true
        parameters: {height: [0.0, 4.0, 8.0]}
parameter_randomization:
    resampling-interval: 5000
    mass:
        sampler-type: uniform
        min_value: 0.5
        max_value: 10
"""
OLD_SAC = b"""
default: {trainer: sac, num_update: 2, train_interval: 4, reward_signal_num_update: 2}
Arm:
    use_recurrent: true
    self_play: {window: 10, play_against_current_self_ratio: 0.4}
"""
OLD_BELOW = b"""
behaviors:
    Ball: {trainer: ppo, batch_size: 64, use_recurrent: true, sequence_length: 32}
parameter_randomization: {mass: {sampler-type: uniform, max_value: 10}}
"""


@dataclass
class Kind:
    """Where files of one kind are put, whole examples of it, and what reads them."""

    path: Path
    examples: list[bytes]
    read: Callable[[], object]
    outcomes: Counter = field(default_factory=Counter)


@dataclass
class Report:
    kinds: dict[str, Kind]
    slowest_s: float = 0.0
    slowest_seed: int = 0
    grown_bytes: int = 0

    def __str__(self):
        named = "; ".join(
            f"{name}: {kind.outcomes['read']} read, {kind.outcomes['refused']} refused"
            for name, kind in self.kinds.items()
        )
        return (
            f"{named}; slowest {1000 * self.slowest_s:.0f} ms (seed {self.slowest_seed}), "
            f"memory grew by {self.grown_bytes / 2**20:.0f} MiB"
        )


def kinds_in(folder):
    """Kinds of files by name, with examples from a short run in `folder`."""
    run = a_run(folder)
    model = run / "Basic.onnx"
    demo = ROOT / "models" / "demos" / "Basic.demo"
    presets = ("Basic", "Sorter", "SoccerTwos", "Pyramids_imitation")
    settings = [preset_file(name).read_bytes() for name in presets]
    return {
        "settings": Kind(
            folder / "a.yaml", settings, partial(read_config, str(folder / "a.yaml"))
        ),
        "old settings": Kind(
            folder / "old.yaml",
            [OLD, OLD_0_17, OLD_SAC, OLD_BELOW],
            partial(convert_and_read, folder / "old.yaml", folder / "new.yaml"),
        ),
        "demonstration": copied(demo, folder / "a.demo", read_demonstration),
        "recording": Kind(
            folder / "a.wire.gz",
            [a_recording(folder / "a.wire.gz")],
            lambda: list(read_frames(folder / "a.wire.gz")),
        ),
        "checkpoint": copied(
            run / "Basic" / "checkpoint.safetensors",
            folder / "a.safetensors",
            load_network,
        ),
        "model": copied(model, folder / "a.onnx", OnnxPolicy),
        "resume point": copied(
            run / "resume.safetensors", folder / "r.safetensors", read_arrays
        ),
        "official checkpoint": Kind(
            folder / "a.pt",
            [an_official_checkpoint()],
            partial(read_official, folder / "a.pt"),
        ),
        "status": in_run(run, "run_logs/training_status.json"),
        "timers": in_run(run, "run_logs/timers.json"),
        "checkpoint of a run": in_run(run, "Basic/checkpoint.safetensors"),
        "metrics": in_run(run, "Basic/metrics.csv"),
        "configuration of a run": in_run(run, "configuration.yaml"),
    }


def a_run(folder):
    """The folder of a short training."""
    changes = [
        "behaviors.Basic.max_steps=1000",
        "behaviors.Basic.summary_freq=500",
        "behaviors.Basic.network_settings.hidden_units=8",
        f"checkpoint_settings.results_dir={folder}",
    ]
    return touchline.train("Basic", changes=changes).folder


def a_recording(path):
    """The bytes of a recording of a few messages."""
    recorder = Recorder(path)
    for number in range(20):
        recorder.request(bytes([number]) * 40)
        recorder.reply(b"answer")
    recorder.close({"seed": 1})
    return path.read_bytes()


def an_official_checkpoint():
    """The bytes of a checkpoint as ML-Agents writes it."""
    content = io.BytesIO()
    torch.save({"Policy": {"network_body.a": torch.ones(3)}}, content)
    return content.getvalue()


def convert_and_read(old, new):
    """Convert a file; whatever is written must be what `train` reads."""
    convert(old, new)
    try:
        read_config(str(new))
    except UsageError as error:
        raise AssertionError("this file was written, and is refused") from error


def copied(source, path, read):
    return Kind(path, [source.read_bytes()], partial(read, path))


def in_run(run, name):
    """A file of a run, read as a part of it."""
    return Kind(run / name, [(run / name).read_bytes()], partial(diagnose, run))


def changed(rng, original):
    """Bytes of a file with bits, stretches or words changed."""
    if rng.random() < 0.5:
        return mutated(rng, original, most=int(rng.choice([1, 5])))
    changed = bytearray(original)
    for _ in range(rng.integers(1, 4)):
        at, length = int(rng.integers(len(changed) + 1)), int(rng.integers(9))
        changed[at : at + length] = WORDS[rng.integers(len(WORDS))]
    return bytes(changed)


def run(count, first_seed=0, log=None):
    """Read `count` mutated files; each is made from its own seed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Report(kinds_in(Path(folder)))
        kinds = list(report.kinds.values())
        before = 0
        for number in range(count):
            seed = first_seed + number
            rng = np.random.default_rng(seed)
            kind = kinds[number % len(kinds)]
            original = kind.examples[rng.integers(len(kind.examples))]
            kind.path.write_bytes(changed(rng, original))
            started = time.process_time()
            try:
                kind.read()
                outcome = "read"
            except UsageError as error:
                outcome = (
                    "refused" if len(str(error)) < 2000 else "talked about at length"
                )
            except BaseException as error:
                error.add_note(f"seed {seed}, in place of {kind.path.name}")
                raise
            finally:
                seconds = time.process_time() - started
                kind.path.write_bytes(original)
            kind.outcomes[outcome] += 1
            if number == WARM_UP:
                before = most_memory()
            if number >= WARM_UP and seconds > report.slowest_s:
                report.slowest_s, report.slowest_seed = seconds, seed
            if log and number % 10_000 == 9_999:
                log(f"{number + 1} done, slowest {1000 * report.slowest_s:.0f} ms")
        report.grown_bytes = most_memory() - before
    return report


def most_memory():
    """The most bytes that this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def is_fine(report):
    outcomes = {name for kind in report.kinds.values() for name in kind.outcomes}
    is_soon = report.slowest_s < LONGEST_S
    return (
        outcomes <= {"read", "refused"}
        and is_soon
        and report.grown_bytes < MOST_GROWTH_BYTES
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0, help="of the first file")
    given = parser.parse_args()
    report = run(given.count, given.seed, print)
    print(report)
    return 0 if is_fine(report) else 1


if __name__ == "__main__":
    sys.exit(main())
