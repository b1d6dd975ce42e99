"""PettingZoo environments of a registry's entries."""

from typing import Any

from touchline.adapters.mlagents_envs.envs.unity_aec_env import UnityAECEnv
from touchline.adapters.mlagents_envs.registry import default_registry
from touchline.protocol.side_channels import (
    EngineConfigurationChannel,
    EnvironmentParametersChannel,
    StatsSideChannel,
)


class PettingZooEnvFactory:
    """Opens one entry of `default_registry`, as often as it is called."""

    def __init__(self, env_id: str) -> None:
        self.env_id = env_id

    def env(self, seed: int | None = None, **kwargs: Any) -> UnityAECEnv:
        """The environment behind PettingZoo's old AEC interface.

        `seed` is that of the action spaces; further arguments are those of `UnityEnvironment`.
        """
        kwargs.setdefault(
            "side_channels",
            [
                EngineConfigurationChannel(),
                EnvironmentParametersChannel(),
                StatsSideChannel(),
            ],
        )
        # Without a base port, UnityEnvironment takes a free one.
        return UnityAECEnv(default_registry[self.env_id].make(**kwargs), seed)
