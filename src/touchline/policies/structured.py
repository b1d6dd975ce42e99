"""Policies over a board of units: which unit and which order (staged actions), or an order for every cell.

They answer the same calls as `ActorCritic`, so the learner need not know. What makes them different is what
counts: log-probability and entropy run over the parts of an order that its type reads, and over cells that
hold an idle unit. Everything else is noise that the engine ignores.

The network is a small encoder-decoder: it sees each cell at full resolution and the whole board through a
bottleneck, as in Huang et al. 2021, "Gym-µRTS", arXiv:2105.13807, in a size that processor cores can train.
"""

from __future__ import annotations

from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from touchline.envs.microrts.rules import CHOICES, FIRST_CHOICE, PARTS, READ_PARTS
from touchline.errors import UsageError
from touchline.policies.distributions import masked_log_probs
from touchline.policies.encoders import Obs
from touchline.policies.memory import Sequences
from touchline.policies.networks import ActorCritic, Architecture, RunningNormalizer
from touchline.specs import ActionSpec, BehaviorSpec

_READS = torch.from_numpy(READ_PARTS).float()
_NUM_PARTS = len(PARTS)


class Distribution(Protocol):
    """What a learner asks of a distribution over actions; continuous parts are raw."""

    def sample(self, generator: torch.Generator) -> tuple[Float[Tensor, "B C"], Int[Tensor, "B D"]]: ...

    def mode(self) -> tuple[Float[Tensor, "B C"], Int[Tensor, "B D"]]: ...

    def log_prob(self, continuous: Float[Tensor, "B C"], discrete: Int[Tensor, "B D"]) -> Float[Tensor, " B"]: ...

    def entropy(self, discrete: Int[Tensor, "B D"] | None = None) -> Float[Tensor, ""]: ...


class Network(Protocol):
    """What a learner asks of a network; `step` only where `memory_shape` says that there is a memory."""

    spec: BehaviorSpec
    normalizer: RunningNormalizer | None

    @property
    def memory_shape(self) -> tuple[int, int] | None: ...

    def normalized(self, obs: Obs) -> Obs: ...

    def __call__(
        self, obs: Obs, allowed: Tensor | None, sequences: Sequences | None = None
    ) -> tuple[Distribution, Tensor]: ...

    def step(self, obs: Obs, allowed: Tensor | None, memory: Tensor) -> tuple[Distribution, Tensor, Tensor]: ...

    def distribution(self, obs: Obs, allowed: Tensor | None) -> Distribution: ...

    def value(self, obs: Obs) -> Tensor: ...


def is_board(spec: BehaviorSpec) -> bool:
    """Whether a behavior orders the units of a board: the unit or the grid form of MicroRTS."""
    shape, actions = spec.observation_specs[0].shape, spec.action_spec
    if len(spec.observation_specs) != 1 or len(shape) != 3:
        return False
    cells = shape[1] * shape[2]
    return actions == ActionSpec(0, (cells, *PARTS), staged=True) or actions.discrete_branches == PARTS * cells


def make_network(spec: BehaviorSpec, architecture: Architecture) -> ActorCritic | BoardActorCritic:
    """The network that fits a behavior."""
    if is_board(spec):
        if architecture.normalize:
            raise UsageError("network_settings.normalize: a board is one-hot already; set it to false")
        if architecture.memory_size:
            raise UsageError("network_settings.memory: policies over boards have none; leave it out")
        return BoardActorCritic(spec, hidden_units=architecture.hidden_units)
    return ActorCritic(spec, architecture)


class BoardActorCritic(nn.Module):
    """A policy and its value function that share what they see of the board."""

    normalizer: None = None
    memory_shape: None = None

    def __init__(self, spec: BehaviorSpec, *, hidden_units: int) -> None:
        super().__init__()
        self.spec = spec
        self._is_staged = spec.action_spec.staged
        planes, height, width = spec.observation_specs[0].shape
        channels = max(16, hidden_units // 8)
        self.see = _layer(nn.Conv2d(planes, channels, 3, padding=1))
        self.down = _layer(nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1))
        self.deeper = _layer(nn.Conv2d(2 * channels, 2 * channels, 3, stride=2, padding=1))
        self.overview = _layer(nn.Linear(2 * channels * -(-height // 4) * -(-width // 4), hidden_units))
        self.up = _layer(nn.Conv2d(2 * channels, 2 * channels, 1))
        self.out = _layer(nn.Conv2d(2 * channels, channels, 1))
        self.near = _layer(nn.Conv2d(channels, channels, 3, padding=1))
        self.everywhere = _layer(nn.Linear(hidden_units, channels))
        self.order = nn.Sequential(
            _layer(nn.Linear(channels, 4 * channels)), nn.ReLU(), _layer(nn.Linear(4 * channels, CHOICES), gain=0.01)
        )
        self.point = _layer(nn.Linear(channels, 1), gain=0.01) if self._is_staged else None
        self.critic = _layer(nn.Linear(hidden_units, 1), gain=1.0)

    def normalized(self, obs: Obs) -> Obs:
        """A board is one-hot: nothing to do."""
        return obs

    def forward(
        self,
        obs: Obs,
        allowed: Bool[Tensor, "B M"] | None,
        sequences: Sequences | None = None,  # noqa: ARG002
    ) -> tuple[Distribution, Float[Tensor, " B"]]:
        """Distribution and value. Where actions are staged, `allowed` holds for the later branches after the first."""
        cells, value = self._look(obs[1])
        return self._distribution(cells, allowed, None), value

    def step(self, obs: Obs, allowed: Tensor | None, memory: Tensor) -> tuple[Distribution, Tensor, Tensor]:
        """Boards are seen whole: there is no memory, and `memory_shape` None keeps learners from asking."""
        raise NotImplementedError("a policy over a board has no memory to step")

    def distribution(
        self, obs: Obs, allowed: Bool[Tensor, "B M"] | None, second: Bool[Tensor, "B F R"] | None = None
    ) -> Distribution:
        """The actor alone. To act, staged actions need the second-stage mask."""
        return self._distribution(self._look(obs[1])[0], allowed, second)

    def value(self, obs: Obs) -> Float[Tensor, " B"]:
        """The critic alone."""
        return self._look(obs[1])[1]

    def _look(self, board: Float[Tensor, "B P H W"]) -> tuple[Float[Tensor, "B cells F"], Float[Tensor, " B"]]:
        relu = functional.relu
        fine = relu(self.see(board))
        half = relu(self.down(fine))
        quarter = relu(self.deeper(half))
        overview = relu(self.overview(quarter.flatten(1)))
        half = relu(_doubled(self.up(quarter), half) + half)
        fine = relu(_doubled(self.out(half), fine) + fine)
        cells = relu(self.near(fine) + self.everywhere(overview)[:, :, None, None])
        return cells.flatten(2).transpose(1, 2), self.critic(overview)[:, 0]

    def _distribution(
        self, cells: Float[Tensor, "B cells F"], allowed: Bool[Tensor, "B M"] | None, second: Tensor | None
    ) -> Distribution:
        if allowed is None:
            raise UsageError("orders to units cannot be drawn without masks")
        if self.point is None:
            return EveryCell(self, cells, allowed.view(*cells.shape[:2], CHOICES))
        first = masked_log_probs(self.point(cells)[:, :, 0], allowed[:, : cells.shape[1]])
        return OneUnit(self, cells, first, allowed[:, cells.shape[1] :], second)


class OneUnit:
    """Staged actions: a cell, then the order of the unit there."""

    def __init__(
        self,
        network: BoardActorCritic,
        cells: Float[Tensor, "B cells F"],
        first: Float[Tensor, "B cells"],
        later: Bool[Tensor, "B choices"],
        second: Bool[Tensor, "B cells choices"] | None,
    ) -> None:
        self._network, self._cells, self._first, self._later, self._second = network, cells, first, later, second

    def sample(self, generator: torch.Generator) -> tuple[Tensor, Int[Tensor, "B D"]]:
        return self._drawn(generator)

    def mode(self) -> tuple[Tensor, Int[Tensor, "B D"]]:
        return self._drawn(None)

    def log_prob(self, continuous: Tensor, discrete: Int[Tensor, "B D"]) -> Float[Tensor, " B"]:  # noqa: ARG002
        orders = self._orders(discrete[:, 0], self._later)
        first = self._first.gather(1, discrete[:, :1])[:, 0]
        return first + _log_prob_of_read(orders, discrete[:, 1:])

    def entropy(self, discrete: Int[Tensor, "B D"] | None = None) -> Float[Tensor, ""]:
        """Of the choice of a cell, and of the order of the unit that was chosen: right in the mean over choices."""
        total = _entropy(self._first)
        if discrete is not None:
            total = total + _entropy_of_read(self._orders(discrete[:, 0], self._later))
        return total.mean()

    def _drawn(self, generator: torch.Generator | None) -> tuple[Tensor, Int[Tensor, "B D"]]:
        if self._second is None:
            raise UsageError("to act, staged actions need the second-stage mask")
        cell = _pick(self._first, generator)
        orders = self._orders(cell, self._second[torch.arange(len(cell)), cell])
        parts = torch.stack([_pick(part, generator) for part in orders], dim=1)
        return self._cells.new_zeros(len(cell), 0), torch.cat([cell[:, None], parts], dim=1)

    def _orders(self, cell: Int[Tensor, " B"], mask: Bool[Tensor, "B choices"]) -> list[Tensor]:
        return _orders(self._network, self._cells[torch.arange(len(cell)), cell], mask)


class EveryCell:
    """An order for each cell; only those of idle units are drawn, the others are nought."""

    def __init__(
        self,
        network: BoardActorCritic,
        cells: Float[Tensor, "B cells F"],
        allowed: Bool[Tensor, "B cells choices"],
    ) -> None:
        self._shape = cells.shape[:2]
        # A unit that may only do nothing has no choice either: it is left out like an empty cell.
        self._at = torch.nonzero(allowed[:, :, FIRST_CHOICE[0] + 1 : PARTS[0]].any(dim=2), as_tuple=True)
        self._orders = _orders(network, cells[self._at], allowed[self._at])

    def sample(self, generator: torch.Generator) -> tuple[Tensor, Int[Tensor, "B D"]]:
        return self._drawn(generator)

    def mode(self) -> tuple[Tensor, Int[Tensor, "B D"]]:
        return self._drawn(None)

    def log_prob(self, continuous: Tensor, discrete: Int[Tensor, "B D"]) -> Float[Tensor, " B"]:  # noqa: ARG002
        parts = discrete.view(*self._shape, _NUM_PARTS)[self._at]
        return self._summed(_log_prob_of_read(self._orders, parts))

    def entropy(self, discrete: Int[Tensor, "B D"] | None = None) -> Float[Tensor, ""]:  # noqa: ARG002
        """Summed over a board's idle units, mean over boards."""
        return self._summed(_entropy_of_read(self._orders)).mean()

    def _drawn(self, generator: torch.Generator | None) -> tuple[Tensor, Int[Tensor, "B D"]]:
        parts = torch.stack([_pick(part, generator) for part in self._orders], dim=1)
        actions = torch.zeros((*self._shape, _NUM_PARTS), dtype=torch.int64)
        actions[self._at] = parts
        return parts.new_zeros((self._shape[0], 0), dtype=torch.float32), actions.flatten(1)

    def _summed(self, each: Float[Tensor, " K"]) -> Float[Tensor, " B"]:
        return each.new_zeros(self._shape[0]).index_add(0, self._at[0], each)


def _orders(network: BoardActorCritic, cells: Float[Tensor, "K F"], mask: Bool[Tensor, "K choices"]) -> list[Tensor]:
    """Log-probabilities [K, choices] of each part of these units' orders."""
    logits, masks = (torch.split(x, list(PARTS), dim=1) for x in (network.order(cells), mask))
    return [masked_log_probs(part, allowed) for part, allowed in zip(logits, masks, strict=True)]


def _log_prob_of_read(orders: list[Tensor], parts: Int[Tensor, "K D"]) -> Float[Tensor, " K"]:
    each = torch.stack([order.gather(1, parts[:, i : i + 1])[:, 0] for i, order in enumerate(orders)], dim=1)
    return (each * _READS[parts[:, 0]]).sum(dim=1)


def _entropy_of_read(orders: list[Tensor]) -> Float[Tensor, " K"]:
    """H(type) + Σ P(the type reads the part) H(part): parts are drawn independently of the type."""
    reads = orders[0].exp() @ _READS
    return (torch.stack([_entropy(order) for order in orders], dim=1) * reads).sum(dim=1)


def _entropy(log_probs: Float[Tensor, "K N"]) -> Float[Tensor, " K"]:
    return -(log_probs.exp() * log_probs).sum(dim=1)


def _pick(log_probs: Float[Tensor, "K N"], generator: torch.Generator | None) -> Int[Tensor, " K"]:
    """A drawn choice (Gumbel's trick: faster than multinomial), or without a generator the most likely one."""
    if generator is None:
        return log_probs.argmax(dim=1)
    uniform = torch.rand(log_probs.shape, generator=generator).clamp_(1e-20, 1.0 - 1e-7)
    return (log_probs - torch.log(-torch.log(uniform))).argmax(dim=1)


def _doubled(coarse: Float[Tensor, "B F h w"], like: Float[Tensor, "B F H W"]) -> Float[Tensor, "B F H W"]:
    """Every cell twice in both directions, cut to the size of `like`; half the cost of torch's interpolate here."""
    height, width = like.shape[2:]
    return coarse.repeat_interleave(2, 2).repeat_interleave(2, 3)[:, :, :height, :width]


def _layer(module: nn.Conv2d | nn.Linear, gain: float = 2**0.5) -> nn.Module:
    nn.init.orthogonal_(module.weight, gain)
    assert module.bias is not None
    nn.init.zeros_(module.bias)
    return module
