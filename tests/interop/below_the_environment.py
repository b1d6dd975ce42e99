"""What programs do below `UnityEnvironment`, for official `mlagents_envs` and for ours.

python below_the_environment.py PLAYER PORT
"""

import hashlib
import io
import subprocess
import sys

import numpy as np
from mlagents_envs.base_env import ActionTuple
from mlagents_envs.communicator_objects.agent_action_pb2 import AgentActionProto
from mlagents_envs.communicator_objects.command_pb2 import RESET, STEP, CommandProto
from mlagents_envs.communicator_objects.unity_input_pb2 import UnityInputProto
from mlagents_envs.communicator_objects.unity_rl_initialization_input_pb2 import (
    UnityRLInitializationInputProto,
)
from mlagents_envs.communicator_objects.unity_rl_input_pb2 import UnityRLInputProto
from mlagents_envs.mock_communicator import MockCommunicator
from mlagents_envs.rpc_communicator import RpcCommunicator
from mlagents_envs.rpc_utils import (
    PNG_HEADER,
    OffsetBytesIO,
    behavior_spec_from_proto,
    process_pixels,
    steps_from_proto,
)
from PIL import Image


def show(*things):
    print(*(thing.tolist() if hasattr(thing, "tolist") else thing for thing in things))


def show_message(message):
    print(message.SerializeToString(deterministic=True).hex())


def show_steps(steps):
    for name in ("agent_id", "reward", "group_id", "group_reward", "interrupted"):
        show(name, [round(float(n), 6) for n in getattr(steps, name, ())])
    for sensor in steps.obs:
        data = np.ascontiguousarray(sensor, np.float32)
        show(data.shape, hashlib.sha256(data.tobytes()).hexdigest())
    for mask in getattr(steps, "action_mask", None) or ():
        show(mask.astype(int))


def order(command, actions):
    message = UnityRLInputProto(command=command)
    for behavior, chosen in actions.items():
        message.agent_actions[behavior].value.extend(
            AgentActionProto(continuous_actions=floats, discrete_actions=choices)
            for floats, choices in zip(chosen.continuous, chosen.discrete)  # noqa: B905
        )
    return UnityInputProto(rl_input=message)


def play(communicator, process):
    welcome = UnityRLInitializationInputProto(
        seed=5, communication_version="1.5.0", package_version="1.1.0", num_areas=2
    )
    introduction = communicator.initialize(
        UnityInputProto(rl_initialization_input=welcome), process.poll
    )
    show_message(introduction)
    random, specs, actions = np.random.RandomState(0), {}, {}
    for number in range(60):
        command = STEP if number else RESET
        output = communicator.exchange(order(command, actions), process.poll)
        show(CommandProto.Name(command), sorted(output.rl_output.agentInfos))
        actions = {}
        for brain in output.rl_initialization_output.brain_parameters:
            first = output.rl_output.agentInfos[brain.brain_name].value[0]
            spec = specs[brain.brain_name] = behavior_spec_from_proto(brain, first)
            show([tuple(sensor) for sensor in spec.observation_specs])
            show(tuple(spec.action_spec))
        for name in sorted(output.rl_output.agentInfos):
            agents, action = (
                output.rl_output.agentInfos[name].value,
                specs[name].action_spec,
            )
            decisions, terminals = steps_from_proto(agents, specs[name])
            show_steps(decisions)
            show_steps(terminals)
            count = len(decisions)
            floats = random.uniform(-1, 1, (count, action.continuous_size))
            branches = np.array(action.discrete_branches or 1)
            choices = random.randint(0, 99, (count, action.discrete_size)) % branches
            actions[name] = ActionTuple(
                floats.astype(np.float32), choices.astype(np.int32)
            )


def show_images():
    random, whole = np.random.RandomState(0), io.BytesIO()
    for _ in range(2):
        picture = random.randint(0, 256, (5, 7, 3)).astype(np.uint8)
        Image.fromarray(picture).save(whole, "PNG")
    data = whole.getvalue()
    file = OffsetBytesIO(data)
    show(file.read(8) == PNG_HEADER, file.tell(), file.seek(3), file.original_tell())
    file.offset = data.index(PNG_HEADER, 1)
    show(np.asarray(Image.open(file)))
    show(np.round(process_pixels(data[file.offset :], 1), 5))
    every_channel = [0, -1, 1, 1, 2, 0]
    for channels, mapping in ((2, None), (5, []), (6, None), (9, every_channel)):
        pixels = process_pixels(data, channels, mapping)
        show(pixels.shape, pixels.dtype, np.round(pixels.mean(axis=(1, 2)), 5))


def show_error(call):
    try:
        call()
    except Exception as error:
        show(type(error).__name__)


def main(player, port):
    communicator = RpcCommunicator(worker_id=1, base_port=port - 1, timeout_wait=60)
    show_error(lambda: RpcCommunicator(0, port))
    show_error(lambda: communicator.check_port(port))
    process = subprocess.Popen([player, "--mlagents-port", str(port)])
    try:
        play(communicator, process)
    finally:  # without it, the official communicator's threads keep a failed process
        communicator.close()
    communicator.close()
    show(process.wait(20), communicator.is_open, communicator.port)
    silent = RpcCommunicator(0, port, timeout_wait=1)
    show_error(lambda: silent.initialize(UnityInputProto()))
    silent.close()
    show_images()
    for is_discrete in (False, True):
        mock = MockCommunicator(discrete_action=is_discrete, num_agents=4)
        show_message(mock.initialize(UnityInputProto()))
        show_message(mock.exchange(UnityInputProto()))
        mock.close()
        show(mock.has_been_closed)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
