"""Keyword options of every adapter: how to look at a world, and which world."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from touchline.envs.env import Env, EnvRecipe
from touchline.envs.ml_agents_names import MLAgentsWorld
from touchline.errors import UsageError
from touchline.parameters import ParameterValue

Worlds = (
    str
    | EnvRecipe
    | Env
    | MLAgentsWorld
    | Sequence[str | EnvRecipe | Env | MLAgentsWorld]
)
"""An ENV as people type it, a recipe, a world that is open already, or several of these."""


@dataclass(frozen=True)
class LayoutOptions:
    """How observations and actions are arranged for a learner."""

    join_vectors: bool = False
    """All vector sensors as one observation."""
    flatten_branches: bool = False
    """All discrete branches as one choice."""
    uint8_images: bool = False
    """Images as bytes from 0 to 255 instead of floats in [0, 1]."""
    name_single: bool = False
    """A single observation under its sensor's name, as several ones always are."""


class AdapterOptions(TypedDict, total=False):
    """Keyword arguments of every adapter: `LayoutOptions`, and fields of `EnvRecipe`."""

    join_vectors: bool
    flatten_branches: bool
    uint8_images: bool
    name_single: bool
    num_areas: int | None
    seed: int
    parameters: Mapping[str, ParameterValue]
    options: Mapping[str, Any]


def layout_options(options: Mapping[str, Any]) -> LayoutOptions:
    """Those of an adapter's options that are about the layout."""
    return LayoutOptions(
        **{name: options[name] for name in _LAYOUT_NAMES if name in options}
    )


def recipe_changes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of an adapter's options that are fields of a recipe.

    Raises a TypeError for an option that is nothing of the sort.
    """
    changes = {
        name: value for name, value in options.items() if name not in _LAYOUT_NAMES
    }
    unknown = sorted(changes.keys() - AdapterOptions.__annotations__.keys())
    if unknown:
        known = ", ".join(AdapterOptions.__annotations__)
        raise TypeError(
            f"unknown option {unknown[0]!r}; options of every adapter: {known}"
        )
    return changes


def made_of(env: Worlds, **options: Any) -> tuple[Worlds, dict[str, Any]]:
    """The arguments of an adapter, with which it can be made again in another process."""
    return env, options


def opened_again(
    kind: Callable[..., Any], made: tuple[Worlds, dict[str, Any]]
) -> tuple[Any, ...]:
    """What `__reduce__` returns for an adapter. Raises a UsageError where a world is open already,
    which cannot be opened again from here.
    """
    env, options = made
    entries = [env] if isinstance(env, str) or not isinstance(env, Sequence) else env
    if not all(isinstance(entry, str | EnvRecipe) for entry in entries):
        raise UsageError(
            "an adapter of a world that was open already cannot be pickled or copied; make it "
            "from an ENV or an EnvRecipe"
        )
    return functools.partial(kind, env, **options), ()


def with_changes(env: Worlds, changes: Mapping[str, Any]) -> Worlds:
    """An ENV or a recipe with these fields changed. Worlds that are open take no changes."""
    if isinstance(env, str | EnvRecipe):
        return EnvRecipe.parse(env, **changes)
    if changes:
        raise UsageError(
            f"{', '.join(changes)}: give these to the recipe of a world, not to a world that is "
            "open or to several"
        )
    return env


_LAYOUT_NAMES = frozenset(option.name for option in fields(LayoutOptions))
