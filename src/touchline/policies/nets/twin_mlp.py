"""Actor and critic as two equal stacks of dense layers over one vector, evaluated together.

At the sizes that games need, a gradient step costs calls, not arithmetic. So the weights of both
networks are stored side by side and one call serves both. `fused.twin_mlp` also writes the gradient
out, because autograd's bookkeeping would take as long again.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import silu

from touchline.policies.nets.dense import (
    HIDDEN_GAIN,
    ORTHOGONAL_POLICY_GAIN,
    first_value_weight,
    values,
)

PIECE = 1024
"""Rows that pass at a time where no gradient is wanted: what layers leave stays in the cache."""
ACTOR, CRITIC = 0, 1
"""The two networks: their position in the weights and biases of a `TwinMLP`."""


class ForwardPass(NamedTuple):
    """The results of a forward pass, and all that the backward pass needs."""

    outputs: Float[Tensor, "B P"]
    value: Float[Tensor, "B S"]
    before: list[Float[Tensor, "2 B H"]]
    """The input of each layer's SiLU, in the type of the products; what follows likewise."""
    after: list[Float[Tensor, "2 B _"]]
    """The network's input, then the output of each layer's SiLU."""
    state: Float[Tensor, "B Z"] | None
    """What the critic alone saw."""


class TwinMLP(nn.Module):
    """Two networks of dense layers with SiLU after each, over one input."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        layers: int,
        output_gains: Float[Tensor, " P"],
        num_signals: int = 1,
        state_size: int = 0,
    ) -> None:
        """P outputs of the actor, one for each gain, and one value per reward signal.

        The critic's first layer also takes `state_size` numbers that the actor does not see.
        """
        super().__init__()
        sizes = [inputs] + [hidden] * (layers - 1)
        outputs = len(output_gains)
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for size in sizes:
            # As large as `linear` makes them; inputs are rows here, so nothing is transposed.
            weight = torch.randn(2, size, hidden) / max(size, 1) ** 0.5
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(torch.zeros(2, 1, hidden)))
        policy_weight = torch.randn(outputs, hidden) * output_gains[:, None]
        policy_weight = policy_weight / hidden**0.5
        self.policy_weight = nn.Parameter(policy_weight)
        self.policy_bias = nn.Parameter(torch.zeros(outputs))
        self.value_weight = nn.Parameter(first_value_weight(num_signals, hidden))
        self.value_bias = nn.Parameter(torch.zeros(num_signals))
        self.state_weight = None
        if state_size:
            state_weight = torch.randn(state_size, hidden) / state_size**0.5
            self.state_weight = nn.Parameter(state_weight)

    @property
    def layers(self) -> Sequence[tuple[Float[Tensor, "2 I H"], Float[Tensor, "2 1 H"]]]:
        """Weight and bias of every hidden layer, both networks in one."""
        # Iterating over a ParameterList takes longer than a small layer's arithmetic.
        weights = self.weights._parameters
        biases = self.biases._parameters
        return list(zip(weights.values(), biases.values(), strict=True))  # type: ignore[arg-type]

    def forward(
        self, x: Float[Tensor, "B I"], state: Float[Tensor, "B Z"] | None = None
    ) -> tuple[Float[Tensor, "B P"], Float[Tensor, "B S"]]:
        """The actor's outputs and the critic's values."""
        # With a gradient everything is kept for the way back, so pieces would gain nothing.
        if len(x) <= PIECE or torch.is_grad_enabled():
            return self.passed(x, state)[:2]
        pieces = [
            self(own, None if state is None else state[start : start + PIECE])
            for start, own in zip(
                range(0, len(x), PIECE), torch.split(x, PIECE), strict=True
            )
        ]
        outputs, value = map(torch.cat, zip(*pieces, strict=True))
        return outputs, value

    def passed(
        self,
        x: Float[Tensor, "B I"],
        state: Float[Tensor, "B Z"] | None = None,
        products: torch.dtype | None = None,
    ) -> ForwardPass:
        """The actor's outputs and the critic's values, with the intermediate results.

        Hidden layers are computed in the type `products` (default: that of the weights).
        """
        before: list[Tensor] = []
        own = self.policy_weight.dtype
        products = products or own
        after = [x.to(products).expand(2, *x.shape)]  # [2, B, I]
        for weight, bias in self.layers:
            linear = torch.baddbmm(bias.to(products), after[-1], weight.to(products))
            before.append(linear)  # [2, B, H]
            if len(before) == 1:
                self.show_state(before[0][CRITIC], state)
            after.append(silu(before[-1]))
        actor, critic = after[-1].to(own).unbind()
        outputs = torch.addmm(self.policy_bias, actor, self.policy_weight.t())
        value = values(critic, self.value_weight, self.value_bias)
        return ForwardPass(outputs, value, before, after, state)

    def show_state(
        self, critic: Float[Tensor, "B H"], state: Float[Tensor, "B Z"] | None
    ) -> None:
        """Add what the state contributes to what the critic's first layer gives its SiLU."""
        if self.state_weight is not None:
            assert state is not None, "the critic needs the state"
            # In place: `critic` is a view of what both networks' layer gave.
            critic.addmm_(state.to(critic.dtype), self.state_weight.to(critic.dtype))

    def network(
        self,
        x: Float[Tensor, "B I"],
        which: int,
        state: Float[Tensor, "B Z"] | None = None,
    ) -> Float[Tensor, "B P"]:
        """One of the two networks alone; the critic's P is S."""
        return self.single(which, state)(x)

    def single(
        self, which: int, state: Float[Tensor, "B Z"] | None = None
    ) -> Callable[[Float[Tensor, "B I"]], Float[Tensor, "B P"]]:
        """`network` for many calls: it keeps views of the weights as they are in memory now."""
        layers = [(bias[which], weight[which]) for weight, bias in self.layers]
        # Looked up once: `nn.Module` finds its parameters by a slow path of its own.
        bias = self.policy_bias
        weight = self.policy_weight.t()
        value_bias = self.value_bias
        value_weight = self.value_weight

        def network(x: Float[Tensor, "B I"]) -> Float[Tensor, "B P"]:
            for layer, (layer_bias, layer_weight) in enumerate(layers):
                x = torch.addmm(layer_bias, x, layer_weight)
                if layer == 0 and which == CRITIC:
                    self.show_state(x, state)
                x = silu(x)
            if which == ACTOR:
                return torch.addmm(bias, x, weight)
            return values(x, value_weight, value_bias)

        return network

    @torch.no_grad()
    def initialize_orthogonally(self) -> None:
        for weight in self.weights:
            for network in weight:
                nn.init.orthogonal_(network, HIDDEN_GAIN)
        nn.init.orthogonal_(self.policy_weight, ORTHOGONAL_POLICY_GAIN)
        nn.init.orthogonal_(self.value_weight)
