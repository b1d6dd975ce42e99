"""Train the agents of Unity ML-Agents games from modern Python, with or without Unity.

Names are loaded when first used, so that importing touchline costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "ActionSpec": "specs",
    "ActionTuple": "specs",
    "BehaviorSpec": "specs",
    "DimensionProperty": "specs",
    "ObservationSpec": "specs",
    "ObservationType": "specs",
    "DecisionStep": "steps",
    "DecisionSteps": "steps",
    "TerminalStep": "steps",
    "TerminalSteps": "steps",
    "Env": "envs.env",
    "EnvRecipe": "envs.env",
    "make": "envs.env",
    "Slots": "envs.slots",
    "SlotRows": "envs.slots",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'touchline' has no attribute {name!r}")
    return getattr(import_module(f"touchline.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
