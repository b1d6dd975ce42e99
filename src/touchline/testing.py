"""Checks that a world keeps its contract, to run on your own worlds.

from touchline.testing import check_env, check_slots
check_env(EnvRecipe("scene", "3DBall"))
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.envs.actions import allowed_actions as allowed_actions
from touchline.envs.actions import random_allowed
from touchline.envs.env import ClosesOnExit, Env, EnvRecipe, Stateful, make
from touchline.envs.slots import SlotRows, Slots
from touchline.parameters import ParameterValue
from touchline.specs import ActionTuple, BehaviorSpec
from touchline.steps import BranchMasks, DecisionSteps, TerminalSteps

Arrays = dict[str, NDArray[Any]]
Path = list[Arrays]
"""The arrays of one exchange after the other."""


def play_randomly(env: Env, exchanges: int, seed: int = 0) -> Path:
    """Step a world with random allowed actions; reset it before.

    Returns copies of the arrays of every exchange, the one before the first step included.
    """
    rng = np.random.default_rng(seed)
    path = [_copied(env)]
    for _ in range(exchanges):
        for name, spec in env.behaviors.items():
            decisions, _ = env.steps(name)
            if len(decisions):
                env.set_actions(name, allowed_actions(spec.action_spec, decisions, rng))
        env.step()
        path.append(_copied(env))
    return path


def check_env(
    recipe: EnvRecipe, exchanges: int = 300, *, random_start: bool = True
) -> None:
    """Raise an AssertionError unless the world of this recipe keeps the contract of `Env`.

    `random_start`: whether another seed must give another start (a game without chance has only
    one).
    """
    # Long enough to pass several decisions, and ending off the usual decision period of 5.
    short = min(exchanges, 49)
    with make(recipe) as env:
        env.reset(seed=7)
        path = play_randomly(env, exchanges)
        _check_arrays(env, path)
        _check_no_shared_memory(env)
        env.reset(seed=7)  # in the middle of episodes
        again = play_randomly(env, short)
        _assert_same_path(path[: len(again)], again, "after a reset with the same seed")
        env.reset(seed=8)
        other = play_randomly(env, short)
        if random_start:
            assert not _same(path[0], other[0]), "another seed must give another start"
        env.reset()
        play_randomly(env, 10)
        env.close()
        env.close()  # idempotent
    _check_same_path(recipe, path, "in a second world with the same seed")
    _check_state(recipe, exchanges)
    if recipe.kind.is_scene:
        for threads in (1, 2):
            options = {**recipe.options, "num_threads": threads}
            _check_same_path(
                replace(recipe, options=options), path, f"on {threads} threads"
            )


def _check_same_path(recipe: EnvRecipe, path: Path, when: str) -> None:
    with make(recipe) as env:
        env.reset(seed=7)
        _assert_same_path(path, play_randomly(env, len(path) - 1), when)


def check_slots(
    env: Env,
    steps: int,
    seed: int = 0,
    on_rows: Callable[[str, SlotRows], None] | None = None,
) -> Slots:
    """Raise an AssertionError unless the slots over this world keep their invariants.

    They take `steps` steps with random actions. `on_rows` gets every behavior's rows for further
    checks.
    """
    ledger = Ledger(env)
    slots = Slots(ledger)
    rng = np.random.default_rng(seed)
    occupants: dict[str, dict[int, int]] = {}
    reward = group_reward = 0.0
    num_deciding = 0
    rows = slots.reset(seed)
    for step in range(steps + 1):
        for name, row in rows.items():
            _check_row(name, row, occupants.setdefault(name, {}))
            reward += float(row.reward.sum(dtype=np.float64))
            group_reward += float(row.group_reward.sum(dtype=np.float64))
            if on_rows is not None:
                on_rows(name, row)
        if step == steps:
            break
        num_deciding += sum(int(row.deciding.sum()) for row in rows.values())
        actions = {
            name: random_slot_actions(slots.behaviors[name], row, rng)
            for name, row in rows.items()
        }
        rows = slots.step(actions)
    assert ledger.actions == num_deciding, (ledger.actions, num_deciding)
    for counts in slots.counts.values():
        reward += counts.unattributed_reward
        group_reward += counts.unattributed_group_reward
    # Sums of many float32 in another order than the world's.
    assert np.isclose(reward, ledger.reward, rtol=1e-6, atol=1e-3), (
        reward,
        ledger.reward,
    )
    sums = group_reward, ledger.group_reward
    assert np.isclose(*sums, rtol=1e-6, atol=1e-3), sums
    assert ledger.resets == 1, "nothing may be reset because something else ended"
    return slots


def random_slot_actions(
    spec: BehaviorSpec, rows: SlotRows, rng: np.random.Generator
) -> ActionTuple:
    """Random actions [N, ...] for all slots, uniform over what their masks allow."""
    return random_allowed(
        spec.action_spec, rows.action_mask, rows.second_mask, len(rows), rng
    )


class Ledger(ClosesOnExit):
    """A world that counts what passes through it: actions in, rewards out, resets."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self.actions = 0
        self.reward = 0.0
        self.group_reward = 0.0
        self.resets = 0

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return self._env.behaviors

    def capacity(self, behavior: str) -> int | None:
        return self._env.capacity(behavior)

    def reset(
        self,
        seed: int | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> None:
        self._env.reset(seed, parameters)
        self.resets += 1
        self._count()

    def set_parameters(self, parameters: Mapping[str, ParameterValue]) -> None:
        self._env.set_parameters(parameters)

    def set_actions(self, behavior: str, actions: ActionTuple) -> None:
        self._env.set_actions(behavior, actions)
        self.actions += len(actions)

    def step(self) -> None:
        self._env.step()
        self._count()

    def steps(self, behavior: str) -> tuple[DecisionSteps, TerminalSteps]:
        return self._env.steps(behavior)

    def close(self) -> None:
        self._env.close()

    def _count(self) -> None:
        for name in self._env.behaviors:
            for steps in self._env.steps(name):
                self.reward += float(steps.reward.sum(dtype=np.float64))
                self.group_reward += float(steps.group_reward.sum(dtype=np.float64))


def _copied(env: Env) -> Arrays:
    """Copies of all arrays of the present exchange, by names like "Walker decision reward"."""
    copied: Arrays = {}
    for name in env.behaviors:
        decisions, terminals = env.steps(name)
        for kind, steps in (("decision", decisions), ("terminal", terminals)):
            for key, array in _arrays_of(steps):
                copied[f"{name} {kind} {key}"] = array.copy()
    return copied


def _arrays_of(steps: DecisionSteps | TerminalSteps) -> list[tuple[str, NDArray[Any]]]:
    arrays: list[tuple[str, NDArray[Any]]] = []
    for key, value in vars(steps).items():
        if isinstance(value, np.ndarray):
            arrays.append((key, value))
        elif isinstance(value, BranchMasks):
            arrays.append((key, value.flat))
        elif isinstance(value, list):
            arrays += [(f"{key} {i}", part) for i, part in enumerate(value)]
    return arrays


def _same(one: Arrays, other: Arrays) -> bool:
    if one.keys() != other.keys():
        return False
    return all(np.array_equal(one[key], other[key]) for key in one)


def _assert_same_path(path: Path, other_path: Path, when: str) -> None:
    for exchange, (one, other) in enumerate(zip(path, other_path, strict=True)):
        for key in one:
            same = np.array_equal(one[key], other[key])
            assert same, f"{key} differs at exchange {exchange} {when}"


def _check_arrays(env: Env, path: Path) -> None:
    """Shapes, types, finite values and unique ids, in every exchange."""
    for arrays in path:
        for name, spec in env.behaviors.items():
            for kind in ("decision", "terminal"):
                _check_steps(f"{name} {kind}", arrays, spec)
            capacity = env.capacity(name)
            count = len(arrays[f"{name} decision agent_id"])
            assert capacity is None or count <= capacity, f"{name}: over capacity"


def _check_steps(steps: str, arrays: Arrays, spec: BehaviorSpec) -> None:
    ids = arrays[f"{steps} agent_id"]
    assert len(set(ids.tolist())) == len(ids), f"{steps}: an id occurs twice"
    assert arrays[f"{steps} group_id"].shape == ids.shape, steps
    for key in ("reward", "group_reward"):
        assert np.isfinite(arrays[f"{steps} {key}"]).all(), (
            f"{steps}: {key} is not finite"
        )
    for i, sensor in enumerate(spec.observation_specs):
        obs = arrays[f"{steps} obs {i}"]
        assert obs.shape == (len(ids), *sensor.shape), (steps, sensor.name, obs.shape)
        assert obs.dtype == np.float32, (steps, sensor.name, obs.dtype)
        assert np.isfinite(obs).all(), f"{steps}: {sensor.name} is not finite"


def _check_no_shared_memory(env: Env) -> None:
    """Arrays of one exchange stay as they are in later ones."""
    held = []
    for name in env.behaviors:
        for steps in env.steps(name):
            held += [(array, array.copy()) for _, array in _arrays_of(steps)]
    play_randomly(env, 20, seed=1)
    for array, copy in held:
        assert np.array_equal(array, copy), (
            "a later step changed an array handed out earlier"
        )


def _check_state(recipe: EnvRecipe, exchanges: int) -> None:
    """A state continues the same path, here and in another world of the recipe."""
    with make(recipe) as env:
        env.reset(seed=3)
        if not isinstance(env, Stateful):
            return
        play_randomly(env, exchanges // 2)
        state = env.state()
        path = play_randomly(env, exchanges // 2, seed=5)
        env.load_state(state)
        again = play_randomly(env, exchanges // 2, seed=5)
        _assert_same_path(path, again, "after its state was loaded again")
    with make(recipe) as twin:
        assert isinstance(twin, Stateful)
        twin.load_state(state)
        again = play_randomly(twin, exchanges // 2, seed=5)
        _assert_same_path(path, again, "after its state was loaded in another world")


def _check_row(name: str, row: SlotRows, occupants: dict[int, int]) -> None:
    """Check one behavior's rows after a step.

    `occupants`: slot -> id of the agent whose episode is open there. It is updated by this row.
    """
    ended = row.terminated | row.truncated
    assert not (row.terminated & row.truncated).any(), (
        f"{name}: terminated and truncated at once"
    )
    assert not (ended & ~row.closed).any(), f"{name}: an end without the action it ends"
    final_slots = sorted(row.final_slot.tolist())
    assert final_slots == np.flatnonzero(ended).tolist(), (
        f"{name}: ends without last observation"
    )
    assert all(len(obs) == len(row.final_slot) for obs in row.final_obs)
    assert not row.reward[~row.closed].any(), f"{name}: a reward without an action"
    for slot in np.flatnonzero(row.closed).tolist():
        assert slot in occupants, (
            f"{name}: slot {slot} has the result of an action never taken"
        )
        if ended[slot]:
            del occupants[slot]
    for slot in np.flatnonzero(row.deciding).tolist():
        agent_id = int(row.agent_id[slot])
        if row.begins[slot]:
            assert slot not in occupants, (
                f"{name}: slot {slot} begins before the last episode ended"
            )
            occupants[slot] = agent_id
        else:
            assert row.closed[slot], (
                f"{name}: slot {slot} decides again before its action closed"
            )
            same = occupants[slot] == agent_id
            assert same, f"{name}: slot {slot} changed its agent within an episode"
    empty = row.agent_id < 0
    assert not row.deciding[empty].any(), f"{name}: an empty slot decides"
    if row.action_mask is not None:
        assert row.action_mask[empty].all(), f"{name}: an empty slot has a mask"
