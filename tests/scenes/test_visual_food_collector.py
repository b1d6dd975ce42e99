"""VisualFoodCollector: where the cameras show things, and GridFoodCollector's rules."""

import math

import numpy as np
import pytest

from touchline.envs.scene_env import SceneEnv
from touchline.physics.shapes import COS, SIN, X, Y, Z
from touchline.scenes.grid_food_collector.court import GOOD
from touchline.scenes.grid_food_collector.visual import BEHAVIOR, VisualFoodCollector

PIXELS = 42 / math.tan(math.radians(30))
"""Half the picture's side over the tangent of half the field of view."""
GREEN, RED, BLUE = 1, 0, 2


@pytest.fixture
def scene():
    env = SceneEnv(VisualFoodCollector(1, 1), 0)
    env.reset()
    scene = env.scene
    put_agent(scene, 0, 0.0, 0.0, 0.0)
    for g in range(1, 4):
        put_agent(scene, g, 0.0, -40.0 - g, 0.0)
    scene.courts.food[0, :, X] = 0.0
    scene.courts.food[0, :, Z] = -30.0
    scene.courts.food[0, :, Y] = 1.25
    yield scene
    env.close()


def put_agent(scene, g, x, z, yaw_deg):
    yaw = math.radians(yaw_deg)
    agent = scene.courts.agent[0, g]
    agent[[X, Y, Z]] = x, 1.0, z
    agent[[COS, SIN]] = math.cos(yaw), math.sin(yaw)
    scene.courts.yaw[0, g] = yaw


def picture(scene, g=0):
    return scene.observe(BEHAVIOR, np.array([g]))[0][0]


def pixel_of(right, up, ahead):
    """Row and column of a point, from the prefab: the eye 0.15 m ahead of the center, level."""
    depth = ahead - 0.15
    return 42 - PIXELS * up / depth, 42 + PIXELS * right / depth


def is_mostly(picture, channel):
    others = [c for c in range(3) if c != channel]
    return picture[channel] > picture[others].max(axis=0) + 0.15


def test_has_unitys_sensors_agents_and_courts(scene):
    spec = scene.behaviors[BEHAVIOR]
    assert [(o.name, o.shape) for o in spec.observation_specs] == [
        ("CameraSensor", (3, 84, 84)),
        ("VectorSensor_size1", (1,)),
    ]
    assert (spec.action_spec.continuous_size, spec.action_spec.discrete_branches) == (
        3,
        (2,),
    )
    assert (scene.unity_areas, scene.agents_per_area) == (2, 4)


@pytest.mark.parametrize("yaw_deg", [0.0, 90.0, -130.0])
@pytest.mark.parametrize("place", [(0, 3), (1, 4), (-2, 6)])
def test_an_item_is_where_unitys_camera_shows_it(scene, place, yaw_deg):
    put_agent(scene, 0, 0, 0, yaw_deg)
    cos, sin = math.cos(math.radians(yaw_deg)), math.sin(math.radians(yaw_deg))
    right, ahead = place
    item = scene.courts.food[0, GOOD]  # the first bad one
    item[[X, Z]] = right * cos + ahead * sin, ahead * cos - right * sin
    shown = is_mostly(picture(scene), RED)
    row, column = np.argwhere(shown).mean(axis=0) + 0.5
    assert (row, column) == pytest.approx(pixel_of(right, 0.25, ahead), abs=0.8)
    distance = math.hypot(right, ahead - 0.15)
    area = math.pi * (0.5 * PIXELS / distance) ** 2
    assert shown.sum() == pytest.approx(area, rel=0.3), "the mesh's radius is 0.5 m"


def test_good_food_is_green_and_the_nearer_item_hides_the_farther(scene):
    scene.courts.food[0, 0, [X, Z]] = 0, 4
    scene.courts.food[0, GOOD, [X, Z]] = 0, 8
    both = picture(scene)
    assert is_mostly(both, GREEN).any()
    assert not is_mostly(both, RED).any()


def test_the_walls_stand_between_the_floor_and_the_sky(scene):
    shown = picture(scene)
    foot, _ = pixel_of(0, -0.5, 50)
    top, _ = pixel_of(0, 2.0, 50)
    column = shown[:, :, 42].T
    sky, wall, floor = column[10], column[41], column[80]
    assert sky == pytest.approx([0.467, 0.565, 0.608], abs=0.003)
    assert int(top + 0.5) < 41 < int(foot) + 1
    assert wall[0] > floor[0]
    edges = np.flatnonzero(np.abs(np.diff(column[:, 0])) > 0.02) + 1
    assert edges == pytest.approx([top, foot], abs=1.0)


def test_other_agents_are_blue_with_a_face_and_white_when_frozen(scene):
    put_agent(scene, 1, 0, 5, 180)
    awake = picture(scene)
    assert is_mostly(awake, BLUE).any()
    row, column = pixel_of(0.3, 0.074, 4.5)
    assert awake[:, int(row), int(column)].max() < 0.1, "an eye"
    scene.courts.frozen[0, 1] = 10
    scene.courts.agent[0, 1, -1] = 4  # the tag
    row, column = pixel_of(0, 0.3, 4.5)
    assert picture(scene)[:, int(row), int(column)].min() > 0.4
    assert scene.observe(BEHAVIOR, np.arange(4))[1][:, 0].tolist() == [0, 1, 0, 0]


def test_a_beam_is_seen_by_others_only(scene):
    put_agent(scene, 1, -10, 10, 90)
    scene.courts.shooting[0, 1] = True
    assert is_mostly(picture(scene), RED).any()
    assert not is_mostly(picture(scene, 1), RED).any()


def test_pictures_are_whole_255ths_and_the_same_on_two_threads():
    pictures = []
    for threads in (1, 2):
        env = SceneEnv(VisualFoodCollector(33, threads), 3)
        env.reset()
        decisions = env.steps(BEHAVIOR)[0]
        pictures.append(decisions.obs[0])
        env.close()
    np.testing.assert_array_equal(*pictures)
    levels = pictures[0] * 255.0
    np.testing.assert_allclose(levels, np.rint(levels), atol=1e-4)
