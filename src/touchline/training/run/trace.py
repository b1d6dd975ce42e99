"""What replays the steps that led to NaN: the worlds' state after the last update, and all actions
since.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.envs.env import EnvRecipe
from touchline.envs.side_by_side import SideBySide
from touchline.envs.slots import Slots
from touchline.specs import ActionTuple

MAX_STEPS = 10_000
"""A replay goes back at most this many steps."""


class Trace:
    """The latest actions of all slots, and the state of the worlds before them."""

    def __init__(self, slots: Slots | SideBySide) -> None:
        self._slots = slots
        self._start: Mapping[str, NDArray[Any]] = {}
        self._actions: list[Mapping[str, ActionTuple]] | None = None

    def clear(self) -> None:
        """Start again with the next actions."""
        self._actions = None

    def add(self, actions: Mapping[str, ActionTuple]) -> None:
        """Remember the actions that are about to be sent."""
        if self._actions is None or len(self._actions) == MAX_STEPS:
            # Worlds that cannot be saved have no start, only actions.
            self._start, self._actions = self._slots.state() or {}, []
        self._actions.append(actions)

    def save(self, path: Path, recipe: EnvRecipe, seed: int) -> None:
        """Write state and actions [slots, ...] as an .npz file."""
        arrays = {f"state/{name}": array for name, array in self._start.items()}
        for step, actions in enumerate(self._actions or []):
            for name, given in actions.items():
                arrays[f"actions/{step}/{name}/continuous"] = given.continuous
                arrays[f"actions/{step}/{name}/discrete"] = given.discrete
        np.savez_compressed(path, recipe=repr(recipe), seed=seed, **arrays)  # type: ignore[arg-type]
