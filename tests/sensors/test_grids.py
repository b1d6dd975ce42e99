"""The grid sensor against hand-worked cells, and against checking each cell for overlaps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from touchline.physics.shapes import ABSENT, UNTAGGED, ball, box, pillar
from touchline.physics.threads import Threads
from touchline.sensors.grids import GridSensor, GridView, bounds_of

TAGS = ["food", "agent", "wall", "unlisted"]
SENSOR = GridSensor(TAGS, TAGS[:3], cells=(40, 40), cell_m=(1.0, 0.01, 1.0))
FOOD, AGENT, WALL, UNLISTED = range(4)


Shapes = Sequence[list[float]]


def grid_of(
    *,
    boxes: Shapes = (),
    rounds: Shapes = (),
    fixed: Shapes = (),
    x: float = 0.0,
    y: float = 1.0,
    z: float = 0.0,
    yaw_deg: float = 0.0,
    size: float = 1.0,
    own: int = -1,
    sensor: GridSensor = SENSOR,
) -> NDArray[np.float32]:
    """One agent's grid, [tags, X, Z]."""
    bounds = [bounds_of(*fixed)] * len(fixed) if fixed else []
    view = GridView(
        areas=np.array([0]),
        eyes=np.array([[x, y, z, math.radians(yaw_deg), size]]),
        own_box=np.array([own]),
        fixed=np.array(fixed, float).reshape(-1, 9),
        fixed_bounds=np.array(bounds, float).reshape(-1, 6),
        boxes=np.array(boxes, float).reshape(1, -1, 9),
        rounds=np.array(rounds, float).reshape(1, -1, 6),
    )
    return sensor.read(Threads(1), np.array([0]), view)[0]


def cells(grid: NDArray[np.float32], tag: int) -> list[tuple[int, int]]:
    """The (row, column) pairs that a channel marks."""
    return [(int(h), int(w)) for h, w in np.argwhere(grid[tag])]


def test_cells_are_drawn_around_what_they_detect() -> None:
    """One small ball 3.5 m to the right and 10.5 m ahead of an agent that looks along -x."""
    # Facing -x, ahead is -x and the right is +z.
    x, z = 5.0 - 10.5, 2.0 + 3.5
    view = GridView(
        areas=np.array([0]),
        eyes=np.array([[5.0, 1.0, 2.0, math.radians(-90.0), 1.0]]),
        own_box=np.array([-1]),
        fixed=np.zeros((0, 9)),
        fixed_bounds=np.zeros((0, 6)),
        boxes=np.zeros((1, 0, 9)),
        rounds=np.array([[ball((x, 1.0, z), 0.2, FOOD)]]),
    )
    seen = SENSOR.cells(Threads(1), 0, view)
    assert seen.tag.tolist() == [FOOD]
    corners = seen.corners[0]
    np.testing.assert_allclose(corners.mean(axis=0), [x, 1.0, z], atol=1e-9)
    sides = np.roll(corners, -1, axis=0) - corners
    np.testing.assert_allclose(np.linalg.norm(sides, axis=1), 1.0)


def test_rows_run_from_right_to_left_and_columns_from_behind_to_ahead() -> None:
    # A small ball 3.5 m to the right and 10.5 m ahead: cell i = 19.5 + 3.5 = 23, j = 30; row 39 -
    # 23.
    assert cells(grid_of(rounds=[ball((3.5, 1.0, 10.5), 0.2, FOOD)]), FOOD) == [
        (16, 30)
    ]
    assert cells(grid_of(rounds=[ball((-3.5, 1.0, -10.5), 0.2, FOOD)]), FOOD) == [
        (23, 9)
    ]


def test_the_grid_turns_with_its_agent() -> None:
    # Facing right (yaw 90), what lies at +x is ahead; what lies at -z is to the right.
    assert cells(
        grid_of(rounds=[ball((10.5, 1.0, 0.5), 0.2, FOOD)], yaw_deg=90), FOOD
    ) == [(20, 30)]
    assert cells(
        grid_of(rounds=[ball((0.5, 1.0, -7.5), 0.2, FOOD)], yaw_deg=90), FOOD
    ) == [(12, 20)]


def test_a_resting_food_ball_covers_the_cells_its_circle_meets() -> None:
    # Radius 0.75, center 0.25 above the slice of ±0.01: circle sqrt(0.75² - 0.24²) = 0.7106, so a
    # ball in the
    # middle of a cell reaches into its four neighbors (0.5 away) and, since 0.5 sqrt(2) = 0.7071,
    # into the corners.
    near = cells(grid_of(rounds=[ball((0.5, 1.25, 0.5), 0.75, FOOD)]), FOOD)
    assert near == [
        (18, 19),
        (18, 20),
        (18, 21),
        (19, 19),
        (19, 20),
        (19, 21),
        (20, 19),
        (20, 20),
        (20, 21),
    ]
    # 1 cm further up the circle is 0.7071 less a bit: the corners are lost, the neighbors stay.
    assert len(cells(grid_of(rounds=[ball((0.5, 1.28, 0.5), 0.75, FOOD)]), FOOD)) == 5
    # A falling ball is not detected until it is within 0.76 m of the slice.
    assert not cells(grid_of(rounds=[ball((0.5, 1.77, 0.5), 0.75, FOOD)]), FOOD)
    assert cells(grid_of(rounds=[ball((0.5, 1.755, 0.5), 0.75, FOOD)]), FOOD) == [
        (19, 20)
    ]


def test_cells_are_spread_by_the_agents_size_but_not_grown() -> None:
    big = {"size": 2.0, "y": 1.5}
    assert cells(grid_of(rounds=[ball((3.0, 1.5, 5.0), 0.2, FOOD)], **big), FOOD) == [
        (18, 22)
    ]
    # Between four cells.
    assert not cells(grid_of(rounds=[ball((4.0, 1.5, 6.0), 0.2, FOOD)], **big), FOOD)


def test_own_box_and_untagged_unlisted_and_absent_things_are_not_detected() -> None:
    there = [
        box((0.5, 1, 0.5), (1, 1, 1), tag)
        for tag in (AGENT, UNTAGGED, UNLISTED, ABSENT)
    ]
    assert not grid_of(boxes=there, own=0).any()
    assert grid_of(boxes=there, own=1)[AGENT].any()


def test_the_nearer_of_two_things_in_a_cell_wins() -> None:
    near, far = (
        ball((5.4, 1.0, 0.5), 0.2, FOOD),
        box((5.9, 1.0, 0.5), (0.1, 1, 0.1), AGENT),
    )
    grid = grid_of(rounds=[near], boxes=[far])
    assert grid[FOOD, 14, 20] == 1
    assert grid[AGENT, 14, 20] == 0


def test_a_wall_whose_bounds_fill_the_court_loses_to_what_lies_before_the_cells_center() -> (
    None
):
    ring = [box((20, 1, 0), (2, 4, 42), WALL), box((-20, 1, 0), (2, 4, 42), WALL)]
    cell = (20 - 20, 20)  # i = 39: x from 19 to 20, ahead 0 to 1
    assert grid_of(fixed=ring)[WALL][cell[0], cell[1]] == 1
    before = grid_of(fixed=ring, rounds=[ball((19.1, 1.0, 0.5), 0.2, FOOD)])
    assert (before[FOOD, 0, 20], before[WALL, 0, 20]) == (1, 0)
    behind = grid_of(fixed=ring, rounds=[ball((19.9, 1.0, 0.5), 0.2, FOOD)])
    assert (behind[FOOD, 0, 20], behind[WALL, 0, 20]) == (0, 1)


def _overlaps(
    cell: NDArray[np.float64],
    half: float,
    yaw: float,
    shape: list[float],
    is_round: bool,
    y: float,
) -> bool:
    """Whether a cell's square (corners by hand) meets a shape: nearest point for circles, separating
    axes for boxes.
    """
    right, ahead = (
        np.array([math.cos(yaw), -math.sin(yaw)]),
        np.array([math.sin(yaw), math.cos(yaw)]),
    )
    offset = np.array([shape[0], shape[2]]) - cell
    if is_round:
        off = max(abs(shape[1] - y) - shape[4] - 0.01, 0)
        local = np.array([offset @ right, offset @ ahead])
        return bool(
            np.hypot(*np.maximum(np.abs(local) - half, 0))
            < math.sqrt(max(shape[3] ** 2 - off**2, 0))
        )
    if abs(shape[1] - y) > shape[4] + 0.01:
        return False
    mine = np.array([right, ahead])
    theirs = np.array([[shape[6], -shape[7]], [shape[7], shape[6]]])
    sizes = np.array([shape[3], shape[5]])
    for axis in (*mine, *theirs):
        if abs(offset @ axis) > half * np.abs(mine @ axis).sum() + sizes @ np.abs(
            theirs @ axis
        ):
            return False
    return True


@pytest.mark.parametrize("seed", range(4))
def test_drawing_shapes_gives_the_same_as_checking_each_cell(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sensor = GridSensor(TAGS, TAGS[:3], cells=(11, 16), cell_m=(1.0, 0.01, 1.0))
    x, z, yaw, size = (
        *rng.uniform(-3, 3, 2),
        rng.uniform(-180, 180),
        rng.uniform(0.7, 1.5),
    )
    places = rng.uniform((-9, 0.5, -9), (9, 1.5, 9), (30, 3))
    shapes = [
        box(p, rng.uniform(0.3, 4, 3), int(rng.integers(3)), rng.uniform(0, 360))
        for p in places[:10]
    ]
    circles = [
        pillar(p, rng.uniform(0.2, 2), 2.0, int(rng.integers(3))) for p in places[10:]
    ]
    grid = grid_of(
        boxes=shapes, rounds=circles, x=x, z=z, yaw_deg=yaw, size=size, sensor=sensor
    )
    turn = math.radians(yaw)
    for i in range(11):
        for j in range(16):
            right, ahead = (i - 5) * size, (j - 7.5) * size
            cell = np.array(
                [
                    x + right * math.cos(turn) + ahead * math.sin(turn),
                    z - right * math.sin(turn) + ahead * math.cos(turn),
                ]
            )
            best, winner = math.inf, -1
            for shape, is_round in [
                *((s, False) for s in shapes),
                *((s, True) for s in circles),
            ]:
                if _overlaps(cell, 0.5, turn, shape, is_round, 1.0):
                    low = np.array(
                        bounds_of(shape) if not is_round else _round_bounds(shape)
                    )
                    nearest = np.clip([cell[0], 1.0, cell[1]], low[:3], low[3:]) - (
                        x,
                        1.0,
                        z,
                    )
                    if nearest @ nearest < best:
                        best, winner = nearest @ nearest, int(shape[-1])
            assert np.flatnonzero(grid[:, 10 - i, j]).tolist() == (
                [winner] if winner >= 0 else []
            ), (i, j)


def _round_bounds(shape: list[float]) -> list[float]:
    half = np.array([shape[3], shape[3] + shape[4], shape[3]])
    return [*(np.array(shape[:3]) - half), *(np.array(shape[:3]) + half)]


def test_bounds_of_several_boxes_hold_them_all() -> None:
    assert bounds_of(
        box((0, 0, 0), (2, 2, 2)), box((5, 1, 0), (2, 2, 4), yaw_deg=90)
    ) == pytest.approx([-1, -1, -1, 7, 2, 1])


def test_one_thread_or_two_give_the_same() -> None:
    rng = np.random.default_rng(5)
    agents = np.arange(256)
    eyes = np.concatenate([rng.uniform(-5, 5, (256, 4)), np.ones((256, 1))], axis=1)
    rounds = np.array(
        [[ball(p, 0.75, FOOD) for p in rng.uniform(-9, 9, (20, 3))]] * 256
    )
    view = GridView(
        areas=np.zeros(256, int),
        eyes=eyes,
        own_box=np.full(256, -1),
        fixed=np.zeros((0, 9)),
        fixed_bounds=np.zeros((0, 6)),
        boxes=np.zeros((256, 0, 9)),
        rounds=rounds,
    )
    one, two = (
        SENSOR.read(Threads(1), agents, view),
        SENSOR.read(Threads(2), agents, view),
    )
    assert one.any()
    assert (one == two).all()
