"""A world at play of which only its exchanges are known: a Unity player, a recording.

It cannot go back, and has no shapes. Behaviors may appear at any time, and a recording ends.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.envs.env import Env
from touchline.envs.recorded_env import (
    RecordedEnv,
    RecordingEndedError,
    SessionResetError,
)
from touchline.envs.slots import SlotRows, Slots
from touchline.policies.actors import SlotActor
from touchline.protocol.session import Command
from touchline.specs import ActionTuple
from touchline.viewer.insight import Insight, insight_of
from touchline.viewer.playing import Playing, Returns, new_returns, no_returns

DECISIONS_PER_S = 10.0
"""At first: those of a Unity agent that decides at every fifth step of 0.02 s."""
CURVE_LENGTH = 500
"""The decisions that curves of rewards show."""
MOST_PLACES = 500
"""Agents that a page offers; a list of thousands is of no use."""


class Place(NamedTuple):
    """An agent by its slot: a player may give it another id in every episode."""

    behavior: str
    slot: int


class PlainSimulation(Playing):
    """The slots of any world, and the actors that play in it."""

    def __init__(
        self,
        env: Env,
        actors: Callable[[Slots], Mapping[str, SlotActor]],
        *,
        seed: int = 0,
    ) -> None:
        """`actors` gives one for every behavior of the slots, also for those that appear later."""
        super().__init__(Slots(env))
        self._replay = env if isinstance(env, RecordedEnv) else None
        self.rows: Mapping[str, SlotRows] = self.slots.reset(seed)
        self.actors = actors(self.slots)
        self.returns: Returns = no_returns(self.rows)
        self.taken: Mapping[str, ActionTuple] = {}
        """[N, ...] what led to these rows, or in a recording what was sent."""
        self.decisions = 0
        """Since the world was last reset here."""
        self.note = ""
        """What happened to the world, for people."""
        self.decisions_per_s = DECISIONS_PER_S
        """At most; infinite: as fast as the world answers."""
        self._due_s = -math.inf
        self._curves: deque[tuple[int, Returns]] = deque(maxlen=CURVE_LENGTH)

    # orders: these run in the thread

    def pause(self) -> None:
        """Stop after the running exchange; a player waits for its answer."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on."""
        self.is_paused = False

    def set_pace(self, decisions_per_s: float) -> None:
        """Play no faster than this."""
        self.decisions_per_s = decisions_per_s
        self._due_s = -math.inf

    def restart(self) -> None:
        """Reset the world; a recording starts again."""
        self.note = ""
        self._begin(self.slots.reset(None if self._replay is None else 0))

    # what pages read

    def places(self) -> list[Place]:
        """The agents that are there."""
        found = []
        for name, rows in self.rows.items():
            found += [Place(name, int(i)) for i in np.flatnonzero(rows.agent_id >= 0)]
        return found[:MOST_PLACES]

    def insight(self, place: Place) -> Insight | None:
        """What an agent sees, thinks and has earned; None while it is away."""
        name, slot = place
        # The thread replaces these, and never changes them.
        rows, returns = self.rows.get(name), self.returns.get(name)
        if rows is None or returns is None or slot >= min(len(rows), len(returns)):
            return None
        if rows.agent_id[slot] < 0:
            return None
        return insight_of(name, slot, self.actors[name], rows, returns)

    def curve(self, place: Place) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Decisions, and the agent's rewards so far at each."""
        name, slot = place
        numbers, returns = [], []
        for number, of_all in list(self._curves):
            if name in of_all and slot < len(of_all[name]):
                numbers.append(number)
                returns.append(of_all[name][slot])
        return np.array(numbers, np.float64), np.array(returns, np.float64)

    # the thread

    def _advance(self) -> None:
        if not self._takes_step() and not self._is_due():
            return
        try:
            self._play()
        except RecordingEndedError:
            self.is_paused = True
            self.note = (
                f"The recording ends after {self.decisions} decisions; Restart plays it "
                "again."
            )

    def _is_due(self) -> bool:
        """Whether it is time for the next exchange; waits a little, so that orders are obeyed."""
        now = time.monotonic()
        if now < self._due_s:
            self._wake.wait(min(self._due_s - now, 0.05))
            self._wake.clear()
            return False
        # A world that is late does not hurry to catch up.
        self._due_s = max(now, self._due_s) + 1.0 / self.decisions_per_s
        return True

    def _play(self) -> None:
        replay = self._replay
        if replay is not None and replay.next_command is Command.RESET:
            self._follow_reset()
            return
        actions = {name: self.actors[name].act(row) for name, row in self.rows.items()}
        taken = actions
        if replay is not None:
            # Shown and not sent: those who were recorded may have sent what checks refuse.
            taken = {name: self._recorded(replay, name) for name in self.rows}
        try:
            rows = self.slots.step(actions)
        except SessionResetError:  # before any agent decided again
            self._follow_reset()
            return
        self.taken = taken
        self.decisions += 1
        self.returns = new_returns(self.returns, rows)
        self.rows = rows
        self._curves.append((self.decisions, self.returns))

    def _follow_reset(self) -> None:
        self.note = "The recorded session was reset here."
        self._begin(self.slots.reset())

    def _recorded(self, replay: RecordedEnv, name: str) -> ActionTuple:
        """What was sent in the recorded session, [N, ...] by slot."""
        sent = replay.recorded_actions(name)
        ids = replay.steps(name)[0].agent_id
        rows = self.rows[name]
        found, index = np.nonzero(rows.agent_id[:, None] == ids)
        of_slots = self.slots.behaviors[name].action_spec.empty_action(len(rows))
        of_slots.continuous[found] = sent.continuous[index]
        of_slots.discrete[found] = sent.discrete[index]
        return of_slots

    def _begin(self, rows: Mapping[str, SlotRows]) -> None:
        self.rows = rows
        self.returns = no_returns(rows)
        self.taken = {}
        self.decisions = 0
        self._curves.clear()
