"""What ML-Agents' two PettingZoo wrappers share: all agents by name, in PettingZoo's old interface
with `dones`.

For code that was written for ML-Agents' wrappers. New code takes `touchline.make_pettingzoo`. An
agent's name is `<behavior>?agent_id=<id>`. As in ML-Agents, an agent whose episode ended leaves,
and comes back under the same name when its next episode begins.
"""

from typing import Any

import numpy as np
from gymnasium import error, spaces
from numpy.typing import NDArray

from touchline.adapters.mlagents_envs.envs.env_helpers import behavior_of, name_of
from touchline.envs.actions import choose_allowed
from touchline.envs.ml_agents_names import MLAgentsWorld
from touchline.specs import ActionSpec, ActionTuple, BehaviorSpec
from touchline.steps import DecisionSteps, TerminalSteps, flat_mask


class UnityPettingzooBaseEnv:
    """The agents of a world by name; closes the world."""

    def __init__(
        self,
        env: MLAgentsWorld,
        seed: int | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if env is None:
            raise error.Error("expected an environment, got None")
        self._env = env
        self._is_closed = False
        self._seed = seed
        self.metadata = metadata or {}
        self._observation_spaces: dict[str, spaces.Space[Any]] = {}
        self._action_spaces: dict[str, spaces.Space[Any]] = {}
        self._actions: dict[str, ActionTuple] = {}
        self._rows: dict[str, int] = {}
        """Each deciding agent's row among its behavior's actions."""
        self._live: list[str] = []
        self._possible: set[str] = set()
        self._order: list[str] = []
        """All agents of the last exchange, in the order in which an AECEnv asks them."""
        self._index = 0
        """Whose turn it is in this order."""
        self._observations: dict[str, Any] = {}
        self._rewards: dict[str, float] = {}
        self._dones: dict[str, bool] = {}
        self._infos: dict[str, dict[str, Any]] = {}
        self._cumulative: dict[str, float] = {}
        if not self._env.behavior_specs:
            # A player announces its behaviors with its first exchange.
            self._env.step()
            self._read()
        self._describe()

    @property
    def side_channel(self) -> dict[str, Any]:
        """The world's side channels by the names of their classes."""
        channels = getattr(self._env, "_channels", None)
        return {} if channels is None else {type(c).__name__: c for c in channels}

    @property
    def agents(self) -> list[str]:
        """Those that can act now."""
        return sorted(self._live)

    @property
    def possible_agents(self) -> list[str]:
        """All that appeared since the last reset."""
        return sorted(self._possible)

    @property
    def observation_spaces(self) -> dict[str, spaces.Space[Any]]:
        return {agent: self.observation_space(agent) for agent in self._possible}

    @property
    def action_spaces(self) -> dict[str, spaces.Space[Any]]:
        return {agent: self.action_space(agent) for agent in self._possible}

    @property
    def rewards(self) -> dict[str, float]:
        return dict(self._rewards)

    @property
    def dones(self) -> dict[str, bool]:
        return dict(self._dones)

    @property
    def infos(self) -> dict[str, dict[str, Any]]:
        """`behavior_name`, `group_id`, `group_reward`; at an end also `interrupted`."""
        return dict(self._infos)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """A Box, or a Tuple of Boxes for several sensors."""
        return self._observation_spaces[behavior_of(agent)]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """A Box, Discrete, MultiDiscrete, or a Tuple of a Box and one of these."""
        return self._action_spaces[behavior_of(agent)]

    def reset(self) -> Any:
        self._refuse_closed()
        self._env.reset()
        self._read()
        # What ends in this exchange had begun before the reset.
        for agent in self._order:
            if self._dones[agent]:
                self._remove(agent)
        self._order = list(self._live)
        self._possible = set(self._live)
        self._rewards = dict.fromkeys(self._order, 0.0)
        self._cumulative = dict.fromkeys(self._order, 0.0)
        self._dones = dict.fromkeys(self._order, False)

    def seed(self, seed: int | None = None) -> None:
        """Seed the action spaces of behaviors that appear later."""
        self._seed = seed

    def render(self, mode: str = "human") -> None:
        """Nothing: a player draws in a window of its own."""

    def state(self) -> None:
        """Nothing: a world has no common state."""

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._env.close()

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise error.Error("this environment is closed; make a new one")

    def _set_action(self, agent: str, action: Any) -> None:
        """Keep one agent's action until the world is stepped; an ended agent leaves instead."""
        if self._dones[agent]:
            self._remove(agent)
            return
        behavior = behavior_of(agent)
        space = self._action_spaces[behavior]
        is_pair = isinstance(space, spaces.Tuple)
        parts = action if is_pair else [action]
        of_parts = space.spaces if is_pair else [space]
        try:
            values = [
                np.asarray(part, of_part.dtype).reshape(of_part.shape or ())
                for part, of_part in zip(parts, of_parts, strict=True)
            ]
            is_valid = space.contains(tuple(values) if is_pair else values[0])
        except (TypeError, ValueError):
            is_valid = False
        if not is_valid:
            raise error.Error(f"{agent}: expected an action in {space}, got {action!r}")
        row, actions = self._rows[agent], self._actions[behavior]
        for of_part, value in zip(of_parts, values, strict=True):
            is_continuous = isinstance(of_part, spaces.Box)
            kind = actions.continuous if is_continuous else actions.discrete
            kind[row] = value

    def _remove(self, agent: str) -> None:
        self._live.remove(agent)
        for table in (self._observations, self._rewards, self._dones, self._infos):
            del table[agent]
        self._cumulative.pop(agent, None)

    def _step(self) -> None:
        for behavior, actions in self._actions.items():
            self._env.set_actions(behavior, actions)
        self._env.step()
        self._read()

    def _read(self) -> None:
        self._order, self._index = [], 0
        self._rows, self._actions = {}, {}
        self._observations, self._rewards, self._dones, self._infos = {}, {}, {}, {}
        self._describe()
        for behavior, spec in self._env.behavior_specs.items():
            decisions, terminals = self._env.get_steps(behavior)
            self._actions[behavior] = _idle(spec.action_spec, decisions)
            # An agent may be in both: then it shows the beginning of its next episode, as in
            # ML-Agents.
            self._enter(behavior, terminals, None)
            self._enter(behavior, decisions, decisions.action_mask)
        self._cumulative = dict(self._rewards)
        self._live = list(self._order)
        self._possible |= set(self._order)

    def _describe(self) -> None:
        for behavior, spec in self._env.behavior_specs.items():
            if behavior not in self._observation_spaces:
                self._observation_spaces[behavior] = _observation_space(spec)
                self._action_spaces[behavior] = _action_space(spec, self._seed)

    def _enter(
        self, behavior: str, steps: DecisionSteps | TerminalSteps, masks: Any
    ) -> None:
        for row, agent_id in enumerate(steps.agent_id):
            agent = name_of(behavior, agent_id)
            if agent not in self._dones:
                self._order.append(agent)
            obs: Any = [sensor[row] for sensor in steps.obs]
            if masks is not None:
                mask = [branch[row] for branch in masks]
                obs = {"observation": obs, "action_mask": mask}
            elif len(obs) == 1:
                obs = obs[0]
            self._observations[agent] = obs
            self._rewards[agent] = float(steps.reward[row])
            self._infos[agent] = {
                "behavior_name": behavior,
                "group_id": steps.group_id[row],
                "group_reward": steps.group_reward[row],
            }
            self._dones[agent] = isinstance(steps, TerminalSteps)
            if isinstance(steps, TerminalSteps):
                self._infos[agent]["interrupted"] = steps.interrupted[row]
            else:
                self._rows[agent] = row


def _idle(spec: ActionSpec, decisions: DecisionSteps) -> ActionTuple:
    """What agents without an action do: nothing, or their first allowed choice where 0 is masked.

    ML-Agents sends 0 in any case, which worlds of Touchline refuse where it is masked.
    """
    idle = spec.empty_action(len(decisions))
    if decisions.action_mask is None:
        return idle
    second = decisions.second_mask
    discrete = choose_allowed(
        spec,
        # Worlds mask what is forbidden, and here True = allowed.
        ~flat_mask(decisions.action_mask),
        None if second is None else ~second,
    )
    return ActionTuple(idle.continuous, discrete)


def _observation_space(spec: BehaviorSpec) -> spaces.Space[Any]:
    boxes = [
        spaces.Box(-np.inf, np.inf, sensor.shape, np.float32)
        for sensor in spec.observation_specs
    ]
    return boxes[0] if len(boxes) == 1 else spaces.Tuple(boxes)


def _action_space(spec: BehaviorSpec, seed: int | None) -> spaces.Space[Any]:
    action = spec.action_spec
    parts: list[spaces.Space[Any]] = []
    if action.continuous_size:
        parts.append(spaces.Box(-1.0, 1.0, (action.continuous_size,), np.float32))
    if action.discrete_size == 1:
        parts.append(spaces.Discrete(action.discrete_branches[0]))
    elif action.discrete_size:
        branches: NDArray[np.int64] = np.array(action.discrete_branches, np.int64)
        parts.append(spaces.MultiDiscrete(branches))
    if not parts:
        raise error.Error("this behavior takes no actions")
    space = parts[0] if len(parts) == 1 else spaces.Tuple(parts)
    if seed is not None:
        space.seed(seed)
    return space
