"""A training run on the page: its newest checkpoint plays, or one that is chosen; its curve.

A second checkpoint can play beside, in a world of its own from the same state.

Only files are read, so the run may be underway in another process, or over.
"""

from __future__ import annotations

import glob
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import viser

from touchline.bounded import read_json
from touchline.envs.scene_env import SceneEnv
from touchline.errors import UsageError
from touchline.policies.files.run_layout import CHECKPOINT, RunLayout
from touchline.policies.policy import SlotActor
from touchline.training.run.figures import SCORES, RunFigures, read_run_figures
from touchline.viewer.beside import Beside
from touchline.viewer.curve import add_curve, draw_curve
from touchline.viewer.scene_simulation import SceneSimulation
from touchline.viewer.sheet import text_html

LATEST, NO_OTHER = "latest", "none"
LOOK_S = 2.0
"""Between two looks at the run's files."""

Load = Callable[[Sequence[str]], Mapping[str, SlotActor]]


class StillStartingError(UsageError):
    """A run that has nothing to show yet."""


def world_of(run: Path) -> tuple[str, str]:
    """The kind of world that a run learns in, and which one (`EnvRecipe`).

    Raises a StillStartingError where the run does not say so yet.
    """
    path = RunLayout(run).status
    try:
        about = read_json(path)
        return str(about["world"]), str(about["target"])
    except (UsageError, OSError, KeyError) as error:
        raise StillStartingError(
            f"{run}: the run is still starting and has saved no checkpoint yet, or its {path.name} "
            "is damaged"
        ) from error


def sources_of(run: Path, choice: str = LATEST) -> list[str]:
    """One checkpoint for each behavior: the latest, or that of so many steps where it has one.

    Raises a StillStartingError for a run without checkpoints.
    """
    layout = RunLayout(run)
    latest = layout.checkpoints()
    if not latest:
        raise StillStartingError(f"{run}: the run has saved no checkpoint yet")
    sources = []
    for name, path in latest.items():
        # Nineteen digits are more steps than any run makes, and Python refuses thousands of them.
        is_number = choice.isdecimal() and len(choice) < 20
        own = layout.numbered(name, int(choice)) if is_number else path
        sources.append(f"{name}={own if own.is_file() else path}")
    return sources


def steps_of(run: Path) -> list[int]:
    """After how many steps there are checkpoints, the newest first."""
    found = set()
    for name in RunLayout(run).checkpoints():
        # The name of a behavior may hold brackets, which mean a choice of characters.
        pattern = f"{glob.escape(name)}-*{CHECKPOINT}"
        for path in RunLayout(run).folder(name).glob(pattern):
            steps = path.stem.removeprefix(f"{name}-")
            if steps.isdecimal() and len(steps) < 20:
                found.add(int(steps))
    return sorted(found, reverse=True)


class RunPanel:
    def __init__(
        self,
        server: viser.ViserServer,
        simulation: SceneSimulation,
        run: Path,
        load: Load,
        make: Callable[[], SceneEnv],
    ) -> None:
        """`load` makes actors from sources as `sources_of` gives them, `make` a second world."""
        self._simulation = simulation
        self._run = run
        self._load = load
        self._make = make
        self._looked_s = -math.inf
        self._choice = LATEST
        self._other = NO_OTHER
        self._other_playing: tuple[Any, ...] | None = None
        self._playing = self._stamp(self._choice)
        gui = server.gui
        with gui.add_folder(f"Run {run.name}", order=-1.0):
            self._checkpoint = gui.add_dropdown(
                "Checkpoint", (LATEST,), initial_value=LATEST
            )
            self._checkpoint.on_update(self._choose)
            self._beside = gui.add_dropdown(
                "Beside",
                (NO_OTHER, LATEST),
                initial_value=NO_OTHER,
                hint="Another checkpoint, in a second world from the same state.",
            )
            self._beside.on_update(self._choose)
            self._scores = gui.add_html("")
            self._curve = add_curve(gui, "steps", "return")
            self._note = gui.add_html("")

    def refresh(self) -> None:
        """Look at the run's files now and then: offer checkpoints, play a newer one, draw."""
        self._show_scores()
        now = time.monotonic()
        if now - self._looked_s < LOOK_S:
            return
        self._looked_s = now
        options = (LATEST, *map(str, steps_of(self._run)))
        if tuple(self._checkpoint.options) != options:
            self._checkpoint.options = options
            self._beside.options = (NO_OTHER, *options)
        try:
            self._play_newest()
            self._play_beside()
            self._draw(read_run_figures(self._run)[0])
        # The run may be deleted, or started over, while it is followed.
        except (UsageError, OSError) as error:
            self._note.content = text_html(str(error))

    async def _choose(self, _: Any) -> None:
        self._choice = self._checkpoint.value
        self._other = self._beside.value
        self._looked_s = -math.inf

    def _play_newest(self) -> None:
        """Let the chosen checkpoint play, if it is not the one that plays already."""
        stamp = self._stamp(self._choice)
        if stamp == self._playing:
            return
        actors = self._load(sources_of(self._run, self._choice))
        self._playing = stamp
        simulation = self._simulation
        simulation.order("actors", lambda: simulation.replace_actors(actors))

    def _play_beside(self) -> None:
        """Let the other checkpoint play in a second world, from where the first is now."""
        simulation = self._simulation
        other = None if self._other == NO_OTHER else self._stamp(self._other)
        if other == self._other_playing:
            return
        beside = None
        if other is not None:
            actors = self._load(sources_of(self._run, self._other))
            beside = Beside(self._make(), actors, self._other)
        self._other_playing = other
        simulation.order("beside", lambda: simulation.set_beside(beside))

    @property
    def names(self) -> tuple[str, str] | None:
        """What plays in this world and in the one beside; None where there is one alone."""
        beside = self._simulation.beside
        if beside is None:
            return None
        is_same = beside.name == self._choice
        return self._choice, f"{beside.name}, beside" if is_same else beside.name

    def _show_scores(self) -> None:
        beside = self._simulation.beside
        text = ""
        if beside is not None:
            scores = [self._choice, self._simulation.score], [beside.name, beside.score]
            text = "".join(text_html(f"{name}: {score}") for name, score in scores)
        self._scores.content = text

    def _stamp(self, choice: str) -> tuple[Any, ...]:
        """Changes when another checkpoint is to play."""
        stamps = []
        for source in sources_of(self._run, choice):
            path = Path(source.partition("=")[2])
            # The newest checkpoint keeps its name, so only its time shows that it is another one.
            stamps.append((source, path.stat().st_mtime_ns))
        return tuple(stamps)

    def _draw(self, figures: RunFigures) -> None:
        metric = figures.score_name
        if not metric:
            return
        known = ~np.isnan(figures.columns[metric])
        step, score = figures.columns["step"][known], figures.score
        draw_curve(self._curve, step, score)
        self._note.content = text_html(
            f"{figures.behavior}: {SCORES[metric]} {score[-1]:.3f} "
            f"after {step[-1]:,.0f} steps"
        )
