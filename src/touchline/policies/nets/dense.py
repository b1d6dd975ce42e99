"""Dense layers and their first weights, and the normalization of rows."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

HIDDEN_GAIN = 2**0.5
"""Gain of orthogonal first weights of hidden layers. Source: Andrychowicz et al. 2020,
arXiv:2006.05990."""


def linear(inputs: int, outputs: int, gain: float = 1.0) -> nn.Linear:
    """A dense layer whose first outputs are as large as its inputs, times `gain`."""
    layer = nn.Linear(inputs, outputs)
    # A layer without inputs exists where an agent observes nothing but a goal or entities.
    std = gain / max(inputs, 1) ** 0.5
    nn.init.normal_(layer.weight, std=std)
    nn.init.zeros_(layer.bias)
    return layer


def layer_norm(x: Float[Tensor, "... N"]) -> Float[Tensor, "... N"]:
    """Each row with mean 0 and spread 1, without weights of its own."""
    # Written out because ONNX's opset 9 has no such operator: `onnx_out` repeats these steps.
    x = x - x.mean(dim=-1, keepdim=True)
    variance = (x * x).mean(dim=-1, keepdim=True)
    return x / torch.sqrt(variance + 1e-5)
