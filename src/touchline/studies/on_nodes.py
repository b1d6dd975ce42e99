"""Whole runs and matches on the nodes of a cluster.

A run is one process on a node; its files and lines arrive here. One whose node dies goes on
elsewhere from the resume point that arrived last. A match takes its policies' files along.
"""

from __future__ import annotations

import pickle
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError, RayTaskError

from touchline.errors import RunError, TouchlineError
from touchline.operating_systems import removed_when_over
from touchline.policies.files.run_layout import RunLayout
from touchline.policies.files.whole import PART, write_whole
from touchline.studies.matches import Match, Score, play, sources_of
from touchline.studies.processes import (
    ask_to_stop,
    hand_over,
    start_process,
)
from touchline.training.collect.cluster import check_cluster, connected, nodes
from touchline.training.collect.opening import build_of, for_nodes
from touchline.training.collect.shipping import Build, unpacked
from touchline.training.config.cluster_settings import place_of

if TYPE_CHECKING:
    from touchline.envs.env import EnvRecipe
    from touchline.training.config.cluster_settings import ClusterSettings

FILES_EVERY_S = 10.0
"""Between two looks at a run's files: what the death of a node may cost, beside the 20 s between
resume points."""
POLL_S = 0.5
SAY_AFTER_S = 30.0
"""Without an answer, which a run gives at once when it has a place."""
MOST_RESTARTS = 10
"""Of one run, as players and collectors have by default."""

Files = dict[str, bytes]
"""By path within a run's folder."""


@dataclass(frozen=True)
class News:
    """What a run did since the last news."""

    lines: list[str]
    changed: Files
    names: set[str]
    """Of all files; empty between two looks."""
    code: int | None
    """What its process ended with; None while it runs."""


class NodeRun:
    """A run on a node, in an actor: a process as on this machine, in a folder of its own."""

    def __init__(self, job: bytes, files: Files, build: Build | None) -> None:
        config, recipe, to_wandb = pickle.loads(job)
        if build is not None:
            recipe = replace(recipe, target=str(unpacked(build, ray.get)))
        self._place = tempfile.TemporaryDirectory(prefix="touchline-run-")
        over = removed_when_over(self._place.name)
        settings = config.checkpoint_settings
        self._folder = Path(self._place.name) / settings.run_id
        for name, content in files.items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        layout = RunLayout(self._folder)
        here = {
            "results_dir": self._place.name,
            "resume": layout.resume_point.exists(),
            "force": False,
        }
        own = settings.model_copy(update=here)
        no_cluster = {"cluster": None, "ship": False}
        alone = config.cluster_settings.model_copy(update=no_cluster)
        changed = {"checkpoint_settings": own, "cluster_settings": alone}
        config = config.model_copy(update=changed)
        if "log_folder" in recipe.options:
            options = {**recipe.options, "log_folder": str(layout.logs)}
            recipe = replace(recipe, options=options)
        self._seen: dict[str, tuple[int, int]] = {}
        """Time and size of each file that was sent."""
        self._looked_at = time.monotonic()
        self._lines: list[str] = []
        self._process = start_process(subprocess.PIPE, keeps_open=over)
        hand_over(self._process, pickle.dumps((config, recipe, to_wandb)))
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def news(self) -> News:
        """What happened, after a moment."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(POLL_S)
        code = self._process.poll()
        if code is not None:
            self._reader.join()
        lines, self._lines = self._lines, []
        is_due = time.monotonic() - self._looked_at >= FILES_EVERY_S
        if code is None and not is_due:
            return News(lines, {}, set(), None)
        self._looked_at = time.monotonic()
        changed, names = self._look()
        if code is not None:
            ask_to_stop(self._process)
            self._place.cleanup()
        return News(lines, changed, names, code)

    def stop(self) -> None:
        """Let the process save and leave."""
        ask_to_stop(self._process)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            self._lines.append(raw.decode(errors="replace").rstrip("\n"))

    def _look(self) -> tuple[Files, set[str]]:
        """The files that changed, and the names of all."""
        changed, names = {}, set()
        for path in sorted(self._folder.rglob("*")):
            with suppress(FileNotFoundError):
                # What is being written has another name until it is whole.
                if path.suffix == PART or not path.is_file():
                    continue
                name = path.relative_to(self._folder).as_posix()
                names.add(name)
                status = path.stat()
                version = status.st_mtime_ns, status.st_size
                if self._seen.get(name) != version:
                    changed[name] = path.read_bytes()
                    self._seen[name] = version
        return changed, names


class NodeJob:
    """A `Job` on whichever node has room; its files appear in `folder`."""

    def __init__(
        self, job: bytes, folder: Path, cpus: float, build: Build | None
    ) -> None:
        config, recipe, to_wandb = pickle.loads(job)
        settings = config.checkpoint_settings
        if not settings.resume:  # `force` replaces it
            shutil.rmtree(folder, ignore_errors=True)
        self._job = pickle.dumps((config, for_nodes(recipe, config), to_wandb))
        self._folder = folder
        self._build = build
        self._cpus = cpus
        self._actor_class = ray.remote(num_cpus=cpus)(NodeRun)
        self._restarts = 0
        self._code = 0
        self._is_stopping = False
        self._start()

    def lines(self) -> Iterator[str]:
        """What the run prints, until it ends."""
        while True:
            answer = self._actor.news.remote()
            while not ray.wait([answer], timeout=SAY_AFTER_S)[0]:
                yield f"waits for a node with room for it (CPUs: {self._cpus:g})"
            try:
                news: News = ray.get(answer)
            except RayTaskError as error:
                raise RunError(" ".join(str(error.cause).split())) from error
            except RayError as error:
                self._replace(error)
                yield f"its node or process died; it goes on (restart {self._restarts})"
                continue
            self._write(news)
            yield from news.lines
            if news.code is not None:
                self._code = news.code
                ray.kill(self._actor)
                return

    def wait(self) -> int:
        """The code that its process ended with."""
        return self._code

    def stop(self) -> None:
        """Let it save and leave."""
        self._is_stopping = True
        self._actor.stop.remote()

    def kill(self) -> None:
        """End it at once."""
        self._is_stopping = True
        ray.kill(self._actor)

    def _start(self) -> None:
        files = {}
        if self._folder.is_dir():
            files = {
                path.relative_to(self._folder).as_posix(): path.read_bytes()
                for path in self._folder.rglob("*")
                if path.is_file()
            }
        self._actor: Any = self._actor_class.remote(self._job, files, self._build)

    def _replace(self, error: RayError) -> None:
        self._restarts += 1
        if self._is_stopping or self._restarts > MOST_RESTARTS:
            text = " ".join(str(error).split())
            raise RunError(f"its node or process died: {text[:200]}") from error
        self._start()

    def _write(self, news: News) -> None:
        for name, content in news.changed.items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)
        if not news.names:
            return
        for path in self._folder.rglob("*"):
            name = path.relative_to(self._folder).as_posix()
            if path.is_file() and name not in news.names:
                path.unlink()  # a checkpoint that is no longer kept


class Nodes:
    """The nodes of a cluster as a `Place` for runs."""

    def __init__(self, cpus: float, build: Build | None) -> None:
        self.at_once = sum(int(node.cpus / cpus) for node in nodes())
        self._cpus = cpus
        self._build = build

    def start(self, job: bytes, own: RunLayout) -> NodeJob:
        return NodeJob(job, own.path, self._cpus, self._build)


@contextmanager
def nodes_for_runs(settings: ClusterSettings, recipe: EnvRecipe) -> Iterator[Nodes]:
    """A connection to the cluster, whose nodes have been checked; see `place_for_runs`."""
    assert settings.cluster is not None
    cpus = settings.cpus_per_collector
    build = build_of(recipe) if settings.ship else None
    with connected(settings.cluster):
        check_cluster(recipe if build is None else None, 1, cpus)
        if build is not None:
            build = replace(build, archive=ray.put(build.archive))
        yield Nodes(cpus, build)


# matches


def scores_on_cluster(
    where: str, matches: Sequence[Match]
) -> Iterator[tuple[int, Score]]:
    """The score of each match with its position, as they are finished.

    Raises what `matches.play` raises.
    """
    sources = {s for match in matches for seat in match.seats for s in sources_of(seat)}
    with connected(place_of(where)):
        check_cluster(matches[0].recipe, 1, 1)
        files = ray.put({_path_in(s): _files_of(Path(_path_in(s))) for s in sources})
        play_there = ray.remote(num_cpus=1, max_retries=MOST_RESTARTS)(_play_with)
        running = {
            play_there.remote(match, files): at for at, match in enumerate(matches)
        }
        while running:
            # With a limit, so that Ctrl-C is noticed.
            ready, _ = ray.wait(list(running), timeout=POLL_S)
            for reference in ready:
                failure, score = _result_of(reference)
                if score is None:
                    raise RunError(failure)
                yield running.pop(reference), score


def _result_of(reference: Any) -> tuple[str, Score | None]:
    try:
        found: tuple[str, Score | None] = ray.get(reference)
    except RayError as error:
        raise RunError(f"a match was lost: {' '.join(str(error).split())}") from error
    return found


def _path_in(source: str) -> str:
    """The path of `[BEHAVIOR=]SOURCE`."""
    _, equals, path = source.partition("=")
    return source if not equals or Path(source).exists() else path


def _files_of(path: Path) -> Files:
    """What is read of a policy: the file, or of a run folder its latest models and checkpoints."""
    if path.is_file():
        return {path.name: path.read_bytes()}
    layout = RunLayout(path)
    if not path.is_dir():
        return {}  # `random` and `zero`
    newest = [layout.newest(name) for name in layout.behaviors()]
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in newest}


def _play_with(match: Match, files: Mapping[str, Files]) -> tuple[str, Score | None]:
    """Play a match with policies from these files, by their paths; gives a failure or a score."""
    with tempfile.TemporaryDirectory(prefix="touchline-match-") as folder:
        seats = []
        for number, seat in enumerate(match.seats):
            sources = []
            for position, source in enumerate(sources_of(seat)):
                place = Path(folder) / f"{number}-{position}"
                sources.append(_moved(source, files, place))
            seats.append(",".join(sources))
        try:
            return "", play(replace(match, seats=(seats[0], seats[1])))
        except TouchlineError as error:
            return str(error), None


def _moved(source: str, files: Mapping[str, Files], place: Path) -> str:
    """The source with its files written below `place`."""
    # As the head saw it: whether there is such a file here says nothing.
    path = source if source in files else source.partition("=")[2]
    own = files[path]
    for name, content in own.items():
        written = place / name
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_bytes(content)
    if not own:
        return source
    is_file = Path(path).name in own
    there = place / Path(path).name if is_file else place
    return f"{source.removesuffix(path)}{there}"
