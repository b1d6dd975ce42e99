"""Who is ahead: games won by each team, the returns of the episodes that ended, and the last end.

A scoreboard is never changed, so that pages read it and the time machine keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from touchline.envs.slots import SlotRows, Slots
from touchline.specs import base_name, team_of


@dataclass(frozen=True)
class Tally:
    """The episodes of one behavior that ended."""

    episodes: int = 0
    total: float = 0.0
    """Sum of their returns."""

    @property
    def mean(self) -> float | None:
        return self.total / self.episodes if self.episodes else None


@dataclass(frozen=True)
class Scoreboard:
    """The result so far of what is watched."""

    team_names: Sequence[str] = ()
    """What the scene calls team 0, team 1 and so on, such as their colors."""
    won: Mapping[int, float] = field(default_factory=dict)
    """Team -> its games won, draws counted half; empty before the first end of a game."""
    ended: Mapping[str, Tally] = field(default_factory=dict)
    """Tallies by full behavior name."""
    last: str = ""
    """The last end of a game or an episode, for people."""

    def after(
        self,
        slots: Slots,
        before: Mapping[str, SlotRows],
        returns: Mapping[str, NDArray[np.float64]],
        rows: Mapping[str, SlotRows],
        time_s: float,
    ) -> Scoreboard:
        """With a step that led from `before`, with these returns until then, to `rows`."""
        ended, last = dict(self.ended), self.last
        for name, row in rows.items():
            over = np.flatnonzero(row.terminated | row.truncated)
            if not len(over):
                continue
            so_far: NDArray[np.float64] = returns[name] + row.reward + row.group_reward
            known = ended.get(name, Tally())
            total = known.total + float(so_far[over].sum())
            ended[name] = Tally(known.episodes + len(over), total)
            last = f"{time_s:.1f} s: {base_name(name)} ended, return {so_far[over[-1]]:.3f}"
        won = dict(self.won)
        for (_, group), score in slots.game_scores.items():
            for name, row in before.items():
                if (row.group_id == group).any():
                    team = team_of(name)
                    won[team] = won.get(team, 0.0) + score
                    if score > 0.5:
                        last = f"{time_s:.1f} s: {self.name_of(team)} won"
                    elif score == 0.5:
                        last = f"{time_s:.1f} s: a draw"
        if last == self.last:
            return self
        return replace(self, won=won, ended=ended, last=last)

    def name_of(self, team: int) -> str:
        """What people call a team."""
        return self.team_names[team] if team < len(self.team_names) else f"team {team}"

    def __str__(self) -> str:
        if len(self.won) == 2:
            (team, won), (other, lost) = sorted(self.won.items())
            return f"{self.name_of(team)} {won:g} : {lost:g} {self.name_of(other)}"
        episodes = sum(tally.episodes for tally in self.ended.values())
        if not episodes:
            return "no episode ended yet"
        mean = sum(tally.total for tally in self.ended.values()) / episodes
        return f"mean return {mean:.3f} of {episodes} episodes"
