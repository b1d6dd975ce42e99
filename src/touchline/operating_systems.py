"""What differs between Linux, Windows and macOS: files, processes, signals, quoting, launchers.

No other module looks at the system it runs on; a test holds that. What was tried on which system,
and how: docs/windows.md.
"""

import contextlib
import ctypes
import io
import os
import shlex
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar

from touchline.errors import FileHeldError, UsageError

SYSTEM = sys.platform
"""linux, win32 or darwin."""
HELD_S = 5.0
"""How long a file may be held open by another program before its replacement fails. A virus scanner
or a cloud folder looks at a new file for less than a second."""
_Result = TypeVar("_Result")

# files


def replace_file(source: Path, target: Path) -> None:
    """Rename a file or a folder in one step; a file at the target is replaced."""
    _patiently(lambda: source.replace(target), target)


def remove_file(path: Path) -> None:
    """Delete a file, if it is there."""
    _patiently(lambda: path.unlink(missing_ok=True), path)


def remove_folder(path: Path) -> None:
    """Delete a folder with everything in it, or a link to one."""
    _patiently(path.unlink if path.is_symlink() else lambda: shutil.rmtree(path), path)


def open_to_append(path: Path) -> TextIO:
    """A text file whose lines are kept as they are written."""
    return _patiently(lambda: path.open("a", newline="", encoding="utf-8"), path)


def _patiently(change: Callable[[], _Result], path: Path) -> _Result:
    """Change a file, again and again while another program has it open."""
    # Only Windows refuses that; elsewhere the first error is raised.
    deadline = time.monotonic() + HELD_S
    pause_s = 0.001
    while True:
        try:
            return change()
        except PermissionError as error:
            if SYSTEM != "win32":
                raise
            if time.monotonic() > deadline:
                raise FileHeldError(
                    f"{error.filename or path}: Windows has refused for {HELD_S:g} s to replace "
                    f"this file ({error.strerror}); close the program that has it open"
                ) from error
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.1)


def user_cache() -> Path:
    """Where this system's programs keep what they can fetch again."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))


def own_temporary(name: str, shared: Path | None = None) -> Path:
    """A folder of this user's own, which all of the user's processes share, for what is executed.

    `shared` is the folder for temporary files, by default that of this process. Raises an OSError
    where it cannot be made, or another user has made it.
    """
    # By number, because a user of a container may have no name. Windows has a folder for each user.
    own = "" if sys.platform == "win32" else f"-{os.getuid()}"
    folder = (shared or Path(tempfile.gettempdir())) / f"{name}{own}"
    folder.mkdir(mode=0o700, exist_ok=True)
    # Anyone can write into a folder for temporary files.
    if sys.platform != "win32" and folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    return folder


def removed_when_over(folder: str) -> tuple[int, ...]:
    """Remove a folder when no process holds these descriptors any more, however it ended."""
    # A process that is killed removes nothing, so a shell waits for the ends of all. It is no child
    # of this process, whose children Ray kills with it. Windows has no such shell: what a killed
    # process leaves, its cleaning of temporary files takes.
    if sys.platform == "win32":
        return ()
    reading, writing = os.pipe()
    waiting = 'exec 3<&0; (cat <&3; rm -rf -- "$1") >/dev/null 2>&1 &'
    subprocess.run(
        ["sh", "-c", waiting, "sh", folder],
        stdin=reading,
        start_new_session=True,
        check=True,
    )
    os.close(reading)
    return (writing,)


def make_temporary_folder_of_process() -> None:
    """From now on this process makes its temporary files in a folder that goes with it."""
    if sys.platform != "win32":
        tempfile.tempdir = tempfile.mkdtemp(prefix="touchline-collector-")
        removed_when_over(tempfile.tempdir)


# processes


class ProcessTree(subprocess.Popen[bytes]):
    """A process with all that it starts. The terminal's Ctrl-C does not reach it.

    It is ended by `end`, and with `ends_with_us` also by a second Ctrl-C (`end_all_trees`). There,
    Windows ends it with this process however that ends.
    """

    def __init__(
        self, command: Sequence[str], *, ends_with_us: bool, **settings: Any
    ) -> None:
        if sys.platform == "win32":
            # A console of its own, without a window: Ctrl-Break reaches all processes of one.
            flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
            super().__init__(command, creationflags=flags, **settings)
            # The process has not run its first instruction of its own by now, so what it starts
            # is in the job, too.
            self._job = _job_of(int(self._handle), ends_with_us)
        else:
            # It leads a session, whose number is its own.
            super().__init__(command, start_new_session=True, **settings)
        if ends_with_us:
            _ending_with_us.add(self)

    def end(self) -> None:
        """End everything at once, also where the first process has ended. Idempotent."""
        _ending_with_us.discard(self)
        if sys.platform == "win32":
            if self._job:
                _kernel32().TerminateJobObject(self._job, 1)
                _kernel32().CloseHandle(self._job)
                self._job = 0
            self.kill()
        else:
            # macOS raises a PermissionError where all that is left of the group has ended.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


_ending_with_us: set[ProcessTree] = set()


def end_all_trees() -> None:
    """End every tree that ends with this process."""
    for tree in list(_ending_with_us):
        with contextlib.suppress(OSError):
            tree.end()


if sys.platform == "win32":

    def _kernel32() -> Any:
        library = ctypes.WinDLL("kernel32", use_last_error=True)
        library.CreateJobObjectW.restype = ctypes.c_void_p
        library.CreateJobObjectW.argtypes = [ctypes.c_void_p, ctypes.c_wchar_p]
        library.SetInformationJobObject.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_uint32,
        ]
        library.AssignProcessToJobObject.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.TerminateJobObject.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
        library.CloseHandle.argtypes = [ctypes.c_void_p]
        return library

    def _job_of(process: int, ends_with_us: bool) -> int:
        """A new job object with this process in it; 0 where Windows refuses."""
        kernel32 = _kernel32()
        job: int = kernel32.CreateJobObjectW(None, None) or 0
        if ends_with_us:
            # JOBOBJECT_EXTENDED_LIMIT_INFORMATION (9) of 64-bit Windows, 144 bytes: of its fields
            # only LimitFlags, with JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE (0x2000).
            limits = struct.pack("<16xI124x", 0x2000)
            kernel32.SetInformationJobObject(job, 9, limits, len(limits))
        if not kernel32.AssignProcessToJobObject(job, process):
            kernel32.CloseHandle(job)
            return 0
        return job


# signals

if sys.platform == "win32":
    KEYBOARD_SIGNALS: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGBREAK)
    HANG_UP: tuple[signal.Signals, ...] = ()
else:
    KEYBOARD_SIGNALS = (signal.SIGINT,)
    # What `nohup` starts ignores it, to outlive its terminal.
    _is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    HANG_UP = () if _is_ignored else (signal.SIGHUP,)
STOP_SIGNALS = (*KEYBOARD_SIGNALS, signal.SIGTERM, *HANG_UP)
"""Requests to end; on Windows, SIGTERM comes only from the process itself."""


def receive_interrupts() -> None:
    """Ctrl-C interrupts this process, whoever started it."""
    # A shell ignores it for what it starts in the background, and threads of Ray block it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def leave_closed_terminal() -> None:
    """Where standard streams are a terminal that was closed, what is printed goes nowhere.

    It would be an error, also between two files of a run that are saved together.
    """
    for stream in (1, 2):
        try:
            os.write(stream, b"")
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream)
            os.close(nowhere)


def send_to_self(number: signal.Signals) -> None:
    """Let the main thread handle a signal."""
    if sys.platform == "win32":
        # `os.kill` would end the process without asking its handler.
        signal.raise_signal(number)
    else:
        # Unlike `raise_signal` in another thread, this also ends a wait of the main thread.
        os.kill(os.getpid(), number)


def after_fork_in_child(function: Callable[[], None]) -> None:
    """Call a function in every forked process; Windows forks none."""
    if sys.platform != "win32":
        os.register_at_fork(after_in_child=function)


# the machine


def num_cores() -> int:
    """Processor cores that this process may use, which a container may limit."""
    if SYSTEM == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """Memory of this machine."""
    if sys.platform == "win32":
        # MEMORYSTATUSEX in numbers of 8 bytes: first its own size, second all of the memory.
        status = (ctypes.c_uint64 * 8)(64)
        ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
        return int(status[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def glibc_mallopt() -> Callable[[int, int], Any] | None:
    """How glibc's allocator is set; None with another C library."""
    library = ctypes.CDLL(None) if SYSTEM == "linux" else None
    return getattr(library, "mallopt", None)


def draws_without_display() -> bool:
    """Whether OpenGL must be set to draw into memory, as on Linux without a display."""
    return sys.platform == "linux" and not os.environ.get("DISPLAY")


def claim_port(listener: socket.socket) -> None:
    """Before `bind`: refuse a port that is in use, and no other."""
    # On Windows SO_REUSEADDR would share a port that is in use; elsewhere it only frees one in
    # TIME_WAIT, as after a player that was just closed.
    if sys.platform == "win32":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


# the command line


def quoted(argument: str, system: str = SYSTEM) -> str:
    """An argument as it is typed into a shell; on Windows into cmd.exe or PowerShell."""
    # The two share only double quotes. Within them PowerShell still replaces `$name`, and cmd.exe
    # `%name%`.
    if system != "win32":
        return shlex.quote(argument)
    if argument and all(c.isalnum() or c in "\\/:._-+=" for c in argument):
        return argument
    # A program takes a backslash before a quote for part of the text (CommandLineToArgvW).
    at_end = len(argument) - len(argument.rstrip("\\"))
    return '"' + argument + "\\" * at_end + '"'


def let_streams_print_everything() -> None:
    """A character that the terminal's encoding lacks becomes a question mark, not an error.

    Where a stream is closed, as after `2>&-`, what is printed goes nowhere.
    """
    # Python has None for them.
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A program that calls us may have put something else there.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


# programs

_SH = """\
#!/bin/sh
# {title}
# Official tools need protobuf's slow form on newer Pythons. It must not slow the player down.
unset PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION
export PYTHONPATH={path}"${{PYTHONPATH:+:$PYTHONPATH}}"
export GRPC_VERBOSITY="${{GRPC_VERBOSITY:-NONE}}"
exec {python} -m {module} {arguments} "$@"
"""
_PYTHON = """\
# {title}
# The environment, as the launcher of other systems sets it.
import os
import sys
os.environ.pop("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", None)
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
sys.path[:0] = {path!r}
from {module} import main
sys.exit(main([*{arguments!r}, *sys.argv[1:]]))
"""


class Launcher(NamedTuple):
    """A program that starts a module of Python with some arguments, and then those it is given."""

    title: str
    module: str
    arguments: Sequence[str]
    path: Sequence[str]
    """Folders in which Python looks for modules."""

    def write(self, folder: Path, name: str, system: str = SYSTEM) -> Path:
        """Write it where a Unity build of this system has its executable; returns that.

        Raises a UsageError for a folder in `path` that the system's PYTHONPATH cannot hold.
        """
        split = next((part for part in self.path if ":" in part), None)
        if split is not None and system != "win32":
            raise UsageError(
                f"{split}: Python splits PYTHONPATH at each colon, so a player cannot load modules "
                "from this folder; rename it"
            )
        folder.mkdir(parents=True, exist_ok=True)
        if system == "win32":
            return self._exe(folder, name)
        if system == "darwin":
            file = folder / f"{name}.app" / "Contents" / "MacOS" / name
        else:
            file = folder / f"{name}.x86_64"
        file.parent.mkdir(parents=True, exist_ok=True)
        text = _SH.format(
            title=self.title,
            path=shlex.quote(":".join(self.path)),
            python=shlex.quote(sys.executable),
            module=self.module,
            arguments=shlex.join(self.arguments),
        )
        # In one step, because another process may start the one that is there.
        part = file.with_name(f"{file.name}.{os.getpid()}")
        part.write_text(text, encoding="utf-8")
        executable = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
        part.chmod(part.stat().st_mode | executable)
        replace_file(part, file)
        return file

    def _exe(self, folder: Path, name: str) -> Path:
        """The small program that pip starts scripts with, and the script at its end."""
        from distlib.scripts import ScriptMaker

        maker = ScriptMaker(None, str(folder))
        maker.clobber = True
        # By default a second program has the version of Python in its name.
        maker.variants = {""}
        maker.executable = sys.executable
        text = _PYTHON.format(
            title=self.title,
            path=list(self.path),
            module=self.module,
            arguments=list(self.arguments),
        )
        # It fills in names by `%`.
        maker.script_template = text.replace("%", "%%")
        maker.make(f"{name} = {self.module}:main")
        return folder / f"{name}.exe"
