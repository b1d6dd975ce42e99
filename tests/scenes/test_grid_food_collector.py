"""GridFoodCollector: motion, meals, beams, freezing and episodes, against Unity's prefabs and
scripts.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from touchline.envs.actions import ActionError
from touchline.envs.scene_env import SceneEnv
from touchline.errors import UsageError
from touchline.physics.shapes import BOX_TAG, HALF_X, ROUND_TAG, Y
from touchline.physics.upright.balls import touch_at
from touchline.physics.upright.contacts import MU, Contacts, new_records
from touchline.physics.upright.solve import solve
from touchline.physics.world import GRAVITY
from touchline.scenes.grid_food_collector.actions import FROZEN_STEPS
from touchline.scenes.grid_food_collector.court import (
    AGENTS,
    BAD,
    COURT_M,
    FLOOR_Y,
    FOOD,
    FOOD_RADIUS_M,
    GOOD,
    TAG_AGENT,
    TAG_BAD,
    TAG_FOOD,
    TAG_FROZEN,
    inverse_masses,
)
from touchline.scenes.grid_food_collector.game import MAX_STEP, GridFoodCollector
from touchline.scenes.grid_food_collector.physics import roll
from touchline.specs import ActionTuple

BEHAVIOR = "GridFoodCollector?team=0"
REST_Y = FLOOR_Y + FOOD_RADIUS_M


def opened(
    num_areas: int = 1, seed: int = 0, **parameters: float
) -> tuple[SceneEnv, GridFoodCollector]:
    scene = GridFoodCollector(num_areas, 1)
    env = SceneEnv(scene, seed, parameters)
    env.reset()
    return env, scene


def cleared(num_areas: int = 1) -> GridFoodCollector:
    """A court with all agents resting in a row along x = -20 and all food parked, far from each
    other.
    """
    _, scene = opened(num_areas)
    scene.courts.food[:, :, 0] = -45 + 3 * np.arange(FOOD) % 90
    scene.courts.food[:, :, 1] = REST_Y
    scene.courts.food[:, :, 2] = np.where(np.arange(FOOD) < 25, -48.0, 48.0)
    scene.courts.food[:, :, 0] = np.tile(-45 + 3.6 * np.arange(25), 2)
    for g in range(AGENTS):
        place(scene, g, -20, 10.0 * g - 20)
    scene.courts.velocity[:] = 0
    return scene


def place(
    scene: GridFoodCollector,
    g: int,
    x: float,
    z: float,
    yaw_deg: float = 0.0,
    y: float = 1.0,
) -> None:
    yaw = math.radians(yaw_deg)
    scene.courts.agent[0, g, :3] = x, y, z
    scene.courts.agent[0, g, 6:8] = math.cos(yaw), math.sin(yaw)
    scene.courts.yaw[0, g] = yaw


def order(
    scene: GridFoodCollector,
    g: int,
    ahead: float = 0,
    right: float = 0,
    left_turn: float = 0,
    shoot: int = 0,
) -> None:
    scene.academy.continuous[0, g] = ahead, right, left_turn
    scene.academy.discrete[0, g] = shoot


def step(scene: GridFoodCollector, count: int = 1) -> None:
    for _ in range(count):
        scene.play(1)


def test_specs_are_a_grid_and_hybrid_actions() -> None:
    env, _ = opened(4)
    (grid,) = env.behaviors[BEHAVIOR].observation_specs
    assert (grid.name, grid.shape) == ("GridSensor-OneHot", (5, 40, 40))
    assert [int(p) for p in grid.dimension_property] == [1, 2, 2]
    spec = env.behaviors[BEHAVIOR].action_spec
    assert (spec.continuous_size, spec.discrete_branches) == (3, (2,))
    decisions = env.steps(BEHAVIOR)[0]
    assert decisions.agent_id.tolist() == list(range(20))
    assert decisions.group_id.tolist() == [0] * 20
    assert set(np.unique(decisions.obs[0])) == {0.0, 1.0}
    assert decisions.obs[0].sum(axis=1).max() == 1  # one thing a cell


def test_reset_spreads_agents_and_food_over_the_court() -> None:
    _, scene = opened(200)
    for bodies, height in ((scene.courts.agent, 2.0), (scene.courts.food, 1.0)):
        assert np.abs(bodies[..., [0, 2]]).max() <= 45
        assert np.abs(bodies[..., [0, 2]]).max() > 44.5
        assert abs(bodies[..., [0, 2]].mean()) < 2.5
        assert (bodies[..., 1] == height).all()
    degrees = np.rad2deg(scene.courts.yaw)
    assert np.allclose(degrees, np.rint(degrees))
    assert (degrees.min(), degrees.max()) == (0, 359)
    kinds = scene.courts.food[..., ROUND_TAG]
    assert ((kinds == TAG_FOOD).sum(axis=1) == GOOD).all()
    assert ((kinds == TAG_BAD).sum(axis=1) == BAD).all()


@pytest.mark.parametrize(
    ("ahead", "right", "yaw_deg", "velocity"),
    [
        (1, 0, 0, (0, 2)),
        (1, 0, 90, (2, 0)),
        (0, 1, 0, (2, 0)),
        (0, 1, 90, (0, -2)),
        (-5, 0.5, 0, (1, -2)),
    ],
)
def test_pushes_go_ahead_and_right_of_the_agent(
    ahead: float, right: float, yaw_deg: float, velocity: tuple[float, float]
) -> None:
    scene = cleared()
    place(scene, 0, 0, 0, yaw_deg, y=5.0)  # in the air: no friction
    order(scene, 0, ahead, right)
    step(scene)
    # Drag 0.5 per second.
    assert scene.courts.velocity[0, 0, [0, 2]] == pytest.approx(
        0.99 * np.array(velocity)
    )


def test_a_positive_turn_goes_left_six_degrees_a_step_without_spin() -> None:
    scene = cleared()
    place(scene, 0, 0, 0, 90)
    order(scene, 0, left_turn=1)
    step(scene, 5)
    assert math.degrees(scene.courts.yaw[0, 0]) == pytest.approx(60)
    assert (scene.courts.velocity[0, 0, 3:] == 0).all()


def test_shooting_halves_the_push_and_cuts_the_speed_even_below_the_brake() -> None:
    scene = cleared()
    place(scene, 0, 0, 0, y=5.0)
    scene.courts.velocity[0, 0, 2] = 4.0
    order(scene, 0, ahead=1, shoot=1)
    step(scene)
    assert scene.courts.velocity[0, 0, 2] == pytest.approx((0.75 * 4 + 1) * 0.99)


@pytest.mark.parametrize("frozen", [False, True])
def test_fast_agents_are_braked_frozen_or_not(frozen: bool) -> None:
    scene = cleared()
    place(scene, 0, 0, 0, y=5.0)
    scene.courts.velocity[0, 0, 0] = 10.0
    scene.courts.frozen[0, 0] = 50 * frozen
    step(scene)
    assert scene.courts.velocity[0, 0, 0] == pytest.approx(10 * 0.95 * 0.99)


def test_floor_friction_is_doubled_under_a_cube() -> None:
    scene = cleared()
    scene.courts.velocity[0, 0, 0] = 4.0
    step(scene)
    lost = 1.2 * GRAVITY * 0.02 * 0.99
    assert scene.courts.velocity[0, 0, 0] == pytest.approx(4 * 0.99 - lost, abs=1e-6)


def test_an_item_slides_until_it_rolls_at_five_sevenths() -> None:
    scene = cleared()
    scene.courts.food[0, 0, :3] = 0, REST_Y, 0
    scene.courts.velocity[0, AGENTS, 0] = 4.0
    step(scene, 25)
    assert scene.courts.velocity[0, AGENTS, 0] == pytest.approx(4 * 5 / 7, abs=0.02)
    assert scene.courts.velocity[0, AGENTS, 5] * FOOD_RADIUS_M == pytest.approx(
        -scene.courts.velocity[0, AGENTS, 0], abs=0.01
    )


def test_items_cannot_spin_faster_than_seven_so_they_slow_to_its_rolling_speed() -> (
    None
):
    scene = cleared()
    scene.courts.food[0, 0, :3] = -40, REST_Y, 5
    scene.courts.velocity[0, AGENTS, 0] = 12.0
    step(scene, 80)
    assert scene.courts.velocity[0, AGENTS, 0] == pytest.approx(
        7 * FOOD_RADIUS_M, abs=0.05
    )


def test_an_item_alone_on_the_floor_moves_as_the_solver_moves_it() -> None:
    rng = np.random.default_rng(0)
    inverse = inverse_masses()[[AGENTS, -1]]
    for _ in range(300):
        velocity = np.zeros((2, 6))
        velocity[0] = rng.normal(0, 3, 6)
        gap = rng.choice([-0.25, -0.01, 0.0, 0.004, 0.015, 0.03])
        item = np.array([1.0, REST_Y + gap, 2.0, FOOD_RADIUS_M, 0.0, 0.0])
        mine, moved = velocity[0].copy(), item.copy()
        roll(moved, mine)
        contacts = Contacts(new_records(), velocity, inverse)
        moving, n = np.zeros((2, 6)), 0
        none = (0.0, 0.0, 0.0)
        if gap < 0.02:
            n = touch_at(
                contacts,
                0,
                0,
                1,
                (0.0, 1.0, 0.0),
                gap,
                (0.0, -FOOD_RADIUS_M, 0.0),
                none,
                MU,
                0.0,
            )
        moving[:] = velocity
        solve(contacts, n, moving)
        # While it is lifted out of the floor, the solver rubs harder: only the height is compared
        # then.
        assert mine[1] == pytest.approx(velocity[0, 1], abs=1e-9)
        assert moved[1] - item[1] == pytest.approx(moving[0, 1] * 0.02, abs=1e-9)
        if gap >= 0:
            assert mine == pytest.approx(velocity[0], abs=1e-6)


@pytest.mark.parametrize(("item", "reward"), [(0, 1), (GOOD, -1)])
def test_a_meal_pays_moves_the_item_and_leaves_it_its_speed(
    item: int, reward: float
) -> None:
    scene = cleared()
    place(scene, 0, 0, 0, y=1.0)
    scene.courts.velocity[0, 0, 2] = 4.0
    scene.courts.food[0, item, :3] = 0, REST_Y, 0.5 + FOOD_RADIUS_M + 0.01
    step(scene)
    assert scene.academy.reward[0].tolist() == [reward, 0, 0, 0, 0]
    assert scene.courts.food[0, item, Y] == 3.0
    assert np.abs(scene.courts.food[0, item, [0, 2]]).max() <= 45
    # Without rebound, and with 0.8 of a gap of 0.01 closing in one step, both end about two thirds
    # as fast.
    agent, ball = (
        scene.courts.velocity[0, 0, 2],
        scene.courts.velocity[0, AGENTS + item, 2],
    )
    before = 4 * 0.99 - 1.2 * GRAVITY * 0.02 * 0.99
    assert agent - ball == pytest.approx(0.4, abs=0.01)
    assert 10 * agent + 5 * ball == pytest.approx(10 * before, rel=0.03)
    flying = ball
    step(scene, 29)
    # Still in the air.
    assert scene.courts.velocity[0, AGENTS + item, 2] == pytest.approx(flying)
    step(scene, 6)
    # 30 steps for 1.75 m, then pushed out.
    assert scene.courts.food[0, item, Y] == pytest.approx(REST_Y, abs=0.05)


def test_two_agents_that_touch_an_item_in_the_same_step_are_both_paid() -> None:
    scene = cleared()
    place(scene, 0, 0, 0)
    place(scene, 1, 0, 2 * (0.5 + FOOD_RADIUS_M))
    scene.courts.food[0, 3, :3] = 0, REST_Y, 0.5 + FOOD_RADIUS_M
    step(scene)
    assert scene.academy.reward[0].tolist() == [1, 1, 0, 0, 0]


def test_a_beam_freezes_the_first_agent_for_four_seconds() -> None:
    scene = cleared()
    place(scene, 0, 0, 0, 90)
    place(scene, 3, 12, 1.5)
    place(scene, 4, 18, 0)
    order(scene, 0, shoot=1)
    order(scene, 3, ahead=1)
    step(scene)
    assert scene.courts.agent[0, :, BOX_TAG].tolist() == [TAG_AGENT] * 3 + [
        TAG_FROZEN,
        TAG_AGENT,
    ]
    # Frozen before it acts, as Unity runs agents in turn.
    assert scene.courts.velocity[0, 3, 2] == 0
    order(scene, 0)
    step(scene, FROZEN_STEPS - 1)
    assert scene.courts.agent[0, 3, BOX_TAG] == TAG_FROZEN
    assert scene.courts.velocity[0, 3, 2] == 0
    step(scene)
    assert scene.courts.agent[0, 3, BOX_TAG] == TAG_AGENT
    assert scene.courts.velocity[0, 3, 2] > 1


def test_a_frozen_agent_blocks_beams_and_is_not_frozen_again() -> None:
    scene = cleared()
    place(scene, 0, 0, 0, 90)
    place(scene, 3, 12, 0)
    place(scene, 4, 20, 0)
    order(scene, 0, shoot=1)
    step(scene, 10)
    assert scene.courts.frozen[0].tolist() == [0, 0, 0, FROZEN_STEPS - 9, 0]


@pytest.mark.parametrize(
    ("item", "x", "z", "frozen"),
    [
        ("food", 6.0, 0.0, False),
        ("food", 6.0, 2.7, False),  # the ball's edge
        ("food", 6.0, 2.8, True),
        ("food", 2.6, 0.0, True),  # within the beam's start: not there
        ("food", 11.9, 2.0, True),  # behind the agent's face
    ],
)
def test_food_stops_a_beam_unless_it_starts_within_it(
    item: str, x: float, z: float, frozen: bool
) -> None:
    scene = cleared()
    place(scene, 0, 0, 0, 90)
    place(scene, 3, 10, 0)
    scene.courts.food[0, 0, :3] = x, REST_Y, z
    order(scene, 0, shoot=1)
    scene.act()
    assert (scene.courts.frozen[0, 3] > 0) == frozen


@pytest.mark.parametrize(
    ("shooter", "yaw_deg", "target", "frozen"),
    [
        ((0, 0), 90, (27.4, 0), True),  # faces 25 m away: 25 + 2 + 0.5
        ((0, 0), 90, (27.6, 0), False),
        ((0, 0), 90, (2.4, 0), False),  # too near: overlapped at the start
        ((0, 0), 90, (10, 2.4), True),
        ((0, 0), 90, (10, 2.6), False),
        ((0, 0), 270, (10, 0), False),
        (
            (40, 0),
            45,
            (49.4, 11),
            False,
        ),  # the ball meets the wall 2.7 m before the agent
        ((49, 0), 0, (49, 15), True),  # within 2 m of a wall, no wall stops the beam
    ],
)
def test_beams_reach_as_far_and_as_wide_as_a_ball_of_two_meters(
    shooter: tuple[float, float],
    yaw_deg: float,
    target: tuple[float, float],
    frozen: bool,
) -> None:
    scene = cleared()
    place(scene, 0, *shooter, yaw_deg)
    place(scene, 3, *target)
    order(scene, 0, shoot=1)
    scene.act()
    assert (scene.courts.frozen[0, 3] > 0) == frozen


def test_walls_and_other_agents_hold_agents() -> None:
    scene = cleared()
    place(scene, 0, 45, 0, 90)
    place(scene, 1, 0, 0, 0)
    place(scene, 2, 0, 6, 180)
    for g in range(3):
        order(scene, g, ahead=1)
    step(scene, 100)
    assert COURT_M - 0.6 < scene.courts.agent[0, 0, 0] < COURT_M - 0.4
    assert scene.courts.agent[0, 2, 2] - scene.courts.agent[0, 1, 2] == pytest.approx(
        1.0, abs=0.1
    )


def test_an_episode_ends_agent_by_agent_and_leaves_the_food() -> None:
    env, scene = opened()
    for _ in range(3):
        env.step()
    scene.academy.step_count[0] = MAX_STEP - 6, 0, 0, 0, 0
    scene.courts.frozen[0, 0] = 100
    food = scene.courts.food.copy()
    for _ in range(2):
        env.step()
    ends = env.steps(BEHAVIOR)[1]
    assert ends.agent_id.tolist() == [0]
    assert ends.interrupted.tolist() == [True]
    assert scene.courts.frozen[0, 0] == 0
    # They roll and settle, they get no new places.
    assert np.abs(scene.courts.food - food)[..., :3].max() < 5
    env.reset()
    # A reset of the world gives all food new places, 0.25 m deep in the floor; one step lifts it by 80 %
    # of that.
    assert np.median(scene.courts.food[..., Y]) == pytest.approx(1.2)
    assert not len(env.steps(BEHAVIOR)[1])


def test_agent_scale_sizes_the_cube_and_stretches_the_grid() -> None:
    env, scene = opened(agent_scale=2.0)
    assert (scene.courts.agent[..., HALF_X] == 1.0).all()
    for _ in range(20):
        env.step()
    assert scene.courts.agent[0, :, Y] == pytest.approx(FLOOR_Y + 1.0, abs=0.3)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("agent_scale", 0, "'agent_scale' .* takes 0.1 to 10, got 0"),
        ("laser_length", -1, "takes 0 to 100"),
        (
            "agentScale",
            1,
            "unknown parameter 'agentScale'; it knows: agent_scale, laser_length",
        ),
    ],
)
def test_impossible_parameters_are_refused_when_set(
    name: str, value: float, message: str
) -> None:
    env, _ = opened()
    with pytest.raises(UsageError, match=message):
        env.set_parameters({name: value})


def test_a_branch_out_of_range_is_refused_by_name() -> None:
    env, _ = opened()
    with pytest.raises(
        ActionError,
        match=r"GridFoodCollector: .*agent 2, branch 0: expected 0 to 1, got 2",
    ):
        env.set_actions(
            BEHAVIOR, ActionTuple(np.zeros((5, 3)), np.array([[0], [1], [2], [0], [0]]))
        )


def test_walking_towards_what_the_grid_shows_as_food_pays() -> None:
    """A turned, mirrored or mistagged grid, or a flipped control, ends this near 0."""
    env, _ = opened(4, seed=3)
    earned = np.zeros(20)
    for _ in range(200):
        decisions, _ = env.steps(BEHAVIOR)
        earned[decisions.agent_id] += decisions.reward
        env.set_actions(BEHAVIOR, _towards_food(decisions.obs[0]))
        env.step()
    assert earned.mean() > 7  # 10 to 12 in trials; 1000 decisions make an episode


def _towards_food(grid: NDArray[np.float32]) -> ActionTuple:
    row, column = np.indices((40, 40))
    right, ahead = 19.5 - row, column - 19.5
    bearing = np.arctan2(right, ahead)
    cost = np.where(
        grid[:, 0] > 0, np.hypot(right, ahead) + 6 * np.abs(bearing), 1e9
    ).reshape(len(grid), -1)
    angle = np.where(
        cost.min(axis=1) < 1e9, bearing.reshape(-1)[cost.argmin(axis=1)], 0.3
    )
    continuous = np.stack(
        [0.8 * np.cos(angle), 0.8 * np.sin(angle), np.clip(-angle / 0.5, -1, 1)], axis=1
    )
    return ActionTuple(continuous, np.zeros((len(grid), 1), np.int32))
