"""What a player notices of strangers that flood its port with CONTINUATION frames (RFC 9113, 6.10).

    python bench/floods.py [--attackers 4] [--seconds 10] [--repeats 3]

A stranger opens a call whose header fields never end, in pieces of some bytes, and comes again
when its connection is closed. The player is a real gRPC client that calls with 10 kB as fast as it
is answered. Beside our server, grpcio's answers the same calls in the same way. Player, server and
each stranger are processes of their own. A row says how many calls a second were answered, and the
longest time without an answer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

from touchline.envs.wire_server import METHOD, SERVICE, HungUpError, WireServer

CALL = bytes(10_000)
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
"""What opens a connection, and empty settings."""
HEADERS, CONTINUATION = 1, 9
PIECES = {"empty pieces": 0, "pieces of a byte": 1, "pieces of 16 kB": 16_384}


def frame(kind: int, body: bytes) -> bytes:
    """A frame of stream 1 after which header fields go on."""
    return len(body).to_bytes(3, "big") + bytes([kind, 0, 0, 0, 0, 1]) + body


def attack(port: int, size: int) -> None:
    """Flood the port for ever."""
    flood = frame(CONTINUATION, bytes(size)) * max(1, 65_536 // (size + 9))
    while True:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port)) as s,
        ):
            s.sendall(HELLO + frame(HEADERS, b"\x83"))
            while True:
                s.sendall(flood)


def serve_ours() -> None:
    """Answer the player's calls until it hangs up."""
    server = WireServer(None, 1 << 20)
    print(server.port, flush=True)
    with contextlib.suppress(HungUpError):
        while True:
            if server.receive(60, lambda: None) is not None:
                server.reply(CALL)


def serve_grpcio() -> None:
    """The same with grpcio, until this process is ended."""
    server = grpc.server(ThreadPoolExecutor(4))
    answer = grpc.unary_unary_rpc_method_handler(lambda *_: CALL)
    handler = grpc.method_handlers_generic_handler(SERVICE, {METHOD: answer})
    server.add_generic_rpc_handlers((handler,))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    server.wait_for_termination()


def play(port: int, seconds: float) -> None:
    """Call for so long; print how often, and the longest time without an answer."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(f"/{SERVICE}/{METHOD}")
        call(CALL, timeout=30)
        print("connected", flush=True)
        sys.stdin.readline()  # the strangers have begun
        calls, longest = 0, 0.0
        began = before = time.perf_counter()
        while before - began < seconds:
            call(CALL, timeout=60)
            now = time.perf_counter()
            longest = max(longest, now - before)
            calls, before = calls + 1, now
        print(json.dumps({"calls": calls / (before - began), "longest": longest}))


def started(*arguments: object) -> subprocess.Popen[str]:
    """A process of its own with a part of this file."""
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def measure(
    server: str, size: int | None, attackers: int, seconds: float
) -> dict[str, float]:
    """One row; `size` None: without strangers."""
    processes = [started(f"--serve-{server}")]
    try:
        port = int(processes[0].stdout.readline())
        player = started("--play", port, "--seconds", seconds)
        processes.append(player)
        player.stdout.readline()
        count = 0 if size is None else attackers
        processes += [started("--attack", port, size) for _ in range(count)]
        time.sleep(0.5)  # they have begun
        out, _ = player.communicate("\n", timeout=seconds + 90)
        found: dict[str, float] = json.loads(out)
        return found
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attackers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--serve-ours", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--serve-grpcio", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--play", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--attack", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve_ours:
        serve_ours()
    elif given.serve_grpcio:
        serve_grpcio()
    elif given.play:
        play(given.play, given.seconds)
    elif given.attack:
        attack(*given.attack)
    else:
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(
            "| flood | server | calls/s | longest without an answer |\n| --- | --- | --- | --- |"
        )
        for flood, size in {"none": None, **PIECES}.items():
            for server in ("ours", "grpcio"):
                runs = [
                    measure(server, size, given.attackers, given.seconds)
                    for _ in range(given.repeats)
                ]
                calls = sorted(run["calls"] for run in runs)[len(runs) // 2]
                longest = max(run["longest"] for run in runs)
                print(
                    f"| {flood} | {server} | {calls:,.0f} | {1000 * longest:,.0f} ms |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
