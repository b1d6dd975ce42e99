"""What a policy meets in a world, one row of sums for each independent unit.

A unit is an episode of an agent without a group, or a game of a group with the episodes of all its
members: steps within one depend on each other, units do not. Every agent (group) plays a fixed
number of episodes (games), as in `training.evaluation`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from touchline.envs.slots import SlotRows, Slots
from touchline.log import Progress, no_progress
from touchline.policies.policy import SlotActor
from touchline.specs import BehaviorSpec, ObservationSpec
from touchline.training.evaluation import EndCheck
from touchline.training.quotas import Ended, Quotas

EPISODES, INTERRUPTED, DECISIONS, LENGTH, RETURN, GAMES, GROUP_RETURN = range(7)
"""The first columns of a unit; the sums of all observations follow, then those of their squares."""
FIRST_OBS = 7

Sums = Float[np.ndarray, " W"]
"""One unit's columns."""


@dataclass(frozen=True)
class Units:
    """The G units of one behavior, with O numbers per observation."""

    sums: Float[np.ndarray, "G W"]
    """Columns as above, then O sums of observations, then O sums of their squares."""

    @property
    def obs_sums(self) -> Float[np.ndarray, "G O"]:
        return self.sums[:, FIRST_OBS : FIRST_OBS + self.num_obs]

    @property
    def obs_squares(self) -> Float[np.ndarray, "G O"]:
        return self.sums[:, FIRST_OBS + self.num_obs :]

    @property
    def num_obs(self) -> int:
        width: int = self.sums.shape[1]
        return (width - FIRST_OBS) // 2

    def __len__(self) -> int:
        return len(self.sums)


def observation_names(spec: BehaviorSpec) -> list[str]:
    """A name for each number that `flat_observations` gives: `sensor[index]`."""
    names = []
    for number, sensor in enumerate(spec.observation_specs):
        own = sensor.name or f"observation {number}"
        names += [f"{own}[{k}]" for k in range(flat_size(sensor))]
    return names


def flat_size(sensor: ObservationSpec) -> int:
    """How many numbers `flat_observations` gives for a sensor."""
    is_image = len(sensor.shape) == 3
    return sensor.shape[0] if is_image else sensor.shape[-1]


def flat_observations(
    rows: SlotRows, slots: NDArray[np.intp]
) -> Float[np.ndarray, "K O"]:
    """All sensors of K slots side by side.

    An image [C, H, W] counts as the means of its channels, a list of entities [L, F] as the means
    of their features.
    """
    parts = []
    for obs in rows.obs:
        # Sums of squares lose too many digits in float32.
        own = obs[slots].astype(np.float64)
        if own.ndim == 4:
            own = own.mean(axis=(2, 3))
        elif own.ndim == 3:
            own = own.mean(axis=1)
        parts.append(own)
    return np.concatenate(parts, axis=1)


def play_units(
    slots: Slots,
    actors: Mapping[str, SlotActor],
    episodes: int,
    seed: int,
    progress: Progress = no_progress,
) -> dict[str, Units]:
    """Play until every agent and group has had its share of `episodes`; full name -> units.

    Behaviors that appear later are played, too. Raises a RunError when no episode ever ends.
    """
    rows = slots.reset(seed)
    tallies = {name: _Tally(rows[name], episodes) for name in rows}
    total = sum(tally.quotas.left for tally in tallies.values())
    check_end = EndCheck(slots.most_decisions)
    while left := sum(tally.quotas.left for tally in tallies.values()):
        actions = {name: actors[name].act(row) for name, row in rows.items()}
        rows = slots.step(actions)
        for name, tally in tallies.items():
            tally.add(rows[name])
        for name in rows:
            if name not in tallies:
                tallies[name] = _Tally(rows[name], episodes)
                total += tallies[name].quotas.left
        check_end(left, rows)
        progress(total - left, total)
    return {name: Units(np.array(tally.units)) for name, tally in tallies.items()}


class _Tally:
    """Follows the slots of one behavior and sums what belongs to the quota of each unit."""

    def __init__(self, rows: SlotRows, episodes: int) -> None:
        self.units: list[Sums] = []
        self.quotas = Quotas(rows, episodes)
        no_slots = np.arange(0)
        num_obs = flat_observations(rows, no_slots).shape[1]
        width = FIRST_OBS + 2 * num_obs
        self._open_sums = np.zeros((len(rows), width))
        """Sums over each slot's open episode."""
        self._game_sums = {group: np.zeros(width) for group in self.quotas.groups}
        """Sums over the episodes that have ended in each group's current game."""
        self._observe(rows)

    def add(self, rows: SlotRows) -> None:
        self._widen(len(rows))
        # Results first: they belong to the actions before this step's observations.
        sums = self._open_sums
        sums[:, RETURN] += rows.reward
        sums[:, GROUP_RETURN] += rows.group_reward
        sums[:, LENGTH] += rows.closed
        ended = np.flatnonzero(rows.terminated | rows.truncated)
        if len(ended):
            sums[ended, EPISODES] = 1
            sums[ended, INTERRUPTED] = rows.truncated[ended]
            # Episodes of agents without a group are units by themselves.
            for slot in self.quotas.end_lone(ended):
                self.units.append(_as_unit(sums[slot], longest=sums[slot]))
            for found in self.quotas.end_members(ended):
                self._finish_members(found)
            sums[ended] = 0
        self.quotas.begin(rows)
        self._observe(rows)

    def _observe(self, rows: SlotRows) -> None:
        slots = np.flatnonzero(rows.deciding)
        obs = flat_observations(rows, slots)
        middle = FIRST_OBS + obs.shape[1]
        self._open_sums[slots, DECISIONS] += 1
        self._open_sums[slots, FIRST_OBS:middle] += obs
        self._open_sums[slots, middle:] += obs * obs

    def _finish_members(self, ended: Ended) -> None:
        """Add members' episodes to their game; one that is over becomes a unit."""
        game = self._game_sums[ended.group]
        game += self._open_sums[ended.members].sum(axis=0)
        if ended.is_over:
            # The member that stayed longest was there for all that the group earned.
            longest = np.argmax(self._open_sums[ended.members, LENGTH])
            last = self._open_sums[ended.members[longest]]
            self.units.append(_as_unit(game, last))
            game[:] = 0

    def _widen(self, size: int) -> None:
        self.quotas.widen(size)
        extra = max(0, size - len(self._open_sums))
        more = np.zeros((extra, self._open_sums.shape[1]))
        self._open_sums = np.concatenate([self._open_sums, more])


def _as_unit(sums: Sums, longest: Sums) -> Sums:
    """A copy of the sums of one episode or game."""
    # Every member of a group counts the group's reward: the longest episode's count stands for all.
    unit = sums.copy()
    unit[GAMES] = 1
    unit[GROUP_RETURN] = longest[GROUP_RETURN]
    return unit
