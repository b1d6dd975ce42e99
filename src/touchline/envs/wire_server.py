"""The socket: listens on loopback, takes one player's calls and holds each until it is answered.

It has no thread of its own: the player is served while someone waits in `receive`. It binds to
127.0.0.1 and ::1 only, because callers are not authenticated, and to both, because "localhost" may
mean either. No socket ever blocks, and what strangers may hold is bounded, so that neither a flood
nor a caller that stops reading delays the player or a time-out. What the bytes mean:
`protocol.http2` and `protocol.session`.
"""

import contextlib
import logging
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from touchline.errors import UsageError
from touchline.operating_systems import claim_port
from touchline.protocol.errors import (
    MessageTooLargeError,
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityWorkerInUseException,
)
from touchline.protocol.http2 import (
    Broken,
    Call,
    Cancelled,
    Event,
    GrpcConnection,
    Refused,
    TooLarge,
)
from touchline.protocol.session import GOODBYE

SERVICE, METHOD = "communicator_objects.UnityToExternalProto", "Exchange"
PATH = f"/{SERVICE}/{METHOD}"
CHECK_S = 0.25
"""How often a wait checks whether the process still runs; a dead player is reported within a
second."""
LINGER_S = 1.0
"""How long a refused caller may take to read why and to hang up."""
MAX_CALLERS = 16
"""Connections at a time; one more takes the place of the oldest that is not the player's."""
READ_BYTES, STRANGER_READ_BYTES = 1 << 18, 1 << 14
"""How much is read at a time from the player, and from others, whose turns must be short."""
PORT_ATTEMPTS = 20
"""How often to look for a port that is free on both addresses; each attempt rarely fails."""
MAX_WARNINGS = 20
"""Refusals that are logged; a flood must not fill the log."""

logger = logging.getLogger(__name__)


class HungUpError(UnityCommunicatorStoppedException):
    """The player closed the connection without a farewell: it quit, crashed or was killed."""


_NOTHING = memoryview(b"")


@dataclass(eq=False)
class _Caller:
    """One connection, and the stream of the call on it that waits for a reply."""

    socket: socket.socket
    grpc: GrpcConnection = field(default_factory=lambda: GrpcConnection(PATH))
    stream: int | None = None
    unsent: memoryview = _NOTHING
    """What the socket had no room for. Nothing is read from a caller before it has taken this."""
    ends_at: float | None = None
    """When a refused caller is dropped; until then what it sends is read and thrown away, because
    closing a socket with unread bytes would take the refusal back."""

    def has_more(self) -> bool:
        """Take what is to be sent next, after all of `unsent` was; whether there is anything."""
        self.unsent = memoryview(self.grpc.outgoing())
        return bool(self.unsent)


class WireServer:
    """Serves one player: `receive` a message, `reply` to it, and so on.

    Finds a free port if none is given.
    """

    def __init__(self, port: int | None, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self._callers: list[_Caller] = []
        self._player: _Caller | None = None
        """The first to call the one method with a whole message; all others are refused."""
        self._arrived: deque[bytes] = deque()
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._num_warnings = 0
        self._listens_again_at: float | None = None
        """While no descriptor is left: when to accept again."""
        self._listeners = _listen(port)
        self.port = int(self._listeners[0].getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._listen_on()

    @property
    def connected(self) -> bool:
        """Whether a player has ever called."""
        return self._player is not None

    def receive(self, timeout_s: float, check: Callable[[], None]) -> bytes | None:
        """The player's next message, or None after `timeout_s`.

        `check` is called every `CHECK_S`, whatever arrives; it raises if no message can come any
        more.
        """
        now = time.monotonic()
        deadline, next_check = now + timeout_s, now + CHECK_S
        while not self._arrived:
            now = self._serve(max(0.0, min(next_check, deadline) - now))
            if self._arrived:
                break
            if now >= min(next_check, deadline):
                check()
                next_check = now + CHECK_S
            if now >= deadline:
                return None
        return self._arrived.popleft()

    def reply(self, data: bytes) -> None:
        """Answer the call that waits. What the player does not read now is sent in `receive`."""
        player = self._player
        if player is None or player.stream is None:
            raise HungUpError("the player hung up before it was answered")
        stream, player.stream = player.stream, None
        player.grpc.reply(stream, data)
        self._send(player)

    def say_goodbye(self, patience_s: float) -> None:
        """Answer the player's pending and further calls with goodbye, until it has closed the
        connection or the time is over.
        """
        deadline = time.monotonic() + patience_s
        # Whatever goes wrong with a player that quits does not matter any more.
        ignored = UnityCommunicationException, UnityCommunicatorStoppedException
        with contextlib.suppress(*ignored):
            if self._player is not None and self._player.stream is not None:
                self.reply(GOODBYE)
        while self._player in self._callers:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return
            with contextlib.suppress(*ignored):
                self._serve(remaining)
                if self._arrived:
                    self._arrived.clear()
                    self.reply(GOODBYE)

    def close(self) -> None:
        """Release the port and all connections. Idempotent.

        Callers that were just refused have up to `LINGER_S` to read why.
        """
        deadline = time.monotonic() + LINGER_S
        while any(caller.ends_at is not None for caller in self._callers):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            with contextlib.suppress(HungUpError):
                self._serve(remaining)
        for caller in list(self._callers):
            self._drop(caller)
        for listener in self._listeners:
            listener.close()
        self._selector.close()

    def _serve(self, timeout_s: float) -> float:
        """Handle what has arrived or arrives within the time: one short turn for each caller.

        Returns the time at the end, of the monotonic clock.
        """
        for key, ready in self._selector.select(timeout_s):
            caller = key.data
            if caller is None:
                self._accept(key.fileobj)  # type: ignore[arg-type]
            elif caller not in self._callers:
                pass  # dropped in this round, for a newer one
            elif ready & selectors.EVENT_WRITE:
                self._send(caller)
            else:
                self._read(caller)
        now = time.monotonic()
        overdue = [c for c in self._callers if c.ends_at and now >= c.ends_at]
        # A list of its own, because dropping a caller changes the other one.
        for caller in overdue:
            self._drop(caller)
        if self._listens_again_at and now >= self._listens_again_at:
            self._listen_on()
        return now

    def _listen_on(self) -> None:
        self._listens_again_at = None
        for listener in self._listeners:
            self._selector.register(listener, selectors.EVENT_READ, None)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # gone again
        except OSError as error:
            # Out of descriptors, say. The callers wait in the kernel's queue; to be woken for them
            # all the time would only burn the processor.
            self._warn(f"no caller can be accepted now: {error.strerror}")
            self._listens_again_at = time.monotonic() + CHECK_S
            for waiting in self._listeners:
                # Both may fail in one round, and the second finds the first one's work done.
                with contextlib.suppress(KeyError):
                    self._selector.unregister(waiting)
            return
        connection.setblocking(False)
        with contextlib.suppress(OSError):  # it may have hung up already
            # Each side waits for the other's message, so Nagle's delay would be paid at every step.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        strangers = [c for c in self._callers if c is not self._player]
        if len(strangers) >= MAX_CALLERS:
            self._warn(f"more than {MAX_CALLERS} callers: the oldest was dropped")
            self._drop(strangers[0])
        caller = _Caller(connection)
        self._callers.append(caller)
        self._selector.register(connection, selectors.EVENT_READ, caller)
        # The server's SETTINGS, the first frame of its side, before any request has come.
        self._send(caller)

    def _read(self, caller: _Caller) -> None:
        is_player = caller is self._player
        try:
            buffer = self._buffer[: None if is_player else STRANGER_READ_BYTES]
            count = caller.socket.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError:
            # A reset connection is over like one that was closed in order.
            count = 0
        if not count:
            self._drop(caller)
            if is_player:
                raise HungUpError("the player closed the connection")
            return
        if caller.ends_at is not None:
            return
        for event in caller.grpc.receive(self._buffer[:count]):
            self._handle(caller, event)
        self._send(caller)

    def _handle(self, caller: _Caller, event: Event) -> None:
        if isinstance(event, Call):
            self._call_received(caller, event)
        elif isinstance(event, Broken):
            self._end(caller)
            self._refused(caller, event.reason)
        elif caller is not self._player:
            if isinstance(event, TooLarge):
                size = f"{event.size} bytes"
                self._refused(
                    caller, f"a first message of {size}, which no player sends"
                )
            elif isinstance(event, Refused):
                self._refused(caller, event.reason)
        elif isinstance(event, Cancelled):
            if event.stream == caller.stream:
                raise HungUpError("the player canceled its call")
        elif isinstance(event, TooLarge):
            self._end(caller)
            self._send(caller)
            raise MessageTooLargeError(
                f"a message of {event.size / 2**20:.1f} MiB came, and at most "
                f"{self._max_message_bytes / 2**20:g} MiB are accepted; raise max_message_mib, or "
                "send fewer agents or images"
            )
        elif event.calls_method:
            self._refused(caller, event.reason)
        else:
            self._warn(event.reason)

    def _call_received(self, caller: _Caller, call: Call) -> None:
        if self._player is None:
            self._player = caller
            caller.grpc.trust(self._max_message_bytes)
        if caller is self._player and caller.stream is None:
            caller.stream = call.stream
            self._arrived.append(call.message)
            return
        self._warn("a second caller was refused; this port serves one player")
        caller.grpc.reply(call.stream, GOODBYE)

    def _refused(self, caller: _Caller, reason: str) -> None:
        """Log why a stranger was refused; the player's own fault ends the session."""
        if caller is not self._player:
            self._warn(f"a caller was refused: {reason}")
            return
        self._send(caller)
        raise UnityCommunicationException(f"the player broke the protocol: {reason}")

    def _warn(self, text: str) -> None:
        self._num_warnings += 1
        if self._num_warnings < MAX_WARNINGS:
            logger.warning("port %d: %s", self.port, text)
        elif self._num_warnings == MAX_WARNINGS:
            logger.warning(
                "port %d: %s; no more such lines will follow", self.port, text
            )

    def _send(self, caller: _Caller) -> None:
        """Send what there is and the socket has room for."""
        was_waiting = bool(caller.unsent)  # then its socket is watched for writing
        try:
            while caller.unsent or caller.has_more():
                count = caller.socket.send(caller.unsent)
                caller.unsent = caller.unsent[count:]
        except BlockingIOError:
            pass
        except OSError as error:
            self._drop(caller)
            if caller is self._player:
                reason = error.strerror or error
                raise HungUpError(f"the player hung up: {reason}") from error
            return
        if bool(caller.unsent) != was_waiting:
            wanted = selectors.EVENT_WRITE if caller.unsent else selectors.EVENT_READ
            self._selector.modify(caller.socket, wanted, caller)
        if not caller.unsent and caller.ends_at is not None:
            with contextlib.suppress(OSError):
                # Half of a close: the caller reads to the end, and what it sends is still taken.
                caller.socket.shutdown(socket.SHUT_WR)

    def _end(self, caller: _Caller) -> None:
        """Let a caller read why it is refused, then drop it."""
        caller.ends_at = time.monotonic() + LINGER_S

    def _drop(self, caller: _Caller) -> None:
        if caller in self._callers:
            self._callers.remove(caller)
            self._selector.unregister(caller.socket)
            caller.socket.close()
        caller.stream = None


def _listen(port: int | None) -> list[socket.socket]:
    """Listening sockets on both loopback addresses, with one port."""
    if port is not None and not 0 <= port <= 65535:
        raise UsageError(f"port {port}: expected a number from 0 to 65535")
    for _ in range(PORT_ATTEMPTS):
        opened: list[socket.socket] = []
        try:
            opened.append(_listener(socket.AF_INET, "127.0.0.1", port or 0))
            if _has_ipv6():
                opened.append(
                    _listener(socket.AF_INET6, "::1", opened[0].getsockname()[1])
                )
        except OSError as error:
            for listener in opened:
                listener.close()
            if port is not None:
                raise UnityWorkerInUseException(
                    f"port {port} is in use by another environment, another Python that waits for "
                    "the Editor, or another program; choose another worker_id or base_port, or "
                    "give none, and a free port is found"
                ) from error
        else:
            return opened
    raise UnityWorkerInUseException(
        "found no port that is free on both 127.0.0.1 and ::1"
    )


def _listener(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    listener = socket.socket(family)
    try:
        claim_port(listener)
        listener.bind((address, port))
        listener.listen()
        # A caller that hangs up between `select` and `accept` would otherwise block the latter.
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _has_ipv6() -> bool:
    try:
        # By trying: socket.has_ipv6 is about Python's build, and containers often lack ::1.
        _listener(socket.AF_INET6, "::1", 0).close()
    except OSError:
        return False
    return True
