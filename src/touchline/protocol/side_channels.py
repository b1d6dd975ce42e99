"""Side channels: messages of other kinds than observations and actions, each with its identifier.

The channels here are ML-Agents' own; make another by deriving from `SideChannel`. Names and methods
are those of `mlagents_envs.side_channel`. Each also works in a player, where it receives what
Python sends.

On the wire: the identifier as 16 bytes (little-endian UUID), the payload's length as int32, the
payload; messages follow each other. Inside a payload: bool 1 byte, int32, float32, a list of floats
after its int32 count, a string after its int32 length in bytes; all little-endian.
(docs/protocol.md, "Side channels")
"""

from __future__ import annotations

import enum
import logging
import struct
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

from touchline.errors import UsageError, shortened
from touchline.parameters import (
    Gaussian,
    MultiRangeUniform,
    ParameterValue,
    Sampler,
    Uniform,
)
from touchline.protocol.errors import (
    CutOffSideChannelError,
    PlayerUsageError,
    SideChannelUsageError,
    UnitySideChannelException,
)
from touchline.protocol.schema import MESSAGES
from touchline.statistics import EnvironmentStats, StatsAggregationMethod

logger = logging.getLogger(__name__)


HEAD_BYTES = 20
"""Bytes of a message's head: the identifier and the payload's length."""


class OutgoingMessage:
    """A payload under construction. The arguments have ML-Agents' names."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def write_bool(self, b: bool) -> None:
        self.buffer += struct.pack("<?", b)

    def write_int32(self, i: int) -> None:
        self._write("i", i)

    def write_float32(self, f: float) -> None:
        self._write("f", f)

    def write_float32_list(self, float_list: Iterable[float]) -> None:
        # The count comes first, and a generator has no length.
        listed = list(float_list)
        self._write(f"i{len(listed)}f", len(listed), *listed)

    def write_string(self, s: str) -> None:
        """Write a string; players read ASCII only."""
        if not s.isascii():
            raise SideChannelUsageError(
                f"side channels carry ASCII strings only, got {s!r}"
            )
        self.buffer += struct.pack("<i", len(s)) + s.encode("ascii")

    def set_raw_bytes(self, buffer: bytes) -> None:
        """Make `buffer` the whole payload."""
        if self.buffer:
            raise SideChannelUsageError(
                "set_raw_bytes sets the whole payload; this one already has content"
            )
        self.buffer = bytearray(buffer)

    def _write(self, layout: str, *values: float) -> None:
        try:
            self.buffer += struct.pack(f"<{layout}", *values)
        except (struct.error, OverflowError) as error:
            listed = shortened(", ".join(map(str, values)))
            raise SideChannelUsageError(
                f"side channels carry integers and floats of 32 bits, got {listed}"
            ) from error


class IncomingMessage:
    """A payload, read from the front. Reading past its end gives the default."""

    def __init__(self, buffer: bytes, offset: int = 0) -> None:
        self.buffer = buffer
        self.offset = offset

    def read_bool(self, default_value: bool = False) -> bool:
        return bool(self._read("?", default_value))

    def read_int32(self, default_value: int = 0) -> int:
        return int(self._read("i", default_value))

    def read_float32(self, default_value: float = 0.0) -> float:
        return float(self._read("f", default_value))

    def read_float32_list(
        self, default_value: list[float] | None = None
    ) -> list[float]:
        if self._finished():
            return default_value or []
        count = self._length("a list of floats", 4)
        values = list(struct.unpack_from(f"<{count}f", self.buffer, self.offset))
        self.offset += 4 * count
        return values

    def read_string(self, default_value: str = "") -> str:
        if self._finished():
            return default_value
        length = self._length("a string", 1)
        start = self.offset
        self.offset += length
        return self.buffer[start : self.offset].decode("ascii", "replace")

    def get_raw_bytes(self) -> bytes:
        """The whole payload, however much of it has been read."""
        return self.buffer

    def _finished(self) -> bool:
        return self.offset >= len(self.buffer)

    def _read(self, kind: str, default: Any) -> Any:
        if self._finished():
            return default
        layout = struct.Struct("<" + kind)
        start = self.offset
        if start + layout.size > len(self.buffer):
            raise UnitySideChannelException(
                f"a payload of {len(self.buffer)} bytes is cut off at byte {start}"
            )
        self.offset += layout.size
        (value,) = layout.unpack_from(self.buffer, start)
        return value

    def _length(self, what: str, width: int) -> int:
        """The length of a list of items of `width` bytes; raises if the payload is shorter."""
        length = self.read_int32()
        left = len(self.buffer) - self.offset
        if length < 0 or length * width > left:
            raise UnitySideChannelException(
                f"{what} of length {length}, but only {left} bytes of the payload are left"
            )
        return length


class SideChannel(ABC):
    """One kind of message: send with `queue_message_to_send`, override `on_message_received`."""

    def __init__(self, channel_id: uuid.UUID) -> None:
        self.channel_id = channel_id
        self.message_queue: list[bytes] = []

    def queue_message_to_send(self, msg: OutgoingMessage) -> None:
        """Send `msg` with the next reset or step."""
        self.message_queue.append(bytes(msg.buffer))

    def player_restarted(self) -> None:  # noqa: B027 - most have nothing to send again
        """Another process took the player's place: queue again what it has to know."""

    @abstractmethod
    def on_message_received(self, msg: IncomingMessage) -> None:
        """Handle one payload from the other end."""
        logger.warning(
            "side channel %s: a message came, but %s does not handle any",
            self.channel_id,
            type(self).__name__,
        )


Channel = TypeVar("Channel", bound=SideChannel)


class SideChannels:
    """All channels of one connection: `gather` the queued messages, `deliver` received ones."""

    def __init__(self, channels: Iterable[SideChannel] = ()) -> None:
        self._channels: dict[uuid.UUID, SideChannel] = {}
        for channel in channels:
            self.add(channel)

    def __iter__(self) -> Iterator[SideChannel]:
        return iter(self._channels.values())

    def add(self, channel: SideChannel) -> None:
        if channel.channel_id in self._channels:
            raise PlayerUsageError(
                f"two side channels share the identifier {channel.channel_id}"
            )
        self._channels[channel.channel_id] = channel

    def find(self, kind: type[Channel]) -> Channel | None:
        for channel in self._channels.values():
            if isinstance(channel, kind):
                return channel
        return None

    def player_restarted(self) -> None:
        """Tell every channel."""
        for channel in self._channels.values():
            channel.player_restarted()

    @property
    def have_queued(self) -> bool:
        """Whether anything is queued."""
        return any(channel.message_queue for channel in self)

    def gather(self) -> bytes:
        """Everything queued, as one run of bytes; the queues are empty afterwards."""
        parts: list[bytes] = []
        for channel in self._channels.values():
            for payload in channel.message_queue:
                length = struct.pack("<i", len(payload))
                # .NET's `Guid.ToByteArray` writes the first three parts of an identifier backward.
                parts += [channel.channel_id.bytes_le, length, payload]
            channel.message_queue.clear()
        return b"".join(parts)

    def deliver(self, data: bytes) -> None:
        """Pass every message in `data` to its channel.

        Messages for unknown channels are logged and dropped.
        """
        for channel_id, payload in split(data):
            if channel_id in self._channels:
                self._channels[channel_id].on_message_received(IncomingMessage(payload))
            else:
                logger.info(
                    "side channel %s: no such channel here, %d bytes dropped",
                    channel_id,
                    len(payload),
                )


def split(data: bytes) -> list[tuple[uuid.UUID, bytes]]:
    """The messages in a run of side-channel bytes."""
    # All of it before any is delivered: of a broken run of bytes no channel gets a part.
    messages = []
    at = 0
    while at < len(data):
        if at + HEAD_BYTES > len(data):
            raise CutOffSideChannelError(
                f"side_channel: {len(data) - at} bytes at the end are no message"
            )
        channel_id = uuid.UUID(bytes_le=data[at : at + 16])
        (length,) = struct.unpack_from("<i", data, at + 16)
        at += HEAD_BYTES
        left = len(data) - at
        if length < 0 or length > left:
            raise CutOffSideChannelError(
                f"side_channel: channel {channel_id} announces {length} bytes, {left} are left"
            )
        messages.append((channel_id, data[at : at + length]))
        at += length
    return messages


class EngineConfig(NamedTuple):
    """The settings of `EngineConfigurationChannel.set_configuration_parameters`."""

    width: int | None
    height: int | None
    quality_level: int | None
    time_scale: float | None
    target_frame_rate: int | None
    capture_frame_rate: int | None

    @staticmethod
    def default_config() -> EngineConfig:
        """Source: ML-Agents 1.1.0, `engine_configuration_channel.py`."""
        return EngineConfig(80, 80, 1, 20.0, -1, 60)


class EngineConfigurationChannel(SideChannel):
    """How the engine runs: window size, quality, time scale, frame rates.

    Built-in scenes have no engine and ignore it.
    """

    IDENTIFIER: ClassVar = uuid.UUID("e951342c-4f7e-11ea-b238-784f4387d1f7")

    class ConfigurationType(enum.IntEnum):
        """Kinds of messages, as in EngineConfigurationChannel.cs (com.unity.ml-agents 1.0 to
        3.0).
        """

        SCREEN_RESOLUTION = 0
        QUALITY_LEVEL = 1
        TIME_SCALE = 2
        TARGET_FRAME_RATE = 3
        CAPTURE_FRAME_RATE = 4

    def __init__(self) -> None:
        super().__init__(self.IDENTIFIER)
        self._latest: dict[int, bytes] = {}
        """The last message of each kind."""

    def set_configuration_parameters(
        self,
        width: int | None = None,
        height: int | None = None,
        quality_level: int | None = None,
        time_scale: float | None = None,
        target_frame_rate: int | None = None,
        capture_frame_rate: int | None = None,
    ) -> None:
        """Change the given ones; None leaves a setting as it is.

        `width` and `height` are in pixels, frame rates in frames per second (-1: no limit).
        `time_scale` is simulated time over real time; players raise numbers below 1 to 1.
        """
        if (width is None) != (height is None):
            raise SideChannelUsageError(
                "width and height must be given together, got only one of them"
            )
        kinds = self.ConfigurationType
        if width is not None and height is not None:
            self._send(kinds.SCREEN_RESOLUTION, "<iii", width, height)
        settings = (
            (kinds.QUALITY_LEVEL, "<ii", quality_level),
            (kinds.TIME_SCALE, "<if", time_scale),
            (kinds.TARGET_FRAME_RATE, "<ii", target_frame_rate),
            (kinds.CAPTURE_FRAME_RATE, "<ii", capture_frame_rate),
        )
        for kind, layout, value in settings:
            if value is not None:
                self._send(kind, layout, value)

    def set_configuration(self, config: EngineConfig) -> None:
        """Change all that are not None."""
        self.set_configuration_parameters(**config._asdict())

    def player_restarted(self) -> None:
        # In place of what still waits, which is among the latest.
        self.message_queue = list(self._latest.values())

    def on_message_received(self, msg: IncomingMessage) -> None:
        """Ignore it: a scene has no engine to configure."""

    def _send(self, kind: int, layout: str, *values: float) -> None:
        message = OutgoingMessage()
        message.set_raw_bytes(struct.pack(layout, kind, *values))
        self._latest[kind] = bytes(message.buffer)
        self.queue_message_to_send(message)


class EnvironmentParametersChannel(SideChannel):
    """Numbers that a game reads by name.

    Each is fixed, or drawn at every read from a sampler (since package 1.2). In a player,
    `on_parameter(name, value)` is called for each that arrives.
    """

    IDENTIFIER: ClassVar = uuid.UUID("534c891e-810f-11ea-a9d0-822485860400")

    class EnvironmentDataTypes(enum.IntEnum):
        """What a message sets."""

        FLOAT = 0
        SAMPLER = 1

    class SamplerTypes(enum.IntEnum):
        """Kinds of distributions."""

        UNIFORM = 0
        GAUSSIAN = 1
        MULTIRANGEUNIFORM = 2

    def __init__(
        self, on_parameter: Callable[[str, ParameterValue], None] | None = None
    ) -> None:
        super().__init__(self.IDENTIFIER)
        self._on_parameter = on_parameter
        self._latest: dict[str, ParameterValue | OutgoingMessage] = {}
        """What was set last of each; of a sampler that was set alone, its message."""

    @property
    def latest(self) -> Mapping[str, ParameterValue | OutgoingMessage]:
        """What was set last of each, a live view."""
        return MappingProxyType(self._latest)

    def set_parameters(
        self, parameters: Mapping[str, ParameterValue], seed: int = 0
    ) -> None:
        """Set values and samplers.

        A sampler without a seed of its own gets `seed` plus its position in `parameters`.
        """
        for i, (key, value) in enumerate(parameters.items()):
            if not isinstance(value, Sampler):
                self.set_float_parameter(key, float(value))
                continue
            own_seed = seed + i if value.seed is None else value.seed
            match value:
                case Uniform(low, high):
                    self.set_uniform_sampler_parameters(key, low, high, own_seed)
                case Gaussian(mean, std):
                    self.set_gaussian_sampler_parameters(key, mean, std, own_seed)
                case MultiRangeUniform(ranges):
                    self.set_multirangeuniform_sampler_parameters(key, ranges, own_seed)
            self._latest[key] = value

    def send_again(self, seed: int) -> None:
        """Set all of `latest` once more, for a player that has just started."""
        # In place of what still waits, which is among the latest.
        self.message_queue.clear()
        for i, (key, value) in enumerate(list(self._latest.items())):
            if isinstance(value, OutgoingMessage):
                self.queue_message_to_send(value)
            else:
                self.set_parameters({key: value}, seed + i)

    def set_float_parameter(self, key: str, value: float) -> None:
        message = self._message(key, self.EnvironmentDataTypes.FLOAT)
        message.write_float32(value)
        self._latest[key] = value
        self.queue_message_to_send(message)

    def set_uniform_sampler_parameters(
        self, key: str, min_value: float, max_value: float, seed: int
    ) -> None:
        message = self._sampler(key, seed, self.SamplerTypes.UNIFORM)
        message.write_float32(min_value)
        message.write_float32(max_value)
        self._set_sampler(key, message)

    def set_gaussian_sampler_parameters(
        self, key: str, mean: float, st_dev: float, seed: int
    ) -> None:
        message = self._sampler(key, seed, self.SamplerTypes.GAUSSIAN)
        message.write_float32(mean)
        message.write_float32(st_dev)
        self._set_sampler(key, message)

    def set_multirangeuniform_sampler_parameters(
        self, key: str, intervals: Iterable[tuple[float, float]], seed: int
    ) -> None:
        message = self._sampler(key, seed, self.SamplerTypes.MULTIRANGEUNIFORM)
        message.write_float32_list(end for interval in intervals for end in interval)
        self._set_sampler(key, message)

    def on_message_received(self, msg: IncomingMessage) -> None:
        if self._on_parameter is None:
            return super().on_message_received(msg)
        try:
            key, value = read_parameter(msg)
        except UsageError as error:
            # A game ignores what it cannot draw from, too.
            logger.warning("a parameter is ignored: %s", error)
            return None
        return self._on_parameter(key, value)

    def _set_sampler(self, key: str, message: OutgoingMessage) -> None:
        self._latest[key] = message
        self.queue_message_to_send(message)

    def _sampler(self, key: str, seed: int, kind: int) -> OutgoingMessage:
        message = self._message(key, self.EnvironmentDataTypes.SAMPLER)
        message.write_int32(seed)
        message.write_int32(kind)
        return message

    @staticmethod
    def _message(key: str, kind: int) -> OutgoingMessage:
        message = OutgoingMessage()
        message.write_string(key)
        message.write_int32(kind)
        return message


def read_parameter(msg: IncomingMessage) -> tuple[str, ParameterValue]:
    """Name, and value or sampler, in an environment-parameter message."""
    # The sampler's seed is dropped: a scene draws from its own random streams.
    key = msg.read_string()
    kind = msg.read_int32()
    if kind == 0:
        return key, msg.read_float32()
    msg.read_int32()  # seed
    sampler = msg.read_int32()
    if kind != 1 or sampler not in (0, 1, 2):
        raise UnitySideChannelException(
            f"environment parameter {key!r}: unknown kind {kind}, sampler {sampler}"
        )
    if sampler == 2:
        ends = msg.read_float32_list()
        # The list alternates lower and upper ends.
        lower = ends[::2]
        upper = ends[1::2]
        intervals = tuple(zip(lower, upper, strict=False))
        return key, MultiRangeUniform(intervals)
    first = msg.read_float32()
    second = msg.read_float32()
    return key, Uniform(first, second) if sampler == 0 else Gaussian(first, second)


class StatsSideChannel(SideChannel):
    """Named numbers from the game, for the training log.

    All of them are kept until they are taken, or with `most` only the latest ones.
    """

    IDENTIFIER: ClassVar = uuid.UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520")

    def __init__(self, most: int | None = None) -> None:
        super().__init__(self.IDENTIFIER)
        self._arrived: deque[tuple[str, float, StatsAggregationMethod]] = deque(
            maxlen=most
        )
        self._num_dropped = 0

    def on_message_received(self, msg: IncomingMessage) -> None:
        key = msg.read_string()
        value = msg.read_float32()
        method = msg.read_int32()
        if method not in StatsAggregationMethod.__members__.values():
            raise UnitySideChannelException(
                f"statistic {key!r}: expected an aggregation of 0 to 3, got {method}"
            )
        if len(self._arrived) == self._arrived.maxlen:
            self._num_dropped += 1
        self._arrived.append((key, value, StatsAggregationMethod(method)))

    def get_and_reset_stats(self) -> EnvironmentStats:
        """Everything since the last call: name -> [(value, how to aggregate)]."""
        stats: dict[str, list[tuple[float, StatsAggregationMethod]]] = {}
        for key, value, method in self._arrived:
            stats.setdefault(key, []).append((value, method))
        if self._num_dropped:
            logger.warning(
                "of the game's statistics since they were last taken, only the latest %d were "
                "kept; %d before them are lost: take them more often",
                len(self._arrived),
                self._num_dropped,
            )
        self._arrived.clear()
        self._num_dropped = 0
        return stats

    def add_stat(
        self,
        key: str,
        value: float,
        method: StatsAggregationMethod = StatsAggregationMethod.AVERAGE,
    ) -> None:
        """Send a number from a player."""
        message = OutgoingMessage()
        message.write_string(key)
        message.write_float32(value)
        message.write_int32(int(method))
        self.queue_message_to_send(message)


class FloatPropertiesChannel(SideChannel):
    """Named numbers in both directions, as used before there were environment parameters."""

    IDENTIFIER: ClassVar = uuid.UUID("60ccf7d0-4f7e-11ea-b238-784f4387d1f7")

    def __init__(self, channel_id: uuid.UUID | None = None) -> None:
        super().__init__(channel_id or self.IDENTIFIER)
        self._properties: dict[str, float] = {}
        self._set: dict[str, float] = {}
        """Those that came from this side."""

    def player_restarted(self) -> None:
        self.message_queue.clear()
        for key, value in list(self._set.items()):
            self.set_property(key, value)

    def on_message_received(self, msg: IncomingMessage) -> None:
        key = msg.read_string()
        self._properties[key] = msg.read_float32()

    def set_property(self, key: str, value: float) -> None:
        self._properties[key] = self._set[key] = value
        message = OutgoingMessage()
        message.write_string(key)
        message.write_float32(value)
        self.queue_message_to_send(message)

    def get_property(self, key: str) -> float | None:
        return self._properties.get(key)

    def list_properties(self) -> list[str]:
        return list(self._properties)

    def get_property_dict_copy(self) -> dict[str, float]:
        return dict(self._properties)


class RawBytesChannel(SideChannel):
    """Payloads with your own content, under your own identifier."""

    def __init__(self, channel_id: uuid.UUID) -> None:
        super().__init__(channel_id)
        self._received: list[bytes] = []

    def on_message_received(self, msg: IncomingMessage) -> None:
        self._received.append(msg.get_raw_bytes())

    def get_and_clear_received_messages(self) -> list[bytes]:
        received, self._received = self._received, []
        return received

    def send_raw_data(self, data: bytes) -> None:
        message = OutgoingMessage()
        message.set_raw_bytes(data)
        self.queue_message_to_send(message)


class TrainingAnalyticsChannel(SideChannel):
    """A trainer's description of itself for Unity's statistics.

    Touchline never sends on it by itself.
    """

    IDENTIFIER: ClassVar = uuid.UUID("b664a4a9-d86f-5a5f-95cb-e8353a7e8356")

    def __init__(self) -> None:
        super().__init__(self.IDENTIFIER)

    def environment_initialized(self, **fields: Any) -> None:
        """Send a TrainingEnvironmentInitialized (`messages.proto` lists its fields)."""
        self._send("TrainingEnvironmentInitialized", fields)

    def behavior_initialized(self, **fields: Any) -> None:
        """Send a TrainingBehaviorInitialized (`messages.proto` lists its fields)."""
        self._send("TrainingBehaviorInitialized", fields)

    def on_message_received(self, msg: IncomingMessage) -> None:
        """Ignore it: scenes keep no statistics about trainers."""

    def _send(self, name: str, fields: Mapping[str, Any]) -> None:
        packed = getattr(MESSAGES, name)(**fields).SerializeToString()
        any_message = MESSAGES.Any(
            # Protobuf's own prefix for the types of packed messages.
            type_url=f"type.googleapis.com/communicator_objects.{name}",
            value=packed,
        )
        message = OutgoingMessage()
        message.set_raw_bytes(any_message.SerializeToString())
        self.queue_message_to_send(message)
