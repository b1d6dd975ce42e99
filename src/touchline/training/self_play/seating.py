"""Who plays in which area of some worlds: a policy on each side, for a whole game.

Games are followed and players assigned here; which opponents there are, and what becomes of the
results, is decided elsewhere: the worlds of a run may be in several processes, its pools are in
one.

Draws are addressed by seed, area and game, so a resumed run repeats them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from touchline.envs.saved_state import Arrays, below, prefixed
from touchline.envs.slots import AllRows, widened
from touchline.policies.network_policy import NetworkPolicy
from touchline.policies.shared_slots import OWN, Guest, SharedSlots
from touchline.specs import base_name, team_of
from touchline.training.self_play.games import Games, GameScores, Result
from touchline.training.self_play.settings import SelfPlaySettings

_NEW_GAME = 0
"""What a stream of draws is for; see `stream`."""


class Opponents(Protocol):
    """Who may play against a behavior (base name)."""

    @property
    def settings(self) -> SelfPlaySettings: ...

    @property
    def drawn(self) -> Sequence[int]:
        """The opponents that enter new games."""

    @property
    def guests(self) -> Mapping[int, Guest]:
        """At least those that are drawn, and those that finish a game."""


@dataclass(frozen=True)
class Meeting:
    """A game that is over, for two behaviors (full names) of different teams."""

    name: str
    """Name of the lower team."""
    other: str
    player: int
    """A number in the ratings, or `OWN` for the latest policy."""
    opponent: int
    score: float
    """1 if `name` won, 0 if it lost, 0.5 for a draw."""


@dataclass
class GameReport:
    """What happened in the games of some worlds since the last report."""

    meetings: list[Meeting] = field(default_factory=list)
    opponent_steps: dict[str, int] = field(default_factory=dict)
    """Opponents' steps by base name."""
    steps_without_end: int = 0
    """Decision steps since a game was over."""


def stream(seeds: Sequence[int], purpose: int, *place: int) -> np.random.Generator:
    """The stream of random numbers of one area's game, or of one swap."""
    # Philox is counter-based: a stream is set up without running through those before it.
    sequence = np.random.SeedSequence([*seeds, purpose, *place])
    return np.random.Generator(np.random.Philox(sequence))


class Seating:
    """The games of some worlds, and who plays in them."""

    def __init__(self, seeds: Sequence[int], pools: Mapping[str, Opponents]) -> None:
        """`pools`, by base name, may change at any time; `seeds` start the streams of draws."""
        self.behaviors: list[str] = []
        """Full names, in order of appearance."""
        self.waiting: list[int] = []
        """Areas whose next game has no players yet."""
        self._seeds = seeds
        self._pools = pools
        self._games = Games()
        self._num_games = np.zeros(0, np.int64)
        """[A] games begun."""
        self._player: dict[str, NDArray[np.int64]] = {}
        """Full name -> [A] who plays: a number in the ratings, or `OWN` for the latest policy."""
        self._learned: dict[str, NDArray[np.bool_]] = {}
        """Full name -> [A] whether it is learned from."""
        self._policies: dict[str, SharedSlots] = {}
        self._memories: Arrays = {}
        """What guests remember that were restored, by full name."""
        self._report = GameReport()

    def policy(self, behavior: str, own: NetworkPolicy) -> SharedSlots:
        """What acts for a full behavior name, whose latest policy is `own`."""
        if behavior not in self._policies:
            policy = self._policies[behavior] = SharedSlots(own)
            self._share([behavior])
            policy.load_state(below(behavior, self._memories))
        return self._policies[behavior]

    def begin(self, rows: AllRows) -> None:
        """The worlds were restarted: these are their first rows."""
        self._games = Games()
        self._see(rows)
        self._games.follow(rows, {})
        # There may be fewer areas than before, and all of their games begin.
        num_areas = self._games.num_areas
        self._num_games = self._num_games[:num_areas]
        for name in self.behaviors:
            self._player[name] = np.full(num_areas, OWN)
            self._learned[name] = np.ones(num_areas, np.bool_)
        self._memories = {}
        for policy in self._policies.values():
            policy.forget()
        self.waiting = list(range(num_areas))

    def follow(self, rows: AllRows, game_scores: GameScores) -> None:
        """Take note of what one step led to, before anyone acts on it."""
        self._see(rows)
        self._count_steps(rows)
        results = self._games.follow(rows, game_scores)
        report = self._report
        report.steps_without_end = 0 if results else report.steps_without_end + 1
        for result in results:
            self._record(result)
        num_known = len(self._num_games)
        new = range(num_known, self._games.num_areas)
        self.waiting += [*(result.area for result in results), *new]
        # No new game, but maybe new slots: who plays in their area acts in them, too.
        names = rows.keys() & self._policies.keys()
        grown = [n for n in names if len(self._policies[n].player) != len(rows[n])]
        if grown and not self.waiting:
            self.share()

    def assign(self, learning_team: int | None) -> None:
        """Draw who plays the next game of the areas that wait; `share` makes it so.

        `learning_team` is the position of the only team that learns; None: all do.
        """
        self._widen()
        for area in self.waiting:
            self._assign_area(area, learning_team)
        self.waiting = []

    def share(self) -> None:
        """Hand every slot to the one who plays in its area."""
        self._share(self.behaviors)

    def playing(self, base: str) -> set[int]:
        """The opponents that play for a behavior now."""
        names = [name for name in self.behaviors if base_name(name) == base]
        numbers: set[int] = set()
        for name in names:
            numbers |= set(self._player[name].tolist())
        return numbers - {OWN}

    def replace_absent(self, base: str, guests: Iterable[int]) -> None:
        """Let the latest policy end the games of opponents that are gone."""
        for name in self.behaviors:
            if base_name(name) == base:
                player = self._player[name]
                player[~np.isin(player, [OWN, *guests])] = OWN

    def take_report(self) -> GameReport:
        """What happened since the last call."""
        report = self._report
        self._report = GameReport(steps_without_end=report.steps_without_end)
        return report

    # in a step

    def _see(self, rows: AllRows) -> None:
        # New behaviors; their slots act by the latest policy until a game begins.
        # Those that come later join games that have begun.
        num_begun = len(self._num_games)
        for name in rows:
            if name not in self._player:
                self.behaviors.append(name)
                self._player[name] = np.full(num_begun, OWN)
                self._learned[name] = np.ones(num_begun, np.bool_)

    def _count_steps(self, rows: AllRows) -> None:
        counts = self._report.opponent_steps
        for name, row in rows.items():
            policy = self._policies.get(name)
            if policy is None:
                continue
            # Slots that are new in these rows have no player yet, and no result either.
            is_guest = policy.player != OWN
            closed = row.closed[: len(is_guest)]
            steps = int(np.count_nonzero(closed & is_guest))
            base = base_name(name)
            counts[base] = counts.get(base, 0) + steps

    def _record(self, result: Result) -> None:
        for name in self.behaviors:
            for other in self.behaviors:
                own = team_of(name)
                its = team_of(other)
                # Each pair once, from the side of the lower team.
                if own < its and result.is_between(own, its):
                    meeting = Meeting(
                        name,
                        other,
                        player=int(self._player[name][result.area]),
                        opponent=int(self._player[other][result.area]),
                        score=result.score(own, its),
                    )
                    self._report.meetings.append(meeting)

    # between games

    def _assign_area(self, area: int, learning_team: int | None) -> None:
        self._num_games[area] += 1
        game = int(self._num_games[area])
        draws = stream(self._seeds, _NEW_GAME, area, game)
        teams = sorted({team_of(name) for name in self.behaviors})
        # Drawn even where turns overrule it, so that the setting does not shift later draws.
        position = int(draws.integers(len(teams)))
        if learning_team is not None:
            position = learning_team
        learning = teams[position]
        for name in self.behaviors:
            pool = self._pools.get(base_name(name))
            team = team_of(name)
            player = OWN
            if pool is not None and team != learning:
                against_latest = pool.settings.play_against_latest_model_ratio
                if draws.random() >= against_latest:
                    drawn = int(draws.integers(len(pool.drawn)))
                    player = pool.drawn[drawn]
            # The latest policy may play for a waiting team, too, but then it is not learned from.
            takes_turns = learning_team is not None
            waits = takes_turns and pool is not None and team != learning
            self._player[name][area] = player
            self._learned[name][area] = player == OWN and not waits

    def _widen(self) -> None:
        size = self._games.num_areas
        self._num_games = widened(self._num_games, size)
        for name in self.behaviors:
            # Each by itself: a behavior that appears later has no areas at all yet.
            self._learned[name] = widened(self._learned[name], size, True)
            self._player[name] = widened(self._player[name], size, OWN)

    def _share(self, names: Sequence[str]) -> None:
        for name in names:
            policy, pool = self._policies.get(name), self._pools.get(base_name(name))
            if policy is None or pool is None or name not in self._player:
                continue
            area = self._games.area(name)
            is_placed = (area >= 0) & (area < len(self._player[name]))
            player = np.full(len(area), OWN)
            learned = np.ones(len(area), np.bool_)
            player[is_placed] = self._player[name][area[is_placed]]
            learned[is_placed] = self._learned[name][area[is_placed]]
            policy.share(player, learned, pool.guests)

    # state

    def state(self) -> Arrays:
        """Areas and who plays in them; `behaviors` and the report are the caller's to keep."""
        arrays = prefixed("games", self._games.state())
        arrays["num_games"] = self._num_games.copy()
        if self.waiting:
            arrays["waiting"] = np.array(self.waiting)
        for name in self.behaviors:
            arrays[f"player/{name}"] = self._player[name].copy()
            arrays[f"learned/{name}"] = self._learned[name].copy()
            if name in self._policies:
                memories = self._policies[name].state()
                arrays |= prefixed(f"memory/{name}", memories)
        return arrays

    def load_state(self, arrays: Arrays, behaviors: Sequence[str]) -> None:
        self.behaviors = list(behaviors)
        self._games.load_state(below("games", arrays))
        self._num_games = arrays["num_games"].copy()
        self.waiting = arrays["waiting"].tolist() if "waiting" in arrays else []
        for name in self.behaviors:
            self._player[name] = arrays[f"player/{name}"].copy()
            self._learned[name] = arrays[f"learned/{name}"].copy()
        self._memories = below("memory", arrays)
