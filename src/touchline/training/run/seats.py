"""Who acts for the slots of a run: the latest policies, or with self-play also their opponents."""

from collections.abc import Mapping, Sequence

from touchline.envs.slots import AllRows
from touchline.specs import BehaviorSpec, Specs, base_name
from touchline.training.collect.collector import Lineup, Seat
from touchline.training.run.enrollment import Enrollment
from touchline.training.self_play.games import GameScores
from touchline.training.self_play.lineup import LONG_WAIT, Roster
from touchline.training.self_play.seating import GameReport


def lineup_of(enrollment: Enrollment) -> Lineup:
    """The lineup that the run's configuration asks for."""
    if enrollment.config.has_self_play:
        return WithOpponents(enrollment)
    return LatestPolicies(enrollment)


class LatestPolicies(Lineup):
    """Every team acts by the latest policy of its behavior."""

    def __init__(self, enrollment: Enrollment) -> None:
        self._enrollment = enrollment

    def seat(self, behavior: str, spec: BehaviorSpec) -> Seat:
        training = self._enrollment.training(base_name(behavior), spec)
        learner = training.learner
        return Seat(
            learner.policy,
            learner.generator,
            is_learned_from=not training.is_done,
            compact=learner.policy.network.compact,
        )


class WithOpponents(LatestPolicies):
    """Behaviors with self-play also meet opponents of their pools, also in games of collectors."""

    def __init__(self, enrollment: Enrollment) -> None:
        super().__init__(enrollment)
        self._self_play = enrollment.self_play
        self._has_warned = False

    def begin(self, rows: AllRows, specs: Specs) -> None:
        """The worlds were restarted: seat the players of the first games."""
        # Pools first: players are drawn from them.
        self._enrollment.enroll_all(specs)
        self._self_play.begin(rows)

    def follow(self, rows: AllRows, specs: Specs, game_scores: GameScores) -> None:
        """Count the games that one step ended, and seat the players of the next ones."""
        self._enrollment.enroll_all(specs)
        self._self_play.follow(rows, game_scores)
        self._warn_of_endless_games()

    def seat(self, behavior: str, spec: BehaviorSpec) -> Seat:
        seat = super().seat(behavior, spec)
        training = self._enrollment.trainings[base_name(behavior)]
        if training.pool is None:
            return seat
        # Without `compact`: opponents may need other parts of the observations than the learner.
        return Seat(
            self._self_play.seating.policy(behavior, training.learner.policy),
            seat.generator,
            is_learned_from=seat.is_learned_from,
        )

    def roster(self, behaviors: Sequence[str]) -> Roster:
        """Who plays in the games of collectors in the next round."""
        return self._self_play.roster(behaviors)

    def record_games(
        self,
        behaviors: Sequence[str],
        reports: Sequence[GameReport],
        playing: Sequence[Mapping[str, set[int]]],
    ) -> None:
        """Count what happened in the games of collectors."""
        self._self_play.record(behaviors, reports, playing)
        self._warn_of_endless_games()

    def _warn_of_endless_games(self) -> None:
        if self._self_play.steps_without_end >= LONG_WAIT and not self._has_warned:
            self._has_warned = True
            self._enrollment.log(
                f"self_play: no game was over for {LONG_WAIT:,} decision steps, so opponents "
                "and ratings stay as they are; the world should end its agents' episodes"
            )
