"""Side channels: every built-in one, from the end that sends to the end that reads, and hostile
payloads.
"""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.plain_messages import plain_messages

from touchline.errors import UsageError
from touchline.parameters import Gaussian, MultiRangeUniform, Uniform
from touchline.protocol.errors import UnitySideChannelException
from touchline.protocol.side_channels import (
    EngineConfigurationChannel,
    EnvironmentParametersChannel,
    FloatPropertiesChannel,
    IncomingMessage,
    OutgoingMessage,
    RawBytesChannel,
    SideChannels,
    StatsAggregationMethod,
    StatsSideChannel,
    TrainingAnalyticsChannel,
    split,
)

RAW = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def sent_by(channel):
    return SideChannels([channel]).gather()


@given(
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.lists(st.floats(width=32)),
    st.text(st.characters(max_codepoint=127)),
)
def test_what_is_written_is_read_in_order(flag, number, listed, text):
    out = OutgoingMessage()
    out.write_bool(flag)
    out.write_int32(number)
    out.write_float32_list(listed)
    out.write_string(text)
    back = IncomingMessage(bytes(out.buffer))
    assert (back.read_bool(), back.read_int32()) == (flag, number)
    assert str(back.read_float32_list()) == str(listed)  # a NaN equals itself as text
    assert back.read_string() == text
    assert (back.read_float32(7.0), back.read_string("gone"), back.read_bool(True)) == (
        7.0,
        "gone",
        True,
    )


def test_a_number_of_more_than_32_bits_is_refused():
    out = OutgoingMessage()
    expected = r"integers and floats of 32 bits, got .*[13]"
    for write, value in (
        (out.write_int32, 2**31),
        (out.write_float32, 1e39),
        (out.write_float32_list, [0.0, 1e39]),
    ):
        with pytest.raises(UsageError, match=expected):
            write(value)
    assert not out.buffer


def test_the_frame_is_a_little_endian_identifier_a_length_and_the_payload():
    channel = RawBytesChannel(RAW)
    channel.send_raw_data(b"xyz")
    assert (
        sent_by(channel)
        == bytes.fromhex("33221100554477668899aabbccddeeff" + "03000000") + b"xyz"
    )


def test_raw_bytes_and_users_own_channels_receive_what_was_sent():
    here, there = RawBytesChannel(RAW), RawBytesChannel(RAW)
    here.send_raw_data(b"one")
    here.send_raw_data(b"")
    SideChannels([there]).deliver(sent_by(here))
    assert there.get_and_clear_received_messages() == [b"one", b""]
    assert there.get_and_clear_received_messages() == []


def test_statistics_arrive_with_their_aggregation():
    game, python = StatsSideChannel(), StatsSideChannel()
    game.add_stat("Goals", 2.0, StatsAggregationMethod.SUM)
    game.add_stat("Goals", 1.0)
    SideChannels([python]).deliver(sent_by(game))
    stats = python.get_and_reset_stats()
    assert stats == {
        "Goals": [
            (2.0, StatsAggregationMethod.SUM),
            (1.0, StatsAggregationMethod.AVERAGE),
        ]
    }
    assert python.get_and_reset_stats() == {}


def test_environment_parameters_arrive_as_values_and_samplers():
    given_ = {
        "gravity": 9.5,
        "mass": Uniform(0.5, 2.0),
        "wind": Gaussian(0.0, 1.5),
        "size": MultiRangeUniform(((0.0, 1.0), (2.0, 3.0))),
    }
    python, received = EnvironmentParametersChannel(), {}
    python.set_parameters(given_)
    game = EnvironmentParametersChannel(received.__setitem__)
    SideChannels([game]).deliver(sent_by(python))
    assert received == given_


def test_engine_settings_are_one_message_each_as_recorded(shared):
    """`mlagents_envs` 1.1.0 set time scale 20 in the recordings: kind 2, float32."""
    channel = EngineConfigurationChannel()
    channel.set_configuration_parameters(time_scale=20.0)
    assert channel.message_queue == [bytes.fromhex("02000000" + "0000a041")]
    channel.set_configuration_parameters(
        width=80, height=60, quality_level=1, target_frame_rate=-1
    )
    assert [m[0] for m in channel.message_queue] == [2, 0, 1, 3]


@pytest.mark.parametrize("wrong", [{"width": 80}, {"height": 80}])
def test_impossible_engine_settings_are_refused(wrong):
    with pytest.raises(UsageError):
        EngineConfigurationChannel().set_configuration_parameters(**wrong)


def test_float_properties_travel_both_ways():
    here, there = FloatPropertiesChannel(), FloatPropertiesChannel()
    here.set_property("speed", 2.5)
    SideChannels([there]).deliver(sent_by(here))
    assert (there.get_property("speed"), there.get_property("none")) == (2.5, None)
    assert (there.list_properties(), there.get_property_dict_copy()) == (
        ["speed"],
        {"speed": 2.5},
    )


def test_training_analytics_are_wrapped_in_an_any():
    from google.protobuf.any_pb2 import Any

    channel = TrainingAnalyticsChannel()
    channel.environment_initialized(mlagents_version="Custom", num_envs=2)
    wrapped = Any.FromString(channel.message_queue[0])
    assert (
        wrapped.type_url
        == "type.googleapis.com/communicator_objects.TrainingEnvironmentInitialized"
    )
    assert (
        plain_messages()
        .TrainingEnvironmentInitialized.FromString(wrapped.value)
        .num_envs
        == 2
    )


def test_a_message_for_an_unknown_channel_is_dropped(caplog):
    channel = RawBytesChannel(RAW)
    channel.send_raw_data(b"x")
    with caplog.at_level("INFO", logger="touchline.protocol.side_channels"):
        SideChannels().deliver(sent_by(channel))
    assert "no such channel here" in caplog.text


def test_two_channels_cannot_share_an_identifier():
    with pytest.raises(UsageError, match="share the identifier"):
        SideChannels([RawBytesChannel(RAW), RawBytesChannel(RAW)])


@pytest.mark.parametrize("length", [-1, 99, 2**31 - 1])
def test_a_wrong_length_is_refused(length):
    data = RAW.bytes_le + length.to_bytes(4, "little", signed=True) + b"abc"
    with pytest.raises(UnitySideChannelException, match="announces"):
        split(data)


def test_a_wrong_length_inside_a_payload_is_refused():
    for payload in (b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\x02"):
        with pytest.raises(UnitySideChannelException):
            IncomingMessage(payload).read_string()
        with pytest.raises(UnitySideChannelException):
            IncomingMessage(payload).read_float32_list()


def test_side_channel_strings_are_ascii():
    with pytest.raises(UsageError, match="ASCII"):
        OutgoingMessage().write_string("Käse")


@given(st.binary(max_size=120))
def test_any_bytes_are_messages_or_one_error(data):
    channels = SideChannels(
        [
            StatsSideChannel(),
            FloatPropertiesChannel(),
            EnvironmentParametersChannel(lambda *_: None),
        ]
    )
    for channel in (
        StatsSideChannel,
        FloatPropertiesChannel,
        EnvironmentParametersChannel,
    ):
        framed = channel.IDENTIFIER.bytes_le + len(data).to_bytes(4, "little") + data
        try:
            channels.deliver(framed)
        except (UnitySideChannelException, UsageError) as error:
            assert str(error)  # noqa: PT017
