"""The figures of an evaluation and of games: what they are, and lines of them for people."""

from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import Any, NotRequired, TypedDict

Z95 = 1.96
"""Standard deviations on either side of the mean that hold 95 % of a normal distribution."""


def wilson_interval(won: int, games: int) -> list[float]:
    """95 % interval of a win rate: [low, high]."""
    # Unlike the normal approximation it makes sense near 0 and 1, and for few games. Source: Wilson
    # 1927, JASA 22:209.
    if games == 0:
        return [0.0, 1.0]
    rate = won / games
    spread = Z95**2 / games
    middle = (rate + spread / 2) / (1 + spread)
    variance = rate * (1 - rate) / games + spread / (4 * games)
    half = Z95 * sqrt(variance) / (1 + spread)
    return [max(middle - half, 0.0), min(middle + half, 1.0)]


def games_table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Opponent -> figures of its games, as lines of text.

    The figures are `games`, `won`, `tied`, `lost`, `faults`, `win_rate` and `win_rate_ci95`.
    """
    lines = [
        f"{'opponent':24} {'games':>5} {'won':>5} {'tied':>5} {'lost':>5}  win rate [95 %]"
    ]
    for name, f in figures.items():
        low, high = f["win_rate_ci95"]
        counts = f"{f['games']:5} {f['won']:5} {f['tied']:5} {f['lost']:5}"
        line = f"{name:24} {counts}  {f['win_rate']:.2f} [{low:.2f}, {high:.2f}]"
        if f["faults"]:
            line += f"  {f['faults']} faults"
        lines.append(line)
    return "\n".join(lines)


class GameFigures(TypedDict):
    """Results of whole games of groups, from the side of the evaluated team."""

    played: int
    decided: int
    won: int
    lost: int
    interrupted: int
    mean_length: float


class BehaviorFigures(TypedDict):
    """Figures of one behavior."""

    episodes: int
    mean_return: float
    std_return: float
    ci95: list[float] | None
    """[low, high]: the 95 % interval of the mean return; None for one game, or one lone agent's
    episode."""
    mean_length: float
    """The mean number of decisions in an episode."""
    mean_group_return: float
    group_ci95: list[float] | None
    """[low, high]: the 95 % interval of the mean group return; None for one game."""
    games: GameFigures | None


class Evaluation(BehaviorFigures):
    """Figures of an evaluation; those of the first behavior at the top level."""

    scene: str
    policy: str
    seed: int
    agent_steps_per_s: float
    behaviors: dict[str, BehaviorFigures]
    """Base name -> figures."""
    opponents: NotRequired[dict[str, Any]]
    """Name -> figures, in worlds of games against named opponents."""


def what_was_played(figures: Mapping[str, Any]) -> str:
    """Figures of an evaluation in short: its episodes with their interval, or its games."""
    games = figures.get("games")
    if games and games["won"] + games["lost"]:
        return f"won {games['won']} of {games['played']} games"
    return f"{within(figures['ci95'])}, {_episodes(figures)}"


def within(interval: Sequence[float] | None) -> str:
    """The 95 % interval of a mean, in words; None: it is unknown."""
    if interval is None:
        return "error unknown"
    low, high = interval
    return f"95 % within {low:.3f} to {high:.3f}"


def _episodes(figures: Mapping[str, Any]) -> str:
    count = figures["episodes"]
    return "1 episode" if count == 1 else f"{count} episodes"


def evaluation_lines(figures: Mapping[str, Any]) -> Iterator[str]:
    """The figures for people: of each behavior, or of games against named opponents."""
    if "total" in figures:
        yield games_table({**figures["opponents"], "all": figures["total"]})
        return
    for name, behavior in figures["behaviors"].items():
        own = (
            f"return {behavior['mean_return']:.3f} ({within(behavior['ci95'])}) "
            f"over {_episodes(behavior)}, {behavior['mean_length']:.1f} decisions long"
        )
        games = behavior["games"]
        if games is None:
            yield f"{name}: {own}"
            continue
        result = _game_line(games, behavior)
        # Most scenes of groups pay the group; in others, games have no winner.
        pays_group = games["won"] + games["lost"] > 0 or behavior["std_return"] == 0
        lines = [result, f"agents' own {own}"]
        first, second = lines if pays_group else reversed(lines)
        yield f"{name}: {first}"
        yield f"  {second}"
    if "opponents" in figures:
        yield games_table(figures["opponents"])


def _game_line(games: GameFigures, behavior: Mapping[str, Any]) -> str:
    won, played = games["won"], games["played"]
    low, high = (100 * bound for bound in wilson_interval(won, played))
    return (
        f"won {won} of {played} games ({100 * won / played:.0f} %, 95 % within {low:.0f} to "
        f"{high:.0f} %), lost {games['lost']}, interrupted {games['interrupted']}; "
        f"group return {behavior['mean_group_return']:.3f} "
        f"({within(behavior['group_ci95'])}), {games['mean_length']:.1f} decisions long"
    )
