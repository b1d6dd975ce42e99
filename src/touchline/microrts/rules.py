"""MicroRTS as tables: the planes of a cell, the parts of an order, rewards, bots, tasks.

Pure data and a few lookups; nothing here touches Java. Sources: the engine of gym-microrts 0.6.0,
and the tasks of gym-microrts 0.3.2 (`v2.py`, `v3.py`, `v4.py`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.errors import UsageError

# The planes of a cell: five groups, each one-hot.
PLANE_GROUPS = {
    "hit_points": 5,
    "resources": 5,
    "owner": 3,
    "unit_type": 8,
    "action": 6,
}
"""Group -> number of planes. Hit points and resources: 0, 1, 2, 3, 4 or more. Owner: none, own,
opponent. Unit type: none, then UNIT_TYPES. Action: the running order, as ORDER_TYPES."""
PLANES = sum(PLANE_GROUPS.values())
_GROUP_ENDS = np.cumsum([0, *PLANE_GROUPS.values()])
FIRST_PLANE = dict(zip(PLANE_GROUPS, _GROUP_ENDS[:-1].tolist(), strict=True))
UNIT_TYPES = ("Resource", "Base", "Barracks", "Worker", "Light", "Heavy", "Ranged")
SIGHT_RADIUS = (0, 5, 3, 3, 2, 2, 3)
"""In cells, by unit type."""

# The parts of an order.
ORDER_TYPES = ("none", "move", "harvest", "return", "produce", "attack")
PARTS = (6, 4, 4, 4, 4, 7, 49)
"""Choices of each part: order type; directions of move, harvest, return and produce; unit type to
produce; cell to attack.

Directions: 0 up, 1 right, 2 down, 3 left. Cell to attack, relative to the unit:
(dy + 3) * 7 + (dx + 3).
"""
ATTACK_REACH = 3
"""Cells in every direction: 7 x 7 cells can be attacked."""
CHOICES = sum(PARTS)
FIRST_CHOICE = np.cumsum((0, *PARTS))[:-1]
READ_PARTS = np.array(
    [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
        [1, 0, 1, 0, 0, 0, 0],
        [1, 0, 0, 1, 0, 0, 0],
        [1, 0, 0, 0, 1, 1, 0],
        [1, 0, 0, 0, 0, 0, 1],
    ],
    np.bool_,
)
"""[order type, part]: whether the engine reads the part. Others may have any value."""

REWARDS = (
    "win_loss",
    "gather",
    "produce_worker",
    "produce_building",
    "attack",
    "produce_combat_unit",
    "closer_to_enemy_base",
    "evaluation",
    "material",
)
"""The engine's reward functions, in the order of published weights. `evaluation`, the engine's own
score, was added to the end later; `material` is ours."""
SHAPED = (10.0, 1.0, 1.0, 0.2, 1.0, 4.0, 0.0, 0.0, 0.0)
"""Weights of the Gym-µRTS paper (arXiv:2105.13807)."""


@dataclass(frozen=True)
class Bot:
    """An opponent that the engine can run."""

    java: str
    """The full name of its Java class."""
    extra_jar: bool = False
    """It is in one of the separate bot jars."""
    is_supervised: bool = False
    """Each of its moves is timed and checked, because it searches or is foreign to the engine."""


BOTS: Mapping[str, Bot] = MappingProxyType(
    {
        "passive": Bot("ai.PassiveAI"),
        "random": Bot("ai.RandomAI"),
        "randombiasedsingleunit": Bot("ai.RandomBiasedSingleUnitAI"),
        "randombiased": Bot("ai.RandomBiasedAI"),
        "workerrush": Bot("ai.abstraction.WorkerRush"),
        "lightrush": Bot("ai.abstraction.LightRush"),
        "heavyrush": Bot("ai.abstraction.HeavyRush"),
        "rangedrush": Bot("ai.abstraction.RangedRush"),
        "workerdefense": Bot("ai.abstraction.WorkerDefense"),
        "lightdefense": Bot("ai.abstraction.LightDefense"),
        "economyrush": Bot("ai.abstraction.EconomyRush"),
        "naivemcts": Bot("ai.mcts.naivemcts.NaiveMCTS", is_supervised=True),
        "uct": Bot("ai.mcts.uct.UCT", is_supervised=True),
        "portfolio": Bot("ai.portfolio.PortfolioAI", is_supervised=True),
        "puppetsearch": Bot("ai.puppet.PuppetSearchMCTS", is_supervised=True),
        "coac": Bot("ai.coac.CoacAI", extra_jar=True),
        "mayari": Bot("mayariBot.mayari", extra_jar=True),
        "rojo": Bot("ai.competition.rojobot.Rojo", extra_jar=True),
        "droplet": Bot("GNS.Droplet", extra_jar=True, is_supervised=True),
        "izanagi": Bot(
            "ai.competition.IzanagiBot.Izanagi", extra_jar=True, is_supervised=True
        ),
        "mixed": Bot("ai.JZ.MixedBot", extra_jar=True, is_supervised=True),
        "tiamat": Bot(
            "ai.competition.tiamat.Tiamat", extra_jar=True, is_supervised=True
        ),
        "guidedrojo": Bot(
            "ai.competition.GRojoA3N.GuidedRojoA3N", extra_jar=True, is_supervised=True
        ),
    }
)
SELF = "self"
"""As an opponent: our policy plays both sides."""


@dataclass(frozen=True)
class Task:
    """A named game of gym-microrts 0.3.2."""

    map: str
    opponent: str
    weights: tuple[float, ...]
    """One weight for each of REWARDS."""
    max_steps: int
    seat: str
    """As the option of `options.Options`."""


def _tasks() -> dict[str, Task]:
    """The tasks of 0.3.2: ten in each of the versions v2, v3 and v4."""
    only = {name: _weights_of(name) for name in REWARDS}
    economy = {  # name -> the only reward that counts, and the map in v2
        "Mining": ("gather", "10x10/basesTwoWorkers10x10"),
        "ProduceWorker": ("produce_worker", "10x10/basesTwoWorkers10x10"),
        "AttackPassiveEnemySparseReward": ("attack", "10x10/basesWorkers10x10"),
        "ProduceCombatUnitsSparseReward": (
            "produce_combat_unit",
            "10x10/basesWorkers10x10",
        ),
    }
    battles = {  # name -> opponent and reward weights
        "DefeatRandomEnemySparseReward": ("randombiased", only["win_loss"]),
        "DefeatRandomEnemyShapedReward": ("randombiased", SHAPED),
        "DefeatWorkerRushEnemyShaped": ("workerrush", SHAPED),
        "DefeatLightRushEnemyShaped": ("lightrush", SHAPED),
        "DefeatCoacAIShaped": ("coac", SHAPED),
        "DefeatNaiveMCTSAIShaped": ("naivemcts", SHAPED),
    }
    tasks = {}
    for version, seat in (("v2", "0"), ("v3", "0"), ("v4", "random")):
        large = None if version == "v2" else "16x16/basesWorkers16x16"
        for name, (reward, small) in economy.items():
            task = Task(large or small, "passive", only[reward], 2000, seat)
            tasks[f"Microrts{name}-{version}"] = task
        for name, (bot, weights) in battles.items():
            task = Task(large or "10x10/basesWorkers10x10", bot, weights, 20000, seat)
            tasks[f"Microrts{name}-{version}"] = task
    return tasks


def _weights_of(reward: str) -> tuple[float, ...]:
    """1 for this reward, 0 for the others."""
    return tuple(1.0 if name == reward else 0.0 for name in REWARDS)


TASKS: Mapping[str, Task] = MappingProxyType(_tasks())


def choose(what: str, name: str, known: Collection[str]) -> str:
    """`name` in the spelling of `known`, whatever its case.

    Raises a UsageError that lists the known names, similar ones first.
    """
    by_lower_case = {key.lower(): key for key in known}
    if name.lower() in by_lower_case:
        return by_lower_case[name.lower()]
    similar = get_close_matches(name.lower(), by_lower_case, n=3, cutoff=0.5)
    near = " or ".join(by_lower_case[key] for key in similar)
    hint = f"did you mean {near}? " if near else ""
    raise UsageError(
        f"microrts: unknown {what} {name!r}; {hint}known: {', '.join(known)}"
    )


def parse_weights(text: str) -> tuple[float, ...]:
    """Weights of all REWARDS from text.

    The text is `10,1,1,0.2,1,4`, in the order of REWARDS, or `gather:1,win_loss:10`. Rewards that
    are left out weigh 0. Raises a UsageError.
    """
    weights = dict.fromkeys(REWARDS, 0.0)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > len(REWARDS):
        raise UsageError(
            f"microrts: weights={text}: expected at most {len(REWARDS)} numbers, got {len(parts)}"
        )
    for position, part in enumerate(parts):
        name, colon, value = part.rpartition(":")
        key = choose("reward", name, REWARDS) if colon else REWARDS[position]
        try:
            weights[key] = float(value)
        except ValueError:
            raise UsageError(
                f"microrts: weights={text}: {value!r} is not a number; write 10,1,1,0.2,1,4 (in "
                f"the order {', '.join(REWARDS)}) or gather:1,win_loss:10"
            ) from None
    return tuple(weights.values())


def one_turn(option: str, given: str, what: str) -> list[str]:
    """What the areas get in turn, from a list such as `coac:18,workerrush:2`.

    `what` is in it, for the error: a UsageError.
    """
    turn: list[str] = []
    for part in given.split(","):
        name, colon, count = part.strip().partition(":")
        if colon and not (count.isdigit() and int(count)):
            raise UsageError(
                f"microrts: {option}={given}: {part!r} should be {what} or "
                f"{what}:NUMBER_OF_AREAS"
            )
        turn += [name] * (int(count) if colon else 1)
    return turn


_COSTS = np.array([0.0, 0.0, 10.0, 5.0, 1.0, 2.0, 2.0, 2.0])
"""Resources that a unit costs, by its plane: none, then UNIT_TYPES. Source: the engine's
`UnitTypeTable`, version 1."""


def balance_of(
    planes: NDArray[np.float32], own_stock: NDArray[Any], other_stock: NDArray[Any]
) -> NDArray[np.float64]:
    """[R] own share of all material less the opponent's, in [-1, 1].

    Material is what a side's units cost, what they carry and what it has in stock. `planes` [R, P,
    h, w] are boards as they are observed.
    """

    def group(name: str) -> NDArray[np.float32]:
        first = FIRST_PLANE[name]
        return planes[:, first : first + PLANE_GROUPS[name]]

    cost = np.einsum("rphw,p->rhw", group("unit_type"), _COSTS)
    carried = np.einsum("rphw,p->rhw", group("resources"), np.arange(5.0))
    owner = group("owner")
    own, other = np.einsum("rphw,rhw->pr", owner[:, 1:], cost + carried)
    own, other = own + own_stock, other + other_stock
    # Both sides may have lost everything in the same tick.
    return np.asarray((own - other) / np.maximum(own + other, 1.0))
