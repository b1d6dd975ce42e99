"""Protobuf messages to specs and steps, by Touchline's own decoder.

Images are [C, H, W], as since package 3.0.
"""

import io
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Stars: scripts import from here whatever the official module imports, too.
from touchline.adapters.mlagents_envs.base_env import *  # noqa: F403
from touchline.adapters.mlagents_envs.communicator_objects import *  # noqa: F403
from touchline.adapters.mlagents_envs.communicator_objects import UnityRLOutputProto
from touchline.adapters.mlagents_envs.exception import *  # noqa: F403
from touchline.adapters.mlagents_envs.timers import timed
from touchline.protocol.decoding import ExchangeDecoder, action_spec, observation_spec
from touchline.protocol.dialect import Dialect
from touchline.protocol.images import PNG_SIGNATURE, decode_png
from touchline.protocol.schema import MESSAGES
from touchline.specs import BehaviorSpec
from touchline.steps import DecisionSteps, TerminalSteps

PNG_HEADER = PNG_SIGNATURE


def behavior_spec_from_proto(brain_param_proto: Any, agent_info: Any) -> BehaviorSpec:
    """What a BrainParametersProto and the AgentInfoProto of one agent say about a behavior."""
    sensors = [
        observation_spec(f"agent_info.observations[{i}]", observation, Dialect())
        for i, observation in enumerate(agent_info.observations)
    ]
    return BehaviorSpec(tuple(sensors), action_spec(brain_param_proto))


@timed
def steps_from_proto(
    agent_info_list: Collection[Any], behavior_spec: BehaviorSpec
) -> tuple[DecisionSteps, TerminalSteps]:
    """Who decides and who ended among AgentInfoProtos."""
    agents = UnityRLOutputProto.ListAgentInfoProto(value=agent_info_list)
    name = "agent_info_list"
    decoder = ExchangeDecoder(Dialect())
    decoder.expect(name, behavior_spec)
    output = MESSAGES.UnityOutputProto()
    output.rl_output.agentInfos[name] = agents.SerializeToString()
    return decoder.decode(output)[name]


@timed
def process_pixels(
    image_bytes: bytes, expected_channels: int, mappings: list[int] | None = None
) -> NDArray[np.float32]:
    """[channels, H, W] in [0, 1], of PNG files back to back.

    With `mappings`, the channel of the result for each channel of the files, the number of channels
    is that of the mapping.
    """
    # Width and height follow the signature (8 bytes) and the head of the first chunk (8).
    width, height = (int.from_bytes(image_bytes[at : at + 4]) for at in (16, 20))
    channels = max(mappings) + 1 if mappings else expected_channels
    return decode_png(
        image_bytes,
        (channels, height, width),
        list(mappings or ()),
        channels_first=True,
        what="image_bytes",
    )


class OffsetBytesIO:
    """Bytes as a file that begins at `offset`, which may be moved."""

    def __init__(self, data: bytes) -> None:
        self.fp = io.BytesIO(data)
        self.offset = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = self.offset if whence == io.SEEK_SET else 0
        return self.fp.seek(start + offset, whence) - self.offset

    def tell(self) -> int:
        return self.fp.tell() - self.offset

    def read(self, size: int = -1) -> bytes:
        return self.fp.read(size)

    def original_tell(self) -> int:
        """The place in all of the bytes."""
        return self.fp.tell()
