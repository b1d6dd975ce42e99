"""Recording demonstrations: whole episodes of policies, as `.demo` files have them.

Every agent records a fixed number of episodes. "The first N that end" would be the short ones.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import AllRows, SlotRows, Slots, widened
from touchline.errors import RunError, UsageError
from touchline.flag import Flag
from touchline.log import Progress, no_progress
from touchline.policies.loading import PolicySource, as_trained, load_sides, sources_in
from touchline.policies.policy import SlotActor
from touchline.protocol.demonstrations import (
    SUFFIX,
    DemoFile,
    encode_demo,
    parts_of,
)
from touchline.specs import ActionTuple, BehaviorSpec, base_name
from touchline.training.evaluation import EndCheck, check_episodes, moved_slots
from touchline.training.quotas import shares
from touchline.whole import require_writable, write_whole


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
        there are several, and numbers where more than 500,000 records need several files.

    Raises
    ------
    UsageError
        The world cannot be opened, a policy cannot be loaded or does not fit, or the file cannot be
        written or does not end in `.demo`.
    RunError
        No episode ends, none returns `min_return`, or a player failed.
    """
    check_episodes(episodes)
    if math.isnan(min_return):
        raise UsageError("--min-return: expected a number, got nan")
    path = Path(output)
    check_name(path)
    require_writable(path)
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
    check_end = EndCheck(slots.most_decisions)
    is_first = True
    while left := sum(_left(recorders, rows, episodes)):
        before = rows
        actions = {name: actors[name].act(row) for name, row in rows.items()}
        rows = slots.step(actions)
        moved = moved_slots(rows) if is_first else {}
        is_first = False
        for name, recorder in recorders.items():
            recorder.decide(before[name], actions[name], moved.get(name))
            recorder.end(rows[name], moved.get(name))
        _add_recorders(recorders, slots, rows, episodes)
        check_end(left, rows)
        total = episodes * len(_left(recorders, rows, episodes))
        progress(total - left, total)
    return {name: recorder.file(min_return) for name, recorder in recorders.items()}


def _left(
    recorders: Mapping[str, EpisodeRecorder], rows: AllRows, episodes: int
) -> list[int]:
    """Episodes that each behavior still has to play, all of them before its first agent comes."""
    return [
        recorders[name].left if name in recorders else episodes
        for name, row in rows.items()
        if len(row)
    ]


def _add_recorders(
    recorders: dict[str, EpisodeRecorder], slots: Slots, rows: AllRows, episodes: int
) -> None:
    # One for each behavior that has none; the agents of some come later than others.
    for name, row in rows.items():
        if name not in recorders and (row.agent_id >= 0).any():
            spec = slots.behaviors[name]
            recorders[name] = EpisodeRecorder(name, spec, row, episodes)


def write_demos(files: Mapping[str, DemoFile], path: Path) -> list[Path]:
    """Write each behavior's episodes to `path`, or to `path` with its name where there are several;
    more than a file can hold to several with numbers.

    Returns the paths. Raises a UsageError for a file name with another ending.
    """
    check_name(path)
    written = []
    for name, file in files.items():
        one = path
        if len(files) > 1:
            team = name.replace("?team=", "-")  # Windows allows no question mark
            one = path.with_name(f"{path.stem}-{team}{SUFFIX}")
        parts = parts_of(file)
        for number, part in enumerate(parts, 1):
            target = one
            if len(parts) > 1:
                target = one.with_name(f"{one.stem}-{number}{SUFFIX}")
            try:
                write_whole(target, encode_demo(part))
            except OSError as error:
                raise UsageError(
                    f"{target}: cannot be written: {error.strerror}"
                ) from error
            written.append(target)
    return written


def check_name(path: Path) -> None:
    """Raise a UsageError for a file name with another ending."""
    if path.suffix != SUFFIX:
        raise UsageError(f"{path}: expected a file name that ends in {SUFFIX}")


class _Records(NamedTuple):
    """K records, as columns, in the order in which they came."""

    slot: NDArray[Any]
    obs: tuple[NDArray[Any], ...]
    allowed: NDArray[np.bool_] | None
    continuous: NDArray[np.float32]
    discrete: NDArray[np.int32]
    rewards: NDArray[np.float32]
    group_id: NDArray[np.int32]
    flags: NDArray[np.bool_]
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
        self._left = np.zeros(len(rows), np.int64)
        self._left[has_agent] = shares(episodes, int(has_agent.sum()))
        self._group_of = rows.group_id.copy()
        self._records: list[_Records] = []

    @property
    def left(self) -> int:
        """Episodes that are still to be played."""
        return int(self._left.sum())

    def decide(
        self,
        rows: SlotRows,
        actions: ActionTuple,
        moved: NDArray[np.bool_] | None = None,
    ) -> None:
        """Keep what the deciding slots observe, and what they do now.

        `moved` are slots whose agent only changes its behavior with this step.
        """
        self._widen(len(rows))
        self._group_of = np.where(rows.begins, rows.group_id, self._group_of)
        has_quota = self._left > 0
        slot = np.flatnonzero(rows.deciding & has_quota)
        if moved is not None:
            slot = slot[~moved[slot]]
        begins = rows.begins[slot]
        # Where an episode begins, the row's reward belongs to the end of the one before.
        rewards = np.where(begins[:, None], 0.0, _both_rewards(rows, slot))
        mask, no = rows.action_mask, np.zeros_like(begins)
        records = _Records(
            slot=slot,
            obs=tuple(obs[slot] for obs in rows.obs),
            allowed=None if mask is None else mask[slot],
            continuous=actions.continuous[slot],
            discrete=actions.discrete[slot],
            rewards=rewards.astype(np.float32),
            group_id=self._group_of[slot],
            flags=np.stack([begins, no, no], axis=1),
        )
        self._records.append(records)

    def end(self, rows: SlotRows, moved: NDArray[np.bool_] | None = None) -> None:
        """Keep the ends of episodes with their true last observations, but none of `moved`."""
        self._widen(len(rows))
        has_quota = self._left[rows.final_slot] > 0
        if moved is not None:
            has_quota &= ~moved[rows.final_slot]
        counted = np.flatnonzero(has_quota)
        if not len(counted):
            return
        slot = rows.final_slot[counted].astype(np.intp)
        empty = self._spec.action_spec.empty_action(len(slot))
        mask, yes = rows.action_mask, np.ones(len(slot), bool)
        records = _Records(
            slot=slot,
            obs=tuple(obs[counted] for obs in rows.final_obs),
            # Nothing is chosen at an end, so nothing is forbidden.
            allowed=None if mask is None else np.ones_like(mask[slot]),
            continuous=empty.continuous,
            discrete=empty.discrete,
            rewards=_both_rewards(rows, slot),
            group_id=self._group_of[slot],
            flags=np.stack([~yes, yes, rows.truncated[slot]], axis=1),
        )
        self._records.append(records)
        self._left[slot] -= 1

    def file(self, min_return: float = -math.inf) -> DemoFile:
        """The episodes that returned enough; each action moves to the record after it."""
        columns = _Records(*zip(*self._records, strict=True))
        # Slot by slot; stable, so that each slot's records stay in order of time.
        order = np.argsort(np.concatenate(columns.slot), kind="stable")

        def column(parts: Any) -> Any:
            return np.concatenate(parts)[order]

        episode = np.cumsum(column(columns.flags)[:, 0]) - 1
        returns = np.bincount(episode, weights=column(columns.rewards).sum(axis=1))
        is_kept = returns >= min_return - 1e-6  # rewards are sums of float32
        if not is_kept.any():
            raise RunError(
                f"{self._name}: none of the {len(returns)} episodes returned {min_return:g} or "
                f"more; the best returned {returns.max():.3f}"
            )
        order = order[is_kept[episode]]
        begins, done, interrupted = column(columns.flags).T
        # A record holds the action before it; what rolls into an episode's first one belongs to
        # another episode.
        continuous = np.roll(column(columns.continuous), 1, axis=0)
        continuous[begins] = 0.0
        discrete = np.roll(column(columns.discrete), 1, axis=0)
        discrete[begins] = 0
        rewards = column(columns.rewards)
        has_masks = self._records[0].allowed is not None
        by_sensor = zip(*columns.obs, strict=True)
        # An id for each episode, so that readers keep the episodes of all slots apart.
        episode = np.cumsum(begins) - 1
        return DemoFile(
            behavior=self._name,
            spec=self._spec,
            obs=[column(list(sensor)) for sensor in by_sensor],
            forbidden=~column(columns.allowed) if has_masks else None,
            actions=ActionTuple(continuous, discrete),
            reward=rewards[:, 0],
            group_reward=rewards[:, 1],
            done=done,
            interrupted=interrupted,
            agent_id=episode.astype(np.int32),
            group_id=np.maximum(column(columns.group_id), 0),
            has_current_actions=True,
            name=base_name(self._name),
        )

    def _widen(self, size: int) -> None:
        # Slots that the world has added record nothing.
        self._left = widened(self._left, size)
        self._group_of = widened(self._group_of, size)


def _both_rewards(rows: SlotRows, slot: NDArray[np.intp]) -> NDArray[np.float32]:
    """[K, 2] own and group rewards of these slots."""
    return np.stack([rows.reward[slot], rows.group_reward[slot]], axis=1)
