"""One contract in all places: here, in processes, and on the nodes of a Ray cluster."""

import _thread
import os
import signal
import sys
import threading
import time
import uuid
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from touchline.errors import RunError, UsageError
from touchline.jobs.job import Here, Job, RestartLimits, Restarts, follow
from touchline.jobs.processes import Processes
from touchline.jobs.shipping import pack_build

MARK = "TOUCHLINE_JOBS"
"""In the environment of every process that a test starts, and of theirs."""
OFTEN = RestartLimits(lifetime=2, rate=-1)
RAY = pytest.param("ray", marks=pytest.mark.slow)
EVERYWHERE = pytest.mark.parametrize("name", ["here", "processes", RAY])
ELSEWHERE = pytest.mark.parametrize("name", ["processes", RAY])
needs_signals = pytest.mark.skipif(
    sys.platform == "win32", reason="processes are killed by a signal"
)
pytestmark = [
    # Ray leaves sockets and pipes to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Other processes import the functions of this module."""
    here = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, here)))


@pytest.fixture
def marked(monkeypatch):
    """Whatever a test starts ends with it: processes, their ports, and shared memory."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    segments = set(Path("/dev/shm").glob("*"))
    yield
    deadline = time.monotonic() + 20.0
    while (left := what_is_left(mark, segments)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def what_is_left(mark, segments):
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_own = process.pid == os.getpid()
            if not is_own and process.environ().get(MARK) == mark:
                found.append(f"process {process.pid} {process.cmdline()}")
                found += [f"port {one.laddr.port}" for one in process.net_connections()]
    new = set(Path("/dev/shm").glob("*")) - segments
    # Other programs of this machine make some, too.
    return found + [
        str(path) for path in new if "ray" in path.name or "plasma" in path.name
    ]


@contextmanager
def place(name, limits=None, build=None):
    if name == "here":
        yield Here()
    elif name == "processes":
        yield Processes(2, limits)
    else:
        pytest.importorskip("ray", reason="needs touchline[ray]")
        from touchline.training.collect.opening import import_ray

        import_ray("this test")
        from touchline.jobs.ray import Nodes, connected, shared_build

        with connected("local:2"):
            yield Nodes(1, build and shared_build(build), limits)


def outcomes(where, *jobs):
    """The outcomes and lines of jobs by their names."""
    found, lines = {}, {job.name: [] for job in jobs}
    for running in follow(where, jobs):
        lines[running.name] += running.lines()
        if running.outcome is not None:
            found[running.name] = running.outcome
    return found, lines


# work


def double(number):
    return 2 * number


def refuse(text):
    raise UsageError(text)


def die(folder, numbers):
    """Die in the first two attempts; returns the number of the third, and what it was given."""
    folder.mkdir(exist_ok=True)
    (folder / f"attempt-{os.getpid()}").touch()
    attempts = len(list(folder.iterdir()))
    if attempts < 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return attempts, numbers


def count_up(stop_at, deaths, site):
    """Count in a file, which is the state; print each number, and die after some of them."""
    state = site.folder / "state"
    site.folder.mkdir(parents=True, exist_ok=True)
    try:
        while True:
            number = int(state.read_text()) + 1 if state.exists() else 1
            state.write_text(str(number))
            site.log(f"number {number}")
            if number == stop_at:
                return number
            if number in deaths:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.02)
    except KeyboardInterrupt:
        (site.folder / "saved").touch()
        raise


def fail(attempts, site):
    with attempts.open("a") as file:
        file.write("x")
    raise RunError("it cannot\nwork")


def crash(site):
    raise ValueError("a mistake in our code")


def ignore_interrupts(site):
    site.folder.mkdir()
    site.log("begins")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    (site.folder / "state").touch()
    time.sleep(60)


def read_program(site):
    return site.program.name, site.program.read_text(), site.is_home


# outcomes


@EVERYWHERE
def test_functions_return_values_and_errors_of_their_kind(name, marked):
    jobs = [Job(f"{n}", double, (n,)) for n in range(5)]
    with place(name) as where:
        found, _ = outcomes(where, *jobs, Job("refused", refuse, ("no such\nthing",)))
    assert [found[f"{n}"].result() for n in range(5)] == [0, 2, 4, 6, 8]
    with pytest.raises(UsageError, match="no such\nthing"):
        found["refused"].result()


@EVERYWHERE
def test_lines_and_files_arrive_and_work_continues_from_its_folder(
    name, tmp_path, marked
):
    first, second = (Job("it", count_up, (n, ()), tmp_path / "job") for n in (3, 5))
    with place(name) as where:
        found, lines = outcomes(where, first)
        again, more = outcomes(where, second)
    assert (found["it"].result(), again["it"].result()) == (3, 5)
    assert lines["it"] == [f"number {n}" for n in (1, 2, 3)]
    assert more["it"] == [f"number {n}" for n in (4, 5)]
    assert (tmp_path / "job" / "state").read_text() == "5"


@EVERYWHERE
def test_an_error_of_the_work_would_come_again_and_is_not_tried_again(
    name, tmp_path, marked
):
    attempts = tmp_path / "attempts"
    with place(name, OFTEN) as where:
        found, _ = outcomes(where, Job("it", fail, (attempts,), tmp_path / "job"))
    assert found["it"].why == "it cannot work"
    assert attempts.read_text() == "x"


@ELSEWHERE
def test_a_mistake_in_our_code_is_the_last_line_of_its_traceback(
    name, tmp_path, marked
):
    with place(name, OFTEN) as where:
        found, lines = outcomes(where, Job("it", crash, (), tmp_path / "job"))
    assert found["it"].failure == "ValueError: a mistake in our code"
    assert "Traceback (most recent call last):" in lines["it"]


# deaths


@needs_signals
@ELSEWHERE
def test_work_that_dies_continues_from_its_folder_as_often_as_its_limits_allow(
    name, tmp_path, marked
):
    jobs = [
        Job("twice", count_up, (6, (2, 4)), tmp_path / "twice"),
        Job("thrice", count_up, (9, (1, 2, 3)), tmp_path / "thrice"),
    ]
    with place(name, OFTEN) as where:
        found, lines = outcomes(where, *jobs)
    assert found["twice"].result() == 6
    assert sum("it continues (restart" in line for line in lines["twice"]) == 2
    assert "thrice failed again after 2 restarts" in found["thrice"].failure
    assert "SIGKILL" in found["thrice"].failure
    assert (tmp_path / "thrice" / "state").read_text() == "3"


@needs_signals
@ELSEWHERE
def test_a_function_that_dies_is_called_again_with_what_it_was_given(
    name, tmp_path, marked
):
    numbers = [1]
    with place(name, OFTEN) as where:
        for running in follow(where, [Job("it", die, (tmp_path / "it", numbers))]):
            numbers[0], last = 2, running
    assert last.outcome.result() == (3, [1])


@needs_signals
def test_without_limits_a_death_is_the_outcome(tmp_path, marked):
    job = Job("it", count_up, (3, (2,)), tmp_path / "job")
    found, _ = outcomes(Processes(), job)
    assert found["it"].failure == "its process was killed (SIGKILL)"
    again, _ = outcomes(Processes(), job)
    assert again["it"].result() == 3


def test_attempts_here_end_with_the_limits_and_at_an_error_that_would_come_again():
    def attempt(error):
        before.append(str(error))
        raise kind(f"death {len(before)}")

    before, kind = [], RunError
    with pytest.raises(RunError, match="it failed again after 2 restarts"):
        Restarts("it", OFTEN).alive(attempt, lambda error: isinstance(error, RunError))
    assert before == ["None", "death 1", "death 2"]
    before, kind = [], ValueError
    with pytest.raises(ValueError, match="death 1"):
        Restarts("it", OFTEN).alive(attempt, lambda error: isinstance(error, RunError))


# Ctrl-C


def interrupt_once_there_is(path):
    """Ctrl-C as soon as the work has begun; returns when that was."""
    times = []

    def wait():
        while not path.exists():
            time.sleep(0.02)
        times.append(time.monotonic())
        _thread.interrupt_main()

    threading.Thread(target=wait, daemon=True).start()
    return times


@EVERYWHERE
def test_ctrl_c_ends_all_within_five_seconds_with_everything_saved(
    name, tmp_path, marked
):
    jobs = [Job(f"{n}", count_up, (0, ()), tmp_path / f"{n}") for n in range(3)]
    signalled = tmp_path / "0" / "state"
    if name == "ray":  # files arrive every ten seconds
        signalled = tmp_path / "line"
    slow = []

    def follow_all(where):
        for running in follow(where, jobs, slow.append):
            if running.lines():
                (tmp_path / "line").touch()

    with place(name) as where:
        began = interrupt_once_there_is(signalled)
        with pytest.raises(KeyboardInterrupt):
            follow_all(where)
        took = time.monotonic() - began[0]
    assert took < 5.0
    assert not slow
    assert (tmp_path / "0" / "saved").exists()
    assert not (tmp_path / "2").exists(), "it had no room yet"


@needs_signals
@ELSEWHERE
def test_work_that_does_not_stop_is_killed_within_five_seconds(name, tmp_path, marked):
    jobs = [Job("it", ignore_interrupts, (), tmp_path / "job")]
    slow = []
    with place(name) as where, closing(follow(where, jobs, slow.append)) as all_running:
        while not next(all_running).lines():
            pass
        began = time.monotonic()
        all_running.close()
        took = time.monotonic() - began
    assert took < 5.0
    assert slow == ["it was slow to stop and loses its last seconds"]


# shipping


@pytest.mark.slow
def test_a_build_is_there_wherever_a_job_runs(tmp_path, monkeypatch, marked):
    monkeypatch.delenv("TMPDIR", raising=False)  # Ray's paths have to be short
    monkeypatch.setenv("TEMP", str(tmp_path))
    player = tmp_path / "build" / "game.x86_64"
    player.parent.mkdir()
    player.write_text("#!/bin/sh\n")
    jobs = [Job(f"{n}", read_program, (), tmp_path / f"{n}") for n in range(2)]
    with place("ray", build=pack_build(player)) as where:
        found, _ = outcomes(where, *jobs)
    expected = (player.name, player.read_text(), False)
    assert [found[f"{n}"].result() for n in range(2)] == [expected] * 2
