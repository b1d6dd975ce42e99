"""The scene: six boards in an area, two of which heuristics play.

Source: ML-Agents 3.0.0 (Release 22), `Match3Agent.cs`, `Match3Sensor.cs`, `Match3.unity`.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    Light,
)
from touchline.drawing.tableau import (
    Camera,
    DrawnShapes,
    Kind,
    Tableau,
    join,
    make_shapes,
)
from touchline.errors import UsageError
from touchline.parameters import Gaussian, Parameter, ParameterValue, Sampler
from touchline.physics.kernels import compiled
from touchline.physics.shapes import Floats
from touchline.physics.world import Arrays
from touchline.scenes.academy import Agents
from touchline.scenes.match3.rules import (
    COLUMNS,
    EMPTY,
    LINE,
    MOVES,
    ROWS,
    SPECIALS,
    TYPES,
    Cells,
    deal,
    find_moves,
    greedy_move,
    make_move,
    move_names,
    random_move,
    settle,
)
from touchline.scenes.random import StreamArrays, Streams, draw
from touchline.scenes.scene import ActionNames, ParameterReader, Scene
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

VECTOR, VISUAL = "Match3VectorObs?team=0", "Match3VisualObs?team=0"
SIMPLE, SMART = "Match3SimpleHeuristic?team=0", "Match3SmartHeuristic?team=0"
BOARDS = (VECTOR, VECTOR, VISUAL, VISUAL, SIMPLE, SMART)
"""The behaviors of an area's boards: half of Unity's scene."""
MAX_MOVES = 500
POINT_REWARD = 0.01  # Match3Agent.cs, k_RewardMultiplier
SMALLEST_ROWS, SMALLEST_COLUMNS = 6, 6
"""Size of the smallest boards that Unity's scene deals; the largest are the maximum."""
BY_ACTION, AT_RANDOM, GREEDY = range(3)
"""Who chooses a board's moves."""
PIECE_COLORS = np.array([RED, BLUE, GREEN, YELLOW, PURPLE, ORANGE])
SPECIAL_COLORS = np.array([WHITE, WHITE, DARK])
BOARDS_ACROSS = 3
SPACING_M = np.array([COLUMNS + 1.5, ROWS + 1.5])
"""Distance from one board to the next."""
PIECE_RADIUS_M, DOT_RADIUS_M, PLATE_DEPTH_M = 0.42, 0.16, 0.2
CAMERA = Camera(
    eye=(0.0, 0.0, -64.0),
    target=(0.0, 0.0, 0.0),
    field_of_view_deg=20.0,
    extent_m=32.0,
)


def _spec(is_visual: bool) -> BehaviorSpec:
    sensors = []
    for name, depth in (("cells", TYPES), ("special", SPECIALS)):
        full_name = f"Match3 Sensor ({name})"
        sensor = ObservationSpec.vector(ROWS * COLUMNS * depth, full_name)
        if is_visual:
            sensor = ObservationSpec.picture((depth, ROWS, COLUMNS), full_name)
        sensors.append(sensor)
    return BehaviorSpec(tuple(sensors), ActionSpec.create_discrete([MOVES]))


class Boards(NamedTuple):
    """The boards of all areas, for kernels: B = 6 A."""

    size: NDArray[np.int64]
    """[B, 2] rows and columns in use."""
    kind: Cells
    """[B, 9, 8] types, `EMPTY` outside of the board."""
    special: Cells
    """[B, 9, 8]"""
    valid: NDArray[np.bool_]
    """[B, 127] the moves on offer."""
    has_decided: NDArray[np.bool_]
    """[B] whether there is a move to make."""
    player: NDArray[np.int8]
    """[B] `BY_ACTION`, `AT_RANDOM` or `GREEDY`."""
    action: NDArray[np.int32]
    """[B] stored actions: a view."""
    reward: NDArray[np.float32]
    """[B]: a view."""


class Match3(Scene):
    """Swap neighboring pieces on a board to make lines of three.

    | observation | vector form | visual form | meaning |
    | --- | --- | --- | --- |
    | `Match3 Sensor (cells)` | (432,) | (6, 9, 8) | one-hot of each cell's type |
    | `Match3 Sensor (special)` | (216,) | (3, 9, 8) | one-hot: plain, first, second special |

    Cell (r, c) of the vector form begins at (8 r + c) times 6 or 3; row 0 is the bottom. Cells
    outside of a smaller board are zeros. `Match3VisualObs` has the visual form, the others the
    vector form.

    Action, one branch of 127: below 63, swap the piece in row i // 7, column i % 7 with its right
    neighbor; then j = i - 63, swap row j // 8, column j % 8 with the upper one. Moves that make no
    line are masked. The two heuristics choose their moves themselves: any valid one, or the one
    with most points at once.

    Reward: 0.01 per point; a cleared piece has 1 point, 2 or 3 if it is special. After 499 moves
    (the first episode: 500) the episode is interrupted.
    """

    name = "Match3"
    action_names = ActionNames(branches=[move_names()])
    unity_areas = 2
    behaviors = {
        name: _spec(is_visual=name == VISUAL) for name in dict.fromkeys(BOARDS)
    }
    agents_per_area = len(BOARDS)
    decision_period = 1
    parameters = {
        "rows": Parameter(0.0, 0.0, ROWS, "rows of the board, 0: 6 to 9 at random"),
        "columns": Parameter(
            0.0, 0.0, COLUMNS, "columns of the board, 0: 6 to 8 at random"
        ),
    }

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        # Agents request their decisions: one whose episode has just ended skips a step. No clock
        # gets as far as this period.
        self.academy.decision_period = np.iinfo(np.int64).max
        boards = num_areas * len(BOARDS)
        # Boards have nothing in common, so each has a stream of its own.
        self.streams = Streams(boards)
        self.parameter_values = ParameterReader(
            self.name, self.parameters, self.streams
        )
        self.moves = np.zeros(boards, np.int64)
        """[B] updates of the running episode; each but the last lets the agent decide."""
        players = {SIMPLE: AT_RANDOM, SMART: GREEDY}
        player = [players.get(name, BY_ACTION) for name in BOARDS]
        self.boards = Boards(
            size=np.zeros((boards, 2), np.int64),
            kind=np.full((boards, ROWS, COLUMNS), EMPTY, np.int8),
            special=np.zeros((boards, ROWS, COLUMNS), np.int8),
            valid=np.zeros((boards, MOVES), np.bool_),
            has_decided=np.zeros(boards, np.bool_),
            player=np.tile(np.array(player, np.int8), num_areas),
            action=self.academy.discrete.reshape(-1),
            reward=self.academy.reward.reshape(-1),
        )
        self.restart()

    def arrays(self) -> Arrays:
        names = ("size", "kind", "special", "valid", "has_decided")
        boards = {name: getattr(self.boards, name) for name in names}
        return boards | {"moves": self.moves}

    def capacity(self, behavior: str) -> int:
        return self.num_areas * BOARDS.count(behavior)

    def set_parameter(self, name: str, value: ParameterValue) -> None:
        """Set a parameter; a board on which no line fits has no valid move."""
        if name in self.parameters:
            if isinstance(value, Sampler):
                # The draws of a normal distribution have no end.
                least = 0.0 if isinstance(value, Gaussian) else value.bounds[0]
                is_playable = least >= LINE
            else:
                is_playable = not 0.0 < float(value) < LINE
            if not is_playable:
                raise UsageError(
                    f"{self.name}: parameter {name!r} takes 0, or {LINE} and more as a number or "
                    f"from a sampler with ends, got {value}"
                )
        super().set_parameter(name, value)

    # reset

    def restart(self) -> None:
        names = list(self.behaviors)
        self.academy.behavior[:] = [names.index(name) for name in BOARDS]

    def begin_episodes(self, agents: Agents) -> None:
        """Deal new boards; the first decision comes with the next update."""
        self.streams.next_episode(agents)
        u = self.streams.uniform(agents, 2)
        lengths = (
            ("rows", SMALLEST_ROWS, ROWS),
            ("columns", SMALLEST_COLUMNS, COLUMNS),
        )
        for k, (name, least, most) in enumerate(lengths):
            given = self.parameter_values.read(name, agents).astype(np.int64)
            num_lengths = most - least + 1
            drawn = least + (u[:, k] * num_lengths).astype(np.int64)
            # 0 stands for a length that every episode draws.
            self.boards.size[agents, k] = np.where(given > 0, given, drawn)
        streams = self.streams.arrays()
        for board in agents:
            _deal(board, self.boards, streams)
        self.moves[agents] = 0
        # At the start of a world all agents decide at once.
        self.boards.has_decided[agents] = self.academy.clock == 0

    # observe

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        boards = self.boards
        is_visual = behavior == VISUAL
        cells = _one_hot(agents, boards.kind, boards.kind, TYPES, is_visual)
        special = _one_hot(agents, boards.special, boards.kind, SPECIALS, is_visual)
        return [cells, special]

    def action_mask(self, behavior: str, agents: Agents) -> list[NDArray[np.bool_]]:
        return [~self.boards.valid[agents]]

    # play

    def act(self) -> None:
        """Make the moves, clear what they lined up, and request the next decisions."""
        academy = self.academy
        boards = self.boards
        if academy.clock == 0:  # after a RESET no agent has decided yet
            boards.has_decided.fill(False)
        streams = self.streams.arrays()
        self._threads.run(_play_boards, len(self.moves), boards, streams)
        self.moves += 1
        academy.requested.fill(True)
        boards.has_decided.fill(True)
        # The last update's request is withdrawn, because the episode ends in the same update.
        overdue = np.flatnonzero(self.moves >= MAX_MOVES)
        if len(overdue):
            academy.end(self, overdue, interrupted=True)
            academy.requested.reshape(-1)[overdue] = False
            self.begin_episodes(overdue)

    def agent_shapes(self) -> NDArray[np.intp]:
        return np.empty(0, np.intp)  # agents move tiles from outside the boards

    def tableau(self, area: int) -> Tableau:
        count = len(BOARDS)
        own = slice(area * count, (area + 1) * count)
        return Tableau(
            static=_plates(count),
            moving=_pieces(self.boards.kind[own], self.boards.special[own]),
            camera=CAMERA,
            light=Light(0.89, sun=0.0),
        )


def _one_hot(
    agents: Agents, values: Cells, kind: Cells, depth: int, is_visual: bool
) -> NDArray[np.float32]:
    """The values of the boards' cells as one-hots: [K, 72 depth], or [K, depth, 9, 8]."""
    count = len(agents)
    shape = (depth, ROWS, COLUMNS) if is_visual else (ROWS, COLUMNS, depth)
    one_hot = np.zeros((count, *shape), np.float32)
    # With the depth last in either form.
    view = one_hot.transpose(0, 2, 3, 1) if is_visual else one_hot
    _fill_one_hot(agents, values, kind, view)
    return one_hot if is_visual else one_hot.reshape(count, -1)


@compiled
def _fill_one_hot(
    agents: Agents, values: Cells, kind: Cells, one_hot: NDArray[np.float32]
) -> None:
    for k in range(len(agents)):
        board = agents[k]
        for row in range(ROWS):
            for column in range(COLUMNS):
                if kind[board, row, column] != EMPTY:
                    one_hot[k, row, column, values[board, row, column]] = 1.0


@compiled
def _deal(board: int, boards: Boards, streams: StreamArrays) -> None:
    rows, columns = boards.size[board]
    kind = boards.kind[board]
    special = boards.special[board]
    deal(kind, special, boards.valid[board], rows, columns, streams, board)


@compiled
def _play_boards(first: int, last: int, boards: Boards, streams: StreamArrays) -> None:
    """Make the moves that were decided on; then the next update of these boards."""
    for board in range(first, last):
        kind = boards.kind[board]
        special = boards.special[board]
        valid = boards.valid[board]
        if boards.has_decided[board]:
            move = _choose(board, boards, streams)
            if valid[move]:
                make_move(kind, special, move)
        rows, columns = boards.size[board]
        points = settle(kind, special, rows, columns, streams, board)
        boards.reward[board] += np.float32(POINT_REWARD * points)
        # A board without moves would never change again.
        if find_moves(kind, valid) == 0:
            _deal(board, boards, streams)


@compiled
def _choose(board: int, boards: Boards, streams: StreamArrays) -> int:
    """The move of a board's player."""
    player = boards.player[board]
    if player == BY_ACTION:
        return int(boards.action[board])
    u = draw(streams, board)[0]
    if player == AT_RANDOM:
        return random_move(boards.valid[board], u)
    kind = boards.kind[board]
    special = boards.special[board]
    return greedy_move(kind, special, boards.valid[board], u)


def _corners(boards: int) -> Floats:
    """The lower left corner of each board, x and y, around the middle of them all: [B, 2]."""
    down, across = np.divmod(np.arange(boards), BOARDS_ACROSS)
    # Three boards across and two down: the middle of all is the origin.
    place = np.stack([across, -down], axis=1) + (-1.0, 0.5)
    middle = place * SPACING_M
    corners: Floats = middle - (COLUMNS / 2, ROWS / 2)
    return corners


def _plates(boards: int) -> DrawnShapes:
    """What stands behind the pieces."""
    middle = np.zeros((boards, 3))
    middle[:, :2] = _corners(boards) + (COLUMNS / 2, ROWS / 2)
    middle[:, 2] = PIECE_RADIUS_M + PLATE_DEPTH_M
    size = (COLUMNS / 2 + 0.2, ROWS / 2 + 0.2, PLATE_DEPTH_M / 2)
    return make_shapes(Kind.BOX, size, middle, WALL_COLOR)


def _pieces(kind: Cells, special: Cells) -> DrawnShapes:
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
