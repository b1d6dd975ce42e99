"""The slots of one behavior: which agent is in which row, and what its rows show.

A slot's states, and what changes them:

    free ──first decision──> active ──end──> reserved for its agent ──next decision──> active
                                                └── another agent may take it when none is free

In most worlds the same agents decide at every step. The table recognizes that by comparing ids as
bytes; then it needs no search, and it hands the world's observations on without copying them.
Arrays of observations are never written to once rows hold them: a step brings new ones.
"""

# mypy: disable-error-code="no-any-return"
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.envs.saved_state import Arrays, kept, put_back
from touchline.envs.slots.rows import SlotCounts, SlotRows, widened
from touchline.errors import RunError, UsageError
from touchline.specs import (
    ActionTuple,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
)
from touchline.steps import DecisionSteps, TerminalSteps, flat_mask

_NO_SLOTS = np.zeros(0, np.int32)
_KEPT = (
    "_agent_id",
    "_active",
    "_reserved_since",
    "_mask",
    "_second_mask",
)
"""Arrays of the saved state, whose size is that of the table."""
_NONE_DECIDING = np.zeros(0, np.intp)

Index = slice | NDArray[np.intp]
"""Slots by their numbers, or a whole slice for all of them in order, which is quicker."""


class Table:
    """The slots of one behavior in one world.

    `size` slots to begin with. A full table grows if `grow`, and otherwise raises a RunError.
    """

    def __init__(
        self, name: str, spec: BehaviorSpec, size: int, *, grow: bool, env_index: int
    ) -> None:
        self._channels_last = [
            is_channels_last(sensor) for sensor in spec.observation_specs
        ]
        sensors = tuple(channels_first(sensor) for sensor in spec.observation_specs)
        self.spec = replace(spec, observation_specs=sensors)
        self.counts = SlotCounts()
        self.name = name
        self._grow = grow
        self._env_index = env_index
        self._agent_id = np.full(size, -1, np.int32)
        """Whose slot it is, -1 where it is free."""
        self._present = np.full((size, 3), -1, np.int32)
        """Agent, group and world of the agent that is there; -1 where no episode runs."""
        self._shown_ids: tuple[NDArray[np.int32], ...] | None = None
        """Columns of `_present` that rows show, shared by steps with the same agents; None after a
        change."""
        self._active = np.zeros(size, np.bool_)
        """Whether an episode runs in each slot."""
        self._deciding: Index = _NONE_DECIDING
        """Slots that need an action, in the world's order."""
        self._reserved_since = np.zeros(size, np.int64)
        """The exchange in which each slot's last episode ended."""
        self._obs = [np.zeros((size, *sensor.shape), np.float32) for sensor in sensors]
        self._is_stale = False
        """Whether observations of episodes that ended are still in `_obs`."""
        num_choices = spec.action_spec.mask_size
        self._mask = np.ones((size, num_choices), np.bool_) if num_choices else None
        staged = spec.action_spec.second_mask_shape
        self._second_mask = np.ones((size, *staged), np.bool_) if staged else None
        self._known: tuple[bytes, Index] | None = None
        """Agent and group ids that decided last, in the world's order, and their slots; None after
        an episode began or ended, or an agent got another slot."""
        self._index_ids()
        self.start_step()

    @property
    def num_active(self) -> int:
        """How many episodes are open."""
        return int(self._active.sum())

    @property
    def active_groups(self) -> set[int]:
        """Ids of the groups whose agents' episodes are open; 0 for agents without a group."""
        return set(self._present[self._active, 1].tolist())

    @property
    def num_deciding(self) -> int:
        """How many slots need an action."""
        if isinstance(self._deciding, slice):
            return len(self._agent_id)
        return len(self._deciding)

    def state(self) -> Arrays:
        """Everything that later rows depend on, as copies."""
        state: dict[str, NDArray[Any]] = kept(self, _KEPT) | {
            "group_id": self._present[:, 1].copy(),
            "deciding": np.arange(len(self._agent_id))[self._deciding],
            "counts": np.array([*vars(self.counts).values()], np.float64),
        }
        state |= {f"obs.{i}": obs.copy() for i, obs in enumerate(self._obs)}
        return {name: array for name, array in state.items() if array is not None}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        # A table without discrete branches has no masks.
        put_back(self, _KEPT, {"mask": None, "second_mask": None, **state})
        world = np.full_like(self._agent_id, self._env_index)
        ids = np.stack([self._agent_id, state["group_id"], world], axis=1)
        self._present = np.where(self._active[:, None], ids, np.int32(-1))
        self._deciding = state["deciding"].copy()
        self._obs = [state[f"obs.{i}"].copy() for i in range(len(self._obs))]
        self._is_stale = False
        # In the order of SlotCounts' fields, as `state` wrote them: two sums of rewards, then
        # counts.
        own, group, *counts = state["counts"].tolist()
        self.counts = SlotCounts(own, group, *map(int, counts))
        self._index_ids()
        self.start_step()

    def start_step(self) -> None:
        """From here on, results belong to the next rows."""
        self._results = _Results(len(self._agent_id))

    def clear(self) -> None:
        """The world was restarted: all slots are free, and open episodes get no result."""
        # Reservations go, too: after a reset the world numbers its agents as it likes.
        self._agent_id[:] = -1
        self._present[:] = -1
        self._active[:] = False
        self._blank(slice(None))
        self._deciding = _NONE_DECIDING
        self._index_ids()

    def truncate_all(self, exchange: int) -> None:
        """The world was lost: open episodes close without a result, and all slots are free."""
        self._truncate(np.flatnonzero(self._active), exchange)
        # The next world numbers its agents from the start, so an equal id is another agent.
        self._agent_id[:] = -1
        self._deciding = _NONE_DECIDING
        self._index_ids()

    def truncate_moved(self, agent_ids: NDArray[np.int32], exchange: int) -> None:
        """These agents turned up under another behavior: close their episodes here."""
        slots = self._find(agent_ids)
        # Most have none here; the others may have ended here in this very exchange.
        slots = slots[self._is_active(slots)]
        self.counts.moved += len(slots)
        self._truncate(slots, exchange)

    def actions_of_deciding(self, actions: ActionTuple) -> ActionTuple:
        """Of the actions [N, ...] of all slots those of the deciding ones, in the world's order."""
        num_slots = len(self._agent_id)
        if len(actions) != num_slots:
            raise UsageError(
                f"{self.name}: expected actions for {num_slots} slots, got {len(actions)}"
            )
        deciding = self._deciding
        return actions if isinstance(deciding, slice) else actions.select(deciding)

    def acted(self) -> None:
        """The world has the actions: until the next exchange no agent waits, and its order must not
        be used for other actions.
        """
        self._deciding = _NONE_DECIDING

    def add_ends(self, steps: TerminalSteps, exchange: int) -> None:
        """Episodes that ended: their open actions close, and their slots are reserved."""
        slots = self._find(steps.agent_id)
        is_active = self._is_active(slots)
        # A slice gives views where a mask would copy; orphans are rare.
        chosen: Any = slice(None)
        if not is_active.all():
            orphans = ~is_active
            self.counts.orphan_ends += int(orphans.sum())
            self._count_unattributed(steps.reward[orphans], steps.group_reward[orphans])
            slots, chosen = slots[is_active], is_active
        interrupted = steps.interrupted[chosen]
        self._close(slots, steps.reward[chosen], steps.group_reward[chosen])
        self._results.truncated[slots] = interrupted
        self._results.terminated[slots] = ~interrupted
        final_obs = [obs[chosen] for obs in self._as_channels_first(steps.obs)]
        self._reserve(slots, final_obs, exchange)

    def add_decisions(self, steps: DecisionSteps) -> NDArray[np.int32]:
        """Agents that need an action; returns the ids of those whose episodes begin here."""
        # Comparing bytes is one call, whatever the order and number of the agents. Groups
        # belong to it, because an agent may change its group in mid-episode.
        key = steps.agent_id.tobytes() + steps.group_id.tobytes()
        known = self._known
        slots: Index
        if known is not None and known[0] == key:
            beginning = steps.agent_id[:0]
            slots = known[1]
            self._close(slots, steps.reward, steps.group_reward)
        else:
            slots, beginning = self._match(steps)
            self._present[slots, 0] = steps.agent_id
            self._present[slots, 1] = steps.group_id
            self._present[slots, 2] = self._env_index
            self._shown_ids = None
            all_decide = len(slots) == len(self._agent_id)
            if all_decide and (slots[:-1] < slots[1:]).all():
                slots = slice(None)
            self._known = key, slots
        self._show(slots, steps)
        self._deciding = slots
        return beginning

    def rows(self) -> SlotRows:
        """What the step that began with `start_step` led to."""
        if self._is_stale:
            self._obs = self._copied_obs()
            self._is_stale = False
        results = self._results
        results.deciding[self._deciding] = True
        final_slot = _NO_SLOTS
        final_obs = tuple(obs[:0] for obs in self._obs)
        if results.final_slot:
            final_slot = np.concatenate(results.final_slot).astype(np.int32)
            sensors = zip(*results.final_obs, strict=True)
            final_obs = tuple(np.concatenate(parts) for parts in sensors)
        agent_id, group_id, env_index = self._row_ids()
        return SlotRows(
            obs=tuple(self._obs),
            # Masks are written to in place at the next step; observations are replaced or
            # copied then.
            action_mask=None if self._mask is None else self._mask.copy(),
            deciding=results.deciding,
            begins=results.begins,
            closed=results.closed,
            terminated=results.terminated,
            truncated=results.truncated,
            reward=results.reward,
            group_reward=results.group_reward,
            agent_id=agent_id,
            group_id=group_id,
            env_index=env_index,
            final_slot=final_slot,
            final_obs=final_obs,
            second_mask=None if self._second_mask is None else self._second_mask.copy(),
        )

    def _row_ids(self) -> tuple[NDArray[np.int32], ...]:
        """Agents, groups and worlds of the rows, [N] each."""
        if self._results.ended_ids is not None:
            # An agent that ended and one that moved in can share a slot: the present one shows.
            is_active = self._active[:, None]
            return tuple(np.where(is_active, self._present, self._results.ended_ids).T)
        if self._shown_ids is None:
            self._shown_ids = tuple(self._present.T.copy())
        return self._shown_ids

    def _match(
        self, steps: DecisionSteps
    ) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
        """The slots of the deciding agents, and the ids of those whose episodes begin here.

        Closes the open actions of the others.
        """
        slots = self._find(steps.agent_id)
        continues = self._is_active(slots)
        if continues.all():
            self._close(slots, steps.reward, steps.group_reward)
            return slots, steps.agent_id[:0]
        begins = ~continues
        self._close(
            slots[continues], steps.reward[continues], steps.group_reward[continues]
        )
        self._count_unattributed(steps.reward[begins], steps.group_reward[begins])
        slots = self._place(steps.agent_id, slots)
        self._active[slots] = True
        self._results.begins[slots[begins]] = True
        return slots, steps.agent_id[begins]

    def _close(
        self,
        slots: Index,
        reward: NDArray[np.float32] | float,
        group_reward: NDArray[np.float32] | float,
    ) -> None:
        """The open actions in these slots have their results."""
        self._results.closed[slots] = True
        self._results.reward[slots] = reward
        self._results.group_reward[slots] = group_reward

    def _truncate(self, slots: NDArray[np.intp], exchange: int) -> None:
        """Close the episodes in these slots without a reward.

        The last observation of each is the one that its open action was chosen for.
        """
        if not len(slots):
            return
        self._close(slots, 0.0, 0.0)
        self._results.truncated[slots] = True
        self._reserve(slots, [obs[slots] for obs in self._obs], exchange)

    def _reserve(
        self, slots: NDArray[np.intp], final_obs: list[NDArray[Any]], exchange: int
    ) -> None:
        """The episodes in these slots are over; the slots stay reserved for their agents."""
        self.counts.ends += len(slots)
        self._reserved_since[slots] = exchange
        results = self._results
        results.final_slot.append(slots)
        results.final_obs.append(final_obs)
        if results.ended_ids is None:
            results.ended_ids = np.full_like(self._present, -1)
        results.ended_ids[slots] = self._present[slots]
        self._present[slots] = -1
        self._active[slots] = False
        self._blank(slots)
        self._known = self._shown_ids = None

    def _count_unattributed(
        self, reward: NDArray[np.float32], group_reward: NDArray[np.float32]
    ) -> None:
        # In float64, because millions of steps are summed and the books must balance.
        self.counts.unattributed_reward += float(reward.sum(dtype=np.float64))
        self.counts.unattributed_group_reward += float(
            group_reward.sum(dtype=np.float64)
        )

    def _place(
        self, agent_ids: NDArray[np.int32], slots: NDArray[np.intp]
    ) -> NDArray[np.intp]:
        """The slots of these agents, after those with slot -1 were given one.

        They get the free slots first, then those reserved longest, then new ones. A slot that is
        reserved for one of `agent_ids` is not given to another.
        """
        is_new = slots < 0
        if not is_new.any():
            return slots
        num_new = int(is_new.sum())
        available = np.flatnonzero(self._agent_id < 0)
        if len(available) < num_new:
            available = np.concatenate([available, self._longest_reserved(agent_ids)])
        if len(available) < num_new:
            available = np.concatenate(
                [available, self._add_slots(num_new - len(available))]
            )
        slots = slots.copy()
        slots[is_new] = available[:num_new]
        self._agent_id[slots[is_new]] = agent_ids[is_new]
        self._index_ids()
        return slots

    def _longest_reserved(self, agent_ids: NDArray[np.int32]) -> NDArray[np.intp]:
        """Reserved slots whose agents are not among these, in the order of their ends."""
        is_reserved = ~self._active & (self._agent_id >= 0)
        is_needed = np.isin(self._agent_id, agent_ids)
        slots = np.flatnonzero(is_reserved & ~is_needed)
        # Stable, so that slots whose episodes ended in one exchange go by their number.
        return slots[np.argsort(self._reserved_since[slots], kind="stable")]

    def _add_slots(self, extra: int) -> NDArray[np.intp]:
        size = len(self._agent_id)
        if not self._grow:
            raise RunError(
                f"{extra} agents more than fit into {self.name}: {size} slots; "
                "make the adapter with more spare_slots"
            )
        width = size + extra
        self._active = widened(self._active, width)
        self._agent_id = widened(self._agent_id, width, -1)
        self._present = widened(self._present, width, -1)
        self._reserved_since = widened(self._reserved_since, width)
        self._obs = [widened(obs, width) for obs in self._obs]
        if self._mask is not None:
            self._mask = widened(self._mask, width, True)
        if self._second_mask is not None:
            self._second_mask = widened(self._second_mask, width, True)
        self._results.widen(width)
        return np.arange(size, width)

    def _show(self, slots: Index, steps: DecisionSteps) -> None:
        """Put what these agents act on into their rows."""
        new_obs = self._as_channels_first(steps.obs)
        if isinstance(slots, slice):
            # The world's own arrays are handed on; it never writes to them again.
            self._obs = new_obs
        else:
            self._obs = self._copied_obs()
            for own, new in zip(self._obs, new_obs, strict=True):
                own[slots] = new
        self._is_stale = False
        if self._mask is not None:
            # ML-Agents marks what is forbidden; from slots onward True = allowed.
            forbidden = steps.action_mask
            self._mask[slots] = ~flat_mask(forbidden) if forbidden else True
        if self._second_mask is not None:
            second = steps.second_mask
            self._second_mask[slots] = True if second is None else ~second

    def _blank(self, slots: Index) -> None:
        """These slots have nothing to act on."""
        # Zeroing is put off, because mostly all agents decide next, which brings new arrays anyway.
        self._is_stale = True
        if self._mask is not None:
            self._mask[slots] = True
        if self._second_mask is not None:
            self._second_mask[slots] = True

    def _copied_obs(self) -> list[NDArray[Any]]:
        """New arrays of observations, zero where no episode runs."""
        copies = [obs.copy() for obs in self._obs]
        if self._is_stale:
            is_blank = ~self._active
            for obs in copies:
                obs[is_blank] = 0.0
        return copies

    def _as_channels_first(self, obs: Iterable[NDArray[Any]]) -> list[NDArray[Any]]:
        """The sensors' arrays, images as [N, C, H, W]; views, not copies."""
        return [
            np.moveaxis(array, -1, 1) if is_last else array
            for array, is_last in zip(obs, self._channels_last, strict=True)
        ]

    def _find(self, agent_ids: NDArray[np.int32]) -> NDArray[np.intp]:
        """The slot of each id, -1 where it has none."""
        slots = [self._slot_of.get(agent, -1) for agent in agent_ids.tolist()]
        return np.array(slots, np.intp)

    def _is_active(self, slots: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether an episode runs in each of these slots; False for -1, which is no slot."""
        is_slot = slots >= 0
        # An empty table has no last slot, which is what -1 indexes.
        return is_slot & self._active[slots] if len(self._active) else is_slot

    def _index_ids(self) -> None:
        """Prepare `_find`, after agents got or lost slots."""
        owners = enumerate(self._agent_id.tolist())
        self._slot_of = {agent: slot for slot, agent in owners if agent >= 0}
        self._known = self._shown_ids = None


class _Results:
    """How actions turned out within one step: columns of its rows, and the ends."""

    def __init__(self, num_slots: int) -> None:
        flags = np.zeros((5, num_slots), np.bool_)
        self.deciding, self.begins, self.closed, self.terminated, self.truncated = flags
        self.reward, self.group_reward = np.zeros((2, num_slots), np.float32)
        self.ended_ids: NDArray[np.int32] | None = None
        """[N, 3] agents, groups and world of episodes that ended, -1 elsewhere; None without."""
        self.final_slot: list[NDArray[np.intp]] = []
        self.final_obs: list[list[NDArray[Any]]] = []

    def widen(self, num_slots: int) -> None:
        """Make room for more slots, in which nothing has happened."""
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                empty = -1 if name == "ended_ids" else 0
                setattr(self, name, widened(column, num_slots, empty))


def is_channels_last(spec: ObservationSpec) -> bool:
    """Whether an image is HWC: the axis marked NONE holds the channels."""
    # Packages before 1.8 mark nothing, and they all send HWC (`docs/protocol.md`, images).
    if len(spec.shape) != 3:
        return False
    first, _, last = spec.dimension_property
    none = DimensionProperty.NONE
    return not (first == none and last != none)


def channels_first(spec: ObservationSpec) -> ObservationSpec:
    """The same sensor with an image as CHW."""
    if not is_channels_last(spec):
        return spec
    height, width, channels = spec.shape
    of_height, of_width, of_channels = spec.dimension_property
    return replace(
        spec,
        shape=(channels, height, width),
        dimension_property=(of_channels, of_height, of_width),
    )
