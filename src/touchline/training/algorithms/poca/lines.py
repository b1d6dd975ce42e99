"""Trajectories of slots as time lines of groups.

A line is one group of one world, or one agent without a group. A moment of a line is a step at
which some member acts; a member that acts less often takes part in each moment with what it last
observed and did. A member's death is not an end: the line continues until all members have ended.

Source: Cohen et al. 2021, arXiv:2111.05992, section 4. ML-Agents 1.1.0 pairs a dying agent's last
step with its mates' step before (`agent_processor.py`); here all stand in one moment.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int
from numpy.typing import NDArray

from touchline.training.algorithms.returns import next_true
from touchline.training.experience.trajectories import Trajectories


@dataclass(frozen=True)
class TimeLines:
    """T steps of L lines with up to G members each."""

    slot: Int[np.ndarray, "L G"]
    """Which slot each member is in; 0 where there is no such member."""
    decides: Bool[np.ndarray, "T L"]
    """Whether a line has a moment there."""
    known: Bool[np.ndarray, "T L"]
    """Whether the moment has its result."""
    present: Bool[np.ndarray, "T L G"]
    """Who takes part in each moment."""
    credited: Bool[np.ndarray, "T L G"]
    """Who acted at the moment and has a result: what is learned from."""
    source: Int[np.ndarray, "T L G"]
    """The step of each present member's latest observation and action."""
    stays: Bool[np.ndarray, "T L G"]
    """Who is still there after the moment."""
    final: Int[np.ndarray, "T L G"]
    """Index of the last observation of those whose episode was cut short after it, else -1."""
    last: Int[np.ndarray, "T L G"]
    """The same for all whose episode ended after it."""
    ends: Bool[np.ndarray, "T L"]
    """Moments after which no member is left."""
    begins: Bool[np.ndarray, "T L"]
    """First moments, and those that follow an end."""
    closings: tuple[NDArray[np.int_], ...]
    """Step of the action, slot, moment, line and member of every result."""

    @property
    def interrupted(self) -> Bool[np.ndarray, "T L"]:
        """Ends that were cut short: what would have followed still counts."""
        return np.asarray(self.ends & (self.final >= 0).any(axis=2))

    def placed(
        self, values: Float32[np.ndarray, "T N"]
    ) -> Float32[np.ndarray, "T L G"]:
        """Results of actions, at the moments in which they arrived."""
        action, slot, moment, line, member = self.closings
        placed = np.zeros(self.present.shape, np.float32)
        placed[moment, line, member] = values[action, slot]
        return placed

    def once(self, values: Float32[np.ndarray, "T N"]) -> Float32[np.ndarray, "T L"]:
        """Group rewards, which every member reports, counted once."""
        # Members that act at different steps report the same rewards at different times: of each
        # report only what no other has brought before is new.
        if not values.any():
            return np.zeros(self.decides.shape, np.float32)
        reported = self.placed(values)
        acted_at = np.zeros(self.present.shape, np.int64)
        action, _, moment, line, member = self.closings
        acted_at[moment, line, member] = action
        num_steps, num_lines = self.decides.shape
        lines = np.arange(num_lines)
        # Running sums in float64, because differences of them are taken.
        total = np.zeros((num_steps + 1, num_lines))
        for step in range(num_steps):
            # What others have reported since this member acted is a part of its own report.
            known = total[step] - total[acted_at[step].T, lines]  # [G, L]
            report = reported[step].T  # [G, L]
            # Most steps of a slow member bring no report; 0 then must not undo what others said.
            news = np.where(report != 0, report - known, 0.0)
            # Signed rewards may partly cancel in what a slow member reports, so the largest in
            # size is taken.
            largest = np.abs(news).argmax(axis=0)
            total[step + 1] = total[step] + news[largest, lines]
        return np.diff(total, axis=0).astype(np.float32)


def time_lines(trajectories: Trajectories) -> TimeLines:
    """The lines of all groups, in order of world and group, then the agents without a group."""
    if trajectories.carried is not None:
        # What mates did next to these actions, and what it brought all of them, came before.
        # An agent alone has none.
        is_new = ~trajectories.carried[:, None] | (trajectories.group_id <= 0)
        trajectories = replace(
            trajectories,
            acted=trajectories.acted & is_new,
            valid=trajectories.valid & is_new,
        )
    line_of, slot, exists = _members(trajectories)
    num_lines = len(slot)
    steps = np.arange(len(trajectories.acted))[:, None]
    # Steps only grow, so the largest so far is the latest; -1 before the first.
    acted_at = np.where(trajectories.acted, steps, -1)
    latest = np.maximum.accumulate(acted_at, axis=0)
    # A member is gone once the result of its latest action was an end and has arrived.
    # Before the first it reads the last step, which `latest >= 0` covers.
    is_over = np.take_along_axis(trajectories.final, latest, axis=0) >= 0
    is_over &= np.take_along_axis(trajectories.value_row, latest, axis=0) <= steps
    is_there = (latest >= 0) & ~is_over
    own_line = np.take_along_axis(line_of, latest, axis=0)

    # A slot may serve several lines one after the other: another group's agent may take it over.
    belongs = exists & (own_line[:, slot] == np.arange(num_lines)[:, None])
    acts = trajectories.acted[:, slot] & belongs
    decides = acts.any(axis=2)
    present = is_there[:, slot] & belongs & decides[..., None]
    latest_moment = np.maximum.accumulate(np.where(decides, steps, -1), axis=0)
    # Step, slot, moment, line and member of every result, which came with row t + 1, that is, at
    # the end of step t.
    action, line, member = np.nonzero(trajectories.valid[:, slot] & belongs)
    at_slot = slot[line, member]
    arrived = trajectories.value_row[action, at_slot] - 1
    moment = latest_moment[arrived, line]
    final = np.full(present.shape, -1)
    final[moment, line, member] = trajectories.final[action, at_slot]
    truncated = np.zeros(present.shape, np.bool_)
    truncated[moment, line, member] = trajectories.truncated[action, at_slot]
    stays = present & (final < 0)
    ends = decides & ~stays.any(axis=2)
    has_result = np.zeros(decides.shape, np.bool_)
    has_result[moment, line] = True
    return TimeLines(
        slot=slot,
        decides=decides,
        known=decides & (has_result | (next_true(decides) < len(decides))),
        present=present,
        credited=acts & trajectories.valid[:, slot],
        source=latest[:, slot],
        stays=stays,
        final=np.where(truncated, final, -1),
        last=final,
        ends=ends,
        begins=_begins(decides, ends, latest_moment),
        closings=(action, at_slot, moment, line, member),
    )


def _members(
    trajectories: Trajectories,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The line of each step and slot [T, N], the slots [L, G] of each line, and which exist."""
    group = trajectories.group_id.astype(np.int64)
    world = trajectories.env_index.astype(np.int64)
    num_slots = group.shape[1]
    alone = -1 - np.arange(num_slots)
    # One number for each group of each world; agents without a group have their slot's.
    key = np.where(group > 0, (world << 32) | group, alone)
    keys, acted_line = np.unique(key[trajectories.acted], return_inverse=True)
    line_of = np.full(group.shape, -1)
    line_of[trajectories.acted] = acted_line
    slots = np.broadcast_to(np.arange(num_slots), group.shape)[trajectories.acted]
    # Line and slot as one number, so that one sort finds all members.
    pairs = np.unique(acted_line * num_slots + slots)
    line, slot_of_pair = np.divmod(pairs, num_slots)
    num_members = np.bincount(line, minlength=len(keys))
    first = np.cumsum(num_members) - num_members
    member = np.arange(len(pairs)) - first[line]
    most = int(num_members.max(initial=1))
    shape = (len(keys), most)
    slot = np.zeros(shape, np.int64)
    exists = np.zeros(shape, np.bool_)
    slot[line, member] = slot_of_pair
    exists[line, member] = True
    return line_of, slot, exists


def _begins(
    decides: Bool[np.ndarray, "T L"],
    ends: Bool[np.ndarray, "T L"],
    latest_moment: Int[np.ndarray, "T L"],
) -> Bool[np.ndarray, "T L"]:
    """Moments that are a line's first, or the first after an end."""
    none_yet = np.full((1, decides.shape[1]), -1)
    before = np.concatenate([none_yet, latest_moment[:-1]])
    # Where there is none before, -1 reads the last step, which the first condition covers.
    after_end = (before < 0) | np.take_along_axis(ends, before, 0)
    return np.asarray(decides & after_end)
