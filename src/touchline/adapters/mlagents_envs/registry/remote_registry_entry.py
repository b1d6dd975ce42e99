"""A player that is downloaded when it is opened for the first time."""

import hashlib
import shutil
import stat
import tempfile
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

from touchline.adapters.mlagents_envs.environment import UnityEnvironment
from touchline.adapters.mlagents_envs.registry.base_registry_entry import (
    BaseRegistryEntry,
)
from touchline.envs.player_process import find_player
from touchline.operating_systems import SYSTEM, replace_file


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
        self._folder = Path(tmp_dir or tempfile.gettempdir(), "touchline-players")

    def make(self, **kwargs: Any) -> UnityEnvironment:
        """Download the player unless that has been done, and start it.

        Raises a FileNotFoundError where there is none for this platform.
        """
        if self._url is None:
            raise FileNotFoundError(f"{self.identifier} has no player for {SYSTEM}")
        kwargs.pop("file_name", None)
        given = kwargs.pop("additional_args", None) or []
        arguments = [*given, *self._additional_args]
        player = _downloaded(self._url, self._folder / self.identifier)
        return UnityEnvironment(player, additional_args=arguments, **kwargs)


def _downloaded(url: str, folder: Path) -> Path:
    """The player in the archive at this address, unpacked in a folder below this one."""
    # By address: a manifest may give another build under the same name.
    target = folder / hashlib.sha256(url.encode()).hexdigest()[:16]
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Under its final name only when it is whole: a download may be cut off.
        with tempfile.TemporaryDirectory(dir=folder) as part:
            archive, unpacked = Path(part, "player.zip"), Path(part, "unpacked")
            with (
                urllib.request.urlopen(url, timeout=30) as reply,
                archive.open("wb") as out,
            ):
                shutil.copyfileobj(reply, out)
            with zipfile.ZipFile(archive) as files:
                # `zipfile` itself takes roots and `..` out of the names in an archive.
                files.extractall(unpacked)
            _make_executable(unpacked)
            replace_file(unpacked, target)
    return _player_in(target)


def _player_in(folder: Path) -> Path:
    """The first thing in the folder, at any depth, that can be started."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".x86_64", ".x86", ".exe", ".app") and (
            not path.name.startswith("UnityCrashHandler")
        ):
            return find_player(path)
    raise FileNotFoundError(f"no player among the files of {folder}")


def _make_executable(folder: Path) -> None:
    """ZIP archives made on Windows do not say which files can be executed."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
