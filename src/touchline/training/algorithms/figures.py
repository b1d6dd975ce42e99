"""Figures of an update that several learners report."""

from __future__ import annotations

from touchline.policies.nets.normalizer import NORMALIZED_LIMIT
from touchline.policies.network import Obs


def observation_figures(obs: Obs, *, is_normalized: bool) -> dict[str, float]:
    """How the vector observations [B, O] of an update spread; empty without any.

    `obs_constant` is the share of the O numbers that never changed in it. Normalized observations
    add `obs_clipped`, the share of values at the normalizer's limit; others `obs_max`, the largest
    absolute value.
    """
    vector = obs[0]
    if vector.dim() != 2 or not vector.is_floating_point() or not vector.numel():
        return {}
    constant = vector.amax(dim=0) == vector.amin(dim=0)
    figures = {"obs_constant": float(constant.float().mean())}
    size = vector.abs()
    if is_normalized:
        clipped = size >= NORMALIZED_LIMIT
        return figures | {"obs_clipped": float(clipped.float().mean())}
    return figures | {"obs_max": float(size.max())}
