"""A faster forward and backward pass of `BoardActorCritic` on a processor core.

It gives the numbers of the plain way in `board_network` and `order_distributions` in a third of the
time (0.6 of it in grid form); tests hold it to autograd. Three things make the difference:

- Hardly any cell of a board holds anything. A layer over planes is what an empty board gives, plus
  what the other cells add.
- Only allowed choices are evaluated.
- The gradient is written out, so that nothing needs to be recorded for it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from touchline.errors import UsageError
from touchline.microrts import fast_kernels as kernels
from touchline.microrts.cells import Cells
from touchline.microrts.order_distributions import (
    CHOICE_TYPE,
    have_a_choice,
    orders_of_cells,
)
from touchline.microrts.rules import CHOICES, PARTS
from touchline.policies.network import Obs, OutputGradients

# The gradient of ReLU: where its output was above 0.
_relu_backward = torch.ops.aten.threshold_backward

Gradients = Mapping[str, Tensor]
"""A gradient per parameter of `BoardActorCritic`, by its name."""


class _Layer(NamedTuple):
    """A linear layer."""

    name: str
    bias: Float[Tensor, " O"]
    weight: Float[Tensor, "I O"]


class Windows(NamedTuple):
    """Which places of the network's windows are on the board; see `BoardActorCritic`."""

    see_inside: Float[Tensor, "outputs 9"]
    around_inside: Float[Tensor, "cells places"]
    see_height: int
    """Rows of the output of `see`."""


class FusedWeights:
    """The weights of a network as the passes take them.

    They are arranged once for many passes, and valid until the weights change.
    """

    def __init__(
        self, parameters: Mapping[str, Tensor], cells: Cells, windows: Windows
    ) -> None:
        """`parameters` are those of a `BoardActorCritic`, by their names."""
        self.names = list(parameters)
        self.empty_plane = cells.empty_plane
        self.planes_of_code = cells.planes_of_code
        self.windows = windows

        weight = parameters["see.weight"]
        bias = parameters["see.bias"]
        by_place = weight.flatten(2).transpose(1, 2)  # [F, 9, planes]
        self.see = _arranged(by_place, self.empty_plane)
        see_empty = torch.addmm(bias, windows.see_inside, self.see[:, 0])
        self.see_empty = see_empty.view(windows.see_height, -1)  # [h, w F]
        """What `see` gives for an empty board."""

        weight = parameters["around.weight"]
        bias = parameters["around.bias"]
        by_place = weight.view(len(bias), -1, len(self.empty_plane))  # [F, 49, planes]
        self.around = _arranged(by_place, self.empty_plane)
        around_empty = torch.addmm(bias, windows.around_inside, self.around[:, 0])
        self.around_empty = around_empty + parameters["place"]
        """What each cell's surroundings and place give on an empty board."""

        def layer(name: str) -> _Layer:
            weight = parameters[f"{name}.weight"]
            return _Layer(name, parameters[f"{name}.bias"], weight.t())

        # Patches have channels last, so the weight of the second convolution gets them last, too.
        channels_last = parameters["deeper.weight"].movedim(1, -1)
        deeper = channels_last.flatten(1).t()
        self.deeper = _Layer("deeper", parameters["deeper.bias"], deeper)
        self.overview = layer("overview")
        self.everywhere = layer("everywhere")
        self.hidden = layer("order.0")
        self.order = layer("order.2")
        self.critic = layer("critic")
        self.point = layer("point") if "point.weight" in parameters else None
        """Scores of units where one is chosen; None where every unit gets an order."""
        self.numbers = layer("numbers") if "numbers.weight" in parameters else None
        """The layer of the numbers next to a board, if there are any."""


class Overview:
    """Features of whole boards, and their values."""

    def __init__(self, weights: FusedWeights, obs: Obs) -> None:
        self._weights = weights
        self._numbers, self._boards = obs
        boards = self._boards
        (height, row) = weights.see_empty.shape
        channels = weights.see.shape[2]
        # With a border of one place, which is the padding of the second convolution.
        self._seen = torch.zeros(len(boards), height + 2, row + 2 * channels)
        kernels.see_forward(
            *_arrays(
                boards,
                weights.planes_of_code,
                weights.see,
                weights.see_empty,
                self._seen,
            )
        )
        width = row // channels
        patch_rows = (height + 1) // 2
        patch_columns = (width + 1) // 2
        self._patch_shape = (len(boards), patch_rows, patch_columns, 3, 3 * channels)
        self._patches = self._cut_patches()
        deep = _linear(weights.deeper, self._patches).relu_()
        # From channels last to channels first, as the layer `overview` was defined.
        deep = deep.view(len(boards), patch_rows * patch_columns, 2 * channels)
        self._deep = deep.transpose(1, 2).flatten(1)
        features = _linear(weights.overview, self._deep)
        if weights.numbers is not None:
            features += _linear(weights.numbers, self._numbers)
        self.features = features.relu_()
        self.value: Float[Tensor, "B S"] = _linear(weights.critic, self.features)

    def _cut_patches(self) -> Float[Tensor, "patches features"]:
        """The windows of the second convolution: views of three rows each, then one copy."""
        channels = self._weights.see.shape[2]
        board_stride, row_stride, _ = self._seen.stride()
        strides = (board_stride, 2 * row_stride, 2 * channels, row_stride, 1)
        windows = self._seen.as_strided(self._patch_shape, strides)
        return windows.flatten(3).flatten(0, 2)

    def backward(self, grad_features: Float[Tensor, "B G"], out: Gradients) -> None:
        """Write the gradients of `see`, `deeper`, `overview` and `numbers`."""
        weights = self._weights
        channels = self._weights.see.shape[2]
        grad_overview = _relu_backward(grad_features, self.features, 0)
        if weights.numbers is not None:
            _parameters_backward(weights.numbers, self._numbers, grad_overview, out)
        grad_deep = _linear_backward(weights.overview, self._deep, grad_overview, out)
        grad_deep = _relu_backward(grad_deep, self._deep, 0)
        _, patch_rows, patch_columns, _, _ = self._patch_shape
        grad_deep = grad_deep.view(
            len(grad_deep), 2 * channels, patch_rows * patch_columns
        )
        grad_deep = grad_deep.transpose(1, 2).flatten(0, 1)  # channels last again
        # The parameter has channels first, so this gradient is not written into `out` at once.
        deeper_weight = torch.empty(2 * channels, 9 * channels)
        by_place = {**out, "deeper.weight": deeper_weight}
        grad_patches = _linear_backward(
            weights.deeper, self._patches, grad_deep, by_place
        )
        channels_last = deeper_weight.view(2 * channels, 3, 3, channels)
        out["deeper.weight"].copy_(channels_last.movedim(-1, 1))
        self._see_backward(grad_patches, out)

    def _see_backward(
        self, grad_patches: Float[Tensor, "patches features"], out: Gradients
    ) -> None:
        weights = self._weights
        channels = self._weights.see.shape[2]
        grad_weights = torch.zeros_like(weights.see)
        grad_empty = torch.zeros_like(weights.see_empty)
        grad_seen = torch.empty(self._seen.shape[1:])
        kernels.see_backward(
            *_arrays(self._boards, weights.planes_of_code, self._seen),
            *_arrays(
                grad_patches.view(self._patch_shape),
                grad_seen,
                grad_weights,
                grad_empty,
            ),
        )
        grad_empty = grad_empty.view(-1, channels)
        # [F, 9, planes]
        grad_weight = out["see.weight"].view(channels, -1, 9).transpose(1, 2)
        _arranged_backward(
            grad_weights,
            grad_empty,
            weights.windows.see_inside,
            weights.empty_plane,
            grad_weight,
        )
        torch.sum(grad_empty, 0, out=out["see.bias"])


class _Orders(NamedTuple):
    """Orders of some units, and what the distribution says about them."""

    allowed: Bool[Tensor, "U choices"]
    orders: Int[Tensor, "U parts"]
    hidden: Float[Tensor, "U H"]
    log_probs: Float[Tensor, "U choices"]
    entropies: Float[Tensor, "U parts"]
    read_probs: Float[Tensor, "U parts"]
    """The probability of a type that reads the part."""


class _Evaluated(NamedTuple):
    """Choices, and what the distribution says about them."""

    discrete: Int[Tensor, "B D"]
    log_prob: Float[Tensor, " B"]
    entropy: Float[Tensor, " B"]
    orders: _Orders


class FusedForward(ABC):
    """A distribution over orders to units, the values, and the way back through the network.

    `FusedOrders` and `FusedChoice` say which units get an order.
    """

    def __init__(
        self, weights: FusedWeights, obs: Obs, idle: Bool[Tensor, "B cells"]
    ) -> None:
        """`idle` are the cells with units that may get an order."""
        self._weights = weights
        self._boards = obs[1]
        starts, cell = kernels.find_units(idle.numpy())
        self._starts = torch.from_numpy(starts)
        self._cell = torch.from_numpy(cell)
        self._overview = Overview(weights, obs)
        self.value = self._overview.value
        everywhere = _linear(weights.everywhere, self._overview.features)
        # The last row is no unit: boards without any choose it, so that no index is out of range.
        self._units = torch.zeros(len(self._cell) + 1, everywhere.shape[1])
        kernels.around_forward(
            *_arrays(self._boards, weights.planes_of_code, self._starts, self._cell),
            *_arrays(weights.around, weights.around_empty, everywhere, self._units),
        )
        self._evaluated: _Evaluated | None = None

    def sample(
        self, generator: torch.Generator
    ) -> tuple[Float[Tensor, "B 0"], Int[Tensor, "B D"]]:
        # Numbers for all cells and choices, as the plain way draws them.
        return self._draw(lambda *shape: torch.rand(shape, generator=generator))

    def mode(self) -> tuple[Float[Tensor, "B 0"], Int[Tensor, "B D"]]:
        # The same noise for every choice: the most likely ones win.
        return self._draw(lambda *shape: torch.full(shape, 0.5))

    def log_prob(
        self,
        continuous: Tensor,  # noqa: ARG002
        discrete: Int[Tensor, "B D"],
    ) -> Float[Tensor, " B"]:
        return self._evaluate(discrete).log_prob

    def entropy(self, discrete: Int[Tensor, "B D"] | None = None) -> Float[Tensor, ""]:
        """As `StagedUnitAction.entropy`; where a cell is chosen, the choices are needed."""
        assert discrete is not None
        return self._evaluate(discrete).entropy.mean()

    def gradient(
        self,
        discrete: Int[Tensor, "B D"],
        output_gradients: OutputGradients,
        entropy_gradient: float,
        out: Sequence[Tensor],
    ) -> None:
        """Write the gradient of every parameter, as `Network.gradient` does."""
        weights = self._weights
        grads = dict(zip(weights.names, out, strict=True))
        features = self._overview.features
        evaluated = self._evaluate(discrete)
        grad_log_prob, grad_value = output_gradients(evaluated.log_prob, self.value)
        # The entropy is a mean over boards.
        grad_entropy = entropy_gradient / max(len(discrete), 1)
        grad_units = self._choices_backward(
            evaluated, grad_log_prob, grad_entropy, grads
        )
        grad_everywhere = self._around_backward(grad_units, grads)
        grad_features = _linear_backward(
            weights.everywhere, features, grad_everywhere, grads
        )
        grad_features += _linear_backward(weights.critic, features, grad_value, grads)
        self._overview.backward(grad_features, grads)

    @abstractmethod
    def _draw(
        self, noise: Callable[..., Tensor]
    ) -> tuple[Float[Tensor, "B 0"], Int[Tensor, "B D"]]:
        """Actions from uniform numbers for every choice: `noise` makes them for a shape."""

    def _evaluate(self, discrete: Int[Tensor, "B D"]) -> _Evaluated:
        """Everything about these choices; kept, because learners use the same ones repeatedly."""
        if self._evaluated is None or self._evaluated.discrete is not discrete:
            self._evaluated = self._evaluated_now(discrete)
        return self._evaluated

    @abstractmethod
    def _evaluated_now(self, discrete: Int[Tensor, "B D"]) -> _Evaluated:
        """What `_evaluate` keeps."""

    @abstractmethod
    def _choices_backward(
        self,
        evaluated: _Evaluated,
        grad_log_prob: Float[Tensor, " B"],
        grad_entropy: float,
        out: Gradients,
    ) -> Float[Tensor, "K F"]:
        """Write the gradients of `order`, and of `point` if there is one.

        Returns the gradient by the units' features.
        """

    def _logits(
        self, features: Float[Tensor, "U F"]
    ) -> tuple[Float[Tensor, "U H"], Float[Tensor, "U choices"]]:
        """The hidden layer and the logits of some units' orders."""
        hidden = _linear(self._weights.hidden, features).relu_()
        return hidden, _linear(self._weights.order, hidden)

    def _evaluate_orders(
        self,
        features: Float[Tensor, "U F"],
        allowed: Bool[Tensor, "U choices"],
        orders: Int[Tensor, "U parts"],
        log_prob: Float[Tensor, " U"],
        entropy: Float[Tensor, " U"],
    ) -> _Orders:
        """Add log-probability and entropy of these orders to the last two."""
        hidden, logits = self._logits(features)
        entropies, read_probs = torch.empty(2, *orders.shape)
        kernels.evaluate_orders(
            *_arrays(logits, allowed, orders, entropies, read_probs),
            *_arrays(log_prob, entropy),
        )
        return _Orders(allowed, orders, hidden, logits, entropies, read_probs)

    def _orders_backward(
        self,
        of: _Orders,
        features: Float[Tensor, "U F"],
        grad_log_prob: Float[Tensor, " U"],
        grad_entropy: float,
        out: Gradients,
    ) -> Float[Tensor, "U F"]:
        """Write the gradients of `order`; returns the one by the units' features."""
        weights = self._weights
        grad_logits = torch.zeros_like(of.log_probs)
        kernels.evaluate_orders_backward(
            _number(grad_entropy),
            *_arrays(of.log_probs, of.allowed, of.orders),
            *_arrays(of.entropies, of.read_probs, grad_log_prob, grad_logits),
        )
        grad_hidden = _linear_backward(weights.order, of.hidden, grad_logits, out)
        grad_hidden = _relu_backward(grad_hidden, of.hidden, 0)
        return _linear_backward(weights.hidden, features, grad_hidden, out)

    def _around_backward(
        self, grad_units: Float[Tensor, "K F"], out: Gradients
    ) -> Float[Tensor, "B F"]:
        """Write the gradients of `around` and `place`; returns the one by what is added for all
        units of a board.
        """
        weights = self._weights
        grad_weights = torch.zeros_like(weights.around)
        grad_everywhere = torch.zeros(len(self._boards), self._units.shape[1])
        # What an empty board gives is the bias plus the place, so both have the same gradient.
        grad_place, grad_bias = out["place"], out["around.bias"]
        grad_place.zero_()
        kernels.around_backward(
            *_arrays(self._boards, weights.planes_of_code, self._starts, self._cell),
            *_arrays(
                self._units, grad_units, grad_weights, grad_place, grad_everywhere
            ),
        )
        empty_plane = weights.empty_plane
        grad_weight = out["around.weight"].view(len(grad_bias), -1, len(empty_plane))
        around_inside = weights.windows.around_inside
        _arranged_backward(
            grad_weights, grad_place, around_inside, empty_plane, grad_weight
        )
        torch.sum(grad_place, 0, out=grad_bias)
        return grad_everywhere


class FusedOrders(FusedForward):
    """An order for each idle unit, as `PerUnitActions`."""

    def __init__(
        self, weights: FusedWeights, obs: Obs, allowed: Bool[Tensor, "B M"]
    ) -> None:
        orders = orders_of_cells(allowed)
        can_act = have_a_choice(orders)
        super().__init__(weights, obs, can_act)
        self._shape = can_act.shape
        self._board, _ = can_act.nonzero(as_tuple=True)
        self._allowed = orders[self._board, self._cell]

    def entropy(self, discrete: Int[Tensor, "B D"] | None = None) -> Float[Tensor, ""]:
        if discrete is None:  # it is the same for all orders
            num_cells = self._shape[1]
            discrete = torch.zeros(
                self._shape[0], num_cells * len(PARTS), dtype=CHOICE_TYPE
            )
        return super().entropy(discrete)

    def _draw(
        self, noise: Callable[..., Tensor]
    ) -> tuple[Float[Tensor, "B 0"], Int[Tensor, "B D"]]:
        _, logits = self._logits(self._units[:-1])
        drawn = torch.zeros(len(logits), len(PARTS), dtype=torch.int64)
        uniform = noise(*logits.shape)
        kernels.draw_orders(*_arrays(logits, self._allowed, uniform, drawn))
        actions = torch.zeros(*self._shape, len(PARTS), dtype=CHOICE_TYPE)
        actions[self._board, self._cell] = drawn.to(CHOICE_TYPE)
        return torch.zeros(len(actions), 0), actions.flatten(1)

    def _evaluated_now(self, discrete: Int[Tensor, "B D"]) -> _Evaluated:
        of_cells = discrete.view(*self._shape, len(PARTS))
        orders = of_cells[self._board, self._cell].long()
        of_units = torch.zeros(2, len(orders))
        evaluated = self._evaluate_orders(
            self._units[:-1], self._allowed, orders, *of_units
        )
        of_boards = torch.zeros(2, len(discrete))
        of_boards.index_add_(1, self._board, of_units)
        log_prob, entropy = of_boards
        return _Evaluated(discrete, log_prob, entropy, evaluated)

    def _choices_backward(
        self,
        evaluated: _Evaluated,
        grad_log_prob: Float[Tensor, " B"],
        grad_entropy: float,
        out: Gradients,
    ) -> Float[Tensor, "K F"]:
        of_units = grad_log_prob[self._board]
        return self._orders_backward(
            evaluated.orders, self._units[:-1], of_units, grad_entropy, out
        )


class FusedChoice(FusedForward):
    """Staged actions: a cell, then the order of the unit there, as `StagedUnitAction`."""

    def __init__(
        self,
        weights: FusedWeights,
        obs: Obs,
        allowed: Bool[Tensor, "B M"],
        second: Bool[Tensor, "B cells choices"] | None = None,
    ) -> None:
        self._num_cells = len(weights.around_empty)
        super().__init__(weights, obs, allowed[:, : self._num_cells])
        self._order_mask = allowed[:, self._num_cells :]
        self._second = second
        assert weights.point is not None
        self._point = weights.point
        self._scores = _linear(self._point, self._units)[:-1, 0]
        self._unit_log_probs = self._scores
        """Those of the last choices that were evaluated."""
        self._unit_entropy = self._scores
        """Likewise, [B]."""

    def _draw(
        self, noise: Callable[..., Tensor]
    ) -> tuple[Float[Tensor, "B 0"], Int[Tensor, "B D"]]:
        if self._second is None:
            raise UsageError("to act, staged actions need the second-stage mask")
        num_boards = len(self._boards)
        for_cells = noise(num_boards, self._num_cells)
        for_orders = noise(num_boards, CHOICES)
        cell, chosen = torch.zeros(num_boards, dtype=torch.int64), self._no_units()
        kernels.draw_units(
            *_arrays(self._scores, self._starts, self._cell, for_cells, cell, chosen)
        )
        _, logits = self._logits(self._units[chosen])
        allowed = self._second[torch.arange(num_boards), cell]
        orders = torch.zeros(num_boards, len(PARTS), dtype=torch.int64)
        kernels.draw_orders(*_arrays(logits, allowed, for_orders, orders))
        actions = torch.cat([cell[:, None], orders], dim=1)
        return torch.zeros(num_boards, 0), actions

    def _evaluated_now(self, discrete: Int[Tensor, "B D"]) -> _Evaluated:
        chosen = self._chosen(discrete)
        log_prob, entropy = torch.empty(2, len(discrete))
        # A copy: the kernel turns scores into log-probabilities in place.
        self._unit_log_probs = self._scores.clone()
        kernels.evaluate_units(
            *_arrays(self._unit_log_probs, self._starts, chosen, log_prob, entropy)
        )
        self._unit_entropy = entropy.clone()
        orders = self._evaluate_orders(
            self._units[chosen], self._order_mask, discrete[:, 1:], log_prob, entropy
        )
        return _Evaluated(discrete, log_prob, entropy, orders)

    def _choices_backward(
        self,
        evaluated: _Evaluated,
        grad_log_prob: Float[Tensor, " B"],
        grad_entropy: float,
        out: Gradients,
    ) -> Float[Tensor, "K F"]:
        chosen = self._chosen(evaluated.discrete)
        grad_scores = torch.zeros(len(self._units), 1)
        kernels.evaluate_units_backward(
            _number(grad_entropy),
            *_arrays(self._unit_log_probs, self._starts, chosen),
            *_arrays(self._unit_entropy, grad_log_prob, grad_scores[:, 0]),
        )
        grad_units = _linear_backward(self._point, self._units, grad_scores, out)
        grad_chosen = self._orders_backward(
            evaluated.orders, self._units[chosen], grad_log_prob, grad_entropy, out
        )
        # Boards without a unit add to the last row, which nothing reads.
        return grad_units.index_add_(0, chosen, grad_chosen)

    def _chosen(self, discrete: Int[Tensor, "B D"]) -> Int[Tensor, " B"]:
        """The units at the first choices."""
        chosen = self._no_units()
        kernels.find_chosen(*_arrays(self._starts, self._cell, discrete, chosen))
        return chosen

    def _no_units(self) -> Int[Tensor, " B"]:
        """The number of the row of `_units` that is no unit, for each board."""
        return torch.full((len(self._boards),), len(self._cell))


def _number(value: float) -> Any:
    """A number in the precision of the default type: kernels compute in that of their arguments."""
    return torch.tensor(value).numpy()[()]


def _arrays(*tensors: Tensor) -> list[NDArray[Any]]:
    return [tensor.numpy() for tensor in tensors]


def _arranged(
    weight: Float[Tensor, "F places P"], empty_plane: Int[Tensor, " P"]
) -> Float[Tensor, "places P F"]:
    """See `fast_kernels.arrange_weight`."""
    size, places, planes = weight.shape
    arranged = torch.empty(places, planes, size)
    kernels.arrange_weight(*_arrays(weight.detach(), empty_plane, arranged))
    return arranged


def _arranged_backward(
    grad_arranged: Float[Tensor, "places P F"],
    grad_empty: Float[Tensor, "windows F"],
    inside: Float[Tensor, "windows places"],
    empty_plane: Int[Tensor, " P"],
    out: Float[Tensor, "F places P"],
) -> None:
    """The gradient by a weight, from those by what it was arranged to and by what an empty board
    gives.
    """
    torch.mm(inside.t(), grad_empty, out=grad_arranged[:, 0])
    kernels.arrange_weight_backward(*_arrays(grad_arranged, empty_plane, out))


def _linear(layer: _Layer, x: Float[Tensor, "B I"]) -> Float[Tensor, "B O"]:
    return torch.addmm(layer.bias, x, layer.weight)


def _linear_backward(
    layer: _Layer,
    x: Float[Tensor, "B I"],
    grad_output: Float[Tensor, "B O"],
    out: Gradients,
) -> Float[Tensor, "B I"]:
    """Write the gradients of a linear layer; returns the one by its input."""
    _parameters_backward(layer, x, grad_output, out)
    return torch.mm(grad_output, layer.weight.t())


def _parameters_backward(
    layer: _Layer,
    x: Float[Tensor, "B I"],
    grad_output: Float[Tensor, "B O"],
    out: Gradients,
) -> None:
    """Write the gradients of a linear layer."""
    torch.mm(grad_output.t(), x, out=out[f"{layer.name}.weight"])
    torch.sum(grad_output, 0, out=out[f"{layer.name}.bias"])
