"""Kill parts of one run on a cluster again and again: it must lose nothing and leave nothing.

    python -m tests.training.collect.faults --kills 200 [--minutes 60]

PPO learns Basic from three collectors, each with a player on a node of its own. Collectors, nodes
and players are killed with SIGKILL: at random moments, just after weights and a call were sent, and
when an answer is ready but not yet received. The run must go on in the same process, make every
optimizer step that its experience is good for, and reach the score of runs that were left alone.
Afterwards no process, port or segment of shared memory of it may be left.
"""

import argparse
import csv
import faulthandler
import itertools
import os
import random
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

import touchline
from touchline.player import build
from touchline.policies.files.checkpoints import read_arrays
from touchline.training.collect.opening import RAY
from touchline.training.config.reading import read_config
from touchline.training.trainer import train
from touchline.training.world import recipe_of

os.environ.update(RAY)  # some of it is read when Ray is imported
from ray.cluster_utils import Cluster

from touchline.training.collect import cluster as collecting
from touchline.training.collect.cluster import WorkerOnNode

SCENE, AREAS, COLLECTORS = "Basic", 16, 3
EPOCHS, BATCH, BUFFER = 3, 128, 3072
"""A collector's share is more than Ray sends within its messages, so it goes through stores."""
NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
MARK = "TOUCHLINE_FAULTS"
"""In the environment of every process that this one starts, and of theirs."""
HANGS_AFTER_S = 900.0
"""Without a line of the run; a busy machine takes minutes for a collector."""
STARTS = 5
LONGEST_WAIT_S = 1.0
LAST_UPDATES = 5
COLLECTING, SENDING, RECEIVING = "collecting", "sending", "receiving"
PLAN = [
    *[("player", COLLECTING)] * 4,
    *[("collector", COLLECTING)] * 2,
    ("node", COLLECTING),
    *[("player", SENDING)] * 2,
    *[("collector", SENDING)] * 2,
    ("node", SENDING),
    *[("player", RECEIVING)] * 2,
    *[("collector", RECEIVING)] * 2,
    ("node", RECEIVING),
]
"""What is killed when, in turns."""


@dataclass
class Outcome:
    """What killing parts of a run led to."""

    kills: Counter = field(default_factory=Counter)
    """By what was killed, and when."""
    replaced: int = 0
    """Collectors."""
    restarted: int = 0
    """Players whose collector was still running."""
    steps: int = 0
    updates: int = 0
    optimizer_steps: int = 0
    expected_steps: int = 0
    score: float = 0.0
    calm_scores: list[float] = field(default_factory=list)
    """Of runs with other seeds that were left alone."""
    left: list[str] = field(default_factory=list)
    """Processes, listening ports and segments of shared memory."""
    folders: int = 0
    """For temporary files: those of collectors that were killed stay."""

    @property
    def lost(self) -> int:
        return self.expected_steps - self.optimizer_steps

    @property
    def is_good(self) -> bool:
        # Two standard deviations of few seeds, with a floor for seeds that hardly differ.
        low = min(self.calm_scores) - max(2 * _spread(self.calm_scores), 0.02)
        return not self.lost and not self.left and self.score >= low


class Killer(threading.Thread):
    """Kills parts of a run according to `PLAN`, then ends it as a user would, with SIGTERM."""

    def __init__(self, cluster, most, until, seed):
        super().__init__(daemon=True)
        self.outcome = Outcome()
        self._cluster = cluster
        self._most, self._until = most, until
        self._chance = random.Random(seed)
        self._wanted = None
        self._moment = ""
        """What the main thread kills, and when."""
        self._struck, self._is_over = threading.Event(), threading.Event()
        self._is_ending = False
        self._steps_logged = 0
        self._latest_line = time.monotonic()

    @property
    def kills(self):
        return self.outcome.kills.total()

    def log(self, line):
        """Takes the lines of the run."""
        print(f"{time.strftime('%H:%M:%S')} {line[:160]}", flush=True)
        self._latest_line = time.monotonic()
        self.outcome.replaced += "died and is replaced" in line
        self.outcome.restarted += "failed and is restarted" in line
        self._steps_logged += "  step" in line

    def stop(self):
        self._is_over.set()

    def run(self):
        self._wait_until(lambda: self._steps_logged)
        for kind, moment in itertools.cycle(PLAN):
            if self.kills >= self._most or time.monotonic() > self._until:
                break
            if self._is_over.is_set():
                return
            # One may be down at a time, so that the run gets on.
            self._wait_until(lambda: len(self._with_players()) >= COLLECTORS - 1)
            if time.monotonic() > self._until:
                break
            if moment == COLLECTING:
                time.sleep(self._chance.uniform(0.0, LONGEST_WAIT_S))
                victims = [node for node in nodes().values() if collectors_on(node)]
                if victims:
                    self._strike(kind, moment, self._chance.choice(victims))
            else:
                self._struck.clear()
                self._wanted, self._moment = kind, moment
                self._wait_until(self._struck.is_set)
        # It goes on after the last kill.
        self._is_ending = True
        enough = self._steps_logged + LAST_UPDATES
        self._wait_until(lambda: self._steps_logged >= enough)
        if not self._is_over.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    def reached(self, moment, node_id):
        """The head is at this moment, in the main thread, with a collector on this node."""
        if len(nodes()) <= COLLECTORS:  # and the head's
            started(lambda: self._cluster.add_node(**NODE))
        if self._moment != moment:
            return
        node = nodes().get(node_id)
        if node is not None and self._strike(self._wanted, moment, node):
            self._moment = ""
            self._struck.set()

    def _wait_until(self, condition):
        """Wait for it, but not longer than there is time for kills."""
        while not condition() and not self._is_over.is_set():
            if time.monotonic() > self._until and not self._is_ending:
                return
            if time.monotonic() - self._latest_line > HANGS_AFTER_S:
                print("the run hangs", flush=True)
                faulthandler.dump_traceback()
                os._exit(3)
            time.sleep(0.02)

    def _strike(self, kind, moment, node):
        """Kill a part of this kind that is on the node; whether there was one."""
        if kind == "node":
            victims = [] if is_head(node) else [node]
        elif kind == "collector":
            victims = collectors_on(node)
        else:
            victims = [p for c in collectors_on(node) for p in players_of(c)]
        if not victims:
            return False
        victim = self._chance.choice(victims)
        with suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGKILL)
            if kind == "node":
                victim.wait()  # for a zombie, its workers take the node to be alive
        self.outcome.kills[kind, moment] += 1
        print(f"{self.kills}: killed a {kind}, {moment}", flush=True)
        return True

    def _with_players(self):
        """The collectors whose players run."""
        found = [c for node in nodes().values() for c in collectors_on(node)]
        return [collector for collector in found if players_of(collector)]


def started(start):
    """A part of a cluster; Ray gives up after 30 s, which a busy machine may need."""
    # It takes over this signal with every node.
    handler = signal.getsignal(signal.SIGTERM)
    before = set(psutil.Process().children())
    for attempt in range(STARTS):
        try:
            return start()
        except Exception as error:  # Ray has no other kind for this
            if attempt == STARTS - 1 or "timed out" not in str(error):
                raise
            for process in set(psutil.Process().children()) - before:
                process.kill()
        finally:
            signal.signal(signal.SIGTERM, handler)
    raise AssertionError


def nodes():
    """Node id -> its process, the raylet, whose death takes the object store along."""
    found = {}
    for process in psutil.Process().children():
        with suppress(psutil.Error):
            for argument in process.cmdline():
                if argument.startswith("--node_id="):
                    found[argument.partition("=")[2]] = process
    return found


def is_head(node):
    """Whether it is the head's node: that is not killed, but may have collectors.

    One that is replaced while Ray still lists its dead node may be placed anywhere.
    """
    with suppress(psutil.Error):
        return "__internal_head__" in " ".join(node.cmdline())
    return False


def collectors_on(node):
    """The processes of collectors on a node."""
    with suppress(psutil.Error):
        children = node.children()
        return [c for c in children if "ray::Actor" in "".join(c.cmdline())]
    return []


def players_of(collector):
    """The processes of a collector's players."""
    with suppress(psutil.Error):
        children = collector.children(recursive=True)
        return [c for c in children if "touchline.player" in c.cmdline()]
    return []


class Moments:
    """Shows a killer when the head has just sent a call, and when it is about to receive."""

    def __init__(self, killer):
        send, received = self._originals = WorkerOnNode._send, collecting.received
        worker_of = {}
        """Ray's reference to an answer -> the worker."""

        def _send(worker, calls):
            send(worker, calls)
            worker_of[worker.answer] = worker
            killer.reached(SENDING, worker.node)

        def _received(answer):
            if answer in worker_of:
                killer.reached(RECEIVING, worker_of.pop(answer).node)
            return received(answer)

        WorkerOnNode._send, collecting.received = _send, _received

    def close(self):
        WorkerOnNode._send, collecting.received = self._originals


def config_of(folder, run_id, seed, **changes):
    """PPO whose rates stay, so that a run's length does not change how it learns."""
    block = f"behaviors.{SCENE}."
    hyper = f"{block}hyperparameters."
    constant = [
        f"{hyper}{kind}_schedule" for kind in ("learning_rate", "beta", "epsilon")
    ]
    overrides = {
        "checkpoint_settings.results_dir": str(folder),
        "checkpoint_settings.run_id": run_id,
        "cluster_settings.collectors": COLLECTORS,
        "env_settings.seed": seed,
        "env_settings.max_lifetime_restarts": -1,
        "env_settings.restarts_rate_limit_n": -1,
        f"{hyper}buffer_size": BUFFER,
        f"{hyper}batch_size": BATCH,
        f"{hyper}num_epoch": EPOCHS,
        f"{block}checkpoint_interval": 10**9,
        f"{block}max_steps": 10**9,
        f"{block}summary_freq": 1,  # a row of metrics for each update
        **dict.fromkeys(constant, "constant"),
    }
    return read_config(SCENE, (), overrides | changes)


def killed_run(folder, most, until, seed):
    """The run on the cluster; gives what happened, without scores and what is left."""
    head = {**NODE, "num_cpus": 0, "include_dashboard": False}
    cluster = started(lambda: Cluster(initialize_head=True, head_node_args=head))
    for _ in range(COLLECTORS):
        started(lambda: cluster.add_node(**NODE))
    killer = Killer(cluster, most, until, seed)
    moments = Moments(killer)
    changes = {
        "cluster_settings.cluster": cluster.address,
        "env_settings.env_path": str(build(SCENE, folder / "build", num_areas=AREAS)),
    }
    config = config_of(folder, "killed", 1, **changes)
    killer.start()
    try:
        train(config, recipe_of(config), killer.log)
    finally:
        killer.stop()
        killer.join()
        moments.close()
        cluster.shutdown()
    outcome = killer.outcome
    run = folder / "killed"
    arrays, _ = read_arrays(run / "resume.safetensors")
    with (run / SCENE / "metrics.csv").open(newline="") as file:
        steps = [0, *(int(row["step"]) for row in csv.DictReader(file))]
    outcome.steps, outcome.updates = steps[-1], len(steps) - 1
    outcome.optimizer_steps = int(arrays[f"learners/{SCENE}/optimizer.step"])
    updates = itertools.pairwise(steps)
    outcome.expected_steps = EPOCHS * sum((b - a) // BATCH for a, b in updates)
    return outcome


def score_of(run):
    """The mean return of a run's policy in the scene."""
    figures = touchline.evaluate(SCENE, run, episodes=200, seed=9)
    return figures["mean_return"]


def calm_scores(folder, steps, seeds):
    """Scores of runs that were left alone, with collectors in this process."""
    scores = []
    for seed in seeds:
        config = config_of(folder, f"calm-{seed}", seed)
        behavior = config.behaviors[SCENE].model_copy(update={"max_steps": steps})
        config = config.model_copy(update={"behaviors": {SCENE: behavior}})
        recipe = recipe_of(config, SCENE, print)
        scores.append(score_of(train(config, recipe).folder))
    return scores


def what_is_left(mark, segments):
    """Processes with the mark, their ports, and new segments of shared memory."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid == os.getpid() or process.environ().get(MARK) != mark:
                continue
            found.append(f"process {process.pid} {' '.join(process.cmdline())[:80]}")
            connections = process.net_connections()
            listening = [c for c in connections if c.status == psutil.CONN_LISTEN]
            found += [f"port {connection.laddr.port}" for connection in listening]
    new = set(Path("/dev/shm").glob("*")) - segments
    return found + [str(path) for path in new]


def faults(kills, minutes, seed, calm_seeds=3):
    """One run with so many kills, and what it led to."""
    mark = uuid.uuid4().hex
    os.environ[MARK] = mark
    until = time.monotonic() + 60 * minutes
    segments = set(Path("/dev/shm").glob("*"))
    os.environ.pop("TMPDIR", None)  # Ray's paths have to be short
    with tempfile.TemporaryDirectory(prefix="touchline-faults-") as name:
        folder = Path(name)
        temporary = folder / "temporary"
        temporary.mkdir()
        os.environ["TEMP"] = str(temporary)
        tempfile.tempdir = None  # it is read again
        outcome = killed_run(folder, kills, until, seed)
        deadline = time.monotonic() + 60
        outcome.left = what_is_left(mark, segments)
        while outcome.left and time.monotonic() < deadline:
            time.sleep(1.0)
            outcome.left = what_is_left(mark, segments)
        outcome.folders = len(list(temporary.glob("touchline-*")))
        outcome.score = score_of(folder / "killed")
        seeds = range(seed + 1, seed + 1 + calm_seeds)
        outcome.calm_scores = calm_scores(folder, outcome.steps, seeds)
    return outcome


def _spread(scores):
    mean = sum(scores) / len(scores)
    return (sum((s - mean) ** 2 for s in scores) / max(len(scores) - 1, 1)) ** 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=600, help="then no more kills")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    given = parser.parse_args()
    outcome = faults(given.kills, given.minutes, given.seed)
    for (kind, moment), count in sorted(outcome.kills.items()):
        print(f"{kind} killed while {moment}: {count}")
    print(
        f"{outcome.kills.total()} kills, {outcome.replaced} collectors replaced, "
        f"{outcome.restarted} players restarted; {outcome.updates} updates, "
        f"{outcome.optimizer_steps} optimizer steps, {outcome.lost} lost; "
        f"score {outcome.score:.3f}, left alone "
        f"{', '.join(f'{score:.3f}' for score in outcome.calm_scores)}; left behind: "
        f"{', '.join(outcome.left) or 'nothing'} ({outcome.folders} temporary folders)"
    )
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
