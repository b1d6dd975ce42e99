"""What a soccer field looks like: grass with its lines, walls and goals."""

from __future__ import annotations

import numpy as np

from touchline.drawing.look import BLUE, GRASS, PURPLE, WALL_COLOR, WHITE
from touchline.drawing.tableau import (
    DrawnShapes,
    box_shapes,
    floor_shapes,
    join,
    lowered,
)
from touchline.physics.shapes import BOX_TAG, Floats, box, boxes
from touchline.scenes.soccer.field import BLUE_GOAL, FLOOR, WALL

_WALL_TOP_M = 1.0
_GOAL_TOP_M = 2.0
_LINE_M = 0.12
_SIDE_M, _END_M = 7.3, 14.4
"""Distances of the lines along the field and across its ends from the middle."""
_BOX_DEPTH_M, _BOX_HALF_M = 3.0, 4.2
_CIRCLE_M, _CIRCLE_PARTS = 2.4, 32


def pitch(field: Floats) -> DrawnShapes:
    """A field with these walls and goals [S, 9], which are drawn so low that they hide nothing."""
    tag = field[:, BOX_TAG]
    goals = field[tag != WALL]
    colors = [BLUE if row[BOX_TAG] == BLUE_GOAL else PURPLE for row in goals]
    return join(
        floor_shapes(FLOOR, GRASS, cells=(12, 1)),
        box_shapes(_lines(), WHITE),
        box_shapes(lowered(field[tag == WALL], _WALL_TOP_M), WALL_COLOR),
        box_shapes(lowered(goals, _GOAL_TOP_M), colors),
    )


def _lines() -> Floats:
    """Sides, ends, the line and the circle in the middle, and the boxes in front of the goals."""
    inner = _END_M - _BOX_DEPTH_M
    ends = [_line((x, 0.0), (0.0, 2 * _SIDE_M)) for x in (-_END_M, 0.0, _END_M)]
    sides = [_line((0.0, z), (2 * _END_M, 0.0)) for z in (-_SIDE_M, _SIDE_M)]
    fronts = [_line((x, 0.0), (0.0, 2 * _BOX_HALF_M)) for x in (-inner, inner)]
    middle = inner + _BOX_DEPTH_M / 2
    flanks = [
        _line((x, z), (_BOX_DEPTH_M, 0.0))
        for x in (-middle, middle)
        for z in (-_BOX_HALF_M, _BOX_HALF_M)
    ]
    part_m = 2 * _CIRCLE_M * np.tan(np.pi / _CIRCLE_PARTS)
    circle = [
        _line(
            (_CIRCLE_M * np.sin(bearing), _CIRCLE_M * np.cos(bearing)),
            (part_m - _LINE_M, 0.0),
            float(np.degrees(bearing)),
        )
        for bearing in np.arange(_CIRCLE_PARTS) * 2 * np.pi / _CIRCLE_PARTS
    ]
    return boxes(*ends, *sides, *fronts, *flanks, *circle)


def _line(
    middle: tuple[float, float], reach_m: tuple[float, float], yaw_deg: float = 0.0
) -> list[float]:
    """A white line around a place (x, z), a little above the grass."""
    width_m, depth_m = reach_m
    size = (width_m + _LINE_M, 0.02, depth_m + _LINE_M)
    return box((middle[0], 0.0, middle[1]), size, yaw_deg=yaw_deg)
