"""The agents act one after the other, in PettingZoo's old AEC interface."""

from typing import Any

from gymnasium import error
from pettingzoo import AECEnv

from touchline.adapters.mlagents_envs.envs.unity_pettingzoo_base_env import (
    UnityPettingzooBaseEnv,
)
from touchline.envs.ml_agents_names import MLAgentsWorld


class UnityAECEnv(UnityPettingzooBaseEnv, AECEnv):
    """`obs, reward, done, info = env.last()`, then `env.step(action)` for `env.agent_selection`.

    An ended agent takes None as its action. The world moves on after the last agent's action.
    """

    def __init__(self, env: MLAgentsWorld, seed: int | None = None) -> None:
        super().__init__(env, seed)

    @property
    def agent_selection(self) -> str:
        """Whose turn it is."""
        return self._order[self._index]

    def observe(self, agent_id: str) -> Any:
        """Observation, reward since its last action, whether its episode ended, and info."""
        return (
            self._observations[agent_id],
            self._cumulative[agent_id],
            self._dones[agent_id],
            self._infos[agent_id],
        )

    def last(self, observe: bool = True) -> Any:
        """`observe` for the agent whose turn it is."""
        obs, reward, done, info = self.observe(self.agent_selection)
        return obs if observe else None, reward, done, info

    def step(self, action: Any) -> None:
        """The action of the agent whose turn it is."""
        self._refuse_closed()
        if not self._live:
            raise error.Error("no agent can act: call reset() before step()")
        self._set_action(self.agent_selection, action)
        self._rewards = dict.fromkeys(self._rewards, 0.0)
        self._index += 1
        if self._index >= len(self._order):
            self._step()
