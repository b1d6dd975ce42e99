"""Every part of a network learns what only it can: tiny worlds, solved to a stated score."""

import pytest
from tests.training.tiny_tasks import Count, Heed, Look, Remember, solve

from touchline.policies.memory import MEMORIES

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def _settings(hyper=None, **network):
    return {
        "trainer_type": "ppo",
        "hyperparameters": {
            "batch_size": 128,
            "buffer_size": 1024,
            "learning_rate": 2e-3,
        }
        | (hyper or {}),
        "network_settings": {"hidden_units": 32, "num_layers": 1} | network,
    }


@pytest.mark.parametrize("kind", MEMORIES)
def test_a_memory_knows_at_the_third_step_what_the_first_showed(kind):
    memory = {"type": kind, "memory_size": 32, "sequence_length": 8}
    assert solve(Remember(), _settings(memory=memory), 12_000) > 0.95


def test_without_a_memory_the_first_step_is_forgotten():
    assert solve(Remember(), _settings(), 6_000) < 0.6, (
        "without a memory this cannot be known"
    )


@pytest.mark.parametrize(
    ("task", "steps", "network"),
    [
        (Look(), 5_000, {"vis_encode_type": "match3"}),
        (Look(), 8_000, {"vis_encode_type": "fully_connected"}),
        (Heed(), 6_000, {}),
        (Count(), 5_000, {}),
    ],
)
def test_pictures_goals_and_entities_are_understood(task, steps, network):
    assert solve(task, _settings(**network), steps) > 0.95


@pytest.mark.parametrize(
    "extra",
    [
        {"clip_value_loss": True},
        {"target_kl": 0.02},
        {"return_steps": 2},
        {"advantage_normalization": "minibatch"},
        {"advantage_normalization": "none"},
        {"shared_critic": True},
    ],
    ids=lambda e: next(iter(e)),
)
def test_it_still_learns_with(extra):
    assert solve(Heed(), _settings(extra), 8_000) > 0.9
