"""One behavior's slots after a step, as arrays; and the rows of several tables as one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.envs.actions import choose_allowed
from touchline.specs import ActionSpec, ActionTuple

COLUMNS = (
    "deciding",
    "begins",
    "closed",
    "terminated",
    "truncated",
    "reward",
    "group_reward",
    "agent_id",
    "group_id",
    "env_index",
)
"""Fields of `SlotRows` with one number per slot."""


@dataclass(eq=False)
class SlotRows:
    """One behavior's N slots after a step. Later steps never change the arrays; do not write to
    them either, as steps with the same agents share those of ids.

    A row can say two things at once: how its last action turned out (`closed`, `reward`,
    `terminated`, `truncated`), and what to act on now (`deciding`, `obs`, `action_mask`, `begins`).
    """

    obs: tuple[NDArray[Any], ...]
    """What to act on now, [N, *shape] per sensor, images CHW. After an end this is the first
    observation of the next episode. A waiting slot keeps what it last acted on, an empty one shows
    zeros."""
    action_mask: NDArray[np.bool_] | None
    """[N, choices of all branches], True = allowed; None without discrete branches."""
    deciding: NDArray[np.bool_]
    """[N] this slot needs an action."""
    begins: NDArray[np.bool_]
    """[N] an episode begins here: clear the policy's memory."""
    closed: NDArray[np.bool_]
    """[N] an action got its result in this row."""
    terminated: NDArray[np.bool_]
    """[N] the closed action was the last of its episode, which finished."""
    truncated: NDArray[np.bool_]
    """[N] the closed action was the last of its episode, which was cut short."""
    reward: NDArray[np.float32]
    """[N] the agent's own reward for the closed action; 0 elsewhere."""
    group_reward: NDArray[np.float32]
    """[N] likewise its group's reward; the two are never added here."""
    agent_id: NDArray[np.int32]
    """[N] the agent of this row, -1 where there is none."""
    group_id: NDArray[np.int32]
    """[N] its group, 0 = none, -1 where there is no agent."""
    env_index: NDArray[np.int32]
    """[N] the world of this agent, -1 where there is none."""
    final_slot: NDArray[np.int32]
    """[K] the slots in which an episode ended, in the order of the ends."""
    final_obs: tuple[NDArray[Any], ...]
    """[K, *shape] per sensor: the true last observations of those episodes."""
    second_mask: NDArray[np.bool_] | None = None
    """Staged actions only: [N, first branch, choices of the later branches], True = allowed after
    that first choice."""

    def __len__(self) -> int:
        return len(self.deciding)


AllRows = Mapping[str, SlotRows]
"""Rows of every behavior, by full name."""


@dataclass
class SlotCounts:
    """What rows leave out, per behavior since construction; rewards are summed in float64."""

    unattributed_reward: float = 0.0
    """Own rewards that belong to no action: given with an episode's first decision, or with the end
    of an episode that never decided."""
    unattributed_group_reward: float = 0.0
    orphan_ends: int = 0
    """Ends of episodes that never decided."""
    ends: int = 0
    """Episodes that ended in a row, truncated ones included."""
    moved: int = 0
    """Episodes closed because their agent turned up under another behavior."""


def widened(array: NDArray[Any], width: int, empty: Any = 0) -> NDArray[Any]:
    """Values of slots [N, ...], with empty ones for slots that a table has got since."""
    extra = width - len(array)
    if extra <= 0:
        return array  # as almost always: no copy
    more = np.full((extra, *array.shape[1:]), empty, array.dtype)
    return np.concatenate([array, more])


def stack_rows(tables: Sequence[SlotRows]) -> SlotRows:
    """The rows of several tables of one spec, one table after the other."""
    # One world is the common case, and joining costs a copy of every observation.
    if len(tables) == 1:
        return tables[0]
    columns: dict[str, Any] = {}
    for name in (*COLUMNS, "action_mask", "second_mask"):
        parts = [getattr(rows, name) for rows in tables]
        # Tables of one spec either all have masks or all have none.
        columns[name] = None if parts[0] is None else np.concatenate(parts)
    sensors = zip(*(rows.obs for rows in tables), strict=True)
    final_slot, final_obs = _stacked_ends(tables)
    return SlotRows(
        obs=tuple(np.concatenate(parts) for parts in sensors),
        final_slot=final_slot,
        final_obs=final_obs,
        **columns,
    )


def reorder_rows(rows: SlotRows, new_slot: NDArray[np.intp]) -> SlotRows:
    """The same rows in another order: row i becomes row `new_slot[i]`."""
    # The order that sorts a permutation is its inverse.
    old_slot = np.argsort(new_slot)
    return replace(
        select_rows(rows, old_slot),
        final_slot=new_slot[rows.final_slot].astype(np.int32),
        final_obs=rows.final_obs,
    )


def select_rows(rows: SlotRows, slots: NDArray[np.intp]) -> SlotRows:
    """What to act on in some of the slots, in this order; ends of episodes are left out."""
    mask, second_mask = rows.action_mask, rows.second_mask
    return SlotRows(
        obs=tuple(obs[slots] for obs in rows.obs),
        action_mask=None if mask is None else mask[slots],
        **{name: getattr(rows, name)[slots] for name in COLUMNS},
        final_slot=rows.final_slot[:0],
        final_obs=tuple(obs[:0] for obs in rows.final_obs),
        second_mask=None if second_mask is None else second_mask[slots],
    )


def idle_actions(spec: ActionSpec, rows: SlotRows) -> ActionTuple:
    """Actions that do nothing: zeros, or the first choice that is allowed where 0 is masked."""
    idle = spec.empty_action(len(rows))
    if rows.action_mask is None:
        return idle
    discrete = choose_allowed(spec, rows.action_mask, rows.second_mask)
    return ActionTuple(idle.continuous, discrete)


def _stacked_ends(
    tables: Sequence[SlotRows],
) -> tuple[NDArray[np.int32], tuple[NDArray[Any], ...]]:
    """`final_slot` and `final_obs` of tables that stand one after the other."""
    # In most steps no episode ends anywhere.
    if not any(len(rows.final_slot) for rows in tables):
        return tables[0].final_slot, tables[0].final_obs
    final_slot = []
    first_slot = 0
    for rows in tables:
        # Slots are int32 in every array; the sum keeps that type.
        final_slot.append(rows.final_slot + np.int32(first_slot))
        first_slot += len(rows)
    sensors = zip(*(rows.final_obs for rows in tables), strict=True)
    final_obs = tuple(np.concatenate(parts) for parts in sensors)
    return np.concatenate(final_slot), final_obs
