"""Tableaux as instanced meshes: few meshes, and arrays that say where each copy of them is.

In the page's frame, which is right-handed with z up, so y and z are swapped against Unity's
(`physics.frames`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.tableau import DrawnShapes, Kind
from touchline.physics.frames import swap_axes, to_mujoco_quaternion
from touchline.viewer.backdrop import instance_colors

Floats = NDArray[np.float32]

_HIDDEN = 1e-5
"""The scale of a shape that is not there: not 0, for which normals are not defined."""
_RINGS, _SEGMENTS = 12, 24


class MeshKey(NamedTuple):
    """Shapes with the same key are copies of one mesh."""

    kind: Kind
    ratio: float
    """Half the distance of a capsule's caps per radius; 0 otherwise."""
    is_clear: bool
    """Whether one can look through, which is drawn after everything else."""


@dataclass(frozen=True, eq=False)
class Copies:
    index: NDArray[np.intp]
    """[N] of the shapes that they show"""
    position: Floats
    """[N, 3]"""
    wxyz: Floats
    """[N, 4] unit quaternions"""
    scale: Floats
    """[N, 3]"""
    color: NDArray[np.uint8]
    """[N, 3]"""
    opacity: Floats
    """[N]"""


def copies_of(shapes: DrawnShapes, *, is_flat: bool = False) -> dict[MeshKey, Copies]:
    """S shapes as copies of unit meshes, by mesh; `is_flat`: in light that makes no shadows."""
    position = swap_axes(shapes.position).astype(np.float32)
    wxyz = to_mujoco_quaternion(shapes.rotation).astype(np.float32)
    is_capsule = shapes.kind == Kind.CAPSULE
    size = swap_axes(shapes.size)
    # The caps are round, so a capsule is scaled by its radius alone.
    size = np.where(is_capsule[:, None], shapes.size[:, :1], size)
    # A plane has no height, but normals are not defined for a scale of 0.
    size = np.where(shapes.kind[:, None] == Kind.PLANE, np.maximum(size, 1e-3), size)
    scale = np.where(shapes.shown[:, None], size, _HIDDEN).astype(np.float32)
    color = instance_colors(shapes.color[:, :3], is_flat=is_flat)
    opacity = shapes.color[:, 3].astype(np.float32)
    copies = {}
    for key, index in _by_mesh(shapes).items():
        copies[key] = Copies(
            index,
            position[index],
            wxyz[index],
            scale[index],
            color[index],
            opacity[index],
        )
    return copies


def _by_mesh(shapes: DrawnShapes) -> Mapping[MeshKey, NDArray[np.intp]]:
    is_capsule = shapes.kind == Kind.CAPSULE
    radius = np.maximum(shapes.size[:, 0], 1e-9)
    # Rounded, so that equal capsules share a mesh in spite of rounding errors of their sizes.
    ratio = np.where(is_capsule, np.round(shapes.size[:, 1] / radius, 3), 0.0)
    is_clear = shapes.color[:, 3] < 1.0
    # An ellipsoid is a sphere with three scales.
    kind = np.where(shapes.kind == Kind.ELLIPSOID, Kind.SPHERE, shapes.kind)
    rows = np.stack([kind, ratio, is_clear], axis=1)
    unique, inverse = np.unique(rows, axis=0, return_inverse=True)
    # NumPy 2.0.0 alone returns it as a column where an axis is given.
    inverse = inverse.reshape(-1)
    return {
        MeshKey(Kind(int(k)), float(r), bool(c)): np.flatnonzero(inverse == i)
        for i, (k, r, c) in enumerate(unique)
    }


@cache
def unit_mesh(kind: Kind, ratio: float) -> tuple[Floats, NDArray[np.uint32]]:
    """Vertices [V, 3] and triangles [F, 3], counterclockwise from outside, of half size 1."""
    if kind == Kind.PLANE:
        corners = np.array([(-1, -1, 0), (1, -1, 0), (1, 1, 0), (-1, 1, 0)], np.float32)
        return corners, np.array([(0, 1, 2), (0, 2, 3)], np.uint32)
    if kind == Kind.BOX:
        return _box()
    return _round(ratio)


def _box() -> tuple[Floats, NDArray[np.uint32]]:
    """Six faces of four corners each, so that every face has its own normal."""
    top = np.array([(-1, -1, 1), (1, -1, 1), (1, 1, 1), (-1, 1, 1)], np.float32)
    sides = np.stack([np.roll(top, axis, axis=1) for axis in range(3)])
    # Seen from outside, a mirrored side has its corners the other way around.
    vertices = np.concatenate([sides, -sides[:, ::-1]]).reshape(-1, 3)
    first = 4 * np.arange(6)[:, None]
    faces = first + (0, 1, 2, 0, 2, 3)
    return vertices, faces.reshape(-1, 3).astype(np.uint32)


def _round(ratio: float) -> tuple[Floats, NDArray[np.uint32]]:
    """A unit sphere whose halves are `ratio` above and below the middle: a capsule along z."""
    # Two rings at the equator, between which a capsule is a cylinder.
    half = np.linspace(0.0, np.pi / 2, _RINGS // 2 + 1)
    polar = np.concatenate([half, np.pi - half[::-1]])
    offset = np.where(np.arange(len(polar)) <= _RINGS // 2, ratio, -ratio)
    around = np.linspace(0.0, 2 * np.pi, _SEGMENTS, endpoint=False)
    x = np.sin(polar)[:, None] * np.cos(around)
    y = np.sin(polar)[:, None] * np.sin(around)
    z = np.broadcast_to((np.cos(polar) + offset)[:, None], x.shape)
    vertices = np.stack([x, y, z], axis=-1).reshape(-1, 3).astype(np.float32)
    here = np.arange(x[1:].size).reshape(-1, _SEGMENTS)
    right = np.roll(here, -1, axis=1)
    below, below_right = here + _SEGMENTS, right + _SEGMENTS
    faces = np.stack([here, below, below_right, here, below_right, right], axis=-1)
    return vertices, faces.reshape(-1, 3).astype(np.uint32)


def pointer_mesh() -> tuple[Floats, NDArray[np.uint32]]:
    """A pyramid upside down, whose tip is at the origin and whose top is a square of side 1."""
    top = [(-0.5, -0.5, 0.8), (0.5, -0.5, 0.8), (0.5, 0.5, 0.8), (-0.5, 0.5, 0.8)]
    vertices = np.array([(0.0, 0.0, 0.0), *top], np.float32)
    faces = [(0, 2, 1), (0, 3, 2), (0, 4, 3), (0, 1, 4), (1, 2, 3), (1, 3, 4)]
    return vertices, np.array(faces, np.uint32)
