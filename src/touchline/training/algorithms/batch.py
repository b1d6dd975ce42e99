"""Experience side by side, ready for gradient steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from touchline.policies.nets.memory import Sequences
from touchline.policies.network import Obs
from touchline.training.experience.columns import mapped

_COLUMNS = ("continuous", "discrete", "log_prob", "value", "advantage", "target")


@dataclass(frozen=True)
class Batch:
    """M actions with what the policy and the value function said of them when they were taken."""

    obs: Obs
    allowed: Bool[Tensor, "M choices"] | None
    continuous: Float[Tensor, "M C"]
    """Raw, before they were limited for the world."""
    discrete: Int[Tensor, "M D"]
    log_prob: Float[Tensor, " M"]
    value: Float[Tensor, "M S"]
    """One column per reward signal."""
    advantage: Float[Tensor, " M"]
    """The mean over reward signals."""
    target: Float[Tensor, "M S"]
    """What each value should have been."""
    sequences: Sequences | None = None
    """How the actions fall into pieces of episodes, where the policy has a memory."""

    def __len__(self) -> int:
        return len(self.target)

    def at(self, rows: Tensor, sequences: Sequences | None = None) -> Batch:
        """Some of the actions, in this order."""
        chosen = mapped(replace(self, sequences=None), lambda column: column[rows])
        return replace(chosen, sequences=sequences)

    def sample(self, size: int) -> Batch:
        """About `size` of the actions, drawn with replacement; all, if there are no more."""
        # The draws are always the same ones, so that looking at an update does not change the next.
        if len(self) <= size:
            return self
        generator = torch.Generator().manual_seed(0)

        def drawn(count: int, most: int) -> Tensor:
            rows = torch.randint(most, (count,), generator=generator)
            return rows.to(self.target.device)

        if self.sequences is None:
            return self.at(drawn(size, len(self)))
        num_sequences = len(self.sequences)
        # Sequences stay whole: as many as have about `size` actions.
        some = max(size * num_sequences // len(self), 1)
        return self.at(*self.sequences.at(drawn(some, num_sequences)))

    def split(self, size: int) -> Iterator[Batch]:
        """Pieces of `size` actions, in order; not for sequences."""
        # One split per column, instead of one index per column and minibatch: views, not
        # copies.
        columns = [torch.split(getattr(self, name), size) for name in _COLUMNS]
        num_pieces = len(columns[0])
        allowed: Sequence[Tensor | None] = [None] * num_pieces
        if self.allowed is not None:
            allowed = torch.split(self.allowed, size)
        obs = zip(*(torch.split(part, size) for part in self.obs), strict=True)
        # In the order of the fields of `Batch`, which its constructor takes by position.
        pieces: Iterator[Any] = zip(obs, allowed, *columns, strict=True)
        return (Batch(*piece) for piece in pieces)

    def with_normalized_advantage(self) -> Batch:
        return replace(self, advantage=normalized_advantage(self.advantage))

    def minibatches(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        """The actions shuffled, in pieces of `size`.

        A rest smaller than that waits for the next shuffle, unless it is all there is. Sequences
        stay whole: pieces of them have about `size` actions.
        """
        total = len(self)
        device = self.target.device
        if self.sequences is None:
            order = torch.randperm(total, generator=generator).to(device)
            # ML-Agents, too, drops the rest (`trainer/on_policy_trainer.py`): its few actions
            # would weigh as much as a whole piece.
            rest = total % size
            whole = max(total - rest, size)
            # Gathered once in shuffled order, then cut: one copy instead of one per piece.
            shuffled = self.at(order[:whole])
            yield from shuffled.split(size)
            return
        order = torch.randperm(len(self.sequences), generator=generator).to(device)
        length = self.sequences.length[order]
        for chosen in even_pieces(order, length, max(total // size, 1)):
            yield self.at(*self.sequences.at(chosen))


def normalized_advantage(advantage: Float[Tensor, " M"]) -> Float[Tensor, " M"]:
    """With mean 0 and standard deviation 1."""
    # A batch may hold equal advantages. Of the batch itself, not estimated from a sample: without
    # the correction a batch of one action has a spread, too.
    spread = advantage.std(correction=0) + 1e-8
    return (advantage - advantage.mean()) / spread


def even_pieces(
    units: Int[Tensor, " U"], length: Int[Tensor, " U"], num_pieces: int
) -> Iterator[Int[Tensor, " V"]]:
    """Units, which stay whole, in pieces of about the same length, in order."""
    total = int(length.sum())
    # A unit goes where its middle falls, so that pieces come out about even.
    middle = torch.cumsum(length, dim=0) - (length + 1) // 2
    # Multiplied before divided, all in integers: a rounded quotient could put the last unit into a
    # piece that does not exist.
    piece = middle.clamp(min=0) * num_pieces // max(total, 1)
    num_units = torch.bincount(piece).tolist()
    # One long unit may span a whole piece and leave it empty.
    return (chosen for chosen in torch.split(units, num_units) if len(chosen))
