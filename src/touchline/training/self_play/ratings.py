"""Ratings from the results of all games at once, with their standard errors.

The model is Bradley and Terry's on Elo's scale: a player of rating r beats one of rating o with the
probability 1 / (1 + 10^((o - r) / 400)); a draw is half a win. Ratings are the most likely ones
under two Gaussian priors: a player near the anchor, and a policy near the one that it learned on
from, the nearer the less it has learned since. Standard errors come from the curvature at the
maximum (Laplace's approximation).

Sources: Bradley and Terry 1952, Biometrika 39:324; Coulom 2008, "Whole-history rating", for the
prior between successive policies, whose variance grows with the time between them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from touchline.envs.saved_state import kept, put_back

ELO = 400.0 / np.log(10.0)
"""Points of Elo's scale per unit of log-odds."""
SPREAD_OF_PLAYERS = 800.0
"""Standard deviation of a player around the anchor before any game, in points."""
SPREAD_OF_SUCCESSORS = 200.0
"""Likewise of a policy around the one that it learned on from, once it is a snapshot's interval
older."""
# Least part of an interval: a policy that has learned nothing yet is 2 points around its
# predecessor.
_LEAST_APART = 1e-4
_KEPT = ("names", "kinds", "predecessors", "apart")


@dataclass
class Ratings:
    """The results of all games among numbered players."""

    initial: dict[str, float] = field(default_factory=dict)
    """Rating of the first player of each kind, where it is not 1200."""
    names: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    """What each player can play: in games of unlike sides, players of one kind never meet."""
    predecessors: list[int] = field(default_factory=list)
    """The player that each learned on from, -1 where there is none."""
    apart: list[float] = field(default_factory=list)
    """How long each learned on since then, in intervals between snapshots."""
    points: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    """[P, P] wins and half draws of the row's player against the column's."""

    _fitted: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def add(self, kind: str, name: str, predecessor: int = -1) -> int:
        """A new player; returns its number."""
        number = len(self.names)
        self.names.append(name)
        self.kinds.append(kind)
        self.predecessors.append(predecessor)
        self.apart.append(0.0)
        self.points = np.pad(self.points, (0, 1))
        self._fitted = None
        return number

    def learned(self, player: int, intervals: float) -> None:
        """A player has learned for so many intervals since its predecessor."""
        self.apart[player] = intervals
        self._fitted = None

    def record(self, player: int, opponent: int, score: float) -> None:
        """One game: 1 won, 0.5 drawn, 0 lost, from the player's side."""
        self.points[player, opponent] += score
        self.points[opponent, player] += 1.0 - score
        self._fitted = None

    @property
    def games(self) -> Float[np.ndarray, "P P"]:
        """How many games each pair has played."""
        return self.points + self.points.T

    def fit(self) -> tuple[Float[np.ndarray, " P"], Float[np.ndarray, " P"]]:
        """Ratings, and the standard error of each one's distance to the first of its kind."""
        if self._fitted is None:
            self._fitted = self._fit()
        return self._fitted

    def _fit(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        strength, covariance = most_likely(self.points, self._prior())
        first = np.array([self.kinds.index(kind) for kind in self.kinds])
        initial = np.array([self.initial.get(kind, 1200.0) for kind in self.kinds])
        rating = initial + ELO * (strength - strength[first])
        variance = np.diag(covariance)
        # Var(a − b) = Var a + Var b − 2 Cov(a, b).
        with_first = covariance[np.arange(len(first)), first]
        distance = variance + variance[first]
        distance = distance - 2 * with_first
        # Rounding may leave a small negative number where a and b are one player.
        return rating, ELO * np.sqrt(distance.clip(0))

    def _prior(self) -> Float[np.ndarray, "P P"]:
        """Precision of the Gaussian prior of strengths, relative to the first player's."""
        precision = np.zeros_like(self.points)
        for player, before in enumerate(self.predecessors):
            variance = SPREAD_OF_PLAYERS**2
            if before >= 0:
                apart = max(self.apart[player], _LEAST_APART)
                variance = SPREAD_OF_SUCCESSORS**2 * apart
            # Strengths are log-odds, so points are divided by those of one unit.
            weight = ELO**2 / variance
            # The matrix of ½ w θ_p², or of ½ w (θ_p − θ_b)² for a successor of b.
            precision[player, player] += weight
            if before >= 0:
                precision[before, before] += weight
                precision[player, before] -= weight
                precision[before, player] -= weight
        return precision

    def state(self) -> dict[str, Any]:
        # Most pairs never meet, so only the others are written down.
        row, column = np.nonzero(self.points)
        entries = [row, column, self.points[row, column]]
        return kept(self, _KEPT) | {"games": [array.tolist() for array in entries]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        put_back(self, _KEPT, state)
        self.points = np.zeros((len(self.names), len(self.names)))
        # Earlier resume points also have the draws.
        row, column, points = state["games"][:3]
        if row:  # an empty list has no integer type to index with
            self.points[row, column] = points
        self._fitted = None


def most_likely(
    points: Float[np.ndarray, "P P"], precision: Float[np.ndarray, "P P"]
) -> tuple[Float[np.ndarray, " P"], Float[np.ndarray, "P P"]]:
    """Strengths in log-odds with the first at 0, and their covariance."""
    # Minimizes -Σ points_ij log σ(θ_i - θ_j) + ½ θᵀ precision θ by Newton's method; the prior makes
    # it strictly convex.
    games = points + points.T
    strength = np.zeros(len(points))
    # Games tell differences only: the first player stays at 0, and all others are free.
    free = slice(1, None)
    # A bound against endless loops; Newton's method needs about ten steps.
    for _ in range(100):
        lead = strength[None, :] - strength[:, None]  # of the column over the row
        win = 1.0 / (1.0 + np.exp(lead))  # [P, P]
        surprise = points - games * win
        gradient = precision @ strength - surprise.sum(axis=1)
        # σ' = σ (1 − σ), and 1 − win is win.T. Each row of the games' part sums to 0, so its
        # diagonal is minus the sum of the others.
        curvature = -games * win * win.T
        np.fill_diagonal(curvature, 0.0)
        np.fill_diagonal(curvature, -curvature.sum(axis=1))
        curvature += precision
        step = np.linalg.solve(curvature[free, free], gradient[free])
        # Far from the minimum a whole step may overshoot. With a single player no strength is
        # free and `step` is empty, hence `initial`.
        largest = np.abs(step).max(initial=0.0)
        step *= min(1.0, 2.0 / max(largest, 1e-12))
        strength[free] -= step
        if np.abs(step).max(initial=0.0) < 1e-9:
            break
    covariance = np.zeros_like(points)
    covariance[free, free] = np.linalg.inv(curvature[free, free])
    return strength, covariance
