"""Single actions with what was observed before and after them: what reward signals judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from touchline.policies.distributions import to_environment
from touchline.policies.network import Obs
from touchline.training.experience.columns import joined, mapped
from touchline.training.experience.trajectories import Trajectories


@dataclass(frozen=True)
class Transitions:
    """B actions, of any agents and in any order."""

    obs: Obs
    """What the agent acted on, not normalized."""
    next_obs: Obs
    """What truly followed, also where the episode ended."""
    continuous: Float[Tensor, "B C"]
    """As the world got it, in [-1, 1]."""
    discrete: Int[Tensor, "B D"]
    terminated: Bool[Tensor, " B"]

    def __len__(self) -> int:
        return len(self.terminated)

    def flat_actions(self, branches: Sequence[int]) -> Float[Tensor, "B A"]:
        """Continuous actions, then ones and zeros for the choices of all branches."""
        parts = [self.continuous]
        for branch, num_choices in enumerate(branches):
            chosen = self.discrete[:, branch].long()
            parts.append(one_hot(chosen, num_choices).to(self.continuous.dtype))
        return torch.cat(parts, dim=1)

    def narrowed(self, size: int) -> Transitions:
        """The same with the first `size` numbers of all vectors."""
        if self.obs[0].shape[1] == size:
            return self
        obs, next_obs = (
            (part[0][:, :size], *part[1:]) for part in (self.obs, self.next_obs)
        )
        return replace(self, obs=obs, next_obs=next_obs)

    def to(self, device: torch.device) -> Transitions:
        return mapped(self, lambda column: column.to(device))


class Results:
    """The actions of trajectories whose result is known, to be taken in any order."""

    def __init__(self, experience: Sequence[Trajectories]) -> None:
        self._experience = experience
        self._places = [np.nonzero(t.valid) for t in experience]
        sizes = [len(step) for step, _ in self._places]
        # Actions are numbered through all trajectories; these are the bounds between them.
        self._first = np.concatenate([[0], np.cumsum(sizes)])

    def __len__(self) -> int:
        return int(self._first[-1])

    def at(self, index: NDArray[np.int_]) -> Transitions:
        """Some of them, those of each trajectories together."""
        parts = []
        for i, trajectories in enumerate(self._experience):
            start = self._first[i]
            stop = self._first[i + 1]
            is_own = (index >= start) & (index < stop)
            own = index[is_own] - start
            step, slot = self._places[i]
            parts.append(transitions_at(trajectories, step[own], slot[own]))
        return joined(parts)

    def minibatches(
        self, size: int, generator: torch.Generator
    ) -> Iterator[Transitions]:
        """All of them shuffled, in pieces of `size`; a rest is left out unless it is all."""
        total = len(self)
        order = torch.randperm(total, generator=generator).numpy()
        # As in `Batch.minibatches`: a rest of few actions would weigh as much as a whole piece.
        whole = max(total - total % size, size)
        for start in range(0, min(whole, total), size):
            yield self.at(order[start : start + size])


def transitions_at(
    trajectories: Trajectories, step: NDArray[Any], slot: NDArray[Any]
) -> Transitions:
    """The actions at these steps and slots, which must have results."""
    raw = torch.from_numpy(trajectories.continuous[step, slot])
    return Transitions(
        obs=tuple(torch.from_numpy(part[step, slot]) for part in trajectories.obs),
        next_obs=tuple(map(torch.from_numpy, trajectories.next_obs(step, slot))),
        continuous=to_environment(raw),
        discrete=torch.from_numpy(trajectories.discrete[step, slot]),
        terminated=torch.from_numpy(trajectories.terminated[step, slot]),
    )
