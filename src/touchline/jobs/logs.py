"""Logs that programs write on other machines: what is new in them comes with every answer."""

import tempfile
from collections.abc import Mapping
from pathlib import Path


class Logs:
    """A folder of this machine into which programs log, until `close`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="touchline-logs-")
        self.path = Path(self._folder.name)
        self._read: dict[str, int] = {}
        """Number of bytes of each file that were returned already."""

    def new(self) -> dict[str, bytes]:
        """What was added since the last call, by file name."""
        added = {}
        for path in sorted(self.path.glob("*.log")):
            with path.open("rb") as file:
                # A program that was restarted has started its log over.
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
    """Append what `Logs.new` returned to the files of this folder."""
    for name, text in added.items():
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("ab") as file:
            file.write(text)
