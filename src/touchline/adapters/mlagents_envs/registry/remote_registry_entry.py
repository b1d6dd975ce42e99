"""A player that is downloaded when it is opened for the first time."""

from typing import Any

from touchline.adapters.mlagents_envs.environment import UnityEnvironment
from touchline.adapters.mlagents_envs.registry.base_registry_entry import (
    BaseRegistryEntry,
)
from touchline.adapters.mlagents_envs.registry.binary_utils import get_local_binary_path
from touchline.operating_systems import SYSTEM


class RemoteRegistryEntry(BaseRegistryEntry):
    """A ZIP archive per platform with one player in it."""

    def __init__(
        self,
        identifier: str,
        expected_reward: float | None,
        description: str | None,
        linux_url: str | None,
        darwin_url: str | None,
        win_url: str | None,
        additional_args: list[str] | None = None,
        tmp_dir: str | None = None,
    ) -> None:
        super().__init__(identifier, expected_reward, description)
        urls = {"linux": linux_url, "darwin": darwin_url, "win32": win_url}
        self._url = urls.get(SYSTEM)
        self._additional_args = additional_args or []
        self._tmp_dir = tmp_dir

    def make(self, **kwargs: Any) -> UnityEnvironment:
        """Download the player unless that has been done, and start it.

        Raises a FileNotFoundError where there is none for this platform.
        """
        if self._url is None:
            raise FileNotFoundError(f"{self.identifier} has no player for {SYSTEM}")
        kwargs.pop("file_name", None)
        given = kwargs.pop("additional_args", None) or []
        arguments = [*given, *self._additional_args]
        player = get_local_binary_path(self.identifier, self._url, self._tmp_dir)
        return UnityEnvironment(player, additional_args=arguments, **kwargs)
