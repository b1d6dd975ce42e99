"""A world that only a memory solves: the goal is shown at first and sought after.

One agent walks from the middle of a line, or of several, one for each action, to one of the ends.
Every goal of -1 or 1 is shown until two actions have been counted, each part of an action by
itself, while the nearest end is further away.

Source: numbers and rules of `MemoryEnvironment` in ML-Agents 1.1.0, and the settings of the
learning tests in which it appears.
"""

from typing import NamedTuple

import numpy as np
from tests.slot_rows import slot_rows
from tests.training.practice import Practice, make_learner

from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.config.settings import BehaviorConfig

TIME_PENALTY = 0.01
SUCCESS_REWARD = 1.06
COUNTED_WHILE_SHOWN = 2
LAST_RETURNS = 5


class Recall:
    """The world; `returns` are those of all episodes that ended."""

    def __init__(self, action_spec, step_size, seed):
        self.spec = BehaviorSpec((ObservationSpec.vector(1, "goal"),), action_spec)
        self.step_size = step_size
        self.rng = np.random.default_rng(seed)
        self.returns = []
        self._restart()

    def begin(self):
        return slot_rows([self._obs()], begins=True)

    def step(self, actions):
        signs = 2.0 * actions.discrete[0] - 1.0
        moves = np.concatenate([actions.continuous[0], signs])
        moves = np.clip(moves, -self.step_size, self.step_size)
        self.position = np.clip(self.position + moves, -1.0, 1.0)
        self.counted += len(moves)
        is_over = bool((np.abs(self.position) == 1.0).all())
        success = float(SUCCESS_REWARD * self.position.mean() * self.goal)
        reward = success if is_over else -TIME_PENALTY
        self.total += reward
        final_obs = self._obs()[: int(is_over)]
        if is_over:
            self.returns.append(self.total)
            self._restart()
        return slot_rows(
            [self._obs()],
            begins=is_over,
            closed=True,
            terminated=is_over,
            reward=reward,
            final_slot=[0] if is_over else [],
            final_obs=[final_obs],
        )

    def _restart(self):
        self.goal = self.rng.choice([-1.0, 1.0])
        size = self.spec.action_spec.continuous_size
        self.position = np.zeros(size + self.spec.action_spec.discrete_size)
        self.counted = 0
        self.total = 0.0

    def _obs(self):
        is_shown = self.counted <= COUNTED_WHILE_SHOWN
        return np.full((1, 1), self.goal if is_shown else 0.0, np.float32)


class Case(NamedTuple):
    """One of the learning tests."""

    trainer: str
    actions: ActionSpec
    step_size: float
    steps: int
    buffer: int = 128
    batch: int = 64
    sequence: int = 64


CASES = {
    "ppo, one number": Case("ppo", ActionSpec(1), 0.2, 6_000),
    "poca, one number": Case("poca", ActionSpec(1), 0.2, 6_000),
    # ML-Agents' buffer of 512 and minibatch of 64 count what pads each episode to a sequence of 64,
    # so they hold eight episodes and one. Episodes have 4 to 30 steps here.
    "ppo, a number and a choice": Case(
        "ppo", ActionSpec(1, (2,)), 0.5, 4_000, buffer=128, batch=16, sequence=16
    ),
}


def returns_of(case, seed, memory=None):
    """The returns of all episodes of a training."""
    trainer, action_spec, step_size, steps, buffer, batch, sequence = CASES[case]
    settings = {
        "trainer_type": trainer,
        "hyperparameters": {
            "batch_size": batch,
            "buffer_size": buffer,
            "learning_rate": 1e-3,
            "learning_rate_schedule": "constant",
        },
        "network_settings": {
            "hidden_units": 32,
            "num_layers": 1,
            "memory": {"memory_size": 16, "sequence_length": sequence} | (memory or {}),
        },
        "max_steps": steps,
    }
    config = BehaviorConfig.model_validate(settings)
    task = Recall(action_spec, step_size, seed)
    practice = Practice(make_learner(task.spec, config, seed))
    rows = task.begin()
    practice.add(rows)
    while practice.learner.steps < steps:
        rows = task.step(practice.act())
        practice.add(rows)
        practice.learn(rows)
    return task.returns
