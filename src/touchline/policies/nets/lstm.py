"""A long short-term memory: half of what it keeps is its result, half its cell.

So `memory_size` counts hidden state and cell together, as in ML-Agents.

Source: Hochreiter and Schmidhuber 1997, "Long Short-Term Memory".
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from touchline.policies.nets.memory import Sequences


class LSTM(nn.Module):
    """A `MemoryCell`; its gates are in PyTorch's order, i f c o."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.width = size // 2
        self.lstm = nn.LSTM(inputs, self.width)
        self._spread_forgetting()

    @torch.no_grad()
    def _spread_forgetting(self) -> None:
        # A cell keeps sigmoid(bias) of its content in each step. With PyTorch's biases around 0,
        # all cells lose half; with ML-Agents' 2, all keep 0.88. From 0 to 2 they learn as soon
        # as either does, in what each is good at (`docs/lab_log/2026-11-learning.md`).
        _, _, input_bias, hidden_bias = self.lstm.all_weights[0]
        input_bias.zero_()
        hidden_bias.zero_()
        forget = input_bias.chunk(4)[1]
        forget.copy_(torch.linspace(0.0, 2.0, self.width))

    def step(
        self, x: Float[Tensor, "B I"], memory: Float[Tensor, "B M"]
    ) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B M"]]:
        hidden, cell = memory.chunk(2, dim=1)
        after = torch.lstm_cell(x, (hidden, cell), *self.lstm.all_weights[0])
        return after[0], torch.cat(after, dim=1)

    def run(
        self, x: Float[Tensor, "B I"], sequences: Sequences
    ) -> Float[Tensor, "B H"]:
        # PyTorch's recurrent layers refuse sequences without a step.
        if not len(x):
            return x.new_zeros(0, self.width)
        padding = sequences.padding()
        hidden, cell = sequences.memory[:, 0].chunk(2, dim=1)
        state = hidden[None].contiguous(), cell[None].contiguous()
        out, _ = self.lstm(padding.padded(x), state)
        return padding.flat(out)

    def first_weights(self, *, orthogonal: bool) -> None:
        if orthogonal:  # biases keep their first values
            nn.init.orthogonal_(self.lstm.all_weights[0][0])
            nn.init.orthogonal_(self.lstm.all_weights[0][1])

    def official_parameters(self) -> Mapping[str, nn.Parameter]:
        return {"lstm.lstm." + name: p for name, p in self.lstm.named_parameters()}

    def onnx(self, graph: Any, x: str, memory: str) -> tuple[str, str]:
        weights = [_in_onnx_order(own) for own in self.lstm.all_weights[0]]
        input_weight = graph.constant(weights[0])
        hidden_weight = graph.constant(weights[1])
        # ONNX takes both biases in one row.
        bias = graph.constant(np.concatenate(weights[2:], axis=1))
        hidden = graph.slice(memory, 2, 0, self.width)
        cell = graph.slice(memory, 2, self.width, self.size)
        step = graph.node("Unsqueeze", [x], axes=[0])  # [1, B, H]
        no_lengths = ""
        inputs = [step, input_weight, hidden_weight, bias, no_lengths, hidden, cell]
        # The first output, of all steps, is not used: there is one step.
        _, hidden, cell = graph.nodes(
            "LSTM", inputs, ["", "hidden", "cell"], hidden_size=self.width
        )
        result = graph.node("Squeeze", [hidden], axes=[0])
        return result, graph.concat([hidden, cell], axis=2)


def _in_onnx_order(parameter: Tensor) -> NDArray[np.float32]:
    """[1, 4 * M/2, ...]: PyTorch has an LSTM's gates as i f c o, ONNX as i o f c."""
    entry, forget, cell, out = np.split(parameter.numpy(force=True), 4)
    return np.concatenate([entry, out, forget, cell])[None]


def official_size(tensors: Mapping[str, Tensor]) -> int:
    """`memory_size` of a network by ML-Agents' names; 0 without memory."""
    recurrent = tensors.get("lstm.lstm.weight_hh_l0")
    return 0 if recurrent is None else 2 * recurrent.shape[1]


def official_parameters_of_node(inputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """Weights by ML-Agents' names, from ONNX's input weights, recurrent weights and biases."""
    entry, recurrent, bias = (tensor[0] for tensor in inputs)

    def in_order(gates: Tensor) -> Tensor:
        i, o, f, c = gates.chunk(4)
        return torch.cat([i, f, c, o])

    bias_entry, bias_recurrent = bias.chunk(2)
    return {
        "lstm.lstm.weight_ih_l0": in_order(entry),
        "lstm.lstm.weight_hh_l0": in_order(recurrent),
        "lstm.lstm.bias_ih_l0": in_order(bias_entry),
        "lstm.lstm.bias_hh_l0": in_order(bias_recurrent),
    }
