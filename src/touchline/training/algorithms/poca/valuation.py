"""From trajectories to a batch of moments: values, baselines, λ-returns along the groups' lines.

Each reward signal has a value, a baseline, a discount and a return of its own; the policy learns
from the mean of the advantages.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from touchline.policies.memory import MemoryCell
from touchline.policies.nets.group_critic import GroupCritic, Groups, GroupSequences
from touchline.policies.nets.memory import Sequences, cut_into_sequences
from touchline.policies.network import Network
from touchline.training.algorithms.poca.batch import Counts, Credited, GroupBatch
from touchline.training.algorithms.poca.lines import TimeLines
from touchline.training.algorithms.returns import generalized_advantage
from touchline.training.algorithms.valuation import Valuation
from touchline.training.experience.trajectories import Trajectories, horizon_cuts
from touchline.training.rewards.signal import PaysGroups, RewardSignal


@dataclass(frozen=True)
class GroupValuation(Valuation):
    """The horizon and sequences count moments of a group's episode."""

    critic: GroupCritic
    counterfactual: bool
    """MA-POCA: advantages over baselines, own rewards shared. Otherwise MAPPO."""


@dataclass(frozen=True)
class _Outputs:
    """What the critic says of K moments, and of the R actions in them that are learned from."""

    value: Float32[np.ndarray, "K S"]
    baseline: Float32[np.ndarray, "R S"]
    """With MAPPO, the value of each action's moment."""
    next_value: Float32[np.ndarray, "T L S"]
    moment_memory: Float[Tensor, "K M"] | None
    member_memory: Float[Tensor, "R M"] | None
    """What the critic remembered before each, where it has a memory."""


class Moments:
    """The moments of trajectories, line by line, each line in order of time.

    Three tables of rows refer to each other: K moments, their M members, and the R members whose
    action is learned from.
    """

    def __init__(
        self, valuation: GroupValuation, trajectories: Trajectories, lines: TimeLines
    ) -> None:
        self._valuation = valuation
        self._trajectories = trajectories
        self._lines = lines
        longest = valuation.sequence_length
        # Step and line of each moment [K], and its unit (see `Counts`): itself or, with memory, a
        # sequence of moments.
        if longest is None:
            self._line, self._step = np.nonzero(lines.decides.T)
            self._unit = np.arange(len(self._step))
        else:
            self._step, self._line, length = cut_into_sequences(
                lines.decides, lines.begins, longest
            )
            self._unit = np.repeat(np.arange(len(length)), length)
        # The moment of each member [M], and its position in its line.
        self._moment, self._seat = np.nonzero(lines.present[self._step, self._line])
        step, line = self._step[self._moment], self._line[self._moment]
        # Step and slot of its observation and action.
        self._source = lines.source[step, line, self._seat]
        self._slot = lines.slot[line, self._seat]
        self._credited = np.flatnonzero(lines.credited[step, line, self._seat])
        """[R] the members whose action is learned from, unit by unit."""
        self._sequence: NDArray[Any] | None = None
        """[R] the sequence of each of those, with memory."""
        if longest is not None:
            self._sort_into_sequences()
        self._acted = self._source[self._credited], self._slot[self._credited]
        """[R] step and slot of the actions that are learned from."""

    def _sort_into_sequences(self) -> None:
        # A seat may be taken by another agent within one unit, whose memory then starts empty.
        begins = self._trajectories.begins
        episode = np.cumsum(begins, axis=0)[self._source, self._slot]
        keys = np.stack([self._unit[self._moment], self._seat, episode])
        key = keys[:, self._credited]
        # `lexsort` takes the most important key last. It is stable: actions of a sequence stay
        # in order.
        order = np.lexsort(key[::-1])
        self._credited = self._credited[order]
        key = key[:, order]
        is_other = (key[:, 1:] != key[:, :-1]).any(axis=0)
        # Cut to length for the case of no action at all, where even the first 0 is too many.
        sequence = np.concatenate([[0], np.cumsum(is_other)])
        self._sequence = sequence[: len(self._credited)]

    def batch(self) -> GroupBatch:
        """The actions, moment by moment, with all that learning needs."""
        valuation, trajectories = self._valuation, self._trajectories
        tensor = valuation.tensor
        groups = self._groups()
        outputs = self._outputs(groups)
        at_moment = self._moment[self._credited]
        returns = self._returns(outputs)  # [K, G, S]
        # Where all members share one return, every seat reads that one column.
        seat = np.minimum(self._seat[self._credited], returns.shape[1] - 1)
        target = returns[at_moment, seat]  # [R, S]
        weight = np.bincount(at_moment, minlength=len(self._step)).astype(np.float32)
        value_target = np.zeros_like(outputs.value)
        np.add.at(value_target, at_moment, target)
        value_target /= np.maximum(weight, 1.0)[:, None]

        advantage = tensor((target - outputs.baseline).mean(axis=1))
        log_prob = self._log_prob(valuation.network)
        if valuation.acting is not valuation.network:
            # As PPO's (`algorithms/valuation.py`): a weight corrects for who acted.
            acted = self._log_prob(valuation.acting)
            advantage = advantage * torch.exp(log_prob - acted)
        mask = trajectories.action_mask
        credited = Credited(
            allowed=None if mask is None else tensor(mask[self._acted]),
            continuous=tensor(trajectories.continuous[self._acted]),
            discrete=tensor(trajectories.discrete[self._acted]),
            log_prob=log_prob,
            baseline=tensor(outputs.baseline),
            advantage=advantage,
            target=tensor(target),
        )
        return GroupBatch(
            groups=groups,
            credited=credited,
            value=tensor(outputs.value),
            value_target=tensor(value_target),
            weight=tensor(weight),
            **self._units(outputs),
        )

    def _groups(self) -> Groups:
        tensor, trajectories = self._valuation.tensor, self._trajectories
        rows = self._source, self._slot
        actions = [tensor(trajectories.continuous[rows])]
        discrete = tensor(trajectories.discrete[rows])
        branches = self._valuation.network.spec.action_spec.discrete_branches
        for branch, num_choices in enumerate(branches):
            actions.append(one_hot(discrete[:, branch], num_choices).float())
        return Groups(
            obs=tuple(tensor(part[rows]) for part in trajectories.obs),
            actions=torch.cat(actions, dim=1),
            moment=tensor(self._moment),
            num_moments=len(self._step),
            credited=tensor(self._credited),
        )

    def _outputs(self, groups: Groups) -> _Outputs:
        critic = self._valuation.critic
        if not self._valuation.counterfactual:
            groups = groups.without_baselines()
        remaining, after_step, after_line = self._followers()
        of_moments, of_members = critic.features(groups)
        of_followers, _ = critic.features(remaining)
        moment_memory = member_memory = None
        if critic.memory is not None:
            begins = self._lines.begins[self._step, self._line]
            of_moments, moment_memory, after = _walk(
                critic.memory, of_moments, self._line, self._step, begins
            )
            # Followers continue with the memory of the moment before them.
            number = np.zeros(self._lines.decides.shape, np.int64)
            number[self._step, self._line] = np.arange(len(self._step))
            before = after[number[after_step, after_line]]
            of_followers, _ = critic.memory.step(of_followers, before)
            of_members, member_memory = self._members_walk(critic.memory, of_members)
        at_moment = groups.moment[groups.credited]
        num_members = torch.bincount(groups.moment, minlength=groups.num_moments)
        value = _array(critic.values(of_moments, num_members))
        baseline = _array(critic.values(of_members, num_members[at_moment]))
        if not self._valuation.counterfactual:
            baseline = value[self._moment[self._credited]]
        shape = (*self._lines.decides.shape, value.shape[1])
        next_value = np.zeros(shape, np.float32)
        # After the last moment of a line, and after ends, this is another line's or episode's.
        next_value[self._step[:-1], self._line[:-1]] = value[1:]
        # A dead member takes no part in what follows, and the critic is given how many are left.
        num_left = torch.bincount(remaining.moment, minlength=remaining.num_moments)
        value_left = critic.values(of_followers, num_left)
        next_value[after_step, after_line] = _array(value_left)
        return _Outputs(value, baseline, next_value, moment_memory, member_memory)

    def _followers(self) -> tuple[Groups, NDArray[Any], NDArray[Any]]:
        """What remains after the last moments of lines, and after episodes cut short, with step and
        line of the moments before.
        """
        valuation, lines = self._valuation, self._lines
        trajectories = self._trajectories
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
        final = np.where(is_cut, lines.final[step, line], lines.last[step, line])
        who = np.where(is_end, final >= 0, lines.stays[step, line])  # [E, G]
        moment, seat = np.nonzero(who)
        slot = lines.slot[line[moment], seat]
        final = final[moment, seat]
        has_final = final >= 0
        obs = []
        for part, ends_of in zip(trajectories.obs, trajectories.final_obs, strict=True):
            rows = part[-1][slot]  # a copy, so it may be written to
            rows[has_final] = ends_of[final[has_final]]
            obs.append(valuation.tensor(rows))
        actions = valuation.network.spec.action_spec
        size = actions.continuous_size + sum(actions.discrete_branches)
        groups = Groups(
            obs=tuple(obs),
            # Followers have not acted yet and need no baselines, so nothing reads these zeros.
            actions=torch.zeros(len(moment), size, device=valuation.device),
            moment=valuation.tensor(moment),
            num_moments=len(step),
            credited=valuation.tensor(moment[:0]),
        )
        return groups, step, line

    def _members_walk(
        self, cell: MemoryCell, x: Float[Tensor, "baselines I"]
    ) -> tuple[Float[Tensor, "baselines H"], Float[Tensor, "R M"]]:
        """`_walk` along slots; there are as many baselines as actions, or none."""
        step, slot = self._acted
        if not len(x):  # MAPPO has no baselines
            return x.new_zeros(0, cell.width), x.new_zeros(len(step), cell.size)
        begins = self._trajectories.begins[step, slot]
        results, before, _ = _walk(cell, x, slot, step, begins)
        return results, before

    def _log_prob(self, policy: Network) -> Float[Tensor, " R"]:
        """By this policy, of the actions that are learned from."""
        tensor, trajectories = self._valuation.tensor, self._trajectories
        acted = self._acted
        obs = policy.normalized(tuple(tensor(part[acted]) for part in trajectories.obs))
        mask = trajectories.action_mask
        allowed = None if mask is None else tensor(mask[acted])
        if trajectories.memory is None:
            distribution = policy.distribution(obs, allowed)
        else:
            memory = tensor(trajectories.memory[acted])
            distribution, _, _ = policy.step(obs, allowed, memory)
        continuous = tensor(trajectories.continuous[acted])
        return distribution.log_prob(continuous, tensor(trajectories.discrete[acted]))

    def _returns(self, outputs: _Outputs) -> Float32[np.ndarray, "K G S"]:
        """λ-returns along each line, past deaths and births: V plus its generalized advantage."""
        # G_t = r_t + γ [(1 − λ) V_{t+1} + λ G_{t+1}]. G is 1 where all members have the same
        # rewards.
        valuation, lines = self._valuation, self._lines
        step, line = self._step, self._line
        value = np.zeros_like(outputs.next_value)
        value[step, line] = outputs.value
        # No look-ahead goes past an end, whether or not the value of a signal does.
        # It stops for all members of a group at the same moment.
        cuts = horizon_cuts(lines.decides, lines.begins, valuation.time_horizon)
        truncated = lines.ends | cuts
        returns = []
        for column, signal in enumerate(valuation.signals):
            reward = self._rewards(signal)  # [T, L, G]

            def of_members(
                array: NDArray[Any], shape: Any = reward.shape
            ) -> NDArray[Any]:
                """[T, L] of lines as [T, L · G] of their members."""
                return np.broadcast_to(array[..., None], shape).reshape(len(array), -1)

            terminated = (
                lines.ends & ~lines.interrupted & ~np.bool_(signal.ignores_ends)
            )
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

    def _rewards(self, signal: RewardSignal) -> Float32[np.ndarray, "T L G"]:
        """What each member is paid at each moment, or, with G = 1, what all of them are."""
        # MA-POCA's members share their own rewards as well as the group's; MAPPO's and those of
        # other signals are their own.
        lines = self._lines
        if not isinstance(signal, PaysGroups):
            return lines.placed(signal.reward(self._trajectories))
        paid, paid_to_groups = signal.parts(self._trajectories)
        own = lines.placed(paid)
        if self._valuation.counterfactual:
            own = own.sum(axis=2, keepdims=True)
        return np.asarray(own + lines.once(paid_to_groups)[..., None])

    def _units(self, outputs: _Outputs) -> dict[str, Any]:
        """How the rows fall into units, and, with memory, into sequences."""
        tensor, memory = self._valuation.tensor, self._trajectories.memory
        num_units = int(self._unit.max(initial=-1)) + 1
        credited_unit = self._unit[self._moment[self._credited]]

        def count(unit: NDArray[Any]) -> Tensor:
            return tensor(np.bincount(unit, minlength=num_units))

        moments = count(self._unit)
        members, credited = count(self._unit[self._moment]), count(credited_unit)
        if self._sequence is None:
            return {"counts": Counts(moments, members, credited)}
        assert memory is not None
        assert outputs.moment_memory is not None
        assert outputs.member_memory is not None
        length = np.bincount(self._sequence)
        first = np.cumsum(length) - length
        step, slot = self._acted
        member_length = tensor(length)
        first_moments = torch.cumsum(moments, dim=0) - moments
        of_members = outputs.member_memory[tensor(first)]
        return {
            "counts": Counts(
                moments,
                members,
                credited,
                moment_sequences=torch.ones_like(moments),
                member_sequences=count(credited_unit[first]),
            ),
            "actor_sequences": Sequences(
                member_length, tensor(memory[step[first], slot[first]])
            ),
            "critic_sequences": GroupSequences(
                Sequences(moments, outputs.moment_memory[first_moments][:, None]),
                Sequences(member_length, of_members[:, None]),
            ),
        }


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


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return np.asarray(tensor.numpy(force=True))
