"""Training, from top to bottom: collect, learn, report, save, evaluate, advance lessons.

All teams of a behavior (full names: `SoccerTwos?team=0`) teach the learner of its base name.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from threading import Event

from touchline.envs.env import EnvRecipe
from touchline.errors import FileHeldError, NonFiniteError, RunError
from touchline.interrupts import sigterm_as_ctrl_c
from touchline.log import Log, silent
from touchline.specs import base_name
from touchline.training.behavior_training import BehaviorTraining
from touchline.training.collect.collector import Collection
from touchline.training.collect.opening import MakeCollector, open_collector, world_of
from touchline.training.config.settings import RunConfig
from touchline.training.curriculum import Curriculum
from touchline.training.evaluator import evaluator_of
from touchline.training.run import process
from touchline.training.run.enrollment import Enrollment
from touchline.training.run.folder import RunFolder
from touchline.training.run.metrics import weights_and_biases
from touchline.training.run.process import device_of
from touchline.training.run.progress import Watch, progress_of, unwatched
from touchline.training.run.report import introduce, result_of, write_report
from touchline.training.run.result import TrainingResult
from touchline.training.run.resume import ResumePoints
from touchline.training.run.seats import lineup_of
from touchline.training.run.stopwatch import Stopwatch
from touchline.training.world import check_files
from touchline.whole import write_whole

RESUME_EVERY_S = 20.0  # between resume points: what a kill may cost


# Until `stop_on_signals` takes over, SIGTERM must undo what has begun, as Ctrl-C does.
@sigterm_as_ctrl_c()
def train(
    config: RunConfig,
    recipe: EnvRecipe,
    log: Log = silent,
    notes: Sequence[str] = (),
    *,
    to_wandb: bool = False,
    watch: Watch = unwatched,
    chosen: str = "",
) -> TrainingResult:
    """Train every behavior of a world until its steps are done, or until Ctrl-C, SIGTERM or SIGHUP.

    Everything is saved either way. The run folder is checked before anything heavy starts. `log`
    gets lines for people, beginning with `notes`. `to_wandb` also logs to Weights & Biases.
    `chosen` is kept in the folder, the YAML of settings that were chosen for a game without any.
    """
    seed = config.env_settings.seed
    # -1: a new seed each time, from the range of ML-Agents' `learn.py`.
    seed = seed if seed >= 0 else random.SystemRandom().randrange(10_000)
    check_files(config)  # before a world is opened, so that a typo costs nothing
    device = device_of(config)
    recipe = world_of(recipe, config, seed)  # before the folder is claimed
    about = {"seed": seed, "world": recipe.world, "target": recipe.target}
    folder = RunFolder(config, about)
    if chosen:
        write_whole(folder.layout.chosen_settings, chosen.encode())
    seed = folder.about["seed"]  # a resumed run keeps its own
    recipe = replace(recipe, seed=seed)
    for note in notes:
        log(note)
    if config.env_settings.seed not in (seed, -1):
        log(f"the run keeps its seed {seed}: another one is ignored")
    dashboard = weights_and_biases(config, folder.path, log, enabled=to_wandb)
    world = open_collector(recipe, config, log)
    # The folder before the world: where that does not open, the folder is left as it was.
    with process.tuned_process(config), folder, dashboard, world as collector:
        enrollment = Enrollment(config, folder, seed, device, log)
        trainer = Trainer(config, recipe, folder, collector, enrollment, log)
        with process.stop_on_signals() as stop:
            return trainer.run(stop, watch)


class Trainer:
    """All behaviors of one run."""

    def __init__(
        self,
        config: RunConfig,
        recipe: EnvRecipe,
        folder: RunFolder,
        make_collector: MakeCollector,
        enrollment: Enrollment,
        log: Log,
    ) -> None:
        self._recipe = recipe
        self._folder = folder
        self._enrollment = enrollment
        self._log = log
        self._stopwatch = Stopwatch()
        self._collector = make_collector(lineup_of(enrollment), self._stopwatch)
        self._curriculum = Curriculum(config)
        self._evaluator = evaluator_of(recipe, folder, self._stopwatch, log)
        self._resume_points = ResumePoints(
            folder, self._collector, self._curriculum, enrollment, self._stopwatch
        )

    def run(self, stop: Event, watch: Watch = unwatched) -> TrainingResult:
        """Train until every behavior is done or `stop` is set."""
        try:
            self._start()
            while not self._enrollment.all_done and not stop.is_set():
                collection = self._collector.collect(self._wanted())
                self._record(collection)
                watch(lambda: progress_of(self._trainings, self._collector))
                for training in self._learn(collection):
                    if training.summary_is_due():
                        self._log(training.summarize(self._curriculum.numbers))
                    if training.checkpoint_is_due():
                        self._checkpoint([training], stop)
                self._evaluator.record()
                self._advance_curriculum()
                self._resume_points.save(every_s=RESUME_EVERY_S)
            if stop.is_set():
                self._log("stopping: saving first; Ctrl-C again ends at once")
            # First: from here on a second Ctrl-C costs checkpoints and evaluations, no experience.
            self._resume_points.save()
            self._checkpoint(self._trainings, stop)
            self._evaluator.finish(stop)
        except NonFiniteError as error:
            # Weights that turned to NaN are not saved over good ones.
            path = self._folder.layout.replay
            self._collector.save_trace(path, self._recipe)
            raise NonFiniteError(f"{error}; what led there is in {path}") from error
        except RunError:
            self._save(self._trainings)
            raise
        finally:
            self._enrollment.close()
        write_report(self._folder, self._trainings, self._stopwatch.seconds())
        interrupted = stop.is_set() and not self._enrollment.all_done
        return result_of(self._folder, self._trainings, interrupted=interrupted)

    @property
    def _trainings(self) -> list[BehaviorTraining]:
        return list(self._enrollment.trainings.values())

    def _start(self) -> None:
        if self._folder.resumes:
            self._resume_points.restore(self._recipe.seed, self._log)
        else:
            self._collector.reset(self._recipe.seed)
        collector, slots = self._collector, self._collector.slots
        self._enrollment.start(slots.behaviors, self._recipe)
        introduce(self._recipe, self._folder, collector, self._enrollment, self._log)
        self._folder.settle(slots.interface_options)
        # Of a resumed run with other settings; collectors take no parameters amid a round.
        self._advance_curriculum()
        self._resume_points.save()  # from here on a kill finds a run to resume

    def _wanted(self) -> dict[str, int]:
        return {t.name: t.learner.wanted for t in self._trainings if not t.is_done}

    def _record(self, collection: Collection) -> None:
        """Count ended episodes for lessons and summaries."""
        trainings = self._enrollment.trainings
        for name, episodes in collection.episodes.items():
            training = trainings[base_name(name)]
            # Also of behaviors that have all their steps, because lessons may depend on them.
            self._curriculum.record_returns(training.name, episodes.returns)
            if not training.is_done:
                training.record_episodes(episodes)
        for training in self._trainings:
            if not training.is_done:
                training.record_statistics(collection.statistics)

    def _learn(self, collection: Collection) -> list[BehaviorTraining]:
        """Hand trajectories to their learners; returns the behaviors that made an update."""
        for name, trajectories in collection.trajectories.items():
            training = self._enrollment.trainings[base_name(name)]
            training.learner.add(name, trajectories)
        updated = [t for t in self._trainings if not t.is_done and t.learner.ready]
        with self._stopwatch("learning"):
            for training in updated:
                training.update()
        return updated

    def _checkpoint(self, trainings: Sequence[BehaviorTraining], stop: Event) -> None:
        # What is evaluated is the latest checkpoint until its figures are there.
        self._evaluator.finish(stop)
        self._save(trainings)
        if not stop.is_set():  # after Ctrl-C, minutes of evaluation are not wanted
            self._evaluator.start(trainings, self._trainings, self._curriculum, stop)

    def _save(self, trainings: Iterable[BehaviorTraining]) -> None:
        for training in trainings:
            self._folder.save(training.name, training.learner, training.recent_mean)
            # A picture that another program shows is no reason to end a training.
            try:
                training.writer.draw_curve()
            except FileHeldError as held:
                self._log(str(held))

    def _advance_curriculum(self) -> None:
        """Begin the lessons that are due; a reset drops experience not yet learned."""
        new = self._curriculum.advance({t.name: t.progress for t in self._trainings})
        if new is None:
            return
        for line in new.lines:
            self._log(line)
        self._folder.set_lessons(self._curriculum.numbers)
        self._collector.set_parameters(new.values)
        if new.needs_reset:
            self._collector.reset()
