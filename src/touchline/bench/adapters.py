"""What each adapter's step costs compared with a step of the slots below it.

All contestants play the same scene with random actions prepared beforehand, on one core, turn by
turn; the ratio of the medians counts.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from touchline.adapters.to_gymnasium import make_gymnasium
from touchline.adapters.to_pettingzoo import make_pettingzoo
from touchline.adapters.to_torchrl import make_torchrl
from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.log import Log
from touchline.policies.loading import load_policies

ROUNDS, STEPS, PREPARED = 7, 200, 50
ONE_THREAD = {"num_threads": 1}
Step = Callable[[int], object]
"""Takes a step with the prepared actions of this number."""


def bench_adapters(scenes: Sequence[str] | None, log: Log) -> dict[str, Any]:
    """Time per step, and its ratio to that of the slots.

    TorchRL and PettingZoo play SoccerTwos, Gymnasium's VectorEnv PushBlock; `scenes` replaces them.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    chosen = list(scenes or ())
    defaults = ["SoccerTwos", "PushBlock"]
    # Scenes that were not named keep their default, place by place.
    both = chosen + defaults[len(chosen) :]
    many, single = both[:2]
    contests: dict[str, dict[str, Callable[[], Step]]] = {
        many: {
            "slots": lambda: _slots(many, None),
            "torchrl_groups": lambda: _torchrl(many, group_by="behavior"),
            "torchrl_batch": lambda: _torchrl(many, group_by="base"),
            "torchrl_batch_joined_flat": lambda: _torchrl(
                many, group_by="base", join_vectors=True, flatten_branches=True
            ),
            "pettingzoo": lambda: _pettingzoo(many),
            "torchrls_wrapper_on_pettingzoo": lambda: _wrapped_pettingzoo(many),
        },
        single: {
            "slots": lambda: _slots(single, 32),
            "gymnasium_vector": lambda: _vector(single, 32),
        },
    }
    figures: dict[str, Any] = {}
    for scene, contestants in contests.items():
        seconds = _race({name: start() for name, start in contestants.items()})
        figures[scene] = {
            name: {
                "step_us": round(time_s * 1e6, 1),
                "ratio_to_slots": round(time_s / seconds["slots"], 2),
            }
            for name, time_s in seconds.items()
        }
        log(f"{scene}: {figures[scene]}")
    return figures


def _race(contestants: dict[str, Step]) -> dict[str, float]:
    """Median seconds per step of each."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for step in contestants.values():
        for i in range(PREPARED):  # warms up, and lets episodes drift apart
            step(i)
    for _ in range(ROUNDS):
        for name, step in contestants.items():
            for i in range(STEPS):
                started = time.perf_counter()
                step(i % PREPARED)
                times[name].append(time.perf_counter() - started)
    return {name: float(np.median(taken)) for name, taken in times.items()}


def _recipe(scene: str, num_areas: int | None) -> EnvRecipe:
    return EnvRecipe("scene", scene, num_areas=num_areas, options=ONE_THREAD)


def _slots(scene: str, num_areas: int | None) -> Step:
    slots = Slots(make(_recipe(scene, num_areas)))
    rows = slots.reset(0)
    policies = load_policies(["random"], slots.behaviors)
    prepared = [
        {name: policies[name].act(row) for name, row in rows.items()}
        for _ in range(PREPARED)
    ]
    return lambda i: slots.step(prepared[i])


def _torchrl(scene: str, **options: Any) -> Step:
    env = make_torchrl(_recipe(scene, None), **options)
    return _tensordict_step(env)


def _tensordict_step(env: Any) -> Step:
    first = env.reset()
    prepared = [
        env.rand_action(first.copy()).select(*env.action_keys) for _ in range(PREPARED)
    ]
    # Taken out again, because the same tensordict is sent in the next round.
    return lambda i: env.step(prepared[i]).pop("next")


def _pettingzoo(scene: str) -> Step:
    # In this mode names never end, so the prepared actions always find their agents.
    env = make_pettingzoo(_recipe(scene, None), mode="slots")
    env.reset()
    prepared = [
        {name: env.action_space(name).sample() for name in env.agents}
        for _ in range(PREPARED)
    ]
    return lambda i: env.step(prepared[i])


def _wrapped_pettingzoo(scene: str) -> Step:
    from torchrl.envs import PettingZooWrapper

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inner = make_pettingzoo(
            _recipe(scene, None), join_vectors=True, flatten_branches=True, mode="slots"
        )
        env = PettingZooWrapper(inner, use_mask=True, done_on_any=False)
    return _tensordict_step(env)


def _vector(scene: str, num_envs: int) -> Step:
    env = make_gymnasium(_recipe(scene, num_envs), vector=True)
    env.reset(seed=0)
    prepared = [env.action_space.sample() for _ in range(PREPARED)]
    return lambda i: env.step(prepared[i])
