"""Who is ahead: games won by each team, or the returns of the episodes that ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from touchline.envs.slots import SlotRows, Slots
from touchline.specs import team_of
from touchline.viewer.beside import Score
from touchline.viewer.simulation import Returns


@dataclass
class Scoreboard:
    """The result so far of what is watched."""

    team_names: Mapping[int, str] = field(default_factory=dict)
    """Team -> what the scene calls it, such as its color."""
    won: dict[int, float] = field(default_factory=dict)
    """Team -> its games won, draws counted half; empty before the first end of a game."""
    score: Score = field(default_factory=Score)

    def add(
        self,
        slots: Slots,
        before: Mapping[str, SlotRows],
        returns: Returns,
        rows: Mapping[str, SlotRows],
    ) -> None:
        """Count a step that led from `before`, with these returns until then, to `rows`."""
        self.score.add(returns, rows)
        ended = {group: score for (_, group), score in slots.game_scores.items()}
        for name, row in before.items():
            for group in {int(one) for one in row.group_id} & set(ended):
                team = team_of(name)
                self.won[team] = self.won.get(team, 0.0) + ended[group]

    def __str__(self) -> str:
        if len(self.won) != 2:
            return str(self.score)
        (team, won), (other, lost) = sorted(self.won.items())
        return f"{self._name(team)} {won:g} : {lost:g} {self._name(other)}"

    def _name(self, team: int) -> str:
        return self.team_names.get(team, f"team {team}")
