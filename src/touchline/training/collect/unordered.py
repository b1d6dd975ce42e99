"""Collectors that do not wait for each other, for learners that also learn from older policies.

Each collector brings a piece of experience at a time, and continues at once with the weights that
are newest at that moment, while the head learns from the piece. Weights have versions, one for each
time that new ones go out. The bound: when a piece is learned from, at most `versions_behind` newer
versions have gone out since it was begun. A collector that is so far ahead of the slowest one waits
for it.
"""

from collections.abc import Mapping
from typing import Any

from touchline.log import Log
from touchline.parameters import ParameterValue
from touchline.training.collect.collector import Collection, Lineup
from touchline.training.collect.several import NOTHING, SeveralCollectors, Workers
from touchline.training.collect.worker import Answer, Call
from touchline.training.run.stopwatch import Stopwatch

PIECE = 128
"""Results in a piece: a message costs some milliseconds, as much as a hundred actions in a small
scene."""
VERSIONS_PER_COLLECTOR = 2
"""At equal speed, each of N collectors is N versions behind; those of half the speed are 2 N."""


class UnorderedCollectors(SeveralCollectors):
    """A `Collector` of N workers whose experience arrives in any order."""

    def __init__(
        self, workers: Workers, log: Log, lineup: Lineup, stopwatch: Stopwatch
    ) -> None:
        super().__init__(workers, log, lineup, stopwatch)
        self.versions_behind = VERSIONS_PER_COLLECTOR * self._size
        """Most versions of the weights that a piece may be behind."""
        self.furthest_behind = 0
        """Most versions that any piece was behind so far."""
        self._version = 0
        """Version of the weights that were sent last."""
        self._is_outdated = True
        """Whether something was learned since then."""
        self._calls: dict[int, tuple[Call, Any, int]] = {}
        """Each worker that collects: its call, policies and their version."""
        self._drawn: Mapping[str, set[int]] = {}
        """Base name -> the opponents that enter new games, as these policies have them."""
        self._arrived: dict[int, Answer] = {}
        """Pieces that were waited for, and not handed over yet."""

    def collect(self, wanted: Mapping[str, int]) -> Collection:
        """What has arrived meanwhile; empty where nothing has."""
        self._start_idle(wanted)
        answers = self._arrived or self._received()
        self._arrived = {}
        if not answers:
            return NOTHING
        # They continue while the head learns from what they brought.
        self._start_idle(wanted)
        self._is_outdated = True
        return self._merged(answers)

    def reset(self, seed: int | None = None) -> None:
        self._finish_pieces()
        self._arrived = {}
        super().reset(seed)

    def set_parameters(self, values: Mapping[str, ParameterValue]) -> None:
        """Pieces that were begun before are handed over by the next call of `collect`."""
        if values:
            self._finish_pieces()
            super().set_parameters(values)

    def _start_idle(self, wanted: Mapping[str, int]) -> None:
        """Let the workers that have nothing to do collect a piece, within the bound."""
        idle = [index for index in range(self._size) if index not in self._calls]
        if not idle:
            return
        if self._is_outdated or self._policies is None:
            oldest = min((call[2] for call in self._calls.values()), default=None)
            if oldest is not None and self._version + 1 - oldest > self.versions_behind:
                return
            policies = self._latest_policies()
            self._drawn = {b: set(pool.drawn) for b, pool in policies.pools.items()}
            self._policies = self._workers.shared(policies)
            self._version += 1
            self._is_outdated = False
        shares = {b: max(PIECE, -(-n // self._size)) for b, n in wanted.items()}
        for index in idle:
            self._number += 1
            call: Call = "collect", (self._number, shares, self._workers.slice_s)
            self._calls[index] = call, self._policies, self._version
            self._note_drawn(index)
            self._start(index, call, self._policies)

    def _note_drawn(self, index: int) -> None:
        """Opponents that may begin a game there before its next answer."""
        plays = self._plays[index]
        for base, drawn in self._drawn.items():
            plays[base] = plays.get(base, set()) | drawn

    def _received(self) -> dict[int, Answer]:
        over = {}
        for index, answer in sorted(self._finished().items()):
            call, policies, version = self._calls[index]
            if not answer.is_over:
                self._underway[index] = answer.underway
                self._start(index, call, policies)
                continue
            del self._calls[index]
            self._underway.pop(index, None)
            behind = self._version - version
            self.furthest_behind = max(self.furthest_behind, behind)
            over[index] = answer
        self._keep(over)
        return over

    def _finish_pieces(self) -> None:
        while self._calls:
            self._arrived |= self._received()
