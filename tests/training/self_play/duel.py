"""A small game of two sides, and what a trainer does with it, without the trainer."""

import numpy as np
from tests.training.practice import make_learner

from touchline.envs.slots import Slots
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec, base_name
from touchline.steps import DecisionSteps, TerminalSteps
from touchline.training.config.settings import BehaviorConfig
from touchline.training.experience.rollout import Rollout
from touchline.training.self_play.lineup import SelfPlay

SPEC = BehaviorSpec(
    (ObservationSpec.vector(2, "time"),), ActionSpec.create_discrete((4,))
)
SYMMETRIC = ("Duel?team=1", "Duel?team=0")
UNLIKE = ("Striker?team=0", "Goalie?team=1")


class Duel:
    """The side with the larger sum of last choices wins; games last 2 to 4 steps.

    Each side has `members` agents in a group. Every step costs both sides 0.1. Games of the areas
    in `limited` always end by a time limit.
    """

    def __init__(self, names=SYMMETRIC, num_areas=6, members=2, limited=()):
        self._names, self._members = names, members
        self._limited = np.isin(np.arange(num_areas), limited)
        self._areas = np.arange(num_areas)
        self.behaviors = dict.fromkeys(names, SPEC)
        self.results = []
        """(area, score of the first team) of all games."""
        self.reset()

    def capacity(self, behavior):
        return len(self._areas) * self._members

    def reset(self, seed=None, parameters=None):
        self._time = np.zeros(len(self._areas), int)
        self._games = np.zeros(len(self._areas), int)
        self._choice = {}
        self._ended = np.zeros(len(self._areas), bool)
        self._won = np.zeros(len(self._areas))

    def set_parameters(self, parameters):
        pass

    def set_actions(self, behavior, actions):
        self._choice[behavior] = actions.discrete.reshape(len(self._areas), -1).sum(1)

    def step(self):
        self._time += 1
        self._ended = self._time >= 2 + (self._areas + self._games) % 3
        first, second = (
            sum(self._choice[name] for name in self._names if team(name) == side)
            for side in (0, 1)
        )
        self._won = np.where(self._limited, 0, np.sign(first - second))
        for area in np.flatnonzero(self._ended):
            self.results.append((int(area), (1 + self._won[area]) / 2))
        self._games += self._ended
        self._time[self._ended] = 0

    def steps(self, behavior):
        side = self._names.index(behavior)
        areas, members = len(self._areas), self._members
        ids = np.arange(areas * members).reshape(areas, members)
        ids = (ids + areas * members * side).ravel().astype(np.int32)
        group = np.repeat(1 + 2 * self._areas + side, members).astype(np.int32)
        time = np.repeat(self._time, members)
        obs = np.stack([time, np.ones_like(time)], axis=1).astype(np.float32)
        own = np.full(len(ids), -0.1, np.float32)
        sign = 1 if team(behavior) == 0 else -1
        paid = np.repeat(sign * self._won * self._ended, members).astype(np.float32)
        ended = np.repeat(self._ended, members)
        fresh = np.where(ended, 0, own).astype(np.float32)
        return (
            DecisionSteps([obs], fresh, ids, None, group, np.zeros_like(own)),
            TerminalSteps(
                [obs[ended]],
                own[ended],
                np.repeat(self._limited, members)[ended],
                ids[ended],
                group[ended],
                paid[ended],
            ),
        )

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


class EndlessDuel(Duel):
    """Its games never end."""

    def step(self):
        super().step()
        self._ended[:] = False


def open_duel(recipe):
    """As an entry of `WORLDS` names it."""
    if recipe.target == "Endless":
        return EndlessDuel(num_areas=recipe.num_areas or 6)
    names = {"Duel": SYMMETRIC, "Unlike": UNLIKE, "Solo": ("Duel?team=0",)}
    return Duel(names[recipe.target], recipe.num_areas or 6)


def team(name):
    return int(name[-1])


def config(buffer_size=256, **self_play):
    return BehaviorConfig.model_validate(
        {
            "trainer_type": "ppo",
            "hyperparameters": {"batch_size": 64, "buffer_size": buffer_size},
            "network_settings": {"hidden_units": 8, "num_layers": 1},
            "self_play": {"save_steps": 200, "swap_steps": 50, "window": 4} | self_play,
        }
    )


class Match:
    """Self-play on a world, step by step."""

    def __init__(self, world, seed=0, **self_play):
        self.slots = Slots(world)
        self.self_play = SelfPlay(seed)
        self.rows = self.slots.reset(seed)
        self.learners, self.rollouts = {}, {}
        for name, spec in self.slots.behaviors.items():
            base = base_name(name)
            if base not in self.learners:
                settings = config(**self_play)
                learner = make_learner(spec, settings, name=base)
                self.learners[base] = learner
                self.self_play.enroll(base, spec, settings.self_play, learner.policy, 0)
        self.self_play.begin(self.rows)

    def policy(self, name):
        learner = self.learners[base_name(name)]
        return self.self_play.seating.policy(name, learner.policy)

    def step(self):
        """One decision step of all areas; learners learn when they have enough."""
        actions = {}
        for name, rows in self.rows.items():
            if name not in self.rollouts:
                self.rollouts[name] = Rollout()
                self.rollouts[name].begin(rows)
            rollout = self.rollouts[name]
            generator = self.learners[base_name(name)].generator
            decision = self.policy(name).act(rollout.rows[-1], None, generator)
            rollout.chosen = decision.kept
            actions[name] = decision.actions
        self.rows = self.slots.step(actions)
        for name, rows in self.rows.items():
            self.rollouts[name].add(rows)
        self.self_play.follow(self.rows, self.slots.game_scores)
        self._learn()
        return actions

    def _learn(self):
        for base, learner in self.learners.items():
            own = {n: r for n, r in self.rollouts.items() if base_name(n) == base}
            if sum(r.num_results for r in own.values()) < learner.wanted:
                continue
            for name, rollout in own.items():
                learner.add(name, rollout.trajectories())
                rollout.begin(self.rows[name])
            learner.update()
            self.self_play.pools[base].learned(learner.steps, is_done=False)
