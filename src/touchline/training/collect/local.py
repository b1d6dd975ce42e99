"""Collecting in this process: one decision step of all slots at a time."""

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from touchline.envs.env import EnvRecipe
from touchline.envs.saved_state import Arrays, below, kept, prefixed, put_back
from touchline.envs.side_by_side import SideBySide
from touchline.envs.slots import AllRows, SlotRows, Slots, widened
from touchline.parameters import ParameterValue
from touchline.specs import ActionTuple, base_name
from touchline.training.collect.collector import Collection, Episodes, Lineup
from touchline.training.experience.rollout import Rollout
from touchline.training.experience.trajectories import Trajectories
from touchline.training.run.packing import pack, unpack
from touchline.training.run.stopwatch import Stopwatch

AnySlots = Slots | SideBySide
MAX_TRACED_STEPS = 10_000
"""A replay of the steps that led to NaN goes back at most this many."""


class Trace:
    """What replays the steps that led to NaN: the state of the worlds after the last update, and
    the actions of all slots since.
    """

    def __init__(self, slots: AnySlots) -> None:
        self._slots = slots
        self._start: Arrays = {}
        self._actions: list[Mapping[str, ActionTuple]] | None = None

    def clear(self) -> None:
        """Start again with the next actions."""
        self._actions = None

    def add(self, actions: Mapping[str, ActionTuple]) -> None:
        """Remember the actions that are about to be sent."""
        if self._actions is None or len(self._actions) == MAX_TRACED_STEPS:
            # Worlds that cannot be saved have no start, only actions.
            self._start, self._actions = self._slots.state() or {}, []
        self._actions.append(actions)

    def save(self, path: Path, recipe: EnvRecipe) -> None:
        """Write state and actions [slots, ...] as an .npz file."""
        arrays = {f"state/{name}": array for name, array in self._start.items()}
        for step, actions in enumerate(self._actions or []):
            for name, given in actions.items():
                arrays[f"actions/{step}/{name}/continuous"] = given.continuous
                arrays[f"actions/{step}/{name}/discrete"] = given.discrete
        np.savez_compressed(path, recipe=repr(recipe), seed=recipe.seed, **arrays)  # type: ignore[arg-type]


class LocalCollector:
    """Steps the slots of one world, or of several side by side; the caller closes them."""

    def __init__(self, slots: AnySlots, lineup: Lineup, stopwatch: Stopwatch) -> None:
        self.slots = slots
        self.stopwatch = stopwatch
        self.trace = Trace(slots)
        """What a replay of the steps since the last update needs."""
        self.rows: AllRows = {}
        self._lineup = lineup
        self._rollouts: dict[str, Rollout] = {}
        self._meters: dict[str, EpisodeMeter] = {}

    def reset(self, seed: int | None = None) -> None:
        self.rows = self.slots.reset(seed)
        self._lineup.begin(self.rows, self.slots.behaviors)
        self._rollouts.clear()
        self._meters = {name: EpisodeMeter(rows) for name, rows in self.rows.items()}
        self.trace.clear()

    def set_parameters(self, values: Mapping[str, ParameterValue]) -> None:
        self.slots.set_parameters(values)
        self.trace.clear()

    def collect(self, wanted: Mapping[str, int]) -> Collection:
        """One decision step; see `Collector.collect`."""
        actions = self._act()
        self.trace.add(actions)
        self._step(actions)
        episodes = self._record()
        # After the results are recorded: they belong to those who acted, and this may seat others.
        specs = self.slots.behaviors
        self._lineup.follow(self.rows, specs, self.slots.game_scores)
        results = {}
        for name in episodes:
            results[name] = int(np.count_nonzero(self.rows[name].closed))
        return Collection(
            episodes=episodes,
            results=results,
            trajectories=self.hand_over(wanted),
            statistics=self.slots.take_statistics(),
        )

    def _act(self) -> dict[str, ActionTuple]:
        actions = {}
        specs = self.slots.behaviors
        with self.stopwatch("inference"):
            for name, rows in self.rows.items():
                seat = self._lineup.seat(name, specs[name])
                rollout = self._rollouts.get(name)
                if rollout is None:
                    memory = seat.policy.new_memory()
                    rollout = Rollout(memory=memory, compact=seat.compact)
                    rollout.begin(rows)
                    self._rollouts[name] = rollout
                # The rollout's rows, not the world's: they are compacted already.
                latest = rollout.rows[-1]
                decision = seat.policy.act(latest, rollout.memory, seat.generator)
                rollout.chosen = decision.kept
                actions[name] = decision.actions
        return actions

    def _step(self, actions: Mapping[str, ActionTuple]) -> None:
        """With a Unity player, waiting for it counts as simulation and the rest as the wire."""
        # A running total, None where no player is waited for.
        waited_before = self.slots.waited_s
        started = time.perf_counter()
        self.rows = self.slots.step(actions)
        simulated = took = time.perf_counter() - started
        waited = self.slots.waited_s
        if waited is not None and waited_before is not None:
            # A restarted player counts from zero, and several worlds wait at once: neither may
            # give a share below 0 or above the whole.
            simulated = min(max(waited - waited_before, 0.0), took)
            self.stopwatch.add("wire", took - simulated)
        self.stopwatch.add("simulation", simulated)

    def _record(self) -> dict[str, Episodes]:
        """Add the new rows to the rollouts; returns the episodes that ended in them."""
        episodes = {}
        specs = self.slots.behaviors
        for name, rows in self.rows.items():
            rollout = self._rollouts.get(name)
            if rollout is None:  # shown for the first time
                self._meters[name] = EpisodeMeter(rows)
                continue
            meter = self._meters[name]
            chosen = rollout.chosen
            learned = None if chosen is None else chosen.learned
            episodes[name] = meter.add(rows, learned)
            seat = self._lineup.seat(name, specs[name])
            if seat.is_learned_from:
                rollout.add(rows)
            else:
                # Emptied at every step: rows that no learner takes must not pile up.
                rollout.begin(rows)
        return episodes

    def hand_over(self, wanted: Mapping[str, int]) -> dict[str, Trajectories]:
        """The experience of the base names that have what is wanted; their rollouts begin again."""
        finished = {}
        for base, count in wanted.items():
            rollouts = {n: r for n, r in self._rollouts.items() if base_name(n) == base}
            # All teams of a behavior count together, for one learner takes them all.
            num_results = sum(rollout.num_results for rollout in rollouts.values())
            if num_results < count:
                continue
            # Putting actions next to their results is work for the learner, so its time counts
            # as learning.
            with self.stopwatch("learning"):
                for name, rollout in rollouts.items():
                    if rollout.num_results:
                        finished[name] = rollout.trajectories()
                    rollout.begin_again()
            self.trace.clear()
        return finished

    def underway(self, behavior: str) -> tuple[int, list[float]]:
        names = [name for name in self._rollouts if base_name(name) == behavior]
        num_results = sum(self._rollouts[name].num_results for name in names)
        return num_results, [r for n in names for r in self._meters[n].open_returns]

    def state(self) -> Arrays:
        worlds = self.slots.state()
        if worlds is None:
            return {}
        arrays: Arrays = prefixed("slots", worlds)
        for name, meter in self._meters.items():
            arrays |= prefixed(f"meter/{name}", meter.state())
        for name, rows in self.rows.items():
            arrays |= prefixed(f"rows/{name}", pack([rows]))
        for name, rollout in self._rollouts.items():
            # One that has just begun holds the latest rows, which are saved above.
            if rollout.actions:
                arrays |= prefixed(f"rollout/{name}/rows", pack(rollout.rows))
                arrays |= prefixed(f"rollout/{name}/actions", pack(rollout.actions))
            if rollout.num_carried:
                arrays[f"rollout/{name}/carried"] = np.array(rollout.num_carried)
            if rollout.memory is not None:
                arrays[f"rollout/{name}/memory"] = rollout.memory.values
        return arrays

    def save_trace(self, path: Path, recipe: EnvRecipe) -> None:
        self.trace.save(path, recipe)

    def load_state(self, arrays: Arrays) -> None:
        self.slots.load_state(below("slots", arrays))
        self.load_open(arrays)

    def load_open(self, arrays: Arrays) -> None:
        """The part of `load_state` for which policies must be known: rows and open episodes."""
        for name, spec in self.slots.behaviors.items():
            (rows,) = unpack(below(f"rows/{name}", arrays), SlotRows)
            self.rows = {**self.rows, name: rows}
            self._meters[name] = EpisodeMeter()
            self._meters[name].load_state(below(f"meter/{name}", arrays))
            # Without actions, all that is saved is what the slots remember, if they do.
            saved = below(f"rollout/{name}", arrays)
            if saved:
                seat = self._lineup.seat(name, spec)
                rollout = Rollout(memory=seat.policy.new_memory(), compact=seat.compact)
                rollout.restore(saved, rows)
                self._rollouts[name] = rollout
        self.trace.clear()


_KEPT = ("_return", "_length", "_group_return", "_group", "_open")


class EpisodeMeter:
    """Sums rewards and counts actions of the open episodes of one behavior's slots."""

    def __init__(self, rows: SlotRows | None = None) -> None:
        """`rows` are the first ones of a world; episodes continue where they decide."""
        # In float64: long episodes sum thousands of small rewards.
        self._return = np.zeros(0)
        self._length = np.zeros(0, np.int64)
        self._group_return = np.zeros(0)
        self._group = np.zeros(0, np.int64)
        """[N] the group of the slot's latest episode."""
        self._open = np.zeros(0, np.bool_)
        """[N] whether an episode continues."""
        if rows is not None:
            self._widen(rows)

    def add(self, rows: SlotRows, counted: NDArray[np.bool_] | None = None) -> Episodes:
        """Add one step's rows; returns the episodes that end in them, in slots that are counted."""
        self._widen(rows)
        self._return += rows.reward
        self._return += rows.group_reward
        self._group_return += rows.group_reward
        self._length += rows.closed
        ended = rows.final_slot
        episodes = Episodes()
        if len(ended):
            own = ended if counted is None else ended[counted[ended]]
            self._open[ended] = False
            episodes = Episodes(
                self._return[own].tolist(),
                self._length[own].tolist(),
                self._finished_groups(own, rows.env_index),
            )
            # Also of slots that are not counted: their next episode may be.
            self._return[ended] = 0.0
            self._group_return[ended] = 0.0
            self._length[ended] = 0
        # Ends before begins: one row may show both, and the new episode stays open.
        begins = np.flatnonzero(rows.begins)
        if len(begins):
            self._open[begins] = True
            self._group[begins] = rows.group_id[begins]
        return episodes

    @property
    def open_returns(self) -> list[float]:
        returns: list[float] = self._return[self._open].tolist()
        return returns

    def _finished_groups(
        self, ended: NDArray[np.int32], world: NDArray[np.int32]
    ) -> list[float]:
        """The returns of the groups whose last members are among these slots."""
        # Of a group's last members, the one with the longest episode was there for all of it.
        ended = ended[self._group[ended] > 0]
        if not len(ended):
            return []
        # World and group as one number: group ids are unique only within a world.
        key = world.astype(np.int64) << 32 | self._group
        is_playing = self._open & (self._group > 0)
        is_over = ~np.isin(key[ended], key[is_playing])
        ended = ended[is_over]
        # Stable, so that among equal lengths the choice is the same in every run.
        order = np.argsort(-self._length[ended], kind="stable")
        longest_first = ended[order]
        # `np.unique` gives the first place of each group: its longest member.
        _, first = np.unique(key[longest_first], return_index=True)
        longest = longest_first[first]
        returns: list[float] = self._group_return[longest].tolist()
        return returns

    def _widen(self, rows: SlotRows) -> None:
        """Slots that are new: episodes continue in those that decide."""
        known = len(self._return)
        size = len(rows)
        if size > known:
            self._return = widened(self._return, size)
            self._length = widened(self._length, size)
            self._group_return = widened(self._group_return, size)
            new_groups = rows.group_id[known:].astype(np.int64)
            self._group = np.concatenate([self._group, new_groups])
            self._open = np.concatenate([self._open, rows.deciding[known:]])

    def state(self) -> Arrays:
        return kept(self, _KEPT)

    def load_state(self, state: Arrays) -> None:
        put_back(self, _KEPT, state)
