"""The grid sensor: a carpet of cells around every agent, each showing what kind of thing lies on
it.

A cell is a thin box that turns with its agent. Several listed colliders may overlap it. The winner
is the one whose bounding box has, next to the cell's center, the point nearest to the agent; its
tag is the cell's channel. Unity asks for the colliders of each of 1,600 cells. Here each collider
is drawn into the grid, with the same result.

What it leaves to others: where the shapes are (`shapes`).

Source: ML-Agents 3.0.0, `GridSensorBase.cs`, `OneHotGridSensor.cs`, `BoxOverlapChecker.cs`; layout
and order of the channels confirmed by Unity's own GridFoodCollector policy.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, inlined, makes_arrays
from touchline.physics.shapes import (
    BOX_TAG,
    COS,
    HALF_HEIGHT,
    HALF_X,
    HALF_Y,
    HALF_Z,
    RADIUS,
    ROUND_TAG,
    SIN,
    Floats,
    X,
    Y,
    Z,
)
from touchline.physics.threads import Threads
from touchline.specs import ObservationSpec

_BOUNDS = 6
"""A bounding box: lowest x, y, z, then highest x, y, z."""
_PARALLEL = 1e-12
"""Axes whose angle has a smaller sine or cosine count as parallel or perpendicular."""


class GridView(NamedTuple):
    """From where the agents of A areas look, and what their grids may show: a scene's own arrays.

    N agents in all.
    """

    areas: NDArray[np.intp]
    """[N] the area of each agent."""
    eyes: Floats
    """[N, (x, y, z, yaw in radians, size)]. An agent's size stretches the distances between its
    cells, not the cells."""
    own_box: NDArray[np.intp]
    """[N] each agent's own row in `boxes`, which it does not detect."""
    fixed: Floats
    """[B, 9] boxes that every area has."""
    fixed_bounds: Floats
    """[B, 6] the bounding box of the collider that each of them is part of."""
    boxes: Floats
    """[A, B, 9]"""
    rounds: Floats
    """[A, S, 6]"""


class Cells(NamedTuple):
    """The cells in which one agent detects something, in its area's frame, for drawing."""

    corners: Floats
    """[cells, 4, 3] one after the other around each cell, at its middle height"""
    tag: NDArray[np.intp]
    """[cells] the place of what is there among `tags`"""
    tags: tuple[str, ...]


@runtime_checkable
class HasGrids(Protocol):
    """A scene whose agents have grid sensors."""

    def cells(self, area: int, agent: int) -> Cells | None:
        """Where the grid of an area's agent shows something now; None: it has no grid."""
        ...


class GridSensor:
    """One grid sensor: X x Z cells and the tags that it distinguishes.

    An observation is [tags, X, Z] of zeros and ones. Row X-1-i and column j hold the cell whose
    center lies (i - (X-1)/2) cells to the agent's right and (j - (Z-1)/2) cells ahead of it. So
    row 0 is far right, the last row far left; column 0 is behind, the last column ahead.
    """

    def __init__(
        self,
        known_tags: Sequence[str],
        tags: Sequence[str],
        *,
        cells: tuple[int, int],
        cell_m: tuple[float, float, float],
    ) -> None:
        """`known_tags` is the scene's list, whose indices the shapes carry.

        `cell_m` is Unity's cell scale x, y, z.
        """
        self.tags = tuple(tags)
        self.shape = (len(tags), *cells)
        # Unity halves the cell's width and depth, not its height.
        self.half_m = np.array([cell_m[0] / 2, cell_m[1], cell_m[2] / 2])
        channel = [tags.index(tag) if tag in tags else -1 for tag in known_tags]
        self.channel = np.array(channel, np.int64)

    def spec(self, name: str) -> ObservationSpec:
        """What an agent observes; Unity appends "-OneHot" to the sensor's name."""
        return ObservationSpec.picture(self.shape, f"{name}-OneHot")

    def read(
        self, threads: Threads, agents: NDArray[np.intp], view: GridView
    ) -> NDArray[np.float32]:
        """Grids [K, tags, X, Z] of K agents, given by their indices into the view's N."""
        grid = np.empty((len(agents), *self.shape), np.float32)
        threads.run(_read, len(agents), agents, view, self.half_m, self.channel, grid)
        return grid

    def cells(self, threads: Threads, agent: int, view: GridView) -> Cells:
        """What one agent, an index into the view's N, would detect now."""
        (grid,) = self.read(threads, np.array([agent]), view)
        tag, row, column = np.nonzero(grid)
        eye = view.eyes[agent]
        size = eye[4]
        _, count_x, count_z = self.shape
        right = ((count_x - 1) / 2 - row) * size
        ahead = (column - (count_z - 1) / 2) * size
        half_right, _, half_ahead = self.half_m
        # [cells, 4]
        right = right[:, None] + half_right * np.array([-1.0, 1.0, 1.0, -1.0])
        ahead = ahead[:, None] + half_ahead * np.array([-1.0, -1.0, 1.0, 1.0])
        cos = math.cos(eye[3])
        sin = math.sin(eye[3])
        x = eye[0] + right * cos + ahead * sin
        z = eye[2] - right * sin + ahead * cos
        corners = np.stack([x, np.full_like(x, eye[1]), z], axis=-1)
        return Cells(corners, tag, self.tags)


class _Carpet(NamedTuple):
    """The cells of one agent while shapes are drawn into them."""

    eye: Floats
    """As in `GridView.eyes`."""
    cos: float
    """Cosine of the agent's yaw."""
    sin: float
    half: Floats
    """[3] a cell's half sizes, m."""
    nearest: Floats
    """[X, Z] square distance of each cell's winner so far."""
    winner: NDArray[np.int8]
    """[X, Z] its channel, or -1."""


def bounds_of(*rows: list[float]) -> list[float]:
    """The bounding box of boxes that are one collider."""
    bounds = np.empty((len(rows), _BOUNDS))
    for row, own in zip(np.array(rows), bounds, strict=True):
        _bound_box(row, own)
    return [*bounds[:, :3].min(axis=0), *bounds[:, 3:].max(axis=0)]


@makes_arrays
def _read(
    first: int,
    last: int,
    agents: NDArray[np.intp],
    view: GridView,
    half: Floats,
    channel: NDArray[np.int64],
    grid: NDArray[np.float32],
) -> None:
    shape = grid.shape[2], grid.shape[3]
    nearest = np.empty(shape)
    winner = np.empty(shape, np.int8)
    bounds = np.empty(_BOUNDS)
    for row in range(first, last):
        _read_one(agents[row], view, half, channel, nearest, winner, bounds, grid[row])


@compiled
def _read_one(
    agent: int,
    view: GridView,
    half: Floats,
    channel: NDArray[np.int64],
    nearest: Floats,
    winner: NDArray[np.int8],
    bounds: Floats,
    obs: NDArray[np.float32],
) -> None:
    """One agent's grid, [channels, x, z]; `nearest`, `winner` and `bounds` are workspace."""
    eye = view.eyes[agent]
    cells = _Carpet(eye, math.cos(eye[3]), math.sin(eye[3]), half, nearest, winner)
    nearest[:] = np.inf
    winner[:] = -1  # no collider
    # What stands still is drawn first, and so it keeps a cell when something else is just as near.
    for k in range(len(view.fixed)):
        c = _channel_of(view.fixed[k, BOX_TAG], channel)
        if c >= 0:
            _draw_box(view.fixed[k], view.fixed_bounds[k], c, cells)
    boxes = view.boxes[view.areas[agent]]
    for k in range(len(boxes)):
        c = _channel_of(boxes[k, BOX_TAG], channel)
        if c >= 0 and k != view.own_box[agent]:
            _bound_box(boxes[k], bounds)
            _draw_box(boxes[k], bounds, c, cells)
    rounds = view.rounds[view.areas[agent]]
    for k in range(len(rounds)):
        c = _channel_of(rounds[k, ROUND_TAG], channel)
        if c >= 0:
            _bound_round(rounds[k], bounds)
            _draw_round(rounds[k], bounds, c, cells)
    obs[:] = 0.0
    count_x = len(nearest)
    for i in range(count_x):
        for j in range(nearest.shape[1]):
            if winner[i, j] >= 0:
                # Unity's grid counts its rows from the right (`GridSensor`).
                obs[winner[i, j], count_x - 1 - i, j] = 1.0


@compiled
def _channel_of(tag: float, channel: NDArray[np.int64]) -> int:
    # Negative tags are shapes that are absent or untagged: no channel counts them.
    return channel[int(tag)] if tag >= 0.0 else -1


@compiled
def _bound_box(shape: Floats, bounds: Floats) -> None:
    cos = abs(shape[COS])
    sin = abs(shape[SIN])
    wide = cos * shape[HALF_X] + sin * shape[HALF_Z]
    deep = sin * shape[HALF_X] + cos * shape[HALF_Z]
    # Boxes turn about y only, so their height is their own.
    _set_bounds(bounds, shape, wide, shape[HALF_Y], deep)


@compiled
def _bound_round(shape: Floats, bounds: Floats) -> None:
    radius = shape[RADIUS]
    _set_bounds(bounds, shape, radius, radius + shape[HALF_HEIGHT], radius)


@compiled
def _set_bounds(
    bounds: Floats, shape: Floats, wide: float, tall: float, deep: float
) -> None:
    bounds[0] = shape[X] - wide
    bounds[1] = shape[Y] - tall
    bounds[2] = shape[Z] - deep
    bounds[3] = shape[X] + wide
    bounds[4] = shape[Y] + tall
    bounds[5] = shape[Z] + deep


@compiled
def _draw_box(shape: Floats, bounds: Floats, channel: int, cells: _Carpet) -> None:
    """Draw one box: in each row of cells, those that no axis separates from it."""
    half = cells.half
    if abs(shape[Y] - cells.eye[1]) > shape[HALF_Y] + half[1]:
        return
    count_x, count_z = cells.nearest.shape
    size = cells.eye[4]
    x, z = _seen_from(cells, shape)
    # The box's own axes, in the agent's frame.
    c = cells.cos * shape[COS] + cells.sin * shape[SIN]
    s = cells.cos * shape[SIN] - cells.sin * shape[COS]
    hx = shape[HALF_X]
    hz = shape[HALF_Z]
    # How far box and cell reach together, along the agent's axes and along the box's.
    reach_x = abs(c) * hx + abs(s) * hz + half[0]
    reach_z = abs(s) * hx + abs(c) * hz + half[2]
    across = hx + abs(c) * half[0] + abs(s) * half[2]
    along = hz + abs(s) * half[0] + abs(c) * half[2]
    # Ahead of all cells, or behind them.
    if abs(z) - reach_z > (count_z - 1) / 2 * size:
        return
    middle = (count_x - 1) / 2
    first = max(0, math.ceil((x - reach_x) / size + middle))
    last = min(count_x - 1, math.floor((x + reach_x) / size + middle))
    for i in range(first, last + 1):
        dx = (i - middle) * size - x
        # The agent's own axis limits dz already; the box's two axes narrow it down.
        low, high = -reach_z, reach_z
        # |dx c - dz s| <= across and |dx s + dz c| <= along, solved for dz.
        if abs(s) > _PARALLEL:
            a = (dx * c - across) / s
            b = (dx * c + across) / s
            low = max(low, min(a, b))
            high = min(high, max(a, b))
        elif abs(dx * c) > across:
            continue
        if abs(c) > _PARALLEL:
            a = (-along - dx * s) / c
            b = (along - dx * s) / c
            low = max(low, min(a, b))
            high = min(high, max(a, b))
        elif abs(dx * s) > along:
            continue
        if low <= high:
            _claim(i, (z + low) / size, (z + high) / size, channel, bounds, cells)


@compiled
def _draw_round(shape: Floats, bounds: Floats, channel: int, cells: _Carpet) -> None:
    """Draw one sphere or upright capsule: its widest circle within the cells' height."""
    half = cells.half
    # How far the cells are above or below the capsule's straight part: 0 next to it.
    height = abs(shape[Y] - cells.eye[1])
    off = max(height - shape[HALF_HEIGHT] - half[1], 0.0)
    square = shape[RADIUS] * shape[RADIUS] - off * off
    if square <= 0.0:
        return
    radius = math.sqrt(square)
    count_x, count_z = cells.nearest.shape
    size = cells.eye[4]
    x, z = _seen_from(cells, shape)
    if abs(z) - radius - half[2] > (count_z - 1) / 2 * size:
        return
    middle = (count_x - 1) / 2
    reach = radius + half[0]
    first = max(0, math.ceil((x - reach) / size + middle))
    last = min(count_x - 1, math.floor((x + reach) / size + middle))
    for i in range(first, last + 1):
        # The widest part of the circle over this row of cells, which are half[0] wide.
        aside = abs((i - middle) * size - x)
        dx = max(aside - half[0], 0.0)
        dz = math.sqrt(max(square - dx * dx, 0.0)) + half[2]
        _claim(i, (z - dz) / size, (z + dz) / size, channel, bounds, cells)


@inlined
def _seen_from(cells: _Carpet, shape: Floats) -> tuple[float, float]:
    """A shape's place (x, z) in the agent's frame."""
    x = shape[X] - cells.eye[0]
    z = shape[Z] - cells.eye[2]
    return x * cells.cos - z * cells.sin, x * cells.sin + z * cells.cos


@compiled
def _claim(
    i: int, first: float, last: float, channel: int, bounds: Floats, cells: _Carpet
) -> None:
    """Claim, where it is nearest, the cells (i, j) from `first` to `last` cells ahead."""
    eye, cos, sin = cells.eye, cells.cos, cells.sin
    count_x, count_z = cells.nearest.shape
    size = eye[4]
    middle = (count_z - 1) / 2
    right = (i - (count_x - 1) / 2) * size
    # All cells are at the agent's own height, so this part is the same for each.
    up = min(max(eye[1], bounds[1]), bounds[4]) - eye[1]
    first_j = max(0, math.ceil(first + middle))
    last_j = min(count_z - 1, math.floor(last + middle))
    for j in range(first_j, last_j + 1):
        ahead = (j - middle) * size
        x = eye[0] + right * cos + ahead * sin
        z = eye[2] - right * sin + ahead * cos
        # From the agent to the point of the bounding box that is nearest to the cell's center.
        across = min(max(x, bounds[0]), bounds[3]) - eye[0]
        along = min(max(z, bounds[2]), bounds[5]) - eye[2]
        distance = across * across + up * up + along * along
        # "Less", not "at most": of two that are equally near, the one drawn first keeps the
        # cell.
        if distance < cells.nearest[i, j]:
            cells.nearest[i, j] = distance
            cells.winner[i, j] = channel
