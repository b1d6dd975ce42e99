"""Upright boxes against laws worked by hand, and against every logged step of Unity's PushBlock."""

import math

import numpy as np
import pytest

from touchline.physics.shapes import ABSENT, box, boxes
from touchline.physics.threads import Threads
from touchline.physics.upright.boxes import Body, BoxWorld, box_gap, step_boxes
from touchline.physics.upright.contacts import (
    MAX_CONTACTS,
    MU,
    TOUCH_M,
    Contacts,
    new_records,
)
from touchline.physics.world import DT_S, GRAVITY
from touchline.scenes import push_block, scene_class
from touchline.scenes.cube_agents import move_cube

FLOOR = box((0, -0.5, 0), (50, 1, 50))


def world(*bodies, fixed=(FLOOR,), placed=(), gravity=GRAVITY):
    return BoxWorld(1, boxes(*fixed), bodies, placed, gravity, Threads(1))


def cube(place, *, mass=10.0, drag=0.0, **options):
    return Body(box(place, (1, 1, 1)), mass, drag, **options)


def test_free_flight_follows_the_rule_of_drag():
    made = world(cube((0, 5, 0), drag=2.0))
    made.velocity[0, 0, :3] = 3.0, 1.0, -2.0
    made.step()
    keep = 1 - 2.0 * DT_S
    expected = np.array([3.0, 1.0 - GRAVITY * DT_S, -2.0]) * keep
    np.testing.assert_allclose(made.velocity[0, 0, :3], expected, rtol=1e-12)
    np.testing.assert_allclose(
        made.boxes[0, 0, :3], [0, 5, 0] + expected * DT_S, rtol=1e-12
    )


def test_a_flat_floor_brakes_with_twice_the_coefficient():
    made = world(cube((0, 0.5, 0)))
    made.velocity[0, 0, [0, 2]] = 3.0, 4.0
    made.step()
    speed = math.hypot(*made.velocity[0, 0, [0, 2]])
    assert speed == pytest.approx(5.0 - 2 * MU * GRAVITY * DT_S)
    assert made.velocity[0, 0, 0] / made.velocity[0, 0, 2] == pytest.approx(0.75)
    made.step(60)
    np.testing.assert_allclose(made.velocity[0, 0], 0.0, atol=1e-9)


def test_the_steady_speed_of_a_pushed_cube_is_where_push_meets_drag_and_friction():
    # v* = (p - μ g dt)(1 - k dt) / (k dt): 31 m/s in PushBlock
    made = world(cube((0, 0.5, 0), drag=4.0), gravity=2.5 * GRAVITY)
    made.friction[:] = 0.3
    for _ in range(400):
        made.velocity[0, 0, 0] += 3.0
        made.boxes[0, 0, 0] = 0.0
        made.step()
    assert made.velocity[0, 0, 0] == pytest.approx(
        (3.0 - 0.6 * 2.5 * GRAVITY * DT_S) * 0.92 / 0.08, rel=0.01
    )


def test_approach_is_limited_to_four_fifths_of_the_gap():
    made = world(cube((0, 0.51, 0)), gravity=0.0)
    made.velocity[0, 0, 1] = -10.0
    made.step()
    assert made.velocity[0, 0, 1] == pytest.approx(-0.8 * 0.01 / DT_S)
    assert made.boxes[0, 0, 1] == pytest.approx(0.502)


def test_penetration_is_removed_by_four_fifths_and_leaves_no_speed():
    made = world(cube((0, 0.2, 0)), gravity=0.0)
    made.velocity[0, 0, 1] = -10.0
    made.step()
    assert made.boxes[0, 0, 1] == pytest.approx(0.2 + 0.8 * 0.3)
    assert made.velocity[0, 0, 1] == pytest.approx(0.0, abs=1e-9)


def test_a_body_beyond_the_contact_offset_is_not_touched():
    made = world(cube((0, 0.5 + TOUCH_M, 0)), gravity=0.0)
    made.velocity[0, 0, 1] = -10.0
    made.step()
    assert made.velocity[0, 0, 1] == -10.0, (
        "it will be deep inside before it is noticed"
    )


@pytest.mark.parametrize("turns", [False, True])
def test_two_boxes_in_the_air_keep_their_momentum(turns):
    made = world(
        cube((0, 5, 0), mass=2.0, turns=turns),
        cube((0.9, 5.1, 0.3), mass=5.0, turns=turns),
        gravity=0.0,
    )
    made.velocity[0, 0, :3] = 4.0, 0.5, -1.0
    made.velocity[0, 1, :3] = -3.0, 0.0, 0.7
    before = 2.0 * made.velocity[0, 0, :3] + 5.0 * made.velocity[0, 1, :3]
    made.step()
    np.testing.assert_allclose(
        2.0 * made.velocity[0, 0, :3] + 5.0 * made.velocity[0, 1, :3], before, rtol=1e-9
    )
    if not turns:
        assert made.velocity[0, 0, 0] <= made.velocity[0, 1, 0] + 1e-6, (
            "they do not approach any more"
        )


def test_a_blow_beside_the_middle_turns_a_free_box_and_only_that():
    for turns in (True, False):
        made = world(
            cube((0, 5, 0), turns=turns),
            fixed=[box((0.8, 5, 1.0), (1, 1, 1))],
            gravity=0.0,
        )
        made.velocity[0, 0, 2] = 5.0
        made.step()
        assert (made.velocity[0, 0, 4] != 0.0) == turns
        assert (made.yaw[0, 0] != 0.0) == turns


def test_an_absent_body_neither_moves_nor_is_touched():
    made = world(cube((0, 5, 0)), cube((0, 5.5, 0)))
    made.boxes[0, 1, -1] = ABSENT
    made.velocity[0, 1, :3] = 9.0
    made.step()
    assert made.boxes[0, 1, 1] == 5.5
    assert made.velocity[0, 0, 1] == pytest.approx(-GRAVITY * DT_S)


def test_the_widest_gap_counts_so_distant_boxes_do_not_touch():
    far = np.array(box((5.0, 0.5, 0.0), (1, 1, 1)))
    long_wall = np.array(box((0.0, 0.5, 1.01), (4, 1, 1)))
    assert box_gap(far, long_wall)[0] > 2.0
    touching = np.array(box((1.0, 0.5, 0.0), (1, 1, 1)))
    gap, nx, ny, nz, _ = box_gap(touching, long_wall)
    assert gap == pytest.approx(0.01)
    assert (nx, ny, nz) == (0.0, 0.0, -1.0)


def test_logged_steps_of_push_block_are_met(push_block_log):
    """Median 0, 95 % below 0.01 m/s, where the issue asks for a median of 0.02 m/s; and
    no body leaves the floor.
    """
    log = push_block_log
    whole = push_block.PushBlock(1, 1)
    whole.begin_episodes(np.array([0]))
    scene = whole.world
    records, moving, gaps = (
        new_records(),
        np.zeros((3, 6)),
        np.zeros_like(scene.gaps[0]),
    )
    errors, pushing, upward = [], [], []
    for t in np.flatnonzero(log.replayable):
        shapes, yaw, velocity = (
            scene.boxes[0].copy(),
            log.yaw[t].copy(),
            np.zeros((3, 6)),
        )
        shapes[:, :3], velocity[:2, :3] = log.position[t], log.velocity[t]
        shapes[:, 6], shapes[:, 7] = np.cos(yaw), np.sin(yaw)
        move_cube(
            log.action[t + 1],
            0,
            push_block.RUN_SPEED_MPS,
            push_block.TURN_RAD,
            shapes,
            yaw,
            velocity,
        )
        step_boxes(
            Contacts(records, velocity, scene.inverse),
            push_block.FIXED,
            shapes,
            yaw,
            np.array([4.0, 0.5]),
            2.5 * GRAVITY,
            scene.friction[0],
            moving,
            gaps,
        )
        errors.append(
            np.linalg.norm(velocity[:2, :3] - log.velocity[t + 1], axis=1).max()
        )
        pushing.append(gaps[0, -1] < TOUCH_M)
        upward.append(np.abs(velocity[:2, 1] - log.velocity[t + 1, :, 1]).max())
    errors, pushing = np.array(errors), np.array(pushing)
    assert len(errors) > 10_000
    assert np.median(errors[pushing]) < 0.002
    assert np.percentile(errors, 95) < 0.01
    assert np.percentile(upward, 99.5) < 0.001


@pytest.mark.parametrize(
    ("scene", "pairs"),
    [
        ("CooperativePushBlock", 81),
        ("DungeonEscape", 45),
        ("Hallway", 11),
        ("PushBlock", 13),
        ("Sorter", 69),
        ("WallJump", 4),
    ],
)
def test_there_is_room_for_the_contact_of_every_pair(scene, pairs):
    made = scene_class(scene)(1).world
    bodies, fixed = len(made.yaw[0]), len(made.fixed)
    touching = made.friction[0, :, :, 1] >= 0.0
    among = np.triu(touching[:, fixed : fixed + bodies], 1)
    others = touching[:, :fixed].sum() + touching[:, fixed + bodies :].sum()
    assert among.sum() + others == pairs
    assert pairs <= MAX_CONTACTS
