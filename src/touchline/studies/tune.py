"""A search for settings: Optuna proposes trials, each a run in a process of its own.

A trial's score is that of its last evaluation, as for seeds, and the mean over behaviors. While it
runs, its learning curve is compared with those of earlier trials at the same share of its steps:
below their median it is stopped (Optuna's `MedianPruner`). Values are proposed by the
tree-structured Parzen estimator (Bergstra et al. 2011, Algorithms for Hyper-Parameter Optimization,
section 4).

Optuna keeps every trial in a journal in the result folder, so that a search that was stopped or
killed goes on, with the runs of its open trials.
"""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from touchline.errors import RunError, UsageError
from touchline.flag import Flag
from touchline.log import Log, silent
from touchline.policies.files.run_choice import scores_of
from touchline.policies.files.run_layout import RunLayout
from touchline.studies.places import Place, place_for_runs
from touchline.studies.processes import (
    STOPS_WITHIN_S,
    Job,
    job_of,
    settings_of,
    why_failed,
    world_of,
)
from touchline.studies.space import Read, read_space
from touchline.studies.tune_report import TuneResult, result_of, write_result
from touchline.training.algorithms.settings import DEFAULT_ALGORITHM
from touchline.training.run.claim import locked

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

    from touchline.training.config.request import Changes, RunRequest
    from touchline.training.config.settings import RunConfig

POINTS = 20
"""Of a learning curve at which trials are compared."""
NEVER_STOPPED = 5
"""So many trials are finished first, as Optuna's default has it."""
WARM_UP = 4
"""No trial is stopped before this point: early returns say little."""
MOST_FAILURES = 3
"""A search ends when this many trials fail one after another."""
_POLL_S = 0.2


@dataclass
class Running:
    """A trial whose run goes on."""

    trial: optuna.Trial
    config: RunConfig
    layout: RunLayout
    job: Job
    end: Future[int]
    """Its exit code."""
    position: int
    """Among the runs that go on at the same time."""
    began: float
    reported: int = 0
    """The latest point of its curve that was compared."""
    stopped: float | None = None
    """When it was stopped because others did better."""


def tune(
    config: str | os.PathLike[str] | None,
    space: Annotated[str | os.PathLike[str], Flag(metavar="FILE.yaml")],
    trials: int = 30,
    *,
    env: str | None = None,
    run_id: str | None = None,
    resume: bool = False,
    changes: Changes = (),
    log: Log = print,
    settings: Mapping[str, Any] | None = None,
) -> TuneResult:
    """Search for good settings: each trial is a run, and poor ones are stopped early.

    Parameters
    ----------
    config
        A preset's name (3DBall), or an ML-Agents YAML, as for train.
    space
        The keys to vary, each with the values to try.
    trials
        How many trials to run in all.
    resume
        Continue a search, with the runs of its open trials.
    env, run_id, changes, log, settings
        As in `train`.

    Raises
    ------
    UsageError
        As `train`, before anything is written; also for a wrong space.
    RunError
        Several trials in a row failed.

    Notes
    -----
    As many run at once as there are cores; with a cluster and without collectors, on its nodes. The
    run of trial N is `trial-N` below the folder of `run_id`, which is `tune-` and the
    configuration's name by default. There are also a table, the importance of each key as a
    picture, and the best settings as a YAML. A space holds dotted keys, each with `choices`, or
    with `low`, `high` and maybe `log` or `step`.
    """
    from touchline.training.config.request import RUN_ID, is_changed, keys_of, read_run

    changes = changes if isinstance(changes, Mapping) else list(changes)
    given = {"env": env, "run_id": run_id, "resume": resume, **(settings or {})}
    more = {}
    if RUN_ID not in keys_of(given) and not is_changed(RUN_ID, changes):
        # Beside the runs of the configuration itself, not in place of them.
        more[RUN_ID] = f"tune-{Path(config or DEFAULT_ALGORITHM).stem}"

    def request(tried: Mapping[str, Any]) -> RunRequest:
        keys = {**more, **tried}
        return read_run(config, changes, given, more=keys, verb="tune", of_several=True)

    first_request = request({})
    for note in first_request.notes:
        log(note)
    return search(
        lambda tried: request(tried).config,
        Path(space),
        trials,
        first_request.preset,
        log,
    )


def search(
    read: Read, space: Path, num_trials: int, own_scene: str | None, log: Log
) -> TuneResult:
    """Run trials until there are `num_trials`, or until Ctrl-C, as many at once as there are cores.

    With a cluster and without collectors, they run on its nodes. `read` gives the configuration
    with some keys changed. Raises a UsageError before anything is written, and a RunError where
    trials fail one after another.
    """
    from touchline.training.run.process import sigterm_as_ctrl_c

    config = read({})
    settings = config.checkpoint_settings
    layout = RunLayout(Path(settings.results_dir) / settings.run_id)
    _check(config, layout, num_trials)
    dimensions = read_space(space, read)
    first = settings_of(config, layout.trial(0), _seed(config), 0)
    recipe = world_of(first, own_scene, "tune", log)
    with sigterm_as_ctrl_c(), place_for_runs(config, recipe) as place, _claimed(layout):
        if settings.force:
            _remove(layout)
        study = _open(layout, dimensions, _seed(config), resumes=settings.resume)
        search = _Search(read, study, dimensions, layout, own_scene, place, log)
        interrupted = search.run(num_trials)
        result = result_of(study, layout, interrupted=interrupted)
        if result.best is not None:
            keys = dict(result.best.values)
            # A run of its own beside the search, which neither continues nor overwrites one.
            keys |= {
                "checkpoint_settings.run_id": f"{settings.run_id}-best",
                "checkpoint_settings.resume": False,
                "checkpoint_settings.force": False,
            }
            if recipe.kind.is_scene:
                # A YAML has no scene of its own, as a preset has.
                keys["env_settings.env_path"] = recipe.target
            if config.cluster_settings.takes_whole_runs:
                keys |= {
                    "cluster_settings.cluster": None,
                    "cluster_settings.ship": False,
                }
            write_result(result, layout, read(keys), log)
    return result


@contextmanager
def _claimed(layout: RunLayout) -> Iterator[None]:
    """No other process searches in this folder meanwhile."""
    layout.path.parent.mkdir(parents=True, exist_ok=True)
    lock = locked(layout.path, "searches here")
    try:
        yield
    finally:
        lock.release()


def _seed(config: RunConfig) -> int:
    """Of all trials, so that they differ in their settings alone."""
    return max(config.env_settings.seed, 0)


def _check(config: RunConfig, layout: RunLayout, num_trials: int) -> None:
    settings = config.checkpoint_settings
    if num_trials < 1:
        raise UsageError(f"--trials: expected 1 or more, got {num_trials}")
    if settings.inference:
        raise UsageError("tune trains, and --inference only acts: leave it out")
    if settings.resume and settings.force:
        raise UsageError(
            "--resume continues a search and --force overwrites it: give one of them"
        )
    blocks = {"default_settings": config.default_settings, **config.behaviors}
    for name, block in blocks.items():
        if block is not None and block.self_play is not None:
            place = config.place(name if name in config.behaviors else "", "self_play")
            raise UsageError(
                f"{place}: ratings of different runs do not compare, so a search cannot rank them; "
                "rank finished runs with touchline tournament"
            )
    exists = layout.journal.exists()
    if settings.resume and not exists:
        raise UsageError(
            f"{layout.path}: there is no search to resume; leave --resume out to start it"
        )
    if exists and not (settings.resume or settings.force):
        raise UsageError(
            f"{layout.path}: this search exists; --resume continues it, --force overwrites it"
        )
    if not exists and layout.path.exists() and any(layout.path.iterdir()):
        raise UsageError(
            f"{layout.path}: this folder holds something else than a search; "
            "choose another --run-id"
        )


def _remove(layout: RunLayout) -> None:
    import shutil

    shutil.rmtree(layout.path, ignore_errors=True)


def _open(
    layout: RunLayout,
    dimensions: Mapping[str, BaseDistribution],
    seed: int,
    *,
    resumes: bool,
) -> optuna.Study:
    """The search in the result folder, new or continued."""
    import optuna
    from optuna.distributions import distribution_to_json
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    # Its lines would say again what ours say.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    layout.path.mkdir(parents=True, exist_ok=True)
    journal = str(layout.journal)
    # The default lock is a symbolic link, which not every file system has.
    backend = JournalFileBackend(journal, JournalFileOpenLock(journal))
    storage = JournalStorage(backend)
    study = optuna.create_study(
        storage=storage,
        study_name="tune",
        direction="maximize",
        load_if_exists=resumes,
    )
    # Continued with another stream, or the first proposals would come a second time.
    stream = np.random.SeedSequence([seed, len(study.trials)]).generate_state(1)
    study.sampler = optuna.samplers.TPESampler(seed=int(stream[0]))
    study.pruner = optuna.pruners.MedianPruner(NEVER_STOPPED, WARM_UP)
    space = {key: distribution_to_json(found) for key, found in dimensions.items()}
    if study.user_attrs.get("space", space) != space:
        raise UsageError(
            f"{layout.path}: this search has another space; give that file, or another --run-id"
        )
    study.set_user_attr("space", space)
    return study


class _Search:
    """The trials that run, and those that begin when one is over."""

    def __init__(
        self,
        read: Read,
        study: optuna.Study,
        dimensions: Mapping[str, BaseDistribution],
        layout: RunLayout,
        own_scene: str | None,
        place: Place,
        log: Log,
    ) -> None:
        self._read = read
        self._study = study
        self._dimensions = dict(dimensions)
        self._layout = layout
        self._own_scene = own_scene
        self._place = place
        self._log = log
        self._pool = ThreadPoolExecutor(place.at_once)
        self._running: list[Running] = []
        self._failures = 0
        """Since a trial was finished or stopped."""

    def run(self, num_trials: int) -> bool:
        """Run all to their ends; True if Ctrl-C ended them, with everything saved."""
        import optuna

        state = optuna.trial.TrialState
        unfinished = self._study.get_trials(states=(state.RUNNING,))
        # Optuna has no other way to go on with a trial that it has begun.
        waiting = [optuna.Trial(self._study, trial._trial_id) for trial in unfinished]
        missing = num_trials - len(self._study.trials)
        at_once = min(self._place.at_once, max(len(waiting) + missing, 0))
        self._log(
            f"trials to run: {len(waiting) + max(missing, 0)}, {at_once} at a time"
        )
        try:
            while True:
                while len(self._running) < at_once and (waiting or missing > 0):
                    if waiting:
                        self._begin(waiting.pop(0), resumes=True)
                    else:
                        missing -= 1
                        self._begin(self._study.ask(self._dimensions), resumes=False)
                if not self._running:
                    return False
                time.sleep(_POLL_S)
                for running in list(self._running):
                    self._follow(running)
        except BaseException as error:
            self._stop_all()
            if not isinstance(error, KeyboardInterrupt):
                raise
            return True

    def _begin(self, trial: optuna.Trial, *, resumes: bool) -> None:
        own = self._layout.trial(trial.number)
        taken = {running.position for running in self._running}
        position = next(n for n in range(len(taken) + 1) if n not in taken)
        try:
            config = self._settings(trial, own, position, resumes=resumes)
            recipe = world_of(config, self._own_scene, "tune", silent)
        except UsageError as refusal:
            # Values that the file allows one by one, but not together.
            self._fail(trial, str(refusal))
            return
        job = self._place.start(job_of(config, recipe), own)
        printed = self._layout.printed(trial.number)
        end = self._pool.submit(_follow_to_end, job, printed)
        self._running.append(
            Running(trial, config, own, job, end, position, time.monotonic())
        )
        shown = ", ".join(f"{_last(k)} {v}" for k, v in trial.params.items())
        self._log(f"trial {trial.number}: {shown}")

    def _settings(
        self, trial: optuna.Trial, own: RunLayout, position: int, *, resumes: bool
    ) -> RunConfig:
        config = self._read(trial.params)
        blocks = filter(None, [config.default_settings, *config.behaviors.values()])
        # A curve needs as many points as are compared.
        often = min(min(b.summary_freq, max(b.max_steps // POINTS, 1)) for b in blocks)
        config = self._read({**trial.params, "behaviors.*.summary_freq": often})
        files = config.checkpoint_settings.model_copy(
            update={"resume": resumes, "force": False}
        )
        config = config.model_copy(update={"checkpoint_settings": files})
        return settings_of(config, own, _seed(config), position)

    def _follow(self, running: Running) -> None:
        """Compare its curve, and take note of its end."""
        trial = running.trial
        if not running.end.done():
            self._compare(running)
            late = running.stopped and time.monotonic() - running.stopped
            if late and late > STOPS_WITHIN_S:
                running.job.kill()
            return
        self._running.remove(running)
        took = time.monotonic() - running.began
        if running.stopped is not None:
            self._tell(trial, "PRUNED")
            shares = f"{running.reported} of {POINTS} parts of its steps"
            self._log(
                f"trial {trial.number}: stopped after {shares}, others did better"
            )
            return
        if failure := self._failure_of(running):
            self._fail(trial, failure)
            return
        scores = list(scores_of(running.layout).values())
        if not scores:
            self._fail(trial, "no episode ended, so it has no score")
            return
        self._failures = 0
        score = float(np.mean(scores))
        self._study.tell(trial, score)
        self._log(f"trial {trial.number}: score {score:.3f} after {took:.0f} s")

    def _failure_of(self, running: Running) -> str:
        """Why the run failed; empty where it did not."""
        try:
            code = running.end.result()
        except RunError as error:
            return str(error)
        if code == 0:
            return ""
        return why_failed(code, _last_line(self._layout, running.trial.number))

    def _compare(self, running: Running) -> None:
        for point, value in points_of(running.layout, running.config):
            if point <= running.reported or running.stopped is not None:
                continue
            running.reported = point
            # Optuna keeps the first value of a step, also of an earlier session.
            running.trial.report(value, point)
            if running.trial.should_prune():
                running.stopped = time.monotonic()
                running.job.stop()

    def _tell(self, trial: optuna.Trial, state: str) -> None:
        import optuna

        self._failures = 0
        self._study.tell(trial, state=optuna.trial.TrialState[state])

    def _fail(self, trial: optuna.Trial, why: str) -> None:
        failures = self._failures + 1
        trial.set_user_attr("why", why)
        self._tell(trial, "FAIL")
        self._failures = failures
        self._log(f"trial {trial.number}: failed: {why}")
        if failures >= MOST_FAILURES:
            raise RunError(
                f"{failures} trials in a row failed, the last one with: {why}"
            )

    def _stop_all(self) -> None:
        """Let all save and leave; kill those that take too long. Their trials stay open."""
        try:
            for running in self._running:
                running.job.stop()
            wait([running.end for running in self._running], STOPS_WITHIN_S)
            for running in self._running:
                if not running.end.done():
                    self._log(f"trial {running.trial.number} was slow to stop")
        finally:  # also at a second Ctrl-C
            for running in self._running:
                if not running.end.done():
                    running.job.kill()


def _follow_to_end(job: Job, printed: Path) -> int:
    """Write the lines of a run into a file; gives its exit code."""
    with printed.open("a", encoding="utf-8") as file:
        for line in job.lines():
            file.write(line.rstrip("\n") + "\n")
            file.flush()
    return job.wait()


def points_of(layout: RunLayout, config: RunConfig) -> Iterator[tuple[int, float]]:
    """The points of a run's learning curve so far: their number, and the mean over behaviors.

    Point n stands where n / `POINTS` of the steps are done; before the first value of a curve that
    value counts.
    """
    curves = []
    for path in sorted(layout.path.glob("*/metrics.csv")):
        settings = config.behavior(path.parent.name)
        if settings is None:
            continue
        rows = _whole_rows(path)
        shown = [
            (float(r["step"]), float(r["mean_return"]))
            for r in rows
            if r["mean_return"]
        ]
        if not shown:
            return  # the mean needs all of them
        step, value = np.array(shown).T
        curves.append((step / settings.max_steps, value))
    if not curves:
        return
    done = min(share[-1] for share, _ in curves)
    for point in range(1, min(int(POINTS * done), POINTS) + 1):
        values = [np.interp(point / POINTS, share, value) for share, value in curves]
        yield point, float(np.mean(values))


def _whole_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a table that is being written: a last line without its end is left out."""
    text, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return list(csv.DictReader(io.StringIO(text)))


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _last_line(layout: RunLayout, number: int) -> str:
    lines = (
        layout.printed(number).read_text(encoding="utf-8", errors="replace").split("\n")
    )
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
