"""Environments by name: Touchline's scenes as players, and players that you register."""

from touchline.adapters.mlagents_envs.registry.unity_env_registry import (
    UnityEnvRegistry as UnityEnvRegistry,
)
from touchline.adapters.mlagents_envs.registry.unity_env_registry import (
    default_registry as default_registry,
)

__all__ = ["UnityEnvRegistry", "default_registry"]
