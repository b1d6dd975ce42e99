"""A search for settings: Optuna proposes trials, each a run in a process of its own.

A trial's score is that of its last evaluation, as for seeds, and the mean over behaviors. While it
runs, its learning curve is compared with those of earlier trials at the same share of its steps:
below their median it is stopped (Optuna's `MedianPruner`). Values are proposed by the
tree-structured Parzen estimator (Bergstra et al. 2011, Algorithms for Hyper-Parameter Optimization,
section 4).

Optuna keeps every trial in a journal in the result folder, so that a search that was stopped or
killed continues, with the runs of its open trials.
"""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from touchline.bounded import MOST_TABLE, read_text
from touchline.errors import RunError, UsageError
from touchline.flag import Flag
from touchline.interrupts import sigterm_as_ctrl_c
from touchline.jobs.job import Job, Place, Running, follow
from touchline.log import Log, silent
from touchline.policies.files.run_layout import RunLayout, scores_of
from touchline.studies.runs import job_of, place_for_runs, settings_of, world_of
from touchline.studies.space import Read, read_space
from touchline.studies.tune_report import TuneResult, result_of, write_result
from touchline.training.algorithms.settings import DEFAULT_ALGORITHM
from touchline.training.run.claim import locked, make_results_dir, refuse_links

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

    from touchline.training.config.request import Changes, RunRequest
    from touchline.training.config.settings import RunConfig

POINTS = 20
"""Points of a learning curve at which trials are compared."""
NEVER_STOPPED = 5
"""Trials that are finished before any is stopped, as Optuna's default has it."""
WARM_UP = 4
"""No trial is stopped before this point: early returns say little."""
MOST_FAILURES = 3
"""A search ends when this many trials fail one after another, which has one cause."""


@dataclass
class Begun:
    trial: optuna.Trial
    config: RunConfig
    layout: RunLayout
    position: int
    """Place among the runs at the same time, for the ports of their players."""
    reported: int = 0
    """The latest point of its curve that was compared."""


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
    from touchline.training.config.request import (
        RUN_ID,
        is_changed,
        keys_of,
        listed,
        read_run,
    )

    changes = listed(changes)
    given = {"env": env, "run_id": run_id, "resume": resume, **(settings or {})}
    more = {}
    if RUN_ID not in keys_of(given) and not is_changed(RUN_ID, changes):
        # Beside the runs of the configuration itself, not in place of them.
        more[RUN_ID] = f"tune-{Path(config or DEFAULT_ALGORITHM).stem}"

    def request(tried: Mapping[str, Any]) -> RunRequest:
        keys = {**more, **tried}
        return read_run(config, changes, given, more=keys, verb="tune", of_several=True)

    def read(tried: Mapping[str, Any]) -> RunConfig:
        return request(tried).config

    first_request = request({})
    for note in first_request.notes:
        log(note)
    base, own_scene = first_request.config, first_request.preset
    own = base.checkpoint_settings
    layout = RunLayout(Path(own.results_dir) / own.run_id)
    _check(base, layout, trials)
    dimensions = read_space(Path(space), read)
    first = settings_of(base, layout.trial(0), _seed(base), 0)
    recipe = world_of(first, own_scene, "tune", log)
    with sigterm_as_ctrl_c(), place_for_runs(base, recipe) as place, _claimed(layout):
        if own.force:
            # Under the lock, which is next to the folder: another search might write here.
            shutil.rmtree(layout.path, ignore_errors=True)
        study = _open(layout, dimensions, _seed(base), resumes=own.resume)
        search = _Search(read, study, dimensions, layout, own_scene, place, log)
        interrupted = search.run(trials)
        result = result_of(study, layout, interrupted=interrupted)
        if result.best is not None:
            keys = dict(result.best.values)
            # A run of its own next to the search, which neither continues nor overwrites one.
            keys |= {
                "checkpoint_settings.run_id": f"{own.run_id}-best",
                "checkpoint_settings.resume": False,
                "checkpoint_settings.force": False,
            }
            if recipe.kind.is_scene:
                # A YAML has no scene of its own, as a preset has.
                keys["env_settings.env_path"] = recipe.target
            if base.cluster_settings.takes_whole_runs:
                keys |= {
                    "cluster_settings.cluster": None,
                    "cluster_settings.ship": False,
                }
            write_result(result, layout, read(keys), log)
    return result


@contextmanager
def _claimed(layout: RunLayout) -> Iterator[None]:
    """No other process searches in this folder meanwhile."""
    make_results_dir(layout.path.parent)
    refuse_links(layout.path)
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


@dataclass
class _Search:
    """The trials that run, and those that begin when one is over."""

    read: Read
    study: optuna.Study
    dimensions: Mapping[str, BaseDistribution]
    layout: RunLayout
    own_scene: str | None
    place: Place
    log: Log
    begun: dict[str, Begun] = field(default_factory=dict)
    """Name of a job -> its trial."""
    failures: int = 0
    """Number of trials that failed since one did not."""

    def run(self, num_trials: int) -> bool:
        """Run all to their ends; True if Ctrl-C ended them, with everything saved."""
        import optuna

        state = optuna.trial.TrialState
        unfinished = self.study.get_trials(states=(state.RUNNING,))
        # Optuna has no other way to continue a trial that it has begun.
        waiting = [optuna.Trial(self.study, trial._trial_id) for trial in unfinished]
        missing = max(num_trials - len(self.study.trials), 0)
        count = len(waiting) + missing
        at_once = min(self.place.at_once, count)
        self.log(f"trials to run: {count}, {at_once} at a time")
        jobs = self._jobs(waiting, missing)
        try:
            with closing(follow(self.place, jobs, self.log)) as runs:
                for run in runs:
                    self._follow(run)
        except KeyboardInterrupt:  # the trials of what was stopped stay open
            return True
        return False

    def _jobs(self, waiting: Sequence[optuna.Trial], missing: int) -> Iterator[Job]:
        """Trials that were begun before and new ones, each once there is room for it."""
        for trial in waiting:
            yield from self._job(trial, resumes=True)
        for _ in range(missing):
            yield from self._job(self.study.ask(dict(self.dimensions)), resumes=False)

    def _job(self, trial: optuna.Trial, *, resumes: bool) -> Iterator[Job]:
        own = self.layout.trial(trial.number)
        taken = {begun.position for begun in self.begun.values()}
        # The lowest that is free: the ports of trials that ended are used again.
        position = next(n for n in range(len(taken) + 1) if n not in taken)
        try:
            config = self._settings(trial, own, position, resumes=resumes)
            recipe = world_of(config, self.own_scene, "tune", silent)
        except UsageError as refusal:
            # Values that the file allows one by one, but not together.
            self._fail(trial, str(refusal))
            return
        name = f"trial {trial.number}"
        self.begun[name] = Begun(trial, config, own, position)
        tried = [(key.rpartition(".")[2], v) for key, v in trial.params.items()]
        shown = ", ".join(f"{key} {value}" for key, value in tried)
        self.log(f"{name}: {shown}")
        yield job_of(name, own, config, recipe, to_wandb=False)

    def _settings(
        self, trial: optuna.Trial, own: RunLayout, position: int, *, resumes: bool
    ) -> RunConfig:
        config = self.read(trial.params)
        blocks = filter(None, [config.default_settings, *config.behaviors.values()])
        # A curve needs as many points as are compared.
        often = min(min(b.summary_freq, max(b.max_steps // POINTS, 1)) for b in blocks)
        config = self.read({**trial.params, "behaviors.*.summary_freq": often})
        files = config.checkpoint_settings.model_copy(
            update={"resume": resumes, "force": False}
        )
        config = config.model_copy(update={"checkpoint_settings": files})
        return settings_of(config, own, _seed(config), position)

    def _follow(self, run: Running) -> None:
        """Compare its curve, and take note of its end."""
        begun = self.begun[run.name]
        trial = begun.trial
        printed = self.layout.printed(trial.number)
        # At the end: a trial that is continued keeps what its first session printed.
        with printed.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in run.lines())
        if run.outcome is None:
            self._compare(begun, run)
            return
        del self.begun[run.name]
        scores = list(scores_of(begun.layout).values())
        if run.is_stopping:
            self.failures = 0
            self._tell(trial, "PRUNED")
            shares = f"{begun.reported} of {POINTS} parts of its steps"
            self.log(f"{run.name}: stopped after {shares}, others did better")
        elif run.outcome.failure:
            self._fail(trial, run.outcome.why)
        elif not scores:
            self._fail(trial, "no episode ended, so it has no score")
        else:
            self.failures = 0
            score = float(np.mean(scores))
            self.study.tell(trial, score)
            self.log(f"{run.name}: score {score:.3f} after {run.took_s:.0f} s")

    def _compare(self, begun: Begun, run: Running) -> None:
        for point, value in points_of(begun.layout, begun.config):
            if point <= begun.reported or run.is_stopping:
                continue
            begun.reported = point
            # Optuna keeps the first value of a step, also of an earlier session.
            begun.trial.report(value, point)
            if begun.trial.should_prune():
                run.stop()

    def _tell(self, trial: optuna.Trial, state: str) -> None:
        import optuna

        self.study.tell(trial, state=optuna.trial.TrialState[state])

    def _fail(self, trial: optuna.Trial, why: str) -> None:
        self.failures += 1
        trial.set_user_attr("why", why)
        self._tell(trial, "FAIL")
        self.log(f"trial {trial.number}: failed: {why}")
        if self.failures >= MOST_FAILURES:
            raise RunError(
                f"{self.failures} trials in a row failed, the last one with: {why}"
            )


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
        # A table that is being written may end in the middle of a line.
        text, _, _ = read_text(path, MOST_TABLE).rpartition("\n")
        rows = csv.DictReader(text.splitlines())
        shown = [(r["step"], r["mean_return"]) for r in rows if r["mean_return"]]
        if not shown:
            return  # the mean needs all of them
        step, value = np.array(shown, np.float64).T
        curves.append((step / settings.max_steps, value))
    if not curves:
        return
    done = min(share[-1] for share, _ in curves)
    for point in range(1, min(int(POINTS * done), POINTS) + 1):
        values = [np.interp(point / POINTS, share, value) for share, value in curves]
        yield point, float(np.mean(values))
