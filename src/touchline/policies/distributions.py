"""How actions are drawn: a normal for continuous actions, one masked categorical per branch.

The parts are independent, so log-probabilities and entropies add. Continuous actions are kept raw,
as the normal drew them; `to_environment` limits them to [-1, 1] for worlds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from touchline.errors import NonFiniteError

CONTINUOUS_LIMIT = 3.0
"""Raw actions are clipped to ±3 and divided by 3. Source: ML-Agents 1.1.0, and its exported
models."""
LOG_STD_RANGE = (-20.0, 2.0)
"""Range for a squashed normal. Source: ML-Agents 1.1.0, `torch_entities/distributions.py`."""
FORBIDDEN = -1e8
"""Logit of a forbidden choice: its probability is 0, and gradients stay finite."""
RawActions = tuple[Float[Tensor, "B C"], Int[Tensor, "B D"]]
"""Raw continuous actions, and the choice of each branch."""
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True)
class ActionDistribution:
    """Independent distributions over the parts of B agents' actions."""

    mean: Float[Tensor, "B C"]
    log_std: Float[Tensor, " C"] | Float[Tensor, "B C"]
    """The same for all agents, or one for each."""
    log_probs: Sequence[Float[Tensor, "B _"]]
    """[B, choices] for each branch, masks applied."""

    def sample(self, generator: torch.Generator) -> RawActions:
        """Raw continuous actions and branch choices; drawn on the CPU, wherever the network is."""
        noise = torch.randn(self.mean.shape, generator=generator)
        continuous = self.mean.cpu() + noise * torch.exp(self.log_std.cpu())
        drawn = []
        for log_probs in self.log_probs:
            # exp of a forbidden choice's log-probability, about -1e8, is exactly 0 in float32.
            p = torch.exp(log_probs.cpu())
            drawn.append(_drawn(p, generator))
        return continuous, _joined(drawn, len(self.mean))

    def mode(self) -> RawActions:
        """The most likely raw continuous actions and branch choices."""
        chosen = []
        for log_probs in self.log_probs:
            most_likely = log_probs.argmax(dim=1, keepdim=True)
            chosen.append(most_likely.cpu())
        return self.mean.cpu(), _joined(chosen, len(self.mean))

    def log_prob(
        self, continuous: Float[Tensor, "B C"], discrete: Int[Tensor, "B D"]
    ) -> Float[Tensor, " B"]:
        """Of raw continuous actions and branch choices together: the sum of the parts."""
        parts = self.choice_log_probs(discrete)
        if self.mean.shape[1]:
            z, _ = self.standardized(continuous)
            parts.insert(0, self.normal_log_prob(z))
        return reduce(torch.add, parts)

    def standardized(
        self, continuous: Float[Tensor, "B C"]
    ) -> tuple[Float[Tensor, "B C"], Float[Tensor, " C"] | Float[Tensor, "B C"]]:
        """Raw continuous actions in units of σ from the mean, z = (a − μ) / σ, and 1 / σ."""
        inverse_std = torch.exp(-self.log_std)
        z = (continuous - self.mean) * inverse_std
        return z, inverse_std

    def normal_log_prob(self, z: Float[Tensor, "B C"]) -> Float[Tensor, " B"]:
        """Of standardized continuous actions: Σ −½ z² − log σ − ½ log 2π."""
        # Of every agent, or once where log σ is the same for all.
        log_normalizer = self.log_std.sum(dim=-1) + z.shape[1] * _LOG_SQRT_2PI
        squares = (z * z).sum(dim=1)
        return -0.5 * squares - log_normalizer

    def choice_log_probs(
        self, discrete: Int[Tensor, "B D"]
    ) -> list[Float[Tensor, " B"]]:
        """Of the choice in each branch."""
        parts = []
        for branch, log_probs in enumerate(self.log_probs):
            chosen = discrete[:, branch : branch + 1]  # [B, 1], as `gather` wants it
            parts.append(log_probs.gather(1, chosen)[:, 0])
        return parts

    def entropy(self, discrete: Int[Tensor, "B D"] | None = None) -> Float[Tensor, ""]:
        """Mean over the agents, in nats; the choices made do not matter to independent parts."""
        # H of a normal is ½ + log σ + ½ log 2π.
        total = (self.log_std + (0.5 + _LOG_SQRT_2PI)).sum(dim=-1).mean()
        for log_probs in self.log_probs:
            of_agents = (torch.exp(log_probs) * log_probs).sum(dim=1)  # [B], negative
            total = total - of_agents.mean()
        return total


@dataclass(frozen=True)
class SquashedDistribution:
    """As `ActionDistribution`, but continuous actions are tanh(u) of a normal u with a spread of
    its own in every situation.

    Worlds get raw actions divided by their limit, so raw actions are that limit times tanh(u).

    Source: Haarnoja et al. 2018, arXiv:1801.01290, appendix C.
    """

    mean: Float[Tensor, "B C"]
    """Mean of u."""
    log_std: Float[Tensor, "B C"]
    log_probs: Sequence[Float[Tensor, "B _"]]
    """[B, choices] for each branch, masks applied."""

    def sample(self, generator: torch.Generator) -> RawActions:
        """Raw continuous actions and branch choices; drawn on the CPU."""
        u, discrete = self._of_u.sample(generator)
        return CONTINUOUS_LIMIT * torch.tanh(u), discrete

    def mode(self) -> RawActions:
        """The tanh of the mean, as a raw action, and the most likely choices."""
        u, discrete = self._of_u.mode()
        return CONTINUOUS_LIMIT * torch.tanh(u), discrete

    def draw(
        self, noise: Float[Tensor, "B C"]
    ) -> tuple[Float[Tensor, "B C"], Float[Tensor, "B C"]]:
        """Actions in [-1, 1] by this standard normal noise, and the log-density of each number.

        Gradients reach mean and spread.
        """
        u = self.mean + noise * torch.exp(self.log_std)
        return torch.tanh(u), self._log_density(noise, u)

    def log_prob(
        self, continuous: Float[Tensor, "B C"], discrete: Int[Tensor, "B D"]
    ) -> Float[Tensor, " B"]:
        """Of raw continuous actions, as a density over [-1, 1], and branch choices together."""
        # At ±1 itself the density of tanh(u) is not defined.
        action = (continuous / CONTINUOUS_LIMIT).clamp(-1.0 + 1e-6, 1.0 - 1e-6)
        u = torch.atanh(action)
        noise = (u - self.mean) * torch.exp(-self.log_std)
        total = self._log_density(noise, u).sum(dim=1)
        return reduce(torch.add, self._of_u.choice_log_probs(discrete), total)

    @property
    def _of_u(self) -> ActionDistribution:
        return ActionDistribution(self.mean, self.log_std, self.log_probs)

    def entropy(self, discrete: Int[Tensor, "B D"] | None = None) -> Float[Tensor, ""]:
        """Mean over the agents, in nats; of u, because that of tanh(u) has no closed form."""
        of_agents = (self.log_std + (0.5 + _LOG_SQRT_2PI)).sum(dim=1)
        for log_probs in self.log_probs:
            of_agents = of_agents - (torch.exp(log_probs) * log_probs).sum(dim=1)
        return of_agents.mean()

    def _log_density(
        self, noise: Float[Tensor, "B C"], u: Float[Tensor, "B C"]
    ) -> Float[Tensor, "B C"]:
        """Of tanh(u): log N(u) − log(1 − tanh² u), the latter exact for large u, too."""
        normal = -0.5 * noise * noise - self.log_std - _LOG_SQRT_2PI
        # 1 − tanh² u = 4 / (e^u + e^−u)²; written so, its logarithm does not become log 0.
        softplus = torch.nn.functional.softplus(-2.0 * u)
        log_slope = 2.0 * (math.log(2.0) - u - softplus)
        return normal - log_slope


def masked_log_probs(
    logits: Float[Tensor, "B N"], allowed: Bool[Tensor, "B N"] | None
) -> Float[Tensor, "B N"]:
    """Log-probabilities of one branch; a choice that is not allowed has probability 0."""
    if allowed is not None:
        logits = logits.masked_fill(~allowed, FORBIDDEN)
    return torch.log_softmax(logits, dim=1)


def _drawn(p: Float[Tensor, "B N"], generator: torch.Generator) -> Int[Tensor, "B 1"]:
    """One choice for each agent with these probabilities.

    Of waiting times E_i / p_i, with independent E_i ~ Exp(1), the i-th is the shortest with
    probability p_i. `torch.multinomial` draws so, too, and takes twice as long over its checks.
    """
    if not math.isfinite(float(p.sum())):
        raise NonFiniteError("the network gave probabilities that are not numbers")
    waiting = torch.empty_like(p).exponential_(generator=generator)
    return (p / waiting).argmax(dim=1, keepdim=True)


def to_environment(continuous: Float[Tensor, "B C"]) -> Float[Tensor, "B C"]:
    """Raw continuous actions as worlds take them: in [-1, 1]."""
    limited = continuous.clamp(-CONTINUOUS_LIMIT, CONTINUOUS_LIMIT)
    return limited / CONTINUOUS_LIMIT


def _joined(parts: list[Tensor], num_agents: int) -> Int[Tensor, "B D"]:
    # `torch.cat` refuses an empty list.
    if not parts:
        return torch.zeros((num_agents, 0), dtype=torch.int64)
    return torch.cat(parts, dim=1)
