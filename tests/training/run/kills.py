"""Kill a training run again and again: resumed, it must end bit for bit like a run left alone.

    python -m tests.training.run.kills                      # all of RUNS
    python -m tests.training.run.kills ppo memory           # some of them
    python -m tests.training.run.kills --kills 20 -- train Basic --max-steps 20000

A run is a `touchline train` command without --run-id and --seed. It is killed at random moments
(SIGKILL, on Windows TerminateProcess), each some time after it wrote a resume point, and started
again with --resume.
"""

import argparse
import csv
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from touchline.policies.files.checkpoints import read_arrays
from touchline.policies.files.run_layout import RunLayout

ID, SEED = "r", "3"
LONGEST_S = 3600
OUTPUT = "output.txt"
KILLED = 1 if sys.platform == "win32" else -9
"""Exit code of a killed process."""
OF_THE_CLOCK = ("time_s", "steps_per_s")
PROGRAM = """
from touchline.training import evaluator, trainer
trainer.RESUME_EVERY_S = 0.2
evaluator.EPISODES = 2
from touchline.cli import main
main()
"""


@dataclass(frozen=True)
class Run:
    """A command, and how often to kill it."""

    arguments: list[str]
    kills: int


# Self-play whose pool, opponents and ratings change all the time.
SMALL = [
    "--num-areas=16",
    "--set=behaviors.*.hyperparameters.batch_size=512",
    "--set=behaviors.*.hyperparameters.buffer_size=2048",
    "--set=behaviors.*.network_settings.hidden_units=16",
    "--set=behaviors.*.summary_freq=4000",
    "--set=behaviors.*.self_play={save_steps: 2000, swap_steps: 500, window: 4}",
    "--versus=random",
]
# SAC whose replay goes round several times.
REPLAY = [
    "--set=behaviors.*.hyperparameters.save_replay_buffer=true",
    "--set=behaviors.*.hyperparameters.buffer_size=3000",
    "--set=behaviors.*.hyperparameters.batch_size=64",
]
NOVELTY = [
    "--set=behaviors.*.reward_signals.curiosity={strength: 0.02, gamma: 0.99}",
    "--set=behaviors.*.reward_signals.rnd={strength: 0.1, gamma: 0.99}",
]
DEMO = Path(__file__).parents[3] / "models" / "demos" / "PushBlock.demo"
IMITATION = [
    f"--set=behaviors.*.behavioral_cloning.demo_path={DEMO}",
    "--set=behaviors.*.behavioral_cloning.first_passes=2",
    f"--set=behaviors.*.reward_signals.gail={{strength: 0.1, demo_path: {DEMO}}}",
]
# Several updates, and not the scene's two or three.
GROUPS = [
    "--set=behaviors.*.hyperparameters.batch_size=256",
    "--set=behaviors.*.hyperparameters.buffer_size=2048",
    "--set=behaviors.*.network_settings.hidden_units=64",
]
MAPPO = [*GROUPS, "--set=behaviors.*.trainer_type=mappo"]
# SAC with a memory and a state in the replay, and with signals that learn beside cloning's Adam.
SAC_MEMORY = [
    *REPLAY,
    "--set=behaviors.*.hyperparameters.critic_sees_state=true",
    "--set=behaviors.*.hyperparameters.steps_per_update=20",
    "--set=behaviors.*.network_settings.memory={memory_size: 16, sequence_length: 8}",
]
SAC_SIGNALS = [
    *REPLAY,
    *NOVELTY,
    *IMITATION,
    "--set=behaviors.*.hyperparameters.critic_sees_state=false",  # not with cloning
    "--set=behaviors.*.hyperparameters.buffer_init_steps=2000",
    "--set=behaviors.*.hyperparameters.steps_per_update=20",
    "--set=behaviors.*.network_settings.hidden_units=32",
    "--set=behaviors.*.summary_freq=2000",
]
THREADED = "--set=behaviors.*.threaded=true"
# One run for each learner and each kind of state that a resume point holds; 250 kills together.
RUNS = {
    "ppo": Run(["train", "Basic", "--max-steps=30000"], 30),
    "continuous": Run(["train", "3DBall", "--max-steps=150000"], 25),
    "memory": Run(["train", "Hallway", "--max-steps=50000"], 25),
    "sac": Run(["train", "3DBall_sac", "--max-steps=30000", *REPLAY], 20),
    "sac-memory": Run(["train", "3DBall_sac", "--max-steps=12000", *SAC_MEMORY], 10),
    "sac-signals": Run(
        ["train", "PushBlock_sac", "--max-steps=12000", *SAC_SIGNALS], 10
    ),
    "poca": Run(["train", "DungeonEscape", "--max-steps=30000", *GROUPS], 20),
    "mappo": Run(["train", "DungeonEscape", "--max-steps=30000", *MAPPO], 20),
    "self-play": Run(["train", "SoccerTwos", "--max-steps=64000", *SMALL], 15),
    "roles": Run(["train", "StrikersVsGoalie", "--max-steps=64000", *SMALL], 15),
    "novelty": Run(["train", "Basic", "--max-steps=15000", *NOVELTY], 15),
    "imitation": Run(
        ["train", "PushBlock_imitation", "--max-steps=20000", *IMITATION], 15
    ),
    "threaded": Run(["train", "3DBall", "--max-steps=150000", THREADED], 15),
    "threaded-sac": Run(
        ["train", "3DBall_sac", "--max-steps=12000", *REPLAY, THREADED], 5
    ),
    "threaded-self-play": Run(
        ["train", "SoccerTwos", "--max-steps=48000", *SMALL, THREADED], 10
    ),
}


@dataclass
class Outcome:
    """What killing a run led to."""

    kills: int
    resumed_at: list[float] = field(default_factory=list)
    """Seconds after the start at which each kill came."""
    differences: list[str] = field(default_factory=list)
    """What differs from the run that was left alone; nothing should."""
    state: dict = field(default_factory=dict)
    """`state_of` the run that was killed."""


def start(folder, arguments, *flags):
    """The command in a process of its own: resume points five times a second, short evaluations."""
    command = [*arguments, "--run-id", ID, "--seed", SEED, *flags]
    with (folder / OUTPUT).open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *command],
            cwd=folder,
            env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},
            stderr=output,
            stdout=output,
        )


def last_line(folder):
    """What the command said last."""
    lines = (folder / OUTPUT).read_text(errors="replace").splitlines()
    return lines[-1] if lines else "nothing"


def resume_point(folder):
    return folder / "results" / ID / "resume.safetensors"


def kill_and_resume(folder, arguments, kills, seed):
    """Run to the end with so many kills on the way; the moments at which they came."""
    chance, moments = random.Random(seed), []
    point = resume_point(folder)
    while True:
        flags = ["--resume"] if point.exists() else []
        began, before = time.monotonic(), modified(point)
        process = start(folder, arguments, *flags)
        while process.poll() is None and len(moments) < kills:
            if modified(point) != before:  # it has got somewhere
                time.sleep(chance.random())
                process.kill()
                break
            time.sleep(0.01)
        code = process.wait(timeout=LONGEST_S)
        if code == 0:
            return moments
        if code != KILLED:
            raise RuntimeError(f"exit code {code} with {flags}: {last_line(folder)}")
        moments.append(time.monotonic() - began)


def modified(path):
    return path.stat().st_mtime_ns if path.exists() else 0


def experience_of(folder, arrays, pieces):
    """What learners remember, whatever the pieces that it was written in."""
    found = {}
    for behavior, named in pieces.items():
        path = RunLayout(folder / "results" / ID).experience(behavior)
        rows = [read_arrays(path / f"{a}-{b}.safetensors")[0] for a, b in named]
        oldest = int(arrays[f"learners/{behavior}/replay.oldest"])
        for column in rows[0]:
            whole = np.concatenate([piece[column] for piece in rows])
            found[f"{behavior}: {column}"] = whole[oldest - named[0][0] :]
    return found


def state_of(folder):
    """What must agree: the resume point, its arrays by their hashes, and the metrics."""
    arrays, metadata = read_arrays(resume_point(folder))
    pieces = {
        name: named for name, named in metadata.pop("experience").items() if named
    }
    arrays |= experience_of(folder, arrays, pieces)
    found = {
        name: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        for name, array in arrays.items()
    }
    found |= {name: value for name, value in metadata.items() if name != "seconds"}
    for path in sorted((folder / "results" / ID).rglob("metrics.csv")):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            for column in OF_THE_CLOCK:
                row.pop(column, None)
        found[f"{path.parent.name}: metrics"] = rows
    return found


def try_run(run, seed=1):
    """Leave the command alone once, kill it `run.kills` times once, and compare."""
    with tempfile.TemporaryDirectory(prefix="touchline-kills-") as name:
        alone, killed = Path(name, "alone"), Path(name, "killed")
        alone.mkdir()
        killed.mkdir()
        if start(alone, run.arguments).wait(timeout=LONGEST_S) != 0:
            raise RuntimeError(f"it fails without any kill: {last_line(alone)}")
        moments = kill_and_resume(killed, run.arguments, run.kills, seed)
        expected, came = state_of(alone), state_of(killed)
    names = sorted(expected.keys() | came.keys())
    different = [n for n in names if expected.get(n) != came.get(n)]
    return Outcome(len(moments), moments, different, came)


def main():
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    command = arguments[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {list(RUNS)}; all by default")
    parser.add_argument("--kills", type=int, help="instead of the run's own number")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    given = parser.parse_args(arguments[:at])
    chosen = {n: r for n, r in RUNS.items() if not given.names or n in given.names}
    if command:
        chosen = {" ".join(command): Run(command, given.kills or 20)}
    failed = 0
    for name, run in chosen.items():
        outcome = try_run(Run(run.arguments, given.kills or run.kills), given.seed)
        result = ", ".join(outcome.differences[:5]) or "bit for bit equal"
        print(f"{name}: {outcome.kills} kills; {result}", flush=True)
        failed += bool(outcome.differences)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
