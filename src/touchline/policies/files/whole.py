"""Files that are written whole or not at all: a crash leaves the old one as it was."""

from __future__ import annotations

import os
from pathlib import Path

PART = ".part"
"""Suffix of a file that is not whole yet."""


def part_of(path: Path) -> Path:
    """Where `write_whole` collects a file's new content; a crash leaves it behind."""
    return path.with_name(f"{path.name}{PART}")


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file's content in one step, and make its folder if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(path)
    # What a crash left, or a link that would lead the content to a file elsewhere.
    part.unlink(missing_ok=True)
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            # Renaming is in one step only once the content is on the disk.
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
