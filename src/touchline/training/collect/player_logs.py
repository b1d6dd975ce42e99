"""Logs of players on other machines: what is new in them goes along with every answer."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from touchline.envs.env import EnvRecipe


class PlayerLogs:
    """A folder of this machine into which players log, until `close`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="touchline-logs-")
        self._read: dict[str, int] = {}
        """Bytes of each file that were given already."""

    def kept_here(self, recipe: EnvRecipe) -> EnvRecipe:
        """The recipe with this folder for logs."""
        options = {**recipe.options, "log_folder": self._folder.name}
        return replace(recipe, options=options)

    def new(self) -> dict[str, bytes]:
        """What was added since the last call, by file name."""
        added = {}
        for path in sorted(Path(self._folder.name).glob("*.log")):
            with path.open("rb") as file:
                # A player that was restarted has started its log over.
                before = self._read.get(path.name, 0)
                file.seek(before if before <= path.stat().st_size else 0)
                text = file.read()
                self._read[path.name] = file.tell()
            if text:
                added[path.name] = text
        return added

    def close(self) -> None:
        self._folder.cleanup()


def add_to_logs(folder: Path, added: Mapping[str, bytes]) -> None:
    """Write what `PlayerLogs.new` gave behind what is in this folder."""
    for name, text in added.items():
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("ab") as file:
            file.write(text)
