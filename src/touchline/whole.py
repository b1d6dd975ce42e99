"""Files that are written whole or not at all: a crash leaves the old one as it was."""

import os
from pathlib import Path

from touchline.errors import FileHeldError, UsageError
from touchline.operating_systems import remove_file, replace_file

PART = ".part"
"""Suffix of a file that is not whole yet."""


def part_of(path: Path) -> Path:
    """Where `write_whole` collects a file's new content; a crash leaves it behind."""
    return path.with_name(f"{path.name}{PART}")


def require_writable(path: Path) -> None:
    """Raise a UsageError for a file that `write_whole` could not write, before it is worked for."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    # Permissions do not say it all: not of /proc to root, nor of folders on Windows.
    trial = folder / f"{path.name}.{os.getpid()}{PART}"
    try:
        trial.open("xb").close()
        remove_file(trial)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written: {folder} is no folder that you may write to "
            f"({error.strerror})"
        ) from error
    if path.is_dir():
        raise UsageError(f"{path}: cannot be written: it is a folder")


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file's content in one step, and make its folder if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(path)
    # What a crash left, or a link that would lead the content to a file elsewhere.
    remove_file(part)
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            # Renaming is in one step only once the content is on the disk.
            os.fsync(file.fileno())
        replace_file(part, path)
    # The new content stays where it is: it may be hours of training.
    except FileHeldError as held:
        raise FileHeldError(f"{held}; what was to be in it is in {part}") from held
    except BaseException:
        part.unlink(missing_ok=True)
        raise
