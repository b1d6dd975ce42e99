"""Ctrl-C, a second and a third one at any moment of a run: `python -m tests.training.run.interrupts`.

One run is interrupted again and again over its life (loading, opening, compiling, collecting,
learning, saving, evaluating, reporting), and each attempt resumes what the one before has saved.
Each must end by itself with 130, or by the signal (-2) before it has begun or after all is saved,
without a traceback. At the end the run is resumed and reaches its last step.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

TRIES = 200
RUN = (
    "train", "Basic", "--run-id", "r", "--seed", "1", "--num-areas", "16",
    "--set", "behaviors.Basic.max_steps=12000",
    "--set", "behaviors.Basic.checkpoint_interval=3000",
    "--set", "behaviors.Basic.summary_freq=500",
)  # fmt: skip
LOADING_S = 0.4
"""Earlier, Python itself has not started."""
LONGEST_PAUSE_S = 1.0
"""Between two of them."""
PATIENCE_S = 120
SAVED = ("all is saved", "saved before is whole", "stopped before")


@dataclass
class Attempt:
    """What interrupting a run once led to."""

    moments: tuple[float, ...]
    """Seconds after the start."""
    code: int
    output: str

    @property
    def faults(self):
        found = []
        if self.code not in (130, -2, 0):
            found.append(f"exit code {self.code}")
        found += [s for s in ("Traceback", "Fatal Python error") if s in self.output]
        if self.code == 130 and not any(line in self.output for line in SAVED):
            found.append("no line says what is saved")
        return found


@dataclass
class Outcome:
    attempts: list[Attempt] = field(default_factory=list)
    is_complete: bool = False

    @property
    def faults(self):
        return [(a.moments, f) for a in self.attempts for f in a.faults]


def start(folder, *flags):
    return subprocess.Popen(
        [sys.executable, "-m", "touchline", *RUN, *flags],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def flags_for(folder):
    run = folder / "results" / "r"
    if (run / "resume.safetensors").exists():
        return ("--resume",)
    return ("--force",) if run.exists() else ()


def interrupt(folder, moments):
    """Start or resume the run, and interrupt it at these moments."""
    begin = time.monotonic()
    process = start(folder, *flags_for(folder))
    for moment in moments:
        time.sleep(max(0.0, begin + moment - time.monotonic()))
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_S)
    return Attempt(moments, process.returncode, output)


def try_often(folder, tries, seed=0):
    """Interrupt one run this often, then let it reach its end."""
    drawn = random.Random(seed)
    outcome = Outcome()
    begin = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "touchline", *RUN],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    life_s = time.monotonic() - begin
    for number in range(tries):
        first = drawn.uniform(LOADING_S, 1.1 * life_s)
        second = first + drawn.uniform(0, LONGEST_PAUSE_S)
        moments = (first, second, second + drawn.uniform(0, LONGEST_PAUSE_S))
        attempt = interrupt(folder, moments)
        outcome.attempts.append(attempt)
        if attempt.faults:
            print(f"{number}: {moments}: {attempt.faults}\n{attempt.output}")
        if attempt.code == 0:  # it reached its end: the next one starts over
            (folder / "results" / "r" / "resume.safetensors").unlink()
    process = start(folder, *flags_for(folder))
    output, _ = process.communicate(timeout=PATIENCE_S)
    outcome.is_complete = (
        process.returncode == 0 and re.search(r"^Basic +12,", output, re.M) is not None
    )
    if not outcome.is_complete:
        print(f"the run does not end: exit code {process.returncode}\n{output}")
    return outcome


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tries", nargs="?", type=int, default=TRIES)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    given = parser.parse_args()
    tries = given.tries
    with tempfile.TemporaryDirectory() as folder:
        outcome = try_often(Path(folder), tries, given.seed)
    codes = [attempt.code for attempt in outcome.attempts]
    counts = {code: codes.count(code) for code in sorted(set(codes))}
    print(f"{tries} tries: exit codes {counts}, {len(outcome.faults)} faults")
    print(f"resumed to its last step: {outcome.is_complete}")
    sys.exit(bool(outcome.faults) or not outcome.is_complete)


if __name__ == "__main__":
    main()
