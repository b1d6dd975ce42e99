"""Refuses actions that a world cannot mean, naming world, agent and branch."""

from __future__ import annotations

import numpy as np

from touchline.errors import NonFiniteError, UsageError
from touchline.specs import ActionSpec, ActionTuple
from touchline.steps import DecisionSteps


class ActionError(UsageError):
    """An action of the wrong shape, out of its range, or forbidden by a mask."""


def check_actions(
    world: str, behavior: str, spec: ActionSpec, actions: ActionTuple, decisions: DecisionSteps, exchange: int
) -> None:
    """Raise unless `actions` fit the agents of `decisions`: shapes, finite numbers, branch ranges, masks."""
    expected = (len(decisions), spec.continuous_size), (len(decisions), spec.discrete_size)
    if (actions.continuous.shape, actions.discrete.shape) != expected:
        raise ActionError(
            f"{world}: {behavior}: expected continuous {expected[0]} and discrete {expected[1]} actions "
            f"[agents, actions], got {actions.continuous.shape} and {actions.discrete.shape}"
        )
    if not np.isfinite(actions.continuous).all():
        row = int(np.flatnonzero(~np.isfinite(actions.continuous).all(axis=1))[0])
        raise NonFiniteError(
            f"{world}: {behavior}: agent {decisions.agent_id[row]} got the action "
            f"{actions.continuous[row].tolist()} at exchange {exchange}; continuous actions must be finite numbers"
        )
    if spec.discrete_size:
        _check_branches(world, behavior, spec, actions, decisions)


def _check_branches(
    world: str, behavior: str, spec: ActionSpec, actions: ActionTuple, decisions: DecisionSteps
) -> None:
    outside = (actions.discrete < 0) | (actions.discrete >= np.asarray(spec.discrete_branches))
    if outside.any():
        row, branch = np.argwhere(outside)[0]
        raise ActionError(
            f"{world}: {behavior}: agent {decisions.agent_id[row]}, branch {branch}: expected 0 to "
            f"{spec.discrete_branches[branch] - 1}, got {actions.discrete[row, branch]}"
        )
    for branch, forbidden in enumerate(decisions.action_mask or ()):
        chosen = actions.discrete[:, branch]
        bad = forbidden[np.arange(len(chosen)), chosen]
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ActionError(
                f"{world}: {behavior}: agent {decisions.agent_id[row]}, branch {branch}: "
                f"choice {chosen[row]} is masked; allowed: {np.flatnonzero(~forbidden[row]).tolist()}"
            )
