"""Functions compiled by numba ("kernels").

A kernel takes (first, last, …) and touches only the areas or agents from `first` to `last`, so the
number of threads (`threads`) changes the time taken and nothing else. Kernels release the
interpreter lock. numba's own parallel loops would bring a second OpenMP runtime into the process
in addition to torch's.

Machine code is kept on disk by the contents of the sources and not by their place, so all
environments of a machine with the same version share it. The folder is `touchline` in the user's
cache directory, or NUMBA_CACHE_DIR. A line in the log announces the first use.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import tempfile
from atexit import register
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

import numba
import numpy as np
from numba.core import event
from numba.core.dispatcher import Dispatcher

Function = TypeVar("Function", bound=Callable[..., Any])

_PACKAGE = Path(__file__).resolve().parents[1]
_IMPORT = re.compile(
    r"^from (touchline[\w.]*) import (?:\(([^)]*)\)|(.*))", re.MULTILINE
)
"""Module, and the names imported from it: between brackets, or on the rest of the line."""
_KERNELS: set[Callable[..., Any]] = set()
"""Functions that became kernels here; other code in the process may use numba too."""

logger = logging.getLogger(__name__)

_COLUMN_TYPES: dict[Any, Any] = {int: np.int64, float: np.float64}


def compiled(
    function: Function, *, inline: bool = False, arrays: bool = False
) -> Function:
    """`function` as machine code, cached on disk between runs.

    IEEE arithmetic without reordering: the same result on every machine.

    The function may read and write arrays that it is given and take views of them. It must neither
    create arrays (numba then reports that it needs its runtime) nor return them (numba may report
    nothing and return a whole array instead of a view). So numba counts no references, which took a
    third of the time. `makes_arrays` lifts the limit.
    """
    # numba reads this setting when it decorates, not when it compiles.
    before = numba.config.CACHE_LOCATOR_CLASSES
    ours = f"{__name__}.{SourceLocator.__name__}"
    numba.config.CACHE_LOCATOR_CLASSES = before or ours
    try:
        options = {
            "cache": True,
            "nogil": True,
            "error_model": "numpy",  # division by zero gives inf or nan, without a branch
            "forceinline": inline,
            "_nrt": arrays,
        }
        machine_code: Function = numba.njit(**options)(function)
    finally:
        numba.config.CACHE_LOCATOR_CLASSES = before
    _KERNELS.add(function)
    return machine_code


def inlined(function: Function) -> Function:
    """As `compiled`, but always made part of its callers: for inner loops.

    A call passes seven numbers for every array; inlined, it passes none, and the loops of callers
    can become vector instructions.
    """
    return compiled(function, inline=True)


def makes_arrays(function: Function) -> Function:
    """As `compiled`, for a function that creates or returns arrays.

    Views are expensive here, so loops belong into the functions that it calls.
    """
    return compiled(function, arrays=True)


def record_type(fields: type) -> np.dtype[Any]:
    """The NumPy record with the annotated fields of a class.

    They are float, int, another such class, or arrays of floats: `Annotated[Floats, (3,)]`. Kernels
    read and write the fields of a record by name, and pass it as one pointer. The class itself is
    for annotations: it has no instances.
    """
    columns: list[Any] = []
    for name, kind in get_type_hints(fields, include_extras=True).items():
        if get_origin(kind) is Annotated:
            columns.append((name, np.float64, *kind.__metadata__))
        else:
            columns.append((name, _COLUMN_TYPES.get(kind) or record_type(kind)))
    # Aligned, so that a field of 16 numbers starts where vector instructions can load it.
    return np.dtype(columns, align=True)


class SourceLocator:
    """Where numba keeps the machine code of a kernel: by the contents of its sources.

    numba's own locators use the path of the file, so that a second environment compiles again.
    They notice a change of the file that holds a kernel, but not of the files whose kernels it
    calls. Here the folder's name stands for the contents of that file and of everything in this
    package that it imports: a change of a scene does not compile the wire's decoder again.
    """

    def __init__(self, folder: Path, line: int) -> None:
        self._folder = folder
        self._line = line

    @classmethod
    def from_function(
        cls, py_func: Callable[..., Any], py_file: str
    ) -> SourceLocator | None:
        """The locator of a function in this file; None for one that was typed in a shell."""
        source = Path(py_file)
        if not source.exists():
            return None
        is_ours = _PACKAGE in source.parents
        place = source.relative_to(_PACKAGE) if is_ours else Path(source.name)
        digest = _digest(source.resolve())
        folder = _cache_root() / f"kernels-{digest}" / ".".join(place.parent.parts)
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, py_func.__code__.co_firstlineno)

    def get_cache_path(self) -> str:
        return str(self._folder)

    def ensure_cache_path(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    def get_source_stamp(self) -> str:
        return "the folder's name holds the contents"

    def get_disambiguator(self) -> str:
        return str(self._line)


@cache
def _digest(source: Path) -> str:
    """Stands for numba's version and for the sources that a kernel in this file may be made of."""
    # Sorted by content, because the same files may lie elsewhere in another environment.
    contents = sorted(_short_hash(file) for file in _sources(source))
    text = " ".join([numba.__version__, *contents])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _sources(source: Path) -> set[Path]:
    """A file and all files of this package that it imports, directly or through others."""
    found = {source}
    waiting = [source]
    while waiting:
        imported = _imported(waiting.pop())
        waiting += imported - found
        found |= imported
    return found


@cache
def _imported(source: Path) -> frozenset[Path]:
    """The files of this package from which the names in a module come."""
    # Only imports at its top: kernels take constants and other kernels from the module's names.
    text = source.read_text(encoding="utf-8")
    candidates = []
    for module, in_brackets, on_line in _IMPORT.findall(text):
        place = _PACKAGE.joinpath(*module.split(".")[1:])
        candidates.append(place.with_suffix(".py"))
        if place.is_dir():
            # What is imported from a package may be a module of it.
            names = re.findall(r"\w+", in_brackets or on_line)
            candidates.append(place / "__init__.py")
            candidates.extend(place / f"{name}.py" for name in names)
    return frozenset(file for file in candidates if file.is_file())


@cache
def _short_hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


@cache
def _cache_root() -> Path:
    """A folder that can be written to; without one of the user's, one for this process only."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = Path(numba.config.CACHE_DIR or default / "touchline")
    try:
        root.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=root).close()
    except OSError:
        # Not a fixed place that others can write to: numba unpickles what it finds.
        root = Path(tempfile.mkdtemp(prefix="touchline-kernels-"))
        register(shutil.rmtree, root, ignore_errors=True)
    return root


class _Announcement(event.Listener):  # type: ignore[misc]
    """Logs a line when the first kernel of this process is compiled and not loaded from disk."""

    def __init__(self) -> None:
        self.subject, self.duration = "kernels", ""
        self._is_made = False

    def on_start(self, event: Any) -> None:
        if self._is_made or event.data["dispatcher"].py_func not in _KERNELS:
            return
        self._is_made = True
        logger.warning(
            "compiling %s for this machine, %sonce", self.subject, self.duration
        )

    def on_end(self, event: Any) -> None:
        del event


_ANNOUNCEMENT = _Announcement()
event.register("numba:compile", _ANNOUNCEMENT)


def announce_as(subject: str, seconds: int) -> None:
    """What a line about compiling names, and its seconds on an average machine (0: unknown)."""
    _ANNOUNCEMENT.subject = subject
    _ANNOUNCEMENT.duration = f"about {seconds} s, " if seconds else ""


def entry_of(kernel: Callable[..., object], *examples: Any) -> Callable[..., object]:
    """A kernel's machine code for arguments of the types of these examples, and no others."""
    # numba looks at the types of all arguments at every call: with the 40 arrays of a ragdoll scene
    # that takes 8 µs, and 50 µs after work that has emptied the caches, longer than the call itself
    # (1 and 10 µs). Nothing notices arguments of other types here, so this is for a scene's own
    # arrays, which keep their types.
    # Not compiled: with NUMBA_DISABLE_JIT, or a plain function in a test.
    if not isinstance(kernel, Dispatcher):
        return kernel
    types = tuple(numba.typeof(example) for example in examples)
    kernel.compile(types)
    entry: Callable[..., object] = kernel.overloads[types].entry_point
    return entry
