"""How good a policy is: fixed quotas of episodes, whole games for groups, a confidence interval.

A unit is a group, or an agent without one. Every unit plays a fixed number of games (episodes), and
all episodes of a group's members within its games count. Counting "the first N that finish" instead
would favor short episodes. Members of a group share its fate, so they are no independent samples:
the interval takes a whole game as one.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Annotated, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from touchline.envs.env import EnvRecipe, GameReporting, make
from touchline.envs.slots import AllRows, SlotRows, Slots, widened
from touchline.errors import RunError, UsageError
from touchline.flag import Flag
from touchline.log import Log, Progress, no_progress, now_and_then, silent
from touchline.plugins import imported
from touchline.policies.loading import (
    PolicySource,
    as_trained,
    load_sides,
    sources_in,
    two_sides,
)
from touchline.policies.policy import Actors, Policy, SlotActor
from touchline.specs import BehaviorSpec, base_name, team_of
from touchline.training.evaluation_figures import Z95, Evaluation
from touchline.training.quotas import Ended, Quotas

MOST_DECISIONS = 20_000
"""Until an episode that counts must end, where the world has no longer limit of its own: 33 minutes
of play at ML-Agents' usual 10 a second.

The longest episodes of the scenes have 5,000.
"""

RETURN, GROUP_RETURN, LENGTH = range(3)
"""Columns of what is summed over an episode."""


def evaluate(
    env: str | EnvRecipe,
    policy: PolicySource | Sequence[PolicySource],
    *,
    versus: PolicySource | None = None,
    episodes: Annotated[int, Flag(min=1)] = 100,
    deterministic: bool = False,
    seed: int = 0,
    record_wire: Path | None = None,
    progress: Progress = no_progress,
) -> Evaluation:
    """Evaluate a policy: mean return with its confidence interval, over the same number of episodes
    for each agent.

    Parameters
    ----------
    env
        A scene's name (3DBall), a Unity player's path, `editor`, a recording (*.wire.gz) or
        microrts:MAP.
    policy
        A run folder, a checkpoint, an ONNX file, `random`, `zero`, or `greedy` (Match3). Repeat it
        for several behaviors.
    versus
        The policy of the other team.
    episodes
        Episodes per behavior; with groups of agents, games.
    deterministic
        Take the most likely action, or sample.
    seed
        Seed of all random numbers.
    record_wire
        Record the session with a Unity player, to replay it.
    progress
        Called after every step with the episodes (games) that are done, and their total.

    Raises
    ------
    UsageError
        The world cannot be opened, or a policy cannot be loaded or does not fit.
    RunError
        No episode ends, or a player failed.

    Notes
    -----
    With `versus`, the figures are those of the first team.
    """
    check_episodes(episodes)
    recipe, sources = replace(EnvRecipe.parse(env), seed=seed), sources_in(policy)
    others = sources_in(versus or ())
    recipe = as_trained(recipe, [*sources, *others])
    with make(recipe.with_recorded_wire(record_wire)) as world:
        if isinstance(world, GameReporting):
            world.rest_after(episodes)
        slots = Slots(world)
        slots.reset(seed)  # Unity announces its behaviors with the first exchange
        own = two_sides(slots.behaviors, recipe.target)[0] if others else None
        actors = load_sides(
            sources,
            others,
            slots,
            recipe.target,
            deterministic=deterministic,
            seed=seed,
        )
        figures = measure(slots, actors, episodes, seed, own, progress)
        if isinstance(world, GameReporting):
            figures |= world.game_figures(episodes)
    scene = env if isinstance(env, str) else recipe.target
    return cast("Evaluation", {"scene": scene, "policy": ", ".join(sources), **figures})


def check_episodes(episodes: int) -> None:
    """Refuse a measurement of nothing, whose mean would be 0."""
    if episodes < 1:
        raise UsageError(f"episodes: expected at least 1, got {episodes}")


def evaluate_opponents(
    env: str | EnvRecipe,
    policy: PolicySource | Sequence[PolicySource],
    opponents: Sequence[str],
    *,
    episodes: int = 100,
    deterministic: bool = False,
    seed: int = 0,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Play `episodes` games against each named opponent of a world, such as MicroRTS' bots.

    Returns `seed`, `episodes`, `opponents` (name -> figures) and `total`. Raises a UsageError for a
    world without named opponents.
    """
    check_episodes(episodes)
    recipe = replace(EnvRecipe.parse(env), seed=seed)
    if not recipe.kind.opponents:
        raise UsageError(f"{recipe.target} has no opponents with names")
    twice = [name for name in opponents if opponents.count(name) > 1]
    if twice:
        raise UsageError(f"opponents: {twice[0]} is given twice")
    sources = sources_in(policy)
    # Only a string names the function, because the core never imports the wing that plays such
    # games.
    table: dict[str, Any] = imported(recipe.kind.opponents)(
        as_trained(recipe, sources),
        sources,
        list(opponents),
        episodes,
        seed,
        deterministic=deterministic,
        progress=progress,
    )
    return table


class Game(NamedTuple):
    """The result of a group's game."""

    group_return: float
    length: int
    is_interrupted: bool


class Played(NamedTuple):
    """Episodes that depend on each other: those of one game, or one of an agent without a group."""

    returns: Sequence[float]
    lengths: Sequence[int]
    game: Game | None = None

    @property
    def score(self) -> float:
        """Return of the episode; the group's return and the mean of its members' for a game."""
        return _mean(self.returns) + (self.game.group_return if self.game else 0.0)


def figures_of(played: Sequence[Played]) -> dict[str, Any]:
    """The figures of finished episodes; games are seen from the side of the evaluated team."""
    returns = [value for one in played for value in one.returns]
    games = [one.game for one in played if one.game]
    group_returns = [game.group_return for game in games]
    return {
        "episodes": len(returns),
        "mean_return": _mean(returns),
        "std_return": float(np.std(returns, ddof=1)) if len(returns) > 1 else 0.0,
        "ci95": _interval(returns, [len(one.returns) for one in played]),
        "mean_length": _mean([n for one in played for n in one.lengths]),
        "mean_group_return": _mean(group_returns),
        "group_ci95": _interval(group_returns, [1] * len(games)),
        "games": _game_figures(games) if games else None,
    }


def _game_figures(games: Sequence[Game]) -> dict[str, Any]:
    interrupted = sum(game.is_interrupted for game in games)
    return {
        "played": len(games),
        "decided": len(games) - interrupted,
        "won": sum(game.group_return > 0 for game in games),
        "lost": sum(game.group_return < 0 for game in games),
        "interrupted": interrupted,
        "mean_length": _mean([game.length for game in games]),
    }


def _interval(
    values: Sequence[float], cluster_sizes: Sequence[int]
) -> list[float] | None:
    """The 95 % interval of the mean; None for a single cluster, whose error is unknown."""
    if len(cluster_sizes) == 1:
        return None
    mean = _mean(values)
    half = Z95 * clustered_error(np.array(values), cluster_sizes)
    return [mean - half, mean + half]


def clustered_error(values: NDArray[np.float64], cluster_sizes: Sequence[int]) -> float:
    """Standard error of the mean of values that come in clusters, one after the other.

    √(G/(G−1) · Σ_g (Σ_{i∈g} (xᵢ − x̄))²) / N, which for clusters of one is s/√N. 0 where it is not
    defined, for fewer than two clusters.

    Source: Cameron & Miller 2015, J. Human Resources 50:317, section II.
    """
    num_clusters = len(cluster_sizes)
    if num_clusters < 2:
        return 0.0
    cluster = np.repeat(np.arange(num_clusters), cluster_sizes)
    sums = np.bincount(cluster, weights=values - values.mean())
    correction = num_clusters / (num_clusters - 1)
    return float(np.sqrt(correction * (sums**2).sum()) / len(values))


def measure(
    slots: Slots,
    actors: Mapping[str, SlotActor],
    episodes: int,
    seed: int,
    evaluated: Sequence[str] | None = None,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Play until every quota is filled.

    Returns the figures of `touchline eval --json`, except `scene` and `policy`. `evaluated` are the
    full behavior names whose figures count, by default all, also those that appear later; where
    groups of two teams play by one policy, the figures are those of the lower team. Raises a
    RunError when an episode never ends.
    """
    started = time.perf_counter()
    tallies, agent_steps = _fill_quotas(
        slots, actors, episodes, seed, evaluated, progress
    )
    speed = agent_steps / (time.perf_counter() - started)
    behaviors = _by_behavior(tallies)
    return {
        "seed": seed,
        **figures_of(_lowest_team(tallies)),
        "agent_steps_per_s": round(speed),
        "behaviors": {name: figures_of(own) for name, own in behaviors.items()},
    }


def _fill_quotas(
    slots: Slots,
    actors: Mapping[str, SlotActor],
    episodes: int,
    seed: int,
    evaluated: Sequence[str] | None,
    progress: Progress,
) -> tuple[dict[str, _Tally], int]:
    """The tallies with their quotas filled, by full name, and the agent steps that it took."""
    rows = slots.reset(seed)
    tallies = _new_tallies(rows, episodes, evaluated)
    agent_steps = 0
    check_end = EndCheck(slots.most_decisions)
    is_first = True
    while left := _left(tallies, episodes):
        shown = _shown(rows)
        actions = {name: actors[name].act(row) for name, row in rows.items()}
        rows = slots.step(actions)
        moved = moved_slots(rows) if is_first else {}
        is_first = False
        for name, tally in tallies.items():
            tally.add(rows[name], moved.get(name))
        if _shown(rows) != shown:  # a world may show another at any time
            tallies = _new_tallies(rows, episodes, evaluated) | tallies
        check_end(left, rows)
        agent_steps += sum(int(row.closed.sum()) for row in rows.values())
        total = episodes * max(len(tallies), 1)
        progress(total - left, total)
    return tallies, agent_steps


def _by_behavior(tallies: Mapping[str, _Tally]) -> dict[str, list[Played]]:
    behaviors: dict[str, list[Played]] = {}
    for name, tally in tallies.items():
        behaviors.setdefault(base_name(name), []).extend(tally.played)
    return behaviors


def play(
    recipe: EnvRecipe,
    episodes: int,
    policy_for: Callable[[str, BehaviorSpec], Policy],
    log: Log = silent,
    stop: Event | None = None,
) -> dict[str, Mapping[str, Any]] | None:
    """Base name -> figures of so many episodes, as `touchline eval --json` has them, and `scores`,
    those of single episodes and games. None where `stop` was set before its end.

    `policy_for` returns the policy of a base name. Raises a UsageError where that does not fit, and
    a RunError where no episode ends.
    """
    with make(recipe) as env:
        if isinstance(env, GameReporting):
            env.rest_after(episodes)
        slots = Slots(env)
        slots.reset(recipe.seed)

        def load() -> dict[str, SlotActor]:
            # A stream of its own for each behavior, or teams that share a policy would draw the
            # same noise.
            actors = {}
            for seed, (name, spec) in enumerate(slots.behaviors.items(), recipe.seed):
                policy = policy_for(base_name(name), spec)
                policy.check(name, spec)
                actors[name] = SlotActor(policy, spec, seed)
            return actors

        actors = Actors(load)
        try:
            progress = _until(stop, now_and_then(log, "evaluation", "episodes"))
            tallies, _ = _fill_quotas(
                slots, actors, episodes, recipe.seed, None, progress
            )
            in_games = {}
            if isinstance(env, GameReporting):
                in_games = env.game_figures(episodes)
        except _StopError:
            return None
        finally:
            # Closed worlds refer to themselves and would pile up until Python collects them.
            gc.collect()
    return {
        name: {**figures_of(own), "scores": [one.score for one in own], **in_games}
        for name, own in _by_behavior(tallies).items()
    }


class _StopError(Exception):
    """Whoever wanted the figures does not want them any more."""


def _until(stop: Event | None, progress: Progress) -> Progress:
    """Reports of progress, which end the work once `stop` is set."""

    def report(done: int, total: int) -> None:
        if stop is not None and stop.is_set():
            raise _StopError
        progress(done, total)

    return report


class EndCheck:
    """Refuses to wait for an end that never comes."""

    def __init__(
        self,
        limit: int | None,
        nothing: str = "no episode",
        advice: str = "this policy ends none, or not so soon; let the world end them (Max Step)",
    ) -> None:
        """`limit` is the world's own; `nothing` and `advice` begin and end the error."""
        self._most = max(MOST_DECISIONS, limit or 0)
        self._nothing, self._advice = nothing, advice
        self._left, self._decisions = -1, 0.0

    def __call__(self, left: int, rows: AllRows) -> None:
        """Count one step, after which so much is `left` to be played.

        Raises a RunError when an average agent has made more decisions than it may and nothing
        that counts has ended.
        """
        if left != self._left:
            self._left, self._decisions = left, 0.0
        # Where agents decide at different times, most of them wait in each step.
        num_slots = sum(len(row) for row in rows.values())
        num_decided = sum(int(row.closed.sum()) for row in rows.values())
        self._decisions += num_decided / max(num_slots, 1)
        if self._decisions > self._most:
            raise RunError(
                f"{self._nothing} ended within {self._most:,} decisions: {self._advice}"
            )


def _new_tallies(
    rows: AllRows, episodes: int, evaluated: Sequence[str] | None
) -> dict[str, _Tally]:
    shown = _shown(rows)
    counted = shown if evaluated is None else [n for n in evaluated if n in shown]
    names = _one_side(counted, rows)
    return {name: _Tally(rows[name], episodes) for name in names}


def _shown(rows: AllRows) -> list[str]:
    """The behaviors of which agents have come; a world may name others before."""
    return [name for name, row in rows.items() if len(row)]


def _left(tallies: Mapping[str, _Tally], episodes: int) -> int:
    """The episodes and games that are still to be played, all of them before agents come."""
    if not tallies:
        return episodes
    return sum(tally.quotas.left for tally in tallies.values())


def _one_side(names: Sequence[str], rows: AllRows) -> list[str]:
    """These behaviors, without the higher teams of those that play in groups."""
    teams: dict[str, list[int]] = {}
    for name in names:
        teams.setdefault(base_name(name), []).append(team_of(name))
    shown = []
    for name in names:
        is_lowest = team_of(name) == min(teams[base_name(name)])
        # What one side wins the other loses: both together would say nothing.
        if is_lowest or not (rows[name].group_id > 0).any():
            shown.append(name)
    return shown


def _lowest_team(tallies: Mapping[str, _Tally]) -> list[Played]:
    """The outcomes of all behaviors; where groups play each other, of the lowest team."""
    first = min(map(team_of, tallies), default=0)
    return [
        one
        for name, tally in tallies.items()
        if team_of(name) == first or not any(one.game for one in tally.played)
        for one in tally.played
    ]


class _Tally:
    """The outcomes of one behavior's slots, as far as they belong to the quota of a unit."""

    def __init__(self, rows: SlotRows, episodes: int) -> None:
        self.played: list[Played] = []
        self.quotas = Quotas(rows, episodes)
        self._sums = np.zeros((len(rows), 3))
        """Return, group return and length of each slot's open episode."""
        self._members: dict[int, list[tuple[float, int]]]
        self._members = {group: [] for group in self.quotas.groups}
        """Per group: (return, length) of the episodes that ended in its current game."""

    def add(self, rows: SlotRows, moved: NDArray[np.bool_] | None = None) -> None:
        """Count one step's rows; `moved` are slots whose agent only changed its behavior."""
        self.quotas.widen(len(rows))
        self._sums = widened(self._sums, len(rows))
        self._sums[:, RETURN] += rows.reward
        self._sums[:, GROUP_RETURN] += rows.group_reward
        self._sums[:, LENGTH] += rows.closed
        ended = np.flatnonzero(rows.terminated | rows.truncated)
        # Ends before begins: one row may show both, and the new episode stays open.
        if len(ended):
            self._finish_lone(ended if moved is None else ended[~moved[ended]])
            for found in self.quotas.end_members(ended):
                self._finish_members(found, rows)
            self._sums[ended] = 0
        self.quotas.begin(rows)

    def _finish_lone(self, ended: NDArray[np.intp]) -> None:
        for slot in self.quotas.end_lone(ended):
            value, _, length = self._sums[slot].tolist()
            self.played.append(Played([value], [int(length)]))

    def _finish_members(self, ended: Ended, rows: SlotRows) -> None:
        """Count a game that is over by its last member, which was there for all that it earned."""
        members = self._members[ended.group]
        for value, _, length in self._sums[ended.members].tolist():
            members.append((value, int(length)))
        if not ended.is_over:
            return
        # The longest of those that ended now was present from the game's beginning.
        longest = ended.members[np.argmax(self._sums[ended.members, LENGTH])]
        _, group_return, length = self._sums[longest].tolist()
        game = Game(group_return, int(length), bool(rows.truncated[longest]))
        returns, lengths = zip(*members, strict=True)
        self.played.append(Played(returns, lengths, game))
        members.clear()


def moved_slots(rows: AllRows) -> dict[str, NDArray[np.bool_]]:
    """Slots of each behavior whose agent begins an episode under another one in the same step."""
    # Right after a reset this is no end of an episode: WallJump's agents take the behavior of their
    # first wall then, and Unity closes what they had begun under another.
    moved = {}
    for name, own in rows.items():
        elsewhere = {
            agent
            for other, row in rows.items()
            if other != name
            for agent in _agents(row, row.begins)
        }
        moved[name] = np.zeros(len(own), np.bool_)
        if elsewhere:
            ended = own.terminated | own.truncated
            agents = list(_agents(own, np.ones(len(own), np.bool_)))
            moved[name] = ended & np.array([agent in elsewhere for agent in agents])
    return moved


def _agents(rows: SlotRows, which: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """(World, agent id) of these slots."""
    return zip(
        rows.env_index[which].tolist(), rows.agent_id[which].tolist(), strict=True
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
