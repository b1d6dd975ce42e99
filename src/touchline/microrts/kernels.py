"""Loops over all cells of all boards.

NumPy takes ten times as long, because it computes something for every cell and hardly any cell
holds a unit.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.microrts.rules import (
    FIRST_CHOICE,
    FIRST_PLANE,
    PARTS,
    PLANES,
    READ_PARTS,
)
from touchline.physics.kernels import makes_arrays

_OWNER = FIRST_PLANE["owner"]
_EMPTY_CELL_PLANES = np.array(list(FIRST_PLANE.values()))
_FIRST = FIRST_CHOICE.copy()
_SIZE = np.array(PARTS)


@makes_arrays
def fill_planes(board: NDArray[np.int32], planes: NDArray[np.float32]) -> None:
    """Turn zeros `planes` [R, >= PLANES, cells] into `board` [R, cells, PLANES], planes first."""
    # The engine leaves every group of an empty cell at zero; here the group's first plane is 1.
    for row in range(board.shape[0]):
        for plane in _EMPTY_CELL_PLANES:
            planes[row, plane, :] = 1.0
        for cell in range(board.shape[1]):
            # Exactly one owner plane is set for a unit, also for a neutral resource.
            has_unit = board[row, cell, _OWNER]
            has_unit += board[row, cell, _OWNER + 1]
            has_unit += board[row, cell, _OWNER + 2]
            if has_unit:
                for plane in range(PLANES):
                    planes[row, plane, cell] = board[row, cell, plane]


@makes_arrays
def forbid(
    allowed: NDArray[np.int32], cells: NDArray[Any], forbidden: NDArray[np.bool_]
) -> None:
    """Write what the units in these `cells` [R, cells] may not choose into `forbidden`.

    `allowed` [R, cells, CHOICES] is the engine's. A part of an order that allows nothing keeps its
    first choice, so that every branch has one; no order type that is allowed reads such a part.
    """
    for row in range(allowed.shape[0]):
        for cell in range(allowed.shape[1]):
            if not cells[row, cell]:
                continue
            for part in range(len(_FIRST)):
                has_choice = False
                for choice in range(_FIRST[part], _FIRST[part] + _SIZE[part]):
                    is_allowed = allowed[row, cell, choice] != 0
                    forbidden[row, cell, choice] = not is_allowed
                    has_choice = has_choice or is_allowed
                if not has_choice:
                    forbidden[row, cell, _FIRST[part]] = False


@makes_arrays
def forbid_in_stages(
    allowed: NDArray[np.int32],
    waiting: NDArray[np.bool_],
    second_mask: NDArray[np.bool_],
    mask: NDArray[np.bool_],
) -> None:
    """Fill the masks of staged actions: a cell, then an order for the unit there.

    `second_mask` [R, cells, CHOICES] is filled as by `forbid`. `mask` [R, cells + CHOICES], all
    True before, holds first the cells and then the orders that are forbidden to every waiting unit.
    Where no unit waits, the first cell may be chosen, and the orders that do nothing.
    """
    forbid(allowed, waiting, second_mask)
    num_cells = allowed.shape[1]
    for row in range(allowed.shape[0]):
        has_waiting = False
        for cell in range(num_cells):
            if not waiting[row, cell]:
                continue
            has_waiting = True
            mask[row, cell] = False
            for choice in range(allowed.shape[2]):
                if not second_mask[row, cell, choice]:
                    mask[row, num_cells + choice] = False
        if not has_waiting:
            mask[row, 0] = False
            for first in _FIRST:
                mask[row, num_cells + first] = False


@makes_arrays
def turn_orders(
    mask: NDArray[np.bool_],
    first: int,
    rows: NDArray[np.intp],
    turned: NDArray[np.int64],
) -> None:
    """Give each cell of these rows what the opposite cell may do, turned by half a turn.

    `mask` [R, M] holds the choices of all cells from column `first` on; `turned` [CHOICES] is what
    each choice becomes, and its own inverse.
    """
    size = len(turned)
    num_cells = (mask.shape[1] - first) // size
    before = np.empty(size, np.bool_)
    for row in rows:
        for cell in range((num_cells + 1) // 2):
            one = first + cell * size
            other = first + (num_cells - 1 - cell) * size
            for choice in range(size):
                before[choice] = mask[row, one + choice]
            opposite = mask[row, other : other + size].copy()
            for choice in range(size):
                mask[row, one + choice] = opposite[turned[choice]]
                mask[row, other + choice] = before[turned[choice]]


@makes_arrays
def have_choices(allowed: NDArray[np.int32]) -> NDArray[np.bool_]:
    """[R] whether any unit of a row may do more than nothing, by `allowed` [R, cells, CHOICES]."""
    found = np.zeros(allowed.shape[0], np.bool_)
    for row in range(allowed.shape[0]):
        for cell in range(allowed.shape[1]):
            for order_type in range(1, _SIZE[0]):
                if allowed[row, cell, order_type]:
                    found[row] = True
    return found


@makes_arrays
def are_choices(actions: NDArray[np.int32], branches: NDArray[np.int32]) -> bool:
    """Whether every action [R, branches] is one of the choices of its branch."""
    num_outside = 0
    for row in range(actions.shape[0]):
        # No early return: a loop to the end is compiled to vector instructions.
        for branch in range(actions.shape[1]):
            choice = actions[row, branch]
            num_outside += (choice < 0) | (choice >= branches[branch])
    return num_outside == 0


@makes_arrays
def count_orders(
    allowed: NDArray[np.int32], orders: NDArray[np.int32], counts: NDArray[np.int64]
) -> None:
    """Add to `counts` [2, R]: orders given to idle units, and those of them that are invalid."""
    for row in range(allowed.shape[0]):
        for cell in range(allowed.shape[1]):
            if allowed[row, cell, 0]:  # an idle unit may always do nothing
                counts[0, row] += 1
                order_type = orders[row, cell, 0]
                for part in range(len(_FIRST)):
                    choice = _FIRST[part] + orders[row, cell, part]
                    if READ_PARTS[order_type, part] and not allowed[row, cell, choice]:
                        counts[1, row] += 1
                        break
