"""How many processor cores there are for this process."""

from __future__ import annotations

import os
import platform


def num_cores() -> int:
    """Processor cores that this process may use, which a container may limit."""
    if platform.system() == "Linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
