"""Actions against masks: refuses those that a world cannot execute, and draws some that it can.

Messages name world, behavior, agent and branch.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.errors import ActionError as ActionError
from touchline.errors import NonFiniteError, shortened
from touchline.specs import ActionSpec, ActionTuple
from touchline.steps import DecisionSteps, flat_mask


def as_actions(
    behavior: str, spec: ActionSpec, actions: ActionTuple | NDArray[Any]
) -> ActionTuple:
    """An ActionTuple, also of a bare array [agents, actions] where there is one kind of actions.

    Raises an ActionError that says what to pass.
    """
    if isinstance(actions, ActionTuple):
        return actions
    is_array = isinstance(actions, np.ndarray)
    if is_array and actions.ndim == 2:
        # NumPy's kinds: f floats, i and u integers. Booleans and objects are mistakes in every
        # case, and floats are not choices.
        if spec.is_continuous() and actions.dtype.kind in "fiu":
            return ActionTuple(continuous=actions)
        if spec.is_discrete() and actions.dtype.kind in "iu":
            return ActionTuple(discrete=actions)
    parts = []
    if spec.continuous_size:
        parts.append(f"continuous=floats [agents, {spec.continuous_size}]")
    if spec.discrete_size:
        parts.append(f"discrete=integers [agents, {spec.discrete_size}]")
    given = type(actions).__name__
    if is_array:
        given = f"an array of {actions.dtype} of shape {actions.shape}"
    raise ActionError(
        f"{behavior}: expected ActionTuple({', '.join(parts)}), got {given}"
    )


def check_actions(
    world: str,
    behavior: str,
    spec: ActionSpec,
    actions: ActionTuple,
    decisions: DecisionSteps,
    exchange: int,
) -> None:
    """Raise unless `actions` fit the agents of `decisions`: shapes, finite numbers, branch ranges,
    masks. `exchange` is its number, for messages.
    """
    continuous, discrete = actions.continuous, actions.discrete
    continuous_shape = (len(decisions), spec.continuous_size)
    discrete_shape = (len(decisions), spec.discrete_size)
    if (continuous.shape, discrete.shape) != (continuous_shape, discrete_shape):
        raise ActionError(
            f"{world}: {behavior}: expected continuous {continuous_shape} and discrete "
            f"{discrete_shape} actions [agents, actions], got {continuous.shape} and "
            f"{discrete.shape}"
        )
    # Unity would pass a NaN on to its physics, where it spreads to every body that it touches.
    if spec.continuous_size and not np.isfinite(continuous).all():
        is_bad = ~np.isfinite(continuous).all(axis=1)
        row = int(np.flatnonzero(is_bad)[0])
        sent = shortened(str(continuous[row].tolist()))
        raise NonFiniteError(
            f"{world}: {behavior}: agent {decisions.agent_id[row]} got the action {sent} "
            f"at exchange {exchange}; continuous actions must be finite numbers"
        )
    if spec.discrete_size:
        check_ranges(world, behavior, spec, actions, decisions)
        _check_masks(world, behavior, actions, decisions)


def check_ranges(
    world: str,
    behavior: str,
    spec: ActionSpec,
    actions: ActionTuple,
    decisions: DecisionSteps,
) -> None:
    """Raise unless every discrete choice is one that its branch has, masked or not."""
    # As unsigned numbers, negative ones are too large for every branch: one comparison for both.
    inside = actions.discrete.view(np.uint32) < spec.branch_sizes
    # On a few booleans, counting takes a third of the time of `all`.
    if np.count_nonzero(inside) < inside.size:
        row, branch = np.argwhere(~inside)[0]
        raise ActionError(
            f"{world}: {behavior}: agent {decisions.agent_id[row]}, branch {branch}: expected 0 to "
            f"{spec.discrete_branches[branch] - 1}, got {actions.discrete[row, branch]}"
        )


def _check_masks(
    world: str, behavior: str, actions: ActionTuple, decisions: DecisionSteps
) -> None:
    for branch, forbidden in enumerate(decisions.action_mask or ()):
        chosen = actions.discrete[:, branch]
        is_masked = forbidden[np.arange(len(chosen)), chosen]
        if is_masked.any():
            row = int(np.flatnonzero(is_masked)[0])
            allowed = np.flatnonzero(~forbidden[row]).tolist()
            raise ActionError(
                f"{world}: {behavior}: agent {decisions.agent_id[row]}, branch {branch}: choice "
                f"{chosen[row]} is masked; allowed: {shortened(str(allowed))}"
            )


def random_allowed(
    spec: ActionSpec,
    allowed: NDArray[np.bool_] | None,
    second_mask: NDArray[np.bool_] | None,
    num_agents: int,
    rng: np.random.Generator,
) -> ActionTuple:
    """Random actions of N agents, uniform over what `allowed` [N, choices] allows (True).

    With a second-stage mask (also True = allowed) the later branches are drawn after the first.
    """
    actions = spec.random_action(num_agents, rng)
    if allowed is None:
        return actions
    discrete = choose_allowed(spec, allowed, second_mask, rng)
    return ActionTuple(actions.continuous, discrete)


def allowed_actions(
    spec: ActionSpec,
    decisions: DecisionSteps,
    rng: np.random.Generator | None = None,
    extent: float = 1.0,
) -> ActionTuple:
    """Random actions for these agents, uniform over what their masks allow.

    Continuous actions are in [-extent, extent). Without `rng`, fresh entropy is used.
    """
    rng = rng or np.random.default_rng()
    masks, second = decisions.action_mask, decisions.second_mask
    # Worlds mask what is forbidden; from slots onward, True = allowed.
    actions = random_allowed(
        spec,
        None if masks is None else ~flat_mask(masks),
        None if second is None else ~second,
        len(decisions),
        rng,
    )
    return ActionTuple(actions.continuous * np.float32(extent), actions.discrete)


def choose_allowed(
    spec: ActionSpec,
    allowed: NDArray[np.bool_],
    second_mask: NDArray[np.bool_] | None,
    rng: np.random.Generator | None = None,
) -> NDArray[np.int32]:
    """One allowed choice per branch, [N, branches]: a random one, or the first without `rng`.

    Masks as in `random_allowed`.
    """
    branches = np.asarray(spec.discrete_branches)
    if second_mask is None:
        return _choose_apart(branches, allowed, rng)
    # What the later branches allow is known only after the first choice.
    first = _choose_apart(branches[:1], allowed[:, : branches[0]], rng)
    allowed_after = second_mask[np.arange(len(allowed)), first[:, 0]]
    later = _choose_apart(branches[1:], allowed_after, rng)
    return np.concatenate([first, later], axis=1)


def _choose_apart(
    branches: NDArray[np.int_],
    allowed: NDArray[np.bool_],
    rng: np.random.Generator | None,
) -> NDArray[np.int32]:
    """One allowed choice per branch, where no branch depends on another."""
    score: NDArray[np.bool_] | NDArray[np.float32] = allowed
    if rng is not None:
        # The largest of independent uniform scores is a uniform choice; -1 is below all of
        # them.
        draws = rng.random(allowed.shape, np.float32)
        score = np.where(allowed, draws, -1.0)
    # The flat mask holds the branches' choices one after the other.
    first_column = np.cumsum(branches) - branches
    chosen = np.empty((len(allowed), len(branches)), np.int32)
    # Branches of one width together: larger maps of MicroRTS have over a thousand branches, of
    # four widths.
    for width in np.unique(branches):
        of_width = np.flatnonzero(branches == width)
        columns = first_column[of_width, None] + np.arange(width)
        chosen[:, of_width] = score[:, columns].argmax(axis=2)
    return chosen
