"""Worlds that have only the names of ML-Agents' Python API, as our own."""

import logging
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from touchline.envs.env import ClosesOnExit, Env
from touchline.errors import UsageError
from touchline.parameters import ParameterValue
from touchline.specs import ActionTuple, BehaviorSpec
from touchline.steps import DecisionSteps, TerminalSteps

logger = logging.getLogger(__name__)


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
        found = self._world.get_steps(behavior)
        breach = _breach_of(found, self.behaviors[behavior])
        if breach:
            world = type(self._world).__name__
            raise UsageError(f"{world}.get_steps({behavior!r}): {breach}")
        return found

    def close(self) -> None:
        self._world.close()


def _breach_of(found: object, spec: BehaviorSpec) -> str:
    """How these steps break ML-Agents' contract; empty where they do not."""
    match found:
        case (DecisionSteps() as decisions, TerminalSteps() as ends):
            pass
        case _:
            return f"expected (DecisionSteps, TerminalSteps), got {str(found)[:80]}"
    for name, steps in (("DecisionSteps", decisions), ("TerminalSteps", ends)):
        count = len(steps.agent_id)
        expected = [(count, *sensor.shape) for sensor in spec.observation_specs]
        if (shapes := [np.shape(obs) for obs in steps.obs]) != expected:
            return f"{name}.obs have the shapes {shapes}, expected {expected}"
        for column in ("reward", "group_id", "group_reward"):
            if (shape := np.shape(getattr(steps, column))) != (count,):
                return f"{name}.{column} has the shape {shape}, expected {(count,)}"
    if decisions.action_mask is None:
        return ""
    masks = [np.asarray(mask) for mask in decisions.action_mask]
    branches = spec.action_spec.discrete_branches
    expected = [(len(decisions.agent_id), size) for size in branches]
    if (shapes := [mask.shape for mask in masks]) != expected:
        return f"DecisionSteps.action_mask has the shapes {shapes}, expected {expected}"
    # No policy could act on this; ML-Agents' True means forbidden.
    if any(mask.all(axis=1).any() for mask in masks):
        return "DecisionSteps.action_mask forbids every choice of a branch"
    return ""


def as_env(world: Env | MLAgentsWorld) -> Env:
    """The world itself, or one with ML-Agents' interface alone behind that of `Env`."""
    return world if isinstance(world, Env) else WrappedWorld(world)
