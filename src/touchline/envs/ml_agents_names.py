"""Worlds that have only the names of ML-Agents' Python API, as our own."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from touchline.envs.actions import check_actions
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
        self._ids = _Ids()
        self._decisions: dict[str, DecisionSteps] = {}
        """The agents that may act now, by behavior."""
        self._exchanges = 0

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        specs: object = self._world.behavior_specs
        if not isinstance(specs, Mapping):
            world = type(self._world).__name__
            raise UsageError(
                f"{world}.behavior_specs: expected a mapping from names, got {specs!r:.80}"
            )
        return specs

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
        # No ends come for those that were there.
        self._ids = _Ids()

    def set_parameters(self, parameters: Mapping[str, ParameterValue]) -> None:
        if parameters:
            raise UsageError(
                f"{type(self._world).__name__} takes no parameters, got "
                f"{', '.join(parameters)}; send them through its side channels"
            )

    def set_actions(self, behavior: str, actions: ActionTuple) -> None:
        if behavior in self._decisions:
            spec = self.behaviors[behavior].action_spec
            world, decisions = type(self._world).__name__, self._decisions[behavior]
            check_actions(world, behavior, spec, actions, decisions, self._exchanges)
        self._world.set_actions(behavior, actions)

    def step(self) -> None:
        self._world.step()
        self._exchanges += 1
        self._decisions.clear()

    def steps(self, behavior: str) -> tuple[DecisionSteps, TerminalSteps]:
        found = self._world.get_steps(behavior)
        try:
            decisions, ends = _arrays_of(found, self.behaviors[behavior])
        except _BreachError as breach:
            world = type(self._world).__name__
            raise UsageError(f"{world}.get_steps({behavior!r}): {breach}") from None
        decisions, ends = self._ids.apart(behavior, decisions, ends)
        self._decisions[behavior] = decisions
        return decisions, ends

    def close(self) -> None:
        self._world.close()


class _Ids:
    """Ids of agents in worlds whose behaviors may all count theirs from the same number."""

    def __init__(self) -> None:
        self._own: dict[tuple[str, int], int] = {}
        """(behavior, its agent) -> the id here: the same, unless another behavior has it."""
        self._taken: set[int] = set()
        self._highest = 0

    def apart(
        self, behavior: str, decisions: DecisionSteps, ends: TerminalSteps
    ) -> tuple[DecisionSteps, TerminalSteps]:
        """With ids that no agent of another behavior has now."""
        both = [self._given(behavior, steps.agent_id) for steps in (decisions, ends)]
        # Who ended is forgotten, because worlds may count on for every episode.
        for agent in {*ends.agent_id.tolist()} - {*decisions.agent_id.tolist()}:
            self._taken.remove(self._own.pop((behavior, agent)))
        return replace(decisions, agent_id=both[0]), replace(ends, agent_id=both[1])

    def _given(self, behavior: str, agents: NDArray[np.int32]) -> NDArray[np.int32]:
        for agent in agents.tolist():
            if (behavior, agent) not in self._own:
                is_free = agent not in self._taken
                own = agent if is_free else self._highest + 1
                self._highest = max(self._highest, own)
                self._own[behavior, agent] = own
                self._taken.add(own)
        own_ids = [self._own[behavior, agent] for agent in agents.tolist()]
        return np.array(own_ids, np.int32)


class _BreachError(Exception):
    """How steps break ML-Agents' contract."""


def _arrays_of(
    found: object, spec: BehaviorSpec
) -> tuple[DecisionSteps, TerminalSteps]:
    """Steps with arrays of the right types in them. Raises a _BreachError for other shapes."""
    match found:
        case (DecisionSteps() as decisions, TerminalSteps() as ends):
            pass
        case _:
            shown = " ".join(str(found).split())
            raise _BreachError(
                f"expected (DecisionSteps, TerminalSteps), got {shown:.80}"
            )
    count = np.size(decisions.agent_id)
    first = _common_columns("DecisionSteps", decisions, spec)
    last = _common_columns("TerminalSteps", ends, spec)
    mask = _masks_of(decisions, spec.action_spec.discrete_branches, count)
    interrupted = _array("TerminalSteps.interrupted", ends.interrupted, np.bool_)
    _require("TerminalSteps.interrupted", interrupted, np.size(ends.agent_id))
    return (
        replace(decisions, **first, action_mask=mask),
        replace(ends, **last, interrupted=interrupted),
    )


def _common_columns(
    name: str, steps: DecisionSteps | TerminalSteps, spec: BehaviorSpec
) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    count = np.size(steps.agent_id)
    for column, kind in _COLUMNS.items():
        columns[column] = _array(f"{name}.{column}", getattr(steps, column), kind)
        _require(f"{name}.{column}", columns[column], count)
    if len({*columns["agent_id"].tolist()}) < count:
        raise _BreachError(f"{name}.agent_id names an agent twice")
    columns["obs"] = _all_of(f"{name}.obs", steps.obs, np.float32)
    expected = [(count, *sensor.shape) for sensor in spec.observation_specs]
    if (shapes := [obs.shape for obs in columns["obs"]]) != expected:
        raise _BreachError(f"{name}.obs have the shapes {shapes}, expected {expected}")
    return columns


def _masks_of(
    decisions: DecisionSteps, branches: tuple[int, ...], count: int
) -> list[NDArray[np.bool_]] | None:
    if decisions.action_mask is None:
        return None
    masks = _all_of("DecisionSteps.action_mask", decisions.action_mask, np.bool_)
    expected = [(count, size) for size in branches]
    if (shapes := [mask.shape for mask in masks]) != expected:
        raise _BreachError(
            f"DecisionSteps.action_mask has the shapes {shapes}, expected {expected}"
        )
    # No policy could act on this; ML-Agents' True means forbidden.
    if any(mask.all(axis=1).any() for mask in masks):
        raise _BreachError("DecisionSteps.action_mask forbids every choice of a branch")
    return masks


_COLUMNS = {
    "agent_id": np.int32,
    "reward": np.float32,
    "group_id": np.int32,
    "group_reward": np.float32,
}


def _array(name: str, values: object, kind: Any) -> NDArray[Any]:
    try:
        array = np.asarray(values, kind)
        # Ids are whole numbers, which do not fit or are cut otherwise.
        if kind is np.int32 and not np.array_equal(array, np.asarray(values)):
            raise ValueError(values)
        return array
    except (OverflowError, TypeError, ValueError):
        shown = " ".join(str(values).split())
        raise _BreachError(f"{name}: expected an array, got {shown:.80}") from None


def _all_of(name: str, values: object, kind: Any) -> list[NDArray[Any]]:
    if not isinstance(values, Sequence | np.ndarray):
        raise _BreachError(f"{name}: expected a list of arrays, got {values!r:.80}")
    return [_array(name, value, kind) for value in values]


def _require(name: str, array: NDArray[Any], count: int) -> None:
    if array.shape != (count,):
        raise _BreachError(f"{name} has the shape {array.shape}, expected {(count,)}")


def as_env(world: Env | MLAgentsWorld) -> Env:
    """The world itself, or one with ML-Agents' interface alone behind that of `Env`."""
    return world if isinstance(world, Env) else WrappedWorld(world)
