"""GAIL: ML-Agents' own numbers, the right ones where those are wrong, and what must always hold."""

import json

import numpy as np
import pytest
import torch
from tests.training.demo_bytes import TWO_EPISODES
from tests.training.rewards.worlds import SMALL, demonstration

from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.specs import ActionSpec, ActionTuple, BehaviorSpec, ObservationSpec
from touchline.training.config.reading import read_config
from touchline.training.experience.transitions import Transitions
from touchline.training.rewards.gail import (
    GAIL,
    Discriminator,
    Experts,
    between,
    gradient_penalty,
    imitation,
    make,
    reward_of,
    separation_loss,
)
from touchline.training.rewards.settings import GAILSettings
from touchline.training.rewards.signal import SignalSetup
from touchline.training.trainer import train

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
SPEC = BehaviorSpec((ObservationSpec.vector(3, "v"),), ActionSpec(2, (3,)))


class Case:
    """A discriminator with a file's weights, and the file's two batches.

    Source: ML-Agents 1.1.0, run on small tensors (`golden/gail_*.json`).
    """

    def __init__(self, shared, kind):
        path = shared / "golden" / f"gail_{kind}.json"
        self.file = json.loads(path.read_text(encoding="utf-8"))
        file = self.file
        network = {"hidden_units": file["hidden_units"], "num_layers": 1}
        self.settings = GAILSettings(
            demo_path="-",
            use_actions=file["use_actions"],
            use_vail=file["use_vail"],
            network_settings=network,
        )
        self.model = Discriminator(self.settings, SPEC, code_size=4)
        self.draws = [torch.tensor(values) for _, values in file["draws"]]
        self._load()
        self.policy, self.expert = self.inputs("policy"), self.inputs("expert")

    @torch.no_grad()
    def _load(self):
        body = "encoder._body_endoder.seq_layers.0."
        layers = {body: self.model.body.dense[0], "_estimator.0.": self.model.estimate}
        if self.model.bottleneck is not None:
            layers["_z_mu_layer."] = self.model.bottleneck.mean
            spread = torch.tensor(self.file["weights"]["_z_sigma"])
            self.model.bottleneck.spread.copy_(spread)
        for name, layer in layers.items():
            for kind in ("weight", "bias"):
                value = torch.tensor(self.file["weights"][name + kind])
                getattr(layer, kind).copy_(value)

    def transitions(self, side):
        part = self.file[side]
        obs = (torch.tensor(part["obs"]),)
        discrete = torch.tensor(part["discrete"])
        ends = torch.tensor(part["done"]).bool()
        return Transitions(obs, obs, torch.tensor(part["continuous"]), discrete, ends)

    def inputs(self, side):
        return self.model.inputs(self.transitions(side))

    def stat(self, name):
        return self.file["stats"][name]


@pytest.mark.parametrize("kind", ["states", "actions", "vail"])
def test_estimates_and_rewards_are_ml_agents(shared, kind):
    case = Case(shared, kind)
    for side, inputs in (("policy", case.policy), ("expert", case.expert)):
        found = torch.sigmoid(case.model(inputs))
        expected = torch.tensor(case.file[f"{side}_estimate_no_noise"])
        torch.testing.assert_close(found, expected, **CLOSE)
    reward = reward_of(case.model(case.policy), "positive")
    torch.testing.assert_close(reward, torch.tensor(case.file["reward"]), **CLOSE)


def _experts(count=8):
    rng = np.random.default_rng(0)
    obs = [rng.normal(size=(count, 3)).astype(np.float32)]
    actions = SPEC.action_spec.random_action(count, rng)
    return Experts(demonstration(SPEC, obs, actions))


@pytest.mark.parametrize("kind", ["states", "vail"])
def test_losses_are_ml_agents_where_it_judges_one_observation(shared, kind):
    """There, the weight between two rows is drawn for each number of the observation."""
    case = Case(shared, kind)
    noise = [None, None, None]
    if kind == "vail":
        noise = [case.draws[0], case.draws[1], case.draws[3]]
    weight = case.draws[2 if kind == "vail" else 0]
    mixed = (weight * case.policy[0] + (1 - weight) * case.expert[0],)
    gail = GAIL(case.settings, case.model, _experts())
    if kind == "vail":
        gail.beta.fill_(case.file["beta_before"])
    loss, figures = gail.loss_of(case.policy, case.expert, mixed, noise)
    tags = {
        "gail_policy_estimate": "Policy/GAIL Policy Estimate",
        "gail_expert_estimate": "Policy/GAIL Expert Estimate",
        "gail_loss": "Losses/GAIL Loss",
        "gail_grad_mag_loss": "Policy/GAIL Grad Mag Loss",
        "gail_kl_loss": "Losses/GAIL KL Loss",
        "gail_beta": "Policy/GAIL Beta",
    }
    assert len(figures) == (6 if kind == "vail" else 4)
    for name, value in figures.items():
        assert float(value.detach()) == pytest.approx(case.stat(tags[name]), rel=1e-5)
    assert float(loss.detach()) == pytest.approx(case.file["total_loss"][0], rel=1e-5)
    gail.learned(figures)
    if kind == "vail":
        assert float(gail.beta) == pytest.approx(case.stat("Policy/GAIL Beta"))


def test_separation_with_actions_is_ml_agents(shared):
    case = Case(shared, "actions")
    found = separation_loss(case.model(case.policy), case.model(case.expert))
    assert float(found.detach()) == pytest.approx(
        case.stat("Losses/GAIL Loss"), rel=1e-5
    )


def test_the_penalty_as_ml_agents_leaves_actions_out(shared):
    case = Case(shared, "actions")
    norm = _gradient(case, _elementwise(case))[:, :3]
    squares = (np.sqrt((norm**2).sum(axis=1) + 1e-7) - 1) ** 2
    expected = case.stat("Policy/GAIL Grad Mag Loss")
    assert 10 * squares.mean() == pytest.approx(expected, rel=1e-5)


def test_the_right_penalty_counts_observations_actions_and_ends(shared):
    """Worked by hand: ∂D/∂x = D (1 − D) Wᵀ (swish'(W x + b) ∘ w)."""
    case = Case(shared, "actions")
    weight = torch.tensor([[0.2], [0.9], [0.5], [0.7]])
    mixed = between(case.policy, case.expert, weight)
    by_hand = weight * case.policy[0] + (1 - weight) * case.expert[0]
    torch.testing.assert_close(mixed[0], by_hand)
    norm = np.sqrt((_gradient(case, by_hand) ** 2).sum(axis=1) + 1e-7)
    found = gradient_penalty(case.model, mixed)
    assert float(found.detach()) == pytest.approx(((norm - 1) ** 2).mean(), rel=1e-5)


def _elementwise(case):
    weight = torch.cat(case.draws, dim=1)
    return weight * case.policy[0] + (1 - weight) * case.expert[0]


def _gradient(case, mixed):
    """[B, 9] of D by its inputs, in NumPy."""
    x = mixed.numpy().astype(np.float64)
    layer, last = case.model.body.dense[0], case.model.estimate
    inner, bias = (p.detach().numpy().astype(np.float64) for p in layer.parameters())
    outer, shift = (p.detach().numpy().astype(np.float64) for p in last.parameters())
    z = x @ inner.T + bias
    gate = 1 / (1 + np.exp(-z))
    slope = gate * (1 + z * (1 - gate))
    estimate = 1 / (1 + np.exp(-((z * gate) @ outer.T + shift)))
    return estimate * (1 - estimate) * ((slope * outer) @ inner)


class Line(torch.nn.Module):
    """A logit that is the sum of all numbers of a row, times one weight."""

    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(float(weight)))

    def forward(self, inputs, noise=None):
        return sum(self.weight * part.flatten(1).sum(dim=1) for part in inputs)


def test_the_penalty_is_least_where_slopes_over_all_inputs_have_length_1():
    """At D = ½ the slope is a quarter of the weight, in each of four numbers of two sensors."""
    zeros = torch.zeros(5, 2), torch.zeros(5, 1, 1, 2)
    for weight, expected in ((2.0, 0.0), (4.0, 1.0), (0.0, 1.0)):
        line = Line(weight)
        penalty = gradient_penalty(line, zeros)
        assert float(penalty.detach()) == pytest.approx(expected, abs=1e-3)
        penalty.backward()
        if expected == 0.0:
            assert float(line.weight.grad) == pytest.approx(0.0, abs=1e-5)


def _signal(spec=SPEC, demo=None, seed=1, **settings):
    block = {"demo_path": "-", "network_settings": SMALL} | settings
    setup = SignalSetup("A", spec, torch.device("cpu"), seed, 16, 1)
    return imitation("gail", GAILSettings.model_validate(block), setup, demo)


POINT = BehaviorSpec((ObservationSpec.vector(2, "v"),), ActionSpec(1, ()))


def _demo(rng, ends=5):
    """Experts stand at (0.3, 0.3) and do 0.5."""
    obs = [(0.3 + 0.1 * rng.normal(size=(200, 2))).astype(np.float32)]
    actions = ActionTuple(np.full((200, 1), 0.5, np.float32))
    return demonstration(POINT, obs, actions, ends)


def _agents(rng, place=-0.3, action=-0.5, count=64, ends=False):
    obs = (torch.from_numpy((place + 0.1 * rng.normal(size=(count, 2))).astype("f4")),)
    continuous = torch.full((count, 1), action)
    discrete = torch.zeros(count, 0, dtype=torch.int64)
    return Transitions(obs, obs, continuous, discrete, torch.full((count,), ends))


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("form", ["positive", "signed", "negative"])
@pytest.mark.parametrize("use_vail", [False, True])
def test_what_looks_like_the_demonstrations_is_paid_more(form, use_vail):
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    signal = _signal(
        POINT, _demo(rng), use_vail=use_vail, reward_form=form, learning_rate=1e-2
    )
    for _ in range(150):
        figures = signal.gradient_step(_agents(rng), generator)
    assert figures["gail_expert_estimate"] > 0.6 > 0.4 > figures["gail_policy_estimate"]
    own = signal.reward_of(_agents(rng))
    alike = signal.reward_of(_agents(rng, place=0.3))
    assert alike.mean() > own.mean() + 0.3
    signs = {"positive": (1, 1), "signed": (-1, 1), "negative": (-1, -1)}[form]
    assert own.mean().sign() == signs[0]
    assert alike.mean().sign() == signs[1]


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("use_actions", [False, True])
def test_actions_alone_tell_only_where_they_are_judged(use_actions):
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    signal = _signal(POINT, _demo(rng), use_actions=use_actions, learning_rate=1e-2)
    for _ in range(150):
        signal.gradient_step(_agents(rng, place=0.3), generator)
    other = signal.reward_of(_agents(rng, place=0.3)).mean()
    alike = signal.reward_of(_agents(rng, place=0.3, action=0.5)).mean()
    assert (float(alike - other) > 0.2) == use_actions


@pytest.mark.usefixtures("unchecked_shapes")
def test_ending_pays_only_where_demonstrations_end():
    """Demonstrators end each second action, agents never, or the other way round."""
    advantage = []
    for demo_ends, agents_end in ((2, False), (10_000, True)):
        rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
        signal = _signal(
            POINT,
            _demo(rng, demo_ends),
            absorbing_ends=True,
            reward_form="signed",
            gamma=0.9,
            learning_rate=1e-2,
        )
        for _ in range(200):
            signal.gradient_step(_agents(rng, ends=agents_end), generator)
        same = _agents(np.random.default_rng(1))
        ending = _agents(np.random.default_rng(1), ends=True)
        difference = signal.reward_of(ending) - signal.reward_of(same)
        assert float(difference.std()) < 1e-5, "one price for all ends"
        advantage.append(float(difference.mean()))
    assert advantage[0] > 1.0
    assert advantage[1] < -1.0


def test_its_normalizer_knows_the_demonstrations_alone():
    network = SMALL | {"normalize": True}
    rng = np.random.default_rng(0)
    signal = _signal(POINT, _demo(rng), network_settings=network)
    normalizer = signal.model.discriminator.normalizer
    before = normalizer.mean.clone()
    assert before == pytest.approx(torch.full((2,), 0.3), abs=0.05)
    signal.model.observe(_agents(rng))
    assert torch.equal(normalizer.mean, before)


def test_a_demonstration_that_cannot_be_read_is_one_line_with_file_and_key(tmp_path):
    path, setup = (
        tmp_path / "x.demo",
        SignalSetup("A", SPEC, torch.device("cpu"), 1, 1, 1),
    )

    def message():
        with pytest.raises(UsageError) as caught:
            make("gail", GAILSettings(demo_path=str(path)), setup)
        return str(caught.value)

    key = "reward_signals.gail.demo_path: "
    assert message().startswith(f"{key}{path}: no such file")
    path.write_bytes(TWO_EPISODES)
    assert message().startswith(f"{key}{path}: recorded in another game: ")
    path.write_bytes(TWO_EPISODES[:60])
    assert message().startswith(f"{key}{path}: ")


def test_a_run_without_its_demonstrations_is_refused_on_their_line_and_leaves_nothing(
    tmp_path,
):
    config = tmp_path / "config.yaml"
    config.write_text(
        "behaviors:\n  Basic:\n    reward_signals:\n      gail:\n        demo_path: x.demo\n"
        f"checkpoint_settings: {{results_dir: {tmp_path}/results}}\n"
    )
    with pytest.raises(UsageError) as caught:
        train(read_config(str(config)), EnvRecipe("scene", "Basic"))
    assert str(caught.value).startswith(
        f"{config}:5:9: behaviors.Basic.reward_signals.gail.demo_path: x.demo: no such file"
    )
    left = (tmp_path / "results").rglob("*")
    assert [path for path in left if path.is_file()] == []
