"""Two worlds' figures side by side, and the difference that chance alone explains.

Every figure is a ratio of sums over units, r = Σ aᵢ / Σ bᵢ: the mean of an observation is its sum
over all decisions by their number. Units are independent, so the error of a ratio is

    SE² = G/(G−1) · Σ (aᵢ − r bᵢ)² / (Σ bᵢ)²

(Cochran 1977, Sampling Techniques, section 6.4). Hundreds of figures are compared at once, and
neighbors among them move together. So the limit is that of the largest of all studentized
differences: the 95 % quantile over random exchanges of the units between both worlds (Westfall &
Young 1993). Where the reference has no units, units are resampled with replacement. Two
equal worlds then show any difference beyond chance in one comparison of twenty.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from touchline.studies.units import (
    DECISIONS,
    EPISODES,
    GAMES,
    GROUP_RETURN,
    INTERRUPTED,
    LENGTH,
    RETURN,
    Units,
)

EPISODE_FIGURES = ("return", "group return", "length", "interrupted")
"""Before the means and the spreads of all observations."""
_EXCHANGES = 500
_QUANTILE = 0.95
_EXACT = 1e-6
"""Differences below this share of a figure (or of 1) are rounding."""

Values = Float[np.ndarray, " M"]
"""M figures of one world."""
ManyValues = Float[np.ndarray, "P M"]
"""The same of P draws of its units."""


@dataclass(frozen=True)
class Figures:
    """A reference of which only figures are known: M of them, those of `figures_of`."""

    values: Values
    """NaN where unknown."""
    num_units: int | None
    """How many units they come from; None: enough that they have no error."""
    rounding: float = 0.0
    """Largest error that rounding makes in each."""


@dataclass(frozen=True)
class Comparison:
    """M figures of two worlds."""

    here: Values
    reference: Values
    chance: Values
    """The difference that chance explains."""

    @property
    def difference(self) -> Values:
        difference: Values = self.here - self.reference
        return difference

    @property
    def differs(self) -> Bool[np.ndarray, " M"]:
        """Beyond chance; False where a figure is unknown."""
        is_beyond: Bool[np.ndarray, " M"] = np.abs(self.difference) > self.chance
        return is_beyond


@dataclass(frozen=True)
class _Ratios:
    """M ratios of sums over G units."""

    above: Float[np.ndarray, "G M"]
    below: Float[np.ndarray, "G M"]

    def with_errors(
        self, weights: Float[np.ndarray, "P G"]
    ) -> tuple[ManyValues, ManyValues]:
        """The ratios and their errors, with each unit counted `weights` times."""
        a = self.above
        b = self.below
        # A figure of which nothing was counted has the ratio 0, not NaN.
        sum_below = np.maximum(weights @ b, 1e-300)
        ratio = (weights @ a) / sum_below
        # Σ (a − r b)² = Σ a² + r (r Σ b² − 2 Σ a b), for all weights at once.
        squares = weights @ (a * a)
        squares_below = weights @ (b * b)
        products = weights @ (a * b)
        squares += ratio * (ratio * squares_below - 2.0 * products)
        count = weights.sum(axis=1, keepdims=True)
        correction = count / np.maximum(count - 1, 1)
        # Rounding may leave a small negative number where all units agree.
        squares = np.maximum(squares, 0.0)
        error = np.sqrt(squares * correction) / sum_below
        # Differences are divided by it: no error may be 0.
        smallest = 1e-3 * _EXACT * (1.0 + np.abs(ratio))
        return ratio, np.maximum(error, smallest)


def figures_of(units: Units) -> Values:
    """`EPISODE_FIGURES`, then the mean and then the spread of each observation."""
    each_once = np.ones((1, len(units)))
    values, _ = _ratios(units).with_errors(each_once)
    return _with_spreads(values[0], units.num_obs)


def compare(here: Units, reference: Units | Figures, seed: int) -> Comparison:
    """Compare all figures; `seed` is that of the random exchanges."""
    rng = np.random.default_rng(seed)
    if isinstance(reference, Units):
        return _compare_units(here, reference, rng)
    return _compare_figures(here, reference, rng)


def _ratios(units: Units) -> _Ratios:
    sums = units.sums
    decisions = sums[:, [DECISIONS]]
    mean = units.obs_sums.sum(axis=0) / max(decisions.sum(), 1.0)
    # Σ (x − mean)² over a unit's decisions, about the mean of the whole world.
    deviations = units.obs_squares - 2.0 * mean * units.obs_sums
    deviations += mean * mean * decisions
    # Rounding may leave a small negative number where an observation never changes.
    deviations = np.maximum(deviations, 0.0)
    # Column by column as `EPISODE_FIGURES`: a group's return is divided by games, the others by
    # episodes; then means and variances by decisions.
    of_episodes = sums[:, [RETURN, GROUP_RETURN, LENGTH, INTERRUPTED]]
    counts = sums[:, [EPISODES, GAMES, EPISODES, EPISODES]]
    counts_of_obs = np.tile(decisions, (1, 2 * units.num_obs))
    return _Ratios(
        above=np.concatenate([of_episodes, units.obs_sums, deviations], axis=1),
        below=np.concatenate([counts, counts_of_obs], axis=1),
    )


def _with_spreads(values: Values, num_obs: int) -> Values:
    """Variances become standard deviations."""
    first = len(values) - num_obs
    spreads = np.sqrt(np.maximum(values[first:], 0.0))
    return np.concatenate([values[:first], spreads])


def _compare_units(
    here: Units, reference: Units, rng: np.random.Generator
) -> Comparison:
    one = _ratios(here)
    other = _ratios(reference)
    together = _Ratios(
        np.concatenate([one.above, other.above]),
        np.concatenate([one.below, other.below]),
    )
    is_here = np.zeros((_EXCHANGES + 1, len(here) + len(reference)))
    # Row 0 is what was observed; every other row is one exchange.
    is_here[:, : len(here)] = 1.0
    is_here[1:] = rng.permuted(is_here[1:], axis=1)
    left, left_error = together.with_errors(is_here)
    right, right_error = together.with_errors(1.0 - is_here)
    error = np.hypot(left_error, right_error)
    studentized = np.abs((left - right) / error)
    # Of each exchange its largest figure: one limit for all figures at once.
    largest = studentized[1:].max(axis=1)
    limit = float(np.quantile(largest, _QUANTILE))
    return _comparison(left[0], right[0], limit * error[0], here.num_obs)


def _compare_figures(
    here: Units, reference: Figures, rng: np.random.Generator
) -> Comparison:
    ratios = _ratios(here)
    count = len(here)
    each_once = np.ones((1, count))
    (values,), (error,) = ratios.with_errors(each_once)
    # The bootstrap: as many units, drawn with replacement.
    evenly = np.full(count, 1.0 / count)
    drawn = rng.multinomial(count, evenly, size=_EXCHANGES)
    again, _ = ratios.with_errors(drawn.astype(np.float64))
    largest = np.abs((again - values) / error).max(axis=1)
    limit = float(np.quantile(largest, _QUANTILE))
    # What is known only as a figure is taken to vary from unit to unit as it does here.
    share = 0.0 if reference.num_units is None else count / reference.num_units
    first = len(values) - here.num_obs
    theirs = reference.values.copy()
    theirs[first:] **= 2  # spreads are stored, variances are compared
    chance = limit * error * np.sqrt(1.0 + share)
    result = _comparison(values, theirs, chance, here.num_obs)
    chance = result.chance + reference.rounding
    if reference.num_units is not None:
        # Measurements that end at a fixed step hold a part of one more unit.
        part = np.nan_to_num(result.reference[first:]) / reference.num_units
        chance[len(EPISODE_FIGURES) :] += np.concatenate([part, part])
    return Comparison(result.here, result.reference, chance)


def _comparison(
    here: Values,
    reference: Values,
    chance: Values,
    num_obs: int,
) -> Comparison:
    """From ratios; the last `num_obs` are variances."""
    left = _with_spreads(here, num_obs)
    right = _with_spreads(reference, num_obs)
    first = len(here) - num_obs
    chance = chance.copy()
    # v − w = (√v − √w)(√v + √w)
    sum_of_spreads: NDArray[np.float64] = left[first:] + right[first:]
    chance[first:] /= np.maximum(sum_of_spreads, 1e-12)
    # `fmax` passes over NaN, which stands for a figure that the reference does not have.
    larger = np.fmax(np.abs(left), np.abs(right))
    smallest = _EXACT * (1.0 + larger)
    return Comparison(left, right, np.fmax(chance, smallest))
