"""Temporary files of processes on a node, which go with their process, however it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def removed_when_over(folder: str) -> tuple[int, ...]:
    """Remove a folder when no process holds these descriptors any more, however it ended.

    A process that is killed removes nothing, so a shell waits for the ends of all. It is no child
    of this process, whose children Ray kills with it.
    """
    if sys.platform == "win32":
        return ()
    reading, writing = os.pipe()
    waiting = 'exec 3<&0; (cat <&3; rm -rf -- "$1") >/dev/null 2>&1 &'
    subprocess.run(
        ["sh", "-c", waiting, "sh", folder],
        stdin=reading,
        start_new_session=True,
        check=True,
    )
    os.close(reading)
    return (writing,)


def keep_temporary_files_apart() -> Path:
    """From now on this process makes its temporary files in a folder of its own.

    Gives the folder of before, which is that of all processes.
    """
    shared = Path(tempfile.gettempdir())
    if sys.platform != "win32":
        tempfile.tempdir = tempfile.mkdtemp(prefix="touchline-collector-")
        removed_when_over(tempfile.tempdir)
    return shared
