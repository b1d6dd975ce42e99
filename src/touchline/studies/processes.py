"""One of several runs side by side: its settings, its process, and how that ends.

Processes know nothing of each other. Each gets its run on standard input, which the parent keeps
open: when it ends, the process saves and leaves. So it does when the parent is killed. The
processes of a pool have a pipe for that.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import IO, TYPE_CHECKING, Protocol

from touchline.errors import TouchlineError, UsageError
from touchline.log import Log
from touchline.operating_systems import ProcessTree, send_to_self

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from touchline.envs.env import EnvRecipe
    from touchline.policies.files.run_layout import RunLayout
    from touchline.training.config.settings import RunConfig

STOPS_WITHIN_S = 3.5
"""What a process may take to save after Ctrl-C, of five seconds for all. Then it is killed, and its
last resume point, which is at most 20 seconds old, stays."""
INTERRUPTED = 130
_CHILD = "from touchline.studies.processes import run_child; run_child()"


def settings_of(
    config: RunConfig, own: RunLayout, seed: int, position: int
) -> RunConfig:
    """The settings of `touchline train --results-dir .. --run-id .. --seed N` for the folder `own`.

    `position` is that among the runs that go on at the same time, for the ports of their players.
    """
    files, worlds = config.checkpoint_settings, config.env_settings
    # A run that was never begun has nothing to resume.
    resumes = files.resume and own.resume_point.exists()
    start = None if resumes else files.initialize_from
    if start is not None:
        # A run beside the study, not beside this one.
        start = str(Path(files.results_dir, start).absolute())
    own_files = {
        "results_dir": str(own.path.parent),
        "run_id": own.path.name,
        "initialize_from": start,
        "resume": resumes,
    }
    port = worlds.base_port
    if port is not None:
        port += position * worlds.num_envs
    return config.model_copy(
        update={
            "checkpoint_settings": files.model_copy(update=own_files),
            "env_settings": worlds.model_copy(update={"seed": seed, "base_port": port}),
        }
    )


def world_of(
    config: RunConfig, own_scene: str | None, command: str, log: Log
) -> EnvRecipe:
    """The world of one run; `command` names what starts several, for messages."""
    from touchline.training.world import recipe_of

    recipe = recipe_of(config, own_scene, log)
    if recipe.is_editor:
        raise UsageError(
            f"{command} needs a world for each run, but the Editor is one; "
            "give a player with --env FILE"
        )
    if recipe.kind.is_scene:
        # Each process has one core; results are the same with any number of threads.
        return replace(recipe, options={"num_threads": 1, **recipe.options})
    return recipe


def start_process(
    output: int | IO[bytes], keeps_open: Sequence[int] = ()
) -> ProcessTree:
    """A process that waits for its run; `output` gets its lines, `keeps_open` are descriptors."""
    one_core = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    return ProcessTree(
        [sys.executable, "-c", _CHILD],
        # When this process dies, it saves and leaves.
        ends_with_us=False,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={
            **os.environ,
            **one_core,
            "PYTHONUNBUFFERED": "1",
            "PYTHONIOENCODING": "utf-8",
        },
        pass_fds=keeps_open,
    )


def hand_over(process: ProcessTree, job: bytes) -> None:
    """Give a process its run, as `job_of` makes it."""
    assert process.stdin is not None
    with suppress(OSError, ValueError):  # it ended, or Ctrl-C closed the pipe
        process.stdin.write(job)
        process.stdin.flush()


def job_of(config: RunConfig, recipe: EnvRecipe, *, to_wandb: bool = False) -> bytes:
    """A run, as a process takes it."""
    return pickle.dumps((config, recipe, to_wandb))


def ask_to_stop(process: ProcessTree) -> None:
    """Let a process save and leave."""
    assert process.stdin is not None
    with suppress(OSError):  # it has ended already
        process.stdin.close()


def kill(process: ProcessTree) -> None:
    """End a process, and the players that it started, at once."""
    if process.poll() is None:
        process.end()


class Job(Protocol):
    """A run that was started, here or elsewhere."""

    def lines(self) -> Iterator[str]:
        """What it prints, until it ends. Raises a RunError where it is lost."""

    def wait(self) -> int:
        """Its exit code."""

    def stop(self) -> None:
        """Let it save and leave."""

    def kill(self) -> None:
        """End it, and the players that it started, at once."""


class LocalJob:
    """A run in a process of this machine."""

    def __init__(self, job: bytes) -> None:
        self._process = start_process(subprocess.PIPE)
        hand_over(self._process, job)

    def lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for raw in output:
                yield raw.decode(errors="replace")

    def wait(self) -> int:
        code = self._process.wait()
        ask_to_stop(self._process)
        return code

    def stop(self) -> None:
        ask_to_stop(self._process)

    def kill(self) -> None:
        kill(self._process)


def why_failed(code: int, last_line: str) -> str:
    """What a process died of, by its exit code and its last line."""
    if code < 0:
        return f"its process was killed ({signal.Signals(-code).name})"
    if code == INTERRUPTED:
        return "its process was interrupted; what it has learned is saved"
    return last_line or f"its process ended with code {code}"


# in the process


def run_child() -> None:
    """Train the run on standard input, and exit as `touchline train`."""
    # A shell ignores Ctrl-C for what it starts in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        config, recipe, to_wandb = pickle.load(sys.stdin.buffer)
        Thread(target=_interrupt_at_end_of_input, daemon=True).start()
        code = _train(config, recipe, to_wandb)
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


def _interrupt_at_end_of_input() -> None:
    from _thread import interrupt_main

    # Not through `sys.stdin`, whose lock Python wants when it exits.
    while os.read(0, 1):
        pass
    interrupt_main()


def _train(config: RunConfig, recipe: EnvRecipe, to_wandb: bool) -> int:
    from touchline.training.run.metrics import load_drawing
    from touchline.training.trainer import train

    load_drawing()
    try:
        result = train(config, recipe, _print, to_wandb=to_wandb)
    except TouchlineError as error:
        _print(" ".join(str(error).split()))
        return 2 if isinstance(error, UsageError) else 1
    return INTERRUPTED if result.interrupted else 0


def _print(line: str) -> None:
    # Where the parent has died, the run is saved nevertheless.
    with suppress(BrokenPipeError):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


# in a process of a pool


def leave_at_end_of(pipe: Connection) -> None:
    """From now on this process exits, by a SystemExit, when the parent closes the pipe or dies."""
    # The terminal sends Ctrl-C to all processes; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    Thread(target=_sigterm_at_end_of, args=(pipe,), daemon=True).start()


def _leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    # The pool sends another one, which must not cut short how worlds are closed.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)


def _sigterm_at_end_of(pipe: Connection) -> None:
    with suppress(EOFError, OSError):
        pipe.recv()
    send_to_self(signal.SIGTERM)
