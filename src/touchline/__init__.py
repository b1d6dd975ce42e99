"""Train the agents of Unity ML-Agents games from modern Python, with or without Unity.

Names are loaded when first used, so that importing touchline costs nothing. They are those of the
stub next to this file, which type checkers read.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

from touchline.adapters.gymnasium_names import register_when_imported
from touchline.version import __version__

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_bytes())
# Name -> the module that it is loaded from.
_HOME = {
    alias.name: node.module
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom) and node.module != "touchline.version"
    for alias in node.names
}
__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'touchline' has no attribute {name!r}")
    from touchline.extras import explain_missing

    with explain_missing(name):
        return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__


register_when_imported()
