"""Where several runs go on at the same time: in processes of this machine, or on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from touchline.operating_systems import num_cores
from touchline.policies.files.run_layout import RunLayout
from touchline.studies.processes import Job, LocalJob

if TYPE_CHECKING:
    from touchline.envs.env import EnvRecipe
    from touchline.training.config.settings import RunConfig


class Place(Protocol):
    """Starts runs."""

    at_once: int
    """How many of them it has room for."""

    def start(self, job: bytes, own: RunLayout) -> Job:
        """Start the run that `job_of` packed, whose files appear in the folder `own`."""


class ThisMachine:
    """One run for each core."""

    def __init__(self) -> None:
        self.at_once = num_cores()

    def start(self, job: bytes, own: RunLayout) -> Job:  # noqa: ARG002 - it is in the job
        return LocalJob(job)


@contextmanager
def place_for_runs(config: RunConfig, recipe: EnvRecipe) -> Iterator[Place]:
    """The nodes of the cluster in the settings; without one, or with collectors, this machine.

    `recipe` is the world of one of the runs. Raises a UsageError for a cluster that cannot be
    reached, has no room, or lacks the player.
    """
    settings = config.cluster_settings
    if not settings.takes_whole_runs:
        yield ThisMachine()
        return
    # Its reports are read without the libraries of training.
    from touchline.training.collect.opening import import_ray

    import_ray("--cluster")
    from touchline.studies.on_nodes import nodes_for_runs

    with nodes_for_runs(settings, recipe) as place:
        yield place
