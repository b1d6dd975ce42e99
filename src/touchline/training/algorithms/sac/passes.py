"""How SAC's networks are evaluated, and how the gradient of a loss reaches their weights.

`AutogradPasses` is the definition and takes every network; `dense_passes.py` has a faster way for
dense layers over one vector.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from touchline.policies.nets.actor_critic import AnyDistribution
from touchline.policies.nets.memory import Sequences
from touchline.policies.network import Obs
from touchline.training.algorithms.adam import FlatParameters
from touchline.training.algorithms.sac.loss import Evaluation, Losses

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
