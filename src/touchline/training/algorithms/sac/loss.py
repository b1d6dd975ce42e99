"""What soft actor-critic descends, as formulas.

A critic gives [B, S, P]: for S reward signals one number for each of the P choices of all branches,
or one (P = 1) where all actions are continuous. Branches count by their mean.

Sources: Haarnoja et al. 2018, arXiv:1801.01290 (value network) and arXiv:1812.05905 (temperatures);
ML-Agents 1.1.0, `sac/optimizer_torch.py`, with the signs of hybrid actions corrected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from touchline.policies.distributions import SquashedDistribution

DISCRETE_ENTROPY_SHARE = 0.2
"""Target entropy of a branch, as a share of the largest. Source: ML-Agents 1.1.0."""


@dataclass(frozen=True)
class PolicyDraw:
    """What a policy does in B situations: a drawn continuous action, and all choices' chances."""

    continuous: Float[Tensor, "B C"]
    """As worlds take it, in [-1, 1]."""
    log_prob: Float[Tensor, " B"]
    """Of the continuous action; 0 where there is none."""
    choices: Sequence[Float[Tensor, "B _"]]
    """Log-probabilities of each branch."""

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

    def detached(self) -> LogTemperatures:
        """The same numbers, without a gradient."""
        return LogTemperatures(self.continuous.detach(), self.discrete.detach())


@dataclass(frozen=True)
class Evaluation:
    """What the networks make of a minibatch: all that its losses depend on."""

    distribution: SquashedDistribution
    noise: Float[Tensor, "B C"]
    draw: PolicyDraw
    """The distribution's, with this noise."""
    drawn_q: Sequence[Float[Tensor, "B S P"]]
    """Of each critic, for the drawn action."""
    num_climbed: int
    """How many of the critics the policy climbs."""
    taken_q: Sequence[Float[Tensor, "B S P"]]
    """Of each critic, for the action that was taken."""
    taken: Int[Tensor, "B D"]
    """The choices that were made."""
    target: Float[Tensor, "B S"]
    """What `taken_q` of those choices should be."""
    expected: Float[Tensor, "B S"]
    """The soft value of each situation, without a gradient."""
    value: Float[Tensor, "B S"] | None
    """Of the value network; None where there is none."""
    target_entropies: Float[Tensor, "B D"]

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
    """Of the policy, nats, all action parts together."""

    @staticmethod
    def of(found: Evaluation, temperatures: LogTemperatures) -> Losses:
        """All losses; only their own moves the temperatures."""
        climbed = found.drawn_q[: found.num_climbed]
        fixed = temperatures.detached()
        nothing = found.expected.new_zeros(())
        value = found.value
        sections = found.sections
        return Losses(
            policy=policy_loss(climbed, found.draw, fixed),
            critics=[
                squared_error(chosen(q, found.taken, sections), found.target)
                for q in found.taken_q
            ],
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
    q: Float[Tensor, "B S P"], choices: Sequence[Float[Tensor, "B _"]]
) -> Float[Tensor, "B S"]:
    """Mean over branches of Σ_a π(a) Q(a)."""
    if not choices:
        return q[:, :, 0]
    sections = [branch.shape[1] for branch in choices]
    parts = torch.split(q, sections, dim=2)
    of_branches = []
    for part, branch in zip(parts, choices, strict=True):
        chance = torch.exp(branch)[:, None]  # [B, 1, choices]: the same for all signals
        of_branches.append((part * chance).sum(dim=2))
    return torch.stack(of_branches).mean(dim=0)


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


def negative_entropies(choices: Sequence[Float[Tensor, "B _"]]) -> list[Tensor]:
    """Σ_a π(a) log π(a) of each branch, [B] each."""
    return [(torch.exp(branch) * branch).sum(dim=1) for branch in choices]


def entropy(draw: PolicyDraw) -> Float[Tensor, ""]:
    """−log π(a) − Σ_b Σ_a π_b log π_b, averaged; without a gradient."""
    negative = sum(negative_entropies(draw.choices), draw.log_prob)
    return -negative.detach().mean()


def entropy_bonus(
    draw: PolicyDraw, temperatures: LogTemperatures
) -> Float[Tensor, " B"]:
    """−α_c log π(a) − mean_b α_b Σ_a π_b log π_b; both parts reward being uncertain.

    ML-Agents 1.1.0 has the first sign wrong for hybrid actions.
    """
    bonus = torch.zeros_like(draw.log_prob)
    if len(temperatures.continuous):
        bonus = bonus - torch.exp(temperatures.continuous) * draw.log_prob
    if draw.choices:
        negative = torch.stack(negative_entropies(draw.choices), dim=1)  # [B, D]
        bonus = bonus - (torch.exp(temperatures.discrete) * negative).mean(dim=1)
    return bonus


def soft_value(
    critics: Sequence[Float[Tensor, "B S P"]],
    draw: PolicyDraw,
    temperatures: LogTemperatures,
) -> Float[Tensor, "B S"]:
    """Min over critics of the expected Q, and the entropy bonus, which every signal gets."""
    of_critics = [expected(q, draw.choices) for q in critics]
    # The smaller of two, because a policy seeks out where a single critic errs upward
    # (Fujimoto et al. 2018, arXiv:1802.09477, section 4).
    smallest = torch.stack(of_critics).amin(dim=0)
    return smallest + entropy_bonus(draw, temperatures)[:, None]


def policy_loss(
    critics: Sequence[Float[Tensor, "B S P"]],
    draw: PolicyDraw,
    temperatures: LogTemperatures,
) -> Float[Tensor, ""]:
    """Minus the soft value, averaged over signals.

    Over several branches and no continuous action ML-Agents takes their sum instead of their mean:
    a factor, which Adam does not see.
    """
    return -soft_value(critics, draw, temperatures).mean()


def squared_error(
    value: Float[Tensor, "B S"], target: Float[Tensor, "B S"]
) -> Float[Tensor, ""]:
    """½ (V − target)², averaged."""
    return 0.5 * (value - target).square().mean()


def target_entropies(
    sections: Sequence[int], allowed: Bool[Tensor, "B P"] | None, num_rows: int
) -> Float[Tensor, "B D"]:
    """0.2 ln n for each branch, with the n choices that were allowed.

    ML-Agents 1.1.0 counts the forbidden ones, too: with few choices left, α grows without bound.
    """
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
    """−ln α (log π + H̄): α grows while the policy is less uncertain than its target H̄.

    As in ML-Agents, ln α multiplies, not α.
    """
    loss = draw.log_prob.new_zeros(())
    if len(temperatures.continuous):
        # Temperatures follow the policy; this loss may not move it.
        lack = (draw.log_prob + target_continuous).detach()
        loss = loss - (temperatures.continuous * lack).mean()
    if draw.choices:
        negative = torch.stack(negative_entropies(draw.choices), dim=1)
        lack = (negative + target_discrete).detach()
        loss = loss - (temperatures.discrete * lack).mean()
    return loss
