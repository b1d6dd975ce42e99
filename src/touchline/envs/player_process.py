"""A player's process: find the executable, start it, notice its end, never leave it running.

Where a build keeps its executable, and the order of arguments, follow mlagents-envs 1.1.0
(docs/protocol.md, "Launching").
"""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from touchline.operating_systems import SYSTEM, ProcessTree
from touchline.protocol.errors import (
    PlayerExitedError,
    PlayerNotExecutableError,
    PlayerNotFoundError,
    WrongPlatformError,
)

SUFFIXES = {"linux": (".x86_64", ".x86"), "win32": (".exe",), "darwin": (".app",)}
QUIT_S = 5.0
"""How long a player may take to quit after it was requested; Unity needs a second or two."""
LOG_LINES = 15
LOG_BYTES = 20_000
"""How much of a log's end is read for its last lines."""
ENGINE_NOISE = (
    # Memory: the settings at the start, the table at the end.
    "[UnityMemory]", '"memorysetup-', "Memory Statistics:", "[ALLOC_", "Peak ", "Unload",
    "Total: ", "##utp:",
    # Mono and the modules.
    "Mono path", "Mono config path", "Begin MonoManager", "Completed reload", "- Loaded All",
    "- Finished resetting", "Fallback handler could not load", "Symbol file LoadedFromMemory",
    "Initialize engine version", "[Subsystems]", "[PhysX]", "[Physics::Module]",
    "Input System module", "Input initialized", "Initialize udev", "Found ", "Player connection [",
    "Setting up ",
    # Graphics and sound, of which a player without a window has none.
    "Forcing GfxDevice", "GfxDevice:", "NullGfxDevice", "Version:", "Renderer:", "Vendor:",
    "Driver:", "VRAM:", "Desktop is ", "Selected window backend", "ERROR: Shader ",
    "WARNING: Shader ", "Microsoft Media Foundation", "FMOD ", "ALSA lib ", "AudioManager",
    # What Unity's own logging adds below each line.
    "UnityEngine.StackTraceUtility:", "UnityEngine.DebugLogHandler:", "UnityEngine.Logger:",
    "UnityEngine.Debug:", "(Filename: ",
)  # fmt: skip
"""How lines begin that Unity's engine writes in every session, whatever the game does. Collected
from public logs of players without a window, of Unity 2018 to 2022."""
_MAGIC = {
    b"MZ": "Windows",
    b"\x7fELF": "Linux",
    b"\xcf\xfa\xed\xfe": "macOS",
    # The second one of macOS marks a universal binary, for two processors.
    b"\xca\xfe\xba\xbe": "macOS",
}
_SYSTEM = {"linux": "Linux", "win32": "Windows", "darwin": "macOS"}


def find_player(path: str | os.PathLike[str], platform: str = SYSTEM) -> Path:
    """The executable that `path` means on this system: with or without suffix, or the folder of a
    build.
    """
    # mlagents-envs strips blanks, too, which come with pasted paths.
    given = Path(os.fspath(path).strip()).expanduser()
    suffixes = SUFFIXES.get(platform, ())
    all_suffixes = [
        suffix for of_platform in SUFFIXES.values() for suffix in of_platform
    ]
    # A suffix of another platform is replaced, so that one command works on all of them.
    bare = given.with_suffix("") if given.suffix in all_suffixes else given
    with_suffixes = [Path(f"{bare}{suffix}") for suffix in suffixes]
    candidates = list(dict.fromkeys([*with_suffixes, given]))
    for candidate in candidates:
        if platform == "darwin" and candidate.suffix == ".app" and candidate.is_dir():
            found = _in_app_bundle(candidate, bare.name)
            if found is not None:
                return found
        elif candidate.is_file():
            return candidate
    if bare.is_dir():
        return find_player(_only_player(bare, suffixes), platform)
    tried = ", ".join(map(str, candidates))
    raise PlayerNotFoundError(
        f"no player at {given}; looked for {tried} from {Path.cwd()}"
    )


def _in_app_bundle(bundle: Path, name: str) -> Path | None:
    """The executable inside a macOS application: the one of its name, else the first."""
    folder = bundle / "Contents" / "MacOS"
    candidates = [folder / name, *sorted(folder.glob("*"))]
    return next((path for path in candidates if path.is_file()), None)


def _only_player(folder: Path, suffixes: Sequence[str]) -> Path:
    players = [
        path
        for path in sorted(folder.iterdir())
        # Unity puts UnityCrashHandler64.exe next to the game of a Windows build.
        if path.suffix in suffixes and "UnityCrashHandler" not in path.name
    ]
    if len(players) != 1:
        names = ", ".join(path.name for path in players)
        found = names or f"none with the suffix {' or '.join(suffixes)}"
        raise PlayerNotFoundError(
            f"{folder} is a folder; expected one player in it, found {found}"
        )
    return players[0]


def check_executable(path: Path, platform: str = SYSTEM) -> None:
    """Raise unless `path` is a program for this system that may be executed."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise PlayerNotExecutableError(
            f"cannot read {path}: {error.strerror}"
        ) from error
    system = next(
        (name for magic, name in _MAGIC.items() if head.startswith(magic)), None
    )
    here = _SYSTEM.get(platform, platform)
    if system not in (None, here):
        raise WrongPlatformError(
            f"{path} is a {system} program, this is {here}; build the game for {here}"
        )
    if system is None and not head.startswith(b"#!") and platform != "win32":
        raise PlayerNotExecutableError(
            f"{path} is neither a program nor a script; expected a game that was built for {here}"
        )
    if platform != "win32" and not os.access(path, os.X_OK):
        raise PlayerNotExecutableError(
            f"{path} is not executable; run: chmod +x {path}"
        )


def working_player(player: str) -> Path:
    """A player's executable; raises where this machine cannot start it."""
    path = find_player(player).absolute()
    check_executable(path)
    return path


class PlayerProcess:
    """A running player. What it prints, and its log, are kept for messages about failures."""

    def __init__(
        self,
        path: Path,
        port: int,
        *,
        no_graphics: bool = False,
        log_file: Path | None = None,
        additional_args: Sequence[str] = (),
    ) -> None:
        check_executable(path)
        self.path = path
        self._folder = tempfile.TemporaryDirectory(prefix="touchline-player-")
        if log_file is not None:
            log_file.parent.mkdir(parents=True, exist_ok=True)
        self._log = log_file or Path(self._folder.name) / "Player.log"
        self._output = Path(self._folder.name) / "output.txt"
        arguments = ["-nographics", "-batchmode"] if no_graphics else []
        arguments += ["--mlagents-port", str(port)]
        # Unity's manual spells it both ways, and of two log files the user's must win.
        if not any(a.lower() == "-logfile" for a in additional_args):
            arguments += ["-logFile", str(self._log)]
        self.command = [str(path.resolve()), *arguments, *additional_args]
        # gRPC inside Unity would use a proxy even for localhost.
        environment = os.environ | {
            "NO_PROXY": "localhost,127.0.0.1,::1",
            "no_proxy": "localhost,127.0.0.1,::1",
        }
        try:
            with self._output.open("wb") as output:
                self._process = ProcessTree(
                    self.command,
                    ends_with_us=True,
                    stdin=subprocess.DEVNULL,
                    # Into a file: no one reads a pipe here, and a full one holds a player up.
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                )
        except OSError as error:
            self._folder.cleanup()
            if isinstance(error, PermissionError):
                message = f"{path} may not be executed: {error.strerror}"
                raise PlayerNotExecutableError(message) from error
            message = f"{path} does not run on this machine: {error.strerror}"
            raise WrongPlatformError(message) from error

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_ended(self, patience_s: float) -> bool:
        """Wait for the process up to this time; returns whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        return self._process.poll() is not None

    def check(self, doing: str) -> None:
        """Raise a PlayerExitedError if the process has ended.

        `doing` says in the message when that was noticed, as in "in a step".
        """
        code = self._process.poll()
        if code is not None:
            raise PlayerExitedError(
                f"{self.path} {_ending(code)} {doing}{self.log_tail()}", code
            )

    def check_success(self, doing: str) -> None:
        """Raise a PlayerExitedError if the process has ended with another exit code than 0."""
        if self._process.poll():
            self.check(doing)

    def log_tail(self) -> str:
        """The last lines of its log and output, as the end of an error text, a line for each.

        What the engine writes in every session is left out (`ENGINE_NOISE`).
        """
        lines: list[str] = []
        for file in (self._log, self._output):
            with contextlib.suppress(OSError), file.open("rb") as log:
                log.seek(max(0, file.stat().st_size - LOG_BYTES))
                # The first character may be cut by the seek, hence "replace".
                lines += log.read().decode("utf-8", "replace").splitlines()
        kept = [line for line in map(str.rstrip, lines) if _says_something(line)]
        if not kept:
            return "; it wrote no log" if not lines else "; its log names no reason"
        return "; its log ends with:\n" + "\n".join(
            f"    {line}" for line in kept[-LOG_LINES:]
        )

    def stop(self, patience_s: float = QUIT_S) -> None:
        """Wait for the process to quit, then kill it and all that it has started. Idempotent.

        It must have been requested to quit before.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        # Also after an orderly end: a launcher's children, such as crash handlers, may still run.
        self._process.end()
        self._process.wait()
        self._folder.cleanup()


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.strip().startswith(ENGINE_NOISE)


def _ending(code: int) -> str:
    # `subprocess` gives a death by a signal as its negative number.
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was ended by signal {signal.Signals(-code).name}"
    # Real-time signals have no name in Python.
    except ValueError:
        return f"was ended by signal {-code}"
