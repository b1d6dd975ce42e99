"""The server's end of one gRPC connection, without a socket.

Bytes in, calls out; replies in, bytes out. A player makes one unary call at a time and each waits
for its reply, so the thread that waits for the player can serve it alone. A general gRPC server
hands every call from thread to thread instead, which costs more than all of our decoding, and it
does not report when the other side hangs up between calls. What is left of HTTP/2 for this one use:
frames, flow control, pings.

The rules are the table `ACTIONS`: kind of frame x state of its stream -> what to do. What arrives
is bounded: until `trust`, a caller may send short messages only; afterwards one long one at a time.

Source: RFC 9113 (HTTP/2) and "gRPC over HTTP2" in the gRPC repository. Header fields:
`grpc_headers`. Why neither grpcio nor h2: docs/decisions/own-grpc-server.md.
"""

import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from touchline.protocol.grpc_headers import (
    COMPRESSION_ERROR,
    INTERNAL,
    OK,
    PROTOCOL_ERROR,
    RESOURCE_EXHAUSTED,
    RESPONSE,
    UNIMPLEMENTED,
    BrokenBlockError,
    RequestReader,
    refusal,
    trailers,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What every HTTP/2 client sends first (RFC 9113, section 3.4)."""

# Types of frames (RFC 9113, section 6).
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE = range(6)
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(6, 10)
# Flags; which of two meanings 0x1 has depends on the type of the frame.
ACK = END_STREAM = 0x1
END_HEADERS, PADDED, WITH_PRIORITY = 0x4, 0x8, 0x20
# Settings, and the limits of their values (RFC 9113, section 6.5.2).
ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 2, 3, 4, 5
MAX_HEADER_LIST_SIZE = 6
DEFAULT_WINDOW = 65_535
LARGEST_WINDOW = 2**31 - 1
SMALLEST_MAX_FRAME = 16_384
LARGEST_FRAME = 2**24 - 1
# Error codes (RFC 9113, section 7), besides those that header fields can cause.
NO_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR = 0, 3, 5, 6
REFUSED_STREAM, ENHANCE_YOUR_CALM = 7, 11

_FRAME_HEAD = struct.Struct(">HBBBI")
"""The length (two upper bytes, lower byte), kind, flags, and the stream below a reserved bit."""
FRAME_HEAD_BYTES = _FRAME_HEAD.size
_MESSAGE_HEAD = struct.Struct(">BI")
"""gRPC's head of a message: whether it is compressed, and its length."""
MESSAGE_HEAD_BYTES = _MESSAGE_HEAD.size
# Sections 6.3, 6.4, 6.7 and 6.9: any other length is an error of its own kind.
LENGTHS: Mapping[int, int] = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
"""Kinds of frames that have a fixed length."""

# What an unknown caller may hold. A player's first message is about a hundred bytes.
FIRST_MESSAGE_BYTES = 16_384
MAX_STREAMS = 8
"""Open calls on one connection; a player has one, and programs that share its connection few."""
LONGEST_BLOCK = 16_384
"""Header fields as they are sent, in one HEADERS frame and those that continue it."""


class Place(enum.IntEnum):
    """Where a frame belongs: to the connection, or to a stream in one of four states.

    RFC 9113, section 5.1, as a server sees it.
    """

    CONNECTION = 0
    IDLE = 1
    """No call has begun on this stream."""
    OPEN = 2
    """The request is arriving."""
    ANSWERING = 3
    """The request is complete; its reply is due or on its way."""
    CLOSED = 4


# Python 3.11 finds a member of an enum in its class slowly, and each frame asks for one.
_CONNECTION, _IDLE, _OPEN, _ANSWERING, _CLOSED = Place

BROKEN, IGNORED = "_broken", "_ignored"
ACTIONS: Mapping[int, tuple[str, str, str, str, str]] = {
    # frame        connection        idle          open              answering         closed
    DATA:          (BROKEN,          BROKEN,       "_data",          "_surplus",       "_late"),
    HEADERS:       (BROKEN,          "_headers",   "_headers",       BROKEN,           BROKEN),
    PRIORITY:      (BROKEN,          IGNORED,      IGNORED,          IGNORED,          IGNORED),
    RST_STREAM:    (BROKEN,          BROKEN,       "_cancel",        "_cancel",        IGNORED),
    SETTINGS:      ("_settings",     BROKEN,       BROKEN,           BROKEN,           BROKEN),
    PUSH_PROMISE:  (BROKEN,          BROKEN,       BROKEN,           BROKEN,           BROKEN),
    PING:          ("_ping",         BROKEN,       BROKEN,           BROKEN,           BROKEN),
    GOAWAY:        (IGNORED,         BROKEN,       BROKEN,           BROKEN,           BROKEN),
    WINDOW_UPDATE: ("_total_window", BROKEN,       "_stream_window", "_stream_window", IGNORED),
    CONTINUATION:  (BROKEN,          "_continued", "_continued",     BROKEN,           BROKEN),
}  # fmt: skip
"""Kind of frame -> the method that handles it, by the `Place` it belongs to. Unknown kinds are
ignored, as section 4.1 demands."""


_OK_TRAILERS = trailers(OK)


@dataclass(frozen=True)
class Call:
    """A request that waits for its reply."""

    stream: int
    message: bytes


@dataclass(frozen=True)
class TooLarge:
    """A request that announced more bytes than allowed; it has been refused."""

    size: int


@dataclass(frozen=True)
class Cancelled:
    """The caller no longer waits for the reply to this stream."""

    stream: int


@dataclass(frozen=True)
class Refused:
    """A request that has been answered with an error."""

    reason: str
    calls_method: bool
    """Whether it was a call of the one method, so that its caller may be a player."""


@dataclass(frozen=True)
class Broken:
    """The caller broke HTTP/2. After `outgoing`, close the connection."""

    reason: str


Event = Call | TooLarge | Cancelled | Refused | Broken


class _BrokenError(Exception):
    """The connection cannot continue: a GOAWAY with this code and reason ends it."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class _Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    body: memoryview
    """View of what arrived; what is kept of it must be copied."""


_NOTHING = memoryview(b"")


@dataclass(slots=True)
class _Stream:
    window: int
    """How many more bytes of the reply the caller takes."""
    credit: int
    """How many more bytes of the request the caller may send."""
    place: Place = _OPEN
    received: bytearray = field(default_factory=bytearray)
    """What has come of the request, unless one frame holds it whole."""
    size: int = -1
    """Bytes of the request with its head; -1 until its head has come."""
    waiting: memoryview = _NOTHING
    """The part of the reply that could not be sent yet."""


@dataclass(slots=True)
class _Block:
    """Header fields whose frames are still arriving."""

    stream: int
    flags: int
    data: bytes


class GrpcConnection:
    """`receive` bytes for events, `reply` to a call; after either, send what `outgoing` returns.

    `path` names the one method, as in "/package.Service/Method".
    """

    def __init__(self, path: str) -> None:
        self._requests = RequestReader(path)
        self._max_message_bytes = FIRST_MESSAGE_BYTES
        self._buffer = bytearray()
        self._awaits_preface = self._awaits_settings = True
        self._is_broken = False
        self._streams: dict[int, _Stream] = {}
        self._last_stream = 0
        self._block: _Block | None = None
        # What the caller takes.
        self._send_window = self._initial_window = DEFAULT_WINDOW
        self._max_frame = SMALLEST_MAX_FRAME
        # What we take.
        self._credit = self._largest_credit = self._initial_credit = DEFAULT_WINDOW
        self._longest_frame = SMALLEST_MAX_FRAME
        limits = {
            MAX_CONCURRENT_STREAMS: MAX_STREAMS,
            MAX_HEADER_LIST_SIZE: LONGEST_BLOCK,
        }
        self._out: list[bytes | memoryview] = [_settings_frame(limits)]
        # The methods themselves, because each exchange looks up several.
        self._actions = {
            kind: [getattr(self, name) for name in names]
            for kind, names in ACTIONS.items()
        }

    def trust(self, max_message_bytes: int) -> None:
        """Let the caller send messages of this length, as fast as it likes."""
        self._max_message_bytes = max_message_bytes
        self._longest_frame = LARGEST_FRAME
        limits = {INITIAL_WINDOW_SIZE: LARGEST_WINDOW, MAX_FRAME_SIZE: LARGEST_FRAME}
        self._out.append(_settings_frame(limits))
        for stream in self._streams.values():
            # The setting also moves the windows of streams that are open (section 6.9.2).
            stream.credit += LARGEST_WINDOW - self._initial_credit
        # No setting moves the connection's own window: `outgoing` raises it by a WINDOW_UPDATE.
        self._initial_credit = self._largest_credit = LARGEST_WINDOW

    def outgoing(self) -> bytes:
        """What must be sent now; empty afterwards."""
        # Rarely, because each update interrupts the caller.
        missing = self._largest_credit - self._credit
        if missing > self._largest_credit // 4 and not self._is_broken:
            self._out.append(_frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", missing)))
            self._credit = self._largest_credit
        if not self._out:
            return b""
        data, self._out = b"".join(self._out), []
        return data

    def receive(self, data: bytes | memoryview) -> list[Event]:
        """Take in what arrived, in pieces of any size. The last event may be a `Broken`."""
        events: list[Event] = []
        if self._is_broken:
            return events
        # Usually nothing was left over, and what arrived is whole: then it is not copied here.
        buffer = self._buffer
        is_continued = bool(buffer)
        if is_continued:
            buffer += data
        try:
            with memoryview(buffer if is_continued else data) as arrived:
                end = self._read(arrived, events)
        except _BrokenError as error:
            self._give_up(error)
            events.append(Broken(str(error)))
            return events
        if is_continued:
            del buffer[:end]
        elif end < len(data):
            buffer += data[end:]
        return events

    def reply(self, stream: int, message: bytes) -> None:
        """Answer a call; what the caller's window has no room for follows when it has."""
        call = self._streams.get(stream)
        if call is None:  # cancelled meanwhile
            return
        self._out.append(_frame(HEADERS, END_HEADERS, stream, RESPONSE))
        call.waiting = memoryview(_MESSAGE_HEAD.pack(0, len(message)) + message)
        self._send_waiting(stream, call)

    # Frames.

    def _read(self, arrived: memoryview, events: list[Event]) -> int:
        """Handle all whole frames; returns the number of bytes that are done with."""
        at, total = 0, len(arrived)
        if self._awaits_preface:
            at = self._read_preface(arrived)
            if at == 0:
                return 0
        while total - at >= FRAME_HEAD_BYTES:
            high, low, kind, flags, stream = _FRAME_HEAD.unpack_from(arrived, at)
            length = high << 8 | low
            if length > self._longest_frame:
                raise _BrokenError(FRAME_SIZE_ERROR, f"a frame of {length} bytes")
            start = at + FRAME_HEAD_BYTES
            end = start + length
            if total < end:
                break
            # The bit above the stream's number is reserved and must be ignored (section 4.1).
            frame = _Frame(kind, flags, stream & LARGEST_WINDOW, arrived[start:end])
            event = self._handle(frame)
            if event is not None:
                events.append(event)
            at = end
        return at

    def _read_preface(self, arrived: memoryview) -> int:
        """The length of the preface, or 0 if not all of it has come."""
        start = bytes(arrived[: len(PREFACE)])
        if not PREFACE.startswith(start):
            raise _BrokenError(
                PROTOCOL_ERROR,
                "a program connected that does not speak gRPC; is the port used by another?",
            )
        self._awaits_preface = len(start) < len(PREFACE)
        return 0 if self._awaits_preface else len(PREFACE)

    def _handle(self, frame: _Frame) -> Event | None:
        kind, length = frame.kind, len(frame.body)
        # A client's preface ends with a SETTINGS frame, which may be empty (section 3.4).
        if self._awaits_settings:
            if kind != SETTINGS or frame.flags & ACK:
                raise _BrokenError(PROTOCOL_ERROR, "no SETTINGS after the preface")
            self._awaits_settings = False
        if LENGTHS.get(kind, length) != length:
            raise _BrokenError(
                FRAME_SIZE_ERROR, f"a frame of kind {kind} with {length} bytes"
            )
        # No other frame may come within a block of header fields, not even of another stream
        # (section 6.10): the table that compresses them is one for the whole connection.
        block = self._block
        if block is None:
            if kind == CONTINUATION:
                self._broken(frame)
        elif kind != CONTINUATION or frame.stream != block.stream:
            raise _BrokenError(PROTOCOL_ERROR, "a frame amid header fields")
        actions = self._actions.get(kind)
        return actions[self._place_of(frame.stream)](frame) if actions else None

    def _place_of(self, stream: int) -> Place:
        if stream == 0:
            return _CONNECTION
        known = self._streams.get(stream)
        if known is not None:
            return known.place
        is_even = stream % 2 == 0  # those are ours to open, and we open none
        return _IDLE if is_even or stream > self._last_stream else _CLOSED

    def _broken(self, frame: _Frame) -> NoReturn:
        place = self._place_of(frame.stream)
        # "HEADERS on a stream that is closed" has a code of its own (section 5.1).
        is_late = place in (Place.ANSWERING, Place.CLOSED)
        code = STREAM_CLOSED if is_late and frame.kind == HEADERS else PROTOCOL_ERROR
        where = f"stream {frame.stream} ({place.name.lower()})"
        raise _BrokenError(code, f"a frame of kind {frame.kind} on {where}")

    def _ignored(self, frame: _Frame) -> None:
        """Priorities, farewells, and what crossed with the end of a stream."""

    def _give_up(self, error: _BrokenError) -> None:
        """Send the reason and forget everything else that waits."""
        body = struct.pack(">II", self._last_stream, error.code)
        body += str(error).encode()
        self._out.append(_frame(GOAWAY, 0, 0, body))
        self._is_broken = True
        self._streams.clear()
        self._buffer = bytearray()  # the old one is still viewed by the frame at fault

    # Requests.

    def _headers(self, frame: _Frame) -> Event | None:
        # Streams that a client opens have odd numbers (section 5.1.1).
        if frame.stream % 2 == 0:
            raise _BrokenError(PROTOCOL_ERROR, f"a call on even stream {frame.stream}")
        body = _without_padding(frame)
        if frame.flags & WITH_PRIORITY:
            if len(body) < LENGTHS[PRIORITY]:
                raise _BrokenError(FRAME_SIZE_ERROR, "HEADERS without their priority")
            body = body[LENGTHS[PRIORITY] :]
        return self._block_grew(_Block(frame.stream, frame.flags, b""), frame, body)

    def _continued(self, frame: _Frame) -> Event | None:
        assert self._block is not None
        return self._block_grew(self._block, frame, frame.body)

    def _block_grew(
        self, block: _Block, frame: _Frame, more: memoryview
    ) -> Event | None:
        """`more` is the part of the block that came with `frame`."""
        is_whole = frame.flags & END_HEADERS
        block.data += more
        # An empty piece costs as much as a full one, so it counts, too.
        if len(block.data) > LONGEST_BLOCK or not (more or is_whole):
            raise _BrokenError(ENHANCE_YOUR_CALM, "header fields without an end")
        if not is_whole:
            self._block = block
            return None
        self._block = None
        try:
            return self._block_received(block)
        except BrokenBlockError as error:
            raise _BrokenError(COMPRESSION_ERROR, str(error)) from error

    def _block_received(self, block: _Block) -> Event | None:
        number, is_last = block.stream, bool(block.flags & END_STREAM)
        stream = self._streams.get(number)
        if stream is not None:
            # Trailers, which must end the request (section 8.1). gRPC's clients send none.
            self._requests.skip(block.data)
            if not is_last:
                reason = "a malformed request: header fields twice"
                return self._reset(number, PROTOCOL_ERROR, reason)
            return self._request_ended(number, stream, stream.received)
        # Before any refusal: a refused call has used its number up, too (section 5.1.1).
        self._last_stream = number
        # The code says that nothing was done, so that the call may be repeated (section 8.7).
        if len(self._streams) >= MAX_STREAMS:
            self._requests.skip(block.data)
            return self._reset(number, REFUSED_STREAM, "too many calls at a time")
        found = self._requests.request(block.data)
        stream = _Stream(self._initial_window, self._initial_credit)
        # Also a call that is refused below, because refusing takes its stream out again.
        self._streams[number] = stream
        if found is not None and found.block:
            stream.place = _ANSWERING if is_last else _OPEN
            return self._refuse(number, found.block, found.reason, calls_method=False)
        if found is not None:
            return self._reset(number, PROTOCOL_ERROR, found.reason, calls_method=False)
        return self._request_ended(number, stream, _NOTHING) if is_last else None

    def _data(self, frame: _Frame) -> Event | None:
        number, stream = frame.stream, self._streams[frame.stream]
        self._take_credit(frame)
        # Padding counts, too (section 6.9.1), so it is taken off only below.
        stream.credit -= len(frame.body)
        if stream.credit < 0:
            reason = f"more bytes than the window of stream {number} allows"
            return self._reset(number, FLOW_CONTROL_ERROR, reason)
        is_last = frame.flags & END_STREAM
        received: bytearray | memoryview = _without_padding(frame)
        # Usually this is the whole message, which is then copied only once, for the event.
        if stream.received or not is_last:
            stream.received += received
            received = stream.received
        if stream.size < 0 and len(received) >= MESSAGE_HEAD_BYTES:
            refused = self._head_received(number, stream, received)
            if refused is not None:
                return refused
        if len(received) > max(stream.size, MESSAGE_HEAD_BYTES):
            text = "one call with more than one message"
            return self._refuse(number, refusal(UNIMPLEMENTED, text), text)
        return self._request_ended(number, stream, received) if is_last else None

    def _head_received(
        self, number: int, stream: _Stream, received: bytearray | memoryview
    ) -> Event | None:
        is_compressed, size = _MESSAGE_HEAD.unpack_from(received)
        if is_compressed:
            text = "a compressed message; ML-Agents' players compress none"
            return self._refuse(number, refusal(INTERNAL, text), text)
        most = self._max_message_bytes
        if size > most:
            text = f"a message of {size} bytes came, at most {most} are accepted"
            self._refuse(number, refusal(RESOURCE_EXHAUSTED, text), text)
            return TooLarge(size)
        # Together, too, so that one connection holds no more than one long message.
        receiving = [s for s in self._streams.values() if s.received]
        others = sum(max(0, other.size) for other in receiving)
        stream.size = MESSAGE_HEAD_BYTES + size
        if others + stream.size > most + MAX_STREAMS * MESSAGE_HEAD_BYTES:
            text = "another long message is arriving on this connection"
            return self._refuse(number, refusal(RESOURCE_EXHAUSTED, text), text)
        return None

    def _request_ended(
        self, number: int, stream: _Stream, received: bytearray | memoryview
    ) -> Event:
        stream.place = _ANSWERING
        if not received:
            text = "a call without a message"
            return self._refuse(number, refusal(UNIMPLEMENTED, text), text)
        if len(received) != stream.size:
            text = "a call that ends amid its message"
            return self._refuse(number, refusal(INTERNAL, text), text)
        message = bytes(memoryview(received)[MESSAGE_HEAD_BYTES:])
        # The stream stays until its reply is sent, which may be seconds; the bytes need not.
        stream.received = bytearray()
        return Call(number, message)

    def _surplus(self, frame: _Frame) -> Event | None:
        # The caller has ended this stream, and only it (section 5.1, "half-closed (remote)").
        self._take_credit(frame)
        reason = "DATA after the end of its call"
        return self._reset(frame.stream, STREAM_CLOSED, reason)

    def _late(self, frame: _Frame) -> None:
        # The rest of a call that has been refused. The windows of both ends must still agree, so
        # flow control counts it (section 6.9), and faults of its form remain faults.
        self._take_credit(frame)
        _without_padding(frame)

    def _take_credit(self, frame: _Frame) -> None:
        self._credit -= len(frame.body)
        if self._credit < 0:
            raise _BrokenError(FLOW_CONTROL_ERROR, "more bytes than the window allows")

    def _cancel(self, frame: _Frame) -> Event:
        del self._streams[frame.stream]
        return Cancelled(frame.stream)

    def _reset(
        self, stream: int, code: int, reason: str, *, calls_method: bool = True
    ) -> Event:
        body = struct.pack(">I", code)
        self._out.append(_frame(RST_STREAM, 0, stream, body))
        self._streams.pop(stream, None)
        return Refused(reason, calls_method)

    def _refuse(
        self, stream: int, block: bytes, reason: str, *, calls_method: bool = True
    ) -> Event:
        """Answer a call with an error, perhaps before all of it has come."""
        self._out.append(_frame(HEADERS, END_HEADERS | END_STREAM, stream, block))
        if self._streams.pop(stream).place is _OPEN:
            # The call is answered: the caller need not send the rest (section 8.1).
            no_error = struct.pack(">I", NO_ERROR)
            self._out.append(_frame(RST_STREAM, 0, stream, no_error))
        return Refused(reason, calls_method)

    # Settings, pings and windows.

    def _settings(self, frame: _Frame) -> None:
        # A setting has two bytes of identifier and four of value; an acknowledgment is empty
        # (section 6.5).
        body = frame.body
        if len(body) % 6 or (frame.flags & ACK and body):
            raise _BrokenError(FRAME_SIZE_ERROR, f"SETTINGS of {len(body)} bytes")
        if frame.flags & ACK:
            return
        for key, value in struct.iter_unpack(">HI", body):
            self._set(key, value)
        # "Once all values have been processed", says section 6.5.3.
        self._out.append(_frame(SETTINGS, ACK, 0, b""))
        self._send_all_waiting()

    def _set(self, key: int, value: int) -> None:
        # Unknown settings are ignored, as section 6.5.2 demands.
        if key == INITIAL_WINDOW_SIZE:
            if value > LARGEST_WINDOW:
                raise _BrokenError(FLOW_CONTROL_ERROR, f"an initial window of {value}")
            # It also changes the windows of streams that are open (section 6.9.2).
            for stream in self._streams.values():
                stream.window += value - self._initial_window
                if stream.window > LARGEST_WINDOW:
                    raise _BrokenError(FLOW_CONTROL_ERROR, "a window above 2^31 - 1")
            self._initial_window = value
        elif key == MAX_FRAME_SIZE:
            if not SMALLEST_MAX_FRAME <= value <= LARGEST_FRAME:
                raise _BrokenError(PROTOCOL_ERROR, f"frames of at most {value} bytes")
            self._max_frame = value
        elif key == ENABLE_PUSH and value > 1:
            raise _BrokenError(PROTOCOL_ERROR, f"ENABLE_PUSH is {value}, not 0 or 1")

    def _ping(self, frame: _Frame) -> None:
        # C-core measures the connection with pings, and ends it when none is answered.
        if not frame.flags & ACK:
            self._out.append(_frame(PING, ACK, 0, frame.body))

    # A window that grows by nothing, or beyond 31 bits, is an error of the connection here and of
    # its stream below (sections 6.9 and 6.9.1).

    def _total_window(self, frame: _Frame) -> None:
        self._send_window += int.from_bytes(frame.body, "big") & LARGEST_WINDOW
        if frame.body == bytes(4):
            raise _BrokenError(PROTOCOL_ERROR, "a window that grows by 0")
        if self._send_window > LARGEST_WINDOW:
            raise _BrokenError(FLOW_CONTROL_ERROR, "a window above 2^31 - 1")
        self._send_all_waiting()

    def _stream_window(self, frame: _Frame) -> Event | None:
        number, stream = frame.stream, self._streams[frame.stream]
        more = int.from_bytes(frame.body, "big") & LARGEST_WINDOW
        stream.window += more
        if not more:
            return self._reset(number, PROTOCOL_ERROR, "a window that grows by 0")
        if stream.window > LARGEST_WINDOW:
            return self._reset(number, FLOW_CONTROL_ERROR, "a window above 2^31 - 1")
        self._send_waiting(number, stream)
        return None

    # Replies.

    def _send_all_waiting(self) -> None:
        # A copy, because a reply that becomes complete takes its stream out.
        for number, stream in list(self._streams.items()):
            self._send_waiting(number, stream)

    def _send_waiting(self, number: int, stream: _Stream) -> None:
        """Send as much of a reply as both windows allow; after its last byte, the status."""
        if not stream.waiting:
            return
        while stream.waiting:
            room = min(self._send_window, stream.window, self._max_frame)
            # A lowered setting can make a window negative (section 6.9.2).
            if room <= 0:
                return
            piece = stream.waiting[:room]
            stream.waiting = stream.waiting[room:]
            self._out += _head(DATA, 0, number, len(piece)), piece
            self._send_window -= len(piece)
            stream.window -= len(piece)
        end = _frame(HEADERS, END_HEADERS | END_STREAM, number, _OK_TRAILERS)
        self._out.append(end)
        del self._streams[number]


def _without_padding(frame: _Frame) -> memoryview:
    if not frame.flags & PADDED:
        return frame.body
    # "If the length of the padding is the length of the frame payload or greater, the recipient
    # MUST treat this as a connection error of type PROTOCOL_ERROR."
    if not frame.body or frame.body[0] >= len(frame.body):
        raise _BrokenError(PROTOCOL_ERROR, "a frame that is shorter than its padding")
    return frame.body[1 : len(frame.body) - frame.body[0]]


def _settings_frame(values: Mapping[int, int]) -> bytes:
    body = b"".join(struct.pack(">HI", *item) for item in values.items())
    return _frame(SETTINGS, 0, 0, body)


def _frame(kind: int, flags: int, stream: int, body: bytes | memoryview) -> bytes:
    return _head(kind, flags, stream, len(body)) + body


def _head(kind: int, flags: int, stream: int, length: int) -> bytes:
    return _FRAME_HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream)
