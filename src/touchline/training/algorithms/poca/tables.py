"""The rows of a batch of groups as indices into trajectories, and how groups are valued."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch.nn.functional import one_hot

from touchline.policies.nets.group_critic import GroupCritic, Groups
from touchline.policies.nets.memory import cut_into_sequences
from touchline.training.algorithms.poca.lines import TimeLines
from touchline.training.algorithms.valuation import Valuation
from touchline.training.experience.trajectories import Trajectories


@dataclass(frozen=True)
class GroupValuation(Valuation):
    """The horizon and sequences count moments of a group's episode."""

    critic: GroupCritic
    counterfactual: bool
    """MA-POCA: advantages over baselines, own rewards shared. Otherwise MAPPO."""


@dataclass(frozen=True)
class Tables:
    """The rows of one batch: moments line by line, each in order of time."""

    step: Int[np.ndarray, " K"]
    line: Int[np.ndarray, " K"]
    """Step and line of each moment."""
    unit: Int[np.ndarray, " K"]
    """The unit of each moment; see `Counts`."""
    moment: Int[np.ndarray, " M"]
    """The moment of each member."""
    source: Int[np.ndarray, " M"]
    slot: Int[np.ndarray, " M"]
    """Step and slot of its observation and action."""
    seat: Int[np.ndarray, " M"]
    """Its position in its line."""
    credited: Int[np.ndarray, " R"]
    """The members whose action is learned from, unit by unit."""
    sequence: Int[np.ndarray, " R"] | None
    """The sequence of each of those, with memory."""

    @property
    def num_members(self) -> Int[np.ndarray, " K"]:
        """How many members take part in each moment."""
        return np.bincount(self.moment, minlength=len(self.step))

    @property
    def acted(self) -> tuple[Int[np.ndarray, " R"], Int[np.ndarray, " R"]]:
        """Step and slot of the actions that are learned from."""
        return self.source[self.credited], self.slot[self.credited]


def tables_of(
    trajectories: Trajectories, lines: TimeLines, longest: int | None
) -> Tables:
    """Every moment, or, with memory, sequences of up to `longest` moments."""
    if longest is None:
        line, step = np.nonzero(lines.decides.T)
        unit = np.arange(len(step))
    else:
        step, line, length = cut_into_sequences(lines.decides, lines.begins, longest)
        unit = np.repeat(np.arange(len(length)), length)
    moment, seat = np.nonzero(lines.present[step, line])
    at = step[moment], line[moment], seat
    slot = lines.slot[line[moment], seat]
    source = lines.source[at]
    credited = np.flatnonzero(lines.credited[at])
    sequence = None
    if longest is not None:
        # A seat may be taken by another agent within one unit, whose memory then starts empty.
        episode = np.cumsum(trajectories.begins, axis=0)[source, slot]
        key = np.stack([unit[moment], seat, episode])[:, credited]
        # `lexsort` takes the most important key last. It is stable: actions of a sequence stay
        # in order.
        order = np.lexsort(key[::-1])
        credited = credited[order]
        key = key[:, order]
        is_other = (key[:, 1:] != key[:, :-1]).any(axis=0)
        # Cut to length for the case of no action at all, where even the first 0 is too many.
        sequence = np.concatenate([[0], np.cumsum(is_other)])[: len(credited)]
    return Tables(step, line, unit, moment, source, slot, seat, credited, sequence)


def groups_of(
    valuation: GroupValuation, trajectories: Trajectories, tables: Tables
) -> Groups:
    """What the critic takes of these rows."""
    rows = tables.source, tables.slot
    actions = [valuation.tensor(trajectories.continuous[rows])]
    discrete = valuation.tensor(trajectories.discrete[rows])
    branches = valuation.network.spec.action_spec.discrete_branches
    for branch, num_choices in enumerate(branches):
        actions.append(one_hot(discrete[:, branch], num_choices).float())
    return Groups(
        obs=tuple(valuation.tensor(part[rows]) for part in trajectories.obs),
        actions=torch.cat(actions, dim=1),
        moment=valuation.tensor(tables.moment),
        num_moments=len(tables.step),
        credited=valuation.tensor(tables.credited),
    )
