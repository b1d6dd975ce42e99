"""GridWorld: walk on a board to the right one of two symbols, observed by a camera from above.

Each episode lays out a board of cells with green pluses, red crosses and one agent, and gives the
agent one kind as its target. Stepping on the target kind gives +1, on the other kind -1, and either
ends the episode; every move costs 0.01; after 100 steps the agent is interrupted. The agent decides
at every Academy step.

Source: ML-Agents Release 22, `GridAgent.cs`, `GridArea.cs`, `Area.prefab`, `goal-plus.prefab`,
`goal-ex.prefab`. The picture's colors are worked out, not measured; `LIGHT` says how.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.look import FLAT
from touchline.drawing.tableau import Camera, DrawnShapes, Tableau, box_shapes, join
from touchline.errors import UsageError
from touchline.parameters import Gaussian, Parameter, ParameterValue, Sampler
from touchline.physics.kernels import compiled
from touchline.physics.shapes import Floats, X, Z, box, boxes
from touchline.physics.world import Arrays
from touchline.scenes.academy import Agents
from touchline.scenes.scene import ActionNames, Scene
from touchline.specs import (
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)

MAX_STEP = 100
MOVE_COST = 0.01
PICTURE_HEIGHT, PICTURE_WIDTH = 64, 84
SMALLEST, LARGEST = 2, 32
"""Cells along a side of the board. Unity has no upper limit; beyond 32 a cell is less than 2
pixels wide."""
BAR_CELLS = 0.2
"""Thickness of the bars that make up the symbols and the agent's frame, both one cell across."""

_GOALS = ("numPlusGoals", "numExGoals")
_BAR_Y_M, _BAR_HEIGHT_M = 0.05, 0.1
_LONG = (1.0, _BAR_HEIGHT_M, BAR_CELLS)
_SHORT = (BAR_CELLS, _BAR_HEIGHT_M, 1.0)
PLUS_BARS = boxes(box((0.0, _BAR_Y_M, 0.0), _LONG), box((0.0, _BAR_Y_M, 0.0), _SHORT))
EX_BARS = boxes(
    *(box((0.0, _BAR_Y_M, 0.0), _LONG, yaw_deg=yaw) for yaw in (45.0, -45.0))
)
_SIDE = 0.5 - BAR_CELLS / 2
AGENT_BARS = boxes(
    *(box((0.0, 2 * _BAR_Y_M, side), _LONG) for side in (-_SIDE, _SIDE)),
    *(box((side, 2 * _BAR_Y_M, 0.0), _SHORT) for side in (-_SIDE, _SIDE)),
)
"""Boxes around the middle of a cell, for pictures; the agent is above what it stands on."""

NOTHING, PLUS, EX = 0, 1, 2
"""What is on a cell."""
_FLOOR, _AGENT, _WALL = 0, 3, 4
"""Rows of the colors; a plus and an ex have their own numbers."""
NONE, UP, DOWN, LEFT, RIGHT = range(5)
MOVE_X = np.array([0, 0, 0, -1, 1])
MOVE_Z = np.array([0, 1, -1, 0, 0])

# Materials of the prefabs. The floor's is dark gray: its shader reads only cell and line color, and
# the yellow that its material also holds belongs to a property which that shader does not have.
FLOOR = (0.116, 0.116, 0.116)
WALL = (0.392, 0.392, 0.392)
AGENT = (0.129, 0.588, 0.953)
GREEN = (0.404, 0.737, 0.420)
RED = (0.745, 0.227, 0.153)
LIGHT = 0.779 * (0.8 + 0.7 * np.sin(np.deg2rad(40.0)))
"""Light that a surface facing up returns, per color: flat ambient 0.8 and a lamp of 0.7 from 40
degrees above the horizon, in gamma space, times the 77.9 % that Unity's standard shader leaves
to the diffuse part. Not observed."""
GLOSS = 0.221 * np.array([0.450, 0.500, 0.576])
"""What it adds by reflecting the sky, for the smoothness 0.5 of walls and symbols; the matt
floor returns less."""
GLOSS_SMOOTH, GLOSS_MATT = 0.965, 0.72
_ALBEDO = np.array([FLOOR, GREEN, RED, AGENT, WALL])
_GLOSS = np.array([GLOSS_MATT, *[GLOSS_SMOOTH] * 4])[:, None] * GLOSS
_LIT = np.clip(_ALBEDO * LIGHT + _GLOSS, 0.0, 1.0)
_COLORS = np.asarray(np.rint(_LIT * 255.0) / 255.0, np.float32)
"""[5, 3] in the camera's picture, in whole 255ths, because Unity sends pictures as PNG files."""

_CAMERA = ObservationSpec.picture((3, PICTURE_HEIGHT, PICTURE_WIDTH), "CameraSensor")
_GOAL_SIGNAL = ObservationSpec(
    (2,), (DimensionProperty.NONE,), ObservationType.GOAL_SIGNAL, name="VectorSensor"
)


class GridWorld(Scene):
    """Walk to the target kind of two symbols; moves off the board are masked.

    | observation | shape | meaning |
    | --- | --- | --- |
    | `CameraSensor` | (3, 64, 84) | red, green, blue in 0 to 1; up is +z, right is +x |
    | `VectorSensor` | (2,) | goal signal: (1, 0) green plus, (0, 1) red cross is the target |

    The board fills the picture's height.

    Branch 0: 0 stay, 1 up (+z), 2 down (-z), 3 left (-x), 4 right (+x); one cell each.
    """

    name = "GridWorld"
    action_names = ActionNames(branches=[("nothing", "up", "down", "left", "right")])
    unity_areas = 9
    behaviors = {
        "GridWorld?team=0": BehaviorSpec(
            (_CAMERA, _GOAL_SIGNAL), ActionSpec.create_discrete((5,))
        )
    }
    decision_period = 1
    max_step = MAX_STEP
    parameters = {
        "gridSize": Parameter(
            5.0, SMALLEST, LARGEST, "cells along a side of the board"
        ),
        "numPlusGoals": Parameter(
            1.0, 0.0, LARGEST**2 - 1, "green pluses on the board"
        ),
        "numExGoals": Parameter(1.0, 0.0, LARGEST**2 - 1, "red crosses on the board"),
    }

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        self._bounds = {
            name: (p.default, p.default) for name, p in self.parameters.items()
        }
        """The smallest and largest number that each parameter may be read as."""
        self._size = np.full(num_areas, 5)
        self._symbol = np.zeros((num_areas, LARGEST, LARGEST), np.int8)  # [A, x, z]
        self._x = np.zeros(num_areas, np.int64)
        self._z = np.zeros(num_areas, np.int64)
        self._target = np.zeros(num_areas, np.int64)  # 0 plus, 1 ex

    def arrays(self) -> Arrays:
        return {
            "size": self._size,
            "symbol": self._symbol,
            "x": self._x,
            "z": self._z,
            "wanted": self._target,  # the name of saved runs
        }

    def set_parameter(self, name: str, value: ParameterValue) -> None:
        """Set a parameter, checked against the other two: agent and symbols need a cell each."""
        if name in self.parameters:
            known = self.parameters[name]
            known.check(self.name, name, value)
            bounds = self._bounds | {name: _bounds_of(known, value)}
            free_cells = int(bounds["gridSize"][0]) ** 2 - 1
            symbols = sum(int(bounds[goals][1]) for goals in _GOALS)
            if symbols > free_cells:
                raise UsageError(
                    f"{self.name}: parameter {name!r} = {value} would put up to {symbols} symbols "
                    f"on a board with room for {free_cells} besides the agent; allowed: "
                    f"numPlusGoals + numExGoals <= gridSize² - 1 = {free_cells}"
                )
            self._bounds = bounds
        super().set_parameter(name, value)

    # reset

    def begin_episodes(self, agents: Agents) -> None:
        """Lay out new boards of K areas, with symbols and agent on distinct cells."""
        self.streams.next_episode(agents)
        names = ("gridSize", *_GOALS)
        reads = [self.parameter_values.read(name, agents) for name in names]
        size, pluses, exes = (values.astype(np.int64) for values in reads)
        # As many for all as the largest board needs: an area's first draws stay the same.
        draws = self.streams.uniform(agents, 1 + int(size.max()) ** 2)
        self._target[agents] = (draws[:, 0] * 2).astype(np.int64)

        # The cells of each board in random order: pluses, exes, the agent, the rest. Cells that a
        # smaller board does not have come last.
        draws = draws[:, 1:]
        num_cells = (size**2)[:, None]
        draws[np.arange(draws.shape[1]) >= num_cells] = np.inf
        order = np.argsort(draws, axis=1)  # [K, cells]
        x, z = np.divmod(order, size[:, None])
        rank = np.arange(order.shape[1])
        num_symbols = pluses + exes
        is_plus = rank < pluses[:, None]
        is_symbol = rank < num_symbols[:, None]
        ex_or_nothing = np.where(is_symbol, EX, NOTHING)
        kind = np.where(is_plus, PLUS, ex_or_nothing)

        board = np.zeros((len(agents), LARGEST, LARGEST), np.int8)
        is_there = np.nonzero(kind)
        row, _ = is_there
        board[row, x[is_there], z[is_there]] = kind[is_there]
        self._size[agents] = size
        self._symbol[agents] = board
        # The cell behind the last symbol is the agent's.
        rows = np.arange(len(agents))
        self._x[agents] = x[rows, num_symbols]
        self._z[agents] = z[rows, num_symbols]

    # observe

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        picture = np.empty((len(agents), 3, PICTURE_HEIGHT, PICTURE_WIDTH), np.float32)
        _draw(picture, agents, self._size, self._symbol, self._x, self._z)
        goal = self._target[agents, None] == np.arange(2)  # one-hot
        return [picture, goal.astype(np.float32)]

    def action_mask(self, behavior: str, agents: Agents) -> list[NDArray[np.bool_]]:
        x = self._x[agents]
        z = self._z[agents]
        last = self._size[agents] - 1
        never = np.zeros_like(x, np.bool_)
        # In the order of the moves: none, up, down, left, right.
        leaves = [never, z == last, z == 0, x == 0, x == last]
        return [np.stack(leaves, axis=1)]

    # play

    def act(self) -> None:
        """Move unless a wall is there, and end the episode on a symbol."""
        # A symbol's reward replaces the move's cost.
        academy = self.academy
        action = self.academy.discrete[:, 0, 0]
        x = self._x + MOVE_X[action]
        z = self._z + MOVE_Z[action]
        is_across = (x >= 0) & (x < self._size)
        is_along = (z >= 0) & (z < self._size)
        free = is_across & is_along
        self._x[free] = x[free]
        self._z[free] = z[free]
        found = self._symbol[self._areas, self._x, self._z]
        academy.reward[:, 0] -= MOVE_COST
        if found.any():
            finished = np.flatnonzero(found)
            is_target = found[finished] == PLUS + self._target[finished]
            academy.reward[finished, 0] = np.where(is_target, 1.0, -1.0)
            academy.end(self, finished)
            self.begin_episodes(finished)

    def agent_shapes(self) -> NDArray[np.intp]:
        return np.array([-1])  # drawn last, a bar of its symbol

    def tableau(self, area: int) -> Tableau:
        """The board as the agent's camera shows it: from straight above, without light or shade."""
        size = int(self._size[area])
        floor, plus, ex, agent, wall = np.insert(_COLORS, 3, 1.0, axis=1)  # opaque
        board = box((0.0, -0.5, 0.0), (size, 1.0, size))
        # Below the board, and so wide that it fills the picture at any ratio of width to height.
        outside = box((0.0, -1.5, 0.0), (20.0 * size, 1.0, 20.0 * size))
        moving = []
        for x, z in np.argwhere(self._symbol[area]):
            is_plus = self._symbol[area, x, z] == PLUS
            bars, color = (PLUS_BARS, plus) if is_plus else (EX_BARS, ex)
            moving.append(_symbol_shapes(bars, color, x, z, size))
        # Last, because the agent is drawn above the symbol that it stands on.
        x = int(self._x[area])
        z = int(self._z[area])
        moving.append(_symbol_shapes(AGENT_BARS, agent, x, z, size))
        return Tableau(
            static=box_shapes(boxes(board, outside), np.stack([floor, wall])),
            moving=join(*moving),
            camera=Camera(
                eye=(0.0, 10.0, 0.0),
                target=(0.0, 0.0, 0.0),
                height_m=float(size),
                smooth=False,
            ),
            light=FLAT,
        )


def _symbol_shapes(
    bars: Floats, color: Floats, x: int, z: int, size: int
) -> DrawnShapes:
    """A symbol's bars, given around the middle of a cell, in cell (x, z) of a board."""
    placed = bars.copy()
    placed[:, X] += x - (size - 1) / 2
    placed[:, Z] += z - (size - 1) / 2
    return box_shapes(placed, color)


def _bounds_of(known: Parameter, value: ParameterValue) -> tuple[float, float]:
    """The smallest and largest number that a parameter may be read as."""
    if isinstance(value, Gaussian):
        return known.low, known.high
    if isinstance(value, Sampler):
        return value.bounds
    return float(value), float(value)


@compiled
def _draw(
    picture: NDArray[np.float32],
    agents: NDArray[np.intp],
    size: NDArray[np.int64],
    symbol: NDArray[np.int8],
    agent_x: NDArray[np.int64],
    agent_z: NDArray[np.int64],
) -> None:
    """Fill picture [K, 3, H, W], as a camera without anti-aliasing does."""
    # A pixel has the color of the one point in its middle.
    height = picture.shape[2]
    width = picture.shape[3]
    # The first column whose middle lies on the board, and the first one behind it.
    left = int(np.ceil(width / 2 - height / 2 - 0.5))
    right = int(np.ceil(width / 2 + height / 2 - 0.5))
    for k in range(len(agents)):
        a = agents[k]
        g = size[a]
        pixel = g / height  # in cells
        for c in range(3):
            picture[k, c, :, :left] = _COLORS[_WALL, c]
            picture[k, c, :, left:right] = _COLORS[_FLOOR, c]
            picture[k, c, :, right:] = _COLORS[_WALL, c]
        for x in range(g):
            for z in range(g):
                kind = symbol[a, x, z]
                if kind != NOTHING:
                    _draw_symbol(picture[k], kind, x, z, g, pixel)
        # Last, because the agent is drawn above what it stands on.
        _draw_symbol(picture[k], _AGENT, agent_x[a], agent_z[a], g, pixel)


@compiled
def _draw_symbol(
    picture: NDArray[np.float32],
    kind: int,
    x: int,
    z: int,
    size: int,
    pixel: float,
) -> None:
    """Draw a plus, an ex or the agent's hollow square into its cell of picture [3, H, W]."""
    height = picture.shape[1]
    width = picture.shape[2]
    middle_column = (x + 0.5 - size / 2) / pixel + width / 2
    middle_row = (size / 2 - z - 0.5) / pixel + height / 2
    reach = 0.5 / pixel  # half a cell, in pixels
    # A pixel more on every side, because `int` rounds towards 0.
    top = max(0, int(middle_row - reach - 1))
    bottom = min(height, int(middle_row + reach + 2))
    left = max(0, int(middle_column - reach - 1))
    right = min(width, int(middle_column + reach + 2))
    for row in range(top, bottom):
        up = (middle_row - row - 0.5) * pixel
        for column in range(left, right):
            across = (column + 0.5 - middle_column) * pixel
            if _is_inside(kind, up, across):
                for c in range(3):
                    picture[c, row, column] = _COLORS[kind, c]


@compiled
def _is_inside(kind: int, up: float, across: float) -> bool:
    """Whether a point, in cells from the middle of a cell, lies on its symbol."""
    half = 0.5
    bar = BAR_CELLS / 2
    diagonal = np.sqrt(0.5)
    if kind == _AGENT:
        from_middle = max(abs(up), abs(across))
        return bool(half - BAR_CELLS <= from_middle <= half)
    u = abs(across)
    v = abs(up)
    if kind == EX:
        u = abs(across + up) * diagonal
        v = abs(across - up) * diagonal
    return bool((u <= half and v <= bar) or (v <= half and u <= bar))
