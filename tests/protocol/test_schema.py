"""The messages: our text is read as protobuf reads its own language, and both readings agree on the
bytes.
"""

import pytest
from google.protobuf import descriptor_pb2
from tests.protocol.plain_messages import plain_messages

from touchline.protocol.schema import (
    MESSAGES,
    message_classes,
    parse,
    proto_text,
)

FIELD = descriptor_pb2.FieldDescriptorProto


def fields_of(message):
    return {f.name: f for f in message.DESCRIPTOR.fields}


def test_every_message_keeps_its_full_name_on_the_wire():
    assert (
        MESSAGES.UnityMessageProto.DESCRIPTOR.full_name
        == "communicator_objects.UnityMessageProto"
    )


@pytest.mark.parametrize(
    ("message", "numbers"),
    [  # mlagents-envs 1.1.0, descriptors in its wheel
        ("UnityMessageProto", {"header": 1, "unity_output": 2, "unity_input": 3}),
        (
            "UnityRLInitializationInputProto",
            {"seed": 1, "capabilities": 4, "num_areas": 5},
        ),
        (
            "UnityRLInitializationOutputProto",
            {"brain_parameters": 5, "package_version": 7, "capabilities": 8},
        ),
        (
            "AgentInfoProto",
            {
                "reward": 7,
                "id": 10,
                "action_mask": 11,
                "observations": 13,
                "group_reward": 15,
            },
        ),
        (
            "AgentActionProto",
            {
                "vector_actions_deprecated": 1,
                "continuous_actions": 6,
                "discrete_actions": 7,
            },
        ),
        (
            "ObservationProto",
            {
                "shape": 1,
                "compressed_data": 3,
                "float_data": 4,
                "dimension_properties": 6,
                "name": 8,
            },
        ),
    ],
)
def test_fields_have_unitys_numbers(message, numbers):
    fields = fields_of(getattr(plain_messages(), message))
    assert {name: fields[name].number for name in numbers} == numbers


def test_bytes_and_plain_readings_write_the_same_wire():
    plain = plain_messages()
    as_list = plain.ObservationProto(
        shape=[2], float_data=plain.FloatData(data=[1.5, -2.0])
    )
    as_bytes = MESSAGES.ObservationProto.FromString(as_list.SerializeToString())
    assert as_bytes.float_data.data == bytes.fromhex("0000c03f000000c0")
    assert as_bytes.SerializeToString() == as_list.SerializeToString()


def test_the_parser_reads_maps_oneofs_nesting_enums_and_comments():
    text = """
        syntax = "proto3"; package p;  // a comment
        enum Kind { A = 0; B = 3; }
        message Outer {
          message Inner { repeated int32 number = 4; }
          map<string, Inner> by_name = 1;
          oneof choice { bytes raw = 2; Inner inner = 3; }
          Kind kind = 5;
        }
    """
    outer = message_classes(text).Outer
    filled = outer(kind=3, raw=b"x", by_name={"a": outer.Inner(number=[1, 300])})
    again = outer.FromString(filled.SerializeToString())
    assert again == filled
    assert again.WhichOneof("choice") == "raw"
    assert list(again.by_name["a"].number) == [1, 300]


def test_the_error_for_a_text_that_is_no_proto_shows_the_place():
    with pytest.raises(
        AssertionError,
        match=r"expected a declaration in the .proto text, found 'int32 x;",
    ):
        parse('syntax = "proto3"; message M { int32 x; }')
    with pytest.raises(AssertionError, match="in the middle of a declaration"):
        parse("message M { int32 x = 1;")


def test_the_text_names_only_types_it_defines():
    message_classes(proto_text())  # a type that is missing is a TypeError of protobuf
