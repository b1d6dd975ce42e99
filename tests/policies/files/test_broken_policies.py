"""Broken policy files: each is one line that names the file, and never a traceback."""

import json
import struct

import numpy as np
import onnx
import pytest

from touchline.errors import UsageError
from touchline.policies.files.checkpoints import network_metadata, write_checkpoint
from touchline.policies.files.onnx_out import build_onnx
from touchline.policies.loading import load_policy
from touchline.policies.network import Architecture, make_network
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec.vector(4, "a"),), ActionSpec(1, (3,)))
LONGEST = 400


@pytest.fixture(scope="module")
def network():
    return make_network(SPEC, Architecture(hidden_units=8, num_layers=1), 1)


@pytest.fixture(scope="module")
def checkpoint(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "a.safetensors"
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    about = {"behavior": "A", "steps": 1, **network_metadata(network)}
    write_checkpoint(path, tensors, about)
    load_policy(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def model(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "a.onnx"
    path.write_bytes(build_onnx(network).SerializeToString())
    load_policy(path)
    return path.read_bytes()


def refusal(path):
    """The one line with which this policy is refused."""
    with pytest.raises(UsageError) as caught:
        load_policy(path)
    line = str(caught.value)
    assert line.startswith(str(path)), line
    assert "\n" not in line
    assert len(line) - len(str(path)) < LONGEST, line
    return line


@pytest.mark.parametrize("share", [0, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999])
@pytest.mark.parametrize("kind", ["checkpoint", "model"])
def test_a_file_that_is_cut_short_is_refused(kind, share, request, tmp_path):
    suffix = {"checkpoint": ".safetensors", "model": ".onnx"}[kind]
    whole = request.getfixturevalue(kind)
    path = tmp_path / f"cut{suffix}"
    path.write_bytes(whole[: int(share * len(whole))])
    assert "cut short" in refusal(path) or kind == "model"


FOREIGN = {
    "text": b"weights: 3\n", "JSON": b'{"a": 1}', "a pickle": b"\x80\x04\x95.", "zeros": bytes(99),
    "a zip": b"PK\x03\x04" + bytes(30), "ones": b"\xff" * 99, "a PNG": b"\x89PNG\r\n\x1a\n" + bytes(30),
}  # fmt: skip


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("suffix", [".safetensors", ".onnx"])
def test_a_file_of_another_kind_is_refused(tmp_path, suffix, content):
    path = tmp_path / f"foreign{suffix}"
    path.write_bytes(content)
    refusal(path)


def with_metadata(checkpoint, change):
    """The checkpoint with other metadata: `change` gets them, parsed, and gives new ones."""
    (length,) = struct.unpack_from("<Q", checkpoint)
    header = json.loads(checkpoint[8 : 8 + length])
    header["__metadata__"] = change(json.loads(header["__metadata__"]["about"]))
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + checkpoint[8 + length :]


def about(*keys, value=...):
    """A change of the metadata at this place: another value, or none."""

    def change(metadata):
        at = metadata
        for key in keys[:-1]:
            at = at[key]
        if value is ...:
            del at[keys[-1]]
        else:
            at[keys[-1]] = value
        return {"about": json.dumps(metadata)}

    return change


OBSERVATION = "spec", "observation_specs", 0
METADATA = {
    "none": lambda metadata: {},
    "not JSON": lambda metadata: {"about": "{"},
    "a list": lambda metadata: {"about": "[]"},
    "null": lambda metadata: {"about": "null"},
    "another format": about("format", value="touchline-9"),
    "no format": about("format"),
    "no spec": about("spec"),
    "no network": about("network"),
    "a spec that is null": about("spec", value=None),
    "a spec that is a text": about("spec", value="3DBall"),
    "no observations": about("spec", "observation_specs"),
    "observations that are null": about("spec", "observation_specs", value=None),
    "an observation that is a number": about(*OBSERVATION, value=3),
    "an observation without a shape": about(*OBSERVATION, "shape"),
    "a shape of a text": about(*OBSERVATION, "shape", value=["four"]),
    "a negative shape": about(*OBSERVATION, "shape", value=[-4]),
    "more properties than axes": about(*OBSERVATION, "dimension_property", value=[1, 1]),
    "a shape that is null": about(*OBSERVATION, "shape", value=None),
    "an unknown type": about(*OBSERVATION, "observation_type", value=99),
    "another size": about(*OBSERVATION, "shape", value=[5]),
    "no actions": about("spec", "action_spec"),
    "actions that are null": about("spec", "action_spec", value=None),
    "continuous actions of a text": about("spec", "action_spec", "continuous_size", value="x"),
    "negative actions": about("spec", "action_spec", "continuous_size", value=-1),
    "a branch of nothing": about("spec", "action_spec", "discrete_branches", value=[0]),
    "branches that are null": about("spec", "action_spec", "discrete_branches", value=None),
    "other branches": about("spec", "action_spec", "discrete_branches", value=[7]),
    "an unknown network": about("spec", "network", value="imagined"),
    "a network that is a number": about("spec", "network", value=3),
    "an architecture that is a list": about("network", value=[]),
    "an unknown setting": about("network", "hidden_unit", value=3),
    "units of a text": about("network", "hidden_units", value="many"),
    "no units": about("network", "hidden_units", value=0),
    "negative layers": about("network", "num_layers", value=-1),
    "other units": about("network", "hidden_units", value=16),
    "other layers": about("network", "num_layers", value=3),
    "signals that are null": about("reward_signals", value=None),
    "more signals": about("reward_signals", value=["extrinsic", "rnd"]),
}  # fmt: skip


@pytest.mark.parametrize("change", METADATA.values(), ids=METADATA)
def test_metadata_that_do_not_fit_are_refused(checkpoint, tmp_path, change):
    path = tmp_path / "odd.safetensors"
    path.write_bytes(with_metadata(checkpoint, change))
    refusal(path)


def changed(graph):
    """What may be wrong with a model that is whole: name -> change of its graph."""
    return {
        "no outputs": lambda: graph.ClearField("output"),
        "no nodes": lambda: graph.ClearField("node"),
        "no weights": lambda: graph.ClearField("initializer"),
        "an unknown operator": lambda: setattr(graph.node[0], "op_type", "Imagine"),
        "an input that nothing gives": lambda: graph.node[0].input.__setitem__(
            0, "nowhere"
        ),
        "a weight of another shape": lambda: graph.initializer[0].CopyFrom(
            onnx.numpy_helper.from_array(
                np.zeros((7, 7), np.float32), graph.initializer[0].name
            )
        ),
    }


@pytest.mark.parametrize("name", changed(None))
def test_a_model_whose_parts_do_not_fit_is_refused(model, tmp_path, name):
    broken = onnx.load_model_from_string(model)
    changed(broken.graph)[name]()
    path = tmp_path / "odd.onnx"
    path.write_bytes(broken.SerializeToString())
    refusal(path)


def test_what_is_not_there_or_a_folder_is_refused(tmp_path):
    for path in (
        tmp_path / "none.onnx",
        tmp_path / "none.safetensors",
        tmp_path / "none",
    ):
        assert "no" in refusal(path)
    for name in ("a.onnx", "a.safetensors", "run"):
        (tmp_path / name).mkdir()
        refusal(tmp_path / name)
