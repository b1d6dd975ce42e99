"""Adam over one long vector of weights, its gradient clipped first.

torch's own would import its compiler (two seconds) and, for networks this small, costs twice as
much a step.

Source: Kingma and Ba 2015, arXiv:1412.6980, algorithm 1, in the order of operations of its section
2.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

# The paper's values, which torch and ML-Agents take, too.
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


class FlatParameters:
    """The parameters of a network as views of one vector [P], so that one call moves them all."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        flat = [parameter.detach().reshape(-1) for parameter in self.parameters]
        self.vector = torch.cat(flat)
        views = self._views(self.vector)
        for parameter, view in zip(self.parameters, views, strict=True):
            # The network computes with the vector's own memory from here on: moving the vector
            # moves it.
            parameter.data = view
        self.gradient = torch.zeros_like(self.vector)
        """[P], written by `gradient_of` or by a backward pass through `gradient_views`."""
        self.gradient_views = self._views(self.gradient)
        """One view in the shape of each parameter."""

    def gradient_of(
        self, loss: Float[Tensor, ""], others: Sequence[Tensor] = ()
    ) -> Sequence[Tensor]:
        """Write ∂loss/∂parameters into `gradient`; 0 where the loss does not depend on them.

        Returns the gradient of each of the other tensors.
        """
        inputs = [*self.parameters, *others]
        gradients = torch.autograd.grad(loss, inputs, materialize_grads=True)
        num_own = len(self.parameters)
        flat = [gradient.reshape(-1) for gradient in gradients[:num_own]]
        # Into the same memory every time: Adam and the views refer to it.
        torch.cat(flat, out=self.gradient)
        return gradients[num_own:]

    def _views(self, vector: Float[Tensor, " P"]) -> Sequence[Tensor]:
        sizes = [parameter.numel() for parameter in self.parameters]
        pieces = torch.split(vector, sizes)
        pairs = zip(pieces, self.parameters, strict=True)
        return [piece.view_as(parameter) for piece, parameter in pairs]


class Adam:
    """Moves `weights` [P] in place."""

    def __init__(self, weights: Float[Tensor, " P"]) -> None:
        self._weights = weights
        self._mean = torch.zeros_like(weights)
        self._square = torch.zeros_like(weights)
        self._step = 0

    def step(
        self, gradient: Float[Tensor, " P"], learning_rate: float, max_norm: float
    ) -> None:
        """One step down a gradient that is first shortened to `max_norm`.

        The gradient's memory is used for intermediate results and holds no gradient afterwards.
        """
        if max_norm < math.inf:
            # Over all parameters together, as `torch.nn.utils.clip_grad_norm_` has it.
            norm = float(torch.linalg.vector_norm(gradient))
            if norm > max_norm:
                gradient.mul_(max_norm / norm)
        self._step += 1
        # m ← β₁ m + (1 − β₁) g, and v ← β₂ v + (1 − β₂) g².
        self._mean.lerp_(gradient, 1.0 - BETA_1)
        self._square.mul_(BETA_2).addcmul_(gradient, gradient, value=1.0 - BETA_2)
        # Bias correction of both moments, folded into the step's size as in the paper's section 2.
        root = (1.0 - BETA_2**self._step) ** 0.5
        # ε is scaled with it: the paper's ε̂ stands next to the uncorrected root.
        spread = torch.sqrt(self._square, out=gradient)
        spread.add_(EPSILON * root)
        step_size = learning_rate * root / (1.0 - BETA_1**self._step)
        self._weights.addcdiv_(self._mean, spread, value=-step_size)

    def state(self) -> dict[str, Tensor]:
        """Everything but the weights, as copies."""
        return {
            "mean": self._mean.clone(),
            "square": self._square.clone(),
            "step": torch.tensor(self._step),
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._mean.copy_(state["mean"])
        self._square.copy_(state["square"])
        self._step = int(state["step"])
