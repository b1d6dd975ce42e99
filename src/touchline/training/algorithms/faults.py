"""What is likely wrong with a run that learns from fresh experience and does not get better."""

import math

import numpy as np

from touchline.training.rewards.settings import WORLD_REWARD
from touchline.training.run.figures import Fault, RunFigures

KL_HIGH = 0.1
"""Healthy runs stay at 0.003 to 0.02, and PPO is usually stopped at 0.015 to 0.05 (Spinning Up's
PPO stops an update at 1.5 · 0.01)."""
KL_LOW = 1e-6
"""A thousandth of the least that healthy runs show before their learning rate ends."""
CLIP_FRACTION_HIGH = 0.5
"""Healthy runs clip 0.03 to 0.2 of the ratios; with half of them clipped, half of the experience
gives no gradient."""
ENTROPY_LEAST = 0.02
"""Share of the entropy of uniform choices; policies that still learn have 0.2 and more of it."""
STD_LEAST = 0.05
"""Standard deviation of a continuous action, whose range is -1 to 1."""
VALUE_LOSS_GROWTH = 10.0
"""Over the least so far. Growth alone is healthy where returns grow, hence the second condition."""
ADVANTAGE_STD_LEAST = 1e-4
"""Normalization scales any advantages to spread 1: below this, they are rounding and noise."""


def kl_too_high(run: RunFigures) -> str | None:
    kl = run.recent("kl")
    return f"kl {kl:.3g}, above {KL_HIGH}" if kl > KL_HIGH else None


def policy_stands_still(run: RunFigures) -> str | None:
    found = run.known("kl")
    # A policy without any choice left is a finding of its own.
    if not len(found) or entropy_collapsed(run) is not None:
        return None
    # Over the whole run: a learning rate that ends stops the policy in every healthy one.
    kl = float(np.median(found))
    return f"kl {kl:.1g}, below {KL_LOW:.0e}" if kl < KL_LOW else None


def clip_fraction_too_high(run: RunFigures) -> str | None:
    share = run.recent("clip_fraction")
    if not share > CLIP_FRACTION_HIGH:
        return None
    return f"clip_fraction {share:.2f}, above {CLIP_FRACTION_HIGH}"


def entropy_collapsed(run: RunFigures) -> str | None:
    """A policy may settle once it is good; one that settled without a gain has stopped looking."""
    entropy = run.recent("entropy")
    if run.actions is None or math.isnan(entropy) or run.has_gained:
        return None
    least, meaning = 0.0, []
    if branches := run.actions.discrete_branches:
        least += ENTROPY_LEAST * sum(map(math.log, branches))
        meaning.append(f"{ENTROPY_LEAST:.0%} of that of uniform choices")
    if size := run.actions.continuous_size:
        # Of a normal distribution: ½ log(2πe) + log σ.
        of_unit_spread = 0.5 * math.log(2 * math.pi * math.e)
        least += size * (of_unit_spread + math.log(STD_LEAST))
        meaning.append(f"a standard deviation of {STD_LEAST}")
    if not entropy < least:
        return None
    return f"entropy {entropy:.3g}, below {least:.3g} ({' and '.join(meaning)})"


def value_loss_grows(run: RunFigures) -> str | None:
    """Errors above the mean square of returns: values of 0 everywhere would be closer."""
    losses, latest = run.known("value_loss"), run.recent("value_loss")
    if not len(losses):
        return None
    mean, std = run.known("mean_return"), run.known("std_return")
    groups = run.known("mean_group_return")
    if not len(mean):
        return None
    # The largest mean square of returns so far, which a value loss can hardly exceed.
    own_square = float((mean**2 + std**2).max())
    group_square = float((groups**2).max(initial=0.0))
    strength = run.setting("reward_signals", WORLD_REWARD, "strength", default=1.0)
    if not strength:
        return None  # values are of other rewards
    scale = strength**2 * (own_square + group_square)
    has_grown = latest > VALUE_LOSS_GROWTH * losses.min()
    if not (has_grown and latest > scale):
        return None
    return (
        f"value_loss {latest:.3g}, was {losses.min():.3g}, and more than the returns' largest "
        f"mean square of {scale:.3g}"
    )


def advantages_equal(run: RunFigures) -> str | None:
    spread = run.recent("advantage_std")
    if not spread < ADVANTAGE_STD_LEAST:
        return None
    return f"advantage_std {spread:.1g}, below {ADVANTAGE_STD_LEAST:.0e}"


FAULTS = (
    Fault(
        "entropy collapsed",
        entropy_collapsed,
        "raise beta, or lower learning_rate",
    ),
    Fault(
        "KL too high",
        kl_too_high,
        "lower learning_rate or num_epoch, or set target_kl: 0.02",
    ),
    Fault(
        "policy stands still",
        policy_stands_still,
        "raise learning_rate; are there rewards?",
    ),
    Fault(
        "clip fraction too high",
        clip_fraction_too_high,
        "lower learning_rate or num_epoch, or raise batch_size",
    ),
    Fault(
        "value loss grows",
        value_loss_grows,
        "lower learning_rate, or scale rewards to about 1 with the signal's strength",
    ),
    Fault(
        "advantages all equal",
        advantages_equal,
        "no action is better than another: are rewards and actions connected, and paid often "
        "enough for buffer_size?",
    ),
)
