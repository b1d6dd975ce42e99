"""Checks that a world keeps its contract, to run on your own worlds.

    from touchline.testing import check_env, check_slots
    check_env(EnvRecipe("scene", "3DBall"))

`ScriptedWorld` is a world without a game. Its agents end, appear, vanish and move in every way that
agents can, and each observation names its agent and its episode, so a broken link is easy to find.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.envs.actions import random_allowed
from touchline.envs.env import ClosesOnExit, Env, EnvRecipe, Stateful, make
from touchline.envs.slots import SlotRows, Slots
from touchline.parameters import ParameterValue
from touchline.specs import ActionSpec, ActionTuple, BehaviorSpec, ObservationSpec
from touchline.steps import BranchMasks, DecisionSteps, TerminalSteps, flat_mask

Arrays = dict[str, NDArray[Any]]
Path = list[Arrays]
"""The arrays of one exchange after the other."""


def allowed_actions(
    spec: ActionSpec,
    decisions: DecisionSteps,
    rng: np.random.Generator,
    extent: float = 1.0,
) -> ActionTuple:
    """Random actions for these agents, uniform over what their masks allow.

    Continuous actions are in [-extent, extent).
    """
    # Worlds mask what is forbidden; from slots onward, True = allowed.
    allowed = (
        None if decisions.action_mask is None else ~flat_mask(decisions.action_mask)
    )
    second = None if decisions.second_mask is None else ~decisions.second_mask
    actions = random_allowed(spec, allowed, second, len(decisions), rng)
    return ActionTuple(actions.continuous * np.float32(extent), actions.discrete)


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


@dataclass
class ScriptedAgent:
    """An agent of a `ScriptedWorld`."""

    behavior: str
    period: int
    """Ticks from one decision to the next."""
    episode: int = 0
    age: int = 0
    """Ticks since its episode began."""
    reward: float = 0.0
    """Earned since its last decision, as is the group reward."""
    group_reward: float = 0.0
    has_decided: bool = False
    """Under its present behavior."""


@dataclass(frozen=True)
class EpisodeEnd:
    """The end of an agent's episode, as its TerminalSteps report it."""

    behavior: str
    agent_id: int
    obs: list[int]
    reward: float = 0.0
    group_reward: float = 0.0
    interrupted: bool = False


class ScriptedWorld(ClosesOnExit):
    """Agents that end between decisions, die, appear, vanish, move to another behavior, and decide
    unevenly.

    Each observation [4] is (id, episode of that id, age within the episode, tick). Rewards are
    multiples of 1/8, so sums are exact. `moves`, `births` and `vanishings` switch these events off
    for adapters that refuse them. With `staged`, what the later branches allow depends on the
    first.
    """

    def __init__(
        self,
        num_agents: int = 6,
        *,
        periods: tuple[int, ...] = (1, 2, 3, 5),
        moves: bool = True,
        births: bool = True,
        vanishings: bool = True,
        branches: tuple[int, ...] = (3, 2),
        staged: bool = False,
        names: tuple[str, ...] | None = None,
    ) -> None:
        """`names` are the behaviors; by default two, or one without moves."""
        actions = ActionSpec(1, branches, staged)
        self.spec = BehaviorSpec((ObservationSpec((4,), name="who"),), actions)
        default_names = (
            ("Walker?team=0", "Jumper?team=0") if moves else ("Walker?team=0",)
        )
        self.names = names or default_names
        self.agents: dict[int, ScriptedAgent] = {}
        self.tick = 0
        self.exchange: dict[str, tuple[DecisionSteps, TerminalSteps]] = {}
        self._num_agents = num_agents
        self._periods = periods
        self._moves = moves
        self._births = births
        self._vanishings = vanishings
        self.reset(0)

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return dict.fromkeys(self.names, self.spec)

    def capacity(self, behavior: str) -> int | None:  # noqa: ARG002
        return None if self._births else self._num_agents

    def reset(
        self,
        seed: int | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,  # noqa: ARG002
    ) -> None:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.tick = 0
        self._next_id = self._num_agents
        self.agents = {}
        for agent_id in range(self._num_agents):
            name = self.names[agent_id % len(self.names)]
            period = self._periods[agent_id % len(self._periods)]
            self.agents[agent_id] = ScriptedAgent(name, period)
        self.observe([])

    def set_parameters(self, parameters: Mapping[str, ParameterValue]) -> None:
        assert not parameters, "a scripted world has no parameters"

    def set_actions(self, behavior: str, actions: ActionTuple) -> None:
        assert len(actions) == len(self.exchange[behavior][0])

    def step(self) -> None:
        while True:
            self.tick += 1
            ends = []
            for agent_id in list(self.agents):
                end = self.step_agent(agent_id)
                if end is not None:
                    ends.append(end)
            self._maybe_add_agent()
            self.observe(ends)
            if any(len(steps) for pair in self.exchange.values() for steps in pair):
                return

    def steps(self, behavior: str) -> tuple[DecisionSteps, TerminalSteps]:
        return self.exchange[behavior]

    def render(
        self,
        area: int = 0,  # noqa: ARG002
        width: int = 64,
        height: int = 48,
    ) -> NDArray[np.uint8]:
        return np.zeros((height, width, 3), np.uint8)

    def close(self) -> None:
        """Nothing to release."""

    def step_agent(self, agent_id: int) -> EpisodeEnd | None:
        """One tick of one agent: it earns rewards and may move, vanish or end; its end, if any."""
        agent = self.agents[agent_id]
        chance = self._rng.random()
        agent.age += 1
        agent.reward += int(self._rng.integers(-8, 9)) / 8
        agent.group_reward += int(self._rng.integers(0, 3)) / 8
        # An agent that has not decided yet under its behavior moves without a trace.
        if self._moves and chance < 0.01 and agent.has_decided:
            agent.behavior = self._random_name(other_than=agent.behavior)
            agent.episode += 1
            agent.age = 0
            agent.has_decided = False
            return None
        if self._vanishings and chance > 0.999:
            del self.agents[agent_id]
            return None
        if not 0.01 <= chance < 0.12:
            return None
        end = EpisodeEnd(
            behavior=agent.behavior,
            agent_id=agent_id,
            obs=self._observation(agent_id),
            reward=agent.reward,
            group_reward=agent.group_reward,
            interrupted=chance < 0.05,
        )
        if self._births and chance > 0.09:
            del self.agents[agent_id]  # it dies; another one appears later
        agent.episode += 1
        agent.age = 0
        agent.reward = agent.group_reward = 0.0
        return end

    def observe(self, ends: Sequence[EpisodeEnd]) -> None:
        """Make the exchange of this tick: who ended, and who decides now."""
        for name in self.names:
            due = {
                agent_id: agent
                for agent_id, agent in self.agents.items()
                if agent.behavior == name and self._is_due(agent_id)
            }
            decisions = self._decisions(due)
            for agent in due.values():
                agent.reward = agent.group_reward = 0.0
                agent.has_decided = True
            own_ends = [end for end in ends if end.behavior == name]
            self.exchange[name] = decisions, _terminals(own_ends)

    def _is_due(self, agent_id: int) -> bool:
        period = self.agents[agent_id].period
        return self.tick == 0 or self.tick % period == agent_id % period

    def _observation(self, agent_id: int) -> list[int]:
        agent = self.agents[agent_id]
        return [agent_id, agent.episode, agent.age, self.tick]

    def _decisions(self, due: Mapping[int, ScriptedAgent]) -> DecisionSteps:
        count = len(due)
        obs = [self._observation(agent_id) for agent_id in due]
        masks = [
            self._rng.random((count, choices)) < 0.3
            for choices in self.spec.action_spec.discrete_branches
        ]
        for forbidden in masks:
            forbidden[:, 0] = False  # something must be allowed
        decisions = DecisionSteps(
            obs=[np.array(obs, np.float32).reshape(count, 4)],
            reward=np.array([agent.reward for agent in due.values()], np.float32),
            agent_id=np.array(list(due), np.int32),
            action_mask=masks,
            group_id=np.ones(count, np.int32),
            group_reward=np.array(
                [agent.group_reward for agent in due.values()], np.float32
            ),
        )
        return (
            self._staged(decisions, masks)
            if self.spec.action_spec.staged
            else decisions
        )

    def _staged(
        self, decisions: DecisionSteps, masks: Sequence[NDArray[np.bool_]]
    ) -> DecisionSteps:
        """With a second-stage mask.

        Each choice of the first branch allows at least one choice of each later branch.
        """
        first, *later = self.spec.action_spec.discrete_branches
        second = [
            self._rng.random((len(decisions), first, choices)) < 0.5
            for choices in later
        ]
        for mask in second:
            # At least one choice stays allowed behind every first one.
            row = np.arange(first)
            mask[:, row, row % mask.shape[-1]] = False
        # The flat mask forbids of a later branch what no first choice would allow.
        flat = [masks[0], *(np.all(mask, axis=1) for mask in second)]
        return replace(
            decisions, action_mask=flat, second_mask=np.concatenate(second, axis=-1)
        )

    def _maybe_add_agent(self) -> None:
        # The draws of a run stay the same only if their order does: the chance comes first.
        if not self._births or self._rng.random() >= 0.05:
            return
        if len(self.agents) >= 2 * self._num_agents:
            return
        name = self._random_name()
        drawn = int(self._rng.integers(len(self._periods)))
        period = self._periods[drawn]
        self.agents[self._next_id] = ScriptedAgent(name, period)
        self._next_id += 1

    def _random_name(self, other_than: str = "") -> str:
        names = [name for name in self.names if name != other_than] or self.names
        return names[int(self._rng.integers(len(names)))]


def _terminals(ends: Sequence[EpisodeEnd]) -> TerminalSteps:
    count = len(ends)
    obs = np.array([end.obs for end in ends], np.float32)
    return TerminalSteps(
        obs=[obs.reshape(count, 4)],  # also of no ends
        reward=np.array([end.reward for end in ends], np.float32),
        interrupted=np.array([end.interrupted for end in ends], np.bool_),
        agent_id=np.array([end.agent_id for end in ends], np.int32),
        group_id=np.ones(count, np.int32),
        group_reward=np.array([end.group_reward for end in ends], np.float32),
    )


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
