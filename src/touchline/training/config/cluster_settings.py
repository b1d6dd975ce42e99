"""Settings of several collectors: the `cluster_settings` block, which ML-Agents does not have."""

import re
from typing import Annotated, Self

from pydantic import AfterValidator, model_validator

from touchline.errors import UsageError
from touchline.flag import Flag
from touchline.training.config.values import (
    Part,
    Positive,
    Switch,
    Text,
    Whole,
    mistake_at,
)


def _place(value: str) -> str:
    # No host is called `local`, so that local:0 is a mistake and not an address.
    if not re.fullmatch(r"local:[1-9]\d*|auto|(?!local:)[^/]+:\d+", value):
        raise ValueError(
            "expected local:N (N processors of this machine), auto (the cluster that this machine "
            "is in) or an address as HOST:PORT"
        )
    return value


def place_of(value: str) -> str:
    """A cluster as `--cluster` names it; raises a UsageError for anything else."""
    try:
        return _place(value)
    except ValueError as error:
        raise UsageError(f"--cluster {value}: {error}") from None


class ClusterSettings(Part):
    """Who collects experience for the process that learns (not in ML-Agents)."""

    collectors: Annotated[Whole | None, Flag("--collectors", "N")] = None
    """Number of collectors, each with its own num_envs environments, forward passes and random
    numbers. Without cluster, they take turns in this process. Default: no collectors."""

    cluster: Annotated[
        Annotated[Text, AfterValidator(_place)] | None, Flag("--cluster", "WHERE")
    ] = None
    """Run the collectors in parallel with Ray: local:N (N cores of this machine), auto (the cluster
    that this machine belongs to) or HOST:PORT. Default: in this process. With --seeds or tune and
    without collectors, the cluster runs whole seeds or trials."""
    cpus_per_collector: Annotated[Positive, Flag("--cpus-per-collector", "C")] = 1
    """Cores that each collector, or each run of --seeds or tune, reserves on a cluster."""
    ship: Annotated[Switch, Flag("--ship")] = False
    """Send the player of env_path to the nodes of the cluster; each unpacks it once. Without it,
    the player must be at the same path on every node."""

    @property
    def takes_whole_runs(self) -> bool:
        """Whether the cluster is for whole runs (seeds, trials), not for collectors of one."""
        return self.cluster is not None and self.collectors is None

    @model_validator(mode="after")
    def _a_player_is_sent_to_a_cluster(self) -> Self:
        if self.ship and self.cluster is None:
            raise mistake_at(
                "ship",
                "sends the player to the nodes of a cluster; give --cluster WHERE, or leave it out",
            )
        return self
