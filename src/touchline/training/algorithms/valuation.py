"""From trajectories to a batch: values before and after each action, advantages, value targets.

On-policy learners share this. Each reward signal has a value column, a discount and an advantage of
its own; the policy learns from their mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy.typing import NDArray
from torch import Tensor

from touchline.policies.nets.memory import Sequences, cut_into_sequences
from touchline.policies.network import Distribution, Network, Obs
from touchline.training.algorithms.batch import Batch
from touchline.training.algorithms.returns import (
    generalized_advantage,
    n_step_advantage,
)
from touchline.training.experience.trajectories import Trajectories, horizon_cuts
from touchline.training.rewards.signal import RewardSignal


@dataclass(frozen=True)
class Valuation:
    """How trajectories are valued."""

    network: Network
    acting: Network
    """Took the actions: the same, or an earlier version of it."""
    device: torch.device
    signals: Sequence[RewardSignal]
    lambd: float
    """λ of generalized advantage estimation."""
    return_steps: int | None
    """Rewards in an n-step return; None: generalized advantage estimation."""
    time_horizon: int
    """A look-ahead stops after this many actions of an episode."""
    sequence_length: int | None
    """Actions in a sequence of a policy with memory; None without memory."""

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """An array where the networks are."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


@dataclass(frozen=True)
class _Outputs:
    """What the network says of trajectories of T steps and N slots."""

    value: Float32[np.ndarray, "T1 N S"]
    """Value of every row, the last one included."""
    final_value: Float32[np.ndarray, "K S"]
    """Value of the last observations of ended episodes."""
    log_prob: Float32[np.ndarray, "T N"]


def with_values(valuation: Valuation, trajectories: Trajectories) -> Batch:
    """The valid actions of trajectories next to their values, advantages and value targets."""
    network = valuation.network
    # [T + 1, N, ...] each
    # Normalized once: every epoch reads these values, and the statistics change only afterwards.
    obs = network.normalized(_tensors(valuation, trajectories.obs))
    outputs = _outputs(valuation, trajectories, obs)
    advantages = _advantages(valuation, trajectories, outputs)  # [T, N, S]
    policy_advantage = advantages.mean(axis=2)
    if valuation.acting is not network:
        # The clip stays around the present policy, and a weight π / π_acting corrects for who
        # acted. A clip around the latter would leave only the rest of its range to this update.
        # Source: Hilton et al. 2021, arXiv:2110.00641, section 3 (the decoupled objective).
        acted = _log_prob_of_acting(valuation, trajectories)
        policy_advantage *= np.exp(outputs.log_prob - acted)
    value = outputs.value[:-1]

    # A mask gives the actions in order of time; sequences bring indices of their own order.
    where: Any = trajectories.valid
    sequences = None
    if valuation.sequence_length is not None:
        where, sequences = _in_sequences(
            valuation, trajectories, valuation.sequence_length
        )

    def chosen(array: NDArray[Any]) -> Tensor:
        return valuation.tensor(array[where])

    mask = trajectories.action_mask
    return Batch(
        obs=tuple(chosen(part[:-1].numpy(force=True)) for part in obs),
        allowed=None if mask is None else chosen(mask),
        continuous=chosen(trajectories.continuous),
        discrete=chosen(trajectories.discrete),
        log_prob=chosen(outputs.log_prob),
        value=chosen(value),
        advantage=chosen(policy_advantage),
        # The λ-return: an advantage is a return less the value (Schulman et al. 2016, section
        # 3).
        target=chosen(advantages + value),
        sequences=sequences,
    )


def _advantages(
    valuation: Valuation, trajectories: Trajectories, outputs: _Outputs
) -> Float32[np.ndarray, "T N S"]:
    ended = trajectories.final >= 0
    horizon = horizon_cuts(
        trajectories.acted, trajectories.begins, valuation.time_horizon
    )
    advantages = []
    for column, signal in enumerate(valuation.signals):
        value = outputs.value[..., column]
        # Of the row that followed; where an episode ended, that row already shows the next
        # episode, so the true last observation takes its place.
        next_value = np.take_along_axis(value, trajectories.value_row, axis=0)
        next_value[ended] = outputs.final_value[trajectories.final[ended], column]
        # Strength scales the reward and with it the value, as in ML-Agents.
        reward = signal.reward(trajectories) * np.float32(signal.strength)
        terminated = trajectories.terminated & ~np.bool_(signal.ignores_ends)
        transitions: dict[str, Any] = {
            "reward": reward,
            "value": value[:-1],
            "next_value": next_value,
            "terminated": terminated,
            # No look-ahead goes past the end of an episode, whether or not its value does.
            "truncated": trajectories.truncated | trajectories.terminated | horizon,
            "valid": trajectories.valid,
            "discount": signal.discount,
        }
        if valuation.return_steps is None:
            advantage = generalized_advantage(**transitions, gae_lambda=valuation.lambd)
        else:
            advantage = n_step_advantage(
                **transitions, num_steps=valuation.return_steps
            )
        advantages.append(advantage)
    return np.stack(advantages, axis=2)


def _outputs(valuation: Valuation, trajectories: Trajectories, obs: Obs) -> _Outputs:
    network = valuation.network
    num_slots = trajectories.valid.shape[1]
    mask = _flat_mask(valuation, trajectories)
    before = tuple(part[:-1].flatten(0, 1) for part in obs)
    # The last row has no action yet: it is only valued, and needs no mask.
    last_obs = tuple(part[-1] for part in obs)
    final_obs = network.normalized(_tensors(valuation, trajectories.final_obs))
    if trajectories.memory is None:
        acted, value = network(before, mask)
        last_value, final_value = network.value(last_obs), network.value(final_obs)
    else:
        memory = valuation.tensor(trajectories.memory)
        # What was remembered at each step is stored, so all steps pass at once instead of in turn.
        acted, value, after = network.step(before, mask, memory[:-1].flatten(0, 1))
        _, last_value, _ = network.step(last_obs, None, memory[-1])
        final_memory = _final_memory(valuation, trajectories, after)
        _, final_value, _ = network.step(final_obs, None, final_memory)
    values = torch.cat([value, last_value])
    return _Outputs(
        value=values.view(-1, num_slots, values.shape[-1]).numpy(force=True),
        final_value=final_value.numpy(force=True),
        log_prob=_log_prob(valuation, acted, trajectories),
    )


def _final_memory(
    valuation: Valuation, trajectories: Trajectories, after: Float[Tensor, "TN W M"]
) -> Float[Tensor, "K W M"]:
    """What was remembered after the last action of each episode, of the memories after all."""
    final = valuation.tensor(trajectories.final).flatten()
    num_ends = len(trajectories.final_obs[0])
    # Ends without an action in these trajectories keep zeros; no advantage reads them.
    memory = after.new_zeros(num_ends, *after.shape[1:])
    has_end = final >= 0
    memory[final[has_end]] = after[has_end]
    return memory


def _log_prob_of_acting(
    valuation: Valuation, trajectories: Trajectories
) -> Float32[np.ndarray, "T N"]:
    """By an earlier version of the network, with its own normalizer."""
    network = valuation.acting
    before = tuple(part[:-1] for part in trajectories.obs)
    seen = network.normalized(_tensors(valuation, before))
    obs = tuple(part.flatten(0, 1) for part in seen)
    mask = _flat_mask(valuation, trajectories)
    if trajectories.memory is None:
        distribution = network.distribution(obs, mask)
    else:
        remembered = valuation.tensor(trajectories.memory[:-1]).flatten(0, 1)
        distribution, _, _ = network.step(obs, mask, remembered)
    return _log_prob(valuation, distribution, trajectories)


def _in_sequences(
    valuation: Valuation, trajectories: Trajectories, longest: int
) -> tuple[tuple[NDArray[Any], NDArray[Any]], Sequences]:
    """Steps and slots of the actions of all sequences, in order, and the sequences."""
    assert trajectories.memory is not None
    step, slot, length = cut_into_sequences(
        trajectories.valid, trajectories.begins, longest
    )
    first = np.cumsum(length) - length
    # Only the memory before a sequence's first action is an input; the memory makes the others
    # again, so that gradients flow through them.
    memory = trajectories.memory[step[first], slot[first]]
    lengths = valuation.tensor(length)
    sequences = Sequences(lengths, valuation.tensor(memory))
    return (step, slot), sequences


def _log_prob(
    valuation: Valuation, distribution: Distribution, trajectories: Trajectories
) -> Float32[np.ndarray, "T N"]:
    continuous = valuation.tensor(trajectories.continuous).flatten(0, 1)
    discrete = valuation.tensor(trajectories.discrete).flatten(0, 1)
    flat = distribution.log_prob(continuous, discrete)  # [T · N]
    log_prob = flat.view(trajectories.valid.shape)
    return np.asarray(log_prob.numpy(force=True))


def _flat_mask(valuation: Valuation, trajectories: Trajectories) -> Tensor | None:
    mask = trajectories.action_mask
    return None if mask is None else valuation.tensor(mask).flatten(0, 1)


def _tensors(valuation: Valuation, obs: tuple[NDArray[Any], ...]) -> Obs:
    return tuple(valuation.tensor(part) for part in obs)
