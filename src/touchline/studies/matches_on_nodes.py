"""Matches on the nodes of a cluster, to which they take their policies' files."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ray

from touchline.jobs.ray import Nodes, check_cluster, connected
from touchline.policies.files.run_layout import RunLayout
from touchline.studies.matches import Match, Score, play, sources_of
from touchline.training.config.settings import place_of
from touchline.training.world import player_check
from touchline.whole import write_whole


@contextmanager
def nodes_for(
    where: str, matches: Sequence[Match]
) -> Iterator[tuple[Nodes, Callable[[Match], Score]]]:
    """The cluster as a place for matches, and what plays one there."""
    sources = {s for match in matches for seat in match.seats for s in sources_of(seat)}
    with connected(place_of(where)):
        check_cluster(1, 1, player_check(matches[0].recipe))
        # Once into the store of objects; as an argument, every match would carry all files.
        policies = ray.put({source: _packed(source) for source in sources})
        yield Nodes(1), partial(_play_with, policies)


def _packed(source: str) -> tuple[str, str, Mapping[str, bytes]]:
    """`BEHAVIOR=` and file name, if any, of a policy `[BEHAVIOR=]SOURCE`, and what is read of it.

    That is the file, or of a run folder its latest models and checkpoints, by their paths.
    """
    behavior, equals, path = source.partition("=")
    if not equals or Path(source).exists():
        behavior, equals, path = "", "", source
    found = Path(path)
    if found.is_file():
        return behavior + equals, found.name, {found.name: found.read_bytes()}
    files = {}
    if found.is_dir():  # neither `random` nor `zero`
        layout = RunLayout(found)
        newest = [layout.newest(name) for name in layout.behaviors()]
        files = {f.relative_to(found).as_posix(): f.read_bytes() for f in newest}
    return behavior + equals, "", files


def _play_with(policies: Any, match: Match) -> Score:
    packed = ray.get(policies)
    with tempfile.TemporaryDirectory(prefix="touchline-match-") as folder:
        seats = []
        for number, seat in enumerate(match.seats):
            sources = []
            for position, source in enumerate(sources_of(seat)):
                place = Path(folder) / f"{number}-{position}"
                # As the head saw it: whether there is such a file here says nothing.
                prefix, name, files = packed[source]
                for path, content in files.items():
                    write_whole(place / path, content)
                sources.append(f"{prefix}{place / name}" if files else source)
            seats.append(",".join(sources))
        return play(replace(match, seats=(seats[0], seats[1])))
