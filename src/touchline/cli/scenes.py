"""`touchline scenes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from touchline.cli.output import show, show_json
from touchline.cli.progress import shown


def scenes(
    as_json: Annotated[
        bool, typer.Option("--json", help="As JSON instead of text.")
    ] = False,
) -> None:
    """List the built-in scenes with their sizes, presets and parameters."""
    from touchline.scenes import list_scenes
    from touchline.training.config.reading import preset_names

    with shown("scenes"):
        found = list_scenes()
    presets = preset_names()
    for scene in found:
        own = scene["scene"]
        scene["presets"] = [p for p in presets if p == own or p.startswith(f"{own}_")]
    if as_json:
        show_json(found)
        return
    for scene in found:
        for line in _lines(scene):
            show(line)


def _lines(scene: Mapping[str, Any]) -> Iterator[str]:
    yield f"{scene['scene']}: {_count(scene['areas'], 'area')}; {scene['picture']}"
    for name, size in scene["behaviors"].items():
        agents = _count(size["agents"], "agent")
        sensors = ["x".join(map(str, shape)) for shape in size["observations"]]
        actions = []
        if size["continuous"]:
            actions.append(f"{size['continuous']} continuous")
        if size["branches"]:
            actions.append(f"branches {size['branches']}")
        yield (
            f"  {name}: {agents} per area, observes {' + '.join(sensors)}; "
            f"actions: {', '.join(actions)}"
        )
    yield f"  touchline train {' | '.join(scene['presets']) or '(no preset)'}"
    if scene["parameters"]:
        yield f"  parameters: {', '.join(scene['parameters'])}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
