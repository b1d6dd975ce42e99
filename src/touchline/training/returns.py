"""What an action was worth."""

import numpy as np
from jaxtyping import Bool, Float32


def generalized_advantage(
    reward: Float32[np.ndarray, "T N"],
    value: Float32[np.ndarray, "T N"],
    next_value: Float32[np.ndarray, "T N"],
    terminated: Bool[np.ndarray, "T N"],
    truncated: Bool[np.ndarray, "T N"],
    valid: Bool[np.ndarray, "T N"],
    discount: float,
    gae_lambda: float,
) -> Float32[np.ndarray, "T N"]:
    """How much better each action was than expected, looking ahead with fading weight.

    `next_value` belongs to the state a step led to, before any reset: a terminated step ignores it, a
    truncated one still counts it, and neither looks past its own episode. Where a slot took no action or has
    no result (`valid` is False) the advantage is 0, and the look-ahead passes over that step.

    Source: Schulman et al. 2016, arXiv:1506.02438, section 3.
    """
    delta = reward + np.float32(discount) * next_value * ~terminated - value  # δ_t = r_t + γ V(s_t+1) − V(s_t)
    fade = np.float32(discount * gae_lambda) * ~(terminated | truncated)
    advantage = np.zeros_like(reward)
    ahead = np.zeros_like(reward[0])
    for t in range(len(reward) - 1, -1, -1):  # A_t = δ_t + γλ A_t+1
        ahead = np.where(valid[t], delta[t] + fade[t] * ahead, ahead)
        advantage[t] = ahead
    return np.where(valid, advantage, np.float32(0.0))
