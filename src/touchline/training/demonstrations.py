"""Demonstrations: each observation with the action that followed it, and what that action earned.

A record of a `.demo` file is written when a decision is requested. Packages since 1.0 write it
before the new action exists, so a record holds the action of the record *before*; older recorders
wrote the action that was taken for the record's own observation. mlagents 1.1.0 reads all files as
the old ones (`demo_loader.py`), and so pairs the observations of a current file with the actions of
a step earlier. Here the pairing is chosen by the traits that tell the two kinds of file apart
(`pairing_of`). The end of an episode is a record too: it has a result, but no action of its own.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from touchline.envs.slots.table import channels_first, is_channels_last
from touchline.errors import UsageError
from touchline.policies.policy import is_fit
from touchline.protocol.demonstrations import SUFFIX, DemoFile, read_demo
from touchline.protocol.recording import describe_behaviors
from touchline.specs import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    base_name,
    describe_actions,
    describe_spec,
)

Pairing = Literal["same", "next"]
"""Which record holds an observation's action."""


@dataclass(frozen=True)
class Demonstration:
    """M actions of one behavior as they were recorded, from one file or from several.

    Episodes follow one another and never cross a file. `seen` holds every record, so the
    observation of action m is record `row[m]`, and what the action led to is the record after it.
    """

    behavior: str
    spec: BehaviorSpec
    """As learners have it: images CHW."""
    seen: list[NDArray[np.float32]]
    """[R, *shape] per sensor: the observations of all records, ends of episodes among them."""
    row: NDArray[np.intp]
    """[M] the record that each action belongs to; `row + 1` is the record that it led to."""
    actions: ActionTuple
    """[M, ...] as they were sent: continuous ones in [-1, 1]."""
    allowed: NDArray[np.bool_] | None
    """[M, choices] True = allowed; None without discrete branches. The chosen ones always are."""
    reward: NDArray[np.float32]
    """[M] own reward of each action."""
    group_reward: NDArray[np.float32]
    """[M] the group's reward of each action."""
    terminated: NDArray[np.bool_]
    """[M] whether the action ended its episode."""
    truncated: NDArray[np.bool_]
    """[M] whether the episode was cut short after the action, or the recording ended."""
    finished: NDArray[np.bool_]
    """[E] whether each episode has its end on record."""
    episode: NDArray[np.intp]
    """[M] the number of each action's episode, from 0 to E - 1, never falling."""
    lines: tuple[str, ...]
    """One line for each file: what it holds, and which record's action was taken, and why."""

    def __len__(self) -> int:
        return len(self.row)

    @property
    def num_episodes(self) -> int:
        return len(self.finished)

    @cached_property
    def obs(self) -> list[NDArray[np.float32]]:
        """[M, *shape] per sensor: what the agent observed when it chose each action."""
        return [sensor[self.row] for sensor in self.seen]

    def next_obs(self) -> list[NDArray[np.float32]]:
        """[M, *shape] per sensor, copied at each call: what each action led to."""
        # At the end of an episode this is the record of the end. Packages 1.x write zeros there,
        # and older ones the first observation of the next episode.
        return [sensor[self.row + 1] for sensor in self.seen]

    def pictures(self) -> list[NDArray[np.float32]]:
        """[M, channels, height, width] of each camera: what it saw at each action, in [0, 1]."""
        # Grids have the same shapes, so the names that Unity gives cameras distinguish them.
        sensors = zip(self.spec.observation_specs, self.obs, strict=True)
        return [
            seen
            for sensor, seen in sensors
            if len(sensor.shape) == 3
            and any(kind in sensor.name for kind in ("Camera", "RenderTexture"))
        ]

    @cached_property
    def returns(self) -> NDArray[np.float64]:
        """[E] the sum of own and group rewards of each episode, unfinished ones too."""
        reward = self.reward.astype(np.float64) + self.group_reward
        returns = np.zeros(self.num_episodes)
        np.add.at(returns, self.episode, reward)
        return returns

    @cached_property
    def lengths(self) -> NDArray[np.intp]:
        """[E] the number of actions of each episode."""
        return np.bincount(self.episode)

    def figures(self) -> dict[str, Any]:
        """What it holds, as plain values for JSON; returns are those of the episodes that ended,
        or of all where none did.
        """
        counted = self.finished if self.finished.any() else ~self.finished
        returns = self.returns[counted]
        branches = self.spec.action_spec.discrete_branches
        shares = []
        for chosen, size in zip(self.actions.discrete.T, branches, strict=True):
            counts = np.bincount(chosen, minlength=size)
            shares.append((counts / len(self)).tolist())
        return {
            "behavior": self.behavior,
            **describe_behaviors({self.behavior: self.spec})[self.behavior],
            "actions": len(self),
            "episodes": self.num_episodes,
            "finished": int(self.finished.sum()),
            "mean_return": float(returns.mean()),
            "std_return": float(returns.std()),
            "mean_length": float(self.lengths[counted].mean()),
            "returns": self.returns.tolist(),
            "lengths": self.lengths.tolist(),
            "continuous_actions": _spread(self.actions.continuous),
            "discrete_actions": shares,
            "files": list(self.lines),
        }


def _spread(values: NDArray[np.float32]) -> list[dict[str, float]]:
    return [
        {
            "mean": float(column.mean()),
            "std": float(column.std()),
            "min": float(column.min()),
            "max": float(column.max()),
        }
        for column in values.T
    ]


def inspect_demonstration(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a `.demo` file, or a folder of them, holds: spec, episodes, returns, statistics of the
    actions, and one line for each file, as plain values for JSON.

    Raises a UsageError that names the file.
    """
    return read_demonstration(os.fspath(path)).figures()


def describe_demonstration(figures: Mapping[str, Any]) -> Iterator[str]:
    """`Demonstration.figures` as lines for people."""
    yield from figures["files"]
    name = figures["behavior"]
    action = ActionSpec(figures["continuous"], tuple(figures["branches"]))
    yield f"{name}: {describe_actions(action)}"
    for sensor in figures["observations"]:
        yield f"  {sensor['name'] or 'unnamed'} {sensor['shape']}"
    yield (
        f"  {figures['episodes']} episodes, {figures['finished']} with an end: return "
        f"{figures['mean_return']:.3f} (standard deviation {figures['std_return']:.3f}), "
        f"{figures['mean_length']:.1f} actions long"
    )
    for number, of_action in enumerate(figures["continuous_actions"]):
        yield (
            f"  continuous action {number}: mean {of_action['mean']:.3f}, standard deviation "
            f"{of_action['std']:.3f}, {of_action['min']:.3f} to {of_action['max']:.3f}"
        )
    for number, shares in enumerate(figures["discrete_actions"]):
        shown = ", ".join(f"{100 * share:.0f} %" for share in shares[:16])
        more = ", ..." if len(shares) > 16 else ""
        yield f"  branch {number}: chosen {shown}{more}"


def read_demonstration(
    path: str | Path,
    spec: BehaviorSpec | None = None,
    *,
    behavior: str = "",
    pairing: Pairing | None = None,
) -> Demonstration:
    """The demonstration in a file, or in all `.demo` files of a folder, by name.

    With a `spec`, as learners have it, the files must fit it; `behavior` names it in errors.
    `pairing` overrides which record holds an observation's action.

    Raises a UsageError of one line that names the file.
    """
    files = demo_files(path)
    parts = [_paired(file, read_demo(file), pairing) for file in files]
    expected = parts[0].spec if spec is None else spec
    name = behavior or f"the behavior in {files[0]}"
    for file, part in zip(files, parts, strict=True):
        if not is_fit(part.spec, expected):
            raise UsageError(
                f"{file}: recorded in another game: {part.behavior} has "
                f"{describe_spec(part.spec)}, {name} has {describe_spec(expected)}"
            )
    return parts[0] if len(parts) == 1 else _joined(parts)


def demo_files(path: str | Path) -> list[Path]:
    """A file itself, or the demonstrations in a folder, by name.

    Raises a UsageError where there are none.
    """
    found = Path(path)
    if found.is_dir():
        files = sorted(file for file in found.iterdir() if file.suffix == SUFFIX)
        if not files:
            raise UsageError(
                f"{found}: expected {SUFFIX} files in this folder, found none"
            )
        return files
    if not found.exists():
        raise UsageError(
            f"{found}: no such file or folder; expected a {SUFFIX} file or a folder of them, "
            f"relative to {Path.cwd()}"
        )
    if found.suffix != SUFFIX:
        raise UsageError(f"{found}: expected a file that ends in {SUFFIX}")
    return [found]


def pairing_of(file: DemoFile) -> tuple[Pairing, str]:
    """Which record holds the action of an observation, and how that can be seen."""
    # Found by decoding the demonstrations of the ML-Agents repository and comparing actions with
    # what they led to.
    if "?team=" in file.behavior:
        return "next", "its behavior's name has a team, as since package 1.0"
    if file.has_current_actions:
        return "next", "its actions are in the fields of packages since 1.7"
    if len(np.unique(file.agent_id)) > 1:
        return "next", "agent ids differ between episodes, as since package 1.0"
    firsts = np.flatnonzero(_begins(file))
    actions = file.actions.select(firsts)
    is_zero = ~(actions.continuous.any(axis=1) | actions.discrete.any(axis=1))
    if file.behavior.endswith("Learning"):
        return "same", "its behavior is named as before package 1.0"
    if is_zero.mean() >= 0.5:
        return "next", "most episodes begin with an action of zeros"
    return "same", "episodes begin with actions, as before package 1.0"


def _begins(file: DemoFile) -> NDArray[np.bool_]:
    """[R] whether each record is the first of an episode."""
    is_other_agent = file.agent_id[1:] != file.agent_id[:-1]
    begins = np.ones(len(file), np.bool_)
    begins[1:] = file.done[:-1] | is_other_agent
    return begins


def _paired(path: Path, file: DemoFile, pairing: Pairing | None) -> Demonstration:
    found, reason = pairing_of(file)
    if pairing is not None:
        found, reason = pairing, "as configured"
    begins = _begins(file)
    # Records that another one of their episode follows.
    row = np.flatnonzero(~begins[1:])
    if not len(row):
        raise UsageError(
            f"{path}: expected an episode of two records or more, found none in {len(file)} records"
        )
    after = row + 1
    actions = file.actions.select(row if found == "same" else after)
    number = np.cumsum(begins)[row]
    # Numbered again: episodes of a single record have no action and are not counted.
    _, episode = np.unique(number, return_inverse=True)
    is_other_next = episode[1:] != episode[:-1]
    is_last = np.append(is_other_next, True)
    done = file.done[after]
    terminated = done & ~file.interrupted[after]
    sensors = file.spec.observation_specs
    seen = []
    for sensor, obs in zip(sensors, file.obs, strict=True):
        # Files hold images HWC, learners take CHW.
        is_image = is_channels_last(sensor)
        seen.append(np.moveaxis(obs, -1, 1) if is_image else obs)
    # As the world took them.
    continuous = np.clip(actions.continuous, -1.0, 1.0)
    specs = tuple(channels_first(sensor) for sensor in sensors)
    demonstration = Demonstration(
        behavior=base_name(file.behavior),
        spec=replace(file.spec, observation_specs=specs),
        seen=seen,
        row=row,
        actions=ActionTuple(continuous, actions.discrete),
        allowed=_allowed(file, row, actions),
        reward=file.reward[after],
        group_reward=file.group_reward[after],
        terminated=terminated,
        truncated=is_last & ~terminated,
        finished=done[is_last],
        episode=episode,
        lines=(),
    )
    return replace(demonstration, lines=(_line(path, demonstration, found, reason),))


def _line(path: Path, demo: Demonstration, pairing: Pairing, reason: str) -> str:
    num_open = demo.num_episodes - int(demo.finished.sum())
    unfinished = f" ({num_open} without an end)" if num_open else ""
    counted = demo.returns[demo.finished] if demo.finished.any() else demo.returns
    return (
        f"{path}: {len(demo):,} actions in {demo.num_episodes} episodes{unfinished}, mean return "
        f"{counted.mean():.2f}; an observation's action is in the {pairing} record: {reason}"
    )


def _allowed(
    file: DemoFile, row: NDArray[np.intp], actions: ActionTuple
) -> NDArray[np.bool_] | None:
    """[M, choices]: what the masks allow, and what was chosen: a mask that forbids an action which
    was taken would make it infinitely unlikely.
    """
    if file.forbidden is None:
        return None
    allowed = ~file.forbidden[row]
    sizes = np.array(file.spec.action_spec.discrete_branches, np.int64)
    starts = np.cumsum(sizes) - sizes  # each branch's first column
    np.put_along_axis(allowed, actions.discrete + starts, True, axis=1)
    return allowed


def _joined(parts: Sequence[Demonstration]) -> Demonstration:
    """Several files one after the other; episodes stay apart."""
    first = parts[0]
    records = [0, *accumulate(len(part.seen[0]) for part in parts)]
    episodes = [0, *accumulate(part.num_episodes for part in parts)]

    def join(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])

    # Records and episodes are numbered through all files. The last sum is the total, which no
    # file starts at.
    row = [part.row + start for part, start in zip(parts, records, strict=False)]
    episode = [part.episode + at for part, at in zip(parts, episodes, strict=False)]
    by_sensor = zip(*(part.seen for part in parts), strict=True)
    return replace(
        first,
        seen=[np.concatenate(obs) for obs in by_sensor],
        row=np.concatenate(row),
        actions=ActionTuple(
            np.concatenate([part.actions.continuous for part in parts]),
            np.concatenate([part.actions.discrete for part in parts]),
        ),
        allowed=None if first.allowed is None else join("allowed"),
        reward=join("reward"),
        group_reward=join("group_reward"),
        terminated=join("terminated"),
        truncated=join("truncated"),
        finished=join("finished"),
        episode=np.concatenate(episode),
        lines=tuple(line for part in parts for line in part.lines),
    )
