"""POCA with self-play compared with the official trainer and with our PPO; a tournament's speed.

All in SoccerTwos with ML-Agents' own file (512 units, two layers, both teams), but with an update
after 10,240 steps instead of 20,480, so that a turn is short.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from bench.learn import (
    Figures,
    train_with_mlagents_learn,
    train_with_touchline,
)
from bench.peers import official_trainer

from touchline.envs.env import EnvRecipe
from touchline.log import Log
from touchline.player import build
from touchline.studies.matches import Match, play

SCENE, PRESET = "SoccerTwos", "SoccerTwos_official"
TURNS = 5
STEPS = 30_720
"""Three updates; the first and the last summary have two of them in between."""
HYPERPARAMETERS = {"buffer_size": 10_240}
GAMES = 200


def bench_teams(scenes: Sequence[str] | None, log: Log) -> Figures:  # noqa: ARG001 - one scene
    """Agent steps per second, turn by turn; ratios are medians over the turns."""
    official = official_trainer(log)
    turns: dict[str, list[float]] = {}

    def note(name: str, speed: float) -> None:
        turns.setdefault(name, []).append(speed)
        log(f"{name}, turn {len(turns[name])}: {speed:,.0f} agent steps/s")

    changes = {f"hyperparameters.{k}": v for k, v in HYPERPARAMETERS.items()}
    with tempfile.TemporaryDirectory(prefix="touchline-bench-") as folder:
        player = build(SCENE, folder)
        for turn in range(TURNS):
            for trainer in ("poca", "ppo"):
                own = {**changes, "trainer_type": trainer}
                found = train_with_touchline(
                    SCENE, STEPS, turn, preset=PRESET, changes=own
                )
                note(trainer, found["steps_per_s"])
            found = train_with_touchline(SCENE, STEPS, turn, player, PRESET, changes)
            note("poca_over_the_wire", found["steps_per_s"])
            if official is not None:
                found = train_with_mlagents_learn(
                    official, SCENE, STEPS, turn, player, PRESET, HYPERPARAMETERS
                )
                note("mlagents_learn", found["steps_per_s"])
            note("tournament", round(_tournament_speed(turn)))

    def ratio(ours: str, theirs: str) -> float | None:
        pairs = zip(turns[ours], turns.get(theirs, []), strict=False)
        ratios = [our / their for our, their in pairs]
        return round(float(np.median(ratios)), 2) if ratios else None

    return {
        "scene": SCENE,
        **turns,
        "ratio_to_ppo": ratio("poca", "ppo"),
        "ratio_to_mlagents_learn_over_the_wire": ratio(
            "poca_over_the_wire", "mlagents_learn"
        ),
    }


def _tournament_speed(seed: int) -> float:
    """Decisions per second of a match on one core, both sides by our policy."""
    policy = str(Path("models", f"{SCENE}.onnx"))
    recipe = EnvRecipe("scene", SCENE, seed=seed, options={"num_threads": 1})
    recipe = EnvRecipe.parse(recipe, num_areas=25)
    started = time.perf_counter()
    score = play(Match(recipe, (policy, policy), GAMES))
    return score.decisions / (time.perf_counter() - started)
