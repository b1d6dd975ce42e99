"""A SAC run's first networks from a file of ML-Agents: policy, critics, values and their target."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

from torch import Tensor, nn

from touchline.policies.files.official_weights import (
    OfficialWeights,
    fill_q,
    with_official_weights,
)
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.training.algorithms.sac.critics import Critic


def official_networks(
    network: ActorCritic,
    critics: nn.ModuleList,
    weights: OfficialWeights,
    signals: Sequence[str],
    *,
    target_critics: bool,
) -> dict[str, Tensor]:
    """What of a learner's state the file holds; `signals` are the names of its value heads.

    ONNX files hold the policy alone. No file of ML-Agents 1.1.0 holds temperatures. Raises a
    UsageError for weights of another shape.
    """
    state = _named("network", with_official_weights(network, weights, signals))
    if not weights.q:
        return state
    critics = deepcopy(critics).cpu()
    for number, critic in enumerate(critics):
        assert isinstance(critic, Critic)
        fill_q(critic.body, critic.head, critic.spec, weights, number, signals)
    state |= _named("critics", critics.state_dict())
    if target_critics:
        return state | _named("target", critics.state_dict())
    of_target = replace(weights, critic=weights.target)
    target = with_official_weights(network, of_target, signals)
    return state | _named("target", target)


def _named(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}
