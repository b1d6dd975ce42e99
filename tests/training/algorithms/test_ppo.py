"""PPO's mathematics, and that it learns."""

import numpy as np
import pytest
import torch
from tests.training.practice import Practice, make_learner
from tests.training.rows import any_rows
from tests.training.tiny_tasks import Heed, Look, Remember, practice_on, solve

from touchline.envs.env import make
from touchline.envs.slots import Slots
from touchline.errors import NonFiniteError
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.algorithms.on_policy import Rates
from touchline.training.algorithms.ppo import learner as ppo_learner
from touchline.training.algorithms.ppo.loss import (
    clipped_surrogate,
    clipped_surrogate_gradient,
    clipped_value_error,
    clipped_value_loss,
    output_gradients,
    ppo_loss,
)
from touchline.training.algorithms.settings import linear_schedule, scheduled
from touchline.training.config.reading import read_config
from touchline.training.config.settings import BehaviorConfig


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective"),
    [
        (1.1, 2.0, 2.2),
        (1.5, 2.0, 2.4),
        (0.5, 2.0, 1.0),
        (0.9, -1.0, -0.9),
        (0.5, -1.0, -0.8),
        (1.5, -1.0, -1.5),
    ],
)
def test_gains_count_only_near_the_old_policy(ratio, advantage, objective):
    old = torch.tensor([-1.0])
    new = old + torch.log(torch.tensor([ratio]))
    found = clipped_surrogate(new, old, torch.tensor([advantage]), 0.2).item()
    assert found == pytest.approx(objective, abs=1e-5)


def test_the_surrogates_written_gradient_is_autograds():
    torch.manual_seed(0)
    new = (torch.randn(500, dtype=torch.float64) / 3).requires_grad_()
    old, advantage = torch.zeros(500), torch.randn(500, dtype=torch.float64)
    (expected,) = torch.autograd.grad(clipped_surrogate(new, old, advantage, 0.2), new)
    found = clipped_surrogate_gradient(new.detach(), old, advantage, 0.2)
    torch.testing.assert_close(found, expected)


def test_a_clipped_value_loss_has_the_gradient_of_its_formula():
    torch.manual_seed(0)
    value, old, target = (torch.randn(500, 2, dtype=torch.float64) for _ in range(3))
    value.requires_grad_()
    (expected,) = torch.autograd.grad(
        clipped_value_loss(value, old, target, 0.2), value
    )
    found = clipped_value_error(value.detach(), old, target, 0.2) * 2 / value.numel()
    torch.testing.assert_close(found, expected)


def test_a_schedule_ends_where_it_says():
    assert [linear_schedule(2.0, 0.0, p) for p in (0.0, 0.25, 1.0, 7.0)] == [
        2.0,
        1.5,
        0.0,
        0.0,
    ]
    assert scheduled(0.2, 0.1, "linear", 0.5) == pytest.approx(0.15)
    assert scheduled(0.2, 0.1, "linear", 7.0) == 0.1, "never below its floor"
    assert scheduled(0.2, 0.1, "constant", 0.9) == 0.2


def _settings(hyper, memory=None):
    return {
        "trainer_type": "ppo",
        "hyperparameters": hyper,
        "network_settings": {"memory": memory, "hidden_units": 32},
    }


@pytest.mark.parametrize("clips", [False, True])
def test_the_gradient_that_networks_write_out_is_that_of_the_loss(clips):
    """Plain networks never call `ppo_loss`; this holds their own pass to it, in double precision."""
    spec = BehaviorSpec((ObservationSpec.vector(3, "v"),), ActionSpec(1, (2, 3)))
    config = BehaviorConfig.model_validate(
        _settings({"buffer_size": 64, "batch_size": 32})
    )
    learner = make_learner(spec, config)
    network = learner.network.double()
    assert network.has_gradient
    batch = _random_batch(network, 64)
    settings = Rates(learning_rate=0.0, epsilon=0.2, beta=0.01, clip_value_loss=clips)
    expected = torch.autograd.grad(
        ppo_loss(network, batch, settings), list(network.parameters())
    )
    found = [torch.zeros_like(p) for p in network.parameters()]
    with torch.inference_mode():
        actions = (batch.continuous, batch.discrete)
        gradients = output_gradients(batch, settings)
        network.gradient(
            batch.obs, batch.allowed, actions, gradients, -settings.beta, found
        )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def _random_batch(network, size):
    from touchline.training.algorithms.batch import Batch

    rng = torch.Generator().manual_seed(3)

    def normal(*shape):
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    obs = (normal(size, 3),)
    with torch.no_grad():
        distribution, value = network(obs, None)
        continuous, discrete = distribution.sample(rng)
        log_prob = distribution.log_prob(continuous, discrete)
    return Batch(
        obs=obs,
        allowed=None,
        continuous=continuous,
        discrete=discrete,
        log_prob=log_prob + normal(size) / 5,
        value=value + normal(*value.shape) / 5,
        advantage=normal(size),
        target=value + normal(*value.shape),
    )


@pytest.mark.slow  # a tiny task, `Remember` and `Look` are learned in seconds
@pytest.mark.usefixtures("unchecked_shapes")
def test_basic_is_learned_to_its_optimum():
    config = read_config("Basic_official").behaviors["Basic"]
    name = "Basic?team=0"
    with make("Basic") as env:
        slots = Slots(env)
        rows = slots.reset(1)[name]
        practice = Practice(
            make_learner(slots.behaviors[name], config, seed=1, name="Basic")
        )
        practice.add(rows)
        running, returns = 0.0, []
        while practice.learner.steps < 20_000:
            rows = slots.step({name: practice.act()})[name]
            practice.add(rows)
            running += float(rows.reward[0])
            if rows.terminated[0]:
                returns, running = [*returns, running], 0.0
            practice.learn(rows)
    assert np.mean(returns[-30:]) > 0.9, "the best return is 0.93 (docs/scenes.md)"


class LookAlong(Look):
    """The picture as one vector, so that the network's gradient is written out."""

    spec = BehaviorSpec((ObservationSpec.vector(48, "dot"),), ActionSpec(0, (2,)))

    def observe(self, secret, t):
        return (np.eye(48)[secret],)


def test_learning_in_bfloat16_learns(monkeypatch):
    hyper = {"batch_size": 128, "buffer_size": 1024, "learning_rate": 2e-3}
    # The processor need not have it: PyTorch emulates what is slower then.
    monkeypatch.setattr(ppo_learner, "_has_bfloat16", lambda _device: True)
    settings = _settings(hyper | {"precision": "bfloat16"})
    assert solve(LookAlong(), settings, 12_000) > 0.95


def test_bfloat16_is_float32_without_a_processor_or_a_written_gradient(monkeypatch):
    def first(precision, has, task=LookAlong):
        monkeypatch.setattr(ppo_learner, "_has_bfloat16", lambda _device: has)
        hyper = {"batch_size": 128, "buffer_size": 1024, "precision": precision}
        return practice_on(task(), _settings(hyper), 1).first_metrics

    exact = first("float32", has=True)
    assert first("bfloat16", has=False) == exact
    assert first("bfloat16", has=True) != exact
    # Goals have no written gradient.
    assert first("bfloat16", True, Heed) == first("float32", True, Heed)


@pytest.mark.parametrize("memory", [None, {"memory_size": 8, "sequence_length": 2}])
def test_the_policy_that_learns_is_the_one_that_acted(memory):
    hyper = {"learning_rate": 1e-30, "buffer_size": 400, "batch_size": 100}
    practice = practice_on(Remember(), _settings(hyper, memory), 1, num_slots=16)
    metrics = practice.first_metrics
    assert abs(metrics["kl"]) < 1e-6
    assert metrics["clip_fraction"] == 0


def test_an_update_ends_after_the_epoch_that_went_too_far():
    """A target that the first epoch misses leaves the weights as one epoch alone would."""
    hyper = {
        "buffer_size": 400,
        "batch_size": 100,
        "learning_rate_schedule": "constant",
    }
    held = practice_on(
        Heed(), _settings(hyper | {"num_epoch": 8, "target_kl": 1e-6}), 1
    )
    once = practice_on(Heed(), _settings(hyper | {"num_epoch": 1}), 1)
    free = practice_on(Heed(), _settings(hyper | {"num_epoch": 8}), 1)
    weights = [p.learner.network.state_dict() for p in (held, once, free)]
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name], rtol=0, atol=0)
    assert any(
        not torch.equal(value, weights[2][name]) for name, value in weights[0].items()
    )


def test_weights_that_are_not_finite_are_reported_at_once():
    hyper = {"learning_rate": 1e38, "batch_size": 8, "buffer_size": 64}
    config = BehaviorConfig.model_validate(
        {"trainer_type": "ppo", "hyperparameters": hyper}
    )
    spec = BehaviorSpec(
        (ObservationSpec.vector(2, "v"),), ActionSpec.create_continuous(1)
    )
    practice = Practice(make_learner(spec, config, name="A"))
    rng = np.random.default_rng(3)
    rows = any_rows(rng, True)
    practice.add(rows)
    message = r"A: the update that ended at step \d+ made weights NaN or infinite"

    def learn():
        for _ in range(20):
            practice.act()
            rows = any_rows(rng, False)
            practice.add(rows)
            practice.learn(rows)

    with pytest.raises(NonFiniteError, match=message):
        learn()


def test_a_goal_a_picture_and_a_list_take_the_general_way():
    """Their networks have no written pass: the loss itself is descended, and it learns."""
    hyper = {"batch_size": 128, "buffer_size": 1024, "learning_rate": 2e-3}
    settings = _settings(hyper)
    settings["network_settings"] |= {
        "vis_encode_type": "fully_connected",
        "num_layers": 1,
    }
    assert solve(Look(), settings, 8_000) > 0.95


@pytest.mark.parametrize("memory", [None, {"memory_size": 8, "sequence_length": 2}])
def test_figures_of_a_sample_are_close_to_those_of_the_whole_batch(memory, monkeypatch):
    hyper = {"learning_rate": 1e-2, "buffer_size": 4000, "batch_size": 500}

    def figures():
        settings = _settings(hyper, memory)
        return practice_on(Remember(), settings, 1, num_slots=16).first_metrics

    sampled = None
    for size in (10**9, 2000):
        monkeypatch.setattr(
            "touchline.training.algorithms.ppo.learner.MEASURED_ACTIONS", size
        )
        whole, sampled = sampled, figures()
    assert whole["learning_rate"] == sampled["learning_rate"]
    assert whole["entropy"] == pytest.approx(sampled["entropy"], rel=0.02)
    assert whole["kl"] == pytest.approx(sampled["kl"], rel=0.2)
    assert whole["value_loss"] == pytest.approx(sampled["value_loss"], rel=0.2)
