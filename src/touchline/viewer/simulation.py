"""A world at play in a thread of its own: it plays, pauses, and obeys orders of pages.

A later order of the same name replaces one that still waits, so a page that floods the thread with
orders delays nothing. Of any world, a Unity player or a recording too, its exchanges are known:
behaviors may appear at any time, and a recording ends. `scene_simulation` adds what only a scene
has: shapes, and states to which it can go back.
"""

from __future__ import annotations

import threading
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
from touchline.policies.policy import SlotActor
from touchline.protocol.session import Command
from touchline.scenes.scene import ActionNames
from touchline.specs import ActionTuple
from touchline.viewer.history import BUDGET_BYTES, Moment
from touchline.viewer.insight import Insight, Seat, insight_of
from touchline.viewer.scoreboard import Returns, Scoreboard

DECISIONS_PER_S = 10.0
"""Natural speed of a world whose clock is not known: a Unity agent that decides at every fifth step
of 0.02 s."""
MOST_MOMENTS = 500
"""The newest decisions of a player that are kept, for its curves."""
MOST_PLACES = 500
"""Agents that a page offers; a list of thousands is of no use."""
LAG_S = 0.25
"""A simulation that falls behind by more does not hurry to catch up."""


class Place(NamedTuple):
    """An agent by its slot: a player may give it another id in every episode."""

    behavior: str
    slot: int


Agent = Place | Seat
"""What pages select: by slot in any world, by seat in a scene."""


class Simulation:
    """The slots of any world, the actors that play in it, and the thread that steps them."""

    def __init__(
        self,
        env: Env,
        actors: Callable[[Slots], Mapping[str, SlotActor]],
        *,
        seed: int = 0,
    ) -> None:
        """`actors` gives one for every behavior of the slots, also for those that appear later."""
        self.slots = Slots(env)
        self.seed = seed
        self.failure: BaseException | None = None
        """What ended the thread or a page, if not `close`."""
        self.is_paused = False
        self.speed = 1.0
        """Times natural speed; infinite: as fast as the world answers."""
        self.rows: Mapping[str, SlotRows] = self.slots.reset(seed)
        self.actors = actors(self.slots)
        self.returns: Returns = no_returns(self.rows)
        self.taken: Mapping[str, ActionTuple] = {}
        """[N, ...] what led to these rows, or in a recording what was sent."""
        self.decisions = 0
        """Since the world was last reset here."""
        self.note = ""
        """What happened to the world, for people."""
        self.selected: Agent | None = None
        """The agent that pages show."""
        self.seen_tags: tuple[str, ...] = ()
        """That its rays or its grid distinguish. Players have no names for these or actions."""
        self.action_names = ActionNames()
        self.replay = env if isinstance(env, RecordedEnv) else None
        self.board = Scoreboard()
        """Scores of this world alone, since the policies play."""
        self._moments: deque[Moment] = deque(maxlen=MOST_MOMENTS)
        self.pace = Pace()
        self._wants_step = False
        self._is_closing = False
        self._orders: dict[str, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="simulation", daemon=True
        )

    # what pages call

    def start(self) -> None:
        self._thread.start()

    def order(self, name: str, do: Callable[[], None]) -> None:
        """Have the thread do this between two exchanges, as soon as it can."""
        with self._lock:
            self._orders[name] = do
        self._wake.set()

    def fail(self, failure: BaseException) -> None:
        """End the thread; `join` raises this."""
        self.failure = failure
        self._is_closing = True
        self._wake.set()

    def close(self) -> None:
        """End the thread and close the world. Idempotent."""
        self._is_closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self.slots.close()

    def join(self) -> None:
        """Wait until the thread ends, and raise what ended it."""
        while self._thread.is_alive():
            self._thread.join(0.2)  # so that Ctrl-C is noticed
        if self.failure is not None:
            raise self.failure

    # orders: these run in the thread

    def pause(self) -> None:
        """Stop after the running exchange; a player waits for its answer."""
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self.pace.restart()

    def step_once(self) -> None:
        self._wants_step = True

    def set_speed(self, speed: float) -> None:
        self.speed = speed
        self.pace.restart()

    def restart(self) -> None:
        """Reset the world; a recording starts again."""
        self.note = ""
        self.board = Scoreboard()
        # Only a seed starts a recording again; given one, a player would start another process.
        self._begin(self.slots.reset(None if self.replay is None else 0))

    def select(self, agent: Agent | None) -> None:
        self.selected = agent

    # what pages read

    def time_s(self) -> float:
        """Seconds that the world has played at natural speed."""
        return self.decisions / DECISIONS_PER_S

    def agents(self) -> dict[str, Agent]:
        """The agents that can be selected, by a text for each."""
        found: dict[str, Agent] = {}
        for name, rows in self.rows.items():
            for slot in np.flatnonzero(rows.agent_id >= 0):
                found[f"{slot} · {name}"] = Place(name, int(slot))
                if len(found) == MOST_PLACES:
                    return found
        return found

    def place_of(self, agent: Agent) -> Place | None:
        """The behavior and the slot of an agent; None while it is away."""
        assert isinstance(agent, Place), "only a scene has seats"
        rows = self.rows.get(agent.behavior)
        if rows is None or agent.slot >= len(rows) or rows.agent_id[agent.slot] < 0:
            return None
        return agent

    def insight(self, agent: Agent) -> Insight | None:
        """What an agent sees, thinks and has earned; None while it is away."""
        # The thread replaces these, and never changes them.
        all_rows, all_returns = self.rows, self.returns
        place = self.place_of(agent)
        if place is None:
            return None
        name, slot = place
        rows, returns = all_rows.get(name), all_returns.get(name)
        if rows is None or returns is None or slot >= min(len(rows), len(returns)):
            return None
        return insight_of(name, slot, self.actors[name], rows, returns)

    def curve(self, agent: Agent) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """When it was, and the rewards so far of the agent's slot, as far back as is kept."""
        place = self.place_of(agent)
        if place is None:
            return np.zeros(0), np.zeros(0)
        moments = self.past_of(place)
        times = [moment.time_s for moment in moments]
        returns = [moment.returns[place.behavior][place.slot] for moment in moments]
        return np.array(times, np.float64), np.array(returns, np.float64)

    def past(self) -> list[Moment]:
        """The moments that are kept, up to the present one; a player cannot return to them."""
        return list(self._moments)

    def past_of(self, place: Place) -> list[Moment]:
        """Those of them in which this slot was there: a player's tables grow."""
        name, slot = place
        return [m for m in self.past() if slot < len(m.returns.get(name, ()))]

    @property
    def played_behaviors(self) -> set[str]:
        """Those that a person plays; only scenes can be played by hand."""
        return set()

    # the thread

    def _run(self) -> None:
        try:
            while not self._is_closing:
                with self._lock:
                    orders, self._orders = self._orders, {}
                for do in orders.values():
                    do()
                if self.is_paused and not self._wants_step:
                    # An order that came since sets the event again.
                    self._wake.wait(1.0)
                    self._wake.clear()
                    continue
                self._advance()
        # Raised again in the main thread, by `join`.
        except BaseException as failure:
            self.fail(failure)

    def _takes_step(self) -> bool:
        """Whether the exchange that begins is a single step, after which the world stands still."""
        is_single = self._wants_step
        self._wants_step = False
        if is_single:
            self.is_paused = True
        return is_single

    def _advance(self) -> None:
        """Play one exchange, at the pace that is set."""
        # Waited for in pieces, so that orders are obeyed.
        wait_s = self.pace.wait_s(self.time_s(), self.speed)
        if not self._takes_step() and wait_s > 0.0:
            self._wake.wait(min(wait_s, 0.05))
            self._wake.clear()
            return
        try:
            self._play()
        except RecordingEndedError:
            self.is_paused = True
            self.note = (
                f"The recording ends after {self.decisions} decisions; Restart plays it "
                "again."
            )

    def _play(self) -> None:
        replay = self.replay
        if replay is not None and replay.next_command is Command.RESET:
            self._follow_reset()
            return
        actions = self._decide()
        taken = actions
        if replay is not None:
            # Shown and not sent: those who were recorded may have sent what checks refuse.
            taken = {name: self._recorded(replay, name) for name in self.rows}
        before = self.rows
        try:
            rows = self.slots.step(actions)
        except SessionResetError:  # before any agent decided again
            self._follow_reset()
            return
        self.taken = taken
        self.decisions += 1
        when = f"decision {self.decisions}"
        returns = grown_returns(self.returns, rows)
        self.board = self.board.after(self.slots, before, returns, rows, when)
        self.returns = new_returns(returns, rows)
        self.rows = rows
        self._remember()

    def _decide(self) -> dict[str, ActionTuple]:
        return {name: self.actors[name].act(row) for name, row in self.rows.items()}

    def _follow_reset(self) -> None:
        self.note = "The recorded session was reset here."
        self._begin(self.slots.reset())

    def _recorded(self, replay: RecordedEnv, name: str) -> ActionTuple:
        """What was sent in the recorded session, [N, ...] by slot."""
        sent = replay.recorded_actions(name)
        ids = replay.steps(name)[0].agent_id
        rows = self.rows[name]
        # Slots without an agent have the id -1, which no recorded agent has.
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
        self._moments.clear()
        self.pace.restart()

    def _remember(self) -> None:
        """Keep this moment for the curves; its time is its decision, as no clock is known."""
        actors = {name: self.actors[name].state() for name in self.rows}
        time = float(self.decisions)
        moment = Moment(time, {}, self.rows, actors, self.returns, self.decisions)
        self._moments.append(moment)
        # Images of many agents are large.
        while len(self._moments) * moment.num_bytes > BUDGET_BYTES:
            self._moments.popleft()


class Pace:
    """Keeps the time of a world in step with real time, and measures how well that works."""

    def __init__(self) -> None:
        self.measured = 0.0
        """Times natural speed."""
        self.restart()

    def restart(self) -> None:
        """The next wait is the first."""
        self._start: tuple[float, float] | None = None
        """Real time and the world's time from which both are counted."""
        self._mark: tuple[float, float] | None = None

    def wait(self, time_s: float, speed: float) -> None:
        """Return when this time of the world is due."""
        wait_s = self.wait_s(time_s, speed)
        if wait_s > 0.0:
            time.sleep(wait_s)
        assert self._mark is not None, "set by the first wait"
        now = time.monotonic()
        if now - self._mark[0] >= 0.5:
            self.measured = (time_s - self._mark[1]) / (now - self._mark[0])
            self._mark = now, time_s

    def wait_s(self, time_s: float, speed: float) -> float:
        """How long it is until this time of the world; at most 0 where it is late."""
        now = time.monotonic()
        # Time runs backward where the time machine has restored an earlier moment.
        if self._start is None or time_s < self._start[1]:
            self._start = self._mark = now, time_s
        due = self._start[0] + (time_s - self._start[1]) / speed
        if now - due > LAG_S:
            self._start = now, time_s
        return due - now


def no_returns(rows: Mapping[str, SlotRows]) -> Returns:
    return {name: np.zeros(len(row)) for name, row in rows.items()}


def grown_returns(before: Returns, rows: Mapping[str, SlotRows]) -> Returns:
    """These returns for all slots of these rows: tables of players grow."""
    grown = dict(no_returns(rows))
    for name, known in before.items():
        grown[name][: len(known)] = known
    return grown


def new_returns(before: Returns, rows: Mapping[str, SlotRows]) -> Returns:
    """The returns of the same slots with the rewards of these rows."""
    # Where an episode begins, the rewards belong to the end of the one before.
    return {
        name: np.where(row.begins, 0.0, before[name] + row.reward + row.group_reward)
        for name, row in rows.items()
    }
