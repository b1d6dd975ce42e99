"""Recording demonstrations: whole episodes of policies, as `.demo` files have them.

Every agent records a fixed number of episodes. "The first N that end" would be the short ones.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import AllRows, SlotRows, Slots
from touchline.errors import RunError, UsageError
from touchline.flag import Flag
from touchline.log import Progress, no_progress
from touchline.policies.actors import SlotActor
from touchline.policies.loading import PolicySource, load_sides, sources_in
from touchline.policies.trained_world import as_trained
from touchline.protocol.demonstrations import SUFFIX, DemoFile, encode_demo
from touchline.specs import ActionTuple, BehaviorSpec, base_name
from touchline.training.evaluation import EndCheck
from touchline.training.quotas import shares
from touchline.whole import write_whole


def record(
    env: str | EnvRecipe,
    policy: PolicySource | Sequence[PolicySource],
    output: Annotated[str | os.PathLike[str], Flag(metavar="FILE.demo", short="-o")],
    *,
    episodes: Annotated[int, Flag(min=1)] = 20,
    min_return: Annotated[float, Flag(metavar="FLOAT")] = -math.inf,
    deterministic: bool = False,
    seed: int = 0,
    progress: Progress = no_progress,
) -> list[Path]:
    """Record a policy's episodes as a demonstration that ML-Agents and Unity load.

    Parameters
    ----------
    output
        The demonstration to write.
    episodes
        Complete episodes of each behavior, shared evenly among its agents.
    min_return
        Leave out episodes that return less. Default: keep all.
    progress
        Called after every step with the episodes that are done, and their total.

    Returns
    -------
    list
        The files: one for each full behavior name, with the name behind that of `output` where
        there are several.

    Raises
    ------
    UsageError
        The world cannot be opened, a policy cannot be loaded or does not fit, or the name does not
        end in `.demo`.
    RunError
        No episode ends, none returns `min_return`, or a player failed.
    """
    path = Path(output)
    check_name(path)
    sources = sources_in(policy)
    recipe = as_trained(replace(EnvRecipe.parse(env), seed=seed), sources)
    with make(recipe) as world:
        slots = Slots(world)
        slots.reset(seed)
        actors = load_sides(
            sources, (), slots, recipe.target, deterministic=deterministic, seed=seed
        )
        files = record_episodes(
            slots, actors, episodes, seed, progress, min_return=min_return
        )
    return write_demos(files, path)


def record_episodes(
    slots: Slots,
    actors: Mapping[str, SlotActor],
    episodes: int,
    seed: int,
    progress: Progress = no_progress,
    *,
    min_return: float = -math.inf,
) -> dict[str, DemoFile]:
    """Full behavior name -> `episodes` whole episodes of it, one agent's after another's.

    Episodes whose return (rewards of the agent and of its group while it was there) is below
    `min_return` are played, and then left out.

    Each record has the observation of a decision, and the action and the reward of the decision
    before, as current Unity packages write them. Raises a RunError when no episode ever ends, or
    none of a behavior returns `min_return`.
    """
    rows = slots.reset(seed)
    recorders: dict[str, EpisodeRecorder] = {}
    _add_recorders(recorders, slots, rows, episodes)
    check_end = EndCheck()
    while left := sum(recorder.left for recorder in recorders.values()):
        actions = {name: actors[name].act(row) for name, row in rows.items()}
        for name, recorder in recorders.items():
            recorder.decide(rows[name], actions[name])
        rows = slots.step(actions)
        for name, recorder in recorders.items():
            recorder.end(rows[name])
        _add_recorders(recorders, slots, rows, episodes)
        check_end(left, rows)
        total = episodes * len(recorders)
        progress(total - left, total)
    return {name: recorder.file(min_return) for name, recorder in recorders.items()}


def _add_recorders(
    recorders: dict[str, EpisodeRecorder], slots: Slots, rows: AllRows, episodes: int
) -> None:
    # One for each behavior that has none; a world may show another at any time.
    for name, row in rows.items():
        if name not in recorders:
            spec = slots.behaviors[name]
            recorders[name] = EpisodeRecorder(name, spec, row, episodes)


def write_demos(files: Mapping[str, DemoFile], path: Path) -> list[Path]:
    """Write each behavior's episodes to `path`, or to `path` with its name where there are several.

    Returns the paths. Raises a UsageError for a file name with another ending.
    """
    check_name(path)
    written = []
    for name, file in files.items():
        one = path
        if len(files) > 1:
            team = name.replace("?team=", "-")  # Windows allows no question mark
            one = path.with_name(f"{path.stem}-{team}{SUFFIX}")
        try:
            write_whole(one, encode_demo(file))
        except OSError as error:
            raise UsageError(f"{one}: cannot be written: {error.strerror}") from error
        written.append(one)
    return written


def check_name(path: Path) -> None:
    """Raise a UsageError for a file name with another ending."""
    if path.suffix != SUFFIX:
        raise UsageError(f"{path}: expected a file name that ends in {SUFFIX}")


@dataclass
class _Records:
    """Columns of records in the order in which they came."""

    slot: list[NDArray[Any]] = field(default_factory=list)
    obs: list[tuple[NDArray[Any], ...]] = field(default_factory=list)
    allowed: list[NDArray[np.bool_]] = field(default_factory=list)
    continuous: list[NDArray[np.float32]] = field(default_factory=list)
    discrete: list[NDArray[np.int32]] = field(default_factory=list)
    rewards: list[NDArray[np.float32]] = field(default_factory=list)
    group_id: list[NDArray[np.int32]] = field(default_factory=list)
    flags: list[NDArray[np.bool_]] = field(default_factory=list)
    """[K, 3]: the record begins an episode, ends one, ends one by interruption."""


class EpisodeRecorder:
    """The records of one behavior."""

    def __init__(
        self, name: str, spec: BehaviorSpec, rows: SlotRows, episodes: int
    ) -> None:
        if spec.action_spec.staged:
            raise UsageError(
                f"{name}: a demonstration cannot hold actions whose later branches depend on the "
                "first"
            )
        self._name = name
        self._spec = spec
        has_agent = rows.agent_id >= 0
        if not has_agent.any():
            raise RunError(f"{name}: no agent to record is there at the start")
        self._left = np.zeros(len(rows), np.int64)
        self._left[has_agent] = shares(episodes, int(has_agent.sum()))
        self._group_of = rows.group_id.copy()
        self._records = _Records()

    @property
    def left(self) -> int:
        """Episodes that are still to be played."""
        return int(self._left.sum())

    def decide(self, rows: SlotRows, actions: ActionTuple) -> None:
        """Keep what the deciding slots observe, and what they do now."""
        self._widen(len(rows))
        self._group_of = np.where(rows.begins, rows.group_id, self._group_of)
        has_quota = self._left > 0
        slot = np.flatnonzero(rows.deciding & has_quota)
        begins = rows.begins[slot]
        records = self._records
        # Where an episode begins, the row's reward belongs to the end of the one before.
        rewards = np.where(begins[:, None], 0.0, rows.rewards[slot])
        records.slot.append(slot)
        records.obs.append(tuple(obs[slot] for obs in rows.obs))
        if rows.action_mask is not None:
            records.allowed.append(rows.action_mask[slot])
        records.continuous.append(actions.continuous[slot])
        records.discrete.append(actions.discrete[slot])
        records.rewards.append(rewards.astype(np.float32))
        records.group_id.append(self._group_of[slot])
        no = np.zeros_like(begins)
        records.flags.append(np.stack([begins, no, no], axis=1))

    def end(self, rows: SlotRows) -> None:
        """Keep the ends of episodes with their true last observations."""
        self._widen(len(rows))
        has_quota = self._left[rows.final_slot] > 0
        counted = np.flatnonzero(has_quota)
        if not len(counted):
            return
        slot = rows.final_slot[counted].astype(np.intp)
        empty = self._spec.action_spec.empty_action(len(slot))
        records = self._records
        records.slot.append(slot)
        records.obs.append(tuple(obs[counted] for obs in rows.final_obs))
        if rows.action_mask is not None:
            # Nothing is chosen at an end, so nothing is forbidden.
            shape = (len(slot), rows.action_mask.shape[1])
            records.allowed.append(np.ones(shape, bool))
        records.continuous.append(empty.continuous)
        records.discrete.append(empty.discrete)
        records.rewards.append(rows.rewards[slot])
        records.group_id.append(self._group_of[slot])
        yes = np.ones(len(slot), bool)
        interrupted = rows.truncated[slot]
        records.flags.append(np.stack([~yes, yes, interrupted], axis=1))
        self._left[slot] -= 1

    def file(self, min_return: float = -math.inf) -> DemoFile:
        """The episodes that returned enough; each action moves to the record after it."""
        records = self._records
        slot = np.concatenate(records.slot)
        # Slot by slot; stable, so that each slot's records stay in order of time.
        order = np.argsort(slot, kind="stable")
        order = order[self._has_returned(min_return, order)]

        def column(parts: list[Any]) -> Any:
            return np.concatenate(parts)[order]

        begins, done, interrupted = column(records.flags).T
        # A record holds the action before it; what rolls into an episode's first one belongs to
        # another episode.
        continuous = np.roll(column(records.continuous), 1, axis=0)
        continuous[begins] = 0.0
        discrete = np.roll(column(records.discrete), 1, axis=0)
        discrete[begins] = 0
        rewards = column(records.rewards)
        has_masks = bool(records.allowed)
        by_sensor = zip(*records.obs, strict=True)
        # An id for each episode, so that readers keep the episodes of all slots apart.
        episode = np.cumsum(begins) - 1
        return DemoFile(
            behavior=self._name,
            spec=self._spec,
            obs=[column(list(sensor)) for sensor in by_sensor],
            forbidden=~column(records.allowed) if has_masks else None,
            actions=ActionTuple(continuous, discrete),
            reward=rewards[:, 0],
            group_reward=rewards[:, 1],
            done=done,
            interrupted=interrupted,
            agent_id=episode.astype(np.int32),
            group_id=np.maximum(column(records.group_id), 0),
            has_current_actions=True,
            name=base_name(self._name),
        )

    def _has_returned(self, least: float, order: NDArray[np.intp]) -> NDArray[np.bool_]:
        """[K]: the record, in this order, is of an episode whose return is `least` or more."""
        records = self._records
        begins = np.concatenate(records.flags)[order, 0]
        rewards = np.concatenate(records.rewards)[order].sum(axis=1)
        episode = np.cumsum(begins) - 1
        returns = np.bincount(episode, weights=rewards)
        enough = returns >= least - 1e-6  # rewards are sums of float32
        if not enough.any():
            raise RunError(
                f"{self._name}: none of the {len(returns)} episodes returned {least:g} or more; "
                f"the best returned {returns.max():.3f}"
            )
        return np.asarray(enough[episode])

    def _widen(self, size: int) -> None:
        # Slots that the world has added record nothing.
        extra = size - len(self._left)
        if extra > 0:
            self._left = np.append(self._left, np.zeros(extra, self._left.dtype))
            self._group_of = np.append(self._group_of, np.zeros(extra, np.int32))
