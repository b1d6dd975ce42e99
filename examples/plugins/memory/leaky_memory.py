"""A memory of another package: units that leak, each at a rate of its own that is learned.

    h' = h + a (tanh(W x + b) − h),  a = σ(ρ)

Source: Jaeger et al. 2007, "Optimization and applications of echo state networks with
leaky-integrator neurons", doi:10.1016/j.neunet.2007.04.016, without connections among the units.
"""

import numpy as np
import torch
from torch import nn


class LeakyMemory(nn.Module):
    """All that it keeps is its result."""

    def __init__(self, inputs, size):
        super().__init__()
        self.size = self.width = size
        self.seen = nn.Linear(inputs, size)
        self.rate = nn.Parameter(torch.zeros(size))

    def step(self, x, memory):
        after = memory + torch.sigmoid(self.rate) * (torch.tanh(self.seen(x)) - memory)
        return after, after

    def run(self, x, sequences):
        if not len(x):
            return x.new_zeros(0, self.width)
        padding = sequences.padding()
        memory, found = sequences.memory[:, 0], []
        for moment in padding.padded(x):  # [T, S, I]
            memory, _ = self.step(moment, memory)
            found.append(memory)
        return padding.flat(torch.stack(found))

    def first_weights(self, *, orthogonal):
        if orthogonal:
            nn.init.orthogonal_(self.seen.weight)

    def official_parameters(self):
        return {}

    def onnx(self, graph, x, memory):
        before = graph.node("Squeeze", [memory], axes=[0])  # [B, M]
        columns = np.ascontiguousarray(self.seen.weight.numpy(force=True).T)
        inputs = [
            x,
            graph.constant(columns),
            graph.constant(self.seen.bias.numpy(force=True)),
        ]
        new = graph.node("Tanh", [graph.node("Gemm", inputs)])
        rate = graph.constant(torch.sigmoid(self.rate).numpy(force=True))
        change = graph.multiply(rate, graph.subtract(new, before))
        after = graph.add(before, change)
        return after, graph.node("Unsqueeze", [after], axes=[0])
