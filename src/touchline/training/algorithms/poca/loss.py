"""What MA-POCA and MAPPO descend, as formulas; `backward()` of them is a gradient step.

Source: Cohen et al. 2021, arXiv:2111.05992, section 4 (MA-POCA); Yu et al. 2022, arXiv:2103.01955
(MAPPO). Weights of the terms: ML-Agents 1.1.0, `poca/optimizer_torch.py`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from touchline.policies.nets.group_critic import GroupCritic
from touchline.policies.network import Network
from touchline.training.algorithms.on_policy import Rates
from touchline.training.algorithms.poca.batch import GroupBatch
from touchline.training.algorithms.ppo.loss import (
    VALUE_LOSS_WEIGHT,
    clipped_surrogate,
    clipped_value_loss,
)

BASELINE_LOSS_WEIGHT = 0.5
"""Weight of the baselines' loss next to the values'. Source: ML-Agents 1.1.0,
`poca/optimizer_torch.py`."""


@dataclass(frozen=True)
class GroupLoss:
    """The loss and its parts, each a mean."""

    total: Float[Tensor, ""]
    value: Float[Tensor, ""]
    baseline: Float[Tensor, ""] | None
    """None for MAPPO, which has no baselines."""


def group_loss(
    policy: Network,
    critic: GroupCritic,
    batch: GroupBatch,
    rates: Rates,
    *,
    counterfactual: bool,
) -> GroupLoss:
    """L = −L^CLIP + ½ (L^V + ½ L^b) − β H; without `counterfactual` (MAPPO) L^b is left out.

    L^CLIP is PPO's with A = G − b (MA-POCA) or A = G − V (MAPPO). L^V is the mean of (V − G)² over
    members and signals; L^b that of (b − G)², clipped to ± ε around the old baseline. ML-Agents
    means to clip V as well, but passes G for the old value, so it never does.
    """
    taken = batch.credited
    distribution, _ = policy(
        policy.normalized(batch.own_obs), taken.allowed, batch.actor_sequences
    )
    log_prob = distribution.log_prob(taken.continuous, taken.discrete)
    entropy = distribution.entropy(taken.discrete)
    # MAPPO reads no baselines, which cost the critic as much as its values.
    groups = batch.groups if counterfactual else batch.groups.without_baselines()
    value, baseline = critic(groups, batch.critic_sequences)

    objective = clipped_surrogate(
        log_prob, taken.log_prob, taken.advantage, rates.epsilon
    )
    value_loss = group_value_loss(value, batch.value_target, batch.weight)
    baseline_loss = None
    critic_loss = value_loss
    if counterfactual:
        baseline_loss = clipped_value_loss(
            baseline, taken.baseline, taken.target, rates.epsilon
        )
        critic_loss = value_loss + BASELINE_LOSS_WEIGHT * baseline_loss
    total = -objective + VALUE_LOSS_WEIGHT * critic_loss - rates.beta * entropy
    return GroupLoss(total, value_loss, baseline_loss)


def group_value_loss(
    value: Float[Tensor, "K S"],
    target: Float[Tensor, "K S"],
    weight: Float[Tensor, " K"],
) -> Float[Tensor, ""]:
    """E[(V − G)²] over members: a moment weighs as much as it has members to learn from."""
    error = (value - target).square().mean(dim=1)
    # A minibatch may hold no moment that is learned from.
    return torch.dot(error, weight) / weight.sum().clamp(min=1.0)
