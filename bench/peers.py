"""Where the official packages are, with which some benchmarks compare."""

import os
from pathlib import Path

from touchline.log import Log

OFFICIAL = Path(__file__).parent / "official"
"""Scripts for the Python that has the official packages."""


def official_trainer(log: Log) -> str | None:
    """The Python that has `mlagents`; None, and a line that says so, where there is none."""
    python = os.environ.get("OFFICIAL_LEARN_PYTHON", ".venv-official-learn/bin/python")
    if os.access(python, os.X_OK):
        return python
    log(
        "the official trainer is not here (make interop, or OFFICIAL_LEARN_PYTHON); "
        "measuring without it"
    )
    return None
