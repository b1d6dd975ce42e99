"""Observations with mean 0 and spread 1, by the running statistics of everything observed."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

NORMALIZED_LIMIT = 5.0
"""Normalized observations are clipped to ±5."""


class RunningNormalizer(nn.Module):
    """Shifts and scales each number by the mean and spread of all its values so far.

    Source: Chan et al. 1979, the pairwise update of mean and squared deviations.
    """

    mean: Float[Tensor, " O"]
    scale: Float[Tensor, " O"]
    """1 / standard deviation."""
    count: Float[Tensor, ""]

    def __init__(self, size: int) -> None:
        super().__init__()
        # Buffers are saved and moved to a device with the weights, and are not trained.
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        # float32 stops counting at 2^24, after minutes of training
        self.register_buffer("count", torch.ones((), dtype=torch.float64))

    def forward(self, obs: Float[Tensor, "*B O"]) -> Float[Tensor, "*B O"]:
        # The inverse is kept because a multiplication is cheaper than a division, at every
        # decision.
        scaled = (obs - self.mean) * self.scale
        return scaled.clamp(-NORMALIZED_LIMIT, NORMALIZED_LIMIT)

    @torch.no_grad()
    def update(self, obs: Float[Tensor, "B O"]) -> None:
        """Include these observations in the statistics; there may be none."""
        if not len(obs):
            return
        before = float(self.count)
        added = len(obs)
        total = before + added
        mean = obs.mean(dim=0)
        difference = mean - self.mean
        # Squared deviations of each part from its own mean, then from the common one.
        deviations_before = self.scale.pow(-2) * before
        deviations = deviations_before + (obs - mean).square().sum(dim=0)
        deviations += difference.square() * (before * added / total)
        variance = (deviations / total).clamp(min=1e-12)  # a constant number has none
        self.mean += difference * (added / total)
        self.scale.copy_(torch.rsqrt(variance))
        self.count += added


def observation_figures(vector: Tensor, *, is_normalized: bool) -> dict[str, float]:
    """How the vector observations [B, O] of an update spread; empty without any.

    `obs_constant` is the share of the O numbers that never changed in it. Normalized observations
    add `obs_clipped`, the share of values at the normalizer's limit; others `obs_max`, the largest
    absolute value.
    """
    if vector.dim() != 2 or not vector.is_floating_point() or not vector.numel():
        return {}
    constant = vector.amax(dim=0) == vector.amin(dim=0)
    figures = {"obs_constant": float(constant.float().mean())}
    size = vector.abs()
    if is_normalized:
        clipped = size >= NORMALIZED_LIMIT
        return figures | {"obs_clipped": float(clipped.float().mean())}
    return figures | {"obs_max": float(size.max())}
