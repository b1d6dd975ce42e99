"""What agents remember while they act: one memory per slot of a behavior's table.

A memory belongs to an episode: it is zero where an episode begins, and stays as it is while its
slot does not decide.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from touchline.envs.slots import SlotRows


class SlotMemory:
    """The memories [N, *shape] of one behavior's slots; the table may grow."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.values: NDArray[np.float32] = np.zeros((0, *shape), np.float32)

    def recall(self, rows: SlotRows) -> NDArray[np.float32]:
        """What each slot remembers before it decides, [N, *shape]; a fresh array."""
        extra = len(rows) - len(self.values)
        if extra > 0:
            added = np.zeros((extra, *self.values.shape[1:]), np.float32)
            self.values = np.concatenate([self.values, added])
        values = self.values.copy()
        values[rows.begins] = 0.0
        return values

    def keep(
        self, rows: SlotRows, before: NDArray[np.float32], after: NDArray[np.float32]
    ) -> None:
        """Store `after` for the slots that decided; the others keep what `recall` returned."""
        # [N, 1, ...], so that one flag covers a slot's whole memory.
        ones = [1] * (after.ndim - 1)
        decided = rows.deciding.reshape(-1, *ones)
        self.values = np.where(decided, after, before)
