"""SAC with GAIL and cloning, at the size and the bar of ML-Agents' own learning tests.

An agent on a line is shown the end that it is to go to. There it gets 1, at the other end -1, and
0.01 less for each action. The trainer is paid by GAIL alone.
"""

import json

import numpy as np
import pytest

import touchline
from touchline.envs.env import WORLDS, World
from touchline.envs.slots import Slots
from touchline.specs import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
)
from touchline.steps import DecisionSteps, TerminalSteps
from touchline.training.recording import record_episodes, write_demos

NAME = "Line?team=0"
MOVED = DimensionProperty.TRANSLATIONAL_EQUIVARIANCE
PICTURE = ObservationSpec(
    (3, 30, 30), (DimensionProperty.NONE, MOVED, MOVED), name="eye"
)
GOAL = ObservationSpec.vector(1, "goal")
SPECS = {
    "continuous": BehaviorSpec((GOAL,), ActionSpec(1)),
    "branch": BehaviorSpec((GOAL,), ActionSpec(0, (2,))),
    "picture": BehaviorSpec((PICTURE,), ActionSpec(0, (2,))),
}
STEP = 0.2
opened = []
"""The worlds of this process, the latest last."""


class Line:
    """One agent; the picture is white for one end and black for the other."""

    def __init__(self, kind):
        self.behaviors = {NAME: SPECS[kind]}
        self.returns = []
        self._random = np.random.default_rng(0)
        self.reset()

    def capacity(self, behavior):
        return 1

    def reset(self, seed=None, parameters=None):
        self.ended, self.reward, self.shown = False, 0.0, None
        self._begin()

    def _begin(self):
        self.goal, self.place, self.total = self._random.choice([-1, 1]), 0.0, 0.0

    def set_parameters(self, parameters):
        pass

    def set_actions(self, behavior, actions):
        moves = (
            actions.continuous if actions.continuous.size else 2 * actions.discrete - 1
        )
        self.move = float(np.clip(moves[0, 0], -1, 1))

    def step(self):
        self.place = float(np.clip(self.place + STEP * self.move, -1, 1))
        self.ended = abs(self.place) > 1 - 1e-6
        self.reward = self.place * self.goal if self.ended else -0.01
        self.total, self.shown = self.total + self.reward, self.goal
        if self.ended:
            self.returns.append(self.total)
            self._begin()

    def _obs(self, goal):
        shape = self.behaviors[NAME].observation_specs[0].shape
        value = goal if len(shape) == 1 else (goal + 1) / 2
        return np.full((1, *shape), value, np.float32)

    def steps(self, behavior):
        agent = np.zeros(1, np.int32)
        none, reward = np.zeros(1, np.float32), np.full(1, self.reward, np.float32)
        fresh = none if self.ended else reward
        decisions = DecisionSteps(
            [self._obs(self.goal)], fresh, agent, None, agent, none
        )
        if not self.ended:
            reward, none, agent = reward[:0], none[:0], agent[:0]
        last = self._obs(self.shown or 0)[: len(agent)]
        limit = np.zeros(len(agent), bool)
        return decisions, TerminalSteps([last], reward, limit, agent, agent, none)

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def open_line(recipe):
    opened.append(Line(recipe.target))
    return opened[-1]


class Expert:
    """Goes where it should."""

    def __init__(self, world):
        self.world = world

    def act(self, rows):
        goal = np.full((1, 1), self.world.goal)
        if self.world.behaviors[NAME].action_spec.continuous_size:
            return ActionTuple(goal)
        return ActionTuple(None, (goal + 1) // 2)


ALL = [(kind, seed) for kind in SPECS for seed in range(5)]
QUICK = ("branch", 0)


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("kind", "seed"),
    [QUICK, *(pytest.param(*o, marks=pytest.mark.slow) for o in ALL if o != QUICK)],
)
def test_the_last_five_episodes_of_500_steps_return_more_than_nine_tenths(
    tmp_path, monkeypatch, kind, seed
):
    monkeypatch.setitem(WORLDS, "line", World(f"{__name__}:open_line", prefix="line:"))
    world = Line(kind)
    files = record_episodes(Slots(world), {NAME: Expert(world)}, 20, 0)
    (demo,) = write_demos(files, tmp_path / "expert.demo")
    is_picture = kind == "picture"
    behavior = {
        "trainer_type": "sac",
        "hyperparameters": {
            "learning_rate": 3e-4 if is_picture else 5e-3,
            "batch_size": 16 if is_picture else 8,
            "buffer_size": 5000,
            "buffer_init_steps": 100,
            "tau": 0.01,
            "init_entcoef": 0.01,
        },
        "network_settings": {"hidden_units": 16, "num_layers": 1},
        "max_steps": 500,
        "reward_signals": {
            "gail": {"demo_path": str(demo), "network_settings": {"hidden_units": 32}}
        },
        "behavioral_cloning": {"demo_path": str(demo), "steps": 1000},
    }
    config = tmp_path / "line.yaml"
    config.write_text(json.dumps({"behaviors": {"Line": behavior}}))
    settings = {"results_dir": str(tmp_path), "run_id": "x", "seed": seed}
    touchline.train(
        config,
        env=f"line:{kind}",
        settings=settings | {"evaluation_episodes": 0},
        log=lambda line: None,
    )
    assert np.mean(opened[-1].returns[-5:]) > 0.9
