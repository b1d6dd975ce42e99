"""Resume points: what a run needs to continue bit for bit after it was killed."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from touchline.envs.saved_state import Arrays, below, prefixed
from touchline.errors import UsageError
from touchline.training.collect.collector import Collector
from touchline.training.curriculum import Curriculum
from touchline.training.run.enrollment import Enrollment
from touchline.training.run.folder import RunFolder, read_resume_point
from touchline.training.run.stopwatch import Stopwatch

FORMAT = 3
"""Version 0.1.0 wrote none; a resume point of another format is refused."""


@dataclass
class ResumePoints:
    """Saves all parts of a run together, and puts them back."""

    folder: RunFolder
    collector: Collector
    curriculum: Curriculum
    enrollment: Enrollment
    stopwatch: Stopwatch
    _last_saved: float = -math.inf
    _took_s: float = 0.0

    @property
    def _worlds(self) -> dict[str, int | None]:
        # The saved state of worlds fits only as many worlds and areas.
        settings = self.folder.config.env_settings
        return {"num_envs": settings.num_envs, "num_areas": settings.num_areas}

    def save(self, *, every_s: float = 0.0) -> None:
        """Replace the run's resume point, whole or not at all, unless it is younger than that, or
        saving would take more than a tenth of the time.
        """
        began = time.monotonic()
        if every_s and began - self._last_saved < max(every_s, 9 * self._took_s):
            return
        self._save()
        self._last_saved = time.monotonic()
        self._took_s = self._last_saved - began

    def _save(self) -> None:
        with self.stopwatch("saving"):
            # Before the point that names these files, so that it never names one that is not there.
            experience = self.enrollment.experience
            pieces = experience.write(self.enrollment.learners)
            parameters = self.curriculum.values
            arrays = prefixed("collector", self.collector.state())
            arrays |= prefixed("learners", self.enrollment.arrays())
            metadata = {
                "resume_format": FORMAT,
                "worlds": self._worlds,
                "collectors": self.folder.config.cluster_settings.collectors,
                "options": dict(self.collector.slots.interface_options),
                # As text, because samplers have no form in JSON; they are only compared.
                "parameters": {name: repr(value) for name, value in parameters.items()},
                "curriculum": self.curriculum.state(),
                "behaviors": self.enrollment.counters(),
                "experience": pieces,
                "seconds": self.stopwatch.seconds(),
            }
            if self.folder.config.has_self_play:
                self_play = self.enrollment.self_play
                arrays |= prefixed("self_play", self_play.arrays())
                metadata["self_play"] = self_play.counters()
            self.folder.save_resume_point(arrays, metadata)
            experience.drop_unnamed()

    def restore(self, seed: int, log: Callable[[str], None]) -> None:
        """Go back to the latest resume point.

        Worlds that cannot be restored (Unity players) restart with `seed`. Raises a UsageError for
        a point that does not fit.
        """
        arrays, metadata = read_resume_point(self.folder.layout, log)
        if metadata.get("resume_format") != FORMAT:
            raise UsageError(
                f"{self.folder.path}: its resume point is of an earlier Touchline; start another "
                f"run with --initialize-from {self.folder.path.name}"
            )
        with self.folder.refusing_broken_point():
            options = metadata.get("options", {})
            # Several collectors show the options of their worlds only after the first call.
            if self.collector.slots.interface_options:
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
        self.stopwatch.restore(metadata["seconds"])
        self.curriculum.load_state(metadata["curriculum"])
        self.enrollment.experience.load_state(metadata.get("experience", {}))
        self.enrollment.restore(metadata["behaviors"], below("learners", arrays))
        has_self_play = self.folder.config.has_self_play
        begins_self_play = has_self_play and "self_play" not in metadata
        if has_self_play and not begins_self_play:
            own = below("self_play", arrays)
            self.enrollment.self_play.restore(metadata["self_play"], own)
        values = self.curriculum.values
        # Before any reset, so that the first episodes already have them.
        self.collector.set_parameters(values)
        collected = below("collector", arrays)
        before = metadata.get("collectors")
        now = self.folder.config.cluster_settings.collectors
        why = ""
        if not collected:
            why = (
                "the worlds cannot be restored: they restart, everything else continues"
            )
        elif before != now:
            why = (
                f"this run had collectors {before or 'none'}, now {now or 'none'}: "
                "the worlds restart, so it is not the run that it would have been"
            )
        elif begins_self_play:
            why = "this run had no self-play: the worlds restart, so that games begin"
        if why:
            log(why)
            self.collector.reset(seed)
            return
        for setting, count in self._worlds.items():
            saved = metadata["worlds"][setting]
            if saved != count:
                flag = f"--{setting.replace('_', '-')}"
                advice = f"without {flag}" if saved is None else f"with {flag} {saved}"
                raise UsageError(
                    f"--resume: this run has {setting} {saved or 'of the world'}, not "
                    f"{count or 'of the world'}; resume it {advice}"
                )
        self.collector.load_state(collected)
        # Restored worlds hold their earlier parameters: those that changed since are set again.
        before = metadata["parameters"]
        changed = {name: v for name, v in values.items() if repr(v) != before.get(name)}
        self.collector.set_parameters(changed)

    def _check_options(self, saved: Mapping[str, str]) -> None:
        """Refuse to continue in a world that shows or does something else."""
        here = self.collector.slots.interface_options
        other = [name for name in saved if here.get(name) != saved[name]]
        if other:
            before = "&".join(f"{name}={saved[name]}" for name in other)
            now = "&".join(f"{name}={here.get(name)}" for name in other)
            raise UsageError(
                f"{self.folder.path}: this run has the world's options {before}, not {now}; "
                "resume it with those, or start another --run-id with --initialize-from"
            )
