"""What proximal policy optimization descends, as formulas, and the first link of their gradients.

`ppo_loss(...)` followed by `backward()` is the definition. The functions named `..._gradient` give
the same derivatives written out; networks with a hand-written backward pass start from them
(`touchline.policies.fused`), and tests hold them to autograd.

Source: Schulman et al. 2017, arXiv:1707.06347.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from touchline.policies.network import Network, OutputGradients
from touchline.training.algorithms.batch import Batch
from touchline.training.algorithms.on_policy import Rates

VALUE_LOSS_WEIGHT = 0.5
"""Source: ML-Agents 1.1.0, `ppo/optimizer_torch.py`."""


def ppo_loss(network: Network, batch: Batch, rates: Rates) -> Float[Tensor, ""]:
    """L = −L^CLIP + ½ L^V − β H: what a gradient step descends.

    L^V is the mean over actions and reward signals of (V − G)², or of its clipped form.

    Source: Schulman et al. 2017, arXiv:1707.06347, equation 9.
    """
    distribution, value = network(batch.obs, batch.allowed, batch.sequences)
    log_prob = distribution.log_prob(batch.continuous, batch.discrete)
    entropy = distribution.entropy(batch.discrete)

    objective = clipped_surrogate(
        log_prob, batch.log_prob, batch.advantage, rates.epsilon
    )
    if rates.clip_value_loss:
        value_loss = clipped_value_loss(value, batch.value, batch.target, rates.epsilon)
    else:
        value_loss = (value - batch.target).square().mean()
    return -objective + VALUE_LOSS_WEIGHT * value_loss - rates.beta * entropy


def clipped_surrogate(
    log_prob: Float[Tensor, " B"],
    old_log_prob: Float[Tensor, " B"],
    advantage: Float[Tensor, " B"],
    epsilon: float,
) -> Float[Tensor, ""]:
    """The objective to maximize, L^CLIP: gains count only while the policy stays near the old one.

    L = E[min(r A, clip(r, 1 − ε, 1 + ε) A)] with r = π(a|s) / π_old(a|s).

    Source: Schulman et al. 2017, arXiv:1707.06347, equation 7.
    """
    ratio = torch.exp(log_prob - old_log_prob)
    clipped = ratio.clamp(1.0 - epsilon, 1.0 + epsilon)
    # The minimum makes the objective a lower bound: a ratio beyond the range may lose, never
    # gain, so a step that went too far the wrong way is still corrected.
    return torch.minimum(ratio * advantage, clipped * advantage).mean()


def clipped_value_loss(
    value: Float[Tensor, "B S"],
    old_value: Float[Tensor, "B S"],
    target: Float[Tensor, "B S"],
    epsilon: float,
) -> Float[Tensor, ""]:
    """E[max((V − G)², (V_old + clip(V − V_old, −ε, ε) − G)²)].

    Source: Schulman's PPO code of 2017, as described in Engstrom et al. 2020, arXiv:2005.12729,
    section 3.
    """
    moved = value - old_value
    clipped = old_value + moved.clamp(-epsilon, epsilon)
    free_error = (value - target).square()
    clipped_error = (clipped - target).square()
    # The maximum of two losses is what the minimum of two objectives is for the policy.
    return torch.maximum(free_error, clipped_error).mean()


def clipped_surrogate_gradient(
    log_prob: Float[Tensor, " B"],
    old_log_prob: Float[Tensor, " B"],
    advantage: Float[Tensor, " B"],
    epsilon: float,
) -> Float[Tensor, " B"]:
    """∂L/∂log π of `clipped_surrogate`: r A / B where the ratio may still move that way, else 0."""
    ratio = torch.exp(log_prob - old_log_prob)
    # The minimum of the two terms is the clipped, constant one exactly where the ratio has
    # already moved beyond the range in the direction that the advantage asks for.
    may_rise = ratio < 1.0 + epsilon
    may_fall = ratio > 1.0 - epsilon
    is_free = torch.where(advantage > 0, may_rise, may_fall)
    # ∂r/∂log π = r; divided by B, because the objective is a mean.
    return ratio * advantage * is_free / len(advantage)


def clipped_value_error(
    value: Float[Tensor, "B S"],
    old_value: Float[Tensor, "B S"],
    target: Float[Tensor, "B S"],
    epsilon: float,
) -> Float[Tensor, "B S"]:
    """V − G where a value may still move, 0 where it has moved far enough.

    Twice this over B S is ∂L/∂V of `clipped_value_loss`.
    """
    error = value - target
    moved = value - old_value
    clipped = old_value + moved.clamp(-epsilon, epsilon) - target
    # Within the range both errors are the same number; rounding may not decide between them.
    is_within = moved.abs() <= epsilon
    is_worse = error.abs() >= clipped.abs()
    return error * (is_within | is_worse)


def output_gradients(batch: Batch, rates: Rates) -> OutputGradients:
    """A function that returns ∂L/∂log π [B] and ∂L/∂V [B, S] of `ppo_loss` for outputs."""
    # Written out because a gradient step of a small network costs calls, not arithmetic
    # (`docs/benchmarks.md`).
    # The derivative of ½ (V − G)² averaged over actions and signals.
    scale = 2.0 * VALUE_LOSS_WEIGHT / batch.target.numel()

    def gradients(log_prob: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        grad_log_prob = -clipped_surrogate_gradient(
            log_prob, batch.log_prob, batch.advantage, rates.epsilon
        )
        if rates.clip_value_loss:
            error = clipped_value_error(value, batch.value, batch.target, rates.epsilon)
        else:
            error = value - batch.target
        return grad_log_prob, error * scale

    return gradients
