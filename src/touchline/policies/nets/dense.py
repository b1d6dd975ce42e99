"""Dense layers with their first weights, the normalization of rows, and the heads of networks."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from touchline.specs import ActionSpec

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


NORM_EPSILON = 1e-5
"""Added to the variance, so that equal numbers have a spread."""


def layer_norm(x: Float[Tensor, "... N"]) -> Float[Tensor, "... N"]:
    """Each row with mean 0 and spread 1, without weights of its own."""
    # Written out because ONNX's opset 9 has no such operator: `onnx_out` repeats these steps.
    x = x - x.mean(dim=-1, keepdim=True)
    variance = (x * x).mean(dim=-1, keepdim=True)
    return x / torch.sqrt(variance + NORM_EPSILON)


ORTHOGONAL_POLICY_GAIN = 0.01
"""Gain of orthogonal first weights of the policy's head. Source: Andrychowicz et al. 2020,
arXiv:2006.05990."""
CONTINUOUS_GAIN, DISCRETE_GAIN = 0.2, 0.1
"""Gains of the policy's head otherwise. Source: ML-Agents 1.1.0,
`torch_entities/distributions.py`."""
VALUE_GAIN = 0.1
"""First values are near zero. With ten times that, as in ML-Agents, Basic, which looks three
actions ahead, settled for the small prize under one seed of five (`docs/lab_log.md`)."""


def output_gains(actions: ActionSpec, *, squashed: bool = False) -> Float[Tensor, " P"]:
    """The gain of each output of the policy: continuous means, the logarithms of their spreads
    where actions are squashed, then the choices of all branches.
    """
    numbers = actions.continuous_size * (2 if squashed else 1)
    continuous = [CONTINUOUS_GAIN] * numbers
    discrete = [DISCRETE_GAIN] * actions.mask_size
    return torch.tensor(continuous + discrete)


def first_value_weight(num_signals: int, hidden: int) -> Float[Tensor, "S H"]:
    """Xavier weights of each head alone, so that a head starts the same next to others."""
    heads = [
        nn.init.xavier_uniform_(torch.empty(1, hidden)) for _ in range(num_signals)
    ]
    return VALUE_GAIN * torch.cat(heads)


def values(
    features: Float[Tensor, "B H"],
    weight: Float[Tensor, "S H"],
    bias: Float[Tensor, " S"],
) -> Float[Tensor, "B S"]:
    """One column per reward signal."""
    if weight.shape[0] > 1:
        return torch.addmm(bias, features, weight.t())
    # One column: a matrix by a vector takes a third less time than by a matrix.
    # The bias is expanded because `addmv` of no rows would otherwise give one row.
    bias_of_each = bias.expand(features.shape[0])
    column = torch.addmv(bias_of_each, features, weight[0])
    return column[:, None]


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
