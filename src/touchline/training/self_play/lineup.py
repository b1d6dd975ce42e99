"""Who plays whom: in every area a policy on each side, for a whole game.

When a game begins, a team is drawn that learns. On each other side, the latest policy plays with
the probability `play_against_latest_model_ratio`, and an opponent of the pool otherwise. Wherever
the latest policy plays, it is learned from, on both sides too; opponents are not learned from. No
world is reset, and no opponent changes in mid-game.

The games of this process are in a `Seating` here. With collectors each has one of its own: a
`Roster` goes out with every round, and what happened in its games comes back.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from touchline.envs.saved_state import Arrays, below, kept, prefixed, put_back
from touchline.envs.slots import AllRows
from touchline.errors import UsageError
from touchline.policies.network_policy import NetworkPolicy
from touchline.policies.shared_slots import OWN
from touchline.specs import BehaviorSpec, base_name, team_of
from touchline.training.self_play.games import GameScores
from touchline.training.self_play.pool import Pool
from touchline.training.self_play.ratings import Ratings
from touchline.training.self_play.seating import GameReport, Meeting, Seating, stream
from touchline.training.self_play.settings import SelfPlaySettings

MOST_AT_ONCE = 8
"""New opponents are drawn only while at most this many opponents of a behavior play, on each
collector where there are several."""
LONG_WAIT = 20_000
"""After this many steps without the end of a game, people should know. Games in ML-Agents' scenes
last 1000 decisions at most."""
_KEPT = ("_learning_team", "_num_swaps")
_SWAP = 1
"""What a stream of draws is for; see `stream`."""


@dataclass(frozen=True)
class Roster:
    """Who may play in the games that begin in a round of collectors."""

    pools: Mapping[str, Pool]
    learning_team: int | None
    """Position of the only team that learns; None: all do."""


class SelfPlay:
    """The pools and results of one run, and the games of this process."""

    def __init__(self, seed: int) -> None:
        self.pools: dict[str, Pool] = {}
        """Pools by base name."""
        self.ratings = Ratings()
        self.steps_without_end = 0
        self._seed = seed
        self.seating = Seating((seed,), self.pools)
        self._learning_team = 0
        """With take_turns: the position of the team that learns."""
        self._num_swaps = 0
        self._absent: dict[str, tuple[Mapping[str, Any], Arrays]] = {}
        """Counters and arrays of a resumed run's pools that the world has not shown yet."""

    def enroll(
        self,
        behavior: str,
        spec: BehaviorSpec,
        settings: SelfPlaySettings,
        policy: NetworkPolicy,
        steps: int,
    ) -> Pool:
        """The pool of a behavior (base name) that the world shows for the first time."""
        self.ratings.initial[behavior] = settings.initial_elo
        pool = Pool(behavior, spec, settings, policy, self.ratings)
        absent = self._absent.pop(behavior, None)
        if absent is not None:
            pool.restore(*absent)
            self.seating.replace_absent(behavior, pool.guests)
        else:
            pool.begin(steps)
        self.pools[behavior] = pool
        return pool

    def require_opponents(self, behaviors: Iterable[str]) -> None:
        """Raise a UsageError unless these full names are of two teams or more."""
        if self.pools and len({team_of(name) for name in behaviors}) < 2:
            raise UsageError(
                f"behaviors.{next(iter(self.pools))}.self_play: all agents of this world are on "
                "one team, so there is no opponent; leave the block out, or let the other team "
                "be there in the first exchange"
            )

    # games of this process

    def begin(self, rows: AllRows) -> None:
        self.seating.begin(rows)
        self.require_opponents(self.seating.behaviors)
        self._assign()

    def follow(self, rows: AllRows, game_scores: GameScores) -> None:
        self.seating.follow(rows, game_scores)
        report = self.seating.take_report()
        self.steps_without_end = report.steps_without_end
        self._count(report)
        if self.seating.waiting:
            self._assign()

    def _assign(self) -> None:
        # In this order: a game that begins now already meets the new opponents, in the new turn.
        playing = {base: self.seating.playing(base) for base in self.pools}
        self._swap([playing])
        self._take_turns(self.seating.behaviors)
        self.seating.assign(self._learning)
        for base, pool in self.pools.items():
            # Weights are released only when no area plays against them any more.
            pool.release(self.seating.playing(base))
        self.seating.share()

    # games of collectors

    def roster(self, behaviors: Sequence[str]) -> Roster:
        """Who plays in the games that begin in the next round; `behaviors` are full names."""
        self.require_opponents(behaviors)
        for pool in self.pools.values():
            if not pool.drawn:
                self._draw(pool)
        return Roster(self.pools, self._learning)

    def record(
        self,
        behaviors: Sequence[str],
        reports: Sequence[GameReport],
        playing: Sequence[Mapping[str, set[int]]],
    ) -> None:
        """Count the games of a round. `playing` are, for each collector, the opponents that play
        there now, by base name.
        """
        for report in reports:
            self._count(report)
        waits = [report.steps_without_end for report in reports]
        # A game that was over in any of the collectors counts.
        self.steps_without_end = min(waits, default=self.steps_without_end)
        self._swap(playing)
        self._take_turns(behaviors)
        for base, pool in self.pools.items():
            pool.release({n for own in playing for n in own.get(base, ())})

    # results, opponents and turns

    def _count(self, report: GameReport) -> None:
        for base, steps in report.opponent_steps.items():
            pool = self.pools.get(base)
            if pool is not None:
                pool.opponent_steps += steps
        for meeting in report.meetings:
            self._count_meeting(meeting)

    def _count_meeting(self, meeting: Meeting) -> None:
        pool = self.pools.get(base_name(meeting.name))
        its_pool = self.pools.get(base_name(meeting.other))
        if pool is None or its_pool is None:
            return  # a behavior without self-play has no players, and so no ratings
        player, opponent, score = meeting.player, meeting.opponent, meeting.score
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

    @property
    def _learning(self) -> int | None:
        """Position of the only team that learns; None: all do."""
        takes_turns = any(pool.settings.take_turns for pool in self.pools.values())
        return self._learning_team if takes_turns else None

    def _take_turns(self, behaviors: Sequence[str]) -> None:
        if self._learning is None:
            return
        teams = sorted({team_of(name) for name in behaviors})
        team = teams[self._learning_team]
        # A dict as an ordered set: the order of a set of strings differs from run to run.
        names = {base_name(n): None for n in behaviors if team_of(n) == team}
        pools = [self.pools[n] for n in names if n in self.pools]
        # What has all its steps decides no more how long the others of its team learn.
        # A list, because `any` over a generator would leave later turns uncounted.
        over = [pool.turn_is_over() for pool in pools if not pool.is_done]
        # A team that has nothing to learn ends its turn at once.
        if not over or any(over):
            self._learning_team = (self._learning_team + 1) % len(teams)

    def _swap(self, playing: Sequence[Mapping[str, set[int]]]) -> None:
        """Draw other opponents where it is time; `playing` is by base name, of each process."""
        for base, pool in self.pools.items():
            # Every opponent that still finishes a game costs a forward pass per step.
            num_opponents = max(len(own.get(base, ())) for own in playing)
            if num_opponents <= MOST_AT_ONCE or not pool.drawn:
                self._draw(pool)

    def _draw(self, pool: Pool) -> None:
        # Counted at every look, drawn or not, so that a stream is never used twice.
        self._num_swaps += 1
        pool.swap(stream((self._seed,), _SWAP, self._num_swaps))

    # state

    def arrays(self) -> Arrays:
        """Snapshots, areas and who plays in them."""
        arrays = self.seating.state()
        for base, pool in self.pools.items():
            arrays |= prefixed(f"pool/{base}", pool.arrays())
        for base, (_, own) in self._absent.items():
            arrays |= prefixed(f"pool/{base}", own)
        return arrays

    def counters(self) -> dict[str, Any]:
        """Everything else, as plain values."""
        absent = {base: counters for base, (counters, _) in self._absent.items()}
        own = {base: pool.counters() for base, pool in self.pools.items()}
        return kept(self, _KEPT) | {
            "behaviors": self.seating.behaviors,
            "ratings": self.ratings.state(),
            "pools": absent | own,
        }

    def restore(self, counters: Mapping[str, Any], arrays: Arrays) -> None:
        """Continue from saved counters and arrays, once the world shows each behavior."""
        put_back(self, _KEPT, counters)
        self.ratings.load_state(counters["ratings"])
        for base, own in counters["pools"].items():
            self._absent[base] = own, below(f"pool/{base}", arrays)
        self.seating.load_state(arrays, counters["behaviors"])
