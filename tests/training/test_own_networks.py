"""`network_settings.type`: a network of one's own in every algorithm, resumed and exported."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import touchline
from touchline.errors import UsageError
from touchline.policies.files.checkpoints import read_checkpoint
from touchline.policies.files.onnx_in import OnnxPolicy
from touchline.policies.loading import load_policy
from touchline.policies.network_policy import NetworkPolicy
from touchline.training import trainer
from touchline.training.collect.local import LocalCollector

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugins" / "network"
RESIDUAL = "residual_network:ResidualNetwork"
HYPER = {
    "ppo": {"batch_size": 32, "buffer_size": 256},
    "poca": {"batch_size": 32, "buffer_size": 256},
    "sac": {
        "batch_size": 32,
        "buffer_size": 500,
        "buffer_init_steps": 100,
        "save_replay_buffer": True,
    },
}
BROKEN = """
import torch
from residual_network import ResidualNetwork
from touchline.policies.nets.actor_critic import ActorCritic
class Unknown(ResidualNetwork):
    def features(self, obs):
        return torch.fft.fft(super().features(obs)).real
class Unsquashed(ResidualNetwork):
    def __init__(self, spec, architecture, num_signals=1):
        from dataclasses import replace
        super().__init__(spec, replace(architecture, squashed=False), num_signals)
class SpreadOfState(ResidualNetwork):
    def __init__(self, spec, architecture, num_signals=1):
        super().__init__(spec, architecture, num_signals)
        self.spread = torch.nn.Linear(architecture.hidden_units, self.numbers)
    def distribution_of(self, features, allowed):
        d = super().distribution_of(features, allowed)
        return type(d)(d.mean, self.spread(features).clamp(-2.0, 0.0), d.log_probs)
class Reversed(ActorCritic):
    def normalized(self, obs):
        return (2.0 * obs[0].flip(1),)
    def distribution_of(self, outputs, allowed):
        return super().distribution_of(-outputs, allowed)
class Twin(ResidualNetwork):
    pass
class Half(torch.nn.Module):
    pass
class OneArgument(ResidualNetwork):
    def __init__(self, spec):
        super().__init__(spec, None)
class Raises(ResidualNetwork):
    def features(self, obs):
        raise ValueError("bad shape\\nin features")
class Exits(ResidualNetwork):
    def features(self, obs):
        raise SystemExit(3)
class NoSuper(ResidualNetwork):
    def __init__(self, spec, architecture, num_signals=1):
        self.spec = spec
class NoNormalizer(ResidualNetwork):
    @property
    def normalizer(self):
        raise AttributeError
class NoTuple(ResidualNetwork):
    def forward(self, obs, allowed, sequences=None):
        return self.distribution(obs, allowed)
class NoDistribution(ResidualNetwork):
    def distribution_of(self, features, allowed):
        return self.outputs(features)
class NoWeights(ResidualNetwork):
    def parameters(self, recurse=True):
        return iter(())
class NaNs(ResidualNetwork):
    def features(self, obs):
        return super().features(obs) * float("nan")
class FlatValues(ResidualNetwork):
    def value(self, obs):
        return super().value(obs)[:, 0]
class TooManyValues(ResidualNetwork):
    def __init__(self, spec, architecture, num_signals=1):
        super().__init__(spec, architecture, num_signals)
        self.values = torch.nn.Linear(architecture.hidden_units, num_signals + 1)
class TooFewChoices(ResidualNetwork):
    def distribution_of(self, features, allowed):
        d = super().distribution_of(features, allowed)
        return type(d)(d.mean, d.log_std, [p[:, :2] for p in d.log_probs])
class ViewsMasks(ResidualNetwork):
    def distribution_of(self, features, allowed):
        if allowed is not None:
            allowed = allowed.view(-1, 1).view(len(features), -1)
            allowed &= True
        return super().distribution_of(features, allowed)
class IgnoresMasks(ResidualNetwork):
    def distribution_of(self, features, allowed):
        return super().distribution_of(features, None)
class Detached(ResidualNetwork):
    def distribution_of(self, features, allowed):
        d = super().distribution_of(features, allowed)
        return type(d)(d.mean, d.log_std, [p.detach() for p in d.log_probs])
class TooFewNumbers(ResidualNetwork):
    def distribution_of(self, features, allowed):
        d = super().distribution_of(features, allowed)
        return type(d)(d.mean[:, :1], d.log_std[:1], d.log_probs)
"""


@pytest.fixture(autouse=True)
def own_modules(tmp_path, monkeypatch):
    (tmp_path / "own_networks.py").write_text(BROKEN)
    (tmp_path / "own_script.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("residual_network", "own_networks", "own_script"):
        sys.modules.pop(name, None)


def _train(folder, scene, trainer_type, network=RESIDUAL, memory=None, **settings):
    behavior = {
        "trainer_type": trainer_type,
        "hyperparameters": HYPER[trainer_type],
        "network_settings": {"type": network, "hidden_units": 16, "memory": memory},
        "max_steps": 800,
        "summary_freq": 400,
    }
    config = folder / "own.yaml"
    folder.mkdir(exist_ok=True)
    config.write_text(json.dumps({"behaviors": {scene: behavior}}))
    about = {"results_dir": str(folder), "run_id": "run", "seed": 3, "env": scene}
    more = {"num_areas": 4, "evaluation_episodes": 0} | settings
    lines = []
    touchline.train(config, settings=about | more, log=lines.append)
    return folder / "run", lines


def _weights(run, scene):
    return read_checkpoint(run / scene / "checkpoint.safetensors")


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    "scene", ["Basic", pytest.param("3DBall", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("trainer_type", HYPER)
def test_a_network_of_ones_own_trains_resumes_and_acts_in_its_onnx_file(
    tmp_path, monkeypatch, trainer_type, scene
):
    whole, _ = _train(tmp_path / "whole", scene, trainer_type)
    tensors, about = _weights(whole, scene)
    assert about["spec"]["network"] == RESIDUAL
    collect, count = LocalCollector.collect, []

    def interrupted(self, wanted):
        count.append(1)
        if len(count) == 20:
            raise KeyboardInterrupt
        return collect(self, wanted)

    with monkeypatch.context() as patches:
        patches.setattr(trainer, "RESUME_EVERY_S", 0.0)
        patches.setattr(LocalCollector, "collect", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _train(tmp_path / "cut", scene, trainer_type)
    cut, _ = _train(tmp_path / "cut", scene, trainer_type, resume=True)
    resumed, _ = _weights(cut, scene)
    assert tensors.keys() == resumed.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, resumed[name]), name
    _check_file(whole, scene)


@pytest.mark.usefixtures("unchecked_shapes")
def test_masks_are_tensors_of_their_own_when_a_network_is_tried_out(tmp_path):
    _train(tmp_path, "Basic", "ppo", "own_networks:ViewsMasks")


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_network_may_have_a_spread_for_every_agent(tmp_path):
    run, lines = _train(tmp_path, "3DBall", "ppo", "own_networks:SpreadOfState")
    assert not any("no ONNX file" in line for line in lines)
    _check_file(run, "3DBall")


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("trainer_type", ["ppo", "sac"])
def test_a_kind_of_the_standard_network_acts_in_its_onnx_file(tmp_path, trainer_type):
    run, _ = _train(tmp_path, "3DBall", trainer_type, "own_networks:Reversed")
    _check_file(run, "3DBall")
    network = load_policy(run / "3DBall" / "checkpoint.safetensors").policy.network
    assert not network.has_gradient
    touchline.export_policy(network, network.spec, tmp_path / "again.onnx")


def _check_file(run, scene):
    checkpoint = run / scene / "checkpoint.safetensors"
    policy = load_policy(checkpoint, deterministic=True).policy
    assert isinstance(policy, NetworkPolicy)
    with touchline.make(touchline.EnvRecipe.parse(scene, num_areas=50)) as env:
        slots = touchline.Slots(env)
        rows = next(iter(slots.reset(0).values()))
    model = OnnxPolicy(run / f"{scene}.onnx", deterministic=True)
    one, other = (
        p.act(rows, None, p.new_generator(0)).actions for p in (policy, model)
    )
    np.testing.assert_allclose(one.continuous, other.continuous, atol=1e-5)
    np.testing.assert_array_equal(one.discrete, other.discrete)


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_run_whose_network_unity_cannot_load_says_so_and_goes_on(tmp_path):
    run, lines = _train(tmp_path, "Basic", "ppo", "own_networks:Unknown")
    (line,) = [line for line in lines if "no ONNX file" in line]
    assert "its operator aten._fft_r2c has no form" in line
    assert (run / "Basic" / "checkpoint.safetensors").exists()
    assert not (run / "Basic.onnx").exists()


@pytest.mark.parametrize(
    ("network", "trainer_type", "expected"),
    [
        ("nothing", "ppo", r"network_settings\.type: no network is called 'nothing'; there are: "),
        ("own_networks:Missing", "ppo", "network_settings.type: the network 'own_networks:Missing' cannot be loaded: AttributeError"),
        ("no_such:Network", "ppo", "cannot be loaded: ModuleNotFoundError"),
        ("own_networks:Half", "ppo", "the network 'own_networks:Half' has no memory_shape"),
        ("json:loads", "ppo", r"the network 'json:loads' is no torch\.nn\.Module"),
        ("own_networks:Unsquashed", "sac", "the network 'own_networks:Unsquashed' acts by a ActionDistribution; expected a SquashedDistribution"),
    ],
)  # fmt: skip
def test_what_is_no_network_is_one_line(tmp_path, network, trainer_type, expected):
    with pytest.raises(UsageError, match=expected) as refusal:
        _train(tmp_path, "Basic", trainer_type, network)
    assert "\n" not in str(refusal.value)


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ("own_script:Network", "cannot be loaded: SystemExit: 3"),
        ("OneArgument", r"made from \(spec, architecture, num_signals\) .*Network describes: TypeError: .* positional"),
        ("Raises", "run on zeros as .*: ValueError: bad shape in features"),
        ("Exits", "run on zeros as .*: SystemExit: 3"),
        ("NoSuper", "fails when it is made .*: AttributeError: "),
        ("NoNormalizer", "AttributeError: .* has no attribute 'normalizer'"),
        ("NoTuple", "run on zeros as .*: TypeError: cannot unpack"),
        ("NoDistribution", "acts by a Tensor; expected a Distribution"),
        ("NoWeights", "has no parameters; expected weights"),
        ("NaNs", "returns NaN or infinity as values for observations of zeros"),
        ("FlatValues", r"returns \[3\] as value\(\) of 3 agents; expected \[3, 1\]"),
        ("TooManyValues", r"returns \[3, 2\] as values of 3 agents; expected \[3, 1\]"),
        ("IgnoresMasks", "allows choices that `allowed` forbids; expected log-probabilities"),
        ("Detached", "gives log_prob that do not depend on its parameters; it could not learn"),
        ("TooFewChoices", r"has branches \[2\]; expected \[3\]"),
    ],
)  # fmt: skip
def test_a_network_that_breaks_the_contract_is_one_line_before_training(
    tmp_path, network, expected
):
    name = network if ":" in network else f"own_networks:{network}"
    with pytest.raises(
        UsageError, match=f"the network '{name}' .*{expected}"
    ) as refusal:
        _train(tmp_path, "Basic", "ppo", name)
    assert "\n" not in str(refusal.value)


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_network_with_too_few_numbers_is_one_line(tmp_path):
    expected = r"returns \[3, 1\] as mean of 3 agents; expected \[3, 2\]"
    with pytest.raises(UsageError, match=expected):
        _train(tmp_path, "3DBall", "ppo", "own_networks:TooFewNumbers")


def test_a_memory_for_a_network_without_one_is_one_line(tmp_path):
    expected = f"'{RESIDUAL}' has no memory; expected no network_settings.memory"
    with pytest.raises(UsageError, match=expected):
        _train(
            tmp_path, "Basic", "ppo", memory={"memory_size": 32, "sequence_length": 16}
        )


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_run_does_not_resume_with_another_network_of_the_same_weights(tmp_path):
    _train(tmp_path, "Basic", "ppo")
    expected = f"this run's network is '{RESIDUAL}'; .* got 'own_networks:Twin'"
    with pytest.raises(UsageError, match=expected):
        _train(tmp_path, "Basic", "ppo", "own_networks:Twin", resume=True)
