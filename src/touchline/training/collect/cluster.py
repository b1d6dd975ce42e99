"""Collectors as Ray actors: on this machine, or on the nodes of a cluster.

Ray places them, carries arrays through its object stores and notices deaths; nothing of that is
written here. A worker that dies is replaced by one in the state that the dead one had before its
round, so it collects the same once more, and the run continues as if nothing had died. Only worlds
that cannot be restored (Unity players) begin again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, ActorUnschedulableError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from touchline.envs.saved_state import Arrays
from touchline.jobs.job import Outcome, Restarts, Running
from touchline.jobs.ray import (
    Wait,
    check_cluster,
    connected,
    is_ready,
    node_for,
    received,
    shared_build,
)
from touchline.jobs.shipping import Build, add_to_logs
from touchline.log import Log
from touchline.operating_systems import make_temporary_folder_of_process
from touchline.training.collect.copies import Policies, SentGuest
from touchline.training.collect.several import Workers
from touchline.training.collect.worker import Answer, Call, Worker, WorkerSetup
from touchline.training.run.metrics import load_drawing
from touchline.training.world import player_check

WAIT_S = 0.5
"""For answers, at a time: Ctrl-C is noticed in between."""
CLOSED_WITHIN_S = 2.0


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


class WorkerOnNode(Running):
    """A worker in an actor; where that dies, another one makes its call again."""

    def __init__(self, setup: WorkerSetup, cpus: float, others: OnCluster) -> None:
        name = f"collector {setup.index}"
        super().__init__(name, Restarts(name, setup.limits))
        self._index = setup.index
        self._others = others
        # Ray's own restart would have no world and no state; `_restart` brings both.
        self._class = ray.remote(max_restarts=0, max_task_retries=0)(Actor)
        # Ray's default packs actors onto few nodes.
        spread = self._class.options(num_cpus=cpus, scheduling_strategy="SPREAD")
        self.actor: Any = spread.remote(setup)
        self._placed = self.actor.__ray_ready__.remote()
        self._wait = Wait(cpus)
        self.node = ""
        self.answer: Any = None

    def begin(self, call: Call, policies: Any, back_to: Arrays | None) -> None:
        """Make a call; a worker that takes its place continues from the state `back_to`."""
        self.outcome = None
        self._call, self._policies, self._back_to = call, policies, back_to
        self._send([call])

    def _send(self, calls: Sequence[Call]) -> None:
        self.answer = self.actor.run.remote(calls, self._policies)

    def _ended(self, patience_s: float) -> Outcome | None:
        if not is_ready(self.answer, patience_s):
            # A world that takes long to open has a node already.
            if not is_ready(self._placed, 0.0):
                self._lines += [f"{self.name} {line}" for line in self._wait.lines()]
            return None
        found = received(self.answer)
        if found.failure and not found.died:
            return replace(found, failure=f"{self.name}: {found.failure}")
        return found

    def _restart(self, death: Outcome) -> None:
        # Of a node that has just died, Ray knows only that its actors do not answer.
        lost = (ActorUnavailableError, ActorUnschedulableError)
        is_lost = isinstance(death.cause, lost)
        node = node_for(self.node, self._others.taken(), may_stay=not is_lost)
        number = self._restarts.number
        self._lines.append(
            f"{self.name} died and is replaced on node {node.address} (restart {number}); its "
            f"part of the round is collected again, the others continue: {death.failure}"
        )
        setup = replace(self._others.setups[self._index], replacements=number)
        # Without a claim to processors, for which it might have to wait: the dead one's may not
        # be free yet, or be gone with its node.
        # There or nowhere: Ray may prefer the dead node, of which it learns after ten seconds.
        place = NodeAffinitySchedulingStrategy(node.id, soft=False)
        self.kill()  # one that only did not answer may do so again
        without = self._class.options(num_cpus=0, scheduling_strategy=place)
        self.actor, self.node = without.remote(setup), node.id
        calls: list[Call] = [("open", ())]
        if self._back_to:
            calls.append(("load_state", (self._back_to,)))
        elif self._back_to is not None:  # worlds that cannot be restored
            calls.append(("reset", (setup.seed,)))
        if self._call[0] != "open":
            calls.append(self._call)
        self._send(calls)

    def kill(self) -> None:
        with suppress(RayError):
            ray.kill(self.actor)


class OnCluster(Workers):
    """Workers in actors."""

    slice_s = 1.0

    def __init__(self, setups: Sequence[WorkerSetup], cpus: float, log: Log) -> None:
        self._actors = [WorkerOnNode(setup, cpus, self) for setup in setups]
        super().__init__(setups, self._actors, log)
        self.at_once = len(setups)
        self._guests: dict[str, dict[int, SentGuest]] = {}
        """Base name -> opponents by their numbers, with references to their weights."""
        folder = setups[0].recipes[0].options.get("log_folder")
        self._log_folder = None if folder is None else Path(folder)

    def taken(self) -> list[str]:
        """The ids of the workers' nodes."""
        return [worker.node for worker in self._actors]

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

    def finished(self) -> dict[int, Answer]:
        ray.wait([self._actors[index].answer for index in self._busy], timeout=WAIT_S)
        answers = super().finished()
        for index, answer in answers.items():
            # Ray may place a worker elsewhere than on a node that has just died.
            self._actors[index].node = answer.node
            self._keep(answer)
        return answers

    def _keep(self, answer: Answer) -> None:
        """Write the logs, and let Ray's memory become free."""
        if self._log_folder is not None:
            add_to_logs(self._log_folder, answer.logs)
        if answer.state is not None:
            answer.state = {name: a.copy() for name, a in answer.state.items()}

    def close(self) -> None:
        try:
            closing = [w.actor.run.remote([("close", ())]) for w in self._actors]
            closed, _ = ray.wait(
                closing, num_returns=len(closing), timeout=CLOSED_WITHIN_S
            )
            for reference in closed:
                outcome = received(reference)
                if not outcome.failure:  # dead ones have nothing to close
                    self._keep(outcome.value)
        finally:
            for worker in self._actors:
                worker.kill()


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
        check_cluster(len(setups), cpus, player_check(setups[0].recipes[0], build))
        if build is not None:
            sent = shared_build(build)
            setups = [replace(setup, build=sent) for setup in setups]
        workers = OnCluster(setups, cpus, log)
        try:
            load_drawing()  # while they start
            workers.open()
            yield workers
        finally:
            workers.close()
