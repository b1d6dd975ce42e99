"""The standard network: from what agents observe to a distribution over actions and to values.

Actor and critic are separate networks of one shape, as in ML-Agents. Where there is nothing but
vectors they are evaluated together (`TwinMLP`): at these sizes a step costs calls, not arithmetic.
Images, entities, goals and memory go through `Bodies`, in plain PyTorch.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from touchline.errors import UsageError
from touchline.policies.distributions import (
    LOG_STD_RANGE,
    ActionDistribution,
    SquashedDistribution,
    masked_log_probs,
)
from touchline.policies.fused import distribution as fused_distribution
from touchline.policies.fused import twin_mlp as fused_mlp
from touchline.policies.nets.bodies import Bodies
from touchline.policies.nets.dense import output_gains
from touchline.policies.nets.encoders import Sensors
from touchline.policies.nets.memory import Sequences
from touchline.policies.nets.normalizer import RunningNormalizer
from touchline.policies.nets.twin_mlp import ACTOR, CRITIC, TwinMLP
from touchline.policies.network import (
    Actor,
    Allowed,
    Architecture,
    Obs,
    OutputGradients,
)
from touchline.specs import BehaviorSpec

AnyDistribution = ActionDistribution | SquashedDistribution


class ActorCritic(nn.Module):
    """A `Network` for every behavior whose branches are drawn independently of each other."""

    def __init__(
        self, spec: BehaviorSpec, architecture: Architecture, num_signals: int = 1
    ) -> None:
        """Raises a UsageError for staged actions, and for sensors that no encoder takes."""
        super().__init__()
        actions = spec.action_spec
        if actions.staged:
            raise UsageError(
                "the standard network chooses all branches at once; a behavior with staged actions "
                "needs a network of its own"
            )
        self.spec = spec
        self.architecture = architecture
        self.num_signals = num_signals
        self.sensors = Sensors.from_spec(spec.observed)
        self._sections = [actions.continuous_size, *actions.discrete_branches]
        if architecture.squashed:  # means, then the logarithms of spreads
            self._sections.insert(0, actions.continuous_size)
        size = self.sensors.vector_size
        self.normalizer = (
            RunningNormalizer(size) if architecture.normalize and size else None
        )
        gains = output_gains(actions, squashed=architecture.squashed)
        self.trunk: TwinMLP | Bodies
        if _is_plain(self.sensors, architecture):
            hidden = architecture.hidden_units
            layers = architecture.num_layers
            self.trunk = TwinMLP(
                size, hidden, layers, gains, num_signals, spec.state_size
            )
        elif spec.state_size and architecture.shared_critic:
            raise UsageError(
                "a critic that shares the policy's layers cannot see the state, which the policy "
                "does without"
            )
        else:
            self.trunk = Bodies(spec, architecture, gains, num_signals)
        if architecture.orthogonal_init:
            self.trunk.initialize_orthogonally()
        # One spread for all situations, σ = 1 at first, as in ML-Agents
        # (`torch_entities/distributions.py`).
        self.log_std = None
        if actions.continuous_size and not architecture.squashed:
            self.log_std = nn.Parameter(torch.zeros(actions.continuous_size))

    @property
    def has_gradient(self) -> bool:
        """Whether `gradient` is available: for two stacks of dense layers over one vector."""
        # A subclass may compute something else than what is written out here.
        is_plain = type(self) is ActorCritic and isinstance(self.trunk, TwinMLP)
        return is_plain and not self.architecture.squashed

    @property
    def memory_shape(self) -> tuple[int, int] | None:
        return self.trunk.memory_shape if isinstance(self.trunk, Bodies) else None

    def normalized(self, obs: Obs) -> Obs:
        """The vectors normalized, where the architecture says so; not what a critic alone sees."""
        if self.normalizer is None:
            return obs
        observed, state = self._parted(obs)
        observed = self.normalizer(observed)
        if state is not None:
            observed = torch.cat([observed, state], dim=-1)
        return observed, *obs[1:]

    def compact(self, obs: tuple[NDArray[Any], ...]) -> tuple[NDArray[Any], ...]:
        """Everything: this network needs all of its observations."""
        return obs

    def forward(
        self, obs: Obs, allowed: Allowed, sequences: Sequences | None = None
    ) -> tuple[AnyDistribution, Float[Tensor, "B S"]]:
        if isinstance(self.trunk, TwinMLP):
            outputs, value = self.trunk(*self._parted(obs))
        else:
            outputs, value = self.trunk(obs, sequences)
        return self.distribution_of(outputs, allowed), value

    def gradient(
        self,
        obs: Obs,
        allowed: Allowed,
        actions: tuple[Tensor, Tensor],
        output_gradients: OutputGradients,
        entropy_gradient: float,
        out: Sequence[Tensor],
        products: torch.dtype | None = None,
    ) -> None:
        trunk = self.trunk
        assert isinstance(trunk, TwinMLP)
        passed = trunk.passed(*self._parted(obs), products)
        distribution = self.distribution_of(passed.outputs, allowed)
        assert isinstance(distribution, ActionDistribution)
        evaluated = fused_distribution.forward(distribution, actions)
        grad_log_prob, grad_value = output_gradients(evaluated.log_prob, passed.value)
        grad_outputs, grad_log_std = fused_distribution.backward(
            distribution, evaluated, grad_log_prob, entropy_gradient
        )
        # `parameters()` gives a module's own ones before those of its children.
        if grad_log_std is not None:
            out[0].copy_(grad_log_std)
            out = out[1:]
        fused_mlp.backward(trunk, passed, grad_outputs, grad_value, out)

    def step(
        self, obs: Obs, allowed: Allowed, memory: Float[Tensor, "B W M"]
    ) -> tuple[AnyDistribution, Float[Tensor, "B S"], Float[Tensor, "B W M"]]:
        assert isinstance(self.trunk, Bodies)
        outputs, value, memory = self.trunk.step(obs, memory)
        return self.distribution_of(outputs, allowed), value, memory

    def distribution(self, obs: Obs, allowed: Allowed) -> AnyDistribution:
        return self.distribution_of(self._network(obs, ACTOR), allowed)

    def actor(self) -> Actor:
        """`distribution`; where the trunk is plain, its views of the weights are made here."""
        trunk = self.trunk
        if type(self) is not ActorCritic or not isinstance(trunk, TwinMLP):
            return self.distribution
        outputs = trunk.single(ACTOR)

        def act(obs: Obs, allowed: Allowed) -> AnyDistribution:
            observed, _ = self._parted(obs)
            return self.distribution_of(outputs(observed), allowed)

        return act

    def value(self, obs: Obs) -> Float[Tensor, "B S"]:
        return self._network(obs, CRITIC)

    def _network(self, obs: Obs, which: int) -> Float[Tensor, "B P"]:
        if isinstance(self.trunk, TwinMLP):
            observed, state = self._parted(obs)
            return self.trunk.network(observed, which, state)
        return self.trunk.network(obs, which)

    def _parted(
        self, obs: Obs
    ) -> tuple[Float[Tensor, "*B I"], Float[Tensor, "*B Z"] | None]:
        """What actor and critic see, and what the critic alone does."""
        # A world that is not for training may leave the latter out; then only the actor can be
        # asked.
        size = self.sensors.vector_size
        if obs[0].shape[-1] == size:
            return obs[0], None
        return obs[0][..., :size], obs[0][..., size:]

    def distribution_of(
        self, outputs: Float[Tensor, "B P"], allowed: Allowed
    ) -> AnyDistribution:
        """What the actor's outputs mean."""
        if self.architecture.squashed:
            mean, log_std, *logits = torch.split(outputs, self._sections, dim=1)
            # Without bounds a spread could overflow, or be 0, where the density is infinite.
            log_std = log_std.clamp(*LOG_STD_RANGE)
            branches = self._branches(logits, allowed)
            return SquashedDistribution(mean, log_std, branches)
        own_log_std = self.log_std
        log_std = outputs.new_zeros(0) if own_log_std is None else own_log_std
        if len(self._sections) == 1:  # continuous actions only: nothing to split
            return ActionDistribution(outputs, log_std, ())
        mean, *logits = torch.split(outputs, self._sections, dim=1)
        return ActionDistribution(mean, log_std, self._branches(logits, allowed))

    def _branches(self, logits: Sequence[Tensor], allowed: Allowed) -> list[Tensor]:
        masks: Sequence[Tensor | None] = [None] * len(logits)
        if allowed is not None:
            sizes = self.spec.action_spec.discrete_branches
            masks = torch.split(allowed, list(sizes), dim=1)
        pairs = zip(logits, masks, strict=True)
        return [masked_log_probs(branch, mask) for branch, mask in pairs]


def _is_plain(sensors: Sensors, architecture: Architecture) -> bool:
    """Whether actor and critic are two stacks of dense layers over one vector."""
    has_goals = sensors.goal_size > 0 and architecture.goal_conditioning_type == "hyper"
    has_more = has_goals or architecture.memory_size or architecture.shared_critic
    return sensors.is_vectors and not has_more
