"""All agents act at once, in PettingZoo's old parallel interface."""

from typing import Any

from gymnasium import error
from pettingzoo import ParallelEnv

from touchline.adapters.mlagents_envs.envs.unity_pettingzoo_base_env import (
    UnityPettingzooBaseEnv,
)
from touchline.envs.ml_agents_names import MLAgentsWorld


class UnityParallelEnv(UnityPettingzooBaseEnv, ParallelEnv):
    """`obs = env.reset()`, then `obs, rewards, dones, infos = env.step(actions)`."""

    def __init__(self, env: MLAgentsWorld, seed: int | None = None) -> None:
        super().__init__(env, seed)

    def reset(self) -> dict[str, Any]:
        """First observations."""
        super().reset()
        return self._observations

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        """Act with all agents that are in `actions`.

        The others do nothing, or take their first allowed choice where choice 0 is masked.
        """
        self._refuse_closed()
        if actions and not self._live:
            raise error.Error("no agent can act: call reset() before step()")
        for agent, action in actions.items():
            self._set_action(agent, action)
        self._step()
        self._live = [agent for agent in self._live if not self._dones[agent]]
        return self._observations, self._rewards, self._dones, self._infos
