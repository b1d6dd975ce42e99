"""From trajectories to a batch of moments: values, baselines, λ-returns along the groups' lines.

Each reward signal has a value, a baseline, a discount and a return of its own; the policy learns
from the mean of the advantages.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from numpy.typing import NDArray

from touchline.policies.nets.group_critic import GroupSequences
from touchline.policies.nets.memory import Sequences
from touchline.training.algorithms.poca.batch import Counts, Credited, GroupBatch
from touchline.training.algorithms.poca.lines import TimeLines
from touchline.training.algorithms.poca.outputs import Outputs, outputs_of
from touchline.training.algorithms.poca.tables import (
    GroupValuation,
    Tables,
    groups_of,
    tables_of,
)
from touchline.training.algorithms.returns import generalized_advantage
from touchline.training.experience.trajectories import Trajectories
from touchline.training.rewards.signal import PaysGroups, RewardSignal


def with_group_values(
    valuation: GroupValuation, trajectories: Trajectories, lines: TimeLines
) -> GroupBatch:
    """The actions of trajectories, moment by moment on `lines`, with all that learning needs."""
    tables = tables_of(trajectories, lines, valuation.sequence_length)
    groups = groups_of(valuation, trajectories, tables)
    outputs = outputs_of(valuation, trajectories, lines, tables, groups)

    at_moment = tables.moment[tables.credited]
    returns = _returns(valuation, trajectories, lines, tables, outputs)  # [K, G, S]
    # Where all members share one return, every seat reads that one column.
    seat = np.minimum(tables.seat[tables.credited], returns.shape[1] - 1)
    target = returns[at_moment, seat]  # [R, S]
    weight = np.bincount(at_moment, minlength=len(tables.step)).astype(np.float32)
    value_target = np.zeros_like(outputs.value)
    np.add.at(value_target, at_moment, target)
    value_target /= np.maximum(weight, 1.0)[:, None]

    mask = trajectories.action_mask
    tensor = valuation.tensor
    credited = Credited(
        allowed=None if mask is None else tensor(mask[tables.acted]),
        continuous=tensor(trajectories.continuous[tables.acted]),
        discrete=tensor(trajectories.discrete[tables.acted]),
        log_prob=outputs.log_prob,
        baseline=tensor(outputs.baseline),
        # As PPO's (`algorithms/valuation.py`): a weight corrects for who acted.
        advantage=tensor((target - outputs.baseline).mean(axis=1)) * outputs.weight,
        target=tensor(target),
    )
    return GroupBatch(
        groups=groups,
        credited=credited,
        value=tensor(outputs.value),
        value_target=tensor(value_target),
        weight=tensor(weight),
        **_units(valuation, trajectories, tables, outputs),
    )


def _returns(
    valuation: GroupValuation,
    trajectories: Trajectories,
    lines: TimeLines,
    tables: Tables,
    outputs: Outputs,
) -> Float32[np.ndarray, "K G S"]:
    """λ-returns along each line, past deaths and births: V plus its generalized advantage."""
    # G_t = r_t + γ [(1 − λ) V_{t+1} + λ G_{t+1}]. G is 1 where all members have the same rewards.
    step, line = tables.step, tables.line
    value = np.zeros_like(outputs.next_value)
    value[step, line] = outputs.value
    # No look-ahead goes past an end, whether or not the value of a signal does.
    truncated = lines.ends | lines.horizon(valuation.time_horizon)
    returns = []
    for column, signal in enumerate(valuation.signals):
        reward = _rewards(valuation, trajectories, lines, signal)  # [T, L, G]

        def of_members(array: NDArray[Any], shape: Any = reward.shape) -> NDArray[Any]:
            """[T, L] of lines as [T, L · G] of their members."""
            return np.broadcast_to(array[..., None], shape).reshape(len(array), -1)

        terminated = lines.ends & ~lines.interrupted & ~np.bool_(signal.ignores_ends)
        before = of_members(value[..., column])
        advantage = generalized_advantage(
            reward=(reward * np.float32(signal.strength)).reshape(len(reward), -1),
            value=before,
            next_value=of_members(outputs.next_value[..., column]),
            terminated=of_members(terminated),
            truncated=of_members(truncated),
            valid=of_members(lines.known),
            discount=signal.discount,
            gae_lambda=valuation.lambd,
        )
        returns.append((advantage + before).reshape(reward.shape)[step, line])
    widest = max(found.shape[1] for found in returns)
    shape = (len(step), widest)
    return np.stack([np.broadcast_to(found, shape) for found in returns], axis=2)


def _rewards(
    valuation: GroupValuation,
    trajectories: Trajectories,
    lines: TimeLines,
    signal: RewardSignal,
) -> Float32[np.ndarray, "T L G"]:
    """What each member is paid at each moment, or, with G = 1, what all of them are."""
    # MA-POCA's members share their own rewards as well as the group's; MAPPO's and those of other
    # signals are their own.
    if not isinstance(signal, PaysGroups):
        return lines.placed(signal.reward(trajectories))
    paid, paid_to_groups = signal.parts(trajectories)
    own = lines.placed(paid)
    group = lines.once(paid_to_groups)[..., None]
    if valuation.counterfactual:
        return np.asarray(own.sum(axis=2, keepdims=True) + group)
    return np.asarray(own + group)


def _units(
    valuation: GroupValuation,
    trajectories: Trajectories,
    tables: Tables,
    outputs: Outputs,
) -> dict[str, Any]:
    """How the rows fall into units, and, with memory, into sequences."""
    num_units = int(tables.unit.max(initial=-1)) + 1
    credited_unit = tables.unit[tables.moment[tables.credited]]

    def count(unit: NDArray[Any]) -> torch.Tensor:
        return valuation.tensor(np.bincount(unit, minlength=num_units))

    counts: dict[str, Any] = {
        "moments": count(tables.unit),
        "members": count(tables.unit[tables.moment]),
        "credited": count(credited_unit),
    }
    if tables.sequence is None:
        return {"counts": Counts(**counts)}
    assert trajectories.memory is not None
    assert outputs.moment_memory is not None
    assert outputs.member_memory is not None
    length = np.bincount(tables.sequence)
    first = np.cumsum(length) - length
    step, slot = tables.acted
    actor_memory = trajectories.memory[step[first], slot[first]]
    member_length = valuation.tensor(length)
    moments = counts["moments"]
    first_moments = torch.cumsum(moments, dim=0) - moments
    counts["moment_sequences"] = torch.ones_like(moments)
    counts["member_sequences"] = count(credited_unit[first])
    of_members = outputs.member_memory[valuation.tensor(first)]
    return {
        "counts": Counts(**counts),
        "actor_sequences": Sequences(member_length, valuation.tensor(actor_memory)),
        "critic_sequences": GroupSequences(
            Sequences(moments, outputs.moment_memory[first_moments][:, None]),
            Sequences(member_length, of_members[:, None]),
        ),
    }
