"""Files from outside are refused in one line before they cost memory or time."""

import io
import json
import os
import struct
import sys
import tarfile

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from touchline.bounded import extract_within, read_bounded, read_json
from touchline.errors import UsageError
from touchline.policies.files.checkpoints import (
    load_network,
    network_metadata,
    read_arrays,
    write_arrays,
    write_checkpoint,
)
from touchline.policies.files.onnx_in import OnnxPolicy
from touchline.policies.files.onnx_out import export_onnx
from touchline.policies.network import Architecture, make_network
from touchline.protocol.demonstrations import BRAIN_AT, read_demo
from touchline.protocol.schema import MESSAGES
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.config.reading import read_config

SPEC = BehaviorSpec((ObservationSpec.vector(3, "a"),), ActionSpec(2))


def test_a_file_beyond_the_limit_is_refused(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(bytes(101))
    assert len(read_bounded(path, 101)) == 101
    with pytest.raises(UsageError, match="larger than 100 bytes"):
        read_bounded(path, 100)


@pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no named pipes in folders"
)
def test_devices_and_pipes_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            read_bounded(path, 100)


def test_json_of_brackets_and_of_long_numbers_is_one_line(tmp_path):
    path = tmp_path / "x.json"
    for text in ("[" * 100_000, '{"a": ' + "9" * 10_000 + "}", "[1, 2]", "\0"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match=r"x\.json"):
            read_json(path)


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 900 + "]" * 900,
        "a: " + "[" * 60 + "]" * 60,
        "behaviors:\n" + "".join(" " * n + "a:\n" for n in range(1, 500)),
        "a: " + "x" * (1 << 20),
    ],
    ids=["900 brackets", "60 brackets", "500 blocks", "a megabyte"],
)
def test_yaml_that_is_deep_or_large_is_one_line(tmp_path, text):
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_config(str(path))
    assert len(str(caught.value)) < 400
    with pytest.raises(UsageError, match="--set"):
        read_config("Basic", [f"behaviors.Basic={'[' * 900}"])


@pytest.mark.parametrize(
    "value", ["!!timestamp z", '!!int ""', "!!bool q", "!!int x", "!!float y"]
)
def test_a_yaml_value_that_does_not_fit_its_tag_is_one_line(tmp_path, value):
    path = tmp_path / "x.yaml"
    path.write_text(f"a: {value}", encoding="utf-8")
    with pytest.raises(UsageError, match=r"x\.yaml: not YAML: "):
        read_config(str(path))


def checkpoint(path, change):
    network = make_network(SPEC, Architecture(hidden_units=8))
    metadata = json.loads(json.dumps(network_metadata(network)))
    change(metadata)
    weights = {f"network.{k}": v for k, v in network.state_dict().items()}
    write_checkpoint(path, weights, metadata)


@pytest.mark.parametrize(
    "network",
    [
        {"num_layers": 10**9},
        {"hidden_units": 30_000, "num_layers": 3},
        {"memory_size": 10**9},
        {"memory_size": 20_000},
        {"hidden_units": 10**30},
    ],
    ids=str,
)
def test_a_checkpoint_of_absurd_settings_takes_no_memory(tmp_path, network):
    path = tmp_path / "x.safetensors"
    checkpoint(path, lambda metadata: metadata["network"].update(network))
    with pytest.raises(UsageError, match=r"x\.safetensors"):
        load_network(path)


@pytest.mark.parametrize("size", [10**12, 10**400, -1], ids=["10^12", "10^400", "-1"])
def test_a_checkpoint_of_absurd_observations_takes_no_memory(tmp_path, size):
    path = tmp_path / "x.safetensors"

    def change(metadata):
        metadata["spec"]["observation_specs"][0]["shape"] = [size]

    checkpoint(path, change)
    with pytest.raises(UsageError, match=r"x\.safetensors"):
        load_network(path)


def test_a_model_whose_constants_are_no_numbers_is_one_line(tmp_path):
    path = tmp_path / "x.onnx"
    export_onnx(make_network(SPEC, Architecture(hidden_units=8)), path)
    model = onnx.load(path)
    for constant in model.graph.initializer:
        values = numpy_helper.to_array(constant)
        if values.dtype.kind == "f":
            nan = numpy_helper.from_array(values * np.float32("nan"), constant.name)
            constant.CopyFrom(nan)
    onnx.save(model, path)
    with pytest.raises(UsageError, match=r"x\.onnx"):
        OnnxPolicy(path)


def test_a_changed_digit_of_the_metadata_is_one_line(tmp_path):
    path = tmp_path / "x.safetensors"
    write_arrays(path, {"a": np.arange(5), "b": np.zeros((0, 3))}, {"steps": (1, 2345)})
    assert read_arrays(path)[1] == {"steps": [1, 2345]}
    path.write_bytes(path.read_bytes().replace(b"2345", b"2346"))
    with pytest.raises(UsageError, match="damaged"):
        read_arrays(path)


def demo(path, records, continuous, count=None):
    def framed(message):
        data = message.SerializeToString()
        size, head = len(data), b""
        while size > 0x7F:
            head += bytes([size & 0x7F | 0x80])
            size >>= 7
        return head + bytes([size]) + data

    meta = MESSAGES.DemonstrationMetaProto(
        api_version=1, number_steps=records if count is None else count
    )
    brain = MESSAGES.BrainParametersProto(
        brain_name="B",
        action_spec=MESSAGES.ActionSpecProto(num_continuous_actions=continuous),
    )
    info = MESSAGES.AgentInfoProto(id=1)
    observation = info.observations.add(shape=[1])
    observation.float_data.data = np.float32(0.5).tobytes()
    pair = framed(MESSAGES.AgentInfoActionPairProto(agent_info=info))
    head = framed(meta).ljust(BRAIN_AT, b"\0") + framed(brain)
    path.write_bytes(head + pair * records)


def test_a_demonstration_without_the_actions_that_it_announces_takes_no_memory(
    tmp_path,
):
    path = tmp_path / "x.demo"
    demo(path, 30_000, 1 << 20)
    with pytest.raises(UsageError, match="more than a demonstration"):
        read_demo(path)


@pytest.mark.parametrize("count", [None, 0], ids=["announced", "not announced"])
def test_a_demonstration_of_too_many_records_is_refused_at_once(tmp_path, count):
    path = tmp_path / "x.demo"
    demo(path, 600_000, 1, count)
    with pytest.raises(UsageError, match="more than 500,000 records"):
        read_demo(path)


def test_a_header_longer_than_its_file_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    for content in (struct.pack("<Q", 1 << 62), b"", b"\xff" * 8 + b"{" * 50):
        path.write_bytes(content)
        with pytest.raises(UsageError, match="cut short"):
            read_arrays(path)


def packed(path, **entry):
    """An archive of one entry with these attributes."""
    info = tarfile.TarInfo()
    info.size = 0 if "type" in entry else 3
    for name, value in entry.items():
        setattr(info, name, value)
    with tarfile.open(path, "w") as archive:
        archive.addfile(info, io.BytesIO(b"abc"))
    return path


@pytest.fixture(params=["this Python", "Python 3.11.2"])
def filters(request, monkeypatch):
    """Python 3.11.2, which Debian 12 has, does not look at what it unpacks."""
    if request.param == "Python 3.11.2":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)


@pytest.mark.usefixtures("filters")
@pytest.mark.parametrize(
    "entry",
    [
        {"name": "../out"},
        {"name": "in/../../out"},
        {"name": "link", "type": tarfile.SYMTYPE, "linkname": "../out"},
        {"name": "link", "type": tarfile.LNKTYPE, "linkname": "../out"},
        {"name": "pipe", "type": tarfile.FIFOTYPE},
    ],
)
def test_nothing_is_unpacked_outside_the_folder(entry, tmp_path):
    (tmp_path / "out").write_text("mine")
    folder = tmp_path / "folder"
    folder.mkdir()
    with (
        tarfile.open(packed(tmp_path / "some.tar", **entry)) as archive,
        pytest.raises(tarfile.TarError),
    ):
        extract_within(archive, archive.getmembers()[0], folder)
    assert (tmp_path / "out").read_text() == "mine"
    assert not list(folder.iterdir())


@pytest.mark.usefixtures("filters")
def test_what_is_unpacked_can_be_run_and_written_by_its_owner_alone(tmp_path):
    path = packed(tmp_path / "some.tar", name="in/game", mode=0o4577)
    with tarfile.open(path) as archive:
        extract_within(archive, archive.getmembers()[0], tmp_path / "folder")
    game = tmp_path / "folder" / "in" / "game"
    assert game.read_bytes() == b"abc"
    if sys.platform != "win32":  # which has no such rights
        assert game.stat().st_mode & 0o7777 == 0o755
