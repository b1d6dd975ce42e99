"""What a checkpoint's critic makes of the moments that are kept: the value, and the advantage."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from touchline.errors import UsageError
from touchline.policies.files.run_layout import RunLayout, is_run, path_of
from touchline.policies.policy import Policy, SlotActor, Transparent
from touchline.specs import base_name
from touchline.training.config.yaml_tree import YamlTree
from touchline.viewer.history import Moment
from touchline.viewer.insight import memory_of, only_slot
from touchline.viewer.simulation import Place

MOST_MOMENTS = 200
"""The newest, which are judged."""


class Critic:
    """Remembers the values of one agent's moments, so that each is computed once."""

    def __init__(self) -> None:
        self._of: tuple[Place, Policy] | None = None
        self._values: dict[Moment, float] = {}
        self._discount: float | None = None

    def curve(
        self, moments: Sequence[Moment], place: Place, actor: SlotActor
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Times, and the value and the advantage at each; empty without a critic.

        Both are those of the first reward signal. The advantage is that of one decision: reward +
        discount * next value - value, without a next value where the episode ended. It is NaN where
        the episode was cut short, and without a run whose configuration has the discount.
        """
        if self._of != (place, actor.policy):
            self._of = place, actor.policy
            self._values = {}
            self._discount = discount_of(actor.name, place.behavior)
        recent = [m for m in moments if _concerns(m, place)][-MOST_MOMENTS:]
        # The others are forgotten: a moment that is a key would keep its world in memory.
        self._values = {m: self._value(m, place, actor.policy) for m in recent}
        points = [
            (now.time_s, self._values[now], self._advantage(now, then, place))
            for now, then in pairwise(recent)
            if not np.isnan(self._values[now])
        ]
        times, values, advantages = np.array(points, np.float64).reshape(-1, 3).T
        return times, values, advantages

    def _value(self, moment: Moment, place: Place, policy: Policy) -> float:
        """By the critic, which the policy may lack."""
        if moment in self._values:
            return self._values[moment]
        name, slot = place
        # Where an episode ended and the next one has not begun, there is nothing to judge.
        if not isinstance(policy, Transparent) or not moment.rows[name].deciding[slot]:
            return np.nan
        memory = memory_of(moment.actors[name].memory, [slot])
        value = policy.outlook(only_slot(moment.rows[name], slot), memory).value
        return np.nan if value is None else float(value[0, 0])

    def _advantage(self, now: Moment, then: Moment, place: Place) -> float:
        name, slot = place
        if self._discount is None:
            return np.nan
        after = only_slot(then.rows[name], slot)
        if after.truncated[0]:
            return np.nan
        # Returns were set back by then, so the last reward is in the row alone.
        if after.terminated[0]:
            earned, following = float(after.reward[0] + after.group_reward[0]), 0.0
        else:
            earned = float(then.returns[name][slot] - now.returns[name][slot])
            decisions = then.decisions - now.decisions
            following = self._discount**decisions * self._values[then]
        return earned + following - self._values[now]


def _concerns(moment: Moment, place: Place) -> bool:
    """Whether the agent decides there, or its last action got its result."""
    rows = moment.rows[place.behavior]
    return bool(rows.deciding[place.slot] or rows.closed[place.slot])


def discount_of(source: str, behavior: str) -> float | None:
    """The discount of the run that a checkpoint is from; None where that is not known."""
    path = path_of(source)
    # RUN/BEHAVIOR/FILE: the run is the source itself, or one or two folders above it.
    run = next((at for at in (path, *path.parents[:2]) if is_run(at)), None)
    if run is None:
        return None
    file = RunLayout(run).configuration
    try:
        block = YamlTree.read(file, str(file)).values["behaviors"][base_name(behavior)]
        signals = block.get("reward_signals") or {"": {}}
        # 0.99 is ML-Agents' default, which a file may leave out.
        return float(next(iter(signals.values())).get("gamma", 0.99))
    # The file may be of another program, or damaged.
    except (UsageError, OSError, KeyError, TypeError, ValueError, AttributeError):
        return None
