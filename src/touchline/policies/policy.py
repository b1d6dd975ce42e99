"""Policies: whatever chooses the actions of a behavior's slots. Acting is written once, here.

A policy keeps nothing between calls. The memory of the slots and the stream of random numbers are
given to `act`, so one policy can serve several tables of slots; `SlotActor` holds them for one.

Random and zero policies need no torch: it is imported when a network is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from touchline.envs.actions import first_allowed, random_allowed
from touchline.envs.slots import SlotRows
from touchline.errors import UsageError
from touchline.extras import explain_missing
from touchline.policies.files.run_layout import CHECKPOINT, RunLayout
from touchline.policies.slot_memory import SlotMemory
from touchline.policies.spec_fit import require_fit
from touchline.specs import ActionTuple, BehaviorSpec, base_name

if TYPE_CHECKING:
    import torch

    from touchline.policies.network import Actor, Distribution, Network


@dataclass(frozen=True)
class ChosenActions:
    """What a learner keeps of the actions of N slots."""

    continuous: NDArray[np.float32]
    """[N, C] raw, before they were limited for the world."""
    discrete: NDArray[np.int64]
    """[N, D] the choice of each branch."""
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
        self,
        rows: SlotRows,
        memory: SlotMemory | None,  # noqa: ARG002
        generator: np.random.Generator,
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

    def choose(
        self,
        rows: SlotRows,
        generator: np.random.Generator,  # noqa: ARG002
    ) -> ActionTuple:
        zeros = self.action_spec.empty_action(len(rows))
        if rows.action_mask is None:
            return zeros
        # Choice 0 may be masked.
        discrete = first_allowed(self.action_spec, rows.action_mask, rows.second_mask)
        return ActionTuple(zeros.continuous, discrete)


def _greedy(spec: BehaviorSpec) -> Policy:
    from touchline.policies.greedy import GreedyPolicy  # it brings compiled code

    return GreedyPolicy(spec)


BUILT_IN: Mapping[str, Callable[[BehaviorSpec], Policy]] = {
    "random": RandomPolicy,
    "zero": ZeroPolicy,
    "greedy": _greedy,
}
"""Policies that need no file, by the name that stands for them; `greedy` plays Match3 alone."""


class NetworkPolicy:
    """Acts with a network: draws actions from its distribution, or takes the most likely ones."""

    def __init__(
        self,
        network: Network,
        *,
        deterministic: bool = False,
        device: torch.device | str = "cpu",
        source: str = "this network",
    ) -> None:
        """`device` is where the network is; `source` names it in messages."""
        self.network = network
        self.deterministic = deterministic
        self.device = device
        self._source = source
        self._actor: Actor | None = None
        # Networks need torch, random and zero policies do not: it is imported here, and once,
        # because two imports in `act` would take a fiftieth of its time.
        import torch

        from touchline.policies.distributions import to_environment
        from touchline.policies.network import side_by_side

        self._inference_mode = torch.inference_mode
        self._from_numpy = torch.from_numpy
        self._to_environment = to_environment
        self._side_by_side = side_by_side

    def check(self, behavior: str, spec: BehaviorSpec) -> None:
        """Raise a UsageError that describes both specs unless this policy fits the behavior."""
        require_fit(self._source, self.network.spec, behavior, spec)

    def new_memory(self) -> SlotMemory | None:
        shape = self.network.memory_shape
        return None if shape is None else SlotMemory(shape)

    def new_generator(self, seed: int) -> torch.Generator:
        """On the CPU, wherever the network is: a run draws the same numbers on every device."""
        import torch

        return torch.Generator().manual_seed(seed)

    def forget_actor(self) -> None:
        """Call this whenever the weights have changed: what was prepared from them is stale."""
        self._actor = None

    def act(
        self, rows: SlotRows, memory: SlotMemory | None, generator: torch.Generator
    ) -> Decision:
        """Also takes rows whose observations are as `Network.compact` keeps them."""
        with self._inference_mode():
            distribution, before = self._distribution(rows, memory)
            if self.deterministic:
                continuous, discrete = distribution.mode()
            else:
                continuous, discrete = distribution.sample(generator)
            limited = self._to_environment(continuous)
        actions = ActionTuple(limited.numpy(), discrete.numpy())
        # A learner needs the raw numbers: the log-probability of a limited action is not that of
        # what the normal drew.
        kept = ChosenActions(continuous.numpy(), discrete.numpy(), before)
        return Decision(actions, kept)

    def outlook(self, rows: SlotRows, memory: SlotMemory | None) -> Outlook:
        """Probabilities, most likely actions and values."""
        from touchline.policies.distributions import (
            ActionDistribution,
            SquashedDistribution,
        )

        with self._inference_mode():
            arrays = self._side_by_side(rows.obs)
            obs = self.network.normalized(tuple(map(self._tensor, arrays)))
            allowed = (
                None if rows.action_mask is None else self._tensor(rows.action_mask)
            )
            value: torch.Tensor | None = None
            if len(rows.obs) < len(self.network.spec.observation_specs):
                # Its critic has seen more in training than this world shows.
                distribution = self.network.distribution(obs, allowed)
            elif memory is None:
                distribution, value = self.network(obs, allowed)
                if rows.second_mask is not None:  # only the actor takes it
                    distribution, _ = self._distribution(rows, None)
            else:
                before = self._tensor(memory.recall(rows))
                distribution, value, _ = self.network.step(obs, allowed, before)
            continuous, _ = distribution.mode()
            limited = self._to_environment(continuous)
        branches: Sequence[torch.Tensor] = ()
        # Other distributions have choices that depend on each other.
        if isinstance(distribution, ActionDistribution | SquashedDistribution):
            branches = distribution.log_probs
        return Outlook(
            [branch.exp().numpy(force=True) for branch in branches],
            limited.numpy(),
            None if value is None else value.numpy(force=True),
        )

    def _distribution(
        self, rows: SlotRows, memory: SlotMemory | None
    ) -> tuple[Distribution, NDArray[np.float32] | None]:
        """Of the slots' actions, and what the slots remembered; what they remember now is kept."""
        arrays = self._side_by_side(rows.obs)
        raw = tuple(map(self._tensor, arrays))
        obs = self.network.normalized(raw)
        allowed = None if rows.action_mask is None else self._tensor(rows.action_mask)
        if memory is not None:
            # Not by the prepared actor, which has no memory.
            before = memory.recall(rows)
            remembered = self._tensor(before)
            distribution, _, after = self.network.step(obs, allowed, remembered)
            memory.keep(rows, before, after.numpy(force=True))
            return distribution, before
        # Prepared once per update instead of once per step; see `forget_actor`.
        if self._actor is None:
            self._actor = self.network.actor()
        if rows.second_mask is not None:  # staged actions: the later branches' masks
            second_mask = self._tensor(rows.second_mask)
            return self._actor(obs, allowed, second_mask), None
        return self._actor(obs, allowed), None

    def _tensor(self, array: NDArray[Any]) -> torch.Tensor:
        return self._from_numpy(array).to(self.device)


@dataclass(frozen=True, eq=False)
class ActorState:
    """What a `SlotActor` keeps between calls."""

    memory: NDArray[np.float32] | None
    """[N, networks, M]; None from a policy without memory."""
    generator: Any
    """The random numbers' state, as their library gives it."""


class SlotActor:
    """A policy with the memory and the random numbers of the slots of one full behavior name."""

    def __init__(self, policy: Policy, spec: BehaviorSpec | None, seed: int) -> None:
        """`spec` is the behavior's, None where it is not known."""
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
        """Continue from what `state` returned."""
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
            # Those who play already go on with their memories and random numbers.
            self._actors = {**self._load(), **self._actors}
        return self._actors[behavior]

    def __iter__(self) -> Iterator[str]:
        return iter(self._actors)

    def __len__(self) -> int:
        return len(self._actors)


def load_policies(
    sources: Iterable[str],
    behaviors: Mapping[str, BehaviorSpec],
    *,
    deterministic: bool = False,
    seed: int = 0,
) -> dict[str, SlotActor]:
    """One actor for each of these behaviors (full names), from `[BEHAVIOR=]SOURCE` texts.

    A source is one of `BUILT_IN`, an ONNX file, a checkpoint or a run folder. One without BEHAVIOR
    acts for every behavior that it fits. Raises a UsageError when a behavior is left over, or a
    named one does not fit.
    """
    named, unnamed = _split_sources(sources, behaviors)
    actors: dict[str, SlotActor] = {}
    for number, (behavior, spec) in enumerate(behaviors.items()):
        own = named.get(behavior) or named.get(base_name(behavior))
        candidates = [own] if own else unnamed
        policy = _first_that_fits(
            candidates, behavior, spec, deterministic=deterministic
        )
        # A stream of its own for each behavior, or teams that share a policy would draw the
        # same noise.
        actors[behavior] = SlotActor(policy, spec, seed + number)
    return actors


def load_policy(
    source: str | Path,
    behavior: str | None = None,
    spec: BehaviorSpec | None = None,
    *,
    deterministic: bool = False,
    seed: int = 0,
) -> SlotActor:
    """An actor for one behavior, from a source as in `load_policies`.

    `behavior` is needed for a run of several behaviors, `spec` for those of `BUILT_IN`; a given
    `spec` is checked. Raises a UsageError when the policy cannot be loaded or does not fit.
    """
    name = None if behavior is None else base_name(behavior)
    policy = _load(str(source), name, spec, deterministic=deterministic)
    if spec is not None:
        policy.check(behavior or "the behavior", spec)
    return SlotActor(policy, spec, seed)


def _split_sources(
    sources: Iterable[str], behaviors: Iterable[str]
) -> tuple[dict[str, str], list[str]]:
    """Sources by the behavior that they name, and those that name none."""
    known = {base_name(behavior) for behavior in behaviors} | set(behaviors)
    named: dict[str, str] = {}
    unnamed: list[str] = []
    for source in sources:
        behavior, equals, rest = source.partition("=")
        if equals and behavior in known:
            named[behavior] = rest
        # A file name may hold an equals sign, too.
        elif equals and not Path(source).exists():
            names = ", ".join(sorted(known))
            raise UsageError(
                f"--policy {source}: no behavior {behavior!r}; behaviors: {names}"
            )
        else:
            unnamed.append(source)
    return named, unnamed


def _first_that_fits(
    sources: Sequence[str], behavior: str, spec: BehaviorSpec, *, deterministic: bool
) -> Policy:
    refusals = []
    for source in sources:
        # Loaded again for every behavior: `random` and `zero` are made from its spec, and a run
        # folder holds a policy for each.
        policy = _load(source, base_name(behavior), spec, deterministic=deterministic)
        try:
            policy.check(behavior, spec)
        except UsageError as refusal:
            # Kept: where none fits, the error names the reason of each.
            refusals.append(str(refusal))
        else:
            return policy
    raise UsageError(
        "; ".join(refusals)
        or f"no policy given for {behavior}: use --policy {base_name(behavior)}=FILE"
    )


def _load(
    source: str, behavior: str | None, spec: BehaviorSpec | None, *, deterministic: bool
) -> Policy:
    """The policy of a source, not yet checked; `behavior` is a base name, None: the only one."""
    if source in BUILT_IN:
        if spec is None:
            raise UsageError(
                f"the policy {source!r} needs the spec of a behavior to act for"
            )
        return BUILT_IN[source](spec)
    path = Path(source)
    if path.is_dir():
        path = RunLayout(path).newest(behavior)
    with explain_missing(f"the policy {path}"):
        if path.suffix == CHECKPOINT:
            from touchline.policies.files.checkpoints import load_network

            network = load_network(path, spec)
            return NetworkPolicy(network, deterministic=deterministic, source=str(path))
        if path.suffix == ".pt":
            raise UsageError(
                f"{path}: a checkpoint of ML-Agents is for training to start with (init_path); "
                "to act, give the .onnx beside it"
            )
        from touchline.policies.files.onnx_in import OnnxPolicy

        return OnnxPolicy(path, deterministic=deterministic)
