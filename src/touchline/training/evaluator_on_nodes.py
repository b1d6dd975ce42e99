"""Evaluations of a run on the nodes of its cluster, beside its training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayError

from touchline.envs.env import EnvRecipe
from touchline.errors import TouchlineError
from touchline.log import Log
from touchline.policies.network_policy import NetworkPolicy
from touchline.specs import BehaviorSpec
from touchline.training.collect.weights import (
    PolicyWeights,
    policy_with,
    take,
    weights_of,
)
from touchline.training.evaluation import Played, play
from touchline.training.run.process import one_torch_thread

MOST_RETRIES = 10
"""After deaths of nodes."""


class PlayedOnNode:
    """`Playing` on whichever node Ray takes, with copies of the policies."""

    def __init__(
        self,
        recipe: EnvRecipe,
        episodes: int,
        policies: Mapping[str, NetworkPolicy],
        log: Log,  # noqa: ARG002 - lines about progress stay there
    ) -> None:
        # Without a claim to processors: collectors may have them all.
        remote = ray.remote(
            num_cpus=0, max_retries=MOST_RETRIES, scheduling_strategy="SPREAD"
        )(_play_with)
        weights = {name: weights_of(policy) for name, policy in policies.items()}
        self._answer: Any = remote.remote(recipe, episodes, weights)

    def played(self, patience_s: float) -> Played | None:
        if not ray.wait([self._answer], timeout=patience_s)[0]:
            return None
        try:
            found: Played = ray.get(self._answer)
        except RayError as error:
            return Played({}, " ".join(str(error).split())[:200])
        return found


def _play_with(
    recipe: EnvRecipe, episodes: int, weights: Mapping[str, PolicyWeights]
) -> Played:
    def policy_for(name: str, spec: BehaviorSpec) -> NetworkPolicy:
        policy = policy_with(weights[name], spec)
        take(policy, weights[name])
        return policy

    with one_torch_thread():
        try:
            return play(recipe, episodes, policy_for)
        except TouchlineError as error:  # not every error can be pickled
            return Played({}, str(error))
