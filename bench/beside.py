"""Speed of this tree beside another checkout, in one run: how much faster or slower it became.

    git worktree add ../before COMMIT
    python bench/beside.py ../before [--only scenes learn] [--scene Pyramids] [--turns 40]

Both trees do the same work (seeds, actions, steps) in processes of their own, turn by turn, and
only one of them runs at a time. Processor time is counted, so other jobs disturb little, and both
sides of a pair alike; scenes are paired step by step, the rest turn by turn. A ratio is the median
over the pairs, before / after: above 1 this tree is faster. Beside it stand the quartiles of the
pairs and the probe: bare MuJoCo stepping 3DBall's 256 areas for one decision round, by which
absolute figures of two days can be compared.

The benchmarks use only what both trees have: the command line, `make`, `Slots`, `UnityEnvironment`.
Scenes that only one of them has are left out, with a line.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

STEPS_PER_TURN = 20
"""Of a scene."""
STEPS = "seconds:"
"""Begins the list of a turn's steps."""
WARM_UP_TURNS = 3
"""The first turns import, compile and warm caches; they are not counted."""
WIRE_EXCHANGES = {1: 200, 100: 150, 500: 60}
"""Agents -> exchanges of a turn."""


@dataclass(frozen=True)
class Benchmark:
    """Work that prints a line whenever a turn is over."""

    name: str
    arguments: tuple[str, ...]
    """Of Python, after the interpreter."""
    end_of_turn: str
    """What the line that ends a turn contains."""


class Contestant:
    """A process of one tree, stopped except during its turns."""

    def __init__(self, tree: Path, benchmark: Benchmark, folder: Path) -> None:
        self._end_of_turn = benchmark.end_of_turn
        self._process = subprocess.Popen(
            [sys.executable, *benchmark.arguments],
            env=os.environ | {"PYTHONPATH": str(tree / "src")},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        os.kill(self._process.pid, signal.SIGSTOP)

    def turn(self) -> list[float]:
        """Seconds of processor time of the next turn's steps, where it lists them.

        Else of the turn as a whole, all threads together.
        """
        assert self._process.stdout is not None
        started = self._processor_time()
        os.kill(self._process.pid, signal.SIGCONT)
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if self._end_of_turn in line:
                break
        else:
            raise SystemExit("".join(["a benchmark ended early:\n", *lines]))
        os.kill(self._process.pid, signal.SIGSTOP)
        _, _, steps = lines[-1].partition(STEPS)
        return [float(s) for s in steps.split()] or [self._processor_time() - started]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _processor_time(self) -> float:
        # The clock of another process's processor time; see clock_getcpuclockid(3).
        return time.clock_gettime(~self._process.pid << 3 | 2)


def compare(benchmark: Benchmark, trees: Sequence[Path], turns: int) -> str:
    """One line: the ratio of the two trees' medians and what is needed to judge it."""
    from bench.probe import Probe

    probe = Probe()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        contestants = []
        for tree in trees:
            folder = Path(name, str(len(contestants)))
            folder.mkdir()
            contestant = Contestant(tree, benchmark, folder)
            stack.callback(contestant.close)
            contestants.append(contestant)
        pairs: list[tuple[float, float]] = []
        probes = []
        for turn in range(WARM_UP_TURNS + turns):
            order = (0, 1) if turn % 2 else (1, 0)  # neither tree is always first
            times = {side: contestants[side].turn() for side in order}
            if turn >= WARM_UP_TURNS:
                pairs += zip(times[0], times[1], strict=True)
                probes.append(probe.physics_ms())
    ratios = [before / after for before, after in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4)
    before_ms = 1e3 * statistics.median(before for before, _ in pairs)
    after_ms = 1e3 * statistics.median(after for _, after in pairs)
    return (
        f"{benchmark.name:24s} {middle:5.3f} ({low:.3f} to {high:.3f})"
        f"   ms: {before_ms:.3f} before, {after_ms:.3f} after"
        f"   probe {statistics.median(probes):.2f} ms"
    )


def benchmarks(only: Sequence[str], scenes: Sequence[str]) -> Iterator[Benchmark]:
    """The chosen ones; `only` are their kinds, `scenes` the scenes of the kind "scenes"."""
    if "scenes" in only:
        for name in scenes:
            yield worker(name, "scene", name)
    if "learn" in only:
        for num_areas in (12, 128):
            yield learning(
                f"learn 3DBall x {num_areas}",
                "3DBall",
                f"--num-areas={num_areas}",
                # ML-Agents' settings, whatever the preset of a tree is.
                "--set=behaviors.3DBall.hyperparameters.batch_size=64",
                "--set=behaviors.3DBall.hyperparameters.num_epoch=3",
                "--set=behaviors.3DBall.summary_freq=12000",
            )
    if "wire" in only:
        for agents in WIRE_EXCHANGES:
            yield worker(f"wire, {agents} agents", "wire", str(agents))
    if "microrts" in only:
        behavior = "--set=behaviors.MicroRTS"
        yield learning(
            "microrts ppo",
            "microrts-mining",
            "--num-areas=8",
            f"{behavior}.hyperparameters.buffer_size=1024",
            f"{behavior}.summary_freq=1024",
        )


def shared_scenes(trees: tuple[Path, Path], chosen: Sequence[str] | None) -> list[str]:
    """The chosen scenes that both trees have (None: all); a line for each that one lacks."""
    before, after = (scenes_of(tree) for tree in trees)
    shared = []
    for name in chosen or after:
        if name in before and name in after:
            shared.append(name)
        else:
            print(f"{name:24s} skipped: not a scene of both trees", flush=True)
    return shared


def scenes_of(tree: Path) -> list[str]:
    """The names of a tree's scenes, by a process that imports that tree."""
    code = "from touchline.scenes import SCENES; print(*SCENES)"
    variables = os.environ | {"PYTHONPATH": str(tree / "src")}
    listed = subprocess.run(
        [sys.executable, "-c", code],
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return listed.stdout.split()


def worker(name: str, *arguments: str) -> Benchmark:
    """The same script in a process of its own."""
    command = (str(Path(__file__).resolve()), "--work", *arguments)
    return Benchmark(name, command, end_of_turn="turn")


def learning(name: str, config: str, *arguments: str) -> Benchmark:
    """`touchline train`; a turn ends with a line about progress."""
    command = ("-c", "from touchline.cli import main; main()", "train", config)
    run = ("--seed=1", "--results-dir=.", "--run-id=run")
    return Benchmark(name, (*command, *run, *arguments), end_of_turn="steps/s")


# What runs inside of either tree.


def step_scene(name: str) -> Iterator[list[float]]:
    """Random play at Unity's own number of areas, on one thread; the same in both trees.

    Gives the seconds of each step of a turn.
    """
    from functools import partial

    import numpy as np

    from touchline import EnvRecipe, Slots, make
    from touchline.envs.actions import random_allowed

    recipe = EnvRecipe("scene", name, seed=1, options={"num_threads": 1})
    with make(recipe) as env:
        slots = Slots(env)
        rows = slots.reset(0)
        rng = np.random.default_rng(0)
        draw = {
            behavior: partial(random_allowed, spec.action_spec)
            for behavior, spec in slots.behaviors.items()
        }
        while True:
            seconds = []
            for _ in range(STEPS_PER_TURN):
                actions = {
                    behavior: draw[behavior](
                        row.action_mask, row.second_mask, len(row), rng
                    )
                    for behavior, row in rows.items()
                }
                started = time.thread_time()
                rows = slots.step(actions)
                seconds.append(time.thread_time() - started)
            yield seconds


def exchange(agents: int) -> Iterator[list[float]]:
    """Steps of a player that answers at once, over the wire; the player's time is not counted."""
    import numpy as np

    from touchline import ActionTuple, UnityEnvironment

    # Both trees talk to the player of this one: only the client is compared.
    player = Path("lean.x86_64").absolute()
    player.write_text(
        f'#!/bin/sh\nexport GRPC_VERBOSITY=NONE PYTHONPATH="{ROOT / "src"}:{ROOT}"\n'
        f'exec "{sys.executable}" -m bench.wire {agents} "$@"\n'
    )
    player.chmod(0o755)
    with UnityEnvironment(player) as env:
        env.reset()
        (name,) = env.behavior_specs
        actions = ActionTuple(np.zeros((agents, 2), np.float32))
        while True:
            for _ in range(WIRE_EXCHANGES[agents]):
                env.set_actions(name, actions)
                env.step()
                env.get_steps(name)
            yield []  # other threads work, too: the whole turn counts


def work(kind: str, argument: str) -> None:
    turns = step_scene(argument) if kind == "scene" else exchange(int(argument))
    for seconds in turns:
        print("turn", STEPS, *seconds, flush=True)


def main() -> None:
    assert __doc__ is not None
    kinds = ("scenes", "learn", "wire", "microrts")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="a checkout of the other commit")
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--scene", nargs="+", help="only these scenes")
    parser.add_argument("--turns", type=int, default=40)
    arguments = parser.parse_args()
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
    trees = (arguments.before.resolve(), ROOT)
    scenes = shared_scenes(trees, arguments.scene) if "scenes" in arguments.only else []
    for benchmark in benchmarks(arguments.only, scenes):
        print(compare(benchmark, trees, arguments.turns), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
    else:
        main()
