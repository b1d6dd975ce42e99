"""Policies as plain values, for collectors that act with copies of them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from touchline.envs.saved_state import Arrays
from touchline.policies.network import Architecture, make_network
from touchline.policies.network_policy import NetworkPolicy
from touchline.policies.shared_slots import Guest
from touchline.specs import BehaviorSpec
from touchline.training.self_play.lineup import Roster
from touchline.training.self_play.settings import SelfPlaySettings


@dataclass(frozen=True)
class PolicyWeights:
    """How a policy's network is built, and its weights."""

    architecture: dict[str, Any]
    """The fields of an `Architecture`."""
    num_signals: int
    deterministic: bool
    network: str
    """Which network, as `BehaviorSpec.network`."""
    weights: Arrays
    """Arrays under the names of `state_dict`; views, where the network is on the CPU."""


@dataclass(frozen=True)
class SentGuest:
    """An opponent of self-play."""

    name: str
    """A file's absolute path, `random` or `zero` where there are no weights."""
    weights: Any
    """`PolicyWeights` or Ray's reference to them; None for a policy without a network."""


@dataclass(frozen=True)
class SentPool:
    """The opponents of one behavior; see `Opponents`."""

    settings: SelfPlaySettings
    drawn: Sequence[int]
    guests: Mapping[int, SentGuest]


@dataclass(frozen=True)
class Policies:
    """Who acts in a round."""

    latest: Mapping[str, PolicyWeights]
    pools: Mapping[str, SentPool] = field(default_factory=dict)
    learning_team: int | None = None


def policies_of(latest: Mapping[str, PolicyWeights], roster: Roster | None) -> Policies:
    """What collectors need of the latest policies, and of their opponents if there are any."""
    if roster is None:
        return Policies(latest)
    pools = {}
    for base, pool in roster.pools.items():
        guests = {number: _sent(guest) for number, guest in pool.guests.items()}
        pools[base] = SentPool(pool.settings, list(pool.drawn), guests)
    return Policies(latest, pools, roster.learning_team)


def _sent(guest: Guest) -> SentGuest:
    if isinstance(guest.policy, NetworkPolicy):
        return SentGuest(guest.name, weights_of(guest.policy))
    path = Path(guest.name)
    # Where collectors run, relative paths mean something else.
    return SentGuest(str(path.absolute()) if path.exists() else guest.name, None)


def weights_of(policy: NetworkPolicy) -> PolicyWeights:
    """The policy as it is now."""
    network = policy.network
    tensors = network.state_dict().items()
    return PolicyWeights(
        asdict(network.architecture),
        network.num_signals,
        policy.deterministic,
        network.spec.network,
        {name: tensor.numpy(force=True) for name, tensor in tensors},
    )


def policy_with(given: PolicyWeights, spec: BehaviorSpec) -> NetworkPolicy:
    """A policy of this form on the CPU; `take` gives it its weights."""
    # First weights, which are not used, must not move the random numbers of the whole process.
    with torch.random.fork_rng(devices=[]):
        architecture = Architecture(**given.architecture)
        own = replace(spec, network=given.network)
        network = make_network(own, architecture, num_signals=given.num_signals)
    return NetworkPolicy(network, deterministic=given.deterministic)


def take(policy: NetworkPolicy, given: PolicyWeights) -> None:
    """Copy the weights into the policy."""
    # `torch.tensor` copies; `from_numpy` would warn of arrays in Ray's read-only memory.
    tensors = {name: torch.tensor(array) for name, array in given.weights.items()}
    policy.network.load_state_dict(tensors)
    policy.forget_actor()
