"""What scenes look like as data."""

import math
import subprocess
import sys

import numpy as np
import pytest

from touchline.drawing.look import BLUE, RED
from touchline.drawing.tableau import (
    Kind,
    box_shapes,
    eye_shapes,
    lowered,
    make_shapes,
    round_shapes,
)
from touchline.envs.env import EnvRecipe, make
from touchline.physics.frames import rotate, turn_about
from touchline.physics.shapes import ABSENT, ball, box, boxes, pillar, rounds
from touchline.scenes import SCENES
from touchline.testing import play_randomly


@pytest.mark.parametrize("scene", SCENES)
def test_a_tableau_is_finite_and_keeps_its_shapes_during_an_episode(scene):
    with make(EnvRecipe("scene", scene, num_areas=2)) as env:
        env.reset(seed=4)
        first = env.tableau(1)
        for _ in range(3):
            tableau = env.tableau(1)
            shapes = tableau.shapes
            count = len(shapes)
            assert count == len(tableau.static) + len(tableau.moving)
            assert shapes.size.shape == shapes.position.shape == (count, 3)
            assert shapes.rotation.shape == shapes.color.shape == (count, 4)
            assert np.isfinite(shapes.size).all()
            assert np.isfinite(shapes.position).all()
            assert (shapes.size >= 0.0).all()
            assert (shapes.color >= 0.0).all()
            assert (shapes.color <= 1.0).all()
            length = np.linalg.norm(shapes.rotation, axis=1)
            np.testing.assert_allclose(length, 1.0, atol=1e-6)
            assert shapes.shown.any()
            assert (shapes.kind == first.shapes.kind).all()
            np.testing.assert_equal(vars(first.static), vars(tableau.static))
            play_randomly(env, 2)


def test_a_tableau_is_a_copy():
    with make(EnvRecipe("scene", "Basic")) as env:
        env.reset(seed=0)
        before = env.tableau()
        position = before.moving.position.copy()
        play_randomly(env, 5)
        assert (before.moving.position == position).all()
        assert (env.tableau().moving.position != position).any()


def test_data_of_a_scene_without_mujoco_physics_needs_no_mujoco():
    code = """
import sys
from touchline.envs.env import make
with make("Basic") as env:
    env.reset(seed=0)
    assert len(env.tableau().shapes) == 23
assert "mujoco" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_box_row_becomes_a_box_that_is_turned_as_its_yaw_says():
    rows = boxes(
        box((1.0, 2.0, 3.0), (2.0, 4.0, 6.0), yaw_deg=90.0), box((0, 0, 0), (1, 1, 1))
    )
    rows[1, -1] = ABSENT
    shapes = box_shapes(rows, [BLUE, RED])
    assert shapes.kind.tolist() == [Kind.BOX, Kind.BOX]
    assert shapes.size[0].tolist() == [1.0, 2.0, 3.0]
    assert shapes.shown.tolist() == [True, False]
    np.testing.assert_allclose(shapes.color, [BLUE, RED])
    # A yaw is clockwise seen from above: what faced ahead (z) then faces right (x).
    ahead = rotate(shapes.rotation[0], np.array([0.0, 0.0, 1.0]))
    np.testing.assert_allclose(ahead, [1.0, 0.0, 0.0], atol=1e-12)


def test_round_rows_become_spheres_and_upright_capsules():
    shapes = round_shapes(
        rounds(ball((0, 1, 0), 0.5), pillar((0, 1, 0), 0.5, 3.0)), BLUE
    )
    assert shapes.kind.tolist() == [Kind.SPHERE, Kind.CAPSULE]
    assert shapes.size.tolist() == [[0.5, 0.5, 0.5], [0.5, 1.0, 0.5]]


def test_eyes_are_on_the_side_that_an_agent_faces_and_vanish_with_it():
    rows = boxes(
        box((5.0, 0.0, 0.0), (1, 1, 1)), box((0.0, 0.0, 0.0), (1, 1, 1), ABSENT)
    )
    eyes = eye_shapes(rows, np.array([math.pi / 2, 0.0]))
    assert eyes.shown.tolist() == [True, True, False, False]
    np.testing.assert_allclose(eyes.position[:2, 0], 5.475)  # it faces +x
    np.testing.assert_allclose(eyes.position[:2, 2], [0.2, -0.2])
    np.testing.assert_allclose(eyes.position[2:, 2], 0.475)  # this one faced +z


def test_shapes_attached_to_a_body_turn_with_it():
    arm = make_shapes(Kind.SPHERE, 0.1, (0.0, 0.0, 1.0), BLUE)
    quarter = turn_about(1, np.array(math.pi / 2))
    moved = arm.attached_to(np.array([10.0, 0.0, 0.0]), quarter)
    np.testing.assert_allclose(moved.position, [[11.0, 0.0, 0.0]], atol=1e-12)
    np.testing.assert_allclose(moved.rotation, [quarter], atol=1e-12)


def test_walls_are_cut_off_from_above():
    rows = boxes(box((1.0, 2.0, 3.0), (1.0, 5.0, 1.0)), box((0.0, 0.0, 0.0), (1, 1, 1)))
    low = lowered(rows, 1.0)
    bottom, top = low[:, 1] - low[:, 4], low[:, 1] + low[:, 4]
    assert bottom.tolist() == [-0.5, -0.5]
    assert top.tolist() == [1.0, 0.5]
    assert rows[0, 1] == 2.0, "the boxes of the physics are as they were"
