"""Pyramids: layout, switch, bricks, gold, rays and episodes, against Unity's prefabs and scripts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from touchline.envs.actions import ActionError
from touchline.envs.scene_env import SceneEnv
from touchline.errors import UsageError
from touchline.physics.shapes import BOX_TAG, COS, SIN, X, Y, Z, box
from touchline.physics.threads import Threads
from touchline.scenes.pyramids.agent import (
    AGENT,
    BLOCK,
    BRICKS,
    BUTTON,
    GOAL,
    NUM_BRICKS,
    PYRAMIDS,
    SOLID,
    STONE,
    STONES,
    SWITCH,
    SWITCH_OFF,
    SWITCH_ON,
    TAGS,
    VISIBLE,
)
from touchline.scenes.pyramids.game import MAX_STEP, Pyramids
from touchline.scenes.pyramids.sight import add_bricks
from touchline.sensors.rays import RayFan, RaySensor, View
from touchline.specs import ActionTuple

BEHAVIOR = "Pyramids?team=0"
FAR = -40.0


def opened(num_areas: int = 1, seed: int = 0) -> tuple[SceneEnv, Pyramids]:
    scene = Pyramids(num_areas, 1)
    env = SceneEnv(scene, seed)
    env.reset()
    return env, scene


def place(
    scene: Pyramids, x: float, z: float, yaw_deg: float = 0.0, y: float = 0.5
) -> None:
    """Put area 0's agent somewhere, at rest."""
    yaw = math.radians(yaw_deg)
    scene.world.boxes[0, AGENT, [X, Y, Z]] = x, y, z
    scene.world.boxes[0, AGENT, [COS, SIN]] = math.cos(yaw), math.sin(yaw)
    scene.world.yaw[0, AGENT] = yaw
    scene.world.velocity[0, AGENT] = 0


def cleared(scene: Pyramids) -> None:
    """Sink area 0's stones and rest its switch in a corner."""
    scene.world.boxes[0, 2:, Y] = -100
    scene.world.boxes[0, SWITCH, [X, Y, Z]] = FAR, 2, FAR


def stone_spots(scene: Pyramids) -> np.ndarray:
    """[A, PYRAMIDS, (x, z)] the places of the stone pyramids."""
    stones = scene.world.boxes[:, 2:BUTTON].reshape(-1, PYRAMIDS, 25, 9)
    return stones[:, :, 0, [X, Z]] - np.array(STONES)[0, [0, 2]]


def move(env: SceneEnv, choice: int, decisions: int = 1) -> None:
    for _ in range(decisions):
        env.set_actions(
            BEHAVIOR,
            ActionTuple(discrete=np.full((len(env.steps(BEHAVIOR)[0]), 1), choice)),
        )
        env.step()


def brick(scene: Pyramids, k: int, area: int = 0) -> np.ndarray:
    """Position and quaternion of a brick, to read or write."""
    return scene.bricks.pose[area, k]


def test_specs_are_three_fans_and_a_vector() -> None:
    env, _ = opened(16)
    spec = env.behaviors[BEHAVIOR]
    assert [(o.name, o.shape) for o in spec.observation_specs] == [
        ("RayPerceptionSensor", (56,)),
        ("RayPerceptionSensor1", (56,)),
        ("RayPerceptionSensor2", (56,)),
        ("VectorSensor_size4", (4,)),
    ]
    assert spec.action_spec.discrete_branches == (5,)
    assert env.steps(BEHAVIOR)[0].agent_id.tolist() == list(range(16))


def test_reset_gives_everything_a_square_of_its_own() -> None:
    _, scene = opened(300)
    spots = np.concatenate(
        [
            scene.world.boxes[:, [AGENT, SWITCH]][..., [X, Z]],
            scene.bricks.spot[:, None],
            stone_spots(scene),
        ],
        axis=1,
    )
    squares = np.rint(spots / 30)
    assert np.abs(spots - 30 * squares).max() <= 11.905
    assert np.abs(spots - 30 * squares).max() > 11.8
    kinds = squares[..., 0] * 3 + squares[..., 1]
    assert (np.sort(kinds, axis=1) == np.arange(-4, 5)).all()
    assert np.abs(np.mean(kinds, axis=0)).max() < 0.75  # nothing prefers a square
    assert (scene.world.boxes[:, AGENT, Y] == 2).all()
    degrees = np.rad2deg(scene.world.yaw[:, AGENT])
    assert np.allclose(degrees, np.rint(degrees))
    assert not scene.bricks.on.any()


def test_pyramids_are_built_as_the_prefabs_say() -> None:
    assert len(STONES) == len(BRICKS) == 25
    assert len(set(STONES)) == 25
    for pyramid, heights in (
        (STONES, (0.5, 1.5, 2.5, 3.5)),
        (BRICKS, (0.151, 1.6, 3.11, 4.29)),
    ):
        assert [[p[1] for p in pyramid].count(h) for h in heights] == [12, 8, 4, 1]
    _, scene = opened()
    stones = scene.world.boxes[0, 2:BUTTON].reshape(PYRAMIDS, 25, 9)
    assert (stones[..., BOX_TAG] == STONE).all()
    assert stones[2, :, [X, Z]].T - stone_spots(scene)[0, 2] == pytest.approx(
        np.array(STONES)[:, [0, 2]]
    )


def test_walls_stand_where_the_facts_put_them() -> None:
    # Inner faces of the outer walls, and the inner wall's face at 17.04 (section 6 of the facts).
    assert sorted({*np.round(np.abs(VISIBLE[-4:-2, X]) - VISIBLE[-4:-2, 3], 3)}) == [
        49.5
    ]
    assert {*np.round(VISIBLE[-2:, Z], 3)} == {49.6, -50.1}
    assert (VISIBLE[-4:, Y] + VISIBLE[-4:, 4] == 5).all()
    assert VISIBLE[1:-4, Y] + VISIBLE[1:-4, 4] == pytest.approx(4.52)
    assert any(w[X] + w[3] == pytest.approx(17.04) for w in VISIBLE)
    assert len(VISIBLE) == 1 + 8 + 8 + 4
    assert (SOLID[-4:, Y] + SOLID[-4:, 4] == 60).all()


def test_pushes_drag_and_doubled_friction() -> None:
    _, scene = opened()
    cleared(scene)
    place(scene, 0, 0, 90)
    scene.academy.discrete[0, 0, 0] = 1
    scene.play(1)
    assert scene.world.velocity[0, AGENT, 0] == pytest.approx(
        2 * 0.96 - 1.2 * 9.81 * 0.02 * 0.96, abs=1e-6
    )
    assert scene.world.velocity[0, AGENT, 2] == pytest.approx(0, abs=1e-9)
    place(scene, 0, 0, 90)
    scene.academy.discrete[0, 0, 0] = 3
    scene.act()
    assert math.degrees(scene.world.yaw[0, AGENT]) == pytest.approx(94)


def test_velocity_is_observed_in_the_agents_frame() -> None:
    _, scene = opened()
    cleared(scene)
    place(scene, 0, 0, 90)
    # Facing +x: 3 ahead, and +z is to the left.
    scene.world.velocity[0, AGENT, :3] = (
        3,
        1,
        2,
    )
    (own,) = scene.observe(BEHAVIOR, np.array([0]))[3:]
    assert own[0] == pytest.approx([0, -2, 1, 3])


def test_touching_the_switch_turns_it_on_and_bricks_fall_where_they_were_drawn() -> (
    None
):
    env, scene = opened()
    cleared(scene)
    scene.bricks.spot[0] = 20, 5
    place(scene, FAR + 6, FAR, 270)
    while not scene.bricks.on[0]:
        assert scene.world.boxes[0, AGENT, X] > FAR + 2.4
        move(env, 1)
    assert scene.world.boxes[0, SWITCH, BOX_TAG] == SWITCH_ON
    assert env.steps(BEHAVIOR)[0].obs[3][0, 0] == 1
    assert env.steps(BEHAVIOR)[0].reward[0] == pytest.approx(-5 / MAX_STEP)
    place(scene, 0, -20)
    move(env, 0, 30)
    # Gold, on four layers.
    assert brick(scene, NUM_BRICKS - 1)[:3] == pytest.approx(
        [20.45, 4.97, 5.8], abs=0.15
    )
    assert np.linalg.norm(brick(scene, 0)[3:]) == pytest.approx(1)
    assert scene.bricks.still[0] >= 20


def test_the_switch_yields_by_turning() -> None:
    env, scene = opened()
    cleared(scene)
    place(scene, FAR + 4, FAR + 1.2, 270)
    move(env, 1, 12)
    turned = scene.world.yaw[0, SWITCH]
    assert abs(turned) > 0.2
    assert scene.world.boxes[0, SWITCH, [X, Y, Z]] == pytest.approx(
        [FAR, 2, FAR], abs=0.02
    )


def test_an_agent_wades_through_the_corner_of_the_switch_as_in_unity() -> None:
    """Golden values: records 334 to 338 of ML-Agents' ExpertPyramid.demo, recorded in Unity.

    Where the switch was follows from the 21 rays of record 334, to a centimeter.
    """
    _, scene = opened()
    cleared(scene)
    # In the agent's frame: the switch's place and turn, and the agent's velocity.
    right, ahead, turn_deg = -0.742, 7.229, 25.81
    yaw = -math.radians(turn_deg)
    cos, sin = math.cos(yaw), math.sin(yaw)

    def turned(right: float, ahead: float) -> np.ndarray:
        return np.array([right * cos + ahead * sin, ahead * cos - right * sin])

    scene.world.boxes[0, SWITCH, [X, Y, Z]] = 0, 2, 0
    x, z = -turned(right, ahead)
    place(scene, x, z, -turn_deg)
    scene.world.velocity[0, AGENT, [0, 2]] = turned(-0.851, 34.749)
    seen = []
    for choice in (4, 0, 4, 4):
        scene.academy.discrete[0, 0, 0] = choice
        for _ in range(5):
            scene.play(1)
        (own,) = scene.observe(BEHAVIOR, np.array([0]))[3:]
        seen.append(own[0, [1, 3]])
    unity = [(8.706, 25.873), (6.026, 17.909), (8.541, 10.701), (8.564, 5.229)]
    assert np.array(seen) == pytest.approx(np.array(unity), abs=0.5)
    assert scene.world.boxes[0, SWITCH, [X, Z]].tolist() == [0, 0]


def test_an_agent_that_leans_on_the_switch_sees_its_button() -> None:
    _, scene = opened()
    cleared(scene)
    scene.world.boxes[0, SWITCH, [X, Y, Z]] = 0, 2, 12
    place(scene, 0, 9.51)  # a centimeter inside
    _, raised, steep, _ = scene.observe(BEHAVIOR, np.array([0]))
    for frame, reach in ((raised, 35.36), (steep, 36.4)):
        assert not frame[0, :7].any()  # hit, and untagged
        assert 0.9 < frame[0, 7] * reach < 1.2


def test_touching_gold_sets_two_and_ends() -> None:
    env, scene = opened()
    cleared(scene)
    scene.bricks.place(np.array([0]))
    bricks = scene.bricks.pose[0]
    bricks[:, X], bricks[:, Z], bricks[:, Y] = np.arange(26) * 1.2 - 15, 30, 0.5
    bricks[-1, [X, Z, Y]] = 0, 10, 1
    place(scene, 0, 6)
    rewards = []
    for _ in range(10):
        move(env, 1)
        decisions, ends = env.steps(BEHAVIOR)
        rewards += ends.reward.tolist()
        if len(ends):
            break
    assert rewards == [2.0]
    assert not ends.interrupted[0]
    assert ends.obs[3][0, 0] == 1
    assert decisions.obs[3][0, 0] == 0 if len(decisions) else not scene.bricks.on[0]
    assert scene.world.boxes[0, SWITCH, BOX_TAG] == SWITCH_OFF


def test_bricks_slow_an_agent_and_fly() -> None:
    env, scene = opened()
    cleared(scene)
    scene.bricks.spot[0] = 0, 0
    place(scene, 0.5, -14)
    scene.bricks.place(np.array([0]))
    move(env, 0, 14)
    place(scene, 0.5, -14)
    fastest, slowest_after = 0.0, math.inf
    for _ in range(14):
        move(env, 1)
        if len(env.steps(BEHAVIOR)[1]):
            break
        speed = scene.world.velocity[0, AGENT, 2]
        if speed < fastest:
            slowest_after = min(slowest_after, speed)
        fastest = max(fastest, speed)
    assert slowest_after < 0.7 * fastest
    assert np.abs(scene.bricks.velocity[0]).max() > 2
    assert scene.world.boxes[0, AGENT, Y] == pytest.approx(0.5, abs=0.01)


def test_an_agent_does_not_pass_through_walls_and_stones() -> None:
    env, scene = opened()
    place(scene, 45, 0, 90)
    move(env, 1, 20)
    assert scene.world.boxes[0, AGENT, X] == pytest.approx(49, abs=0.2)
    row = stone_spots(scene)[0, 0]
    place(scene, row[0] + 0.5, row[1] - 5, 0)
    move(env, 1, 10)
    assert scene.world.boxes[0, AGENT, Z] == pytest.approx(row[1] - 1.06 - 1, abs=0.3)


def test_bricks_that_lie_still_wake_when_an_agent_comes() -> None:
    env, scene = opened()
    cleared(scene)
    scene.bricks.spot[0] = 0, 0
    place(scene, 0, -25)
    scene.bricks.place(np.array([0]))
    move(env, 0, 20)
    rest = scene.bricks.pose[0].copy()
    assert scene.bricks.still[0] >= 20
    move(env, 0, 4)
    assert (scene.bricks.pose[0] == rest).all()
    place(scene, 0.4, -2.2)
    move(env, 1, 3)
    assert scene.bricks.still[0] < 20 or not scene.bricks.on[0]


def test_rays_name_what_they_hit() -> None:
    _, scene = opened()
    cleared(scene)
    place(scene, 0, 0)
    scene.world.boxes[0, SWITCH, [X, Y, Z]] = 0, 2, 12
    level, raised, steep, _ = scene.observe(BEHAVIOR, np.array([0]))
    ahead = level[0, :8]
    assert np.flatnonzero(ahead[:6]).tolist() == [SWITCH_OFF]
    assert ahead[7] == pytest.approx((10 - 0.5) / 35)
    assert np.flatnonzero(raised[0, :6]).tolist() == [SWITCH_OFF]
    assert steep[0, 6] == 0  # 10 m up at 35: still below the switch's top at 10 m


@pytest.mark.parametrize(("yaw_deg", "size"), [(0.0, 1.0), (30.0, 1.0), (77.0, 2.0)])
def test_bricks_are_observed_as_upright_boxes_of_the_same_place_are(
    yaw_deg: float, size: float
) -> None:
    """A turned brick against the shared ray sensor, which knows boxes turned about the vertical
    axis.
    """
    rng = np.random.default_rng(3)
    sensor = RaySensor(
        TAGS,
        TAGS,
        RayFan(rays_per_direction=5, max_degrees=60.0, length_m=35.0, end_m=5.0),
    )
    for _ in range(30):
        eye, yaw = rng.uniform(-10, 10, (1, 1, 3)), rng.uniform(0, 6, (1, 1))
        at = rng.uniform(-10, 10, 3)
        shape = box(at, (size,) * 3, GOAL if size == 2 else BLOCK, yaw_deg)
        one, no_fixed, no_rounds = np.array([0]), np.zeros((0, 9)), np.zeros((1, 0, 6))
        with_box = View(eye, yaw, no_fixed, np.array([[shape]]), no_rounds)
        want = sensor.read(Threads(1), one, with_box)
        empty = with_box._replace(boxes=np.zeros((1, 0, 9)))
        got = sensor.read(Threads(1), one, empty)
        pose = np.full((1, NUM_BRICKS, 7), 1e4)
        half = math.radians(yaw_deg) / 2
        turn = 0.0, math.sin(half), 0.0, math.cos(half)
        pose[0, NUM_BRICKS - 1 if size == 2 else 0] = *at, *turn
        fan = sensor.directions, sensor.reach_m, sensor.radius_m
        add_bricks(0, 1, one, empty, np.array([True]), pose, *fan, got)
        assert got == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize(("gap_m", "touches"), [(0.05, False), (0.015, True)])
@pytest.mark.parametrize("turn_deg", [0.0, 45.0])
def test_gold_is_touched_within_two_centimeters(
    gap_m: float, touches: bool, turn_deg: float
) -> None:
    _, scene = opened()
    cleared(scene)
    scene.bricks.place(np.array([0]))
    bricks = scene.bricks.pose[0]
    bricks[:, X], bricks[:, Y], bricks[:, Z] = 30, 0.5, np.arange(26) * 1.2 - 15
    half = math.radians(turn_deg) / 2
    # Turned by 45 degrees, its corner points at the agent.
    reach = math.cos(2 * half) + math.sin(2 * half)
    bricks[-1] = 0.5 + reach + gap_m, 1, 0, 0, math.sin(half), 0, math.cos(half)
    place(scene, 0, 0)
    scene.play(1)
    # The next episode has no bricks yet.
    assert scene.bricks.on[0] != touches


def test_five_thousand_steps_interrupt() -> None:
    env, scene = opened()
    move(env, 0)
    scene.academy.step_count[0] = MAX_STEP - 3
    move(env, 0)
    ends = env.steps(BEHAVIOR)[1]
    assert ends.interrupted.tolist() == [True]
    assert ends.reward[0] == pytest.approx(-4 / MAX_STEP, abs=1e-6)


def test_a_world_with_falling_bricks_goes_on_from_its_state() -> None:
    env, scene = opened(2, seed=4)
    scene.bricks.place(np.array([0]))
    scene.world.boxes[0, SWITCH, BOX_TAG] = SWITCH_ON
    move(env, 1, 8)
    kept = env.state()
    other, _ = opened(2, seed=9)
    other.load_state(kept)
    for world in (env, other):
        move(world, 1, 8)
    assert all(
        (a == b).all()
        for a, b in zip(env.state().values(), other.state().values(), strict=True)
    )


def test_there_are_no_parameters_and_bad_actions_are_refused_by_name() -> None:
    env, _ = opened()
    with pytest.raises(
        UsageError, match="Pyramids: unknown parameter 'gravity'; it knows: none"
    ):
        env.set_parameters({"gravity": 9.81})
    with pytest.raises(
        ActionError, match=r"Pyramids: .*agent 0, branch 0: expected 0 to 4, got 5"
    ):
        env.set_actions(BEHAVIOR, ActionTuple(discrete=[[5]]))


def test_falling_bricks_take_the_same_path_on_two_threads() -> None:
    paths = []
    for threads in (1, 2):
        scene = Pyramids(130, threads)
        env = SceneEnv(scene, 6)
        env.reset()
        scene.bricks.place(np.arange(130))
        move(env, 1, 8)
        paths.append(env.state())
        env.close()
    assert np.abs(paths[0]["scene/brick_velocity"]).max() > 1
    for name, value in paths[0].items():
        np.testing.assert_array_equal(value, paths[1][name], err_msg=name)
