"""Where boxes touch that are turned in every way."""

import math

import numpy as np
import pytest

from touchline.physics.ragdoll.lanes import columns
from touchline.physics.shapes import box
from touchline.physics.tumbling.touch import (
    CUBOID_COLUMNS,
    GAP,
    new_touching,
    part,
    set_upright,
    touch,
    touch_plane,
)
from touchline.physics.upright.boxes import box_gap


def cuboid(center, half=(0.5, 0.5, 0.5), turn=(0.0, 0.0, 0.0, 1.0)):
    x, y, z = columns.py_func(turn)
    return np.array([*center, *half, *x, *y, *z])


def random_turn(rng):
    turn = rng.normal(size=4)
    return tuple(turn / np.linalg.norm(turn))


def reach(own, direction):
    axes = own[6:].reshape(3, 3)
    return np.abs(axes @ direction) @ own[3:6]


def test_of_two_boxes_that_overlap_no_direction_parts_them_more_than_the_normal_does():
    rng = np.random.default_rng(0)
    room = new_touching()
    overlapping = 0
    for _ in range(300):
        a = cuboid(rng.uniform(-0.6, 0.6, 3), rng.uniform(0.3, 1, 3), random_turn(rng))
        b = cuboid(rng.uniform(-0.6, 0.6, 3), rng.uniform(0.3, 1, 3), random_turn(rng))
        gap, _ = part(a, b, room)
        if gap >= 0:
            continue
        overlapping += 1
        apart = a[:3] - b[:3]
        normal = room.normal
        assert np.linalg.norm(normal) == pytest.approx(1)
        along = normal @ apart - reach(a, normal) - reach(b, normal)
        assert along == pytest.approx(gap), "the normal points from b to a"
        for direction in rng.normal(size=(200, 3)):
            unit = direction / np.linalg.norm(direction)
            parted = abs(unit @ apart) - reach(a, unit) - reach(b, unit)
            assert parted <= gap + 0.006, "edges have a handicap of 5 mm"
    assert overlapping > 100


def test_upright_boxes_have_the_gap_that_the_upright_solver_finds():
    rng = np.random.default_rng(1)
    room = new_touching()
    for _ in range(200):
        rows = []
        cuboids = []
        for _ in range(2):
            place = rng.uniform(-1.5, 1.5, 3)
            size = rng.uniform(0.5, 2, 3)
            row = np.array(box(place, size, yaw_deg=rng.uniform(0, 360)))
            own = np.empty(CUBOID_COLUMNS)
            set_upright(own, row)
            rows.append(row)
            cuboids.append(own)
        gap, *normal, _ = box_gap(*rows)
        got, _ = part(*cuboids, room)
        if gap < 0.02:
            assert got == pytest.approx(gap, abs=1e-9)
            along = np.array(normal) @ room.normal
            assert abs(along) == pytest.approx(1)
        else:
            assert got >= 0.02


def test_a_cube_on_a_larger_one_touches_with_its_four_corners():
    room = new_touching()
    top = cuboid((0.2, 1.49, 0.1))
    base = cuboid((0, 0, 0), (1, 1, 1))
    for a, b, up in ((top, base, 1.0), (base, top, -1.0)):
        assert touch(a, b, room) == 4
        assert room.normal == pytest.approx([0, up, 0])
        assert room.points[:4, GAP] == pytest.approx([-0.01] * 4)
        places = {tuple(p) for p in np.round(room.points[:4, [0, 2]], 9)}
        assert places == {(-0.3, -0.4), (-0.3, 0.6), (0.7, -0.4), (0.7, 0.6)}
        assert room.points[:4, 1] == pytest.approx([0.995] * 4), "in the middle"


def test_a_face_that_overhangs_touches_where_both_faces_are():
    room = new_touching()
    assert touch(cuboid((0.7, 1.0, 0)), cuboid((0, 0, 0)), room) == 4
    assert room.points[:4, 0].min() == pytest.approx(0.2)
    assert room.points[:4, 0].max() == pytest.approx(0.5)


def test_a_turned_face_keeps_four_of_eight_corners_and_the_deepest_first():
    room = new_touching()
    eighth = math.pi / 8
    turn = (0.0, math.sin(eighth), 0.0, math.cos(eighth))
    assert touch(cuboid((0, 1.0, 0), turn=turn), cuboid((0, 0, 0)), room) == 4
    spread = room.points[:4, [0, 2]]
    assert np.ptp(spread, axis=0) == pytest.approx([1, 1], abs=0.45)
    tilt = (math.sin(0.01), 0.0, 0.0, math.cos(0.01))
    touch(cuboid((0, 0.995, 0), turn=tilt), cuboid((0, 0, 0)), room)
    assert room.points[0, GAP] == room.points[:2, GAP].min() < -0.01


def test_crossed_edges_touch_in_one_point():
    room = new_touching()
    eighth = math.pi / 8
    lying = (math.sin(eighth), 0.0, 0.0, math.cos(eighth))  # an edge along x on top
    upper = (0.0, 0.0, math.sin(eighth), math.cos(eighth))  # an edge along z below
    a = cuboid((0.1, math.sqrt(2) - 0.03, 0.2), turn=upper)
    assert touch(a, cuboid((0, 0, 0), turn=lying), room) == 1
    assert room.normal == pytest.approx([0, 1, 0])
    at = [0.1, math.sqrt(0.5) - 0.015, 0.0, -0.03]
    assert room.points[0] == pytest.approx(at)


@pytest.mark.parametrize(("tilt", "points"), [(0.0, 4), (0.2, 2)])
def test_a_cube_on_a_plane_touches_with_a_face_or_an_edge(tilt, points):
    room = new_touching()
    turn = (math.sin(tilt / 2), 0.0, 0.0, math.cos(tilt / 2))
    half = 0.5 * (math.cos(tilt) + math.sin(tilt))
    own = cuboid((3, half + 1.01, 2), turn=turn)
    assert touch_plane(own, (0.0, 1.0, 0.0), 1.0, room) == points
    assert room.points[:points, GAP] == pytest.approx([0.01] * points)
    own[1] += 0.02
    assert touch_plane(own, (0.0, 1.0, 0.0), 1.0, room) == 0
