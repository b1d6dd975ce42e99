"""Training on a terminal: a live table. In a pipe: the lines of a log."""

import io
import os
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from rich.console import Console

from touchline.cli.training_table import TrainingTable
from touchline.log import EvaluationLine, ProgressLine
from touchline.training.run.progress import BehaviorProgress

TRAIN = [sys.executable, "-m", "touchline", "train", "Basic", "--num-areas", "4"]
SMALL = [
    "--set=behaviors.*.hyperparameters.buffer_size=256",
    "--set=behaviors.*.summary_freq=256",
]
SHOW_CURSOR, HIDE_CURSOR = b"\x1b[?25h", b"\x1b[?25l"


@pytest.fixture
def train_on_terminal(tmp_path):
    """Runs the command on a pseudo-terminal of its own; gives its exit code and all output."""
    pty = pytest.importorskip("pty", reason="a pseudo-terminal is one of POSIX")

    def run(*arguments, interrupt_at=None, term="xterm"):
        ours, theirs = pty.openpty()
        variables = os.environ | {"TERM": term, "COLUMNS": "110", "LINES": "30"}
        process = subprocess.Popen(
            [*TRAIN, *arguments],
            cwd=tmp_path,
            env=variables,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        seen, end = b"", time.monotonic() + 120
        while time.monotonic() < end:
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    seen += os.read(ours, 65536)
                except OSError:  # EIO: the other end is closed
                    break
            if interrupt_at is not None and re.search(interrupt_at, seen):
                process.send_signal(signal.SIGINT)
                interrupt_at = None
        os.close(ours)
        return process.wait(20), seen

    return run


def test_a_behavior_that_only_imitates_is_done():
    screen = io.StringIO()
    console = Console(file=screen, width=100)
    table = TrainingTable(console)
    rows = [
        BehaviorProgress(name, 40, max_steps, None, 0.0, True, None)
        for name, max_steps in (("Imitates", 0), ("Learns", 80))
    ]
    table.watch(lambda: rows)
    console.print(table.draw())
    assert re.search(r"Imitates +40 +100 %", screen.getvalue())
    assert re.search(r"Learns +40 +50 %", screen.getvalue())


@pytest.mark.slow  # starts Python, and the machine may be busy
def test_a_terminal_gets_a_table_then_the_report_and_the_next_commands(
    train_on_terminal,
):
    code, seen = train_on_terminal("--max-steps=2000", *SMALL)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert code == 0, text
    assert re.search(r"behavior +step +done +steps/s +return +left", text)
    assert re.search(r"Basic +2,0\d\d +100 %", text)
    assert "evaluated at step" in text
    assert "of 2,000 (" not in text, "the table stands for lines of progress"
    assert "report: results/Basic/report.md" in text
    assert "watch: touchline view Basic --policy results/Basic" in text
    assert "evaluate: touchline eval Basic --policy results/Basic" in text
    assert seen.count(HIDE_CURSOR) > 0
    assert seen.rfind(SHOW_CURSOR) > seen.rfind(HIDE_CURSOR)


@pytest.mark.slow
def test_ctrl_c_saves_and_leaves_the_cursor(train_on_terminal):
    code, seen = train_on_terminal(
        "--max-steps=5e6", interrupt_at=rb"Basic +[\d,]+ +\d"
    )
    assert code == 130, seen.decode()
    assert b"stopped early, all is saved" in seen
    assert seen.rfind(SHOW_CURSOR) > seen.rfind(HIDE_CURSOR)


ON_ITS_TERMINAL = """
import fcntl, signal, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from touchline.cli import main
main()
"""


@pytest.mark.slow
def test_a_run_whose_terminal_is_closed_is_saved(tmp_path):
    pty = pytest.importorskip("pty", reason="a pseudo-terminal is one of POSIX")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", ON_ITS_TERMINAL, *TRAIN[3:], "--max-steps=5e6"],
        cwd=tmp_path,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "110", "LINES": "30"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    while not re.search(rb"Basic +[\d,]+ +\d", seen):
        seen += os.read(ours, 65536)
    os.close(ours)
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGHUP)  # as a shell does, too
    assert process.wait(60) == 130
    assert (tmp_path / "results/Basic/Basic/checkpoint.safetensors").exists()


@pytest.mark.slow
def test_an_error_leaves_one_line_and_the_cursor(train_on_terminal):
    code, seen = train_on_terminal("--resume", "--run-id=none-such")
    assert code == 2
    assert b"there is no run to resume" in seen
    assert b"steps/s" not in seen
    assert seen.rfind(SHOW_CURSOR) >= seen.rfind(HIDE_CURSOR)


@pytest.mark.slow
def test_a_terminal_that_cannot_move_its_cursor_gets_lines(train_on_terminal):
    code, seen = train_on_terminal("--max-steps=600", *SMALL, term="dumb")
    assert code == 0
    assert b"of 600 (" in seen
    assert HIDE_CURSOR not in seen


@pytest.mark.slow
def test_a_pipe_gets_lines_of_progress_without_escapes(tmp_path):
    done = subprocess.run(
        [*TRAIN, "--max-steps=600", *SMALL],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "\x1b" not in done.stderr
    line = r"Basic  step +\d+ of 600 \( *\d+ %\).* steps/s  .*  left \d+:\d\d"
    assert re.search(line, done.stderr)


def test_the_row_never_runs_backwards_and_ends_at_its_last_step():
    screen = io.StringIO()
    console = Console(file=screen, width=100)
    table = TrainingTable(console)
    steps = iter((14_832, 12_000, 27_048))

    def progress():
        return [BehaviorProgress("Walker", next(steps), 27_048, 1.0, 0.1, False, None)]

    table.watch(progress)
    table.look()  # what was handed over to the learner, which has not used it yet
    console.print(table.draw())
    assert re.search(r"Walker +14,832 +55 %", screen.getvalue())
    # The summary of the last step comes before the evaluation, however soon after another look.
    table.watch(progress)
    table.log(ProgressLine("Walker  step 27,048 of 27,048"))
    console.print(table.draw())
    assert re.search(r"Walker +27,048 +100 %", screen.getvalue())


def test_evaluations_have_a_line_of_their_own_below_the_table():
    screen = io.StringIO()
    console = Console(file=screen, width=100)
    table = TrainingTable(console)
    row = BehaviorProgress("Walker", 9, 90, 1.0, 0.1, False, None)
    table.watch(lambda: [row])
    table.log(EvaluationLine("Walker", "evaluated at step 4: 2.000"))
    table.log(EvaluationLine("Walker", "evaluated at step 8: 3.000"))
    assert screen.getvalue() == "", "the display shows them, not the lines above it"
    console.print(table.draw())
    lines = [line.rstrip() for line in screen.getvalue().splitlines()]
    assert lines[1].startswith("Walker  ")
    assert lines[2] == "Walker  evaluated at step 8: 3.000"
