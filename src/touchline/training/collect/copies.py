"""Policies as plain values, and the lineup of a worker, which acts with copies of them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray

from touchline.envs.saved_state import Arrays, below, prefixed
from touchline.envs.slots import AllRows
from touchline.policies.loading import load_policy
from touchline.policies.network import Architecture, make_network
from touchline.policies.network_policy import NetworkPolicy
from touchline.policies.shared_slots import Guest
from touchline.specs import BehaviorSpec, Specs, base_name
from touchline.training.collect.collector import Lineup, Seat
from touchline.training.self_play.games import GameScores
from touchline.training.self_play.lineup import Roster
from touchline.training.self_play.seating import GameReport, Seating
from touchline.training.self_play.settings import SelfPlaySettings


@dataclass(frozen=True)
class PolicyWeights:
    """How a policy's network is built, and its weights."""

    architecture: dict[str, Any]
    """The fields of an `Architecture`."""
    num_signals: int
    deterministic: bool
    spec: BehaviorSpec
    """The network's own, which may lack parts of what the world sends: a state, for one."""
    weights: Arrays
    """Arrays under the names of `state_dict`; views, where the network is on the CPU."""


@dataclass(frozen=True)
class SentGuest:
    """An opponent of self-play."""

    name: str
    """A file's absolute path, `random` or `zero` where there are no weights."""
    weights: Any
    """`PolicyWeights` or Ray's reference to them; None for a policy without a network."""


@dataclass(frozen=True)
class PoolCopy:
    """The opponents of one behavior; see `Opponents`."""

    settings: SelfPlaySettings
    drawn: Sequence[int]
    guests: Mapping[int, Any]
    """A `SentGuest` on the way, a `Guest` where it plays."""


@dataclass(frozen=True)
class Policies:
    """Who acts in a round."""

    latest: Mapping[str, PolicyWeights]
    pools: Mapping[str, PoolCopy] = field(default_factory=dict)
    learning_team: int | None = None


def policies_of(latest: Mapping[str, PolicyWeights], roster: Roster | None) -> Policies:
    """What collectors need of the latest policies, and of their opponents if there are any."""
    if roster is None:
        return Policies(latest)
    pools = {}
    for base, pool in roster.pools.items():
        guests = {number: _sent(guest) for number, guest in pool.guests.items()}
        pools[base] = PoolCopy(pool.settings, list(pool.drawn), guests)
    return Policies(latest, pools, roster.learning_team)


def _sent(guest: Guest) -> SentGuest:
    if isinstance(guest.policy, NetworkPolicy):
        return SentGuest(guest.name, weights_of(guest.policy))
    path = Path(guest.name)
    # Where collectors run, relative paths mean something else.
    return SentGuest(str(path.absolute()) if path.exists() else guest.name, None)


def weights_of(policy: NetworkPolicy) -> PolicyWeights:
    """The policy as it is now."""
    network = policy.network
    tensors = network.state_dict().items()
    return PolicyWeights(
        asdict(network.architecture),
        network.num_signals,
        policy.deterministic,
        network.spec,
        {name: tensor.numpy(force=True) for name, tensor in tensors},
    )


def policy_with(given: PolicyWeights) -> NetworkPolicy:
    """A policy of this form on the CPU; `take` gives it its weights."""
    # First weights, which are not used, must not move the random numbers of the whole process.
    with torch.random.fork_rng(devices=[]):
        architecture = Architecture(**given.architecture)
        network = make_network(given.spec, architecture, num_signals=given.num_signals)
    return NetworkPolicy(network, deterministic=given.deterministic)


def take(policy: NetworkPolicy, given: PolicyWeights) -> None:
    """Copy the weights into the policy."""
    # `torch.tensor` copies; `from_numpy` would warn of arrays in Ray's read-only memory.
    tensors = {name: torch.tensor(array) for name, array in given.weights.items()}
    policy.network.load_state_dict(tensors)
    policy.forget_actor()


Fetch = Callable[[Any], PolicyWeights]
"""Returns the weights that a `SentGuest` stands for."""


class Copies(Lineup):
    """The lineup of a worker.

    Without self-play every team acts by a copy of its behavior's latest policy. With it, opponents
    of the pools are drawn for each game, too.
    """

    def __init__(
        self, seeds: Sequence[int], fetch: Fetch, *, restarts: int, self_play: bool
    ) -> None:
        """`seeds` are those of the run and of the worker, which has had so many `restarts`."""
        self._seeds = seeds
        self._restarts = restarts
        self._fetch = fetch
        self._policies: dict[str, NetworkPolicy] = {}
        self._generators: dict[str, torch.Generator] = {}
        self._learned: set[str] = set()
        self._pools: dict[str, PoolCopy] = {}
        self._learning_team: int | None = None
        self._seating = Seating(seeds, self._pools) if self_play else None
        self._streams: Arrays = {}
        """Random numbers of restored guests that have them, below base name and number."""

    def update(self, given: Policies, specs: Specs, learned: set[str]) -> None:
        """Take the weights of all policies; `learned` are the base names that are learned from."""
        self._learned = learned
        latest = given.latest
        for name, spec in specs.items():
            base = base_name(name)
            if base in latest and base not in self._policies:
                self._policies[base] = policy_with(latest[base])
            if base in given.pools:
                self._pools[base] = self._copied(given, base, spec)
        for base, policy in self._policies.items():
            take(policy, latest[base])
        self._learning_team = given.learning_team
        if self._seating is not None:
            self._seating.assign(self._learning_team)
            self._seating.share()

    def knows(self, behaviors: Iterable[str]) -> bool:
        """Whether all these base names have a policy."""
        return all(base in self._policies for base in behaviors)

    def seat(self, behavior: str, spec: BehaviorSpec) -> Seat:
        base = base_name(behavior)
        own = self._policies[base]
        generator = self._generator(base)
        is_learned_from = base in self._learned
        if self._seating is not None and base in self._pools:
            # Opponents may need other parts of the observations than the learner's network.
            shared = self._seating.policy(behavior, own)
            return Seat(shared, generator, is_learned_from)
        compact = own.network.compact
        return Seat(own, generator, is_learned_from, compact)

    def begin(self, rows: AllRows, specs: Specs) -> None:
        """The worlds were restarted; who plays is drawn as soon as policies are known."""
        if self._seating is not None:
            self._seating.begin(rows)

    def follow(self, rows: AllRows, specs: Specs, game_scores: GameScores) -> None:
        if self._seating is None:
            return
        self._seating.follow(rows, game_scores)
        if self._seating.waiting:
            self._seating.assign(self._learning_team)
            self._seating.share()

    def take_report(self) -> GameReport | None:
        """The games since the last call; None without self-play."""
        return None if self._seating is None else self._seating.take_report()

    def playing(self) -> dict[str, set[int]]:
        """Base name -> the opponents that play now."""
        if self._seating is None:
            return {}
        return {base: self._seating.playing(base) for base in self._pools}

    def _copied(self, given: Policies, base: str, spec: BehaviorSpec) -> PoolCopy:
        """The part of a pool that plays here; weights of opponents are fetched once."""
        assert self._seating is not None, "a run with pools has games"
        sent = given.pools[base]
        self._seating.replace_absent(base, sent.guests)
        known = self._pools[base].guests if base in self._pools else {}
        guests = {}
        for number in sorted({*sent.drawn, *self._seating.playing(base)}):
            if number in known:
                guests[number] = known[number]
            else:
                guest = self._guest(sent.guests[number], (base, number), spec)
                guests[number] = guest
        return replace(sent, guests=guests)

    def _guest(
        self, sent: SentGuest, place: tuple[str, int], spec: BehaviorSpec
    ) -> Guest:
        if sent.weights is not None:
            weights = self._fetch(sent.weights)
            policy = policy_with(weights)
            take(policy, weights)
            return Guest(policy, sent.name)
        base, number = place
        own_seed = self._seed(base, number)
        actor = load_policy(sent.name, base, spec, seed=own_seed)
        state = self._streams.pop(f"{base}/{number}", None)
        if state is not None:
            actor.generator.bit_generator.state = _plain(state)
        return Guest(actor.policy, sent.name, actor.generator)

    # state

    def state(self) -> Arrays:
        """Streams of random numbers, games, and who plays in them."""
        generators = {b: g.get_state().numpy() for b, g in self._generators.items()}
        arrays: Arrays = prefixed("generators", generators)
        if self._seating is None:
            return arrays
        arrays |= prefixed("seating", self._seating.state())
        arrays["behaviors"] = _as_array(self._seating.behaviors)
        for base, pool in self._pools.items():
            for number, guest in pool.guests.items():
                if guest.generator is not None:
                    stream = guest.generator.bit_generator.state
                    arrays[f"streams/{base}/{number}"] = _as_array(stream)
        return arrays

    def load_state(self, arrays: Arrays) -> None:
        for base, state in below("generators", arrays).items():
            self._generator(base).set_state(torch.tensor(state))
        if self._seating is not None:
            self._streams = below("streams", arrays)
            behaviors = _plain(arrays["behaviors"])
            self._seating.load_state(below("seating", arrays), behaviors)

    def _generator(self, base: str) -> torch.Generator:
        if base not in self._generators:
            self._generators[base] = torch.Generator().manual_seed(self._seed(base))
        return self._generators[base]

    def _seed(self, base: str, *place: int) -> int:
        # Each run, collector, replacement and behavior has streams of its own.
        entropy = [*self._seeds, self._restarts, crc32(base.encode()), *place]
        # Python's `hash` of a text differs from process to process; a checksum does not.
        (seed,) = np.random.SeedSequence(entropy).generate_state(1)
        return int(seed)


def _as_array(values: Any) -> NDArray[np.uint8]:
    # A state is made of arrays alone.
    return np.frombuffer(json.dumps(values).encode(), np.uint8)


def _plain(array: NDArray[np.uint8]) -> Any:
    return json.loads(array.tobytes())
