"""The opponents of one behavior: snapshots of its own policy, and policies from files."""

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from touchline.envs.saved_state import Arrays, below, kept, put_back
from touchline.errors import UsageError
from touchline.policies.loading import load_policy
from touchline.policies.network_policy import NetworkPolicy
from touchline.policies.shared_slots import Guest
from touchline.specs import BehaviorSpec
from touchline.training.self_play.ratings import Ratings
from touchline.training.self_play.settings import SelfPlaySettings

DRAWN = 4
"""Opponents of a pool of the whole run that play at the same time: each costs a forward pass."""
# Share of draws that win rates have no influence on, so that no opponent is forgotten.
_FLOOR = 0.1
# Weight of a game in an opponent's win rate, once another was played against it.
_DECAY = 0.99
LATEST, POOL = "latest", "pool"
_KEPT = ("current", "opponent_steps", "drawn", "_steps", "_tally")
"""Attributes that a resume point holds as they are."""


@dataclass
class Every:
    """Something that is due whenever a count has grown by more than `interval`.

    Counts are looked at once per update or step, and the next interval begins at what was counted
    then, not at the multiple. Source: ML-Agents 1.1.0, `ghost/trainer.py`, `advance`.
    """

    interval: int
    last: int = 0

    def is_due(self, count: int) -> bool:
        """Whether it is time; if so, the next interval begins."""
        if count - self.last <= self.interval:
            return False
        self.last = count
        return True


@dataclass(frozen=True)
class Standing:
    """How one opponent of a pool does."""

    name: str
    rating: float
    error: float
    games: int
    """All that it played, also while it was the latest policy."""
    win_rate: float
    """Share of recent games that the latest policy won against it."""


class Pool:
    """Who one behavior plays against; its players have numbers in the run's ratings.

    `policy` is the one that learns. The player `current` stands for it until the next snapshot, and
    for that snapshot afterwards.
    """

    def __init__(
        self,
        behavior: str,
        spec: BehaviorSpec,
        settings: SelfPlaySettings,
        policy: NetworkPolicy,
        ratings: Ratings,
    ) -> None:
        self.behavior = behavior
        self.settings = settings
        self.opponent_steps = 0
        """Actions of opponents from this pool."""
        self.guests: dict[int, Guest] = {}
        """All opponents that may play: the pool, and those that finish a game."""
        self.drawn: list[int] = []
        """The opponents that enter new games."""
        self.is_done = False
        """Whether the behavior has learned for all of its steps."""
        self._spec = spec
        self._policy = policy
        self._ratings = ratings
        self._save = Every(settings.save_steps)
        self._swap = Every(settings.swap_steps)
        self._turn = Every(settings.turn_steps)
        self._steps = 0
        self._snapshots: dict[int, int] = {}
        """Number of each snapshot in the pool -> the agent steps when it was taken."""
        self._files: dict[int, str] = {}
        self._recent: dict[int, tuple[float, float]] = {}
        """Opponent -> the latest policy's points against it and games, old ones fading."""
        self._tally: dict[str, tuple[float, int]] = {}
        """Kind of opponent -> points and games since the last summary."""

    def begin(self, steps: int) -> None:
        """A new pool: the first snapshot is the policy as it is now, after so many steps."""
        self._steps = self._save.last = self._turn.last = steps
        self.current = self._ratings.add(self.behavior, LATEST)
        self._add_files()
        self._take_snapshot(steps)

    def learned(self, steps: int, *, is_done: bool) -> None:
        """The policy has changed; take a snapshot when it is time."""
        self._steps = steps
        self.is_done = is_done
        since = steps - self._save.last
        self._ratings.learned(self.current, since / self.settings.save_steps)
        if self._save.is_due(steps):
            self._take_snapshot(steps)

    def turn_is_over(self) -> bool:
        """Whether it is time that another team learns; True once each time."""
        return self._turn.is_due(self._steps)

    def swap(self, draws: np.random.Generator) -> None:
        """Draw the opponents of new games when it is time, or when there are none."""
        if not self.drawn or self._swap.is_due(self.opponent_steps):
            self._draw(draws)

    def release(self, playing: Collection[int]) -> None:
        """Forget opponents that are out of the pool and do not finish a game."""
        needed = {*self._snapshots, *self._files, *self.drawn, *playing}
        self.guests = {n: guest for n, guest in self.guests.items() if n in needed}

    def met(self, opponent: int, score: float) -> None:
        """A game of an opponent of this pool; `score` is that of the latest policy it met."""
        points, games = self._recent.get(opponent, (0.0, 0.0))
        # Points and games fade alike, so their ratio stays a rate: of about the last 100 games.
        self._recent[opponent] = (_DECAY * points + score, _DECAY * games + 1)

    def count(self, kind: str, score: float) -> None:
        """A game of this behavior's latest policy, for the next summary."""
        points, games = self._tally.get(kind, (0.0, 0))
        self._tally[kind] = (points + score, games + 1)

    def kind_of(self, opponent: int) -> str:
        """What a player of this pool counts as in summaries: latest, pool, or a file's name."""
        if opponent == self.current:
            return LATEST
        source = self._files.get(opponent)
        if source is None:
            return POOL
        return PurePosixPath(self._label(source)).with_suffix("").as_posix()

    def win_rate(self, opponent: int) -> float:
        """Points per game of the latest policy against an opponent, by its recent games."""
        # 0.5 before any: the mean of a uniform prior.
        points, games = self._recent.get(opponent, (0.0, 0.0))
        return (1 + points) / (2 + games)

    def rating(self) -> tuple[float, float]:
        """The latest policy's, and the standard error of its distance to the first one's."""
        rating, error = self._ratings.fit()
        return float(rating[self.current]), float(error[self.current])

    def metrics(self) -> dict[str, float]:
        """Rating with its standard error, and win rates since the last summary."""
        rating, error = self.rating()
        metrics = {"elo": rating, "elo_error": error}
        for kind, (points, games) in self._tally.items():
            metrics[f"win_rate_{kind}"] = points / games
        self._tally = {}
        return metrics

    def standings(self) -> list[Standing]:
        """All of the pool, the oldest snapshot first, files last."""
        rating, error = self._ratings.fit()
        games = self._ratings.games.sum(axis=1)
        return [
            Standing(
                name=self._ratings.names[number],
                rating=float(rating[number]),
                error=float(error[number]),
                games=round(games[number]),
                win_rate=self.win_rate(number),
            )
            for number in (*self._snapshots, *self._files)
        ]

    def _add_files(self) -> None:
        known = set(self._files.values())
        for source in self._own_sources():
            if source not in known:
                number = self._ratings.add(self.behavior, self._label(source))
                self._files[number] = source
        for number, source in self._files.items():
            if number in self.guests:
                continue
            # Its number as the seed, so that no two opponents draw alike.
            actor = load_policy(source, self.behavior, self._spec, seed=number)
            # A policy without a network (random, ONNX) draws for itself, so its stream belongs
            # to the saved state; networks draw with the learner's generator.
            stream = actor.generator
            if isinstance(actor.policy, NetworkPolicy):
                stream = None
            self.guests[number] = Guest(actor.policy, source, stream)
        if not self.settings.window and not self._files and not self._snapshots:
            raise UsageError(
                f"self_play.versus: no file is for {self.behavior}, and window 0 keeps no "
                f"snapshots; add {self.behavior}=FILE"
            )

    def _label(self, source: str) -> str:
        """The end of a file's path that no other opponent has."""
        others = [Path(o).parts for o in self._own_sources() if o != source]
        others += [(LATEST,), (POOL,)]
        parts = Path(source).parts
        for count in range(1, len(parts) + 1):
            label = parts[-count:]
            if not any(_is_alike(other[-count:], label) for other in others):
                return "/".join(label)
        return source

    def _own_sources(self) -> list[str]:
        sources = []
        for text in self.settings.versus:
            behavior, equals, rest = text.partition("=")
            if not equals or Path(text).exists():
                sources.append(text)
            elif behavior == self.behavior:
                sources.append(rest)
        return sources

    def _take_snapshot(self, steps: int) -> None:
        """Put the policy as it is into the pool; from here on it is a player of its own."""
        number = self.current
        self._ratings.names[number] = f"{self.behavior} {steps:,}"
        # The games played so far belong to the policy as it is now; what learns on is a new
        # player near it.
        self.current = self._ratings.add(self.behavior, LATEST, predecessor=number)
        if not self.settings.window:
            return
        network = copy.deepcopy(self._policy.network)
        self.guests[number] = self._guest(number, network)
        self._snapshots[number] = steps
        numbers = list(self._snapshots)
        most = self.settings.window
        # The oldest go first, unless the pool covers the whole run.
        dropped = list(range(len(numbers) - most))
        if self.settings.pool == "whole_run":
            interval = self.settings.save_steps
            dropped = surplus(list(self._snapshots.values()), most, interval)
        for at in dropped:
            del self._snapshots[numbers[at]]

    def _guest(self, number: int, network: Any) -> Guest:
        policy = NetworkPolicy(network, device=self._policy.device)
        return Guest(policy, self._ratings.names[number])

    def _draw(self, draws: np.random.Generator) -> None:
        numbers = [*self._snapshots, *self._files]
        if self.settings.pool == "latest":
            drawn = int(draws.integers(len(numbers)))
            self.drawn = [numbers[drawn]]
            return
        # Prioritized fictitious self-play, f_hard with p = 2 (Vinyals et al. 2019, Nature 575).
        # Win rates include a prior and stay below 1, so the weights never all vanish.
        weight = np.array([(1.0 - self.win_rate(n)) ** 2 for n in numbers])
        chance = (1 - _FLOOR) * weight / weight.sum() + _FLOOR / len(numbers)
        size = min(DRAWN, len(numbers))
        self.drawn = draws.choice(numbers, size, replace=False, p=chance).tolist()

    # state

    def arrays(self) -> Arrays:
        """The weights of all snapshots that may play."""
        arrays: Arrays = {}
        for number, guest in self.guests.items():
            if number not in self._files:
                weights = guest.policy.network.state_dict()  # type: ignore[attr-defined]
                for name, tensor in weights.items():
                    arrays[f"{number}/{name}"] = tensor.numpy(force=True)
        return arrays

    def counters(self) -> dict[str, Any]:
        """Everything else, as plain values."""
        streams = {
            number: guest.generator.bit_generator.state
            for number, guest in self.guests.items()
            if guest.generator is not None
        }
        return kept(self, _KEPT) | {
            "last": [self._save.last, self._swap.last, self._turn.last],
            "snapshots": list(self._snapshots.items()),
            "files": list(self._files.items()),
            "recent": list(self._recent.items()),
            "streams": list(streams.items()),
        }

    def restore(self, counters: Mapping[str, Any], arrays: Arrays) -> None:
        put_back(self, _KEPT, counters)
        self._save.last, self._swap.last, self._turn.last = counters["last"]
        self._snapshots = dict(counters["snapshots"])
        # A file that the settings no longer name leaves the pool; one that is new is added
        # below.
        named = self._own_sources()
        files = dict(counters["files"])
        self._files = {n: file for n, file in files.items() if file in named}
        self._recent = {n: tuple(games) for n, games in counters["recent"]}
        for number in sorted({int(key.partition("/")[0]) for key in arrays}):
            # The latest network gives the shapes; its weights are replaced at once.
            network = copy.deepcopy(self._policy.network)
            weights = below(str(number), arrays)
            tensors = {n: torch.from_numpy(w.copy()) for n, w in weights.items()}
            network.load_state_dict(tensors)
            self.guests[number] = self._guest(number, network)
        self._add_files()
        # Where the pool held files alone, and they are no longer named.
        if not self._snapshots and not self._files:
            self._take_snapshot(self._steps)
        # Last, because opponents from files are guests only now.
        self.drawn = [number for number in self.drawn if number in self.guests]
        for number, state in counters["streams"]:
            if number in self.guests:
                self.guests[number].generator.bit_generator.state = state


def surplus(steps: Sequence[int], most: int, interval: int) -> list[int]:
    """Positions of the snapshots to drop so that `most` remain, spread over the whole run.

    `steps` are the agent steps of the snapshots, in order; `interval` is what usually lies between
    two. The first and the newest stay. Of the others goes the one whose neighbors are closest in
    the ratio of their ages, so that ages grow about geometrically.
    """
    kept = list(range(len(steps)))
    dropped = []
    while len(kept) > max(most, 1):
        # Counted from one interval ago, so that the newest has an age too.
        age = [steps[-1] - steps[at] + interval for at in kept]
        inner = range(1, len(kept) - 1)
        # With two left there is no inner one: the oldest goes.
        goes = min(inner, key=lambda i: age[i - 1] / age[i + 1], default=0)
        dropped.append(kept.pop(goes))
    return sorted(dropped)


def _is_alike(path: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether both are the same but for the suffix."""
    return Path(*path).with_suffix("") == Path(*other).with_suffix("")
