"""Curiosity: ML-Agents' own numbers, and what must hold for any weights."""

import json

import pytest
import torch
from tests.training.rewards.worlds import SMALL, behavior

from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.experience.columns import mapped
from touchline.training.experience.transitions import Transitions
from touchline.training.rewards.curiosity import (
    inverse_loss,
    make,
    squared_distance,
    total_loss,
)
from touchline.training.rewards.settings import CuriositySettings
from touchline.training.rewards.signal import SignalSetup

SPEC = BehaviorSpec((ObservationSpec.vector(3, "v"),), ActionSpec(1, (3,)))


@pytest.mark.parametrize("kind", ["continuous", "discrete", "hybrid"])
def test_rewards_and_losses_are_ml_agents(shared, kind):
    """Source: ML-Agents 1.1.0, run on small tensors (`golden/icm_*.json`)."""
    file = json.loads(
        (shared / "golden" / f"icm_{kind}.json").read_text(encoding="utf-8")
    )

    def tensor(name):
        return torch.tensor(file[name])

    error = squared_distance(tensor("embedding_next"), tensor("predicted_next"))
    torch.testing.assert_close(error, tensor("reward"), atol=1e-5, rtol=1e-5)
    kept = tensor("mask").bool()
    numbers = continuous = torch.zeros(4, 0)
    if file["predicted_continuous"] is not None:
        numbers, continuous = (
            tensor("predicted_continuous"),
            tensor("action_continuous"),
        )
    log_probs, discrete = [], torch.zeros(4, 0, dtype=torch.int64)
    if file["branches"]:
        of_branches = tensor("predicted_discrete_probabilities").log()[kept]
        log_probs = list(torch.split(of_branches, file["branches"], dim=1))
        discrete = tensor("action_discrete")
    forward = error[kept].mean()
    inverse = inverse_loss(numbers[kept], continuous[kept], log_probs, discrete[kept])
    found = [forward, inverse, total_loss(forward, inverse)]
    expected = [file[f"{name}_loss"] for name in ("forward", "inverse", "total")]
    assert [float(value) for value in found] == pytest.approx(expected, rel=1e-5)


def _signal(strength=1.0, spec=SPEC, **settings):
    block = {"strength": strength, "network_settings": SMALL} | settings
    setup = SignalSetup(
        "A", spec, torch.device("cpu"), seed=1, batch_size=16, num_epoch=1
    )
    return make("curiosity", CuriositySettings.model_validate(block), setup)


def _transitions(count, generator, spec=SPEC):
    """The action moves the first number by itself; the rest is noise."""
    size = spec.observation_specs[0].shape[0]
    obs = torch.randn(count, size, generator=generator)
    continuous = 2 * torch.rand(count, 1, generator=generator) - 1
    discrete = torch.randint(3, (count, 1), generator=generator)
    after = obs.clone()
    after[:, :1] += continuous
    after[:, 1:2] += discrete - 1.0
    ends = torch.zeros(count, dtype=torch.bool)
    return Transitions((obs,), (after,), continuous, discrete, ends)


def test_it_pays_nothing_before_its_first_step_and_at_most_1_after():
    signal, generator = _signal(strength=0.5), torch.Generator().manual_seed(0)
    surprising = _transitions(64, generator)
    surprising.next_obs[0].mul_(50)
    assert signal.reward_of(surprising).abs().max() == 0
    signal.gradient_step(_transitions(64, generator), generator)
    paid = signal.strength * signal.reward_of(surprising)
    assert paid.max() == 1.0


def test_normalized_rewards_have_no_cap():
    signal = _signal(strength=0.5, normalized=True)
    generator = torch.Generator().manual_seed(0)
    signal.gradient_step(_transitions(64, generator), generator)
    surprising = _transitions(64, generator)
    surprising.next_obs[0].mul_(50)
    assert signal.strength * signal.reward_of(surprising).max() > 1.0


@pytest.mark.parametrize("normalized", [True, False])
def test_normalized_rewards_are_tallied_for_their_spread(normalized):
    state = _signal(normalized=normalized).state()
    assert any(name.startswith("scale") for name in state) == normalized


@pytest.mark.usefixtures("unchecked_shapes")
def test_what_was_learned_pays_less_than_what_is_new():
    signal, generator = _signal(learning_rate=3e-3), torch.Generator().manual_seed(0)
    for _ in range(400):
        figures = signal.gradient_step(_transitions(64, generator), generator)
    known = _transitions(256, generator)
    new = mapped(known, torch.clone)
    new.next_obs[0][:, :2] -= 2.0 * (new.next_obs[0] - new.obs[0])[:, :2]
    assert signal.reward_of(new).mean() > 3 * signal.reward_of(known).mean()
    assert figures["curiosity_inverse_loss"] < 0.6, "the action shows in what follows"


@pytest.mark.parametrize("normalized", [True, False])
def test_features_shrink_until_prediction_is_easy_as_in_ml_agents_alone(normalized):
    """If normalized, the features that are predicted are constants for the forward loss."""
    signal = _signal(normalized=normalized)
    generator = torch.Generator().manual_seed(0)
    model, part = signal.model, _transitions(8, generator)
    # Nothing is predicted from φ(o) here, so that the loss depends on φ by its target alone.
    with torch.no_grad():
        model.predict[0].weight[:, : model.body.size] = 0.0
    _, figures = model.loss(part, generator)
    weights = list(model.body.parameters())
    for gradient in torch.autograd.grad(figures["curiosity_forward_loss"], weights):
        assert bool(gradient.any()) == (not normalized)


def test_its_normalizer_learns_from_what_agents_observe():
    """In ML-Agents 1.1.0 it is never fed."""
    network = SMALL | {"normalize": True}
    signal = _signal(network_settings=network)
    obs = 100 + 10 * torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    seen = _transitions(500, torch.Generator().manual_seed(0))
    signal.model.observe(Transitions((obs,), seen.next_obs, *_actions(seen)))
    normalizer = signal.model.normalizer
    assert normalizer(obs).std(dim=0) == pytest.approx(torch.ones(3), abs=0.2)


def _actions(transitions):
    return transitions.continuous, transitions.discrete, transitions.terminated


def test_it_takes_all_sensors():
    signal = _signal(spec=behavior("hybrid"))
    assert signal.model.body.size == 8
