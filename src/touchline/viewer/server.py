"""A viser server that is safe to leave open: no files, no tunnels, no pages of other sites.

viser is made for notebooks and takes the next free port, prints boxes, uploads files and opens a
public tunnel when a page asks for one. What this module turns off has no public switch in viser
1.1, hence the private names; a test holds each of them.
"""

from __future__ import annotations

import io
import ipaddress
import math
import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any
from urllib.parse import urlsplit

import viser
from viser import _messages as messages

from touchline.errors import UsageError

LOOPBACK = "127.0.0.1"
UPDATES_PER_S = 100
"""The most of one page that have an effect; holding a slider makes about 20."""

_SHEET_STYLE = (
    "<style>"
    'div[style*="max-height: 60%"] {{width: 100% !important; max-height: {percent}% !important}}'
    'div[style*="max-height: 60%"] div[style="width: 20em;"] {{width: 100% !important}}'
    "</style>"
)
"""viser's sheet on phones is 20 em wide, at the right, and covers three fifths of the height."""
FAREWELL_S = 0.3
"""For the last message to arrive in pages."""


def open_server(
    host: str, port: int, label: str, sheet_percent: int = 50
) -> viser.ViserServer:
    """A server that listens on this very port; port 0 takes any.

    On a phone, controls are a sheet at the bottom of at most `sheet_percent` of the height.
    Raises a UsageError for a port that is in use, or a host that is not this machine's.
    """
    _require_free(host, port)
    with _silence():
        server = viser.ViserServer(host, port, label, verbose=False)
    if port not in (0, server.get_port()):  # taken since
        close_server(server)
        raise UsageError(f"port {port} is in use; choose another with --port")
    _Guard(server, is_local=is_loopback(host))
    server.gui.configure_theme(show_logo=False, show_share_button=False)
    server.gui.add_html(_SHEET_STYLE.format(percent=sheet_percent), order=math.inf)
    return server


def close_server(server: viser.ViserServer, farewell: str = "") -> None:
    """Stop listening and close all pages' connections, which keep showing the farewell."""
    clients = server.get_clients().values() if farewell else ()
    for client in clients:
        client.add_notification("The viewer has ended", farewell, color="red")
    if clients:
        server.flush()
        time.sleep(FAREWELL_S)
    with _silence():
        server.stop()


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a server on this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _require_free(host: str, port: int) -> None:
    if not 0 <= port <= 65535:
        raise UsageError(f"--port {port}: expected a number from 0 to 65535")
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind) as probe:
            # As servers do, or a port would count as used for a minute after its last server.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"cannot listen on {host}, port {port}: {reason}; choose another with --port or --host"
        ) from error


@contextmanager
def _silence() -> Iterator[None]:
    """Viser prints boxes to standard output, which belongs to results."""
    with redirect_stdout(io.StringIO()):
        yield


class _Guard:
    """Drops what this page's controls never send, and pages of other sites."""

    def __init__(self, server: viser.ViserServer, *, is_local: bool) -> None:
        self._server = server
        self._is_local = is_local
        self._updates: defaultdict[int, list[float]] = defaultdict(list)
        """Of each page, the times of its updates in the last second."""
        sockets = server._websock_server
        refused = (
            messages.ShareUrlRequest,
            messages.ShareUrlDisconnect,
            messages.FileTransferStartUpload,
            messages.FileTransferPart,
            messages.GuiUpdateMessage,
        )
        for message in refused:
            sockets.unregister_handler(message)
        sockets.register_handler(messages.GuiUpdateMessage, self._update)
        sockets.on_client_connect(self._meet)
        sockets.on_client_disconnect(self._part)

    async def _meet(self, connection: Any) -> None:
        """Close connections of other sites' pages: a browser connects to loopback for anyone.

        A name that an attacker points at loopback (DNS rebinding) would make any site this one, so
        on loopback the page must come from a name of loopback.
        """
        socket_ = self._server._websock_server._live_connections[connection.client_id]
        headers = socket_.request.headers
        origin = headers.get("Origin")
        if origin is None:
            return  # no browser: such a program can connect by any means
        page = urlsplit(origin)
        is_own = page.netloc == headers.get("Host")
        if not is_own or (self._is_local and not is_loopback(page.hostname or "")):
            await socket_.close(1008, "pages of other sites may not connect")

    async def _part(self, connection: Any) -> None:
        self._updates.pop(connection.client_id, None)

    async def _update(self, client_id: Any, message: messages.GuiUpdateMessage) -> None:
        """Let a control's new value through, but no other property, and no flood of them."""
        if set(message.updates) != {"value"}:
            return
        now = time.monotonic()
        recent = [t for t in self._updates[client_id] if now - t < 1.0]
        self._updates[client_id] = recent
        if len(recent) < UPDATES_PER_S:
            recent.append(now)
            await self._server.gui._handle_gui_updates(client_id, message)
