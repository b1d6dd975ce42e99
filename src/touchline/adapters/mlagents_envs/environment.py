"""The client of a Unity player or of the Editor."""

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

# Stars: scripts import from here whatever the official module imports, too.
from touchline.adapters.mlagents_envs.base_env import ActionTuple, BaseEnv
from touchline.adapters.mlagents_envs.communicator_objects import (
    UnityRLCapabilitiesProto,
)
from touchline.adapters.mlagents_envs.rpc_communicator import *  # noqa: F403
from touchline.adapters.mlagents_envs.rpc_utils import *  # noqa: F403
from touchline.adapters.mlagents_envs.side_channel import *  # noqa: F403
from touchline.adapters.mlagents_envs.side_channel.side_channel_manager import *  # noqa: F403
from touchline.envs.actions import ActionError
from touchline.envs.unity_env import UnityEnvironment as _UnityEnvironment
from touchline.errors import UsageError
from touchline.steps import DecisionSteps, TerminalSteps


class UnityEnvironment(_UnityEnvironment, BaseEnv):
    """`touchline.UnityEnvironment`, with the names and exceptions of ML-Agents' methods.

    As in ML-Agents, a masked choice is no error: the player executes it.
    """

    @property
    def academy_capabilities(self) -> Any:
        """What the player says it supports, as the protocol's message."""
        has = dict.fromkeys(self.capabilities, True)
        return UnityRLCapabilitiesProto(**has)

    def get_steps(self, behavior_name: str) -> tuple[DecisionSteps, TerminalSteps]:
        self._refuse_unknown(behavior_name)
        return super().get_steps(behavior_name)

    def set_actions(
        self, behavior_name: str, action: ActionTuple | NDArray[Any]
    ) -> None:
        self._refuse_unknown(behavior_name)
        super().set_actions(behavior_name, action)

    def set_action_for_agent(
        self, behavior_name: str, agent_id: int, action: ActionTuple | NDArray[Any]
    ) -> None:
        self._refuse_unknown(behavior_name)
        decisions, _ = self.steps(behavior_name)
        if agent_id not in decisions:
            raise IndexError(
                f"{behavior_name}: agent {agent_id} needs no decision; those that do: "
                f"{list(decisions)[:20]}"
            )
        super().set_action_for_agent(behavior_name, agent_id, action)

    def _check(
        self, behavior: str, actions: ActionTuple, decisions: DecisionSteps
    ) -> None:
        super()._check(behavior, actions, replace(decisions, action_mask=None))

    def _refuse_unknown(self, behavior: str) -> None:
        """Raise what ML-Agents' users catch for a behavior that does not exist."""
        try:
            self._spec(behavior)
        except UsageError as error:
            raise ActionError(str(error)) from error
