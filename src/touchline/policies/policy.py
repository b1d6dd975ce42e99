"""Policies: whatever chooses the actions of a behavior's slots. Acting is written once, here.

A policy keeps nothing between calls. The memory of the slots and the stream of random numbers are
given to `act`, so one policy can serve several tables of slots; `SlotActor` holds them for one.

Random and zero policies need no torch: it is imported when a network is used.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from touchline.envs.actions import random_allowed
from touchline.envs.slots import SlotRows, widened
from touchline.envs.slots.rows import idle_actions
from touchline.errors import UsageError
from touchline.specs import ActionTuple, BehaviorSpec, describe_spec


class SlotMemory:
    """The memories [N, *shape] of one behavior's slots; the table may grow.

    A memory belongs to an episode: it is zero where an episode begins, and stays as it is while its
    slot does not decide.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.values: NDArray[np.float32] = np.zeros((0, *shape), np.float32)

    def recall(self, rows: SlotRows) -> NDArray[np.float32]:
        """What each slot remembers before it decides, [N, *shape]; a fresh array."""
        self.values = widened(self.values, len(rows))
        values = self.values.copy()
        values[rows.begins] = 0.0
        return values

    def keep(
        self, rows: SlotRows, before: NDArray[np.float32], after: NDArray[np.float32]
    ) -> None:
        """Store `after` for the slots that decided; the others keep what `recall` returned."""
        # [N, 1, ...], so that one flag covers a slot's whole memory.
        ones = [1] * (after.ndim - 1)
        decided = rows.deciding.reshape(-1, *ones)
        self.values = np.where(decided, after, before)


@dataclass(frozen=True)
class ChosenActions:
    """What a learner keeps of the actions of N slots."""

    continuous: NDArray[np.float32]
    """[N, C] raw, before they were limited for the world."""
    discrete: NDArray[np.signedinteger]
    """[N, D] the choice of each branch, in as many bits as its network draws."""
    memory: NDArray[np.float32] | None = None
    """[N, networks, M] what the slots remembered when they decided; None without memory."""
    learned: NDArray[np.bool_] | None = None
    """[N] whether a learner gets the slot's experience; None: of all slots."""


class Decision(NamedTuple):
    """What N slots do."""

    actions: ActionTuple
    """As the world takes them."""
    kept: ChosenActions | None
    """As a learner keeps them; None from policies that nothing learns from."""


class Outlook(NamedTuple):
    """What a policy makes of N slots, for showing."""

    probabilities: Sequence[NDArray[np.float32]]
    """[N, choices] for each branch."""
    continuous: NDArray[np.float32]
    """[N, C] the most likely actions, as the world takes them."""
    value: NDArray[np.float32] | None
    """[N, S] for each reward signal; None from policies that estimate none."""


@runtime_checkable
class Transparent(Protocol):
    """A policy that can be asked what it makes of what it sees."""

    def outlook(self, rows: SlotRows, memory: SlotMemory | None) -> Outlook:
        """For all slots, deciding or not; changes nothing."""


@runtime_checkable
class Policy(Protocol):
    """Chooses actions for all slots of one behavior."""

    def check(self, behavior: str, spec: BehaviorSpec) -> None:
        """Raise a UsageError unless this policy can act for the behavior."""

    def new_memory(self) -> SlotMemory | None:
        """The empty memory of a new table of slots; None for a policy without memory."""

    def new_generator(self, seed: int) -> Any:
        """A new stream of random numbers."""

    def act(
        self, rows: SlotRows, memory: SlotMemory | None, generator: Any
    ) -> Decision:
        """Actions [N, ...] of all slots; only those of deciding slots matter.

        Updates `memory` and draws from `generator`.
        """


class RulePolicy(ABC):
    """A policy that follows a fixed rule: no network, no memory, nothing learned from it.

    Subclasses say what they choose.
    """

    def __init__(self, spec: BehaviorSpec) -> None:
        self.action_spec = spec.action_spec

    def check(self, behavior: str, spec: BehaviorSpec) -> None:  # noqa: B027 - always fits
        """Fits, because it was made from the behavior's own spec."""

    def new_memory(self) -> None:
        return None

    def new_generator(self, seed: int) -> np.random.Generator:
        return np.random.default_rng(seed)

    def act(
        self, rows: SlotRows, memory: SlotMemory | None, generator: np.random.Generator
    ) -> Decision:
        return Decision(self.choose(rows, generator), kept=None)

    @abstractmethod
    def choose(self, rows: SlotRows, generator: np.random.Generator) -> ActionTuple:
        """The actions of all slots."""


class RandomPolicy(RulePolicy):
    """Uniform over [-1, 1] and over all allowed choices."""

    def choose(self, rows: SlotRows, generator: np.random.Generator) -> ActionTuple:
        return random_allowed(
            self.action_spec, rows.action_mask, rows.second_mask, len(rows), generator
        )


class ZeroPolicy(RulePolicy):
    """Zeros, or the first allowed choice: what an agent without a policy does."""

    def choose(self, rows: SlotRows, generator: np.random.Generator) -> ActionTuple:
        return idle_actions(self.action_spec, rows)


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
