"""Several collectors, in this process or on a cluster: one round of all of them for each update.

Every collector has its own worlds, forward passes and random numbers, and brings the same share of
the results that a learner wants. A round ends when all have brought theirs; they are learned from
in the order of the collectors, whichever was first. So a run with N collectors is the same run
wherever they are. `UnorderedCollectors` do not wait for each other, and promise none of this.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from touchline.envs.env import EnvRecipe
from touchline.envs.saved_state import Arrays, below, prefixed
from touchline.envs.slots import AllRows, SlotRows
from touchline.jobs.job import InThisProcess, Job, Outcome
from touchline.log import Log
from touchline.parameters import ParameterValue
from touchline.policies.network_policy import NetworkPolicy
from touchline.policies.shared_slots import SharedSlots
from touchline.specs import base_name
from touchline.statistics import merged_statistics
from touchline.training.collect.collector import (
    Collection,
    GameHost,
    Lineup,
    of_collector,
)
from touchline.training.collect.copies import Policies, policies_of, weights_of
from touchline.training.collect.worker import Answer, Call, Shown, Worker, WorkerSetup
from touchline.training.experience.trajectories import Trajectories
from touchline.training.run.packing import unpack
from touchline.training.run.stopwatch import Stopwatch

NOTHING = Collection()


class RunningWorker(Protocol):
    """A worker in its place, a job for each call."""

    def begin(self, call: Call, policies: Any, back_to: Arrays | None) -> None:
        """Begin a call; there is no other.

        A worker that dies is replaced by one in the state `back_to`, which gets the call again;
        None: worlds that were not reset yet.
        """

    def look(self) -> Outcome | None:
        """The `Answer`; None where there is none yet."""

    def lines(self) -> list[str]:
        """Lines about its restarts."""


class WorkerHere(InThisProcess):
    """A worker in this process."""

    def __init__(self, setup: WorkerSetup) -> None:
        super().__init__(Job(f"collector {setup.index}", Worker(setup).run))

    def begin(self, call: Call, policies: Any, back_to: Arrays | None) -> None:
        self.outcome = None
        self._job = replace(self._job, arguments=([call], policies))


class Workers:
    """N workers, each of which makes one call at a time."""

    at_once = 1
    """How many of them work at the same time."""
    slice_s = 0.05
    """How long one call of `collect` takes: what Ctrl-C has to wait for."""

    def __init__(
        self, setups: Sequence[WorkerSetup], workers: Sequence[RunningWorker], log: Log
    ) -> None:
        self.setups = setups
        """Those of the workers that may replace them."""
        self._workers = workers
        self._log = log
        self._busy: set[int] = set()

    def open(self) -> None:
        self._all("open")

    def _all(self, method: str) -> None:
        for index in range(len(self.setups)):
            self.start(index, (method, ()), back_to=None)
        while self._busy:
            for answer in self.finished().values():
                answer.outcome.result()

    def shared(self, policies: Policies) -> Any:
        """What to pass to `start` as `policies`."""
        return policies

    def start(
        self, index: int, call: Call, policies: Any = None, *, back_to: Arrays | None
    ) -> None:
        """Begin a call of one worker; see `RunningWorker.begin`."""
        self._workers[index].begin(call, policies, back_to)
        self._busy.add(index)

    def finished(self) -> dict[int, Answer]:
        """Answers that have arrived since the last call of this; waits a moment for some."""
        answers = {}
        for index in sorted(self._busy):
            outcome = self._workers[index].look()
            for line in self._workers[index].lines():
                self._log(line)
            if outcome is not None:
                self._busy.remove(index)
                answers[index] = outcome.result()
        return answers

    def close(self) -> None:
        """Close the worlds. Idempotent."""
        self._all("close")


class Here(Workers):
    """Workers in this process."""

    def __init__(self, setups: Sequence[WorkerSetup], log: Log) -> None:
        super().__init__(setups, [WorkerHere(setup) for setup in setups], log)


class SeveralCollectors:
    """A `Collector` of N workers; the caller opens and closes them."""

    def __init__(
        self, workers: Workers, log: Log, lineup: Lineup, stopwatch: Stopwatch
    ) -> None:
        """Of the lineup only the policies are used: they act in copies."""
        self._workers = workers
        self._size = len(workers.setups)
        self._log = log
        self._lineup = lineup
        self._stopwatch = stopwatch
        self.slots = Shown()
        self._shown: dict[int, Shown] = {}
        self._states: list[Arrays | None] = [None] * self._size
        """State of each worker after its latest round: what a resume point holds, and from which a
        worker continues that takes the place of a dead one."""
        self._number = 0
        """Number of the current or next round."""
        self._call: Call | None = None
        """That of the current round; None between rounds."""
        self._policies: Any = None
        self._ended: dict[int, Answer] = {}
        """The workers that are done with this round."""
        self._underway: dict[int, Mapping[str, int]] = {}
        self._plays: list[dict[str, set[int]]] = [{} for _ in range(self._size)]
        """Opponents that play at each worker, by base name, with self-play."""
        self._waited_s = 0.0
        """For answers, in this round."""

    @property
    def rows(self) -> AllRows:
        """Those of the first collector; empty where worlds cannot be restored."""
        state = self._states[0] or {}
        found = {}
        for name in self.slots.behaviors:
            packed = below(f"collector/rows/{name}", state)
            if packed:
                (found[name],) = unpack(packed, SlotRows)
        return found

    def reset(self, seed: int | None = None) -> None:
        self._all([("reset", (seed,))] * self._size)

    def set_parameters(self, values: Mapping[str, ParameterValue]) -> None:
        # Every call is a message to all workers, and most lessons change nothing.
        if not values:
            return
        self._workers.setups = [
            _with_parameters(setup, values) for setup in self._workers.setups
        ]
        self._all([("set_parameters", (values,))] * self._size)

    def load_state(self, arrays: Arrays) -> None:
        states = [below(f"{index}", arrays) for index in range(self._size)]
        self._all([("load_state", (state,)) for state in states])

    def state(self) -> Arrays:
        # That before the current round, which is collected again.
        together: Arrays = {}
        for index, state in enumerate(self._states):
            if not state:
                return {}
            together |= prefixed(f"{index}", state)
        return together

    def save_trace(self, path: Path, recipe: EnvRecipe) -> None:
        """Write the states before this round; the same weights lead to the same steps again."""
        arrays = {f"state/{name}": array for name, array in self.state().items()}
        np.savez_compressed(path, recipe=repr(recipe), seed=recipe.seed, **arrays)  # type: ignore[arg-type]

    def underway(self, behavior: str) -> tuple[int, list[float]]:
        return sum(known.get(behavior, 0) for known in self._underway.values()), []

    def collect(self, wanted: Mapping[str, int]) -> Collection:
        """Some of the way through a round; empty until all collectors are done with it."""
        if self._call is None:
            self._begin(wanted)
        assert self._call is not None
        for index, answer in self._finished().items():
            self._underway[index] = answer.underway
            if answer.is_over:
                self._ended[index] = answer
            else:
                self._start(index, self._call, self._policies)
        if len(self._ended) < self._size:
            return NOTHING
        # In the order of the collectors, whichever was first.
        answers = {index: self._ended[index] for index in range(self._size)}
        self._keep(answers)
        self._call = None
        return self._merged(answers)

    def _begin(self, wanted: Mapping[str, int]) -> None:
        """The next round: the newest weights go out, once for all."""
        policies = self._latest_policies()
        # Rounded up: together they bring at least what is wanted.
        shares = {b: math.ceil(count / self._size) for b, count in wanted.items()}
        self._number += 1
        self._waited_s = 0.0
        self._call = "collect", (self._number, shares, self._workers.slice_s)
        # Once for all workers: on a cluster, each node then gets the weights once.
        self._policies = self._workers.shared(policies)
        self._ended, self._underway = {}, {}
        for index in range(self._size):
            self._start(index, self._call, self._policies)

    def _latest_policies(self) -> Policies:
        latest = {}
        behaviors = self.slots.behaviors
        for name, spec in behaviors.items():
            policy = self._lineup.seat(name, spec).policy
            # Opponents of the slots in this process, of which there are none.
            policy = policy.own if isinstance(policy, SharedSlots) else policy
            assert isinstance(policy, NetworkPolicy), "networks are learned"
            latest[base_name(name)] = weights_of(policy)
        host = self._lineup
        roster = host.roster(list(behaviors)) if isinstance(host, GameHost) else None
        return policies_of(latest, roster)

    def _merged(self, answers: Mapping[int, Answer]) -> Collection:
        together = list(answers.values())
        reports = [answer.games for answer in together if answer.games is not None]
        if reports and isinstance(self._lineup, GameHost):
            names = list(self.slots.behaviors)
            self._lineup.record_games(names, reports, self._plays)
        brought = [answer.collection for answer in together]
        merged = Collection(statistics=merged_statistics(c.statistics for c in brought))
        for collection in brought:
            merged.add(replace(collection, statistics={}))
        with self._stopwatch("learning"):
            for index, answer in answers.items():
                setup = self._workers.setups[index]
                for name, packed in answer.trajectories.items():
                    key = of_collector(name, setup.index)
                    unpacked = _trajectories(packed, setup.first_world)
                    merged.trajectories[key] = unpacked
        self._add_seconds(together)
        return merged

    def _add_seconds(self, answers: Sequence[Answer]) -> None:
        """Parts of the work, as means over workers that work at the same time; waiting for them
        beyond that is the wire's.
        """
        at_once = self._workers.at_once
        known = 0.0
        for answer in answers:
            for part, seconds in answer.seconds.items():
                self._stopwatch.add(part, seconds / at_once)
                known += seconds / at_once
        if at_once > 1:
            self._stopwatch.add("wire", max(0.0, self._waited_s - known))
        self._waited_s = 0.0

    def _all(self, calls: Sequence[Call]) -> None:
        assert self._call is None, "parameters and resets come between rounds"
        for index, call in enumerate(calls):
            self._start(index, call)
        answers: dict[int, Answer] = {}
        while len(answers) < self._size:
            answers |= self._finished()
        self._keep(answers)

    def _start(self, index: int, call: Call, policies: Any = None) -> None:
        self._workers.start(index, call, policies, back_to=self._states[index])

    def _finished(self) -> dict[int, Answer]:
        started = time.perf_counter()
        answers = self._workers.finished()
        self._waited_s += time.perf_counter() - started
        for index, answer in sorted(answers.items()):
            for line in answer.lines:
                self._log(f"collector {index}: {line}")
        # Only after all lines are logged, because the first failure raises.
        for answer in answers.values():
            answer.outcome.result()
        return answers

    def _keep(self, answers: Mapping[int, Answer]) -> None:
        for index, answer in sorted(answers.items()):
            assert answer.shown is not None
            self._shown[index] = answer.shown
            self._states[index] = answer.state
            self._plays[index] = dict(answer.playing)
        self.slots = Shown.together([s for _, s in sorted(self._shown.items())])


def _with_parameters(
    setup: WorkerSetup, values: Mapping[str, ParameterValue]
) -> WorkerSetup:
    # A worker that replaces another one starts where the lessons are now.
    recipes = [
        replace(recipe, parameters=dict(recipe.parameters) | dict(values))
        for recipe in setup.recipes
    ]
    return replace(setup, recipes=tuple(recipes))


def _trajectories(packed: Arrays, first_world: int) -> Trajectories:
    """As the collector had them, with the number of each world among all worlds."""
    (trajectories,) = unpack(packed, Trajectories)
    world = trajectories.env_index
    # Places without a row have -1 for their world, and keep it.
    world[world >= 0] += first_world
    return trajectories


PIECE = 128
"""Results in a piece: a message costs some milliseconds, as much as a hundred actions in a small
scene."""
VERSIONS_PER_COLLECTOR = 2
"""At equal speed, each of N collectors is N versions behind; those of half the speed are 2 N."""


class UnorderedCollectors(SeveralCollectors):
    """A `Collector` whose workers do not wait for each other, for learners from older policies.

    Each worker brings a piece of experience at a time, and continues at once with the weights that
    are newest at that moment, while the head learns from the piece. Weights have versions, one for
    each time that new ones go out. The bound: when a piece is learned from, at most
    `versions_behind` newer versions have gone out since it was begun. A worker that is so far ahead
    of the slowest one waits for it.
    """

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
            # Opponents that may begin a game there before its next answer.
            plays = self._plays[index]
            for base, drawn in self._drawn.items():
                plays[base] = plays.get(base, set()) | drawn
            self._start(index, call, self._policies)

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
