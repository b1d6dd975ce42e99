"""SAC as a learner: that it learns every kind of action, exports and goes on where it was."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.slot_rows import slot_rows
from tests.training.group_tasks import Anything, practiced
from tests.training.practice import CPU, Practice, make_learner
from tests.training.tiny_tasks import Heed, Look, Remember, solve

from touchline.errors import NonFiniteError
from touchline.policies.files.checkpoints import (
    load_network,
    network_metadata,
    write_checkpoint,
)
from touchline.policies.files.onnx_in import OnnxPolicy
from touchline.policies.files.onnx_out import export_onnx
from touchline.policies.memory import MEMORIES
from touchline.policies.network_policy import NetworkPolicy
from touchline.policies.policy import SlotActor
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.algorithms.learner import LearnerSetup, learner_class
from touchline.training.algorithms.sac.loss import (
    LogTemperatures,
    PolicyDraw,
    soft_value,
)
from touchline.training.config.settings import BehaviorConfig
from touchline.training.experience.replay import Sample

OURS = {"target_critics": True, "return_steps": 3}
HYBRID = BehaviorSpec((ObservationSpec.vector(2, "target"),), ActionSpec(1, (3,)))


def _settings(**hyper):
    first = {"batch_size": 64, "buffer_size": 2000, "init_entcoef": 0.05}
    return {
        "trainer_type": "sac",
        "hyperparameters": first
        | {"steps_per_update": 4, "learning_rate": 3e-3, "tau": 0.02}
        | hyper,
        "network_settings": {"hidden_units": 16, "num_layers": 1},
    }


def _learner(spec=HYBRID, seed=0, **hyper):
    return make_learner(spec, BehaviorConfig.model_validate(_settings(**hyper)), seed)


def test_a_temperature_that_is_nan_ends_the_run_with_advice_for_sac():
    learner = _learner()
    rng = np.random.default_rng(0)
    _aimed(learner, 30, rng)
    learner.descent.log_temperatures.data.fill_(np.nan)
    with pytest.raises(NonFiniteError, match="init_entcoef"):
        _aimed(learner, 30, rng)


def _aimed(learner, updates, rng, num_slots=16):
    """Practice on: put the number near the first one seen, choose 2 where the second is positive
    and 0 elsewhere; choice 1 is forbidden. Gives the mean reward of the last rows.
    """
    practice, rewards = Practice(learner), []
    mask = np.tile([True, False, True], (num_slots, 1))
    seen = rng.uniform(-1, 1, (num_slots, 2)).astype(np.float32)
    rows = slot_rows([seen], action_mask=mask, begins=True, closed=False)
    practice.add(rows)
    for _ in range(updates):
        actions = practice.act()
        assert not (actions.discrete == 1).any()
        assert (np.abs(actions.continuous) <= 1).all()
        right = actions.discrete[:, 0] == np.where(seen[:, 1] > 0, 2, 0)
        distance = np.abs(actions.continuous[:, 0] - seen[:, 0])
        reward = (right - distance).astype(np.float32)
        rewards.append(reward.mean())
        last = rng.uniform(-1, 1, (num_slots, 2)).astype(np.float32)
        seen = rng.uniform(-1, 1, (num_slots, 2)).astype(np.float32)
        rows = slot_rows(
            [seen],
            action_mask=mask,
            begins=True,
            closed=True,
            terminated=True,
            reward=reward,
            final_slot=np.arange(num_slots),
            final_obs=(last,),
        )
        practice.add(rows)
        practice.learn(rows)
    return float(np.mean(rewards[-30:]))


@pytest.mark.slow
@pytest.mark.parametrize("form", [{}, OURS], ids=["as ML-Agents", "ours"])
def test_it_learns_numbers_and_choices_together_and_never_a_forbidden_one(form):
    learner = _learner(**form)
    before = _aimed(learner, 30, np.random.default_rng(1))
    after = _aimed(learner, 200, np.random.default_rng(2))
    assert before < 0.25
    assert after > 0.6


@pytest.mark.slow
@pytest.mark.parametrize("task", [Heed, Look])
def test_it_learns_choices_with_goals_and_pictures(task):
    settings = _settings(steps_per_update=16)
    settings["network_settings"] |= {"vis_encode_type": "fully_connected"}
    assert solve(task(), settings, 6000) > 0.85


@pytest.mark.parametrize("form", [{}, OURS], ids=["as ML-Agents", "ours"])
def test_a_restored_learner_goes_on_with_the_same_bits(form):
    """Replay, temperatures, targets and counters: nothing starts over."""
    first = _learner(save_replay_buffer=True, **form)
    _aimed(first, 8, np.random.default_rng(3))
    saved = {name: tensor.clone() for name, tensor in first.state().items()}
    second = _learner(seed=1, save_replay_buffer=True, **form)
    second.load_state(saved)
    kept = first.experience
    second.replay.load_rows(0, kept.rows(kept.oldest, kept.added))
    second.steps = first.steps
    for learner in (first, second):
        _aimed(learner, 8, np.random.default_rng(4))
    others = second.state()
    for name, tensor in first.state().items():
        assert torch.equal(tensor, others[name]), name
    others = second.experience.rows(kept.oldest, kept.added)
    for name, column in kept.rows(kept.oldest, kept.added).items():
        np.testing.assert_array_equal(column, others[name], name)


def test_without_its_replay_a_restored_learner_fills_one_before_it_learns():
    first = _learner(steps_per_update=20)
    _aimed(first, 8, np.random.default_rng(3))
    second = _learner(seed=1, steps_per_update=20)
    second.load_state(first.state())
    alpha = second.descent.log_temperatures.clone()
    assert torch.equal(alpha, first.descent.log_temperatures)
    second.steps = first.steps
    _aimed(second, 39, np.random.default_rng(4))  # 624 of 10 batches of 64
    assert torch.equal(alpha, second.descent.log_temperatures)
    _aimed(second, 60, np.random.default_rng(4))
    assert not torch.equal(alpha, second.descent.log_temperatures)
    assert second._rate.count - 1 <= second.steps / 20


@pytest.mark.parametrize(
    "pace",
    [
        {"steps_per_update": 2},
        {"steps_per_update": 80},
        {"buffer_init_steps": 0},
        {"buffer_init_steps": 400},
    ],
)
def test_another_pace_counts_from_where_a_run_resumes(pace):
    before = {
        "steps_per_update": 8,
        "buffer_init_steps": 200,
        "save_replay_buffer": True,
    }
    first = _learner(**before)
    _aimed(first, 40, np.random.default_rng(3))
    second = _learner(**before | pace)
    second.load_state(first.state())
    second.steps = first.steps
    ratio = second.hyper.steps_per_update
    due = (second.steps - second.hyper.buffer_init_steps) / ratio
    assert 0 <= due - second._rate.count <= 1, (
        "neither thousands due nor none for thousands"
    )


def test_a_run_that_ends_before_its_first_gradient_step_says_so():
    said = []
    config = BehaviorConfig.model_validate(
        _settings(buffer_init_steps=500) | {"max_steps": 500}
    )
    learner_class("sac")(LearnerSetup("Tiny", HYBRID, config, 0, CPU, said.append))
    assert said == [
        "Tiny will not learn: buffer_init_steps 500 leaves nothing of max_steps 500"
    ]


def test_as_many_gradient_steps_as_ml_agents():
    """One whenever (steps − buffer_init_steps) / updates exceeds steps_per_update, from 1 on."""
    learner = _learner(buffer_init_steps=100, steps_per_update=7)
    _aimed(learner, 30, np.random.default_rng(0))
    since = learner.steps - 100
    assert since > 7 * (learner._rate.count - 1)
    assert since <= 7 * learner._rate.count


def test_the_model_has_its_tanh_also_where_it_is_deterministic(tmp_path: Path):
    """X6: ML-Agents leaves it out there."""
    learner = _learner()
    with torch.no_grad():
        learner.network.trunk.policy_bias[0] = 4.0
    export_onnx(learner.network, tmp_path / "a.onnx")
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(5, 2)).astype(np.float32)
    mask = np.ones((5, 3), bool)
    rows = slot_rows([seen], action_mask=mask, begins=True, closed=False)
    model = OnnxPolicy(tmp_path / "a.onnx", deterministic=True)
    own = NetworkPolicy(learner.network, deterministic=True)
    wanted = own.act(rows, None, own.new_generator(0)).actions.continuous
    found = model.act(rows, None, model.new_generator(0)).actions.continuous
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert 0.99 < wanted.min() <= wanted.max() < 1.0
    outputs = _run(tmp_path / "a.onnx", seen)
    np.testing.assert_allclose(outputs, wanted, atol=1e-6)
    drawn = OnnxPolicy(tmp_path / "a.onnx")
    random = drawn.act(rows, None, drawn.new_generator(0)).actions.continuous
    assert (np.abs(random) < 1).all()


def _run(path, seen):
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    feeds = {"obs_0": seen, "action_masks": np.ones((len(seen), 3), np.float32)}
    (found,) = session.run(["deterministic_continuous_actions"], feeds)
    return found


def test_a_checkpoint_acts_as_the_learner_did(tmp_path: Path):
    learner = _learner()
    path = tmp_path / "a.safetensors"
    write_checkpoint(path, learner.state(), network_metadata(learner.network))
    obs = (torch.randn(4, 2),)
    ours = learner.network.distribution(obs, None)
    loaded = load_network(path).distribution(obs, None)
    for found, wanted in zip(loaded.mode(), ours.mode(), strict=True):
        assert torch.equal(found, wanted)


def test_log_probabilities_are_densities_of_what_worlds_get():
    learner = _learner()
    found = learner.network.distribution((torch.zeros(1, 2),), None)
    action = torch.linspace(-0.9999, 0.9999, 20001)[:, None]
    many = learner.network.distribution((torch.zeros(20001, 2),), None)
    choice = torch.zeros(20001, 1, dtype=torch.int64)
    density = torch.exp(many.log_prob(3 * action, choice))
    mass = float((density.mean() * 2).detach())
    chance = float(torch.exp(found.log_probs[0][0, 0]).detach())
    assert mass == pytest.approx(chance, rel=5e-3)


def test_groups_that_come_and_go_can_be_learned_from():
    learner = _learner(Anything.spec)
    trajectories = practiced(Anything(0), learner, 40)
    learner.add("A", trajectories)
    metrics = learner.update()
    assert all(np.isfinite(value) for value in metrics.values())
    assert learner.steps == trajectories.num_results


# memory

RECURRENT = {"memory": {"memory_size": 8, "sequence_length": 4}}
FORMS = pytest.mark.parametrize("form", [{}, OURS], ids=["as ML-Agents", "ours"])


def _recurrent(seed=0, kind="lstm", **hyper):
    settings = _settings(**hyper)
    settings["network_settings"] |= {"memory": RECURRENT["memory"] | {"type": kind}}
    learner = make_learner(HYBRID, BehaviorConfig.model_validate(settings), seed)
    with torch.no_grad():  # so that memories matter from the start
        for parameter in [
            *learner.network.parameters(),
            *learner.networks.critics.parameters(),
        ]:
            parameter.mul_(1.5)
    return learner


def _sequences(learner, size=48):
    """A minibatch of sequences of several lengths."""
    _walked(learner, 30)
    weights = learner.hyper.return_steps
    sample = learner.replay.sample(
        size, [0.99], torch.Generator().manual_seed(2), return_steps=weights
    )
    assert len(set(sample.sequences.length.tolist())) > 1
    return sample


def _walked(learner, num_steps, num_slots=5):
    """Episodes of different lengths, which are stored and not learned from yet."""
    rng, practice = np.random.default_rng(0), Practice(learner)
    mask = np.ones((num_slots, 3), bool)
    ends = np.zeros(num_slots, bool)
    for step in range(num_steps):
        seen = rng.uniform(-1, 1, (2, num_slots, 2)).astype(np.float32)
        rows = slot_rows(
            [seen[0]],
            action_mask=mask,
            begins=ends | (step == 0),
            closed=step > 0,
            terminated=ends,
            reward=rng.normal(size=num_slots).astype(np.float32),
            final_slot=np.flatnonzero(ends),
            final_obs=(seen[1][ends],),
        )
        practice.add(rows)
        ends = rng.random(num_slots) < 0.2
        practice.act()
    learner.add("A", practice.rollout.trajectories())
    learner._store()


@FORMS
def test_targets_remember_what_came_before_each_observation(form):
    """One step at a time, by hand: from the memory that was stored, with the target's weights."""
    learner = _recurrent(**form)
    sample = _sequences(learner)
    noise = torch.randn(len(sample), 1, generator=torch.Generator().manual_seed(1))
    alpha = LogTemperatures(
        learner.descent.log_temperatures[:1], learner.descent.log_temperatures[1:]
    )
    found = learner.descent.target(sample, noise, alpha)
    with torch.no_grad():
        values = torch.cat([*_values_by_hand(learner, sample, noise, alpha)])
    wanted = sample.reward + sample.discount * values[sample.last]
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def _values_by_hand(learner, sample, noise, alpha):
    first = sample.sequences.first
    for start, length, memory in zip(
        first, sample.sequences.length, sample.sequences.memory, strict=True
    ):
        at = slice(start, start + 1)
        _, _, memory = learner.network.step((sample.obs[0][at],), None, memory[None])
        is_ours = learner.hyper.target_critics
        states = [torch.zeros(1, 8)] * 2
        if is_ours:
            seen = torch.cat([sample.obs[0][at], sample.continuous[at]], dim=1)
            pairs = zip(learner.networks.target, states, strict=True)
            states = [critic.body.step((seen,), own)[1] for critic, own in pairs]
        for row in range(start, start + length):
            at = slice(row, row + 1)
            obs = (sample.next_obs[0][at],)
            actor = learner.network if is_ours else learner.networks.target
            found, value, memory = actor.step(obs, sample.next_allowed[at], memory)
            if is_ours:
                draw = PolicyDraw.of(found, noise[at])
                seen = torch.cat([obs[0], draw.continuous], dim=1)
                pairs = zip(learner.networks.target, states, strict=True)
                states = [critic.body.step((seen,), own)[1] for critic, own in pairs]
                heads = zip(learner.networks.target, states, strict=True)
                q = [critic.head(own[:, :4]).view(1, 1, 3) for critic, own in heads]
                value = soft_value(q, draw, alpha)
            yield value


@FORMS
def test_short_sequences_weigh_by_their_actions(form):
    """X8: in ML-Agents padded rows count in the losses of critics and value network."""
    learner = _recurrent(**form)
    sample = _sequences(learner)
    noise = torch.zeros(len(sample), 1)
    alpha = learner.descent.log_temperatures
    whole = _parts(
        learner.descent.losses(learner.descent.evaluated(sample, noise, noise), alpha)
    )
    total = torch.zeros_like(whole)
    for number in range(len(sample.sequences)):
        own = _only(sample, number)
        none = torch.zeros(len(own), 1)
        parts = _parts(
            learner.descent.losses(learner.descent.evaluated(own, none, none), alpha)
        )
        total += parts * len(own) / len(sample)
    torch.testing.assert_close(whole, total, atol=1e-5, rtol=1e-5)


def _parts(losses):
    parts = [losses.policy, *losses.critics, losses.value, losses.temperature]
    return torch.stack(parts).detach()


def _only(sample, number):
    """One of the sequences of a minibatch."""
    rows, sequences = sample.sequences.at(torch.tensor([number]))
    return Sample(
        obs=(sample.obs[0][rows],),
        allowed=sample.allowed[rows],
        continuous=sample.continuous[rows],
        discrete=sample.discrete[rows],
        reward=sample.reward[rows],
        next_obs=(sample.next_obs[0][rows],),
        next_allowed=sample.next_allowed[rows],
        discount=sample.discount[rows],
        sequences=sequences,
        last=sample.last[rows] - rows[0],
    )


@pytest.mark.slow
@FORMS
@pytest.mark.parametrize("kind", MEMORIES)
def test_a_memory_knows_at_the_third_step_what_the_first_showed(form, kind):
    settings = _settings(steps_per_update=16, **form)
    assert (
        solve(Remember(), settings, 5000) < 0.65
    )  # without a memory it cannot be known
    settings["network_settings"] |= {
        "memory": {"type": kind, "memory_size": 32, "sequence_length": 4}
    }
    assert solve(Remember(), settings, 12000) > 0.9


@FORMS
@pytest.mark.parametrize("kind", MEMORIES)
def test_a_restored_learner_with_memory_goes_on_with_the_same_bits(form, kind):
    learners = [
        _recurrent(seed, kind, save_replay_buffer=True, **form) for seed in (0, 1)
    ]
    first, second = learners
    _walked(first, 30)
    for _ in range(3):
        first.descend(first.drawn())
    second.load_state({name: v.clone() for name, v in first.state().items()})
    second.replay.load_rows(0, first.replay.rows(0, first.replay.added))
    second.steps = first.steps
    for learner in learners:
        for _ in range(3):
            learner.descend(learner.drawn())
    others = second.state()
    for name, tensor in first.state().items():
        assert torch.equal(tensor, others[name]), name


def test_the_model_remembers_as_the_policy_does(tmp_path: Path):
    learner = _recurrent()
    export_onnx(learner.network, tmp_path / "a.onnx")
    own = SlotActor(NetworkPolicy(learner.network, deterministic=True), HYBRID, 0)
    model = SlotActor(OnnxPolicy(tmp_path / "a.onnx", deterministic=True), HYBRID, 0)
    rng = np.random.default_rng(0)
    for step in range(4):
        seen = rng.normal(size=(5, 2)).astype(np.float32)
        mask = np.ones((5, 3), bool)
        rows = slot_rows([seen], action_mask=mask, begins=step == 0, closed=step > 0)
        wanted, found = own.act(rows), model.act(rows)
        np.testing.assert_allclose(found.continuous, wanted.continuous, atol=1e-5)
        np.testing.assert_array_equal(found.discrete, wanted.discrete)
