"""What a second core is worth: several seeds at once, learning beside the world, Ray.

    python bench/cores.py [seeds] [threaded] [3DBallHard] [GridWorld] [player] \
        [Crawler] [Walker] [Worm] [--turns 3]

`seeds`: `touchline train 3DBall --seeds 0-4` beside the five runs one after the other. `threaded`:
a player whose simulation takes as long as learning, with `threaded: true` and without. The other
three: steps/s of two collectors on a Ray cluster of three nodes on this machine beside the same two
worlds without Ray (`--num-envs 2`), medians over updates. The ragdolls: 256 areas stepped by two
threads beside one, under the policy in `models/`, whose own time is left out. Turns alternate, and
a ratio is the median over turns. Wall time is what counts here, so the machine must be quiet: the
load before each turn is printed with it.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from touchline.player import build
from touchline.training.config.reading import read_config

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


def train(
    folder: Path, *arguments: str, preset: str = "3DBall", **variables: str
) -> float:
    """Seconds that a `touchline train` command takes."""
    command = [sys.executable, "-m", "touchline", "train", preset, *arguments]
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


NODES = 3
UPDATES = {"3DBallHard": 12, "GridWorld": 60, "player": 12}
STARTING = 2
"""Updates that are left out: the first compile and fill caches."""


def on_ray(folder: Path, turn: int, what: str) -> float:
    """Steps/s of two collectors on a cluster / of the same two worlds side by side."""
    from touchline.training.collect.opening import RAY

    os.environ.update(RAY)  # some of it is read when Ray is imported
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 200 * 2**20}
    head = {**node, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(NODES - 1):
            cluster.add_node(**node)
        place = ["--collectors=2", f"--cluster={cluster.address}"]
        there = steps_per_s(folder, f"ray-{what}-{turn}", what, *place)
    finally:
        cluster.shutdown()
    here = steps_per_s(folder, f"here-{what}-{turn}", what, "--num-envs=2")
    print(f"  {there:,.0f} / {here:,.0f} steps/s")
    return there / here


def steps_per_s(folder: Path, run_id: str, what: str, *arguments: str) -> float:
    """The median over a run's updates."""
    preset = "3DBall" if what == "player" else what
    if what == "player":
        path = folder / f"{preset}.x86_64"
        if not path.exists():
            build(preset, folder)
        arguments = (f"--env={path}", *arguments)
    settings = read_config(preset).behaviors[preset]
    steps = settings.hyperparameters.buffer_size * UPDATES[what]
    train(
        folder,
        f"--run-id={run_id}",
        "--seed=1",
        f"--max-steps={steps}",
        "--set=behaviors.*.summary_freq=1",  # a row for each update
        *arguments,
        preset=preset,
    )
    with (folder / "results" / run_id / preset / "metrics.csv").open() as file:
        speeds = [float(row["steps_per_s"]) for row in csv.DictReader(file)]
    return statistics.median(speeds[STARTING:])


RAGDOLLS = ("Crawler", "Walker", "Worm")
MODELS = Path(__file__).resolve().parents[1] / "models"
STEPPED_S = 4.0
STEPPING = """
import sys, time
from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.policies.loading import load_policies

scene, threads, model, least = sys.argv[1:]
options = {"num_threads": int(threads)}
with make(EnvRecipe("scene", scene, num_areas=256, options=options)) as env:
    slots = Slots(env)
    rows = slots.reset(0)
    actors = load_policies([model], slots.behaviors)
    decisions = seconds = 0.0
    begin = time.perf_counter()
    while seconds < float(least):
        actions = {name: actors[name].act(row) for name, row in rows.items()}
        before = time.perf_counter()
        rows = slots.step(actions)
        after = time.perf_counter()
        if after - begin > 1.0:  # it compiles, and caches fill
            seconds += after - before
            decisions += sum(int(row.closed.sum()) for row in rows.values())
print(decisions / seconds)
"""
"""Prints decisions per second of a scene; in a process of its own, as caches and threads stay."""


def two_threads(_: Path, __: int, scene: str) -> float:
    """Decisions/s with two threads / with one."""
    model = str(MODELS / f"{scene}.onnx")
    speeds = []
    for threads in ("2", "1"):
        done = subprocess.run(
            [sys.executable, "-c", STEPPING, scene, threads, model, str(STEPPED_S)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
            capture_output=True,
            text=True,
        )
        speeds.append(float(done.stdout))
    print(f"  {speeds[0]:,.0f} / {speeds[1]:,.0f} decisions/s")
    return speeds[0] / speeds[1]


MEASUREMENTS: dict[str, Callable[[Path, int], float]] = {
    "seeds": seeds,
    "threaded": threaded,
    **{what: partial(on_ray, what=what) for what in UPDATES},
    **{scene: partial(two_threads, scene=scene) for scene in RAGDOLLS},
}


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
