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

Returns = Mapping[str, NDArray[np.float64]]
"""[N] the rewards of each slot's open episode so far, by full behavior name."""


@dataclass(frozen=True)
class Tally:
    """Episodes that ended."""

    episodes: int = 0
    total: float = 0.0
    """Sum of their returns."""

    @property
    def mean(self) -> float | None:
        return self.total / self.episodes if self.episodes else None

    def after(self, before: Returns, rows: Mapping[str, SlotRows]) -> Tally:
        """With those that ended in these rows; `before` are the returns until then."""
        returns = [
            (before[name] + row.reward + row.group_reward)[
                row.terminated | row.truncated
            ]
            for name, row in rows.items()
        ]
        return Tally(
            self.episodes + sum(map(len, returns)),
            self.total + sum(float(ended.sum()) for ended in returns),
        )

    def __str__(self) -> str:
        if self.mean is None:
            return "no episode ended yet"
        plural = "" if self.episodes == 1 else "s"
        return f"mean return {self.mean:.3f} of {self.episodes} episode{plural}"


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
        returns: Returns,
        rows: Mapping[str, SlotRows],
        when: str,
    ) -> Scoreboard:
        """With a step that led from `before`, with these returns until then, to `rows`."""
        ended, last = dict(self.ended), self.last
        for name, row in rows.items():
            over = np.flatnonzero(row.terminated | row.truncated)
            if not len(over):
                continue
            ended[name] = ended.get(name, Tally()).after(returns, {name: row})
            at = over[-1]
            earned = returns[name][at] + row.reward[at] + row.group_reward[at]
            last = f"{when}: {base_name(name)} ended, return {earned:.3f}"
        won = dict(self.won)
        for (_, group), score in slots.game_scores.items():
            for name, row in before.items():
                if (row.group_id == group).any():
                    team = team_of(name)
                    won[team] = won.get(team, 0.0) + score
                    if score > 0.5:
                        last = f"{when}: {self.name_of(team)} won"
                    elif score == 0.5:
                        last = f"{when}: a draw"
        if last == self.last:
            return self
        return replace(self, won=won, ended=ended, last=last)

    def name_of(self, team: int) -> str:
        return self.team_names[team] if team < len(self.team_names) else f"team {team}"

    def __str__(self) -> str:
        if len(self.won) == 2:
            (team, won), (other, lost) = sorted(self.won.items())
            return f"{self.name_of(team)} {won:g} : {lost:g} {self.name_of(other)}"
        ended = self.ended.values()
        episodes = sum(tally.episodes for tally in ended)
        return str(Tally(episodes, sum(tally.total for tally in ended)))
