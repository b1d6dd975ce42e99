"""SAC's written-out passes give what autograd gives, in double precision."""

import pytest
import torch
from tests.training.practice import make_learner

from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.algorithms.adam import FlatParameters
from touchline.training.algorithms.sac.dense_passes import DensePasses
from touchline.training.algorithms.sac.passes import AutogradPasses
from touchline.training.config.settings import BehaviorConfig
from touchline.training.experience.replay import Sample

ROWS = 6
ACTIONS = {
    "continuous": ActionSpec(2),
    "discrete": ActionSpec(0, (3, 2)),
    "hybrid": ActionSpec(1, (4,)),
}
FORMS = pytest.mark.parametrize("ours", [False, True], ids=["as ML-Agents", "ours"])


def double_learner(action, *, ours, layers=2):
    """Two reward signals, and weights in double precision."""
    config = BehaviorConfig.model_validate(
        {
            "trainer_type": "sac",
            "hyperparameters": {"batch_size": ROWS, "target_critics": ours},
            "network_settings": {"hidden_units": 5, "num_layers": layers},
            "reward_signals": {"extrinsic": {}, "rnd": {}},
        }
    )
    spec = BehaviorSpec((ObservationSpec.vector(3, "all"),), action)
    learner = make_learner(spec, config)
    for network in (learner.network, learner.critics, learner.target):
        network.double()
    parameters = [*learner.network.parameters(), *learner.critics.parameters()]
    learner._weights = FlatParameters(parameters)
    learner._target_weights = FlatParameters(learner.target.parameters())
    learner.log_temperatures = learner.log_temperatures.double()
    with torch.no_grad():  # or values are near 0, and so are mistakes in them
        learner._weights.vector.add_(0.3 * torch.randn_like(learner._weights.vector))
        for parameter in learner.target.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return learner


def minibatch(action):
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
        obs=(normal(ROWS, 3),),
        allowed=allowed,
        continuous=torch.tanh(normal(ROWS, action.continuous_size)),
        discrete=torch.stack(choices, dim=1) if choices else nothing,
        reward=normal(ROWS, 2),
        next_obs=(normal(ROWS, 3),),
        next_allowed=allowed,
        discount=torch.full((ROWS, 2), 0.9, dtype=torch.float64),
    )


def evaluated(learner, passes, sample, noise):
    """All losses of a minibatch, and all of its gradients."""
    learner._passes = passes(
        learner.network, learner.critics, learner.target, learner._weights
    )
    log_alpha = learner.log_temperatures.clone().requires_grad_()
    learner._weights.gradient.fill_(7.0)  # what was there is overwritten
    with torch.set_grad_enabled(learner._passes.uses_autograd):
        found = learner.evaluated(sample, *noise)
        losses = learner.losses(found, log_alpha)
    parts = [losses.policy, *losses.critics, losses.value, losses.temperature]
    by_alpha = learner._passes.descend(found, losses, log_alpha)
    gradient = learner._weights.gradient.clone()
    return torch.stack(parts).detach(), losses.expected, gradient, by_alpha


@FORMS
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("kind", ACTIONS)
def test_losses_and_gradients_are_those_of_autograd(kind, layers, ours):
    torch.manual_seed(0)
    action = ACTIONS[kind]
    learner = double_learner(action, ours=ours, layers=layers)
    sample = minibatch(action)
    shape = 2, ROWS, action.continuous_size
    noise = torch.randn(shape, dtype=torch.float64)
    expected = evaluated(learner, AutogradPasses, sample, noise)
    found = evaluated(learner, DensePasses, sample, noise)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-9)
    assert float(expected[2].abs().max()) > 1e-3


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_dense_layers_over_one_vector_take_the_written_out_passes(action):
    assert isinstance(double_learner(action, ours=True)._passes, DensePasses)


def test_memories_take_autograd():
    config = BehaviorConfig.model_validate(
        {
            "trainer_type": "sac",
            "network_settings": {"memory": {"memory_size": 8, "sequence_length": 4}},
        }
    )
    spec = BehaviorSpec((ObservationSpec.vector(3, "all"),), ActionSpec(1))
    assert isinstance(make_learner(spec, config)._passes, AutogradPasses)
