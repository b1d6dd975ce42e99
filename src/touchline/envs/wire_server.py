"""The socket: a gRPC server on loopback that takes one player's calls and holds each until it is answered.

Raw bytes in and out; what they mean is `protocol`'s business. Bound to 127.0.0.1 and ::1 only, because nobody
asks a caller who it is, and "localhost" may mean either.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc

from touchline.protocol.errors import MessageTooLargeError, UnityCommunicationException, UnityWorkerInUseException
from touchline.protocol.session import GOODBYE

SERVICE, METHOD = "communicator_objects.UnityToExternalProto", "Exchange"
LOOK_AROUND_S = 0.25
"""How often a wait looks whether the other side still lives; small beside the second within which it must tell."""
FLUSH_S = 2.0

logger = logging.getLogger(__name__)


class WireServer:
    """Serves one player: `receive` its message, `reply`, and so on. A free port is found when none is given."""

    def __init__(self, port: int | None, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self._requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._held: Any = None
        """The call that waits for our reply."""
        self._closing = False
        self._arrived = 0
        self._pool = _CountingPool(2, thread_name_prefix="touchline-wire")
        self.port = self._listen(port)
        self.connected = False

    def receive(self, timeout_s: float, look_around: Callable[[], None]) -> bytes | None:
        """The player's next message, or None after `timeout_s`. `look_around` may raise what makes waiting vain."""
        deadline = time.monotonic() + timeout_s
        while True:
            remaining = deadline - time.monotonic()
            try:
                data = self._requests.get(timeout=max(0.0, min(LOOK_AROUND_S, remaining)))
            except queue.Empty:
                if self._pool.finished > self._arrived:
                    raise MessageTooLargeError(
                        f"a message came that is larger than {self._max_message_bytes / 2**20:g} MiB, or broke off "
                        "half way; max_message_mib allows larger ones, fewer agents or images make it smaller"
                    ) from None
                if self._requests.empty():
                    look_around()
                if remaining <= 0 and self._requests.empty():
                    return None
            else:
                self.connected = True
                return data

    def reply(self, data: bytes) -> None:
        """Answer the call that waits."""
        held, self._held = self._held, None
        self._replies.put(data)
        if held is not None and not held.is_active():
            raise UnityCommunicationException("the player hung up before it was answered")

    def close(self) -> None:
        """Answer whatever waits or still comes with goodbye, then let go of port and threads. Twice is fine."""
        self.say_goodbye()
        self._server.stop(FLUSH_S).wait(2 * FLUSH_S)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def say_goodbye(self) -> None:
        """From now on every call, the waiting one included, is answered with goodbye."""
        with self._lock:
            self._closing = True
            if self._held is not None:
                self._held = None
                self._replies.put(GOODBYE)

    def _exchange(self, request: bytes, context: Any) -> bytes:
        with self._lock:
            self._arrived += 1
            if self._closing:
                return GOODBYE
            if self._held is not None:
                logger.warning("port %d: a second caller was sent away; one player has this port", self.port)
                return GOODBYE
            self._held = context
        self._requests.put(request)
        return self._replies.get()

    def _listen(self, port: int | None) -> int:
        addresses = ["127.0.0.1", *(["[::1]"] if _has_ipv6() else [])]
        for _ in range(20):
            chosen = port or _free_port()
            if _is_free(chosen):
                self._server = self._make_server()
                try:
                    for address in addresses:
                        self._server.add_insecure_port(f"{address}:{chosen}")
                    self._server.start()
                except RuntimeError as error:  # somebody was faster
                    logger.debug("port %d: %s", chosen, error)
                    self._server.stop(None)
                else:
                    return chosen
            if port is not None:
                break
        raise UnityWorkerInUseException(
            f"port {port} is in use: by another environment, the Editor's other session, or another program; choose "
            "another worker_id or base_port, or none, and a free port is found"
            if port is not None
            else "found no free port on 127.0.0.1 and ::1"
        )

    def _make_server(self) -> Any:
        handler = grpc.method_handlers_generic_handler(
            SERVICE, {METHOD: grpc.unary_unary_rpc_method_handler(self._exchange)}
        )
        options = [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", self._max_message_bytes),
            ("grpc.max_send_message_length", -1),
        ]
        return grpc.server(self._pool, handlers=(handler,), options=options)


class _CountingPool(ThreadPoolExecutor):
    """Counts calls that are over: one that is over without having arrived was refused by gRPC for its size."""

    finished = 0

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = super().submit(*args, **kwargs)
        future.add_done_callback(self._count)
        return future

    def _count(self, _: Future[Any]) -> None:
        self.finished += 1


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    """Whether nobody listens there. gRPC would say so too, but on standard error."""
    families = [(socket.AF_INET, "127.0.0.1"), *([(socket.AF_INET6, "::1")] if _has_ipv6() else [])]
    for family, address in families:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True
