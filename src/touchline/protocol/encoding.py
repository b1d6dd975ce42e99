"""Actions and exchanges to bytes, and actions back.

All agents of a behavior are laid out as one byte matrix, a row for each agent. That is legal
because protobuf lets a reader meet fields at their default value, and varints longer than they
need be. Official ML-Agents reads both (tests/interop).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.protocol.dialect import Dialect
from touchline.protocol.schema import MESSAGES
from touchline.specs import ActionSpec, ActionTuple, BehaviorSpec, ObservationSpec
from touchline.steps import DecisionSteps, Exchange, TerminalSteps

VARINT, LEN, FIXED32 = 0, 2, 5
"""Wire types."""
INT32_BYTES = 5
"""The most bytes that the varint of a non-negative int32 takes."""

Rows = NDArray[np.uint8]
"""[N, bytes]: one row of bytes for each agent."""


def encode_brain(name: str, spec: ActionSpec, *, is_training: bool) -> Any:
    """The BrainParametersProto that announces a behavior."""
    return MESSAGES.BrainParametersProto(
        brain_name=name,
        is_training=is_training,
        action_spec=MESSAGES.ActionSpecProto(
            num_continuous_actions=spec.continuous_size,
            num_discrete_actions=spec.discrete_size,
            discrete_branch_sizes=spec.discrete_branches,
        ),
    )


def encode_sensor(sensor: ObservationSpec) -> Any:
    """The ObservationProto of a sensor, without an observation."""
    return MESSAGES.ObservationProto(
        shape=sensor.shape,
        dimension_properties=[int(p) for p in sensor.dimension_property],
        observation_type=int(sensor.observation_type),
        name=sensor.name,
    )


def encode_actions(actions: ActionTuple, dialect: Dialect) -> bytes:
    """A ListAgentActionProto: one entry per agent, in the order of its decisions."""
    if not len(actions):
        return b""
    continuous, discrete = actions.continuous, actions.discrete
    # Fields of AgentActionProto. One without content would be a field too many.
    fields = []
    if dialect.reads_deprecated_actions:
        # The one old field carries either kind of action, as floats.
        values = continuous if continuous.shape[1] else discrete.astype(np.float32)
        if values.shape[1]:
            fields.append(_len_field(1, _float_bytes(values)))
    else:
        if continuous.shape[1]:
            fields.append(_len_field(6, _float_bytes(continuous)))
        if discrete.shape[1]:
            fields.append(_len_field(7, _varint_rows(discrete)))
    return _len_field(1, _joined(len(actions), fields)).tobytes()


def decode_actions(
    data: bytes, spec: ActionSpec, count: int, dialect: Dialect
) -> ActionTuple:
    """The actions for `count` agents in a ListAgentActionProto.

    Entries that are missing or short are zeros.
    """
    # A client may send more entries than there are agents.
    values = MESSAGES.ListAgentActionProto.FromString(data).value[:count]
    actions = spec.empty_action(count)
    if dialect.reads_deprecated_actions:
        rows = [
            np.array(value.vector_actions_deprecated, np.float32) for value in values
        ]
        _fill(actions.continuous if spec.continuous_size else actions.discrete, rows)
        return actions
    if spec.continuous_size:
        rows = [np.frombuffer(value.continuous_actions, "<f4") for value in values]
        _fill(actions.continuous, rows)
    if spec.discrete_size:
        _fill(
            actions.discrete,
            [np.array(value.discrete_actions, np.int32) for value in values],
        )
    return actions


def _fill(out: NDArray[Any], rows: list[NDArray[Any]]) -> None:
    for i, row in enumerate(rows):
        out[i, : len(row)] = row[: out.shape[1]]


def encode_agents(steps: DecisionSteps | TerminalSteps, spec: BehaviorSpec) -> bytes:
    """The entries of a ListAgentInfoProto for agents that decide or have ended."""
    count = len(steps)
    if not count:
        return b""
    # The numbers are those of the fields in AgentInfoProto (`messages.proto`).
    fields = [
        _plain_field(7, FIXED32, _float_bytes(steps.reward[:, None])),
        _plain_field(10, VARINT, _varint_rows(steps.agent_id[:, None], INT32_BYTES)),
        _plain_field(14, VARINT, _varint_rows(steps.group_id[:, None], INT32_BYTES)),
        _plain_field(15, FIXED32, _float_bytes(steps.group_reward[:, None])),
    ]
    if isinstance(steps, TerminalSteps):
        interrupted = steps.interrupted.astype(np.uint8)
        fields.append(_plain_field(8, VARINT, np.ones((count, 1), np.uint8)))
        fields.append(_plain_field(9, VARINT, interrupted[:, None]))
    elif steps.action_mask:
        mask = np.concatenate(steps.action_mask, axis=1)
        fields.append(_len_field(11, mask.astype(np.uint8)))
    for sensor, values in zip(spec.observation_specs, steps.obs, strict=True):
        float_data = _len_field(1, _float_bytes(values.reshape(count, -1)))
        head = encode_sensor(sensor).SerializeToString()
        fields.append(_len_field(13, _behind(head, _len_field(4, float_data))))
    return _len_field(1, _joined(count, fields)).tobytes()


def encode_output(
    exchange: Exchange,
    specs: Mapping[str, BehaviorSpec],
    announced: set[str],
    side_channel: bytes,
) -> Any:
    """The UnityOutputProto of an exchange: terminals before decisions.

    A behavior is announced once, with its first agents; its name is then added to `announced`.
    """
    output = MESSAGES.UnityOutputProto()
    output.rl_output.side_channel = side_channel
    for name, (decisions, terminals) in exchange.items():
        spec = specs[name]
        # Concatenated messages are one message with both lists, by protobuf's rules.
        data = encode_agents(terminals, spec) + encode_agents(decisions, spec)
        if data and name not in announced:
            announced.add(name)
            brain = encode_brain(name, spec.action_spec, is_training=True)
            output.rl_initialization_output.brain_parameters.append(brain)
        # An announced behavior is sent even if it is empty: Unity does so, and clients expect
        # its key.
        if name in announced:
            output.rl_output.agentInfos[name] = data
    return output


def _joined(count: int, fields: list[Rows]) -> Rows:
    # There may be no fields, and `np.concatenate` refuses an empty list.
    nothing = np.zeros((count, 0), np.uint8)
    return np.concatenate([nothing, *fields], axis=1)


def _behind(head: bytes, rows: Rows) -> Rows:
    """Each row behind the same bytes."""
    out = np.empty((len(rows), len(head) + rows.shape[1]), np.uint8)
    out[:, : len(head)] = np.frombuffer(head, np.uint8)
    out[:, len(head) :] = rows
    return out


def _len_field(number: int, rows: Rows) -> Rows:
    """Rows of bytes as a length-delimited field."""
    return _behind(varint(number << 3 | LEN) + varint(rows.shape[1]), rows)


def _plain_field(number: int, wire_type: int, rows: Rows) -> Rows:
    """Rows of bytes as a field without a length."""
    return _behind(varint(number << 3 | wire_type), rows)


def varint(value: int) -> bytes:
    """A number as protobuf writes it: seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint_rows(values: NDArray[np.int32], width: int | None = None) -> Rows:
    """Non-negative numbers [N, K] as varints of `width` bytes: [N, K * width].

    The default is the shortest width that holds all of them.
    """
    wide = values.astype(np.uint32)
    if width is None:
        width = len(varint(int(wide.max(initial=0))))
    shifts = np.arange(0, 7 * width, 7, dtype=np.uint32)
    digits = wide[..., None] >> shifts & 0x7F  # [N, K, width], least significant first
    digits[..., :-1] |= 0x80  # more bytes follow
    return digits.astype(np.uint8).reshape(len(values), -1)


def _float_bytes(values: NDArray[Any]) -> Rows:
    # Little-endian also where the machine is not.
    return np.ascontiguousarray(values, "<f4").view(np.uint8)
