"""What one agent sees, thinks and has earned: read from a simulation, changing nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.envs.slots import SlotRows
from touchline.envs.slots.rows import select_rows, widened
from touchline.policies.policy import (
    Outlook,
    Policy,
    SlotActor,
    SlotMemory,
    Transparent,
)
from touchline.specs import BehaviorSpec


class Seat(NamedTuple):
    """An agent by its place, which it keeps when its id changes."""

    area: int
    agent: int
    """0 to G - 1, within the area."""


@dataclass(frozen=True, eq=False)
class Insight:
    """One agent at one decision."""

    behavior: str
    spec: BehaviorSpec
    slot: int
    policy: Policy
    rows: SlotRows
    """The rows of this agent alone, N = 1, as is what follows."""
    memory: SlotMemory | None
    outlook: Outlook | None
    """None from a policy that shows nothing."""
    episode_return: float
    """The rewards of the open episode so far."""

    @property
    def agent_id(self) -> int:
        return int(self.rows.agent_id[0])

    @property
    def reward(self) -> float:
        return float(self.rows.reward[0])

    @property
    def obs(self) -> Sequence[NDArray[np.float32]]:
        """[*shape] for each sensor of the spec."""
        return [obs[0] for obs in self.rows.obs]


def insight_of(
    behavior: str,
    slot: int,
    actor: SlotActor,
    rows: SlotRows,
    returns: NDArray[np.float64],
) -> Insight:
    """What the agent in a slot observes, and what its policy computes from it."""
    assert actor.spec is not None, "a world's actors know their specs"
    one = only_slot(rows, slot)
    memory = None if actor.memory is None else memory_of(actor.memory.values, [slot])
    outlook = None
    if isinstance(actor.policy, Transparent):
        outlook = actor.policy.outlook(one, memory)
    return Insight(
        behavior=behavior,
        spec=actor.spec,
        slot=slot,
        policy=actor.policy,
        rows=one,
        memory=memory,
        outlook=outlook,
        episode_return=float(returns[slot]),
    )


def only_slot(rows: SlotRows, slot: int) -> SlotRows:
    """The rows of one slot alone, N = 1, with its ends."""
    ended = rows.final_slot == slot
    return replace(
        select_rows(rows, np.array([slot])),
        final_slot=np.zeros(int(ended.sum()), np.int32),
        final_obs=tuple(obs[ended] for obs in rows.final_obs),
    )


def memory_of(
    values: NDArray[np.float32] | None, slots: Sequence[int]
) -> SlotMemory | None:
    """The memory of these slots alone, 0 before they acted, of all [N, networks, M]; a copy."""
    if values is None:
        return None
    own = SlotMemory(values.shape[1:])
    own.values = widened(values, max(slots) + 1)[list(slots)]
    return own
