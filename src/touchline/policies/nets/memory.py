"""Episodes cut into sequences, through which the gradient of a network with memory flows back.

The memories themselves are in modules of their own; `touchline.policies.memory` names them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Sequences:
    """How a batch of B experiences is divided into S sequences, one after the other."""

    length: Int[Tensor, " S"]
    """Experiences in each sequence; they add up to B."""
    memory: Float[Tensor, "S W M"]
    """Before the first experience of each."""

    def __len__(self) -> int:
        return len(self.length)

    def positions(self) -> tuple[Int[Tensor, " B"], Int[Tensor, " B"]]:
        """For each experience, its position in its sequence, and the number of that sequence."""
        numbers = torch.arange(len(self.length), device=self.length.device)
        sequence = torch.repeat_interleave(numbers, self.length)
        index = torch.arange(len(sequence), device=self.length.device)
        return index - self.first[sequence], sequence

    def at(self, chosen: Int[Tensor, " K"]) -> tuple[Int[Tensor, " B"], Sequences]:
        """Some of the sequences, and the rows of the batch that belong to them, in order."""
        picked = Sequences(self.length[chosen], self.memory[chosen])
        position, sequence = picked.positions()
        first = self.first[chosen]
        return first[sequence] + position, picked

    def of(self, which: int) -> Sequences:
        """The same with the memories of one network, [S, 1, M]."""
        return Sequences(self.length, self.memory[:, which : which + 1])

    def padding(self) -> Padding:
        """The batch as a rectangle, for memories that run all sequences at once."""
        position, sequence = self.positions()
        return Padding(position, sequence, int(self.length.max()), len(self))

    def to(self, device: torch.device) -> Sequences:
        return Sequences(self.length.to(device), self.memory.to(device))

    @property
    def first(self) -> Int[Tensor, " S"]:
        """The row of the batch at which each sequence starts."""
        return torch.cumsum(self.length, dim=0) - self.length


@dataclass(frozen=True)
class Padding:
    """Where each of B experiences is in a rectangle of S sequences that are L steps long."""

    position: Int[Tensor, " B"]
    sequence: Int[Tensor, " B"]
    longest: int
    """L."""
    count: int
    """S."""

    def padded(self, x: Float[Tensor, "B I"]) -> Float[Tensor, "L S I"]:
        """The experiences, step by step."""
        # Zeros are behind the shorter sequences: memories run forward, so the zeros change no
        # result before them.
        padded = x.new_zeros(self.longest, self.count, x.shape[1])
        padded[self.position, self.sequence] = x
        return padded

    def flat(self, out: Float[Tensor, "L S H"]) -> Float[Tensor, "B H"]:
        """The results of the experiences."""
        return out[self.position, self.sequence]


def cut_into_sequences(
    valid: Bool[np.ndarray, "T N"], begins: Bool[np.ndarray, "T N"], longest: int
) -> tuple[Int[np.ndarray, " B"], Int[np.ndarray, " B"], Int[np.ndarray, " S"]]:
    """Steps and slots of all valid actions, sequence by sequence, and the sequences' lengths.

    A sequence is `longest` actions of one episode, or what is left of it; steps without an action
    do not count.
    """
    slot, step = np.nonzero(valid.T)  # slot by slot, each in order of time
    if not len(slot):
        return step, slot, np.zeros(0, np.int64)
    # Episodes of a slot are numbered by the begins so far.
    episode = np.cumsum(begins, axis=0)[step, slot]
    starts_episode = np.ones(len(slot), np.bool_)
    is_other_slot = slot[1:] != slot[:-1]
    is_other_episode = episode[1:] != episode[:-1]
    starts_episode[1:] = is_other_slot | is_other_episode
    index = np.arange(len(slot))
    # Indices only grow, so the largest start so far is the latest.
    started_at = np.where(starts_episode, index, 0)
    episode_start = np.maximum.accumulate(started_at)
    position = index - episode_start
    starts = np.flatnonzero(position % longest == 0)
    length = np.diff(starts, append=len(slot))
    return step, slot, length
