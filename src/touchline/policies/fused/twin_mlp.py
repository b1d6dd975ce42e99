"""The gradient of a `TwinMLP`.

It is written out because a gradient step of a small network costs calls, not arithmetic: autograd
takes about twice as long (`docs/decisions/hand-written-gradients.md`). A test holds it to autograd
in double precision.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from touchline.policies.nets.twin_mlp import CRITIC, ForwardPass, TwinMLP


def backward(
    mlp: TwinMLP,
    forward_pass: ForwardPass,
    grad_outputs: Float[Tensor, "B P"],
    grad_value: Float[Tensor, "B S"],
    out: Sequence[Tensor],
) -> None:
    """Write the gradient of every parameter to `out`, in the order of `mlp.parameters()`."""
    layers = mlp.layers
    depth = len(layers)
    # Parameters come before the lists of a module in `parameters()`: four of the heads, the
    # state's, then all weights, then all biases.
    products = forward_pass.after[-1].dtype
    features = forward_pass.after[-1].to(grad_outputs.dtype)
    gradient = _backward_heads(mlp, features, grad_outputs, grad_value, out[:4])
    gradient = gradient.to(products)
    out = out[4:]
    grad_state_weight = None
    if forward_pass.state is not None:
        grad_state_weight, *out = out
    grad_weights = out[:depth]
    grad_biases = out[depth:]
    for layer in reversed(range(depth)):
        # PyTorch's own kernel for the derivative, which has no public name.
        gradient = torch.ops.aten.silu_backward(gradient, forward_pass.before[layer])
        inputs = forward_pass.after[layer].transpose(1, 2)  # [2, _, B]
        if products == grad_weights[layer].dtype:
            torch.bmm(inputs, gradient, out=grad_weights[layer])
        else:  # a product has the type of its factors
            grad_weights[layer].copy_(torch.bmm(inputs, gradient))
        bias = grad_biases[layer]
        torch.sum(gradient, 1, keepdim=True, out=bias, dtype=bias.dtype)
        if layer > 0:  # nothing needs the gradient of the observations
            weight = layers[layer][0].to(products)
            gradient = torch.bmm(gradient, weight.transpose(1, 2))
    if grad_state_weight is not None and forward_pass.state is not None:
        of_critic = gradient[CRITIC].to(forward_pass.state.dtype)
        torch.mm(forward_pass.state.t(), of_critic, out=grad_state_weight)


def _backward_heads(
    mlp: TwinMLP,
    features: Float[Tensor, "2 B H"],
    grad_outputs: Float[Tensor, "B P"],
    grad_value: Float[Tensor, "B S"],
    out: Sequence[Tensor],
) -> Float[Tensor, "2 B H"]:
    """Write the gradients of the heads; returns the gradient of their input, `features`."""
    grad_policy_weight, grad_policy_bias, grad_value_weight, grad_value_bias = out
    actor, critic = features.unbind()
    gradient = torch.empty_like(features)
    grad_actor, grad_critic = gradient.unbind()
    torch.mm(grad_outputs.t(), actor, out=grad_policy_weight)
    torch.sum(grad_outputs, 0, out=grad_policy_bias)
    torch.mm(grad_outputs, mlp.policy_weight, out=grad_actor)
    value_weight = mlp.value_weight
    if value_weight.shape[0] > 1:
        torch.sum(grad_value, 0, out=grad_value_bias)
        torch.mm(grad_value.t(), critic, out=grad_value_weight)
        torch.mm(grad_value, value_weight, out=grad_critic)
    else:  # one column: by vector, as in `dense.values`
        column = grad_value[:, 0]
        torch.sum(column, 0, keepdim=True, out=grad_value_bias)
        torch.mv(critic.t(), column, out=grad_value_weight[0])
        torch.outer(column, value_weight[0], out=grad_critic)
    return gradient
