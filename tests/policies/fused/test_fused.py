"""Hand-written passes give what autograd gives, in double precision."""

import pytest
import torch

from touchline.policies.distributions import ActionDistribution, masked_log_probs
from touchline.policies.fused import distribution as fused_distribution
from touchline.policies.fused import twin_mlp as fused_mlp
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.nets.twin_mlp import TwinMLP
from touchline.policies.network import Architecture
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec


@pytest.mark.parametrize("num_signals", [1, 2])
def test_the_forward_pass_is_the_networks_to_the_last_bit(num_signals):
    torch.manual_seed(0)
    mlp = TwinMLP(5, 7, 2, torch.ones(3), num_signals)
    x = torch.randn(40, 5)
    with torch.no_grad():
        passed = mlp.passed(x)
    outputs, value = mlp(x)
    assert torch.equal(passed.outputs, outputs)
    assert torch.equal(passed.value, value)


@pytest.mark.parametrize("state_size", [0, 2])
@pytest.mark.parametrize("num_signals", [1, 2])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_gradient_of_twin_networks(layers, num_signals, state_size):
    torch.manual_seed(layers)
    mlp = TwinMLP(5, 7, layers, torch.ones(3), num_signals, state_size).double()
    x = torch.randn(4, 5).double()
    state = torch.randn(4, state_size).double() if state_size else None
    grad_outputs, grad_value = (
        torch.randn(4, 3).double(),
        torch.randn(4, num_signals).double(),
    )
    parameters = list(mlp.parameters())
    expected = torch.autograd.grad(
        mlp(x, state), parameters, (grad_outputs, grad_value)
    )
    written = [
        torch.full_like(p, 7.0) for p in parameters
    ]  # what was there is overwritten
    with torch.inference_mode():
        passed = mlp.passed(x, state)
        fused_mlp.backward(mlp, passed, grad_outputs, grad_value, written)
    for a, b in zip(written, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_the_gradient_of_a_distribution():
    torch.manual_seed(0)
    mean = torch.randn(4, 3).double().requires_grad_()
    log_std = torch.randn(3).double().requires_grad_()
    logits = [torch.randn(4, n).double().requires_grad_() for n in (3, 5)]
    masks = (None, torch.tensor([[True, True, False, True, True]]).expand(4, 5))
    log_probs = [masked_log_probs(x, m) for x, m in zip(logits, masks, strict=True)]
    distribution = ActionDistribution(mean, log_std, log_probs)
    actions = torch.randn(4, 3).double(), torch.tensor([[0, 1], [1, 4], [2, 0], [1, 3]])
    weights = torch.randn(4).double()
    loss = (
        distribution.log_prob(*actions) * weights
    ).sum() + 0.7 * distribution.entropy()
    by_mean, *by_logits, by_log_std = torch.autograd.grad(
        loss, [mean, *logits, log_std]
    )
    passed = fused_distribution.forward(distribution, actions)
    assert torch.equal(passed.log_prob, distribution.log_prob(*actions))
    grad_outputs, grad_log_std = fused_distribution.backward(
        distribution, passed, weights, 0.7
    )
    torch.testing.assert_close(grad_outputs, torch.cat([by_mean, *by_logits], dim=1))
    torch.testing.assert_close(grad_log_std, by_log_std)


ACTIONS = {
    "continuous": ActionSpec(2),
    "discrete": ActionSpec(0, (3, 2)),
    "hybrid": ActionSpec(1, (4,)),
}


@pytest.mark.parametrize("num_signals", [1, 2])
@pytest.mark.parametrize("kind", ACTIONS)
def test_the_gradient_of_a_whole_network(kind, num_signals):
    torch.manual_seed(1)
    actions = ACTIONS[kind]
    spec = BehaviorSpec((ObservationSpec.vector(5, "a"),), actions)
    architecture = Architecture(hidden_units=6, normalize=True)
    network = ActorCritic(spec, architecture, num_signals).double()
    assert network.has_gradient
    obs = network.normalized((torch.randn(20, 5).double(),))
    allowed = None
    if actions.discrete_size:
        allowed = torch.rand(20, actions.mask_size) < 0.6
        allowed[:, 0] = True
        if actions.discrete_size > 1:
            allowed[:, 3] = True
    with torch.no_grad():
        distribution, _ = network(obs, allowed)
        log_probs = distribution.log_probs
        drawn = [torch.multinomial(p.exp(), 1) for p in log_probs]
        discrete = (
            torch.cat(drawn, dim=1) if drawn else torch.zeros(20, 0, dtype=torch.int64)
        )
    chosen = torch.randn(20, actions.continuous_size).double(), discrete
    target = torch.randn(20, num_signals).double()

    distribution, value = network(obs, allowed)
    loss = (
        distribution.log_prob(*chosen).exp().mean() + (value - target).square().mean()
    )
    loss = loss - 0.3 * distribution.entropy()
    parameters = list(network.parameters())
    expected = torch.autograd.grad(loss, parameters)

    def output_gradients(log_prob, value):
        return log_prob.exp() / len(log_prob), 2.0 * (value - target) / value.numel()

    written = [torch.full_like(p, 7.0) for p in parameters]
    with torch.inference_mode():
        network.gradient(obs, allowed, chosen, output_gradients, -0.3, written)
    for a, b in zip(written, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("state_size", [0, 9])
def test_products_in_bfloat16_change_the_gradient_by_their_rounding(state_size):
    torch.manual_seed(0)
    mlp = TwinMLP(40, 64, 2, torch.ones(3), 1, state_size)
    x = torch.randn(256, 40)
    state = torch.randn(256, state_size) if state_size else None
    grad_outputs, grad_value = torch.randn(256, 3), torch.randn(256, 1)

    def gradient(products):
        written = [torch.empty_like(p) for p in mlp.parameters()]
        with torch.inference_mode():
            passed = mlp.passed(x, state, products)
            fused_mlp.backward(mlp, passed, grad_outputs, grad_value, written)
        return torch.cat([g.flatten() for g in written])

    exact, rounded = gradient(None), gradient(torch.bfloat16)
    error = (rounded - exact).norm() / exact.norm()
    # A number keeps 8 bits, so each rounding is off by 2**-9 at most; some ten follow each other.
    assert 2**-12 < error < 10 * 2**-9


def test_networks_with_more_than_vectors_leave_the_gradient_to_autograd():
    spec = BehaviorSpec((ObservationSpec.vector(5, "a"),), ActionSpec(1))
    assert not ActorCritic(
        spec, Architecture(hidden_units=6, memory_size=4)
    ).has_gradient
