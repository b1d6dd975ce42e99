"""Matches of two entrants: a fixed number of games, and their results."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.policies.loading import load_policies
from touchline.policies.policy import Actors, SlotActor
from touchline.specs import base_name, team_of
from touchline.training.evaluation import EndCheck
from touchline.training.quotas import shares
from touchline.training.self_play.games import Games

AREAS = 25
"""Areas of a match, where the caller names no other number."""


@dataclass(frozen=True)
class Match:
    """Games of two entrants in fixed seats."""

    recipe: EnvRecipe
    """With the seed of this match."""
    seats: tuple[str, str]
    """The entrants of the lower and of the higher team, as `sources_of` reads them."""
    games: int
    deterministic: bool = False


@dataclass(frozen=True)
class Score:
    """The results of a match, from the side of the lower team."""

    won: int
    drawn: int
    lost: int
    decisions: int
    """Actions of all agents."""


def sources_of(entrant: str) -> list[str]:
    """The policies of an entrant: a source, or `Striker=a.onnx,Goalie=b.onnx`."""
    if "=" not in entrant or Path(entrant).exists():
        return [entrant]
    return entrant.split(",")


def play(match: Match) -> Score:
    """Play a match; every area plays the same number of games, and its first ones count.

    Raises a UsageError where a policy does not fit or the world has not two teams, and a RunError
    where no game ends.
    """
    with make(match.recipe) as env:
        slots = Slots(env)
        rows = slots.reset(match.recipe.seed)
        actors = Actors(lambda: _actors(match, slots))
        # Two of them: `Actors` loads at once, and `_actors` refuses any other number.
        low, high = sorted({team_of(name) for name in slots.behaviors})
        games = Games()
        games.follow(rows, {})
        left = shares(match.games, games.num_areas)
        counts = {1.0: 0, 0.5: 0, 0.0: 0}
        decisions = 0
        nothing = f"{' against '.join(match.seats)}: no game"
        advice = "a tournament needs games that end"
        check_end = EndCheck(slots.most_decisions, nothing, advice)
        while left.any():
            actions = {name: actors[name].act(row) for name, row in rows.items()}
            rows = slots.step(actions)
            decisions += int(sum(row.closed.sum() for row in rows.values()))
            results = games.follow(rows, slots.game_scores)
            for result in results:
                if not result.is_between(low, high):
                    continue  # agents of one team alone, before others came
                # Later games of an area are left out: areas whose games are short would count
                # more often.
                if result.area < len(left) and left[result.area]:
                    left[result.area] -= 1
                    counts[result.score(low, high)] += 1
            check_end(int(left.sum()), rows)
    return Score(counts[1.0], counts[0.5], counts[0.0], decisions)


def check_entrants(matches: Sequence[Match]) -> None:
    """Raise a UsageError where an entrant cannot play, before the first game.

    Of Unity players this shows in each entrant's first match: here, one more would be started.
    """
    recipe = matches[0].recipe
    if recipe.kind.is_player:
        return
    checked: set[tuple[int, str]] = set()
    with make(recipe) as env:
        slots = Slots(env)
        slots.reset(recipe.seed)
        for match in matches:
            in_seats = set(enumerate(match.seats))
            if not in_seats <= checked:
                _actors(match, slots)
                checked |= in_seats


def _actors(match: Match, slots: Slots) -> Mapping[str, SlotActor]:
    teams = sorted({team_of(name) for name in slots.behaviors})
    if len(teams) != 2:
        known = "one team" if len(teams) == 1 else f"{len(teams)} teams"
        raise UsageError(
            f"{match.recipe.target} has {known}; entrants play games of two teams, which must "
            "be there in its first exchange"
        )
    actors: dict[str, SlotActor] = {}
    for team, entrant in zip(teams, match.seats, strict=True):
        own = {n: spec for n, spec in slots.behaviors.items() if team_of(n) == team}
        actors |= load_policies(
            _sources_for(entrant, own, slots.behaviors),
            own,
            deterministic=match.deterministic,
            # Apart, so that two entrants with one policy do not draw the same noise.
            seed=match.recipe.seed + 1000 * team,
            world=slots.env,
        )
    return actors


def _sources_for(
    entrant: str, own: Iterable[str], all_names: Iterable[str]
) -> Sequence[str]:
    """The sources of an entrant for one side, without those for the other side's behaviors."""
    mine = {base_name(name) for name in own}
    known = {base_name(name) for name in all_names}
    sources = []
    for source in sources_of(entrant):
        behavior, equals, _ = source.partition("=")
        is_named = bool(equals) and not Path(source).exists()
        if is_named and behavior not in known:
            raise UsageError(
                f"--policy {entrant}: no behavior {behavior!r}; behaviors: "
                f"{', '.join(sorted(known))}"
            )
        if not is_named or behavior in mine:
            sources.append(source)
    return sources


def single_threaded(recipe: EnvRecipe) -> EnvRecipe:
    """The recipe of a world in one of several processes, each of which has one core."""
    if not recipe.kind.is_scene:
        return recipe
    options = {"num_threads": 1, **recipe.options}
    return replace(recipe, num_areas=recipe.num_areas or AREAS, options=options)
