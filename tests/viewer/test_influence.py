"""What an observation does to an action."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from touchline.envs.env import EnvRecipe, make
from touchline.policies.loading import load_policies
from touchline.policies.network import Architecture, make_network
from touchline.policies.network_policy import NetworkPolicy
from touchline.policies.policy import Outlook, RandomPolicy, SlotActor
from touchline.viewer.critic import Critic
from touchline.viewer.influence import influences, usual_obs
from touchline.viewer.insight import Seat
from touchline.viewer.scene_simulation import SceneSimulation
from touchline.viewer.simulation import Place

MODEL = Path(__file__).parents[2] / "models" / "SoccerTwos.onnx"


class LooksAtOne(RandomPolicy):
    """Turns right as surely as the seventh number says."""

    def outlook(self, rows, memory):
        right = rows.obs[0][:, 7]
        probabilities = np.stack([1 - right, 0 * right, right], axis=1)
        return Outlook([probabilities], np.zeros((len(rows), 0), np.float32), None)


@pytest.fixture
def basic():
    env = make(EnvRecipe("scene", "Basic", num_areas=1))
    env.reset()
    playing = SceneSimulation(
        env, lambda slots: load_policies(["zero"], slots.behaviors)
    )
    yield playing
    playing.close()


def test_a_memory_is_looked_into_before_its_policy_ever_acted():
    env = make(EnvRecipe("scene", "Basic", num_areas=2))
    env.reset()
    made = Architecture(hidden_units=8, num_layers=1, memory_size=4)

    def actors(slots):
        ((name, spec),) = slots.behaviors.items()
        return {name: SlotActor(NetworkPolicy(make_network(spec, made)), spec, 0)}

    playing = SceneSimulation(env, actors)
    insight = playing.insight(Seat(1, 0))
    assert len(insight.memory.values) == 1
    assert not insight.memory.values.any()
    assert insight.outlook is not None
    (name,) = playing.actors
    moments, actor = playing.past(), playing.actors[name]
    assert len(moments) == 1
    times, values, advantages = Critic().curve(moments, Place(name, 1), actor)
    assert len(times) == len(values) == len(advantages) == 0  # of no whole decision
    playing.close()


def test_only_what_a_policy_looks_at_moves_its_action(basic):
    insight = basic.insight(Seat(0, 0))
    obs = np.zeros_like(insight.rows.obs[0])
    obs[0, 7] = 0.75
    policy = LooksAtOne(insight.spec)
    seen = replace(insight, policy=policy, rows=replace(insight.rows, obs=(obs,)))
    found = {one.part: one.effect for one in influences(seen, [np.zeros(20)])}
    assert len(found) == 1 + 20
    assert found.pop("") == found.pop("index 7") == pytest.approx(0.75)
    assert not any(found.values())


def test_a_policy_that_shows_nothing_explains_nothing(basic):
    insight = basic.insight(Seat(0, 0))
    assert influences(insight, usual_obs(insight, [])) is None


def test_a_usual_observation_is_the_mean_of_the_moments(basic):
    insight = basic.insight(Seat(0, 0))
    (usual,) = usual_obs(insight, basic.past())
    np.testing.assert_array_equal(usual, insight.obs[0])  # of one moment
    assert not usual_obs(insight, [])[0].any()


def test_the_parts_of_a_ray_sensor_are_its_rays():
    env = make(EnvRecipe("scene", "SoccerTwos", num_areas=1))
    env.reset()
    playing = SceneSimulation(
        env, lambda slots: load_policies([str(MODEL)], slots.behaviors)
    )
    insight = playing.insight(Seat(0, 0))
    found = influences(insight, usual_obs(insight, []))
    playing.close()
    front = [one.part for one in found if one.sensor == 0]
    assert front[:4] == ["", "ray 0 ahead", "ray 1 right", "ray 2 left"]
    assert len(front) == 1 + 11
    assert len(found) - len(front) == 1 + 3
    assert 0.0 < max(one.effect for one in found) <= 1.0
