"""Threads that run kernels over areas: everything once, errors passed on, and none left behind."""

import gc
import threading
import time

import numpy as np
import pytest

from touchline.physics import threads as kernel_threads
from touchline.physics.kernels import compiled
from touchline.physics.threads import Threads

NAME = "touchline-scene"


def helpers():
    return [t for t in threading.enumerate() if t.name.startswith(NAME)]


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    before = set(helpers())
    yield
    for thread in set(helpers()) - before:
        thread.join(timeout=10)
        assert not thread.is_alive()


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 63, 127, 128, 129, 1000])
def test_every_item_is_run_exactly_once(num_threads, count):
    times = np.zeros(count, int)
    lock = threading.Lock()

    def kernel(first, last, by):
        with lock:
            times[first:last] += by

    threads = Threads(num_threads)
    threads.run(kernel, count, 1)
    threads.close()
    assert (times == 1).all()
    assert 1 <= threads.parts(count) <= num_threads


def test_an_error_in_one_part_is_raised():
    def kernel(first, last):
        raise ValueError(f"from {first}")

    threads = Threads(2)
    with pytest.raises(ValueError, match="from"):
        threads.run(kernel, 1000)
    threads.close()
    threads.close()  # idempotent


def test_after_an_error_the_threads_work_on():
    threads = Threads(2, min_share=1)

    def kernel(first, last, out, fails):
        out[first:last] += 1
        if fails and first:
            raise ValueError("from a helper")

    out = np.zeros(2, int)
    with pytest.raises(ValueError, match="from a helper"):
        threads.run(kernel, 2, out, True)
    threads.run(kernel, 2, out, False)
    threads.close()
    assert out.tolist() == [2, 2]


@pytest.mark.parametrize("pause_s", [0.0, 0.003])
def test_threads_that_went_to_sleep_wake_up_for_the_next_job(pause_s, monkeypatch):
    monkeypatch.setattr(kernel_threads, "_TRIAL_S", np.inf)  # never left out
    threads = Threads(3, min_share=1)
    ran_on = np.zeros(3, int)

    def kernel(first, last):
        assert last == first + 1
        ran_on[first] = threading.get_ident()

    seen = set()
    for _ in range(200 if not pause_s else 20):
        threads.run(kernel, 3)
        seen.add(tuple(ran_on.tolist()))
        time.sleep(pause_s)
    threads.close()
    assert len(seen) == 1, "a part always runs on the same thread"
    assert len(set(seen.pop())) == 3


class LateEvent(threading.Event):
    """The caller loses the processor between a job and its event, until the thread sleeps."""

    def __init__(self):
        super().__init__()
        self.set()
        self.sleeps = threading.Event()

    def is_set(self):
        if threading.current_thread() is threading.main_thread():
            self.sleeps.wait(timeout=5)
        return super().is_set()

    def wait(self, timeout=None):
        self.sleeps.set()
        return super().wait(timeout)


def test_a_late_event_does_not_run_a_part_twice(monkeypatch):
    """A part that was done before its event was set was run again, for ever."""
    monkeypatch.setattr(kernel_threads, "_TRIAL_S", np.inf)  # never left out
    threads = Threads(2, min_share=1)
    times = np.zeros(2, int)

    def kernel(first, last):
        times[first:last] += 1

    def exchange(first, last):
        if first:  # while the thread is awake
            threads._helpers[0]._awake = LateEvent()

    for job in range(1, 5):
        threads.run(exchange, 2)
        threads.run(kernel, 2)
        time.sleep(0.05)
        assert times.tolist() == [job, job]
    threads.close()


def test_all_parts_have_ended_when_the_error_of_one_is_raised():
    threads = Threads(3, min_share=1)
    ended = []

    def kernel(first, last):
        if first == 1:
            raise ValueError("from a helper")
        time.sleep(0.05 * first)
        ended.append(first)

    with pytest.raises(ValueError, match="from a helper"):
        threads.run(kernel, 3)
    threads.close()
    assert ended == [0, 2]


def test_after_ctrl_c_the_next_job_waits_for_what_still_runs():
    threads = Threads(2, min_share=1)
    running = threading.Event()
    ran = []

    def slow(first, last):
        if first:
            running.set()
            time.sleep(0.2)
            ran.append("slow")
        else:
            running.wait(timeout=5)
            raise KeyboardInterrupt

    def quick(first, last):
        ran.append("quick")

    threads.run(quick, 2)
    ran.clear()
    waits = []
    (helper,) = threads._helpers

    def interrupted():
        waits.append(1)
        raise KeyboardInterrupt

    helper.wait = interrupted
    with pytest.raises(KeyboardInterrupt):
        threads.run(slow, 2)
    del helper.wait
    assert waits == [1]
    assert ran == []
    threads.run(quick, 2)
    threads.close()
    assert ran == ["slow", "quick", "quick"]


class InterruptedEvent(threading.Event):
    """Ctrl-C comes between a job and its event."""

    def __init__(self):
        super().__init__()
        self.set()
        self.sleeps = threading.Event()
        self.is_interrupted = False

    def is_set(self):
        if self.sleeps.is_set() and not self.is_interrupted:
            self.is_interrupted = True
            raise KeyboardInterrupt
        return super().is_set()

    def wait(self, timeout=None):
        self.sleeps.set()
        return super().wait(timeout)


def test_ctrl_c_between_a_job_and_its_event_leaves_no_thread_asleep():
    threads = Threads(2, min_share=1)
    ran = []

    def exchange(first, last):
        if first:  # while the thread is awake
            threads._helpers[0]._awake = InterruptedEvent()

    threads.run(exchange, 2)
    (helper,) = threads._helpers
    assert helper._awake.sleeps.wait(timeout=5)
    with pytest.raises(KeyboardInterrupt):
        threads.run(lambda first, last: ran.append(first), 2)
    threads.close()
    assert ran == [1]


def test_an_end_waits_for_no_thread_that_a_fork_left_behind():
    threads = Threads(2, min_share=1)
    threads.run(lambda first, last: None, 2)
    (helper,) = threads._helpers
    helper.jobs[kernel_threads.GIVEN] += 1  # as seen by a child while the parent works
    helper.wait = lambda: pytest.fail("waits for a thread that is not there")
    threads.close()
    helper._awake.set()


def test_a_slow_part_is_waited_for():
    threads = Threads(2, min_share=1)
    done = np.zeros(2, int)

    def kernel(first, last):
        time.sleep(0.05 * first)
        done[first] = 1

    threads.run(kernel, 2)
    assert done.tolist() == [1, 1]
    threads.close()


def test_a_thread_that_costs_more_than_it_brings_is_left_out_for_a_while(monkeypatch):
    # As on a busy machine, where a thread loses its processor in the middle of its part.
    monkeypatch.setattr(kernel_threads, "_ALONE_S", 0.2)
    threads = Threads(2, min_share=1)
    caller = threading.get_ident()
    ran_on = np.zeros(2, int)

    def kernel(first, last):
        ran_on[first:last] = threading.get_ident()
        if threading.get_ident() != caller:
            time.sleep(0.06)

    seen = []
    for _ in range(3):
        threads.run(kernel, 2)
        seen.append((ran_on == caller).tolist())
    time.sleep(0.2)
    threads.run(kernel, 2)
    seen.append((ran_on == caller).tolist())
    threads.close()
    assert seen == [[True, False], [True, True], [True, True], [True, False]]


@compiled
def _count(first, last, out):
    for k in range(first, last):
        out[k] += 1


def test_compiled_kernels_run_side_by_side_in_thousands_of_jobs():
    threads = Threads(2, min_share=1)
    out = np.zeros(7, np.int64)
    for _ in range(3000):
        threads.run(_count, 7, out)
    threads.close()
    assert (out == 3000).all()


def test_threads_that_are_never_closed_end_with_their_owner():
    before = set(helpers())
    threads = Threads(2, min_share=1)
    threads.run(_count, 2, np.zeros(2, np.int64))
    assert len(set(helpers()) - before) == 1
    del threads
    gc.collect()
