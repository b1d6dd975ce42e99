"""Signals that learn, under every learner: all sensors and actions, ends, and saved state."""

import csv
import hashlib
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tests.training.rewards.worlds import (
    ACTIONS,
    SENSORS,
    TRAINERS,
    behavior,
    in_memory,
    learner,
    signal_of,
    wander,
)

from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.policies.files.checkpoints import read_checkpoint
from touchline.policies.network import side_by_side
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training import trainer
from touchline.training.algorithms.learner import Remembering
from touchline.training.collect.local import LocalCollector
from touchline.training.config.reading import read_config
from touchline.training.experience.transitions import Transitions
from touchline.training.rewards.settings import REWARD_SIGNALS
from touchline.training.run.metrics import tag_of, tags_of

BOTH = {"curiosity": {"strength": 0.1, "gamma": 0.9}, "rnd": {"gamma": 0.95}}
ALL = BOTH | {"imitation": {"use_actions": True, "use_vail": True}}
TAGS = {
    "curiosity_forward_loss": "Losses/Curiosity Forward Loss",
    "curiosity_inverse_loss": "Losses/Curiosity Inverse Loss",
    "curiosity_reward": "Policy/Curiosity Reward",
    "rnd_loss": "Losses/RND Loss",
    "rnd_reward": "Policy/Rnd Reward",
    "gail_policy_estimate": "Policy/GAIL Policy Estimate",
    "gail_expert_estimate": "Policy/GAIL Expert Estimate",
    "gail_loss": "Losses/GAIL Loss",
    "gail_grad_mag_loss": "Policy/GAIL Grad Mag Loss",
    "gail_kl_loss": "Losses/GAIL KL Loss",
    "gail_beta": "Policy/GAIL Beta",
    "imitation_reward": "Policy/Imitation Reward",
}
ESTIMATES = {
    "ppo": {"rnd_value_estimate": "Policy/Rnd Value Estimate"},
    "poca": {"rnd_baseline_estimate": "Policy/Rnd Baseline Estimate"},
    "sac": {"rnd_value": "Policy/Rnd Value"},
}


@pytest.fixture
def imitation(monkeypatch):
    """GAIL with demonstrations that are in no file, as a signal of its own."""
    place = f"{in_memory.__module__}:ImitationSettings"
    monkeypatch.setitem(REWARD_SIGNALS, "imitation", place)


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("trainer_type", TRAINERS)
def test_every_sensor_and_action_is_judged_under_every_learner(
    trainer_type, kind, imitation
):
    of = learner(trainer_type, ALL, behavior(kind))
    before = {name: v.clone() for name, v in of.state().items() if "model" in name}
    updates = 12 if trainer_type == "sac" else 2  # until episodes have ended
    found = wander(of, updates, np.random.default_rng(0))
    metrics = {name: value for one in found for name, value in one.items()}
    tags = tags_of(of.config)
    for name, tag in (TAGS | ESTIMATES[trainer_type]).items():
        assert np.isfinite(metrics[name]), name
        assert tag_of(name, tags) == tag
    after = of.state()
    for name, value in before.items():
        # All else learns; the price of information stays at 0 while little goes through.
        fixed = ".target." in name or (name.endswith("beta") and not after[name])
        assert torch.equal(value, after[name]) == fixed, name


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("trainer_type", TRAINERS)
def test_a_restored_learner_goes_on_with_the_same_bits(trainer_type, imitation):
    first = learner(trainer_type, ALL)
    wander(first, 3, np.random.default_rng(1))
    saved = {name: tensor.clone() for name, tensor in first.state().items()}
    second = learner(trainer_type, ALL, seed=1)
    second.load_state(saved)
    if isinstance(first, Remembering):
        second.replay.load_rows(0, first.replay.rows(0, first.replay.added))
    second.steps = first.steps
    if trainer_type == "sac":  # resume points keep the experience beside the state
        numbers = first.replay.oldest, first.replay.added
        second.replay.load_rows(numbers[0], first.replay.rows(*numbers))
    one, other = (wander(of, 2, np.random.default_rng(2)) for of in (first, second))
    assert one == other
    others = second.state()
    for name, tensor in first.state().items():
        assert torch.equal(tensor, others[name]), name


@pytest.mark.parametrize("name", sorted(ALL))
def test_signals_judge_what_agents_observe_not_the_state_of_the_critic(name, imitation):
    state = replace(ObservationSpec.vector(4, "State"), critic_only=True)
    spec = behavior(sensors=(*SENSORS, state))
    of = learner("ppo", {name: ALL[name]}, spec, critic_sees_state=True)
    rng = np.random.default_rng(0)
    wander(of, 1, rng)
    seen = [
        rng.normal(size=(6, *o.shape)).astype(np.float32)
        for o in spec.observation_specs
    ]
    actions = spec.action_spec.random_action(6, rng)

    def reward():
        obs = tuple(map(torch.from_numpy, side_by_side(seen)))
        part = Transitions(
            obs=obs,
            next_obs=obs,
            continuous=torch.from_numpy(actions.continuous),
            discrete=torch.from_numpy(actions.discrete),
            terminated=torch.zeros(6, dtype=torch.bool),
        )
        return signal_of(of, name).reward_of(part)

    before = reward()
    seen[-1] += 1.0
    assert torch.equal(reward(), before)
    seen[0] += 1.0
    assert not torch.equal(reward(), before)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("trainer_type", ["ppo", "sac"])
def test_a_run_resumes_bit_for_bit(trainer_type, shared, tmp_path, monkeypatch):
    trained = partial(_train, shared / "demos" / "ExpertBasic.demo")
    whole = trained(tmp_path / "whole", trainer_type)
    collect, count = LocalCollector.collect, []

    def interrupted(self, wanted):
        count.append(1)
        if len(count) == 777:
            raise KeyboardInterrupt
        return collect(self, wanted)

    with monkeypatch.context() as patches:
        patches.setattr(trainer, "RESUME_EVERY_S", 0.0)
        patches.setattr(LocalCollector, "collect", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "cut", trainer_type)
    resumed = trained(tmp_path / "cut", trainer_type, resume=True)
    assert _digest(resumed) == _digest(whole)
    assert _metrics(resumed) == _metrics(whole)


def _metrics(folder):
    text = (folder / "Basic" / "metrics.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return [{**row, "time_s": 0, "steps_per_s": 0} for row in rows]


def _train(demonstrations, folder, trainer_type, *, resume=False):
    hyper = {"ppo": {"batch_size": 32, "buffer_size": 256}}
    hyper["sac"] = TRAINERS["sac"] | {"batch_size": 32, "buffer_size": 500}
    changes = {
        "behaviors.Basic.trainer_type": trainer_type,
        "behaviors.Basic.hyperparameters": hyper[trainer_type],
        "behaviors.Basic.reward_signals": {
            "extrinsic": {},
            "gail": {"demo_path": str(demonstrations), "use_vail": True},
            **BOTH,
        },
        "behaviors.Basic.max_steps": 2000,
        "behaviors.Basic.summary_freq": 500,
        "checkpoint_settings.results_dir": str(folder),
        "checkpoint_settings.run_id": "run",
        "checkpoint_settings.resume": resume,
        "env_settings.seed": 3,
    }
    config = read_config("Basic_official", (), changes)
    return trainer.train(config, EnvRecipe("scene", "Basic")).folder


def _digest(folder):
    tensors, _ = read_checkpoint(folder / "Basic" / "checkpoint.safetensors")
    content = b"".join(tensors[name].numpy().tobytes() for name in sorted(tensors))
    return hashlib.sha256(content).hexdigest()


def test_a_behavior_that_only_its_own_network_understands_is_refused():
    sensor = ObservationSpec.vector(3, "board")
    spec = BehaviorSpec((sensor,), ActionSpec(0, (2,)), network="board")
    for name in BOTH:
        with pytest.raises(UsageError, match=f"reward_signals.{name}: it cannot judge"):
            learner("ppo", {name: {}}, spec)


# ends

VECTOR = BehaviorSpec((ObservationSpec.vector(2, "v"),), ActionSpec(0, (2,)))


@pytest.mark.parametrize("trainer_type", ["ppo", "poca"])
def test_intrinsic_value_goes_on_past_the_end_of_an_episode(trainer_type, monkeypatch):
    """With episodes of one action, every target is r, or r and γ times the last value."""
    of = learner(trainer_type, {"rnd": {"gamma": 0.5}}, VECTOR, lambd=1.0)
    rnd = signal_of(of, "rnd")
    monkeypatch.setattr(type(rnd), "reward", lambda self, t: 0.0 * t.reward)
    with torch.no_grad():
        critic = of.network if trainer_type == "ppo" else of.critic
        for parameter in critic.parameters():
            parameter.zero_()
        _value_bias(critic).copy_(torch.tensor([3.0, 8.0]))
    batches, make = [], type(of)._batch

    def keep(self, experience):
        batches.append(make(self, experience))
        return batches[-1]

    monkeypatch.setattr(type(of), "_batch", keep)
    wander(of, 1, np.random.default_rng(0), episode=1)
    batch = batches[0] if trainer_type == "ppo" else batches[0].credited
    assert torch.allclose(batch.target[:, 1], torch.tensor(4.0))
    assert batch.target[:, 0].std() > 0.5, "the world's rewards alone"
    assert abs(float(batch.target[:, 0].mean())) < 0.5


def _value_bias(critic):
    sizes = {n: p for n, p in critic.named_parameters() if n.endswith("bias")}
    return next(p for n, p in sizes.items() if "value" in n and p.shape == (2,))


def test_sac_counts_the_value_after_an_end_for_intrinsic_signals_only():
    of = learner("sac", {"rnd": {"gamma": 0.5}}, VECTOR)
    wander(of, 1, np.random.default_rng(0), episode=1)
    ignores = [signal.ignores_ends for signal in of.signals]
    assert ignores == [False, True]
    sample = of.replay.sample(32, [0.9, 0.5], of.generator, ignores_ends=ignores)
    assert set(sample.discount[:, 0].tolist()) == {0.0}
    assert set(sample.discount[:, 1].tolist()) == {0.5}


@pytest.mark.parametrize("return_steps", [1, 3])
def test_sac_pays_what_the_signal_thinks_when_an_action_is_sampled(return_steps):
    of = learner("sac", {"curiosity": {"gamma": 0.5}}, VECTOR)
    wander(of, 2, np.random.default_rng(0), episode=4)
    curiosity = signal_of(of, "curiosity")

    def drawn():
        of.generator.manual_seed(5)
        return of.replay.sample(
            16,
            [0.9, 0.5],
            of.generator,
            return_steps=return_steps,
            rewards=of.judged.rewards,
        )

    before = drawn()
    with torch.no_grad():
        for parameter in curiosity.model.predict.parameters():
            parameter.add_(1.0)
    after = drawn()
    assert torch.equal(before.reward[:, 0], after.reward[:, 0])
    assert (after.reward[:, 1] > before.reward[:, 1]).all()
    if return_steps == 1:
        of.generator.manual_seed(5)
        place = of.replay.draw(16, of.generator)
        judged = curiosity.reward_of(of.replay.transitions(place))
        assert torch.equal(after.reward[:, 1], judged)
