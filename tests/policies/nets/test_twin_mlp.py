"""The twin networks against plain PyTorch written the long way."""

import pytest
import torch
from torch.nn.functional import silu

from touchline.policies.nets.twin_mlp import ACTOR, CRITIC, PIECE, TwinMLP


def plain(mlp, x, which):
    for weight, bias in zip(mlp.weights, mlp.biases, strict=True):
        x = silu(x @ weight[which] + bias[which])
    if which == ACTOR:
        return x @ mlp.policy_weight.t() + mlp.policy_bias
    return x @ mlp.value_weight.t() + mlp.value_bias


@pytest.mark.parametrize("num_signals", [1, 2])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_both_networks_are_plain_mlps(layers, num_signals):
    mlp = TwinMLP(5, 7, layers, torch.ones(3), num_signals)
    x = torch.randn(4, 5)
    outputs, value = mlp(x)
    torch.testing.assert_close(outputs, plain(mlp, x, ACTOR))
    torch.testing.assert_close(value, plain(mlp, x, CRITIC))
    torch.testing.assert_close(mlp.network(x, ACTOR), outputs)
    torch.testing.assert_close(mlp.network(x, CRITIC), value)
    assert value.shape == (4, num_signals)


@pytest.mark.parametrize("num_signals", [1, 2])
def test_no_observations_give_no_values(num_signals):
    mlp = TwinMLP(5, 7, 2, torch.ones(3), num_signals)
    assert mlp.network(torch.zeros(0, 5), CRITIC).shape == (0, num_signals)


def test_a_value_head_starts_the_same_beside_others():
    networks = []
    for num_signals in (1, 3):
        torch.manual_seed(0)
        networks.append(TwinMLP(5, 7, 2, torch.ones(3), num_signals))
    one, three = networks
    assert torch.equal(three.value_weight[:1], one.value_weight)
    assert torch.equal(three.weights[1], one.weights[1])


def test_many_rows_pass_in_pieces_with_the_same_result():
    mlp = TwinMLP(5, 7, 2, torch.ones(3), num_signals=2)
    x = torch.randn(2 * PIECE + 3, 5, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        in_pieces = mlp(x)
    at_once = mlp(x)
    for pieces, whole in zip(in_pieces, at_once, strict=True):
        torch.testing.assert_close(pieces, whole)


def test_only_the_critic_sees_the_state():
    mlp = TwinMLP(5, 7, 2, torch.ones(3), state_size=4)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2 * PIECE + 3, 5, generator=generator)
    state = torch.randn(len(x), 4, generator=generator)
    outputs, value = mlp(x, state)
    other_outputs, other_value = mlp(x, state + 1.0)
    assert torch.equal(outputs, other_outputs)
    assert (value != other_value).all()
    torch.testing.assert_close(mlp.network(x, ACTOR), outputs)
    torch.testing.assert_close(mlp.network(x, CRITIC, state), value)
    with torch.no_grad():
        in_pieces = mlp(x, state)
    torch.testing.assert_close(in_pieces[1], value)
