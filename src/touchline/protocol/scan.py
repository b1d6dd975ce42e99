"""Agents read in one pass over their bytes, compiled by numba.

A protobuf message is a chain of (tag, content) pairs. `_read_field` reads one pair; the rest of
this file is what the fields mean. The pass notes where each number and each list of floats is and
checks them, before memory for observations is allocated. Nothing compiled here raises: a finding
is a number from `agents`.

Source: protobuf's documentation, "Encoding" (protobuf.dev/programming-guides/encoding); field
numbers as in `messages.proto`.
"""

from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, inlined
from touchline.protocol import agents
from touchline.protocol.agents import Layout, explained
from touchline.protocol.errors import MalformedMessageError
from touchline.protocol.schema import MESSAGES

# Wire types. The group types 3 and 4 do not occur in proto3.
VARINT, FIXED64, LEN, FIXED32 = 0, 1, 2, 5

# Columns of the table of agents [N, columns].
DONE, INTERRUPTED, MASK_START, MASK_STOP = range(4)
AGENT_COLUMNS = 4

# Columns of the table of observations [N, sensors, columns]: what kind of data an observation
# holds, where the data is, and where the whole ObservationProto is.
KIND, DATA_START, DATA_STOP, MESSAGE_START, MESSAGE_STOP = range(5)
OBSERVATION_COLUMNS = 5

# Values of KIND.
MISSING, FLOATS, PNG = range(3)


@inlined
def _read_varint(data: Any, at: int, end: int) -> tuple[Any, int]:
    """The number at `at`, and where the next thing begins (-1: the number is cut off)."""
    if at < end and data[at] < 0x80:  # one byte: nearly all tags, lengths and ids
        return np.int64(data[at]), at + 1
    value = np.int64(0)
    shift = 0
    while at < end and shift < 70:  # protobuf allows ten bytes at most
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return np.int64(0), -1


@inlined
def _read_field(data: Any, at: int, end: int) -> tuple[int, int, int, int, int]:
    """The field at `at`: its number (-1: broken), its wire type, the value if it is a varint, and
    start and stop of its content.
    """
    # The lowest three bits are the wire type, the rest is the field's number.
    tag, start = _read_varint(data, at, end)
    number = tag >> 3
    wire_type = tag & 7
    if start < 0 or number < 1:
        return -1, 0, 0, 0, end
    value = 0
    stop = -1
    if wire_type == VARINT:
        value, stop = _read_varint(data, start, end)
    elif wire_type == LEN:
        length, start = _read_varint(data, start, end)
        if start >= 0 and 0 <= length <= end - start:
            stop = start + length
    elif wire_type == FIXED32:
        stop = start + 4
    elif wire_type == FIXED64:
        stop = start + 8
    if stop < 0 or stop > end:
        return -1, 0, 0, 0, end
    return number, wire_type, value, start, stop


@inlined
def _read_bits(data: Any, at: int) -> Any:
    """Four little-endian bytes as one number."""
    low = data[at] | data[at + 1] << 8
    high = data[at + 2] << 16
    # As int64: shifted by 24 within 32 bits it would reach the sign.
    highest = np.int64(data[at + 3]) << 24
    return low | high | highest


@compiled
def count_records(data: NDArray[np.uint8]) -> int:
    """How many agents a ListAgentInfoProto holds, or -1 when it is broken."""
    count = 0
    at = 0
    end = len(data)
    while at < end:
        number, wire_type, _, _, at = _read_field(data, at, end)
        if number < 0:
            return -1
        # Other fields are skipped, as protobuf skips what a later version has added.
        count += number == 1 and wire_type == LEN
    return count


@compiled
def _scan_floats(data: Any, at: int, end: int) -> tuple[int, int]:
    """Start and stop of the one packed list in a FloatData."""
    # (-1, -1) when it is broken or in pieces: copying pieces together would cost every message.
    first = last = end
    while at < end:
        number, wire_type, _, start, at = _read_field(data, at, end)
        if number < 0:
            return -1, -1
        if number == 1:
            if wire_type != LEN or first != last:
                return -1, -1
            first = start
            last = at
    return first, last


@compiled
def _check_observation(
    row: int,
    sensor: int,
    rank: int,
    compression: int,
    shapes: Any,
    sizes: Any,
    places: Any,
) -> int:
    # A padded axis has size 0, so one left over means that axes are missing.
    if rank < shapes.shape[1] and shapes[sensor, rank] > 0:
        return agents.WRONG_SHAPE  # fewer axes than expected
    kind = places[row, sensor, KIND]
    if kind == MISSING:
        return agents.NO_DATA
    if kind == PNG:
        if compression != agents.PNG_COMPRESSED:
            return agents.WRONG_COMPRESSION
        return agents.FINE if rank == 3 else agents.IMAGE_WITHOUT_3_AXES
    if compression != agents.UNCOMPRESSED:
        return agents.WRONG_COMPRESSION
    num_bytes = places[row, sensor, DATA_STOP] - places[row, sensor, DATA_START]
    return agents.FINE if num_bytes == 4 * sizes[sensor] else agents.WRONG_DATA_SIZE


@compiled
def _scan_observation(
    data: Any,
    at: int,
    end: int,
    row: int,
    sensor: int,
    shapes: Any,
    sizes: Any,
    places: Any,
) -> int:
    """Note where an ObservationProto and its data are; what is wrong with it."""
    places[row, sensor, MESSAGE_START] = at
    places[row, sensor, MESSAGE_STOP] = end
    rank = 0
    compression = 0
    while at < end:
        number, wire_type, value, start, at = _read_field(data, at, end)
        if number < 0:
            return agents.BROKEN_FIELD
        if number == 1:  # shape, packed or one by one
            axis_at = start
            while axis_at < at:
                axis, axis_at = _read_varint(data, axis_at, at)
                if (
                    axis_at < 0
                    or rank >= shapes.shape[1]
                    or axis != shapes[sensor, rank]
                ):
                    return agents.WRONG_SHAPE
                rank += 1
        elif number == 2 and wire_type == VARINT:
            compression = value
        elif number == 3 and wire_type == LEN:
            # Of the two kinds of data the last one counts, as protobuf reads a oneof.
            places[row, sensor, KIND] = PNG
            places[row, sensor, DATA_START] = start
            places[row, sensor, DATA_STOP] = at
        elif number == 4 and wire_type == LEN:
            first, last = _scan_floats(data, start, at)
            places[row, sensor, KIND] = FLOATS
            places[row, sensor, DATA_START] = first
            places[row, sensor, DATA_STOP] = last
    finding: int = _check_observation(
        row, sensor, rank, compression, shapes, sizes, places
    )
    return finding


@compiled
def _scan_agent(  # noqa: C901 - one branch for each field
    data: Any,
    at: int,
    end: int,
    row: int,
    shapes: Any,
    sizes: Any,
    numbers: Any,
    table: Any,
    places: Any,
) -> tuple[int, int]:
    """Note what an AgentInfoProto holds; what is wrong with it, and at which sensor."""
    sensor = 0
    while at < end:
        number, wire_type, value, start, at = _read_field(data, at, end)
        if number < 0:
            return agents.BROKEN_FIELD, sensor
        if number == 13 and wire_type == LEN:
            if sensor >= len(sizes):
                return agents.TOO_MANY_OBSERVATIONS, sensor
            finding = _scan_observation(
                data, start, at, row, sensor, shapes, sizes, places
            )
            if finding:
                return finding, sensor
            sensor += 1
        elif number == 7 and wire_type == FIXED32:
            numbers[agents.REWARD, row] = _read_bits(data, start)
        elif number == 15 and wire_type == FIXED32:
            numbers[agents.GROUP_REWARD, row] = _read_bits(data, start)
        elif number == 8 and wire_type == VARINT:
            table[row, DONE] = value != 0
        elif number == 9 and wire_type == VARINT:
            table[row, INTERRUPTED] = value != 0
        elif number == 10 and wire_type == VARINT:
            # A negative int32 is a varint of ten bytes; cut to 32 bits it is negative again.
            numbers[agents.ID, row] = value
        elif number == 14 and wire_type == VARINT:
            numbers[agents.GROUP, row] = value
        elif number == 11:
            # Content is never at byte 0, where the first tag is, so 0 means that no mask has come.
            if wire_type != LEN or table[row, MASK_STOP] > 0:
                return agents.SPLIT_MASK, sensor
            # Packed booleans are one byte each, so the mask stays where it is until it is
            # needed.
            table[row, MASK_START] = start
            table[row, MASK_STOP] = at
    return (agents.TOO_FEW_OBSERVATIONS if sensor < len(sizes) else agents.FINE), sensor


@compiled
def _check_agent(data: Any, row: int, choices: int, numbers: Any, table: Any) -> int:
    if numbers[agents.ID, row] < 0:
        return agents.NEGATIVE_ID
    if numbers[agents.GROUP, row] < 0:
        return agents.NEGATIVE_GROUP
    if numbers[agents.REWARD, row] & agents.EXPONENT_BITS == agents.EXPONENT_BITS:
        return agents.REWARD_NOT_FINITE
    if numbers[agents.GROUP_REWARD, row] & agents.EXPONENT_BITS == agents.EXPONENT_BITS:
        return agents.GROUP_REWARD_NOT_FINITE
    start = table[row, MASK_START]
    stop = table[row, MASK_STOP]
    # An agent that has ended may still show the mask of its last decision.
    if stop > start and not table[row, DONE]:
        if stop - start != choices:
            return agents.WRONG_MASK_LENGTH
        for i in range(start, stop):
            if data[i] > 1:
                return agents.WRONG_MASK_VALUE
    return agents.FINE


@compiled
def scan_agents(
    data: NDArray[np.uint8],
    shapes: NDArray[np.int64],
    sizes: NDArray[np.int64],
    choices: int,
    numbers: NDArray[np.int32],
    table: NDArray[np.int64],
    places: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Fill the three tables, all zero before: what was found wrong, and at which agent and sensor.

    `shapes` and `sizes` are those of an `agents.Layout`; `choices` is the length of a mask.
    """
    row = 0
    at = 0
    end = len(data)
    while at < end:
        number, wire_type, _, start, at = _read_field(data, at, end)
        if number < 0:
            return agents.BROKEN_FIELD, row, 0
        if number == 1 and wire_type == LEN:
            finding, sensor = _scan_agent(
                data, start, at, row, shapes, sizes, numbers, table, places
            )
            if not finding:
                finding = _check_agent(data, row, choices, numbers, table)
            if finding:
                return finding, row, sensor
            row += 1
    return agents.FINE, row, 0


@compiled
def gather_masks(
    data: NDArray[np.uint8], table: NDArray[np.int64], out: NDArray[np.uint8]
) -> None:
    """The masks of K agents, rows of their table; `out` [K, choices], zero before."""
    for row in range(len(table)):
        start = table[row, MASK_START]
        for i in range(table[row, MASK_STOP] - start):
            out[row, i] = data[start + i]


@compiled
def gather_floats(
    data: NDArray[np.uint8], starts: NDArray[np.int64], out: NDArray[np.uint32]
) -> int:
    """Copy the floats (as bits) that begin at each of K starts into the K rows of `out`.

    Returns the first row with a NaN or an infinity, or -1.
    """
    width = out.shape[1]
    first = -1
    for row in range(len(starts)):
        # Little-endian on the wire as in memory of every machine that numba supports.
        source = data[starts[row] : starts[row] + 4 * width].view(np.uint32)
        target = out[row]
        wrong = 0
        # Copied and checked in one loop without a branch, which the compiler turns into vectors.
        for i in range(width):
            target[i] = source[i]
            wrong |= (source[i] & agents.EXPONENT_BITS) == agents.EXPONENT_BITS
        if wrong and first < 0:
            first = row
    return first


class ScannedAgents:
    """What `ParsedAgents` is, with everything read in one pass over the bytes."""

    def __init__(self, behavior: str, message: bytes) -> None:
        self._data = np.frombuffer(message, np.uint8)
        self._count: int = count_records(self._data)
        if self._count < 0:
            raise MalformedMessageError(f"agentInfos[{behavior!r}]: broken or cut off")

    def __len__(self) -> int:
        return self._count

    def check(self, layout: Layout) -> None:
        self._choices = layout.choices
        self.numbers = np.zeros((agents.NUMBER_ROWS, self._count), np.int32)
        self._agents = np.zeros((self._count, AGENT_COLUMNS), np.int64)
        sensors = len(layout.sizes)
        self._places = np.zeros((self._count, sensors, OBSERVATION_COLUMNS), np.int64)
        finding, row, sensor = scan_agents(
            self._data,
            layout.shapes,
            layout.sizes,
            layout.choices,
            self.numbers,
            self._agents,
            self._places,
        )
        if finding:
            raise explained(finding, layout, row, sensor)

    def ended_rows(self) -> NDArray[np.intp]:
        return self._agents[:, DONE].nonzero()[0]

    def interrupted(self) -> NDArray[np.bool_]:
        return np.asarray(self._agents[:, INTERRUPTED] != 0)

    def select(self, rows: NDArray[np.intp]) -> Self:
        chosen = copy(self)
        chosen._count = len(rows)
        chosen.numbers = self.numbers[:, rows]
        chosen._agents = self._agents[rows]
        chosen._places = self._places[rows]
        return chosen

    def masks(self) -> NDArray[np.bool_]:
        # Zeros allow everything, which is what an agent without a mask means.
        masks = np.zeros((self._count, self._choices), np.bool_)
        gather_masks(self._data, self._agents, masks.view(np.uint8))
        return masks

    def image_rows(self, sensor: int) -> NDArray[np.intp]:
        return np.flatnonzero(self._places[:, sensor, KIND] == PNG)

    def image(self, row: int, sensor: int) -> Any:
        start, stop = self._places[row, sensor, MESSAGE_START : MESSAGE_STOP + 1]
        return MESSAGES.ObservationProto.FromString(self._data[start:stop].tobytes())

    def copy_floats(
        self, sensor: int, rows: NDArray[np.intp] | None, out: NDArray[np.float32]
    ) -> int:
        starts = self._places[:, sensor, DATA_START]
        if rows is not None:
            starts = starts[rows]
        return int(gather_floats(self._data, starts, out.view(np.uint32)))
