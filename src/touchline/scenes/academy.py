"""Unity's Academy, for A areas of G agents at once: when agents decide, end and are rewarded.

One Academy step is one physics step. The order within it (`docs/scenes.md`, "The clock"):

    fixed update → decisions due? → exchange, if an agent decides or has ended
    → act → agents at their step limit → physics

What happens between two looks at the agents is one round: `SceneHooks.play`. Between decisions
Python has nothing to do, so a scene may play several rounds in one compiled call.

Agents are addressed by their index a * G + g in every flat array. There is no object per agent:
ids, behaviors, groups, rewards and stored actions are arrays [A, G].

Source: ML-Agents 3.0.0, `Academy.cs` and `Agent.cs`, as observed in running scenes.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from touchline.errors import RunError
from touchline.physics.kernels import compiled
from touchline.specs import ActionTuple, BehaviorSpec, ObservationSpec
from touchline.steps import DecisionSteps, Exchange, TerminalSteps

_STATE = (
    *("agent_id", "group_id", "behavior", "enabled", "reward", "group_reward"),
    *("step_count", "requested", "continuous", "discrete", "end_sent", "counters"),
)
"""The arrays that make up the state. The names are those of saved runs and do not change."""
MAX_ROUNDS_WITHOUT_EXCHANGE = 100_000
"""As many as `envs.slots` takes exchanges without a decision: no scene waits that long."""
Agents = NDArray[np.intp]
"""Indices a * G + g of K agents."""


class SceneHooks(Protocol):
    """What the Academy calls: the part that differs from scene to scene.

    `scene.Scene` says what each of them does.
    """

    def begin_episodes(self, agents: Agents) -> None: ...

    def observe_all(self, behavior: str, agents: Agents) -> list[NDArray[Any]]: ...

    def action_mask(
        self, behavior: str, agents: Agents
    ) -> list[NDArray[np.bool_]] | None: ...

    def play(self, most: int) -> int: ...


class Academy:
    """The bookkeeping of decisions, episodes and rewards.

    Arrays are [A, G] and may be read and written by the scene.
    """

    def __init__(
        self,
        behaviors: Mapping[str, BehaviorSpec],
        num_areas: int,
        agents_per_area: int,
        *,
        decision_period: int = 5,
        max_step: int = 0,
    ) -> None:
        self.behaviors = dict(behaviors)
        self.names = list(behaviors)
        self.decision_period = decision_period
        self.max_step = max_step
        self.after_round: Callable[[], None] | None = None
        """Called after every round while it is set; rounds are then played one at a time."""

        shape = (num_areas, agents_per_area)
        self.agent_id = np.zeros(shape, np.int32)
        self.group_id = np.zeros(shape, np.int32)
        self.behavior = np.zeros(shape, np.int8)
        """Index into `names`; an agent may move to another behavior."""
        self.enabled = np.ones(shape, np.bool_)
        self.reward = np.zeros(shape, np.float32)
        self.group_reward = np.zeros(shape, np.float32)
        self.step_count = np.zeros(shape, np.int32)
        """Academy steps of the running episode."""
        self.requested = np.zeros(shape, np.bool_)
        """A decision is due at the next Academy step, on the decision period or off it."""
        self.end_sent = np.zeros(shape, np.bool_)
        """The episode ended, and the agent has not decided since."""
        self.counters = np.zeros(2, np.int64)
        """The clock, and the next unused agent id."""
        specs = {name: spec.action_spec for name, spec in behaviors.items()}
        most_continuous = max(spec.continuous_size for spec in specs.values())
        most_discrete = max(spec.discrete_size for spec in specs.values())
        # As wide as the widest of the behaviors needs.
        self.continuous = np.zeros((*shape, most_continuous), np.float32)
        """[A, G, C] what agents do until their next decision; scenes read them."""
        self.discrete = np.zeros((*shape, most_discrete), np.int32)
        """[A, G, D] likewise."""
        continuous = self.continuous.reshape(self.enabled.size, most_continuous)
        discrete = self.discrete.reshape(self.enabled.size, most_discrete)
        self._actions: list[NDArray[Any]] = [continuous, discrete]
        """[A * G, actions]: views."""
        self._columns: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {
            name: (
                continuous[:, : spec.continuous_size],
                discrete[:, : spec.discrete_size],
            )
            for name, spec in specs.items()
        }
        """The columns that each behavior uses: views."""

        sent = (self.reward, self.agent_id, self.group_id, self.group_reward)
        self._sent: list[NDArray[Any]] = [array.reshape(-1) for array in sent]
        """What every step carries in addition to observations, by agent: views."""
        self._due: dict[str, Agents] = {}
        """The agents that decided in the last exchange, in its order."""
        self._ended: dict[str, list[TerminalSteps]] = {name: [] for name in behaviors}
        """Ends since the last exchange."""
        self.add_sensors()

        self._all_agents = np.arange(num_areas * agents_per_area)
        self.order = self._all_agents
        """The order of a single behavior's agents when all of them decide.

        `SceneHooks.observe` then gets this very array."""
        self._all_by_behavior: tuple[bytes, list[tuple[str, Agents]]] = b"", []
        """All agents split by behavior, and the bytes of `behavior` that this was made from."""
        self.restart()

    def add_sensors(self, *sensors: ObservationSpec) -> None:
        """Agents of all behaviors observe these, too, after their own sensors."""
        for name, spec in self.behaviors.items():
            observed = (*spec.observation_specs, *sensors)
            self.behaviors[name] = replace(spec, observation_specs=observed)
        self._no_decisions = {
            name: DecisionSteps.empty(spec) for name, spec in self.behaviors.items()
        }
        self._no_ends = {
            name: TerminalSteps.empty(spec) for name, spec in self.behaviors.items()
        }

    @property
    def clock(self) -> int:
        """Academy steps since the last reset."""
        return int(self.counters[0])

    def restart(self) -> None:
        """The start of a world: first ids, no groups, no rewards, no stored actions."""
        for array in self._arrays().values():
            array.fill(0)
        self.enabled.fill(True)
        self.agent_id.reshape(-1)[:] = self._all_agents
        self.counters[:] = 0, self.agent_id.size
        self._due = {}
        self._forget_ends()

    def restart_clock(self) -> None:
        """What a RESET does: the clock restarts, running episodes vanish without an end."""
        self.counters[0] = 0
        self.step_count.fill(0)
        self.reward.fill(0)
        self.group_reward.fill(0)
        self.requested.fill(False)
        self.end_sent.fill(False)
        self._forget_actions(self._all_agents)
        self._forget_ends()

    def set_actions(self, behavior: str, actions: ActionTuple) -> None:
        """Store the actions of the agents of `behavior` that decided in the last exchange.

        Rows are in the order of that exchange.
        """
        agents = self._due[behavior]
        continuous, discrete = self._columns[behavior]
        if continuous.shape[1]:
            continuous[agents] = actions.continuous
        if discrete.shape[1]:
            discrete[agents] = actions.discrete

    def end(
        self, scene: SceneHooks, agents: Agents, *, interrupted: bool = False
    ) -> None:
        """End the episodes of K agents: a terminal step takes their observations and rewards.

        A second end before the agent has decided again is ignored. The caller begins the next
        episodes.
        """
        flat = np.asarray(agents)
        has_ended = self.end_sent.reshape(-1)[flat]
        ending = flat[~has_ended]
        for name, chosen in self._by_behavior(ending):
            sent = [array[chosen] for array in self._sent]
            reward, agent_id, group_id, group_reward = sent
            self._ended[name].append(
                TerminalSteps(
                    obs=scene.observe_all(name, chosen),
                    reward=reward,
                    interrupted=np.full(len(chosen), interrupted),
                    agent_id=agent_id,
                    group_id=group_id,
                    group_reward=group_reward,
                )
            )
        self.reward.reshape(-1)[ending] = 0.0
        self.group_reward.reshape(-1)[ending] = 0.0
        self.end_sent.reshape(-1)[ending] = True
        self.step_count.reshape(-1)[flat] = 0
        # An agent does nothing between its end and its next decision.
        self._forget_actions(flat)

    @property
    def has_news(self) -> bool:
        """Whether an agent has ended or requests a decision since the last exchange."""
        if any(self._ended.values()):
            return True
        return self._is_decision_requested()

    def interrupt_overdue(self, scene: SceneHooks) -> None:
        """Interrupt agents at their step limit and begin their next episodes."""
        if self.max_step and _largest(self.step_count) >= self.max_step:
            overdue = np.flatnonzero(self.enabled & (self.step_count >= self.max_step))
            self.end(scene, overdue, interrupted=True)
            scene.begin_episodes(overdue)

    def disable(self, scene: SceneHooks, agents: Agents) -> None:
        """Remove K agents from the world: their episodes end and they decide no more."""
        self.end(scene, agents)
        self.enabled.reshape(-1)[agents] = False

    def enable(self, agents: Agents) -> None:
        """Return K agents to the world, in this order, each under the next unused id."""
        self.enabled.reshape(-1)[agents] = True
        count = len(agents)
        new_ids = self.counters[1] + np.arange(count)
        self.agent_id.reshape(-1)[agents] = new_ids
        self.counters[1] += count
        self.step_count.reshape(-1)[agents] = 0
        self.end_sent.reshape(-1)[agents] = False

    def advance(self, scene: SceneHooks) -> Exchange:
        """Play rounds until an agent decides or has ended: the next exchange.

        Raises a RunError where that does not happen for a very long time.
        """
        rounds = 0
        while rounds < MAX_ROUNDS_WITHOUT_EXCHANGE:
            if self.after_round is None:
                rounds += scene.play(self._rounds_to_play())
            else:
                rounds += scene.play(1)
                self.after_round()
            exchange = self.collect(scene)
            if exchange is not None:
                return exchange
        disabled = np.count_nonzero(~self.enabled)
        raise RunError(
            f"no agent has decided or ended in {MAX_ROUNDS_WITHOUT_EXCHANGE} steps of the scene; "
            f"{disabled} of its {self.enabled.size} agents are disabled, and a scene must `enable` "
            "them again"
        )

    def advance_clock(self, rounds: int) -> None:
        """Count rounds after which no agent decided or ended."""
        if rounds:
            self.counters[0] += rounds
            _count(self.step_count, self.enabled, rounds)

    def collect(self, scene: SceneHooks) -> Exchange | None:
        """The exchange that is due after a round, or None; counts that round."""
        # Before the round is counted: a decision is due where the clock stood at a multiple.
        deciding = self._deciding()
        self.advance_clock(1)
        if not len(deciding) and not any(self._ended.values()):
            return None
        decisions = self._decisions(scene, deciding)
        for array in (self.reward, self.group_reward, self.requested, self.end_sent):
            # A fill is faster than an index of everything.
            if deciding is self._all_agents:
                array.fill(0)
            else:
                array.reshape(-1)[deciding] = 0
        exchange = {}
        for name, chunks in self._ended.items():
            ends = _joined(chunks) if chunks else self._no_ends[name]
            exchange[name] = decisions[name], ends
            chunks.clear()
        return exchange

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to continue from the last exchange, as copies."""
        arrays = self._arrays()
        for name, agents in self._due.items():
            arrays[f"due/{name}"] = agents
        return {name: array.copy() for name, array in arrays.items()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned, in an Academy of the same sizes."""
        for name, array in self._arrays().items():
            array[...] = state[name]
        self._due = {}
        for name in self.names:
            agents = state.get(f"due/{name}")
            # A world that was only reset has no agents that decided.
            if agents is not None:
                self._due[name] = agents.copy()
        self._forget_ends()

    def _decisions(
        self, scene: SceneHooks, deciding: Agents
    ) -> dict[str, DecisionSteps]:
        """The decision steps of these agents by behavior; from here on their actions are due."""
        self._due = dict.fromkeys(self.names, deciding[:0])
        decisions = dict(self._no_decisions)
        for name, agents in self._by_behavior(deciding):
            self._due[name] = agents
            sent = [array[agents] for array in self._sent]
            reward, agent_id, group_id, group_reward = sent
            decisions[name] = DecisionSteps(
                obs=scene.observe_all(name, agents),
                reward=reward,
                agent_id=agent_id,
                action_mask=scene.action_mask(name, agents),
                group_id=group_id,
                group_reward=group_reward,
            )
        return decisions

    def _deciding(self) -> Agents:
        if self.clock % self.decision_period == 0:
            # The common case gives one and the same array, by which others recognize it.
            all_enabled = np.count_nonzero(self.enabled) == self.enabled.size
            return self._all_agents if all_enabled else np.flatnonzero(self.enabled)
        if np.count_nonzero(self.requested):
            return np.flatnonzero(self.enabled & self.requested)
        return self._all_agents[:0]

    def _rounds_to_play(self) -> int:
        """Rounds up to the next decision, cut short where an agent could reach its step limit."""
        # Up to and with the round at the next multiple of the period.
        rounds = -self.clock % self.decision_period + 1
        if self.max_step:
            rounds = min(rounds, self.max_step - _largest(self.step_count))
        if self._is_decision_requested():
            rounds = 1
        return max(rounds, 1)  # an overdue agent is interrupted in the next round

    def _is_decision_requested(self) -> bool:
        # Requests are rare, and counting them is cheaper than `&`.
        if not np.count_nonzero(self.requested):
            return False
        return bool(np.count_nonzero(self.requested & self.enabled))

    def _forget_actions(self, agents: Agents) -> None:
        """Let these agents do nothing (zeros) until their next decision."""
        for actions in self._actions:
            actions[agents] = 0

    def _forget_ends(self) -> None:
        for chunks in self._ended.values():
            chunks.clear()

    def _by_behavior(self, agents: Agents) -> list[tuple[str, Agents]]:
        """These agents split by behavior; behaviors without any are left out."""
        if len(self.names) == 1:
            agents = self.order if agents is self._all_agents else agents
            return [(self.names[0], agents)] if len(agents) else []
        if agents is not self._all_agents:
            return self._split(agents)
        # Splitting all agents takes longer than comparing the few bytes that decide it.
        behavior = self.behavior.tobytes()
        if behavior != self._all_by_behavior[0]:
            self._all_by_behavior = behavior, self._split(agents)
        return self._all_by_behavior[1]

    def _split(self, agents: Agents) -> list[tuple[str, Agents]]:
        behavior = self.behavior.reshape(-1)[agents]
        split = []
        for k, name in enumerate(self.names):
            chosen = agents[behavior == k]
            if len(chosen):
                split.append((name, chosen))
        return split

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, name) for name in _STATE}


@compiled
def _count(
    step_count: NDArray[np.int32], enabled: NDArray[np.bool_], rounds: int
) -> None:
    for area in range(len(enabled)):
        for agent in range(enabled.shape[1]):
            if enabled[area, agent]:
                step_count[area, agent] += rounds


@compiled
def _largest(step_count: NDArray[np.int32]) -> int:
    largest = 0
    for area in range(len(step_count)):
        for agent in range(step_count.shape[1]):
            largest = max(largest, step_count[area, agent])
    return largest


def _joined(chunks: list[TerminalSteps]) -> TerminalSteps:
    if len(chunks) == 1:
        return chunks[0]
    by_sensor = zip(*(chunk.obs for chunk in chunks), strict=True)
    joined: dict[str, Any] = {}
    for name in ("reward", "interrupted", "agent_id", "group_id", "group_reward"):
        joined[name] = np.concatenate([getattr(chunk, name) for chunk in chunks])
    obs = [np.concatenate(parts) for parts in by_sensor]
    return TerminalSteps(obs=obs, **joined)
