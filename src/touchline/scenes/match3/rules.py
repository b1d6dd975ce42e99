"""The rules of one board: moves, lines, points, falling and new pieces.

A board is two arrays [9, 8], row 0 at the bottom: the type of each cell's piece, `EMPTY` outside of
a board that is smaller, and its special, 0 for a plain piece. A move swaps a piece with its right
or its upper neighbor.

Source: ML-Agents 3.0.0 (Release 22), `Match3Board.cs`, `Match3ExampleActuator.cs`, and the
package's `Integrations/Match3/Move.cs`.
"""

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, inlined
from touchline.scenes.random import StreamArrays, draw

ROWS, COLUMNS = 9, 8
TYPES, SPECIALS = 6, 3
SIDEWAYS = ROWS * (COLUMNS - 1)
"""Moves below this swap with the right neighbor, the others with the upper one."""
MOVES = SIDEWAYS + (ROWS - 1) * COLUMNS


def move_names() -> list[str]:
    """Which cell each move swaps, and with which neighbor."""
    right = [f"row {i // 7}, column {i % 7}: right" for i in range(SIDEWAYS)]
    up = [f"row {i // 8}, column {i % 8}: up" for i in range(MOVES - SIDEWAYS)]
    return right + up


LINE = 3
"""Equal pieces in a row or a column that are cleared."""
EMPTY = -1
PLAIN_TENTHS, FIRST_SPECIAL_TENTHS = 7, 9
"""Seven of ten new pieces are plain, two have the first special and one has the second."""
_MARK = 16
"""Set in the type of a piece that is part of a line."""

Cells = NDArray[np.int8]
"""[9, 8], or [B, 9, 8] of several boards."""


@inlined
def cells_of(move: int) -> tuple[int, int, int, int]:
    """Row and column of the two cells that a move swaps."""
    if move < SIDEWAYS:
        row = move // (COLUMNS - 1)
        column = move % (COLUMNS - 1)
        return row, column, row, column + 1
    row = (move - SIDEWAYS) // COLUMNS
    column = (move - SIDEWAYS) % COLUMNS
    return row, column, row + 1, column


@inlined
def _swap(cells: Cells, move: int) -> None:
    row, column, other_row, other_column = cells_of(move)
    kept = cells[row, column]
    cells[row, column] = cells[other_row, other_column]
    cells[other_row, other_column] = kept


@inlined
def make_move(kind: Cells, special: Cells, move: int) -> None:
    """Swap two pieces, whatever they are."""
    _swap(kind, move)
    _swap(special, move)


@inlined
def _lines_at(kind: Cells, row: int, column: int) -> tuple[int, int, int, int]:
    """How many equal pieces lie next to a cell: to the left, right, below, above."""
    wanted = kind[row, column]
    left = 0
    right = 0
    below = 0
    above = 0
    while column - left > 0 and kind[row, column - left - 1] == wanted:
        left += 1
    while column + right < COLUMNS - 1 and kind[row, column + right + 1] == wanted:
        right += 1
    while row - below > 0 and kind[row - below - 1, column] == wanted:
        below += 1
    while row + above < ROWS - 1 and kind[row + above + 1, column] == wanted:
        above += 1
    return left, right, below, above


@inlined
def _has_line(kind: Cells, row: int, column: int) -> bool:
    left, right, below, above = _lines_at(kind, row, column)
    return left + 1 + right >= LINE or below + 1 + above >= LINE


@compiled
def is_valid(kind: Cells, move: int) -> bool:
    """Whether a move lies on the board, changes it, and makes a line."""
    row, column, other_row, other_column = cells_of(move)
    one = kind[row, column]
    other = kind[other_row, other_column]
    if one == other or EMPTY in (one, other):
        return False
    # Tried on the board itself and taken back: a copy of it for each move would cost more.
    _swap(kind, move)
    valid = _has_line(kind, row, column) or _has_line(kind, other_row, other_column)
    _swap(kind, move)
    return valid


@compiled
def find_moves(kind: Cells, valid: NDArray[np.bool_]) -> int:
    """Set `valid` [127] and return how many moves are."""
    count = 0
    for move in range(MOVES):
        valid[move] = is_valid(kind, move)
        count += valid[move]
    return count


@compiled
def _points_at(kind: Cells, special: Cells, row: int, column: int) -> int:
    """The points of the lines through a cell, each piece counted once."""
    left, right, below, above = _lines_at(kind, row, column)
    points = 0
    if left + 1 + right >= LINE:
        for c in range(column - left, column + right + 1):
            points += 1 + special[row, c]
    if below + 1 + above >= LINE:
        for r in range(row - below, row + above + 1):
            points += 1 + special[r, column]
        # The cell itself is part of both lines.
        if left + 1 + right >= LINE:
            points -= 1 + special[row, column]
    return points


@compiled
def points_of(kind: Cells, special: Cells, move: int) -> int:
    """The points of the lines that a move makes at once, before anything falls."""
    row, column, other_row, other_column = cells_of(move)
    make_move(kind, special, move)
    points = _points_at(kind, special, row, column)
    points += _points_at(kind, special, other_row, other_column)
    make_move(kind, special, move)
    return points


@compiled
def greedy_move(kind: Cells, special: Cells, valid: NDArray[np.bool_], u: float) -> int:
    """The valid move that makes most points at once; u in [0, 1) decides between equal ones."""
    best, ties = 0, 0
    for move in range(MOVES):
        if valid[move]:
            points = points_of(kind, special, move)
            if points > best:
                best, ties = points, 0
            ties += points == best
    # Counting ties and going again needs no list of them.
    skip = int(u * ties)
    for move in range(MOVES):
        if valid[move] and points_of(kind, special, move) == best:
            if skip == 0:
                return move
            skip -= 1
    return 0


@compiled
def random_move(valid: NDArray[np.bool_], u: float) -> int:
    """The valid move at u in [0, 1) of them all."""
    count = 0
    for move in range(MOVES):
        count += valid[move]
    skip = int(u * count)
    for move in range(MOVES):
        if valid[move]:
            if skip == 0:
                return move
            skip -= 1
    return 0


@inlined
def _mark(kind: Cells, row: int, column: int, down: int, count: int) -> None:
    """Mark a line's `count` pieces, the last of which is this one; `down` 1: a column's."""
    for i in range(count):
        if down:
            kind[row - i, column] |= _MARK
        else:
            kind[row, column - i] |= _MARK


@compiled
def _mark_lines(kind: Cells, rows: int, columns: int, down: int) -> None:
    """Mark the pieces of all lines along the rows, or (`down` 1) along the columns."""
    for i in range(columns if down else rows):
        run, before = 0, EMPTY
        length = rows if down else columns
        for k in range(length):
            row, column = (k, i) if down else (i, k)
            # A row may have marked it already.
            wanted = kind[row, column] & ~_MARK
            if wanted != before:
                if run >= LINE:
                    _mark(kind, row - down, column - 1 + down, down, run)
                run, before = 0, wanted
            run += 1
        if run >= LINE:
            last = length - 1
            row, column = (last, i) if down else (i, last)
            _mark(kind, row, column, down, run)


@compiled
def clear_lines(kind: Cells, special: Cells, rows: int, columns: int) -> int:
    """Clear all lines of a board of this size; returns their points, each piece counted once."""
    # All lines are marked before any is cleared: a row and a column may share a piece.
    _mark_lines(kind, rows, columns, 0)
    _mark_lines(kind, rows, columns, 1)
    points = 0
    for row in range(rows):
        for column in range(columns):
            # No cell of the board is empty here: -1 has this bit, too, and would count as marked.
            if kind[row, column] & _MARK:
                points += 1 + special[row, column]
                kind[row, column] = EMPTY
    return points


@compiled
def drop(kind: Cells, special: Cells, rows: int, columns: int) -> None:
    """Let pieces fall onto those below."""
    for column in range(columns):
        free = 0
        for row in range(rows):
            if kind[row, column] != EMPTY:
                if free < row:
                    kind[free, column] = kind[row, column]
                    special[free, column] = special[row, column]
                    kind[row, column] = EMPTY
                free += 1


@compiled
def fill(
    kind: Cells,
    special: Cells,
    rows: int,
    columns: int,
    streams: StreamArrays,
    board: int,
) -> None:
    """Put random pieces into all empty cells of the board."""
    # A draw brings four numbers at once: they are used up before the next one.
    used = 4
    draws = (0.0, 0.0, 0.0, 0.0)
    for column in range(columns):
        for row in range(rows):
            if kind[row, column] != EMPTY:
                continue
            if used == 4:
                draws, used = draw(streams, board), 0
            # One number decides both: the type, and in tenths the special.
            chance = int(draws[used] * TYPES * 10)
            used += 1
            kind[row, column] = chance // 10
            tenth = chance % 10
            is_special = tenth >= PLAIN_TENTHS
            is_second = tenth >= FIRST_SPECIAL_TENTHS
            special[row, column] = is_special + is_second


@compiled
def settle(
    kind: Cells,
    special: Cells,
    rows: int,
    columns: int,
    streams: StreamArrays,
    board: int,
) -> int:
    """Clear, drop and fill until there is no line; returns the points."""
    points = 0
    while True:
        cleared = clear_lines(kind, special, rows, columns)
        if cleared == 0:
            return points
        points += cleared
        drop(kind, special, rows, columns)
        fill(kind, special, rows, columns, streams, board)


@compiled
def deal(
    kind: Cells,
    special: Cells,
    valid: NDArray[np.bool_],
    rows: int,
    columns: int,
    streams: StreamArrays,
    board: int,
) -> None:
    """Put new pieces on the whole board until it is settled and has a valid move; no points."""
    special[:] = 0
    while True:
        kind[:] = EMPTY
        fill(kind, special, rows, columns, streams, board)
        settle(kind, special, rows, columns, streams, board)
        if find_moves(kind, valid):
            return
