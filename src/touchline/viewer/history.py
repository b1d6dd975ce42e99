"""The time machine's memory: exact states since the start, within a budget of bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from touchline.envs.saved_state import Arrays
from touchline.envs.slots import SlotRows
from touchline.envs.slots.rows import COLUMNS
from touchline.policies.policy import ActorState
from touchline.specs import ActionTuple
from touchline.viewer.scoreboard import Returns, Scoreboard, Tally

if TYPE_CHECKING:
    from touchline.viewer.tape import Tape

BUDGET_BYTES = 256 * 2**20
MOST_BRANCHES = 9
"""The most that are kept; the oldest go."""


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
    returns: Returns
    decisions: int = 0
    """Since the world was reset."""
    taken: Mapping[str, ActionTuple] = field(default_factory=dict)
    """[N, ...] the actions that led here."""
    cast: tuple[object, object] = (None, None)
    """The first changes when other policies play here, the second when they do here or beside."""
    tape: Tape | None = None
    """What was being recorded."""
    beside: Moment | None = None
    """Moment of the world beside, if there was one."""
    board: Scoreboard = field(default_factory=Scoreboard)
    score: Tally = field(default_factory=Tally)
    """How the policies of `cast` did until then."""

    @cached_property
    def num_bytes(self) -> int:
        """The size of its arrays."""
        arrays = [*self.world.values(), *self.returns.values()]
        for rows in self.rows.values():
            arrays += [*rows.obs, *(getattr(rows, name) for name in COLUMNS)]
        for actor in self.actors.values():
            arrays += [] if actor.memory is None else [actor.memory]
        own = sum(array.nbytes for array in arrays)
        return own + (0 if self.beside is None else self.beside.num_bytes)


@dataclass(frozen=True)
class Branch:
    """One course of events."""

    begin_s: float
    """When it parted from the branch that it was taken from."""
    moments: list[Moment] = field(default_factory=list)


class History:
    """Moments in the order of their times, and the branches that they were taken from.

    A branch is a whole course of events, from the start; branches share the moments before they
    parted. When all moments exceed the budget, every other one of the longest branch's older half
    goes. So the newest are as close together as they came, and those of long ago are further and
    further apart.
    """

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self.budget_bytes = budget_bytes
        self.num_bytes = 0
        self.number = 1
        """The number of the present branch."""
        self.branches: dict[int, Branch] = {1: Branch(0.0)}
        """Branches by number, in the order in which they began; replaced, never changed."""

    @property
    def _moments(self) -> list[Moment]:
        return self.branches[self.number].moments

    def __len__(self) -> int:
        return len(self._moments)

    def __getitem__(self, index: int) -> Moment:
        return self._moments[index]

    def __iter__(self) -> Iterator[Moment]:
        return iter(self._moments)

    def add(self, moment: Moment) -> None:
        """Keep a moment that is later than all others; the newest one is kept in any case."""
        self._moments.append(moment)
        self.num_bytes += moment.num_bytes
        while self.num_bytes > self.budget_bytes and (
            len(self) > 1 or len(self.branches) > 1
        ):
            self._thin()

    def nearest(self, time_s: float) -> int:
        """The index of the moment closest to a time."""
        after = self.index_at(time_s)
        candidates = [i for i in (after - 1, after) if 0 <= i < len(self)]
        return min(candidates, key=lambda i: abs(self._moments[i].time_s - time_s))

    def index_at(self, time_s: float) -> int:
        """The index of the first moment at or after a time; their number where there is none."""
        return bisect_left(self._moments, time_s, key=lambda moment: moment.time_s)

    def branch_after(self, index: int) -> None:
        """Begin another future after this moment; the one that was stays as a branch."""
        # A list of its own: branches share moments, but `add` writes to the list of one.
        shared = self._moments[: index + 1]
        self.number = max(self.branches) + 1
        kept = list(self.branches.items())[-(MOST_BRANCHES - 1) :]
        self.branches = {**dict(kept), self.number: Branch(shared[-1].time_s, shared)}
        self._count()

    def choose(self, number: int) -> int:
        """Let this branch be the present one; returns the index of the last moment that both share.

        A number that no branch has (any more) changes nothing.
        """
        before = set(self._moments)
        self.number = number if number in self.branches else self.number
        shared = [i for i, moment in enumerate(self._moments) if moment in before]
        return shared[-1] if shared else 0

    def begin_with(self, moment: Moment) -> None:
        """Drop all moments and branches, and keep this moment."""
        self.num_bytes = moment.num_bytes
        self.branches, self.number = {1: Branch(moment.time_s, [moment])}, 1

    def _thin(self) -> None:
        """Drop every other moment of the longest branch's older half, but not the first."""
        longest = max(self.branches.values(), key=lambda branch: len(branch.moments))
        count = len(longest.moments)
        # Every branch is down to one moment: all but the present one go.
        if count == 1:
            self.branches = {self.number: self.branches[self.number]}
        older = slice(1, count // 2, 2) if count >= 4 else slice(0, count // 2)
        dropped = set(longest.moments[older])
        for branch in self.branches.values():
            # In place, because the present branch is read by pages at any time.
            branch.moments[:] = [m for m in branch.moments if m not in dropped]
        self._count()

    def _count(self) -> None:
        kept = {m for branch in self.branches.values() for m in branch.moments}
        self.num_bytes = sum(moment.num_bytes for moment in kept)
