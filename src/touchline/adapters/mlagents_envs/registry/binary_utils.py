"""Downloads: players in ZIP archives, unpacked once, and manifests of a registry."""

import hashlib
import stat
import tempfile
import urllib.request
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import yaml

from touchline.adapters.mlagents_envs.env_utils import validate_environment_path
from touchline.bounded import MOST_TEXT, read_text
from touchline.envs.player_process import SUFFIXES
from touchline.operating_systems import (
    SYSTEM,
    own_temporary,
    remove_folder,
    replace_file,
)

BLOCK_SIZE = 1 << 20
"""Bytes of a download between two lines about its progress."""
BAR_WIDTH = 20


def get_local_binary_path(name: str, url: str, tmp_dir: str | None = None) -> str:
    """The player of this name and address, downloaded unless that has been done.

    Raises a FileNotFoundError if the archive has none for this system.
    """
    path = get_local_binary_path_if_exists(name, url, tmp_dir)
    if path is None:
        download_and_extract_zip(url, name, tmp_dir)
        path = get_local_binary_path_if_exists(name, url, tmp_dir)
    if path is None:
        raise FileNotFoundError(f"{url}: no player for {SYSTEM} in this archive")
    return path


def get_local_binary_path_if_exists(
    name: str, url: str, tmp_dir: str | None
) -> str | None:
    """The player of this name and address if it was downloaded, at any depth of its archive."""
    suffixes = SUFFIXES.get(SYSTEM, ())
    for path in sorted(_folder_of(name, url, tmp_dir).rglob("*")):
        if path.suffix in suffixes and not path.name.startswith("UnityCrashHandler"):
            return validate_environment_path(str(path))
    return None


def get_tmp_dirs(tmp_dir: str | None = None) -> tuple[str, str]:
    """The folders of downloads and of unpacked players, which are made if they are missing."""
    name = "touchline-players"
    folder = Path(tmp_dir, name) if tmp_dir else own_temporary(name)
    both = folder / "downloads", folder / "players"
    for one in both:
        one.mkdir(parents=True, exist_ok=True)
    return str(both[0]), str(both[1])


def download_and_extract_zip(url: str, name: str, tmp_dir: str | None = None) -> None:
    """Download the archive again, unpack it, and let its files be executed."""
    target = _folder_of(name, url, tmp_dir)
    if target.exists():
        remove_folder(target)
    downloads, _ = get_tmp_dirs(tmp_dir)
    # Under its final name only when it is whole: a download may be cut off.
    with tempfile.TemporaryDirectory(dir=downloads) as part:
        archive, unpacked = Path(part, "player.zip"), Path(part, "unpacked")
        unpacked.mkdir()  # an archive may be empty
        with (
            urllib.request.urlopen(url, timeout=30) as reply,
            archive.open("wb") as out,
        ):
            size = int(reply.headers.get("content-length") or 0)
            while block := reply.read(BLOCK_SIZE):
                out.write(block)
                if size:
                    print_progress(f"Downloading {name}", 100 * out.tell() / size)
        with ZipFileWithProgress(archive) as files:
            files.extract_zip(f"Unpacking {name}", str(unpacked))
        _make_executable(unpacked)
        # Another process may have been quicker, and its player may run already.
        if not target.exists():
            replace_file(unpacked, target)


def print_progress(prefix: str, percent: float) -> None:
    """Print a bar over the one before; the line ends at 100 percent."""
    percent = min(100, max(0, percent))
    bar = "#" * int(percent / 100 * BAR_WIDTH)
    end = "\n" if percent == 100 else "\r"
    print(f"{prefix} [{bar:{BAR_WIDTH}}] {percent:3.0f}%", end=end, flush=True)  # noqa: T201


def load_remote_manifest(url: str) -> Any:
    """The manifest at this address, as `UnityEnvRegistry.register_from_yaml` describes it."""
    with urllib.request.urlopen(url, timeout=30) as reply:
        # A server may send without end.
        return yaml.safe_load(reply.read(MOST_TEXT).decode())


def load_local_manifest(path: str) -> Any:
    """The manifest in this file."""
    return yaml.safe_load(read_text(Path(path)))


class ZipFileWithProgress(ZipFile):
    """An archive that shows how far it is unpacked."""

    def extract_zip(self, prefix: str, path: str) -> None:
        """Unpack everything into a folder."""
        names = self.namelist()
        for number, name in enumerate(names, 1):
            # `zipfile` itself takes roots and `..` out of the names in an archive.
            self.extract(name, path)
            print_progress(prefix, 100 * number / len(names))


def _folder_of(name: str, url: str, tmp_dir: str | None) -> Path:
    _, players = get_tmp_dirs(tmp_dir)
    folder = Path(players, name)
    folder.mkdir(parents=True, exist_ok=True)
    # By address, too: a manifest may give another build under the same name.
    return folder / hashlib.sha256(url.encode()).hexdigest()[:16]


def _make_executable(folder: Path) -> None:
    """ZIP archives made on Windows do not say which files can be executed."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
