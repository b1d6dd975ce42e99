"""One behavior's slots after a step, as arrays; and the rows of several tables as one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

FLAGS = ("deciding", "begins", "closed", "terminated", "truncated")
"""The columns of `SlotRows.flags`."""
REWARDS = ("reward", "group_reward")
"""The columns of `SlotRows.rewards`."""
IDS = ("agent_id", "group_id", "env_index")
"""The columns of `SlotRows.ids`."""


@dataclass(frozen=True, eq=False)
class SlotRows:
    """One behavior's N slots after a step. The arrays are new; later steps never change them.

    A row can say two things at once: how its last action turned out (`closed`, `reward`,
    `terminated`, `truncated`), and what to act on now (`deciding`, `obs`, `action_mask`, `begins`).

    Values that are one number per slot are the columns of three blocks, so that tables are copied
    and joined in few calls.
    """

    obs: tuple[NDArray[Any], ...]
    """What to act on now, [N, *shape] per sensor, images CHW. After an end this is the first
    observation of the next episode. A waiting slot keeps what it last acted on, an empty one shows
    zeros."""
    action_mask: NDArray[np.bool_] | None
    """[N, choices of all branches], True = allowed; None without discrete branches."""
    flags: NDArray[np.bool_]
    """[N, 5], in the order of `FLAGS`."""
    rewards: NDArray[np.float32]
    """[N, 2], in the order of `REWARDS`."""
    ids: NDArray[np.int32]
    """[N, 3], in the order of `IDS`."""
    final_slot: NDArray[np.int32]
    """[K] the slots in which an episode ended, in the order of the ends."""
    final_obs: tuple[NDArray[Any], ...]
    """[K, *shape] per sensor: the true last observations of those episodes."""
    second_mask: NDArray[np.bool_] | None = None
    """Staged actions only: [N, first branch, choices of the later branches], True = allowed after
    that first choice."""

    @property
    def deciding(self) -> NDArray[np.bool_]:
        """[N] this slot needs an action."""
        return self.flags[:, 0]

    @property
    def begins(self) -> NDArray[np.bool_]:
        """[N] an episode begins here: clear the policy's memory."""
        return self.flags[:, 1]

    @property
    def closed(self) -> NDArray[np.bool_]:
        """[N] an action got its result in this row."""
        return self.flags[:, 2]

    @property
    def terminated(self) -> NDArray[np.bool_]:
        """[N] the closed action was the last of its episode, which finished."""
        return self.flags[:, 3]

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """[N] the closed action was the last of its episode, which was cut short."""
        return self.flags[:, 4]

    @property
    def reward(self) -> NDArray[np.float32]:
        """[N] the agent's own reward for the closed action; 0 elsewhere."""
        return self.rewards[:, 0]

    @property
    def group_reward(self) -> NDArray[np.float32]:
        """[N] likewise its group's reward; the two are never added here."""
        return self.rewards[:, 1]

    @property
    def agent_id(self) -> NDArray[np.int32]:
        """[N] the agent of this row, -1 where there is none."""
        return self.ids[:, 0]

    @property
    def group_id(self) -> NDArray[np.int32]:
        """[N] its group, 0 = none, -1 where there is no agent."""
        return self.ids[:, 1]

    @property
    def env_index(self) -> NDArray[np.int32]:
        """[N] the world of this agent, -1 where there is none."""
        return self.ids[:, 2]

    def __len__(self) -> int:
        return len(self.flags)


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
    join = np.concatenate
    sensors = zip(*(rows.obs for rows in tables), strict=True)
    # Tables of one spec either all have masks or all have none.
    masks = [rows.action_mask for rows in tables if rows.action_mask is not None]
    second_masks = [rows.second_mask for rows in tables if rows.second_mask is not None]
    final_slot, final_obs = _stacked_ends(tables)
    return SlotRows(
        obs=tuple(join(parts) for parts in sensors),
        action_mask=join(masks) if masks else None,
        flags=join([rows.flags for rows in tables]),
        rewards=join([rows.rewards for rows in tables]),
        ids=join([rows.ids for rows in tables]),
        final_slot=final_slot,
        final_obs=final_obs,
        second_mask=join(second_masks) if second_masks else None,
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
        flags=rows.flags[slots],
        rewards=rows.rewards[slots],
        ids=rows.ids[slots],
        final_slot=rows.final_slot[:0],
        final_obs=tuple(obs[:0] for obs in rows.final_obs),
        second_mask=None if second_mask is None else second_mask[slots],
    )


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
