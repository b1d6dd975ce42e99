"""Networks of ML-Agents 1.1.0 as ours: the same numbers for the same observations.

The files in `official/` come from ML-Agents itself; README.md beside them says how.
"""

import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from tests.slot_rows import slot_rows

from touchline.errors import UsageError
from touchline.policies.files.official_weights import (
    OBSERVATIONS_BEHIND_ONNX,
    read_official,
    with_official_weights,
)
from touchline.policies.files.onnx_in import OnnxPolicy
from touchline.policies.loading import load_policy
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.network import Architecture, side_by_side
from touchline.scenes.ball_3d import Ball3D
from touchline.scenes.hallway import Hallway
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

OFFICIAL = Path(__file__).parent / "official"
SIGNALS = ["extrinsic", "curiosity"]
CASES = {
    "vectors": ([(5,), (3,)], (2, ()), {"num_layers": 2, "normalize": True}),
    "hybrid": ([(4,)], (1, (3, 2)), {"num_layers": 3}),
    "image_first": ([(1, 20, 20), (4,)], (0, (3,)), {"num_layers": 1, "normalize": True}),
    "memory": ([(6,)], (0, (4,)), {"num_layers": 1, "memory_size": 8}),
    "shared": (
        [(3,), (2,)],
        (2, ()),
        {"num_layers": 1, "normalize": True, "shared_critic": True},
    ),
}  # fmt: skip
"""As in tests/interop/official_networks.py."""


def spec_of(shapes, actions):
    sensors = tuple(ObservationSpec(shape, name=f"sensor {shape}") for shape in shapes)
    return BehaviorSpec(sensors, ActionSpec(*actions))


def network_of(case, **changes):
    shapes, actions, settings = CASES[case]
    architecture = Architecture(**{"hidden_units": 8, **settings, **changes})
    return ActorCritic(spec_of(shapes, actions), architecture, len(SIGNALS))


def filled(network, path):
    state = with_official_weights(network, read_official(path), SIGNALS)
    network.load_state_dict(state)
    return network


@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_computes_what_ml_agents_computes(case):
    network = filled(network_of(case), OFFICIAL / f"{case}.pt")
    expected = np.load(OFFICIAL / f"{case}.npz")
    obs = [expected[f"obs_{i}"] for i in range(len(network.spec.observation_specs))]
    tensors = network.normalized(tuple(map(torch.from_numpy, side_by_side(obs))))
    with torch.no_grad():
        if case == "memory":
            both = [expected["actor_memory"], expected["critic_memory"]]
            memory = torch.from_numpy(np.stack(both, axis=1))
            distribution, values, after = network.step(tensors, None, memory)
            for which, name in enumerate(("actor", "critic")):
                wanted = expected[f"{name}_memory_after"]
                np.testing.assert_allclose(after[:, which], wanted, atol=2e-6)
        else:
            distribution, values = network(tensors, None)
    np.testing.assert_allclose(values, expected["values"], rtol=1e-5, atol=1e-5)
    spec = network.spec.action_spec
    means, *logits = np.split(
        expected["outputs"],
        np.cumsum([spec.continuous_size, *spec.discrete_branches])[:-1],
        axis=1,
    )
    if spec.continuous_size:
        np.testing.assert_allclose(distribution.mean, means, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(network.log_std.detach(), expected["log_std"])
    for branch, logit in zip(distribution.log_probs, logits, strict=True):
        log_probs = torch.log_softmax(torch.from_numpy(logit), dim=1)
        np.testing.assert_allclose(branch, log_probs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_an_onnx_file_gives_the_policy_of_its_checkpoint(case):
    critic_before = network_of(case).state_dict()
    whole = filled(network_of(case), OFFICIAL / f"{case}.pt").state_dict()
    torch.manual_seed(0)
    start = network_of(case)
    before = {name: value.clone() for name, value in start.state_dict().items()}
    policy = filled(start, OFFICIAL / f"{case}.onnx").state_dict()
    assert critic_before.keys() == policy.keys()
    for name, value in policy.items():
        if name.endswith("normalizer.count"):
            assert value == OBSERVATIONS_BEHIND_ONNX
        elif ".bodies.1." in name or "value" in name:
            assert torch.equal(value, before[name]), f"{name} is not in the file"
        elif ".weights." in name or ".biases." in name:  # actor and critic in one
            torch.testing.assert_close(value[0], whole[name][0])
            assert torch.equal(value[1], before[name][1])
        else:
            torch.testing.assert_close(value, whole[name])


RUNS = {
    "3DBall": (Ball3D, {"normalize": True}),
    "Hallway": (Hallway, {"memory_size": 16}),
}


@pytest.mark.parametrize("scene", RUNS)
@pytest.mark.parametrize("suffix", [".pt", ".onnx"])
def test_an_official_run_acts_as_its_own_onnx(scene, suffix):
    """Trained by mlagents-learn 1.1.0 in a player of `touchline build`."""
    cls, settings = RUNS[scene]
    (spec,) = cls.behaviors.values()
    network = ActorCritic(spec, Architecture(hidden_units=16, **settings))
    filled(network, OFFICIAL / f"{scene}{suffix}")
    official = OnnxPolicy(OFFICIAL / f"{scene}.onnx", deterministic=True)
    official.check(scene, spec)
    rng = np.random.default_rng(0)
    obs = [
        rng.normal(size=(50, *o.shape)).astype(np.float32)
        for o in spec.observation_specs
    ]
    tensors = network.normalized(tuple(map(torch.from_numpy, side_by_side(obs))))
    with torch.no_grad():
        if scene == "Hallway":
            distribution, _, _ = network.step(tensors, None, torch.zeros(50, 2, 16))
        else:
            distribution = network.distribution(tensors, None)
        continuous, discrete = distribution.mode()
    rows = rows_of(obs, spec)
    theirs = official.act(rows, official.new_memory(), np.random.default_rng(0)).actions
    np.testing.assert_allclose(
        continuous.clamp(-3, 3) / 3, theirs.continuous, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(discrete, theirs.discrete)


def rows_of(obs, spec):
    size = spec.action_spec.mask_size
    allowed = np.ones((len(obs[0]), size), np.bool_) if size else None
    return slot_rows(obs, action_mask=allowed, begins=True)


SHIPPED = {
    "3DBall": (Ball3D, {"hidden_units": 128, "normalize": True}),
    "Hallway": (Hallway, {"hidden_units": 128, "memory_size": 128}),
}


@pytest.mark.parametrize("scene", SHIPPED)
def test_a_model_that_ships_with_ml_agents_gives_a_network_that_acts_as_it(
    scene, shared
):
    cls, settings = SHIPPED[scene]
    (spec,) = cls.behaviors.values()
    path = shared / "unity-policies" / f"{scene}.onnx"
    network = filled(ActorCritic(spec, Architecture(**settings)), path)
    official = OnnxPolicy(path, deterministic=True)
    rng = np.random.default_rng(0)
    obs = [
        rng.normal(size=(50, *o.shape)).astype(np.float32)
        for o in spec.observation_specs
    ]
    tensors = network.normalized(tuple(map(torch.from_numpy, side_by_side(obs))))
    with torch.no_grad():
        if network.memory_shape:
            distribution, _, _ = network.step(tensors, None, torch.zeros(50, 2, 128))
        else:
            distribution = network.distribution(tensors, None)
    theirs = official.act(rows_of(obs, spec), official.new_memory(), rng).actions
    continuous, discrete = distribution.mode()
    np.testing.assert_allclose(
        continuous.clamp(-3, 3) / 3, theirs.continuous, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(discrete, theirs.discrete)


class Hostile:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("how", ["zip", "old format", "bare pickle"])
def test_a_hostile_checkpoint_is_refused_in_one_line_and_nothing_of_it_runs(
    how, tmp_path
):
    path, marker = tmp_path / "hostile.pt", tmp_path / "ran"
    content = {"Policy": {"weight": torch.zeros(1)}, "payload": Hostile(marker)}
    if how == "bare pickle":
        path.write_bytes(pickle.dumps(Hostile(marker)))
    else:
        is_zip = how == "zip"
        torch.save(content, path, _use_new_zipfile_serialization=is_zip)
    with pytest.raises(UsageError) as refused:
        read_official(path)
    assert not marker.exists()
    message = str(refused.value)
    assert "\n" not in message
    assert "weights_only" not in message, "no advice to run it after all"
    assert len(message) < 300 + len(str(path))
    if how == "zip":
        assert message.endswith(
            f"not a checkpoint of tensors only (it names {os.mkdir.__module__}.mkdir); "
            "nothing in it was run"
        )
    torch.load(path, weights_only=False) if how != "bare pickle" else pickle.loads(
        path.read_bytes()
    )
    assert marker.exists(), "the file would have done harm"


def test_what_is_no_checkpoint_of_ml_agents_is_refused(tmp_path):
    path = tmp_path / "other.pt"
    for content in ({"weights": torch.zeros(2)}, [1, 2], {"Policy": torch.zeros(1)}):
        torch.save(content, path)
        with pytest.raises(UsageError, match="expected a module 'Policy'"):
            read_official(path)
    whole = (OFFICIAL / "vectors.pt").read_bytes()
    for cut in (0, 10, 1000, len(whole) - 100):
        path.write_bytes(whole[:cut])
        with pytest.raises(UsageError, match="not a checkpoint") as refused:
            read_official(path)
        assert "\n" not in str(refused.value)


DIFFERENT = [
    ({"hidden_units": 16}, "it has hidden_units 8; configured: hidden_units 16"),
    ({"num_layers": 3}, "it has num_layers 2; configured: num_layers 3"),
    ({"normalize": False}, "it has normalize True; configured: normalize False"),
    ({"memory_size": 4}, "it has memory_size 0; configured: memory_size 4"),
]


@pytest.mark.parametrize(("changes", "message"), DIFFERENT)
@pytest.mark.parametrize("suffix", [".pt", ".onnx"])
def test_other_settings_are_named(changes, message, suffix):
    with pytest.raises(UsageError, match=message):
        filled(network_of("vectors", **changes), OFFICIAL / f"vectors{suffix}")


def test_a_memory_that_ml_agents_does_not_have_is_refused():
    network = network_of("memory", memory_type="gru")
    with pytest.raises(UsageError, match="no memory of the configured type gru"):
        filled(network, OFFICIAL / "memory.pt")


def test_another_behavior_is_refused_by_the_first_shape_that_differs():
    network = ActorCritic(
        spec_of([(5,), (4,)], (2, ())),
        Architecture(hidden_units=8, normalize=True),
    )
    with pytest.raises(
        UsageError,
        match=r"seq_layers.0.weight has the shape \[8, 8\], expected \[8, 9\]",
    ):
        filled(network, OFFICIAL / "vectors.pt")
    network = ActorCritic(
        spec_of([(5,), (3,)], (3, ())),
        Architecture(hidden_units=8, normalize=True),
    )
    with pytest.raises(UsageError, match=r"mu.weight has the shape \[2, 8\], expected"):
        filled(network, OFFICIAL / "vectors.pt")


def test_networks_that_ml_agents_builds_otherwise_are_refused(shared):
    sorter = BehaviorSpec(
        (ObservationSpec((20, 23)), ObservationSpec((10,)), ObservationSpec((8,))),
        ActionSpec(0, (3, 3, 3)),
    )
    with pytest.raises(UsageError, match="lists of entities is built otherwise"):
        filled(
            ActorCritic(sorter, Architecture()),
            shared / "unity-policies" / "Sorter.onnx",
        )
    network = network_of("image_first", vis_encode_type="fully_connected")
    with pytest.raises(
        UsageError, match="image encoder fully_connected is built otherw"
    ):
        filled(network, OFFICIAL / "image_first.pt")


def test_not_a_number_is_refused(tmp_path):
    modules = torch.load(OFFICIAL / "vectors.pt", weights_only=True)
    modules["Policy"]["action_model._continuous_distribution.mu.bias"][0] = torch.nan
    torch.save(modules, tmp_path / "nan.pt")
    with pytest.raises(UsageError, match=r"mu.bias holds NaN or infinite numbers"):
        filled(network_of("vectors"), tmp_path / "nan.pt")


def test_a_model_without_ml_agents_names_is_refused(tmp_path):
    model = onnx.load(OFFICIAL / "vectors.onnx")
    for constant in model.graph.initializer:
        for node in model.graph.node:
            for i, name in enumerate(node.input):
                if name == constant.name:
                    node.input[i] = f"c{name}"
        constant.name = f"c{constant.name}"
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(UsageError, match="none of ML-Agents' names"):
        read_official(tmp_path / "other.onnx")


def test_to_act_with_a_checkpoint_its_onnx_is_recommended(tmp_path):
    shutil.copy(OFFICIAL / "3DBall.pt", tmp_path)
    with pytest.raises(
        UsageError, match=r"\(init_path\); to act, give the .onnx next to"
    ):
        load_policy(tmp_path / "3DBall.pt")


def test_a_network_with_one_value_head_takes_the_first_signals():
    network = network_of("shared")
    shapes, actions, settings = CASES["shared"]
    architecture = Architecture(hidden_units=8, **settings)
    alone = ActorCritic(spec_of(shapes, actions), architecture)
    filled(network, OFFICIAL / "shared.pt")
    weights = read_official(OFFICIAL / "shared.pt")
    state = with_official_weights(alone, weights, SIGNALS[: alone.num_signals])
    alone.load_state_dict(state)
    both, one = (n.state_dict()["trunk.value_head.weight"] for n in (network, alone))
    assert torch.equal(both[:1], one)
