"""How much of an evaluation each agent and each group still has to play.

The first episodes that end would be the short ones. So every lone agent plays its share of the
episodes, and every group its share of the games, however long they take.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.envs.slots import SlotRows, widened
from touchline.errors import UsageError
from touchline.training.config.values import MOST


class Ended(NamedTuple):
    """Members of one group whose episodes ended in the same step."""

    group: int
    members: NDArray[np.intp]
    """Their slots."""
    is_over: bool
    """Whether no other member's episode continues: then the game is over, too."""


class Quotas:
    """Follows the slots of one behavior."""

    def __init__(self, rows: SlotRows, episodes: int) -> None:
        num_slots = len(rows)
        self.groups = groups_in(rows.group_id)
        # Beside groups, a slot that is still empty may become a member of one.
        is_lone = rows.group_id == 0 if self.groups else np.ones(num_slots, np.bool_)
        quota = shares(episodes, len(self.groups) + int(is_lone.sum()))
        of_groups = quota[: len(self.groups)].tolist()
        self._games = dict(zip(self.groups, of_groups, strict=True))
        """Games that each group still has to play."""
        self._episodes = np.zeros(num_slots, np.int64)
        """Episodes that each lone agent still has to play."""
        self._episodes[is_lone] = quota[len(self.groups) :]
        # Copied: when an end is counted, the rows may already show the slot's next agent.
        self._group_of = rows.group_id.copy()
        self._is_open = rows.deciding.copy()
        """Slots in which an episode continues."""

    @property
    def left(self) -> int:
        """Games, and episodes of lone agents, that are still to be played."""
        games: int = sum(self._games.values())
        return games + int(self._episodes.sum())

    def widen(self, size: int) -> None:
        """Slots that the world has added have no quota of their own."""
        self._episodes = widened(self._episodes, size)
        self._group_of = widened(self._group_of, size)
        self._is_open = widened(self._is_open, size)

    def end_lone(self, ended: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of these slots whose episode was one of a quota; it is counted."""
        counted = ended[self._episodes[ended] > 0]
        self._episodes[counted] -= 1
        return counted

    def end_members(self, ended: NDArray[np.intp]) -> Iterator[Ended]:
        """Groups with a game to play of which some members ended; games that are over are counted.

        A game is over when the last member of its group ends.
        """
        self._is_open[ended] = False
        group_of = self._group_of[ended]
        for group in groups_in(group_of):
            # 0: it has played its games. None: it came after they were shared out.
            if not self._games.get(group):
                continue
            is_member = self._group_of == group
            is_over = not (self._is_open & is_member).any()
            if is_over:
                self._games[group] -= 1
            yield Ended(group, ended[group_of == group], is_over)

    def begin(self, rows: SlotRows) -> None:
        """Note the episodes that begin, after the ends of the same rows."""
        begins = np.flatnonzero(rows.begins)
        self._is_open[begins] = True
        self._group_of[begins] = rows.group_id[begins]


def groups_in(group_id: NDArray[np.int32]) -> list[int]:
    """The groups that occur, in order; 0 stands for none, -1 for an empty slot."""
    return [int(group) for group in np.unique(group_id) if group > 0]


def shares(total: int, size: int) -> NDArray[np.int64]:
    """`total` episodes or games split into `size` parts, as evenly as possible."""
    if total > MOST:
        raise UsageError(f"expected at most {MOST:,} episodes or games, got {total}")
    whole, rest = divmod(total, max(size, 1))
    return whole + (np.arange(size) < rest)  # the first parts take the rest
