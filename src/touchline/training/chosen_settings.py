"""Settings for a game without a configuration, chosen from what its behaviors observe and do.

The game is opened and played at random for some seconds. Each choice is a rule that the presets of
the scenes bear out (`training/config/presets`), written into a YAML with the reason next to it.
"""

import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from touchline.envs.env import EnvRecipe, make
from touchline.envs.side_by_side import copies_of
from touchline.envs.slots import AllRows, Slots
from touchline.log import Log
from touchline.policies.nets.encoders import SMALLEST_SIDE
from touchline.policies.policy import RandomPolicy, SlotActor
from touchline.specs import BehaviorSpec, base_name, team_of
from touchline.training.algorithms.settings import (
    ALGORITHM_PLUGINS,
    DEFAULT_ALGORITHM,
    algorithm_settings,
)
from touchline.training.collect.local import EpisodeMeter
from touchline.training.rewards.settings import WORLD_REWARD

LOOKS_FOR_S = 4.0
"""How long a game is played before its settings are chosen."""
FEWEST_STEPS = 5
SLOW_STEPS_PER_S = 400.0
"""Below this many agent steps a second, learning from each step many times is sooner."""
FEW_AGENTS = 16
ENCODERS = ("simple", "match3", "fully_connected")
"""The first that takes a game's pictures is chosen."""
UNIT_LIMIT = 1.5
"""Numbers beyond this are no shares, one-hots or directions."""
FAST_STEPS_PER_S = 2000.0
FEW_NUMBERS = 32
MOST_BUFFER = 16_384
MANY_ACTIONS = 32
"""Continuous actions beyond which small buffers teach less; with 20 they teach more (lab log)."""
MOST_RATE = 5e-4
"""The learning rate that so many actions bear with large buffers, at most."""
LONG_EPISODE = 300.0
"""Decisions; with a discount of 0.99 a reward counts for a twentieth after as many."""


@dataclass
class Seen:
    """What one behavior showed."""

    spec: BehaviorSpec
    agents: int = 0
    """The most that decided at the same time, in all teams."""
    has_groups: bool = False
    teams: set[int] = field(default_factory=set)
    """Teams of all behaviors."""
    largest: float = 0.0
    """The largest number in a vector that it observed."""
    lengths: list[int] = field(default_factory=list)
    """Decisions of the episodes that ended."""
    steps_per_s: float = 0.0

    @property
    def observed_numbers(self) -> int:
        """Numbers of all vectors together."""
        return sum(
            math.prod(s.shape) for s in self.spec.observation_specs if len(s.shape) == 1
        )

    @property
    def pictures(self) -> list[tuple[int, ...]]:
        return [s.shape for s in self.spec.observation_specs if len(s.shape) == 3]


@dataclass(frozen=True)
class Choice:
    """A key below a behavior's block, its value, and why."""

    key: str
    value: Any
    why: str


def look_at(recipe: EnvRecipe, seed: int = 0) -> dict[str, Seen]:
    """Play at random for some seconds; base name -> what it showed."""
    seen: dict[str, Seen] = {}
    # The first of its copies: its options are those of several worlds.
    (own,) = copies_of(recipe, 1)
    # The run's folder, for its log, is not there yet.
    options = {k: v for k, v in own.options.items() if k != "log_folder"}
    with make(replace(own, options=options)) as env:
        slots = Slots(env)
        rows = slots.reset(seed)
        actors: dict[str, SlotActor] = {}
        meters: dict[str, EpisodeMeter] = {}
        counts: dict[str, list[int]] = {}
        seconds: list[float] = []
        start = time.perf_counter()
        while time.perf_counter() - start < LOOKS_FOR_S or len(seconds) < FEWEST_STEPS:
            for name, spec in slots.behaviors.items():
                actors.setdefault(name, SlotActor(RandomPolicy(spec), spec, seed))
                meters.setdefault(name, EpisodeMeter())
                seen.setdefault(base_name(name), Seen(spec))
            for name, count in _note(seen, rows, meters).items():
                counts.setdefault(name, []).append(count)
            began = time.perf_counter()
            rows = slots.step(
                {name: actors[name].act(row) for name, row in rows.items()}
            )
            seconds.append(time.perf_counter() - began)
        teams = {team_of(name) for name in slots.behaviors}
    for name, one in seen.items():
        one.teams = teams
        # The median: the first steps of each kind compile, load or fill buffers.
        one.steps_per_s = float(np.mean(counts[name]) / np.median(seconds))
    return seen


def _note(
    seen: Mapping[str, Seen], rows: AllRows, meters: Mapping[str, EpisodeMeter]
) -> dict[str, int]:
    """Add one step of all behaviors; returns how many agents of each decide."""
    deciding: dict[str, int] = {}
    for name, row in rows.items():
        one = seen[base_name(name)]
        deciding[base_name(name)] = deciding.get(base_name(name), 0) + int(
            row.deciding.sum()
        )
        one.has_groups |= bool((row.group_id[row.deciding] > 0).any())
        for spec, values in zip(one.spec.observation_specs, row.obs, strict=True):
            # Pictures have limits of their own.
            if len(spec.shape) == 1 and row.deciding.any():
                one.largest = max(
                    one.largest, float(np.abs(values[row.deciding]).max(initial=0))
                )
        one.lengths += meters[name].add(row).lengths
    for name, count in deciding.items():
        seen[name].agents = max(seen[name].agents, count)
    return deciding


def choices_for(seen: Seen) -> Iterator[Choice]:
    algorithm, why = _algorithm_for(seen)
    replays = not algorithm_settings(algorithm).collects_in_rounds
    yield Choice("trainer_type", algorithm, why)
    yield from _replay() if replays else _buffer_for(seen)
    if seen.pictures and algorithm == DEFAULT_ALGORITHM:
        why = "pictures are encoded once for policy and value function"
        yield Choice("hyperparameters.shared_critic", True, why)
    yield from _network_for(seen)
    episode = float(np.mean(seen.lengths)) if seen.lengths else math.inf
    lasted = f"{episode:,.0f} decisions" if seen.lengths else "longer than this look"
    yield Choice(
        f"reward_signals.{WORLD_REWARD}.gamma",
        0.995 if episode > LONG_EPISODE else 0.99,
        f"its episodes lasted {lasted}",
    )
    steps = 5_000_000 if seen.steps_per_s > FAST_STEPS_PER_S else 1_000_000
    yield Choice(
        "max_steps",
        200_000 if replays else steps,
        f"random play made {seen.steps_per_s:,.0f} agent steps a second",
    )
    why = "advantages that are cut off early miss what comes late in an episode"
    yield Choice("time_horizon", 1000 if episode > LONG_EPISODE else 128, why)
    yield Choice("summary_freq", 2000 if replays else steps // 100, "100 rows in all")
    if len(seen.teams) > 1:
        yield Choice(
            "self_play.save_steps",
            steps // 200,
            f"{len(seen.teams)} teams: opponents are earlier versions of it",
        )
        yield Choice("self_play.swap_steps", steps // 2000, "10 opponents for each")
        learned = "what SoccerTwos learned with"
        yield Choice("self_play.window", 12, learned)
        yield Choice("self_play.play_against_latest_model_ratio", 0.6, learned)


def _algorithm_for(seen: Seen) -> tuple[str, str]:
    # Algorithms of other packages are used only when a file names them.
    kinds = {name: algorithm_settings(name) for name in ALGORITHM_PLUGINS.own}
    if seen.has_groups:
        of_groups = (name for name, kind in kinds.items() if kind.credits_groups)
        return next(of_groups), "its agents are in groups, which share rewards"
    is_slow = seen.steps_per_s < SLOW_STEPS_PER_S and seen.agents <= FEW_AGENTS
    if is_slow and not seen.pictures and len(seen.teams) == 1:
        replaying = (
            name for name, kind in kinds.items() if not kind.collects_in_rounds
        )
        return next(replaying), "steps are dear, so each is learned from many times"
    return DEFAULT_ALGORITHM, "no groups, and steps are cheap enough to be used once"


def _buffer_for(seen: Seen) -> Iterator[Choice]:
    # What is learned from at a time: more agents fill larger buffers, which bear larger steps.
    buffer = _power_of_two(128 * seen.agents, 2048, MOST_BUFFER)
    why = f"up to {seen.agents} agents decide at the same time"
    if len(seen.teams) > 1:
        buffer, why = MOST_BUFFER, "chance decides much of a game, so many are compared"
    actions = seen.spec.action_spec
    moves_much = actions.continuous_size > MANY_ACTIONS
    if moves_much:
        buffer = MOST_BUFFER
        why = f"{actions.continuous_size} continuous actions need many decisions"
    batch = buffer // 16
    yield Choice("hyperparameters.buffer_size", buffer, why)
    yield Choice("hyperparameters.batch_size", batch, "16 minibatches in a buffer")
    # Steps may grow with the square root of what they are averaged over (Krizhevsky 2014,
    # arXiv:1404.5997, section 5); 0.0003 is ML-Agents' for minibatches of 128.
    rate = 3e-4 * math.sqrt(batch / 128)
    rate = min(rate, MOST_RATE) if moves_much else rate
    why = "grows with the square root of the minibatch"
    yield Choice("hyperparameters.learning_rate", float(f"{rate:.1g}"), why)
    why = "the entropy of branches is bounded, that of continuous actions is not"
    beta = 0.005 if actions.discrete_branches else 0.002
    yield Choice("hyperparameters.beta", beta, why)


def _replay() -> Iterator[Choice]:
    soonest = "solves our scenes soonest"
    for key, value, why in [
        ("buffer_size", 200_000, "all that it plays is kept"),
        ("buffer_init_steps", 1000, "what it learns from first is random play"),
        ("batch_size", 256, soonest),
        ("learning_rate", 5e-4, soonest),
        ("steps_per_update", 2, "learning is cheaper than playing"),
        ("init_entcoef", 0.1, soonest),
        ("tau", 0.01, soonest),
        ("target_critics", True, soonest),
        ("return_steps", 3, soonest),
    ]:
        yield Choice(f"hyperparameters.{key}", value, why)


def _network_for(seen: Seen) -> Iterator[Choice]:
    is_wide = seen.largest > UNIT_LIMIT
    yield Choice(
        "network_settings.normalize",
        is_wide,
        f"the largest number that it observed is {seen.largest:.3g}",
    )
    count = seen.observed_numbers
    yield Choice(
        "network_settings.hidden_units",
        128 if count <= FEW_NUMBERS and not seen.pictures else 256,
        f"it observes {count} numbers and {len(seen.pictures)} pictures",
    )
    yield Choice("network_settings.num_layers", 2, "as in nearly all presets")
    if seen.pictures:
        side = min(min(shape[1:]) for shape in seen.pictures)
        yield Choice(
            "network_settings.vis_encode_type",
            next(e for e in ENCODERS if side >= SMALLEST_SIDE[e]),
            f"the smallest picture has {side} pixels on its shorter side",
        )


def _power_of_two(value: int, least: int, most: int) -> int:
    """The nearest power of two, within limits that are powers of two."""
    return min(max(1 << round(math.log2(max(value, 1))), least), most)


def settings_text(game: str, seen: Mapping[str, Seen]) -> str:
    """A YAML file with the settings of each behavior, and why they were chosen."""
    lines = [
        f"# Chosen from {LOOKS_FOR_S:.0f} s of random play. Change what you know better, and train",
        "# with this file.",
        "env_settings:",
        f"  env_path: {json.dumps(game)}",
        "behaviors:",
    ]
    for name, one in seen.items():
        lines.append(f"  {_written(name)}:")
        block: tuple[str, ...] = ()
        for choice in choices_for(one):
            *around, key = choice.key.split(".")
            for depth, part in enumerate(around):
                if tuple(around[: depth + 1]) != block[: depth + 1]:
                    lines.append(f"{'  ' * (depth + 2)}{part}:")
            block = tuple(around)
            indent = "  " * (len(around) + 2)
            lines.append(f"{indent}{key}: {_written(choice.value)}  # {choice.why}")
    return "\n".join(lines) + "\n"


def _written(value: object) -> str:
    """A value as YAML: JSON, but for words."""
    is_word = isinstance(value, str) and value.isidentifier()
    return str(value) if is_word else json.dumps(value)


def say(seen: Mapping[str, Seen], log: Log) -> None:
    """What was chosen for each behavior, and why, in five lines."""
    for name, one in seen.items():
        chosen = {c.key.rpartition(".")[2]: c for c in choices_for(one)}
        value = {key: choice.value for key, choice in chosen.items()}
        normalized = "normalized" if value["normalize"] else "not normalized"
        log(f"{name}: {value['trainer_type']}: {chosen['trainer_type'].why}")
        log(f"  buffer of {value['buffer_size']:,}: {chosen['buffer_size'].why}")
        log(
            f"  {value['hidden_units']} hidden units: {chosen['hidden_units'].why}; "
            f"{normalized}: {chosen['normalize'].why}"
        )
        log(f"  discount {value['gamma']}: {chosen['gamma'].why}")
        teams = chosen.get("save_steps")
        log(
            f"  {value['max_steps']:,} steps: {chosen['max_steps'].why}"
            + (f"; self-play: {teams.why}" if teams else "")
        )
