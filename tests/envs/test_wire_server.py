"""The server over real sockets: real gRPC clients, callers that break every rule, and floods."""

import contextlib
import logging
import socket
import struct
import threading
import time

import grpc
import pytest
from tests.protocol.http2_cases import CASES, FINE, GRPCIO, SILENCE
from tests.protocol.http2_frames import call, data, frame, headers, message
from tests.protocol.http2_peers import HELLO, Caller, grpcio, ours, probe

from touchline.envs.wire_server import (
    LINGER_S,
    MAX_CALLERS,
    MAX_WARNINGS,
    METHOD,
    SERVICE,
    HungUpError,
    WireServer,
)
from touchline.protocol.errors import MessageTooLargeError, UnityCommunicationException
from touchline.protocol.http2 import PING


def client(port, calls, host="localhost", own_connection=1):
    """A real gRPC client in a thread: makes the calls in turn; keeps the answers, or the error."""
    answers = []

    def run():
        options = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", own_connection),
        ]
        with grpc.insecure_channel(f"{host}:{port}", options) as channel:
            call = channel.unary_unary(f"/{SERVICE}/{METHOD}")
            try:
                for message in calls:
                    answers.append(call(message, timeout=60))  # noqa: PERF401
            except grpc.RpcError as error:
                answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, answers


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_a_real_client_is_served(host):
    server = WireServer(None, 1 << 28)
    sent = [b"", b"x" * 7, bytes(3_000_000), b"z"] * 3
    thread, answers = client(server.port, sent, host)
    for text in sent:
        assert server.receive(20, lambda: None) == text
        server.reply(text[::-1] + b"!")
    with pytest.raises(HungUpError):
        server.receive(20, lambda: None)
    thread.join()
    server.close()
    assert answers == [m[::-1] + b"!" for m in sent]


def test_a_hundred_mebibytes_go_through_and_the_error_for_more_names_their_size():
    server = WireServer(None, 100 << 20)
    calls = [b"", bytes(100 << 20), bytes((100 << 20) + 1)]
    thread, answers = client(server.port, calls)
    assert server.receive(20, lambda: None) == b""
    server.reply(b"")
    assert len(server.receive(60, lambda: None)) == 100 << 20
    server.reply(bytes(5 << 20))
    with pytest.raises(MessageTooLargeError, match=r"100\.0 MiB came"):
        server.receive(60, lambda: None)
    server.close()
    thread.join()
    assert len(answers[1]) == 5 << 20
    assert answers[2].code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert answers[2].details() == (
        "a message of 104857601 bytes came, at most 104857600 are accepted"
    )


@pytest.mark.parametrize("own_connection", [0, 1])
def test_a_second_caller_is_refused_and_the_first_continues(own_connection):
    server = WireServer(None, 1000)
    first, answers = client(server.port, [b"one", b"two"], "127.0.0.1", own_connection)
    assert server.receive(20, lambda: None) == b"one"
    second, refused = client(server.port, [b"me, too"], "127.0.0.1", own_connection)
    while second.is_alive():
        assert server.receive(0.05, lambda: None) is None
    server.reply(b"1")
    assert server.receive(20, lambda: None) == b"two"
    server.reply(b"2")
    first.join()
    server.close()
    assert answers == [b"1", b"2"]
    assert refused == [b"\x0a\x03\x08\x90\x03"]  # status 400


def test_goodbye_answers_waiting_and_later_calls():
    server = WireServer(None, 1000)
    thread, answers = client(server.port, [b"one", b"two"])
    assert server.receive(20, lambda: None) == b"one"
    server.say_goodbye(20)
    thread.join()
    server.close()
    server.close()
    assert answers == [b"\x0a\x03\x08\x90\x03"] * 2


def test_sixty_mebibytes_each_way_take_seconds_at_most():
    """The reply took over a minute while each piece copied all that was left."""
    server = WireServer(None, 64 << 20)
    text = bytes(60 << 20)
    thread, answers = client(server.port, [b"", text])
    server.receive(20, lambda: None)
    server.reply(b"")
    start = time.process_time()
    assert len(server.receive(20, lambda: None)) == len(text)
    server.reply(text)
    with pytest.raises(HungUpError):
        server.receive(20, lambda: None)
    thread.join()
    server.close()
    assert len(answers[1]) == len(text)
    # 0.4 s on an idle machine; processor time, so that other processes do not count.
    assert time.process_time() - start < 4


@pytest.fixture(scope="module")
def bare():
    with grpcio() as (port, _):
        yield port


@pytest.mark.parametrize("name", CASES)
def test_a_stranger_gets_the_right_answer_at_once_and_the_player_is_served(name):
    sent, expected = CASES[name]
    with ours() as (port, errors):
        player = Caller(port)
        player.send(HELLO + call(1))
        assert player.answer(lambda stream, _: stream == 1) == "status 0"
        start = time.monotonic()
        assert probe(port, sent, call(1)) == expected
        assert time.monotonic() - start < 1
        player.send(call(3))
        assert player.answer(lambda stream, _: stream == 3) == "status 0"
        assert errors == []
        player.close()


@pytest.mark.parametrize("name", CASES)
def test_the_player_gets_the_right_answer_and_its_fault_is_named(name):
    sent, expected = CASES[name]
    with ours() as (port, errors):
        assert probe(port, sent, call(1)) == expected
        if expected.startswith("GOAWAY"):
            while not errors:
                time.sleep(0.001)
            assert isinstance(errors[0], UnityCommunicationException)
            assert "the player broke the protocol: " in str(errors[0])


@pytest.mark.parametrize("name", [n for n in CASES if GRPCIO.get(n) != SILENCE])
def test_a_bare_grpcio_server_answers_as_we_do_or_as_recorded(name, bare):
    sent, expected = CASES[name]
    assert probe(bare, sent, call(1)) == GRPCIO.get(name, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in CASES if GRPCIO.get(n) == SILENCE])
def test_a_bare_grpcio_server_does_not_answer_what_we_refuse(name, bare):
    sent, expected = CASES[name]
    assert expected != FINE
    assert probe(bare, sent, call(1), timeout_s=1) == SILENCE


def test_only_the_one_method_makes_a_caller_the_player():
    server = WireServer(None, 1000)
    others, answers = health_check(server.port)
    while others.is_alive():
        assert server.receive(0.05, lambda: None) is None
    assert not server.connected
    assert [e.code() for e in answers] == [grpc.StatusCode.UNIMPLEMENTED] * 2
    assert answers[0].details() == f"only /{SERVICE}/{METHOD} is served here"
    thread, answers = client(server.port, [b"one"])
    assert server.receive(20, lambda: None) == b"one"
    server.reply(b"1")
    thread.join()
    server.close()
    assert answers == [b"1"]


def health_check(port):
    answers = []

    def run():
        with grpc.insecure_channel(f"localhost:{port}") as channel:
            for name in ("/grpc.health.v1.Health/Check", "/a/b"):
                try:
                    channel.unary_unary(name)(b"", timeout=10)
                except grpc.RpcError as error:
                    answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, answers


def waits(server, timeout_s, checks=None):
    """Seconds that `receive` takes until it gives up; a check each time goes to `checks`."""
    counted = [] if checks is None else checks
    start = time.monotonic()
    assert server.receive(timeout_s, lambda: counted.append(start)) is None
    return time.monotonic() - start


def flood(port, data, stop, count=4):
    """Threads that send `data` for ever, on new connections when theirs are closed."""

    def run():
        while not stop.is_set():
            try:
                caller = Caller(port)
                caller.send(HELLO)
                while not stop.is_set():
                    caller.send(data)
            except OSError:
                pass
            finally:
                caller.close()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


FLOODS = {
    "pings": frame(PING, 0, 0, bytes(8)) * 1000,
    "calls of another method": b"".join(headers(s) for s in (1,))
    + data(1, b"", 0) * 500,
    "garbage": bytes(16_000),
    "connections": b"GET / HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("name", FLOODS)
def test_time_outs_and_checks_hold_in_a_flood(name):
    server, stop = WireServer(None, 1000), threading.Event()
    threads = flood(server.port, FLOODS[name], stop)
    try:
        checks = []
        assert waits(server, 1.0, checks) < 1.5
        assert len(checks) >= 3
        assert len(server._callers) <= MAX_CALLERS + 1
    finally:
        stop.set()
        server.close()
        for thread in threads:
            thread.join()


def test_a_player_is_served_in_a_flood():
    server, stop = WireServer(None, 1 << 20), threading.Event()
    thread, answers = client(server.port, [b"x"] * 50)
    assert server.receive(20, lambda: None) == b"x"
    threads = flood(server.port, FLOODS["pings"], stop, 2)
    try:
        server.reply(b"1")
        for _ in range(49):
            assert server.receive(20, lambda: None) == b"x"
            server.reply(b"1")
        while thread.is_alive():
            with pytest.raises(HungUpError):
                server.receive(20, lambda: None)
    finally:
        stop.set()
        server.close()
        for each in [*threads, thread]:
            each.join()
    assert answers == [b"1"] * 50


def test_time_outs_hold_while_a_player_dribbles():
    server = WireServer(None, 1000)
    player = Caller(server.port)
    player.send(HELLO + call(1))
    assert server.receive(5, lambda: None) == b"hello"
    server.reply(b"")
    stop = threading.Event()

    def dribble():
        for byte in headers(3) + data(3, message(bytes(900))):
            if stop.wait(0.005):
                break
            player.send(bytes([byte]))

    thread = threading.Thread(target=dribble)
    thread.start()
    checks = []
    assert waits(server, 0.6, checks) < 0.9
    assert len(checks) >= 2
    stop.set()
    thread.join()
    player.close()
    server.close()


def test_time_outs_hold_while_no_descriptor_is_left(caplog):
    resource = pytest.importorskip("resource", reason="only Unix limits descriptors")
    server = WireServer(None, 1000)
    waiting = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe_fd = socket.socket()
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe_fd.fileno(), hard))
    probe_fd.close()
    filler = []
    try:
        with pytest.raises(OSError, match="Too many open files"):
            filler.extend(iter(socket.socket, None))
        used = time.process_time()
        checks = []
        assert waits(server, 0.7, checks) < 1.0
        assert len(checks) >= 2
        assert time.process_time() - used < 0.3  # it sleeps, it does not spin
        assert "no caller can be accepted now: Too many open files" in caplog.text
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in filler:
            each.close()
    # With descriptors free again, the callers that waited in the kernel's queue are served.
    waiting[0].sendall(HELLO + call(1))
    assert server.receive(5, lambda: None) == b"hello"
    for each in waiting:
        each.close()
    server.close()


def test_what_strangers_hold_is_bounded():
    """A hundred half-sent calls held 763 MiB."""
    server = WireServer(None, 256 << 20)
    callers, big = [], 8 << 20
    half = (
        HELLO + headers(1) + frame(0, 0, 1, struct.pack(">BI", 0, big) + bytes(16_000))
    )
    more = b"".join(headers(s) + frame(0, 0, s, bytes(16_000)) for s in range(3, 40, 2))
    for _ in range(100):
        caller = Caller(server.port)
        callers.append(caller)
        with contextlib.suppress(OSError):  # it may be dropped already
            caller.send(half + more)
        assert server.receive(0, lambda: None) is None
    waits(server, 0.3)
    held = sum(
        len(caller.grpc._buffer)
        + sum(map(len, caller.unsent))
        + sum(len(stream.received) for stream in caller.grpc._streams.values())
        for caller in server._callers
    )
    assert len(server._callers) <= MAX_CALLERS
    assert held < 4 << 20
    thread, answers = client(server.port, [b"one"])
    assert server.receive(20, lambda: None) == b"one"
    server.reply(b"1")
    thread.join()
    for caller in callers:
        caller.close()
    server.close()
    assert answers == [b"1"]


def test_a_stranger_that_does_not_read_stalls_nothing():
    server = WireServer(None, 1000)
    deaf = Caller(server.port)
    deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.send(HELLO)
    deaf.socket.setblocking(False)
    thread, answers = client(server.port, [b"x"] * 20)
    for _ in range(20):
        assert server.receive(5, lambda: None) == b"x"
        with contextlib.suppress(BlockingIOError):
            deaf.socket.send(FLOODS["pings"] * 20)
        start = time.monotonic()
        server.reply(b"1")
        assert time.monotonic() - start < 0.5
    thread.join()
    assert answers == [b"1"] * 20
    assert sum(len(u) for c in server._callers for u in c.unsent) < 1 << 20
    deaf.close()
    server.close()


def test_a_player_that_does_not_read_its_reply_meets_the_time_out():
    server = WireServer(None, 1000)
    player = Caller(server.port)
    grow = frame(8, 0, 0, struct.pack(">I", 2**30)) + frame(
        8, 0, 1, struct.pack(">I", 2**30)
    )
    player.send(HELLO + call(1) + grow)
    assert server.receive(5, lambda: None) == b"hello"
    start = time.monotonic()
    server.reply(bytes(50 << 20))
    assert time.monotonic() - start < 1
    assert waits(server, 0.5) < 0.8
    # It reads at last, and everything is there.
    player.socket.settimeout(5)
    got = []

    def read():
        total = 0
        while total < 50 << 20:
            total += len(player.socket.recv(1 << 20))
        got.append(total)

    reader = threading.Thread(target=read)
    reader.start()
    while reader.is_alive():
        assert server.receive(0.05, lambda: None) is None
    assert got[0] >= 50 << 20
    player.close()
    server.close()


def test_refusals_are_logged_with_their_reasons_and_a_flood_of_them_is_not(caplog):
    caplog.set_level(logging.WARNING)
    server = WireServer(None, 1000)
    for _ in range(MAX_WARNINGS + 10):
        caller = Caller(server.port)
        caller.send(HELLO + data(0, b""))
        waits(server, 0.01)
        caller.close()
    waits(server, 0.05)
    server.close()
    lines = [r.getMessage() for r in caplog.records]
    assert (
        "a caller was refused: a frame of kind 0 on stream 0 (connection)" in lines[0]
    )
    assert len(lines) == MAX_WARNINGS
    assert lines[-1].endswith("no more such lines will follow")


def test_a_refused_caller_that_stays_is_dropped_after_a_moment():
    server = WireServer(None, 1000)
    caller = Caller(server.port)
    caller.send(HELLO + data(0, b""))
    start = time.monotonic()
    while waits(server, 0.05) and server._callers:
        caller.send(b"more and more")
        assert time.monotonic() - start < LINGER_S + 1
    assert caller.answer() == "SETTINGS ACK"
    assert caller.answer() == "GOAWAY PROTOCOL_ERROR"
    caller.close()
    server.close()
