"""Equal networks of dense layers, evaluated together, and their gradient, written out.

The layers' weights are views of the networks' own, side by side, so that one call serves all
networks. Why this is written out stands in `docs/decisions/hand-written-gradients.md`. A test holds
it to autograd in double precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import silu


@dataclass(frozen=True)
class DenseStack:
    """N networks: dense layers with SiLU after each, and a last one without."""

    weights: Sequence[Float[Tensor, "N _ _"]]
    """[N, inputs, outputs] of each layer."""
    biases: Sequence[Float[Tensor, "N 1 _"]]

    def first(self, count: int) -> DenseStack:
        """So many of the networks, as views."""
        weights = [weight[:count] for weight in self.weights]
        return DenseStack(weights, [bias[:count] for bias in self.biases])


class ForwardPass(NamedTuple):
    """The results of a forward pass, and all that the backward pass needs."""

    outputs: Float[Tensor, "N B P"]
    before: Sequence[Float[Tensor, "N B _"]]
    """The input of each SiLU."""
    after: Sequence[Float[Tensor, "N B _"]]
    """The networks' input, then the output of each SiLU."""

    def part(self, rows: slice) -> ForwardPass:
        """Of some rows, as views."""
        before = [x[:, rows] for x in self.before]
        return ForwardPass(
            self.outputs[:, rows], before, [x[:, rows] for x in self.after]
        )

    def networks(self, count: int) -> ForwardPass:
        """Of the first `count` networks, as views."""
        before = [x[:count] for x in self.before]
        return ForwardPass(
            self.outputs[:count], before, [x[:count] for x in self.after]
        )


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """Equal tensors [...] of one vector, equally far apart, as one [N, ...] without a copy."""
    first, second = parts[:2]
    memory = first.untyped_storage().data_ptr()
    assert second.untyped_storage().data_ptr() == memory, "not of one vector"
    apart = second.storage_offset() - first.storage_offset()
    return first.as_strided((len(parts), *first.shape), (apart, *first.stride()))


def forward(stack: DenseStack, x: Float[Tensor, "B I"]) -> ForwardPass:
    """What every network makes of the same rows."""
    num_networks = len(stack.weights[0])
    before = []
    # A view: all networks read the same rows.
    after = [x.expand(num_networks, *x.shape)]
    *hidden, last = zip(stack.weights, stack.biases, strict=True)
    for weight, bias in hidden:
        before.append(torch.baddbmm(bias, after[-1], weight))
        after.append(silu(before[-1]))
    weight, bias = last
    return ForwardPass(torch.baddbmm(bias, after[-1], weight), before, after)


def backward(
    stack: DenseStack,
    forward_pass: ForwardPass,
    grad_outputs: Float[Tensor, "N B P"],
    out: DenseStack | None,
) -> Float[Tensor, "N B H"]:
    """The gradient of what the first layer gives its SiLU.

    The gradient of every parameter is written to `out`, where that is given.
    """
    gradient = grad_outputs
    last = len(stack.weights) - 1
    for layer in range(last, -1, -1):
        if layer < last:
            # PyTorch's own kernel for the derivative, which has no public name.
            before = forward_pass.before[layer]
            gradient = torch.ops.aten.silu_backward(gradient, before)
        if out is not None:
            _put_product(forward_pass.after[layer], gradient, out.weights[layer])
            torch.sum(gradient, 1, keepdim=True, out=out.biases[layer])
        if layer > 0:
            gradient = torch.bmm(gradient, stack.weights[layer].transpose(1, 2))
    return gradient


def _put_product(
    inputs: Float[Tensor, "N B I"],
    gradient: Float[Tensor, "N B O"],
    out: Float[Tensor, "N I O"],
) -> None:
    # The product is taken the way round in which `out` lies row by row: oneDNN needs seconds, not
    # milliseconds, to write it column by column (PyTorch 2.13).
    if out.stride(2) == 1:
        torch.bmm(inputs.transpose(1, 2), gradient, out=out)
    else:
        torch.bmm(gradient.transpose(1, 2), inputs, out=out.transpose(1, 2))
