"""One environment of a registry, and a scene of Touchline as such an entry."""

import hashlib
import subprocess
import sys
from abc import abstractmethod
from typing import Any

from touchline.adapters.mlagents_envs.base_env import BaseEnv
from touchline.adapters.mlagents_envs.environment import UnityEnvironment
from touchline.operating_systems import own_temporary
from touchline.protocol.errors import UnityEnvironmentException


class BaseRegistryEntry:
    """A name, what to expect, and `make`, which opens the environment."""

    def __init__(
        self, identifier: str, expected_reward: float | None, description: str | None
    ) -> None:
        self._identifier = identifier
        self._expected_reward = expected_reward
        self._description = description

    @property
    def identifier(self) -> str:
        return self._identifier

    @property
    def expected_reward(self) -> float | None:
        """The mean return at which the task counts as solved."""
        return self._expected_reward

    @property
    def description(self) -> str | None:
        return self._description

    @abstractmethod
    def make(self, **kwargs: Any) -> BaseEnv:
        """Open it. Takes the arguments of `UnityEnvironment` except `file_name`."""
        # An abstract method, as in ML-Agents: subclasses open their own kind of environment.
        raise NotImplementedError(f"{type(self).__name__} has no make()")


class SceneEntry(BaseRegistryEntry):
    """A scene of Touchline, served as a player."""

    def make(self, **kwargs: Any) -> UnityEnvironment:
        """Write the player into a folder for temporary files and start it."""
        kwargs.pop("file_name", None)
        # By Python, too, because a player starts the Touchline that wrote it.
        own = hashlib.sha256(sys.executable.encode()).hexdigest()[:16]
        folder = own_temporary("touchline-players") / own
        # By the command, because this module is below the one that writes players.
        built = subprocess.run(
            [sys.executable, "-m", "touchline", "build", self.identifier, "-o", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode:
            raise UnityEnvironmentException(built.stderr.strip())
        return UnityEnvironment(folder / self.identifier, **kwargs)
