"""A dense layer that goals steer: its weights are made by a small network from the goal."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from touchline.policies.nets.dense import layer_norm, linear

SMALLEST_HYPER_SIZE = 16
"""Width of the network that makes weights from a goal, or twice the goal's size if that is more.
ML-Agents has hidden_units there: for GridWorld's two goals 4.3 million parameters, whose
bookkeeping took half of the time."""


class HyperLinear(nn.Module):
    """A dense layer whose weights depend on the goal: Σ zₖ Wₖ, where z is computed from the goal.

    Computed as Σ zₖ (x Wₖ), so that no agent needs a matrix of its own. ML-Agents has as many zₖ as
    outputs; here there are fewer and larger ones, so that a step of Adam turns the weights by as
    much. With z of spread 1 GridWorld takes three times as long to learn (`docs/lab_log.md`).

    Source: Ha et al. 2016, "HyperNetworks", arXiv:1609.09106. Its place in the network follows
    ML-Agents 1.1.0 (`torch_entities/conditioning.py`).
    """

    def __init__(self, inputs: int, outputs: int, goals: int) -> None:
        super().__init__()
        self.parts = max(SMALLEST_HYPER_SIZE, 2 * goals)
        """How many Wₖ there are."""
        self.spread = max(1.0, outputs / self.parts)
        """The standard deviation of z."""
        self.goal = nn.Sequential(
            linear(goals, self.parts),
            nn.SiLU(),
            linear(self.parts, self.parts),
            nn.SiLU(),
        )
        self.special = nn.Linear(inputs, self.parts * outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))
        # Σ zₖ Wₖ then has the spread of ML-Agents' weights: 1 / √(3 inputs).
        limit = (self.parts * inputs) ** -0.5 / self.spread
        nn.init.uniform_(self.special.weight, -limit, limit)

    def forward(
        self, x: Float[Tensor, "B I"], goal: Float[Tensor, "B G"]
    ) -> Float[Tensor, "B P"]:
        outputs = len(self.bias)
        # [B, K, P]: every x Wₖ
        products = self.special(x).view(len(x), self.parts, outputs)
        z = self.spread * layer_norm(self.goal(goal))  # [B, K]
        summed = torch.bmm(z[:, None], products)[:, 0]  # [B, P]
        return torch.add(self.bias, summed)
