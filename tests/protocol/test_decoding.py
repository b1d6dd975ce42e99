"""Bytes to exchanges and back: laws, a comparison with plain protobuf, and bad messages."""

import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.plain_messages import plain_messages
from tests.protocol.wires import (
    READERS,
    assert_same_steps,
    decoded,
    exchanges,
    floats,
    message_of,
    plain_message,
    png,
)

import touchline
from touchline.errors import NonFiniteError, TouchlineError
from touchline.protocol import decoding
from touchline.protocol.decoding import ExchangeDecoder, action_spec
from touchline.protocol.dialect import Dialect
from touchline.protocol.errors import MalformedMessageError, UnityObservationException
from touchline.protocol.parsed_agents import ParsedAgents
from touchline.protocol.recording import REQUEST, read_frames
from touchline.protocol.scan import ScannedAgents
from touchline.protocol.schema import MESSAGES
from touchline.protocol.session import parse_message
from touchline.specs import ActionSpec


@pytest.fixture(params=READERS.values(), ids=READERS, scope="module")
def reader(request):
    """Each of the two readers of agents; every test below holds for both."""
    return request.param


@given(made=exchanges())
@settings(max_examples=60)
def test_an_exchange_survives_the_wire(made, reader):
    described, exchange = made
    decoder = ExchangeDecoder(Dialect(), reader)
    again = decoded(message_of(described, exchange), decoder)
    assert dict(decoder.behaviors) == described
    for name, (decisions, terminals) in exchange.items():
        assert_same_steps(again[name][0], decisions)
        assert_same_steps(again[name][1], terminals)


@given(exchanges())
@settings(max_examples=30)
def test_plain_protobuf_reads_what_we_write(made):
    described, exchange = made
    message = plain_messages().UnityMessageProto.FromString(
        message_of(described, exchange)
    )
    assert_plain_agrees(message.unity_output, exchange)


def assert_plain_agrees(output, exchange):
    """Every agent of an exchange against the plain protobuf classes, field by field."""
    for name, infos in output.rl_output.agentInfos.items():
        decisions, terminals = exchange[name]
        for steps, chosen in (
            (decisions, [i for i in infos.value if not i.done]),
            (terminals, [i for i in infos.value if i.done]),
        ):
            assert len(steps) == len(chosen)
            assert steps.agent_id.tolist() == [i.id for i in chosen]
            assert steps.group_id.tolist() == [i.group_id for i in chosen]
            np.testing.assert_array_equal(
                steps.reward, np.array([i.reward for i in chosen], np.float32)
            )
            np.testing.assert_array_equal(
                steps.group_reward,
                np.array([i.group_reward for i in chosen], np.float32),
            )
            for row, info in enumerate(chosen):
                for sensor, o in enumerate(info.observations):
                    if o.WhichOneof("observation_data") == "float_data":
                        data = np.array(o.float_data.data, np.float32).reshape(
                            tuple(o.shape)
                        )
                        np.testing.assert_array_equal(steps.obs[sensor][row], data)
        assert [bool(t) for t in terminals.interrupted] == [
            i.max_step_reached for i in infos.value if i.done
        ]
        masked = [i for i in infos.value if not i.done]
        if decisions.action_mask is not None and len(masked):
            flat = np.concatenate(decisions.action_mask, axis=1)
            for row, info in enumerate(masked):
                assert flat[row].tolist() == (
                    list(info.action_mask) or [False] * flat.shape[1]
                )


def recorded_messages(path):
    """The dialect of a recorded session, and its exchanges as bytes."""
    requests = [data for kind, data in read_frames(path) if kind == REQUEST]
    introduction = parse_message(requests[0]).unity_output.rl_initialization_output
    dialect = Dialect(introduction.communication_version, introduction.package_version)
    return dialect, requests[2:]


def test_recordings_read_as_plain_protobuf_reads_them(shared, reader):
    """Every agent of every recorded message, images aside."""
    for path in sorted((shared / "wire-recordings").glob("*.wire.gz")):
        dialect, messages = recorded_messages(path)
        decoder = ExchangeDecoder(dialect, reader)
        for data in messages:
            exchange = decoded(data, decoder)
            if exchange:
                assert_plain_agrees(
                    plain_messages().UnityMessageProto.FromString(data).unity_output,
                    exchange,
                )


def assert_same_exchanges(one, other):
    assert list(one) == list(other)
    for name, pair in one.items():
        for steps, others in zip(pair, other[name], strict=True):
            assert_same_steps(steps, others)


def test_both_readers_give_the_same_arrays_on_every_recording(shared):
    """All generations of packages, with masks, images, groups and agents that end."""
    kinds = set()
    for path in sorted((shared / "wire-recordings").glob("*.wire.gz")):
        dialect, messages = recorded_messages(path)
        decoders = [ExchangeDecoder(dialect, reader) for reader in READERS.values()]
        for data in messages:
            one, other = (decoded(data, decoder) for decoder in decoders)
            assert_same_exchanges(one, other)
            for decisions, terminals in one.values():
                kinds |= {"masks"} if decisions.action_mask is not None else set()
                kinds |= {"groups"} if decisions.group_id.any() else set()
                kinds |= {"ends"} if len(terminals) else set()
                kinds |= (
                    {"images"} if any(obs.ndim == 4 for obs in decisions.obs) else set()
                )
        one, other = decoders
        assert dict(one.behaviors) == dict(other.behaviors)
    assert kinds == {"masks", "groups", "ends", "images"}


@given(exchanges())
@settings(max_examples=60)
def test_both_readers_give_the_same_arrays_on_any_exchange(made):
    data = message_of(*made)
    one, other = (
        decoded(data, ExchangeDecoder(Dialect(), reader)) for reader in READERS.values()
    )
    assert_same_exchanges(one, other)


def test_images_and_floats_of_one_sensor_may_be_mixed_within_a_message(reader):
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    plain = floats(*range(24), shape=[3, 2, 4])
    decoder, output = plain_message(
        {"id": 1, "observations": [plain]},
        {"id": 2, "observations": [png([pixels], [3, 2, 4])]},
        {"id": 3, "observations": [plain]},
        reader=reader,
    )
    decisions, _ = decoder.decode(output)["A?team=0"]
    as_floats = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    as_image = pixels.transpose(2, 0, 1) / np.float32(255)
    np.testing.assert_array_equal(decisions.obs[0], [as_floats, as_image, as_floats])


def test_agents_that_give_no_mask_may_choose_anything(reader):
    decoder, output = plain_message(
        {"id": 1, "action_mask": [True, False], "observations": [floats(1)]},
        {"id": 2, "observations": [floats(1)]},
        brain={"num_discrete_actions": 1, "discrete_branch_sizes": [2]},
        reader=reader,
    )
    decisions, _ = decoder.decode(output)["A?team=0"]
    assert decisions.action_mask[0].tolist() == [[True, False], [False, False]]


def test_an_agent_can_end_and_decide_in_one_message(reader):
    decoder, output = plain_message(
        {
            "id": 4,
            "done": True,
            "reward": 1,
            "max_step_reached": True,
            "observations": [floats(1)],
        },
        {"id": 4, "observations": [floats(2)]},
        reader=reader,
    )
    decisions, terminals = decoder.decode(output)["A?team=0"]
    assert (decisions[4].obs[0][0], terminals[4].obs[0][0]) == (2, 1)
    assert terminals[4].interrupted


def test_behaviors_keep_the_order_of_their_announcement(reader):
    plain = plain_messages()
    names = [f"B{i}?team=0" for i in (3, 1, 2)]
    output = plain.UnityOutputProto()
    for name in names:
        output.rl_initialization_output.brain_parameters.append(
            plain.BrainParametersProto(brain_name=name)
        )
        output.rl_output.agentInfos[name].value.append(plain.AgentInfoProto(id=1))
    decoder = ExchangeDecoder(Dialect(), reader)
    assert (
        list(
            decoder.decode(
                MESSAGES.UnityOutputProto.FromString(output.SerializeToString())
            )
        )
        == names
    )
    assert list(decoder.behaviors) == names


@pytest.mark.parametrize(
    ("brain", "expected"),
    [
        ({"action_spec": {"num_continuous_actions": 2}}, ActionSpec(2, ())),
        (
            {
                "action_spec": {
                    "num_continuous_actions": 2,
                    "num_discrete_actions": 1,
                    "discrete_branch_sizes": [3],
                }
            },
            ActionSpec(2, (3,)),
        ),
        (
            {
                "vector_action_size_deprecated": [2],
                "vector_action_space_type_deprecated": 1,
            },
            ActionSpec(2, ()),
        ),
        ({"vector_action_size_deprecated": [3, 4]}, ActionSpec(0, (3, 4))),
        ({}, ActionSpec(0, ())),
    ],
)
def test_the_action_spec_comes_from_the_new_field_or_the_deprecated_ones(
    brain, expected
):
    assert action_spec(MESSAGES.BrainParametersProto(**brain)) == expected


def test_images_of_old_packages_are_known_to_be_hwc(reader):
    image = floats(*range(24), shape=[2, 4, 3])
    for package, axis in (("2.3.0-exp.3", 2), ("3.0.0-exp.1", 0)):
        decoder, output = plain_message(
            {"observations": [image]},
            dialect=Dialect(package_version=package),
            reader=reader,
        )
        decoder.decode(output)
        properties = (
            decoder.behaviors["A?team=0"].observation_specs[0].dimension_property
        )
        assert [p == 1 for p in properties].index(True) == axis


GOOD = {"id": 3, "observations": [floats(1, 2)]}
BAD = {
    "id: expected 0 or more": {"id": -3, "observations": [floats(1, 2)]},
    "group_id: expected 0 or more": {"group_id": -1, "observations": [floats(1, 2)]},
    "observations: expected 1, got 0": {"id": 9},
    "observations: more than the 1": {"id": 9, "observations": [floats(1, 2)] * 2},
    r"shape: expected \(2,\)": {"id": 9, "observations": [floats(1, 2, 3)]},
    "data: expected one packed list of 2 floats": {
        "id": 9,
        "observations": [floats(1, 2, 3, shape=[2])],
    },
    "neither float_data nor compressed_data": {
        "id": 9,
        "observations": [plain_messages().ObservationProto(shape=[2])],
    },
    "compression_type": {"id": 9, "observations": [floats(1, 2, compression_type=1)]},
    "two decision entries share the id 3": GOOD,
    "action_mask: expected 0 values": {
        "id": 9,
        "observations": [floats(1, 2)],
        "action_mask": [True] * 3,
    },
}


@pytest.mark.parametrize("problem", BAD)
def test_a_bad_agent_raises_an_error_that_names_the_field(problem, reader):
    decoder, output = plain_message(GOOD, BAD[problem], reader=reader)
    with pytest.raises(MalformedMessageError, match=problem):
        decoder.decode(output)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_names_behavior_agent_and_exchange(value, reader):
    for agent, what in (
        (
            {"id": 7, "observations": [floats(0, value)]},
            r"agent 7 sent .* observation 0 .* at exchange 1",
        ),
        (
            {"id": 7, "reward": value, "observations": [floats(0, 0)]},
            r"value\[1\].reward",
        ),
        (
            {"id": 7, "group_reward": value, "observations": [floats(0, 0)]},
            r"value\[1\].group_reward",
        ),
    ):
        decoder, output = plain_message(GOOD, agent, reader=reader)
        with pytest.raises(NonFiniteError, match=what):
            decoder.decode(output)


@pytest.mark.parametrize(
    ("brain", "field"),
    [
        ({"num_continuous_actions": -1}, "num_continuous_actions: expected 0 to"),
        (
            {"num_continuous_actions": 2**31 - 1},
            "num_continuous_actions: expected 0 to",
        ),
        (
            {"num_discrete_actions": 2, "discrete_branch_sizes": [3]},
            "num_discrete_actions: 2 stated",
        ),
        (
            {"num_discrete_actions": 1, "discrete_branch_sizes": [-3]},
            "discrete_branch_sizes",
        ),
        (
            {"num_discrete_actions": 1, "discrete_branch_sizes": [2**31 - 1]},
            "discrete_branch_sizes",
        ),
    ],
)
def test_bad_action_sizes_are_refused(brain, field, reader):
    decoder, output = plain_message(GOOD, brain=brain, reader=reader)
    with pytest.raises(MalformedMessageError, match=field):
        decoder.decode(output)


@pytest.mark.parametrize(
    ("observation", "field"),
    [
        (floats(1, shape=[-1]), "shape"),
        (floats(1, shape=[0]), "shape"),
        (floats(1, shape=[1] * 9), "shape"),
        (floats(1, shape=[2**31 - 1] * 8), "shape.*at most"),
        (floats(1, shape=[2**26]), "float_data.data"),
        (floats(1, dimension_properties=[1, 1]), "dimension_properties"),
        (floats(1, dimension_properties=[8]), "dimension_properties"),
        (floats(1, observation_type=5), "observation_type"),
    ],
)
def test_an_impossible_sensor_is_refused(observation, field, reader):
    decoder, output = plain_message({"observations": [observation]}, reader=reader)
    with pytest.raises(UnityObservationException, match=field):
        decoder.decode(output)


def test_agents_of_an_unannounced_behavior_are_refused(reader):
    decoder, output = plain_message(GOOD, reader=reader)
    output.rl_output.agentInfos["Ghost"] = output.rl_output.agentInfos["A?team=0"]
    with pytest.raises(
        MalformedMessageError, match=r"'Ghost'.*unknown behavior; announced so far: A"
    ):
        decoder.decode(output)


def test_a_behavior_that_changes_its_actions_is_refused(reader):
    decoder, output = plain_message(GOOD, reader=reader)
    decoder.decode(output)
    _, other = plain_message(GOOD, brain={"num_continuous_actions": 2}, reader=reader)
    with pytest.raises(MalformedMessageError, match=r"announced with .* before"):
        decoder.decode(other)


def test_huge_claims_cost_no_memory(reader):
    """Very many agents with one id, masks of 2^20 choices, a shape of 2^62 floats: refused within
    some hundred bytes for each agent that is really there.
    """
    plain = plain_messages()
    # Python objects take longer to trace than compiled code, so protobuf's reader gets fewer.
    count = 10**6 if reader is ScannedAgents else 10**5
    agents = (
        plain.ListAgentInfoProto(value=[plain.AgentInfoProto()]).SerializeToString()
        * count
    )
    decoder, many = plain_message({}, reader=reader)
    many.rl_output.agentInfos["A?team=0"] = agents
    two_thousand = [{"id": i} for i in range(2000)]
    brain = {"num_discrete_actions": 1, "discrete_branch_sizes": [2**20]}
    masks = plain_message(*two_thousand, brain=brain, reader=reader)
    shape = plain_message(
        {"observations": [floats(1, shape=[2**31 - 1] * 3)]}, reader=reader
    )
    tracemalloc.start()
    for hostile, message in ((decoder, many), masks, shape):
        with pytest.raises(MalformedMessageError):
            hostile.decode(message)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (350 if reader is ScannedAgents else 100) * 2**20, peak


def test_an_image_of_a_sensor_without_3_axes_is_refused_without_reading_past_its_end(
    reader,
):
    """A sensor of 2^24 floats whose agent sends four bytes that claim to be a picture."""
    size = 2**24
    image = plain_messages().ObservationProto(shape=[size], compression_type=1)
    image.compressed_data = b"\0\0\0\0"
    decoder, output = plain_message({"observations": [image]}, reader=reader)
    with pytest.raises(
        UnityObservationException, match="an image needs a shape of 3 axes"
    ):
        decoder.decode(output)


def mutated(rng, data):
    data = bytearray(data)
    for _ in range(rng.integers(1, 6)):
        at = int(rng.integers(len(data)))
        kind = rng.integers(5)
        if kind == 0:
            data[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            data[at] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF]))
        elif kind == 2:
            del data[at : at + int(rng.integers(1, 9))]
        elif kind == 3:
            data[at:at] = rng.bytes(int(rng.integers(1, 9)))
        else:
            data[at:] = data[int(rng.integers(len(data))) :]
        if not data:
            break
    return bytes(data)


def swallow(decoder, data):
    """Decode bytes of any kind; only our own errors may come out."""
    try:
        decoder.decode(parse_message(data).unity_output)
    except TouchlineError as error:
        assert str(error)  # noqa: PT017


def hostile_run(shared, count):
    """Mutated messages, each with the message that a decoder decodes before it, or None."""
    rng = np.random.default_rng(11)
    sessions = []
    for path in sorted((shared / "wire-recordings").glob("*.wire.gz")):
        requests = [data for kind, data in read_frames(path) if kind == REQUEST]
        sessions.append([r for r in requests[2:-1] if len(r) < 60_000])
    for _ in range(count):
        session = sessions[rng.integers(len(sessions))]
        before = session[0] if rng.random() < 0.5 else None
        number = rng.integers(len(session)) if rng.random() < 0.3 else 0
        yield before, mutated(rng, session[number])


def decoder_after(before, reader):
    decoder = ExchangeDecoder(Dialect(package_version="3.0.0"), reader)
    if before is not None:
        swallow(decoder, before)
    return decoder


def test_mutated_messages_end_in_our_errors_only(shared, reader):
    for before, data in hostile_run(shared, 1500):
        swallow(decoder_after(before, reader), data)


@pytest.mark.slow
def test_a_hundred_thousand_mutated_messages_neither_crash_nor_hang_nor_leak(
    shared, reader
):
    import os

    import psutil

    process = psutil.Process(os.getpid())
    slowest, start = 0.0, None
    for number, (before, data) in enumerate(hostile_run(shared, 100_000)):
        decoder = decoder_after(before, reader)
        started = time.thread_time()
        swallow(decoder, data)
        slowest = max(slowest, time.thread_time() - started)
        if number == 5000:
            start = process.memory_info().rss
    grown = process.memory_info().rss - start
    print(f"slowest {1000 * slowest:.1f} ms, memory grew by {grown / 2**20:.1f} MiB")
    assert slowest < 0.1
    assert grown < 50 * 2**20


def test_what_both_readers_accept_of_a_mutated_message_they_read_alike(shared):
    accepted = 0
    for before, data in hostile_run(shared, 3000):
        decoders = [decoder_after(before, reader) for reader in READERS.values()]
        try:
            one, other = (
                decoder.decode(parse_message(data).unity_output) for decoder in decoders
            )
        except TouchlineError:
            continue  # one may be stricter: see `parsed_agents`
        assert_same_exchanges(one, other)
        accepted += 1
    assert accepted > 100


@given(data=st.binary(max_size=200))
@settings(max_examples=100)
def test_any_bytes_are_an_error_or_a_message(data, reader):
    swallow(ExchangeDecoder(Dialect(), reader), data)


@pytest.mark.slow  # compiles twice
def test_the_decoder_is_compiled_once_on_a_machine_and_says_so_in_one_line(tmp_path):
    source = Path(touchline.__file__).parent
    copied = tmp_path / "another_environment" / "touchline"
    shutil.copytree(source, copied)

    def said_by(package):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from touchline.protocol.decoding import *; warm_up()",
            ],
            env=os.environ
            | {"PYTHONPATH": str(package.parent), "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stderr

    line = f"about {decoding.COMPILE_S} s, once\n"
    first = said_by(source)
    assert (
        first
        == f"compiling the decoder of the player's messages for this machine, {line}"
    )
    assert said_by(source) == said_by(copied) == ""


def test_without_numba_protobufs_runtime_decodes(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    for name in ("touchline.protocol.scan", "touchline.physics.kernels"):
        monkeypatch.delitem(sys.modules, name)
    assert decoding.fastest_reader.__wrapped__() is ParsedAgents
