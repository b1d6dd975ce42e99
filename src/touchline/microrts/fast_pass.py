"""A faster forward and backward pass of `BoardActorCritic`: the unit form on a processor core.

It gives the numbers of the plain way in `board_network` and `order_distributions` in a third of the
time; tests hold it to autograd. Three things make the difference:

- Hardly any cell of a board holds anything. A layer over planes is what an empty board gives, plus
  what the other cells add.
- Only allowed choices are evaluated.
- The gradient is written out, so that nothing needs to be recorded for it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from touchline.errors import UsageError
from touchline.microrts import fast_kernels as kernels
from touchline.microrts.cells import Cells
from touchline.microrts.rules import CHOICES, PARTS
from touchline.policies.network import OutputGradients

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
        self.point = layer("point")
        self.critic = layer("critic")


class Overview:
    """Features of whole boards, and their values."""

    def __init__(self, weights: FusedWeights, boards: Int[Tensor, "B H W"]) -> None:
        self._weights = weights
        self._boards = boards
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
        self.features = _linear(weights.overview, self._deep).relu_()
        self.value: Float[Tensor, "B S"] = _linear(weights.critic, self.features)

    def _cut_patches(self) -> Float[Tensor, "patches features"]:
        """The windows of the second convolution: views of three rows each, then one copy."""
        channels = self._weights.see.shape[2]
        board_stride, row_stride, _ = self._seen.stride()
        strides = (board_stride, 2 * row_stride, 2 * channels, row_stride, 1)
        windows = self._seen.as_strided(self._patch_shape, strides)
        return windows.flatten(3).flatten(0, 2)

    def backward(self, grad_features: Float[Tensor, "B G"], out: Gradients) -> None:
        """Write the gradients of `see`, `deeper` and `overview`."""
        weights = self._weights
        channels = self._weights.see.shape[2]
        grad_overview = _relu_backward(grad_features, self.features, 0)
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


class _Evaluated(NamedTuple):
    """Choices, and what the distribution says about them."""

    discrete: Int[Tensor, "B D"]
    chosen: Int[Tensor, " B"]
    """Their units."""
    log_prob: Float[Tensor, " B"]
    entropy: Float[Tensor, " B"]
    """Entropy of the choice of a unit plus that of the chosen one's order."""
    entropies: Float[Tensor, "B D"]
    """The same for each part."""
    read_probs: Float[Tensor, "B parts"]
    """The probability of a type that reads the part."""
    unit_log_probs: Float[Tensor, " K"]
    hidden: Float[Tensor, "B H"]
    order_log_probs: Float[Tensor, "B choices"]


class FusedForward:
    """Staged actions: a cell, then the order of the unit there.

    A distribution over actions, the values, and the way back through the network.
    """

    def __init__(
        self,
        weights: FusedWeights,
        boards: Int[Tensor, "B H W"],
        allowed: Bool[Tensor, "B M"],
        second: Bool[Tensor, "B cells choices"] | None = None,
    ) -> None:
        self._weights = weights
        self._boards = boards
        self._second = second
        self._num_cells = len(weights.around_empty)
        cells = allowed[:, : self._num_cells]
        self._order_mask = allowed[:, self._num_cells :]
        starts, cell = kernels.find_units(cells.numpy())
        self._starts = torch.from_numpy(starts)
        self._cell = torch.from_numpy(cell)
        self._overview = Overview(weights, boards)
        self.value = self._overview.value
        everywhere = _linear(weights.everywhere, self._overview.features)
        # The last row is no unit: boards without any choose it, so that no index is out of range.
        self._units = torch.zeros(len(self._cell) + 1, everywhere.shape[1])
        kernels.around_forward(
            *_arrays(boards, weights.planes_of_code, self._starts, self._cell),
            *_arrays(weights.around, weights.around_empty, everywhere, self._units),
        )
        self._scores = _linear(weights.point, self._units)[:-1, 0]
        self._evaluated: _Evaluated | None = None

    def sample(
        self, generator: torch.Generator
    ) -> tuple[Float[Tensor, "B 0"], Int[Tensor, "B D"]]:
        # Numbers for all cells and choices, as the plain way draws them.
        num_boards = len(self._boards)
        for_cells = torch.rand(num_boards, self._num_cells, generator=generator)
        for_orders = torch.rand(num_boards, CHOICES, generator=generator)
        return self._draw(for_cells, for_orders)

    def mode(self) -> tuple[Float[Tensor, "B 0"], Int[Tensor, "B D"]]:
        # The same noise for every choice: the most likely ones win.
        num_boards = len(self._boards)
        for_cells = torch.full((num_boards, self._num_cells), 0.5)
        for_orders = torch.full((num_boards, CHOICES), 0.5)
        return self._draw(for_cells, for_orders)

    def log_prob(
        self,
        continuous: Tensor,  # noqa: ARG002
        discrete: Int[Tensor, "B D"],
    ) -> Float[Tensor, " B"]:
        return self._evaluate(discrete).log_prob

    def entropy(self, discrete: Int[Tensor, "B D"] | None = None) -> Float[Tensor, ""]:
        """As `StagedUnitAction.entropy`; the choices are needed."""
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
        grad_units = self._choices_backward(
            evaluated, grad_log_prob, entropy_gradient, grads
        )
        grad_everywhere = self._around_backward(grad_units, grads)
        grad_features = _linear_backward(
            weights.everywhere, features, grad_everywhere, grads
        )
        grad_features += _linear_backward(weights.critic, features, grad_value, grads)
        self._overview.backward(grad_features, grads)

    def _choices_backward(
        self,
        evaluated: _Evaluated,
        grad_log_prob: Float[Tensor, " B"],
        entropy_gradient: float,
        out: Gradients,
    ) -> Float[Tensor, "K1 F"]:
        """Write the gradients of `point` and `order`; returns the one by the units' features."""
        weights, chosen = self._weights, evaluated.chosen
        grad_scores = torch.zeros(len(self._units), 1)
        grad_logits = torch.zeros_like(evaluated.order_log_probs)
        # The entropy is a mean over boards. Kernels compute in the precision of their arguments.
        grad_entropy = entropy_gradient / max(len(chosen), 1)
        kernels.evaluate_choices_backward(
            grad_logits.numpy().dtype.type(grad_entropy),
            *_arrays(evaluated.unit_log_probs, self._starts, chosen),
            *_arrays(evaluated.order_log_probs, self._order_mask, evaluated.discrete),
            *_arrays(evaluated.entropies, evaluated.read_probs, grad_log_prob),
            *_arrays(grad_scores[:, 0], grad_logits),
        )
        grad_units = _linear_backward(weights.point, self._units, grad_scores, out)
        hidden = evaluated.hidden
        grad_hidden = _linear_backward(weights.order, hidden, grad_logits, out)
        grad_hidden = _relu_backward(grad_hidden, hidden, 0)
        grad_chosen = _linear_backward(
            weights.hidden, self._units[chosen], grad_hidden, out
        )
        # Boards without a unit add to the last row, which nothing reads.
        return grad_units.index_add_(0, chosen, grad_chosen)

    def _around_backward(
        self, grad_units: Float[Tensor, "K1 F"], out: Gradients
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

    def _draw(
        self,
        for_cells: Float[Tensor, "B cells"],
        for_orders: Float[Tensor, "B choices"],
    ) -> tuple[Float[Tensor, "B 0"], Int[Tensor, "B D"]]:
        """Actions from uniform numbers for every choice."""
        if self._second is None:
            raise UsageError("to act, staged actions need the second-stage mask")
        num_boards = len(for_cells)
        actions = torch.zeros(num_boards, 1 + len(PARTS), dtype=torch.int64)
        chosen = self._no_units(num_boards)
        kernels.draw_units(
            *_arrays(self._scores, self._starts, self._cell, for_cells, actions, chosen)
        )
        _, logits = self._order_logits(chosen)
        kernels.draw_orders(*_arrays(logits, self._second, for_orders, actions))
        return torch.zeros(num_boards, 0), actions

    def _evaluate(self, discrete: Int[Tensor, "B D"]) -> _Evaluated:
        """Everything about these choices; kept, because learners use the same ones repeatedly."""
        if self._evaluated is not None and self._evaluated.discrete is discrete:
            return self._evaluated
        num_boards = len(discrete)
        chosen = self._no_units(num_boards)
        kernels.find_chosen(*_arrays(self._starts, self._cell, discrete, chosen))
        hidden, logits = self._order_logits(chosen)
        log_prob, entropy = torch.empty(2, num_boards)
        evaluated = _Evaluated(
            discrete=discrete,
            chosen=chosen,
            log_prob=log_prob,
            entropy=entropy,
            entropies=torch.empty(num_boards, 1 + len(PARTS)),
            read_probs=torch.empty(num_boards, len(PARTS)),
            unit_log_probs=self._scores.clone(),  # the kernel turns scores into these in place
            hidden=hidden,
            order_log_probs=logits,
        )
        kernels.evaluate_choices(
            *_arrays(evaluated.unit_log_probs, self._starts, chosen),
            *_arrays(evaluated.order_log_probs, self._order_mask, discrete),
            *_arrays(log_prob, evaluated.entropies, evaluated.read_probs, entropy),
        )
        self._evaluated = evaluated
        return evaluated

    def _no_units(self, num_boards: int) -> Int[Tensor, " B"]:
        """The number of the row of `_units` that is no unit, for each board."""
        return torch.full((num_boards,), len(self._cell))

    def _order_logits(
        self, chosen: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B choices"]]:
        """The hidden layer and the logits of the chosen units' orders."""
        hidden = _linear(self._weights.hidden, self._units[chosen]).relu_()
        return hidden, _linear(self._weights.order, hidden)


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
    torch.mm(grad_output.t(), x, out=out[f"{layer.name}.weight"])
    torch.sum(grad_output, 0, out=out[f"{layer.name}.bias"])
    return torch.mm(grad_output, layer.weight.t())
