"""What a world sends: agents that need an action, and agents whose episode ended.

One exchange with a world holds, per behavior, a `DecisionSteps` and a `TerminalSteps`. An agent can
be in both (one episode ended, the next one began), in one, or in neither (it needs no action now).
Names and meaning follow ML-Agents' low-level Python API (`mlagents_envs.base_env`, 1.1.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from touchline.specs import BehaviorSpec, NamedFields


class BranchMasks(Sequence[NDArray[np.bool_]]):
    """The masks of all branches in one array, read as one array [N, choices] per branch.

    For worlds with very many branches (MicroRTS has seven for every cell of a map), where making a
    list takes longer than playing the game.
    """

    def __init__(self, flat: NDArray[np.bool_], ends: Sequence[int]) -> None:
        """`ends`: the column behind each branch's last one."""
        self.flat = flat
        """[N, choices of all branches], True = forbidden."""
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, branch: int) -> NDArray[np.bool_]: ...

    @overload
    def __getitem__(self, branch: slice) -> list[NDArray[np.bool_]]: ...

    def __getitem__(
        self, branch: int | slice
    ) -> NDArray[np.bool_] | list[NDArray[np.bool_]]:
        if isinstance(branch, slice):
            return [self[i] for i in range(*branch.indices(len(self)))]
        if not -len(self) <= branch < len(self):
            # Iteration over a Sequence ends with this very error.
            raise IndexError(branch)
        # Counted from the front, so that a negative index, too, finds the first branch.
        branch %= len(self)
        start = self._ends[branch - 1] if branch else 0
        return self.flat[:, start : self._ends[branch]]


def flat_mask(masks: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """[N, choices of all branches], True = forbidden; without a copy where that is possible."""
    return (
        masks.flat if isinstance(masks, BranchMasks) else np.concatenate(masks, axis=1)
    )


@dataclass(frozen=True)
class DecisionStep(NamedFields):
    """One agent that needs an action; `action_mask` has one array per branch, True = forbidden."""

    _fields = ("obs", "reward", "agent_id", "action_mask", "group_id", "group_reward")
    obs: list[NDArray[Any]]
    reward: float
    agent_id: int
    action_mask: list[NDArray[np.bool_]] | None
    group_id: int
    group_reward: float


@dataclass(frozen=True)
class TerminalStep(NamedFields):
    """One agent whose episode ended; `interrupted` when it was cut short rather than finished."""

    _fields = ("obs", "reward", "interrupted", "agent_id", "group_id", "group_reward")
    obs: list[NDArray[Any]]
    reward: float
    interrupted: bool
    agent_id: int
    group_id: int
    group_reward: float


Step = TypeVar("Step")


class _ById(Mapping[int, Step]):
    """What rows of agents have in common with a mapping from their ids."""

    agent_id: NDArray[np.int32]

    @cached_property
    def agent_id_to_index(self) -> dict[int, int]:
        return {int(agent): row for row, agent in enumerate(self.agent_id)}

    def __len__(self) -> int:
        return len(self.agent_id)

    def __iter__(self) -> Iterator[int]:
        return iter(self.agent_id_to_index)


@dataclass(frozen=True, eq=False)
class DecisionSteps(_ById[DecisionStep]):
    """N agents that need an action, as arrays; also a mapping agent id -> `DecisionStep`."""

    obs: list[NDArray[Any]]
    """One array [N, *shape] per sensor."""
    reward: NDArray[np.float32]
    """[N] each agent's own reward since its last decision."""
    agent_id: NDArray[np.int32]
    """[N]"""
    action_mask: Sequence[NDArray[np.bool_]] | None
    """[N, choices] per branch, True = forbidden; None where nothing is masked. For staged actions
    the later branches' masks hold what no choice in the first branch would allow."""
    group_id: NDArray[np.int32]
    """[N], 0 = no group."""
    group_reward: NDArray[np.float32]
    """[N] the group's reward since the agent's last decision."""
    second_mask: NDArray[np.bool_] | None = None
    """Staged actions only: [N, first branch, choices of the later branches], True = forbidden after
    that choice in the first branch."""

    def __getitem__(self, agent_id: int) -> DecisionStep:
        row = _row_of(self.agent_id_to_index, agent_id, "needs a decision")
        return DecisionStep(
            obs=[o[row] for o in self.obs],
            reward=float(self.reward[row]),
            agent_id=int(agent_id),
            action_mask=None
            if self.action_mask is None
            else [m[row] for m in self.action_mask],
            group_id=int(self.group_id[row]),
            group_reward=float(self.group_reward[row]),
        )

    @staticmethod
    def empty(spec: BehaviorSpec) -> DecisionSteps:
        """No agents at all."""
        return DecisionSteps(
            obs=[np.zeros((0, *o.shape), np.float32) for o in spec.observation_specs],
            reward=np.zeros(0, np.float32),
            agent_id=np.zeros(0, np.int32),
            action_mask=None,
            group_id=np.zeros(0, np.int32),
            group_reward=np.zeros(0, np.float32),
        )


@dataclass(frozen=True, eq=False)
class TerminalSteps(_ById[TerminalStep]):
    """N agents whose episode ended, as arrays; also a mapping agent id -> `TerminalStep`.

    Fields without a description are those of `DecisionSteps`.
    """

    obs: list[NDArray[Any]]
    """The true last observations, [N, *shape] per sensor."""
    reward: NDArray[np.float32]
    interrupted: NDArray[np.bool_]
    """[N] the episode was cut short (a time limit) rather than finished."""
    agent_id: NDArray[np.int32]
    group_id: NDArray[np.int32]
    group_reward: NDArray[np.float32]

    def __getitem__(self, agent_id: int) -> TerminalStep:
        row = _row_of(self.agent_id_to_index, agent_id, "ended an episode")
        return TerminalStep(
            obs=[o[row] for o in self.obs],
            reward=float(self.reward[row]),
            interrupted=bool(self.interrupted[row]),
            agent_id=int(agent_id),
            group_id=int(self.group_id[row]),
            group_reward=float(self.group_reward[row]),
        )

    @staticmethod
    def empty(spec: BehaviorSpec) -> TerminalSteps:
        """No agents at all."""
        return TerminalSteps(
            obs=[np.zeros((0, *o.shape), np.float32) for o in spec.observation_specs],
            reward=np.zeros(0, np.float32),
            interrupted=np.zeros(0, np.bool_),
            agent_id=np.zeros(0, np.int32),
            group_id=np.zeros(0, np.int32),
            group_reward=np.zeros(0, np.float32),
        )


Exchange = Mapping[str, tuple[DecisionSteps, TerminalSteps]]
"""One message from a world: full behavior name -> who must decide, who ended."""


def _row_of(index: Mapping[int, int], agent_id: int, what: str) -> int:
    try:
        # An id may come as an array without axes, which cannot be hashed.
        return index[int(agent_id)]
    except KeyError:
        raise KeyError(
            f"no agent with id {agent_id} {what} here; those that do: {sorted(index)[:20]}"
        ) from None
