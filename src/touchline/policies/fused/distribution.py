"""The log-probability and the gradient of an `ActionDistribution`, written out.

Tests hold both to autograd.
"""

from functools import reduce
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from touchline.policies.distributions import ActionDistribution


class ForwardPass(NamedTuple):
    """The log-probability of actions, and what the backward pass needs."""

    log_prob: Float[Tensor, " B"]
    discrete: Int[Tensor, "B D"]
    standardized: tuple[Float[Tensor, "B C"], Float[Tensor, " C"]] | None
    """z = (a − μ) / σ, and 1 / σ; None without continuous actions."""


def forward(
    distribution: ActionDistribution, actions: tuple[Tensor, Tensor]
) -> ForwardPass:
    """What `distribution.log_prob(*actions)` computes, with the intermediate results."""
    continuous, discrete = actions
    parts = distribution.choice_log_probs(discrete)
    if not distribution.mean.shape[1]:
        return ForwardPass(reduce(torch.add, parts), discrete, None)
    z, inverse_std = distribution.standardized(continuous)
    parts.insert(0, distribution.normal_log_prob(z))
    return ForwardPass(reduce(torch.add, parts), discrete, (z, inverse_std))


def backward(
    distribution: ActionDistribution,
    forward_pass: ForwardPass,
    grad_log_prob: Float[Tensor, " B"],
    entropy_gradient: float,
) -> tuple[Float[Tensor, "B P"], Float[Tensor, " C"] | None]:
    """The gradients of the loss by the outputs (means, then logits) and by log σ, if there is one.

    `grad_log_prob` is the loss's gradient by the log-probabilities, `entropy_gradient` the one by
    the mean entropy.

    ∂log N/∂μ = z / σ, ∂log N/∂log σ = z² − 1, ∂log p(a)/∂logits = onehot(a) − p, ∂H/∂logits =
    −p (log p + H).
    """
    _, discrete, standardized = forward_pass
    weight = grad_log_prob[:, None]
    parts, grad_log_std = [], None
    if standardized is not None:
        z, inverse_std = standardized
        grad_log_std = (weight * (z * z - 1.0)).sum(dim=0) + entropy_gradient
        parts.append(weight * z * inverse_std)
    for branch, log_probs in enumerate(distribution.log_probs):
        p = torch.exp(log_probs)
        entropy = -(p * log_probs).sum(dim=1, keepdim=True)
        # Both sums over choices in one factor of p: fewer calls than one after the other.
        per_agent = -entropy_gradient / p.shape[0]
        grad_logits = p * ((log_probs + entropy) * per_agent - weight)
        chosen = discrete[:, branch : branch + 1]
        parts.append(grad_logits.scatter_add_(1, chosen, weight))
    grad_outputs = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    return grad_outputs, grad_log_std
