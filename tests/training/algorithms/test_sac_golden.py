"""SAC's losses against ML-Agents' own numbers, and against the right ones where those are wrong.

Source: ML-Agents 1.1.0, run on small tensors (`golden/sac_*.json`).
"""

import json

import pytest
import torch
from tests.training.practice import make_learner

from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.algorithms.sac.loss import (
    LogTemperatures,
    PolicyDraw,
    expected,
    target_entropies,
    temperature_loss,
)
from touchline.training.config.settings import BehaviorConfig
from touchline.training.experience.replay import Sample

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


class Case:
    """A learner with the file's weights, and the file's minibatch."""

    def __init__(self, shared, kind):
        path = shared / "golden" / f"sac_{kind}.json"
        self.file = json.loads(path.read_text(encoding="utf-8"))
        file = self.file
        branches = tuple(file["branches"])
        action = ActionSpec(file["continuous"], branches)
        sensor = ObservationSpec.vector(3, "all")
        hyper = {"batch_size": 4, "init_entcoef": file["init_entcoef"]}
        settings = {
            "trainer_type": "sac",
            "hyperparameters": hyper | {"buffer_size": 8},
            "network_settings": {"hidden_units": 4, "num_layers": 1},
        }
        config = BehaviorConfig.model_validate(settings)
        self.learner = make_learner(BehaviorSpec((sensor,), action), config, 0)
        self.load()

    def tensor(self, name):
        return torch.tensor(self.file[name])

    @torch.no_grad()
    def load(self):
        weights = self.file["weights"]
        body = "network_body._body_endoder.seq_layers.0."
        head = "value_heads.value_heads.extrinsic."

        def of(module, name):
            return torch.tensor(weights[module][name])

        networks = [(self.learner.network.trunk, "v")]
        networks.append((self.learner.networks.target.trunk, "v_target"))
        for trunk, name in networks:
            for which, source in enumerate(("actor", name)):
                trunk.weights[0][which] = of(source, f"{body}weight").t()
                trunk.biases[0][which, 0] = of(source, f"{body}bias")
            trunk.value_weight.copy_(of(name, f"{head}weight"))
            trunk.value_bias.copy_(of(name, f"{head}bias"))
        trunk, actions = self.learner.network.trunk, "action_model."
        heads = [f"{actions}_continuous_distribution.{n}" for n in ("mu", "log_sigma")]
        if not self.file["continuous"]:
            heads = []
        branches = range(len(self.learner.descent.branches))
        heads += [f"{actions}_discrete_distribution.branches.{b}" for b in branches]
        for kind, part in (
            ("weight", trunk.policy_weight),
            ("bias", trunk.policy_bias),
        ):
            part.copy_(torch.cat([of("actor", f"{h}.{kind}") for h in heads]))
        for critic, name in zip(
            self.learner.networks.critics, ("q1", "q2"), strict=True
        ):
            critic.body.dense[0].weight.copy_(of(name, f"{body}weight"))
            critic.body.dense[0].bias.copy_(of(name, f"{body}bias"))
            critic.head.weight.copy_(of(name, f"{head}weight"))
            critic.head.bias.copy_(of(name, f"{head}bias"))

    @property
    def noise(self):
        noise = self.file["noise"]
        return torch.zeros(4, 0) if noise is None else torch.tensor(noise)

    def losses(self):
        allowed = self.file["action_allowed"]
        mask = None if allowed is None else torch.tensor(allowed) > 0
        sample = Sample(
            obs=(self.tensor("obs"),),
            allowed=mask,
            continuous=self.tensor("action_continuous").reshape(4, -1),
            discrete=self.tensor("action_discrete").long().reshape(4, -1),
            reward=self.tensor("reward")[:, None],
            next_obs=(self.tensor("next_obs"),),
            next_allowed=None,
            discount=self.file["gamma"] * (1 - self.tensor("done"))[:, None],
        )
        found = self.learner.descent.evaluated(sample, self.noise, self.noise)
        return self.learner.descent.losses(found, self.learner.descent.log_temperatures)

    def draw(self):
        allowed = self.file["action_allowed"]
        mask = None if allowed is None else torch.tensor(allowed) > 0
        found = self.learner.network.distribution((self.tensor("obs"),), mask)
        return PolicyDraw.of(found, self.noise)


@pytest.mark.parametrize("kind", ["continuous", "discrete", "hybrid"])
def test_critics_have_ml_agents_losses(shared, kind):
    case = Case(shared, kind)
    losses = case.losses()
    for found, name in zip(losses.critics, ("q1_loss", "q2_loss"), strict=True):
        assert float(found.detach()) == pytest.approx(case.file[name], abs=1e-5)


def test_continuous_actions_have_ml_agents_losses(shared):
    case = Case(shared, "continuous")
    losses, file = case.losses(), case.file
    draw = case.draw()
    torch.testing.assert_close(
        draw.continuous, case.tensor("sampled_continuous"), **CLOSE
    )
    log_prob = case.tensor("log_prob_continuous").sum(dim=1)
    torch.testing.assert_close(draw.log_prob, log_prob, **CLOSE)
    assert float(losses.policy.detach()) == pytest.approx(file["policy_loss"], abs=1e-5)
    assert float(losses.value.detach()) == pytest.approx(file["value_loss"], abs=1e-5)
    assert float(losses.temperature.detach()) == pytest.approx(
        file["entropy_loss"], abs=1e-5
    )


def test_discrete_actions_have_ml_agents_losses(shared):
    """Its policy loss is the sum over branches, ours the mean."""
    case = Case(shared, "discrete")
    losses, file = case.losses(), case.file
    policy = 2 * float(losses.policy.detach())
    assert policy == pytest.approx(file["policy_loss"], abs=1e-5)
    assert float(losses.value.detach()) == pytest.approx(file["value_loss"], abs=1e-5)


@pytest.mark.parametrize("kind", ["discrete", "hybrid"])
def test_as_ml_agents_forbidden_choices_count_in_the_target_entropy(shared, kind):
    case = Case(shared, kind)
    log_alpha = case.learner.descent.log_temperatures
    split = int(case.file["continuous"] > 0)
    temperatures = LogTemperatures(log_alpha[:split], log_alpha[split:])
    branches = case.learner.descent.branches
    targets = target_entropies(branches, None, 4)
    own = case.tensor("target_entropy_discrete").expand(4, -1)
    torch.testing.assert_close(targets, own, **CLOSE)
    found = temperature_loss(case.draw(), temperatures, -2.0 * split, targets)
    assert float(found.detach()) == pytest.approx(case.file["entropy_loss"], abs=1e-5)


def test_only_allowed_choices_count_in_our_target_entropy():
    allowed = torch.tensor([[True, False, True, True, False]])
    found = target_entropies((3, 2), allowed, 1)
    torch.testing.assert_close(found, torch.tensor([[0.2 * 0.6931472, 0.0]]))


def test_hybrid_values_have_the_right_sign(shared):
    """X4: ML-Agents adds what it should take away; the file has both."""
    case = Case(shared, "hybrid")
    losses = case.losses()
    right = case.tensor("value_target_correct_sign")
    torch.testing.assert_close(losses.expected[:, 0], right, **CLOSE)
    wanted = case.file["value_loss_correct_sign"]
    assert float(losses.value.detach()) == pytest.approx(wanted, abs=1e-5)
    draw, alpha = case.draw(), case.file["init_entcoef"]
    as_ml_agents = losses.expected[:, 0] + 2 * alpha * draw.log_prob
    official = case.tensor("value_target_official")
    torch.testing.assert_close(as_ml_agents, official, **CLOSE)


def test_hybrid_policies_count_their_q_once(shared):
    """X5: ML-Agents counts it twice; the rest of the loss is the same."""
    case = Case(shared, "hybrid")
    file, draw = case.file, case.draw()
    q1 = case.tensor("q1_policy")
    q = (q1 * torch.exp(draw.choices[0])).sum(dim=1)
    negative = draw.negative_entropies[:, 0]
    alpha = file["init_entcoef"]
    by_hand = (alpha * negative - q + alpha * draw.log_prob).mean()
    found = case.losses().policy
    assert float(found.detach()) == pytest.approx(float(by_hand.detach()), abs=1e-5)
    torch.testing.assert_close(expected(q1[:, None], draw.chances)[:, 0], q)
    as_ml_agents = float((found - q.mean()).detach())
    assert as_ml_agents == pytest.approx(file["policy_loss"], abs=1e-5)
