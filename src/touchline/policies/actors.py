"""Policies in their places: each with the memory and the random numbers of a table of slots."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.envs.slots import SlotRows
from touchline.policies.policy import Policy
from touchline.specs import ActionTuple, BehaviorSpec


@dataclass(frozen=True, eq=False)
class ActorState:
    """What a `SlotActor` keeps between calls."""

    memory: NDArray[np.float32] | None
    """[N, networks, M]; None from a policy without memory."""
    generator: Any
    """The random numbers' state, as their library gives it."""


class SlotActor:
    """A policy with the memory and the random numbers of the slots of one full behavior name."""

    def __init__(
        self, policy: Policy, spec: BehaviorSpec | None, seed: int, name: str = ""
    ) -> None:
        """`spec` is the behavior's, None where it is not known; `name` is for people."""
        self.name = name
        self.policy = policy
        self.spec = spec
        self.memory = policy.new_memory()
        self.generator = policy.new_generator(seed)

    def act(self, rows: SlotRows) -> ActionTuple:
        """Actions [N, ...] of all slots; only those of deciding slots matter."""
        return self.policy.act(rows, self.memory, self.generator).actions

    def state(self) -> ActorState:
        """Everything needed to act from here on in the same way; a copy."""
        memory = None if self.memory is None else self.memory.values.copy()
        if self.generator is None:
            return ActorState(memory, None)
        if isinstance(self.generator, np.random.Generator):
            return ActorState(memory, deepcopy(self.generator.bit_generator.state))
        return ActorState(memory, self.generator.get_state())  # torch's

    def load_state(self, state: ActorState) -> None:
        if self.memory is not None and state.memory is not None:
            self.memory.values = state.memory.copy()
        if isinstance(self.generator, np.random.Generator):
            self.generator.bit_generator.state = state.generator
        elif self.generator is not None:
            self.generator.set_state(state.generator)


class Actors(Mapping[str, SlotActor]):
    """The actors of all behaviors of a world, which may show another one at any time."""

    def __init__(self, load: Callable[[], Mapping[str, SlotActor]]) -> None:
        """`load` gives one for every behavior of the world, again when another appears."""
        self._load = load
        self._actors = dict(load())

    def __getitem__(self, behavior: str) -> SlotActor:
        if behavior not in self._actors:
            # Those who play already continue with their memories and random numbers.
            self._actors = {**self._load(), **self._actors}
        return self._actors[behavior]

    def __iter__(self) -> Iterator[str]:
        return iter(self._actors)

    def __len__(self) -> int:
        return len(self._actors)
