"""What policy and critic say of trajectories, before anything is learned from them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from numpy.typing import NDArray
from torch import Tensor

from touchline.policies.memory import MemoryCell
from touchline.policies.nets.group_critic import Groups
from touchline.policies.network import Network
from touchline.training.algorithms.poca.lines import TimeLines
from touchline.training.algorithms.poca.tables import GroupValuation, Tables
from touchline.training.experience.trajectories import Trajectories


@dataclass(frozen=True)
class Outputs:
    """Of K moments and the R actions in them that are learned from."""

    value: Float32[np.ndarray, "K S"]
    baseline: Float32[np.ndarray, "R S"]
    """With MAPPO, the value of each action's moment."""
    next_value: Float32[np.ndarray, "T L S"]
    log_prob: Float[Tensor, " R"]
    weight: Float[Tensor, " R"]
    """π / π_acting of each action; 1 where the present policy acted."""
    moment_memory: Float[Tensor, "K M"] | None
    member_memory: Float[Tensor, "R M"] | None
    """What the critic remembered before each, where it has a memory."""


@dataclass(frozen=True)
class _Followers:
    """What remains after the last moments of lines, and after episodes cut short."""

    groups: Groups
    step: NDArray[Any]
    line: NDArray[Any]
    """The moments before."""


def outputs_of(
    valuation: GroupValuation,
    trajectories: Trajectories,
    lines: TimeLines,
    tables: Tables,
    groups: Groups,
) -> Outputs:
    """`groups` are those of `tables`."""
    critic = valuation.critic
    if not valuation.counterfactual:
        groups = groups.without_baselines()
    followers = _followers(valuation, trajectories, lines)
    of_moments, of_members = critic.features(groups)
    of_followers, _ = critic.features(followers.groups)
    moment_memory = member_memory = None
    if critic.memory is not None:
        of_moments, moment_memory, after = _walk(
            critic.memory,
            of_moments,
            tables.line,
            tables.step,
            lines.begins[tables.step, tables.line],
        )
        before = after[_latest_moments(lines, tables, followers)]
        of_followers, _ = critic.memory.step(of_followers, before)
        of_members, member_memory = _members_walk(
            critic.memory, of_members, trajectories, tables
        )
    at_moment = groups.moment[groups.credited]
    num_members = torch.bincount(groups.moment, minlength=groups.num_moments)
    value = _array(critic.values(of_moments, num_members))
    baseline = _array(critic.values(of_members, num_members[at_moment]))
    if not valuation.counterfactual:
        baseline = value[tables.moment[tables.credited]]
    next_value = np.zeros((*lines.decides.shape, value.shape[1]), np.float32)
    # After the last moment of a line, and after ends, this is another line's or episode's.
    next_value[tables.step[:-1], tables.line[:-1]] = value[1:]
    # A dead member takes no part in what follows, and the critic is given how many are left.
    remaining = followers.groups
    num_left = torch.bincount(remaining.moment, minlength=remaining.num_moments)
    value_left = critic.values(of_followers, num_left)
    next_value[followers.step, followers.line] = _array(value_left)
    log_prob = _log_prob(valuation, valuation.network, trajectories, tables)
    weight = torch.ones_like(log_prob)
    if valuation.acting is not valuation.network:
        acted = _log_prob(valuation, valuation.acting, trajectories, tables)
        weight = torch.exp(log_prob - acted)
    return Outputs(
        value,
        baseline,
        next_value,
        log_prob,
        weight,
        moment_memory,
        member_memory,
    )


def _followers(
    valuation: GroupValuation, trajectories: Trajectories, lines: TimeLines
) -> _Followers:
    steps = np.arange(len(lines.decides))[:, None]
    last = np.where(lines.decides, steps, -1).max(axis=0)
    is_last = lines.known & (steps == last) & ~lines.ends
    interrupted = lines.interrupted
    # Of an end, the last observations count where a signal's value continues past it.
    go_on = any(signal.ignores_ends for signal in valuation.signals)
    ends = lines.ends if go_on else interrupted
    step, line = np.nonzero(ends | is_last)
    is_cut = interrupted[step, line, None]
    is_end = ends[step, line, None]
    final = np.where(is_cut, lines.final[step, line], lines.last[step, line])  # [E, G]
    who = np.where(is_end, final >= 0, lines.stays[step, line])
    moment, seat = np.nonzero(who)
    slot = lines.slot[line[moment], seat]
    final = final[moment, seat]
    has_final = final >= 0
    obs = []
    for part, last_part in zip(trajectories.obs, trajectories.final_obs, strict=True):
        rows = part[-1][slot]  # a copy, so it may be written to
        rows[has_final] = last_part[final[has_final]]
        obs.append(valuation.tensor(rows))
    actions = valuation.network.spec.action_spec
    size = actions.continuous_size + sum(actions.discrete_branches)
    # Followers have not acted yet and need no baselines, so nothing reads these zeros.
    groups = Groups(
        obs=tuple(obs),
        actions=torch.zeros(len(moment), size, device=valuation.device),
        moment=valuation.tensor(moment),
        num_moments=len(step),
        credited=valuation.tensor(moment[:0]),
    )
    return _Followers(groups, step, line)


def _walk(
    cell: MemoryCell,
    x: Float[Tensor, "B I"],
    chain: Int[np.ndarray, " B"],
    step: Int[np.ndarray, " B"],
    begins: Bool[np.ndarray, " B"],
) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B M"], Float[Tensor, "B M"]]:
    """A memory along chains of rows, from nothing: results, memories before and after each row.

    The memory is empty at the first row of a chain, and where an episode begins.
    """
    memory = x.new_zeros(int(chain.max(initial=-1)) + 1, cell.size)
    before = x.new_zeros(len(x), cell.size)
    after = before.clone()
    results = x.new_zeros(len(x), cell.width)
    order = np.argsort(step, kind="stable")
    step_change = np.diff(step[order])
    bounds = np.flatnonzero(step_change) + 1
    # One batch per step, in order of time: chains are independent of each other, steps are not.
    for rows in np.split(order, bounds):
        kept = memory[chain[rows]]
        kept[begins[rows]] = 0.0
        results[rows], remembered = cell.step(x[rows], kept)
        before[rows] = kept
        after[rows] = remembered
        memory[chain[rows]] = remembered
    return results, before, after


def _members_walk(
    cell: MemoryCell,
    x: Float[Tensor, "baselines I"],
    trajectories: Trajectories,
    tables: Tables,
) -> tuple[Float[Tensor, "baselines H"], Float[Tensor, "R M"]]:
    """`_walk` along slots; there are as many baselines as actions, or none."""
    step, slot = tables.acted
    if not len(x):  # MAPPO has no baselines
        nothing = x.new_zeros(len(step), cell.size)
        return x.new_zeros(0, cell.width), nothing
    results, before, _ = _walk(cell, x, slot, step, trajectories.begins[step, slot])
    return results, before


def _latest_moments(
    lines: TimeLines, tables: Tables, followers: _Followers
) -> NDArray[Any]:
    """The moment before each of the followers."""
    number = np.zeros(lines.decides.shape, np.int64)
    number[tables.step, tables.line] = np.arange(len(tables.step))
    return np.asarray(number[followers.step, followers.line])


def _log_prob(
    valuation: GroupValuation,
    policy: Network,
    trajectories: Trajectories,
    tables: Tables,
) -> Float[Tensor, " R"]:
    """Of the actions that are learned from."""
    acted = tables.acted
    raw = tuple(valuation.tensor(part[acted]) for part in trajectories.obs)
    obs = policy.normalized(raw)
    mask = trajectories.action_mask
    allowed = None if mask is None else valuation.tensor(mask[acted])
    if trajectories.memory is None:
        distribution = policy.distribution(obs, allowed)
    else:
        memory = valuation.tensor(trajectories.memory[acted])
        distribution, _, _ = policy.step(obs, allowed, memory)
    continuous = valuation.tensor(trajectories.continuous[acted])
    discrete = valuation.tensor(trajectories.discrete[acted])
    return distribution.log_prob(continuous, discrete)


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return np.asarray(tensor.numpy(force=True))
