"""Checkpoints: what is saved comes back, also from earlier versions, and bad files are refused."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from touchline.errors import UsageError
from touchline.policies.files.checkpoints import (
    load_network,
    network_metadata,
    read_checkpoint,
    spec_from_json,
    spec_to_json,
    write_checkpoint,
)
from touchline.policies.loading import load_policies
from touchline.policies.network import Architecture, make_network
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec, ObservationType

OLD = Path(__file__).parent / "3DBall-0.1.0.safetensors"
SPEC = BehaviorSpec(
    (
        ObservationSpec.vector(4, "a"),
        ObservationSpec(
            (2,), observation_type=ObservationType.GOAL_SIGNAL, name="goal"
        ),
    ),
    ActionSpec(1, (3,)),
)


def _save(path, network, metadata):
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    write_checkpoint(path, tensors, metadata)


def _outputs(network, obs):
    with torch.no_grad():
        distribution, value = network((obs,), None)
    return distribution.mean, *distribution.log_probs, value


@pytest.mark.parametrize("goal_conditioning", ["hyper", "none"])
@pytest.mark.parametrize("signals", [("extrinsic",), ("extrinsic", "curiosity")])
def test_a_network_comes_back_with_all_of_its_value_heads(
    tmp_path, signals, goal_conditioning
):
    architecture = Architecture(
        hidden_units=8, goal_conditioning_type=goal_conditioning
    )
    network = make_network(SPEC, architecture, len(signals))
    path = tmp_path / "a.safetensors"
    _save(path, network, network_metadata(network, signals))
    loaded = load_network(path)
    assert loaded.spec == SPEC
    assert loaded.architecture == architecture
    assert loaded.num_signals == len(signals)
    obs = torch.randn(5, 6)
    for a, b in zip(_outputs(network, obs), _outputs(loaded, obs), strict=True):
        assert torch.equal(a, b)


def test_signals_are_named_where_there_are_several(tmp_path):
    network = make_network(SPEC, Architecture(hidden_units=8), 2)
    path = tmp_path / "a.safetensors"
    _save(path, network, network_metadata(network, ("extrinsic", "rnd")))
    assert read_checkpoint(path)[1]["reward_signals"] == ["extrinsic", "rnd"]
    assert "reward_signals" not in network_metadata(network)


def test_a_spec_keeps_its_network():
    spec = BehaviorSpec(
        (ObservationSpec((3, 4, 4)),), ActionSpec(0, (3, 2), staged=True), "board"
    )
    again = spec_from_json(json.loads(json.dumps(spec_to_json(spec))))
    assert again == spec
    assert again.network == "board"


def test_a_checkpoint_of_0_1_0_computes_what_it_computed_there():
    network = load_network(OLD)
    obs = torch.arange(16.0).view(2, 8) / 8 - 1
    mean, value = _outputs(network, network.normalized((obs,))[0])
    # printed by 0.1.0 for these observations
    expected = [
        [1.4043526649475098, 0.19349463284015656],
        [0.34905558824539185, -0.14406347274780273],
    ]
    torch.testing.assert_close(mean, torch.tensor(expected))
    torch.testing.assert_close(
        value, torch.tensor([[-0.04415205493569374], [-0.009989457204937935]])
    )


def test_a_checkpoint_of_0_1_0_is_loaded_as_a_policy():
    spec = load_network(OLD).spec
    assert spec.network == "standard"
    assert set(load_policies([str(OLD)], {"3DBall?team=0": spec})) == {"3DBall?team=0"}


def test_a_policy_of_another_spec_is_refused_with_both():
    other = BehaviorSpec((ObservationSpec.vector(8, "a"),), ActionSpec(0, (6, 4) * 256))
    with pytest.raises(UsageError) as caught:
        load_policies([str(OLD)], {"Board?team=0": other})
    message = str(caught.value)
    assert (
        "3DBall-0.1.0.safetensors: does not fit Board?team=0: it was trained on"
        in message
    )
    assert "branches 256 x [6, 4]" in message
    assert len(message) < 400


def test_a_network_that_no_longer_fits_its_weights_is_refused_in_few_words(tmp_path):
    network = make_network(SPEC, Architecture(hidden_units=8))
    wider = network_metadata(make_network(SPEC, Architecture(hidden_units=9)))
    path = tmp_path / "a.safetensors"
    _save(path, network, wider)
    with pytest.raises(
        UsageError, match=r"a\.safetensors: its weights do not fit"
    ) as caught:
        load_network(path)
    assert len(str(caught.value)) < 300


def test_a_network_that_this_version_lacks_is_refused_with_the_file(tmp_path):
    network = make_network(SPEC, Architecture(hidden_units=8))
    path = tmp_path / "a.safetensors"
    metadata = network_metadata(network)
    metadata["spec"]["network"] = "other"
    _save(path, network, metadata)
    with pytest.raises(
        UsageError, match=r"a\.safetensors: no network is called 'other'"
    ):
        load_network(path)
    metadata = network_metadata(network)
    metadata["network"]["num_experts"] = 8
    _save(path, network, metadata)
    with pytest.raises(
        UsageError, match=r"a\.safetensors: an architecture of another version"
    ):
        load_network(path)


def test_what_is_no_policy_is_refused_with_its_name(tmp_path):
    path = tmp_path / "a.safetensors"
    with pytest.raises(UsageError, match=r"a\.safetensors: no such checkpoint"):
        load_network(path)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(
        UsageError, match=r"a\.safetensors: not a checkpoint, or cut short"
    ):
        load_network(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(UsageError, match=r"not a Touchline checkpoint \(format None\)"):
        load_network(path)
    write_checkpoint(path, {"a": torch.zeros(1)}, {})
    with pytest.raises(UsageError, match="a checkpoint, but not of a policy"):
        load_network(path)


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    write_checkpoint(path, {"a": torch.zeros(1)}, {})
    before = path.read_bytes()

    def no_space(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match="no space"):
        write_checkpoint(path, {"a": torch.ones(1)}, {})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_same_content_writes_the_same_bytes(tmp_path):
    files = []
    for name in ("a", "b"):
        path = tmp_path / name
        write_checkpoint(path, {"x": torch.zeros(2), "y": torch.ones(3)}, {"steps": 5})
        files.append(path.read_bytes())
    assert files[0] == files[1]
    with safe_open(tmp_path / "a", framework="pt") as file:
        assert list(file.metadata()) == ["about"]
