"""A viser server that is safe to leave open: no files, no tunnels, no pages of other sites.

viser is made for notebooks and takes the next free port, prints boxes, uploads files and opens a
public tunnel when a page asks for one. What this module turns off has no public switch in viser
1.1, hence the private names; a test holds each of them.
"""

from __future__ import annotations

import io
import ipaddress
import logging
import math
import secrets
import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

import viser
import websockets.asyncio.server
from viser import _messages as messages

from touchline.errors import UsageError
from touchline.operating_systems import claim_port
from touchline.viewer.keys import script_html

LOOPBACK = "127.0.0.1"
COOKIE = "touchline_view"
MOST_MESSAGE = 1 << 20
"""Bytes of a message from a page."""
LONGEST_TEXT = 1_000
"""Characters of a control's value: viser keeps it, and sends it to every later page."""
UPDATES_PER_S = 100
"""The most of one page that have an effect; holding a slider makes about 20."""

_SHEET_STYLE = (
    "<style>"
    'div[style*="max-height: 60%"] {{width: 100% !important; max-height: {percent}% !important}}'
    'div[style*="max-height: 60%"] div[style="width: 20em;"] {{width: 100% !important}}'
    "</style>"
)
"""viser's sheet on phones is 20 em wide, at the right, and covers three fifths of the height."""
STILL_CAMERA = """
document.body.addEventListener('keydown', (event) => {
  if (/^Key[WASDQE]$/.test(event.code)) event.stopPropagation();
});
"""
"""viser's keys move the camera by 2 units a second, and a scene is smaller (`stage.RADIUS`)."""
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
    token = None if is_loopback(host) else _token()
    # viser prints boxes to standard output, which belongs to results.
    with redirect_stdout(io.StringIO()), _guarded_serving(token):
        server = viser.ViserServer(host, port, label, verbose=False)
    if port not in (0, server.get_port()):  # taken since
        close_server(server)
        raise UsageError(f"port {port} is in use; choose another with --port")
    _Guard(server, is_local=is_loopback(host))
    server.gui.configure_theme(show_logo=False, show_share_button=False)
    style = _SHEET_STYLE.format(percent=sheet_percent)
    server.gui.add_html(style + script_html(STILL_CAMERA), order=math.inf)
    return server


def close_server(server: viser.ViserServer, farewell: str = "") -> None:
    """Stop listening and close all pages' connections, which keep showing the farewell."""
    clients = server.get_clients().values() if farewell else ()
    for client in clients:
        client.add_notification("The viewer has ended", farewell, color="red")
    if clients:
        server.flush()
        time.sleep(FAREWELL_S)
    with redirect_stdout(io.StringIO()):
        server.stop()


def address_of(host: str, port: int) -> str:
    """What to open in a browser; with the token where other machines can connect."""
    token = "" if is_loopback(host) else f"/?token={_token()}"
    # The colons of an IPv6 address are not that of the port.
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}{token}"


@cache
def _token() -> str:
    """What the address must hold; the same for all pages of this process, which follow another."""
    return secrets.token_urlsafe(16)


@contextmanager
def _guarded_serving(token: str | None) -> Iterator[None]:
    """Within it, viser's server takes no large messages, is quiet, and asks for the token.

    viser has no switch for what it passes to websockets, whose errors are 30 lines each.
    """
    original = websockets.asyncio.server.serve

    def serve(*where: Any, process_request: Any, **options: Any) -> Any:
        quiet = logging.getLogger("touchline.viewer.connections")
        quiet.setLevel(logging.CRITICAL)
        options |= {"max_size": MOST_MESSAGE, "logger": quiet}

        def answer(connection: Any, request: Any) -> Any:
            if token is None:
                return process_request(connection, request)
            # Cookies are shared by all ports of a host.
            name = f"{COOKIE}_{connection.local_address[1]}"
            is_known, is_new = _shows(token, name, request)
            if not is_known:
                text = (
                    "The address must end with the token that `touchline view` shows.\n"
                )
                return connection.respond(HTTPStatus.FORBIDDEN, text)
            response = process_request(connection, request)
            if response is not None and is_new:
                # The page's own connection has no query, but a browser sends the cookie with it.
                cookie = f"{name}={token}; HttpOnly; SameSite=Strict; Path=/"
                response.headers["Set-Cookie"] = cookie
            return response

        return original(*where, process_request=answer, **options)

    websockets.asyncio.server.serve = serve  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        websockets.asyncio.server.serve = original  # type: ignore[misc]


def _shows(token: str, name: str, request: Any) -> tuple[bool, bool]:
    """Whether a request shows the token, and whether it does so in its address."""
    queries = parse_qs(urlsplit(request.path).query).get("token", [])
    # `get` raises where a header comes twice, and whoever connects decides on that.
    cookies = "; ".join(request.headers.get_all("Cookie")).split("; ")
    held = [c.removeprefix(f"{name}=") for c in cookies if c.startswith(f"{name}=")]
    is_new = any(_is_same(token, query) for query in queries)
    return is_new or any(_is_same(token, cookie) for cookie in held), is_new


def _is_same(token: str, given: str) -> bool:
    """Compare in a time that tells nothing about the token."""
    # As bytes: of texts, compare_digest takes ASCII alone, and a header may hold anything.
    return secrets.compare_digest(token.encode(), given.encode("utf-8", "replace"))


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
            claim_port(probe)
            probe.bind(address)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"cannot listen on {host}, port {port}: {reason}; choose another with --port or --host"
        ) from error


class _Guard:
    """Drops what this page's controls never send, and pages of other sites."""

    def __init__(self, server: viser.ViserServer, *, is_local: bool) -> None:
        self._server = server
        self._is_local = is_local
        self._updates: defaultdict[int, list[float]] = defaultdict(list)
        """Times of each page's updates in the last second."""
        sockets = server._websock_server
        refused = (
            messages.ShareUrlRequest,
            messages.ShareUrlDisconnect,
            messages.FileTransferStartUpload,
            messages.FileTransferPart,
            # Registered again below, with a check before viser's own handler.
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
        if len(str(message.updates["value"])) > LONGEST_TEXT:
            return
        now = time.monotonic()
        recent = [t for t in self._updates[client_id] if now - t < 1.0]
        self._updates[client_id] = recent
        if len(recent) < UPDATES_PER_S:
            recent.append(now)
            await self._server.gui._handle_gui_updates(client_id, message)
