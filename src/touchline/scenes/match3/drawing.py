"""What boards look like: a plate, a ball for each piece, and a dot on special ones."""

from dataclasses import replace

import numpy as np

from touchline.drawing.look import (
    BLUE,
    DARK,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    WALL_COLOR,
    WHITE,
    YELLOW,
)
from touchline.drawing.tableau import DrawnShapes, Kind, join, make_shapes
from touchline.physics.shapes import Floats
from touchline.scenes.match3.rules import COLUMNS, EMPTY, ROWS, Cells

PIECE_COLORS = np.array([RED, BLUE, GREEN, YELLOW, PURPLE, ORANGE])
SPECIAL_COLORS = np.array([WHITE, WHITE, DARK])
BOARDS_ACROSS = 3
SPACING_M = np.array([COLUMNS + 1.5, ROWS + 1.5])
"""Distance from one board to the next."""
PIECE_RADIUS_M, DOT_RADIUS_M, PLATE_DEPTH_M = 0.42, 0.16, 0.2


def _corners(boards: int) -> Floats:
    """The lower left corner of each board, x and y, around the middle of them all: [B, 2]."""
    down, across = np.divmod(np.arange(boards), BOARDS_ACROSS)
    # Three boards across and two down: the middle of all is the origin.
    place = np.stack([across, -down], axis=1) + (-1.0, 0.5)
    middle = place * SPACING_M
    corners: Floats = middle - (COLUMNS / 2, ROWS / 2)
    return corners


def board_plates(boards: int) -> DrawnShapes:
    """What stands behind the pieces."""
    middle = np.zeros((boards, 3))
    middle[:, :2] = _corners(boards) + (COLUMNS / 2, ROWS / 2)
    middle[:, 2] = PIECE_RADIUS_M + PLATE_DEPTH_M
    size = (COLUMNS / 2 + 0.2, ROWS / 2 + 0.2, PLATE_DEPTH_M / 2)
    return make_shapes(Kind.BOX, size, middle, WALL_COLOR)


def board_shapes(kind: Cells, special: Cells) -> DrawnShapes:
    """The pieces of B boards [B, 9, 8], then their dots."""
    row, column = np.mgrid[:ROWS, :COLUMNS]
    corners = _corners(len(kind))
    place = np.zeros((*kind.shape, 3))
    place[..., :2] = np.stack([column, row], axis=2) + 0.5
    place[..., :2] += corners[:, None, None]
    place = place.reshape(-1, 3)
    dot = place - (0.0, 0.0, PIECE_RADIUS_M)
    kinds = kind.reshape(-1)
    specials = special.reshape(-1)
    pieces = make_shapes(Kind.SPHERE, [PIECE_RADIUS_M] * 3, place, PIECE_COLORS[kinds])
    dots = make_shapes(Kind.SPHERE, [DOT_RADIUS_M] * 3, dot, SPECIAL_COLORS[specials])
    return join(
        replace(pieces, shown=kinds != EMPTY), replace(dots, shown=specials > 0)
    )
