"""Resume points: what a run needs to continue bit for bit after it was killed."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from touchline.envs.saved_state import Arrays, below, prefixed
from touchline.errors import UsageError
from touchline.training.collect.collector import Collector
from touchline.training.curriculum import Curriculum
from touchline.training.run.enrollment import Enrollment
from touchline.training.run.folder import RunFolder
from touchline.training.run.stopwatch import Stopwatch

FORMAT = 2
"""Version 0.1.0 wrote none; a resume point of another format is refused."""


class ResumePoints:
    """Saves all parts of a run together, and puts them back."""

    def __init__(
        self,
        folder: RunFolder,
        collector: Collector,
        curriculum: Curriculum,
        enrollment: Enrollment,
        stopwatch: Stopwatch,
    ) -> None:
        self._folder = folder
        self._collector = collector
        self._curriculum = curriculum
        self._enrollment = enrollment
        self._stopwatch = stopwatch
        self._has_self_play = folder.config.has_self_play
        settings = folder.config.env_settings
        # The saved state of worlds fits only as many worlds and areas.
        self._worlds = {"num_envs": settings.num_envs, "num_areas": settings.num_areas}
        self._collectors = folder.config.cluster_settings.collectors
        self._last_saved = -math.inf

    def save(self, *, every_s: float = 0.0) -> None:
        """Replace the run's resume point, whole or not at all, unless it is younger than that."""
        now = time.monotonic()
        if now - self._last_saved < every_s:
            return
        self._last_saved = now
        with self._stopwatch("saving"):
            # Before the point that names these files, so that it never names one that is not there.
            experience = self._enrollment.experience
            pieces = experience.write(self._enrollment.learners)
            parameters = self._curriculum.values
            arrays = prefixed("collector", self._collector.state())
            arrays |= prefixed("learners", self._enrollment.arrays())
            metadata = {
                "resume_format": FORMAT,
                "worlds": self._worlds,
                "collectors": self._collectors,
                "options": dict(self._collector.slots.interface_options),
                "parameters": {name: repr(value) for name, value in parameters.items()},
                "curriculum": self._curriculum.state(),
                "behaviors": self._enrollment.counters(),
                "experience": pieces,
                "seconds": self._stopwatch.seconds(),
            }
            if self._has_self_play:
                self_play = self._enrollment.self_play
                arrays |= prefixed("self_play", self_play.arrays())
                metadata["self_play"] = self_play.counters()
            self._folder.save_resume_point(arrays, metadata)
            experience.drop_unnamed()

    def restore(self, seed: int, log: Callable[[str], None]) -> None:
        """Go back to the latest resume point.

        Worlds that cannot be restored (Unity players) restart with `seed`. Raises a UsageError for
        a point that does not fit.
        """
        arrays, metadata = self._read(log)
        with self._folder.refusing_broken_point():
            options = metadata.get("options", {})
            # Several collectors show the options of their worlds only after the first call.
            if self._collector.slots.interface_options:
                self._check_options(options)
            self._put_back(arrays, metadata, seed, log)
            self._check_options(options)

    def _put_back(
        self,
        arrays: Arrays,
        metadata: Mapping[str, Any],
        seed: int,
        log: Callable[[str], None],
    ) -> None:
        # Lessons and learners before the worlds: what a world shows at once enrolls learners,
        # which are restored as they enroll.
        self._stopwatch.restore(metadata["seconds"])
        self._curriculum.load_state(metadata["curriculum"])
        self._enrollment.experience.load_state(metadata.get("experience", {}))
        self._enrollment.restore(metadata["behaviors"], below("learners", arrays))
        begins_self_play = self._has_self_play and "self_play" not in metadata
        if self._has_self_play and not begins_self_play:
            own = below("self_play", arrays)
            self._enrollment.self_play.restore(metadata["self_play"], own)
        values = self._curriculum.values
        self._collector.set_parameters(values)
        collected = below("collector", arrays)
        if not collected:
            log(
                "the worlds cannot be restored: they restart, everything else continues"
            )
            self._collector.reset(seed)
            return
        before = metadata.get("collectors")
        if before != self._collectors:
            log(
                f"this run had collectors {before or 'none'}, now {self._collectors or 'none'}: "
                "the worlds restart, so it is not the run that it would have been"
            )
            self._collector.reset(seed)
            return
        if begins_self_play:
            log("this run had no self-play: the worlds restart, so that games begin")
            self._collector.reset(seed)
            return
        for setting, count in self._worlds.items():
            saved = metadata["worlds"][setting]
            if saved != count:
                raise UsageError(
                    f"--resume: this run has {setting} {saved}, not {count}; leave it so"
                )
        self._collector.load_state(collected)
        # Restored worlds hold their earlier parameters: those that changed since are set again.
        before = metadata["parameters"]
        changed = {name: v for name, v in values.items() if repr(v) != before.get(name)}
        self._collector.set_parameters(changed)

    def _check_options(self, saved: Mapping[str, str]) -> None:
        """Refuse to continue in a world that shows or does something else."""
        here = self._collector.slots.interface_options
        other = [name for name in saved if here.get(name) != saved[name]]
        if other:
            before = "&".join(f"{name}={saved[name]}" for name in other)
            now = "&".join(f"{name}={here.get(name)}" for name in other)
            raise UsageError(
                f"{self._folder.path}: this run has the world's options {before}, not {now}; "
                "resume it with those, or start another --run-id with --initialize-from"
            )

    def _read(
        self, log: Callable[[str], None]
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, metadata = self._folder.load_resume_point(log)
        if metadata.get("resume_format") != FORMAT:
            raise UsageError(
                f"{self._folder.path}: its resume point is of an earlier Touchline; start another "
                f"run with --initialize-from {self._folder.path.name}"
            )
        return arrays, metadata
