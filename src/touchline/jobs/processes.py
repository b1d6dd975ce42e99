"""Other processes of this machine as a place for jobs.

A process gets jobs on standard input, which the parent keeps open: when it ends, the process saves
and leaves. So it does when the parent is killed. Lines and outcomes come on standard output.
"""

from __future__ import annotations

import base64
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.spawn import get_preparation_data, prepare
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from touchline.interrupts import INTERRUPTED
from touchline.jobs.job import (
    Job,
    Outcome,
    Place,
    RestartLimits,
    Restarts,
    Running,
    Site,
    call,
)
from touchline.operating_systems import (
    ProcessTree,
    num_cores,
    receive_interrupts,
    send_to_self,
)

_CHILD = "from touchline.jobs.processes import run_child; run_child()"
_OUTCOME = b"\0outcome "
"""Begins what no line of the work has: its outcome."""
# Limit for the end of a process without work, and for the last lines of one that has ended.
_ENDS_WITHIN_S = 1.0


class Processes(Place):
    """A process for each job with a folder; functions share processes."""

    def __init__(
        self, at_once: int | None = None, limits: RestartLimits | None = None
    ) -> None:
        self.at_once = at_once or num_cores()
        self._limits = limits
        self._free: list[Child] = []

    def start(self, job: Job) -> InProcess:
        restarts = Restarts(job.name, self._limits)
        if job.folder is None:
            return InProcess(job, restarts, self._free)
        return InProcess(job, restarts, site=Site(job.folder, print_line))

    def close(self) -> None:
        for child in self._free:
            child.stop()
        while self._free:
            child = self._free.pop()
            child.has_ended(_ENDS_WITHIN_S)
            child.kill()


class InProcess(Running):
    """A job with a process: one of the `free` ones, or its own where it has a site."""

    def __init__(
        self,
        job: Job,
        restarts: Restarts,
        free: list[Child] | None = None,
        site: Site | None = None,
        keeps_open: Sequence[int] = (),
    ) -> None:
        super().__init__(job.name, restarts)
        self._free = free
        self._keeps_open = keeps_open
        arguments = job.arguments if site is None else (*job.arguments, site)
        # As they are now: after a death they may have changed.
        self._call = pickle.dumps((job.work, arguments))
        self._start()

    def _start(self) -> None:
        free = self._free
        self._child = free.pop() if free else Child(free is None, self._keeps_open)
        self._child.begin(self._lines, self._call)

    def _ended(self, patience_s: float) -> Outcome | None:
        child = self._child
        outcome = child.outcome(patience_s)
        if outcome is None:
            return None
        if self._free is None:
            # The next run may want its folder and its ports.
            child.stop()
            return outcome if child.has_ended(patience_s) else None
        if not child.has_ended():
            self._free.append(child)
        return outcome

    def _restart(self, death: Outcome) -> None:
        number = self._restarts.number
        self._lines.append(f"{death.failure}; it continues (restart {number})")
        self._start()

    def _stop(self) -> None:
        self._child.stop()

    def kill(self) -> None:
        self._child.kill()


class Child:
    """A process that does what it is given until its input ends; it keeps descriptors open."""

    def __init__(self, is_own: bool, keeps_open: Sequence[int]) -> None:
        self._lines: list[str] = []
        self._last = ""
        self._outcome: Outcome | None = None
        self._has_news = Event()
        """Set at an outcome and at the end of its output."""
        self._preparation: dict[str, Any] = {}
        if not is_own:
            # A function, or what it needs, may be defined by the program that is running.
            self._preparation = get_preparation_data("job")
            del self._preparation["authkey"]  # which cannot be sent
        one_core = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        output = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}
        self._process = ProcessTree(
            [sys.executable, "-c", _CHILD],
            ends_with_us=False,  # when this process dies, it saves and leaves
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if is_own else None,
            env={**os.environ, **one_core, **output},
            pass_fds=keeps_open,
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def begin(self, lines: list[str], call: bytes) -> None:
        """Let it call a function; what it prints is added to the lines."""
        self._lines = lines
        self._outcome = None
        self._has_news.clear()
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # it ended, or Ctrl-C closed the pipe
            # Twice, so that it receives the call without the imports that this needs.
            self._process.stdin.write(pickle.dumps((self._preparation, call)))
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for raw in output:
                text, _, packed = raw.partition(_OUTCOME)
                line = text.decode(errors="replace").rstrip("\r\n")
                if packed:
                    self._outcome = pickle.loads(base64.b64decode(packed))
                    self._has_news.set()
                if line or not packed:
                    self._last = line.strip() or self._last
                    self._lines.append(line)
        self._has_news.set()

    def outcome(self, patience_s: float) -> Outcome | None:
        """Outcome of the call; None where it still runs after that many seconds."""
        if not self._has_news.wait(patience_s) and not self.has_ended():
            return None
        if self._outcome is None:
            # A process that it started may hold the pipe open, and has nothing to say.
            self._reader.join(_ENDS_WITHIN_S)
        return self._outcome or self._death()

    def _death(self) -> Outcome:
        """What the process died of, by its exit code and its last line."""
        if not self.has_ended(_ENDS_WITHIN_S):
            self.kill()
        code = self._process.returncode
        # A negative code is the number of a signal, on systems other than Windows.
        if code < 0:
            name = signal.Signals(-code).name
            return Outcome(failure=f"its process was killed ({name})", died=True)
        if code == INTERRUPTED:
            why = "its process was interrupted; what it has learned is saved"
            return Outcome(failure=why)
        return Outcome(failure=self._last or f"its process ended with code {code}")

    def has_ended(self, patience_s: float = 0.0) -> bool:
        """Whether the process has ended within that many seconds."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        return self._process.returncode is not None

    def stop(self) -> None:
        """Let it save and leave."""
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended already
            self._process.stdin.close()

    def kill(self) -> None:
        if not self.has_ended():
            self._process.end()
            self._process.wait()


# in the process


def run_child() -> None:
    """Do the jobs on standard input until it ends."""
    receive_interrupts()
    calls: SimpleQueue[tuple[dict[str, Any], bytes]] = SimpleQueue()
    Thread(target=_receive, args=(calls,), daemon=True).start()
    try:
        while True:
            preparation, packed = calls.get()
            prepare(preparation)
            work, arguments = pickle.loads(packed)
            outcome = pickle.dumps(call(work, *arguments))
            print_line((_OUTCOME + base64.b64encode(outcome)).decode())
    except KeyboardInterrupt:
        # Another one must not cut short how the process ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.exit(INTERRUPTED)


def _receive(calls: SimpleQueue[tuple[dict[str, Any], bytes]]) -> None:
    # Not through `sys.stdin`, whose lock Python wants when it exits.
    with open(0, "rb", closefd=False) as stream, suppress(EOFError):
        while True:
            calls.put(pickle.load(stream))
    send_to_self(signal.SIGINT)
    # On Windows only this ends a wait for a call.
    calls.put(({}, b""))


def print_line(line: str) -> None:
    """Report a line from a process of its own."""
    # Where the parent has died, the work is saved nevertheless.
    with suppress(BrokenPipeError):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
