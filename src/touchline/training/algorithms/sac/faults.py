"""What is likely wrong with a run of SAC that does not learn.

SAC has no beta and no clip range. It pays for entropy with a learned temperature α, and learns from
a replay, so that its faults are others.
"""

import math

import numpy as np

from touchline.training.rewards.settings import WORLD_REWARD
from touchline.training.run.figures import Fault, RunFigures

ENTROPY_LEAST_DISCRETE = 0.02
"""Share of the entropy of uniform choices; the target is 0.2 of it."""
ENTROPY_LEAST_CONTINUOUS = -2.5
"""Nats for each number in [-1, 1]; the target is -1, a standard deviation near 0.1."""
TEMPERATURE_LEAST = 1e-4
"""Share of the first temperature; 3DBall, solved, ends at 0.3 of it."""
TEMPERATURE_MOST = 10.0
"""Times the first one, and times the reward of a step: an α beyond both outweighs the game."""
VALUE_EXCESS = 10.0
"""Over what returns and entropy can add up to: discounted sums are smaller than whole ones."""
LEAST_BATCHES, LEAST_EPISODES = 20, 5
"""In a full replay. ML-Agents' SAC files have 390 batches and more, FoodCollector's has 8."""
REUSE = (1.0, 2_000.0)
"""How often an experience is drawn, on average. ML-Agents' files: 6 to 34; Haarnoja et al. 2018:
256; with 20 updates per step and ensembles (Chen et al. 2021, arXiv:2101.05982): 5,120."""
_COEFFICIENTS = ("continuous_entropy_coeff", "discrete_entropy_coeff")


def policy_too_sure(run: RunFigures) -> str | None:
    """The temperature should keep entropy at its target."""
    entropy = run.recent("entropy")
    if run.actions is None or math.isnan(entropy) or run.has_gained:
        return None
    uniform = sum(map(math.log, run.actions.discrete_branches))
    least = ENTROPY_LEAST_DISCRETE * uniform
    least += ENTROPY_LEAST_CONTINUOUS * run.actions.continuous_size
    if not entropy < least:
        return None
    return f"entropy {entropy:.3g}, below {least:.3g}"


def temperature_collapsed(run: RunFigures) -> str | None:
    """Without a gain: a policy that has settled on something good needs no entropy."""
    if run.has_gained:
        return None
    first = _hyper(run, "init_entcoef", 1.0)
    for name in _COEFFICIENTS:
        latest = run.recent(name)
        if latest < TEMPERATURE_LEAST * first:
            return f"{name} {latest:.1g}, was {first:.3g} at first"
    return None


def temperature_exploded(run: RunFigures) -> str | None:
    """More than rewards are worth, so that agents are paid for acting at random."""
    mean, length = run.known("mean_return"), run.known("mean_length")
    if not len(mean) or not len(length):
        return None
    strength = run.setting("reward_signals", WORLD_REWARD, "strength", default=1.0)
    largest = strength * float(np.abs(mean).max())
    per_step = largest / max(1.0, float(np.median(length)))
    first = _hyper(run, "init_entcoef", 1.0)
    for name in _COEFFICIENTS:
        latest = run.recent(name)
        if latest > TEMPERATURE_MOST * max(first, per_step):
            return (
                f"{name} {latest:.3g}, was {first:.3g}; a step returns {per_step:.2g}"
            )
    return None


def values_grow(run: RunFigures) -> str | None:
    """Critics that believe in more than any episode returned."""
    mean, std = run.known("mean_return"), run.known("std_return")
    if not len(mean):
        return None
    strength = run.setting("reward_signals", WORLD_REWARD, "strength", default=1.0)
    returns = float(np.abs(mean).max()) + 2.0 * float(std.max(initial=0.0))
    largest = VALUE_EXCESS * (strength * returns + _entropy_worth(run))
    if not largest:
        return None
    value = abs(run.recent(f"{WORLD_REWARD}_value"))
    if value > largest:
        return f"{WORLD_REWARD}_value {value:.3g}, above {largest:.3g}, ten times what is to be had"
    # Of half the mean squared error.
    error = math.sqrt(2.0 * run.recent("q1_loss"))
    if error > largest:
        return f"critics err by {error:.3g} (q1_loss), above {largest:.3g}"
    return None


def replay_too_small(run: RunFigures) -> str | None:
    size = _hyper(run, "buffer_size", 50_000)
    batches = size / _hyper(run, "batch_size", 128)
    if batches < LEAST_BATCHES:
        return f"buffer_size {size:,.0f} is {batches:.0f} batches"
    length = run.recent("mean_length")
    if not size < LEAST_EPISODES * length:
        return None
    return f"buffer_size {size:,.0f} is {size / length:.1f} episodes of {length:,.0f} steps"


def update_ratio_off(run: RunFigures) -> str | None:
    # Both are settings, wrong from the first step on: no figures of the run are needed.
    reuse = _hyper(run, "batch_size", 128) / _hyper(run, "steps_per_update", 1.0)
    least, most = REUSE
    if least <= reuse <= most:
        return None
    return (
        f"an experience is drawn {reuse:.3g} times (batch_size / steps_per_update), "
        f"expected {least:.0f} to {most:,.0f}"
    )


def _hyper(run: RunFigures, key: str, default: float) -> float:
    return run.setting("hyperparameters", key, default=default)


def _entropy_worth(run: RunFigures) -> float:
    """The most that entropy adds to a value: of uniform actions, for all time."""
    if run.actions is None:
        return 0.0
    uniform = sum(map(math.log, run.actions.discrete_branches))
    uniform += run.actions.continuous_size * math.log(2.0)
    alphas = [run.known(name) for name in _COEFFICIENTS]
    alpha = max((float(found.max()) for found in alphas if len(found)), default=0.0)
    gamma = run.setting("reward_signals", WORLD_REWARD, "gamma", default=0.99)
    return alpha * uniform / max(1e-3, 1.0 - gamma)


FAULTS = (
    Fault(
        "entropy below SAC's target",
        policy_too_sure,
        "raise init_entcoef, or steps_per_update: the temperature has not caught up",
    ),
    Fault(
        "temperature collapsed",
        temperature_collapsed,
        "entropy counts for nothing and nothing was found: is there a reward that random play "
        "reaches? raise init_entcoef, or add a reward signal that pays for exploring",
    ),
    Fault(
        "temperature exploded",
        temperature_exploded,
        "agents are paid for acting at random: lower init_entcoef or learning_rate, or scale "
        "rewards up with the signal's strength",
    ),
    Fault(
        "Q values grow",
        values_grow,
        "set target_critics: true, lower learning_rate or tau, raise steps_per_update, or scale "
        "rewards to about 1",
    ),
    Fault(
        "replay too small",
        replay_too_small,
        "raise buffer_size: old experience is what SAC learns from",
    ),
    Fault(
        "update ratio off",
        update_ratio_off,
        "change steps_per_update or batch_size: too few draws waste experience, too many fit "
        "the critics to it",
    ),
)
