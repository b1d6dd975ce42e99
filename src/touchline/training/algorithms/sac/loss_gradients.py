"""The gradients of `loss.py`'s losses by what networks give out, written as formulas.

Small gradient steps cost calls, and autograd makes three for each of a loss's own. A test holds
these to autograd in double precision. B rows, S signals, P choices of all D branches.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from touchline.policies.distributions import LOG_STD_RANGE
from touchline.training.algorithms.sac.loss import Evaluation, LogTemperatures

Climb = Callable[[Tensor], Tensor]
"""Maps the gradient by Q [N, B, S, P] of drawn actions to that by the actions [B, C]."""


class _Slope(NamedTuple):
    """Of the policy's loss, by the Q of the critics that it climbs."""

    q: Float[Tensor, "N B S P"]
    by_expected: Float[Tensor, "N B S"]
    """Gradient by each critic's mean over the policy's choices."""
    by_q: Float[Tensor, "N B S P"]


def policy_gradient(
    found: Evaluation, temperatures: LogTemperatures, climb: Climb
) -> Float[Tensor, "B _"]:
    """By the policy's outputs: means, logarithms of spreads, then the choices of all branches."""
    # With a = tanh(u) and u = μ + ε σ: ∂a/∂u = 1 − a², and ∂log π/∂u = 2a, because the density of
    # tanh(u) falls with the slope of tanh. With chances p of a branch and g = ∂L/∂p:
    # ∂L/∂logits = p (g − Σ p g).
    slope = _slope(found)
    parts = []
    if found.noise.shape[1]:
        parts += _continuous_gradient(found, temperatures, climb(slope.by_q))
    if found.draw.choices:
        parts += _discrete_gradient(found, temperatures, slope)
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _slope(found: Evaluation) -> _Slope:
    """L = −⟨min over critics of Σ p Q⟩ + …"""
    q = torch.stack(tuple(found.drawn_q[: found.num_climbed]))
    expected = found.of_critics
    by_expected = q.new_full(q.shape[:3], -1.0 / expected[0].numel())
    if len(q) > 1:
        # Of two, the smaller one alone.
        is_first = expected[0] <= expected[1]
        by_expected *= torch.stack([is_first, ~is_first])
    by_q = by_expected[..., None]
    chances = found.draw.chances
    if chances:
        by_q = by_q * torch.cat(tuple(chances), dim=1)[:, None] / len(chances)
    return _Slope(q, by_expected, by_q)


def _continuous_gradient(
    found: Evaluation, temperatures: LogTemperatures, by_action: Float[Tensor, "B C"]
) -> list[Tensor]:
    """By means and by logarithms of spreads."""
    action, log_std = found.draw.continuous, found.distribution.log_std
    # The bonus for entropy: α log π is paid for, averaged over rows.
    share = torch.exp(temperatures.continuous) / len(action)
    by_u = by_action * (1.0 - action * action) + 2.0 * share * action
    by_log_std = by_u * found.noise * torch.exp(log_std) - share
    # Outside of its range a spread stands still.
    low, high = LOG_STD_RANGE
    is_inside = (log_std > low) & (log_std < high)
    return [by_u, by_log_std * is_inside]


def _discrete_gradient(
    found: Evaluation, temperatures: LogTemperatures, slope: _Slope
) -> list[Tensor]:
    """By the logits of each branch."""
    num_branches = len(found.draw.choices)
    by_chance = (slope.q * slope.by_expected[..., None]).sum(dim=(0, 2)) / num_branches
    alphas = torch.exp(temperatures.discrete) / (len(by_chance) * num_branches)
    gradients = []
    parts = torch.split(by_chance, found.sections, dim=1)
    draw = found.draw
    branches = zip(parts, draw.chances, draw.choices, alphas, strict=True)
    for own, p, log_probs, alpha in branches:
        weighted = p * (own + alpha * log_probs)
        gradients.append(weighted - p * weighted.sum(dim=1, keepdim=True))
    return gradients


def critic_gradient(found: Evaluation) -> Float[Tensor, "N B S P"]:
    """By each critic's Q of the actions that were taken; 0 for other choices."""
    sections = found.sections
    q = torch.stack(tuple(found.taken_q))
    error = ((q - found.target) / found.target.numel())[..., None]
    if not sections:
        return error
    starts = torch.tensor([0, *sections[:-1]], device=q.device).cumsum(0)
    index = (found.taken + starts)[
        :, None
    ]  # [B, 1, D], among the choices of all branches
    num_branches = len(sections)
    index = index.expand(*q.shape, num_branches)
    share = (error / num_branches).expand(*q.shape, num_branches)
    # Branches do not share choices, so no two of them write to one place.
    zeros = q.new_zeros(*q.shape, sum(sections))
    return zeros.scatter_(3, index, share)


def value_gradient(found: Evaluation) -> Float[Tensor, "B S"]:
    """By the value network's values."""
    assert found.value is not None
    return (found.value - found.expected) / found.value.numel()


def temperature_gradient(found: Evaluation) -> Float[Tensor, " _"]:
    """By ln α, of the continuous actions and then of each branch."""
    parts = []
    if found.noise.shape[1]:
        lack = found.draw.log_prob.mean() + found.target_continuous
        parts.append(-lack[None])
    if found.draw.choices:
        negative = found.draw.negative_entropies
        lack = (negative + found.target_entropies).mean(dim=0)
        parts.append(-lack / len(found.draw.choices))
    return torch.cat(parts)
