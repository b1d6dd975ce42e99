"""Finished games and their figures: games won, tied and lost, with confidence intervals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.training.evaluation_figures import wilson_interval


@dataclass(frozen=True)
class GameRecord:
    """One finished game, from the point of view of one side."""

    area: int
    team: int
    player: int
    opponent: str
    result: str
    """win, loss, tie (neither won before the limit) or fault (the opponent crashed or took too
    long)"""
    steps: int
    ticks: int
    rewards: dict[str, float]
    """The engine's reward functions, unweighted; the last two are 0 unless they have a weight."""
    episode_return: float
    """Their weighted sum."""
    orders: int
    invalid_orders: int
    fault: str = ""

    @property
    def invalid_share(self) -> float:
        return self.invalid_orders / max(self.orders, 1)


def win_figures(records: Sequence[GameRecord]) -> dict[str, Any]:
    """Counts of results, the win rate with its 95 % interval, and means; some by seat as well.

    Games that ended by a fault of the opponent count as faults alone.
    """
    sound = [record for record in records if record.result != "fault"]
    results = [record.result for record in sound]
    num_won = results.count("win")
    num_games = len(sound)
    seats = [
        [record for record in sound if record.player == player] for player in (0, 1)
    ]
    num_orders = sum(record.orders for record in sound)
    num_invalid = sum(record.invalid_orders for record in sound)
    return {
        "games": num_games,
        "won": num_won,
        "tied": results.count("tie"),
        "lost": results.count("loss"),
        "faults": len(records) - num_games,
        "win_rate": num_won / num_games if num_games else 0.0,
        "win_rate_ci95": wilson_interval(num_won, num_games),
        "win_rate_by_seat": [
            _mean([r.result == "win" for r in seat]) for seat in seats
        ],
        "mean_return": _mean([r.episode_return for r in sound]) or 0.0,
        "mean_return_by_seat": [
            _mean([r.episode_return for r in seat]) for seat in seats
        ],
        "mean_ticks": _mean([r.ticks for r in sound]) or 0.0,
        "invalid_share": num_invalid / max(num_orders, 1),
    }


def figures_by_opponent(
    records: Iterable[GameRecord], quota: NDArray[np.int64]
) -> dict[str, dict[str, Any]]:
    """Opponent -> figures of the first `quota` [areas] games of every area, for team 0."""
    remaining = quota.copy()
    by_opponent: dict[str, list[GameRecord]] = {}
    for record in records:
        if record.team == 0 and remaining[record.area] > 0:
            remaining[record.area] -= 1
            by_opponent.setdefault(record.opponent, []).append(record)
    return {opponent: win_figures(games) for opponent, games in by_opponent.items()}


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
