"""MicroRTS as an Env, held against the engine of gym-microrts 0.3.2 and against known numbers.

Numbers without another origin were measured on the engine of gym-microrts 0.6.0 through its own
clients.
"""

import sys
import zlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from touchline.envs.actions import ActionError
from touchline.envs.env import EnvRecipe, make
from touchline.errors import MissingError, UsageError
from touchline.microrts.bots import make_bot, opponents_of_areas
from touchline.microrts.engine import Engine
from touchline.microrts.env import MicrortsEnv
from touchline.microrts.java import java_class, start_java
from touchline.microrts.options import Options
from touchline.microrts.rules import (
    BOTS,
    FIRST_PLANE,
    PARTS,
    PLANE_GROUPS,
    PLANES,
    REWARDS,
    TASKS,
    UNIT_TYPES,
    Bot,
    balance_of,
    parse_weights,
)
from touchline.specs import ActionTuple
from touchline.testing import allowed_actions, check_env, check_slots, play_randomly

GOLDEN = Path(__file__).with_name("microrts_032.npz")
RECORDED = ("orders", "clock", "checks", "rewards")
US = "MicroRTS?team=0"
THEM = "MicroRTS?team=1"


def open_env(engine: Engine, target: str, num_areas: int = 1, **options) -> MicrortsEnv:
    return MicrortsEnv(
        target, Options.parse({"engine": str(engine.folder), **options}), num_areas
    )


def raw_board(planes: np.ndarray) -> np.ndarray:
    """int8 [5, h, w] from one-hot planes, as 0.3.2's observation before its planes."""
    parts = [
        planes[FIRST_PLANE[g] : FIRST_PLANE[g] + n].argmax(axis=0)
        for g, n in PLANE_GROUPS.items()
    ]
    return np.array(parts, np.int8)


def crc(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).astype(np.int8).tobytes())


def test_unit_form_equals_0_3_2_for_12000_steps_with_a_tenth_of_invalid_orders(engine):
    """Record made by `bench/microrts/record_032.py` with 0.3.2's own engine and stepping class."""
    record = dict(np.load(GOLDEN))
    games = len(record["begins"])
    orders, clock, checks, paid = (
        record[key].reshape(games, -1, *record[key].shape[1:]) for key in RECORDED
    )
    paid[:, :, 6] = paid[:, :, 6].clip(-1.0, 1.0)  # as 0.3.2's wrapper
    options = {
        "compat": "0.3.2",
        "max_steps": 10_000,
        "weights": "gather:1,closer_to_enemy_base:1",
    }
    with open_env(engine, "MicrortsMining-v4", games, seat="both", **options) as env:
        env.reset(0)
        assert env.games.player.tolist() == [0, 1] * (games // 2)
        boards, units = env.steps(US)[0].obs[0], ~env.steps(US)[0].action_mask[0]
        assert [
            [crc(raw_board(b)), crc(u)] for b, u in zip(boards, units, strict=True)
        ] == record["begins"].tolist()
        for step in range(orders.shape[1]):
            cells = orders[:, step, 0]
            rows = np.arange(games)
            masks = (
                env.games.allowed[rows, cells] * env.form._waiting[rows, cells][:, None]
            )
            before = env._reward_sums.copy()
            env.set_actions(US, ActionTuple(discrete=orders[:, step].astype(np.int32)))
            env.step()
            seen = zip(env.steps(US)[0].obs[0], env.form._waiting, masks, strict=True)
            assert [[crc(raw_board(b)), crc(u), crc(m)] for b, u, m in seen] == checks[
                :, step
            ].tolist(), step
            assert env.games.clock.tolist() == clock[:, step].tolist(), step
            assert np.allclose((env._reward_sums - before)[:, :7], paid[:, step]), step


def order(env: MicrortsEnv, orders: dict[int, list[int]], behavior: str = US) -> float:
    """One tick of grid form with these orders (cell -> parts); what the first agent earns."""
    act(env, orders, behavior)
    env.step()
    decisions, terminals = env.steps(behavior)
    return float((terminals if len(terminals) else decisions).reward[0])


def act(env: MicrortsEnv, orders: dict[int, list[int]], behavior: str) -> None:
    actions = np.zeros(
        (env.num_areas, env.map.height * env.map.width, len(PARTS)), np.int32
    )
    for cell, parts in orders.items():
        actions[:, cell, : len(parts)] = parts
    env.set_actions(behavior, ActionTuple(discrete=actions.reshape(env.num_areas, -1)))


def idle_cells(env: MicrortsEnv) -> list[int]:
    return np.flatnonzero(env.games.allowed[0, :, 0]).tolist()


def wait_for(env: MicrortsEnv, cell: int) -> int:
    """Let time pass until a unit stands idle in this cell; the clock then."""
    for _ in range(1000):
        if cell in idle_cells(env):
            return int(env.games.clock[0])
        order(env, {})
    raise AssertionError(f"no unit came to cell {cell}")


def produce(kind: str, direction: int) -> list[int]:
    return [4, 0, 0, 0, direction, UNIT_TYPES.index(kind)]


HARVEST_LEFT, MOVE_LEFT, MOVE_RIGHT, RETURN_DOWN = (
    [2, 0, 3],
    [1, 3],
    [1, 1],
    [3, 0, 0, 2],
)


@pytest.fixture
def own_map(engine, tmp_path):
    """Writes a small map next to a link to the real engine, and opens it."""
    if sys.platform == "win32":
        pytest.skip("Windows asks for a privilege before it makes a link")
    (tmp_path / "microrts.jar").symlink_to(engine.jar)
    (tmp_path / "maps").mkdir()
    opened = []

    def open_map(units: list[tuple[str, int, int, int]], **options) -> MicrortsEnv:
        rows = "".join(
            f'<rts.units.Unit type="{kind}" ID="{i}" player="{player}" x="{x}" y="{y}" resources="0" '
            f'hitpoints="{1 if kind in ("Worker", "Ranged") else 4}"></rts.units.Unit>'
            for i, (kind, player, x, y) in enumerate(units)
        )
        text = (
            '<rts.PhysicalGameState width="5" height="4"><terrain>'
            + "0" * 20
            + "</terrain><players>"
            '<rts.Player ID="0" resources="0"></rts.Player><rts.Player ID="1" resources="0"></rts.Player>'
            f"</players><units>{rows}</units></rts.PhysicalGameState>"
        )
        (tmp_path / "maps" / "own.xml").write_text(text)
        env = open_env(Engine(tmp_path), "own", seat="0", **options)
        opened.append(env)
        env.reset(0)
        return env

    yield open_map
    for env in opened:
        env.close()


# The contract


@pytest.mark.parametrize(
    "typed",
    [
        "basesWorkers8x8?opponent=randombiased&max_ticks=60",
        "MicrortsMining-v4?max_steps=50&turned=1",
        "basesWorkers8x8?form=asker&opponent=workerrush&max_ticks=80&economy=1&partial=1",
        "basesWorkers8x8?opponent=self&max_ticks=40&turned=1",
        "NoWhereToRun9x8?opponent=lightrush,passive&walls=1&max_ticks=40",
    ],
)
def test_the_world_keeps_the_contract_of_env_and_slots(engine, typed):
    recipe = EnvRecipe.parse(f"microrts:{typed}&engine={engine.folder}", num_areas=3)
    check_env(recipe, 60, random_start=False)
    with make(recipe) as env:
        check_slots(env, 60)


def test_masks_never_leave_a_branch_without_a_choice_and_allowed_orders_are_valid(
    engine,
):
    for form in ("grid", "unit", "asker"):
        with open_env(
            engine,
            "basesWorkers8x8",
            2,
            form=form,
            opponent="randombiased",
            strict=True,
        ) as env:
            env.reset(1)
            rng = np.random.default_rng(0)
            for _ in range(150):
                decisions, _ = env.steps(US)
                assert all(
                    not forbidden.all(axis=1).any()
                    for forbidden in decisions.action_mask
                )
                # strict: an invalid order would raise; only a pair of direction and product is not
                # covered
                env.set_actions(
                    US, allowed_actions(env.behaviors[US].action_spec, decisions, rng)
                )
                env.step()


def test_second_stage_masks_are_those_of_the_chosen_cell(engine):
    with open_env(engine, "MicrortsMining-v4") as env:
        env.reset(0)
        decisions, _ = env.steps(US)
        first, second = ~decisions.action_mask[0][0], ~decisions.second_mask[0]
        ours = {0: [17, 34], 1: [221, 238]}[int(env.games.player[0])]
        assert np.flatnonzero(first).tolist() == ours
        types = {cell: np.flatnonzero(second[cell, :6]).tolist() for cell in ours}
        assert sorted(types.values()) == [
            [0, 1, 2, 4],
            [0, 4],
        ]  # the worker's and the base's
        union = np.concatenate([~mask[0] for mask in decisions.action_mask[1:]])
        assert np.array_equal(union, second[ours].any(axis=0))


# Known numbers


def test_the_first_masks_of_bases_workers_16x16(engine):
    with open_env(engine, "basesWorkers16x16", opponent="passive", seat="0") as env:
        env.reset(0)
        assert idle_cells(env) == [17, 34]
        allowed = env.games.allowed[0]
        assert np.flatnonzero(allowed[17]).tolist() == [
            0,
            1,
            2,
            4,
            6,
            7,
            8,
            13,
            18,
            19,
            20,
            24,
        ]
        assert np.flatnonzero(allowed[34]).tolist() == [0, 4, 18, 19, 20, 21, 25]


def test_one_round_trip_of_a_worker_takes_50_ticks_and_pays_2(engine):
    with open_env(
        engine, "basesWorkers16x16", opponent="passive", seat="0", weights="gather:1"
    ) as env:
        env.reset(0)
        assert order(env, {17: HARVEST_LEFT}) == 1.0
        assert wait_for(env, 17) == 20
        assert order(env, {17: MOVE_RIGHT}) == 0.0
        assert wait_for(env, 18) == 30
        assert order(env, {18: RETURN_DOWN}) == 1.0
        assert wait_for(env, 18) == 40
        assert env.games.stock(0)[0] == 6
        order(env, {18: MOVE_LEFT})
        assert wait_for(env, 17) == 50
        assert order(env, {17: HARVEST_LEFT}) == 1.0


def test_a_base_makes_a_worker_in_50_ticks_and_a_worker_barracks_in_200(engine):
    weights = "produce_worker:1,produce_building:10"
    with open_env(
        engine, "basesWorkers16x16", opponent="passive", seat="0", weights=weights
    ) as env:
        env.reset(0)
        assert order(env, {34: produce("Worker", 0)}) == 1.0
        assert wait_for(env, 34) == 50
        assert 18 in idle_cells(env)
        env.reset(0)
        assert order(env, {17: produce("Barracks", 2)}) == 10.0
        assert wait_for(env, 33) == 200
        assert env.games.stock(0)[0] == 0


@pytest.mark.parametrize(
    ("bot", "tick"), [("workerrush", 345), ("lightrush", 584), ("coac", 755)]
)
def test_doing_nothing_loses_to_a_bot_at_its_known_tick(engine, bot, tick):
    with open_env(
        engine, "basesWorkers16x16", opponent=bot, seat="0", weights="win_loss:1"
    ) as env:
        env.reset(0)
        for _ in range(tick):
            env.step()
        _, terminals = env.steps(US)
        assert (terminals.reward[0], terminals.interrupted[0]) == (-1.0, False)
        (record,) = env.pop_records()
        assert (record.result, record.ticks, record.opponent) == ("loss", tick, bot)


def test_random_legal_play_earns_what_it_is_known_to_earn(engine):
    """Means of 4 games: gather 30, produce_worker 18, attack 4, and no side wins against Passive in
    2000 ticks.
    """
    with open_env(
        engine, "basesWorkers16x16", 4, opponent="passive", max_ticks=1000
    ) as env:
        env.reset(0)
        play_randomly(env, 1000)
        records = env.pop_records()
    mean = {
        name: np.mean([record.rewards[name] for record in records]) for name in REWARDS
    }
    assert {record.result for record in records} == {"tie"}
    assert {record.player for record in records} == {0, 1}
    assert 5 <= mean["gather"] <= 35
    assert 7 <= mean["produce_worker"] <= 22


@pytest.mark.slow
def test_random_legal_play_against_random_play_fights_more(engine):
    """Means of 4 games of 2000 ticks: gather 35, produce_worker 21, attack 17; against Passive
    attack is 4.
    """
    with open_env(
        engine, "basesWorkers16x16", 4, opponent="randombiased", max_ticks=2000
    ) as env:
        env.reset(0)
        play_randomly(env, 2000)
        records = env.pop_records()
    mean = {
        name: np.mean([record.rewards[name] for record in records]) for name in REWARDS
    }
    assert 20 <= mean["gather"] <= 50
    assert 12 <= mean["produce_worker"] <= 30
    assert 8 <= mean["attack"] <= 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bot", "first", "last"),
    [("workerrush", 590, 805), ("lightrush", 906, 994), ("coac", 782, 963)],
)
def test_random_legal_play_loses_to_a_rush_in_its_known_time(engine, bot, first, last):
    """First and last end of 4 games, with a fifth to spare."""
    with open_env(engine, "basesWorkers16x16", 4, opponent=bot, max_ticks=1200) as env:
        env.reset(0)
        play_randomly(env, 1200)
        records = env.pop_records()[:4]
    assert {record.result for record in records} == {"loss"}
    assert all(0.8 * first <= record.ticks <= 1.2 * last for record in records), [
        r.ticks for r in records
    ]


def test_masked_random_mining_earns_7_to_22_and_without_second_masks_or_any_nothing(
    engine,
):
    with open_env(engine, "MicrortsMining-v4", 6) as env:
        env.reset(0)
        play_randomly(env, 2000)
        masked = [record.rewards["gather"] for record in env.pop_records()]
        rng, spec = np.random.default_rng(0), env.behaviors[US].action_spec
        env.reset(0)
        for _ in range(400):
            cells = allowed_actions(spec, env.steps(US)[0], rng).discrete[:, :1]
            env.set_actions(
                US,
                ActionTuple(
                    discrete=np.hstack(
                        [cells, spec.random_action(6, rng).discrete[:, 1:]]
                    )
                ),
            )
            env.step()
        assert env._reward_sums[:, 1].mean() <= 2, (
            "cells from the mask, orders drawn blindly"
        )
        env.reset(0)
        rng = np.random.default_rng(0)
        for _ in range(300):
            env.set_actions(US, spec.random_action(6, rng))
            env.step()
        assert (env.games.clock < 100).all(), (
            "an agent that names wrong cells makes time stand still"
        )
        assert env._reward_sums[:, 1].sum() <= 2
    assert len(masked) == 6
    assert 5 <= np.mean(masked) <= 24


# Time limits and rewards


def test_a_cut_game_is_interrupted_and_shows_its_true_last_board(engine):
    long, short = (
        open_env(engine, "basesWorkers8x8", 2, opponent="workerrush", max_ticks=ticks)
        for ticks in (100, 40)
    )
    with long, short:
        for env in (long, short):
            env.reset(0)
            play_randomly(env, 40)
        decisions, terminals = short.steps(US)
        assert terminals.interrupted.all()
        assert np.array_equal(terminals.obs[0], long.steps(US)[0].obs[0])
        assert not np.array_equal(terminals.obs[0], decisions.obs[0])
        assert not decisions.reward.any()
        assert (short.games.clock == 0).all()


def test_a_reset_in_mid_game_starts_a_game_of_full_length(engine):
    """D3: the engine's vector client goes on counting."""
    with open_env(engine, "basesWorkers8x8", opponent="passive", max_ticks=30) as env:
        env.reset(0)
        for _ in range(20):
            env.step()
        env.reset()
        for tick in range(1, 31):
            env.step()
            assert len(env.steps(US)[1]) == (tick == 30)


def test_weights_are_numbers_in_the_published_order_or_names():
    assert parse_weights("10,1,1,0.2,1,4") == (10, 1, 1, 0.2, 1, 4, 0, 0, 0)
    assert parse_weights("gather:2,evaluation:0.5") == (0, 2, 0, 0, 0, 0, 0, 0.5, 0)
    for wrong, message in (
        ("gathr:1", "did you mean gather"),
        ("x", "not a number"),
        ("1," * 10, "at most 9"),
    ):
        with pytest.raises(UsageError, match=message):
            parse_weights(wrong)


def test_statistics_of_training_count_every_game_once_and_keep_none(engine):
    won = "MicroRTS/Win Rate vs passive"
    with open_env(engine, "basesWorkers8x8", 2, opponent="passive", max_ticks=3) as env:
        env.reset(0)
        for _ in range(3):
            play_randomly(env, 6)
            (values,) = env.take_statistics().values()
            assert [value for value, _ in values] == [0.0] * 4
            assert env.take_statistics() == {}
        assert env.pop_records() == []
        play_randomly(env, 3)
        assert won in env.take_statistics()


def test_all_reward_functions_of_the_engine_can_be_paid(engine):
    with open_env(
        engine, "basesWorkers8x8", 4, opponent="workerrush", weights="1,1,1,1,1,1,1,1"
    ) as env:
        env.reset(0)
        play_randomly(env, 400)
        records = env.pop_records()
    assert records
    for name in ("win_loss", "gather", "closer_to_enemy_base", "evaluation"):
        assert any(record.rewards[name] for record in records), name


def test_material_pays_how_the_balance_of_both_sides_changed(engine):
    """Equal at the start; a side that has nothing left has lost all of its share."""
    with open_env(
        engine,
        "basesWorkers8x8",
        4,
        opponent="workerrush",
        weights="material:2",
        economy=True,
    ) as env:
        env.reset(0)
        paid = np.zeros(4)
        for _ in range(60):
            play_randomly(env, 1)
            steps, ends = env.steps(US)
            assert not len(ends)
            paid += steps.reward
            planes, economy = steps.obs
            own, other = economy[:, 0] * 10, economy[:, 1] * 10
            np.testing.assert_allclose(
                paid, 2 * balance_of(planes, own, other), atol=1e-5
            )
        assert np.abs(paid).max() > 0
        play_randomly(env, 2000)
        records = env.pop_records()
    lost = [r.rewards["material"] for r in records if r.result == "loss"]
    assert lost
    assert max(lost) < -0.5
    board = np.zeros((1, 27, 1, 2), np.float32)
    for cell, owner, unit in ((0, 1, "Worker"), (1, 2, "Base")):
        board[0, FIRST_PLANE["owner"] + owner, 0, cell] = 1
        board[0, FIRST_PLANE["unit_type"] + 1 + UNIT_TYPES.index(unit), 0, cell] = 1
    board[0, FIRST_PLANE["resources"] + 1, 0, 0] = 1
    # 1 + 1 carried + 3 in stock, and 10 + 0.
    expected = (5 - 10) / (5 + 10)
    assert balance_of(board, np.array([3]), np.array([0])) == pytest.approx(expected)


# Defects of the engine and of the old wrapper, fixed


# Askers come in the engine's order of cells.
@pytest.mark.parametrize("form", ["unit", "grid"])
def test_on_a_turned_board_both_seats_play_the_same_game(engine, form):
    rng = np.random.default_rng(0)
    with open_env(
        engine,
        "basesWorkers8x8",
        2,
        form=form,
        opponent="passive",
        turned=True,
        seat="both",
    ) as env:
        env.reset(0)
        assert env.games.player.tolist() == [0, 1]
        for _ in range(150):
            steps, _ = env.steps(US)
            assert (steps.obs[0][0] == steps.obs[0][1]).all()
            assert steps.reward[0] == steps.reward[1]
            orders = allowed_actions(env.behaviors[US].action_spec, steps, rng).discrete
            # Two orders for one cell or sum are settled by their place in the engine's list.
            if form == "grid":
                orders.reshape(2, 64, -1)[:, np.arange(64) % 4 != rng.integers(4)] = 0
            orders[1] = orders[0]
            env.set_actions(US, ActionTuple(discrete=orders))
            env.step()
            assert (env._num_orders[0] == env._num_orders[1]).all()
            assert (env._num_invalid[0] == env._num_invalid[1]).all()


def test_d1_naming_a_unit_twice_pays_once_except_with_compat(engine):
    harvest = np.array([[17, 2, 0, 3, 0, 0, 0, 0]], np.int32)
    earned = {}
    for compat in ("", "0.3.2"):
        with open_env(engine, "MicrortsMining-v4", seat="0", compat=compat) as env:
            env.reset(0)
            rewards = []
            for action in (
                harvest,
                harvest,
                harvest,
                harvest + [[17, -2, 0, -3, 0, 0, 0, 0]],
            ):
                env.set_actions(US, ActionTuple(discrete=action))
                env.step()
                rewards.append(float(env.steps(US)[0].reward[0]))
            earned[compat] = sum(rewards)
    assert earned[""] == 1.0
    assert earned["0.3.2"] > 1.0


def test_d2_resources_belong_to_no_player_whatever_side_we_play(engine):
    for compat, owner in (("", 0), ("0.3.2", 1)):
        with open_env(engine, "MicrortsMining-v4", seat="1", compat=compat) as env:
            env.reset(0)
            planes = env.steps(US)[0].obs[0][0]
            resources = planes[FIRST_PLANE["unit_type"] + 1] > 0
            assert resources.sum() == 4
            assert (planes[FIRST_PLANE["owner"] + owner][resources] == 1).all()


def test_d5_a_partial_view_is_of_now_and_hides_what_is_out_of_sight(engine):
    full, partial = (
        open_env(
            engine, "basesWorkers8x8", opponent="passive", partial=partial, seat="0"
        )
        for partial in (False, True)
    )
    with full, partial:
        for env in (full, partial):
            env.reset(0)
        hidden_units = 0
        for _ in range(60):
            truth, view = full.steps(US)[0].obs[0][0], partial.steps(US)[0].obs[0][0]
            seen = view[PLANES + 1] > 0
            assert np.array_equal(view[PLANES] > 0, ~seen)
            mine = slice(0, PLANES)
            assert np.array_equal(truth[mine, seen], view[mine, seen])
            assert not view[
                FIRST_PLANE["owner"] + 1 : FIRST_PLANE["owner"] + 3, ~seen
            ].any()
            hidden_units += int(truth[FIRST_PLANE["owner"] + 2, ~seen].sum())
            actions = allowed_actions(
                full.behaviors[US].action_spec,
                full.steps(US)[0],
                np.random.default_rng(0),
            )
            for env in (full, partial):
                env.set_actions(US, actions)
                env.step()
        assert hidden_units > 0


def test_d6_every_cell_is_one_hot_in_every_group(engine):
    with open_env(engine, "basesWorkers8x8", 2, opponent="randombiased") as env:
        env.reset(0)
        play_randomly(env, 100)
        planes = env.steps(US)[0].obs[0]
        for group, size in PLANE_GROUPS.items():
            first = FIRST_PLANE[group]
            assert (planes[:, first : first + size].sum(axis=1) == 1).all(), group


def test_d7_attacking_ones_own_is_refused_and_pays_nothing(own_map):
    down, right = (1 + 3) * 7 + 3, 3 * 7 + (1 + 3)
    units = [
        ("Worker", 0, 1, 1),
        ("Worker", 0, 1, 2),
        ("Resource", -1, 2, 1),
        ("Worker", 1, 4, 3),
    ]
    env = own_map(units, opponent="passive", weights="attack:1")
    assert order(env, {6: [5, 0, 0, 0, 0, 0, down]}) == 0.0
    assert order(env, {11: [5, 0, 0, 0, 0, 0, 3 * 7 + 3 - 7]}) == 0.0
    assert env._num_invalid[0] == 2
    wait_for(env, 6)
    assert order(env, {6: [5, 0, 0, 0, 0, 0, right]}) == 0.0


def test_d7_when_both_sides_die_at_once_neither_has_lost(own_map):
    left, right = 3 * 7 + (-1 + 3), 3 * 7 + (1 + 3)
    units = [("Worker", 0, 1, 1), ("Worker", 1, 2, 1)]
    for compat, paid in (("", 0.0), ("0.3.2", -1.0)):
        env = own_map(units, opponent="self", weights="win_loss:1", compat=compat)
        act(env, {6: [5, 0, 0, 0, 0, 0, right]}, US)
        act(env, {7: [5, 0, 0, 0, 0, 0, left]}, THEM)
        for _ in range(10):
            env.step()
            if len(env.steps(US)[1]):
                break
        for team in (US, THEM):
            terminals = env.steps(team)[1]
            assert (terminals.reward[0], terminals.interrupted[0]) == (paid, False)
        assert [record.result for record in env.pop_records()] == ["tie", "tie"]


def test_d8_in_self_play_no_side_has_the_first_move(own_map):
    units = [("Worker", 0, 1, 1), ("Worker", 1, 3, 1)]
    env = own_map(units, opponent="self")
    act(env, {6: MOVE_RIGHT}, US)
    act(env, {8: MOVE_LEFT}, THEM)
    env.step()
    for _ in range(12):
        env.step()
    boards = [env.steps(team)[0].obs[0][0] for team in (US, THEM)]
    owner = FIRST_PLANE["owner"]
    assert [np.flatnonzero(board[owner + 1]).tolist() for board in boards] == [[6], [8]]
    assert [np.flatnonzero(board[owner + 2]).tolist() for board in boards] == [[8], [6]]


def test_d9_frames_need_no_display(engine, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    with open_env(engine, "basesWorkers8x8", 2, opponent="passive", seat="both") as env:
        env.reset(0)
        frames = [env.render(area, 320, 240) for area in (0, 1)]
        assert all(
            frame.shape == (240, 320, 3) and frame.dtype == np.uint8 for frame in frames
        )
        assert len(np.unique(frames[0].reshape(-1, 3), axis=0)) > 10
        with pytest.raises(UsageError, match="area must be 0 to 1"):
            env.render(2)


def test_both_agents_of_a_game_are_in_its_area(engine):
    with open_env(engine, "basesWorkers8x8", 3, opponent="passive,self") as env:
        env.reset(0)
        agents = np.concatenate([env.steps(name)[0].agent_id for name in env.behaviors])
        assert env.areas_of(agents).tolist() == [0, 1, 2, 1]
        assert env.areas_of(np.array([-1], np.int32)).tolist() == [0]


def test_d10_an_order_outside_its_range_never_reaches_the_engine(engine):
    with open_env(engine, "basesWorkers8x8", opponent="passive") as env:
        env.reset(0)
        for wrong in (-1, 7):
            with pytest.raises(ActionError, match=r"branch 5: expected 0 to 6"):
                order(env, {0: [4, 0, 0, 0, 0, wrong]})


# Invalid orders, opponents, options


def test_invalid_orders_are_counted_and_strict_refuses_them(engine):
    with open_env(
        engine, "basesWorkers8x8", opponent="passive", seat="0", max_ticks=1
    ) as env:
        env.reset(0)
        order(env, {9: [5, 0, 0, 0, 0, 0, 0]})
        (record,) = env.pop_records()
        assert (record.orders, record.invalid_orders, record.invalid_share) == (
            2,
            1,
            0.5,
        )
    with open_env(
        engine, "basesWorkers8x8", opponent="passive", seat="0", strict=True
    ) as env:
        env.reset(0)
        with pytest.raises(ActionError, match="do not allow now"):
            order(env, {9: [5, 0, 0, 0, 0, 0, 0]})


@pytest.mark.parametrize(
    "bot", [name for name, bot in BOTS.items() if not bot.is_supervised]
)
def test_every_quick_bot_plays(engine, bot):
    with open_env(engine, "basesWorkers8x8", opponent=bot) as env:
        env.reset(0)
        play_randomly(env, 20)
        assert not env.games.faults


@pytest.mark.slow
@pytest.mark.parametrize(
    "bot", [name for name, bot in BOTS.items() if bot.is_supervised]
)
def test_every_searching_bot_plays(engine, bot):
    with open_env(engine, "basesWorkers8x8", opponent=bot, bot_time_ms=20_000) as env:
        env.reset(0)
        play_randomly(env, 40)
        assert not env.games.faults
        assert not [record for record in env.pop_records() if record.fault]


def test_bots_search_as_long_as_search_ms_says_in_every_game(engine):
    with open_env(
        engine, "basesWorkers8x8", opponent="naivemcts", search_ms=3, max_ticks=2
    ) as env:
        env.reset(0)
        for _ in range(4):  # a reset clones the bot
            assert int(env.games._clients[0].ai2.getTimeBudget()) == 3
            env.step()


def test_bots_that_a_bot_keeps_from_its_first_move_on_search_as_long(engine):
    with open_env(
        engine, "basesWorkers8x8", opponent="naivemcts", search_ms=3, seat="0"
    ) as env:
        env.reset(0)
        inner = java_class("ai.mcts.naivemcts.NaiveMCTS")(env.games.unit_types)
        assert int(inner.getTimeBudget()) == 100
        env.games._clients[0].ai2 = java_class("ai.core.ContinuingAI")(inner)
        env.step()
        assert int(inner.getTimeBudget()) == 3


@pytest.mark.parametrize("given", ["2000", "3000000000"])
def test_more_time_to_search_than_a_move_may_take_is_refused(given):
    with pytest.raises(UsageError, match=rf"search_ms={given}: .*bot_time_ms=2000"):
        Options.parse({"search_ms": given})


def test_a_bot_that_takes_too_long_is_named_and_the_run_goes_on(engine):
    with open_env(
        engine, "basesWorkers8x8", opponent="naivemcts", bot_time_ms=0.001, seat="0"
    ) as env:
        env.reset(0)
        env.step()
        decisions, terminals = env.steps(US)
        assert terminals.interrupted.all()
        (record,) = env.pop_records()
        assert record.result == "fault"
        assert "naivemcts thought for" in record.fault
        assert len(decisions) == 1


def test_a_bot_that_crashes_ends_its_own_game_only(engine):
    with open_env(engine, "basesWorkers8x8", 3, opponent="workerrush", seat="0") as env:
        env.reset(0)
        for _ in range(5):
            env.step()
        env.games._clients[1].ai2 = None  # the engine's next call of this bot fails
        env.step()
        _, terminals = env.steps(US)
        assert (terminals.agent_id.tolist(), terminals.interrupted.tolist()) == (
            [1],
            [True],
        )
        (record,) = env.pop_records()
        assert (record.area, record.result, "workerrush crashed" in record.fault) == (
            1,
            "fault",
            True,
        )
        env.step()
        assert env.games.clock.tolist() == [7, 1, 7]


def test_an_order_for_a_unit_that_does_not_exist_never_reaches_the_engine(engine):
    """`GameState.issueSafe` would end the whole process."""
    with open_env(engine, "basesWorkers8x8", opponent="naivemcts", seat="0") as env:
        env.reset(0)
        move = java_class("rts.PlayerAction")()
        move.addUnitAction(None, java_class("rts.UnitAction")(0, 1))
        bot = SimpleNamespace(getAction=lambda player, state: move)
        env.games._clients[0] = SimpleNamespace(ai2=bot, gs=env.games._clients[0].gs)
        assert env.games._bot_move(0, 1) is None
        assert "unit that does not exist" in env.games.faults[0]


def test_areas_share_the_opponents_in_turn():
    assert opponents_of_areas("coac:2,WorkerRush", 5) == [
        "coac",
        "coac",
        "workerrush",
        "coac",
        "coac",
    ]
    for wrong, message in (
        ("coak", "did you mean coac"),
        ("coac:x", "BOT or BOT:NUMBER_OF_AREAS"),
        ("coac:0", "BOT or BOT:NUMBER_OF_AREAS"),
    ):
        with pytest.raises(UsageError, match=message):
            opponents_of_areas(wrong, 1)


def test_areas_share_maps_in_turn_and_we_are_player_0_on_those_that_favour_us(engine):
    with open_env(
        engine,
        "basesWorkers8x8",
        4,
        maps="lastWorker8x8A,basesWorkers8x8",
        opponent="passive",
        weights="material:1",
        max_ticks=20,
        economy=True,
    ) as env:
        env.reset(0)
        units, seats = FIRST_PLANE["unit_type"], set()
        for _ in range(3):  # games of each area
            steps, _ = env.steps(US)
            planes, economy = steps.obs
            workers = planes[:, units + 1 + UNIT_TYPES.index("Worker")].sum((1, 2))
            assert workers.tolist() == [9, 2, 9, 2]
            assert economy[:, 0].tolist() == [0.0, 0.5, 0.0, 0.5]
            assert env.games.player[[0, 2]].tolist() == [0, 0]
            seats |= set(env.games.player[[1, 3]].tolist())
            play_randomly(env, 20)
        assert seats == {0, 1}
        records = env.pop_records()
    # Nothing is lost here, and what a side begins with is no reward.
    assert len(records) == 12
    assert max(abs(record.rewards["material"]) for record in records) < 0.2


# On the other map, which two of the games against passive have, we are always player 0.
@pytest.mark.parametrize(
    ("maps", "of_passive"),
    [("", [6, 6]), ("lastWorker8x8A,basesWorkers8x8:11", [7, 5])],
)
def test_every_bot_of_an_even_list_is_met_from_both_seats_at_once(
    engine, maps, of_passive
):
    with open_env(
        engine,
        "basesWorkers8x8",
        24,
        opponent="passive:3,workerrush:2,lightrush",
        maps=maps,
        max_ticks=2,
    ) as env:
        env.reset(0)
        games = env.games
        for _ in range(2):  # games of each area
            seats = Counter(zip(games.opponents, games.player.tolist(), strict=True))
            assert [seats["passive", player] for player in (0, 1)] == of_passive
            assert [seats["workerrush", player] for player in (0, 1)] == [4, 4]
            assert [seats["lightrush", player] for player in (0, 1)] == [2, 2]
            play_randomly(env, 2)


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        ("basesWorkers8x8:x", "MAP or MAP:NUMBER_OF_AREAS"),
        ("basesWorkers16x16", "another size or other walls"),
        ("basesWorkers8x8,8x8/nowhere", "unknown map"),
    ],
)
def test_maps_that_areas_cannot_share_are_one_line(engine, maps, message):
    with pytest.raises(UsageError, match=message):
        open_env(engine, "basesWorkers8x8", 2, maps=maps)


def test_a_map_of_ours_can_be_the_target(engine):
    with open_env(engine, "lastWorker8x8D", opponent="passive") as env:
        env.reset(0)
        (board,) = env.steps(US)[0].obs[0]
    xml = ElementTree.parse(env.map.file).getroot()
    units = Counter(unit.get("player") for unit in xml.iter("rts.units.Unit"))
    # Planes 10 to 12 say whose a cell's unit is: nobody's, ours, theirs.
    seen = board[11:13].sum(axis=(1, 2)).tolist()
    assert sorted(seen) == sorted([units["0"], units["1"]]) == [1, 21]


def test_a_bot_without_its_jar_says_how_to_get_it(engine):
    start_java(engine)
    with pytest.raises(MissingError, match="fetch --bots"):
        make_bot(
            "other",
            Bot("other.Bot", extra_jar=True),
            java_class("rts.units.UnitTypeTable")(),
        )


@pytest.mark.parametrize("switch", [1, True, "1", "true"])
def test_a_switch_takes_numbers_words_and_truth_values(switch):
    assert Options.parse({"partial": switch}).partial is True


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("MicrortsMinng-v4", {}, "did you mean MicrortsMining-v4"),
        ("basesWorker8x8", {}, "nearest names: .*8x8/basesWorkers8x8"),
        ("basesWorkers8x8", {"form": "gird"}, "did you mean grid"),
        ("basesWorkers8x8", {"oponent": "coac"}, "did you mean opponent"),
        ("basesWorkers8x8", {"opponent": "self", "form": "unit"}, "needs form=grid"),
        ("basesWorkers8x8", {"seat": "2"}, "known: 0, 1, both, random"),
        ("basesWorkers8x8", {"max_ticks": "-3"}, "a number above 0"),
        ("basesWorkers8x8", {"partial": "perhaps"}, "expected 1 or 0"),
        ("basesWorkers8x8", {"compat": "0.2"}, "expected 0.3.2"),
        ("basesWorkers8x8", {"opponent": "no.such.Bot"}, "could not be made"),
    ],
)
def test_bad_input_gets_one_line_with_the_way_out(engine, target, options, message):
    with pytest.raises(UsageError, match=message) as caught:
        open_env(engine, target, **options)
    assert "\n" not in str(caught.value)


def test_tasks_are_those_of_0_3_2(engine):
    assert len(TASKS) == 30
    mining = TASKS["MicrortsMining-v4"]
    assert (mining.opponent, mining.max_steps, mining.seat) == (
        "passive",
        2000,
        "random",
    )
    assert mining.weights == (0, 1, 0, 0, 0, 0, 0, 0, 0)
    with open_env(engine, "MicrortsDefeatCoacAIShaped-v4") as env:
        assert env.weights.tolist() == [10, 1, 1, 0.2, 1, 4, 0, 0, 0]
        assert env.behaviors[US].action_spec.discrete_branches == (256, *PARTS)


def test_the_economy_is_a_second_observation(engine):
    with open_env(
        engine,
        "basesWorkers16x16",
        opponent="passive",
        economy=True,
        seat="1",
        max_ticks=10,
    ) as env:
        env.reset(0)
        assert env.behaviors[US].observation_specs[1].shape == (3,)
        assert env.steps(US)[0].obs[1].tolist() == [[0.5, 0.5, 0.0]]
        env.step()
        assert env.steps(US)[0].obs[1][0, 2] == np.float32(0.1)


def test_the_time_that_is_used_counts_decisions_where_those_are_limited(engine):
    with open_env(
        engine,
        "basesWorkers16x16",
        form="grid",
        opponent="passive",
        economy=True,
        skip=True,
        seat="1",
        max_steps=4,
    ) as env:
        env.reset(0)
        used = []
        for _ in range(4):
            used.append(float(env.steps(US)[0].obs[1][0, 2]))
            env.step()
        _, ended = env.steps(US)
        assert env.games.clock[0] == 0, "the next game"
        assert used == [0.0, 0.25, 0.5, 0.75]
        assert ended.obs[1][0, 2] == 1.0


@pytest.mark.parametrize("name", ["self", "Self", "SELF"])
def test_self_may_be_written_in_any_case(name):
    assert opponents_of_areas(f"{name}:2,passive", 3) == ["self", "self", "passive"]


def test_the_asker_shows_who_asks_and_what_others_were_told(engine):
    with open_env(
        engine, "basesWorkers16x16", form="asker", opponent="passive", seat="0"
    ) as env:
        env.reset(0)
        targets = [np.flatnonzero(env.steps(US)[0].obs[0][0, -1]).tolist()]
        env.set_actions(
            US, ActionTuple(discrete=np.array([[2, 0, 3, 0, 0, 0, 0]], np.int32))
        )
        env.step()
        board = env.steps(US)[0].obs[0][0]
        targets.append(np.flatnonzero(board[-1]).tolist())
        assert targets == [[17], [34]]
        assert board[FIRST_PLANE["action"] + 2, 1, 1] == 1
        assert env.games.clock[0] == 0
        env.step()
        assert env.games.clock[0] >= 1


def test_walls_are_two_planes_where_a_map_has_them(engine):
    with open_env(engine, "DoubleGame24x24", opponent="passive") as env:
        env.reset(0)
        planes = env.steps(US)[0].obs[0][0]
        assert planes.shape == (PLANES + 2, 24, 24)
        assert np.array_equal(planes[PLANES + 1] > 0, env.map.walls)
        assert np.array_equal(planes[PLANES] > 0, ~env.map.walls)


def test_a_seed_decides_sides_and_bots(engine):
    def path(seed: int) -> list:
        with open_env(
            engine, "MicrortsDefeatRandomEnemyShapedReward-v4", 2, max_steps=40
        ) as env:
            env.reset(seed)
            return play_randomly(env, 100)

    one, same, other = path(1), path(1), path(2)
    key = f"{US} decision obs 0"
    assert all(np.array_equal(a[key], b[key]) for a, b in zip(one, same, strict=True))
    assert not all(
        np.array_equal(a[key], b[key]) for a, b in zip(one, other, strict=True)
    )


def test_orders_are_read_as_by_the_engine_without_a_text_of_mistakes(engine):
    from touchline.microrts.java import java_class

    def path(*, by_engine: bool) -> list:
        with open_env(
            engine, "basesWorkers8x8", 2, opponent="workerrush", max_ticks=100
        ) as env:
            env.reset(3)
            for client in env.games._clients:
                if by_engine:
                    client.ai1 = java_class("ai.jni.JNIAI")(
                        100, 0, env.games.unit_types
                    )
            played = play_randomly(env, 200)
            for client in env.games._clients:
                text = str(client.ai1.computeInfo(0, client.gs))
                assert ("invalid_action" in text) == by_engine
            return played

    ours, theirs = path(by_engine=False), path(by_engine=True)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        for key, value in one.items():
            assert np.array_equal(value, other[key]), key
