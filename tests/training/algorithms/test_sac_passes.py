"""SAC's written-out passes give what autograd gives, in double precision."""

from dataclasses import replace

import pytest
import torch
from tests.training.practice import make_learner

from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.algorithms.adam import FlatParameters
from touchline.training.algorithms.sac.passes import AutogradPasses, DensePasses
from touchline.training.config.settings import BehaviorConfig
from touchline.training.experience.replay import Sample

ROWS = 6
ACTIONS = {
    "continuous": ActionSpec(2),
    "discrete": ActionSpec(0, (3, 2)),
    "hybrid": ActionSpec(1, (4,)),
}
FORMS = pytest.mark.parametrize(
    ("ours", "state"),
    [(False, 0), (True, 0), (True, 2)],
    ids=["as ML-Agents", "ours", "ours, with a state"],
)


def double_descent(action, *, ours, layers=2, state=0):
    """Two reward signals, and weights in double precision."""
    config = BehaviorConfig.model_validate(
        {
            "trainer_type": "sac",
            "hyperparameters": {"batch_size": ROWS, "target_critics": ours},
            "network_settings": {"hidden_units": 5, "num_layers": layers},
            "reward_signals": {"extrinsic": {}, "rnd": {}},
        }
    )
    sensors = [ObservationSpec.vector(3, "all")]
    if state:
        shown = ObservationSpec.vector(state, "State")
        sensors.append(replace(shown, critic_only=True))
    spec = BehaviorSpec(tuple(sensors), action)
    learner = make_learner(spec, config)
    networks, descent = learner.networks, learner.descent
    for network in networks.named().values():
        network.double()
    parameters = [*networks.policy.parameters(), *networks.critics.parameters()]
    networks.weights = FlatParameters(parameters)
    networks._target_weights = FlatParameters(networks.target.parameters())
    descent.log_temperatures = descent.log_temperatures.double()
    with torch.no_grad():  # or values are near 0, and so are mistakes in them
        networks.weights.vector.add_(0.3 * torch.randn_like(networks.weights.vector))
        for parameter in networks.target.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return descent


def minibatch(action, state):
    def normal(*shape):
        return torch.randn(shape, dtype=torch.float64)

    choices = [torch.randint(n, (ROWS,)) for n in action.discrete_branches]
    nothing = torch.zeros(ROWS, 0, dtype=torch.int64)
    allowed = torch.rand(ROWS, action.mask_size) > 0.3 if choices else None
    start = 0
    for size in action.discrete_branches:  # every branch allows something
        allowed[:, start] = True
        start += size
    return Sample(
        obs=(normal(ROWS, 3 + state),),
        allowed=allowed,
        continuous=torch.tanh(normal(ROWS, action.continuous_size)),
        discrete=torch.stack(choices, dim=1) if choices else nothing,
        reward=normal(ROWS, 2),
        next_obs=(normal(ROWS, 3 + state),),
        next_allowed=allowed,
        discount=torch.full((ROWS, 2), 0.9, dtype=torch.float64),
    )


def evaluated(descent, passes, sample, noise, between=None):
    """All losses of a minibatch, and all of its gradients."""
    of = descent.networks
    descent.passes = passes(of.policy, of.critics, of.target, of.weights)
    log_alpha = descent.log_temperatures.clone().requires_grad_()
    of.weights.gradient.fill_(7.0)  # what was there is overwritten
    with torch.set_grad_enabled(descent.passes.uses_autograd):
        found = descent.evaluated(sample, *noise)
        losses = descent.losses(found, log_alpha)
        if between is not None:
            descent.evaluated(between, *noise)
    parts = [losses.policy, *losses.critics, losses.value, losses.temperature]
    by_alpha = descent.passes.descend(found, losses, log_alpha)
    gradient = of.weights.gradient.clone()
    return torch.stack(parts).detach(), losses.expected, gradient, by_alpha


@FORMS
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("kind", ACTIONS)
def test_losses_and_gradients_are_those_of_autograd(kind, layers, ours, state):
    torch.manual_seed(0)
    action = ACTIONS[kind]
    descent = double_descent(action, ours=ours, layers=layers, state=state)
    sample = minibatch(action, state)
    shape = 2, ROWS, action.continuous_size
    noise = torch.randn(shape, dtype=torch.float64)
    expected = evaluated(descent, AutogradPasses, sample, noise)
    # The gradient is that of what is descended, whatever was evaluated since.
    between = minibatch(action, state)
    found = evaluated(descent, DensePasses, sample, noise, between)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-9)
    assert float(expected[2].abs().max()) > 1e-3


@pytest.mark.parametrize("state", [0, 2])
@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_dense_layers_over_one_vector_take_the_written_out_passes(action, state):
    descent = double_descent(action, ours=True, state=state)
    assert isinstance(descent.passes, DensePasses)


def test_a_value_network_that_sees_the_state_takes_autograd():
    descent = double_descent(ActionSpec(1), ours=False, state=2)
    assert isinstance(descent.passes, AutogradPasses)


def test_memories_take_autograd():
    config = BehaviorConfig.model_validate(
        {
            "trainer_type": "sac",
            "network_settings": {"memory": {"memory_size": 8, "sequence_length": 4}},
        }
    )
    spec = BehaviorSpec((ObservationSpec.vector(3, "all"),), ActionSpec(1))
    assert isinstance(make_learner(spec, config).descent.passes, AutogradPasses)
