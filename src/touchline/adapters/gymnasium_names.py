"""Scenes under names that `gymnasium.make` and `gymnasium.make_vec` know, as `touchline/3DBall-v0`.

`import touchline` calls `register_when_imported`. Gymnasium, 1.0 and later, has no entry points for
other packages' environments: they register when they are imported, in the form
`gymnasium.make("touchline:touchline/3DBall-v0")` too. Importing touchline loads nothing heavy, so
the names are registered at once only if Gymnasium is there already, and else right after it is
imported. Environments themselves are loaded when they are made.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

REGISTRY = "gymnasium.envs.registration"
"""The module of Gymnasium with `register` and the registry."""
ADAPTER = "touchline.adapters.to_gymnasium"

OF_ONE_AGENT = (
    "3DBall",
    "3DBallHard",
    "Visual3DBall",
    "Basic",
    "GridWorld",
    "Pyramids",
    "Hallway",
    "PushBlock",
    "Sorter",
    "Walker",
    "Crawler",
    "Worm",
)
"""Scenes with one agent in each area, for `make` and `make_vec`."""
OF_SEVERAL_AGENTS: Mapping[str, Mapping[str, Any]] = {
    "GridFoodCollector": {},
    "VisualFoodCollector": {},
    "DungeonEscape": {},
    "CooperativePushBlock": {},
    "WallJump": {"group_by": "all"},
    "SoccerTwos": {"group_by": "base"},
}
"""Scenes for `make_vec` alone -> the options without which they cannot be shown as one table.
StrikersVsGoalie and Match3 are in neither list: their behaviors differ in what they observe."""


WITH_GAPS = frozenset({"Basic", "DungeonEscape", "WallJump"})
"""Scenes whose agents are gone between two episodes, so rows of `make_vec` are idle meanwhile."""


def register_when_imported() -> None:
    """Register all names now if Gymnasium is imported, else as soon as it is."""
    module = sys.modules.get(REGISTRY)
    if module is not None:
        register_names(module)
    elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        # In front, because the first finder that knows a module ends the search.
        sys.meta_path.insert(0, _AfterImport(REGISTRY, register_names))


def register_names(registration: ModuleType) -> None:
    """Register every name that is missing in `gymnasium.envs.registration`."""
    for scene in OF_ONE_AGENT:
        _register(registration, scene, "TouchlineEnv", {"env": scene})
    for scene, options in OF_SEVERAL_AGENTS.items():
        kwargs = {"env": scene, **options}
        _register(registration, scene, "refuse_single_agent", kwargs)
    _register(registration, "World", "TouchlineEnv", {})


def _register(
    registration: ModuleType, name: str, single: str, kwargs: Mapping[str, Any]
) -> None:
    full_name = f"touchline/{name}-v0"
    # Gymnasium warns of a second registration, and a user may have replaced the name on purpose.
    if full_name in registration.registry:
        return
    vector = "WithIdleRows" if name in WITH_GAPS else "TouchlineVectorEnv"
    registration.register(
        full_name,
        entry_point=f"{ADAPTER}:{single}",
        vector_entry_point=f"{ADAPTER}:{vector}",
        kwargs=dict(kwargs),
        # A Unity process does not promise the same course of events for the same seed.
        nondeterministic=name == "World",
    )


class _AfterImport:
    """A finder in `sys.meta_path`: calls `then` with a module right after its import, once."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then = name, then

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            self._then(module)

        # On this loader alone, which serves this one import.
        vars(spec.loader)["exec_module"] = execute_and_register
        return spec
