"""The same training by Touchline, by Stable-Baselines3's PPO and by official mlagents-learn.

Touchline trains in process and over the wire. mlagents-learn runs under its own Python
(`bench/official/learn.py`), from the same YAML. On Python 3.11, where torch has a CPU build for it,
its protobuf decodes in plain Python, which slows it down over the wire.
"""

import csv
import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from bench.peers import OFFICIAL, official_trainer
from numpy.typing import NDArray
from stable_baselines3 import PPO

from touchline.adapters.to_sb3 import make_sb3
from touchline.envs.env import EnvRecipe
from touchline.errors import RunError, UsageError
from touchline.log import Log
from touchline.player import build
from touchline.training.algorithms.ppo.settings import PPOSettings
from touchline.training.config.reading import preset_file, read_config
from touchline.training.trainer import train

SEEDS, STEPS, WIRE_STEPS = 3, 240_000, 60_000
GOOD_RETURN = 90.0
"""Seconds until the mean return of the last `WINDOW` episodes reaches this are reported."""
WINDOW = 20
OFFICIAL_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python",
}
"""Its protobuf has no compiled form for Python 3.11."""

Figures = dict[str, Any]


def train_with_sb3(scene: str, steps: int, seed: int) -> Figures:
    """Stable-Baselines3's PPO with the preset's hyperparameters; one torch thread, as ours."""
    torch.set_num_threads(1)
    config = read_config(f"{scene}_official").behaviors[scene]
    hyper, network = config.hyperparameters, config.network_settings
    if not isinstance(hyper, PPOSettings):
        raise UsageError(
            f"{scene}: its preset trains with {config.trainer_type}, not with ppo"
        )
    # The adapter that users take; one thread, as its opponents have.
    recipe = EnvRecipe("scene", scene, seed=seed, options={"num_threads": 1})
    env = make_sb3(recipe, join_vectors=True)
    layers = [network.hidden_units] * network.num_layers
    model = PPO(
        "MlpPolicy",
        env,
        # ML-Agents' linear schedule: from the full rate to 0.
        learning_rate=lambda left: hyper.learning_rate * left,
        # SB3 counts steps of each environment, ML-Agents the experiences of all.
        n_steps=hyper.buffer_size // env.num_envs,
        batch_size=hyper.batch_size,
        n_epochs=hyper.num_epoch,
        gamma=config.reward_signals["extrinsic"].gamma,
        gae_lambda=hyper.lambd,
        clip_range=hyper.epsilon,
        ent_coef=hyper.beta,
        max_grad_norm=hyper.max_grad_norm,
        policy_kwargs={
            "net_arch": {"pi": layers, "vf": layers},
            # ML-Agents calls it swish (`layers.py`).
            "activation_fn": torch.nn.SiLU,
        },
        seed=seed,
        device="cpu",
    )
    started = time.perf_counter()
    watch = _ReturnWatch(env.num_envs, started)

    def on_step(local: dict[str, Any], _: dict[str, Any]) -> bool:
        watch.add(local["rewards"], local["dones"])
        return True

    model.learn(steps, callback=on_step)
    seconds = time.perf_counter() - started
    env.close()
    return {
        "steps_per_s": round(model.num_timesteps / seconds),
        "seconds_to_90": watch.reached_s,
    }


def train_with_touchline(
    scene: str,
    steps: int,
    seed: int,
    player: Path | None = None,
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Figures:
    """Ours, as `touchline train` runs it; over the wire where a `player` is given.

    The settings are those of the scene's preset or of another one, with these `changes` to those of
    the behavior. Starting up is not counted.
    """
    with tempfile.TemporaryDirectory() as folder:
        overrides = {
            "checkpoint_settings.results_dir": folder,
            "env_settings.seed": seed,
            f"behaviors.{scene}.max_steps": steps,
        }
        for key, value in (changes or {}).items():
            overrides[f"behaviors.{scene}.{key}"] = value
        config = read_config(preset or f"{scene}_official", (), overrides)
        if player is None:
            recipe = EnvRecipe("scene", scene, options={"num_threads": 1})
        else:
            recipe = EnvRecipe("unity", str(player), options={"no_graphics": True})
        run = train(config, recipe).folder
        with (run / scene / "metrics.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    summaries = [(float(row["time_s"]), float(row["step"])) for row in rows]
    reached_s = None
    for row in rows:
        # A summary without a finished episode has an empty field; NaN is never enough.
        mean_return = float(row["mean_return"] or "nan")
        if mean_return >= GOOD_RETURN:
            reached_s = round(float(row["time_s"]), 1)
            break
    return {"steps_per_s": _slope(summaries), "seconds_to_90": reached_s}


def train_with_mlagents_learn(
    python: str,
    scene: str,
    steps: int,
    seed: int,
    player: Path,
    preset: str | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
) -> Figures:
    """The official trainer, from the YAML of a preset. Starting up is not counted."""
    with tempfile.TemporaryDirectory() as folder:
        source = preset_file(preset or f"{scene}_official").read_text(encoding="utf-8")
        official = yaml.safe_load(source)
        official.pop("env_settings", None)  # the player is given here
        behavior = official["behaviors"][scene]
        behavior["max_steps"] = steps
        behavior["hyperparameters"].update(hyperparameters or {})
        config = Path(folder) / "config.yaml"
        config.write_text(yaml.safe_dump(official), encoding="utf-8")
        script = OFFICIAL / "learn.py"
        options = {
            "--env": player,
            "--run-id": "r",
            "--results-dir": folder,
            "--seed": seed,
            "--base-port": _free_port(),
            "--torch-device": "cpu",
        }
        arguments = [str(part) for option in options.items() for part in option]
        done = subprocess.run(
            [python, script, config, *arguments, "--no-graphics"],
            capture_output=True,
            text=True,
            timeout=3600,
            check=False,
            env=os.environ | OFFICIAL_ENVIRONMENT,
        )
    output = done.stdout + done.stderr
    summaries = re.findall(r"Step: (\d+)\. Time Elapsed: ([\d.]+) s", output)
    if len(summaries) < 2:
        raise RunError(
            f"official mlagents-learn failed: {done.stderr.strip().splitlines()[-1:]}"
        )
    timed = [(float(seconds), float(step)) for step, seconds in summaries]
    return {"steps_per_s": _slope(timed)}


def _free_port() -> int:
    # Port 0 lets the system choose; mlagents-learn wants a number before it binds.
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def _slope(summaries: Sequence[tuple[float, float]]) -> int:
    """Steps per second between the first and the last of (seconds, step)."""
    # Between two summaries, so that starting up (imports, the player) does not count.
    if len(summaries) < 2:
        raise RunError(
            "the run wrote one summary; expected two, between which steps are counted: choose a "
            "scene whose summary_freq is below the benchmark's number of steps"
        )
    first_s, first_step = summaries[0]
    last_s, last_step = summaries[-1]
    return round((last_step - first_step) / (last_s - first_s))


class _ReturnWatch:
    """When the mean return of the last episodes first reached `GOOD_RETURN`."""

    def __init__(self, num_envs: int, started: float) -> None:
        self._return = np.zeros(num_envs)
        self._last: list[float] = []
        self._started = started
        self.reached_s: float | None = None
        """Seconds since `started`."""

    def add(self, rewards: NDArray[Any], dones: NDArray[Any]) -> None:
        """Add one step of all environments."""
        self._return += rewards
        for slot in np.flatnonzero(dones):
            self._last.append(float(self._return[slot]))
            self._return[slot] = 0.0
        self._last = self._last[-WINDOW:]
        is_good = len(self._last) == WINDOW and np.mean(self._last) >= GOOD_RETURN
        if is_good and self.reached_s is None:
            self.reached_s = round(time.perf_counter() - self._started, 1)


def bench_learn(scenes: Sequence[str] | None, log: Log) -> Figures:
    """Agent steps per second, and seconds to mean return 90, turn by turn.

    Ratios are medians over the seeds.
    """
    name = (scenes or ["3DBall"])[0]
    official = official_trainer(log)
    turns: dict[str, list[Figures]] = {}

    def note(trainer: str, figures: Figures) -> None:
        turns.setdefault(trainer, []).append(figures)
        log(f"{trainer}, seed {len(turns[trainer]) - 1}: {figures}")

    with tempfile.TemporaryDirectory(prefix="touchline-bench-") as folder:
        player = build(name, folder)
        for seed in range(SEEDS):
            note("touchline", train_with_touchline(name, STEPS, seed))
            note("stable_baselines3", train_with_sb3(name, STEPS, seed))
            note(
                "touchline_over_the_wire",
                train_with_touchline(name, WIRE_STEPS, seed, player),
            )
            if official is not None:
                figures = train_with_mlagents_learn(
                    official, name, WIRE_STEPS, seed, player
                )
                note("mlagents_learn", figures)

    def ratio(ours: str, theirs: str) -> float | None:
        pairs = zip(turns[ours], turns.get(theirs, []), strict=False)
        ratios = [our["steps_per_s"] / their["steps_per_s"] for our, their in pairs]
        return round(float(np.median(ratios)), 2) if ratios else None

    return {
        "scene": name,
        "steps": STEPS,
        "steps_over_the_wire": WIRE_STEPS,
        **turns,
        "ratio_to_stable_baselines3": ratio("touchline", "stable_baselines3"),
        "ratio_to_mlagents_learn": ratio("touchline", "mlagents_learn"),
        "ratio_to_mlagents_learn_over_the_wire": ratio(
            "touchline_over_the_wire", "mlagents_learn"
        ),
    }
