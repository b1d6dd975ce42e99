"""What is likely wrong with a run that does not learn: a table of faults, each with its figure.

A check is a function from a run's figures to the text of what it found, None where all is well. The
thresholds are wide: a run that learns should have no finding. What "healthy runs" show below comes
from a few of our own, most of them SoccerTwos with self-play, and is no survey. What is wrong with
runs of one algorithm alone, its settings name (`HyperparameterSettings.faults`).
"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from touchline.errors import UsageError
from touchline.plugins import imported
from touchline.training.algorithms.settings import ALGORITHM_PLUGINS, algorithm_settings
from touchline.training.run.figures import Fault, RunFigures, read_run_figures
from touchline.training.run.folder import same_lessons

MIN_EPISODES = 50
"""Before which unseen rewards mean nothing, as long as the run continues."""
MIN_EPISODES_AT_THE_END = 10
"""Fewest episodes of a run that is over, however short it was."""
MIN_STEPS_WITHOUT_END = 100_000
"""Steps of all agents together: episodes of ML-Agents' scenes have up to 5,000 steps, runs dozens
of agents."""
EARLY = 0.1
"""Share of `max_steps` in which a run may still be looking for its first reward."""
CONSTANT_SHARE = 0.9
"""A few constant numbers are common: a tag that no ray sees, a switch that is never on."""
OBS_HIGH = 100.0
"""Without normalization. Inputs should be about 1 in size (LeCun et al. 1998, "Efficient BackProp",
section 4.3); ten times that still trains, this saturates a first layer."""
OBS_HIGH_NORMALIZED = 1e5
"""float32 has seven digits: of a number this large, two remain behind the point."""
CLIPPED_SHARE = 0.05
"""A normal distribution has 6e-7 beyond 5 standard deviations; sparse numbers have some more."""
RATE_LEAST = 0.05
"""Share of the first learning rate."""
RISE = 0.2
"""Share of a whole run's gain in return, made while the learning rate was ending."""
BOUND = 0.9
"""Share of the wall-clock time in one part of the work."""
MIN_SECONDS = 60.0
"""Shorter runs are mostly compilation and start-up."""
EVALUATION_ERRORS = 4.0
"""Standard errors below the return in training; two are exceeded by chance in every 40th run."""
EVALUATION_SHARE = 0.25
"""Share of the return's size in training: smaller differences matter to few."""
# Standard errors in half of a 95 % interval.
_Z95 = 1.96
# Training's return at a checkpoint is the mean of this many.
_RECENT_EPISODES = 100


def rewards_never_seen(run: RunFigures) -> str | None:
    episodes, mean = run.known("episodes").sum(), run.known("mean_return")
    groups = run.known("mean_group_return")
    least = MIN_EPISODES_AT_THE_END if run.progress >= 1.0 else MIN_EPISODES
    if episodes < least or run.progress < EARLY:
        return None
    if not len(mean):
        return None
    # The spread is added to the mean, so that returns that differ within a summary show, too.
    values = np.concatenate([mean, run.known("std_return") + mean, groups])
    largest = float(np.abs(values).max())
    # Means of equal returns differ by the rounding of float32, about 1e-7 of their size.
    if np.ptp(values) > 1e-6 * max(1.0, largest):
        return None
    if len(groups) and abs(groups[0] - mean[0]) > 1e-6:
        return None
    return f"each of {episodes:,.0f} episodes returned {mean[0]:.6g}"


def no_episode_ended(run: RunFigures) -> str | None:
    episodes = run.known("episodes")
    if not len(episodes) or episodes.sum() > 0:
        return None
    steps = run.known("step")[-1]
    if steps < MIN_STEPS_WITHOUT_END and run.progress < 1.0:
        return None
    return f"0 episodes in {steps:,.0f} agent steps"


def observations_constant(run: RunFigures) -> str | None:
    share = run.recent("obs_constant")
    # Not `<`: of a run that has no such figure the share is NaN, which is no finding.
    if not share >= CONSTANT_SHARE:
        return None
    return f"{share:.0%} of the observed numbers never changed (obs_constant)"


def observations_unbounded(run: RunFigures) -> str | None:
    largest = run.recent("obs_max")
    if largest > OBS_HIGH:
        return f"values up to {largest:.3g} without normalization (obs_max)"
    if run.obs_mean is None or run.obs_spread is None or not len(run.obs_mean):
        return None
    size = np.abs(run.obs_mean) + run.obs_spread
    worst = int(size.argmax())
    if not size[worst] > OBS_HIGH_NORMALIZED:
        return None
    mean, spread = run.obs_mean[worst], run.obs_spread[worst]
    return f"number {worst} is {mean:.3g} ± {spread:.3g} in the normalizer"


def normalizer_saturated(run: RunFigures) -> str | None:
    share = run.recent("obs_clipped")
    if not share > CLIPPED_SHARE:
        return None
    return (
        f"{share:.0%} of the normalized values are at the limit of ±5 (obs_clipped), "
        f"above {CLIPPED_SHARE:.0%}"
    )


def learning_rate_ended(run: RunFigures) -> str | None:
    """Where a run still improved when its learning rate ended, it could have gone on."""
    score, rates = run.score, run.known("learning_rate")
    if not len(rates) or rates[-1] > RATE_LEAST * rates.max() or len(score) < 8:
        return None
    # By steps, because summaries in which no episode ended have no score.
    known = ~np.isnan(run.columns[run.score_name])
    step = run.columns["step"][known] / run.columns["step"][-1]

    def mean_between(begin: float, end: float) -> float:
        part = score[(step > begin) & (step <= end)]
        return float(part.mean()) if len(part) else math.nan

    # Within the last quarter too: a score may have reached its best there.
    late = mean_between(0.75, 1.0) - mean_between(0.5, 0.75)
    latest = mean_between(0.875, 1.0) - mean_between(0.75, 0.875)
    least = max(RISE * np.ptp(score), 1e-9)
    # NaN where an eighth has no score: then it is not known, and this is not said.
    if not (late > least and latest > least / 2):
        return None
    return (
        f"learning_rate {rates[-1]:.1g}, while the return still rose by {late:.3g} "
        "in the last quarter"
    )


def bound(run: RunFigures, parts: Sequence[str]) -> str | None:
    """Whether these parts of the work take most of the time."""
    whole = sum(run.seconds.values())
    spent = sum(run.seconds.get(part, 0.0) for part in parts)
    if whole < MIN_SECONDS or spent < BOUND * whole:
        return None
    return f"{' and '.join(parts)} took {spent / whole:.0%} of {whole:,.0f} s"


def evaluation_below_training(run: RunFigures) -> str | None:
    """Above it is common: training's mean is over episodes of earlier, worse policies."""
    # Ratings do not compare with returns; scores with groups include their rewards.
    if "elo" in run.columns or "mean_group_return" in run.columns:
        return None
    trained = {
        c["steps"]: c["mean_return"]
        for c in run.checkpoints
        if c.get("mean_return") is not None
    }
    comparable = [e for e in run.evaluations if e.get("ci95")]
    if not comparable or comparable[-1]["steps"] not in trained:
        return None
    evaluation = comparable[-1]
    score, mean = float(evaluation["score"]), float(trained[evaluation["steps"]])
    low, high = evaluation["ci95"]
    spread = run.recent("std_return")
    in_training = 0.0 if math.isnan(spread) else spread / math.sqrt(_RECENT_EPISODES)
    error = math.hypot((high - low) / (2 * _Z95), in_training)
    if not mean - score > max(EVALUATION_ERRORS * error, EVALUATION_SHARE * abs(mean)):
        return None
    return f"{score:.3g} in the evaluation, {mean:.3g} in training (± {error:.2g})"


def evaluation_at_minimum(run: RunFigures) -> str | None:
    """No episode was better than the worst of training, or the last evaluation is the worst."""
    played = [e for e in run.evaluations if e.get("ci95")]
    mean = run.known("" if "mean_group_return" in run.columns else "mean_return")
    if not played or rewards_never_seen(run) is not None:
        return None
    last = played[-1]
    score, (low, high) = float(last["score"]), last["ci95"]
    if len(mean) and high == low and score <= mean.min():
        return (
            f"each of {last.get('episodes', 'its')} episodes returned {score:.6g}, and "
            f"no summary of training is below {mean.min():.6g}"
        )
    best = max(same_lessons(played, last), key=lambda e: float(e["score"]))
    (best_low, best_high), top = best["ci95"], float(best["score"])
    error = math.hypot(high - low, best_high - best_low) / (2 * _Z95)
    is_worst = len(played) > 2 and score == min(float(e["score"]) for e in played)
    if not (is_worst and top - score > EVALUATION_ERRORS * error):
        return None
    return (
        f"{score:.3g}, the lowest of {len(played)}; {top:.3g} at step {best['steps']:,}"
    )


FAULTS = (
    Fault(
        "rewards never seen",
        rewards_never_seen,
        "pay for something that random play reaches, start with an easier lesson, "
        "add a reward signal that pays for exploring, or demonstrations",
    ),
    Fault(
        "no episode ended",
        no_episode_ended,
        "set the agent's Max Step, or end episodes with EndEpisode",
    ),
    Fault(
        "observations constant",
        observations_constant,
        "are observations collected at every decision? see `touchline inspect ENV`",
    ),
    Fault(
        "observations unbounded",
        observations_unbounded,
        "divide them by their range or observe relative positions, or set "
        "network_settings.normalize: true",
    ),
    Fault(
        "normalizer saturated",
        normalizer_saturated,
        "some numbers have rare, far outliers: clip or scale them in the game",
    ),
    Fault(
        "learning rate at its end",
        learning_rate_ended,
        "raise max_steps, or set learning_rate_schedule: constant",
    ),
    Fault(
        "simulation-bound",
        partial(bound, parts=("simulation", "wire")),
        "raise num_envs (players) or num_areas (scenes), use no_graphics",
    ),
    Fault(
        "learning-bound",
        partial(bound, parts=("learning",)),
        "lower num_epoch or hidden_units, raise batch_size; more areas will not help",
    ),
    Fault(
        "evaluation below training",
        evaluation_below_training,
        "do the world's parameters and lessons match, and does the policy rely on what only "
        "training has?",
    ),
    Fault(
        "evaluation at its minimum",
        evaluation_at_minimum,
        "if it was better before, best.safetensors and best.onnx are that policy: lower "
        "learning_rate; if it never was, is any better outcome within reach of random actions?",
    ),
)


def diagnose(run: Path) -> list[dict[str, str]]:
    """What is likely wrong with each behavior of a run, as values for JSON.

    A `figure` says what was measured, and what it is compared with. Raises a UsageError for folders
    that are no run.
    """
    found = []
    for figures in read_run_figures(run):
        for fault in (*_of_algorithm(figures.trainer_type), *FAULTS):
            figure = _checked(fault, figures)
            if figure is not None:
                finding = {
                    "behavior": figures.behavior,
                    "name": fault.name,
                    "figure": figure,
                    "advice": fault.advice,
                }
                found.append(finding)
    return found


def _checked(fault: Fault, run: RunFigures) -> str | None:
    """What a fault finds; a UsageError where figures do not fit together, as in a damaged table."""
    try:
        with np.errstate(all="ignore"):
            return fault.check(run)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise UsageError(
            f"{run.behavior}: its figures do not fit together, so {fault.name!r} cannot be "
            f"checked ({reason}); are metrics.csv or training_status.json damaged?"
        ) from error


def _of_algorithm(trainer_type: str) -> Sequence[Fault]:
    """The faults that only runs of this algorithm have."""
    # The package of an algorithm may be gone; the general faults need none.
    if trainer_type not in ALGORITHM_PLUGINS:
        return ()
    place = algorithm_settings(trainer_type).faults
    found: Sequence[Fault] = imported(place) if place else ()
    return found
