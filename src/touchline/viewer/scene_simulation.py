"""A scene at play (`simulation`): it goes back in time, and pages get frames of it.

Whoever watches reads `frame`, the newest look of the world.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np

from touchline.drawing.tableau import Tableau
from touchline.envs.scene_env import SceneEnv
from touchline.envs.slots import Slots
from touchline.policies.policy import SlotActor
from touchline.protocol.demonstrations import DemoFile
from touchline.sensors.grids import Cells, HasGrids
from touchline.sensors.rays import Traces
from touchline.specs import ActionTuple
from touchline.viewer.beside import Beside
from touchline.viewer.history import BUDGET_BYTES, History, Moment
from touchline.viewer.insight import Seat, only_slot
from touchline.viewer.keys import allowed_action, with_own
from touchline.viewer.scoreboard import Scoreboard, Tally
from touchline.viewer.simulation import Agent, Place, Simulation, new_returns
from touchline.viewer.tape import Tape

FRAMES_PER_S = 50.0
"""Pages get no more."""
MOMENTS_PER_S = 20.0
"""The most that are kept in a second of real time."""
KEEPING_SHARE = 0.01
"""Most of the time at full speed that keeping moments may take."""


@dataclass(frozen=True, eq=False)
class Frame:
    number: int
    time_s: float
    tableaux: Mapping[int, Tableau]
    """Tableaux of the areas that are shown; ~area is that area of the world beside."""
    rays: Traces | None = None
    """Traces of the selected agent; None where there are none."""
    cells: Cells | None = None
    """Likewise."""


class SceneSimulation(Simulation):
    """The slots of a scene, the actors that play in it, and where it was before."""

    def __init__(
        self,
        env: SceneEnv,
        actors: Callable[[Slots], Mapping[str, SlotActor]],
        *,
        seed: int = 0,
        budget_bytes: int = BUDGET_BYTES,
    ) -> None:
        """`actors` gives one for every behavior of the slots, once those are known."""
        super().__init__(env, actors, seed=seed)
        self.env = env
        self.action_names = env.scene.action_names
        self.actors = dict(self.actors)
        self.history = History(budget_bytes)
        self.shown_areas: tuple[int, ...] = (0,)
        self.is_watched = False
        """Whether frames are wanted."""
        self._hands: dict[Seat, ActionTuple] = {}
        """Actions [1, ...] of agents that people play."""
        self.tape: Tape | None = None
        """What is being recorded."""
        self.beside: Beside | None = None
        """A second world in which other policies play."""
        self.score = Tally()
        """Since the second world is there."""
        self.board = Scoreboard(env.scene.team_names)
        self._num_tapes = 0
        # Compared by identity, so a new object differs from those of all moments that are kept.
        self._cast = (object(), object())
        """As in `Moment`."""
        self._frames_per_s, self._rounds_per_frame = env.film_rate
        self._at = 0
        """The moment of the history where the simulation stands, or last stood."""
        self._seen = threading.Condition()
        self._frame_s = -math.inf
        self._kept_s = -math.inf
        self._keeping_s = 0.0
        """How long it took to keep the last moment."""
        # Before any page reads the history, which needs a first and a last moment.
        self._keep()
        self.frame = self._look(0)

    # what pages call

    def wait_for_frame(self, after: int, timeout_s: float) -> Frame:
        """The newest frame, as soon as it has another number, or when time is up."""
        with self._seen:
            self._seen.wait_for(lambda: self.frame.number != after, timeout_s)
            return self.frame

    @property
    def shown_s(self) -> float:
        """The time of the picture; without watchers there are no new ones, only the clock."""
        return self.frame.time_s if self.is_watched else self.time_s()

    def close(self) -> None:
        super().close()
        if self.beside is not None:
            self.beside.close()

    # orders: these run in the simulation's thread

    def pause(self) -> None:
        super().pause()
        self._keep()
        # Until here, no page may have watched.
        self._publish(0)

    def go_to(self, time_s: float) -> None:
        """Stop, and restore the moment of the history that is closest to a time."""
        self.pause()
        self._restore(self.history.nearest(time_s))
        self._publish(0)

    def step_back(self) -> None:
        """Stop, and restore the last moment that was kept before this one."""
        self.pause()
        self._restore(max(self.history.index_at(self.time_s()) - 1, 0))
        self._publish(0)

    def choose_branch(self, number: int) -> None:
        """Stop where this branch parted from the present one; going on follows it."""
        self.pause()
        self._restore(self.history.choose(number))
        self._publish(0)

    def _restore(self, at: int) -> None:
        """Let everything be as it was at this moment of the history."""
        self._at = at
        moment = self.history[at]
        if self.tape is not None:
            # A moment from before this recording has another tape or none: nothing was on it.
            then = moment.tape
            is_same = then is not None and then.number == self.tape.number
            self.tape = then if is_same else Tape(self.tape.seat, self.tape.number)
        self.slots.load_state(moment.world)
        self.rows = moment.rows
        self.returns = moment.returns
        # Those that play now had no score yet when others played.
        is_same_cast = moment.cast is self._cast
        self.score = moment.score if is_same_cast else Tally()
        names = self.env.scene.team_names
        is_same_here = moment.cast[0] is self._cast[0]
        self.board = moment.board if is_same_here else Scoreboard(names)
        self.decisions = moment.decisions
        self.taken = moment.taken
        for name, actor in self.actors.items():
            actor.load_state(moment.actors[name])
        if self.beside is not None:
            # Before it was there, its past is this one's.
            if moment.beside is None:
                self.beside.start_from(moment)
            else:
                self.beside.load_state(moment.beside)
            played = moment.beside if is_same_cast else None
            self.beside.score = Tally() if played is None else played.score

    def restart(self) -> None:
        """Reset the world with the next seed, and forget where it was."""
        self.seed += 1
        if self.tape is not None:
            self.tape = self.tape.without_open_episode()
        self._begin(self.slots.reset(self.seed))
        self.score = Tally()
        self.board = Scoreboard(self.env.scene.team_names)
        if self.beside is not None:
            self.beside.restart(self.seed)
        # At once, because pages read the history all the time, and it must not be empty.
        self.history.begin_with(self._moment())
        self._at = 0
        self._kept_s = time.monotonic()
        self._publish(0)

    def set_beside(self, beside: Beside | None) -> None:
        """Let this world play beside, from the present state on, in place of the one before."""
        if self.beside is not None:
            self.beside.close()
        self.beside = beside
        self._cast = (self._cast[0], object())
        self.score = Tally()
        if beside is not None:
            beside.start_from(self._moment())
        self._publish(0)

    def show_areas(self, areas: tuple[int, ...]) -> None:
        self.shown_areas = areas
        self._publish(0)

    def select(self, agent: Agent | None) -> None:
        super().select(agent)
        self._publish(0)

    def take_over(self, seat: Seat, action: ActionTuple | None) -> None:
        """Let this agent do this [1, ...] from now on; None: what its policy says."""
        if action is None:
            self._hands.pop(seat, None)
        else:
            self._hands[seat] = action

    def record(self, seat: Seat) -> None:
        self._num_tapes += 1
        self.tape = Tape(seat, self._num_tapes)

    def end_recording(self) -> dict[str, DemoFile]:
        """Stop recording; a demonstration for each behavior that the agent had."""
        tape, self.tape = self.tape, None
        return {} if tape is None else tape.files(self.slots.behaviors)

    def replace_actors(self, actors: Mapping[str, SlotActor]) -> None:
        """Let these play from now on, also after going back to what others played."""
        self.actors = dict(actors)
        self._cast = (object(), object())
        # Scores are shown under the names of those that play.
        self.score = Tally()
        self.board = Scoreboard(self.env.scene.team_names)
        if self.beside is not None:
            self.beside.score = Tally()

    # what pages read

    def agents(self) -> dict[str, Agent]:
        """The agents of the shown areas, also those that are away."""
        academy = self.env.scene.academy
        found: dict[str, Agent] = {}
        for area in self.shown_areas:
            place = f"{area}." if len(self.shown_areas) > 1 else ""
            for agent, name in enumerate(
                academy.names[k] for k in academy.behavior[area]
            ):
                found[f"{place}{agent} · {name}"] = Seat(area, agent)
        return found

    @property
    def played_behaviors(self) -> set[str]:
        return {self.behavior_of(seat) for seat in self._hands}

    def behavior_of(self, seat: Seat) -> str:
        """The full name of the behavior that an agent has now."""
        academy = self.env.scene.academy
        return academy.names[int(academy.behavior[seat])]

    def place_of(self, agent: Agent) -> Place | None:
        """The behavior and the slot of an agent; None while it is away."""
        assert isinstance(agent, Seat), "agents of a scene keep their seats"
        name = self.behavior_of(agent)
        own_id = self.env.scene.academy.agent_id[agent]
        slots = np.flatnonzero(self.rows[name].agent_id == own_id)
        return Place(name, int(slots[0])) if len(slots) else None

    def past(self) -> list[Moment]:
        """The moments that are kept, up to where the simulation stands."""
        now = self.time_s()
        return [moment for moment in self.history if moment.time_s <= now]

    # the thread

    def _advance(self) -> None:
        is_single = self._takes_step()
        ahead = self._future()
        actions = self._decide()
        if ahead is not None and ahead.decisions == self.decisions + 1:
            actions = dict(ahead.taken)  # of a hand that let go since, too
        every = self._rounds_per_frame
        watching = (
            self.env.watched(self._look_on, every) if self.is_watched else nullcontext()
        )
        recorded = None if self.tape is None else self.place_of(self.tape.seat)
        before = self.rows
        with watching:
            self.rows = self.slots.step(actions)
        self.taken = actions
        self.decisions += 1
        if self.tape is not None and recorded is not None:
            name, slot = recorded
            self.tape = self.tape.with_step(
                name,
                only_slot(before[name], slot),
                actions[name].select([slot]),
                only_slot(self.rows[name], slot),
            )
        self.score = self.score.after(self.returns, self.rows)
        when = f"{self.time_s():.1f} s"
        self.board = self.board.after(self.slots, before, self.returns, self.rows, when)
        self.returns = new_returns(self.returns, self.rows)
        # The clock has counted the last round by now, unlike in `_look_on`.
        self._lead(0)
        if ahead is None:
            self._keep(at_once=is_single)
        elif self.decisions >= ahead.decisions:
            # Where moments lie further apart, a hand's actions between them are not known.
            self._restore(self._at + 1)
        if is_single:
            self._publish(0)
        else:
            self.pace.wait(self.time_s(), self.speed)

    def _future(self) -> Moment | None:
        """The next moment of the recorded future, as long as that is what would happen again.

        Where a person plays, or other policies than then, another future begins.
        """
        if not self._is_past:
            return None
        ahead = self.history[self._at + 1]
        # Old policies are not kept: their networks would fill the memory meant for moments.
        if ahead.cast is self._cast and not self._hands:
            return ahead
        self.history.branch_after(self._at)
        return None

    @property
    def _is_past(self) -> bool:
        return self._at + 1 < len(self.history)

    def _decide(self) -> dict[str, ActionTuple]:
        actions = super()._decide()
        for seat, own in self._hands.items():
            place = self.place_of(seat)
            if place is not None:
                name, slot = place
                spec = self.slots.behaviors[name].action_spec
                mask = self.rows[name].action_mask
                allowed = None if mask is None else mask[slot]
                own = allowed_action(own, allowed, spec)
                actions[name] = with_own(actions[name], slot, own)
        return actions

    def time_s(self, more_rounds: int = 0) -> float:
        """Seconds of a film of this simulation, which plays at natural speed.

        Simulated time, but in scenes that decide at every step, which films slow down.
        """
        rounds = self.env.scene.academy.clock + more_rounds
        return rounds / self._rounds_per_frame / self._frames_per_s

    def _look_on(self) -> None:
        """Between the rounds of an exchange: wait for the time of this frame, and show it."""
        # The Academy counts a round after this.
        time_s = self.time_s(more_rounds=1)
        if not self.is_paused:
            self.pace.wait(time_s, self.speed)
        now = time.monotonic()
        # Less than a whole frame: a sleep that ends early must not leave out every other frame.
        if now - self._frame_s >= 0.9 / FRAMES_PER_S:
            self._frame_s = now
            self._lead(1)
            self._publish(1)

    def _lead(self, more_rounds: int) -> None:
        """Let the world beside play until where this one is."""
        if self.beside is not None:
            areas = self.shown_areas if self.is_watched else ()
            rounds = self.env.scene.academy.clock + more_rounds
            self.beside.catch_up(rounds, areas, self._rounds_per_frame)

    def _publish(self, more_rounds: int) -> None:
        frame = self._look(more_rounds)
        seen = frame.rays or frame.cells
        self.seen_tags = seen.tags if seen else ()
        with self._seen:
            self.frame = replace(frame, number=self.frame.number + 1)
            self._seen.notify_all()

    def _look(self, more_rounds: int) -> Frame:
        tableaux = {area: self.env.tableau(area) for area in self.shown_areas}
        if self.beside is not None:
            rounds = self.env.scene.academy.clock + more_rounds
            beside = self.beside.look(rounds, self.shown_areas)
            tableaux |= {~area: tableau for area, tableau in beside.items()}
        rays = cells = None
        if isinstance(self.selected, Seat):
            rays = self.env.scene.rays(*self.selected)
            if isinstance(self.env.scene, HasGrids):
                cells = self.env.scene.cells(*self.selected)
        return Frame(0, self.time_s(more_rounds), tableaux, rays, cells)

    def _keep(self, *, at_once: bool = True) -> None:
        """Keep this moment, if it is not the newest already and the last one is old enough."""
        if self._is_past:
            return
        now = time.monotonic()
        pause_s = 1.0 / MOMENTS_PER_S
        # At other speeds the thread mostly waits for the clock, and keeping costs nothing.
        if math.isinf(self.speed):
            pause_s = max(pause_s, self._keeping_s / KEEPING_SHARE)
        if not at_once and now - self._kept_s < pause_s:
            return
        time_s = self.time_s()
        if len(self.history) and self.history[self._at].time_s == time_s:
            return
        self.history.add(self._moment())
        self._at = len(self.history) - 1
        self._kept_s = time.monotonic()
        self._keeping_s = self._kept_s - now

    def _moment(self) -> Moment:
        time_s = self.time_s()
        world = self.slots.state()
        assert world is not None, "scenes can be restored"
        return Moment(
            time_s=time_s,
            world=world,
            rows=self.rows,
            actors={name: actor.state() for name, actor in self.actors.items()},
            returns=self.returns,
            decisions=self.decisions,
            taken=self.taken,
            cast=self._cast,
            tape=self.tape,
            beside=None if self.beside is None else self.beside.state(time_s),
            board=self.board,
            score=self.score,
        )
