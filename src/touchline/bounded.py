"""Files from outside, read within limits.

Anything that a user was sent, downloaded or found may be broken or hostile. Its size is compared
with a stated limit, and what it announces (depth, counts, shapes) with its own length, before
memory is requested. Every failure is a UsageError of one line that names the file.
"""

import json
import os
import stat
import tarfile
from pathlib import Path
from typing import Any

from touchline.errors import UsageError

MIB = 1 << 20
MOST_TEXT = 1_000_000
"""Bytes of a configuration: the YAML parser reads a megabyte in some seconds."""
MOST_JSON = 64 * MIB
"""Bytes of a run's status or figures; 10,000 evaluations are 2 MB."""
MOST_TABLE = 256 * MIB
"""Bytes of a metrics.csv; a million rows."""
MOST_DATA = 2048 * MIB
"""Bytes of a demonstration, a model or a recording: protobuf reads no more."""


def read_bounded(path: Path, most: int) -> bytes:
    """The bytes of a file of at most `most` bytes; a device or a pipe is refused."""
    try:
        # A device never ends, and opening a pipe waits for its writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(22, "it is no regular file")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            # A read takes the memory that it is called with, so not that of the limit.
            data = b"" if size > most else file.read(size)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if size > most:
        raise UsageError(f"{path}: larger than {most:,} bytes")
    return data


def extract_within(
    archive: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path
) -> None:
    """Unpack one entry of an archive into a folder.

    Raises a TarError for one that leads out of it, by its name or as a link.
    """
    if "data_filter" in vars(tarfile):
        archive.extract(entry, folder, filter="data")
        return
    # Before Python 3.11.4, which Debian 12 does not have, nothing is looked at.
    root = folder.resolve()
    at = root / entry.name
    ends = [at]
    if entry.issym():
        ends.append(at.parent / entry.linkname)
    elif entry.islnk():
        ends.append(root / entry.linkname)
    elif not (entry.isreg() or entry.isdir()):
        raise tarfile.ExtractError(f"{entry.name}: neither a file nor a folder")
    if not all(end.resolve().is_relative_to(root) for end in ends):
        raise tarfile.ExtractError(f"{entry.name}: leads out of the folder")
    # The owner alone can write, and no program runs with its owner's rights.
    entry.mode = entry.mode & 0o755 | (0o700 if entry.isdir() else 0o600)
    archive.extract(entry, folder)


def read_text(path: Path, most: int = MOST_TEXT) -> str:
    """The text of a file of at most `most` bytes."""
    try:
        # Editors of Windows begin files with a byte order mark.
        return read_bounded(path, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file ({error.reason})") from None


def read_json(path: Path, most: int = MOST_JSON) -> dict[str, Any]:
    """The keys and values of a JSON file."""
    data = read_bounded(path, most)
    try:
        found = json.loads(data)
    except RecursionError:
        raise UsageError(f"{path}: not JSON of a run: nested too deeply") from None
    except ValueError as error:  # also bytes that are no text
        raise UsageError(f"{path}: not JSON, or cut short ({error})") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}: expected keys and values, got {str(found)[:80]!r}")
    return found
