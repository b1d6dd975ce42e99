"""The actions of agents that people play in place of a policy."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from touchline.specs import ActionSpec, ActionTuple
from touchline.viewer.keys import Keys


def action_of(keys: Keys, held: Iterable[str], spec: ActionSpec) -> ActionTuple:
    """The action [1, ...] of these held keys; keys that oppose each other on an axis cancel."""
    action = spec.empty_action(1)
    for code in held:
        press = keys.get(code)
        if press is None:
            continue
        if press.is_continuous:
            action.continuous[0, press.number] += np.float32(press.value)
        else:
            action.discrete[0, press.number] = int(press.value)
    # A letter and its arrow, held together, would make 2.
    np.clip(action.continuous, -1.0, 1.0, out=action.continuous)
    return action


def allowed_action(
    action: ActionTuple, allowed: NDArray[np.bool_] | None, spec: ActionSpec
) -> ActionTuple:
    """The action [1, ...] with the first allowed choice where its own is forbidden now.

    `allowed` [choices of all branches] is the agent's mask, True = allowed.
    """
    if allowed is None:
        return action
    discrete = action.discrete.copy()
    first = 0
    for branch, size in enumerate(spec.discrete_branches):
        choices = allowed[first : first + size]
        if not choices[discrete[0, branch]]:
            discrete[0, branch] = int(np.argmax(choices))
        first += size
    return ActionTuple(action.continuous, discrete)


def with_own(actions: ActionTuple, slot: int, own: ActionTuple) -> ActionTuple:
    """The actions [N, ...] of a behavior's slots, with that of one slot replaced."""
    continuous, discrete = actions.continuous.copy(), actions.discrete.copy()
    continuous[slot] = own.continuous[0]
    discrete[slot] = own.discrete[0]
    return ActionTuple(continuous, discrete)
