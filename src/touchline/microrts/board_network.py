"""The policy and value network of behaviors that order the units of a board.

It looks at the whole board through a bottleneck, and at every idle unit's surroundings in full
resolution. An encoder-decoder (Huang et al. 2021, "Gym-µRTS", arXiv:2105.13807) computes the same
for all cells. Hardly any cell has a unit to order, so computing features only for those takes a
quarter of the time and trains on processor cores.

This module runs on any device. On a processor core, while no gradients are recorded, it takes the
faster way of `fast_pass`, which is held to this one by tests.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import relu, unfold

from touchline.errors import UsageError
from touchline.microrts.cells import Cells
from touchline.microrts.fast_pass import (
    FusedChoice,
    FusedForward,
    FusedOrders,
    FusedWeights,
    Overview,
    Windows,
)
from touchline.microrts.order_distributions import (
    PerUnitActions,
    StagedUnitAction,
    Units,
    have_a_choice,
    orders_of_cells,
)
from touchline.microrts.rules import ATTACK_REACH, CHOICES
from touchline.policies.distributions import FORBIDDEN
from touchline.policies.nets.memory import Sequences
from touchline.policies.network import (
    Actor,
    Architecture,
    Distribution,
    Obs,
    OutputGradients,
)
from touchline.specs import BehaviorSpec

_AROUND = slice(-ATTACK_REACH, ATTACK_REACH + 1)
# Both [49]: the cells around a unit as far as an attack reaches, row by row. By NumPy, because
# this module may be imported while torch makes tensors without memory.
_DY, _DX = torch.from_numpy(np.mgrid[_AROUND, _AROUND]).reshape(2, -1)


class BoardActorCritic(nn.Module):
    """A policy and its value function, which share their features of the whole board."""

    normalizer: None = None
    memory_shape: None = None
    no_onnx = "microRTS is no game of Unity's; the checkpoint holds the policy"
    see_inside: Float[Tensor, "outputs 9"]
    """Which places of the windows of `see` are on the board: 1 or 0."""
    around_inside: Float[Tensor, "cells 49"]
    """Likewise for the surroundings of each cell."""

    def __init__(
        self, spec: BehaviorSpec, architecture: Architecture, num_signals: int = 1
    ) -> None:
        super().__init__()
        if architecture.normalize:
            raise UsageError(
                "network_settings.normalize: a board is one-hot already; set it to false"
            )
        if architecture.memory_size:
            raise UsageError(
                "network_settings.memory: policies over boards have none; leave it out"
            )
        if architecture.squashed:
            raise UsageError("boards have no squashed actions; change trainer_type")
        self.spec = spec
        self.architecture = architecture
        self.num_signals = num_signals
        planes, height, width = spec.observation_specs[0].shape
        hidden_units = architecture.hidden_units
        # Of the whole board: two convolutions that halve its sides, and a layer over all of it.
        channels = max(16, hidden_units // 8)
        num_places = -(-height // 4) * -(-width // 4)  # rounded up
        self.see = _initialized(nn.Conv2d(planes, channels, 3, stride=2, padding=1))
        self.deeper = _initialized(
            nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1)
        )
        self.overview = _initialized(nn.Linear(2 * channels * num_places, hidden_units))
        # Numbers in addition to the board, as the option `economy` observes them.
        num_numbers = sum(
            sensor.shape[0]
            for sensor in spec.observation_specs[1:]
            if len(sensor.shape) == 1
        )
        self.numbers = (
            _initialized(nn.Linear(num_numbers, hidden_units)) if num_numbers else None
        )
        # Of a unit: its surroundings, its cell and the whole board, added together.
        features = max(32, hidden_units // 2)
        self.around = _initialized(nn.Linear(len(_DY) * planes, features))
        self.place = nn.Parameter(torch.zeros(height * width, features))
        self.everywhere = _initialized(nn.Linear(hidden_units, features))
        # Small gains: the first policy chooses nearly uniformly.
        self.order = nn.Sequential(
            _initialized(nn.Linear(features, 2 * features)),
            nn.ReLU(),
            _initialized(nn.Linear(2 * features, CHOICES), gain=0.01),
        )
        is_staged = spec.action_spec.staged
        self.point = (
            _initialized(nn.Linear(features, 1), gain=0.01) if is_staged else None
        )
        self.critic = _initialized(nn.Linear(hidden_units, num_signals), gain=1.0)
        self.cells = Cells(planes)
        self._see_height = -(-height // 2)
        """Rows of the output of `see`."""
        see_inside = _inside(height, width, reach=1, stride=2)
        around_inside = _inside(height, width, reach=ATTACK_REACH, stride=1)
        # Not in checkpoints, because the board's size gives them.
        self.register_buffer("see_inside", see_inside, persistent=False)
        self.register_buffer("around_inside", around_inside, persistent=False)

    @property
    def has_gradient(self) -> bool:
        """Whether `gradient` can be called: on a processor core."""
        return self.place.is_cpu

    def resized(
        self, spec: BehaviorSpec, weights: Mapping[str, Tensor]
    ) -> dict[str, Tensor] | None:
        """As `TakesOtherSizes.resized`: from a board of another size.

        Each cell takes the vector of the nearest cell on the other board. The overview is a sum
        over places, which lie on top of each other when both boards are drawn in one size: each
        new one takes the share of an old one's weights that it covers. A policy of 8x8 so begins
        on 16x16 with what it knows of units and their surroundings.
        """
        if not _is_other_size(spec, self.spec):
            return None
        old, new = _size(spec), _size(self.spec)
        found = dict(weights)
        nearest_row, nearest_column = (
            torch.arange(there) * here // there
            for here, there in zip(old, new, strict=True)
        )
        place = weights["place"].view(*old, -1)
        found["place"] = place[nearest_row[:, None], nearest_column].flatten(0, 1)
        old_places, new_places = (
            [-(-side // 4) for side in board] for board in (old, new)
        )
        rows, columns = map(_shares, old_places, new_places)
        features = len(weights["overview.bias"])
        overview = weights["overview.weight"].view(features, -1, *old_places)
        found["overview.weight"] = (rows @ overview @ columns.t()).flatten(1)
        return found

    def normalized(self, obs: Obs) -> Obs:
        """The board as codes [..., H, W], unless `compact` has done that already."""
        # Nothing needs to be normalized: a board is one-hot.
        vectors, board = obs
        return vectors, self._coded(board)

    def compact(self, obs: tuple[NDArray[Any], ...]) -> tuple[NDArray[Any], ...]:
        """Boards as codes, which take a 54th of the memory."""
        # Where memory grows fast, JPype makes Java collect its garbage, which took as long as an
        # update of PPO.
        return tuple(self._compact(part) if part.ndim >= 4 else part for part in obs)

    def _compact(self, board: NDArray[Any]) -> NDArray[Any]:
        on_device = torch.from_numpy(board).to(self.place.device)
        return self._coded(on_device).numpy(force=True)

    def _coded(self, board: Tensor) -> Int[Tensor, "*B H W"]:
        return self.cells.codes(board) if board.is_floating_point() else board

    def forward(
        self,
        obs: Obs,
        allowed: Bool[Tensor, "B M"] | None,
        sequences: Sequences | None = None,  # noqa: ARG002
    ) -> tuple[Distribution, Float[Tensor, "B S"]]:
        """Distribution and values.

        Where actions are staged, `allowed` holds for the later branches after the first.
        """
        allowed = _required(allowed)
        if self._can_fuse:
            fused = self._fused(self._fused_weights(), obs, allowed, None)
            return fused, fused.value
        board = self.cells.planes(obs[1])
        overview = self._look_at(board, obs[0])
        distribution = self._distribution(board, overview, allowed, None)
        return distribution, self.critic(overview)

    def gradient(
        self,
        obs: Obs,
        allowed: Bool[Tensor, "B M"] | None,
        actions: tuple[Tensor, Tensor],
        output_gradients: OutputGradients,
        entropy_gradient: float,
        out: Sequence[Tensor],
        products: torch.dtype | None = None,  # noqa: ARG002
    ) -> None:
        """As `Network.gradient`, always in float32; only while no gradients are recorded."""
        fused = self._fused(self._fused_weights(), obs, _required(allowed), None)
        _, discrete = actions
        fused.gradient(discrete, output_gradients, entropy_gradient, out)

    def step(
        self, obs: Obs, allowed: Tensor | None, memory: Tensor
    ) -> tuple[Distribution, Tensor, Tensor]:
        """Part of `Network`, for networks with a memory; this one has none."""
        raise NotImplementedError("a policy over a board has no memory to step")

    def distribution(
        self,
        obs: Obs,
        allowed: Bool[Tensor, "B M"] | None,
        second: Bool[Tensor, "B F R"] | None = None,
    ) -> Distribution:
        """The actor alone. To act, staged actions need the second-stage mask."""
        if self._can_fuse:
            return self.actor()(obs, allowed, second)
        board = self.cells.planes(obs[1])
        overview = self._look_at(board, obs[0])
        return self._distribution(board, overview, _required(allowed), second)

    def actor(self) -> Actor:
        """`distribution` for many calls, until the weights change."""
        if not self._can_fuse:
            return self.distribution
        weights = self._fused_weights()

        def act(
            obs: Obs, allowed: Tensor | None, second: Tensor | None = None
        ) -> Distribution:
            return self._fused(weights, obs, _required(allowed), second)

        return act

    def value(self, obs: Obs) -> Float[Tensor, "B S"]:
        """The critic alone."""
        if self._can_fuse:
            return Overview(self._fused_weights(), obs).value
        overview = self._look_at(self.cells.planes(obs[1]), obs[0])
        value: Tensor = self.critic(overview)
        return value

    @property
    def _can_fuse(self) -> bool:
        return self.has_gradient and not torch.is_grad_enabled()

    def _fused(
        self,
        weights: FusedWeights,
        obs: Obs,
        allowed: Bool[Tensor, "B M"],
        second: Bool[Tensor, "B cells choices"] | None,
    ) -> FusedForward:
        if self.point is None:
            return FusedOrders(weights, obs, allowed)
        return FusedChoice(weights, obs, allowed, second)

    def _fused_weights(self) -> FusedWeights:
        windows = Windows(self.see_inside, self.around_inside, self._see_height)
        return FusedWeights(dict(self.named_parameters()), self.cells, windows)

    def _look_at(
        self, board: Float[Tensor, "B P H W"], numbers: Float[Tensor, "B V"]
    ) -> Float[Tensor, "B G"]:
        """Features of whole boards, and of the numbers next to them."""
        half = relu(self.see(board))
        quarter = relu(self.deeper(half))
        overview = self.overview(quarter.flatten(1))
        if self.numbers is not None:
            overview = overview + self.numbers(numbers)
        return relu(overview)

    def _unit_features(
        self,
        board: Float[Tensor, "B P H W"],
        overview: Float[Tensor, "B G"],
        units: Units,
    ) -> Float[Tensor, "K F"]:
        """Features of units, from their surroundings, their cell and the whole board."""
        row, cell = units
        planes, height, width = board.shape[1:]
        own_y = torch.div(cell, width, rounding_mode="floor")
        own_x = cell % width
        y = own_y[:, None] + _DY.to(cell.device)  # [K, 49]
        x = own_x[:, None] + _DX.to(cell.device)
        is_in_rows = (y >= 0) & (y < height)
        is_in_columns = (x >= 0) & (x < width)
        is_inside = is_in_rows & is_in_columns
        # Cells outside read one at the edge, which `is_inside` then discards.
        y = y.clamp(0, height - 1)
        x = x.clamp(0, width - 1)
        place = (row[:, None] * height + y) * width + x
        # No copy: `Cells.planes` has the planes last in memory.
        cells = board.movedim(1, -1).reshape(-1, planes)  # [B * H * W, P]
        around = cells.index_select(0, place.flatten()).view(*place.shape, planes)
        # [K, 49, P], all zero outside the board
        around = around * is_inside[:, :, None]
        features = self.around(around.flatten(1)) + self.place[cell]
        return relu(features + self.everywhere(overview)[row])

    def _distribution(
        self,
        board: Float[Tensor, "B P H W"],
        overview: Float[Tensor, "B G"],
        allowed: Bool[Tensor, "B M"],
        second: Bool[Tensor, "B cells choices"] | None,
    ) -> Distribution:
        num_cells = len(self.place)
        if self.point is None:
            orders = orders_of_cells(allowed)
            units = torch.nonzero(have_a_choice(orders), as_tuple=True)
            logits = self.order(self._unit_features(board, overview, units))
            return PerUnitActions(logits, orders[units], units, orders.shape[:2])
        units = torch.nonzero(allowed[:, :num_cells], as_tuple=True)
        features = self._unit_features(board, overview, units)
        # Not -∞, which the entropy would multiply by a probability of 0 to NaN.
        no_scores = features.new_full((len(board), num_cells), FORBIDDEN)
        cell_scores = no_scores.index_put(units, self.point(features)[:, 0])
        order_mask = allowed[:, num_cells:]
        return StagedUnitAction(
            self.order, features, units, cell_scores, order_mask, second
        )


def _required(allowed: Bool[Tensor, "B M"] | None) -> Bool[Tensor, "B M"]:
    if allowed is None:
        raise UsageError("orders to units cannot be drawn without masks")
    return allowed


def _is_other_size(one: BehaviorSpec, other: BehaviorSpec) -> bool:
    """Whether two behaviors differ in the size of their boards alone."""

    def but_for_size(spec: BehaviorSpec) -> tuple[Any, ...]:
        board, *others = (sensor.shape for sensor in spec.observation_specs)
        return board[0], others, spec.action_spec.staged, spec.network

    is_alike = but_for_size(one) == but_for_size(other)
    return is_alike and _size(one) != _size(other)


def _size(spec: BehaviorSpec) -> tuple[int, ...]:
    """Height and width of a behavior's board."""
    return spec.observation_specs[0].shape[1:]


def _shares(old: int, new: int) -> Float[Tensor, "new old"]:
    """How much of each of `old` equal pieces of a line lies in each of `new` equal pieces of it."""
    old_start, new_start = torch.arange(old) / old, torch.arange(new)[:, None] / new
    start = torch.maximum(old_start, new_start)
    end = torch.minimum(old_start + 1 / old, new_start + 1 / new)
    return (end - start).clamp(min=0.0) * old


def _inside(
    height: int, width: int, reach: int, stride: int
) -> Float[Tensor, "windows places"]:
    """Which places of square windows, moved by `stride`, are on the board: 1 or 0."""
    # The padding of a board of ones is 0, so each window shows which of its places are inside.
    board = torch.ones(1, 1, height, width)
    size = 2 * reach + 1
    windows: Tensor = unfold(board, size, padding=reach, stride=stride)[0]
    return windows.t().contiguous()  # from [places, windows]


def _initialized(module: nn.Conv2d | nn.Linear, gain: float = 2**0.5) -> nn.Module:
    """The layer with orthogonal weights and zero biases, as PPO implementations commonly start."""
    nn.init.orthogonal_(module.weight, gain)
    assert module.bias is not None
    nn.init.zeros_(module.bias)
    return module
