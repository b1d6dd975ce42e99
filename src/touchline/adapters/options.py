"""Keyword options of every adapter: how to look at a world, and which world."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypedDict, cast

from touchline.envs.env import Env, EnvRecipe
from touchline.envs.ml_agents_names import MLAgentsWorld
from touchline.errors import UsageError
from touchline.parameters import ParameterValue

OneWorld = str | EnvRecipe | Env | MLAgentsWorld
"""An ENV as people type it, a recipe, or a world that is open already."""
Worlds = OneWorld | Sequence[OneWorld]


class LayoutOptions(TypedDict, total=False):
    """How observations and actions are arranged for a learner; all are off by default."""

    join_vectors: bool
    """All vector sensors as one observation."""
    flatten_branches: bool
    """All discrete branches as one choice."""
    uint8_images: bool
    """Images as bytes from 0 to 255 instead of floats in [0, 1]."""
    name_single: bool
    """A single observation under its sensor's name, as several ones always are."""


class AdapterOptions(LayoutOptions, total=False):
    """Keyword arguments of every adapter: `LayoutOptions`, and fields of `EnvRecipe`."""

    num_areas: int | None
    seed: int
    parameters: Mapping[str, ParameterValue]
    options: Mapping[str, Any]


def layout_options(options: Mapping[str, Any]) -> LayoutOptions:
    """Those of an adapter's options that are about the layout."""
    own = {name: v for name, v in options.items() if name in _LAYOUT_NAMES}
    return cast("LayoutOptions", own)


def recipe_changes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of an adapter's options that are fields of a recipe.

    Raises a TypeError for an option that is nothing of the sort.
    """
    changes = {name: v for name, v in options.items() if name not in _LAYOUT_NAMES}
    unknown = sorted(changes.keys() - AdapterOptions.__annotations__.keys())
    if unknown:
        known = ", ".join(AdapterOptions.__annotations__)
        raise TypeError(
            f"unknown option {unknown[0]!r}; options of every adapter: {known}"
        )
    return changes


def checked_render_mode(render_mode: str | None) -> str | None:
    """The same. Raises a UsageError for one that no adapter has."""
    if render_mode not in (None, "rgb_array"):
        raise UsageError(
            f"render_mode: expected None or 'rgb_array', got {render_mode!r}"
        )
    return render_mode


class OpenedAgain:
    """An adapter whose copies open the same worlds again, and begin with a reset.

    A world that is open already cannot be opened again from here: then a copy is a UsageError.
    """

    _made_of: tuple[Worlds, dict[str, Any]]

    def __new__(cls, env: Worlds, **options: Any) -> Self:
        made: Self = super().__new__(cls)
        made._made_of = env, options
        return made

    def __reduce__(self) -> Any:
        env, options = self._made_of
        entries = (
            [env] if isinstance(env, str) or not isinstance(env, Sequence) else env
        )
        if not all(isinstance(entry, str | EnvRecipe) for entry in entries):
            raise UsageError(
                "an adapter of a world that was open already cannot be pickled or copied; make it "
                "from an ENV or an EnvRecipe"
            )
        # What `__reduce__` returns has no place for keywords.
        return functools.partial(type(self), env, **options), ()


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


_LAYOUT_NAMES = LayoutOptions.__annotations__.keys()
