"""Figures of games that have results: the interval of a win rate, and a table for people."""

from collections.abc import Mapping
from math import sqrt
from typing import Any

# Standard normal quantile of a 95 % interval.
_Z = 1.96


def wilson_interval(won: int, games: int) -> list[float]:
    """95 % interval of a win rate: [low, high]."""
    # Unlike the normal approximation it makes sense near 0 and 1, and for few games. Source: Wilson
    # 1927, JASA 22:209.
    if games == 0:
        return [0.0, 1.0]
    rate = won / games
    spread = _Z**2 / games
    middle = (rate + spread / 2) / (1 + spread)
    variance = rate * (1 - rate) / games + spread / (4 * games)
    half = _Z * sqrt(variance) / (1 + spread)
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
