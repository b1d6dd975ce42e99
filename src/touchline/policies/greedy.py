"""The greedy player of Match3 as a policy: the move with most points at once.

It plays from observations alone, in vector or in visual form, so it also plays in a Unity build.

Source: ML-Agents 3.0.0 (Release 22), `Match3ExampleActuator.cs`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.envs.slots import SlotRows
from touchline.errors import UsageError
from touchline.physics.kernels import compiled
from touchline.policies.policy import RulePolicy
from touchline.scenes.match3.rules import (
    COLUMNS,
    EMPTY,
    MOVES,
    ROWS,
    SPECIALS,
    TYPES,
    Cells,
    find_moves,
    greedy_move,
)
from touchline.specs import ActionTuple, BehaviorSpec, describe_spec

_CELLS = ROWS * COLUMNS
_SHAPES = (
    [(_CELLS * TYPES,), (_CELLS * SPECIALS,)],
    [(TYPES, ROWS, COLUMNS), (SPECIALS, ROWS, COLUMNS)],
)
"""Shapes of the two sensors, in either form."""


class GreedyPolicy(RulePolicy):
    """Takes the valid move of Match3 that makes most points at once, ties at random."""

    def check(self, behavior: str, spec: BehaviorSpec) -> None:
        shapes = [sensor.shape for sensor in spec.observation_specs]
        if shapes not in _SHAPES or spec.action_spec.discrete_branches != (MOVES,):
            raise UsageError(
                f"the policy 'greedy' plays Match3, and {behavior} is of another game: it has "
                f"{describe_spec(spec)}"
            )

    def choose(self, rows: SlotRows, generator: np.random.Generator) -> ActionTuple:
        count = len(rows)
        kind = _cells(rows.obs[0], TYPES)
        special = _cells(rows.obs[1], SPECIALS)
        # One number per board, whether or not it has a tie to decide: so what one board draws
        # does not depend on the others.
        tie_break = generator.random(count)
        moves = np.zeros((count, 1), np.int32)
        valid = np.empty(MOVES, np.bool_)
        _choose(kind, special, valid, tie_break, moves)
        return ActionTuple(discrete=moves)


def _cells(one_hot: NDArray[Any], depth: int) -> Cells:
    """The index of each cell's 1 [N, 9, 8], `EMPTY` where there is none."""
    if one_hot.ndim == 2:  # a vector; pictures are [N, depth, 9, 8]
        shaped = one_hot.reshape(-1, ROWS, COLUMNS, depth)
    else:
        shaped = one_hot.transpose(0, 2, 3, 1)
    # `argmax` gives 0 for a cell without a 1: `any` marks those.
    is_filled = shaped.any(axis=3)
    index = shaped.argmax(axis=3)
    return np.where(is_filled, index, EMPTY).astype(np.int8)


@compiled
def _choose(
    kind: Cells,
    special: Cells,
    valid: NDArray[np.bool_],
    u: NDArray[np.float64],
    moves: NDArray[np.int32],
) -> None:
    """Fill moves [N, 1]; `valid` [127] is room to work in."""
    for row in range(len(moves)):
        find_moves(kind[row], valid)
        moves[row, 0] = greedy_move(kind[row], special[row], valid, u[row])
