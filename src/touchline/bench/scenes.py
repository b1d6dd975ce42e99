"""Speed of the scenes, beside the bare physics of those that MuJoCo steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from touchline.envs.env import EnvRecipe, make
from touchline.envs.scene_env import SceneEnv
from touchline.envs.slots import Slots
from touchline.policies.policy import RandomPolicy
from touchline.scenes import SCENES

ROUNDS = 5
"""Everything is timed this often, turn by turn; the median counts."""

Say = Callable[[str], None]


def bench_scenes(scenes: Sequence[str] | None, say: Say) -> dict[str, Any]:
    """Agent decisions per second through the slots on one core, random actions, at two sizes.

    For a scene that MuJoCo steps, beside the bare `mujoco.batch.Batch` of the same model, which steps the same
    states as often: the share of the time that is physics.
    """
    figures: dict[str, Any] = {}
    for name in scenes or SCENES:
        figures[name] = {}
        for label, num_areas in (("unity_areas", None), ("256_areas", 256)):
            with make(EnvRecipe("scene", name, num_areas=num_areas, options={"num_threads": 1})) as env:
                assert isinstance(env, SceneEnv)
                figures[name][label] = _scene_speed(env)
            say(f"{name} {label}: {figures[name][label]}")
    return figures


def _scene_speed(env: SceneEnv) -> dict[str, Any]:
    slots, policy = Slots(env), RandomPolicy(0)
    rows = slots.reset(0)
    behaviors = slots.behaviors
    sets = [{name: policy.act(behaviors[name], row) for name, row in rows.items()} for _ in range(50)]
    masked = any(row.action_mask is not None and not row.action_mask.all() for row in rows.values())
    batch = getattr(env.scene, "batch", None)
    states: list[dict[str, Any]] = []
    for i in range(50):  # warm up, and let episodes drift apart
        if masked:
            sets[i] = {name: policy.act(behaviors[name], row) for name, row in rows.items()}
        rows = slots.step(sets[i])
        if batch is not None:
            states.append({k: batch.bind(k).copy() for k in ("qpos", "qvel", "mocap_pos", "mocap_quat")})
    count = max(20, min(400, 20_000 // max(1, sum(len(r) for r in rows.values()))))
    ours, bare, decisions = [], [], 0
    for _ in range(ROUNDS):
        started, decisions = time.perf_counter(), 0
        for i in range(count):
            if masked:
                sets[i % 50] = {name: policy.act(behaviors[name], row) for name, row in rows.items()}
            rows = slots.step(sets[i % 50])
            decisions += sum(int(row.deciding.sum()) for row in rows.values())
        ours.append((time.perf_counter() - started) / count)
        if batch is not None:
            kept = env.state()
            bare.append(_bare_batch(batch, states, env.scene.academy.decision_period))
            env.load_state(kept)
    seconds = float(np.median(ours))
    figures: dict[str, Any] = {
        "agent_decisions_per_s": round(decisions / count / seconds),
        "step_us": round(seconds * 1e6, 1),
    }
    if bare:
        figures |= {
            "bare_batch_us": round(float(np.median(bare)) * 1e6, 1),
            "ratio_to_bare_batch": round(float(np.median([b / o for o, b in zip(ours, bare, strict=True)])), 3),
        }
    return figures


def _bare_batch(batch: Any, states: Sequence[dict[str, Any]], substeps: int) -> float:
    """Seconds that MuJoCo alone takes from the given states, `substeps` steps from each; setting them not counted."""
    total = 0.0
    for state in states:
        for name, value in state.items():
            batch.bind(name)[...] = value
        started = time.perf_counter()
        batch.step(nstep=substeps)
        total += time.perf_counter() - started
    return total / len(states)
