"""SAC's networks where all of them are dense layers over one vector: faster than autograd.

Both critics are one call, for drawn and for taken actions together. Backward passes through the
networks are written out and put straight into the vector of gradients. The losses remain the
formulas of `loss.py`, and autograd differentiates them. A test holds all of it to `AutogradPasses`
in double precision; `docs/decisions/hand-written-gradients.md` has the measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from touchline.policies.fused import dense_stack
from touchline.policies.fused import twin_mlp as fused_mlp
from touchline.policies.fused.dense_stack import DenseStack, ForwardPass, side_by_side
from touchline.policies.nets.actor_critic import ActorCritic, AnyDistribution
from touchline.policies.nets.memory import Sequences
from touchline.policies.nets.twin_mlp import ACTOR, CRITIC, TwinMLP
from touchline.policies.network import Obs
from touchline.training.algorithms.adam import FlatParameters
from touchline.training.algorithms.sac.passes import Memories

TensorOf = Callable[[nn.Parameter], Tensor]
"""A parameter's values, or its part of the vector of gradients."""


class DensePasses:
    """See `Passes`, and `fits` for the networks that it takes.

    What is evaluated with gradients is a leaf for autograd: gradients of the losses end there, and
    `gradient_of` carries them on to the weights.
    """

    def __init__(
        self,
        network: ActorCritic,
        critics: nn.ModuleList,
        target: nn.Module,
        weights: FlatParameters,
    ) -> None:
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
        self._leaves: list[tuple[Sequence[Tensor], Callable[..., Any]]] = []
        """Of the last evaluation, each with what carries its gradients on."""

    @staticmethod
    def fits(network: ActorCritic) -> bool:
        """Whether the network, and so its critics, consist of dense layers over one vector."""
        return isinstance(network.trunk, TwinMLP)

    @torch.no_grad()
    def policy(
        self,
        obs: Obs,
        allowed: Tensor | None,
        sequences: Sequences | None,  # noqa: ARG002 - there is no memory
    ) -> tuple[AnyDistribution, Tensor | None]:
        if self._has_value:
            outputs, value = self._actor_and_value(obs)
        else:
            outputs, value = self._actor_alone(obs), None
        with torch.enable_grad():
            return self._network.distribution_of(outputs, allowed), value

    def _actor_and_value(self, obs: Obs) -> tuple[Tensor, Tensor]:
        passed = fused_mlp.forward(self._trunk, obs[0])
        leaves = passed.outputs.requires_grad_(), passed.value.requires_grad_()

        def carry(grad_outputs: Tensor, grad_value: Tensor) -> None:
            out = self._trunk_gradient
            fused_mlp.backward(self._trunk, passed, grad_outputs, grad_value, out)

        self._leaves = [(leaves, carry)]
        return leaves

    def _actor_alone(self, obs: Obs) -> Tensor:
        passed = dense_stack.forward(self._actor, obs[0])
        outputs = passed.outputs[0].requires_grad_()

        def carry(gradient: Tensor) -> None:
            out = self._actor_gradient
            dense_stack.backward(self._actor, passed, gradient[None], out)

        self._leaves = [([outputs], carry)]
        return outputs

    @torch.no_grad()
    def q(
        self,
        obs: Obs,
        drawn: Tensor,
        taken: Tensor,
        memories: Memories,  # noqa: ARG002 - there is no memory
    ) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        size = len(taken)
        if not drawn.shape[1]:  # critics judge all choices, whichever is drawn
            of_taken = dense_stack.forward(self._critics, obs[0])
            taken_q = self._judged(of_taken)
            with torch.enable_grad():
                return taken_q.detach().unbind(), taken_q.unbind()
        actions = torch.cat([drawn, taken])
        rows = torch.cat([obs[0].repeat(2, 1), actions], dim=1)
        passed = dense_stack.forward(self._critics, rows)
        of_drawn = passed.part(slice(0, size))
        taken_q = self._judged(passed.part(slice(size, None)))

        def carry(gradient: Tensor) -> Tensor:
            return self._climb(of_drawn, gradient)

        with torch.enable_grad():
            q = self._by_signal(of_drawn.outputs)
            drawn_q = _Climbed.apply(drawn, q, carry)  # type: ignore[no-untyped-call]
            return drawn_q.unbind(), taken_q.unbind()

    def _judged(self, passed: ForwardPass) -> Float[Tensor, "N B S P"]:
        """Q of the actions that were taken, from which the critics learn."""
        q = self._by_signal(passed.outputs).requires_grad_()

        def carry(gradient: Tensor) -> None:
            out = self._critics_gradient
            dense_stack.backward(self._critics, passed, gradient.flatten(2), out)

        self._leaves.append(([q], carry))
        return q

    def _climb(
        self, passed: ForwardPass, gradient: Float[Tensor, "N B S P"]
    ) -> Float[Tensor, "B C"]:
        """The gradient by drawn actions, given that by their Q."""
        stack = self._climbed
        num_climbed = len(stack.weights[0])
        of_climbed = passed.networks(num_climbed)
        own = gradient[:num_climbed].flatten(2)
        by_layer = dense_stack.backward(stack, of_climbed, own, None)
        num_actions = self._network.spec.action_spec.continuous_size
        # Actions are the last inputs of a critic.
        weight = stack.weights[0][:, -num_actions:]
        return torch.bmm(by_layer, weight.transpose(1, 2)).sum(dim=0)

    def following(
        self,
        obs: Obs,
        allowed: Tensor | None,
        sequences: Sequences | None,  # noqa: ARG002 - there is no memory
    ) -> AnyDistribution:
        passed = dense_stack.forward(self._actor, obs[0])
        return self._network.distribution_of(passed.outputs[0], allowed)

    def target_value(
        self,
        obs: Obs,
        sequences: Sequences | None,  # noqa: ARG002 - there is no memory
    ) -> Tensor:
        return dense_stack.forward(self._target, obs[0]).outputs[0]

    def target_q(
        self,
        obs: Obs,
        continuous: Tensor,
        memories: Memories,  # noqa: ARG002 - there is no memory
    ) -> Sequence[Tensor]:
        rows = torch.cat([obs[0], continuous], dim=1)
        passed = dense_stack.forward(self._target, rows)
        return self._by_signal(passed.outputs).unbind()

    def gradient_of(self, loss: Tensor, others: Sequence[Tensor]) -> Sequence[Tensor]:
        leaves = [leaf for own, _ in self._leaves for leaf in own]
        found = torch.autograd.grad(loss, [*leaves, *others])
        # Networks that were not evaluated have no part in the loss.
        self._weights.gradient.zero_()
        gradients = iter(found)
        with torch.no_grad():
            for own, carry in self._leaves:
                carry(*[next(gradients) for _ in own])
        self._leaves = []
        return list(gradients)

    def _by_signal(self, outputs: Float[Tensor, "N B _"]) -> Float[Tensor, "N B S P"]:
        return outputs.view(*outputs.shape[:2], self._num_signals, -1)


class _Climbed(torch.autograd.Function):
    """Q of drawn actions: gradients reach the actions, and not the critics."""

    @staticmethod
    def forward(
        ctx: Any, _drawn: Tensor, q: Tensor, carry: Callable[[Tensor], Tensor]
    ) -> Tensor:
        ctx.carry = carry
        return q

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.carry(gradient), None, None


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
