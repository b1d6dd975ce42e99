"""A learner outside of a run: it acts for the slots of one team and learns when it is ready."""

import torch

from touchline.training.algorithms.learner import LearnerSetup, learner_class
from touchline.training.experience.rollout import Rollout

CPU = torch.device("cpu")


def make_learner(spec, config, seed=0, name="Tiny", device=CPU):
    setup = LearnerSetup(name, spec, config, seed, device)
    return learner_class(config.trainer_type)(setup)


class Practice:
    """Rows in, actions out; what a collector and a trainer do for one table of slots."""

    def __init__(self, learner):
        self.learner = learner
        policy = learner.policy
        self.rollout = Rollout(
            memory=policy.new_memory(), compact=policy.network.compact
        )

    def add(self, rows):
        """The first rows, or those that followed the last actions."""
        if self.rollout.rows:
            self.rollout.add(rows)
        else:
            self.rollout.begin(rows)

    def act(self):
        rows = self.rollout.rows[-1]
        decision = self.learner.policy.act(
            rows, self.rollout.memory, self.learner.generator
        )
        self.rollout.chosen = decision.kept
        return decision.actions

    def learn(self, rows):
        """An update if there is enough for one; gives its metrics or None."""
        if self.rollout.num_results < self.learner.wanted:
            return None
        self.learner.add("Tiny?team=0", self.rollout.trajectories())
        self.rollout.begin(rows)
        return self.learner.update()
