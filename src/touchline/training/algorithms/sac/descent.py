"""SAC's gradient steps: what the networks make of a minibatch, and the descent of its losses."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from touchline.policies.distributions import SquashedDistribution
from touchline.policies.nets.memory import Sequences
from touchline.policies.network import Obs
from touchline.specs import ActionSpec
from touchline.training.algorithms.adam import Adam
from touchline.training.algorithms.sac.loss import (
    Evaluation,
    LogTemperatures,
    Losses,
    PolicyDraw,
    chosen,
    entropy_bonus,
    expected,
    soft_value,
    target_entropies,
)
from touchline.training.algorithms.sac.networks import Critic, SoftNetworks
from touchline.training.algorithms.sac.passes import (
    AutogradPasses,
    DensePasses,
    Memories,
)
from touchline.training.algorithms.sac.settings import SACSettings
from touchline.training.experience.replay import Sample


class Descent:
    """Moves networks and temperatures, with an Adam of each; the target follows."""

    def __init__(
        self,
        hyper: SACSettings,
        actions: ActionSpec,
        networks: SoftNetworks,
        device: torch.device,
    ) -> None:
        self.networks = networks
        self.adam = Adam(networks.weights.vector)
        # Where it fits, a gradient step takes half of the time (`docs/decisions`).
        is_dense = DensePasses.fits(networks.policy, networks.target)
        make = DensePasses if is_dense else AutogradPasses
        self.passes: AutogradPasses | DensePasses = make(
            networks.policy, networks.critics, networks.target, networks.weights
        )
        self.branches = actions.discrete_branches
        self.continuous_size = actions.continuous_size
        count = bool(self.continuous_size) + len(self.branches)
        first = float(np.log(hyper.init_entcoef))
        self.log_temperatures = torch.full((count,), first, device=device)
        """ln α: of the continuous actions together, if there are any, then of each branch."""
        # Apart from the networks, as in ML-Agents: temperatures are saved apart, too.
        self._temperature_adam = Adam(self.log_temperatures)
        self._hyper = hyper
        self._device = device

    def step(self, sample: Sample, generator: torch.Generator, rate: float) -> Losses:
        log_alpha = self.log_temperatures.detach().requires_grad_()
        shape = len(sample), self.continuous_size
        # Drawn on the CPU, so that a run has the same draws on every device.
        noise = torch.randn(shape, generator=generator).to(self._device)
        next_noise = torch.randn(shape, generator=generator).to(self._device)
        with torch.set_grad_enabled(self.passes.uses_autograd):
            found = self.evaluated(sample, noise, next_noise)
            losses = self.losses(found, log_alpha)
        gradient = self.passes.descend(found, losses, log_alpha)
        # Gradients are not clipped, as in ML-Agents.
        self.adam.step(self.networks.weights.gradient, rate, float("inf"))
        self._temperature_adam.step(gradient, rate, float("inf"))
        self.networks.move_target(self._hyper.tau)
        return losses

    def losses(self, found: Evaluation, log_alpha: Tensor) -> Losses:
        temperatures = LogTemperatures.of(log_alpha, self.continuous_size)
        return Losses.of(found, temperatures)

    def evaluated(
        self, sample: Sample, noise: Tensor, next_noise: Tensor
    ) -> Evaluation:
        """What the networks make of a minibatch, with this noise [B, C] in the actions that are
        drawn for it.
        """
        alpha = LogTemperatures.of(self.log_temperatures, self.continuous_size)
        obs = self.networks.policy.normalized(sample.obs)
        policy = self.passes.policy(obs, sample.allowed, sample.sequences)
        assert isinstance(policy.distribution, SquashedDistribution)
        draw = PolicyDraw.of(policy.distribution, noise)
        without_memory = _empty(sample.sequences)
        q = self.passes.q(obs, draw.continuous, sample.continuous, without_memory)
        entropies = target_entropies(self.branches, sample.allowed, len(sample))
        return Evaluation(
            distribution=policy.distribution,
            noise=noise,
            draw=draw,
            drawn_q=q.drawn,
            num_climbed=len(q.drawn) if self._hyper.target_critics else 1,
            of_critics=[expected(one, draw.chances) for one in q.drawn],
            bonus=entropy_bonus(draw, alpha),
            taken=sample.discrete,
            taken_q=[chosen(one, sample.discrete, self.branches) for one in q.taken],
            target=self.target(sample, next_noise, alpha),
            value=policy.value,
            target_entropies=entropies.to(self._device),
            policy_trace=policy.trace,
            critic_trace=q.trace,
        )

    @torch.no_grad()
    def target(
        self, sample: Sample, noise: Tensor, temperatures: LogTemperatures
    ) -> Tensor:
        """[B, S] the rewards, and the discounted value of what they led to."""
        obs = self.networks.policy.normalized(sample.next_obs)
        sequences = self._following(sample)
        if not self._hyper.target_critics:
            value = self.passes.target_value(obs, sequences)
        else:
            distribution = self.passes.following(obs, sample.next_allowed, sequences)
            assert isinstance(distribution, SquashedDistribution)
            draw = PolicyDraw.of(distribution, noise)
            remembered = self._remembered(sample)
            q = self.passes.target_q(obs, draw.continuous, remembered)
            value = soft_value(q, draw, temperatures)
        if sample.last is not None:
            value = value[sample.last]
        return sample.reward + sample.discount * value

    # memory: the policy's is stored, that of critics begins with each sequence, as in ML-Agents

    def _following(self, sample: Sample) -> Sequences | None:
        """The sequences of what followed each action: memories are one step on."""
        sequences = sample.sequences
        if sequences is None:
            return None
        obs = self._first_obs(sample)
        _, _, memory = self.networks.policy.step(obs, None, sequences.memory)
        return Sequences(sequences.length, memory)

    def _remembered(self, sample: Sample) -> Memories:
        """The same, with what the target of each critic remembers."""
        sequences = sample.sequences
        if sequences is None:
            return [None, None]
        obs = self._first_obs(sample)
        continuous = sample.continuous[sequences.first]
        found: list[Sequences | None] = []
        for critic in self.networks.target.children():
            assert isinstance(critic, Critic)
            memory = critic.remembered(obs, continuous)
            found.append(Sequences(sequences.length, memory[:, None]))
        return found

    def _first_obs(self, sample: Sample) -> Obs:
        assert sample.sequences is not None
        first = sample.sequences.first
        return self.networks.policy.normalized(
            tuple(part[first] for part in sample.obs)
        )

    # state of the temperatures

    def state(self) -> dict[str, Tensor]:
        """Temperatures and their Adam's moments."""
        return {"log": self.log_temperatures.clone(), **self._temperature_adam.state()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        moments = dict(state)
        self.log_temperatures.copy_(moments.pop("log"))
        self._temperature_adam.load_state(moments)


def _empty(sequences: Sequences | None) -> Memories:
    """For each critic, the same sequences without anything remembered before them."""
    if sequences is None:
        return [None, None]
    nothing = torch.zeros_like(sequences.memory[:, :1])
    return [Sequences(sequences.length, nothing)] * 2
