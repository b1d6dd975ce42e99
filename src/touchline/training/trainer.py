"""The training loop, from top to bottom.

Learners belong to base names (`SoccerTwos`), data to full names (`SoccerTwos?team=0`): all teams of a behavior
teach one learner.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from touchline.envs.env import EnvRecipe, make
from touchline.envs.inspection import branches_text
from touchline.envs.slots import SlotRows, Slots
from touchline.errors import NonFiniteError, UsageError
from touchline.specs import ActionTuple, BehaviorSpec, base_name
from touchline.training.config import BehaviorConfig, RunConfig
from touchline.training.metrics import EpisodeMeter, Metrics, draw_curve, progress_line
from touchline.training.ppo import PPO, UpdateStats
from touchline.training.rollout import Rollout
from touchline.training.run_folder import RunFolder

Say = Callable[[str], None]


@dataclass
class Student:
    """One behavior in training: its learner, what its slots live through, and what it tells."""

    name: str
    config: BehaviorConfig
    learner: PPO
    metrics: Metrics
    meter: EpisodeMeter = field(default_factory=EpisodeMeter)
    rollouts: dict[str, Rollout] = field(default_factory=dict)
    last_update: UpdateStats | None = None
    next_summary: int = 0
    next_checkpoint: int = 0
    recent: list[float] = field(default_factory=list)
    """Returns of the latest finished episodes."""

    @property
    def is_done(self) -> bool:
        return self.learner.steps >= self.config.max_steps

    def is_ready(self) -> bool:
        """Whether enough was lived through for an update."""
        results = sum(rollout.num_results for rollout in self.rollouts.values())
        return not self.is_done and results >= self.config.hyperparameters.buffer_size


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended."""

    folder: Path
    interrupted: bool
    behaviors: dict[str, dict[str, Any]]
    """Behavior -> steps, mean return of the last 100 episodes, model, curve."""


def train(config: RunConfig, recipe: EnvRecipe, say: Say = lambda _: None) -> TrainingResult:
    """Train every behavior of a world until its steps are done, or until Ctrl-C or SIGTERM; both save all.

    The run folder is checked before anything heavy starts. `say` gets lines for people.
    """
    seed = config.env_settings.seed if config.env_settings.seed >= 0 else random.SystemRandom().randrange(10_000)
    folder = RunFolder(config, {"seed": seed, "world": recipe.world, "target": recipe.target})
    torch.set_num_threads(1)  # networks this small get slower with more
    with make(recipe) as env, _stop_on_signals() as stop:
        slots = Slots(env)
        rows = slots.reset(seed)
        school = School(config, folder, slots, seed, say)
        school.introduce(recipe)
        try:
            while not school.is_done and not stop.is_set():
                rows = slots.step(school.act(rows))
                school.learn(rows)
        except NonFiniteError as error:
            school.is_healthy = False
            raise NonFiniteError(f"{error}; what led there is in {school.save_replay(recipe)}") from error
        finally:
            school.close()
        return school.result(interrupted=stop.is_set())


class School:
    """All behaviors of one run."""

    def __init__(self, config: RunConfig, folder: RunFolder, slots: Slots, seed: int, say: Say) -> None:
        self._config = config
        self._folder = folder
        self._slots = slots
        self._seed = seed
        self._say = say
        self._students: dict[str, Student] = {}
        self.is_healthy = True
        self._start_trace()

    @property
    def is_done(self) -> bool:
        return bool(self._students) and all(s.is_done for s in self._students.values())

    def introduce(self, recipe: EnvRecipe) -> None:
        """Say what will be trained on what, and enrol the behaviors that are there."""
        self._say(f"run {self._folder.path}  world {recipe.world} {recipe.target}  seed {self._seed}")
        for name, spec in self._slots.behaviors.items():
            action = spec.action_spec
            sensors = ", ".join(f"{o.name or 'unnamed'} {list(o.shape)}" for o in spec.observation_specs)
            student = self._student(name, spec)
            hyper = student.config.hyperparameters
            self._say(
                f"{name}: {self._slots.env.capacity(name)} agents see {sensors}; "
                f"they take {action.continuous_size} continuous actions, branches {branches_text(action)}; "
                f"PPO, {student.config.max_steps:,} steps, buffer {hyper.buffer_size}, batch {hyper.batch_size}, "
                f"on the CPU with {torch.get_num_threads()} thread"
            )

    def act(self, rows: Mapping[str, SlotRows]) -> dict[str, ActionTuple]:
        """What every slot does next."""
        actions, behaviors = {}, self._slots.behaviors
        for name, row in rows.items():
            student = self._student(name, behaviors[name])
            if name not in student.rollouts:
                student.rollouts[name] = Rollout(memory=student.learner.new_memory())
                student.rollouts[name].begin(row)
            rollout = student.rollouts[name]
            actions[name], rollout.chosen = student.learner.act(row, rollout.memory)
        self._trace.append(actions)
        return actions

    def learn(self, rows: Mapping[str, SlotRows]) -> None:
        """Take in what came of the actions; update, report and save whatever is due."""
        for name, row in rows.items():
            student = self._students.get(base_name(name))
            if student is not None and name in student.rollouts:
                student.meter.see(row)
                student.rollouts[name].add(row)
        for student in self._students.values():
            if student.is_ready():
                self._update(student, rows)

    def close(self) -> None:
        """Save every behavior and finish its files; what has turned to NaN is not saved over what is good."""
        for student in self._students.values():
            student.metrics.close()
            if self.is_healthy:
                self._save(student)
                draw_curve(self._folder.path, student.name)

    def result(self, *, interrupted: bool) -> TrainingResult:
        behaviors = {
            name: {
                "steps": student.learner.steps,
                "mean_return": float(np.mean(student.recent)) if student.recent else None,
                "model": str(self._folder.model(name)),
                "curve": str(self._folder.path / f"{name}.png"),
            }
            for name, student in self._students.items()
        }
        return TrainingResult(self._folder.path, interrupted, behaviors)

    def save_replay(self, recipe: EnvRecipe) -> Path:
        """The world after the last update and all actions [slots, ...] since: together they lead there again."""
        path = self._folder.path / "replay.npz"
        arrays: dict[str, NDArray[Any]] = {f"state/{name}": array for name, array in (self._mark or {}).items()}
        for step, actions in enumerate(self._trace):
            for name, told in actions.items():
                arrays[f"actions/{step}/{name}/continuous"] = told.continuous
                arrays[f"actions/{step}/{name}/discrete"] = told.discrete
        np.savez_compressed(path, recipe=repr(recipe), seed=self._seed, **arrays)  # type: ignore[arg-type]
        return path

    def _start_trace(self) -> None:
        self._mark = self._slots.env.state()
        self._trace: list[Mapping[str, ActionTuple]] = []

    def _update(self, student: Student, rows: Mapping[str, SlotRows]) -> None:
        horizon = student.config.time_horizon
        student.last_update = student.learner.learn([r.experience(horizon) for r in student.rollouts.values()])
        for name, rollout in student.rollouts.items():
            rollout.begin(rows[name])
        self._start_trace()
        if student.learner.steps >= student.next_summary or student.is_done:
            self._summarise(student)
        if student.learner.steps >= student.next_checkpoint and not student.is_done:
            student.next_checkpoint = student.learner.steps + student.config.checkpoint_interval
            self._save(student)

    def _summarise(self, student: Student) -> None:
        step, frequency = student.learner.steps, student.config.summary_freq
        student.next_summary = step - step % frequency + frequency
        returns, lengths = student.meter.take()
        student.recent = (student.recent + returns)[-100:]
        row = student.metrics.write(step, returns, lengths, student.last_update)
        self._say(progress_line(student.name, row, student.config.max_steps))

    def _save(self, student: Student) -> None:
        mean = float(np.mean(student.recent)) if student.recent else None
        self._folder.save(student.name, student.learner, mean, student.config.keep_checkpoints)

    def _student(self, full_name: str, spec: BehaviorSpec) -> Student:
        name = base_name(full_name)
        if name not in self._students:
            config = self._config.behaviors.get(name)
            if config is None:
                configured = ", ".join(self._config.behaviors) or "none"
                raise UsageError(
                    f"the world has a behavior {name!r} without a configuration; configured: {configured}"
                )
            learner = PPO(name, spec, config, self._seed)
            if self._folder.resumes:
                self._folder.restore(name, learner, spec)
            metrics = Metrics(self._folder.path / name, append=self._folder.resumes)
            student = Student(name, config, learner, metrics)
            student.next_summary = learner.steps + config.summary_freq
            student.next_checkpoint = learner.steps + config.checkpoint_interval
            self._students[name] = student
        return self._students[name]


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM set an event, so that a step is never cut in two; a second Ctrl-C ends at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask_to_stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    previous = {s: signal.signal(s, ask_to_stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
