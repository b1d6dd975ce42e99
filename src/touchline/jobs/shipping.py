"""What travels between machines: a player's build there, and the logs of programs back.

A build is packed once here and unpacked once on every node, into a folder that is named by what it
contains, so a node that has it from an earlier run unpacks nothing.
"""

import hashlib
import io
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from touchline.bounded import extract_within
from touchline.errors import RunError, UsageError
from touchline.operating_systems import own_temporary, replace_file

LIBRARIES = (".so", ".dll", ".dylib")
"""Files that Unity puts next to a player: UnityPlayer.so, GameAssembly.so."""
FOLDERS = ("MonoBleedingEdge", "D3D12")
"""Folders that Unity puts next to a player for Windows, which does not start without the first."""


@dataclass(frozen=True)
class Build:
    """A build as it travels."""

    digest: str
    player: str
    """The executable's path in the archive."""
    archive: Any
    """A tar file as bytes, or Ray's reference to them."""


def pack_build(player: Path) -> Build:
    """The executable, its `_Data` folder, and the libraries and their folders next to it.

    Raises a UsageError where a file cannot be read.
    """
    content = io.BytesIO()
    # A macOS application is a folder.
    bundle = next((p for p in player.parents if p.suffix == ".app"), None)
    root = player.parent if bundle is None else bundle.parent
    try:
        with tarfile.open(fileobj=content, mode="w") as archive:
            for path in _parts(player) if bundle is None else [bundle]:
                name = str(path.relative_to(root))
                archive.add(path, name, filter=_without_circumstances)
    except OSError as error:
        raise UsageError(f"--ship: cannot read {player}: {error.strerror}") from error
    packed = content.getvalue()
    digest = hashlib.sha256(packed).hexdigest()
    return Build(digest, str(player.relative_to(root)), packed)


def _parts(player: Path) -> Iterator[Path]:
    yield player
    for beside in sorted(player.parent.iterdir()):
        is_folder = beside.name in (f"{player.stem}_Data", *FOLDERS) and beside.is_dir()
        if is_folder or beside.suffix in LIBRARIES:
            yield beside


def _without_circumstances(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    # The same content has the same digest, whoever built it and whenever.
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def unpacked(
    build: Build, fetch: Callable[[Any], bytes], shared: Path | None = None
) -> Path:
    """The executable on this machine; `fetch` gives the bytes of the archive, if they are needed.

    `shared` is the folder for temporary files of all processes, by default that of this one. Raises
    a RunError where it cannot be written.
    """
    try:
        builds = own_temporary("touchline-builds", shared)
        folder = builds / build.digest[:16]
        # Several collectors of one node start at the same time.
        with FileLock(folder.with_suffix(".lock")):
            if not folder.exists():
                _unpack(fetch(build.archive), folder)
    except (OSError, tarfile.TarError) as error:
        raise RunError(f"--ship: cannot unpack the build: {error}") from error
    return folder / build.player


def _unpack(archive: bytes, folder: Path) -> None:
    """Whole or not at all."""
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for entry in files:
            extract_within(files, entry, part)
    replace_file(part, folder)


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
