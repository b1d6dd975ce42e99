"""PPO in grid form on basesWorkers8x8: where the processor time goes.

    python -m bench.microrts.grid [--updates 6] [--set skip=0]

Plays the preset `microrts-8x8` with the policy in `models/` and learns from it, on its map alone
and against bots that do not search: those compute for a time, not for a result. Prints decisions
and ticks per second of processor time, and the shares of acting, of the games (engine and bots) and
of learning, next to the probes of `bench/probe.py`, and what they would make on the machine that
targets mean: networks scaled by the product of matrices, games by MuJoCo. Needs `touchline microrts
fetch --bots`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is imported

import numpy as np
import torch
from bench.probe import REFERENCE_MATRIX_MS, REFERENCE_PHYSICS_MS, Probe

from touchline.envs.env import EnvRecipe
from touchline.envs.slots import Slots
from touchline.microrts.env import open_microrts
from touchline.policies.files.checkpoints import load_network
from touchline.training.algorithms.learner import LearnerSetup
from touchline.training.algorithms.ppo.learner import PPO
from touchline.training.config.reading import read_config
from touchline.training.experience.rollout import Rollout
from touchline.training.run.process import prefer_onednn

POLICY = Path(__file__).parents[2] / "models" / "microrts-8x8.safetensors"
MIX = (
    "coac:29,mayari:12,workerrush:6,rojo:5,workerdefense:4,lightrush:2,randombiased:1,heavyrush:1,"
    "rangedrush:1,economyrush:1,lightdefense:1,passive:1"
)
WARM_UP = 2
"""Updates that are not counted: Java compiles what runs often."""


def main() -> None:
    assert __doc__ is not None
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--updates", type=int, default=6)
    arguments.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    probe = Probe()
    physics_ms, matrix_ms = [], []
    config = read_config("microrts-8x8")
    prefer_onednn()  # as `touchline train` does for this preset
    recipe = EnvRecipe.parse(
        str(config.env_settings.env_path), num_areas=config.env_settings.num_areas
    )
    del recipe.options["maps"]
    recipe.options["opponent"] = MIX
    recipe.options.update(part.split("=", 1) for part in given.set)
    behavior = config.behavior("MicroRTS")
    assert behavior is not None
    spent = {"acting": 0.0, "games": 0.0, "learning": 0.0}
    decisions = ticks = 0
    with open_microrts(recipe) as env:
        slots = Slots(env)
        rows = slots.reset(0)
        (name,) = rows
        spec = slots.behaviors[name]
        learner = PPO(LearnerSetup("MicroRTS", spec, behavior, 0, torch.device("cpu")))
        learner.network.load_state_dict(load_network(POLICY).state_dict())
        rollout = Rollout(compact=learner.network.compact)
        rollout.begin(rows[name])
        update = 0
        while update < WARM_UP + given.updates:
            clock = env.games.clock.copy()
            times = [time.process_time()]
            decision = learner.policy.act(rollout.rows[-1], None, learner.generator)
            times.append(time.process_time())
            rollout.chosen = decision.kept
            rows = slots.step({name: decision.actions})
            rollout.add(rows[name])
            times.append(time.process_time())
            is_full = rollout.num_results >= learner.wanted
            if is_full:
                learner.add(name, rollout.trajectories())
                learner.update()
                rollout.begin(rows[name])
            times.append(time.process_time())
            if update >= WARM_UP:
                for part, seconds in zip(spent, np.diff(times), strict=True):
                    spent[part] += seconds
                decisions += int(rows[name].closed.sum())
                played = env.games.clock - clock
                # A game that began again has played its whole clock since.
                ticks += int(np.where(played < 0, env.games.clock, played).sum())
            if is_full:
                physics_ms.append(probe.physics_ms())
                matrix_ms.append(probe.matrix_ms())
            update += is_full
    total = sum(spent.values())
    physics, matrix = statistics.median(physics_ms), statistics.median(matrix_ms)
    of_networks = (spent["acting"] + spent["learning"]) * REFERENCE_MATRIX_MS / matrix
    scaled = of_networks + spent["games"] * REFERENCE_PHYSICS_MS / physics
    figures = {
        "decisions_per_s": round(decisions / total),
        "ticks_per_s": round(ticks / total),
        **{part: round(seconds / total, 3) for part, seconds in spent.items()},
        "physics_probe_ms": round(physics, 2),
        "matrix_probe_ms": round(matrix, 2),
        "decisions_per_s_at_reference": round(decisions / scaled),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
