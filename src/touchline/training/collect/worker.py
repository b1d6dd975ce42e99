"""One of several collectors: worlds, copies of the policies and random numbers of its own.

It runs in this process or in a Ray actor, and does the same in both: what goes in and comes out is
plain arrays and small values. Between two rounds its state goes along with the experience, so
whoever holds that can put another worker in its place, and collect the same once more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from touchline.envs.env import EnvRecipe
from touchline.envs.saved_state import Arrays, below, prefixed
from touchline.envs.side_by_side import SideBySide, may_be_bad_luck
from touchline.envs.slots import Slots
from touchline.jobs.job import Outcome, RestartLimits, Restarts, call
from touchline.jobs.shipping import Build, Logs, unpacked
from touchline.parameters import ParameterValue
from touchline.specs import Specs, base_name
from touchline.training.collect.collector import Collection
from touchline.training.collect.copies import Copies, Policies
from touchline.training.collect.local import LocalCollector
from touchline.training.run.packing import pack
from touchline.training.run.process import prefer_onednn
from touchline.training.run.stopwatch import Stopwatch
from touchline.training.self_play.seating import GameReport
from touchline.training.world import open_worlds

Call = tuple[str, tuple[Any, ...]]
"""Name of a method of `Worker`, and its arguments."""


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker is made from."""

    index: int
    recipes: tuple[EnvRecipe, ...]
    """Its worlds, each with its own seed."""
    limits: RestartLimits
    """For its players."""
    seed: int
    first_world: int
    """The number of its first world among all worlds of the run."""
    num_worlds: int
    """Worlds of the whole run."""
    replacements: int = 0
    """How often it was replaced. Worlds that cannot be restored then have other seeds, because the
    same course of events might lead to the same end."""

    self_play: bool = False
    """Whether a behavior of the run has it."""
    onednn: bool = False
    """Whether its policies are large enough for oneDNN (`is_onednn_worthwhile`)."""
    build: Build | None = None
    """Its worlds' player, where that comes from another machine."""
    sends_logs: bool = False
    """Whether its players' logs go along with its answers, to another machine."""


@dataclass(frozen=True)
class Shown:
    """What the worlds of some workers show; see `Worlds`."""

    behaviors: Specs = field(default_factory=dict)
    capacities: Mapping[str, int | None] = field(default_factory=dict)
    interface_options: Mapping[str, str] = field(default_factory=dict)

    def capacity(self, behavior: str) -> int | None:
        return self.capacities.get(behavior, 0)

    @staticmethod
    def together(parts: Sequence[Shown]) -> Shown:
        """What all these workers show; the first one's specs and options count."""
        behaviors = {
            n: s for shown in reversed(parts) for n, s in shown.behaviors.items()
        }
        capacities: dict[str, int | None] = {}
        for name in behaviors:
            counts = [shown.capacity(name) for shown in parts]
            known = [count for count in counts if count is not None]
            capacities[name] = sum(known) if len(known) == len(counts) else None
        return Shown(behaviors, capacities, parts[0].interface_options)


@dataclass
class Answer:
    """What a call of a worker's method brought."""

    outcome: Outcome = field(default_factory=Outcome)
    """What failed, if anything."""
    lines: list[str] = field(default_factory=list)
    logs: Mapping[str, bytes] = field(default_factory=dict)
    """What players have added to their logs, by file name."""
    shown: Shown | None = None
    state: Arrays | None = None
    """The worker's, wherever `shown` is given; None before the first reset."""
    is_over: bool = True
    """Whether the round is; the rest is empty until then, but for `underway`."""
    underway: Mapping[str, int] = field(default_factory=dict)
    """Base name -> results so far in this round."""
    trajectories: Mapping[str, Arrays] = field(default_factory=dict)
    """Full name -> `Trajectories`, packed."""
    collection: Collection = field(default_factory=Collection)
    """The rest of what was collected."""
    games: GameReport | None = None
    """What happened in games, with self-play."""
    playing: Mapping[str, set[int]] = field(default_factory=dict)
    """Base name -> the opponents that play now, with self-play."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds of this round by part of the work."""
    node: str = ""
    """The id of the worker's node in a cluster."""


class Worker:
    """Worlds, a lineup and a local collector; `run` calls its other methods by their names."""

    shared_folder: Path | None = None
    """For temporary files of all processes of its machine, where it has one of its own."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._lines: list[str] = []
        self._lineup = Copies(
            (setup.seed, setup.index),
            self.fetched,
            restarts=setup.replacements,
            self_play=setup.self_play,
        )
        self._stopwatch = Stopwatch()
        self._closing = ExitStack()
        self._logs = Logs() if setup.sends_logs else None
        self._opened: LocalCollector | None = None
        self._is_closed = False
        self._has_begun = False
        """Whether the worlds were reset or restored."""
        self._restored: Arrays | None = None
        """State whose rows and open episodes wait for policies to be known."""
        self._round = -1
        """Number of the current round, or of the latest one."""
        self._before: Mapping[str, float] = {}
        """Seconds by part of the work before that round."""
        self._collected = Collection()
        """What that round has brought so far."""

    def run(self, calls: Sequence[Call], policies: Policies | None = None) -> Answer:
        """Make these calls one after another; returns the answer of the last, or of the first that
        failed. `policies` are for `collect`.
        """
        outcome = call(self._last_of, calls, policies)
        answer: Answer = outcome.value or Answer(outcome=outcome)
        answer.lines = self._lines[:]
        self._lines.clear()
        if self._logs is not None:
            answer.logs = self._logs.new()
            if self._is_closed:
                self._logs.close()
        return answer

    def _last_of(self, calls: Sequence[Call], policies: Policies | None) -> Answer:
        answer = Answer()
        for method, arguments in calls:
            given = (*arguments, policies) if method == "collect" else arguments
            answer = getattr(self, method)(*given)
        return answer

    def fetched(self, sent: Any) -> Any:
        """What something that travels apart stands for: in this process, itself."""
        return sent

    def open(self) -> Answer:
        # As in the process that learns (`process.tuned_process`), which an actor is not.
        torch.set_num_threads(1)
        if self._setup.onednn:
            prefer_onednn()
        setup = self._setup
        recipes = setup.recipes
        if setup.build is not None:
            player = str(unpacked(setup.build, self.fetched, self.shared_folder))
            recipes = tuple(replace(recipe, target=player) for recipe in recipes)
        if self._logs is not None:
            kept = {"log_folder": str(self._logs.path)}
            recipes = tuple(
                replace(recipe, options={**recipe.options, **kept})
                for recipe in recipes
            )
        slots = self._open_worlds(recipes)
        self._opened = LocalCollector(slots, self._lineup, self._stopwatch)
        return Answer()

    def _open_worlds(self, recipes: Sequence[EnvRecipe]) -> Slots | SideBySide:
        setup = self._setup
        log = self._lines.append
        # At the beginning of a run it is a player that does not work. That of a worker that was
        # replaced did work.
        limits = setup.limits if setup.replacements else None
        restarts = Restarts("its player", limits)

        def open_all(error: Exception | None) -> Slots | SideBySide:
            if error is not None:
                log(
                    "its player failed and is restarted before it began (restart "
                    f"{restarts.number}): {error}"
                )
            worlds = open_worlds(recipes, setup.limits, log, setup.num_worlds)
            return self._closing.enter_context(worlds)

        return restarts.alive(open_all, may_be_bad_luck)

    def close(self) -> Answer:
        """Close the worlds. Idempotent."""
        self._closing.close()
        self._is_closed = True
        return Answer()

    def reset(self, seed: int | None) -> Answer:
        """Restart the worlds; `seed` is that of the run's first world."""
        setup = self._setup
        if seed is not None:
            seed += setup.first_world + setup.replacements * setup.num_worlds
        self._collector.reset(seed)
        self._restored = None
        self._has_begun = True
        return self._shown()

    def set_parameters(self, values: Mapping[str, ParameterValue]) -> Answer:
        self._collector.set_parameters(values)
        return self._shown()

    def load_state(self, arrays: Arrays) -> Answer:
        """Continue from a state that an answer held."""
        # Copies, because Ray's are read-only and worlds write into theirs.
        state = {name: array.copy() for name, array in arrays.items()}
        self._collector.slots.load_state(below("collector/slots", state))
        self._lineup.load_state(state)
        self._restored = state
        self._has_begun = True
        return self._shown()

    def collect(
        self,
        number: int,
        shares: Mapping[str, int],
        slice_s: float,
        policies: Policies,
    ) -> Answer:
        """Continue with round `number` for about this many seconds.

        A round is over as soon as one base name has its share of results; all experience is handed
        over then. It is also over where a behavior shows up that has no policy yet.
        """
        if number != self._round:
            self._begin(number, shares, policies)
        until = time.monotonic() + slice_s
        while not self._is_over:
            self._collected.add(self._collector.collect(shares))
            if time.monotonic() >= until:
                break
        if not self._is_over:
            underway = {base: self._collector.underway(base)[0] for base in shares}
            return Answer(is_over=False, underway=underway)
        return self._finished(shares)

    @property
    def _collector(self) -> LocalCollector:
        assert self._opened is not None, "open comes first"
        return self._opened

    def _begin(
        self, number: int, shares: Mapping[str, int], policies: Policies
    ) -> None:
        collector = self._collector
        self._lineup.update(policies, collector.slots.behaviors, set(shares))
        if self._restored is not None:
            collector.load_open(below("collector", self._restored))
            self._restored = None
        self._round, self._collected = number, Collection()
        self._before = self._stopwatch.seconds()

    @property
    def _is_over(self) -> bool:
        shown = map(base_name, self._collector.rows)
        return bool(self._collected.trajectories) or not self._lineup.knows(shown)

    def _finished(self, shares: Mapping[str, int]) -> Answer:
        # What the other behaviors have so far was done by policies that change now.
        trajectories = self._collected.trajectories
        trajectories.update(self._collector.hand_over(dict.fromkeys(shares, 1)))
        answer = self._shown()
        answer.trajectories = {name: pack([own]) for name, own in trajectories.items()}
        answer.collection = replace(self._collected, trajectories={})
        answer.games = self._lineup.take_report()
        answer.playing = self._lineup.playing()
        answer.seconds = {
            part: seconds - self._before.get(part, 0.0)
            for part, seconds in self._stopwatch.seconds().items()
            # What is not a part of the work is time between rounds, too.
            if part != "other"
        }
        return answer

    def _shown(self) -> Answer:
        """An answer with the worlds' interface and the state of now."""
        slots = self._collector.slots
        behaviors = dict(slots.behaviors)
        capacities = {name: slots.capacity(name) for name in behaviors}
        options = dict(slots.interface_options)
        return Answer(shown=Shown(behaviors, capacities, options), state=self._state())

    def _state(self) -> Arrays | None:
        """Empty where the worlds cannot be restored."""
        if not self._has_begun:
            return None
        collected = self._collector.state()
        if not collected:
            return {}
        before = self._restored or {}
        state = before | prefixed("collector", collected) | self._lineup.state()
        return _each_once(state)


def _each_once(arrays: Arrays) -> Arrays:
    """The same arrays, with one object for those that are equal: an object travels once."""
    # Observations of now are in the tables of slots and in rows.
    known: dict[Any, NDArray[Any]] = {}
    found = {}
    for name, array in arrays.items():
        # By their bytes: for `==`, NaN differs from itself, and -0.0 is 0.0.
        key = array.dtype.str, array.shape, array.tobytes()
        found[name] = known.setdefault(key, array)
    return found
