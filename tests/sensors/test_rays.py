"""Ray sensors against hand-worked geometry, MuJoCo's rays, and observations logged in Unity."""

import math

import mujoco
import numpy as np
import pytest

from touchline.physics.shapes import ABSENT, UNTAGGED, ball, box, boxes, pillar, rounds
from touchline.physics.threads import Threads
from touchline.scenes import push_block
from touchline.scenes.soccer.field import BLUE_AGENT, FIELD, PURPLE_AGENT
from touchline.scenes.soccer.games import SoccerTwos
from touchline.sensors.rays import RayFan, RaySensor, View, ray_angles_deg

TAGS = ["wall", "goal"]
HERE = np.array([0])


def look(fixed=(), round_shapes=(), *, eye=(0.0, 0.5, 0.0), agent_yaw_deg=0.0, **fan):
    """One frame [rays, tags + 2] of an agent that looks along z from `eye`."""
    arguments = {"rays_per_direction": 0, "max_degrees": 90.0, "length_m": 10.0} | fan
    sensor = RaySensor(TAGS, TAGS, RayFan(**arguments))
    yaw = np.array([[math.radians(agent_yaw_deg)]])
    seen = boxes(*fixed), boxes()[None], rounds(*round_shapes)[None]
    view = View(np.array([[eye]]), yaw, *seen)
    frame = sensor.read(Threads(1), HERE, view)
    return frame.reshape(-1, len(TAGS) + 2)


def test_rays_go_ahead_then_right_and_left_in_turn():
    assert ray_angles_deg(2, 70.0) == [90.0, 55.0, 125.0, 20.0, 160.0]
    around = [
        box(place, (1, 1, 1)) for place in [(0, 0.5, 5), (6, 0.5, 0), (-7, 0.5, 0)]
    ]
    frame = look(around, rays_per_direction=1)
    # Ahead, right, left.
    np.testing.assert_allclose(frame[:, -1], [0.4, 0.5, 0.6], atol=1e-6)


def test_a_yaw_turns_clockwise_seen_from_above():
    assert look([box((5, 0.5, 0), (1, 1, 1))], agent_yaw_deg=90.0)[
        0, -1
    ] == pytest.approx(0.4)


def test_a_ray_gives_tag_miss_and_the_share_of_its_length():
    np.testing.assert_allclose(
        look([box((0, 0.5, 5), (1, 1, 1), TAGS.index("goal"))])[0],
        [0, 1, 0, 0.4],
        atol=1e-6,
    )
    np.testing.assert_allclose(
        look([box((0, 0.5, 5), (1, 1, 1), UNTAGGED)])[0], [0, 0, 0, 0.4], atol=1e-6
    )
    np.testing.assert_array_equal(
        look([box((0, 0.5, 5), (1, 1, 1), ABSENT)])[0], [0, 0, 1, 1]
    )
    np.testing.assert_array_equal(look()[0], [0, 0, 1, 1])


def test_the_nearest_shape_hides_the_others():
    frame = look(
        [box((0, 0.5, 7), (1, 1, 1), 0), box((0, 0.5, 4), (1, 1, 1), 1)],
        [ball((0, 0.5, 9), 0.5, 0)],
    )
    np.testing.assert_allclose(frame[0], [0, 1, 0, 0.3], atol=1e-6)


def test_a_shape_that_the_sphere_overlaps_or_touches_at_its_start_is_not_detected():
    behind = box((0, 0.5, 6), (8, 1, 1), 0)
    for gap, tie in [(-0.3, 0.0), (0.0, 0.0), (0.9e-5, 1e-5)]:
        leaning = box((0, 0.5, 1.0 + gap), (1, 1, 1), 1)
        assert look([leaning, behind], tie_m=tie)[0, 0] == 1.0, (
            f"gap {gap}: the one behind is detected"
        )
    for gap, tie in [(1e-7, 0.0), (2e-5, 1e-5)]:
        assert (
            look([box((0, 0.5, 1.0 + gap), (1, 1, 1), 1), behind], tie_m=tie)[0, 1]
            == 1.0
        )


def test_a_sphere_touches_the_edge_of_a_wall_beside_its_path():
    # The wall's edge is 0.3 m beside the line, so the sphere of 0.5 m stops 0.4 m before it
    # (3-4-5).
    assert look([box((0.8, 0.5, 6), (1, 1, 2), 0)])[0, -1] == pytest.approx(
        (5.0 - 0.4) / 10.0, abs=1e-6
    )
    assert look([box((1.01, 0.5, 6), (1, 1, 2), 0)])[0, -1] == 1.0, (
        "0.51 m beside: it passes"
    )


def test_a_sphere_touches_a_low_ledge_with_its_side():
    # The ledge's top is 0.3 m below the center: contact where 0.4 m are left.
    assert look([box((0, 0.0, 6), (9, 0.4, 2), 0)])[0, -1] == pytest.approx(
        (5.0 - 0.4) / 10.0, abs=1e-6
    )


def test_a_level_ray_meets_a_sphere_of_another_height():
    # Centers 0.3 m apart in height, radii 0.5 together with 0.6: sqrt(1.1² - 0.3²) before the
    # center.
    frame = look(round_shapes=[ball((0, 0.8, 6), 0.6, 1)])
    np.testing.assert_allclose(
        frame[0], [0, 1, 0, (6.0 - math.sqrt(1.1**2 - 0.3**2)) / 10.0], atol=1e-6
    )
    assert look(round_shapes=[pillar((0, 1.5, 6), 0.6, 4.0, 0)])[
        0, -1
    ] == pytest.approx(0.49)


def test_ends_of_different_height_lengthen_the_ray_and_widen_its_sphere():
    # 3 m up over 4 m along: length 5 m, radius 0.5 * 5 / 4; a ceiling 2 m above the start.
    frame = look(
        [box((0, 3.0, 0), (50, 1, 50), 0)], length_m=4.0, start_m=0.0, end_m=3.0
    )
    traveled = (2.0 - 0.625) / (3.0 / 5.0)
    assert frame[0, -1] == pytest.approx(traveled / 5.0, abs=1e-6)


def test_a_thin_ray_hits_what_mujocos_ray_hits():
    rng = np.random.default_rng(3)
    rows, geoms = [], []
    for _ in range(12):
        (x, z), yaw = rng.uniform(-8, 8, 2), rng.uniform(0, 360)
        size = rng.uniform(0.5, 2, 3)
        rows.append(box((x, 0.5, z), size, 0, yaw))
        geoms.append(
            f'<geom type="box" pos="{x} {z} .5" euler="0 0 {-yaw}" size="{size[0] / 2} {size[2] / 2} 1"/>'
        )
    model = mujoco.MjModel.from_xml_string(
        f"<mujoco><worldbody>{''.join(geoms)}</worldbody></mujoco>"
    )
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    compared = 0
    for _ in range(150):
        eye, yaw = rng.uniform(-9, 9, 2), rng.uniform(0, 360)
        frame = look(
            rows,
            eye=(eye[0], 0.5, eye[1]),
            agent_yaw_deg=yaw,
            radius_m=1e-4,
            rays_per_direction=6,
            max_degrees=170.0,
        )
        for angle, (*_, fraction) in zip(ray_angles_deg(6, 170.0), frame, strict=True):
            world = math.radians(angle - yaw)
            ahead = np.array([math.cos(world), math.sin(world), 0.0])
            start = np.array([eye[0], eye[1], 0.5])
            theirs = mujoco.mj_ray(
                model, data, start, ahead, None, 1, -1, np.zeros(1, np.int32), None
            )
            inside = mujoco.mj_ray(
                model, data, start, -ahead, None, 1, -1, np.zeros(1, np.int32), None
            )
            if min(theirs, inside) < 0 or theirs > 9.99:
                continue
            if fraction < 1.0:
                compared += abs(10.0 * fraction - theirs) < 5e-3
    assert compared > 100


def test_rays_from_poses_logged_in_push_block_are_those_that_unity_sent(push_block_log):
    log = push_block_log
    steps, count = log.decision_steps, len(log.decision_steps)
    shapes = np.repeat(push_block.PushBlock(1, 1).world.boxes, count, axis=0)
    shapes[:, :, :3] = log.position[steps]
    shapes[:, :, 6], shapes[:, :, 7] = np.cos(log.yaw[steps]), np.sin(log.yaw[steps])
    no_rounds = np.tile(rounds(), (count, 1, 1))
    view = View(shapes, log.yaw[steps, :1], push_block.FIXED, shapes, no_rounds)
    rays = push_block.PushBlock.sensor
    sensors = rays.read(Threads(1), np.arange(count), view)
    for index, least in ((0, 0.98), (1, 0.995)):
        frame = sensors[:, 35 * index : 35 * index + 35]
        sent = log.observation[
            :, 105 * index + 70 : 105 * index + 105
        ]  # the newest of three frames
        assert (
            _agreement(frame.reshape(count, 7, 5), sent.reshape(count, 7, 5)) >= least
        )


def test_rays_from_poses_logged_in_soccer_are_those_that_unity_sent(shared):
    log = np.load(shared / "unity-logs" / "SoccerTwos.npz")
    scene = SoccerTwos(8, 1)
    steps = np.arange(1, 200) * 5 - 1
    is_blue = log["position"][0, 0, :4, 0] < 0
    for behavior, team in (("SoccerTwos?team=0", True), ("SoccerTwos?team=1", False)):
        who = np.flatnonzero(is_blue == team)
        fields = len(steps) * 8
        shapes = np.tile(scene.rounds[:1], (fields, 1, 1))
        places = log["position"][steps].reshape(fields, 5, 2)
        shapes[:, :, 0], shapes[:, :, 2] = places[..., 0], places[..., 1]
        shapes[:, :4, 5] = np.where(is_blue, BLUE_AGENT, PURPLE_AGENT)
        eyes = np.full((fields, 4, 3), 0.5)
        eyes[..., [0, 2]] = places[:, :4]
        yaw = np.radians(log["yaw_deg"][steps].reshape(fields, 4))
        agents = (np.arange(fields)[:, None] * 4 + who).reshape(-1)
        no_boxes = np.tile(boxes(), (fields, 1, 1))
        view = View(eyes, yaw, FIELD, no_boxes, shapes)
        sent = (
            log["observation"][1:200].reshape(fields, 4, 336)[:, who].reshape(-1, 336)
        )
        at = 0
        for sensor in scene.sensors[behavior].values():
            frame = sensor.read(Threads(1), agents, view)
            newest = sent[:, at + 2 * sensor.size : at + 3 * sensor.size]
            at += 3 * sensor.size
            assert (
                _agreement(
                    frame.reshape(-1, sensor.size // 8, 8),
                    newest.reshape(-1, sensor.size // 8, 8),
                )
                >= 0.995
            )


def _agreement(ours, theirs):
    """The share of rays with the same tag and, to a millimeter or so, the same fraction."""
    return (
        (ours[..., :-1] == theirs[..., :-1]).all(-1)
        & (abs(ours[..., -1] - theirs[..., -1]) < 1e-3)
    ).mean()
