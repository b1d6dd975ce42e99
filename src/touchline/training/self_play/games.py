"""Which slots play in the same game, when a game is over, and how it ended.

A world does not say which agents meet. Its areas are alike and register their agents one after the
other, so the k-th group of a team plays against the k-th group of the others; without groups, the
agents of a team are divided evenly, in the order of their ids. Where only some agents have groups,
the others play no game of two teams.

A game is over when none of its agents is in an episode. The scene states how it ended. For worlds
that do not, such as Unity's, the rewards tell: it is a draw where its last episodes were cut short
(a time limit) or paid all teams the same; otherwise the team that was paid more at the end won.
Penalties per step before the end do not decide games. A game that was lost with its world has no
result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, isnan

import numpy as np
from numpy.typing import NDArray

from touchline.envs.saved_state import Arrays, below, prefixed
from touchline.envs.slots import AllRows, widened
from touchline.specs import team_of

GameScores = Mapping[tuple[int, int], float]
"""How games ended, as `Slots.game_scores` says."""
EQUAL = 1e-6
"""Last rewards closer than this are equal."""
# What no agent is paid. Not NaN, which no saved state would be equal to.
_ABSENT = -np.inf


@dataclass(frozen=True)
class Result:
    """How one game ended."""

    area: int
    points: Mapping[int, float]
    """Team -> what decides: its score as the scene states it; otherwise what its agents were paid
    on the average in the row in which they ended, or nothing where episodes were cut short. A team
    of which no agent was in the game is not here; no team is where the world was lost."""

    def is_between(self, team: int, other: int) -> bool:
        """Whether agents of both teams were in it."""
        return {team, other} <= self.points.keys()

    def score(self, team: int, other: int) -> float:
        """1 if the team won against the other, 0 if it lost, 0.5 for a draw."""
        lead = self.points[team] - self.points[other]
        if abs(lead) <= EQUAL:
            return 0.5
        return 1.0 if lead > 0 else 0.0


@dataclass
class _Table:
    """The slots of one full behavior name."""

    area: NDArray[np.int64]
    """[N] -1 where no agent has been."""
    group: NDArray[np.int64]
    """[N] the group of the agent that was placed last, -1 where there was none."""
    agent: NDArray[np.int64]
    playing: NDArray[np.bool_]
    """[N] whether an episode runs."""

    @staticmethod
    def empty() -> _Table:
        # One empty array may stand for three: `widen` replaces them before anything is written.
        none = np.zeros(0, np.int64)
        return _Table(none, none, none, np.zeros(0, np.bool_))

    def widen(self, size: int) -> None:
        self.area = widened(self.area, size, -1)
        self.group = widened(self.group, size, -1)
        self.agent = widened(self.agent, size, -1)
        self.playing = widened(self.playing, size)


class Games:
    """Follows the games in the slots of all behaviors."""

    def __init__(self) -> None:
        self.num_areas = 0
        self._tables: dict[str, _Table] = {}
        self._first_area: dict[int, tuple[int, int]] = {}
        """World -> its first area, and how many it has."""
        self._paid: dict[int, NDArray[np.float64]] = {}
        """Team -> [A] what its agents were paid when some of them last ended, `_ABSENT` where none
        has ended in this game."""

    def area(self, behavior: str) -> NDArray[np.int64]:
        """[N] the area of each slot, -1 where no agent has been."""
        return self._tables[behavior].area

    def follow(self, rows: AllRows, stated: GameScores) -> list[Result]:
        """Take note of what one step led to; returns the games that are over.

        `stated` are the scores that the worlds state (`Slots.game_scores`).
        """
        for name, row in rows.items():
            table = self._tables.setdefault(name, _Table.empty())
            table.widen(len(row))
        results: list[Result] = []
        # Ends first: a row may show the end of one episode and the begin of the next, and the
        # game that is over belongs to the agents of the first.
        if any(len(row.final_slot) for row in rows.values()):
            results = self._end(rows, stated)
        for name, row in rows.items():
            begins = np.flatnonzero(row.begins)
            if len(begins):
                self._tables[name].playing[begins] = True
                self._place_new(name, begins, rows)
        return results

    def _end(self, rows: AllRows, stated: GameScores) -> list[Result]:
        """Count the episodes that ended; returns the games that are over now."""
        num_areas = self.num_areas
        num_ended = np.zeros(num_areas)
        num_cut = np.zeros(num_areas)  # cut short, of those that ended
        paid: dict[int, list[NDArray[np.float64]]] = {}
        for name, row in rows.items():
            table = self._tables[name]
            # A slot is listed once for each episode that ended in it; agents count once.
            ended = np.unique(row.final_slot)
            table.playing[ended] = False
            ended = ended[table.area[ended] >= 0]
            area = table.area[ended]
            reward = (row.reward + row.group_reward)[ended]
            count = np.bincount(area, minlength=num_areas)
            num_ended += count
            num_cut += np.bincount(area, row.truncated[ended], num_areas)
            sums = np.bincount(area, reward, num_areas)
            paid.setdefault(team_of(name), []).append(np.stack([count, sums]))
        for team, parts in paid.items():
            count, sums = np.sum(parts, axis=0)
            known = self._paid_to(team)
            # Elsewhere the figure of an earlier step stays: members may end one after the other.
            has_ends = count > 0
            known[has_ends] = sums[has_ends] / count[has_ends]
        num_playing = np.zeros(num_areas, np.int64)
        for table in self._tables.values():
            is_placed = table.playing & (table.area >= 0)
            num_playing += np.bincount(table.area[is_placed], minlength=num_areas)
        # Only areas in which something ended now: others may simply not have begun.
        over = np.flatnonzero((num_ended > 0) & (num_playing == 0))
        results = []
        for game in map(int, over):
            is_cut = num_ended[game] == num_cut[game]
            points = {}
            for team, known in self._paid.items():
                if known[game] != _ABSENT:
                    points[team] = 0.0 if is_cut else float(known[game])
                known[game] = _ABSENT
            # What the scene states decides, but only if it states it for every team.
            scores = self._stated_scores(game, rows, stated) if stated else {}
            if any(map(isnan, scores.values())):
                points = {}
            elif scores.keys() == points.keys():
                points = scores
            results.append(Result(game, points))
        return results

    def _stated_scores(
        self, area: int, rows: AllRows, stated: GameScores
    ) -> dict[int, float]:
        """Team -> how the world states that the game of an area ended for it."""
        scores = {}
        for name, table in self._tables.items():
            env_index = rows[name].env_index
            for slot in np.flatnonzero(table.area == area):
                group = int(env_index[slot]), int(table.group[slot])
                if group in stated:
                    scores[team_of(name)] = stated[group]
        return scores

    def _paid_to(self, team: int) -> NDArray[np.float64]:
        known = self._paid.get(team, np.zeros(0))
        extra = np.full(self.num_areas - len(known), _ABSENT)
        wider = np.concatenate([known, extra])
        self._paid[team] = wider
        return wider

    def _place_new(self, name: str, begins: NDArray[np.intp], rows: AllRows) -> None:
        table = self._tables[name]
        row = rows[name]
        is_same_agent = table.agent[begins] == row.agent_id[begins]
        is_same_group = table.group[begins] == row.group_id[begins]
        is_same = is_same_agent & is_same_group
        # The usual case, at every begin: agents keep their slots. Hence the loop below is rare.
        if is_same.all():
            return
        for slot in begins[~is_same]:
            env = int(row.env_index[slot])
            group_id = int(row.group_id[slot])
            table.agent[slot] = row.agent_id[slot]
            if group_id > 0 and table.group[slot] != group_id:
                area = self._area_of_group(name, rows, env, group_id)
                if area is not None:
                    table.area[slot] = area
                    table.group[slot] = group_id
                    continue
            if table.area[slot] < 0:
                self._place_world(env, rows)
            table.group[slot] = group_id

    def _area_of_group(
        self, name: str, rows: AllRows, env: int, group_id: int
    ) -> int | None:
        """The area where a group of this world was placed before."""
        table = self._tables[name]
        row = rows[name]
        is_member = (table.group == group_id) & (row.env_index == env)
        members = np.flatnonzero(is_member & (table.area >= 0))
        if not len(members):
            return None
        return int(table.area[members[0]])

    def _place_world(self, env: int, rows: AllRows) -> None:
        ranks = {}
        for name, row in rows.items():
            here = np.flatnonzero((row.env_index == env) & (row.agent_id >= 0))
            if len(here):
                in_groups = row.group_id[here] > 0
                grouped = bool(in_groups.any())
                here = here[in_groups] if grouped else here
                # Both ids grow in order of registration, so ranks follow the areas.
                key = row.group_id if grouped else row.agent_id
                _, rank = np.unique(key[here], return_inverse=True)
                ranks[name] = here, rank
        counts = {name: int(rank.max()) + 1 for name, (_, rank) in ranks.items()}
        # Teams may be of different sizes (one goalie, two strikers): the most areas into which
        # all of them divide evenly.
        num_areas = gcd(*counts.values())
        first, known = self._first_area.get(env, (0, -1))
        # A restarted world may come back with another number of areas; its old ones are left
        # empty.
        if known != num_areas:
            first = self.num_areas
            self._first_area[env] = first, num_areas
            self.num_areas += num_areas
        for name, (here, rank) in ranks.items():
            table = self._tables[name]
            row = rows[name]
            # Groups are numbered in the order of their registration, area after area.
            table.area[here] = first + rank * num_areas // counts[name]
            table.group[here] = row.group_id[here]
            table.agent[here] = row.agent_id[here]

    def state(self) -> Arrays:
        """Everything needed to continue."""
        worlds = [[env, *place] for env, place in self._first_area.items()]
        arrays: Arrays = {"worlds": np.array(worlds, np.int64).reshape(-1, 3)}
        for team, paid in self._paid.items():
            arrays[f"paid/{team}"] = paid
        for name, table in self._tables.items():
            columns = {key: value.copy() for key, value in vars(table).items()}
            arrays |= prefixed(f"table/{name}", columns)
        return arrays

    def load_state(self, arrays: Arrays) -> None:
        worlds = arrays["worlds"].tolist()
        self._first_area = {env: (first, count) for env, first, count in worlds}
        self.num_areas = max((first + count for _, first, count in worlds), default=0)
        paid = below("paid", arrays)
        self._paid = {int(team): figures.copy() for team, figures in paid.items()}
        tables = below("table", arrays)
        for name in {key.rpartition("/")[0] for key in tables}:
            columns = below(name, tables)
            # Tables are written in place; the arrays belong to the caller.
            copies = {key: value.copy() for key, value in columns.items()}
            self._tables[name] = _Table(**copies)
