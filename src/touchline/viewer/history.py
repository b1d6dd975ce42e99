"""The time machine's memory: exact states since the start, within a budget of bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from touchline.envs.saved_state import Arrays
from touchline.envs.slots import SlotRows
from touchline.policies.actors import ActorState
from touchline.viewer.scoreboard import Scoreboard

BUDGET_BYTES = 256 * 2**20


@dataclass(frozen=True, eq=False)
class Moment:
    """Everything needed to go on exactly from one decision."""

    time_s: float
    """Time in the film, see `Simulation.time_s`."""
    world: Arrays
    """As `Slots.state` gave it."""
    rows: Mapping[str, SlotRows]
    """What the agents decide on, by full behavior name."""
    actors: Mapping[str, ActorState]
    returns: Mapping[str, NDArray[Any]]
    """[N] the rewards of each slot's open episode so far."""
    recorded: tuple[int, int] = (0, 0)
    """The number of the tape that ran, 0 for none, and its length."""
    beside: Moment | None = None
    """Moment of the world beside, if there was one."""
    board: Scoreboard = field(default_factory=Scoreboard)

    @property
    def num_bytes(self) -> int:
        """The size of its arrays."""
        arrays = [*self.world.values(), *self.returns.values()]
        for rows in self.rows.values():
            arrays += [*rows.obs, rows.flags, rows.rewards, rows.ids]
        for actor in self.actors.values():
            arrays += [] if actor.memory is None else [actor.memory]
        own = sum(array.nbytes for array in arrays)
        return own + (0 if self.beside is None else self.beside.num_bytes)


class History:
    """Moments in the order of their times.

    When they exceed the budget, every other one of the older half goes. So the newest are as close
    together as they came, and those of long ago are further and further apart.
    """

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self.budget_bytes = budget_bytes
        self.num_bytes = 0
        self._moments: list[Moment] = []
        self._sizes: list[int] = []

    def __len__(self) -> int:
        return len(self._moments)

    def __getitem__(self, index: int) -> Moment:
        return self._moments[index]

    def __iter__(self) -> Iterator[Moment]:
        return iter(self._moments)

    def add(self, moment: Moment) -> None:
        """Keep a moment that is later than all others; the newest one is kept in any case."""
        self._moments.append(moment)
        self._sizes.append(moment.num_bytes)
        self.num_bytes += self._sizes[-1]
        while self.num_bytes > self.budget_bytes and len(self) > 1:
            self._thin()

    def nearest(self, time_s: float) -> int:
        """The index of the moment closest to a time. Raises an IndexError when there is none."""
        if not self._moments:
            raise IndexError("no moment was kept")
        after = bisect_left(self._moments, time_s, key=lambda moment: moment.time_s)
        candidates = [i for i in (after - 1, after) if 0 <= i < len(self)]
        return min(candidates, key=lambda i: abs(self._moments[i].time_s - time_s))

    def forget_after(self, index: int) -> None:
        """Drop all moments after this one: from here on another future begins."""
        self.num_bytes -= sum(self._sizes[index + 1 :])
        del self._moments[index + 1 :], self._sizes[index + 1 :]

    def begin_with(self, moment: Moment) -> None:
        """Drop all moments and keep this one."""
        self.num_bytes = moment.num_bytes
        self._moments = [moment]
        self._sizes = [self.num_bytes]

    def _thin(self) -> None:
        """Drop every other moment of the older half, but not the first."""
        older = slice(1, len(self) // 2, 2) if len(self) >= 4 else slice(0, 1)
        self.num_bytes -= sum(self._sizes[older])
        del self._moments[older], self._sizes[older]
