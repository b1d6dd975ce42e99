"""Moments of groups side by side, ready for gradient steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from touchline.policies.nets.group_critic import Groups, GroupSequences
from touchline.policies.nets.memory import Sequences
from touchline.policies.network import Obs
from touchline.training.algorithms.batch import even_pieces, normalized_advantage
from touchline.training.experience.columns import joined, mapped


@dataclass(frozen=True)
class Credited:
    """R actions that are learned from, with what was known of them when they were taken."""

    allowed: Bool[Tensor, "R choices"] | None
    continuous: Float[Tensor, "R C"]
    """Raw, before they were limited for the world."""
    discrete: Int[Tensor, "R D"]
    log_prob: Float[Tensor, " R"]
    baseline: Float[Tensor, "R S"]
    """What the member's group expected without knowing its action."""
    advantage: Float[Tensor, " R"]
    """The mean over reward signals."""
    target: Float[Tensor, "R S"]
    """What followed: the λ-return along the group's line."""

    def __len__(self) -> int:
        return len(self.target)


@dataclass(frozen=True)
class Counts:
    """How many rows of each table belong to each unit: the pieces that a shuffle keeps whole.

    A unit is one moment, or, with memory, a piece of an episode.
    """

    moments: Int[Tensor, " U"]
    members: Int[Tensor, " U"]
    credited: Int[Tensor, " U"]
    moment_sequences: Int[Tensor, " U"] | None = None
    member_sequences: Int[Tensor, " U"] | None = None


@dataclass(frozen=True)
class GroupBatch:
    """K moments of groups, their M members, and the R actions among these that are learned from.

    All tables are in the order of the units.
    """

    groups: Groups
    credited: Credited
    value: Float[Tensor, "K S"]
    """What was expected of each moment."""
    value_target: Float[Tensor, "K S"]
    """The mean of its members' targets."""
    weight: Float[Tensor, " K"]
    """How many of its members are learned from: each counts once, as in ML-Agents."""
    counts: Counts
    critic_sequences: GroupSequences | None = None
    actor_sequences: Sequences | None = None
    """How the R actions fall into pieces of episodes, where the policy has a memory."""

    def __len__(self) -> int:
        return len(self.credited)

    @property
    def own_obs(self) -> Obs:
        """Observations of the R actions."""
        return tuple(part[self.groups.credited] for part in self.groups.obs)

    def with_normalized_advantage(self) -> GroupBatch:
        advantage = normalized_advantage(self.credited.advantage)
        return replace(self, credited=replace(self.credited, advantage=advantage))

    def minibatches(
        self, size: int, generator: torch.Generator
    ) -> Iterator[GroupBatch]:
        """The units shuffled, in pieces of about `size` actions."""
        length = self.counts.credited
        # On the CPU, where the generator is: the same order on every device.
        order = torch.randperm(len(length), generator=generator).to(length.device)
        for chosen in even_pieces(order, length[order], max(len(self) // size, 1)):
            part = self.at(chosen)
            # Some moments have no action that is learned from.
            if len(part):
                yield part

    def at(self, units: Int[Tensor, " V"]) -> GroupBatch:
        """Some of the units, in this order."""
        groups, counts = self.groups, self.counts
        moments = _rows(counts.moments, units)
        members = _rows(counts.members, units)
        credited = _rows(counts.credited, units)
        # References count the rows of other tables, of which only some are left.
        chosen = Groups(
            obs=tuple(part[members] for part in groups.obs),
            actions=groups.actions[members],
            moment=_renumbered(groups.moment[members], moments, groups.num_moments),
            num_moments=len(moments),
            credited=_renumbered(
                groups.credited[credited], members, len(groups.moment)
            ),
        )
        return GroupBatch(
            groups=chosen,
            credited=mapped(self.credited, lambda column: column[credited]),
            value=self.value[moments],
            value_target=self.value_target[moments],
            weight=self.weight[moments],
            counts=mapped(counts, lambda column: column[units]),
            **self._sequences_at(units),
        )

    def _sequences_at(self, units: Int[Tensor, " V"]) -> dict[str, Any]:
        if self.critic_sequences is None or self.actor_sequences is None:
            return {}
        assert self.counts.moment_sequences is not None
        assert self.counts.member_sequences is not None
        moments = _rows(self.counts.moment_sequences, units)
        members = _rows(self.counts.member_sequences, units)
        return {
            "critic_sequences": GroupSequences(
                self.critic_sequences.moments.at(moments)[1],
                self.critic_sequences.members.at(members)[1],
            ),
            "actor_sequences": self.actor_sequences.at(members)[1],
        }


def join_batches(batches: Sequence[GroupBatch]) -> GroupBatch:
    """Several batches as one, in order."""
    groups, *others = zip(*(vars(batch).values() for batch in batches), strict=True)
    return GroupBatch(_joined_groups(groups), *map(joined, others))


def _joined_groups(parts: Sequence[Groups]) -> Groups:
    moment = []
    credited = []
    # Both refer to rows, which are numbered from 0 in each part.
    num_moments = 0
    num_members = 0
    for part in parts:
        moment.append(part.moment + num_moments)
        credited.append(part.credited + num_members)
        num_moments += part.num_moments
        num_members += len(part.moment)
    return Groups(
        obs=joined([part.obs for part in parts]),
        actions=torch.cat([part.actions for part in parts]),
        moment=torch.cat(moment),
        num_moments=num_moments,
        credited=torch.cat(credited),
    )


def _rows(counts: Int[Tensor, " U"], chosen: Int[Tensor, " V"]) -> Int[Tensor, " R"]:
    """The rows of a table that belong to the chosen units; `counts` are the rows of every unit."""
    first = torch.cumsum(counts, dim=0) - counts
    count = counts[chosen]
    start = torch.repeat_interleave(first[chosen], count)
    chosen_before = torch.cumsum(count, dim=0) - count
    before = torch.repeat_interleave(chosen_before, count)
    # A row's position in its unit is its position in the result, less all rows before the unit.
    index = torch.arange(len(start), device=start.device)
    return start + index - before


def _renumbered(
    references: Int[Tensor, " B"], rows: Int[Tensor, " R"], size: int
) -> Int[Tensor, " B"]:
    """References to rows of a table of this size, once only `rows` of it are left."""
    new = references.new_zeros(size)
    # Nothing refers to rows that are gone, because units are kept whole.
    new[rows] = torch.arange(len(rows), device=rows.device)
    return new[references]
