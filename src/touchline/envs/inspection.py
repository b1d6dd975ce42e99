"""What a world's behaviors look like, for people and as the JSON of the recordings' header."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.envs.actions import allowed_actions
from touchline.envs.env import Env, EnvRecipe, make
from touchline.envs.recorded_env import RecordedEnv
from touchline.protocol.recording import describe_behaviors
from touchline.specs import ActionTuple, BehaviorSpec, describe_actions
from touchline.steps import DecisionSteps, TerminalSteps, flat_mask

# Numbers of an observation or an action that a line shows.
_MOST_VALUES = 6
# Numbers of a list that a line shows.
_MOST_SHOWN = 8


def inspect(env: str | EnvRecipe) -> dict[str, Any]:
    """What the behaviors of a world observe and do: full behavior name -> plain values for JSON.

    A recording is played to its end, since a world may show further behaviors at any time.
    """
    with make(env) as world:
        if isinstance(world, RecordedEnv):
            for _ in world.replay():
                pass
        world.reset()
        return describe_behaviors(world.behaviors)


def describe(env: str | EnvRecipe) -> str:
    """Show the observations and actions of each behavior, and the first steps; or the content of a
    demonstration.

    Parameters
    ----------
    env
        A scene's name (3DBall), a Unity player's path, `editor`, a recording (*.wire.gz), a
        demonstration (*.demo) or microrts:MAP.
    """
    with make(env) as world:
        world.reset()
        return "\n".join(description(world))


def description(env: Env) -> Iterator[str]:
    """Lines for people: specs, the first exchange, a random action and the rewards that follow.

    A recording is not stepped: it plays what was recorded, whatever the action.
    """
    first = {name: env.steps(name) for name in env.behaviors}
    actions = {}
    for name, (decisions, _) in first.items():
        spec = env.behaviors[name].action_spec
        # The same action in every report, so that two of them can be compared.
        rng = np.random.default_rng(0)
        actions[name] = allowed_actions(spec, decisions, rng)
    later = dict(first)
    is_replay = isinstance(env, RecordedEnv)
    if not is_replay:
        for name, chosen in actions.items():
            if len(chosen):
                env.set_actions(name, chosen)
        env.step()
        later = {name: env.steps(name) for name in env.behaviors}
    for name, (decisions, terminals) in first.items():
        behavior = env.behaviors[name]
        yield f"{name}: {describe_actions(behavior.action_spec)}"
        yield from _sensor_lines(behavior, decisions)
        yield from _mask_lines(decisions)
        yield from _action_lines(actions[name])
        ids = decisions.agent_id.tolist()
        groups = sorted(set(decisions.group_id.tolist()))
        who = f"ids {_shortened(ids)}, groups {_shortened(groups)}"
        yield f"  first exchange: {len(ids)} decide ({who}), {len(terminals)} ended"
        when = "in the first exchange" if is_replay else "after random actions"
        yield f"  rewards {when}: {_rewards(*later[name])}"


def _sensor_lines(spec: BehaviorSpec, decisions: DecisionSteps) -> Iterator[str]:
    for sensor, obs in zip(spec.observation_specs, decisions.obs, strict=True):
        # Unity may send properties that have no name here.
        known = sensor.dimension_property
        properties = [p.name.lower() if p.name else str(int(p)) for p in known]
        values = f"first values {_rounded(obs[:1])}"
        if not len(obs):
            values = "no agent observes it yet"
        shape = f"{list(sensor.shape)} {obs.dtype} ({'/'.join(properties)})"
        yield f"  {sensor.name or 'unnamed'} {shape}: {values}"


def _mask_lines(decisions: DecisionSteps) -> Iterator[str]:
    masks = decisions.action_mask
    if masks is None:
        yield "  action masks: none, everything is allowed"
        return
    shapes = [f"{list(mask.shape)}" for mask in masks[:_MOST_SHOWN]]
    more = ", ..." if len(masks) > _MOST_SHOWN else ""
    flat = flat_mask(masks)
    yield (
        f"  action masks {', '.join(shapes)}{more} {flat.dtype}, True = forbidden: "
        f"{np.count_nonzero(flat):,} of {flat.size:,} are"
    )


def _action_lines(actions: ActionTuple) -> Iterator[str]:
    if not len(actions):
        return
    parts = [
        f"{kind} {_rounded(values[:1])} {values.dtype}"
        for kind, values in (
            ("continuous", actions.continuous),
            ("discrete", actions.discrete),
        )
        if values.shape[1]
    ]
    yield f"  a random action: {', '.join(parts) or 'empty'}"


def _rewards(decisions: DecisionSteps, terminals: TerminalSteps) -> str:
    parts = []
    for kind in ("reward", "group_reward"):
        values = np.concatenate([getattr(s, kind) for s in (decisions, terminals)])
        name = kind.replace("reward", "").replace("_", "") or "own"
        shown = f"{values.min():.4g} to {values.max():.4g}" if len(values) else "none"
        parts.append(f"{name} {shown}")
    dtype = decisions.reward.dtype
    return f"{', '.join(parts)} ({dtype}), {len(terminals)} ended"


def _rounded(values: NDArray[Any]) -> str:
    first = values.ravel()[:_MOST_VALUES].tolist()
    texts = [f"{round(value, 3):g}" for value in first]
    more = ", ..." if values.size > _MOST_VALUES else ""
    return f"[{', '.join(texts)}{more}]"


def _shortened(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MOST_SHOWN]))
    return f"{shown}, ..." if len(numbers) > _MOST_SHOWN else shown or "none"
