"""Watch memory, descriptors and threads of a long training and of a long session with a player.

    python -m tests.training.run.slopes --minutes 120

Both run at the same time, each in a process of its own, which is measured from outside. The first
half of the time is for warming up. Over the second half each figure must stay level: its slope is
zero within its error, or it changes by less than `NEGLIGIBLE` of itself.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from bench.wire import write_player

BLOCKS = 12
"""Samples are averaged in so many blocks, because neighbors are alike."""
NEGLIGIBLE = 0.005
"""Share of a figure by which it may change over the second half: allocators grow in steps."""
ERRORS = 3.0
"""A slope is not zero if it is so many times its standard error."""
TRAINING = """
from touchline.cli import main
main()
"""
PLAYER = """
import sys
from touchline import UnityEnvironment
with UnityEnvironment(sys.argv[1]) as env:
    env.reset()
    while True:
        env.step()
"""


@dataclass(frozen=True)
class Slope:
    """A straight line through samples of one figure."""

    mean: float
    per_hour: float
    error: float
    """Standard error of `per_hour`."""
    hours: float
    """How long the samples were taken."""

    @property
    def is_level(self) -> bool:
        is_zero = abs(self.per_hour) <= ERRORS * self.error
        return is_zero or abs(self.per_hour) * self.hours <= NEGLIGIBLE * self.mean

    def __str__(self) -> str:
        return f"{self.mean:.1f}, {self.per_hour:+.2f} ± {self.error:.2f} per hour"


def slope_of(seconds, values):
    """Least squares over the means of `BLOCKS` blocks of samples."""
    x = np.array([block.mean() for block in np.array_split(seconds, BLOCKS)]) / 3600
    y = np.array([block.mean() for block in np.array_split(values, BLOCKS)])
    (per_hour, _), covariance = np.polyfit(x - x.mean(), y, 1, cov=True)
    hours = float(seconds[-1] - seconds[0]) / 3600
    error = float(np.sqrt(covariance[0, 0]))
    return Slope(float(y.mean()), float(per_hour), error, hours)


def measure(process):
    """What must not grow."""
    with process.oneshot():
        return {
            "MiB": process.memory_info().rss / 2**20,
            "descriptors": process.num_fds(),
            "threads": process.num_threads(),
        }


def programs(folder):
    """What is watched: name -> arguments of Python."""
    train = ["train", "3DBall", "--num-areas=12", "--max-steps=1000000000"]
    player = write_player(folder, 100)
    return {
        "training": ["-c", TRAINING, *train, f"--results-dir={folder}"],
        "player": ["-c", PLAYER, str(player)],
    }


def watch(minutes, between_s=1.0):
    """Run all programs for so long; (program, figure) -> its slope over the second half."""
    samples = {}
    with tempfile.TemporaryDirectory(prefix="touchline-slopes-") as name:
        running = {
            program: subprocess.Popen(
                [sys.executable, *arguments],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for program, arguments in programs(Path(name)).items()
        }
        began = time.monotonic()
        try:
            while (elapsed := time.monotonic() - began) < 60 * minutes:
                for program, process in running.items():
                    if process.poll() is not None:
                        raise RuntimeError(f"{program} ended: {process.returncode}")
                    if elapsed > 30 * minutes:
                        figures = measure(psutil.Process(process.pid))
                        for figure, value in figures.items():
                            taken = samples.setdefault((program, figure), [])
                            taken.append((elapsed, value))
                time.sleep(between_s)
        finally:
            for process in running.values():
                process.terminate()
            for process in running.values():
                process.wait()
    return {key: slope_of(*np.array(taken).T) for key, taken in samples.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=120)
    slopes = watch(parser.parse_args().minutes)
    for (program, figure), slope in slopes.items():
        print(f"{program}, {figure}: {slope}{'' if slope.is_level else '  NOT LEVEL'}")
    return 0 if all(slope.is_level for slope in slopes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
