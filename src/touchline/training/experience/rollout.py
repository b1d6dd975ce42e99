"""Rows and actions of one behavior's slots, in order, until a learner takes them as trajectories.

Slots need not decide at every step, and a result may arrive steps after its action. A rollout keeps
the rows as they came; `trajectories` then puts every action next to its own result. An action whose
result is not there yet is handed over with the next trajectories.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Bool
from numpy.typing import NDArray

from touchline.envs.saved_state import Arrays, below
from touchline.envs.slots import SlotRows, widened
from touchline.policies.network import side_by_side
from touchline.policies.policy import ChosenActions, SlotMemory
from touchline.training.experience.trajectories import Trajectories
from touchline.training.run.packing import unpack

Observations = tuple[NDArray[Any], ...]


@dataclass
class Rollout:
    """Rows 0..T and the actions taken at rows 0..T-1."""

    rows: list[SlotRows] = field(default_factory=list)
    actions: list[ChosenActions] = field(default_factory=list)
    chosen: ChosenActions | None = None
    """The actions taken at the last rows, until the next rows arrive."""
    num_results: int = 0
    """Actions of this rollout whose result is known."""
    memory: SlotMemory | None = None
    """What the slots remember, where the policy has a memory."""
    compact: Callable[[Observations], Observations] = tuple
    """The part of observations to keep, where a network needs less than worlds send."""
    _open: Bool[np.ndarray, " N"] = field(
        init=False, repr=False, default_factory=lambda: np.zeros(0, np.bool_)
    )
    """Slots whose last action of this rollout has no result yet."""
    num_carried: int = field(init=False, repr=False, default=0)
    """Steps at the start that were there at the last hand-over."""
    _has_results: bool = field(init=False, repr=False, default=False)
    """Whether the last rows hold results of this rollout's actions."""

    def begin(self, rows: SlotRows) -> None:
        """The rows to act on first; results in them belong to actions of an earlier rollout."""
        self.rows = [self._kept(rows)]
        self.actions = []
        self.num_results = 0
        self.num_carried = 0
        self._has_results = False
        self._open = np.zeros(len(rows), np.bool_)

    def begin_again(self) -> None:
        """At a hand-over: keep what is still open, and begin with the last rows.

        Without this, agents that decide one after the other would lose every action that is open
        when another's result makes a learner's experience full.
        """
        rows, actions, chosen = self.rows, self.actions, self.chosen
        is_open = self._open
        if not is_open.any():
            self.begin(rows[-1])
            return
        steps = np.arange(len(actions))[:, None]
        learned = _stacked(list(map(_learned, rows[:-1], actions)), len(is_open))
        # [N] the step of the latest action.
        acted_at = np.where(learned, steps, -1).max(axis=0)
        first = int(acted_at[is_open].min())
        self.begin(rows[first])
        for step in range(first, len(actions)):
            own = is_open & (acted_at == step)
            self.chosen = replace(actions[step], learned=own[: len(rows[step])])
            self.add(rows[step + 1])
        self.chosen = chosen
        self.num_carried = len(self.actions)

    def add(self, rows: SlotRows) -> None:
        """The rows that followed after `chosen` was done at the last ones."""
        assert self.chosen is not None
        last = self.rows[-1]
        learned = _learned(last, self.chosen)
        if learned.any() or self._has_results:
            if last.action_mask is not None:
                # Second-stage masks are large, and learning needs only the part behind the
                # choice that was made.
                mask = _mask_of(last, self.chosen)
                self.rows[-1] = replace(last, action_mask=mask, second_mask=None)
            self.actions.append(self.chosen)
            self.rows.append(self._kept(rows))
        else:
            # Behaviors may idle for long, or wait for their turn to learn (self-play): rows without
            # actions and results to learn from are not worth keeping.
            self.rows[-1] = self._kept(rows)
        self._open = widened(self._open | learned, len(rows))
        # Results of actions of an earlier rollout close nothing here, so they do not count.
        closes = self._open & rows.closed
        num_results = int(np.count_nonzero(closes))
        self.num_results += num_results
        self._has_results = num_results > 0
        self._open &= ~closes

    def restore(self, saved: Arrays, latest: SlotRows) -> None:
        """Continue from packed `rows`, `actions`, `memory` and how many steps were `carried`, of
        a resume point; without actions, from the latest rows.
        """
        if self.memory is not None:
            self.memory.values = saved["memory"].copy()
        if not below("actions", saved):
            self.begin(latest)
            return
        rows = unpack(below("rows", saved), SlotRows)
        actions = unpack(below("actions", saved), ChosenActions)
        # Added as they were the first time, so that what is counted on the way comes out the same.
        self.begin(rows[0])
        for chosen, row in zip(actions, rows[1:], strict=True):
            self.chosen = chosen
            self.add(row)
        if "carried" in saved:
            self.num_carried = int(saved["carried"])

    def trajectories(self) -> Trajectories:
        """Every action next to its own result; actions still open are not `valid`."""
        before = self.rows[:-1]
        after = self.rows[1:]
        width = len(self.rows[-1])  # a table may have grown since the first row

        def column(rows: Sequence[Any], name: str, empty: Any = 0) -> NDArray[Any]:
            return _stacked([getattr(row, name) for row in rows], width, empty)

        decided = column(before, "deciding")
        acted = _stacked(list(map(_learned, before, self.actions)), width)
        closed = column(after, "closed")
        steps = np.arange(len(before))[:, None]
        # [T, N] the step of the latest action: the one that a result at this step belongs to.
        # Steps only grow, so the largest so far is the latest.
        decided_at = np.where(decided, steps, -1)
        latest_action = np.maximum.accumulate(decided_at, axis=0)
        # Results without an action in this rollout belong to the one before: they are left out.
        at, slot = np.nonzero(closed & (latest_action >= 0))
        source = latest_action[at, slot]
        # A slot that was learned from before may continue without; its results then are not kept.
        kept = acted[source, slot]
        at = at[kept]
        slot = slot[kept]
        source = source[kept]

        def beside_action(values: NDArray[Any], empty: Any) -> NDArray[Any]:
            placed = np.full(decided.shape, empty, values.dtype)
            placed[source, slot] = values[at, slot]
            return placed

        # A result at step t arrived with row t + 1, which shows the state that the action led
        # to.
        value_row = np.broadcast_to(steps + 1, decided.shape)
        masks = [row.action_mask for row in before if row.action_mask is not None]
        return Trajectories(
            obs=_joined_obs([row.obs for row in self.rows], width),
            action_mask=_stacked(masks, width) if masks else None,
            continuous=column(self.actions, "continuous"),
            discrete=column(self.actions, "discrete"),
            acted=acted,
            valid=beside_action(closed, False),
            begins=column(before, "begins"),
            reward=beside_action(column(after, "reward"), 0.0),
            group_reward=beside_action(column(after, "group_reward"), 0.0),
            terminated=beside_action(column(after, "terminated"), False),
            truncated=beside_action(column(after, "truncated"), False),
            agent_id=column(before, "agent_id", empty=-1),
            group_id=column(before, "group_id", empty=-1),
            env_index=column(before, "env_index", empty=-1),
            value_row=beside_action(value_row, 0),
            final=beside_action(_final_index(after, decided.shape), -1),
            final_obs=_concatenated([side_by_side(row.final_obs) for row in after]),
            memory=self._memories(width),
            carried=self._carried(len(before)),
        )

    def _kept(self, rows: SlotRows) -> SlotRows:
        obs, final_obs = self.compact(rows.obs), self.compact(rows.final_obs)
        if obs is rows.obs and final_obs is rows.final_obs:
            return rows  # most policies need everything
        return replace(rows, obs=obs, final_obs=final_obs)

    def _carried(self, num_steps: int) -> NDArray[np.bool_] | None:
        return np.arange(num_steps) < self.num_carried if self.num_carried else None

    def _memories(self, width: int) -> NDArray[np.float32] | None:
        """[T + 1, N, networks, M] what each slot remembered before it observed the row."""
        if self.memory is None:
            return None
        kept = [a.memory for a in self.actions if a.memory is not None]
        # The last row was not acted on yet: its memory is what the next action will see.
        latest = self.memory.recall(self.rows[-1])
        return _stacked([*kept, latest], width)


def _learned(rows: SlotRows, actions: ChosenActions) -> NDArray[np.bool_]:
    """[N] whose actions are learned from."""
    if actions.learned is None:
        return rows.deciding
    return rows.deciding & actions.learned


def _mask_of(rows: SlotRows, actions: ChosenActions) -> NDArray[np.bool_]:
    """The choices each slot had [N, M]; of staged actions, those it had after its first choice."""
    assert rows.action_mask is not None
    if rows.second_mask is None:
        return rows.action_mask
    first = actions.discrete[: len(rows), 0]
    num_first = rows.second_mask.shape[1]
    slots = np.arange(len(rows))
    later = rows.second_mask[slots, first]  # one row per slot: that of its first choice
    first_mask = rows.action_mask[:, :num_first]
    return np.concatenate([first_mask, later], axis=1)


def _final_index(rows: Sequence[SlotRows], shape: tuple[int, ...]) -> NDArray[np.int_]:
    """[T, N] where the true last observation of an ended episode stands among all of them."""
    index = np.full(shape, -1)
    offset = 0
    for step, row in enumerate(rows):
        count = len(row.final_slot)
        # In the order in which `_concatenated` lines them up. Where two episodes of a slot end
        # in one step, the later one wins.
        index[step, row.final_slot] = offset + np.arange(count)
        offset += count
    return index


def _joined_obs(rows: Sequence[Observations], width: int) -> Observations:
    """[T + 1, N, ...] per part, vectors side by side."""
    joined = [side_by_side(obs) for obs in rows]
    by_part = zip(*joined, strict=True)
    return tuple(_stacked(list(part), width) for part in by_part)


def _concatenated(rows: Sequence[Observations]) -> Observations:
    by_part = zip(*rows, strict=True)
    return tuple(np.concatenate(part) for part in by_part)


def _stacked(
    arrays: Sequence[NDArray[Any]], width: int, empty: Any = 0
) -> NDArray[Any]:
    """[T, N, ...] of arrays with up to N slots each."""
    same_width = [widened(array, width, empty) for array in arrays]
    # `np.stack` looks at every array several times, which for small ones takes three times as long.
    shape = (len(arrays), *same_width[0].shape)
    return np.concatenate(same_width).reshape(shape)
