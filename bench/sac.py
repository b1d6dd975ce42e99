"""SAC's work by Touchline and by the official trainer: draw a minibatch, make a gradient step.

Same sizes, same hyperparameters, one thread each, turn by turn in one run; processor time is
counted. The official trainer (`bench/official/sac.py`) runs under its own Python.
"""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from bench.peers import OFFICIAL, official_trainer

from touchline.errors import RunError
from touchline.log import Log
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.algorithms.learner import LearnerSetup
from touchline.training.algorithms.sac.learner import SAC
from touchline.training.config.settings import RunConfig
from touchline.training.experience.replay import NONE
from touchline.training.run.process import tuned_process

TURNS, WARM_UP_TURNS = 5, 1
SIZES: dict[str, dict[str, Any]] = {
    "3DBall": {
        "observations": 8,
        "continuous": 2,
        "branches": [],
        "batch_size": 64,
        "hidden_units": 64,
        "num_layers": 2,
        "normalize": True,
        "steps_per_turn": 60,
    },
    "PushBlock": {
        "observations": 210,
        "continuous": 0,
        "branches": [7],
        "batch_size": 128,
        "hidden_units": 256,
        "num_layers": 2,
        "normalize": False,
        "steps_per_turn": 30,
    },
    "Crawler": {
        "observations": 158,
        "continuous": 20,
        "branches": [],
        "batch_size": 256,
        "hidden_units": 512,
        "num_layers": 3,
        "normalize": True,
        "steps_per_turn": 8,
    },
}
"""Sizes of each scene's official file (`config/sac`)."""
ROWS = 5_000
"""Experiences in the replay."""
PARTS = ("sampling", "gradient_steps")

Times = dict[str, float]
"""Processor seconds of one turn, by part."""


class Ours:
    """Touchline's learner with a replay of random experience."""

    def __init__(self, work: dict[str, Any]) -> None:
        self._steps = work["steps_per_turn"]
        sensor = ObservationSpec.vector(work["observations"], "vector")
        action = ActionSpec(work["continuous"], tuple(work["branches"]))
        hyper = {"batch_size": work["batch_size"], "buffer_size": ROWS}
        network = {k: work[k] for k in ("normalize", "hidden_units", "num_layers")}
        behavior = {
            "trainer_type": "sac",
            "hyperparameters": hyper,
            "network_settings": network,
        }
        self.config = RunConfig.model_validate({"behaviors": {"B": behavior}})
        spec = BehaviorSpec((sensor,), action)
        own = self.config.behaviors["B"]
        setup = LearnerSetup("B", spec, own, 0, torch.device("cpu"))
        self.learner = SAC(setup)
        replay = self.learner.replay
        rng = np.random.default_rng(0)
        replay.added = ROWS
        replay.load_rows(0, _random_rows(work, rng))

    def turn(self) -> Times:
        """Processor seconds of one turn, in a process that is set as for a training run."""
        with tuned_process(self.config):
            start = time.process_time()
            # All samples first, so that the two parts can be timed apart.
            samples = [self.learner.drawn() for _ in range(self._steps)]
            middle = time.process_time()
            for sample in samples:
                self.learner.descend(sample)
            end = time.process_time()
        return {"sampling": middle - start, "gradient_steps": end - middle}


def _random_rows(work: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    def normal(width: int) -> Any:
        return rng.normal(size=(ROWS, width)).astype(np.float32)

    rows: dict[str, Any] = {
        "obs.0": normal(work["observations"]),
        "next_obs.0": normal(work["observations"]),
    }
    branches = work["branches"]
    if branches:
        rows["allowed"] = np.ones((ROWS, sum(branches)), np.bool_)
    choices = [rng.integers(0, size, ROWS) for size in branches]
    return rows | {
        "continuous": np.tanh(normal(work["continuous"])),
        "discrete": np.stack(choices, 1) if choices else np.zeros((ROWS, 0), np.int64),
        "reward": normal(1),
        "terminated": np.zeros(ROWS, np.bool_),
        "previous": np.full(ROWS, NONE),
    }


class Official:
    """The official trainer's optimizer and buffer in a process of its own."""

    def __init__(self, python: str, work: dict[str, Any]) -> None:
        script = OFFICIAL / "sac.py"
        self._process = subprocess.Popen(
            [python, str(script), json.dumps(work | {"rows": ROWS})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        self._answer()

    def turn(self) -> Times:
        """Processor seconds of one turn."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        times: Times = json.loads(self._answer())
        return times

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RunError("the official trainer ended; its error is above")
        return line


def bench_sac(scenes: Sequence[str] | None, log: Log) -> dict[str, Any]:
    """Processor milliseconds of a minibatch and of a gradient step, for the sizes of some scenes.

    Ratios (official / ours) are medians over the turns.
    """
    python = official_trainer(log)
    return {
        scene: _measured(SIZES[scene], python, log)
        for scene in SIZES
        if scenes is None or scene in scenes
    }


def _measured(work: dict[str, Any], python: str | None, log: Log) -> dict[str, Any]:
    sides: dict[str, Any] = {"touchline": Ours(work)}
    if python is not None:
        sides["mlagents"] = Official(python, work)
    turns: dict[str, list[Times]] = {name: [] for name in sides}
    for turn in range(WARM_UP_TURNS + TURNS):
        for name, side in sides.items():
            times = side.turn()
            if turn >= WARM_UP_TURNS:
                turns[name].append(times)
    if python is not None:
        sides["mlagents"].close()
    per_step = 1e3 / work["steps_per_turn"]
    figures: dict[str, Any] = {
        name: {part: _median([t[part] * per_step for t in own]) for part in PARTS}
        for name, own in turns.items()
    }
    if python is not None:
        pairs = list(zip(turns["touchline"], turns["mlagents"], strict=True))
        figures["ratio"] = {
            part: _median([theirs[part] / ours[part] for ours, theirs in pairs])
            for part in PARTS
        }
        both = [sum(theirs.values()) / sum(ours.values()) for ours, theirs in pairs]
        figures["ratio"]["both"] = _median(both)
    log(f"{work['observations']} observations: {figures}")
    return figures


def _median(values: Sequence[float]) -> float:
    return round(float(np.median(values)), 3)
