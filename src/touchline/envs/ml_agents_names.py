"""The names of ML-Agents' Python API (`mlagents_envs.base_env.BaseEnv`, 1.1.0) for our worlds, and
worlds that have no other names, for us.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from touchline.envs.actions import ActionError, as_actions, check_actions
from touchline.envs.env import ClosesOnExit, Env
from touchline.errors import UsageError
from touchline.parameters import ParameterValue
from touchline.specs import ActionTuple, BehaviorSpec
from touchline.steps import DecisionSteps, TerminalSteps

logger = logging.getLogger(__name__)


class MLAgentsNames(ABC):
    """What makes an `Env` an `MLAgentsEnv`: the ways to give it actions, and Unity's masks."""

    name: str
    """What messages call the world."""
    exchanges: int
    """Number of the last exchange, for messages."""

    @property
    @abstractmethod
    def behaviors(self) -> Mapping[str, BehaviorSpec]: ...

    @abstractmethod
    def steps(self, behavior: str) -> tuple[DecisionSteps, TerminalSteps]: ...

    @abstractmethod
    def execute(self, behavior: str, actions: ActionTuple) -> None:
        """Set actions without checking them."""

    @abstractmethod
    def _actions_so_far(self, behavior: str) -> ActionTuple | None:
        """The actions that were set since the last exchange; None: none yet."""

    @property
    def behavior_specs(self) -> Mapping[str, BehaviorSpec]:
        """Full behavior name -> spec: `behaviors`."""
        return self.behaviors

    def get_steps(self, behavior_name: str) -> tuple[DecisionSteps, TerminalSteps]:
        """`steps`, with masks as Unity sends them.

        Wherever agents choose in discrete branches there are arrays, all False where everything is
        allowed. In `steps` that is None, which costs nothing.
        """
        decisions, terminals = self.steps(behavior_name)
        branches = self.behaviors[behavior_name].action_spec.discrete_branches
        if branches and len(decisions) and decisions.action_mask is None:
            masks = [np.zeros((len(decisions), size), np.bool_) for size in branches]
            decisions = replace(decisions, action_mask=masks)
        return decisions, terminals

    def set_actions(self, behavior: str, actions: ActionTuple | NDArray[Any]) -> None:
        """Actions for the agents of `steps(behavior)[0]`, in that order.

        A bare array [agents, actions] is taken where the behavior has actions of one kind. Raises
        an ActionError for a wrong shape, a choice out of range or a masked choice.
        """
        decisions, _ = self.steps(behavior)
        if not isinstance(actions, ActionTuple):
            spec = self.behaviors[behavior].action_spec
            actions = as_actions(behavior, spec, actions)
        self._check(behavior, actions, decisions)
        self.execute(behavior, actions)

    def set_action_for_agent(
        self, behavior_name: str, agent_id: int, action: ActionTuple | NDArray[Any]
    ) -> None:
        """The action of one agent; others of the behavior do nothing unless theirs is set too.

        Raises an ActionError for an agent that needs no decision, and as `set_actions`.
        """
        decisions, _ = self.steps(behavior_name)
        if agent_id not in decisions:
            raise ActionError(
                f"{behavior_name}: agent {agent_id} needs no decision; those that do: "
                f"{list(decisions)[:20]}"
            )
        spec = self.behaviors[behavior_name].action_spec
        own = as_actions(behavior_name, spec, action)
        row = decisions.agent_id_to_index[agent_id]
        self._check(behavior_name, own, _one_of(decisions, row))
        before = self._actions_so_far(behavior_name)
        together = before or spec.empty_action(len(decisions))
        # Copies: what was set before may be the caller's own arrays.
        continuous = together.continuous.copy()
        discrete = together.discrete.copy()
        continuous[row] = own.continuous[0]
        discrete[row] = own.discrete[0]
        self.execute(behavior_name, ActionTuple(continuous, discrete))

    def _check(
        self, behavior: str, actions: ActionTuple, decisions: DecisionSteps
    ) -> None:
        """Raise an ActionError unless these actions fit the agents of `decisions`."""
        spec = self.behaviors[behavior].action_spec
        check_actions(self.name, behavior, spec, actions, decisions, self.exchanges)


def _one_of(decisions: DecisionSteps, row: int) -> DecisionSteps:
    """One agent alone."""
    one = slice(row, row + 1)
    masks, second = decisions.action_mask, decisions.second_mask
    return DecisionSteps(
        obs=[obs[one] for obs in decisions.obs],
        reward=decisions.reward[one],
        agent_id=decisions.agent_id[one],
        action_mask=None if masks is None else [mask[one] for mask in masks],
        group_id=decisions.group_id[one],
        group_reward=decisions.group_reward[one],
        second_mask=None if second is None else second[one],
    )


@runtime_checkable
class MLAgentsWorld(Protocol):
    """What ML-Agents' `BaseEnv` asks of its subclasses; `as_env` makes an `Env` of one."""

    @property
    def behavior_specs(self) -> Mapping[str, BehaviorSpec]: ...

    def step(self) -> None: ...

    def reset(self) -> None: ...

    def close(self) -> None: ...

    def set_actions(self, behavior_name: str, action: ActionTuple, /) -> None: ...

    def get_steps(
        self, behavior_name: str, /
    ) -> tuple[DecisionSteps, TerminalSteps]: ...


class WrappedWorld(ClosesOnExit):
    """A world with ML-Agents' interface alone, as an `Env`.

    It takes no seed and no parameters, and does not say how many agents it may create.
    """

    def __init__(self, world: MLAgentsWorld) -> None:
        self._world = world

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return self._world.behavior_specs

    def capacity(self, behavior: str) -> int | None:  # noqa: ARG002
        return None

    def reset(
        self,
        seed: int | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> None:
        if seed is not None:
            logger.warning(
                "%s takes no seed, so seed %s has no effect",
                type(self._world).__name__,
                seed,
            )
        self.set_parameters(parameters or {})
        self._world.reset()

    def set_parameters(self, parameters: Mapping[str, ParameterValue]) -> None:
        if parameters:
            raise UsageError(
                f"{type(self._world).__name__} takes no parameters, got "
                f"{', '.join(parameters)}; send them through its side channels"
            )

    def set_actions(self, behavior: str, actions: ActionTuple) -> None:
        self._world.set_actions(behavior, actions)

    def step(self) -> None:
        self._world.step()

    def steps(self, behavior: str) -> tuple[DecisionSteps, TerminalSteps]:
        return self._world.get_steps(behavior)

    def close(self) -> None:
        self._world.close()


def as_env(world: Env | MLAgentsWorld) -> Env:
    """The world itself, or one with ML-Agents' interface alone behind that of `Env`."""
    return world if isinstance(world, Env) else WrappedWorld(world)
