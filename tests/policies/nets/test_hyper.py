"""The layer that goals steer."""

import pytest
import torch

from touchline.policies.nets.dense import HyperLinear


def test_a_layer_that_goals_steer_is_a_dense_layer_for_each_goal():
    torch.manual_seed(0)
    layer, x, goal = (
        HyperLinear(5, 64, 2),
        torch.randn(4, 5),
        torch.eye(2)[[0, 1, 1, 0]],
    )
    z = layer.spread * torch.nn.functional.layer_norm(layer.goal(goal), [layer.parts])
    weights = torch.einsum(
        "bk,koi->boi", z, layer.special.weight.view(layer.parts, 64, 5)
    )
    layer.bias.data.normal_()
    torch.testing.assert_close(
        layer(x, goal), torch.einsum("boi,bi->bo", weights, x) + layer.bias
    )


def test_a_goals_own_weights_are_as_large_as_a_dense_layers_and_differ_between_goals():
    """ML-Agents draws them uniformly with a spread of 1 / √(3 inputs)."""
    torch.manual_seed(0)
    layer = HyperLinear(100, 128, 2)
    one, other = (
        layer(torch.eye(100), torch.eye(2)[[k] * 100]).detach() for k in (0, 1)
    )
    assert float(one.std()) == pytest.approx(300**-0.5, rel=0.1)
    assert torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1] < 0.9
