"""The critic of a group: what its members expect together, and what each of them contributes.

Members attend to each other, so their number is free. One pass gives the value of every moment and
the counterfactual baselines of its members: each member is encoded once without and once with its
action (2 G encodings), and a baseline pools one encoding without with the others' encodings with.

Sizes follow ML-Agents 1.1.0 (`torch_entities/networks.py`, `MultiAgentNetworkBody`, and
`torch_entities/attention.py`).

Source: Cohen et al. 2021, "On the Use and Misuse of Absorbing States in Multi-agent Reinforcement
Learning", arXiv:2111.05992.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad, silu

from touchline.policies.memory import MemoryCell, make_memory
from touchline.policies.nets.attention import ABSENT, ATTENTION_HEADS
from touchline.policies.nets.bodies import CHUNK_SIZE, Body
from touchline.policies.nets.dense import first_value_weight, layer_norm, linear, values
from touchline.policies.nets.encoders import Sensors
from touchline.policies.nets.memory import Sequences
from touchline.policies.nets.normalizer import RunningNormalizer

if TYPE_CHECKING:
    from touchline.policies.network import Architecture, Obs
    from touchline.specs import BehaviorSpec

ENTITY_GAIN = 0.125**0.5
"""Gain of the first weights of everything up to the attention's result. Source: ML-Agents 1.1.0,
`torch_entities/networks.py`."""


@dataclass(frozen=True)
class Groups:
    """K moments of groups, and the M members present in them, moment by moment."""

    obs: Obs
    """[M, ...] each; not normalized, because the critic has a normalizer of its own."""
    actions: Float[Tensor, "M A"]
    """Raw continuous actions, then a one-hot vector for each branch."""
    moment: Int[Tensor, " M"]
    """The moment of each member, in ascending order."""
    num_moments: int
    """K."""
    credited: Int[Tensor, " R"]
    """The members that need a baseline."""

    def without_baselines(self) -> Groups:
        """The same where only values are needed."""
        return replace(self, credited=self.credited[:0])

    def positions(self) -> Int[Tensor, " M"]:
        """The position of each member among those present in its moment."""
        num_members = torch.bincount(self.moment, minlength=self.num_moments)
        first = torch.cumsum(num_members, dim=0) - num_members
        return torch.arange(len(self.moment), device=first.device) - first[self.moment]


@dataclass(frozen=True)
class GroupSequences:
    """How moments and credited members fall into pieces of episodes, for critics with memory."""

    moments: Sequences
    """The K moments; memories [S, 1, M]."""
    members: Sequences
    """The R credited members; memories [S, 1, M]."""


class GroupCritic(nn.Module):
    """Values [K, S] of groups, and baselines [R, S] of their members."""

    most_members: Float[Tensor, ""]
    """The largest number of members seen so far."""

    def __init__(
        self, spec: BehaviorSpec, architecture: Architecture, num_signals: int = 1
    ) -> None:
        """`hidden_units` is a multiple of the number of attention heads."""
        super().__init__()
        hidden = architecture.hidden_units
        size = Sensors.from_spec(spec).vector_size
        actions = spec.action_spec
        self.branches = actions.discrete_branches
        self.normalizer = (
            RunningNormalizer(size) if architecture.normalize and size else None
        )
        # Goals are inputs like others here, as in ML-Agents.
        self.encoders = Body(spec, architecture, encoders_only=True)
        size = self.encoders.size
        action_size = actions.continuous_size + sum(self.branches)
        self.member = nn.Linear(size, hidden)
        self.member_with_action = nn.Linear(size + action_size, hidden)
        self.query_key_value = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        projections = self.member, self.member_with_action, self.query_key_value
        for layer in (*projections, self.out):
            nn.init.normal_(layer.weight, std=ENTITY_GAIN * hidden**-0.5)
            nn.init.zeros_(layer.bias)
        layers: list[nn.Module] = []
        for _ in range(architecture.num_layers):
            layers += [linear(hidden, hidden), nn.SiLU()]
        self.dense = nn.Sequential(*layers)
        self.memory: MemoryCell | None = None
        if architecture.memory_size:
            self.memory = make_memory(
                architecture.memory_type, hidden, architecture.memory_size
            )
        width = hidden if self.memory is None else self.memory.width
        # One more input: how many members there are.
        self.value_weight = nn.Parameter(first_value_weight(num_signals, width + 1))
        self.value_bias = nn.Parameter(torch.zeros(num_signals))
        # In checkpoints, because values depend on it.
        self.register_buffer("most_members", torch.ones(()))

    def forward(
        self, groups: Groups, sequences: GroupSequences | None = None
    ) -> tuple[Float[Tensor, "K S"], Float[Tensor, "R S"]]:
        """Values and baselines; with a memory, of the sequences that the groups consist of."""
        of_moments, of_members = self.features(groups)
        if self.memory is not None:
            assert sequences is not None
            of_moments = self.memory.run(of_moments, sequences.moments)
            of_members = self.memory.run(of_members, sequences.members)
        num_members = torch.bincount(groups.moment, minlength=groups.num_moments)
        of_whom = num_members[groups.moment[groups.credited]]
        return self.values(of_moments, num_members), self.values(of_members, of_whom)

    def values(
        self, features: Float[Tensor, "B H"], num_members: Int[Tensor, " B"]
    ) -> Float[Tensor, "B S"]:
        """Values from features (after the memory, if there is one) of groups of this size."""
        # From -1 to 1, as ML-Agents has it: how many are left, in relation to the largest group
        # so far.
        share = 2.0 * num_members / self.most_members - 1.0
        features = torch.cat([features, share[:, None]], dim=1)
        return values(features, self.value_weight, self.value_bias)

    def features(
        self, groups: Groups
    ) -> tuple[Float[Tensor, "K H"], Float[Tensor, "R H"]]:
        """Everything but the memory, of the moments and of the members' baselines."""
        members = self._encoded(groups)  # [2 M + 1, h]
        position = groups.positions()
        num_rows = len(position)
        absent = 2 * num_rows  # the table's last row stands for all that are not there
        most = int(position.max()) + 1 if num_rows else 1
        # [K, G] the row in `members` of each member, without its action.
        present = position.new_full((groups.num_moments, most), absent)
        row = torch.arange(num_rows, device=present.device)
        present[groups.moment, position] = row
        if most == 1:  # there are no mates, whose actions would be known
            of_moments = self._pooled(members, present, absent)
            return of_moments, of_moments[groups.moment[groups.credited]]
        others = present[groups.moment[groups.credited]]  # [R, G]
        # The second half of the table holds the same members with their actions.
        others = torch.where(others < absent, others + num_rows, absent)
        own = position[groups.credited][:, None]
        # Of the credited member itself, the critic may not know the action.
        others.scatter_(1, own, groups.credited[:, None])
        rows = torch.cat([present, others])  # [K + R, G]
        pooled = self._pooled(members, rows, absent)
        return pooled[: groups.num_moments], pooled[groups.num_moments :]

    def _encoded(self, groups: Groups) -> Float[Tensor, "M2 h"]:
        """All members without their action, then all with, then one row for an absent member."""
        obs = groups.obs
        if self.normalizer is not None:
            obs = self.normalizer(obs[0]), *obs[1:]
        encoded = self.encoders.features(obs)  # [M, E]
        with_action = torch.cat([encoded, groups.actions], dim=1)
        alone = silu(self.member(encoded))
        acting = silu(self.member_with_action(with_action))
        both = layer_norm(torch.cat([alone, acting]))
        return pad(both, (0, 0, 0, 1))  # one more row of zeros

    def _pooled(
        self, members: Float[Tensor, "M2 h"], rows: Int[Tensor, "B G"], absent: int
    ) -> Float[Tensor, "B h"]:
        """What the dense layers make of sets of members."""
        projected = self.query_key_value(members)
        if torch.is_grad_enabled():
            return self.dense(self._attended(members, projected, rows, absent))  # type: ignore[no-any-return]
        # The sets of a whole buffer would need much memory at once.
        pieces = torch.split(rows, CHUNK_SIZE)
        found = [self._attended(members, projected, piece, absent) for piece in pieces]
        return torch.cat([self.dense(one) for one in found])

    def _attended(
        self,
        members: Float[Tensor, "M2 h"],
        projected: Float[Tensor, "M2 h3"],
        rows: Int[Tensor, "B G"],
        absent: int,
    ) -> Float[Tensor, "B h"]:
        """The mean of sets of members after they attended to each other."""
        # Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2. Scores are divided by √h and
        # not by √(h / heads), as ML-Agents 1.1.0 does.
        hidden = members.shape[1]
        present: Bool[Tensor, "B G"] = rows < absent
        head_size = hidden // ATTENTION_HEADS
        parted = projected[rows].view(*rows.shape, 3, ATTENTION_HEADS, head_size)
        query, key, value = parted.permute(2, 0, 3, 1, 4)  # [B, heads, G, D] each
        scores = query @ key.transpose(2, 3) * hidden**-0.5  # [B, heads, G, G]
        # 0, or -1 where there is no member.
        missing = present[:, None, None].to(scores.dtype) - 1.0
        attended = torch.softmax(scores + missing * ABSENT, dim=3) @ value
        attended = attended.transpose(1, 2).reshape(*rows.shape, hidden)
        x = layer_norm(self.out(attended) + members[rows])
        weight = present[:, :, None].to(x.dtype)
        # A set may be empty, because all members of a group may be gone.
        count = weight.sum(dim=1) + 1e-7
        return torch.div((x * weight).sum(dim=1), count)
