"""`touchline eval`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from touchline.cli.options import AsJson, Deterministic, Policies, RecordWire, World
from touchline.cli.output import show_figures
from touchline.cli.progress import shown

if TYPE_CHECKING:
    from touchline.api import GameFigures


def evaluate(
    world: World,
    policy: Policies,
    versus: Annotated[
        str | None,
        typer.Option("--versus", metavar="FILE", help="The policy of the other team."),
    ] = None,
    episodes: Annotated[
        int,
        typer.Option(
            "--episodes",
            min=1,
            help="Episodes per behavior; with groups of agents, games.",
        ),
    ] = 100,
    opponents: Annotated[
        str | None,
        typer.Option(
            "--opponents",
            metavar="A,B,...",
            help="MicroRTS: play the episodes against each of these bots.",
        ),
    ] = None,
    deterministic: Deterministic = False,
    record_wire: RecordWire = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a policy: mean return with its confidence interval, over the same number of episodes
    for each agent.
    """
    from touchline import api

    recipe = world.recipe()
    settings: dict[str, Any] = {
        "episodes": episodes,
        "seed": world.seed,
        "deterministic": deterministic,
    }
    figures: Mapping[str, Any]
    if opponents is not None:
        with shown(f"eval {world.env}", "games") as progress:
            table = api.evaluate_opponents(
                recipe, policy, opponents.split(","), progress=progress, **settings
            )
        figures = {"scene": world.env, "policy": ", ".join(policy), **table}
        lines = _opponent_lines
    else:
        with shown(f"eval {world.env}", "episodes", recipe) as progress:
            figures = api.evaluate(
                recipe,
                policy,
                versus=versus,
                record_wire=record_wire,
                progress=progress,
                **settings,
            )
        figures = {**figures, "scene": world.env}
        lines = _lines
    show_figures(figures, lines, as_json=as_json)


def _opponent_lines(figures: Mapping[str, Any]) -> Iterator[str]:
    from touchline.training.game_results import games_table

    yield games_table({**figures["opponents"], "all": figures["total"]})


def _lines(figures: Mapping[str, Any]) -> Iterator[str]:
    from touchline.training.game_results import games_table

    for name, behavior in figures["behaviors"].items():
        low, high = behavior["ci95"]
        own = (
            f"return {behavior['mean_return']:.3f} (95 % within {low:.3f} to {high:.3f}) "
            f"over {behavior['episodes']} episodes, {behavior['mean_length']:.1f} decisions long"
        )
        games = behavior["games"]
        if games is None:
            yield f"{name}: {own}"
            continue
        result = _game_line(games, behavior["mean_group_return"])
        # Most scenes of groups pay the group; in others, games have no winner.
        pays_group = games["won"] + games["lost"] > 0 or behavior["std_return"] == 0
        lines = [result, f"agents' own {own}"]
        first, second = lines if pays_group else reversed(lines)
        yield f"{name}: {first}"
        yield f"  {second}"
    if "opponents" in figures:
        yield games_table(figures["opponents"])


def _game_line(games: GameFigures, mean_group_return: float) -> str:
    from touchline.training.game_results import wilson_interval

    won, played = games["won"], games["played"]
    low, high = (100 * bound for bound in wilson_interval(won, played))
    return (
        f"won {won} of {played} games ({100 * won / played:.0f} %, 95 % within {low:.0f} to "
        f"{high:.0f} %), lost {games['lost']}, interrupted {games['interrupted']}; "
        f"group return {mean_group_return:.3f}, {games['mean_length']:.1f} decisions long"
    )
