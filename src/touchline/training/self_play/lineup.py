"""Who plays whom: in every area a policy on each side, for a whole game.

When a game begins, a team is drawn that learns. On each other side, the latest policy plays with
the probability `play_against_latest_model_ratio`, and an opponent of the pool otherwise. Wherever
the latest policy plays, it is learned from, on both sides too; opponents are not learned from. No
world is reset, and no opponent changes in mid-game.

Draws are addressed by seed, area and game, so a resumed run repeats them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.envs.saved_state import Arrays, below, prefixed
from touchline.envs.slots import SlotRows
from touchline.errors import UsageError
from touchline.policies.policy import NetworkPolicy
from touchline.policies.shared_slots import OWN, SharedSlots
from touchline.specs import BehaviorSpec, base_name, team_of
from touchline.training.self_play.games import Games, Result
from touchline.training.self_play.pool import Pool
from touchline.training.self_play.ratings import Ratings
from touchline.training.self_play.settings import SelfPlaySettings

MOST_AT_ONCE = 8
"""New opponents are drawn only while at most this many opponents of a behavior play."""
LONG_WAIT = 20_000
"""After this many steps without the end of a game, people should know. Games in ML-Agents' scenes
last 1000 decisions at most."""
_NEW_GAME, _SWAP = 0, 1
"""What a stream of draws is for."""


class SelfPlay:
    """The games of one run, and the pools of its behaviors."""

    def __init__(self, seed: int) -> None:
        self.pools: dict[str, Pool] = {}
        """By base name."""
        self.ratings = Ratings()
        self.steps_without_end = 0
        """Decision steps since a game was over."""
        self._seed = seed
        self._games = Games()
        self._behaviors: list[str] = []
        """Full names, in order of appearance."""
        self._teams: list[int] = []
        self._learning_team = 0
        """With take_turns: the position of the team that learns."""
        self._num_games = np.zeros(0, np.int64)
        """[A] games begun."""
        self._num_swaps = 0
        self._player: dict[str, NDArray[np.int64]] = {}
        """Full name -> [A] who plays: a number in the ratings, or `OWN` for the latest policy."""
        self._learned: dict[str, NDArray[np.bool_]] = {}
        """Full name -> [A] whether it is learned from."""
        self._policies: dict[str, SharedSlots] = {}
        self._memories: Arrays = {}
        """What guests of a resumed run remember, by full name."""
        self._absent: tuple[Mapping[str, Any], Arrays] | None = None
        """What a resumed run holds of behaviors that the world has not shown yet."""

    def enroll(
        self,
        behavior: str,
        spec: BehaviorSpec,
        settings: SelfPlaySettings,
        policy: NetworkPolicy,
        steps: int,
    ) -> Pool:
        """The pool of a behavior (base name) that the world shows for the first time."""
        self.ratings.initial = settings.initial_elo
        pool = Pool(behavior, spec, settings, policy, self.ratings)
        counters, arrays = self._absent or ({}, {})
        if behavior in counters:
            pool.restore(counters[behavior], below(behavior, arrays))
            self._replace_absent(pool)
        else:
            pool.begin(steps)
        self.pools[behavior] = pool
        return pool

    def _replace_absent(self, pool: Pool) -> None:
        """Let the latest policy end the games of opponents that the settings no longer name."""
        for name in self._behaviors:
            if base_name(name) == pool.behavior:
                player = self._player[name]
                player[~np.isin(player, [OWN, *pool.guests])] = OWN

    def policy(self, behavior: str, own: NetworkPolicy) -> SharedSlots:
        """What acts for a full behavior name, whose latest policy is `own`."""
        if behavior not in self._policies:
            policy = self._policies[behavior] = SharedSlots(own)
            self._share([behavior])
            policy.load_state(below(behavior, self._memories))
        return self._policies[behavior]

    def begin(self, rows: Mapping[str, SlotRows]) -> None:
        """The worlds were restarted: these are their first rows."""
        self._games = Games()
        self._see(rows)
        if len(self._teams) < 2:
            raise UsageError(
                f"behaviors.{next(iter(self.pools))}.self_play: all agents of this world are on "
                "one team, so there is no opponent; leave the block out"
            )
        self._games.follow(rows, {})
        self._assign(range(self._games.num_areas))

    def follow(
        self, rows: Mapping[str, SlotRows], game_scores: Mapping[tuple[int, int], float]
    ) -> None:
        """Take note of what one step led to, before anyone acts on it."""
        self._see(rows)
        self._count_steps(rows)
        results = self._games.follow(rows, game_scores)
        self.steps_without_end = 0 if results else self.steps_without_end + 1
        for result in results:
            self._record(result)
        num_known = len(self._num_games)
        new = range(num_known, self._games.num_areas)
        over = [result.area for result in results]
        if over or new:
            self._assign([*over, *new])
        elif any(self._has_grown(name, row) for name, row in rows.items()):
            # No new game, but new slots: who plays in their area acts in them, too.
            self._share(self._behaviors)

    def _see(self, rows: Mapping[str, SlotRows]) -> None:
        """New behaviors; their slots act by the latest policy until a game begins."""
        for name in rows:
            if name not in self._player:
                self._behaviors.append(name)
                self._player[name] = np.zeros(0, np.int64)
                self._learned[name] = np.zeros(0, np.bool_)
                self._teams = sorted({team_of(n) for n in self._behaviors})

    def _has_grown(self, name: str, rows: SlotRows) -> bool:
        policy = self._policies.get(name)
        return policy is not None and len(policy.player) != len(rows)

    def _count_steps(self, rows: Mapping[str, SlotRows]) -> None:
        for name, row in rows.items():
            pool = self.pools.get(base_name(name))
            policy = self._policies.get(name)
            if pool is not None and policy is not None:
                # Slots that are new in these rows have no player yet, and no result either.
                is_guest = policy.player != OWN
                closed = row.closed[: len(is_guest)]
                pool.opponent_steps += int(np.count_nonzero(closed & is_guest))

    def _record(self, result: Result) -> None:
        """Count a game that is over, for every pair of behaviors of two teams."""
        for name in self._behaviors:
            for other in self._behaviors:
                own = team_of(name)
                its = team_of(other)
                # Each pair once, from the side of the lower team.
                if own < its and {own, its} <= result.points.keys():
                    score = result.score(own, its)
                    self._record_pair(result.area, name, other, score)

    def _record_pair(self, area: int, name: str, other: str, score: float) -> None:
        pool = self.pools.get(base_name(name))
        its_pool = self.pools.get(base_name(other))
        if pool is None or its_pool is None:
            return  # a behavior without self-play has no players, and so no ratings
        player = int(self._player[name][area])
        opponent = int(self._player[other][area])
        number = pool.current if player == OWN else player
        its_number = its_pool.current if opponent == OWN else opponent
        if number == its_number:
            return  # the latest policy against itself
        self.ratings.record(number, its_number, score)
        if player == OWN:
            pool.count(its_pool.kind_of(its_number), score)
            its_pool.met(its_number, score)
        if opponent == OWN:
            its_pool.count(pool.kind_of(number), 1.0 - score)
            pool.met(number, 1.0 - score)

    def _assign(self, areas: Sequence[int]) -> None:
        """Draw who plays the next game of these areas."""
        # In this order: a game that begins now already meets the new opponents, in the new turn.
        self._widen()
        self._swap()
        self._take_turns()
        for area in areas:
            self._assign_area(area)
        for base, pool in self.pools.items():
            playing = [self._player[n] for n in self._behaviors if base_name(n) == base]
            # Weights are released only when no area plays against them any more.
            numbers = set(np.concatenate(playing).tolist())
            pool.release(numbers)
        self._share(self._behaviors)

    def _assign_area(self, area: int) -> None:
        self._num_games[area] += 1
        draws = self._draws(_NEW_GAME, area, int(self._num_games[area]))
        # Drawn even where turns overrule it, so that the setting does not shift later draws.
        position = int(draws.integers(len(self._teams)))
        if self._takes_turns:
            position = self._learning_team
        learning = self._teams[position]
        for name in self._behaviors:
            pool = self.pools.get(base_name(name))
            team = team_of(name)
            player = OWN
            if pool is not None and team != learning:
                against_latest = pool.settings.play_against_latest_model_ratio
                if draws.random() >= against_latest:
                    drawn = int(draws.integers(len(pool.drawn)))
                    player = pool.drawn[drawn]
            # The latest policy may play for a waiting team, too, but then it is not learned from.
            waits = self._takes_turns and pool is not None and team != learning
            self._player[name][area] = player
            self._learned[name][area] = player == OWN and not waits

    def _draws(self, purpose: int, *place: int) -> np.random.Generator:
        """The stream of random numbers of one area's game, or of one swap."""
        # Philox is counter-based: a stream is set up without running through those before it.
        seeds = np.random.SeedSequence([self._seed, purpose, *place])
        return np.random.Generator(np.random.Philox(seeds))

    @property
    def _takes_turns(self) -> bool:
        return any(pool.settings.take_turns for pool in self.pools.values())

    def _take_turns(self) -> None:
        """Let the next team learn when it is time."""
        if not self._takes_turns:
            return
        team = self._teams[self._learning_team]
        # A dict as an ordered set: the order of a set of strings differs from run to run.
        names = {base_name(n): None for n in self._behaviors if team_of(n) == team}
        # A list, because `any` over a generator would leave later turns uncounted.
        over = [self.pools[n].turn_is_over() for n in names if n in self.pools]
        # A team without a pool has nothing to learn, so its turn is over at once.
        if not over or any(over):
            self._learning_team = (self._learning_team + 1) % len(self._teams)

    def _swap(self) -> None:
        for base, pool in self.pools.items():
            names = [n for n in self._behaviors if base_name(n) == base]
            playing = np.unique(np.concatenate([self._player[n] for n in names]))
            # Every opponent that still finishes a game costs a forward pass per step.
            num_opponents = np.count_nonzero(playing != OWN)
            if num_opponents <= MOST_AT_ONCE or not pool.drawn:
                # Counted at every look, drawn or not, so that a stream is never used twice.
                self._num_swaps += 1
                pool.swap(self._draws(_SWAP, self._num_swaps))

    def _widen(self) -> None:
        extra = self._games.num_areas - len(self._num_games)
        if extra > 0:
            self._num_games = np.pad(self._num_games, (0, extra))
        for name in self._behaviors:
            # Each by itself: a behavior that appears later has no areas at all yet.
            extra = max(self._games.num_areas - len(self._player[name]), 0)
            ones = np.ones(extra, np.bool_)
            self._learned[name] = np.concatenate([self._learned[name], ones])
            latest = np.full(extra, OWN)
            self._player[name] = np.concatenate([self._player[name], latest])

    def _share(self, names: Sequence[str]) -> None:
        """Hand every slot to the one who plays in its area."""
        for name in names:
            policy, pool = self._policies.get(name), self.pools.get(base_name(name))
            if policy is None or pool is None or name not in self._player:
                continue
            area = self._games.area(name)
            # An index of -1 would read the last area; `np.where` discards what it read.
            is_placed = (area >= 0) & (area < len(self._player[name]))
            player = np.where(is_placed, self._player[name][area], OWN)
            learned = np.where(is_placed, self._learned[name][area], True)
            policy.share(player, learned, pool.guests)

    # state

    def arrays(self) -> Arrays:
        """Snapshots, areas and who plays in them."""
        arrays = prefixed("games", self._games.state())
        arrays["num_games"] = self._num_games.copy()
        for name in self._behaviors:
            arrays[f"player/{name}"] = self._player[name].copy()
            arrays[f"learned/{name}"] = self._learned[name].copy()
            if name in self._policies:
                memories = self._policies[name].state()
                arrays |= prefixed(f"memory/{name}", memories)
        for base, pool in self.pools.items():
            arrays |= prefixed(f"pool/{base}", pool.arrays())
        return arrays

    def counters(self) -> dict[str, Any]:
        """Everything else, as plain values."""
        return {
            "behaviors": self._behaviors,
            "learning_team": self._learning_team,
            "num_swaps": self._num_swaps,
            "ratings": self.ratings.state(),
            "pools": {base: pool.counters() for base, pool in self.pools.items()},
        }

    def restore(self, counters: Mapping[str, Any], arrays: Arrays) -> None:
        """Go on from what `counters` and `arrays` gave, once the world shows each behavior."""
        self._behaviors = list(counters["behaviors"])
        self._teams = sorted({team_of(name) for name in self._behaviors})
        self._learning_team = counters["learning_team"]
        self._num_swaps = counters["num_swaps"]
        self.ratings.load_state(counters["ratings"])
        self._absent = counters["pools"], below("pool", arrays)
        self._games.load_state(below("games", arrays))
        self._num_games = arrays["num_games"].copy()
        for name in self._behaviors:
            self._player[name] = arrays[f"player/{name}"].copy()
            self._learned[name] = arrays[f"learned/{name}"].copy()
        self._memories = below("memory", arrays)
