"""Our client compared with a bare gRPC echo server and compared with official `mlagents_envs`.

All of them serve one lean player, which sends the same bytes whatever it receives, so that only the
clients differ. The official client runs under its own Python (`bench/official/client.py`;
docs/protocol.md, "Speed").
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from bench.peers import OFFICIAL

import touchline
from touchline.envs.unity_env import UnityEnvironment
from touchline.envs.wire_server import METHOD, SERVICE
from touchline.errors import RunError
from touchline.log import Log
from touchline.protocol.decoding import ExchangeDecoder, fastest_reader, warm_up
from touchline.protocol.dialect import Dialect
from touchline.protocol.encoding import encode_actions, encode_output
from touchline.protocol.parsed_agents import ParsedAgents
from touchline.protocol.schema import MESSAGES
from touchline.protocol.session import (
    GOODBYE,
    OK,
    Command,
    PlayerSession,
    TrainerSession,
)
from touchline.specs import ActionSpec, ActionTuple, BehaviorSpec, ObservationSpec
from touchline.steps import DecisionSteps, TerminalSteps

NAME = "Bench?team=0"
SIZES = ((1, 1500), (100, 1000), (500, 500))
"""(agents, exchanges to time with them)."""
FLOATS, ACTIONS = 32, 2
ROUNDS = 5
DECODINGS = 2000
WARM_UP_EXCHANGES = 50

Turns = dict[str, list[float]]
"""Contestant -> its figure in each round."""


def bench_wire(scenes: Sequence[str] | None, log: Log) -> dict[str, Any]:  # noqa: ARG001
    """Exchanges per second at three sizes, and the time to decode one SoccerTwos message.

    Medians of five rounds. `scenes` has no meaning here.
    """
    official = os.environ.get("OFFICIAL_CLIENT_PYTHON", ".venv-official/bin/python")
    has_official = os.access(official, os.X_OK)
    if not has_official:
        log(
            "official mlagents_envs is not here (make interop, or OFFICIAL_CLIENT_PYTHON); "
            "measuring without it"
        )
    warm_up()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="touchline-bench-") as folder:
        for agents, exchanges in SIZES:
            player = write_player(Path(folder), agents)
            turns: Turns = {"bare": [], "touchline": [], "official": []}
            for _ in range(ROUNDS):
                turns["bare"].append(_bare(player, agents, exchanges))
                turns["touchline"].append(_touchline(player, agents, exchanges))
                if has_official:
                    speed = _official(official, "steps", player, agents, exchanges)
                    turns["official"].append(speed)
            figures[f"{agents}_agents"] = _summary(turns)
            log(
                f"{agents} agents x {FLOATS} floats, exchanges/s: {figures[f'{agents}_agents']}"
            )
        decoding = _bench_decoding(Path(folder), official if has_official else None)
        figures["decode_soccer_us"] = decoding
        log(f"one SoccerTwos message, microseconds to decode: {decoding}")
    return figures


def write_player(folder: Path, agents: int) -> Path:
    """An executable of the lean player with this many agents."""
    path = folder / f"lean-{agents}.x86_64"
    folders = Path(touchline.__file__).parents[1], Path(__file__).resolve().parents[1]
    path.write_text(
        f'#!/bin/sh\nexport GRPC_VERBOSITY=NONE PYTHONPATH="{folders[0]}:{folders[1]}"\n'
        f'exec "{sys.executable}" -m bench.wire {agents} "$@"\n'
    )
    path.chmod(0o755)
    return path


def exchange_of(
    agents: int, sizes: Sequence[int], action: ActionSpec
) -> tuple[BehaviorSpec, Any]:
    """A behavior, and an exchange in which all its agents decide."""
    sensors = [
        ObservationSpec.vector(size, f"Sensor{i}") for i, size in enumerate(sizes)
    ]
    spec = BehaviorSpec(tuple(sensors), action)
    rng = np.random.default_rng(0)
    ids = np.arange(agents, dtype=np.int32)
    masks = [
        np.zeros((agents, choices), np.bool_) for choices in action.discrete_branches
    ]
    decisions = DecisionSteps(
        reward=rng.random(agents, np.float32),
        obs=[rng.random((agents, size), np.float32) for size in sizes],
        agent_id=ids,
        action_mask=masks or None,
        group_id=np.zeros_like(ids),
        group_reward=np.zeros(agents, np.float32),
    )
    return spec, {NAME: (decisions, TerminalSteps.empty(spec))}


def play_lean(agents: int, port: int) -> None:
    """The player: the handshake, then one exchange over and over until Python says goodbye."""
    spec, exchange = exchange_of(agents, [FLOATS], ActionSpec(ACTIONS, ()))
    session = PlayerSession({NAME: spec})
    options = [("grpc.max_send_message_length", -1)]
    with (
        grpc.insecure_channel(f"localhost:{port}", options) as channel,
        contextlib.suppress(grpc.RpcError),
    ):
        call = channel.unary_unary(f"/{SERVICE}/{METHOD}")
        session.receive(call(session.introduction()))
        session.receive(call(session.ready()))
        reply = call(session.exchange(exchange))  # the one that announces the behavior
        session.receive(reply)
        data = session.exchange(exchange)
        fine = reply[:5]  # a header of status 200
        while reply[:5] == fine:
            reply = call(data)


def _touchline(player: Path, agents: int, exchanges: int) -> float:
    actions = ActionTuple(np.zeros((agents, ACTIONS), np.float32))
    with UnityEnvironment(player) as env:
        env.reset()
        for count in (WARM_UP_EXCHANGES, exchanges):
            started = time.perf_counter()
            for _ in range(count):
                env.set_actions(NAME, actions)
                env.step()
                env.get_steps(NAME)
        return exchanges / (time.perf_counter() - started)


def _bare(player: Path, agents: int, exchanges: int) -> float:
    """A server that only answers, with as many bytes as ours would."""
    trainer = TrainerSession()
    arrivals: list[float] = []
    done = MESSAGES.UnityMessageProto(header=MESSAGES.HeaderProto(status=OK))
    done.unity_input.rl_input.agent_actions[NAME] = encode_actions(
        ActionTuple(np.zeros((agents, ACTIONS), np.float32)), Dialect()
    )
    step = done.SerializeToString()

    def echo(request: bytes, context: Any) -> bytes:  # noqa: ARG001 - gRPC's signature
        arrivals.append(time.perf_counter())
        if len(arrivals) == 1:
            trainer.receive(request)
            return trainer.welcome(0)
        if len(arrivals) == 2:
            trainer.receive(request)
            return trainer.command(Command.RESET)
        # Two messages of the handshake, the reset, and some to warm up.
        return step if len(arrivals) < exchanges + WARM_UP_EXCHANGES + 10 else GOODBYE

    handlers = grpc.method_handlers_generic_handler(
        SERVICE, {METHOD: grpc.unary_unary_rpc_method_handler(echo)}
    )
    options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(2), handlers=(handlers,), options=options)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    subprocess.run(
        [player, "--mlagents-port", str(port)],
        check=True,
        timeout=120,
        start_new_session=True,
    )
    server.stop(None).wait()
    return exchanges / (arrivals[-1] - arrivals[-1 - exchanges])


def _official(python: str, *arguments: Any) -> float:
    script = OFFICIAL / "client.py"
    done = subprocess.run(
        [python, script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise RunError(
            f"official mlagents_envs failed: {done.stderr.strip().splitlines()[-1:]}"
        )
    return float(json.loads(done.stdout.splitlines()[-1]))


def _bench_decoding(folder: Path, official: str | None) -> dict[str, Any]:
    """SoccerTwos: 32 agents, each with 264 + 72 floats and three masked branches."""
    spec, exchange = exchange_of(32, [264, 72], ActionSpec(0, (3, 3, 3)))
    message = MESSAGES.UnityMessageProto(header=MESSAGES.HeaderProto(status=OK))
    message.unity_output.CopyFrom(encode_output(exchange, {NAME: spec}, set(), b""))
    data = message.SerializeToString()
    path = folder / "soccer.bin"
    path.write_bytes(data)
    readers = {"touchline": fastest_reader(), "touchline_without_numba": ParsedAgents}
    decoders = {
        name: ExchangeDecoder(Dialect(), reader) for name, reader in readers.items()
    }
    turns: Turns = {name: [] for name in (*decoders, "official")}
    for _ in range(ROUNDS):
        for name, decoder in decoders.items():
            started = time.perf_counter()
            for _ in range(DECODINGS):
                decoder.decode(MESSAGES.UnityMessageProto.FromString(data).unity_output)
            turns[name].append((time.perf_counter() - started) / DECODINGS * 1e6)
        if official is not None:
            turns["official"].append(_official(official, "decode", path, DECODINGS))
    figures = _medians(turns)
    if official is not None:
        pairs = zip(turns["official"], turns["touchline"], strict=True)
        ratios = [their / our for their, our in pairs]
        figures["times_faster_than_official"] = round(float(np.median(ratios)), 2)
    return figures | {"bytes": len(data)}


def _summary(turns: Turns) -> dict[str, float]:
    def ratio(peer: str) -> float:
        pairs = zip(turns["touchline"], turns[peer], strict=True)
        return float(np.median([our / their for our, their in pairs]))

    summary = _medians(turns)
    summary["ratio_to_bare"] = round(ratio("bare"), 3)
    if turns["official"]:
        summary["times_faster_than_official"] = round(ratio("official"), 2)
    return summary


def _medians(turns: Turns) -> dict[str, float]:
    """The median of each contestant that was measured."""
    return {
        name: round(float(np.median(figures)), 1)
        for name, figures in turns.items()
        if figures
    }


if __name__ == "__main__":
    play_lean(int(sys.argv[1]), int(sys.argv[sys.argv.index("--mlagents-port") + 1]))
