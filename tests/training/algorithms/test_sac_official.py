"""SAC's networks of ML-Agents 1.1.0 as ours: the same numbers for the same observations.

The files come from ML-Agents itself (`tests/interop/official_sac_networks.py`).
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.practice import make_learner

from touchline.errors import UsageError
from touchline.policies.distributions import SquashedDistribution
from touchline.policies.nets.memory import Sequences
from touchline.policies.network import side_by_side
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.config.settings import BehaviorConfig
from touchline.training.warm_start import warm_start

OFFICIAL = Path(__file__).parents[2] / "policies" / "files" / "official"
MEMORY = {"memory_size": 8, "sequence_length": 4}
CASES = {
    "sac_vectors": ([(5,), (3,)], (2, ()), {"num_layers": 2, "normalize": True}),
    "sac_hybrid": ([(4,)], (1, (3, 2)), {"num_layers": 1}),
    "sac_image_first": (
        [(1, 20, 20), (4,)],
        (2, (3,)),
        {"num_layers": 1, "normalize": True},
    ),
    "sac_memory": ([(6,)], (0, (4,)), {"num_layers": 1, "memory": MEMORY}),
}
"""As in tests/interop/official_sac_networks.py."""


def learner_of(case, *, trainer="sac", hidden=8, **hyper):
    shapes, actions, settings = CASES[case]
    sensors = tuple(ObservationSpec(shape, name=f"sensor {shape}") for shape in shapes)
    config = BehaviorConfig.model_validate(
        {
            "trainer_type": trainer,
            "hyperparameters": {"batch_size": 8, **hyper},
            "network_settings": {"hidden_units": hidden, **settings},
        }
    )
    return make_learner(BehaviorSpec(sensors, ActionSpec(*actions)), config)


def started(case, suffix=".pt", **settings):
    learner = learner_of(case, **settings)
    warm_start(learner, "Tiny", OFFICIAL / f"{case}{suffix}", ["extrinsic"])
    return learner


def evaluated(learner, expected):
    """The policy, Q of both critics, and the values of the network and of its target."""
    spec = learner.policy.network.spec
    sensors = range(len(spec.observation_specs))
    obs = [expected[f"obs_{i}"] for i in sensors]
    inputs = learner.network.normalized(tuple(map(torch.from_numpy, side_by_side(obs))))
    size, sequences, memories = len(obs[0]), None, [None, None]
    if (shape := learner.network.memory_shape) is not None:  # of one step each
        length = torch.ones(size, dtype=torch.int64)
        sequences = Sequences(length, torch.zeros(size, *shape))
        memories = [Sequences(length, torch.zeros(size, 1, shape[1]))] * 2
    passes, action = learner.descent.passes, torch.from_numpy(expected["action"])
    with torch.no_grad():
        found, value, _ = passes.policy(inputs, None, sequences)
        log_probs = [branch.detach() for branch in found.log_probs]
        distribution = SquashedDistribution(
            found.mean.detach(), found.log_std.detach(), log_probs
        )
        _, q, _ = passes.q(inputs, action, action, memories)
        if learner.hyper.target_critics:
            return distribution, q, passes.target_q(inputs, action, memories)
        return distribution, q, (value, passes.target_value(inputs, sequences))


CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_computes_what_ml_agents_computes(case):
    learner, expected = started(case), np.load(OFFICIAL / f"{case}.npz")
    distribution, q, (value, target) = evaluated(learner, expected)
    actions = learner.policy.network.spec.action_spec
    parts = [actions.continuous_size] * 2 + list(actions.discrete_branches)
    mean, log_std, *logits = np.split(
        expected["outputs"], np.cumsum(parts)[:-1], axis=1
    )
    np.testing.assert_allclose(distribution.mean, mean, **CLOSE)
    np.testing.assert_allclose(distribution.log_std, log_std.clip(-20, 2), **CLOSE)
    for branch, logit in zip(distribution.log_probs, logits, strict=True):
        wanted = torch.log_softmax(torch.from_numpy(logit), dim=1)
        np.testing.assert_allclose(branch, wanted, **CLOSE)
    for found, name in zip(q, ("q1", "q2"), strict=True):
        np.testing.assert_allclose(found[:, 0].detach(), expected[name], **CLOSE)
    np.testing.assert_allclose(value.detach(), expected["value"], **CLOSE)
    np.testing.assert_allclose(target, expected["target"], **CLOSE)


def test_targets_of_critics_start_as_the_critics():
    """ML-Agents has none: its target is a value network."""
    expected = np.load(OFFICIAL / "sac_vectors.npz")
    learner = started("sac_vectors", target_critics=True)
    _, q, target = evaluated(learner, expected)
    for own, slow in zip(q, target, strict=True):
        np.testing.assert_allclose(own.detach(), slow, atol=1e-6)
    np.testing.assert_allclose(q[0][:, 0].detach(), expected["q1"], **CLOSE)


@pytest.mark.parametrize("case", CASES)
def test_a_model_gives_the_policy_of_its_checkpoint_and_no_critic(case):
    expected = np.load(OFFICIAL / f"{case}.npz")
    whole, *_ = evaluated(started(case), expected)
    policy, q, _ = evaluated(started(case, ".onnx"), expected)
    np.testing.assert_allclose(policy.mean, whole.mean, **CLOSE)
    np.testing.assert_allclose(policy.log_std, whole.log_std, **CLOSE)
    for own, wanted in zip(policy.log_probs, whole.log_probs, strict=True):
        np.testing.assert_allclose(own, wanted, **CLOSE)
    _, first, _ = evaluated(learner_of(case), expected)
    if learner_of(case).network.normalizer is None:  # else critics see other inputs
        np.testing.assert_allclose(q[0].detach(), first[0].detach(), atol=1e-6)


def test_other_settings_and_other_trainers_are_refused_in_one_line():
    with pytest.raises(UsageError, match="it has hidden_units 8; configured: hidden"):
        warm_start(
            learner_of("sac_vectors", hidden=16),
            "Tiny",
            OFFICIAL / "sac_vectors.pt",
            ["extrinsic"],
        )
    # PPO has one spread for all situations, SAC one for each.
    with pytest.raises(UsageError, match=r"it has no action_model.*log_sigma\.weight"):
        warm_start(
            learner_of("sac_vectors"), "Tiny", OFFICIAL / "vectors.pt", ["extrinsic"]
        )


def test_a_start_from_ml_agents_fills_a_replay_before_it_learns():
    kept = started("sac_vectors", save_replay_buffer=True)
    fresh = started("sac_vectors")
    assert kept.wanted == fresh.wanted > learner_of("sac_vectors").wanted
