"""The nodes of a Ray cluster as places for jobs.

Ray places work, carries arrays through its object stores and notices deaths; nothing of that is
written here.
"""

import logging
import pickle
import platform
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import ray
from ray._private import ray_constants
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from touchline.errors import RunError, UsageError
from touchline.jobs.job import (
    DEATHS,
    Job,
    Outcome,
    Place,
    RestartLimits,
    Restarts,
    Running,
    Site,
    call,
)
from touchline.jobs.processes import InProcess, print_line
from touchline.jobs.shipping import Build, unpacked
from touchline.operating_systems import removed_when_over
from touchline.version import __version__
from touchline.whole import PART, write_whole

LOCAL = "local:"
"""`local:3` starts Ray in this machine, with 3 processors."""
LOCAL_STORE_BYTES = 200 * 2**20
"""The object store of a local cluster: a round's experience and the weights. What does not fit is
spilled to disk; a cluster that was started by hand has its own size."""
REACHED_WITHIN_S = 3.0
CHECKED_WITHIN_S = 60.0
FILES_EVERY_S = 10.0
"""Between two looks at a job's files: what the death of a node may cost, in addition to the 20 s
between resume points."""
NEWS_AFTER_S = 0.5
SAY_AFTER_S = 30.0
"""Without an answer, which a job gives at once when it has a place."""
LISTED_WITHIN_S = 2.0
"""Ray lists a node that died as living for about so long."""


# connection


@contextmanager
def connected(where: str) -> Iterator[None]:
    """A connection to the cluster, or to the one that this process is connected to already."""
    if ray.is_initialized():
        yield  # whoever connected also disconnects
        return
    # Ray would print its own lines, and those of its workers, among ours.
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    # Ray takes this signal over, and would leave without saving.
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if where.startswith(LOCAL):
            with _on_loopback():
                ray.init(
                    address="local",
                    num_cpus=int(where.removeprefix(LOCAL)),
                    object_store_memory=LOCAL_STORE_BYTES,
                    include_dashboard=False,
                    **quiet,
                )
        else:
            _reach(where)
            ray.init(address=where, **quiet)
    # Ray raises a RuntimeError for a cluster of another Ray or Python.
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(f"--cluster {where}: {one_line(error)}") from error
    if current_thread() is main_thread():
        signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _on_loopback() -> Iterator[None]:
    """A cluster that starts in here listens on the loopback alone.

    Ray takes a loopback address for itself where it cannot have several machines: on macOS and
    Windows, and wherever `RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER` is 0. It reads that variable once.
    """
    several_machines = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = several_machines


def _reach(where: str) -> None:
    # Refuse an address where nothing listens, for which Ray would wait a minute.
    host, colon, port = where.rpartition(":")
    if not colon or not port.isdigit():
        return  # auto: Ray looks for it
    try:
        socket.create_connection((host, int(port)), REACHED_WITHIN_S).close()
    except OSError as error:
        raise UsageError(
            f"--cluster {where}: no cluster there ({error.strerror or error}); start one with "
            "ray start --head, or take --cluster local:N"
        ) from None


# checks before anything is opened


@dataclass(frozen=True)
class Node:
    """A node of the cluster that can have collectors."""

    id: str
    address: str
    cpus: float


def nodes() -> list[Node]:
    """The living nodes with processors."""
    found = []
    for node in ray.nodes():
        cpus = node["Resources"].get("CPU", 0.0)
        if node["Alive"] and cpus:
            found.append(Node(node["NodeID"], node["NodeManagerAddress"], cpus))
    return found


def check_cluster(
    count: int, cpus: float, check: Callable[[], object] | None = None
) -> None:
    """Refuse a cluster without room for `count` jobs, or with nodes that would do something else.

    Each node calls `check`, which raises a TouchlineError where the node lacks something.
    """
    known = nodes()
    # All processors of a job are in one node, so parts of them do not add up.
    room = sum(int(node.cpus / cpus) for node in known)
    if room < count:
        total = sum(node.cpus for node in known)
        raise UsageError(
            f"--collectors {count}: each needs --cpus-per-collector {cpus:g}, and the cluster has "
            f"room for {room} ({total:g} CPUs in {len(known)} nodes)"
        )
    # Without a claim, because collectors of another run may have all processors.
    probe = ray.remote(num_cpus=0)(_probe_of_a_node())
    probed = []
    for node in known:
        place = NodeAffinitySchedulingStrategy(node.id, soft=False)
        there = probe.options(scheduling_strategy=place)
        probed.append(there.remote(pickle.dumps(check)))
    try:
        found = ray.get(probed, timeout=CHECKED_WITHIN_S)
    except RayError as error:
        time.sleep(LISTED_WITHIN_S)
        if nodes() != known:  # one left meanwhile: the others may be enough
            check_cluster(count, cpus, check)
            return
        raise UsageError(
            f"--cluster: not every node answers: {one_line(error)}"
        ) from error
    for node, (python, version, missing) in zip(known, found, strict=True):
        if python.rpartition(".")[0] != platform.python_version().rpartition(".")[0]:
            missing = f"it has Python {python}, this is {platform.python_version()}"
        elif version != __version__:
            missing = f"it has Touchline {version or '(none)'}, this is {__version__}"
        if missing:
            raise UsageError(f"--cluster: node {node.address}: {one_line(missing)}")


def _probe_of_a_node() -> Callable[[bytes], tuple[str, str | None, str]]:
    # A function that Ray sends as code, because a node may lack Touchline.
    def probe(packed: bytes) -> tuple[str, str | None, str]:
        import pickle
        import platform

        python = platform.python_version()
        try:
            from touchline.version import __version__
        except ImportError:
            return python, None, ""
        try:
            check = pickle.loads(packed)
            if check is not None:
                check()
        # Another version may not know the check, which the caller reports by the version.
        except Exception as error:
            return python, __version__, str(error)
        return python, __version__, ""

    return probe


def node_for(own: str, taken: Sequence[str], *, may_stay: bool) -> Node:
    """The node with this id if it is alive, else the one with most processors for one more job.

    `taken` holds the ids of the nodes of all jobs. Raises a RunError where no node is left.
    """
    known = nodes()
    if not known:
        raise RunError("the cluster has no node left")
    same = [node for node in known if node.id == own]
    others = [node for node in known if node.id != own]
    if same and (may_stay or not others):
        return same[0]
    return max(others, key=lambda node: node.cpus / (1 + taken.count(node.id)))


def one_line(error: object) -> str:
    return " ".join(str(error).split())


def is_ready(answer: Any, patience_s: float) -> bool:
    """Whether a call to a node has ended within that many seconds."""
    return bool(ray.wait([answer], timeout=patience_s)[0])


class Wait:
    """How long a job has waited for a node, and when to say so."""

    def __init__(self, cpus: float) -> None:
        self._cpus = cpus
        self._since = time.monotonic()

    def lines(self) -> list[str]:
        """A line once in a while; none for most calls."""
        if time.monotonic() - self._since <= SAY_AFTER_S:
            return []
        self._since = time.monotonic()
        return [f"waits for a node with room for it (CPUs: {self._cpus:g})"]


def received(answer: Any) -> Outcome:
    """What a call to a node brought."""
    try:
        return Outcome(ray.get(answer))
    except RayTaskError as error:  # in our code: it would come again
        return Outcome(failure=one_line(error.cause) or repr(error.cause))
    except RayError as error:
        # Ray explains a death in a paragraph.
        why = one_line(error).partition(". ")[0][:200]
        return Outcome(failure=why, died=True, cause=error)


def shared_build(build: Build) -> Build:
    """The build with its archive in the object store, from which each node gets it once."""
    return replace(build, archive=ray.put(build.archive))


# the place


class Nodes(Place):
    """Nodes of the cluster with room; files and lines of jobs with a folder arrive here."""

    def __init__(
        self,
        cpus: float,
        build: Build | None = None,
        limits: RestartLimits | None = DEATHS,
    ) -> None:
        """Each job claims that many `cpus`, and gets the `build` of a player."""
        self.at_once = sys.maxsize
        if cpus:
            self.at_once = sum(int(node.cpus / cpus) for node in nodes())
        self.cpus = cpus
        self.build = build
        self._limits = limits

    def start(self, job: Job) -> Running:
        restarts = Restarts(job.name, self._limits)
        if job.folder is None:
            return FunctionOnNode(job, restarts, self.cpus)
        return ProcessOnNode(job, job.folder, restarts, self)


class FunctionOnNode(Running):
    """A function that a node calls, or will call; after its death, another one does."""

    def __init__(self, job: Job, restarts: Restarts, cpus: float) -> None:
        super().__init__(job.name, restarts)
        # Restarts are counted here, by the job's own limits.
        settings = {"max_retries": 0, "scheduling_strategy": "SPREAD"}
        remote = ray.remote(num_cpus=cpus, name=job.name, **settings)(call)
        # As they are now: after a death they may have changed.
        self._call = partial(remote.remote, job.work, *map(ray.put, job.arguments))
        self._answer = self._call()

    def _ended(self, patience_s: float) -> Outcome | None:
        if not is_ready(self._answer, patience_s):
            return None
        found = received(self._answer)
        return found if found.failure else found.value

    def _restart(self, death: Outcome) -> None:
        self._answer = self._call()

    def kill(self) -> None:
        ray.cancel(self._answer, force=True)


Files = dict[str, bytes | None]
"""Contents by path within a job's folder; None for a file that is gone."""


@dataclass(frozen=True)
class News:
    """What a process did since the last news."""

    lines: list[str]
    changed: Files
    outcome: Outcome | None


class NodeProcess:
    """An actor with a process as on this machine, in a folder of its own."""

    def __init__(self, job: Job, files: Files, build: Build | None) -> None:
        assert job.folder is not None
        program = None if build is None else unpacked(build, ray.get)
        self._place = tempfile.TemporaryDirectory(prefix="touchline-run-")
        over = removed_when_over(self._place.name)
        self._folder = Path(self._place.name) / job.folder.name
        _write(self._folder, files)
        self._seen: dict[str, tuple[int, int]] = {}
        """Time and size of each file that was sent."""
        self._looked_at = time.monotonic()
        site = Site(self._folder, print_line, is_home=False, program=program)
        only_once = Restarts(job.name, limits=None)
        self._process = InProcess(job, only_once, site=site, keeps_open=over)

    def news(self) -> News:
        """What happened, after a moment."""
        outcome = self._process.look(NEWS_AFTER_S)
        changed: Files = {}
        if outcome or time.monotonic() - self._looked_at >= FILES_EVERY_S:
            self._looked_at = time.monotonic()
            changed = self._changed()
        if outcome:
            self._place.cleanup()
        return News(self._process.lines(), changed, outcome)

    def stop(self) -> None:
        self._process.stop()

    def _changed(self) -> Files:
        changed: Files = {}
        gone = set(self._seen)
        for path in sorted(self._folder.rglob("*")):
            with suppress(FileNotFoundError):
                # What is being written has another name until it is whole.
                if path.suffix == PART or not path.is_file():
                    continue
                name = path.relative_to(self._folder).as_posix()
                gone.discard(name)
                status = path.stat()
                version = status.st_mtime_ns, status.st_size
                if self._seen.get(name) != version:
                    changed[name] = path.read_bytes()
                    self._seen[name] = version
        for name in gone:
            changed[name] = None
            del self._seen[name]
        return changed


class ProcessOnNode(Running):
    """A job on a node; where that dies, it continues elsewhere with the files that arrived last."""

    def __init__(
        self, job: Job, folder: Path, restarts: Restarts, place: Nodes
    ) -> None:
        super().__init__(job.name, restarts)
        self._job = ray.put(job)
        self._folder = folder
        self._place = place
        if job.starts_over:
            shutil.rmtree(folder, ignore_errors=True)
        self._start()

    def _start(self) -> None:
        files: Files = {
            path.relative_to(self._folder).as_posix(): path.read_bytes()
            for path in self._folder.rglob("*")
            if path.is_file()
        }
        actor_class: Any = ray.remote(num_cpus=self._place.cpus)(NodeProcess)
        self._actor = actor_class.remote(self._job, files, self._place.build)
        self._ask()

    def _ask(self) -> None:
        self._answer = self._actor.news.remote()
        self._wait = Wait(self._place.cpus)

    def _ended(self, patience_s: float) -> Outcome | None:
        if not is_ready(self._answer, patience_s):
            self._lines += self._wait.lines()
            return None
        found = received(self._answer)
        if found.failure:
            return found
        news: News = found.value
        _write(self._folder, news.changed)
        self._lines += news.lines
        if news.outcome is None:
            self._ask()
        else:
            # An actor keeps its processors until it ends.
            ray.kill(self._actor)
        return news.outcome

    def _restart(self, death: Outcome) -> None:
        number = self._restarts.number
        self._lines.append(f"its node or process died; it continues (restart {number})")
        self.kill()  # one that only did not answer may do so again
        self._start()

    def _stop(self) -> None:
        # It waits behind the call of `news`, which takes half a second.
        self._actor.stop.remote()

    def kill(self) -> None:
        ray.kill(self._actor)


def _write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        if content is None:
            (folder / name).unlink(missing_ok=True)
        else:
            write_whole(folder / name, content)
