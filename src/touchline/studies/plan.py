"""What limits a run here, and what more areas, a thread, players or machines would change.

A run is measured for some seconds. The rest is arithmetic, in `Model`; `docs/experiments.md`,
"Planning a run", has the formulas.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.log import Log, silent
from touchline.operating_systems import num_cores
from touchline.training.config.request import Changes, read_run
from touchline.training.config.settings import BehaviorConfig, RunConfig
from touchline.training.world import check_files, recipe_of

if TYPE_CHECKING:
    from touchline.studies.measuring import Costs

SECONDS = 10.0
"""What measuring takes, without opening worlds and compiling."""
AREAS_FACTOR = 4
"""A scene is measured a second time with this many times its areas."""
GAIN = 0.1
"""Doubling what a run has is worth it while it gains this share of its speed."""
SHORTEST_PIECE = 64
"""Actions of one agent in a buffer: ML-Agents' default `time_horizon`."""
NETWORK_BYTES_PER_S = 125e6
"""Between machines: 1 Gbit/s, an assumption."""
MACHINES = 1, 2, 4, 8, 16


@dataclass(frozen=True)
class Option:
    """What a run could be like."""

    name: str
    steps_per_s: float
    """Agent steps."""
    hours: float
    """Until every behavior has its steps."""
    limit: str
    """What it waits for most: simulation, wire, acting, other, learning, network."""


@dataclass(frozen=True)
class Plan:
    """What was measured, and what the model computes from it."""

    world: str
    num_areas: int | None
    """None for a player, which knows its own."""
    cores: int
    costs: Costs
    limit: str
    options: list[Option]
    """On this machine; the first one is the run as it is configured."""
    machines: list[Option]
    advice: list[str]


# the model


@dataclass(frozen=True)
class Model:
    """From costs to speeds. Times are of one decision step of all agents."""

    costs: Costs
    fixed: float
    """Share of collecting that does not grow with the areas."""
    cores: int
    max_steps: Mapping[str, int]
    """Base name -> agent steps to train."""
    update_steps: int
    """Agent steps between two updates."""

    def option(
        self,
        name: str,
        *,
        areas: float = 1.0,
        threaded: bool = False,
        players: int = 1,
    ) -> Option:
        """A run on this machine, with a multiple of the areas, or of the players."""
        costs = self.costs
        grows = self.fixed + (1.0 - self.fixed) * areas
        # Players run side by side while there are cores for them, one of which is ours. What this
        # process does for each of them comes one after another.
        rounds = max(1.0, players / max(self.cores - 1, 1))
        parts = {
            "simulation": costs.simulation * grows * rounds,
            "wire": costs.wire * grows * players,
            "acting": costs.acting * grows * players,
            "other": costs.other * grows * players,
            "learning": costs.learning * areas * players,
        }
        return self._option(name, parts, costs.agents * areas * players, threaded)

    def machines(self, count: int) -> Option:
        """Collectors on all cores of a number of machines but one core, which learns."""
        collectors = max(count * self.cores - 1, 1)
        steps = self.costs.agents * collectors
        # Trajectories of the other machines come once, weights go to each once per update.
        others = (count - 1) / count
        sent = steps * others * self.costs.bytes_per_action
        sent += (count - 1) * self.costs.weight_bytes * steps / self.update_steps
        name = f"{count} x {self.cores} cores"
        return self.collectors(name, collectors, sent / NETWORK_BYTES_PER_S)

    def collectors(self, name: str, count: int, network: float = 0.0) -> Option:
        """Collectors in processes of their own, at most one for each core."""
        costs = self.costs
        parts = {
            "simulation": costs.simulation,
            "wire": costs.wire,
            "acting": costs.acting,
            "other": costs.other,
            "learning": costs.learning * count,
            "network": network,
        }
        return self._option(name, parts, costs.agents * count, threaded=False)

    def _option(
        self, name: str, parts: Mapping[str, float], steps: float, threaded: bool
    ) -> Option:
        whole = sum(parts.values())
        if threaded:
            # One batch is learned from while the next one is collected.
            learning = parts["learning"]
            whole = max(whole - learning, learning)
        speed = steps / whole
        limit = max(parts, key=lambda part: parts[part])
        needed = [
            self.max_steps.get(base, 0) / share
            for base, share in self.costs.shares.items()
            if share
        ]
        hours = max(needed, default=0.0) / speed / 3600
        return Option(name, speed, hours, limit)


def fixed_share(few: Costs, many: Costs, factor: float) -> float:
    """The share of collecting that areas do not change, from costs with `factor` times as many."""
    # c(A) = c0 + c1 A, so c0 = (factor c(A) - c(factor A)) / (factor - 1).
    fixed = (factor * few.collecting - many.collecting) / (factor - 1)
    # Both measurements are noisy, so the line through them may leave this range.
    return min(max(fixed / few.collecting, 0.0), 1.0)


def plan(
    config: str | os.PathLike[str] | None = None,
    *,
    env: str | None = None,
    changes: Changes = (),
    log: Log = silent,
    settings: Mapping[str, Any] | None = None,
) -> Plan:
    """Predict how long a run takes, what limits it and what helps, from ten seconds of it.

    Parameters
    ----------
    config
        A preset's name (3DBall), or an ML-Agents YAML, as for train.
    changes, env, settings
        As in `train`.
    log
        Gets lines about the configuration.

    Notes
    -----
    Nothing is written. Errors are those of `train`.
    """
    request = read_run(config, changes, {"env": env, **(settings or {})}, verb="plan")
    for note in request.notes:
        log(note)
    check_files(request.config)
    recipe = recipe_of(request.config, request.preset)
    return plan_for(request.config, recipe)


def plan_for(config: RunConfig, recipe: EnvRecipe, seconds: float = SECONDS) -> Plan:
    """Measure for about `seconds`, and compute the rest."""
    from touchline.studies.measuring import measure  # it brings torch

    cluster = config.cluster_settings
    if cluster.collectors is not None or cluster.cluster is not None:
        raise UsageError(
            "plan measures one collector on this machine and computes what others add; "
            "leave out --collectors and --cluster"
        )
    recipe = replace(recipe, seed=max(config.env_settings.seed, 0))
    has_areas = recipe.kind.is_scene
    # Warming up takes a quarter more of each: 1.25 (0.5 + 0.3) and 1.25 · 0.8 are the whole time.
    costs = measure(config, recipe, seconds * (0.5 if has_areas else 0.8))
    num_areas = None
    fixed = 1.0
    if has_areas:
        from touchline.scenes import scene_class

        num_areas = recipe.num_areas or scene_class(recipe.target).unity_areas
        more = replace(recipe, num_areas=num_areas * AREAS_FACTOR)
        fixed = fixed_share(costs, measure(config, more, seconds * 0.3), AREAS_FACTOR)
    behaviors = {name: config.behavior(name) for name in costs.shares}
    known = {name: b for name, b in behaviors.items() if b is not None}
    updates = (b.hyperparameters.results_per_update or 1 for b in known.values())
    model = Model(
        costs,
        fixed,
        num_cores(),
        {name: b.max_steps for name, b in known.items()},
        max(min(updates, default=1), 1),
    )
    num_envs = config.env_settings.num_envs
    options = list(_options(model, known, num_areas, recipe, num_envs))
    machines = [model.machines(count) for count in MACHINES]
    advice = list(_advice(options, machines))
    about = recipe.target, num_areas, model.cores
    return Plan(*about, costs, options[0].limit, options, machines, advice)


def _options(
    model: Model,
    behaviors: Mapping[str, BehaviorConfig],
    num_areas: int | None,
    recipe: EnvRecipe,
    num_envs: int,
) -> Iterator[Option]:
    yield model.option("as configured")
    if model.cores > 1:
        yield model.option("threaded: true", threaded=True)
    if num_areas is not None:
        factor = worthwhile_areas(model, behaviors)
        if factor > 1:
            areas = f"num_areas: {num_areas * factor}"
            yield model.option(areas, areas=factor)
            if model.cores > 1:
                both = f"{areas}, threaded: true"
                yield model.option(both, areas=factor, threaded=True)
    if not recipe.is_editor:
        collect_in_rounds = all(
            b.hyperparameters.collects_in_rounds for b in behaviors.values()
        )
        if model.cores > 1 and collect_in_rounds:
            name = f"--cluster local:1 --collectors {model.cores}"
            yield model.collectors(name, model.cores)
    if recipe.kind.is_player and not recipe.is_editor:
        players = worthwhile_players(model)
        if players > 1:
            yield model.option(f"num_envs: {num_envs * players}", players=players)


def worthwhile_areas(model: Model, behaviors: Mapping[str, BehaviorConfig]) -> int:
    """How many times the areas are worth having: doubled while that gains `GAIN`, and while enough
    actions of each agent come into one buffer.
    """
    factor = 1
    algorithms = [behavior.hyperparameters for behavior in behaviors.values()]
    # The size of the buffer of another package's algorithm may be unknown.
    is_on_policy = all(
        one.collects_in_rounds and one.results_per_update for one in algorithms
    )
    while True:
        pieces = model.update_steps / (2 * factor * model.costs.agents)
        if is_on_policy and pieces < SHORTEST_PIECE:
            return factor
        now = model.option("", areas=factor).steps_per_s
        if model.option("", areas=2 * factor).steps_per_s < (1 + GAIN) * now:
            return factor
        factor *= 2


def worthwhile_players(model: Model) -> int:
    """How many players are worth having: one more while it gains `GAIN`."""
    players = 1
    while True:
        now = model.option("", players=players).steps_per_s
        if model.option("", players=players + 1).steps_per_s < (1 + GAIN) * now:
            return players
        players += 1


def _advice(options: list[Option], machines: list[Option]) -> Iterator[str]:
    own = options[0]
    yield f"{own.limit} takes the most time of this run"
    best = max(options, key=lambda option: option.steps_per_s)
    gain = best.steps_per_s / own.steps_per_s
    if gain > 1 + GAIN:
        yield f"{best.name} would make it {gain:.1f} times as fast here"
    else:
        yield "nothing here would make it much faster"
    pairs = zip(machines[1:], machines, strict=False)
    worth = [
        more for more, fewer in pairs if more.steps_per_s > 1.5 * fewer.steps_per_s
    ]
    if not worth:
        yield f"more machines are not worth having: {machines[1].limit} is the limit"
    else:
        yield f"machines are worth having up to {worth[-1].name}"


# for people


def plan_lines(found: Plan) -> Iterator[str]:
    costs = found.costs
    areas = "" if found.num_areas is None else f"{found.num_areas} areas, "
    actions = f"{costs.agents:.1f} actions in a decision step"
    yield f"{found.world}: {areas}{actions}, {found.cores} cores"
    yield ""
    yield "| part | ms per decision step | share |"
    yield "| --- | --- | --- |"
    whole = costs.collecting + costs.learning
    for part in ("simulation", "wire", "acting", "other", "learning"):
        spent = getattr(costs, part)
        yield f"| {part} | {1000 * spent:.3f} | {100 * spent / whole:.0f} % |"
    for title, options in (("here", found.options), ("machines", found.machines)):
        yield ""
        yield f"| {title} | agent steps/s | the run takes | limit |"
        yield "| --- | --- | --- | --- |"
        for option in options:
            speed = f"{option.steps_per_s:,.0f}"
            yield f"| {option.name} | {speed} | {_duration(option.hours)} | {option.limit} |"
    yield ""
    yield from found.advice


def _duration(hours: float) -> str:
    minutes = math.ceil(hours * 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"
