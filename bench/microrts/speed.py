"""Environment steps per second of MicroRTS next to a plain loop over the engine's array client.

    python bench/microrts/speed.py [--seconds 5]

Both play 8 games of basesWorkers16x16 with random orders among the allowed ones, and both end with
the same things in NumPy: one-hot observations, masks, rewards, ends. The plain loop is what a user
of the engine's own `JNIGridnetVecClient` writes. The loops alternate in short blocks, and the
processor time of all threads of the process is counted, so that a busy machine affects both alike.
Figures are medians over the blocks.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.envs.env import EnvRecipe, make
from touchline.microrts.engine import find_engine
from touchline.microrts.java import java_class, start_java
from touchline.microrts.rules import CHOICES, FIRST_PLANE, PARTS, PLANE_GROUPS
from touchline.specs import ActionTuple
from touchline.steps import BranchMasks, DecisionSteps

GAMES, MAP = 8, "16x16/basesWorkers16x16"
MAX_TICKS = 2000
EMPTY_CELL = 5
"""A cell of this map that never holds a unit at the start; orders for it are ignored."""
PART_ENDS = np.cumsum((0, *PARTS))
OWN_UNIT = FIRST_PLANE["owner"] + 1
NO_ACTION = FIRST_PLANE["action"]
REWARDS = (
    "WinLoss",
    "ResourceGather",
    "ProduceWorker",
    "ProduceBuilding",
    "Attack",
    "ProduceCombatUnit",
)
BLOCK = 200
WARM_UP_BLOCKS = 25  # Java compiles what runs often


def draw(masks: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
    """[K, 7] an allowed choice per part, from masks [K, 78], True = allowed.

    The first choice where none is allowed.
    """
    score = np.where(masks, rng.random(masks.shape, np.float32), -1.0)
    parts = [
        score[:, first:last].argmax(axis=1)
        for first, last in itertools.pairwise(PART_ENDS)
    ]
    return np.stack(parts, axis=1)


def new_array_client(opponent: str) -> Any:
    """The engine's client for all games, as Java object."""
    import jpype

    engine = find_engine()
    start_java(engine)
    types = java_class("rts.units.UnitTypeTable")()
    functions = jpype.JArray(java_class("ai.rewardfunction.RewardFunctionInterface"))
    bots = jpype.JArray(java_class("ai.core.AI"))
    maps = jpype.JArray(jpype.JString)
    rewards = []
    for name in REWARDS:
        function = java_class(f"ai.rewardfunction.{name}RewardFunction")
        rewards.append(function())
    return java_class("tests.JNIGridnetVecClient")(
        0,
        GAMES,
        MAX_TICKS,
        functions(rewards),
        jpype.JString(f"{engine.folder}/"),
        maps([f"maps/{MAP}.xml"] * GAMES),
        bots([java_class(opponent)(types) for _ in range(GAMES)]),
        types,
        False,
    )


def array_client(opponent: str) -> Iterator[None]:
    """The plain loop; one step of all games per item."""
    client = new_array_client(opponent)
    players = np.zeros(GAMES, np.int32)
    client.reset(players)
    rng = np.random.default_rng(0)
    while True:
        masks = np.array(client.getMasks(0)).reshape(GAMES, -1, 1 + CHOICES)
        answer = client.gameStep(orders_for(masks, rng), players)
        one_hot(np.array(answer.observation))
        np.array(answer.reward), np.array(answer.done)
        yield


def orders_for(masks: NDArray[np.int32], rng: np.random.Generator) -> NDArray[np.int32]:
    """Orders [games, most units, 8] from masks [games, cells, 1 + CHOICES]."""
    games, cells = np.nonzero(masks[:, :, 0])
    orders = draw(masks[games, cells, 1:] > 0, rng)
    counts = np.bincount(games, minlength=GAMES)
    most = max(int(counts.max()), 1)
    actions = np.zeros((GAMES, most, 1 + len(PARTS)), np.int32)
    # The place of each order among those of its own game.
    first = np.cumsum(counts) - counts
    place = np.arange(len(games)) - np.repeat(first, counts)
    # Games with fewer units fill up with orders to an empty cell, which the engine ignores.
    actions[:, :, 0] = EMPTY_CELL
    actions[games, place, 0] = cells
    actions[games, place, 1:] = orders
    return actions


def one_hot(observation: NDArray[np.int32]) -> NDArray[np.float32]:
    """[games, cells, planes] from the engine's [games, 5, h, w]."""
    sizes = np.array(list(PLANE_GROUPS.values()))
    first_planes = np.cumsum(sizes) - sizes
    by_group = observation.reshape(GAMES, len(sizes), -1)
    # A group's last plane stands for all larger values, too.
    value = by_group.clip(0, sizes[:, None] - 1)
    num_cells = value.shape[2]
    planes = np.zeros((GAMES, num_cells, int(sizes.sum())), np.float32)
    for group, first in enumerate(first_planes):
        plane = value[:, group] + first
        np.put_along_axis(planes, plane[:, :, None], 1.0, axis=2)
    return planes


def our_world(opponent: str, form: str) -> Iterator[None]:
    """The same through `make`; one step of all games per item."""
    options = {
        "form": form,
        "opponent": opponent,
        "max_ticks": str(MAX_TICKS),
        "seat": "0",
    }
    choose = {"grid": choose_grid, "unit": choose_unit, "asker": choose_asker}[form]
    with make(EnvRecipe("microrts", MAP, GAMES, options=options)) as env:
        (name,) = env.behaviors
        env.reset(0)
        rng = np.random.default_rng(0)
        while True:
            decisions, _ = env.steps(name)
            actions = choose(decisions, rng)
            env.set_actions(name, ActionTuple(discrete=actions.astype(np.int32)))
            env.step()
            yield


def flat_mask(decisions: DecisionSteps) -> NDArray[np.bool_]:
    """[N, choices], True = forbidden."""
    assert isinstance(decisions.action_mask, BranchMasks)
    return decisions.action_mask.flat


def choose_grid(
    decisions: DecisionSteps, rng: np.random.Generator
) -> NDArray[np.integer]:
    table = flat_mask(decisions).reshape(GAMES, -1, CHOICES)
    num_cells = table.shape[1]
    board = decisions.obs[0].reshape(GAMES, -1, num_cells)
    games, cells = np.nonzero(board[:, OWN_UNIT] * board[:, NO_ACTION])
    actions = np.zeros((GAMES, num_cells, len(PARTS)), np.int32)
    actions[games, cells] = draw(~table[games, cells], rng)
    return actions.reshape(GAMES, -1)


def choose_unit(
    decisions: DecisionSteps, rng: np.random.Generator
) -> NDArray[np.integer]:
    assert decisions.action_mask is not None
    assert decisions.second_mask is not None
    cells = decisions.action_mask[0]
    score = np.where(cells, -1.0, rng.random(cells.shape, np.float32))
    cell = score.argmax(axis=1)
    orders = draw(~decisions.second_mask[np.arange(GAMES), cell], rng)
    return np.concatenate([cell[:, None], orders], axis=1)


def choose_asker(
    decisions: DecisionSteps, rng: np.random.Generator
) -> NDArray[np.integer]:
    return draw(~flat_mask(decisions), rng)


def measure(
    loops: dict[str, Callable[[], Iterator[None]]], seconds: float
) -> dict[str, float]:
    """Environment steps per second of processor time of each loop: medians over its blocks."""
    running = {name: make_loop() for name, make_loop in loops.items()}
    rates: dict[str, list[float]] = {name: [] for name in running}
    for loop in running.values():
        for _ in range(WARM_UP_BLOCKS * BLOCK):
            next(loop)
    end_s = time.perf_counter() + seconds * len(running)
    while time.perf_counter() < end_s:
        for name, loop in running.items():
            start_s = time.process_time()
            for _ in range(BLOCK):
                next(loop)
            rates[name].append(BLOCK * GAMES / (time.process_time() - start_s))
    return {name: float(np.median(rate)) for name, rate in rates.items()}


def main() -> None:
    assert __doc__ is not None
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=5.0)
    seconds = arguments.parse_args().seconds
    report = {}
    for bot, java_name in (
        ("passive", "ai.PassiveAI"),
        ("randombiased", "ai.RandomBiasedAI"),
    ):
        loops: dict[str, Callable[[], Iterator[None]]] = {
            "array client": partial(array_client, java_name)
        }
        for form in ("grid", "unit", "asker"):
            loops[form] = partial(our_world, bot, form)
        rates = measure(loops, seconds)
        for name, rate in rates.items():
            ratio = rate / rates["array client"]
            line = f"{bot:14} {name:14} {rate:9,.0f} steps/s  {ratio:5.2f}x"
            print(line, file=sys.stderr)
        report[bot] = {name: round(rate) for name, rate in rates.items()}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
