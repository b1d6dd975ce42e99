"""The official client's side of `touchline bench wire`; run by the Python that has `mlagents_envs`,
not by ours.

python client.py steps PLAYER AGENTS EXCHANGES  -> exchanges/s
python client.py decode FILE TIMES              -> microseconds
"""

import json
import socket
import sys
import time
from pathlib import Path

import numpy as np

BEHAVIOR = "Bench?team=0"


def _steps(player, agents, exchanges):
    from mlagents_envs.environment import ActionTuple, UnityEnvironment

    actions = ActionTuple(np.zeros((agents, 2), np.float32))
    with socket.socket() as probe:  # its own default is one fixed port
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    env = UnityEnvironment(player, base_port=port, timeout_wait=30)
    try:
        env.reset()
        for count in (50, exchanges):
            started = time.perf_counter()
            for _ in range(count):
                env.set_actions(BEHAVIOR, actions)
                env.step()
                env.get_steps(BEHAVIOR)
        return exchanges / (time.perf_counter() - started)
    finally:
        env.close()


def _decode(file, times):
    from mlagents_envs.communicator_objects.unity_message_pb2 import UnityMessageProto
    from mlagents_envs.rpc_utils import behavior_spec_from_proto, steps_from_proto

    data = Path(file).read_bytes()
    first = UnityMessageProto.FromString(data).unity_output
    brain = first.rl_initialization_output.brain_parameters[0]
    spec = behavior_spec_from_proto(
        brain, first.rl_output.agentInfos[BEHAVIOR].value[0]
    )
    started = time.perf_counter()
    for _ in range(times):
        output = UnityMessageProto.FromString(data).unity_output
        steps_from_proto(output.rl_output.agentInfos[BEHAVIOR].value, spec)
    return (time.perf_counter() - started) / times * 1e6


if __name__ == "__main__":
    figure = (
        _steps(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        if sys.argv[1] == "steps"
        else _decode(sys.argv[2], int(sys.argv[3]))
    )
    print(json.dumps(figure))
