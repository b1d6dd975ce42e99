"""A communicator without a player, for tests of programs that take a communicator."""

from typing import Any

import numpy as np

from touchline.adapters.mlagents_envs import communicator_objects as proto
from touchline.adapters.mlagents_envs.communicator import Communicator, PollCallback

# A star: scripts import from here whatever the official module imports, too.
from touchline.adapters.mlagents_envs.communicator_objects import *  # noqa: F403
from touchline.adapters.mlagents_envs.environment import UnityEnvironment
from touchline.protocol.images import encode_png

IMAGE_SHAPE = 30, 40, 3


class MockCommunicator(Communicator):
    """Answers everything with the same agents of one behavior: reward 1, the third has ended.

    They observe black images and 1, 2, 3, ..., and take two continuous actions, or one of 3 and one
    of 2 choices.
    """

    def __init__(
        self,
        discrete_action: bool = False,
        visual_inputs: int = 0,
        num_agents: int = 3,
        brain_name: str = "RealFakeBrain",
        vec_obs_size: int = 3,
    ) -> None:
        super().__init__()
        self.is_discrete = discrete_action
        self.steps = 0  # as in ML-Agents, where nothing counts them
        self.visual_inputs = visual_inputs
        self.has_been_closed = False
        self.num_agents = num_agents
        self.brain_name = brain_name
        self.vec_obs_size = vec_obs_size

    def initialize(self, inputs: Any, poll_callback: PollCallback | None = None) -> Any:
        """An introduction with the behavior and its agents."""
        discrete = {"num_discrete_actions": 2, "discrete_branch_sizes": [3, 2]}
        kind = discrete if self.is_discrete else {"num_continuous_actions": 2}
        output = self.exchange(inputs, poll_callback)
        introduction = output.rl_initialization_output
        introduction.name = "RealFakeAcademy"
        introduction.communication_version = UnityEnvironment.API_VERSION
        introduction.package_version = "mock_package_version"
        introduction.brain_parameters.add(
            brain_name=self.brain_name, is_training=True, action_spec=kind
        )
        return output

    def exchange(self, inputs: Any, poll_callback: PollCallback | None = None) -> Any:  # noqa: ARG002
        """The agents."""
        image = proto.ObservationProto(
            shape=IMAGE_SHAPE,
            compression_type=proto.PNG,
            compressed_data=encode_png(np.zeros(IMAGE_SHAPE, np.float32)),
        )
        vector = proto.ObservationProto(
            shape=[self.vec_obs_size],
            compression_type=proto.NONE,
            float_data={"data": range(1, self.vec_obs_size + 1)},
        )
        observations = [image] * self.visual_inputs + [vector]
        output = proto.UnityOutputProto()
        agents = output.rl_output.agentInfos[self.brain_name].value
        for number in range(self.num_agents):
            agents.add(id=number, reward=1, done=number == 2, observations=observations)
        return output

    def close(self) -> None:
        self.has_been_closed = True
