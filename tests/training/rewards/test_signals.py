"""Several reward signals in one run: a value head, a discount and an advantage for each."""

import csv
import hashlib

import numpy as np
import pytest
import torch
from tests.training.practice import make_learner

from touchline.envs.env import EnvRecipe, make
from touchline.policies.files.checkpoints import read_checkpoint
from touchline.policies.loading import load_policies
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training import trainer
from touchline.training.algorithms.batch import Batch
from touchline.training.algorithms.on_policy import Rates
from touchline.training.algorithms.ppo.loss import (
    output_gradients,
    ppo_loss,
)
from touchline.training.algorithms.valuation import Valuation, with_values
from touchline.training.collect.local import LocalCollector
from touchline.training.config.reading import read_config
from touchline.training.config.settings import BehaviorConfig
from touchline.training.experience.trajectories import Trajectories
from touchline.training.rewards.settings import REWARD_SIGNALS, SignalSettings
from touchline.training.rewards.signal import Extrinsic


class ThriftSettings(SignalSettings):
    """A toy signal: every action costs a little."""

    signal = f"{__name__}:Thrift"


class Thrift(Extrinsic):
    """Pays -1 for each action."""

    def reward(self, trajectories):
        return np.where(trajectories.valid, np.float32(-1), np.float32(0))


@pytest.fixture
def thrift(monkeypatch):
    monkeypatch.setitem(REWARD_SIGNALS, "thrift", f"{__name__}:ThriftSettings")


SIGNALS = {
    "extrinsic": {"gamma": 0.9, "strength": 1.0},
    "thrift": {"gamma": 0.5, "strength": 0.1},
}


def _config(tmp_path, steps, **changes):
    changes = {
        "behaviors.Basic.reward_signals": SIGNALS,
        "behaviors.Basic.max_steps": steps,
        "behaviors.Basic.summary_freq": 500,
        "checkpoint_settings.results_dir": str(tmp_path),
        "checkpoint_settings.run_id": "run",
        "env_settings.seed": 3,
        **changes,
    }
    return read_config("Basic_official", (), changes)


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_run_with_two_signals_trains_exports_and_evaluates(thrift, tmp_path):
    config = _config(tmp_path, 2000)
    folder = trainer.train(config, EnvRecipe("scene", "Basic")).folder
    with (folder / "Basic" / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for signal in SIGNALS:
        values = [float(row[f"{signal}_value_estimate"]) for row in rows]
        assert np.isfinite(values).all()
    thrift_values = [float(row["thrift_value_estimate"]) for row in rows]
    assert thrift_values[-1] < 0, "a cost at every step is learned as a negative value"
    with make("Basic") as env:
        for source in (
            folder / "Basic.onnx",
            folder / "Basic" / "checkpoint.safetensors",
        ):
            load_policies([str(source)], env.behaviors)


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_run_with_two_signals_resumes_bit_for_bit(thrift, tmp_path, monkeypatch):
    def digest(folder):
        tensors, _ = read_checkpoint(folder / "Basic" / "checkpoint.safetensors")
        content = b"".join(tensors[name].numpy().tobytes() for name in sorted(tensors))
        return hashlib.sha256(content).hexdigest()

    def interrupted_after(num_steps):
        collect, count = LocalCollector.collect, []

        def counting(self, wanted):
            count.append(1)
            if len(count) == num_steps:
                raise KeyboardInterrupt
            return collect(self, wanted)

        monkeypatch.setattr(trainer, "RESUME_EVERY_S", 0.0)
        monkeypatch.setattr(LocalCollector, "collect", counting)

    whole = trainer.train(
        _config(tmp_path / "whole", 2000), EnvRecipe("scene", "Basic")
    ).folder
    interrupted_after(777)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(_config(tmp_path / "cut", 2000), EnvRecipe("scene", "Basic"))
    monkeypatch.undo()
    monkeypatch.setitem(REWARD_SIGNALS, "thrift", f"{__name__}:ThriftSettings")
    again = _config(tmp_path / "cut", 2000, **{"checkpoint_settings.resume": True})
    resumed = trainer.train(again, EnvRecipe("scene", "Basic")).folder
    assert digest(resumed) == digest(whole)


def test_each_signal_has_its_own_discount_and_the_policy_gets_their_mean(thrift):
    """Three actions of one slot with values of zero: advantages are discounted sums (λ = 1)."""
    config = BehaviorConfig.model_validate(
        {
            "trainer_type": "ppo",
            "hyperparameters": {"lambd": 1.0},
            "reward_signals": SIGNALS,
        }
    )
    spec = BehaviorSpec(
        (ObservationSpec.vector(1, "v"),), ActionSpec.create_discrete((2,))
    )
    learner = make_learner(spec, config)
    with torch.no_grad():
        for parameter in learner.network.parameters():
            parameter.zero_()
    valuation = Valuation(
        learner.network,
        learner.network,
        torch.device("cpu"),
        learner.signals,
        lambd=1.0,
        return_steps=None,
        time_horizon=64,
        sequence_length=None,
    )
    batch = with_values(
        valuation, _three_steps(reward=[1.0, 0.0, 2.0], group_reward=[0.0, 4.0, 0.0])
    )
    extrinsic = [1 + 0.9 * 4 + 0.81 * 2, 4 + 0.9 * 2, 2]
    thrift_returns = [-0.1 - 0.05 - 0.025, -0.1 - 0.05, -0.1]
    expected = np.stack([extrinsic, thrift_returns], axis=1)
    np.testing.assert_allclose(batch.target.numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(
        batch.advantage.numpy(), expected.mean(axis=1), rtol=1e-6
    )


def _three_steps(reward, group_reward):
    steps = np.arange(3)[:, None]
    ends = steps == 2
    return Trajectories(
        obs=(np.zeros((4, 1, 1), np.float32),),
        action_mask=None,
        continuous=np.zeros((3, 1, 0), np.float32),
        discrete=np.zeros((3, 1, 1), np.int64),
        acted=np.ones((3, 1), bool),
        valid=np.ones((3, 1), bool),
        begins=steps == 0,
        reward=np.array(reward, np.float32)[:, None],
        group_reward=np.array(group_reward, np.float32)[:, None],
        terminated=ends,
        truncated=np.zeros((3, 1), bool),
        agent_id=np.zeros((3, 1), np.int32),
        group_id=np.zeros((3, 1), np.int32),
        env_index=np.zeros((3, 1), np.int32),
        value_row=steps + 1,
        final=np.where(ends, 0, -1),
        final_obs=(np.zeros((1, 1), np.float32),),
    )


def test_the_written_gradient_of_two_value_heads_is_that_of_the_loss(thrift):
    config = BehaviorConfig.model_validate(
        {"trainer_type": "ppo", "reward_signals": SIGNALS}
    )
    spec = BehaviorSpec((ObservationSpec.vector(3, "v"),), ActionSpec(2, (3,)))
    network = make_learner(spec, config).network.double()
    rng = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    obs = (normal(40, 3),)
    with torch.no_grad():
        distribution, value = network(obs, None)
        continuous, discrete = distribution.sample(rng)
        log_prob = distribution.log_prob(continuous, discrete)
    assert value.shape == (40, 2)
    batch = Batch(
        obs,
        None,
        continuous,
        discrete,
        log_prob,
        value,
        normal(40),
        value + normal(40, 2),
    )
    settings = Rates(learning_rate=0.0, epsilon=0.2, beta=0.01)
    expected = torch.autograd.grad(
        ppo_loss(network, batch, settings), list(network.parameters())
    )
    found = [torch.zeros_like(p) for p in network.parameters()]
    with torch.inference_mode():
        actions = (continuous, discrete)
        gradients = output_gradients(batch, settings)
        network.gradient(obs, None, actions, gradients, -settings.beta, found)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
