"""Random network distillation: ML-Agents' own numbers, and what must hold for any weights."""

import json

import numpy as np
import pytest
import torch
from tests.slot_rows import slot_rows
from tests.training.rewards.worlds import SMALL, behavior

from touchline.policies.policy import ChosenActions
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.experience.rollout import Rollout
from touchline.training.experience.trajectories import Trajectories
from touchline.training.experience.transitions import Transitions
from touchline.training.rewards.learned import EpisodeSums, ReturnScale
from touchline.training.rewards.rnd import make
from touchline.training.rewards.settings import RNDSettings
from touchline.training.rewards.signal import SignalSetup

SPEC = BehaviorSpec((ObservationSpec.vector(3, "v"),), ActionSpec(0, (2,)))


def _signal(spec=SPEC, **settings):
    block = RNDSettings.model_validate({"network_settings": SMALL} | settings)
    setup = SignalSetup(
        "A", spec, torch.device("cpu"), seed=1, batch_size=16, num_epoch=1
    )
    return make("rnd", block, setup)


def _transitions(obs, next_obs=None):
    size = len(obs[0])
    return Transitions(
        obs=tuple(obs),
        next_obs=tuple(obs if next_obs is None else next_obs),
        continuous=torch.zeros(size, 0),
        discrete=torch.zeros(size, 1, dtype=torch.int64),
        terminated=torch.zeros(size, dtype=torch.bool),
    )


def _normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_rewards_and_loss_are_ml_agents_where_nothing_is_normalized(shared):
    """Source: ML-Agents 1.1.0, run on small tensors (`golden/rnd.json`)."""
    file = json.loads((shared / "golden" / "rnd.json").read_text(encoding="utf-8"))
    network = {"hidden_units": 4, "num_layers": 2}
    signal = _signal(normalized=False, network_settings=network)
    model = signal.model
    with torch.no_grad():
        for own, name in ((model.target, "target"), (model.predictor, "predictor")):
            for layer in (0, 2):
                prefix = f"_encoder._body_endoder.seq_layers.{layer}."
                for kind in ("weight", "bias"):
                    value = torch.tensor(file[f"weights_{name}"][prefix + kind])
                    getattr(own[0].body.dense[layer], kind).copy_(value)
    part = _transitions([torch.tensor(file["obs"])])
    expected = torch.tensor(file["reward"])
    torch.testing.assert_close(signal.reward_of(part), expected, atol=1e-5, rtol=1e-5)
    loss, figures = model.loss(part, torch.Generator())
    assert float(loss.detach()) == pytest.approx(file["loss"], rel=1e-5)
    assert figures["rnd_loss"] is loss


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("normalized", [True, False])
def test_what_was_seen_pays_less_than_what_is_new(normalized):
    signal = _signal(normalized=normalized, learning_rate=3e-3)
    generator = torch.Generator().manual_seed(0)
    seen = _transitions([_normal(256, 3)])
    new = _transitions([_normal(256, 3, seed=1) + torch.tensor([4.0, -4.0, 4.0])])
    signal.model.observe(seen)
    for _ in range(300):
        signal.gradient_step(seen, generator)
    assert signal.reward_of(new).mean() > 10 * signal.reward_of(seen).mean()


def test_the_fixed_target_stays_where_it_is():
    """In ML-Agents 1.1.0 it moves with every look, because its normalizer learns from it."""
    network = SMALL | {"normalize": True}
    signal = _signal(normalized=False, network_settings=network)
    signal.model.observe(_transitions([5 + _normal(64, 3)]))
    part = _transitions([_normal(16, 3)])
    before = signal.reward_of(part)
    for _ in range(5):
        signal.reward_of(_transitions([50 * _normal(16, 3)]))
    assert torch.equal(signal.reward_of(part), before)


def test_the_normalized_form_judges_what_an_action_led_to():
    signal = _signal()
    one, other = _normal(16, 3), _normal(16, 3, seed=1)
    led_to = signal.reward_of(_transitions([one], [other]))
    assert torch.equal(led_to, signal.reward_of(_transitions([other], [other])))


def test_observations_of_any_size_are_judged_alike():
    """Shifted and scaled observations, pictures and entities give the same rewards."""
    spec = behavior("discrete")
    rewards = []
    for shift, factor in ((0.0, 1.0), (7.0, 100.0)):
        signal = _signal(spec)
        shapes = [(5,), (1, 6, 8), (4, 2)]
        obs = [shift + factor * _normal(400, *s, seed=i) for i, s in enumerate(shapes)]
        obs[2][:, 3] = 0.0  # no entity
        signal.model.observe(_transitions(obs))
        inputs = signal.model._inputs(_transitions(obs))
        assert not inputs[2][:, 3].any()
        assert max(float(part.abs().max()) for part in inputs) <= 5.0
        rewards.append(signal.reward_of(_transitions(obs)))
    torch.testing.assert_close(rewards[0], rewards[1], atol=0.02, rtol=0.02)


def _trajectories(valid, terminated=None):
    """Slots of one episode, which observe nothing."""
    num_steps, num_slots = valid.shape
    no, zero = np.zeros_like(valid), np.zeros(valid.shape, np.float32)
    steps = np.broadcast_to(np.arange(num_steps)[:, None], valid.shape)
    return Trajectories(
        obs=(np.zeros((num_steps + 1, num_slots, 0), np.float32),),
        action_mask=None,
        continuous=np.zeros((*valid.shape, 0), np.float32),
        discrete=np.zeros((*valid.shape, 0), np.int64),
        acted=valid,
        valid=valid,
        begins=no,
        reward=zero,
        group_reward=zero,
        terminated=no if terminated is None else terminated,
        truncated=no,
        agent_id=np.zeros(valid.shape, np.int32),
        group_id=np.zeros(valid.shape, np.int32),
        env_index=np.zeros(valid.shape, np.int32),
        value_row=steps + 1,
        final=np.full(valid.shape, -1),
        final_obs=(np.zeros((0, 0), np.float32),),
    )


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("normalized", [True, False])
def test_pictures_alone_are_judged(normalized):
    """The joined vectors are then [B, 0], which nothing can be normalized by."""
    spec = BehaviorSpec((ObservationSpec((1, 6, 6), name="picture"),), ActionSpec(1))
    network = {**SMALL, "normalize": True}
    signal = _signal(spec, normalized=normalized, network_settings=network)
    part = _transitions([torch.zeros(4, 0), _normal(4, 1, 6, 6)])
    signal.model.observe(part)
    signal.gradient_step(part, torch.Generator())
    assert signal.reward_of(part).shape == (4,)


def test_rewards_are_divided_by_the_spread_of_running_returns():
    """The same whether experience comes in one piece or many, and for rewards of any size."""
    rng = np.random.default_rng(0)
    reward = rng.exponential(size=(200, 6)).astype(np.float32)
    valid = rng.random(reward.shape) < 0.8
    reward *= valid
    running, expected = np.zeros(6), []
    for step, paid in enumerate(reward):
        running = np.where(valid[step], 0.9 * running + paid, running)
        expected += running[valid[step]].tolist()
    for pieces in ([200], [1, 3, 96, 100]):
        scale, first = ReturnScale(0.9), 0
        for length in pieces:
            rows = slice(first, first + length)
            scale.add("A", _trajectories(valid[rows]), 1000 * reward[rows])
            first += length
        assert 1 / scale.factor == pytest.approx(1000 * np.std(expected), rel=1e-6)


def test_a_tally_goes_on_from_its_state_and_teams_have_their_own():
    reward = np.float32([[1, 2], [3, 4]])
    valid = np.ones((2, 2), bool)
    ends = np.array([[False, True], [False, False]])
    sums = EpisodeSums()
    assert sums.take_mean() is None
    sums.add("A", _trajectories(valid, terminated=ends), reward)
    sums.add("B", _trajectories(valid), reward)
    restored = EpisodeSums()
    restored.load_state(sums.state())
    for tally in (sums, restored):
        tally.add("A", _trajectories(valid, terminated=~ends), reward)
        # 2 ended before; then 4 + 1, 3 alone, and 4 + 2 + 4. The other team's stay open.
        assert tally.take_mean() == pytest.approx(np.mean([2, 5, 3, 10]))
        assert tally.take_mean() is None


def test_the_sum_of_an_episode_survives_the_hand_overs_of_agents_that_decide_rarely():
    """What is open of them is handed over again, with the steps at which others began."""
    rollout, sums = Rollout(), EpisodeSums()
    obs = [np.zeros((2, 1), np.float32)]
    rollout.begin(slot_rows(obs, begins=True))
    for step in range(1, 13):
        actions = np.zeros((2, 1), np.float32), np.zeros((2, 0), np.int64)
        rollout.chosen = ChosenActions(*actions)
        rarely = step % 6 == 0
        ends = [step == 12, False]
        last_obs = [np.zeros((sum(ends), 1), np.float32)]
        rollout.add(
            slot_rows(
                obs,
                begins=ends,
                deciding=[True, rarely],
                closed=[True, rarely],
                terminated=ends,
                final_slot=np.flatnonzero(ends),
                final_obs=last_obs,
            )
        )
        if step % 2 == 0:
            trajectories = rollout.trajectories()
            sums.add("A", trajectories, trajectories.valid.astype(np.float32))
            rollout.begin_again()
    assert sums.take_mean() == 12.0, "a reward of 1 for each of its actions"
