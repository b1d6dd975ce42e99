"""A search for settings: real trials that finish, are stopped, fail, and go on after Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import touchline
from touchline.cli import run
from touchline.errors import RunError, UsageError
from touchline.jobs import processes
from touchline.policies.files.run_layout import RunLayout
from touchline.studies import tune
from touchline.studies.tune import points_of
from touchline.training.config.reading import read_config

optuna = pytest.importorskip("optuna", reason="needs touchline[tune]")
RATE = "behaviors.*.hyperparameters.learning_rate"
SPACE = f"{RATE}: {{low: 1e-4, high: 1e-2, log: true}}\n"
SHORT = {
    "behaviors.*.max_steps": 300,
    "behaviors.*.hyperparameters.buffer_size": 128,
    "behaviors.*.hyperparameters.batch_size": 32,
}


@pytest.fixture
def space(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    return path


def _curve(folder, behavior, rows):
    path = folder / behavior / "metrics.csv"
    path.parent.mkdir(parents=True)
    path.write_text("step,mean_return\n" + rows)


def test_a_learning_curve_is_compared_at_twentieths_of_its_steps(tmp_path):
    config = read_config("WallJump", {"behaviors.*.max_steps": 1000})
    layout = RunLayout(tmp_path)
    _curve(tmp_path, "SmallWallJump", "50,1\n150,3\n")
    assert list(points_of(layout, config)) == [(1, 1.0), (2, 2.0), (3, 3.0)]
    # The second behavior is slower, and its last line is not whole yet.
    _curve(tmp_path, "BigWallJump", "60,\n100,5\n200,7")
    assert list(points_of(layout, config)) == [(1, 3.0), (2, 3.5)]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["3DBall", "--trials", "0"], "--trials: expected 1 or more, got 0"),
        (["3DBall", "--resume"], "there is no search to resume"),
        (["3DBall", "--resume", "--force"], "give one of them"),
        (["3DBall", "--inference"], "--inference only acts"),
        (["3DBall", "--env", "editor"], "the Editor is one"),
        (["SoccerTwos"], "self_play: ratings of different runs do not compare"),
        ([], "tune what?"),
    ],
)
def test_what_cannot_be_searched_is_one_line_and_nothing_is_written(
    flags, expected, space, capsys
):
    before = sorted(space.parent.iterdir())
    assert run(["tune", *flags, "--space", "space.yaml"]) == 2
    assert expected in capsys.readouterr().err.splitlines()[-1]
    assert sorted(space.parent.iterdir()) == before


@pytest.mark.slow
def test_trials_of_a_resumed_search_start_with_the_run_that_is_named(finished, space):
    quiet = {"log": lambda _: None}
    touchline.train("Basic", run_id="base", changes=SHORT, **quiet)
    changes = SHORT | {"checkpoint_settings.initialize_from": "base"}
    settings = {"changes": changes, "run_id": "x", "resume": True, **quiet}
    touchline.tune("Basic", space, 2, **settings)
    own = (finished.path / "trial-1" / "configuration.yaml").read_text(encoding="utf-8")
    assert f"initialize_from: {space.parent / 'results' / 'base'}" in own


@pytest.mark.slow
def test_a_search_ranks_its_trials_and_goes_on_later(space):
    lines = []
    settings = {"changes": SHORT, "run_id": "x", "log": lines.append}
    first = touchline.tune("Basic", space, 3, **settings)
    assert [trial.state for trial in first.trials] == ["complete"] * 3
    assert first.best.score == max(trial.score for trial in first.trials)
    for trial in first.trials:
        folder = first.folder / f"trial-{trial.number}"
        own = read_config(str(folder / "configuration.yaml")).behaviors["Basic"]
        assert own.hyperparameters.learning_rate == trial.values[RATE]
        status = json.loads(
            (folder / "run_logs/training_status.json").read_text(encoding="utf-8")
        )
        assert status["Basic"]["evaluations"][-1]["score"] == trial.score
    with pytest.raises(UsageError, match="--resume continues it, --force overwrites"):
        touchline.tune("Basic", space, 4, **settings)
    more = touchline.tune("Basic", space, 5, resume=True, **settings)
    assert more.trials[:3] == first.trials
    assert len({trial.values[RATE] for trial in more.trials}) == 5
    assert sum(more.importance.values()) == pytest.approx(1.0)
    assert (more.folder / "importance.png").stat().st_size > 1000
    best = read_config(str(more.folder / "best.yaml"))
    assert best.env_settings.env_path == "Basic"
    found = best.behaviors["Basic"].hyperparameters.learning_rate
    assert found == more.best.values[RATE]
    report = (more.folder / "report.md").read_text(encoding="utf-8")
    assert f"| {more.best.number} | {more.best.score:.3f} |" in report
    assert (
        json.loads((more.folder / "tune.json").read_text(encoding="utf-8"))["best"]
        == more.best.number
    )


@pytest.fixture
def finished(space):
    """A search for Basic with one finished trial, in the folder `results/x`."""
    layout = RunLayout(space.parent / "results" / "x")
    layout.path.mkdir(parents=True)
    journal = optuna.storages.journal
    lock = journal.JournalFileOpenLock(str(layout.journal))  # the default needs links
    backend = journal.JournalFileBackend(str(layout.journal), lock)
    storage = optuna.storages.JournalStorage(backend)
    study = optuna.create_study(
        storage=storage, study_name="tune", direction="maximize"
    )
    rates = optuna.distributions.FloatDistribution(1e-4, 1e-2, log=True)
    study.add_trial(
        optuna.create_trial(params={RATE: 1e-3}, distributions={RATE: rates}, value=0.5)
    )
    return layout


def test_the_best_settings_train_a_run_of_their_own_after_a_resumed_search(
    finished, space
):
    quiet = {"log": lambda _: None}
    settings = {"changes": SHORT, "run_id": "x", "resume": True, **quiet}
    touchline.tune("Basic", space, 1, **settings)
    trained = touchline.train(str(finished.best_settings), **quiet)
    assert trained.folder.resolve() == finished.path.with_name("x-best")


@pytest.mark.slow
def test_a_trial_below_the_median_of_others_is_stopped(space, monkeypatch):
    monkeypatch.setattr(tune, "NEVER_STOPPED", 1)
    monkeypatch.setattr(tune, "WARM_UP", 1)
    monkeypatch.setattr(processes, "num_cores", lambda: 1)
    # A good rate first, then one that learns nothing.
    space.write_text(f"{RATE}: {{choices: [3e-3, 1e-9]}}\n")
    asked = iter([3e-3, 1e-9, 1e-9, 1e-9])
    monkeypatch.setattr(
        optuna.samplers.TPESampler, "sample_independent", lambda *_: next(asked)
    )
    settings = {**SHORT, "behaviors.*.max_steps": 20_000}
    result = touchline.tune("Basic", space, 2, changes=settings, log=lambda _: None)
    assert [trial.state for trial in result.trials] == ["complete", "pruned"]
    assert result.best.number == 0
    assert result.trials[1].score is None


@pytest.mark.slow
def test_trials_that_fail_in_a_row_end_the_search_with_their_reason(space):
    space.write_text(f"{RATE}: {{low: 1e29, high: 1e30}}\n")
    with pytest.raises(RunError, match=r"3 trials in a row failed.* NaN or infinite"):
        touchline.tune("3DBall", space, 9, changes=SHORT, log=lambda _: None)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent as SIGINT here")
def test_ctrl_c_saves_and_resume_goes_on_with_the_open_trials(space):
    command = [
        sys.executable, "-m", "touchline", "tune", "Basic", "--space", str(space),
        "--trials=2", "--run-id=x",
    ]  # fmt: skip
    long = subprocess.Popen(
        [*command, "--max-steps=400000"], stderr=subprocess.PIPE, start_new_session=True
    )
    study = RunLayout(space.parent / "results" / "x")
    deadline = time.monotonic() + 120
    while not study.trial(0).resume_point.exists():
        assert long.poll() is None, long.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(long.pid, signal.SIGINT)
    _, printed = long.communicate(timeout=30)
    assert long.returncode == 130, printed
    assert b"--resume --run-id x" in printed
    resumed = subprocess.run(
        [*command, "--max-steps=600", "--resume"], capture_output=True, timeout=300
    )
    assert resumed.returncode == 0, resumed.stderr
    figures = json.loads(study.tune.read_text(encoding="utf-8"))
    assert [trial["state"] for trial in figures["trials"]] == ["complete"] * 2
    assert np.isfinite([trial["score"] for trial in figures["trials"]]).all()
