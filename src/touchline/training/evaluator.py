"""How good learners are now: whole episodes in a world of their own, apart from training."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.errors import RunError
from touchline.log import Log, now_and_then, silent
from touchline.parameters import ParameterValue
from touchline.policies.policy import Policy, SlotActor
from touchline.specs import base_name
from touchline.training.behavior_training import BehaviorTraining
from touchline.training.curriculum import Curriculum
from touchline.training.evaluation import evaluate, what_was_played

EPISODES = 50
"""Per behavior, sampled actions: two seconds for 3DBall."""
_KEPT = ("episodes", "mean_return", "mean_group_return", "ci95", "games")


class Evaluator:
    """Evaluates the policies of one run.

    A Unity player is not started a second time: then there is no evaluation.
    """

    def __init__(self, recipe: EnvRecipe, log: Log = silent) -> None:
        self._recipe = recipe
        self._log = log

    def evaluate(
        self, trainings: Sequence[BehaviorTraining], curriculum: Curriculum
    ) -> dict[str, dict[str, Any]]:
        """Base name -> `steps`, `lessons`, `score` and, where episodes were played, their figures.

        Without a second world, the score is the mean return of the latest episodes in training;
        with self-play, it is the rating.
        """
        played = {}
        # With self-play in every behavior there is nothing to play: the score is the rating.
        if any(training.pool is None for training in trainings):
            policies = {t.name: t.learner.policy for t in trainings}
            played = self._play(policies, curriculum.values)
        measured = {}
        for training in trainings:
            about = {"steps": training.learner.steps, "lessons": curriculum.numbers}
            figures = played.get(training.name)
            if training.pool is not None:
                # Against itself a policy wins as much as it loses; ratings say how good it is.
                rating, error = training.pool.rating()
                measured[training.name] = {**about, "score": rating, "error": error}
            elif figures is not None:
                score = figures["mean_return"] + figures["mean_group_return"]
                kept = {key: figures[key] for key in _KEPT}
                measured[training.name] = {**about, **kept, "score": score}
                self._log(
                    f"{training.name}  evaluated at step {training.learner.steps:,}: "
                    f"{score:.3f}, {what_was_played(figures)}"
                )
            elif training.recent:
                measured[training.name] = {**about, "score": training.recent_mean}
        return measured

    def _play(
        self, policies: Mapping[str, Policy], parameters: Mapping[str, ParameterValue]
    ) -> dict[str, Any]:
        """Base name -> figures as `touchline eval --json` has them.

        Empty where no second world can be opened, or where no episode ever ends.
        """
        kind = self._recipe.kind
        if kind.is_player or kind.is_replay:
            return {}
        values = dict(self._recipe.parameters) | dict(parameters)
        recipe = replace(self._recipe, parameters=values)
        with make(recipe) as env:
            slots = Slots(env)
            slots.reset(recipe.seed)
            actors = {
                name: SlotActor(policies[base_name(name)], spec, recipe.seed)
                for name, spec in slots.behaviors.items()
            }
            try:
                progress = now_and_then(self._log, "evaluation", "episodes")
                figures = evaluate(
                    slots, actors, EPISODES, recipe.seed, progress=progress
                )
            # A policy in training may never end an episode. That is no reason to stop the run.
            except RunError as error:
                self._log(f"no evaluation: {error}")
                return {}
            finally:
                # Closed worlds refer to themselves and would pile up until Python collects them.
                gc.collect()
        return dict(figures["behaviors"])
