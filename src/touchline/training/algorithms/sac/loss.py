"""What soft actor-critic descends, as formulas.

A critic gives [B, S, P]: for S reward signals one number for each of the P choices of all branches,
or one (P = 1) where all actions are continuous. Branches count by their mean.

Sources: Haarnoja et al. 2018, arXiv:1801.01290 (value network) and arXiv:1812.05905 (temperatures);
ML-Agents 1.1.0, `sac/optimizer_torch.py`, with the signs of hybrid actions corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from touchline.policies.distributions import LOG_STD_RANGE, SquashedDistribution

DISCRETE_ENTROPY_SHARE = 0.2
"""Target entropy of a branch, as a share of the largest. Source: ML-Agents 1.1.0."""


@dataclass(frozen=True)
class PolicyDraw:
    """What a policy does in B situations: a drawn continuous action, and all choices' chances."""

    continuous: Float[Tensor, "B C"]
    """As worlds take it, in [-1, 1]."""
    log_prob: Float[Tensor, " B"]
    """Log-probability of the continuous action; 0 where there is none."""
    choices: Sequence[Float[Tensor, "B _"]]
    """Log-probabilities of each branch."""

    @cached_property
    def chances(self) -> Sequence[Float[Tensor, "B _"]]:
        """Probabilities of the choices of each branch."""
        return [torch.exp(branch) for branch in self.choices]

    @cached_property
    def negative_entropies(self) -> Float[Tensor, "B D"]:
        """Σ_a π(a) log π(a) of each branch."""
        pairs = zip(self.chances, self.choices, strict=True)
        return torch.stack([(p * own).sum(dim=1) for p, own in pairs], dim=1)

    @staticmethod
    def of(
        distribution: SquashedDistribution, noise: Float[Tensor, "B C"]
    ) -> PolicyDraw:
        """With this standard normal noise; gradients reach the distribution."""
        action, log_prob = distribution.draw(noise)
        return PolicyDraw(action, log_prob.sum(dim=1), distribution.log_probs)


@dataclass(frozen=True)
class LogTemperatures:
    """ln α: how much entropy is worth."""

    continuous: Float[Tensor, " _"]
    """[1], or [0] without continuous actions."""
    discrete: Float[Tensor, " D"]

    @staticmethod
    def of(log_alpha: Float[Tensor, " _"], continuous_size: int) -> LogTemperatures:
        """From one vector: that of the continuous actions, if there are any, then the branches'."""
        split = int(continuous_size > 0)
        return LogTemperatures(log_alpha[:split], log_alpha[split:])


@dataclass(frozen=True)
class Evaluation:
    """What the networks make of a minibatch: all that its losses depend on."""

    distribution: SquashedDistribution
    noise: Float[Tensor, "B C"]
    draw: PolicyDraw
    """The distribution's, with this noise."""
    drawn_q: Sequence[Float[Tensor, "B S P"]]
    """Each critic's Q of the drawn action."""
    num_climbed: int
    """How many of the critics the policy climbs."""
    of_critics: Sequence[Float[Tensor, "B S"]]
    """The mean of `drawn_q` over the policy's choices."""
    bonus: Float[Tensor, " B"]
    """For being uncertain."""
    taken: Int[Tensor, "B D"]
    """The choices that were made."""
    taken_q: Sequence[Float[Tensor, "B S"]]
    """Each critic's Q of the action that was taken."""
    target: Float[Tensor, "B S"]
    """What `taken_q` should be."""
    value: Float[Tensor, "B S"] | None
    """Output of the value network; None where there is none."""
    target_entropies: Float[Tensor, "B D"]
    policy_trace: Any = None
    critic_trace: Any = None
    """What `descend` goes back through."""

    @cached_property
    def expected(self) -> Float[Tensor, "B S"]:
        """The soft value of each situation, without a gradient."""
        return (lowest(self.of_critics) + self.bonus[:, None]).detach()

    @property
    def target_continuous(self) -> float:
        """Target entropy of the continuous actions: −1 for each."""
        return -float(self.noise.shape[1])

    @property
    def sections(self) -> list[int]:
        """How many choices each branch has."""
        return [branch.shape[1] for branch in self.draw.choices]


@dataclass(frozen=True)
class Losses:
    """Of one minibatch."""

    policy: Tensor
    critics: list[Tensor]
    value: Tensor
    """0 where there is no value network."""
    temperature: Tensor
    expected: Tensor
    """[B, S] the soft value of each situation."""
    entropy: Tensor
    """Entropy of the policy, nats, all action parts together."""

    @staticmethod
    def of(found: Evaluation, temperatures: LogTemperatures) -> Losses:
        """All losses; only their own moves the temperatures."""
        climbed = found.of_critics[: found.num_climbed]
        nothing = found.expected.new_zeros(())
        value = found.value
        return Losses(
            policy=policy_loss(climbed, found.bonus),
            critics=[squared_error(q, found.target) for q in found.taken_q],
            value=nothing if value is None else squared_error(value, found.expected),
            temperature=temperature_loss(
                found.draw,
                temperatures,
                found.target_continuous,
                found.target_entropies,
            ),
            expected=found.expected,
            entropy=entropy(found.draw),
        )

    @property
    def total(self) -> Tensor:
        """Of all networks and temperatures, which share nothing."""
        return self.policy + sum(self.critics, self.value) + self.temperature


def expected(
    q: Float[Tensor, "B S P"], chances: Sequence[Float[Tensor, "B _"]]
) -> Float[Tensor, "B S"]:
    """Mean over branches of Σ_a π(a) Q(a)."""
    if not chances:
        return q[:, :, 0]
    # All branches side by side: their sum, over how many there are. The same for all signals.
    chance = torch.cat(tuple(chances), dim=1)[:, None]  # [B, 1, P]
    return (q * chance).sum(dim=2) / len(chances)


def chosen(
    q: Float[Tensor, "B S P"], discrete: Int[Tensor, "B D"], sections: Sequence[int]
) -> Float[Tensor, "B S"]:
    """Mean over branches of Q of the choice that was made."""
    if not sections:
        return q[:, :, 0]
    found = []
    start = 0
    num_signals = q.shape[1]
    for branch, size in enumerate(sections):
        # The choices of all branches stand side by side in P.
        index = start + discrete[:, branch]
        index = index[:, None, None].expand(-1, num_signals, 1)
        found.append(q.gather(2, index)[:, :, 0])
        start += size
    return torch.stack(found).mean(dim=0)


def entropy(draw: PolicyDraw) -> Float[Tensor, ""]:
    """−log π(a) − Σ_b Σ_a π_b log π_b, averaged; without a gradient."""
    total = draw.log_prob
    if draw.choices:
        total = total + draw.negative_entropies.sum(dim=1)
    return -total.detach().mean()


def entropy_bonus(
    draw: PolicyDraw, temperatures: LogTemperatures
) -> Float[Tensor, " B"]:
    """−α_c log π(a) − mean_b α_b Σ_a π_b log π_b; both parts reward being uncertain."""
    # ML-Agents 1.1.0 has the first sign wrong for hybrid actions.
    bonus = torch.zeros_like(draw.log_prob)
    if len(temperatures.continuous):
        bonus = bonus - torch.exp(temperatures.continuous) * draw.log_prob
    if draw.choices:
        alpha = torch.exp(temperatures.discrete)
        bonus = bonus - (alpha * draw.negative_entropies).mean(dim=1)
    return bonus


def soft_value(
    critics: Sequence[Float[Tensor, "B S P"]],
    draw: PolicyDraw,
    temperatures: LogTemperatures,
) -> Float[Tensor, "B S"]:
    """Min over critics of the expected Q, and the entropy bonus, which every signal gets."""
    of_critics = [expected(q, draw.chances) for q in critics]
    return lowest(of_critics) + entropy_bonus(draw, temperatures)[:, None]


def lowest(of_critics: Sequence[Float[Tensor, "B S"]]) -> Float[Tensor, "B S"]:
    """The smallest of what critics expect."""
    if len(of_critics) == 1:
        return of_critics[0]
    # The smaller of two, because a policy seeks out where a single critic errs upward
    # (Fujimoto et al. 2018, arXiv:1802.09477, section 4).
    return torch.stack(tuple(of_critics)).amin(dim=0)


def policy_loss(
    of_climbed: Sequence[Float[Tensor, "B S"]], bonus: Float[Tensor, " B"]
) -> Float[Tensor, ""]:
    """Minus the soft value, averaged over signals: of what critics expect, and for uncertainty."""
    # Over several branches and no continuous action ML-Agents takes their sum instead of their
    # mean: a factor, which Adam does not see.
    return -(lowest(of_climbed) + bonus[:, None]).mean()


def squared_error(
    value: Float[Tensor, "B S"], target: Float[Tensor, "B S"]
) -> Float[Tensor, ""]:
    """½ (V − target)², averaged."""
    return 0.5 * (value - target).square().mean()


def target_entropies(
    sections: Sequence[int], allowed: Bool[Tensor, "B P"] | None, num_rows: int
) -> Float[Tensor, "B D"]:
    """0.2 ln n for each branch, with the n choices that were allowed."""
    # ML-Agents 1.1.0 counts the forbidden ones, too: with few choices left, α grows without bound.
    if allowed is None:
        counts = torch.tensor(sections, dtype=torch.float32).expand(num_rows, -1)
    else:
        parts = torch.split(allowed, list(sections), dim=1)
        counts = torch.stack([part.sum(dim=1) for part in parts], dim=1)
    return DISCRETE_ENTROPY_SHARE * torch.log(counts.clamp(min=1).float())


def temperature_loss(
    draw: PolicyDraw,
    temperatures: LogTemperatures,
    target_continuous: float,
    target_discrete: Float[Tensor, "B D"],
) -> Float[Tensor, ""]:
    """−ln α (log π + H̄): α grows while the policy is less uncertain than its target H̄."""
    # As in ML-Agents, ln α multiplies, not α.
    loss = draw.log_prob.new_zeros(())
    if len(temperatures.continuous):
        # Temperatures follow the policy; this loss may not move it.
        lack = (draw.log_prob + target_continuous).detach()
        loss = loss - (temperatures.continuous * lack).mean()
    if draw.choices:
        lack = (draw.negative_entropies + target_discrete).detach()
        loss = loss - (temperatures.discrete * lack).mean()
    return loss


# Gradients of these losses by what networks give out, written as formulas: small gradient steps
# cost calls, and autograd makes three for each of a loss's own. A test holds them to autograd in
# double precision. B rows, S signals, P choices of all D branches.

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
