"""A round robin of policies: all pairs, in both seats, and ratings from all games."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, cast

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.flag import Flag
from touchline.interrupts import sigterm_as_ctrl_c
from touchline.jobs.job import Here, Job, Place, follow
from touchline.jobs.processes import Processes
from touchline.log import Progress, no_progress
from touchline.operating_systems import num_cores
from touchline.policies.loading import PolicySource, as_trained, sources_in
from touchline.studies.matches import (
    Match,
    Score,
    check_entrants,
    play,
    single_threaded,
    sources_of,
)
from touchline.studies.plot import write_figure
from touchline.training.collect.opening import import_ray
from touchline.training.evaluation_figures import wilson_interval
from touchline.training.self_play.ratings import ELO, SPREAD_OF_PLAYERS, most_likely
from touchline.whole import require_writable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEAN_RATING = 1200.0
"""Mean over all entrants of a tournament."""
GAMES_PER_MATCH = 50
"""Pairs with more games play several matches, so that all cores have work. Not a matter of how
many cores there are: results must not depend on that."""
_Z95 = 1.96


class EntrantFigures(TypedDict):
    """Figures of one entrant of a tournament."""

    name: str
    rating: float
    """On Elo's scale; the mean of all entrants is 1200."""
    rating_ci95: list[float]
    """[low, high]: the 95 % interval of its distance to the mean."""
    games: int
    won: int
    drawn: int
    lost: int
    score: float
    """Games won and half of those drawn, per game."""


class Upset(TypedDict):
    """An entrant that loses to one rated lower, beyond chance."""

    rated_higher: str
    loses_to: str
    score: float
    score_ci95: list[float]
    games: int


class TournamentFigures(TypedDict):
    """Results of a tournament."""

    scene: str
    seed: int
    games_per_pair: int
    decisions: int
    """The actions of all agents together."""
    entrants: list[EntrantFigures]
    """The best first."""
    matrix: list[list[list[int] | None]]
    """Games won, drawn and lost of the row's entrant against the column's, in that order."""
    upsets: list[Upset]
    """Empty where the order is transitive."""


def tournament(
    env: str | EnvRecipe,
    policies: Annotated[Sequence[PolicySource], Flag("--policy", "ENTRANT")],
    games: Annotated[int, Flag(min=2)] = 200,
    *,
    picture: Path | str | None = None,
    processes: Annotated[int | None, Flag(min=1)] = None,
    cluster: Annotated[str | None, Flag(metavar="WHERE")] = None,
    deterministic: bool = False,
    seed: int | None = None,
    progress: Progress = no_progress,
) -> TournamentFigures:
    """Rate policies by games of each against each, half of them with sides exchanged.

    Parameters
    ----------
    policies
        A run folder, a checkpoint, an ONNX file, `random` or `zero`; Striker=a.onnx,Goalie=b.onnx
        where sides differ. Repeat it for every entrant.
    games
        Games of each pair, half of them on each side.
    picture
        Draw ratings and the table of results into this file.
    processes
        Matches to play in parallel. Default: one per core.
    cluster
        Play on a Ray cluster: local:N, auto or HOST:PORT.
    seed
        Seed of all random numbers. Default: that of the environment, which is 0.
    progress
        Called with the games that are done, and their total.

    Raises
    ------
    UsageError
        Fewer than two entrants, a world without two teams, a policy that does not fit, or a picture
        that cannot be written.
    RunError
        No game ends, or a policy gives an action that is not a number.

    Notes
    -----
    The same seed returns the same figures, with any number of processes and on any cluster.
    Processes are spawned, unless there is only one, so a script calls this below
    `if __name__ == "__main__":`.
    """
    check_games(games)
    check_picture(picture)
    entrants = [",".join(sources_in(entrant)) for entrant in policies]
    recipe = EnvRecipe.parse(env)
    recipe = recipe if seed is None else replace(recipe, seed=seed)
    recipe = as_trained(
        recipe, [s for entrant in entrants for s in sources_of(entrant)]
    )
    if len(entrants) < 2:
        raise UsageError(
            f"a tournament needs two entrants or more, got {len(entrants)}: repeat --policy"
        )
    twice = [entrant for entrant in entrants if entrants.count(entrant) > 1]
    if twice:
        raise UsageError(f"--policy {twice[0]} is given twice")
    recipe = replace(recipe, options={**recipe.options, **recipe.kind.both_sides})
    matches, seats = schedule(recipe, entrants, games, deterministic=deterministic)
    num_processes = processes or num_cores()
    if recipe.is_editor:
        num_processes = 1  # there is only one Editor
        if cluster is not None:
            raise UsageError(
                "--cluster opens worlds on its nodes, and the Editor is one, on this machine"
            )
    tallies = np.zeros((len(entrants), len(entrants), 3), np.int64)
    decisions = 0
    check_entrants(matches)
    with sigterm_as_ctrl_c():
        for at, score in _play_all(matches, num_processes, progress, cluster):
            low, high = seats[at]
            tallies[low, high] += [score.won, score.drawn, score.lost]
            tallies[high, low] += [score.lost, score.drawn, score.won]
            decisions += score.decisions
    about = {"scene": recipe.target, "seed": recipe.seed, "games_per_pair": games}
    found = figures_of(names_of(entrants), tallies)
    figures = cast("TournamentFigures", {**about, "decisions": decisions, **found})
    if picture is not None:
        draw_tournament(figures, Path(picture))
    return figures


def check_games(games: int) -> None:
    """Refuse games of a pair that leave a side without any."""
    if games < 2:
        raise UsageError(f"games: expected at least 2, one on each side, got {games}")


def check_picture(picture: Path | str | None) -> None:
    """Refuse a picture that cannot be written before games are played for it."""
    if picture is None:
        return
    path = Path(picture)
    if path.suffix != ".png":
        raise UsageError(f"{path}: expected a file name that ends in .png")
    require_writable(path)


def _play_all(
    matches: Sequence[Match], processes: int, progress: Progress, cluster: str | None
) -> Iterator[tuple[int, Score]]:
    """The score of each match with its position, as they are finished.

    With one process they are played in this one, with a `cluster` on its nodes. `progress` counts
    games.
    """
    total, done = sum(match.games for match in matches), 0
    progress(0, total)
    place: Place = Here()
    play_there: Callable[[Match], Score] = play
    with ExitStack() as opened:
        if cluster is not None:
            import_ray("--cluster")
            from touchline.studies.matches_on_nodes import nodes_for

            place, play_there = opened.enter_context(nodes_for(cluster, matches))
        elif min(processes, len(matches)) > 1:
            place = Processes(min(processes, len(matches)))
        jobs = {f"match {at}": at for at in range(len(matches))}
        work = (Job(name, play_there, (matches[at],)) for name, at in jobs.items())
        for match in opened.enter_context(closing(follow(place, work))):
            if match.outcome is not None:
                at = jobs[match.name]
                done += matches[at].games
                progress(done, total)
                yield at, match.outcome.result()


def schedule(
    recipe: EnvRecipe, entrants: Sequence[str], games: int, *, deterministic: bool
) -> tuple[list[Match], list[tuple[int, int]]]:
    """All matches, and the entrants (lower team, higher team) of each by number."""
    matches, seats = [], []
    for first in range(len(entrants)):
        for second in range(first + 1, len(entrants)):
            for low, high in ((first, second), (second, first)):
                # The odd game goes to the first seating.
                share = games // 2 + (games % 2 if low == first else 0)
                for part, size in enumerate(_parts(share)):
                    place = [recipe.seed, low, high, part]
                    # Mixed, so that neighboring matches have unrelated seeds; 31 bits, since
                    # Unity's seed is an int32.
                    seed = int(np.random.SeedSequence(place).generate_state(1)[0] >> 1)
                    world = single_threaded(replace(recipe, seed=seed))
                    pair = (entrants[low], entrants[high])
                    matches.append(Match(world, pair, size, deterministic))
                    seats.append((low, high))
    return matches, seats


def _parts(games: int) -> list[int]:
    whole, rest = divmod(games, GAMES_PER_MATCH)
    return [GAMES_PER_MATCH] * whole + ([rest] if rest else [])


def names_of(entrants: Sequence[str]) -> list[str]:
    """What entrants are called: files by their own name, where that is unambiguous."""
    short = [",".join(map(_short, sources_of(entrant))) for entrant in entrants]
    return [
        name if short.count(name) == 1 else entrant
        for name, entrant in zip(short, entrants, strict=True)
    ]


def _short(source: str) -> str:
    behavior, equals, path = source.rpartition("=")
    return f"{behavior}{equals}{Path(path).name}"


def ratings_of(
    points: Float[np.ndarray, "P P"],
) -> tuple[Float[np.ndarray, " P"], Float[np.ndarray, " P"]]:
    """Ratings around `MEAN_RATING`, and the standard errors of their distances to the mean."""
    size = len(points)
    # Only differences of strengths are known. This matrix takes their mean away.
    center = np.eye(size) - 1.0 / size
    strength, covariance = most_likely(points, center * (ELO / SPREAD_OF_PLAYERS) ** 2)
    variance = np.diag(center @ covariance @ center)
    return MEAN_RATING + ELO * (center @ strength), ELO * np.sqrt(variance)


def figures_of(names: Sequence[str], tallies: NDArray[np.int64]) -> dict[str, Any]:
    """Ratings, matrix and warnings; `tallies` [P, P, 3] are games won, drawn and lost."""
    points = tallies[..., 0] + tallies[..., 1] / 2
    games = tallies.sum(axis=2)
    rating, error = ratings_of(points)
    order = np.argsort(-rating, kind="stable").tolist()
    entrants = []
    for at in order:
        won, drawn, lost = tallies[at].sum(axis=0).tolist()
        half = _Z95 * error[at]
        num_games = max(games[at].sum(), 1)
        entrants.append(
            {
                "name": names[at],
                "rating": float(rating[at]),
                "rating_ci95": [float(rating[at] - half), float(rating[at] + half)],
                "games": won + drawn + lost,
                "won": won,
                "drawn": drawn,
                "lost": lost,
                "score": float(points[at].sum() / num_games),
            }
        )
    # Nothing on the diagonal: no entrant plays against itself.
    matrix = [
        [None if i == j else tallies[i, j].tolist() for j in order] for i in order
    ]
    upsets = list(_upsets(names, order, points, games))
    return {"entrants": entrants, "matrix": matrix, "upsets": upsets}


def _upsets(
    names: Sequence[str],
    order: Sequence[int],
    points: NDArray[np.float64],
    games: NDArray[np.int64],
) -> Iterator[dict[str, Any]]:
    """Pairs of which the one rated lower wins, beyond chance: their order is not transitive."""
    for rank, better in enumerate(order):
        for worse in order[rank + 1 :]:
            # A draw is half a win; the interval is a little too wide then.
            played = int(games[worse, better])
            low, high = wilson_interval(points[worse, better], played)
            if low > 0.5:
                yield {
                    "rated_higher": names[better],
                    "loses_to": names[worse],
                    "score": float(1 - points[worse, better] / played),
                    "score_ci95": [1 - high, 1 - low],
                    "games": played,
                }


def tournament_lines(figures: Mapping[str, Any]) -> Iterator[str]:
    width = max(len("entrant"), *(len(e["name"]) for e in figures["entrants"]))
    numbers = "".join(f"{n + 1:>5}" for n in range(len(figures["entrants"])))
    yield f"    {'entrant':{width}}  rating [95 %]         won drawn  lost  {numbers}"
    for rank, entrant in enumerate(figures["entrants"]):
        low, high = entrant["rating_ci95"]
        rating = f"{entrant['rating']:6.0f} [{low:5.0f}, {high:5.0f}]"
        counts = f"{entrant['won']:5} {entrant['drawn']:5} {entrant['lost']:5}"
        shares = [cell and f"{_percent(cell):.0f}" for cell in figures["matrix"][rank]]
        against = "".join(f"{share or '–':>5}" for share in shares)
        yield f"{rank + 1:2}. {entrant['name']:{width}}  {rating} {counts}  {against}"
    yield "On the right: score of the row against the column, in %; a draw is half a win."
    for upset in figures["upsets"]:
        low, high = (100 * bound for bound in upset["score_ci95"])
        yield (
            f"not transitive: {upset['rated_higher']} is rated above {upset['loses_to']}, but "
            f"scores {100 * upset['score']:.0f} % [{low:.0f}, {high:.0f}] against it"
        )


def _percent(cell: Sequence[int]) -> float:
    """The score of games won, drawn and lost, in %: a draw is half a win."""
    won, drawn, lost = cell
    return 100 * (won + drawn / 2) / max(won + drawn + lost, 1)


def draw_tournament(figures: Mapping[str, Any], path: Path) -> None:
    """A picture of ratings with their intervals, and of who scores how much against whom."""
    from matplotlib.figure import Figure

    size = len(figures["entrants"])
    figure = Figure(figsize=(8 + size / 2, 2 + size / 2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_ratings(left, figures)
    _draw_matrix(right, figures)
    figure.suptitle(f"{figures['scene']}: {figures['games_per_pair']} games per pair")
    write_figure(figure, path, dpi=120)


def _draw_ratings(axes: Axes, figures: Mapping[str, Any]) -> None:
    entrants = figures["entrants"]
    place = np.arange(len(entrants))
    rating = np.array([e["rating"] for e in entrants])
    interval = np.array([e["rating_ci95"] for e in entrants]).T
    axes.errorbar(rating, place, xerr=abs(interval - rating), fmt="o", capsize=3)
    axes.set_yticks(place, [e["name"] for e in entrants])
    axes.invert_yaxis()
    axes.set(xlabel="rating with 95 % interval")
    axes.grid(alpha=0.3)


def _draw_matrix(axes: Axes, figures: Mapping[str, Any]) -> None:
    size = len(figures["entrants"])
    score = np.full((size, size), np.nan)
    for i, row in enumerate(figures["matrix"]):
        for j, cell in enumerate(row):
            if cell is not None:
                score[i, j] = _percent(cell)
                axes.text(j, i, f"{score[i, j]:.0f}", ha="center", va="center")
    axes.imshow(score, cmap="RdYlGn", vmin=0, vmax=100, alpha=0.7)
    axes.set_xticks(range(size), [str(n + 1) for n in range(size)])
    axes.set_yticks(range(size), [str(n + 1) for n in range(size)])
    axes.set(title="score of the row against the column, %")
