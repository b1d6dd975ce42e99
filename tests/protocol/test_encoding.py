"""Actions to bytes and back, in every dialect."""

import os
import subprocess
import sys

import numpy as np
from tests.protocol.plain_messages import plain_messages

from touchline.protocol.dialect import Dialect
from touchline.protocol.encoding import decode_actions, encode_actions
from touchline.specs import ActionSpec, ActionTuple

OLD = Dialect(communication_version="1.2.0", package_version="1.6.0-preview")


def test_actions_survive_the_wire_in_every_dialect():
    hybrid = ActionTuple(
        np.array([[0.5, -1.0]] * 3, np.float32),
        np.array([[0, 299], [1, 127], [2, 128]], np.int32),
    )
    spec = ActionSpec(2, (3, 300))
    again = decode_actions(encode_actions(hybrid, Dialect()), spec, 3, Dialect())
    np.testing.assert_array_equal(again.continuous, hybrid.continuous)
    np.testing.assert_array_equal(again.discrete, hybrid.discrete)
    for only in (
        ActionTuple(continuous=hybrid.continuous),
        ActionTuple(discrete=hybrid.discrete),
    ):
        kept = ActionSpec(2, ()) if len(only.continuous.T) else ActionSpec(0, (3, 300))
        again = decode_actions(encode_actions(only, OLD), kept, 3, OLD)
        np.testing.assert_array_equal(again.continuous, only.continuous)
        np.testing.assert_array_equal(again.discrete, only.discrete)


def test_no_agents_have_no_actions():
    spec = ActionSpec(2, (3, 300))
    for dialect in (OLD, Dialect()):
        assert encode_actions(spec.empty_action(0), dialect) == b""


def test_each_api_gets_the_action_field_it_reads():
    """API < 1.3 reads `vector_actions` only, later ones never do (com.unity.ml-agents 1.6 and 3.0)."""
    plain = plain_messages().ListAgentActionProto
    actions = ActionTuple(continuous=np.array([[0.5, 0.25]], np.float32))
    old, new = (
        plain.FromString(encode_actions(actions, d)).value[0] for d in (OLD, Dialect())
    )
    assert (list(old.vector_actions_deprecated), list(old.continuous_actions)) == (
        [0.5, 0.25],
        [],
    )
    assert (list(new.vector_actions_deprecated), list(new.continuous_actions)) == (
        [],
        [0.5, 0.25],
    )


def test_too_few_or_too_many_action_entries_are_taken_as_far_as_they_go():
    plain = plain_messages()
    data = plain.ListAgentActionProto(
        value=[
            plain.AgentActionProto(continuous_actions=[1, 2, 3]),
            plain.AgentActionProto(),
        ]
    ).SerializeToString()
    actions = decode_actions(data, ActionSpec(2, (4,)), 3, Dialect())
    assert actions.continuous.tolist() == [[1, 2], [0, 0], [0, 0]]
    assert actions.discrete.tolist() == [[0], [0], [0]]
    assert decode_actions(
        data, ActionSpec(2, ()), 1, Dialect()
    ).continuous.tolist() == [[1, 2]]


def test_it_works_on_protobufs_slow_form_too():
    """Official mlagents-learn on Python 3.11 needs this variable set, and the player that it starts
    inherits it.
    """
    program = """
import numpy as np
from google.protobuf.internal import api_implementation
from touchline.protocol.dialect import Dialect
from touchline.protocol.encoding import decode_actions, encode_actions
from touchline.specs import ActionSpec, ActionTuple
assert api_implementation.Type() == "python"
sent = ActionTuple(np.full((3, 2), 0.5, np.float32), np.array([[1], [0], [2]], np.int32))
came = decode_actions(encode_actions(sent, Dialect()), ActionSpec(2, (3,)), 3, Dialect())
assert (came.continuous == sent.continuous).all() and (came.discrete == sent.discrete).all()
"""
    environment = os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
