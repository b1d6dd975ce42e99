"""Settings of several collectors: the `cluster_settings` block, which ML-Agents does not have."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import AfterValidator, model_validator
from pydantic_core import PydanticCustomError

from touchline.training.config.values import Flag, Part, Positive, Text, Whole


def _place(value: str) -> str:
    if not re.fullmatch(r"local:[1-9]\d*|auto|(?!local:)[^/]+:\d+", value):
        raise ValueError(
            "expected local:N (N processors of this machine), auto (the cluster that this machine "
            "is in) or an address as HOST:PORT"
        )
    return value


class ClusterSettings(Part):
    """Who collects experience for the process that learns (not in ML-Agents)."""

    collectors: Annotated[Whole | None, Flag("--collectors", "N")] = None
    """Collectors, each with its own num_envs worlds, forward passes and random numbers. Without
    cluster they take turns in this process. Default: this process collects by itself."""

    cluster: Annotated[
        Annotated[Text, AfterValidator(_place)] | None, Flag("--cluster", "WHERE")
    ] = None
    """Collectors run at the same time, over Ray: local:N (N processors of this machine), auto (the
    cluster that this machine is in) or an address as HOST:PORT. Default: in this process."""
    cpus_per_collector: Annotated[Positive, Flag("--cpus-per-collector", "C")] = 1
    """Processors that each collector claims on a cluster."""

    @model_validator(mode="after")
    def _a_cluster_has_collectors(self) -> Self:
        if self.cluster is not None and self.collectors is None:
            raise PydanticCustomError(
                "at",
                "needs --collectors N, too: how many collect",
                {"at": "cluster"},
            )
        return self

    def conflict(self, behavior: Any) -> tuple[str, str] | None:
        """Key and reason of what several collectors refuse in a behavior's block."""
        if self.collectors is None:
            return None
        if behavior.self_play is not None:
            return "self_play", (
                "opponents and ratings follow every step of all games, and collectors play apart; "
                "leave out --collectors, or take --num-envs for several worlds"
            )
        if not behavior.hyperparameters.collects_in_rounds:
            return "trainer_type", (
                f"{behavior.trainer_type} learns at every few steps, and collectors bring whole "
                "rounds; leave out --collectors, or take --num-envs for several worlds"
            )
        return None
