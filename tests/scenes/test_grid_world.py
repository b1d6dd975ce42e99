"""GridWorld: layout, picture, masks, rewards and ends, against the facts of Unity's prefabs and
scripts.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from touchline.envs.actions import ActionError
from touchline.envs.scene_env import SceneEnv
from touchline.errors import UsageError
from touchline.parameters import Gaussian, ParameterValue, Uniform
from touchline.scenes.grid_world import (
    DOWN,
    EX,
    LEFT,
    MAX_STEP,
    NONE,
    PLUS,
    RIGHT,
    UP,
    GridWorld,
)
from touchline.specs import ActionTuple, ObservationType

BEHAVIOR = "GridWorld?team=0"


def opened(
    num_areas: int = 1, seed: int = 0, **parameters: float
) -> tuple[SceneEnv, GridWorld]:
    scene = GridWorld(num_areas)
    env = SceneEnv(scene, seed, parameters)
    env.reset()
    return env, scene


def put(
    scene: GridWorld,
    agent: tuple[int, int],
    plus: tuple[int, int],
    ex: tuple[int, int],
    wanted: int,
) -> None:
    """Lay out area 0 by hand: cells as (x, z)."""
    scene._symbol[0] = 0
    scene._symbol[0][plus], scene._symbol[0][ex] = PLUS, EX
    scene._x[0], scene._z[0] = agent
    scene._target[0] = wanted


def move(env: SceneEnv, action: int) -> None:
    env.set_actions(
        BEHAVIOR,
        ActionTuple(discrete=np.full((len(env.steps(BEHAVIOR)[0]), 1), action)),
    )
    env.step()


def picture(env: SceneEnv, agent: int = 0) -> NDArray[np.int64]:
    """[64, 84, 3] in 0 to 255."""
    return np.rint(
        env.steps(BEHAVIOR)[0].obs[0][agent].transpose(1, 2, 0) * 255
    ).astype(int)


def middle(x: float, z: float, size: int = 5) -> tuple[int, int]:
    """Row and column of the pixel at a point of the board; worked from 64 pixels for `size` cells,
    up = +z.
    """
    return int((size - 0.5 - z) * 64 / size), int((x + 0.5 - size / 2) * 64 / size + 42)


def test_specs_are_a_picture_and_a_goal_signal() -> None:
    env, _ = opened(9)
    camera, goal = env.behaviors[BEHAVIOR].observation_specs
    assert (camera.name, camera.shape) == ("CameraSensor", (3, 64, 84))
    assert (goal.name, goal.shape, goal.observation_type) == (
        "VectorSensor",
        (2,),
        ObservationType.GOAL_SIGNAL,
    )
    assert env.behaviors[BEHAVIOR].action_spec.discrete_branches == (5,)
    assert env.steps(BEHAVIOR)[0].agent_id.tolist() == list(range(9))


def test_every_cell_and_both_goals_turn_up_evenly() -> None:
    _, scene = opened(5000)
    pluses = np.argwhere(scene._symbol == PLUS)
    for cells in (scene._x * 5 + scene._z, pluses[:, 1] * 5 + pluses[:, 2]):
        counts = np.unique(cells, return_counts=True)[1]
        assert len(counts) == 25
        assert np.all(np.abs(counts - 200) < 70)  # five standard deviations
    assert abs(scene._target.mean() - 0.5) < 0.04


def test_agent_and_symbols_have_a_cell_each() -> None:
    _, scene = opened(200, numPlusGoals=3, numExGoals=5, gridSize=3)
    board = scene._symbol[:, :3, :3]
    assert np.all((board == PLUS).sum(axis=(1, 2)) == 3)
    assert np.all((board == EX).sum(axis=(1, 2)) == 5)
    assert not scene._symbol[np.arange(200), scene._x, scene._z].any()
    assert not scene._symbol[:, 3:].any()


def test_picture_shows_frame_plus_ex_floor_and_walls_where_the_facts_put_them() -> None:
    env, scene = opened()
    put(scene, agent=(1, 3), plus=(4, 0), ex=(0, 0), wanted=0)
    move(env, NONE)
    image = picture(env)
    floor, wall = image[middle(2, 2)], image[30, 2]
    assert image.shape == (64, 84, 3)
    # The board is 64 pixels wide in the middle of 84; 10 pixels of wall on either side.
    assert (image[:, :10] == wall).all()
    assert (image[:, 74:] == wall).all()
    assert not (image[:, 10:74] == wall).all(axis=2).any()
    assert wall[0] > floor[0] + 50
    # The agent: a blue frame 1 cell across with bars of 0.2, hollow in the middle.
    blue = image[middle(1 - 0.4, 3)]
    assert blue.argmax() == 2
    assert (image[middle(1, 3 + 0.4)] == blue).all()
    assert (image[middle(1 + 0.4, 3 - 0.4)] == blue).all()
    assert (image[middle(1, 3)] == floor).all()
    # The plus: green in the middle and along the axes, floor in the corners. The ex: the other way
    # round.
    green, red = image[middle(4, 0)], image[middle(0, 0)]
    assert (green.argmax(), red.argmax()) == (1, 0)
    assert (image[middle(4.4, 0)] == green).all()
    assert (image[middle(4.3, 0.3)] == floor).all()
    assert (image[middle(0.28, 0.28)] == red).all()
    assert (image[middle(0, 0.4)] == floor).all()
    # A frame covers 1 - 0.6² of its cell, both symbols 0.36, at 12.8² pixels a cell.
    for color, share in ((blue, 0.64), (green, 0.36), (red, 0.36)):
        assert (
            abs((image == color).all(axis=2).sum() - share * 12.8**2) < 0.12 * 12.8**2
        )


def test_picture_holds_whole_255ths_as_a_png_file_does() -> None:
    env, _ = opened()
    levels = env.steps(BEHAVIOR)[0].obs[0] * 255
    assert np.abs(levels - np.rint(levels)).max() < 1e-4


def test_larger_board_fills_the_same_height() -> None:
    env, scene = opened(gridSize=8)
    put(scene, agent=(7, 7), plus=(0, 7), ex=(0, 0), wanted=1)
    move(env, NONE)
    image = picture(env)
    assert image[middle(7 + 0.4, 7, size=8)].argmax() == 2
    assert image[middle(0, 7, size=8)].argmax() == 1
    assert image[middle(0, 0, size=8)].argmax() == 0


@pytest.mark.parametrize(
    ("action", "cell"),
    [(NONE, (2, 2)), (UP, (2, 3)), (DOWN, (2, 1)), (LEFT, (1, 2)), (RIGHT, (3, 2))],
)
def test_moves_go_one_cell_and_cost_a_hundredth(
    action: int, cell: tuple[int, int]
) -> None:
    env, scene = opened()
    put(scene, agent=(2, 2), plus=(0, 0), ex=(4, 4), wanted=0)
    move(env, action)
    assert (scene._x[0], scene._z[0]) == cell
    assert env.steps(BEHAVIOR)[0].reward == pytest.approx(-0.01)


@pytest.mark.parametrize(
    ("wanted", "action", "reward"),
    [(0, UP, 1), (0, DOWN, -1), (1, UP, -1), (1, DOWN, 1)],
)
def test_a_symbol_sets_the_reward_and_ends_the_episode(
    wanted: int, action: int, reward: float
) -> None:
    env, scene = opened()
    put(scene, agent=(2, 2), plus=(2, 3), ex=(2, 1), wanted=wanted)
    move(env, action)
    decisions, ends = env.steps(BEHAVIOR)
    assert ends.reward.tolist() == [reward]
    assert not ends.interrupted[0]
    assert ends.agent_id.tolist() == decisions.agent_id.tolist() == [0]
    assert decisions.reward.tolist() == [0]
    # The true last goal, whatever the next one is.
    assert ends.obs[1].argmax() == wanted
    last = np.rint(ends.obs[0][0].transpose(1, 2, 0) * 255)
    # The agent stands on the symbol.
    assert last[middle(2 - 0.4, 3 if action == UP else 1)].argmax() == 2


def test_masks_forbid_what_leaves_the_board() -> None:
    env, scene = opened()
    for (x, z), forbidden in {
        (0, 0): [DOWN, LEFT],
        (4, 4): [UP, RIGHT],
        (2, 0): [DOWN],
        (2, 2): [],
    }.items():
        put(scene, agent=(x, z), plus=(1, 3), ex=(3, 3), wanted=0)
        move(env, NONE)
        mask = env.steps(BEHAVIOR)[0].action_mask
        assert mask is not None
        assert np.flatnonzero(mask[0][0]).tolist() == forbidden


def test_a_masked_move_is_refused_here_and_runs_into_the_wall_in_the_scene() -> None:
    env, scene = opened()
    put(scene, agent=(0, 2), plus=(1, 3), ex=(3, 3), wanted=0)
    move(env, NONE)
    with pytest.raises(
        ActionError,
        match=r"GridWorld: .*agent 0, branch 0: choice 3 is masked; allowed: \[0, 1, 2, 4\]",
    ):
        move(env, LEFT)
    # What a player does, which executes it as Unity would.
    scene.academy.discrete[0, 0, 0] = LEFT
    scene.play(1)
    assert (scene._x[0], scene._z[0]) == (0, 2)


def test_a_hundred_steps_without_a_symbol_interrupt() -> None:
    env, scene = opened()
    put(scene, agent=(2, 2), plus=(0, 0), ex=(4, 4), wanted=0)
    for _ in range(MAX_STEP - 1):
        move(env, NONE)
        assert not len(env.steps(BEHAVIOR)[1])
    move(env, NONE)
    decisions, ends = env.steps(BEHAVIOR)
    assert ends.interrupted.tolist() == [True]
    assert len(decisions) == 1


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("gridSize", 0, "'gridSize' .* takes 2 to 32, got 0"),
        ("gridSize", Uniform(5, 40), "takes 2 to 32"),
        ("numPlusGoals", -1, "takes 0 to"),
        (
            "numExGoals",
            24,
            r"up to 25 symbols .* room for 24 .* numPlusGoals \+ numExGoals <= gridSize² - 1 = 24",
        ),
        ("numExGoals", Gaussian(3, 1), "up to 1024 symbols"),
        (
            "grid_size",
            5,
            "unknown parameter 'grid_size'; it knows: gridSize, numExGoals, numPlusGoals",
        ),
    ],
)
def test_impossible_parameters_are_refused_when_set(
    name: str, value: ParameterValue, message: str
) -> None:
    env, scene = opened()
    with pytest.raises(UsageError, match=message):
        env.set_parameters({name: value})
    env.reset(0)  # and nothing of it stays
    assert scene._size.tolist() == [5]


def test_parameters_act_at_the_next_episode_and_samplers_draw_for_each_area() -> None:
    env, scene = opened(300)
    env.set_parameters({"gridSize": Uniform(3, 7)})
    assert (scene._size == 5).all()
    env.reset(1)
    assert np.unique(scene._size).tolist() == [3, 4, 5, 6]
    assert (scene._x < scene._size).all()
    assert (scene._z < scene._size).all()


def test_number_of_areas_does_not_change_an_area() -> None:
    few, many = opened(2, seed=7)[1], opened(30, seed=7)[1]
    assert (few._symbol == many._symbol[:2]).all()
    assert (few._target == many._target[:2]).all()


def test_render_is_the_camera_picture_at_any_size() -> None:
    env, _ = opened()
    assert env.render(0, 640, 480).shape == (480, 640, 3)
    assert (env.render(0, 84, 64) == picture(env)).all()


@pytest.mark.parametrize(
    "names", [("numPlusGoals", "gridSize"), ("gridSize", "numPlusGoals")]
)
def test_parameters_that_depend_on_each_other_come_in_any_order(names):
    larger, smaller = (
        {"gridSize": 8, "numPlusGoals": 30},
        {"gridSize": 5, "numPlusGoals": 2},
    )
    env, scene = opened()
    for values in (larger, smaller):
        env.set_parameters({name: values[name] for name in names})
        env.reset(0)
        assert scene._size.tolist() == [values["gridSize"]]
        assert (scene._symbol == PLUS).sum() == values["numPlusGoals"]
