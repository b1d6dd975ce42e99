"""Whether one training is better than another: by the episodes of both, and by their seeds.

The figure is the probability that a random one of A scores higher than a random one of B, ties
counted half: U / (n·m) of Mann & Whitney 1947, which Agarwal et al. 2021 (arXiv:2108.13264, section
4.3) call the probability of improvement. Its 95 % interval is the percentile bootstrap over
both samples. Episodes compare the policies that are there; seeds compare the ways of training, of
which every policy is one outcome.

rliable, the library of that paper, is not used: its latest release is of August 2024, and it fails
on import next to pandas 3.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from touchline.errors import UsageError
from touchline.flag import Flag
from touchline.policies.files.run_layout import (
    RunLayout,
    is_search,
    recorded,
    run_of,
    runs_in,
)

RESAMPLES = 2000


class Sample(TypedDict):
    """Scores of one side."""

    count: int
    mean: float
    interquartile_mean: float


class Better(TypedDict):
    """How probably A is better than B."""

    a: Sample
    b: Sample
    probability: float
    """That a random one of A scores higher than a random one of B; 0.5: neither is better."""
    ci95: list[float] | None
    """[low, high]; None where a side has only one."""


class BehaviorComparison(TypedDict):
    """Figures of one behavior."""

    seeds: Better
    """Over the last evaluations of all seeds."""
    episodes: Better | None
    """Over the episodes of these evaluations; None where the runs have none."""


class RunComparison(TypedDict):
    """Figures of a comparison of two trainings."""

    a: str
    b: str
    behaviors: dict[str, BehaviorComparison]


def compare(
    a: Annotated[str | os.PathLike[str], Flag("A")],
    b: Annotated[str | os.PathLike[str], Flag("B")],
) -> RunComparison:
    """Compare two trainings: how probably A is better than B, by episodes and by seeds.

    The scores are those of the last evaluation of each run; nothing is played. Of a search, the
    best trial is compared.

    Parameters
    ----------
    a
        A run folder, or the folder of several seeds.
    b
        The one to compare with.

    Raises
    ------
    UsageError
        A folder is no run, has no evaluation, or was trained by self-play, whose ratings compare
        only within one run; or they have no behavior in common.
    """
    one, other = _evaluations(Path(a)), _evaluations(Path(b))
    behaviors = [name for name in one if name in other]
    if not behaviors:
        raise UsageError(
            f"{a} has behaviors {', '.join(one)}, {b} has {', '.join(other)}: none in common"
        )
    return {
        "a": os.fspath(a),
        "b": os.fspath(b),
        "behaviors": {name: _compared(one[name], other[name]) for name in behaviors},
    }


def _evaluations(folder: Path) -> dict[str, list[Mapping[str, Any]]]:
    """Behavior -> the last evaluation of each run."""
    runs = [run_of(folder)] if is_search(folder) else runs_in(folder)
    found: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        for name, part in recorded(RunLayout(run)).items():
            if part.get("evaluations"):
                found.setdefault(name, []).append(part["evaluations"][-1])
    if not runs:
        raise UsageError(f"{folder}: no run folder, nor one of several seeds")
    if not found:
        raise UsageError(
            f"{folder}: no evaluation yet: a run evaluates at its checkpoints and at its end"
        )
    # Ratings are relative to the opponents of their own run.
    rated = [name for name, own in found.items() if any("error" in e for e in own)]
    if rated:
        raise UsageError(
            f"{folder}: {rated[0]} was trained by self-play, and ratings of different runs do not "
            "compare; let them play: touchline tournament SCENE --policy A --policy B"
        )
    return found


def _compared(
    a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]
) -> BehaviorComparison:
    seeds = _better([one["score"] for one in a], [one["score"] for one in b])
    of_a = [score for one in a for score in one.get("scores", ())]
    of_b = [score for one in b for score in one.get("scores", ())]
    return {"seeds": seeds, "episodes": _better(of_a, of_b) if of_a and of_b else None}


def _better(a: Sequence[float], b: Sequence[float]) -> Better:
    from scipy import stats

    one, other = np.array(a, np.float64), np.array(b, np.float64)
    interval = None
    if min(len(one), len(other)) > 1:
        found = stats.bootstrap(
            (one, other),
            probability_of_improvement,
            n_resamples=RESAMPLES,
            method="percentile",
            vectorized=True,
            # The same runs always give the same interval.
            rng=np.random.default_rng(0),
        ).confidence_interval
        interval = [float(found.low), float(found.high)]
    return {
        "a": _sample(one),
        "b": _sample(other),
        "probability": float(probability_of_improvement(one, other)),
        "ci95": interval,
    }


def probability_of_improvement(
    a: NDArray[np.float64], b: NDArray[np.float64], axis: int = -1
) -> NDArray[np.float64]:
    """U / (n·m): the share of pairs in which `a` is larger, ties counted half."""
    from scipy import stats

    count = a.shape[axis]
    ranks = stats.rankdata(np.concatenate([a, b], axis=axis), axis=axis)
    of_a = np.take(ranks, np.arange(count), axis=axis).sum(axis=axis)
    # The ranks of A add up to that last term if every one of B is higher: then U is 0.
    above = of_a - count * (count + 1) / 2
    share: NDArray[np.float64] = above / (count * b.shape[axis])
    return share


def _sample(values: NDArray[np.float64]) -> Sample:
    from scipy import stats

    return {
        "count": len(values),
        "mean": float(values.mean()),
        "interquartile_mean": float(stats.trim_mean(values, 0.25)),
    }


def comparison_lines(comparison: RunComparison) -> Iterator[str]:
    yield f"A = {comparison['a']}, B = {comparison['b']}"
    yield ""
    yield "| behavior | over | A: mean (interquartile) | B: mean (interquartile) | A better, 95 % |"
    yield "| --- | --- | --- | --- | --- |"
    for name, own in comparison["behaviors"].items():
        for unit, better in (("seeds", own["seeds"]), ("episodes", own["episodes"])):
            if better is not None:
                yield _row(name, unit, better)
    if any(own["episodes"] is None for own in comparison["behaviors"].values()):
        yield ""
        yield "no episodes: a run without a second world has only its return in training"


def _row(name: str, unit: str, better: Better) -> str:
    a, b = better["a"], better["b"]
    over = f"{a['count']} and {b['count']} {unit}"
    share = f"{better['probability']:.2f}"
    if better["ci95"] is None:
        share += ", one seed has no interval"
    else:
        share += ", {:.2f} to {:.2f}".format(*better["ci95"])
    cells = [name, over]
    cells += [f"{one['mean']:.3f} ({one['interquartile_mean']:.3f})" for one in (a, b)]
    return f"| {' | '.join([*cells, share])} |"
