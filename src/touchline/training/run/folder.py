"""The files that a training run writes: configuration, status, checkpoints, models, resume point.

Where each of them is, `touchline.policies.files.run_layout` knows.
"""

import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from numpy.typing import NDArray

from touchline.bounded import read_json
from touchline.envs.env import WORLDS
from touchline.envs.saved_state import Arrays
from touchline.errors import UsageError
from touchline.operating_systems import remove_file
from touchline.policies.files.checkpoints import (
    network_metadata,
    read_arrays,
    write_arrays,
    write_checkpoint,
)
from touchline.policies.files.onnx_out import build_onnx
from touchline.policies.files.run_layout import (
    CHECKPOINT,
    MODEL,
    RunLayout,
    check_progress,
)
from touchline.training.algorithms.learner import Learner
from touchline.training.config.reading import write_config
from touchline.training.config.settings import BehaviorConfig, RunConfig
from touchline.training.run.claim import Claim
from touchline.version import __version__
from touchline.whole import write_whole


def same_lessons(
    evaluations: Iterable[Mapping[str, Any]], latest: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """The evaluations in the lessons of `latest`: returns of easier lessons do not compare."""
    lessons = latest.get("lessons", {})
    return [e for e in evaluations if e.get("lessons", {}) == lessons]


class RunFolder:
    """One run on disk. Opening it refuses to overwrite another run.

    Use as a context manager: a run that fails before `settle` leaves the folder as it was, except
    for players' logs.
    """

    def __init__(self, config: RunConfig, about: dict[str, Any]) -> None:
        settings = config.checkpoint_settings
        self.path = Path(settings.results_dir) / settings.run_id
        self.layout = RunLayout(self.path)
        self.resumes = settings.resume
        self.config = config
        self._status: dict[str, Any] = {
            "touchline": __version__,
            "python": platform.python_version(),
            **about,
        }
        self._about_world: dict[str, Any] = {}
        """The part of a checkpoint's metadata that is about the world."""
        self._claim = Claim(settings)
        # A resumed run has begun long ago: a failure must not remove its files.
        self._is_settled = self.resumes
        if not self.resumes:
            self._write_start()
            return
        try:
            self._continue_status()
        except BaseException:
            self._claim.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._claim.release()
        if not self._is_settled:
            self._claim.undo()

    def settle(self, interface_options: Mapping[str, str]) -> None:
        """The run has begun: a replaced run is deleted; a resumed one gets its new settings.

        Checkpoints will hold these options of the world, so that the policy plays with them later.
        """
        if interface_options:
            options = {
                "kind": self._status["world"],
                "options": dict(interface_options),
            }
            self._about_world = {"world": options}
        self._is_settled = True
        if self.resumes:
            self._write_start()
        self._claim.settle()

    def _continue_status(self) -> None:
        """Continue with the saved status; nothing is written before it is known to fit."""
        path = self.layout.status
        saved = _status_in(path) if path.exists() else {}
        for behavior in self.config.behaviors:
            if not isinstance(saved.get(behavior, {}), dict):
                raise UsageError(f"{path}: {behavior}: expected keys and values")
        # A player may have moved or been built again; its behaviors are checked later.
        is_player = WORLDS[self._status["world"]].is_player
        for key in ("world",) if is_player else ("world", "target"):
            if key in saved and saved[key] != self._status[key]:
                raise UsageError(
                    f"{self.path}: this run has the {key} {saved[key]}, not {self._status[key]}; "
                    "resume it with that, or start another --run-id with --initialize-from"
                )
        # All random streams began with the saved seed, so another one in the settings is ignored.
        kept = {"seed": saved["seed"]} if "seed" in saved else {}
        self._status = saved | self._status | kept

    def _write_start(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_config(self.settings(), self.layout.configuration)
        self._write_status()

    def settings(self) -> RunConfig:
        """All settings, as another command may take them."""
        # How this run began is no setting of the next, which must not replace this one unasked.
        start = self.config.checkpoint_settings
        start = start.model_copy(update={"resume": False, "force": False})
        # The one that was drawn, or that a resumed run began with.
        seed = {"seed": self._status["seed"]}
        world = self.config.env_settings.model_copy(update=seed)
        if world.env_path is None and self._status.get("world") == "scene":
            # A preset's own scene, which the file alone would not name.
            world = world.model_copy(update={"env_path": self._status["target"]})
        changes = {"checkpoint_settings": start, "env_settings": world}
        return self.config.model_copy(update=changes)

    def save(self, behavior: str, learner: Learner, mean_return: float | None) -> None:
        """A checkpoint of one learner: the latest, and one more of the last few."""
        layout, network, steps = self.layout, learner.policy.network, learner.steps
        config = self._behavior(behavior)
        # Where a critic of its own holds the value heads, the network has only the first.
        signals = list(config.reward_signals)[: network.num_signals]
        metadata = {
            "behavior": behavior,
            "steps": steps,
            **network_metadata(network, signals),
            **self._about_world,
        }
        checkpoint = layout.numbered(behavior, steps)
        # First what is new, then what replaces files that another program may have open.
        write_checkpoint(checkpoint, learner.learned(), metadata)
        model: bytes | None = None
        # Of a network without a form for Unity, `Enrollment` has said why.
        with suppress(UsageError):
            model = build_onnx(network).SerializeToString()
            write_whole(layout.numbered(behavior, steps, MODEL), model)
        # A copy, not a link: not every file system and no zip file keeps links.
        write_whole(layout.latest(behavior), checkpoint.read_bytes())
        if model is not None:
            write_whole(layout.model(behavior), model)
        status = self._status.setdefault(behavior, {})
        # A resumed run writes the checkpoints behind its resume point again.
        kept = [c for c in status.get("checkpoints", []) if c["steps"] != steps]
        kept.append(
            {"file": checkpoint.stem, "steps": steps, "mean_return": mean_return}
        )
        for old in kept[: -config.keep_checkpoints]:
            for suffix in (CHECKPOINT, MODEL):
                remove_file(layout.numbered(behavior, old["steps"], suffix))
        status["checkpoints"] = kept[-config.keep_checkpoints :]
        self._write_status()

    def _behavior(self, name: str) -> BehaviorConfig:
        config = self.config.behavior(name)
        assert config is not None, "only configured behaviors are trained"
        return config

    def add_evaluation(self, behavior: str, evaluation: Mapping[str, Any]) -> None:
        """Keep how good the latest checkpoint is by its `score`; the best one stays as `best`."""
        layout, status = self.layout, self._status[behavior]
        recorded = status.get("evaluations", [])
        # A resumed run repeats the evaluations that a killed one made after its resume point.
        earlier = [e for e in recorded if e["steps"] < evaluation["steps"]]
        for one in earlier:
            # Of single episodes only the latest are of use: `touchline compare` reads them.
            one.pop("scores", None)
        status["evaluations"] = [*earlier, dict(evaluation)]
        comparable = same_lessons(earlier, evaluation)
        if all(e["score"] <= evaluation["score"] for e in comparable):
            for latest in (layout.latest(behavior), layout.model(behavior)):
                if latest.exists():
                    write_whole(
                        layout.best(behavior, latest.suffix), latest.read_bytes()
                    )
        self._write_status()

    def evaluations(self, behavior: str) -> list[dict[str, Any]]:
        """All evaluations, in order of steps."""
        return list(self._status.get(behavior, {}).get("evaluations", []))

    def write_timers(self, seconds: Mapping[str, float]) -> None:
        """Seconds by part of the work."""
        rounded = {part: round(s, 3) for part, s in seconds.items()}
        write_whole(self.layout.timers, (json.dumps(rounded, indent=2) + "\n").encode())

    def set_lessons(self, lessons: Mapping[str, int]) -> None:
        """Write the curriculum's lesson numbers into the run's status."""
        self._status["lessons"] = dict(lessons)
        self._write_status()

    def model(self, behavior: str) -> Path:
        """The model for Unity, or the checkpoint of a policy that Unity has no form for."""
        model = self.layout.model(behavior)
        return model if model.exists() else self.layout.latest(behavior)

    @contextmanager
    def refusing_broken_point(self) -> Iterator[None]:
        """While parts of a resume point are put back: whatever they lack becomes a UsageError."""
        try:
            yield
        # Whatever is missing or of another kind: every part reads its own.
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = str(error).partition("\n")[0][:200]
            raise UsageError(
                f"{self.path}: its resume point is broken ({type(error).__name__}: {what})"
            ) from error

    def save_resume_point(self, arrays: Arrays, metadata: Mapping[str, Any]) -> None:
        """Replace the run's resume point, whole or not at all; the one before it is kept."""
        latest, before = self.layout.resume_point, self.layout.resume_point_before
        if latest.exists():
            remove_file(before)
            try:
                os.link(latest, before)
            except OSError:  # not every file system has links
                write_whole(before, latest.read_bytes())
        write_arrays(latest, arrays, metadata)

    @property
    def about(self) -> dict[str, Any]:
        """Versions, seed and world of the run."""
        return {
            key: value
            for key, value in self._status.items()
            # The dictionaries in a status are those of behaviors and lessons.
            if not isinstance(value, dict)
        }

    def _write_status(self) -> None:
        content = json.dumps(self._status, indent=2) + "\n"
        write_whole(self.layout.status, content.encode())


def read_resume_point(
    layout: RunLayout, log: Callable[[str], None]
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """A run's latest resume point, or the one before it where the latest is damaged."""
    try:
        return read_arrays(layout.resume_point)
    except UsageError as damage:
        try:
            before = read_arrays(layout.resume_point_before)
        except UsageError:
            raise damage from None
        log(f"{damage}; the run continues from the resume point before it")
        return before


def _status_in(path: Path) -> dict[str, Any]:
    status = read_json(path)
    if type(status.get("seed", 0)) is not int:
        raise UsageError(
            f"{path}: seed: expected a whole number, got {str(status['seed'])[:80]!r}"
        )
    check_progress(path, status)
    return status
