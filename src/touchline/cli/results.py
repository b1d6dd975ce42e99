"""What is done around a verb's function, where that takes more than a line.

The first parameter is the call with what was typed; the others are flags that only the command has.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from touchline.cli.generate import Call, show_figures
from touchline.cli.output import log, show, show_json
from touchline.cli.progress import shown
from touchline.errors import UsageError
from touchline.flag import Flag
from touchline.interrupts import STOPPED_EARLY
from touchline.log import now_and_then


def evaluate(
    call: Call,
    opponents: Annotated[str | None, Flag(metavar="A,B,...")] = None,
    as_json: bool = False,
) -> None:
    """Evaluate, also against named opponents.

    Parameters
    ----------
    opponents
        MicroRTS: play the episodes against each of these bots.
    """
    from touchline.training.evaluation import evaluate_opponents

    figures: Mapping[str, Any]
    if opponents is None:
        figures = call.with_progress()
    else:
        given = {"env": call.recipe, **call.values}
        for name in ("versus", "record_wire"):
            if given.pop(name, None):
                flag = name.replace("_", "-")
                raise UsageError(f"--{flag} and --opponents: leave one out")
        with shown(f"eval {call.target}", "games") as progress:
            table = evaluate_opponents(
                opponents=[name.strip() for name in opponents.split(",")],
                progress=progress,
                **given,
            )
        figures = {"policy": ", ".join(given["policy"]), **table}
    # As it was typed; a recipe knows only its target.
    # First for its place in the output, then again over what the figures have there.
    figures = {"scene": call.target, **figures} | {"scene": call.target}
    show_figures(call, figures, as_json=as_json)


def exploit(call: Call, as_json: bool = False) -> None:
    # The training has lines of its own, so no bar is shown.
    figures = call(progress=now_and_then(log, "measuring", "games"))
    show_figures(call, figures, as_json=as_json)


def parity(
    call: Call,
    player: Annotated[str | None, Flag("--env", "PLAYER")] = None,
    statistics: Annotated[Path | None, Flag(metavar="FILE.json")] = None,
    as_json: bool = False,
) -> None:
    """Compare with Unity.

    Parameters
    ----------
    player
        The Unity player to compare with.
    statistics
        Figures to compare with, written by --save.
    """
    if player is not None and statistics is not None:
        raise UsageError("give --env or --statistics to compare with, not both")
    if statistics is not None and statistics.suffix != ".json":
        raise UsageError(f"--statistics {statistics}: expected a file NAME.json")
    figures = call.with_progress(reference=player or statistics)
    show_figures(call, figures, as_json=as_json)


def play(
    call: Call,
    width: Annotated[int, Flag(min=16)] = 640,
    height: Annotated[int, Flag(min=16)] = 480,
) -> None:
    """Play or film.

    Parameters
    ----------
    width
        Width of the picture in pixels.
    height
        Height of the picture in pixels.
    """
    call.with_progress(size=(width, height))


def tune(call: Call) -> None:
    exit_if_stopped(call())


def exit_if_stopped(result: Any) -> None:
    """Say how to continue a run or a study that Ctrl-C ended, and end the command."""
    if result.interrupted:
        same = f"the same command with --resume --run-id {result.folder.name}"
        log(f"stopped early, all is saved; to continue: {same}")
        raise typer.Exit(STOPPED_EARLY)


def view(call: Call) -> None:
    """Show the page of a world or of a run until Ctrl-C, or save a replay."""
    from touchline.policies.files.run_layout import has_runs

    given: dict[str, Any] = {}
    if has_runs(call.target):
        given = {"env": call.target, "about_world": call.about_world}
    if call.values.get("save") is None:
        call(**given)
    else:
        with shown(f"view {call.target}", call.verb.unit) as progress:
            call(progress=progress, **given)


def record(call: Call) -> None:
    """Record episodes, and say what each file holds."""
    from touchline.training.demonstrations import read_demonstration

    for path in call.with_progress():
        log(f"wrote {path}")
        log(read_demonstration(path).lines[0])


def inspect(
    call: Call,
    as_json: bool = False,
    record: Annotated[str | None, Flag(metavar="FILE.mp4")] = None,
) -> None:
    """Inspect a world or a demonstration.

    Parameters
    ----------
    as_json
        The specs as JSON instead of text.
    record
        Film what a demonstration's cameras saw.
    """
    from touchline.envs import inspection

    path = call.target
    if Path(path).suffix == ".demo":
        _inspect_demonstration(path, as_json=as_json)
        if record is not None:
            from touchline.film import film_demonstration

            film_demonstration(path, record)
        return
    if record is not None:
        raise UsageError(
            f"--record films a demonstration (*.demo), not {path}; touchline play films a scene"
        )
    if not as_json:
        show(call.with_progress())
        return
    assert call.recipe is not None
    with shown(f"inspect {path}", recipe=call.recipe):
        found = inspection.inspect(call.recipe)
    show_json({"env": path, "behaviors": found})


def _inspect_demonstration(path: str, *, as_json: bool) -> None:
    from touchline.training.demonstrations import (
        describe_demonstration,
        inspect_demonstration,
    )

    figures = inspect_demonstration(path)
    if as_json:
        show_json({"demo": path, **figures})
    else:
        show("\n".join(describe_demonstration(figures)))


def doctor(call: Call, as_json: bool = False) -> None:
    """Examine a world or a run.

    Parameters
    ----------
    as_json
        The report as JSON instead of text.
    """
    from touchline.doctor import findings
    from touchline.policies.files.run_layout import has_runs

    target = call.target
    if has_runs(target):
        if as_json:
            show_json({"run": target, "findings": findings(target)})
        else:
            call(log=show)
        return
    lines: list[str] = []
    works = call(log=lines.append if as_json else show)
    if as_json:
        show_json({"env": target, "works": works, "report": lines})
    if not works:
        raise typer.Exit(1)


def build(call: Call) -> None:
    log(f"wrote {call.with_progress()}")


def export(call: Call) -> None:
    """Export a policy, convert a configuration, or draw a figure."""
    log(f"wrote {call()}")


def push(call: Call) -> None:
    """Upload a run, or show what would be uploaded."""
    # Lines of a log cannot be redrawn as the library's bars are.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    upload = call()
    if upload.url is not None:
        show(upload.url)
        return
    for name, size in upload.files.items():
        show(f"{size:12,}  {name}")
    show(f"\n{upload.card}")


def pull(call: Call) -> None:
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # as in `push`
    show(str(call()))


def bench(call: Call) -> None:
    show_json(call())


def scenes(call: Call, as_json: bool = False) -> None:
    """List the scenes.

    Parameters
    ----------
    as_json
        As JSON instead of text.
    """
    from touchline.training.config.reading import preset_names

    found = call.with_progress()
    presets = preset_names()
    for scene in found:
        own = scene["scene"]
        scene["presets"] = [p for p in presets if p == own or p.startswith(f"{own}_")]
    if as_json:
        show_json(found)
        return
    for scene in found:
        for line in _scene_lines(scene):
            show(line)
    of_scenes = {preset for scene in found for preset in scene["presets"]}
    others = [preset for preset in presets if preset not in of_scenes]
    if others:
        show(f"Of other worlds: touchline train {' | '.join(others)}")


def _scene_lines(scene: Mapping[str, Any]) -> Iterator[str]:
    yield f"{scene['scene']}: {_count(scene['areas'], 'area')} in Unity. {scene['about']}"
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
