"""ML-Agents' example scenes, rebuilt on open physics:

`SCENES` maps Unity's scene names to their modules. A scene of your own is named `module:Class`.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from touchline.errors import UsageError
from touchline.known_files import refuse_other_kinds
from touchline.plugins import imported, imported_from_here

if TYPE_CHECKING:
    from touchline.scenes.scene import Scene

SCENES = {
    "3DBall": "ball_3d:Ball3D",
    "3DBallHard": "ball_3d:Ball3DHard",
    "Visual3DBall": "visual_ball_3d:VisualBall3D",
    "Basic": "basic:Basic",
    "GridFoodCollector": "grid_food_collector.game:GridFoodCollector",
    "VisualFoodCollector": "grid_food_collector.visual:VisualFoodCollector",
    "GridWorld": "grid_world:GridWorld",
    "Pyramids": "pyramids.game:Pyramids",
    "DungeonEscape": "dungeon_escape.game:DungeonEscape",
    "Hallway": "hallway:Hallway",
    "PushBlock": "push_block:PushBlock",
    "CooperativePushBlock": "cooperative_push_block:CooperativePushBlock",
    "WallJump": "wall_jump.game:WallJump",
    "Sorter": "sorter:Sorter",
    "Match3": "match3.game:Match3",
    "SoccerTwos": "soccer.games:SoccerTwos",
    "Walker": "ragdolls.walker:Walker",
    "Crawler": "ragdolls.crawler:Crawler",
    "Worm": "ragdolls.worm:Worm",
    "StrikersVsGoalie": "soccer.games:StrikersVsGoalie",
}
"""Unity's scene name -> module and class; imported only when made, since physics takes time to
load."""

# Processor seconds until a scene's kernels are machine code, where it is not the usual time
# (measured with empty caches in November 2026, as is that).
_COMPILE_S = {
    "3DBall": 2,
    "3DBallHard": 2,
    "Visual3DBall": 4,
    "Basic": 1,
    "GridWorld": 2,
}
_USUAL_COMPILE_S = 15
MOST_AREAS = 1_000_000
"""No memory holds more areas of a scene."""


def scene_class(name: str) -> type[Scene]:
    """The class of a scene, by Unity's name for it, or by `module:Class` for any other."""
    if ":" in name:
        return _scene_of_another_module(name)
    if name not in SCENES:
        refuse_other_kinds(Path(name), "a scene's name")
        near = difflib.get_close_matches(name, SCENES, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"unknown scene {name!r}; {hint}scenes: {', '.join(SCENES)}")
    found: type[Scene] = imported(f"touchline.scenes.{SCENES[name]}")
    return found


def _scene_of_another_module(name: str) -> type[Scene]:
    from touchline.scenes.scene import Scene

    try:
        found = imported_from_here(name)
    except Exception as error:  # whatever the module raises when it is imported
        reason = f"{type(error).__name__}: {error}".replace("\n", " ")
        raise UsageError(f"the scene {name!r} cannot be loaded: {reason}") from error
    if not (isinstance(found, type) and issubclass(found, Scene)):
        raise UsageError(
            f"{name!r} is no scene: expected a subclass of touchline.scenes.scene.Scene"
        )
    return found


def compile_seconds(name: str) -> int:
    """About how long the first use of a scene compiles; 0 where that is not known."""
    if name not in SCENES:
        return 0
    return _COMPILE_S.get(name, _USUAL_COMPILE_S)


def list_scenes() -> list[dict[str, Any]]:
    """List the built-in scenes with their sizes, presets and parameters.

    Returns
    -------
    list
        Plain values: `scene`, `areas` (Unity's number), `about`, `behaviors` (full name ->
        `agents` in each area, `observations`, `continuous`, `branches`), `parameters`, and
        `picture`, a file of the repository.
    """
    found: list[dict[str, Any]] = []
    for name in SCENES:
        cls = scene_class(name)
        first_line = (cls.__doc__ or "").partition("\n")[0]
        found.append(
            {
                "scene": name,
                "areas": cls.unity_areas,
                "about": first_line,
                "behaviors": _sizes(cls),
                "parameters": list(cls.parameters),
                "picture": f"docs/images/{name}.png",
            }
        )
    return found


def _sizes(cls: type[Scene]) -> dict[str, Any]:
    scene = cls(1, 1)
    sizes = {}
    for name, spec in scene.academy.behaviors.items():
        action = spec.action_spec
        sizes[name] = {
            "agents": scene.capacity(name),
            "observations": [list(o.shape) for o in spec.observation_specs],
            "continuous": action.continuous_size,
            "branches": list(action.discrete_branches),
        }
    scene.close()
    return sizes
