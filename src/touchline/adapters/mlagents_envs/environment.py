"""The client of a Unity player or of the Editor."""

from typing import Any

from numpy.typing import NDArray

# Also so that `mlagents_envs.base_env` is there after this import, as some programs rely on.
from touchline.adapters.mlagents_envs.base_env import ActionTuple, BaseEnv
from touchline.envs.actions import ActionError
from touchline.envs.unity_env import UnityEnvironment as _UnityEnvironment
from touchline.errors import UsageError
from touchline.steps import DecisionSteps, TerminalSteps

__all__ = ["UnityEnvironment"]


class UnityEnvironment(_UnityEnvironment, BaseEnv):
    """`touchline.UnityEnvironment`, with the names and exceptions of ML-Agents' methods."""

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

    def _refuse_unknown(self, behavior: str) -> None:
        """Raise what ML-Agents' users catch for a behavior that does not exist."""
        try:
            self._spec(behavior)
        except UsageError as error:
            raise ActionError(str(error)) from error
