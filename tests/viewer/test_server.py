"""What a page may not do, and what a wrong call gets."""

import asyncio
import contextlib
import socket
import sys
import time
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import msgspec
import pytest
import viser
import websockets
from viser import _messages as messages
from websockets.sync.client import connect

from touchline.cli import run
from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.viewer.opening import ViewOptions, opened
from touchline.viewer.server import (
    address_of,
    close_server,
    is_loopback,
    open_server,
)

PROTOCOL = f"viser-v{viser.__version__}"


@pytest.fixture
def server():
    opened_server = open_server("127.0.0.1", 0, "test")
    yield opened_server
    close_server(opened_server)


def _connect(port, host="127.0.0.1", origin=None):
    return connect(
        f"ws://{host}:{port}",
        subprotocols=[PROTOCOL],
        origin=origin or f"http://{host}:{port}",
        compression=None,
        max_size=None,
    )


def _is_refused(connection):
    try:
        while True:
            connection.recv(timeout=5.0)
    except websockets.exceptions.ConnectionClosed as closed:
        return closed.rcvd.code == 1008
    except TimeoutError:
        return False


def _send(connection, message):
    connection.send(msgspec.msgpack.encode(message.as_serializable_dict()))


@contextlib.contextmanager
def _taken_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_port_in_use_is_one_line_and_not_another_port(capsys):
    with _taken_port() as port:
        with pytest.raises(
            UsageError, match=f"port {port}.*choose another with --port"
        ):
            open_server("127.0.0.1", port, "test")
        assert run(["view", "Basic", "--port", str(port)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    if sys.platform != "win32":  # there it may also be "access denied"
        assert "Address already in use" in shown.err
    assert f"cannot listen on 127.0.0.1, port {port}: " in shown.err
    assert len(shown.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["view", "SoccerTwos", "--policy", "nowhere.onnx"], "nowhere.onnx"),
        (["view", "Basic", "--versus", "random"], "has only one team"),
        (["view", "Basic", "--policy", "greedy"], "plays Match3"),
        (["view", "Basic", "--host", "192.0.2.1"], "cannot listen on 192.0.2.1"),
    ],
)
def test_a_wrong_call_is_one_line(arguments, expected, capsys):
    assert run([*arguments, *([] if "--port" in arguments else ["--port", "0"])]) == 2
    shown = capsys.readouterr()
    assert expected in shown.err
    assert len(shown.err.strip().splitlines()) == 1
    assert shown.out == ""


def test_nothing_is_printed_to_standard_output(capsys):
    close_server(open_server("127.0.0.1", 0, "test"))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:1"])
def test_a_page_of_another_site_is_refused(server, origin):
    with _connect(server.get_port(), origin=origin) as connection:
        assert _is_refused(connection)


def test_a_name_that_someone_pointed_at_loopback_is_refused(server):
    # A browser that resolved evil.example to 127.0.0.1 sends it as the host, too.
    port = server.get_port()
    with socket.create_connection(("127.0.0.1", port)) as raw:
        connection = connect(
            f"ws://evil.example:{port}",
            sock=raw,
            subprotocols=[PROTOCOL],
            origin=f"http://evil.example:{port}",
            compression=None,
        )
        assert _is_refused(connection)


def test_its_own_page_is_let_in(server):
    with _connect(server.get_port()) as connection:
        assert connection.recv(timeout=10.0)


@pytest.mark.parametrize(
    "message",
    [
        messages.ShareUrlRequest,
        messages.ShareUrlDisconnect,
        messages.FileTransferStartUpload,
        messages.FileTransferPart,
    ],
)
def test_tunnels_and_uploads_have_no_handler(server, message):
    assert not server._websock_server._incoming_handlers.get(message)


@pytest.mark.parametrize(
    "path", ["/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd"]
)
def test_no_files_outside_the_page_are_served(server, path):
    with socket.create_connection(("127.0.0.1", server.get_port())) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert b"404" in raw.recv(4096).splitlines()[0]


def test_a_page_changes_the_value_of_a_control_and_nothing_else(server):
    box = server.gui.add_checkbox("box", False)
    update = server._websock_server._incoming_handlers[messages.GuiUpdateMessage]
    assert len(update) == 1

    def receive(**updates):
        message = messages.GuiUpdateMessage(box._impl.uuid, updates)
        asyncio.run(update[0](0, message))

    receive(value=True)
    assert box.value is True
    receive(removed=True)
    assert not box._impl.removed


def test_a_flood_from_a_page_does_not_stop_the_simulation():
    recipe = EnvRecipe("scene", "Basic", num_areas=1)
    with opened(recipe, ["random"], ViewOptions(port=0)) as page:
        simulation = page.simulation
        uuid = page._speed._impl.uuid
        begin, before = time.monotonic(), simulation.time_s()
        with _connect(page.port) as connection:
            for number in range(5_000):
                value = "1 ×" if number % 2 else "2 ×"
                _send(connection, messages.GuiUpdateMessage(uuid, {"value": value}))
        time.sleep(max(0.0, 1.5 - (time.monotonic() - begin)))
        played = simulation.time_s() - before
        assert played > 0.5
        assert simulation.failure is None


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("192.168.0.7", False),
        ("example.org", False),
    ],
)
def test_only_loopback_counts_as_local(host, expected):
    assert is_loopback(host) == expected


def test_the_address_of_an_ipv6_host_can_be_opened():
    assert address_of("127.0.0.1", 8080) == "http://127.0.0.1:8080"
    assert address_of("::1", 8080) == "http://[::1]:8080"
    assert urlsplit(address_of("fe80::2", 8080)).port == 8080


def test_from_other_machines_a_page_needs_the_token_in_its_address():
    server = open_server("0.0.0.0", 0, "test")
    try:
        port = server.get_port()
        query = urlsplit(address_of("0.0.0.0", port)).query
        plain = f"http://127.0.0.1:{port}/"
        with pytest.raises(HTTPError, match="403"):
            urlopen(plain)
        with pytest.raises(websockets.exceptions.InvalidStatus, match="403"):
            _connect(port)
        with pytest.raises(HTTPError, match="403"):
            urlopen(f"{plain}?{query}x")
        with urlopen(f"{plain}?{query}") as page:
            cookie = page.headers["Set-Cookie"].partition(";")[0]
        with connect(
            f"ws://127.0.0.1:{port}",
            subprotocols=[PROTOCOL],
            origin=f"http://127.0.0.1:{port}",
            additional_headers={"Cookie": cookie},
        ) as connection:
            assert connection.recv(timeout=10.0)
    finally:
        close_server(server)


def test_long_texts_of_a_page_are_dropped(server):
    field = server.gui.add_text("Keys held", "")
    with _connect(server.get_port()) as connection:
        for text in ("x" * 100_000, "w"):
            message = messages.GuiUpdateMessage(field._impl.uuid, {"value": text})
            _send(connection, message)
        end = time.monotonic() + 10.0
        while field.value != "w" and time.monotonic() < end:
            assert field.value == ""
            time.sleep(0.01)
        assert field.value == "w"
        connection.send(b"x" * (2 << 20))
        with contextlib.suppress(websockets.exceptions.ConnectionClosed):
            while True:
                connection.recv(timeout=10.0)
        assert connection.close_code == 1009  # too large


def test_strange_connections_write_nothing_to_the_terminal(server, capfd):
    port = server.get_port()
    for greeting in (b"", b"\x16\x03\x01", b"GET", b"\0" * 9000):
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(greeting)
    for data in (b"\xff", msgspec.msgpack.encode({"type": "Unknown"}), b"\x93\1\2\3"):
        with _connect(port) as connection:
            connection.send(data)
            time.sleep(0.2)
    with _connect(port) as connection:
        assert connection.recv(timeout=10.0)
    assert capfd.readouterr() == ("", "")
