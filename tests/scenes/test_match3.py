"""Match3: boards, moves, lines, points, masks, sensors, heuristics and episodes."""

import hashlib

import numpy as np
import pytest

from touchline.envs.scene_env import SceneEnv
from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.parameters import Gaussian, Uniform
from touchline.policies.loading import load_policy
from touchline.scenes.match3.game import BOARDS, SIMPLE, SMART, VECTOR, VISUAL, Match3
from touchline.scenes.match3.rules import (
    COLUMNS,
    EMPTY,
    MOVES,
    ROWS,
    cells_of,
    clear_lines,
    drop,
    find_moves,
    points_of,
)
from touchline.specs import DimensionProperty
from touchline.testing import play_randomly, random_slot_actions

QUIET = np.add.outer(2 * np.arange(ROWS), np.arange(COLUMNS)).astype(np.int8) % 6
"""A board without a line: neighbors differ by 1 or 2."""


def opened(num_areas=1, seed=0, **parameters):
    env = SceneEnv(Match3(num_areas, 1), seed, parameters)
    env.reset()
    return env, env.scene


def played(scene_areas, steps, sources=None, **parameters):
    """Slots' rows, step by step: (rows before, rows after) for random or given policies."""
    env, scene = opened(scene_areas, **parameters)
    slots = Slots(env)
    rows = slots.reset(1)
    actors = {
        name: load_policy((sources or {}).get(name, "random"), name, spec, seed=k)
        for k, (name, spec) in enumerate(env.behaviors.items())
    }
    for _ in range(steps):
        after = slots.step({name: actors[name].act(row) for name, row in rows.items()})
        yield scene, rows, after
        rows = after


def lines_of(kind):
    """Whether each cell is part of a line, worked out cell by cell."""
    in_line = np.zeros(kind.shape, bool)
    for row in range(kind.shape[0]):
        for column in range(kind.shape[1]):
            for down, right in ((0, 1), (1, 0)):
                cells = [(row + i * down, column + i * right) for i in range(3)]
                if cells[-1][0] < kind.shape[0] and cells[-1][1] < kind.shape[1]:
                    types = {int(kind[cell]) for cell in cells}
                    if len(types) == 1 and EMPTY not in types:
                        for cell in cells:
                            in_line[cell] = True
    return in_line


def swapped(kind, move):
    row, column, other_row, other_column = cells_of.py_func(move)
    other = kind.copy()
    other[row, column] = kind[other_row, other_column]
    other[other_row, other_column] = kind[row, column]
    return other


def test_has_unitys_four_behaviors_in_vector_and_visual_form():
    env, scene = opened(2)
    shapes = {
        name: [(o.name, o.shape) for o in spec.observation_specs]
        for name, spec in env.behaviors.items()
    }
    cells, special = "Match3 Sensor (cells)", "Match3 Sensor (special)"
    vector = [(cells, (432,)), (special, (216,))]
    assert shapes == {
        VECTOR: vector,
        VISUAL: [(cells, (6, 9, 8)), (special, (3, 9, 8))],
        SIMPLE: vector,
        SMART: vector,
    }
    marks = env.behaviors[VISUAL].observation_specs[0].dimension_property
    equivariant = DimensionProperty.TRANSLATIONAL_EQUIVARIANCE
    assert marks == (DimensionProperty.NONE, equivariant, equivariant)
    counts = {name: len(env.steps(name)[0]) for name in env.behaviors}
    assert counts == {VECTOR: 4, VISUAL: 4, SIMPLE: 2, SMART: 2}
    assert counts == {name: env.capacity(name) for name in env.behaviors}
    assert scene.unity_areas == 2
    branches = {s.action_spec.discrete_branches for s in env.behaviors.values()}
    assert branches == {(127,)}


def test_moves_swap_with_the_right_then_with_the_upper_neighbor():
    assert cells_of.py_func(0) == (0, 0, 0, 1)
    assert cells_of.py_func(62) == (8, 6, 8, 7)
    assert cells_of.py_func(63) == (0, 0, 1, 0)
    assert cells_of.py_func(126) == (7, 7, 8, 7)
    pairs = {frozenset([m[:2], m[2:]]) for m in map(cells_of.py_func, range(MOVES))}
    assert len(pairs) == MOVES


def test_boards_are_dealt_settled_with_a_move_in_unitys_sizes():
    _, scene = opened(60)
    boards = scene.boards
    assert set(boards.size[:, 0]) == {6, 7, 8, 9}
    assert set(boards.size[:, 1]) == {6, 7, 8}
    for kind, special, (rows, columns) in zip(
        boards.kind, boards.special, boards.size, strict=True
    ):
        inside = np.zeros((ROWS, COLUMNS), bool)
        inside[:rows, :columns] = True
        np.testing.assert_array_equal(kind != EMPTY, inside)
        assert not special[~inside].any()
        assert not lines_of(kind).any()
    assert boards.valid.any(axis=1).all()


def test_types_are_uniform_and_seven_of_ten_pieces_are_plain():
    _, scene = opened(200, rows=9.0, columns=8.0)
    boards = scene.boards
    shares = np.bincount(boards.kind.reshape(-1)) / boards.kind.size
    np.testing.assert_allclose(shares, 1 / 6, atol=0.005)
    shares = np.bincount(boards.special.reshape(-1)) / boards.special.size
    np.testing.assert_allclose(shares, [0.7, 0.2, 0.1], atol=0.006)


def test_exactly_the_moves_that_make_a_line_are_allowed():
    env, scene = opened(10, seed=5)
    mask = np.concatenate([env.steps(name)[0].action_mask[0] for name in [SIMPLE]])
    boards = np.flatnonzero(np.tile(BOARDS, 10) == SIMPLE)
    for forbidden, board in zip(mask, boards, strict=True):
        kind = scene.boards.kind[board]
        for move in range(MOVES):
            after = swapped(kind, move)
            cells = cells_of.py_func(move)
            on_board = EMPTY not in (kind[cells[:2]], kind[cells[2:]])
            assert forbidden[move] == (not (on_board and lines_of(after).any()))


def test_all_lines_clear_at_once_and_a_crossing_counts_once():
    kind, special = QUIET.copy(), np.zeros((ROWS, COLUMNS), np.int8)
    kind[4, 1:5] = kind[2:5, 3] = 7  # four across and three down, one cell in both
    special[4, 3], special[4, 1] = 2, 1
    in_line = lines_of(kind)
    assert in_line.sum() == 6
    assert clear_lines(kind, special, ROWS, COLUMNS) == 6 + 2 + 1
    np.testing.assert_array_equal(kind == EMPTY, in_line)
    assert clear_lines(QUIET.copy(), special, ROWS, COLUMNS) == 0


def test_random_boards_clear_exactly_the_cells_of_their_lines():
    rng = np.random.default_rng(0)
    for _ in range(100):
        rows, columns = rng.integers(3, 10), rng.integers(3, 9)
        kind = np.full((ROWS, COLUMNS), EMPTY, np.int8)
        kind[:rows, :columns] = rng.integers(0, 3, (rows, columns))
        special = rng.integers(0, 3, (ROWS, COLUMNS)).astype(np.int8)
        in_line = lines_of(kind)
        before = kind.copy()
        points = clear_lines(kind, special, rows, columns)
        assert points == (1 + special[in_line]).sum()
        np.testing.assert_array_equal(kind, np.where(in_line, EMPTY, before))


def test_pieces_fall_to_row_0_and_keep_their_order():
    rng = np.random.default_rng(1)
    kind = rng.integers(0, 6, (ROWS, COLUMNS)).astype(np.int8)
    special = rng.integers(0, 3, (ROWS, COLUMNS)).astype(np.int8)
    kind[rng.random(kind.shape) < 0.3] = EMPTY
    before, special_before = kind.copy(), special.copy()
    drop(kind, special, ROWS, COLUMNS)
    for column in range(COLUMNS):
        there = before[:, column] != EMPTY
        count = there.sum()
        np.testing.assert_array_equal(kind[:count, column], before[there, column])
        kept = special_before[there, column]
        np.testing.assert_array_equal(special[:count, column], kept)
        assert (kind[count:, column] == EMPTY).all()


def test_a_moves_points_are_those_of_the_lines_that_it_clears_first():
    _, scene = opened(30, seed=2)
    boards = scene.boards
    for kind, special, valid, size in zip(
        boards.kind, boards.special, boards.valid, boards.size, strict=True
    ):
        for move in np.flatnonzero(valid):
            after, specials = swapped(kind, move), swapped(special, move)
            expected = clear_lines(after, specials, *size)
            assert points_of(kind.copy(), special.copy(), move) == expected


def test_a_board_without_a_line_offers_no_move():
    valid = np.ones(MOVES, np.bool_)
    stripes = (np.add.outer(3 * np.arange(ROWS), np.arange(COLUMNS)) % 6).astype(
        np.int8
    )
    assert find_moves(stripes, valid) == valid.sum() == 0


def test_a_moves_points_arrive_with_the_next_decision_and_boards_settle():
    for scene, before, after in played(4, 30):
        boards = scene.boards
        for kind in boards.kind:
            assert not lines_of(kind).any()
        assert boards.valid.any(axis=1).all()
        for name, row in after.items():
            assert (row.reward[before[name].deciding] >= 0.03 - 1e-6).all()


def test_both_forms_of_observation_show_the_board():
    env, scene = opened(3, seed=7)
    names = np.tile(BOARDS, 3)
    for name, shape, axes in (
        (VECTOR, (ROWS, COLUMNS, -1), (0, 1, 2, 3)),
        (VISUAL, None, (0, 2, 3, 1)),
    ):
        decisions, _ = env.steps(name)
        own = names == name
        for obs, values in zip(
            decisions.obs, (scene.boards.kind, scene.boards.special), strict=True
        ):
            one_hot = obs.reshape(len(obs), *shape) if shape else obs
            one_hot = one_hot.transpose(axes)
            inside = scene.boards.kind[own] != EMPTY
            np.testing.assert_array_equal(one_hot.sum(axis=3), inside)
            found = one_hot.argmax(axis=3)
            np.testing.assert_array_equal(found[inside], values[own][inside])


def test_an_episode_has_499_moves_and_the_very_first_500():
    lengths, exchanges_without_decision = {}, 0
    counts = {}
    for _, _, after in played(1, 1005):
        for name, row in after.items():
            count = counts.setdefault(name, np.zeros(len(row), int))
            count += row.closed
            assert not row.terminated.any()
            ended = row.truncated
            lengths.setdefault(name, []).extend(count[ended].tolist())
            count[ended] = 0
            exchanges_without_decision += int((ended & row.deciding).any())
    for name, found in lengths.items():
        first = BOARDS.count(name)
        assert found == [500] * first + [499] * first


def test_an_end_comes_alone_and_the_next_decision_one_step_later():
    env, scene = opened()
    scene.moves[:] = 499
    env.step()
    for name in env.behaviors:
        decisions, ends = env.steps(name)
        assert len(decisions) == 0
        assert ends.interrupted.all()
    ids = {name: env.steps(name)[1].agent_id for name in env.behaviors}
    kind = scene.boards.kind.copy()
    env.step()
    np.testing.assert_array_equal(scene.boards.kind, kind, err_msg="nobody moved")
    for name in env.behaviors:
        decisions, _ = env.steps(name)
        np.testing.assert_array_equal(decisions.agent_id, ids[name])
        assert not decisions.reward.any()


def test_the_size_can_be_fixed_or_drawn_but_must_hold_a_line():
    _, scene = opened(5, rows=7.0, columns=6.0)
    assert (scene.boards.size == (7, 6)).all()
    scene.set_parameter("rows", Uniform(3.0, 5.0))
    scene.begin_episodes(np.arange(30))
    assert set(scene.boards.size[:, 0]) <= {3, 4, 5}
    with pytest.raises(UsageError, match=r"'rows' takes 0, or 3 and more .* got 2"):
        scene.set_parameter("rows", 2.0)
    for sampler in (Uniform(0.0, 9.0), Gaussian(6.0, 2.0)):
        with pytest.raises(UsageError, match="'rows' takes 0, or 3 and more"):
            scene.set_parameter("rows", sampler)
    scene.begin_episodes(np.arange(30))
    assert set(scene.boards.size[:, 0]) <= {3, 4, 5}, "what was refused was not set"
    with pytest.raises(UsageError, match=r"'columns' .* takes 0 to 8, got 9"):
        scene.set_parameter("columns", 9.0)


def returns_of(areas, sources=None, **parameters):
    """The returns of the first episodes, by behavior."""
    returns = {}
    for _, _, after in played(areas, 500, sources, **parameters):
        for name, row in after.items():
            total = returns.setdefault(name, np.zeros(len(row)))
            total += row.reward
    return {name: total.mean() for name, total in returns.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parameters", "simple", "greedy"),
    [({"rows": 9.0, "columns": 8.0}, 34.2, 37.0), ({}, 32.0, 34.7)],
)
def test_heuristics_return_what_unitys_documents_say(parameters, simple, greedy):
    """On 9 x 8 the figures of Unity's page; on the shipped sizes those of a trial."""
    sources = {VECTOR: "greedy", VISUAL: "greedy"}
    means = returns_of(256, sources, **parameters)
    assert means[SIMPLE] == pytest.approx(simple, abs=0.35)
    assert means[SMART] == pytest.approx(greedy, abs=0.35)
    assert means[VECTOR] == pytest.approx(greedy, abs=0.3)
    assert means[VISUAL] == pytest.approx(greedy, abs=0.3)
    random = returns_of(256, **parameters)
    assert random[VECTOR] == pytest.approx(simple, abs=0.3)
    assert random[VISUAL] == pytest.approx(simple, abs=0.3)


def test_the_greedy_policy_takes_a_move_with_most_points():
    sources = {VECTOR: "greedy", VISUAL: "greedy"}
    env, scene = opened(4)
    slots = Slots(env)
    rows = slots.reset(3)
    names = np.tile(BOARDS, 4)
    for name in sources:
        actor = load_policy("greedy", name, env.behaviors[name], seed=0)
        moves = actor.act(rows[name]).discrete[:, 0]
        for board, move in zip(np.flatnonzero(names == name), moves, strict=True):
            kind, special = scene.boards.kind[board], scene.boards.special[board]
            points = [
                points_of(kind, special, m)
                for m in np.flatnonzero(scene.boards.valid[board])
            ]
            assert points_of(kind, special, move) == max(points)


def test_the_greedy_policy_refuses_other_games():
    with SceneEnv(Match3(1, 1)) as env:
        spec = env.behaviors[VECTOR]
    actor = load_policy("greedy", VECTOR, spec)
    with pytest.raises(
        UsageError, match="'greedy' plays Match3, and Walker is of another"
    ):
        actor.policy.check(
            "Walker", type(spec)(spec.observation_specs[:1], spec.action_spec)
        )


def test_the_heuristics_behaviors_ignore_their_actions():
    paths = []
    for seed in (0, 1):
        env, scene = opened(2)
        slots = Slots(env)
        rows = slots.reset(4)
        rng = np.random.default_rng(seed)
        for _ in range(5):
            rows = slots.step(
                {
                    name: random_slot_actions(env.behaviors[name], row, rng)
                    for name, row in rows.items()
                }
            )
        own = np.isin(np.tile(BOARDS, 2), [SIMPLE, SMART])
        paths.append((scene.boards.kind[own].copy(), scene.boards.kind[~own].copy()))
    np.testing.assert_array_equal(paths[0][0], paths[1][0])
    assert (paths[0][1] != paths[1][1]).any()


def test_random_play_leads_to_the_boards_that_it_led_to_before():
    """Golden digest of 2026-11-22: faster kernels must give the same boards, bit for bit."""
    env, scene = opened(2, seed=11)
    play_randomly(env, 60)
    boards = scene.boards.kind.tobytes() + scene.boards.special.tobytes()
    assert hashlib.sha256(boards).hexdigest()[:16] == "89d579ba2a4a9dc2"
