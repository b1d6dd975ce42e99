"""Speed of the scenes, compared with the bare physics of those that MuJoCo steps."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from touchline.envs.env import EnvRecipe, make
from touchline.envs.scene_env import SceneEnv
from touchline.envs.slots import SlotRows, Slots
from touchline.log import Log
from touchline.physics.mujoco_batch import MujocoBatch
from touchline.physics.shapes import Floats, X, Z
from touchline.policies.loading import load_policy
from touchline.scenes import SCENES
from touchline.scenes.ball_3d import Ball3D
from touchline.scenes.pyramids.agent import AGENT, SWITCH
from touchline.specs import base_name

ROUNDS = 5
"""Everything is timed this often, turn by turn; the median counts."""
WARM_UP_STEPS = 50
"""Also enough for the episodes of all areas to drift apart."""
MOST_STEPS, MOST_SLOT_STEPS = 400, 20_000
"""A round takes at most this many steps, and about this many steps times slots."""

BRICK_SPEED_M_S = 10.0
BRICK_DECISIONS = 10

State = tuple[Floats, Floats, Floats]
"""Positions, velocities and the rotations of bodies that a scene moves."""

Figures = dict[str, Any]


def bench_scenes(
    scenes: Sequence[str] | None, log: Log, policies: Mapping[str, Path] | None = None
) -> Figures:
    """Agent decisions per second through the slots on one core at two sizes; acting is not counted.

    `policies` act for their behaviors (by base name), random ones for the others. Scenes that
    MuJoCo steps are compared with the bare `mujoco.batch.Batch` of the same model, which steps the
    same states as often: the share of the time that is physics. Pyramids is measured a third time,
    with bricks flying everywhere.
    """
    figures: Figures = {}
    for name in scenes or SCENES:
        figures[name] = {}
        for label, num_areas in (("unity_areas", None), ("256_areas", 256)):
            with _opened(name, num_areas) as env:
                figures[name][label] = _scene_speed(env, policies or {})
            log(f"{name} {label}: {figures[name][label]}")
    if "Pyramids" in figures:
        with _opened("Pyramids", None) as env:
            figures["Pyramids"]["bricks_flying"] = bricks_speed(env)
        log(f"Pyramids bricks_flying: {figures['Pyramids']['bricks_flying']}")
    return figures


def _opened(scene: str, num_areas: int | None) -> SceneEnv:
    env = make(
        EnvRecipe("scene", scene, num_areas=num_areas, options={"num_threads": 1})
    )
    assert isinstance(env, SceneEnv)
    return env


class _Stepper:
    """Steps a scene through its slots; only the steps are timed, not acting."""

    def __init__(self, env: SceneEnv, policies: Mapping[str, Path]) -> None:
        self._slots = Slots(env)
        self.rows: Mapping[str, SlotRows] = self._slots.reset(0)
        self._actors = {
            name: load_policy(policies.get(base_name(name), "random"), name, spec)
            for name, spec in self._slots.behaviors.items()
        }

    def step(self) -> float:
        """Take one step; its seconds."""
        actions = {name: self._actors[name].act(row) for name, row in self.rows.items()}
        started = time.perf_counter()
        self.rows = self._slots.step(actions)
        return time.perf_counter() - started

    def num_deciding(self) -> int:
        return sum(int(row.deciding.sum()) for row in self.rows.values())


def _scene_speed(env: SceneEnv, policies: Mapping[str, Path]) -> Figures:
    stepper = _Stepper(env, policies)
    world = env.scene.world if isinstance(env.scene, Ball3D) else None
    states: list[State] = []
    for _ in range(WARM_UP_STEPS):
        stepper.step()
        if world is not None:
            states.append(
                (world.qpos.copy(), world.qvel.copy(), world.mocap_quat.copy())
            )
    num_slots = max(1, sum(len(row) for row in stepper.rows.values()))
    count = max(20, min(MOST_STEPS, MOST_SLOT_STEPS // num_slots))
    ours, bare = [], []
    decisions = 0
    for _ in range(ROUNDS):
        seconds = 0.0
        decisions = 0
        for _ in range(count):
            seconds += stepper.step()
            decisions += stepper.num_deciding()
        ours.append(seconds / count)
        if world is not None:
            # The bare batch steps the scene's own arrays, so what it did to them is undone.
            kept = env.state()
            bare.append(_bare_batch(world, states, env.scene.academy.decision_period))
            env.load_state(kept)
    step_s = float(np.median(ours))
    base_names = {base_name(name) for name in env.behaviors}
    figures: Figures = {
        "agent_decisions_per_s": round(decisions / count / step_s),
        "step_us": round(step_s * 1e6, 1),
        "policies": sorted(base_names & set(policies)),
    }
    if bare:
        # Round by round: both of a pair were measured under the same load of the machine.
        ratios = [their / our for our, their in zip(ours, bare, strict=True)]
        figures["bare_batch_us"] = round(float(np.median(bare)) * 1e6, 1)
        figures["ratio_to_bare_batch"] = round(float(np.median(ratios)), 3)
    return figures


def bricks_speed(env: SceneEnv) -> Figures:
    """Pyramids just after every switch was pressed: a second of bricks that are thrown about."""
    (name,) = env.behaviors
    env.reset(0)
    spec = env.behaviors[name].action_spec
    rng = np.random.default_rng(0)
    state = env.state()
    boxes = state["scene/boxes"]
    # An agent inside its switch touches it: the next step presses every switch.
    for axis in (X, Z):
        boxes[:, AGENT, axis] = boxes[:, SWITCH, axis]
    env.load_state(state)
    env.step()
    state = env.state()
    assert state["scene/on"].all(), "every agent was put on its switch"
    speeds = state["scene/brick_velocity"]
    speeds[:] = rng.normal(0.0, BRICK_SPEED_M_S, speeds.shape)
    times = []
    for _ in range(ROUNDS):
        env.load_state(state)
        seconds = 0.0
        for _ in range(BRICK_DECISIONS):
            env.set_actions(name, spec.random_action(env.num_areas, rng))
            started = time.perf_counter()
            env.step()
            seconds += time.perf_counter() - started
        times.append(seconds / BRICK_DECISIONS)
    step_s = float(np.median(times))
    return {
        "agent_decisions_per_s": round(env.num_areas / step_s),
        "step_us": round(step_s * 1e6, 1),
    }


def _bare_batch(world: MujocoBatch, states: Sequence[State], substeps: int) -> float:
    """Seconds that MuJoCo alone takes for `substeps` steps, the mean over the given states."""
    # Setting the states is not counted.
    total = 0.0
    for state in states:
        world.qpos[:], world.qvel[:], world.mocap_quat[:] = state
        started = time.perf_counter()
        world.step(substeps)
        total += time.perf_counter() - started
    return total / len(states)
