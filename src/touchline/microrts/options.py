"""What may follow the question mark of `microrts:TASK_OR_MAP?...`, and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from typing import Any

from touchline.errors import UsageError
from touchline.microrts.rules import SHAPED, TASKS, Task, choose, parse_weights

FORMS = ("unit", "grid", "asker")
SEATS = ("0", "1", "both", "random")
# Their positions, counted from 1, are the engine's numbers.
UNIT_RULES = ("original", "finetuned", "random")
CONFLICT_RULES = ("cancel", "random", "alternate")
_COMPAT_VERSION = "0.3.2"
# Where the Gym-µRTS paper (arXiv:2105.13807) ends its evaluation games.
_MAP_TICKS = 4000
_NO_LIMIT = 2**31 - 1
_SWITCH = {"1": True, "true": True, "0": False, "false": False}


@dataclass(frozen=True)
class Options:
    """Options as a user gives them; empty text and None mean the default of the task or form."""

    form: str = ""
    """unit, grid or asker; default: unit for tasks, grid for maps"""
    opponent: str = ""
    """a bot, a Java class, self, or a list such as coac:18,workerrush:2 that the areas repeat"""
    maps: str = ""
    """maps of the areas, a list such as lastWorker8x8A:2,8x8/basesWorkers8x8:6 that they repeat; as
    large as the target, and we are player 0 on all others; default: the target"""
    weights: str = ""
    """reward weights: 10,1,1,0.2,1,4 or gather:1,win_loss:10"""
    seat: str = ""
    """which player we are: 0, 1, both (alternating) or random (drawn for each game)"""
    max_steps: int | None = None
    """decisions after which a game is cut"""
    max_ticks: int | None = None
    """ticks after which a game is cut"""
    partial: bool = False
    """each side observes only what its units see"""
    economy: bool = False
    """a second observation: own stock, the opponent's stock, and the clock"""
    walls: bool | None = None
    """two planes for the terrain; default: on maps that have walls"""
    turned: bool = False
    """player 1 observes the board after half a turn, so that both seats look alike"""
    skip: bool = False
    """grid form decides only in ticks in which a unit has a choice, as the asker form does"""
    strict: bool = False
    """refuse invalid orders instead of counting them"""
    compat: str = ""
    """0.3.2: keep that version's defects, for comparison"""
    units: str = "original"
    """unit rules: original, finetuned or random (damage)"""
    conflict: str = "cancel"
    """when two units want one cell: cancel both, random or alternate"""
    bot_time_ms: float = 2000.0
    """how long one move of a searching or foreign bot may take"""
    search_ms: int | None = None
    """how long bots that search do so for a move; default: their own time, mostly 100 ms"""
    engine: str = ""
    """folder, jar or sdist of the engine"""
    java: str = ""
    """Java home or libjvm file"""

    def __post_init__(self) -> None:
        if self.compat not in ("", _COMPAT_VERSION):
            raise UsageError(
                f"microrts: compat={self.compat}: expected {_COMPAT_VERSION}, the only version "
                "whose defects can be kept"
            )
        most_ms = min(self.bot_time_ms, _NO_LIMIT)
        if self.search_ms is not None and self.search_ms >= most_ms:
            raise UsageError(
                f"microrts: search_ms={self.search_ms}: expected less than the time limit for a "
                f"move, bot_time_ms={self.bot_time_ms:g}"
            )

    @staticmethod
    def parse(given: Mapping[str, Any]) -> Options:
        """From a recipe's options, whose values may be text. Raises a UsageError."""
        known = {field.name: field for field in fields(Options)}
        values = {}
        for key, value in given.items():
            name = choose("option", key, known)
            values[name] = _typed(name, str(known[name].type), value)
        return Options(**values)


def _typed(name: str, kind: str, value: Any) -> Any:
    """An option's value as its annotated type; it may be text or have that type already."""
    try:
        # Annotations are text in this module, such as `bool | None`.
        if "bool" in kind:
            return _SWITCH[str(value).lower()]
        if "int" in kind:
            number = _positive(value)
            if number != int(number):
                raise ValueError(value)
            return int(number)
        if "float" in kind:
            return _positive(value)
    except (KeyError, ValueError, TypeError):
        expected = "1 or 0" if "bool" in kind else "a number above 0"
        raise UsageError(f"microrts: {name}={value}: expected {expected}") from None
    return str(value)


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 < number < inf:
        raise ValueError(value)
    return number


def task_named(target: str) -> Task | None:
    """The task that a target names in any case; None means that it is a map.

    Raises a UsageError for what looks like a task and is none.
    """
    by_lower_case = {name.lower(): task for name, task in TASKS.items()}
    task = by_lower_case.get(target.lower())
    if task is None and target.startswith("Microrts"):
        choose("task", target, TASKS)
    return task


@dataclass(frozen=True)
class Match:
    """What is played: options with the defaults of a task or a map filled in."""

    form: str
    opponent: str
    weights: tuple[float, ...]
    seat: str
    max_steps: int
    max_ticks: int
    unit_rules: int
    """As `GameSettings.unit_rules`."""
    conflict_rule: int
    """As `GameSettings.conflict_rule`."""

    @staticmethod
    def of(options: Options, task: Task | None) -> Match:
        """Raises a UsageError for a value that is not known."""
        form = options.form or ("unit" if task else "grid")
        seat = options.seat or (task.seat if task else "both")
        opponent = options.opponent or (task.opponent if task else "randombiased")
        default_weights = task.weights if task else SHAPED
        weights = parse_weights(options.weights) if options.weights else default_weights
        max_steps, max_ticks = _limits(options, task)
        unit_rules = choose("unit rules", options.units, UNIT_RULES)
        conflict_rule = choose("conflict rule", options.conflict, CONFLICT_RULES)
        return Match(
            form=choose("form", form, FORMS),
            opponent=opponent,
            weights=weights,
            seat=choose("seat", seat, SEATS),
            max_steps=max_steps,
            max_ticks=max_ticks,
            unit_rules=1 + UNIT_RULES.index(unit_rules),
            conflict_rule=1 + CONFLICT_RULES.index(conflict_rule),
        )


def _limits(options: Options, task: Task | None) -> tuple[int, int]:
    """Decisions and ticks after which a game is cut."""
    # A limit that a user gives replaces the default of both kinds.
    default_ticks = _NO_LIMIT if task or options.max_steps else _MAP_TICKS
    default_steps = task.max_steps if task and not options.max_ticks else _NO_LIMIT
    return options.max_steps or default_steps, options.max_ticks or default_ticks
