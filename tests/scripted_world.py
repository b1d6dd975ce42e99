"""A world without a game, for tests of what stands on worlds.

Its agents end, appear, vanish and move in every way that agents can, and each observation names its
agent and its episode, so a broken link is easy to find.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from touchline.envs.env import ClosesOnExit
from touchline.parameters import ParameterValue
from touchline.specs import ActionSpec, ActionTuple, BehaviorSpec, ObservationSpec
from touchline.steps import DecisionSteps, TerminalSteps


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

    def capacity(self, behavior: str) -> int | None:
        return None if self._births else self._num_agents

    def reset(
        self,
        seed: int | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
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
        area: int = 0,
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
