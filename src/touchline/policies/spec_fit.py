"""Whether a policy fits a behavior, and what to say where it does not."""

from touchline.errors import UsageError
from touchline.specs import BehaviorSpec, describe_spec


def is_fit(own: BehaviorSpec, other: BehaviorSpec) -> bool:
    """Whether both have the same observation shapes and action sizes; names do not matter."""
    # What only a critic sees does not matter either, because acting does without it.
    own_shapes = [o.shape for o in own.observed.observation_specs]
    other_shapes = [o.shape for o in other.observed.observation_specs]
    a, b = own.action_spec, other.action_spec
    same_actions = a.continuous_size == b.continuous_size
    same_actions &= a.discrete_branches == b.discrete_branches
    return own_shapes == other_shapes and same_actions


def require_fit(
    source: str, own: BehaviorSpec, behavior: str, spec: BehaviorSpec
) -> None:
    """Raise a UsageError that describes both specs unless a policy of `own` can act in `spec`."""
    if not is_fit(own, spec):
        raise UsageError(
            f"{source}: does not fit {behavior}: it was trained on {describe_spec(own)}, "
            f"the behavior has {describe_spec(spec)}"
        )
