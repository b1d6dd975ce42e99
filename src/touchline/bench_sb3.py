"""Both sides of `touchline bench learn`: the same training by Stable-Baselines3's PPO and by ours.

Stable-Baselines3 wants its own VecEnv; the shim below makes one from slots of a scene whose agents all decide
at the same time.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.specs import ActionTuple
from touchline.training.config import read_config
from touchline.training.trainer import train

GOOD_RETURN = 90.0
"""Seconds until the mean return of the last 20 episodes passes this are reported."""


class SlotsVecEnv(VecEnv):  # type: ignore[misc]
    """One continuous behavior's slots as Stable-Baselines3's vector environment."""

    def __init__(self, scene: str, seed: int) -> None:
        self._slots = Slots(make(EnvRecipe("scene", scene, options={"num_threads": 1})), grow=False)
        rows = self._slots.reset(seed)
        ((self._name, self._rows),) = rows.items()
        spec = self._slots.behaviors[self._name]
        size = sum(o.shape[0] for o in spec.observation_specs)
        seen = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        done = gymnasium.spaces.Box(-1.0, 1.0, (spec.action_spec.continuous_size,), np.float32)
        super().__init__(len(self._rows), seen, done)

    def reset(self) -> NDArray[np.float32]:
        return self._obs()

    def step_async(self, actions: NDArray[np.float32]) -> None:
        self._actions = ActionTuple(actions)

    def step_wait(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        self._rows = rows = self._slots.step({self._name: self._actions})[self._name]
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for k, slot in enumerate(rows.final_slot):
            last = np.concatenate([o[k] for o in rows.final_obs])
            infos[slot] = {"terminal_observation": last, "TimeLimit.truncated": bool(rows.truncated[slot])}
        return self._obs(), rows.reward, rows.terminated | rows.truncated, infos

    def close(self) -> None:
        self._slots.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:  # noqa: ARG002
        return [getattr(self, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:  # noqa: ARG002
        setattr(self, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError(f"agents of one world have no method {method_name} of their own")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:  # noqa: ARG002
        return [False] * self.num_envs

    def _obs(self) -> NDArray[np.float32]:
        return np.concatenate(self._rows.obs, axis=1)


def train_with_sb3(scene: str, steps: int, seed: int) -> dict[str, Any]:
    """Stable-Baselines3's PPO with the preset's hyperparameters; one torch thread, as ours."""
    torch.set_num_threads(1)
    config = read_config(scene).behaviors[scene]
    hyper, network = config.hyperparameters, config.network_settings
    env = SlotsVecEnv(scene, seed)
    layers = [network.hidden_units] * network.num_layers
    model = PPO(
        "MlpPolicy",
        env,
        learning_rate=lambda left: hyper.learning_rate * left,
        n_steps=hyper.buffer_size // env.num_envs,
        batch_size=hyper.batch_size,
        n_epochs=hyper.num_epoch,
        gamma=config.reward_signals["extrinsic"].gamma,
        gae_lambda=hyper.lambd,
        clip_range=hyper.epsilon,
        ent_coef=hyper.beta,
        max_grad_norm=hyper.max_grad_norm,
        policy_kwargs={"net_arch": {"pi": layers, "vf": layers}, "activation_fn": torch.nn.SiLU},
        seed=seed,
        device="cpu",
    )
    started = time.perf_counter()
    watch = _Watch(env.num_envs, started)

    def see(local: dict[str, Any], _: dict[str, Any]) -> bool:
        watch.see(local["rewards"], local["dones"])
        return True

    model.learn(steps, callback=see)
    seconds = time.perf_counter() - started
    env.close()
    return {"steps_per_s": round(model.num_timesteps / seconds), "seconds_to_90": watch.reached_s}


def train_with_touchline(scene: str, steps: int, seed: int) -> dict[str, Any]:
    """Ours, as `touchline train` runs it, the run folder included."""
    good: list[float] = []
    started = time.perf_counter()

    def see(line: str) -> None:
        if "return" in line and " ± " in line:
            mean = float(line.split("return", 1)[1].split("±", 1)[0])
            if mean >= GOOD_RETURN:
                good.append(time.perf_counter() - started)

    with tempfile.TemporaryDirectory() as folder:
        overrides = {
            "checkpoint_settings.results_dir": folder,
            "env_settings.seed": seed,
            f"behaviors.{scene}.max_steps": steps,
        }
        config = read_config(scene, (), overrides)
        train(config, EnvRecipe("scene", scene, options={"num_threads": 1}), see)
    seconds = time.perf_counter() - started
    return {"steps_per_s": round(steps / seconds), "seconds_to_90": round(good[0], 1) if good else None}


class _Watch:
    """When the mean return of the last 20 episodes first passed the mark."""

    def __init__(self, num_envs: int, started: float) -> None:
        self._return = np.zeros(num_envs)
        self._last: list[float] = []
        self._started = started
        self.reached_s: float | None = None

    def see(self, rewards: NDArray[Any], dones: NDArray[Any]) -> None:
        self._return += rewards
        for slot in np.flatnonzero(dones):
            self._last = [*self._last[-19:], float(self._return[slot])]
            self._return[slot] = 0.0
        if self.reached_s is None and len(self._last) == 20 and np.mean(self._last) >= GOOD_RETURN:
            self.reached_s = round(time.perf_counter() - self._started, 1)
