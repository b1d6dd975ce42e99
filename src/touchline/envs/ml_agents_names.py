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

Steps = tuple[DecisionSteps, TerminalSteps]


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
        self._steps: dict[str, Steps] = {}
        """All behaviors' of this exchange, once they were read."""
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
        self._ids = _Ids(has_warned=self._ids.has_warned)
        self._steps.clear()

    def set_parameters(self, parameters: Mapping[str, ParameterValue]) -> None:
        if parameters:
            raise UsageError(
                f"{type(self._world).__name__} takes no parameters, got "
                f"{', '.join(parameters)}; send them through its side channels"
            )

    def set_actions(self, behavior: str, actions: ActionTuple) -> None:
        decisions, _ = self.steps(behavior)
        spec, world = self.behaviors[behavior].action_spec, type(self._world).__name__
        check_actions(world, behavior, spec, actions, decisions, self._exchanges)
        self._world.set_actions(behavior, actions)

    def step(self) -> None:
        self._world.step()
        self._exchanges += 1
        self._steps.clear()

    def steps(self, behavior: str) -> Steps:
        world = type(self._world).__name__
        if behavior not in self.behaviors:
            known = ", ".join(self.behaviors)
            raise UsageError(
                f"{world}: unknown behavior {behavior!r}; behaviors: {known}"
            )
        if behavior not in self._steps:
            found = {}
            for name, spec in self.behaviors.items():
                try:
                    found[name] = _arrays_of(self._world.get_steps(name), spec)
                except _BreachError as breach:
                    raise UsageError(f"{world}.get_steps({name!r}): {breach}") from None
            self._steps = self._ids.apart(found)
        return self._steps[behavior]

    def close(self) -> None:
        self._world.close()


FIRST_OTHER_ID = 1 << 30
"""The ids from here on are given to agents whose own ids another behavior has at the same time."""

TAKES_TURNS = (
    "agent %s of %s acts as %s now, so its episode there was cut off; if these are two agents that "
    "take turns, the world must give them different ids"
)


class _Ids:
    """Ids of agents in worlds whose behaviors may all count theirs from the same number."""

    def __init__(self, *, has_warned: bool = False) -> None:
        self._other: dict[tuple[str, int], int] = {}
        """(behavior, its agent) -> the id here, where it is another one."""
        self._holders: dict[int, str] = {}
        """Id -> the behavior whose agent has kept it, until it ends."""
        self._next = FIRST_OTHER_ID
        self.has_warned = has_warned

    def apart(self, steps: Mapping[str, Steps]) -> dict[str, Steps]:
        """All behaviors' steps of one exchange, with an id for each agent that decides.

        An id that one behavior alone shows is the same agent as before, which may have changed its
        behavior; but not where two behaviors have had an id at once, because they count alike.
        """
        shown = {name: {*own.agent_id.tolist()} for name, (own, _) in steps.items()}
        ended = {name: {*ends.agent_id.tolist()} for name, (_, ends) in steps.items()}
        for name, (decisions, _) in steps.items():
            for agent in decisions.agent_id.tolist():
                if (name, agent) in self._other:
                    continue
                holder = self._holders.setdefault(agent, name)
                if holder == name:
                    continue
                count_alike = self._next > FIRST_OTHER_ID
                # Whoever had it keeps it.
                if count_alike or agent in shown.get(holder, ()):
                    self._other[name, agent] = self._next
                    self._next += 1
                    continue
                self._holders[agent] = name
                if agent not in ended.get(holder, ()) and not self.has_warned:
                    self.has_warned = True
                    logger.warning(TAKES_TURNS, agent, holder, name)
        found = {name: self._renamed(name, *each) for name, each in steps.items()}
        for name, agents in ended.items():
            # Who ended is forgotten, because worlds may count on for every episode.
            for agent in agents - shown[name]:
                is_other = self._other.pop((name, agent), None) is not None
                if not is_other and self._holders.get(agent) == name:
                    del self._holders[agent]
        return found

    def _renamed(
        self, behavior: str, decisions: DecisionSteps, ends: TerminalSteps
    ) -> Steps:
        if not self._other:
            return decisions, ends
        both = [
            [self._other.get((behavior, agent), agent) for agent in each.tolist()]
            for each in (decisions.agent_id, ends.agent_id)
        ]
        first, last = (np.array(each, np.int32) for each in both)
        return replace(decisions, agent_id=first), replace(ends, agent_id=last)


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
