"""SAC's networks: a policy, two critics of actions, and what moves slowly after them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.nets.bodies import Body
from touchline.policies.nets.dense import first_value_weight
from touchline.policies.nets.encoders import with_vector
from touchline.policies.nets.memory import Sequences
from touchline.policies.network import Architecture, Obs, make_network
from touchline.specs import BehaviorSpec
from touchline.training.algorithms.adam import FlatParameters
from touchline.training.algorithms.learner import LearnerSetup, architecture_of

if TYPE_CHECKING:
    # It brings ONNX, which few runs need.
    from touchline.policies.files.official_weights import OfficialWeights


class Critic(nn.Module):
    """Q(o, a) by signal: one number for each choice of all branches, or one without branches."""

    def __init__(
        self, spec: BehaviorSpec, architecture: Architecture, num_signals: int
    ) -> None:
        super().__init__()
        size = spec.action_spec.continuous_size
        self.spec = with_vector(spec, size, "continuous action")
        """What it observes, the action as the last sensor."""
        self.body = Body(self.spec, architecture)
        outputs = num_signals * max(1, spec.action_spec.mask_size)
        self.head = nn.Linear(self.body.size, outputs)
        self.num_signals = num_signals
        with torch.no_grad():
            self.head.weight.copy_(first_value_weight(outputs, self.body.size))
            self.head.bias.zero_()

    def forward(
        self,
        obs: Obs,
        continuous: Float[Tensor, "B C"],
        sequences: Sequences | None = None,
    ) -> Float[Tensor, "B S P"]:
        """The action is in [-1, 1]; with a memory, of the sequences that the batch consists of."""
        # 0, because a critic's sequences hold its own memories alone.
        features = self.body(_with(obs, continuous), sequences, 0)
        q: Tensor = self.head(features)
        return q.view(len(q), self.num_signals, -1)

    def remembered(
        self, obs: Obs, continuous: Float[Tensor, "B C"]
    ) -> Float[Tensor, "B M"]:
        """The memory after the first action of a sequence, before which there is none."""
        memory = self.body.memory
        assert memory is not None
        nothing = continuous.new_zeros(len(continuous), memory.size)
        _, after = self.body.step(_with(obs, continuous), nothing)
        return after


class SoftNetworks:
    """All networks of a learner, on its device; one vector holds the weights that are learned."""

    def __init__(
        self, setup: LearnerSetup, num_signals: int, *, target_critics: bool
    ) -> None:
        """Raises a UsageError for behaviors whose network has no squashed actions."""
        spec = setup.spec
        architecture = architecture_of(setup.config, squashed=True)
        # Initial weights come from torch's global generator; a program that calls us keeps its
        # own state.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(setup.seed)
            network = make_network(spec, architecture, num_signals)
            critics = [Critic(spec, architecture, num_signals) for _ in range(2)]
        self.policy = network.to(setup.device)
        self.critics = nn.ModuleList(critics).to(setup.device)
        own = list(self.policy.parameters())
        self.weights = FlatParameters([*own, *_side_by_side(self.critics)])
        # The target follows a part of that vector: the critics' or the policy's, which the value
        # network belongs to.
        num_own = sum(p.numel() for p in own)
        self.target: Any
        """A copy of the critics, or of the policy with its value network."""
        if target_critics:
            critics_copy = deepcopy(self.critics)
            self.target = critics_copy
            self._followed = self.weights.vector[num_own:]
            self._target_weights = FlatParameters(_side_by_side(critics_copy))
        else:
            self.target = deepcopy(self.policy)
            self._followed = self.weights.vector[:num_own]
            self._target_weights = FlatParameters(self.target.parameters())

    def move_target(self, tau: float) -> None:
        """θ' ← (1 − τ) θ' + τ θ"""
        self._target_weights.vector.lerp_(self._followed, tau)

    def named(self) -> dict[str, Any]:
        """By the prefixes of a learner's state."""
        return {
            "network": self.policy,
            "critics": self.critics,
            "target": self.target,
        }

    def from_official(
        self, weights: OfficialWeights, signals: Sequence[str]
    ) -> dict[str, Tensor]:
        """What of a learner's state a file of ML-Agents holds.

        `signals` are the names of its value heads. ONNX files hold the policy alone. No file of
        ML-Agents 1.1.0 holds temperatures. Raises a UsageError for weights of another shape.
        """
        from touchline.policies.files.official_weights import (
            fill_q,
            with_official_weights,
        )

        assert isinstance(self.policy, ActorCritic)  # others have no such file
        found = {"network": with_official_weights(self.policy, weights, signals)}
        if weights.q:
            critics = deepcopy(self.critics).cpu()
            for number, critic in enumerate(critics):
                assert isinstance(critic, Critic)
                fill_q(critic.body, critic.head, critic.spec, weights, number, signals)
            # ML-Agents' critics of actions have no target, so ours starts equal to them.
            found["critics"] = found["target"] = critics.state_dict()
            if isinstance(self.target, ActorCritic):
                of_target = replace(weights, critic=weights.target)
                found["target"] = with_official_weights(self.policy, of_target, signals)
        return {
            f"{prefix}.{name}": tensor
            for prefix, tensors in found.items()
            for name, tensor in tensors.items()
        }


def _with(obs: Obs, continuous: Float[Tensor, "B C"]) -> Obs:
    return torch.cat([obs[0], continuous], dim=1), *obs[1:]


def _side_by_side(critics: nn.ModuleList) -> Iterator[nn.Parameter]:
    """The first weight of all critics, then the second: `DensePasses` takes each as one array."""
    for equal in zip(*(critic.parameters() for critic in critics), strict=True):
        yield from equal
