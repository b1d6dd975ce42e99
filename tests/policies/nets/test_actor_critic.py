"""The standard network: which parts it is made of, and what it refuses."""

import pytest
import torch

from touchline.errors import UsageError
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.nets.bodies import Bodies
from touchline.policies.nets.twin_mlp import TwinMLP
from touchline.policies.network import Architecture
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec, ObservationType


def _goal(size):
    return ObservationSpec(
        (size,), observation_type=ObservationType.GOAL_SIGNAL, name="goal"
    )


MIXED = BehaviorSpec(
    (
        ObservationSpec((3, 20, 30), name="camera"),
        ObservationSpec.vector(2, "a"),
        ObservationSpec((4, 5), name="list"),
        _goal(3),
        ObservationSpec((1, 24, 24), name="grid"),
        ObservationSpec.vector(1, "b"),
    ),
    ActionSpec(2, (3,)),
)


def test_only_vectors_are_normalized():
    network = ActorCritic(MIXED, Architecture(hidden_units=8, normalize=True))
    network.normalizer.update(torch.randn(100, 6) * 3 + 7)
    obs = tuple(torch.rand(2, *shape) for shape in network.sensors.shapes)
    normalized = network.normalized(obs)
    assert not torch.equal(normalized[0], obs[0])
    assert all(a is b for a, b in zip(normalized[1:], obs[1:], strict=True))
    pictures = BehaviorSpec((ObservationSpec((3, 20, 20)),), ActionSpec(1))
    assert ActorCritic(pictures, Architecture(normalize=True)).normalizer is None


def test_vectors_alone_take_the_short_way():
    vectors, goals = (
        BehaviorSpec((o, ObservationSpec.vector(2, "a")), ActionSpec(1))
        for o in (ObservationSpec.vector(2, "b"), _goal(2))
    )

    def trunk(spec, **settings):
        return type(ActorCritic(spec, Architecture(hidden_units=8, **settings)).trunk)

    assert trunk(vectors) is TwinMLP
    assert trunk(goals) is Bodies
    assert trunk(goals, goal_conditioning_type="none") is TwinMLP
    assert trunk(vectors, memory_size=4) is Bodies
    assert trunk(vectors, shared_critic=True) is Bodies


def test_without_gradients_large_batches_go_in_chunks_with_the_same_result(monkeypatch):
    torch.manual_seed(0)
    network = ActorCritic(MIXED, Architecture(hidden_units=8))
    obs = tuple(torch.rand(10, *shape) for shape in network.sensors.shapes)
    with torch.no_grad():
        whole = network.value(obs)
        monkeypatch.setattr("touchline.policies.nets.bodies.CHUNK_SIZE", 4)
        torch.testing.assert_close(network.value(obs), whole)


@pytest.mark.parametrize("plain", [True, False])
def test_orthogonal_first_weights_keep_lengths(plain):
    spec = BehaviorSpec((ObservationSpec.vector(8, "a"),), ActionSpec(2))
    network = ActorCritic(
        spec,
        Architecture(
            hidden_units=8, num_layers=2, orthogonal_init=True, shared_critic=not plain
        ),
    )
    weight = (
        network.trunk.weights[0][0] if plain else network.trunk.actor.dense[2].weight
    )
    torch.testing.assert_close(weight @ weight.t(), 2 * torch.eye(8), atol=1e-5, rtol=0)
    outputs, value = (
        network.trunk(torch.randn(100, 8))
        if plain
        else network.trunk((torch.randn(100, 8),), None)
    )
    assert outputs.abs().max() < 0.1 < value.abs().max()


def test_orthogonal_first_weights_leave_a_layer_that_goals_steer_as_large_as_it_was():
    """Its weights are sums over parts that the goal weighs, so no single part keeps lengths."""
    spec = BehaviorSpec((ObservationSpec.vector(64, "a"), _goal(2)), ActionSpec(2))
    torch.manual_seed(0)
    x, goals = torch.randn(256, 128), torch.eye(2).repeat(128, 1)
    spread = [
        ActorCritic(spec, Architecture(orthogonal_init=is_orthogonal))
        .trunk.actor.goal_layer(x, goals)
        .std()
        for is_orthogonal in (True, False)
    ]
    torch.testing.assert_close(*spread, rtol=0.2, atol=0)


def test_a_shape_that_no_network_takes_is_refused_with_its_name():
    spec = BehaviorSpec((ObservationSpec((1, 2, 3, 4), name="film"),), ActionSpec(1))
    with pytest.raises(
        UsageError,
        match=r"'film' of shape \(1, 2, 3, 4\): the trainer learns from vectors",
    ):
        ActorCritic(spec, Architecture())
