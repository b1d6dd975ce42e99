"""How SAC's networks are evaluated, and how the gradient of a loss reaches their weights.

`AutogradPasses` is the definition and takes every network; `DensePasses` is a faster way for dense
layers over one vector.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from touchline.policies.fused import dense_stack
from touchline.policies.fused import twin_mlp as fused_mlp
from touchline.policies.fused.dense_stack import DenseStack, ForwardPass, side_by_side
from touchline.policies.nets.actor_critic import ActorCritic, AnyDistribution
from touchline.policies.nets.memory import Sequences
from touchline.policies.nets.twin_mlp import ACTOR, CRITIC, TwinMLP
from touchline.policies.network import Network, Obs
from touchline.training.algorithms.adam import FlatParameters
from touchline.training.algorithms.sac.loss import (
    Evaluation,
    LogTemperatures,
    Losses,
    critic_gradient,
    policy_gradient,
    temperature_gradient,
    value_gradient,
)

Memories = Sequence[Sequences | None]
"""For each critic: the sequences of a batch with what it remembers; None without memory."""


class PolicyPass(NamedTuple):
    """What the policy's network says of B situations."""

    distribution: AnyDistribution
    value: Float[Tensor, "B S"] | None
    """Output of the value network; None where there is none."""
    trace: Any = None
    """What `descend` goes back through."""


class CriticPass(NamedTuple):
    """[B, S, P] of each critic."""

    drawn: Sequence[Tensor]
    """For actions that the policy draws; gradients reach the actions alone."""
    taken: Sequence[Tensor]
    """For actions that were taken; gradients reach the critics alone."""
    trace: Any = None
    """What `descend` goes back through."""


class AutogradPasses:
    """For every network."""

    uses_autograd = True
    """Whether losses are to be computed with gradients."""

    def __init__(
        self,
        network: Any,
        critics: nn.ModuleList,
        target: Any,
        weights: FlatParameters,
    ) -> None:
        """`network` is a `Network`; `target` is its copy, or a copy of the critics."""
        self._network = network
        self._critics = critics
        self._target = target
        self._weights = weights
        self._critic_parameters = list(critics.parameters())
        self._has_value = not isinstance(target, nn.ModuleList)

    def policy(
        self, obs: Obs, allowed: Tensor | None, sequences: Sequences | None
    ) -> PolicyPass:
        """The policy, and the value network where there is one."""
        distribution, value = self._network(obs, allowed, sequences)
        return PolicyPass(distribution, value if self._has_value else None)

    def q(
        self, obs: Obs, drawn: Tensor, taken: Tensor, memories: Memories
    ) -> CriticPass:
        """The critics, of drawn actions and of those that were taken."""
        taken_q = self._q(self._critics, obs, taken, memories)
        if not drawn.shape[1]:  # critics judge all choices, whichever is drawn
            return CriticPass([q.detach() for q in taken_q], taken_q)
        self._let_critics_learn(learn=False)
        drawn_q = self._q(self._critics, obs, drawn, memories)
        self._let_critics_learn(learn=True)
        return CriticPass(drawn_q, taken_q)

    def following(
        self, obs: Obs, allowed: Tensor | None, sequences: Sequences | None
    ) -> AnyDistribution:
        """The policy, without gradients."""
        if sequences is None:
            distribution: AnyDistribution = self._network.distribution(obs, allowed)
            return distribution
        distribution, _ = self._network(obs, allowed, sequences)
        return distribution

    def target_value(self, obs: Obs, sequences: Sequences | None) -> Tensor:
        """[B, S] of the slowly moving value network."""
        value: Tensor
        if sequences is None:
            value = self._target.value(obs)
            return value
        _, value = self._target(obs, None, sequences)
        return value

    def target_q(
        self, obs: Obs, continuous: Tensor, memories: Memories
    ) -> Sequence[Tensor]:
        """[B, S, P] of each slowly moving critic."""
        return self._q(self._target, obs, continuous, memories)

    def descend(
        self, found: Evaluation, losses: Losses, log_alpha: Float[Tensor, " _"]
    ) -> Float[Tensor, " _"]:
        """Write the gradient of the losses into that of the weights; returns that of ln α."""
        # One pass for all, because they share nothing.
        (gradient,) = self._weights.gradient_of(losses.total, [log_alpha])
        return gradient

    @staticmethod
    def _q(
        critics: nn.Module, obs: Obs, continuous: Tensor, memories: Memories
    ) -> list[Tensor]:
        pairs = zip(critics.children(), memories, strict=True)
        return [critic(obs, continuous, own) for critic, own in pairs]

    def _let_critics_learn(self, *, learn: bool) -> None:
        # `Module.requires_grad_` walks the tree of modules, a twelfth of a small gradient step.
        for parameter in self._critic_parameters:
            parameter.requires_grad_(learn)


TensorOf = Callable[[nn.Parameter], Tensor]
"""A parameter's values, or its part of the vector of gradients."""


class _CriticTrace(NamedTuple):
    """What `descend` goes back through."""

    drawn: ForwardPass | None
    """None where there are no continuous actions to draw."""
    taken: ForwardPass


class DensePasses:
    """In place of `AutogradPasses`, for the networks that `fits` accepts.

    Both critics are one call, for drawn and for taken actions together, and the gradient is written
    out and put straight into the vector of gradients. A test holds all of it to `AutogradPasses` in
    double precision; `docs/decisions/hand-written-gradients.md` has the measurement.
    """

    uses_autograd = False

    def __init__(
        self,
        network: Network,
        critics: nn.ModuleList,
        target: nn.Module,
        weights: FlatParameters,
    ) -> None:
        assert isinstance(network, ActorCritic)
        trunk = network.trunk
        assert isinstance(trunk, TwinMLP)
        self._network, self._trunk, self._weights = network, trunk, weights
        views = zip(weights.parameters, weights.gradient_views, strict=True)
        gradient = dict(views).__getitem__
        self._trunk_gradient = [gradient(p) for p in trunk.parameters()]
        self._num_signals = network.num_signals
        self._actor = _single(trunk, ACTOR, _values)
        self._actor_gradient = _single(trunk, ACTOR, gradient)
        self._critics = _beside(critics, _values)
        self._critics_gradient = _beside(critics, gradient)
        self._has_value = isinstance(target, ActorCritic)
        # Beside a value network, the policy climbs the first critic alone (`SACSettings`).
        self._climbed = self._critics.first(1 if self._has_value else len(critics))
        if isinstance(target, ActorCritic):
            assert isinstance(target.trunk, TwinMLP)
            self._target = _single(target.trunk, CRITIC, _values)
        else:
            self._target = _beside(target, _values)

    @staticmethod
    def fits(network: Network, target: nn.Module) -> bool:
        """Whether the network, and so its critics, consist of dense layers over one vector."""
        # A subclass may compute something else than its dense layers.
        if type(network) is not ActorCritic or not isinstance(network.trunk, TwinMLP):
            return False
        # A value network adds the state to what its first layer gives.
        return not (network.spec.state_size and isinstance(target, ActorCritic))

    def policy(
        self, obs: Obs, allowed: Tensor | None, sequences: Sequences | None
    ) -> PolicyPass:
        if self._has_value:
            of_trunk = self._trunk.passed(obs[0])
            distribution = self._network.distribution_of(of_trunk.outputs, allowed)
            return PolicyPass(distribution, of_trunk.value, of_trunk)
        of_actor = dense_stack.forward(self._actor, self._observed(obs))
        distribution = self._network.distribution_of(of_actor.outputs[0], allowed)
        return PolicyPass(distribution, None, of_actor)

    def q(
        self, obs: Obs, drawn: Tensor, taken: Tensor, memories: Memories
    ) -> CriticPass:
        if not drawn.shape[1]:  # critics judge all choices, whichever is drawn
            of_taken = dense_stack.forward(self._critics, obs[0])
            q = self._by_signal(of_taken.outputs).unbind()
            return CriticPass(q, q, _CriticTrace(None, of_taken))
        actions = torch.cat([drawn, taken])
        rows = torch.cat([obs[0].repeat(2, 1), actions], dim=1)
        both = dense_stack.forward(self._critics, rows)
        of_drawn = both.part(slice(0, len(drawn)))
        of_taken = both.part(slice(len(drawn), None))
        return CriticPass(
            self._by_signal(of_drawn.outputs).unbind(),
            self._by_signal(of_taken.outputs).unbind(),
            _CriticTrace(of_drawn, of_taken),
        )

    @torch.no_grad()
    def descend(
        self, found: Evaluation, losses: Losses, log_alpha: Float[Tensor, " _"]
    ) -> Float[Tensor, " _"]:
        temperatures = LogTemperatures.of(log_alpha, found.noise.shape[1])
        trace: _CriticTrace = found.critic_trace
        climb = partial(self._climb, trace.drawn)
        by_outputs = policy_gradient(found, temperatures, climb)
        by_q = critic_gradient(found).flatten(2)
        out = self._critics_gradient
        dense_stack.backward(self._critics, trace.taken, by_q, out)
        if self._has_value:
            fused_mlp.backward(
                self._trunk,
                found.policy_trace,
                by_outputs,
                value_gradient(found),
                self._trunk_gradient,
            )
        else:
            # The trunk's other half has no part in any loss.
            for gradient in self._trunk_gradient:
                gradient.zero_()
            by_actor = by_outputs[None]
            out = self._actor_gradient
            dense_stack.backward(self._actor, found.policy_trace, by_actor, out)
        return temperature_gradient(found)

    def _climb(
        self, of_drawn: ForwardPass | None, by_q: Float[Tensor, "N B S P"]
    ) -> Float[Tensor, "B C"]:
        """The gradient by the drawn actions, given that by their Q."""
        assert of_drawn is not None
        stack = self._climbed
        of_climbed = of_drawn.networks(len(by_q))
        by_layer = dense_stack.backward(stack, of_climbed, by_q.flatten(2), None)
        num_actions = self._network.spec.action_spec.continuous_size
        # Actions are the last inputs of a critic.
        weight = stack.weights[0][:, -num_actions:]
        return torch.bmm(by_layer, weight.transpose(1, 2)).sum(dim=0)

    def following(
        self, obs: Obs, allowed: Tensor | None, sequences: Sequences | None
    ) -> AnyDistribution:
        passed = dense_stack.forward(self._actor, self._observed(obs))
        return self._network.distribution_of(passed.outputs[0], allowed)

    def target_value(self, obs: Obs, sequences: Sequences | None) -> Tensor:
        return dense_stack.forward(self._target, obs[0]).outputs[0]

    def target_q(
        self, obs: Obs, continuous: Tensor, memories: Memories
    ) -> Sequence[Tensor]:
        rows = torch.cat([obs[0], continuous], dim=1)
        passed = dense_stack.forward(self._target, rows)
        return self._by_signal(passed.outputs).unbind()

    def _observed(self, obs: Obs) -> Tensor:
        """Without the state, which critics alone see."""
        return obs[0][:, : self._network.sensors.vector_size]

    def _by_signal(self, outputs: Float[Tensor, "N B _"]) -> Float[Tensor, "N B S P"]:
        return outputs.view(*outputs.shape[:2], self._num_signals, -1)


def _values(parameter: nn.Parameter) -> Tensor:
    return parameter.detach()


def _single(trunk: TwinMLP, which: int, tensor_of: TensorOf) -> DenseStack:
    """One of the two networks of a trunk."""
    is_actor = which == ACTOR
    weight = trunk.policy_weight if is_actor else trunk.value_weight
    bias = trunk.policy_bias if is_actor else trunk.value_bias
    own = slice(which, which + 1)
    weights = [tensor_of(p)[own] for p in trunk.weights]
    biases = [tensor_of(p)[own] for p in trunk.biases]
    return DenseStack(
        [*weights, tensor_of(weight).t()[None]],
        [*biases, tensor_of(bias)[None, None]],
    )


def _beside(critics: nn.Module, tensor_of: TensorOf) -> DenseStack:
    """All critics: the body's layers, then the head."""
    equal = zip(*(critic.parameters() for critic in critics.children()), strict=True)
    found = [side_by_side([tensor_of(p) for p in parameters]) for parameters in equal]
    # In the order of the layers, the weight before the bias.
    weights = [weight.transpose(1, 2) for weight in found[::2]]
    biases = [bias[:, None] for bias in found[1::2]]
    return DenseStack(weights, biases)
