"""How good learners are now: whole episodes in a world of their own, apart from training.

The world is one of this process or, where a cluster collects, one of its nodes: then training goes
on meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import Any, TypeVar

import torch

from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.jobs.job import Here, Job, Place, Running
from touchline.log import EvaluationLine, Log
from touchline.policies.network_policy import NetworkPolicy
from touchline.specs import BehaviorSpec
from touchline.training.behavior_training import BehaviorTraining
from touchline.training.collect.copies import (
    PolicyWeights,
    policy_with,
    take,
    weights_of,
)
from touchline.training.collect.opening import for_nodes
from touchline.training.curriculum import Curriculum
from touchline.training.evaluation import play
from touchline.training.evaluation_figures import what_was_played
from touchline.training.run.folder import RunFolder
from touchline.training.run.stopwatch import Stopwatch

EPISODES = 50
"""Per behavior, sampled actions, where the settings name no number: two seconds for 3DBall."""
WAIT_S = 0.5
"""For episodes, at a time: Ctrl-C is noticed in between."""
_KEPT = (
    "episodes",
    "mean_return",
    "mean_group_return",
    "ci95",
    "games",
    "opponents",
    "scores",
)


Policies = Mapping[str, NetworkPolicy]
_Trained = TypeVar("_Trained")


def sent_policy(
    weights: Mapping[str, PolicyWeights], name: str, _spec: BehaviorSpec
) -> NetworkPolicy:
    """A copy of a run's policy, in another process."""
    # As in the process that learns (`process.tuned_process`).
    torch.set_num_threads(1)
    own = _of(name, weights)
    policy = policy_with(own)
    take(policy, own)
    return policy


def _of(name: str, trained: Mapping[str, _Trained]) -> _Trained:
    # A world of the user's choice for evaluation may have other behaviors.
    if name not in trained:
        raise UsageError(
            f"its world has the behavior {name}, and this run trains {', '.join(trained)}; name "
            "another as evaluation.env"
        )
    return trained[name]


@dataclass
class Evaluator:
    """Evaluates the policies of one run, as they are at one moment, one evaluation at a time.

    A Unity player is not started a second time: then there is no evaluation.
    """

    recipe: EnvRecipe
    folder: RunFolder
    stopwatch: Stopwatch
    log: Log
    place: Place
    _underway: _Underway | None = None

    @property
    def _has_own_world(self) -> bool:
        return self.folder.config.evaluation.env is not None

    def start(
        self,
        evaluated: Sequence[BehaviorTraining],
        trainings: Sequence[BehaviorTraining],
        curriculum: Curriculum,
        stop: Event,
    ) -> None:
        """Begin to measure the latest checkpoints of the `evaluated` among all `trainings`.

        In this process all is played here and now; once `stop` is set, it is given up.
        """
        assert self._underway is None, "finish the last evaluation first"
        abouts = [(t, _about(t, curriculum)) for t in evaluated]
        kind = self.recipe.kind
        playing = None
        wanted = self.folder.config.evaluation.episodes
        episodes = EPISODES if wanted is None else wanted
        # With self-play in every behavior there is nothing to play: the score is the rating.
        has_scores = self._has_own_world or any(
            training.pool is None for training in trainings
        )
        if episodes and has_scores and not (kind.is_player or kind.is_replay):
            values = dict(self.recipe.parameters) | dict(curriculum.values)
            recipe = replace(self.recipe, parameters=values)
            policies = {t.name: t.learner.policy for t in trainings}
            with self.stopwatch("evaluation"):
                playing = self.place.start(self._job(recipe, episodes, policies, stop))
        self._underway = _Underway(abouts, playing)
        # In this process, looking at the job is what plays it.
        self.record()

    def _job(
        self, recipe: EnvRecipe, episodes: int, policies: Policies, stop: Event
    ) -> Job:
        """So many episodes of each behavior; in this process with the policies themselves."""
        if isinstance(self.place, Here):
            found = (
                recipe,
                episodes,
                lambda name, _: _of(name, policies),
                self.log,
                stop,
            )
            return Job("evaluation", play, found)
        weights = {name: weights_of(policy) for name, policy in policies.items()}
        return Job(
            "evaluation", play, (recipe, episodes, partial(sent_policy, weights))
        )

    def record(self, patience_s: float = 0.0) -> None:
        """Keep the figures of the evaluation that is under way, if they are there by then.

        They are `steps`, `lessons`, `score` and, where episodes were played, what these gave.
        Without a second world, the score is the mean return of the latest episodes in training;
        with self-play, it is the rating.
        """
        if self._underway is None:
            return
        figures: Mapping[str, Any] = {}
        if self._underway.playing is not None:
            with self.stopwatch("evaluation"):
                outcome = self._underway.playing.look(patience_s)
            if outcome is None:
                return
            if outcome.failure:
                self.log(f"no evaluation: {outcome.failure}")
            elif outcome.value is None:  # stopped
                self._underway = None
                return
            figures = outcome.value or {}
        for training, about in self._underway.abouts:
            found = self._with_figures(training.name, about, figures.get(training.name))
            rates = win_rates(found)
            if rates:
                training.writer.write_evaluation(found["steps"], rates)
            if "score" in found:
                self.folder.add_evaluation(training.name, found)
        self._underway = None

    def finish(self, stop: Event) -> None:
        """Wait for the evaluation that is under way; once `stop` is set, give it up."""
        while self._underway is not None and not stop.is_set():
            self.record(WAIT_S)
        self._underway = None

    def _with_figures(
        self, name: str, about: dict[str, Any], figures: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        # Against itself a policy wins as much as it loses; ratings say how good it is.
        if figures is None or ("error" in about and not self._has_own_world):
            return about
        score = figures["mean_return"] + figures["mean_group_return"]
        rates = [f"{who} {rate:.0%}" for who, rate in win_rates(figures).items()]
        won = f"; won against {', '.join(rates)}" if rates else ""
        self.log(
            EvaluationLine(
                name,
                f"evaluated at step {about['steps']:,}: "
                f"{score:.3f}, {what_was_played(figures)}{won}",
            )
        )
        kept = {key: figures[key] for key in _KEPT if key in figures}
        return {
            "steps": about["steps"],
            "lessons": about["lessons"],
            **kept,
            "score": score,
        }


@dataclass(frozen=True)
class _Underway:
    """An evaluation that was started."""

    abouts: Sequence[tuple[BehaviorTraining, dict[str, Any]]]
    """What is evaluated, and what is known of it without playing."""
    playing: Running | None


def _about(training: BehaviorTraining, curriculum: Curriculum) -> dict[str, Any]:
    """What is known of a behavior without playing: `score` only where training has one."""
    about = {"steps": training.learner.steps, "lessons": curriculum.numbers}
    if training.pool is not None:
        rating, error = training.pool.rating()
        return {**about, "score": rating, "error": error}
    score = training.recent_mean
    return about if score is None else {**about, "score": score}


def win_rates(evaluation: Mapping[str, Any]) -> dict[str, float]:
    """Opponent -> share of the games won against it, where the world counts opponents apart."""
    opponents: Mapping[str, Any] = evaluation.get("opponents", {})
    return {name: figures["win_rate"] for name, figures in opponents.items()}


def evaluator_of(
    recipe: EnvRecipe, folder: RunFolder, stopwatch: Stopwatch, log: Log
) -> Evaluator:
    """Its policies play on the nodes of a cluster that collects, else in this process."""
    config = folder.config
    other = config.evaluation.env
    if other is not None:
        recipe = EnvRecipe.parse(other, seed=recipe.seed, num_areas=recipe.num_areas)
    if config.cluster_settings.cluster is None:
        return Evaluator(recipe, folder, stopwatch, log, Here())
    from touchline.jobs.ray import Nodes

    # Without a claim to processors: collectors may have them all.
    there = for_nodes(recipe, config)
    return Evaluator(there, folder, stopwatch, log, Nodes(cpus=0))
