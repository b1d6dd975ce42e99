"""The fast tests under Wine, room by room, and a table of how each ended.

    python tests/windows/rooms.py                        all rooms, as `make windows`
    python tests/windows/rooms.py tests/envs tests/test_hub.py

A room is a folder with tests, without the folders below it. Each has a Windows process of its own,
so one that hangs or crashes costs only its own tests. What it prints is kept in `rooms` in the
folder that set_up.sh has made; the table also has the rooms that were run earlier. Exits with 1 if
a test failed or a room did not end.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
BOX = Path(os.environ.get("TOUCHLINE_WINDOWS", ROOT / "build" / "windows"))
INSIDE = ROOT / "tests" / "windows" / "inside.sh"
NOT_HERE = ("interop", "packaging")
"""Rooms that are all slow tests, with programs of Linux."""
HANGS_AFTER_S = 600
"""One test; its room ends then, with a traceback of all threads."""
_OUTCOME = re.compile(r"(?:tests[/\\]|\[gw).* (PASSED|SKIPPED|FAILED|ERROR)\b")
"""A line about one test; with several workers it begins with the number of one."""


def all_rooms():
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    names = {folder.relative_to(ROOT).as_posix() for folder in folders}
    return sorted(n for n in names if n.removeprefix("tests/") not in NOT_HERE)


def log_of(room):
    return BOX / "rooms" / f"{room.replace('/', '-')}.log"


def run(room, workers, limit_s):
    """Run the tests of one room; its log ends with the exit code."""
    path = ROOT / room
    if path.is_dir():
        files = [f.relative_to(ROOT).as_posix() for f in sorted(path.glob("test_*.py"))]
    else:
        files = [room]
    options = ["-vv", "-p", "no:cacheprovider", "-rfEs", "--tb=short", "--durations=5"]
    options += ["-o", f"faulthandler_timeout={HANGS_AFTER_S}"]
    options += ["-o", "faulthandler_exit_on_timeout=true"]
    options += ["-n", str(workers), "--dist", "loadfile"] if workers else ["-n", "0"]
    command = ["sh", str(INSIDE), "python", "-m", "pytest", *options, *files]
    log = log_of(room)
    log.parent.mkdir(exist_ok=True)
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, start_new_session=True
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            # `unshare` takes all of Wine with it.
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            code = "none, it did not end"
    seconds = time.monotonic() - began
    with log.open("a") as output:
        output.write(f"\nroom: exit code {code}, {seconds:.0f} s\n")


def outcome(room):
    """How often each outcome came in a room, why it is not whole, and its time; None: not run."""
    if not log_of(room).exists():
        return None
    *lines, last = log_of(room).read_text(errors="replace").splitlines() or [""]
    counts = Counter(found[1] for line in lines if (found := _OUTCOME.match(line)))
    # 1: tests failed; 5: all tests here are slow.
    is_whole = re.search(r"exit code [015],", last)
    return counts, "" if is_whole else "did not end", last.rpartition(", ")[2]


def show(rooms):
    """A table in Markdown; returns whether all rooms passed."""
    print(
        "| tests | passed | skipped | failed | time |\n| --- | --- | --- | --- | --- |"
    )
    total, are_fine = Counter(), True
    for room in rooms:
        found = outcome(room)
        if found is None:
            print(f"| `{room}` | not run | | | |")
            are_fine = False
            continue
        counts, fault, seconds = found
        total += counts
        failed = counts["FAILED"] + counts["ERROR"]
        are_fine &= not (failed or fault)
        ending = ", ".join(filter(None, [str(failed), fault]))
        print(
            f"| `{room}` | {counts['PASSED']} | {counts['SKIPPED']} | {ending} | {seconds} |"
        )
    failed = total["FAILED"] + total["ERROR"]
    print(f"| all | {total['PASSED']:,} | {total['SKIPPED']} | {failed} | |")
    return are_fine


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "rooms", nargs="*", help="folders and files of tests; without, all"
    )
    parser.add_argument("--workers", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--limit-s", type=float, default=3600, help="for one room")
    parser.add_argument("--table", action="store_true", help="run nothing")
    given = parser.parse_args()
    rooms = given.rooms or all_rooms()
    for number, room in enumerate([] if given.table else rooms, start=1):
        print(f"{number}/{len(rooms)} {room}", flush=True)
        run(room, given.workers, given.limit_s)
    sys.exit(not show(rooms))


if __name__ == "__main__":
    main()
