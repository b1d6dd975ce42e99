"""Visual3DBall: where the camera shows cube and ball, its stack, and 3DBall's rules."""

import math
from itertools import pairwise

import numpy as np
import pytest

from touchline.envs.scene_env import SceneEnv
from touchline.scenes.ball_3d import Ball3D
from touchline.scenes.visual_ball_3d import BEHAVIOR, VisualBall3D
from touchline.specs import ActionTuple, DimensionProperty

PIXELS = 42 / math.tan(math.radians(30))
"""Half the picture's side over the tangent of half the field of view."""


def opened(cls=VisualBall3D, num_areas=1, seed=0):
    env = SceneEnv(cls(num_areas, 1), seed)
    env.reset()
    return env, env.scene


def level(scene, x, y, z):
    """A level cube, with the ball here in Unity's frame."""
    scene._quaternion[:] = 0.0, 0.0, 0.0, 1.0
    scene.world.qpos[:, :3] = x, z, y


def newest(scene):
    (obs,) = scene.observe(BEHAVIOR, np.array([0]))
    return obs[0, 9:]


def pixel_of(x, y, z):
    """Row and column of a point, from the prefab: eye (0, 7, -8), 30 degrees down."""
    up, ahead = y - 7.0, z + 8.0
    sin, cos = math.sin(math.radians(30)), math.cos(math.radians(30))
    depth = ahead * cos - up * sin
    height = up * cos + ahead * sin
    return 42 - PIXELS * height / depth, 42 + PIXELS * x / depth


def test_has_unitys_one_sensor_and_areas():
    env, scene = opened()
    (sensor,) = env.behaviors[BEHAVIOR].observation_specs
    assert (sensor.name, sensor.shape) == (
        "StackingSensor_size4_CameraSensor",
        (12, 84, 84),
    )
    equivariant = DimensionProperty.TRANSLATIONAL_EQUIVARIANCE
    assert sensor.dimension_property == (
        DimensionProperty.NONE,
        equivariant,
        equivariant,
    )
    assert scene.unity_areas == 8


@pytest.mark.parametrize("place", [(0, 3, 0), (2, 3, 2), (-1.5, 5, -1), (1, 4, 2)])
def test_the_ball_is_where_unitys_camera_shows_it(place):
    _, scene = opened()
    level(scene, *place)
    picture = newest(scene)
    is_ball = (picture[0] == picture[2]) & (picture[0] > 0.3)  # gray; the cube is blue
    row, column = np.argwhere(is_ball).mean(axis=0) + 0.5
    assert (row, column) == pytest.approx(pixel_of(*place), abs=0.7)
    distance = math.dist(place, (0, 7, -8))
    assert is_ball.sum() == pytest.approx(
        math.pi * (0.5 * PIXELS / distance) ** 2, rel=0.25
    )


def test_the_cubes_front_is_where_unitys_camera_shows_it():
    _, scene = opened()
    level(scene, 0, 30, 0)  # the ball is out of the picture
    picture = newest(scene)
    top, right = pixel_of(2.5, 2.5, -2.5)
    column = picture[2, :, 42]
    assert column[int(top) - 1] > column[int(top) + 2] > 0, "the top is lit brighter"
    row = np.flatnonzero(picture[2, int(top) + 2])
    assert (row[0], row[-1] + 1) == pytest.approx((84 - right, right), abs=1.0)
    back, _ = pixel_of(0, 2.5, 2.5)
    assert np.flatnonzero(column)[0] == pytest.approx(back, abs=1.0)
    assert not picture[:, 0].any(), "black where there is nothing"


def test_the_cubes_face_looks_at_the_camera():
    _, scene = opened()
    level(scene, 0, 30, 0)
    picture = newest(scene)
    for x, is_dark in ((-1.5, True), (0.0, False), (1.5, True)):
        row, column = pixel_of(x, 0.37, -2.5)
        assert (picture[2, int(row), int(column)] < 0.1) == is_dark


def test_four_decisions_are_stacked_oldest_first_in_whole_255ths():
    env, _ = opened(num_areas=2, seed=1)
    shown = []
    for _ in range(5):
        shown.append(env.steps(BEHAVIOR)[0].obs[0])
        env.step()
    assert not shown[0][:, :9].any(), "zeros before an episode's first picture"
    for before, after in pairwise(shown):
        np.testing.assert_array_equal(after[:, :9], before[:, 3:])
    levels = shown[-1] * 255.0
    np.testing.assert_allclose(levels, np.rint(levels), atol=1e-4)


def test_the_game_is_3dballs():
    paths = []
    for cls in (VisualBall3D, Ball3D):
        env, scene = opened(cls, num_areas=3, seed=4)
        (name,) = env.behaviors
        rng = np.random.default_rng(0)
        for _ in range(30):
            actions = rng.uniform(-1, 1, (3, 2)).astype(np.float32)
            if len(env.steps(name)[0]):
                env.set_actions(name, ActionTuple(actions))
            env.step()
        paths.append((scene.world.qpos.copy(), env.steps(name)[0].reward))
    np.testing.assert_array_equal(paths[0][0], paths[1][0])
    np.testing.assert_array_equal(paths[0][1], paths[1][1])


def test_two_threads_draw_what_one_draws():
    pictures = []
    for threads in (1, 2):
        env = SceneEnv(VisualBall3D(130, threads), 3)  # 64 of them for each thread
        env.reset()
        pictures.append(env.steps(BEHAVIOR)[0].obs[0][:, 9:])
        env.close()
    np.testing.assert_array_equal(*pictures)


@pytest.mark.parametrize("side", [-1, 1])
def test_the_headband_surrounds_the_cube_and_falls_to_its_right(side):
    """Source: `AgentCube_Blue.prefab`: center (0, 1.705, 0), half sizes (2.61, 0.482, 2.61), -1.892°."""
    _, scene = opened()
    level(scene, 0, 20, 0)
    tilt = math.radians(-1.892)
    x = side * 2.3
    edges = [1.705 + x * math.tan(tilt) + half for half in (0.482, -0.482)]
    top, bottom = (pixel_of(x, y, -2.61)[0] for y in edges)
    column = round(pixel_of(x, 1.705, -2.61)[1])
    picture = newest(scene)[:, :, column]
    # More red than blue: of all colors only the headband's.
    rows = np.flatnonzero(picture[0] > picture[2] + 0.1)
    assert rows.min() == pytest.approx(top, abs=1.0)
    assert rows.max() + 1 == pytest.approx(bottom, abs=1.0)
