"""Experience that is learned from again and again: a ring of single actions with their results.

Every action has the observation that truly followed it, also where its episode ended. It also
refers to the agent's next action, so that returns over several actions need no second copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from touchline.envs.saved_state import part_of
from touchline.policies.distributions import CONTINUOUS_LIMIT
from touchline.policies.nets.memory import Sequences
from touchline.specs import BehaviorSpec
from touchline.training.experience.columns import mapped
from touchline.training.experience.trajectories import Trajectories
from touchline.training.experience.transitions import Transitions

Columns = dict[str, NDArray[Any]]
Rewards = Callable[[NDArray[Any]], NDArray[np.float32]]
"""Maps places of actions to their rewards [B, S]."""
_LARGEST = np.float32(255)
NONE = -1
"""Number of an action that does not exist, or is not known yet."""


@dataclass(frozen=True)
class Sample:
    """B actions, and what followed them."""

    obs: tuple[Tensor, ...]
    allowed: Tensor | None
    continuous: Tensor
    """[B, C] in [-1, 1]."""
    discrete: Tensor
    reward: Tensor
    """[B, S] the sum of the rewards up to `next_obs`, discounted."""
    next_obs: tuple[Tensor, ...]
    next_allowed: Tensor | None
    """Everything, where what was allowed next is not known: at ends, and after the newest
    actions."""
    discount: Tensor
    """[B, S] of the value of `next_obs`; 0 where the episode terminated."""
    sequences: Sequences | None = None
    """How the actions fall into pieces of episodes, for policies with a memory."""
    last: Tensor | None = None
    """[B] Of sequences: the action in this batch after which the return of each one ends. Its
    `next_obs` is where the value belongs; there, `next_obs` is what followed the action itself."""

    def __len__(self) -> int:
        return len(self.reward)

    def to(self, device: torch.device) -> Sample:
        return mapped(self, lambda column: column.to(device))


class Replay:
    """The newest `capacity` actions; actions have numbers in order of their arrival.

    With a `sequence_length`, samples consist of pieces of episodes of at most that many actions,
    laid end to end; without one, of single actions.
    """

    def __init__(self, capacity: int, *, sequence_length: int | None = None) -> None:
        self.capacity = capacity
        self.sequence_length = sequence_length
        self.added = 0
        """Actions so far, those included that are gone."""
        self.oldest = 0
        """Number of the first action that is still there."""
        self._columns: Columns = {}
        self._open: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
        """Each slot's agent, and its last action where the next one is not known yet, by team."""

    def __len__(self) -> int:
        return self.added - self.oldest

    def add(
        self, team: str, trajectories: Trajectories, rewards: NDArray[np.float32]
    ) -> None:
        """Keep the actions that have results; `rewards` are [T, N, S]."""
        t, slot = np.nonzero(trajectories.valid)  # in order of time
        number = self.added + np.arange(len(t))
        columns = _columns(trajectories, rewards, t, slot)
        columns["previous"] = self._previous(team, trajectories, t, slot, number)
        # Positions are counted against the actions that were there before, so `added` and
        # `oldest` move only afterwards; `_put` drops what does not fit any more.
        if self.sequence_length is not None:
            position = self._positions(columns["previous"])
            columns["position"] = position % self.sequence_length
        self.added += len(t)
        self.oldest = max(self.oldest, self.added - self.capacity)
        self._put(number, columns)

    def sample(
        self,
        size: int,
        discounts: Sequence[float],
        generator: torch.Generator,
        *,
        return_steps: int = 1,
        ignores_ends: Sequence[bool] | None = None,
        rewards: Rewards | None = None,
    ) -> Sample:
        """Drawn evenly, with replacement; a return ends early where its episode or sequence does.

        Of sequences as many as make `size` actions when they are whole; short ones are not filled
        up.
        `ignores_ends`: for each signal whether its value continues past the end of an episode, and
        `rewards` gives rewards [B, S] other than those added, of the actions at some places.
        """
        rewards_at = self.rewards if rewards is None else rewards
        # In float32: a float64 factor would widen rewards [B, S], which networks take as float32.
        gamma = np.asarray(discounts, np.float32)
        ignored = np.asarray(ignores_ends or [False])
        if self.sequence_length is None:
            first = self.draw(size, generator)
            return self._actions(first, gamma, rewards_at, ignored, return_steps)
        # A sequence is drawn by its first action. One whose first action was overwritten is not
        # drawn any more, although its later actions are still there.
        starts = np.flatnonzero(self._columns["position"] == 0)
        if not len(starts):
            # Many agents may share a replay in which a whole sequence of none of them finds room.
            # What was remembered is stored with every action, so any of them can be the first.
            starts = np.arange(self.oldest, self.added) % self.capacity
        count = max(1, size // self.sequence_length)
        drawn = torch.randint(len(starts), (count,), generator=generator)
        start = starts[drawn.numpy()]
        return self._sequences(start, gamma, rewards_at, ignored, return_steps)

    def _actions(
        self,
        first: NDArray[Any],
        gamma: NDArray[np.float32],
        rewards_at: Rewards,
        ignored: NDArray[np.bool_],
        return_steps: int,
    ) -> Sample:
        """The actions at these places, each with the return that follows it."""
        places, counts = self._chains(first, return_steps)
        rewards = [rewards_at(place) for place in places]
        reward, factor = _discounted(rewards, counts, gamma)
        last = places[-1]
        factor = factor * self._counts_after(last, ignored)
        return self._sample(first, last, reward, factor)

    def _sequences(
        self,
        start: NDArray[Any],
        gamma: NDArray[np.float32],
        rewards_at: Rewards,
        ignored: NDArray[np.bool_],
        return_steps: int,
    ) -> Sample:
        assert self.sequence_length is not None
        places, there = self._chains(start, self.sequence_length)
        is_there = np.stack(there, axis=1)  # [sequences, L]
        length = is_there.sum(axis=1)
        place = np.stack(places, axis=1)[is_there]  # sequence by sequence
        rewards = rewards_at(place)
        end = np.repeat(np.cumsum(length) - 1, length)[:, None]
        ahead = np.arange(len(place))[:, None] + np.arange(return_steps)
        # Past the end any reward will do, because it does not count.
        at = np.minimum(ahead, end)  # [B, return_steps]
        in_turn = [rewards[now] for now in at.T]
        reward, factor = _discounted(in_turn, (ahead <= end).T, gamma)
        last = at[:, -1]
        factor = factor * self._counts_after(place[last], ignored)
        memory = torch.from_numpy(self._columns["memory"][start])
        sample = self._sample(place, place, reward, factor)
        sequences = Sequences(torch.from_numpy(length), memory)
        return replace(sample, sequences=sequences, last=torch.from_numpy(last))

    def _counts_after(
        self, last: NDArray[Any], ignored: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """[B, S] whether the value of what followed counts."""
        # Termination means that nothing follows; a truncated episode keeps its value.
        ends = self._columns["terminated"][last][:, None]
        return np.asarray(~(ends & ~ignored))

    def _sample(
        self,
        place: NDArray[Any],
        last: NDArray[Any],
        reward: NDArray[np.float32],
        discount: NDArray[np.float32],
    ) -> Sample:
        """The actions at these places, with what followed those at `last`."""
        columns = self._columns
        return Sample(
            obs=self._obs("obs", place),
            allowed=self._allowed(place),
            continuous=torch.from_numpy(columns["continuous"][place]),
            discrete=torch.from_numpy(columns["discrete"][place]),
            reward=torch.from_numpy(reward),
            next_obs=self._obs("next_obs", last),
            next_allowed=self._allowed(columns["following"][last]),
            discount=torch.from_numpy(discount),
        )

    def _chains(
        self, start: NDArray[Any], length: int
    ) -> tuple[list[NDArray[Any]], list[NDArray[np.bool_]]]:
        """[B] places of actions, of those after them and so on, and which are there.

        Where an episode has ended or nothing more is known, the last place is repeated.
        """
        following = self._columns["following"]
        places = [start]
        there = [np.ones(len(start), np.bool_)]
        # All at once, one action further in each pass.
        for _ in range(length - 1):
            number = following[places[-1]]
            # Once ended, always ended: no return may start again in a later episode.
            goes_on = there[-1] & (number != NONE)
            next_place = number % self.capacity
            places.append(np.where(goes_on, next_place, places[-1]))
            there.append(goes_on)
        return places, there

    def _positions(self, previous: NDArray[Any]) -> NDArray[Any]:
        """Where in its sequence each of the newest actions is, if these had no end."""
        position = np.zeros(len(previous), np.int64)
        is_new = previous >= self.added
        # An action whose predecessor has gone begins a sequence: its memory is stored like others'.
        # `oldest` is at least 0, so this also leaves out `NONE`.
        is_older = (previous >= self.oldest) & ~is_new
        if is_older.any():
            before = previous[is_older] % self.capacity
            position[is_older] = 1 + self._columns["position"][before]
        before = previous[is_new] - self.added
        # Once for each action that one agent took in these trajectories: an action's position is
        # right as soon as its predecessor's is.
        while (position[is_new] != 1 + position[before]).any():
            position[is_new] = 1 + position[before]
        return position

    def draw(self, size: int, generator: torch.Generator) -> NDArray[np.int_]:
        """Places of actions, drawn evenly, with replacement."""
        # From torch's generator, whose state the learner saves.
        drawn = torch.randint(len(self), (size,), generator=generator).numpy()
        number = self.oldest + drawn
        return np.asarray(number % self.capacity)

    def rewards(self, place: NDArray[Any]) -> NDArray[np.float32]:
        """[B, S] as added, of the actions at these places; a copy."""
        rewards: NDArray[np.float32] = self._columns["reward"][place]
        return rewards

    def transitions(self, place: NDArray[Any]) -> Transitions:
        """The actions at these places, for signals to judge."""
        columns = self._columns
        return Transitions(
            obs=self._obs("obs", place),
            next_obs=self._obs("next_obs", place),
            continuous=torch.from_numpy(columns["continuous"][place]),
            discrete=torch.from_numpy(columns["discrete"][place]),
            terminated=torch.from_numpy(columns["terminated"][place]),
        )

    def state(self) -> dict[str, Tensor]:
        """Everything but the actions themselves, as copies."""
        state = {"added": torch.tensor(self.added), "oldest": torch.tensor(self.oldest)}
        for team, (agents, numbers) in self._open.items():
            state[f"agents.{team}"] = torch.from_numpy(agents.copy())
            state[f"numbers.{team}"] = torch.from_numpy(numbers.copy())
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state` returned, once `load_rows` has brought the actions."""
        self.added = int(state["added"])
        # A resumed run may have a smaller buffer than the one that was saved.
        self.oldest = max(int(state["oldest"]), self.added - self.capacity)
        for team, agents in part_of("agents.", state).items():
            numbers = state[f"numbers.{team}"]
            self._open[team] = agents.numpy().copy(), numbers.numpy().copy()

    def rows(self, first: int, end: int) -> Columns:
        """The actions with these numbers, which must be there; they never change again."""
        place = np.arange(first, end) % self.capacity
        columns = self._columns.items()
        # `following` alone is written later; `_put` makes it again from `previous`.
        return {name: v[place] for name, v in columns if name != "following"}

    def load_rows(self, first: int, columns: Columns) -> None:
        """Put back what `rows` returned, in order of the numbers; missing ones are left out."""
        number = first + np.arange(len(columns["previous"]))
        self._put(number, columns)

    def _put(self, number: NDArray[Any], columns: Columns) -> None:
        """Place actions, and let those before them know what followed."""
        # More actions than the ring holds may come at once; only the newest find room.
        kept = number >= self.oldest
        number = number[kept]
        columns = {
            name: self._fitting(name, values[kept]) for name, values in columns.items()
        }
        columns["following"] = np.full(len(number), NONE)
        if not self._columns:
            self._columns = self._allocated(columns)
        place = number % self.capacity
        for name, values in columns.items():
            self._columns[name][place] = values
        previous = columns["previous"]
        # `oldest` is at least 0, so this also leaves out `NONE`.
        is_there = previous >= self.oldest
        before = previous[is_there] % self.capacity
        self._columns["following"][before] = number[is_there]

    def _fitting(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """These values as their column has them: pictures in bytes as long as all of them fit."""
        if not is_picture(values):
            return values
        column = self._columns.get(name)
        if column is not None and column.dtype != np.uint8:
            return unpacked(values)
        small = packed(values)
        if small is not None:
            return small
        if column is not None:
            self._columns[name] = unpacked(column)
        return values

    def _previous(
        self,
        team: str,
        trajectories: Trajectories,
        t: NDArray[Any],
        slot: NDArray[Any],
        number: NDArray[Any],
    ) -> NDArray[Any]:
        """For each action, the number of the one that the same agent took before."""
        num_steps, num_slots = trajectories.valid.shape
        # By row and slot: the action whose result that row's observation is. What led to the first
        # row that is new was taken in the trajectories before these.
        carried = trajectories.carried
        num_carried = 0 if carried is None else np.count_nonzero(carried)
        before = np.full((num_steps + 1, num_slots), NONE)
        nothing = np.zeros(0, int), np.zeros(0, int)
        agents, numbers = self._open.get(team, nothing)
        # The table may have grown since those trajectories.
        width = min(len(agents), num_slots)
        first = min(num_carried, num_steps - 1)
        is_same = agents[:width] == trajectories.agent_id[first, :width]
        # At the rows before it, only actions happen that were open: theirs is what led to them.
        before[: num_carried + 1, :width] = np.where(is_same, numbers[:width], NONE)
        ended = trajectories.terminated[t, slot] | trajectories.truncated[t, slot]
        row = trajectories.value_row[t, slot]
        # The row after an end shows the slot's next episode, which nothing led to.
        goes_on = ~ended
        before[row[goes_on], slot[goes_on]] = number[goes_on]
        last_agents = trajectories.agent_id[-1].copy()
        self._open[team] = last_agents, _leading(trajectories, before)
        # A slot may also begin an episode without the end of one: it was empty before.
        begins = trajectories.begins[t, slot]
        return np.where(begins, NONE, before[t, slot])

    def _obs(self, kind: str, place: NDArray[Any]) -> tuple[Tensor, ...]:
        # By number: a file lists `obs.10` before `obs.2`.
        numbered = (f"{kind}.{i}" for i in count())
        names = takewhile(self._columns.__contains__, numbered)
        return tuple(
            torch.from_numpy(unpacked(self._columns[name][place])) for name in names
        )

    def _allowed(self, number: NDArray[Any]) -> Tensor | None:
        masks = self._columns.get("allowed")
        if masks is None:
            return None
        # `NONE` reads some other action's mask, which its own True then covers.
        is_unknown = (number == NONE)[:, None]
        found = masks[number % self.capacity] | is_unknown
        return torch.from_numpy(found)

    def _allocated(self, like: Columns) -> Columns:
        """Columns of the full size; the machine gives their memory as they are filled."""
        columns = {
            name: np.zeros((self.capacity, *values.shape[1:]), values.dtype)
            for name, values in like.items()
        }
        # So that no empty place looks like the start of a sequence.
        if "position" in columns:
            columns["position"].fill(NONE)
        return columns


def _leading(trajectories: Trajectories, before: NDArray[Any]) -> NDArray[Any]:
    """[N] what led to each slot's action that is open, or else to the last row."""
    num_steps, num_slots = trajectories.acted.shape
    steps = np.arange(num_steps)[:, None]
    latest = np.where(trajectories.acted, steps, -1).max(axis=0)
    slots = np.arange(num_slots)
    # Where there is none, -1 reads the last row.
    is_open = (latest >= 0) & ~trajectories.valid[latest, slots]
    row = np.where(is_open, latest, num_steps)
    return np.asarray(before[row, slots])


def _discounted(
    rewards: Sequence[NDArray[np.float32]],
    counts: Sequence[NDArray[np.bool_]] | NDArray[np.bool_],
    gamma: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """[B, S] sums of rewards in order, where each counts [B], and the discount of what follows.

    The first of them counts everywhere.
    """
    total = rewards[0]
    factor = np.tile(gamma, (len(total), 1))
    for reward, is_counted in zip(rewards[1:], counts[1:], strict=True):
        counted = is_counted[:, None]
        total = total + counted * factor * reward
        factor = np.where(counted, factor * gamma, factor)
    return total, factor


def row_bytes(
    spec: BehaviorSpec, num_signals: int, memory_shape: Sequence[int] | None
) -> int:
    """Memory that one action takes."""
    actions = spec.action_spec
    shapes = [o.shape for o in spec.observation_specs]
    # Observations are kept before and after the action, pictures in a byte per number.
    pictures = 2 * sum(math.prod(shape) for shape in shapes if len(shape) == 3)
    numbers = 2 * sum(math.prod(shape) for shape in shapes if len(shape) != 3)
    numbers += actions.continuous_size + num_signals
    # `previous`, `following` and the choices are int64.
    links = 8 * (2 + actions.discrete_size)
    if memory_shape is not None:
        numbers += math.prod(memory_shape)
        links += 8
    # Masks take a byte per choice, `terminated` one more.
    return 4 * numbers + pictures + links + actions.mask_size + 1


def _columns(
    trajectories: Trajectories,
    rewards: NDArray[np.float32],
    t: NDArray[Any],
    slot: NDArray[Any],
) -> Columns:
    columns: Columns = {}
    columns |= {f"obs.{i}": part[t, slot] for i, part in enumerate(trajectories.obs)}
    for i, following in enumerate(trajectories.next_obs(t, slot)):
        columns[f"next_obs.{i}"] = following
    if trajectories.action_mask is not None:
        columns["allowed"] = trajectories.action_mask[t, slot]
    raw = trajectories.continuous[t, slot]
    # As worlds take them: critics judge what was done.
    columns["continuous"] = np.clip(raw / CONTINUOUS_LIMIT, -1.0, 1.0)
    columns["discrete"] = trajectories.discrete[t, slot]
    columns["reward"] = rewards[t, slot]
    columns["terminated"] = trajectories.terminated[t, slot]
    if trajectories.memory is not None:
        columns["memory"] = trajectories.memory[t, slot]
    return columns


# pictures in a byte per number instead of four


def is_picture(values: NDArray[Any]) -> bool:
    """Whether these are observations [B, C, H, W]."""
    return values.ndim == 4


def packed(values: NDArray[Any]) -> NDArray[np.uint8] | None:
    """Each 255th as a byte; None where a number is none."""
    # Unity sends pictures as PNG files, whose numbers are whole 255ths.
    if values.dtype == np.uint8:
        return values
    with np.errstate(invalid="ignore"):  # NaN becomes some byte, and differs below
        found = np.rint(values * _LARGEST).astype(np.uint8)
    # Negative and larger numbers wrap around, and differ as well.
    return found if np.array_equal(unpacked(found), values) else None


def unpacked(values: NDArray[Any]) -> NDArray[Any]:
    """The numbers again, with the bits that `touchline.protocol.images` gives them.

    Values of any other type are given back as they are.
    """
    if values.dtype != np.uint8:
        return values
    # Dividing in place: a minibatch of pictures has millions of numbers.
    found = values.astype(np.float32)
    return np.divide(found, _LARGEST, out=found)
