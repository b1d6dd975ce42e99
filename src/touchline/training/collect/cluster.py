"""Collectors as Ray actors: on this machine, or on the nodes of a cluster.

Ray places them, carries arrays through its object stores and notices deaths; nothing of that is
written here. A worker that dies is replaced by one in the state that the dead one had before its
round, so it collects the same once more, and the run goes on as if nothing had died. Only worlds
that cannot be restored (Unity players) begin again.
"""

from __future__ import annotations

import logging
import platform
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import ray
from ray.exceptions import (
    ActorUnavailableError,
    ActorUnschedulableError,
    RayError,
    RayTaskError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from touchline.envs.env import EnvRecipe
from touchline.envs.restarts import RestartLimits, Restarts
from touchline.envs.saved_state import Arrays
from touchline.errors import RunError, UsageError
from touchline.log import Log
from touchline.operating_systems import make_temporary_folder_of_process
from touchline.training.collect.player_logs import add_to_logs
from touchline.training.collect.shipping import Build
from touchline.training.collect.weights import Policies, SentGuest
from touchline.training.collect.worker import (
    Answer,
    Call,
    Worker,
    WorkerSetup,
)
from touchline.training.run.metrics import load_drawing
from touchline.version import __version__

LOCAL = "local:"
"""`local:3` starts Ray in this machine, with 3 processors."""
LOCAL_STORE_BYTES = 200 * 2**20
"""The object store of a local cluster: a round's experience and the weights. What does not fit is
spilled to disk; a cluster that was started by hand has its own size."""
REACHED_WITHIN_S = 3.0
CHECKED_WITHIN_S = 60.0
LISTED_WITHIN_S = 2.0
"""Ray lists a node that died as living for about so long."""
WAIT_S = 0.5
"""For answers, at a time: Ctrl-C is noticed in between."""
CLOSED_WITHIN_S = 2.0


# connection


@contextmanager
def connected(where: str) -> Iterator[None]:
    """A connection to the cluster, or to the one that this process is connected to already."""
    if ray.is_initialized():
        yield  # whoever connected also disconnects
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    # Ray takes this signal over, and would leave without saving.
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if where.startswith(LOCAL):
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
        raise UsageError(f"--cluster {where}: {_one_line(error)}") from error
    if current_thread() is main_thread():
        signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        ray.shutdown()


def _reach(where: str) -> None:
    """Refuse an address where nothing listens, for which Ray would wait a minute."""
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


def check_cluster(recipe: EnvRecipe | None, count: int, cpus: float) -> None:
    """Refuse a cluster without room, or with nodes that would do something else.

    `recipe` is that of worlds whose player should be there, if it is one.
    """
    known = nodes()
    room = sum(int(node.cpus / cpus) for node in known)
    if room < count:
        total = sum(node.cpus for node in known)
        raise UsageError(
            f"--collectors {count}: each needs --cpus-per-collector {cpus:g}, and the cluster has "
            f"room for {room} ({total:g} CPUs in {len(known)} nodes)"
        )
    player = recipe.target if recipe is not None and recipe.kind.is_player else None
    probe = ray.remote(num_cpus=0)(_probe_of_a_node())
    probed = []
    for node in known:
        place = NodeAffinitySchedulingStrategy(node.id, soft=False)
        there = probe.options(scheduling_strategy=place)
        probed.append(there.remote(player))
    try:
        found = ray.get(probed, timeout=CHECKED_WITHIN_S)
    except RayError as error:
        time.sleep(LISTED_WITHIN_S)
        if nodes() != known:  # one left meanwhile: the others may be enough
            check_cluster(recipe, count, cpus)
            return
        raise UsageError(
            f"--cluster: not every node answers: {_one_line(error)}"
        ) from error
    for node, (python, version, problem) in zip(known, found, strict=True):
        if python.rpartition(".")[0] != platform.python_version().rpartition(".")[0]:
            problem = f"it has Python {python}, this is {platform.python_version()}"
        elif version != __version__:
            problem = f"it has Touchline {version or '(none)'}, this is {__version__}"
        if problem:
            raise UsageError(f"--cluster: node {node.address}: {_one_line(problem)}")


def _probe_of_a_node() -> Callable[[str | None], tuple[str, str | None, str]]:
    """A function that Ray sends as code, because a node may lack Touchline."""

    def probe(player: str | None) -> tuple[str, str | None, str]:
        import platform

        python = platform.python_version()
        try:
            from touchline.envs.player_process import check_executable, find_player
            from touchline.errors import TouchlineError
            from touchline.version import __version__
        except ImportError:
            return python, None, ""
        problem = ""
        if player is not None:
            try:
                check_executable(find_player(player))
            except TouchlineError as error:
                problem = str(error)
        return python, __version__, problem

    return probe


# workers


class Actor(Worker):
    """A worker in an actor of Ray."""

    def __init__(self, setup: WorkerSetup) -> None:
        # Ray ends actors by killing them, and a player's folder would stay.
        self.shared_folder = Path(tempfile.gettempdir())
        make_temporary_folder_of_process()
        super().__init__(setup)

    def run(self, calls: Sequence[Call], policies: Any = None) -> Answer:
        """As in process, with the node."""
        answer = super().run(calls, policies)
        answer.node = ray.get_runtime_context().get_node_id()
        return answer

    def fetched(self, sent: Any) -> Any:
        """From the object store."""
        return ray.get(sent)


@dataclass(frozen=True)
class _Sent:
    """A call that goes on, and what the worker goes back to if it dies."""

    call: Call
    policies: Any
    back_to: Arrays | None


class OnCluster:
    """Workers in actors; see `Workers`."""

    slice_s = 1.0

    def __init__(
        self,
        setups: Sequence[WorkerSetup],
        cpus: float,
        limits: RestartLimits,
        log: Log,
    ) -> None:
        self.setups = setups
        self.at_once = len(setups)
        self._limits = limits
        self._log = log
        self._restarts = [Restarts(f"collector {setup.index}") for setup in setups]
        self._sent: dict[int, _Sent] = {}
        self._running: dict[Any, int] = {}
        """Ray's reference to an answer -> the worker."""
        self._actor = ray.remote(max_restarts=0, max_task_retries=0)(Actor)
        spread = self._actor.options(num_cpus=cpus, scheduling_strategy="SPREAD")
        self._actors = [spread.remote(setup) for setup in setups]
        self._node: dict[int, str] = {}
        """The id of each worker's node."""
        self._guests: dict[str, dict[int, SentGuest]] = {}
        """Base name -> opponents by their numbers, with references to their weights."""
        folder = setups[0].recipes[0].options.get("log_folder")
        self._log_folder = None if folder is None else Path(folder)

    def open(self) -> None:
        """Open the worlds of all."""
        for index in range(len(self.setups)):
            self.start(index, ("open", ()), back_to=None)
        load_drawing()  # while they start
        while self._running:
            for answer in self.finished().values():
                answer.check()

    def shared(self, policies: Policies) -> Any:
        """In the object store, from which each node gets them once."""
        pools = {
            base: replace(pool, guests=self._referred(base, pool.guests))
            for base, pool in policies.pools.items()
        }
        return ray.put(replace(policies, pools=pools))

    def _referred(
        self, base: str, guests: Mapping[int, SentGuest]
    ) -> dict[int, SentGuest]:
        """Opponents whose weights were put into the object store once, for all rounds."""
        known = self._guests.get(base, {})
        kept = {}
        for number, guest in guests.items():
            if number not in known and guest.weights is not None:
                guest = replace(guest, weights=ray.put(guest.weights))
            kept[number] = known.get(number, guest)
        # Those that are gone free their memory.
        self._guests[base] = kept
        return kept

    def start(
        self, index: int, call: Call, policies: Any = None, *, back_to: Arrays | None
    ) -> None:
        self._sent[index] = _Sent(call, policies, back_to)
        self._send(index, [call], policies)

    def _send(self, index: int, calls: Sequence[Call], policies: Any) -> None:
        answer = self._actors[index].run.remote(calls, policies)
        self._running[answer] = index

    def finished(self) -> dict[int, Answer]:
        waiting = list(self._running)
        ray.wait(waiting, timeout=WAIT_S)
        ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        answers = {}
        for reference in ready:
            index = self._running.pop(reference)
            try:
                answers[index] = self._received(reference)
                # Ray may place a worker elsewhere than on a node that has just died.
                self._node[index] = answers[index].node
            except RayTaskError as error:  # in our code: another worker would fail, too
                raise RunError(
                    f"collector {index}: {_one_line(error.cause)}"
                ) from error
            except RayError as error:
                self._replace(index, error)
        return answers

    def _received(self, reference: Any) -> Answer:
        answer: Answer = ray.get(reference)
        if self._log_folder is not None:
            add_to_logs(self._log_folder, answer.logs)
        if answer.state is not None:
            # Kept beyond this round: a copy lets Ray's memory become free.
            state = {name: array.copy() for name, array in answer.state.items()}
            answer.state = state
        return answer

    def _replace(self, index: int, error: RayError) -> None:
        """Put another worker in the place of a dead one."""
        restarts = self._restarts[index]
        why = RunError(_first_sentence(error))
        restarts.count(self._limits, why)
        # Of a node that has just died, Ray knows only that its actors do not answer.
        is_lost = isinstance(error, (ActorUnavailableError, ActorUnschedulableError))
        node = self._node_for(index, may_stay=not is_lost)
        self._log(
            f"collector {index} died and is replaced on node {node.address} (restart "
            f"{restarts.number}); its part of the round is collected again, the others go on: "
            f"{why}"
        )
        setup = replace(self.setups[index], replacements=restarts.number)
        # Without a claim to processors, for which it might have to wait: the dead one's may not
        # be free yet, or be gone with its node.
        # There or nowhere: Ray may prefer the dead node, of which it learns after ten seconds.
        place = NodeAffinitySchedulingStrategy(node.id, soft=False)
        without = self._actor.options(num_cpus=0, scheduling_strategy=place)
        dead = self._actors[index]
        self._actors[index] = without.remote(setup)
        self._node[index] = node.id
        with suppress(RayError):
            ray.kill(dead)  # one that only did not answer may do so again
        sent = self._sent[index]
        calls: list[Call] = [("open", ())]
        if sent.back_to:
            calls.append(("load_state", (sent.back_to,)))
        elif sent.back_to is not None:  # worlds that cannot be restored
            calls.append(("reset", (setup.seed,)))
        if sent.call[0] != "open":
            calls.append(sent.call)
        self._send(index, calls, sent.policies)

    def _node_for(self, index: int, *, may_stay: bool) -> Node:
        """The same node if it is alive, else the one with most processors per worker."""
        known = nodes()
        if not known:
            raise RunError("the cluster has no node left")
        own = self._node.get(index)
        same = [node for node in known if node.id == own]
        others = [node for node in known if node.id != own]
        if same and (may_stay or not others):
            return same[0]
        there = list(self._node.values())
        return max(others, key=lambda node: node.cpus / (1 + there.count(node.id)))

    def close(self) -> None:
        """Close the worlds, and end the actors."""
        try:
            closing = [actor.run.remote([("close", ())]) for actor in self._actors]
            closed, _ = ray.wait(
                closing, num_returns=len(closing), timeout=CLOSED_WITHIN_S
            )
            for reference in closed:
                with suppress(RayError):  # dead ones have nothing to close
                    self._received(reference)
        finally:
            for actor in self._actors:
                ray.kill(actor)


def _one_line(error: object) -> str:
    return " ".join(str(error).split())


def _first_sentence(error: RayError) -> str:
    """Ray explains a death in a paragraph."""
    text = _one_line(error)
    return text.partition(". ")[0][:200]


@contextmanager
def on_cluster(
    where: str,
    setups: Sequence[WorkerSetup],
    cpus: float,
    log: Log,
    build: Build | None = None,
) -> Iterator[OnCluster]:
    """Workers on a cluster, with open worlds; a `build` of their player is sent there."""
    with connected(where):
        expected = setups[0].recipes[0] if build is None else None
        check_cluster(expected, len(setups), cpus)
        if build is not None:
            sent = replace(build, archive=ray.put(build.archive))
            setups = [replace(setup, build=sent) for setup in setups]
        workers = OnCluster(setups, cpus, setups[0].limits, log)
        try:
            workers.open()
            yield workers
        finally:
            workers.close()
