"""The network against plain PyTorch written the long way."""

import pytest
import torch
from torch.nn.functional import silu

from touchline.policies.networks import ACTOR, CRITIC, RunningNormalizer, TwinMLP


def _plain(mlp, x, which):
    h = x @ mlp.first_weight.view(x.shape[1], 2, -1)[:, which] + mlp.first_bias.view(2, -1)[which]
    for weight, bias in zip(mlp.weights, mlp.biases, strict=True):
        h = silu(h) @ weight[which] + bias[which]
    return h


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_both_networks_of_a_twin_are_plain_mlps(layers):
    mlp = TwinMLP(5, 7, layers, torch.ones(3))
    x = torch.randn(4, 5)
    outputs, value = mlp(x)
    torch.testing.assert_close(outputs, _plain(mlp, x, ACTOR))
    torch.testing.assert_close(value, _plain(mlp, x, CRITIC)[:, 0])
    torch.testing.assert_close(mlp.network(x, ACTOR), outputs)
    torch.testing.assert_close(mlp.network(x, CRITIC)[:, 0], value)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_written_out_gradient_is_autograds(layers):
    torch.manual_seed(layers)
    mlp = TwinMLP(5, 7, layers, torch.ones(3)).double()
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    parameters = [x, *mlp.parameters()]

    def gradients(outputs, value):
        return torch.autograd.grad((outputs * weights[0]).sum() + (value * weights[1]).sum(), parameters)

    written = gradients(*mlp(x))
    recorded = gradients(_plain(mlp, x, ACTOR), _plain(mlp, x, CRITIC)[:, 0])
    for a, b in zip(written, recorded, strict=True):
        torch.testing.assert_close(a, b)


def test_the_normalizer_knows_mean_and_spread_of_everything_it_saw():
    torch.manual_seed(0)
    seen = torch.randn(3000, 4) * torch.tensor([1.0, 5.0, 0.1, 30.0]) + torch.tensor([0.0, 3.0, -2.0, 100.0])
    normalizer = RunningNormalizer(4)
    for piece in seen.split([1, 999, 1500, 500]):
        normalizer.update(piece)
    torch.testing.assert_close(normalizer.mean, seen.mean(0), rtol=1e-2, atol=2e-2)
    torch.testing.assert_close(1 / normalizer.scale, seen.std(0), rtol=2e-2, atol=1e-2)
    assert normalizer(seen * 1000).abs().max() <= 5
