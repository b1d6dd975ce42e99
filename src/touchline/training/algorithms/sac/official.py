"""A SAC run's first networks from a file of ML-Agents: policy, critics, values and their target."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

from torch import Tensor

from touchline.policies.files.official_weights import (
    OfficialWeights,
    fill_q,
    with_official_weights,
)
from touchline.training.algorithms.sac.critics import Critic
from touchline.training.algorithms.sac.learner import SAC


def official_networks(
    learner: SAC, weights: OfficialWeights, signals: Sequence[str]
) -> dict[str, Tensor]:
    """What of the learner's state the file holds; `signals` are the names of its value heads.

    ONNX files hold the policy alone. No file of ML-Agents 1.1.0 holds temperatures. Raises a
    UsageError for weights of another shape.
    """
    network = with_official_weights(learner.network, weights, signals)
    state = _named("network", network)
    if not weights.q:
        return state
    critics = deepcopy(learner.critics).cpu()
    for number, critic in enumerate(critics):
        assert isinstance(critic, Critic)
        fill_q(critic.body, critic.head, critic.spec, weights, number, signals)
    state |= _named("critics", critics.state_dict())
    if learner.hyper.target_critics:
        return state | _named("target", critics.state_dict())
    of_target = replace(weights, critic=weights.target)
    target = with_official_weights(learner.network, of_target, signals)
    return state | _named("target", target)


def _named(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}
