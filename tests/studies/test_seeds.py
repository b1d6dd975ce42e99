"""Several seeds: figures worked by hand, and real processes that finish, fail, stop and resume."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tests.studies.written_runs import write_run

import touchline
from touchline import UsageError
from touchline.cli import run
from touchline.policies.files.run_layout import RunLayout
from touchline.studies.plot import curve_of, interquartile_mean
from touchline.studies.seeds import parse_seeds
from touchline.training.run.claim import locked

SHORT = "--max-steps=300"


def test_seeds_are_a_range_a_list_or_both():
    assert parse_seeds("0-4") == [0, 1, 2, 3, 4]
    assert parse_seeds("0,3,7") == [0, 3, 7]
    assert parse_seeds("7, 0-1") == [7, 0, 1]
    assert parse_seeds([5, 2]) == [5, 2]


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ("", "--seeds: expected a range (0-4) or a list (0,3,7), got ''"),
        ("4-0", "--seeds: 4-0 is reversed; did you mean 0-4?"),
        ("-1", "got '-1'"),
        ("1,1", "--seeds: 1 is given twice"),
        ("a", "got 'a'"),
        ("0-999999999", "at most 1000 seeds"),
    ],
)
def test_wrong_seeds_are_one_line_and_nothing_is_written(
    seeds, expected, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert run(["train", "Basic", f"--seeds={seeds}"]) == 2
    printed = capsys.readouterr().err
    assert expected in printed
    assert printed.count("\n") == 1
    with pytest.raises(UsageError) as error:
        touchline.train_seeds("Basic", seeds)
    assert f"touchline: {error.value}\n" == printed
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--seed", "1"], "--seed and --seeds are given"),
        (["--inference"], "--inference only acts"),
        (["--record-wire", "a.wire.gz"], "--record-wire records one run"),
        (["--resume"], "there is no run to resume"),
        (["--env", "editor"], "the Editor is one"),
        (
            ["--ship"],
            "ship: sends the player to the nodes of a cluster; give --cluster",
        ),
        pytest.param(
            ["--cluster", "local:2", "--ship"],
            "--ship sends the build of a player",
            marks=pytest.mark.skipif(
                find_spec("ray") is None, reason="needs touchline[ray]"
            ),
        ),
    ],
)
def test_what_several_seeds_cannot_have_is_one_line(
    flags, expected, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert run(["train", "Basic", "--seeds", "0-1", *flags]) == 2
    assert expected in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_the_interquartile_mean_drops_a_quarter_on_either_side():
    """As `scipy.stats.trim_mean(x, 0.25)`, which rliable calls: of 5 values it drops 2."""
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, 3.0, -50.0])) == 2.0
    assert interquartile_mean(np.array([8.0, 1.0, 2.0, 3.0])) == 2.5
    assert interquartile_mean(np.array([1.0, 2.0, 9.0])) == 4.0


def test_a_mean_curve_spans_the_steps_that_all_seeds_have():
    a = np.array([0.0, 10.0, 20.0]), np.array([0.0, 1.0, 2.0])
    b = np.array([5.0, 25.0]), np.array([2.5, 4.5])
    curve = curve_of("x", [a, b], "return", "mean")
    assert (curve.x[0], curve.x[-1]) == (5.0, 20.0)
    # a is step / 10 and b is 2 more; resampled, the mean may be that of either.
    np.testing.assert_allclose(curve.middle, curve.x / 10 + 1.0)
    np.testing.assert_allclose(curve.low, curve.x / 10)
    np.testing.assert_allclose(curve.high, curve.x / 10 + 2.0)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study of seeds 0 and 3, in a process as users start it."""
    folder = tmp_path_factory.mktemp("seeds")
    done = subprocess.run(
        _command("--seeds", "0,3", SHORT),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return folder / "results" / "x", done.stderr


def _command(*flags, run_id="x"):
    base = [sys.executable, "-m", "touchline", "train", "Basic"]
    return [*base, f"--run-id={run_id}", *flags]


@pytest.mark.slow
def test_several_seeds_give_one_result(study):
    folder, printed = study
    figures = json.loads((folder / "seeds.json").read_text(encoding="utf-8"))
    own = figures["behaviors"]["Basic"]
    status = (folder / f"seed-{seed}/run_logs/training_status.json" for seed in (0, 3))
    scores = [
        json.loads(path.read_text(encoding="utf-8"))["Basic"]["evaluations"][-1][
            "score"
        ]
        for path in status
    ]
    assert own["scores"] == {"0": scores[0], "3": scores[1]}
    assert own["mean"] == pytest.approx(np.mean(scores))
    # Of two values, s / √2 is half their difference.
    assert own["standard_error"] == pytest.approx(abs(scores[0] - scores[1]) / 2)
    assert figures["failed"] == {}
    assert f"| Basic | 2 | {own['mean']:.3f} ±" in (folder / "report.md").read_text(
        encoding="utf-8"
    )
    assert (folder / "Basic.png").stat().st_size > 1000
    assert "seed 3: done after" in printed


@pytest.mark.slow
def test_the_run_of_a_seed_is_that_of_a_single_run_bit_for_bit(study, tmp_path):
    folder, _ = study
    place = f"--results-dir={tmp_path}"
    single = _command(place, SHORT, "--seed=3", run_id="seed-3")
    subprocess.run(single, check=True, capture_output=True, timeout=300)
    for name in ("checkpoint.safetensors", "best.safetensors", "best.onnx"):
        own = (folder / "seed-3" / "Basic" / name).read_bytes()
        assert own == (tmp_path / "seed-3" / "Basic" / name).read_bytes(), name
    # Only the place of the results may differ.
    settings = (folder / "seed-3" / "configuration.yaml").read_text(encoding="utf-8")
    expected = (tmp_path / "seed-3" / "configuration.yaml").read_text(encoding="utf-8")
    assert settings.replace("results/x", str(tmp_path)) == expected


@pytest.mark.slow
def test_resume_trains_what_is_not_done_and_other_runs_are_refused(study, monkeypatch):
    folder, _ = study
    monkeypatch.chdir(folder.parents[1])
    lines = []
    settings = {"behaviors.*.max_steps": 300}
    with pytest.raises(UsageError, match="--resume continues it, --force overwrites"):
        touchline.train_seeds("Basic", [3, 4], run_id="x", changes=settings)
    before = (folder / "seed-3" / "resume.safetensors").stat().st_mtime_ns
    result = touchline.train_seeds(
        "Basic",
        [0, 3, 4],
        run_id="x",
        resume=True,
        changes=settings,
        log=lines.append,
    )
    assert "done before: seed 0, 3" in lines
    assert list(result.behaviors["Basic"].scores) == [0, 3, 4]
    assert (folder / "seed-3" / "resume.safetensors").stat().st_mtime_ns == before


def _started(folder, seeds, max_steps=40_000):
    """A study of long runs in a process, once every seed has begun, and the pids of the seeds."""
    process = subprocess.Popen(
        _command("--seeds", seeds, f"--max-steps={max_steps}"),
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    study = RunLayout(folder / "results" / "x")
    points = [study.seed(seed).resume_point for seed in parse_seeds(seeds)]
    deadline = time.monotonic() + 120
    while not all(point.exists() for point in points):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process, study


def _children(pid):
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [
        int(child)
        for task in tasks
        for child in task.read_text(encoding="utf-8").split()
    ]


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="children are found in Linux' /proc"
)
needs_two_cores = pytest.mark.skipif(
    (os.cpu_count() or 1) < 2, reason="with one core the second seed starts later"
)


@pytest.mark.slow
@needs_proc
@needs_two_cores
def test_ctrl_c_ends_all_within_five_seconds_and_resume_finishes_them(tmp_path):
    process, study = _started(tmp_path, "0-1")
    children = _children(process.pid)
    assert len(children) == 2
    began = time.monotonic()
    # As a terminal does, to the whole group.
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=30)
    took = time.monotonic() - began
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    assert took < 5.0
    _, printed = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "all is saved; to continue" in printed
    assert not study.seeds.exists()
    resumed = _command("--seeds", "0-1", "--resume", "--max-steps=300")
    subprocess.run(resumed, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    scores = json.loads(study.seeds.read_text(encoding="utf-8"))["behaviors"]["Basic"][
        "scores"
    ]
    assert list(scores) == ["0", "1"]


@pytest.mark.slow
@needs_proc
@needs_two_cores
def test_a_seed_that_is_killed_is_named_and_the_others_finish(tmp_path):
    process, study = _started(tmp_path, "0-1", max_steps=8000)
    os.kill(max(_children(process.pid)), signal.SIGKILL)
    _, printed = process.communicate(timeout=300)
    assert process.returncode == 1
    figures = json.loads(study.seeds.read_text(encoding="utf-8"))
    (failed,) = figures["failed"]
    assert f"seed {failed}: failed: its process was killed (SIGKILL)" in printed
    assert printed.splitlines()[-1].startswith(
        f"touchline: seed {failed} failed, 1 of 2 are done"
    )
    assert list(figures["behaviors"]["Basic"]["scores"]) == [str(1 - int(failed))]


@pytest.mark.slow
@needs_proc
@needs_two_cores
def test_seeds_save_and_end_when_their_parent_is_killed(tmp_path):
    process, study = _started(tmp_path, "0-1")
    children = _children(process.pid)
    process.kill()
    process.communicate(timeout=30)
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert study.seed(0).report.exists()
    assert study.seed(1).report.exists()


@pytest.mark.slow
def test_force_removes_every_seed_of_the_old_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "results" / "x"
    for seed in ("seed-0", "seed-1", "seed-3", ".seed-1.replaced"):
        write_run(folder / seed, [0.1], behavior="Old")
    for file in ("seeds.json", "report.md", "Old.png", "own.txt"):
        (folder / file).write_text("")
    settings = {"behaviors.*.max_steps": 200, "checkpoint_settings.force": True}
    call = ("Basic", [3])
    more = {"run_id": "x", "changes": settings, "log": lambda _: None}
    lock = locked(folder / "seed-1", "trains this run")
    with pytest.raises(UsageError, match="seed-1: another process trains this run"):
        touchline.train_seeds(*call, **more)
    assert (folder / "seed-0").is_dir()
    lock.release()
    result = touchline.train_seeds(*call, **more)
    assert list(result.behaviors["Basic"].scores) == [3]
    shown = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert shown == {"seed-3", "seeds.json", "report.md", "Basic.png", "own.txt"}
    assert not (folder / ".seed-1.replaced").exists()
    assert not (folder / "seed-3" / "Old").exists()


def test_a_seed_that_is_named_alone_is_one_of_all_that_are_done(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "results" / "x"
    for seed, returns in (
        (0, [0.1, 0.5]),
        (1, [0.2, 0.6]),
        (2, [0.3, 0.7]),
        (7, [0.9]),
    ):
        run = RunLayout(write_run(folder / f"seed-{seed}", returns))
        run.report.write_text("")
        run.resume_point.write_bytes(b"")
    lines = []
    settings = {"behaviors.*.max_steps": 200}
    result = touchline.train_seeds(
        "Basic", [2], run_id="x", resume=True, changes=settings, log=lines.append
    )
    assert result.behaviors["Basic"].scores == {0: 0.5, 1: 0.6, 2: 0.7}
    assert "done before: seed 2" in lines
    assert "not done, so left out of the figures: seed 7" in lines


def test_several_seeds_are_refused_in_the_folder_of_a_search(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "results" / "x"
    write_run(folder / "trial-0", [0.1])
    (folder / "trials.journal").write_text("")
    with pytest.raises(UsageError, match="this folder holds a search; choose another"):
        touchline.train_seeds("Basic", [0], run_id="x")
    assert not (folder / "seed-0").exists()


@pytest.mark.slow
def test_every_seed_starts_with_the_run_beside_the_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    single = _command(SHORT, "--seed=7", run_id="base")
    subprocess.run(single, check=True, capture_output=True, timeout=300)
    from_base = _command("--seeds", "0-1", SHORT, "--initialize-from", "base")
    subprocess.run(from_base, check=True, capture_output=True, timeout=300)
    start = (tmp_path / "results" / "base").absolute()
    for seed in (0, 1):
        settings = (tmp_path / f"results/x/seed-{seed}/configuration.yaml").read_text(
            encoding="utf-8"
        )
        assert f"initialize_from: {start}" in settings
    # As a single run that starts so, bit for bit.
    alone = _command(SHORT, "--seed=1", "--initialize-from", "base", run_id="seed-1")
    subprocess.run(alone, check=True, capture_output=True, timeout=300)
    own = tmp_path / "results/x/seed-1/Basic/checkpoint.safetensors"
    single_run = tmp_path / "results/seed-1/Basic/checkpoint.safetensors"
    assert own.read_bytes() == single_run.read_bytes()


@pytest.mark.slow
def test_a_seed_that_was_not_begun_starts_with_that_run_after_resume(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    short = {"behaviors.*.max_steps": 300}
    quiet = {"log": lambda _: None}
    touchline.train("Basic", run_id="base", changes=short, **quiet)
    changes = short | {"checkpoint_settings.initialize_from": "base"}
    study = {"run_id": "x", "changes": changes, **quiet}
    touchline.train_seeds("Basic", [0], **study)
    touchline.train_seeds("Basic", "0-2", resume=True, **study)
    start = (tmp_path / "results" / "base").absolute()
    for seed in (0, 1, 2):
        settings = (tmp_path / f"results/x/seed-{seed}/configuration.yaml").read_text(
            encoding="utf-8"
        )
        assert f"initialize_from: {start}" in settings
    shutil.rmtree(start)
    touchline.train_seeds("Basic", "0-2", resume=True, **study)
    with pytest.raises(UsageError, match=r"there is no run .*base"):
        touchline.train_seeds("Basic", "0-3", resume=True, **study)


def test_a_start_that_is_not_there_is_one_line_and_nothing_is_written(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert (
        run(["train", "Basic", "--seeds", "0-1", "--initialize-from", "nothing"]) == 2
    )
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert str(tmp_path / "results" / "nothing") in line
    assert not list(tmp_path.iterdir())
