"""What a collector takes and gives, whether it runs in this process or on other machines.

A learner cannot tell collectors apart: it names how many results it wants and gets trajectories.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from touchline.envs.env import EnvRecipe
from touchline.envs.saved_state import Arrays
from touchline.envs.slots import AllRows
from touchline.parameters import ParameterValue
from touchline.policies.policy import Policy
from touchline.specs import BehaviorSpec, Specs
from touchline.statistics import EnvironmentStats
from touchline.training.experience.trajectories import Trajectories
from touchline.training.self_play.games import GameScores
from touchline.training.self_play.lineup import Roster
from touchline.training.self_play.seating import GameReport

Observations = tuple[NDArray[Any], ...]


@dataclass(frozen=True)
class Seat:
    """Who acts for the slots of one full behavior name."""

    policy: Policy
    generator: Any
    """Random draws of the actions, as the policy's `new_generator` makes them."""
    is_learned_from: bool = True
    """Whether its experience is kept for a learner."""
    compact: Callable[[Observations], Observations] = tuple
    """The part of observations that its policy and learner need."""


class Lineup(Protocol):
    """Which policy acts where. Looked up at every step, so it may change at any time."""

    def begin(self, rows: AllRows, specs: Specs) -> None:
        """The worlds were restarted: these are their first rows."""
        return  # most lineups have the same policies in all games

    def follow(self, rows: AllRows, specs: Specs, game_scores: GameScores) -> None:
        """Take note of what one step led to, before the next actions."""
        return  # as above

    def seat(self, behavior: str, spec: BehaviorSpec) -> Seat:
        """The seat of a full behavior name; a world may show new ones at any step."""


@runtime_checkable
class GameHost(Protocol):
    """A lineup that can decide who plays in the games of collectors."""

    def roster(self, behaviors: Sequence[str]) -> Roster:
        """For the next round, in worlds with these full names."""

    def record_games(
        self,
        behaviors: Sequence[str],
        reports: Sequence[GameReport],
        playing: Sequence[Mapping[str, set[int]]],
    ) -> None:
        """Count the games of a round; see `SelfPlay.record`."""


@dataclass(frozen=True)
class Episodes:
    """Episodes of one full behavior name that ended, in order of their ends."""

    returns: list[float] = field(default_factory=list)
    """Own and group rewards together."""
    lengths: list[int] = field(default_factory=list)
    """Actions with a result."""
    group_returns: list[float] = field(default_factory=list)
    """Group rewards of the groups whose last member ended, counted once for each group."""

    def add(self, later: Episodes) -> None:
        """Include episodes that ended after these."""
        self.returns.extend(later.returns)
        self.lengths.extend(later.lengths)
        self.group_returns.extend(later.group_returns)


@dataclass(frozen=True)
class Collection:
    """What one call of `collect` brought, or several."""

    episodes: dict[str, Episodes] = field(default_factory=dict)
    """Full behavior name -> the episodes that ended; also of behaviors not learned from."""
    results: dict[str, int] = field(default_factory=dict)
    """Full behavior name -> how many actions got their result."""
    trajectories: dict[str, Trajectories] = field(default_factory=dict)
    """Experience of the learners whose wanted number was reached, by full behavior name; that of
    several collectors by `of_collector`."""
    statistics: EnvironmentStats = field(default_factory=dict)

    def add(self, later: Collection) -> None:
        """Include what was brought after this."""
        for name, episodes in later.episodes.items():
            self.episodes.setdefault(name, Episodes()).add(episodes)
        for name, count in later.results.items():
            self.results[name] = self.results.get(name, 0) + count
        for name, values in later.statistics.items():
            self.statistics.setdefault(name, []).extend(values)
        self.trajectories.update(later.trajectories)


def of_collector(behavior: str, index: int) -> str:
    """The full behavior name for experience of collector `index`, whose slots are not those of the
    others; the base name stays.
    """
    if index == 0:
        return behavior
    return f"{behavior}{'&' if '?' in behavior else '?'}collector={index}"


class Worlds(Protocol):
    """What a run needs to know of the worlds in which it collects."""

    @property
    def behaviors(self) -> Specs:
        """Full behavior name -> spec, of all worlds."""

    def capacity(self, behavior: str) -> int | None:
        """The most agents of this behavior that can exist at once; None where that is unknown."""

    @property
    def interface_options(self) -> Mapping[str, str]:
        """The worlds' options that change what is observed or done."""


class Collector(Protocol):
    """Lets a lineup act and gathers what a learner learns from."""

    @property
    def slots(self) -> Worlds: ...

    @property
    def rows(self) -> AllRows:
        """Rows of each full behavior name, of one collector where there are several."""

    def reset(self, seed: int | None = None) -> None:
        """Restart the worlds; open episodes and experience not yet learned are dropped."""

    def set_parameters(self, values: Mapping[str, ParameterValue]) -> None:
        """Set environment parameters of all worlds."""

    def collect(self, wanted: Mapping[str, int]) -> Collection:
        """Continue for a while: one step, or some of the way to a whole round.

        `wanted` are the results that each learner (by base name) needs; all trajectories of a base
        name are handed over, and begun again, once its teams together have that many.
        """

    def underway(self, behavior: str) -> tuple[int, list[float]]:
        """Of a base name: results not yet handed over, and open episodes' returns so far."""

    def state(self) -> Arrays:
        """Everything needed to continue collecting bit for bit.

        Empty where the worlds cannot be restored (Unity players): they restart.
        """

    def load_state(self, arrays: Arrays) -> None:
        """Continue from what `state` returned, unless it is empty."""

    def save_trace(self, path: Path, recipe: EnvRecipe) -> None:
        """Write what replays the steps since the last update."""
