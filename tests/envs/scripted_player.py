"""A player that misbehaves on purpose: `python -m tests.envs.scripted_player ACT --mlagents-port N`.

It does everything right up to the point that its act names.
"""

import os
import sys
import time
from pathlib import Path

import grpc
import numpy as np

from touchline.envs.wire_server import METHOD, SERVICE
from touchline.operating_systems import Launcher
from touchline.protocol.dialect import Dialect
from touchline.protocol.session import PlayerSession
from touchline.protocol.side_channels import SideChannels, StatsSideChannel
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.steps import DecisionSteps, TerminalSteps

SPEC = BehaviorSpec((ObservationSpec((2,)),), ActionSpec(1, (3,)))
NAME = "Puppet?team=0"


def written(folder, act):
    """The player that performs an act, as an executable."""
    root = Path(__file__).parents[2]
    path = [str(root), str(root / "src")]
    launcher = Launcher(
        "A player of the tests.", "tests.envs.scripted_player", [act], path
    )
    return launcher.write(folder, act)


def exchange_of(values):
    ids, zeros = (
        np.arange(len(values), dtype=np.int32),
        np.zeros(len(values), np.float32),
    )
    masks = [np.array([[False, False, True]] * len(values))]
    decisions = DecisionSteps(
        [np.array(values, np.float32)], zeros, ids, masks, np.zeros_like(ids), zeros
    )
    return {NAME: (decisions, TerminalSteps.empty(SPEC))}


def main(arguments=None):
    act, *given = arguments or sys.argv[1:]
    perform(act, int(given[given.index("--mlagents-port") + 1]))


def perform(act, port):
    print(f"puppet: my act is {act}", flush=True)
    if act == "exit-3":
        sys.exit(3)
    if act == "never-connect":
        time.sleep(60)
    version = "2.0.0" if act == "version-2" else "1.5.0"
    session = PlayerSession({NAME: SPEC}, Dialect(version))
    channel = grpc.insecure_channel(
        f"localhost:{port}", [("grpc.max_send_message_length", -1)]
    )
    call = channel.unary_unary(f"/{SERVICE}/{METHOD}")
    session.receive(call(session.introduction()))
    order = session.receive(call(session.ready()))
    step = 0
    while order is not None:
        good = session.exchange(exchange_of([[step, 0], [step, 1]]))
        if step == 1:
            good = misbehaviour(act, good, call)
        order = session.receive(call(good))
        step += 1


def misbehaviour(act, good, call):
    if act == "kill-itself":
        os.kill(os.getpid(), 9)
    if act == "exit-0":
        os._exit(0)
    if act == "fall-silent":
        time.sleep(60)
    if act == "call-and-hang":
        call(good)  # takes the reply, even a goodbye, and stays
        time.sleep(60)
    if act.startswith("farewell"):
        call(b"\x0a\x03\x08\x90\x03")
        sys.exit(3 if act == "farewell-and-fail" else 0)
    if act == "garbage":
        return b"\xff" * 20
    if act == "nan":
        return session_in_step().exchange(exchange_of([[float("nan"), 0]]))
    if act == "100,003-statistics":
        stats = StatsSideChannel()
        for value in range(100_003):
            stats.add_stat("Score" if value % 2 else "Goals", value)
        statistics = SideChannels([stats]).gather()
        return session_in_step().exchange(exchange_of([[0, 0]]), statistics)
    if act == "too-large":
        # An unknown field of 4 MiB.
        return good + b"\x7a\x80\x80\x80\x02" + bytes(1 << 22)
    if act == "out-of-turn":
        return b"\x0a\x03\x08\xc8\x01"
    return good


def session_in_step():
    session = PlayerSession({NAME: SPEC})
    session.state = type(session.state).PLAYER_SIMULATES
    return session


if __name__ == "__main__":
    main()
