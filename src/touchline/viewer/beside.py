"""A second world beside a scene at play, from the same state, in which other policies act.

Two checkpoints can so be watched side by side: both worlds draw the same random numbers, and what
differs is what the policies do. It plays in the thread of the simulation that it accompanies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field

from touchline.drawing.tableau import Tableau
from touchline.envs.scene_env import SceneEnv
from touchline.envs.slots import SlotRows, Slots
from touchline.policies.policy import ActorState, SlotActor
from touchline.viewer.history import Moment
from touchline.viewer.scoreboard import Returns, Tally
from touchline.viewer.simulation import new_returns, no_returns

Shown = Mapping[int, Tableau]
"""Tableaux by area."""


@dataclass
class Beside:
    """The slots of the second world and the actors that play in it."""

    env: SceneEnv
    actors: Mapping[str, SlotActor]
    name: str
    """What plays here, for people."""
    rows: Mapping[str, SlotRows] = field(default_factory=dict)
    returns: Returns = field(default_factory=dict)
    score: Tally = field(default_factory=Tally)
    """The episodes that ended since both worlds are there."""

    def __post_init__(self) -> None:
        self.slots = Slots(self.env)
        self._frames: deque[tuple[float, Shown]] = deque()
        """Times of looks that lie ahead, and what there is to see then."""

    def start_from(self, moment: Moment) -> None:
        """Go on from where the other world was at a moment."""
        self.slots.load_state(moment.world)
        self.rows = moment.rows
        self.returns = moment.returns
        for name, actor in self.actors.items():
            actor.memory = actor.policy.new_memory()  # another network's means nothing
            actor.load_state(ActorState(None, moment.actors[name].generator))
        self._frames.clear()

    def restart(self, seed: int) -> None:
        self.rows = self.slots.reset(seed)
        self.returns = no_returns(self.rows)
        self.score = Tally()
        self._frames.clear()

    def state(self, time_s: float) -> Moment:
        world = self.slots.state()
        assert world is not None, "scenes can be restored"
        return Moment(
            time_s=time_s,
            world=world,
            rows=self.rows,
            actors={name: actor.state() for name, actor in self.actors.items()},
            returns=self.returns,
            score=self.score,
        )

    def load_state(self, moment: Moment) -> None:
        """Go back to what `state` returned."""
        self.start_from(moment)
        for name, actor in self.actors.items():
            actor.load_state(moment.actors[name])

    def catch_up(self, rounds: int, areas: Iterable[int], every: int) -> None:
        """Play until so many rounds were played since the reset.

        An exchange may lead beyond; its looks, after every `every` rounds, are kept for then.
        """
        academy = self.env.scene.academy
        while academy.clock < rounds:
            self._play(tuple(areas), every)

    def look(self, rounds: int, areas: Iterable[int]) -> Shown:
        """These areas after so many rounds, or as short before as was looked at."""
        if self.env.scene.academy.clock <= rounds or not self._frames:
            self._frames.clear()
            return {area: self.env.tableau(area) for area in areas}
        while len(self._frames) > 1 and self._frames[1][0] <= rounds:
            self._frames.popleft()
        return self._frames[0][1]

    def close(self) -> None:
        self.slots.close()

    def _play(self, areas: tuple[int, ...], every: int) -> None:
        academy = self.env.scene.academy

        def take() -> None:
            # The Academy counts a round after this.
            shown = {area: self.env.tableau(area) for area in areas}
            self._frames.append((academy.clock + 1, shown))

        watching = self.env.watched(take, every) if areas else nullcontext()
        actions = {name: self.actors[name].act(row) for name, row in self.rows.items()}
        with watching:
            rows = self.slots.step(actions)
        self.score = self.score.after(self.returns, rows)
        self.returns = new_returns(self.returns, rows)
        self.rows = rows
