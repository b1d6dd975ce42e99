"""A picture of a board, drawn from its planes: no display, no fonts of the system, no Java.

Player 0 is blue and player 1 red, whichever of them is ours. Buildings are squares and units are
circles; letters name them. A bar shows the hit points of a damaged unit, a dark outline a unit that
is carrying out an order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from touchline.microrts.rules import FIRST_PLANE, PLANE_GROUPS, UNIT_TYPES

_BACKGROUND = (255, 255, 255)
_GROUND = (238, 236, 226)
_GRID = (216, 212, 198)
_WALL = (92, 86, 78)
_INK = (30, 30, 34)
_LETTER = (255, 255, 255)
_PLAYER = ((66, 114, 196), (206, 76, 62))
_RESOURCE = (92, 168, 92)
_HIT_POINTS = (60, 160, 60)
_LETTERS = {
    "Base": "B",
    "Barracks": "K",
    "Worker": "w",
    "Light": "l",
    "Heavy": "H",
    "Ranged": "r",
}
_BUILDINGS = ("Base", "Barracks", "Resource")
# As far as the planes show them: 4 means 4 or more. Other units have 1.
_MOST_HIT_POINTS = {"Base": 4, "Barracks": 4, "Light": 4, "Heavy": 4}
_CAPTION_PX = 22
_CAPTION_FONT_PX = 14.0
# Smaller cells have no grid and no letters: they would cover what is in the cell.
_LEAST_CELL_WITH_GRID_PX = 4
_LEAST_CELL_WITH_TEXT_PX = 10

Box = tuple[float, float, float, float]
"""left, top, right, bottom"""


@dataclass(frozen=True)
class Scoreboard:
    """What stands above the board."""

    player: int
    """Which player we are."""
    opponent: str
    stock: tuple[int, int]
    """Resources in store, of player 0 and of player 1."""
    ticks: int


@dataclass(frozen=True)
class _Layout:
    """Where the cells are in the picture, in pixels."""

    left: float
    top: float
    cell: float
    rows: int
    columns: int

    @staticmethod
    def fit(shape: tuple[int, int], size: tuple[int, int]) -> _Layout:
        """The largest board of [rows, columns] cells below the caption, centered."""
        rows, columns = shape
        width, height = size
        space = height - _CAPTION_PX
        cell = max(min(width / columns, space / rows), 1.0)
        left = (width - cell * columns) / 2
        top = _CAPTION_PX + (space - cell * rows) / 2
        return _Layout(left, top, cell, rows, columns)

    @property
    def board(self) -> Box:
        right = self.left + self.cell * self.columns
        bottom = self.top + self.cell * self.rows
        return self.left, self.top, right, bottom

    def box(self, y: int, x: int, margin: float = 0.0) -> Box:
        """The cell in row y and column x, smaller by a share of its size on every side."""
        return (
            self.left + (x + margin) * self.cell,
            self.top + (y + margin) * self.cell,
            self.left + (x + 1 - margin) * self.cell,
            self.top + (y + 1 - margin) * self.cell,
        )


def draw_board(
    planes: NDArray[np.float32],
    walls: NDArray[np.bool_],
    scoreboard: Scoreboard,
    size: tuple[int, int],
) -> NDArray[np.uint8]:
    """One game as a picture [H, W, 3] of `size` (width, height).

    `planes` [PLANES, h, w] are as our player observes them, `walls` are [h, w].
    """
    image = Image.new("RGB", size, _BACKGROUND)
    draw = ImageDraw.Draw(image)
    height, width = walls.shape
    layout = _Layout.fit((height, width), size)
    _draw_ground(draw, layout, walls)
    _draw_units(draw, layout, planes, scoreboard.player)
    _draw_caption(draw, scoreboard, size[0])
    # A copy, because Pillow's own memory cannot be written to.
    return np.asarray(image, np.uint8).copy()


def _draw_ground(
    draw: ImageDraw.ImageDraw, layout: _Layout, walls: NDArray[np.bool_]
) -> None:
    draw.rectangle(layout.board, fill=_GROUND)
    for y, x in np.argwhere(walls):
        draw.rectangle(layout.box(y, x), fill=_WALL)
    if layout.cell < _LEAST_CELL_WITH_GRID_PX:
        return
    left = layout.left
    top = layout.top
    cell = layout.cell
    for x in range(layout.columns + 1):
        line_x = left + x * cell
        draw.line((line_x, top, line_x, top + layout.rows * cell), fill=_GRID)
    for y in range(layout.rows + 1):
        line_y = top + y * cell
        draw.line((left, line_y, left + layout.columns * cell, line_y), fill=_GRID)


def _draw_units(
    draw: ImageDraw.ImageDraw, layout: _Layout, planes: NDArray[np.float32], player: int
) -> None:
    unit_type = _values(planes, "unit_type")
    hit_points = _values(planes, "hit_points")
    carried = _values(planes, "resources")
    owner = _values(planes, "owner")
    action = _values(planes, "action")
    font = ImageFont.load_default(max(layout.cell * 0.5, 6.0))
    for y, x in np.argwhere(unit_type > 0):
        name = UNIT_TYPES[unit_type[y, x] - 1]
        is_ours = owner[y, x] == 1
        color = (
            _RESOURCE
            if name == "Resource"
            else _PLAYER[player if is_ours else 1 - player]
        )
        box = layout.box(y, x, margin=0.12)
        is_busy = bool(action[y, x])
        outline = _INK if is_busy else color
        line = max(int(layout.cell / 12), 1) if is_busy else 1
        shape = draw.rectangle if name in _BUILDINGS else draw.ellipse
        shape(box, fill=color, outline=outline, width=line)
        if layout.cell >= _LEAST_CELL_WITH_TEXT_PX:
            center = (
                layout.left + (x + 0.5) * layout.cell,
                layout.top + (y + 0.5) * layout.cell,
            )
            draw.text(
                center,
                _label(name, carried[y, x]),
                fill=_LETTER,
                font=font,
                anchor="mm",
            )
        _draw_hit_points(draw, box, name, int(hit_points[y, x]), layout.cell)


def _values(planes: NDArray[np.float32], group: str) -> NDArray[np.intp]:
    """[h, w] which plane of a group is set."""
    first = FIRST_PLANE[group]
    index: NDArray[np.intp] = planes[first : first + PLANE_GROUPS[group]].argmax(axis=0)
    return index


def _label(name: str, carried: int) -> str:
    """A resource's amount, or a unit's letter, with a plus while it carries something."""
    if name == "Resource":
        return "4+" if carried == 4 else str(carried)
    return _LETTERS[name] + ("+" if carried else "")


def _draw_hit_points(
    draw: ImageDraw.ImageDraw, box: Box, name: str, hit_points: int, cell: float
) -> None:
    """A bar below a damaged unit."""
    most = _MOST_HIT_POINTS.get(name, 1)
    if hit_points >= most:
        return
    left, _, right, bottom = box
    filled = left + (right - left) * hit_points / most
    draw.rectangle(
        (left, bottom, filled, bottom + max(cell * 0.07, 1.0)), fill=_HIT_POINTS
    )


def _draw_caption(
    draw: ImageDraw.ImageDraw, scoreboard: Scoreboard, width: int
) -> None:
    font = ImageFont.load_default(_CAPTION_FONT_PX)
    draw.text((6, 3), f"tick {scoreboard.ticks}", fill=_INK, font=font)
    for player, x in ((0, width * 0.38), (1, width * 0.75)):
        name = "we" if player == scoreboard.player else scoreboard.opponent
        text = f"{name}: {scoreboard.stock[player]} in stock"
        draw.text((x, 3), text, fill=_PLAYER[player], font=font, anchor="ma")
