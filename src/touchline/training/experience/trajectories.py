"""What a learner learns from: T steps of the N slots of one full behavior name.

Every action stands next to its own result. Own reward and group reward stay apart, and every row
keeps its agent, group and world: reward signals and learners decide what becomes of them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int
from numpy.typing import NDArray


@dataclass(frozen=True)
class Trajectories:
    """T steps of N slots; `valid` marks the steps that hold an action and its result.

    `value_row` [T, N] is the row whose observation followed the action, in 0..T; `final` [T, N] is
    the index of the true last observation where the episode ended, -1 elsewhere.
    """

    obs: tuple[NDArray[Any], ...]
    """[T + 1, N, ...] each, as `touchline.policies.network.Obs` has them; the last row is what
    followed. They are float32, or whatever the network's `compact` made of them."""
    action_mask: Bool[np.ndarray, "T N choices"] | None
    """True = allowed."""
    continuous: Float32[np.ndarray, "T N C"]
    """Raw, before they were limited for the world."""
    discrete: Int[np.ndarray, "T N D"]
    acted: Bool[np.ndarray, "T N"]
    """Whether an action was taken, its result known or not."""
    valid: Bool[np.ndarray, "T N"]
    begins: Bool[np.ndarray, "T N"]
    """Whether an episode began."""
    reward: Float32[np.ndarray, "T N"]
    """The agent's own, of the action at this step."""
    group_reward: Float32[np.ndarray, "T N"]
    """The group's, of the action at this step."""
    terminated: Bool[np.ndarray, "T N"]
    truncated: Bool[np.ndarray, "T N"]
    agent_id: Int[np.ndarray, "T N"]
    group_id: Int[np.ndarray, "T N"]
    """0 for agents without a group, -1 where a slot is empty."""
    env_index: Int[np.ndarray, "T N"]
    """Which world the agent is in, -1 where a slot is empty."""
    value_row: Int[np.ndarray, "T N"]
    final: Int[np.ndarray, "T N"]
    final_obs: tuple[NDArray[Any], ...]
    """[K, ...] each."""
    memory: Float32[np.ndarray, "T1 N W H"] | None = None
    """What each slot remembered before it observed the row; None without memory."""
    carried: Bool[np.ndarray, " T"] | None = None
    """Whether a step was there at the last hand-over: the first ones, whose `acted` are the actions
    that had no result then. None: no step was."""

    @property
    def num_results(self) -> int:
        """Actions whose result is known."""
        return int(np.count_nonzero(self.valid))

    def next_obs(self, step: NDArray[Any], slot: NDArray[Any]) -> list[NDArray[Any]]:
        """Copies of what truly followed the actions at these steps and slots."""
        final, row = self.final[step, slot], self.value_row[step, slot]
        has_final = final >= 0
        found = []
        for part, last in zip(self.obs, self.final_obs, strict=True):
            following = part[row, slot]
            # Where an episode ended, that row already shows the next one.
            following[has_final] = last[final[has_final]]
            found.append(following)
        return found


def horizon_cuts(
    acted: Bool[np.ndarray, "T N"], begins: Bool[np.ndarray, "T N"], horizon: int
) -> Bool[np.ndarray, "T N"]:
    """Whether an action is the last of a piece of `horizon` actions, counted from its episode's
    begin, or from the first step of these.

    A look-ahead stops there although the episode continues: ML-Agents' `time_horizon`.
    """
    # No episode holds more actions than there are steps.
    if horizon >= len(acted):
        return np.zeros_like(acted)
    actions_before = np.cumsum(acted, axis=0) - acted
    # The count at the episode's first action, carried on to its end: counts only grow, so the
    # largest so far is the latest.
    count_at_begin = np.where(begins, actions_before, 0)
    before_episode = np.maximum.accumulate(count_at_begin, axis=0)
    position = actions_before - before_episode
    is_last_of_piece = position % horizon == horizon - 1
    return np.asarray(acted & is_last_of_piece)
