"""A policy as plain values, for collectors that act with a copy of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from touchline.envs.saved_state import Arrays
from touchline.policies.network import Architecture, make_network
from touchline.policies.policy import NetworkPolicy
from touchline.specs import BehaviorSpec


@dataclass(frozen=True)
class PolicyWeights:
    """How a policy's network is built, and its weights."""

    architecture: dict[str, Any]
    """The fields of an `Architecture`."""
    num_signals: int
    deterministic: bool
    weights: Arrays
    """By the names of `state_dict`; views, where the network is on the CPU."""


def weights_of(policy: NetworkPolicy) -> PolicyWeights:
    """The policy as it is now."""
    network = policy.network
    tensors = network.state_dict().items()
    return PolicyWeights(
        asdict(network.architecture),
        network.num_signals,
        policy.deterministic,
        {name: tensor.numpy(force=True) for name, tensor in tensors},
    )


def policy_with(given: PolicyWeights, spec: BehaviorSpec) -> NetworkPolicy:
    """A policy of this form on the CPU; `take` gives it its weights."""
    # First weights, which are not used, must not move the random numbers of the whole process.
    with torch.random.fork_rng(devices=[]):
        architecture = Architecture(**given.architecture)
        network = make_network(spec, architecture, num_signals=given.num_signals)
    return NetworkPolicy(network, deterministic=given.deterministic)


def take(policy: NetworkPolicy, given: PolicyWeights) -> None:
    """Copy the weights into the policy."""
    # `torch.tensor` copies; `from_numpy` would warn of arrays in Ray's read-only memory.
    tensors = {name: torch.tensor(array) for name, array in given.weights.items()}
    policy.network.load_state_dict(tensors)
    policy.forget_actor()
