"""How good a policy is: fixed quotas of episodes, whole games for groups, a confidence interval.

A unit is a group, or an agent without one. Every unit plays a fixed number of games (episodes), and
all episodes of a group's members within its games count. Counting "the first N that finish" instead
would favor short episodes. Members of a group share its fate, so they are no independent samples:
the interval takes a whole game as one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.envs.slots import SlotRows, Slots
from touchline.errors import RunError
from touchline.log import Progress, no_progress
from touchline.policies.policy import SlotActor
from touchline.specs import base_name, team_of

MOST_DECISIONS = 20_000
"""Until an episode that counts must end: 33 minutes of play at ML-Agents' usual 10 a second.

The longest episodes of the scenes have 5,000.
"""
_Z95 = 1.96
"""Standard deviations on either side of the mean that hold 95 % of a normal distribution."""


@dataclass
class Games:
    """Whole episodes of groups, from the side of the evaluated team."""

    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    interrupted: int = 0

    def figures(self) -> dict[str, Any]:
        returns = np.array(self.returns)
        return {
            "played": len(returns),
            "decided": len(returns) - self.interrupted,
            "won": int((returns > 0).sum()),
            "lost": int((returns < 0).sum()),
            "interrupted": self.interrupted,
            "mean_length": _mean(self.lengths),
        }


@dataclass
class Outcomes:
    """Finished episodes of one behavior."""

    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    cluster_sizes: list[int] = field(default_factory=list)
    """Successive episodes that belong to one game; 1 for an agent without a group."""
    games: Games = field(default_factory=Games)

    def add(self, returns: Sequence[float], lengths: Sequence[int]) -> None:
        """Episodes that depend on each other: those of one game."""
        self.returns += returns
        self.lengths += lengths
        self.cluster_sizes.append(len(returns))

    def figures(self) -> dict[str, Any]:
        count = len(self.returns)
        mean = _mean(self.returns)
        std = float(np.std(self.returns, ddof=1)) if count > 1 else 0.0
        half = _Z95 * clustered_error(np.array(self.returns), self.cluster_sizes)
        return {
            "episodes": count,
            "mean_return": mean,
            "std_return": std,
            "ci95": [mean - half, mean + half],
            "mean_length": _mean(self.lengths),
            "mean_group_return": _mean(self.games.returns),
            "games": self.games.figures() if self.games.returns else None,
        }


def clustered_error(values: NDArray[np.float64], cluster_sizes: Sequence[int]) -> float:
    """Standard error of the mean of values that come in clusters, one after the other.

    √(G/(G−1) · Σ_g (Σ_{i∈g} (xᵢ − x̄))²) / N, which for clusters of one is s/√N. 0 where it is not
    defined, for fewer than two clusters.

    Source: Cameron & Miller 2015, J. Human Resources 50:317, section II.
    """
    num_clusters = len(cluster_sizes)
    if num_clusters < 2:
        return 0.0
    cluster = np.repeat(np.arange(num_clusters), cluster_sizes)
    sums = np.bincount(cluster, weights=values - values.mean())
    correction = num_clusters / (num_clusters - 1)
    return float(np.sqrt(correction * (sums**2).sum()) / len(values))


def evaluate(
    slots: Slots,
    actors: Mapping[str, SlotActor],
    episodes: int,
    seed: int,
    evaluated: Sequence[str] | None = None,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Play until every quota is filled.

    Gives the figures of `touchline eval --json`, except `scene` and `policy`. `evaluated` are the
    full behavior names whose figures count, by default all; where groups of two teams play by one
    policy, the figures are those of the lower team. Raises a RunError when an episode never ends.
    """
    started = time.perf_counter()
    rows = slots.reset(seed)
    names = _one_side(list(evaluated or rows), rows)
    quotas = {name: _Quota(rows[name], episodes) for name in names}
    total = sum(quota.left for quota in quotas.values())
    agent_steps = 0
    check_end = EndCheck()
    while left := sum(quota.left for quota in quotas.values()):
        actions = {name: actors[name].act(row) for name, row in rows.items()}
        rows = slots.step(actions)
        for name, quota in quotas.items():
            quota.add(rows[name])
        check_end(left, rows)
        agent_steps += sum(int(row.closed.sum()) for row in rows.values())
        progress(total - left, total)
    speed = agent_steps / (time.perf_counter() - started)
    behaviors: dict[str, Outcomes] = {}
    for name, quota in quotas.items():
        base = base_name(name)
        behaviors[base] = _joined([behaviors.get(base, Outcomes()), quota.outcomes])
    return {
        "seed": seed,
        **_joined(_lowest_team(quotas)).figures(),
        "agent_steps_per_s": round(speed),
        "behaviors": {name: outcomes.figures() for name, outcomes in behaviors.items()},
    }


class EndCheck:
    """Refuses to wait for an end that never comes."""

    def __init__(
        self,
        nothing: str = "no episode",
        advice: str = "this policy never finishes one, and the world has no limit (Max Step)",
    ) -> None:
        """`nothing` and `advice` are the beginning and the end of the error."""
        self._nothing, self._advice = nothing, advice
        self._left, self._decisions = -1, 0.0

    def __call__(self, left: int, rows: Mapping[str, SlotRows]) -> None:
        """Count one step, after which so much is `left` to be played.

        Raises a RunError when an average agent has made `MOST_DECISIONS` and nothing that counts
        has ended.
        """
        if left != self._left:
            self._left, self._decisions = left, 0.0
        # Where agents decide at different times, most of them wait in each step.
        num_slots = sum(len(row) for row in rows.values())
        num_decided = sum(int(row.closed.sum()) for row in rows.values())
        self._decisions += num_decided / max(num_slots, 1)
        if self._decisions > MOST_DECISIONS:
            raise RunError(
                f"{self._nothing} ended within {MOST_DECISIONS:,} decisions: {self._advice}"
            )


def _one_side(names: Sequence[str], rows: Mapping[str, SlotRows]) -> list[str]:
    """These behaviors, without the higher teams of those that play in groups."""
    teams: dict[str, list[int]] = {}
    for name in names:
        teams.setdefault(base_name(name), []).append(team_of(name))
    shown = []
    for name in names:
        is_lowest = team_of(name) == min(teams[base_name(name)])
        # What one side wins the other loses: both together would say nothing.
        if is_lowest or not _is_grouped(rows[name]):
            shown.append(name)
    return shown


def _is_grouped(rows: SlotRows) -> bool:
    return bool((rows.group_id > 0).any())


def _lowest_team(quotas: Mapping[str, _Quota]) -> Iterator[Outcomes]:
    """The outcomes of all behaviors; where groups play each other, of the lowest team."""
    first = min(map(team_of, quotas), default=0)
    for name, quota in quotas.items():
        if team_of(name) == first or not quota.outcomes.games.returns:
            yield quota.outcomes


class _Quota:
    """Follows the slots of one behavior and counts what belongs to the quota of each unit."""

    _PER_SLOT = ("_return", "_group_return", "_length", "_left", "_group_of", "_open")

    def __init__(self, rows: SlotRows, episodes: int) -> None:
        self.outcomes = Outcomes()
        num_slots = len(rows)
        groups = groups_in(rows.group_id)
        # Beside groups, a slot that is still empty may become a member of one.
        is_lone = rows.group_id == 0 if groups else np.ones(num_slots, np.bool_)
        quota = shares(episodes, len(groups) + int(is_lone.sum()))
        of_groups = quota[: len(groups)].tolist()
        self._games_left = dict(zip(groups, of_groups, strict=True))
        self._members: dict[int, list[tuple[float, int]]] = {g: [] for g in groups}
        """Per group: (return, length) of the episodes that ended in its current game."""
        self._left = np.zeros(num_slots, np.int64)
        """Episodes that each lone agent still has to play."""
        self._left[is_lone] = quota[len(groups) :]
        self._return = np.zeros(num_slots)
        self._group_return = np.zeros(num_slots)
        self._length = np.zeros(num_slots, np.int64)
        self._group_of = rows.group_id.copy()
        self._open = rows.deciding.copy()
        """Slots in which an episode goes on."""

    @property
    def left(self) -> int:
        """Games, and episodes of lone agents, that are still to be played."""
        games: int = sum(self._games_left.values())
        return games + int(self._left.sum())

    def add(self, rows: SlotRows) -> None:
        """Count one step's rows."""
        self._widen(len(rows))
        self._return += rows.reward
        self._group_return += rows.group_reward
        self._length += rows.closed
        ended = np.flatnonzero(rows.terminated | rows.truncated)
        # Ends before begins: one row may show both, and the new episode stays open.
        if len(ended):
            self._open[ended] = False
            self._finish_lone(ended)
            self._finish_members(ended, rows)
            for array in (self._return, self._group_return, self._length):
                array[ended] = 0
        begins = np.flatnonzero(rows.begins)
        self._open[begins] = True
        self._group_of[begins] = rows.group_id[begins]

    def _finish_lone(self, ended: NDArray[np.intp]) -> None:
        counted = ended[self._left[ended] > 0]
        self.outcomes.returns += self._return[counted].tolist()
        self.outcomes.lengths += self._length[counted].tolist()
        self.outcomes.cluster_sizes += [1] * len(counted)
        self._left[counted] -= 1

    def _finish_members(self, ended: NDArray[np.intp], rows: SlotRows) -> None:
        """A game is over when the last member of its group ends.

        That member was there for everything that the group earned.
        """
        for group in groups_in(self._group_of[ended]):
            if not self._games_left.get(group):
                continue
            is_member = self._group_of == group
            last = [int(slot) for slot in ended if is_member[slot]]
            for slot in last:
                episode = float(self._return[slot]), int(self._length[slot])
                self._members[group].append(episode)
            if (self._open & is_member).any():
                continue
            # The longest of those that ended now was present from the game's beginning.
            longest = max(last, key=lambda slot: self._length[slot])
            games = self.outcomes.games
            games.returns.append(float(self._group_return[longest]))
            games.lengths.append(int(self._length[longest]))
            games.interrupted += int(rows.truncated[longest])
            returns, lengths = zip(*self._members[group], strict=True)
            self.outcomes.add(returns, lengths)
            self._members[group] = []
            self._games_left[group] -= 1

    def _widen(self, size: int) -> None:
        """Slots that the world has added have no quota of their own."""
        extra = size - len(self._return)
        if extra <= 0:
            return
        for name in self._PER_SLOT:
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros(extra, old.dtype)]))


def what_was_played(figures: Mapping[str, Any]) -> str:
    """Figures of an evaluation in short: its episodes with their interval, or its games."""
    games = figures.get("games")
    if games and games["won"] + games["lost"]:
        return f"won {games['won']} of {games['played']} games"
    low, high = figures["ci95"]
    return f"95 % within {low:.3f} to {high:.3f}, {figures['episodes']} episodes"


def groups_in(group_id: NDArray[np.int32]) -> list[int]:
    """The groups that occur, in order; 0 stands for none, -1 for an empty slot."""
    return [int(group) for group in np.unique(group_id) if group > 0]


def shares(total: int, size: int) -> NDArray[np.int64]:
    """`total` split into `size` parts, as evenly as possible."""
    whole, rest = divmod(total, max(size, 1))
    return whole + (np.arange(size) < rest)  # the first parts take the rest


def _joined(parts: Iterable[Outcomes]) -> Outcomes:
    joined = Outcomes()
    for part in parts:
        joined.returns += part.returns
        joined.lengths += part.lengths
        joined.cluster_sizes += part.cluster_sizes
        joined.games.returns += part.games.returns
        joined.games.lengths += part.games.lengths
        joined.games.interrupted += part.games.interrupted
    return joined


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
