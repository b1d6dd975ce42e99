"""MicroRTS as an Env, held against the engine of gym-microrts 0.3.2 and against known numbers."""

import zlib
from pathlib import Path

import numpy as np

from touchline.envs.microrts.engine import Engine
from touchline.envs.microrts.microrts_env import MicrortsEnv, Options
from touchline.envs.microrts.rules import FIRST_PLANE, PLANE_GROUPS
from touchline.specs import ActionTuple

GOLDEN = Path(__file__).parents[2] / "golden" / "microrts_032.npz"
US = "MicroRTS?team=0"
THEM = "MicroRTS?team=1"


def open_env(engine: Engine, target: str, num_areas: int = 1, **options) -> MicrortsEnv:
    return MicrortsEnv(target, Options.parse({"engine": str(engine.folder), **options}), num_areas)


def raw_board(planes: np.ndarray) -> np.ndarray:
    """int8 [5, h, w] from one-hot planes, as 0.3.2's observation before its planes."""
    parts = [planes[FIRST_PLANE[g] : FIRST_PLANE[g] + n].argmax(axis=0) for g, n in PLANE_GROUPS.items()]
    return np.array(parts, np.int8)


def crc(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).astype(np.int8).tobytes())


def test_unit_form_equals_0_3_2_for_12000_steps_with_a_tenth_of_invalid_orders(engine):
    """Record made by `bench/microrts_032_record.py` with 0.3.2's own engine and stepping class."""
    record = dict(np.load(GOLDEN))
    options = {"compat": "0.3.2", "max_steps": 10_000, "weights": "gather:1,closer_to_enemy_base:1"}
    envs = [open_env(engine, "MicrortsMining-v4", seat=str(player), **options) for player in (0, 1)]
    per_game = len(record["orders"]) // len(record["begins"])
    for step, order in enumerate(record["orders"]):
        env = envs[step // per_game % 2]
        if step % per_game == 0:
            env.reset(step)
            decisions, _ = env.steps(US)
            units = ~decisions.action_mask[0][0]
            assert [crc(raw_board(decisions.obs[0][0])), crc(units)] == record["begins"][step // per_game].tolist()
        waits = env.form._waiting[0]
        orders_mask = env.games.allowed[0, order[0]] if waits[order[0]] else np.zeros(78)
        assert crc(orders_mask) == record["checks"][step, 2], step
        before = env._raw[0].copy()
        env.set_actions(US, ActionTuple(discrete=order[None].astype(np.int32)))
        env.step()
        decisions, _ = env.steps(US)
        assert crc(raw_board(decisions.obs[0][0])) == record["checks"][step, 0], step
        assert crc(env.form._waiting[0]) == record["checks"][step, 1], step
        assert env.games.clock[0] == record["clock"][step], step
        paid = record["rewards"][step]
        paid[6] = paid[6].clip(-1.0, 1.0)  # as 0.3.2's wrapper
        assert np.allclose(env._raw[0, :7] - before[:7], paid), step
