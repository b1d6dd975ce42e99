"""The files of the MicroRTS engine on this machine: its jar, its maps and its bots.

The engine is data to Touchline: its Python package is never imported. It is looked for at the path
that a user gives, in an installed `gym-microrts`, and in the user's cache, which
`touchline.microrts.download.fetch` fills.

Licenses: engine, maps and jar are GPL-3.0. The jars of the competition bots carry no license text,
so they are unpacked only on request. The hashes are those of gym-microrts 0.6.0 on PyPI, see
`docs/microrts.md`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from copy import copy
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from importlib import metadata
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from touchline.bounded import extract_within
from touchline.errors import MissingError, UsageError
from touchline.operating_systems import replace_file, user_cache

PACKAGE = "gym-microrts"
VERSION = "0.6.0"
SDIST_SHA256 = "b88bb9cba6e7686bb98a62f1f8123bda0fa43109b5e7ea9d4e02c9bc5f65ec4e"
JAR_SHA256 = "ea684bb9d51191e63f3d5df41d1d4520297de0661b8bd584892fe47f1d8c3f37"
_JAR = "microrts.jar"
_INSIDE_SDIST = "/gym_microrts/microrts/"
_OWN_MAPS = Path(__file__).with_name("maps")
_WALL = ord("1")  # terrain is one character per cell: 0 open, 1 wall


class EngineError(UsageError):
    """The engine's files are not what they should be."""


@dataclass(frozen=True)
class Engine:
    """A folder that holds `microrts.jar`, `maps/` and optionally bot jars in `lib/bots/`."""

    folder: Path

    @property
    def jar(self) -> Path:
        return self.folder / _JAR

    @property
    def bot_jars(self) -> list[Path]:
        return sorted((self.folder / "lib" / "bots").glob("*.jar"))

    @cached_property
    def maps(self) -> dict[str, Path]:
        """Map name, such as `16x16/basesWorkers16x16`, -> file."""
        root = self.folder / "maps"
        found = {}
        for file in sorted(root.rglob("*.xml")):
            name = PurePosixPath(file.relative_to(root)).with_suffix("")
            found[str(name)] = file
        return found

    def map_file(self, name: str) -> Path:
        """The file of a map.

        The name may be `maps/8x8/basesWorkers8x8.xml`, `8x8/basesWorkers8x8` or `basesWorkers8x8`,
        and one of ours, such as `lastWorker8x8A`.
        Raises a UsageError for an unknown name, and for a short one that several maps have.
        """
        wanted = name.removesuffix(".xml").removeprefix("maps/")
        own = _OWN_MAPS / f"{wanted}.xml"
        if own.is_file():
            return own
        if wanted in self.maps:
            return self.maps[wanted]
        matches = [key for key in self.maps if PurePosixPath(key).name == wanted]
        if len(matches) == 1:
            return self.maps[matches[0]]
        if matches:
            raise UsageError(
                f"microrts: several maps are called {name!r}: {', '.join(matches)}; "
                "write one of these"
            )
        raise UsageError(f"microrts: unknown map {name!r}{self._nearest_maps(wanted)}")

    def _nearest_maps(self, wanted: str) -> str:
        """The end of an error message: maps with similar names."""
        by_short_name = {PurePosixPath(key).name: key for key in self.maps}
        similar = get_close_matches(
            PurePosixPath(wanted).name, by_short_name, n=5, cutoff=0.5
        )
        where = f"; {len(self.maps)} maps are in {self.folder / 'maps'}"
        if not similar:
            return where
        names = ", ".join(by_short_name[short_name] for short_name in similar)
        return f"; nearest names: {names}{where}"


@dataclass(frozen=True)
class GameMap:
    """The part of a map file that the environment needs; the engine reads the file itself."""

    name: str
    file: Path
    height: int
    width: int
    walls: NDArray[np.bool_]
    """[height, width], True where no unit can stand."""

    @staticmethod
    def read(engine: Engine, name: str) -> GameMap:
        """Raises a UsageError for an unknown map, an EngineError for a damaged file."""
        file = engine.map_file(name)
        root = ElementTree.parse(file).getroot()
        height = int(root.attrib["height"])
        width = int(root.attrib["width"])
        terrain = (root.findtext("terrain") or "").strip()
        if len(terrain) != height * width:
            raise EngineError(
                f"{file}: expected a terrain of {height * width} cells, got {len(terrain)}"
            )
        cells = np.frombuffer(terrain.encode(), np.uint8)
        walls = (cells == _WALL).reshape(height, width)
        return GameMap(file.stem, file, height, width, walls)


def find_engine(path: str | Path | None = None) -> Engine:
    """The engine at `path` (a folder, a jar or an sdist).

    Without `path`: that of an installed gym-microrts, else the one in the user's cache. Raises a
    MissingError that lists the ways to get it.
    """
    if path is not None:
        return _from_path(Path(path).expanduser())
    for folder in (_installed(), cache_folder()):
        if folder is not None and (folder / _JAR).is_file():
            return Engine(folder)
    raise MissingError(
        "the MicroRTS engine was not found (GPL-3.0, not shipped with Touchline). "
        "Three ways to get it: run `touchline microrts fetch`, which fills the cache; "
        f"`pip install --no-deps --ignore-requires-python {PACKAGE}=={VERSION}`; "
        "or give its folder, jar or sdist: microrts:MAP?engine=PATH"
    )


def cache_folder() -> Path:
    """Where `fetch` puts the engine; the variable TOUCHLINE_CACHE overrides the system's place."""
    root = os.environ.get("TOUCHLINE_CACHE") or user_cache() / "touchline"
    return Path(root) / f"microrts-{VERSION}"


def check_hash(file: Path, expected: str) -> None:
    """Raise an EngineError unless the file has this SHA-256."""
    found = sha256_of(file)
    if found != expected:
        raise EngineError(
            f"{file.name}: expected SHA-256 {expected}, got {found}; it was refused and nothing "
            "was unpacked. Delete it and fetch again, or check what your package index serves"
        )


def sha256_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def unpack(sdist: Path, folder: Path, *, bots: bool) -> None:
    """Replace `folder` by the jar, maps and license of an sdist, and its bots where wanted."""
    # The folder appears all at once, so an interrupted call leaves no half of an engine.
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=folder.name + "-", dir=folder.parent))
    try:
        with tarfile.open(sdist) as archive:
            for member in archive:
                _, _, name = member.name.partition(_INSIDE_SDIST)
                if member.isfile() and _is_needed(name, bots=bots):
                    renamed = copy(member)
                    renamed.name = name
                    # Names that lead out of the folder, as `maps/../..` would, are refused.
                    extract_within(archive, renamed, staging)
        # A folder cannot be moved to where another one holds files.
        shutil.rmtree(folder, ignore_errors=True)
        replace_file(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _is_needed(name: str, *, bots: bool) -> bool:
    if name in (_JAR, "LICENSE") or name.startswith("maps/"):
        return True
    return bots and name.startswith("lib/bots/")


def _from_path(path: Path) -> Engine:
    if path.is_dir():
        # The engine itself, the Python package around it, and an unpacked sdist.
        for folder in (path, path / "microrts", path / "gym_microrts" / "microrts"):
            if (folder / _JAR).is_file():
                return Engine(folder)
        raise MissingError(
            f"microrts: no microrts.jar in {path}; give the engine's folder, its jar or its sdist"
        )
    if not path.is_file():
        raise MissingError(
            f"microrts: {path} does not exist; give the engine's folder, its jar or its sdist"
        )
    if path.suffix == ".jar":
        return Engine(path.parent)
    check_hash(path, SDIST_SHA256)
    folder = cache_folder()
    if not (folder / _JAR).is_file():
        # A user who downloaded the whole sdist has the bots already.
        unpack(path, folder, bots=True)
    return Engine(folder)


def _installed() -> Path | None:
    """The engine's folder in an installed gym-microrts; found without importing the package."""
    try:
        located = metadata.distribution(PACKAGE).locate_file("gym_microrts/microrts")
    except metadata.PackageNotFoundError:
        return None
    return Path(str(located))
