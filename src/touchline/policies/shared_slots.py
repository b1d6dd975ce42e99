"""Several policies share the slots of one behavior: one forward pass for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.envs.slots import SlotRows
from touchline.envs.slots.rows import select_rows
from touchline.errors import NonFiniteError, RunError
from touchline.policies.policy import ChosenActions, Decision, Policy, SlotMemory
from touchline.specs import ActionTuple, BehaviorSpec

OWN = -1
"""The number of the policy that learns; the others have numbers from 0 on."""


@dataclass(frozen=True)
class Guest:
    """A policy that acts in some slots and is not learned from."""

    policy: Policy
    name: str
    generator: Any = None
    """Its stream of random numbers; None: that of the policy that learns."""


class SharedSlots:
    """A `Policy`: in each slot, the own one or one of the guests acts.

    Keeps the guests' memories between calls, so it serves one table of slots only.
    """

    def __init__(self, own: Policy) -> None:
        self.own = own
        """The policy that learns."""
        self._guests: Mapping[int, Guest] = {}
        self._slots: dict[int, NDArray[np.intp]] = {}
        """Number of a policy -> its slots; empty: all are the own policy's."""
        self._learned: NDArray[np.bool_] | None = None
        self.player: NDArray[np.int64] = np.zeros(0, np.int64)
        """[N] the number of the policy that acts in each slot."""
        self._memories: dict[int, SlotMemory] = {}

    def share(
        self,
        player: NDArray[np.int64],
        learned: NDArray[np.bool_],
        guests: Mapping[int, Guest],
    ) -> None:
        """Who acts from now on: `player` [N] numbers of policies, `learned` [N] whether a learner
        gets the slot's experience.
        """
        self._guests = guests
        self._learned = learned.copy()
        self.player = player
        numbers = np.unique(player).tolist()
        self._slots = {n: np.flatnonzero(player == n) for n in numbers}
        # A guest that plays nowhere begins its next game with an empty memory anyway.
        self._memories = {n: m for n, m in self._memories.items() if n in self._slots}

    def check(self, behavior: str, spec: BehaviorSpec) -> None:
        self.own.check(behavior, spec)

    def new_memory(self) -> SlotMemory | None:
        return self.own.new_memory()

    def new_generator(self, seed: int) -> Any:
        return self.own.new_generator(seed)

    def act(
        self, rows: SlotRows, memory: SlotMemory | None, generator: Any
    ) -> Decision:
        """As `Policy.act`; what is kept says in `learned` where the own policy learns."""
        if set(self._slots) <= {OWN}:
            actions, kept = self.own.act(rows, memory, generator)
        else:
            actions, kept = self._act_apart(rows, memory, generator)
        if kept is None or self._learned is None:
            return Decision(actions, kept)
        learned = self._learned[: len(rows)]
        kept = ChosenActions(kept.continuous, kept.discrete, kept.memory, learned)
        return Decision(actions, kept)

    def _act_apart(
        self, rows: SlotRows, memory: SlotMemory | None, generator: Any
    ) -> Decision:
        # Before anyone acts: what a learner keeps is what its own slots remembered when they
        # decided.
        remembered = None if memory is None else memory.recall(rows)
        parts = []
        for number, slots in self._slots.items():
            if number == OWN:
                part = _act_in(self.own, rows, slots, memory, generator)
            else:
                part = self._act_as_guest(number, rows, slots, generator)
            parts.append((slots, part))
        first = parts[0][1].actions
        shape = len(rows), first.continuous.shape[1]
        continuous, raw = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        discrete = np.zeros((len(rows), first.discrete.shape[1]), np.int32)
        drawn = np.dtype(np.int64)  # with which PyTorch indexes
        for slots, part in parts:
            continuous[slots] = part.actions.continuous
            discrete[slots] = part.actions.discrete
            if (
                part.kept is not None
            ):  # before they were limited, where the own policy acts
                raw[slots] = part.kept.continuous
                drawn = part.kept.discrete.dtype
        # Worlds take int32; what is kept has the bits with which the networks draw.
        kept = ChosenActions(raw, discrete.astype(drawn), remembered)
        return Decision(ActionTuple(continuous, discrete), kept)

    def _act_as_guest(
        self, number: int, rows: SlotRows, slots: NDArray[np.intp], generator: Any
    ) -> Decision:
        guest = self._guests[number]
        if number not in self._memories:
            new = guest.policy.new_memory()
            if new is not None:
                self._memories[number] = new
        memory = self._memories.get(number)
        stream = generator if guest.generator is None else guest.generator
        try:
            return _act_in(guest.policy, rows, slots, memory, stream)
        except NonFiniteError as error:
            raise RunError(
                f"the opponent {guest.name} gave an action that is not a number; the run stops, "
                f"and all is saved: continue without it ({error})"
            ) from error

    def forget(self) -> None:
        """What guests remember belongs to episodes that are over."""
        self._memories = {}

    def state(self) -> dict[str, NDArray[np.float32]]:
        """What the guests remember."""
        return {str(number): m.values for number, m in self._memories.items()}

    def load_state(self, state: Mapping[str, NDArray[np.float32]]) -> None:
        for number, values in state.items():
            memory = SlotMemory(values.shape[1:])
            memory.values = values.copy()
            self._memories[int(number)] = memory


def _act_in(
    policy: Policy,
    rows: SlotRows,
    slots: NDArray[np.intp],
    memory: SlotMemory | None,
    generator: Any,
) -> Decision:
    """Let a policy act in some slots, with their part of the memory of all."""
    part = select_rows(rows, slots)
    if memory is None:
        return policy.act(part, None, generator)
    # The policy sees a table of its slots alone, so its memory is cut out and put back.
    values = memory.recall(rows)
    own = SlotMemory(values.shape[1:])
    own.values = values[slots]
    decision = policy.act(part, own, generator)
    values[slots] = own.values
    memory.values = values
    return decision
