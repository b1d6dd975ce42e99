"""What an area of Walker, Crawler or Worm looks like: ground, walls, the ragdoll, its target."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from touchline.drawing.look import (
    BLUE,
    DARK,
    GREEN,
    PALE_FLOOR_COLORS,
    WALL_COLOR,
    Color,
)
from touchline.drawing.tableau import (
    Camera,
    DrawnShapes,
    Kind,
    Tableau,
    floor_shapes,
    join,
    make_shapes,
)
from touchline.physics.frames import product, rotate
from touchline.physics.ragdoll.model import BOX, SPHERE, Part
from touchline.physics.shapes import Floats, box

_Y_TO_X = np.array([0.0, 0.0, -(0.5**0.5), 0.5**0.5])
"""A drawn capsule stands along y, the solver's lies along x."""


@dataclass(frozen=True)
class Stage:
    """The ground of an area, and from where its agent is seen."""

    ground_top: float
    half_m: float
    """Distance from the middle to the walls"""
    wall_m: float
    """Height of the walls"""
    target_m: float
    """Edge of the target"""
    eyes: tuple[str, int, float]
    """The part that has eyes drawn on it, along which axis it is wide, and their radius"""
    camera_offset: tuple[float, float, float]
    """Vector from the root to the camera"""


def tableau_of(
    stage: Stage,
    parts: Sequence[Part],
    position: Floats,
    rotation: Floats,
    target: Floats,
) -> Tableau:
    """The tableau of an area whose parts have these poses [B, 3] and [B, 4]."""
    ragdoll = [
        _part(part, BLUE).attached_to(position[i], rotation[i])
        for i, part in enumerate(parts)
    ]
    name, wide, radius = stage.eyes
    face = next(i for i, part in enumerate(parts) if part.name == name)
    if radius > 0.0:
        eyes = _eyes(parts[face], wide, radius)
        ragdoll.append(eyes.attached_to(position[face], rotation[face]))
    cube = make_shapes(
        Kind.BOX,
        0.5 * stage.target_m,
        target,
        GREEN,
    )
    root = position[0]
    eye = root + np.array(stage.camera_offset)
    x = float(root[0])
    z = float(root[2])
    camera = Camera(
        eye=(float(eye[0]), float(eye[1]), float(eye[2])),
        target=(x, float(root[1]), z),
        extent_m=1.5 * float(np.linalg.norm(stage.camera_offset)),
    )
    return Tableau(_ground(stage), join(*ragdoll, cube), camera)


def _part(part: Part, color: Color) -> DrawnShapes:
    """A part in its body's frame."""
    if part.kind == BOX:
        return make_shapes(Kind.BOX, part.half, part.center, color, part.turn)
    if part.kind == SPHERE:
        return make_shapes(Kind.SPHERE, part.half[0], part.center, color)
    # A capsule's half: its radius, then half the length of its axis.
    size = (part.half[0], part.half[1], part.half[0])
    turn = product(np.array(part.turn), _Y_TO_X)
    return make_shapes(Kind.CAPSULE, size, part.center, color, turn)


def _eyes(part: Part, wide: int, radius: float) -> DrawnShapes:
    """Two dark eyes on the front of a part."""
    aside = np.zeros(3)
    aside[wide] = 0.45 * part.half[0]
    front = np.array([0.0, 0.25, 0.88]) * part.half[0]
    return make_shapes(Kind.SPHERE, radius, [front - aside, front + aside], DARK)


@cache
def _ground(stage: Stage) -> DrawnShapes:
    half, top = stage.half_m, stage.ground_top
    size_m = (2.0 * half, 1.0, 2.0 * half)
    floor = floor_shapes(
        box((0.0, top - 0.5, 0.0), size_m), PALE_FLOOR_COLORS, (20, 20)
    )
    middle = top + 0.5 * stage.wall_m
    # Two walls across z, then the same two turned by a right angle about y.
    turns = [(0.0, 0.0, 0.0, 1.0), (0.0, 0.5**0.5, 0.0, 0.5**0.5)]
    ends = np.array([(0.0, middle, half), (0.0, middle, -half)])
    size = (half, 0.5 * stage.wall_m, 0.12)
    walls = []
    for turn in turns:
        pair = make_shapes(Kind.BOX, size, ends, WALL_COLOR, turn)
        places = rotate(np.array(turn), ends)
        walls.append(replace(pair, position=places))
    return join(floor, *walls)
