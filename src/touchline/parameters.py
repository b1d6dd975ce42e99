"""Environment parameters: a name, and a value or a distribution to draw from at each read.

The kinds of distribution are those of ML-Agents' environment-parameters side channel. A world
declares the parameters that it has as `Parameter`s; its user sets `ParameterValue`s.

The `seed` of a sampler starts the draws of a Unity player (None: derived from the run's seed).
Scenes in process draw from the random stream of each area and ignore it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from touchline.errors import UsageError


@dataclass(frozen=True)
class Uniform:
    """Uniform over [low, high]."""

    low: float
    high: float
    seed: int | None = None

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise UsageError(
                f"uniform sampler: expected low <= high, got {self.low} and {self.high}"
            )

    @property
    def bounds(self) -> tuple[float, float]:
        return self.low, self.high

    def quantile(
        self, u: NDArray[np.float64], v: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Draws made from two independent uniform numbers in [0, 1) each."""
        # v is not needed here, but the result must have the shape of both.
        return self.low + (self.high - self.low) * u + 0.0 * v


@dataclass(frozen=True)
class Gaussian:
    """Normal with this mean and standard deviation; a world clips draws to its own range."""

    mean: float
    std: float
    seed: int | None = None

    def __post_init__(self) -> None:
        if not self.std >= 0:
            raise UsageError(
                f"gaussian sampler: expected a standard deviation of 0 or more, got {self.std}"
            )

    @property
    def bounds(self) -> tuple[float, float]:
        # A normal distribution has no ends; its draws are clipped to the parameter's range.
        return self.mean, self.mean

    def quantile(
        self, u: NDArray[np.float64], v: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Draws made from two independent uniform numbers in [0, 1) each (Box and Muller 1958)."""
        # 1 - u is never 0, so the logarithm is finite.
        radius = np.sqrt(-2.0 * np.log1p(-u))
        return self.mean + self.std * radius * np.cos(2.0 * np.pi * v)


@dataclass(frozen=True)
class MultiRangeUniform:
    """Uniform over several [low, high] ranges: a range is drawn by its length, then a value."""

    intervals: tuple[tuple[float, float], ...]
    seed: int | None = None

    def __post_init__(self) -> None:
        if not self.intervals or any(low > high for low, high in self.intervals):
            raise UsageError(
                f"multi-range sampler: expected ranges with low <= high, got {self.intervals}"
            )

    @property
    def bounds(self) -> tuple[float, float]:
        lows, highs = zip(*self.intervals, strict=True)
        return min(lows), max(highs)

    def quantile(
        self, u: NDArray[np.float64], v: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Draws made from two independent uniform numbers in [0, 1) each."""
        low, high = np.asarray(self.intervals, np.float64).T
        ends = np.cumsum(high - low)
        if ends[-1] == 0.0:  # every range is a point
            chosen = (u * len(low)).astype(np.intp)
        else:
            found = np.searchsorted(ends, u * ends[-1], side="right")
            # Rounding may take u * ends[-1] up to the very end.
            chosen = np.minimum(found, len(low) - 1)
        return np.asarray(low[chosen] + (high - low)[chosen] * v)


Sampler = Uniform | Gaussian | MultiRangeUniform
ParameterValue = float | Sampler


@dataclass(frozen=True)
class Parameter:
    """One environment parameter of a world: its default, its range, and what it does."""

    default: float
    low: float
    high: float
    meaning: str

    def check(self, world: str, name: str, value: ParameterValue) -> None:
        """Raise a UsageError unless every value that `value` can have is in range."""
        ends = value.bounds if isinstance(value, Sampler) else (float(value),)
        # A NaN fails every comparison, so it is refused, too.
        if not all(self.low <= end <= self.high for end in ends):
            raise UsageError(
                f"{world}: parameter {name!r} ({self.meaning}) takes {self.low:g} to "
                f"{self.high:g}, got {value}"
            )
