"""What a second core is worth: several seeds at once, and learning beside the world.

    python bench/cores.py [seeds] [threaded] [--turns 3]

`seeds`: `touchline train 3DBall --seeds 0-4` beside the five runs one after the other. `threaded`:
a player whose simulation takes as long as learning, with `threaded: true` and without. Turns
alternate, and a ratio is the median over turns. Wall time is what counts here, so the machine must
be quiet: the load before each turn is printed with it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SEEDS = range(5)
DECISIONS, AGENTS = 3000, 12
BUSY = '''
"""3DBall whose simulation keeps a core busy for a given time."""

import os
import time

from touchline.scenes.ball_3d import Ball3D


class BusyBall(Ball3D):
    """3DBall, with BUSY_MS milliseconds of work in every decision."""

    def play(self, most):
        until = time.perf_counter() + float(os.environ["BUSY_MS"]) / 1000
        played = super().play(most)
        while time.perf_counter() < until:
            pass
        return played
'''


def train(folder: Path, *arguments: str, **variables: str) -> float:
    """Seconds that a `touchline train` command takes."""
    command = [sys.executable, "-m", "touchline", "train", "3DBall", *arguments]
    began = time.perf_counter()
    subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        check=True,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


def seeds(folder: Path, turn: int) -> float:
    """Time of all seeds in one command / time of one after the other."""
    one_by_one = sum(
        train(folder, f"--seed={seed}", f"--run-id=alone-{turn}-{seed}")
        for seed in SEEDS
    )
    together = train(folder, f"--seeds=0-{len(SEEDS) - 1}", f"--run-id=together-{turn}")
    return together / one_by_one


def threaded(folder: Path, turn: int) -> float:
    """Steps/s in training with a thread / without."""
    idle = timed(folder, f"probe-{turn}", 0.0, is_threaded=False)
    # What the player does anyway is a part of its simulation.
    missing = max(idle["learning"] - idle["simulation"], 0.0)
    busy_ms = 1000 * missing / DECISIONS
    apart = timed(folder, f"apart-{turn}", busy_ms, is_threaded=False)
    beside = timed(folder, f"beside-{turn}", busy_ms, is_threaded=True)
    return sum(apart.values()) / sum(beside.values())


def timed(
    folder: Path, run_id: str, busy_ms: float, *, is_threaded: bool
) -> dict[str, float]:
    """Seconds by part of a run on the player, from its first step on."""
    path = folder / "BusyBall.x86_64"
    if not path.exists():
        (folder / "busy.py").write_text(BUSY)
        build = [sys.executable, "-m", "touchline", "build", "busy:BusyBall", "-o", "."]
        variables = {**os.environ, "BUSY_MS": "0"}
        subprocess.run(build, cwd=folder, env=variables, check=True)
    train(
        folder,
        f"--env={path}",
        f"--run-id={run_id}",
        "--seed=1",
        f"--max-steps={DECISIONS * AGENTS}",
        f"--set=behaviors.*.threaded={str(is_threaded).lower()}",
        "--set=behaviors.*.hyperparameters.num_epoch=20",
        "--set=behaviors.*.hyperparameters.buffer_size=1200",
        BUSY_MS=str(busy_ms),
    )
    timers = folder / "results" / run_id / "run_logs" / "timers.json"
    seconds: dict[str, float] = json.loads(timers.read_text())
    return seconds


MEASUREMENTS = {"seeds": seeds, "threaded": threaded}


def main() -> None:
    """Measure what was asked for, turn by turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {list(MEASUREMENTS)}; or all")
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    ratios: dict[str, list[float]] = {n: [] for n in given.names or MEASUREMENTS}
    with tempfile.TemporaryDirectory(prefix="touchline-cores-") as folder:
        for turn in range(given.turns):
            for name, found in ratios.items():
                load = os.getloadavg()[0]
                found.append(MEASUREMENTS[name](Path(folder), turn))
                print(f"{name}: {found[-1]:.2f} (load {load:.1f})", flush=True)
    for name, found in ratios.items():
        print(f"{name}: median {statistics.median(found):.2f} of {len(found)}")


if __name__ == "__main__":
    main()
