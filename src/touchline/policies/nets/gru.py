"""A gated recurrent unit: all that it keeps is its result.

With the same `memory_size` its result is twice as wide as an LSTM's.

Source: Cho et al. 2014, arXiv:1406.1078, in the form of `torch.nn.GRU`:

    r = σ(W_r x + U_r h + b_r),  z = σ(W_z x + U_z h + b_z)
    n = tanh(W_n x + b_n + r (U_n h + c_n)),  h' = (1 - z) n + z h
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from touchline.policies.nets.memory import Sequences


class GRU(nn.Module):
    """A `MemoryCell`; its gates are in PyTorch's order, r z n."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.width = size
        self.gru = nn.GRU(inputs, size)

    def step(
        self, x: Float[Tensor, "B I"], memory: Float[Tensor, "B M"]
    ) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B M"]]:
        after = torch.gru_cell(x, memory, *self.gru.all_weights[0])
        return after, after

    def run(
        self, x: Float[Tensor, "B I"], sequences: Sequences
    ) -> Float[Tensor, "B H"]:
        # PyTorch's recurrent layers refuse sequences without a step.
        if not len(x):
            return x.new_zeros(0, self.width)
        padding = sequences.padding()
        before = sequences.memory[:, 0][None].contiguous()
        out, _ = self.gru(padding.padded(x), before)
        return padding.flat(out)

    def first_weights(self, *, orthogonal: bool) -> None:
        if orthogonal:  # biases keep their first values
            nn.init.orthogonal_(self.gru.all_weights[0][0])
            nn.init.orthogonal_(self.gru.all_weights[0][1])

    def official_parameters(self) -> Mapping[str, nn.Parameter]:
        return {}

    def onnx(self, graph: Any, x: str, memory: str) -> tuple[str, str]:
        # Step by step, because Unity's importer has no operator for the whole: it knows LSTM only.
        input_weight, hidden_weight, input_bias, hidden_bias = self.gru.all_weights[0]
        before = graph.node("Squeeze", [memory], axes=[0])  # [B, M]
        # The three gates' sums side by side, [B, 3 M].
        seen = graph.linear(x, input_weight, input_bias)
        kept = graph.linear(before, hidden_weight, hidden_bias)
        size = self.size

        def part(name: str, number: int) -> str:
            return str(graph.slice(name, 1, number * size, (number + 1) * size))

        reset = graph.node("Sigmoid", [graph.add(part(seen, 0), part(kept, 0))])
        update = graph.node("Sigmoid", [graph.add(part(seen, 1), part(kept, 1))])
        recalled = graph.multiply(reset, part(kept, 2))
        new = graph.node("Tanh", [graph.add(part(seen, 2), recalled)])
        # h' = n + z (h - n)
        difference = graph.subtract(before, new)
        after = graph.add(new, graph.multiply(update, difference))
        return after, graph.node("Unsqueeze", [after], axes=[0])
