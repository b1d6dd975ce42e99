"""A world as a PettingZoo `ParallelEnv`, or through PettingZoo's own conversion as an `AECEnv`.

A PettingZoo episode goes from one `reset` to the next, and no name may return within it once it has
finished, while agents in a game start new episodes by themselves. So there are three modes:

- `one_episode` (default): each agent plays one episode of its own and then leaves `agents`. Until
  the next reset it does nothing. The PettingZoo episode is over when all agents have ended.
- `respawn`: each episode of an agent gets the next unused name of its slot, from a declared number
  of names.
- `slots`: names never end; `infos` report ends, with the true last observation. A learner that does
  not look there takes the end of an episode for a step like any other: use it only knowingly.

Names are `agent_7`, or `striker_0`, `goalie_1` where there are several behaviors or teams; the
number is the slot. Rewards are own plus group rewards. Checked against PettingZoo 1.27
(`pettingzoo.test`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Unpack, get_args, overload

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import parallel_to_aec

from touchline.adapters.groups import GroupBy, Groups
from touchline.adapters.layout import Layout
from touchline.adapters.options import (
    AdapterOptions,
    OpenedAgain,
    Worlds,
    checked_render_mode,
    layout_options,
    recipe_changes,
    with_changes,
)
from touchline.adapters.spaces import (
    action_space,
    mask_space,
    observation_space,
    read_actions,
)
from touchline.envs.slots import SlotRows
from touchline.envs.slots.rows import idle_actions
from touchline.errors import RunError, UsageError
from touchline.specs import ActionTuple

Mode = Literal["one_episode", "respawn", "slots"]


class PettingZooOptions(AdapterOptions, total=False):
    """Keyword arguments of `TouchlineParallelEnv`."""

    mode: Mode
    group_by: GroupBy
    horizon: int | None
    reset_world: bool
    episodes_per_slot: int
    spare_slots: int
    render_mode: str | None


class StepResult(NamedTuple):
    """What PettingZoo's `step` returns: agent's name -> value."""

    observations: dict[str, Any]
    rewards: dict[str, float]
    terminations: dict[str, bool]
    truncations: dict[str, bool]
    infos: dict[str, dict[str, Any]]

    @staticmethod
    def empty() -> StepResult:
        """No agents."""
        return StepResult({}, {}, {}, {}, {})

    def add(self, names: Sequence[str], *columns: Sequence[Any]) -> None:
        """Add agents: for each field, in their order, one value of every name."""
        tables: tuple[dict[str, Any], ...] = self
        for table, column in zip(tables, columns, strict=True):
            table.update(zip(names, column, strict=True))


@overload
def make_pettingzoo(
    env: Worlds,
    *,
    api: Literal["parallel"] = "parallel",
    **options: Unpack[PettingZooOptions],
) -> TouchlineParallelEnv: ...


@overload
def make_pettingzoo(
    env: Worlds, *, api: Literal["aec"], **options: Unpack[PettingZooOptions]
) -> AECEnv[str, Any, Any]: ...


def make_pettingzoo(
    env: Worlds,
    *,
    api: Literal["parallel", "aec"] = "parallel",
    **options: Unpack[PettingZooOptions],
) -> TouchlineParallelEnv | AECEnv[str, Any, Any]:
    """A `ParallelEnv`, or with api="aec" an `AECEnv` made from it.

    Options: those of `TouchlineParallelEnv`.
    """
    if api not in ("parallel", "aec"):
        raise UsageError(f"api: expected 'parallel' or 'aec', got {api!r}")
    parallel = TouchlineParallelEnv(env, **options)
    if api == "parallel":
        return parallel
    aec: AECEnv[str, Any, Any] = parallel_to_aec(parallel)
    return aec


class TouchlineParallelEnv(OpenedAgain, ParallelEnv[str, Any, Any]):
    """All agents of a world, under names that stand for one episode each (see `mode` above).

    `horizon`: truncate all agents after this many steps. `reset_world`: whether `reset` restarts
    the world, or continues with the episodes that are running (a seed always restarts).
    `episodes_per_slot`: names per slot in mode `respawn`. `spare_slots`: room for agents that
    appear later, in worlds whose capacity is unknown. Further options: `AdapterOptions`.

    Where there are branches an observation is a dict of `observation` and `action_mask` (flat int8,
    1 = allowed, which `action_space(agent).sample` accepts). `infos` hold `group_reward`,
    `agent_id`, `group_id` and `deciding` (False: this agent waits, its action is ignored); for
    staged actions `second_mask`, int8 [first branch, choices of the later branches]; in mode
    `slots` also `terminated`, `truncated` and `final_observation`.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "touchline",
        "render_modes": ["rgb_array"],
        "render_fps": 10,
        "is_parallelizable": True,
    }

    def __init__(
        self,
        env: Worlds,
        *,
        mode: Mode = "one_episode",
        group_by: GroupBy = "behavior",
        horizon: int | None = None,
        reset_world: bool = True,
        episodes_per_slot: int = 1000,
        spare_slots: int = 0,
        render_mode: str | None = None,
        **options: Unpack[AdapterOptions],
    ) -> None:
        if mode not in get_args(Mode):
            raise UsageError(
                f"mode: expected one of {', '.join(get_args(Mode))}, got {mode!r}"
            )
        for option, value in (
            ("horizon", horizon),
            ("episodes_per_slot", episodes_per_slot),
        ):
            if value is not None and value < 1:
                raise UsageError(f"{option}: expected 1 or more, got {value}")
        self.render_mode = checked_render_mode(render_mode)
        worlds = with_changes(env, recipe_changes(options))
        self._groups = Groups(worlds, group_by=group_by, spare_slots=spare_slots)
        self._reset_world = reset_world
        self._horizon = horizon
        self._age: int | None = None
        """Steps since the last reset; None before the first."""
        self._names = []
        try:
            looks = layout_options(options)
            specs = self._groups.specs
            # PettingZoo's checker wants observations of one kind: where one behavior has several
            # views, the only view of another has its name, too.
            if any(Layout(spec, **looks).has_names for spec in specs.values()):
                looks["name_single"] = True
            for group, spec in specs.items():
                layout = Layout(spec, channels_last=True, **looks)
                family = "agent" if len(specs) == 1 else group.lower()
                size = self._groups.sizes[group]
                labels = [f"{family}_{slot}" for slot in range(size)]
                self._names.append(
                    _GroupNames(group, labels, layout, mode, episodes_per_slot)
                )
        except BaseException:
            self._groups.give_back()
            raise
        self._names_of = {
            agent: names for names in self._names for agent in names.possible_names
        }
        self.possible_agents = list(self._names_of)
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._find(agent).observation_space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._find(agent).action_space

    def reset(
        self,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """A new episode: all agents that are there now, each under the first name of its slot."""
        if seed is not None or self._reset_world:
            # PettingZoo promises that the same seed gives the same episode, so a seed always
            # restarts.
            self._groups.reset(seed)
        self._age = 0
        result = StepResult.empty()
        for names in self._names:
            names.restart(self._groups.rows[names.group], result)
        self.agents = list(result.observations)
        return result.observations, result.infos

    def step(self, actions: dict[str, Any]) -> StepResult:
        """Act once with all agents; see the module for what ends look like."""
        if self._age is None:
            raise UsageError("call reset() before step()")
        # The episode is over: nothing can act, and nothing changes until a reset.
        if not self.agents:
            return StepResult.empty()
        self._check_names(actions)
        before = self._groups.rows
        sent = {
            names.group: names.actions(actions, before[names.group])
            for names in self._names
        }
        rows = self._groups.step(sent)
        self._age += 1
        result = StepResult.empty()
        for names in self._names:
            names.report(rows[names.group], result)
        # A terminated agent is not truncated as well: the value of what follows must not count.
        if self._age == self._horizon:
            for name in result.observations:
                result.truncations[name] = not result.terminations[name]
        terminated, truncated = result.terminations, result.truncations
        self.agents = [
            name for name in terminated if not (terminated[name] or truncated[name])
        ]
        return result

    def render(self) -> NDArray[np.uint8] | None:
        """The first area of the first world, in render mode "rgb_array"."""
        return None if self.render_mode is None else self._groups.render()

    def close(self) -> None:
        """Close the worlds. Idempotent."""
        self._groups.close()

    def __str__(self) -> str:
        return f"touchline({', '.join(self._groups.specs)})"

    def _check_names(self, actions: dict[str, Any]) -> None:
        if not isinstance(actions, dict):
            raise UsageError(
                f"actions: expected a dict agent -> action, got {type(actions).__name__}"
            )
        unknown = actions.keys() - self._names_of.keys()
        if unknown:
            agents = ", ".join(self.agents[:20])
            raise UsageError(
                f"unknown agent {min(unknown)!r} among the actions; agents: {agents}"
            )

    def _find(self, agent: str) -> _GroupNames:
        try:
            return self._names_of[agent]
        except KeyError:
            first = self.possible_agents[0]
            last = self.possible_agents[-1]
            raise UsageError(
                f"unknown agent {agent!r}; possible agents: {first} to {last}"
            ) from None


class _GroupNames:
    """The names of one group, and which slot each stands for.

    `labels` has one name per slot; in mode `respawn` the number of the episode follows it.
    """

    def __init__(
        self,
        group: str,
        labels: Sequence[str],
        layout: Layout,
        mode: Mode,
        episodes_per_slot: int,
    ) -> None:
        self.group = group
        self.layout = layout
        observed = observation_space(layout)
        self.observation_space: spaces.Space[Any] = observed
        if layout.branches:
            parts = {"observation": observed, "action_mask": mask_space(layout)}
            self.observation_space = spaces.Dict(parts)
        self.action_space = action_space(layout)
        self._mode = mode
        self._labels = list(labels)
        self._episodes_per_slot = episodes_per_slot
        self._num_used = np.zeros(len(labels), np.int64)
        """How many names of each slot are used up."""
        self._name = [""] * len(labels)
        """The present or last name of each slot."""
        self._has_name = np.zeros(len(labels), np.bool_)
        """Whether an agent acts in each slot under its name."""

    @property
    def possible_names(self) -> list[str]:
        """Every name that may ever appear."""
        if self._mode != "respawn":
            return self._labels
        numbers = range(self._episodes_per_slot)
        return [f"{label}_{number}" for number in numbers for label in self._labels]

    def restart(self, rows: SlotRows, result: StepResult) -> None:
        """First names for a new PettingZoo episode; enters their observations and infos."""
        self._num_used[:] = 0
        self._has_name[:] = False
        # Also agents that wait at the moment: they act later in the same episode.
        is_there = (rows.agent_id >= 0) | (self._mode == "slots")
        self._begin(np.flatnonzero(is_there), rows, result)

    def actions(self, actions: dict[str, Any], rows: SlotRows) -> ActionTuple:
        """All slots' actions: what was sent for those that decide, nothing for those without a
        name.
        """
        idle = idle_actions(self.layout.spec.action_spec, rows)
        acting = np.flatnonzero(self._has_name & rows.deciding)
        if len(acting):
            names = [self._name[slot] for slot in acting]
            try:
                sent = [actions[name] for name in names]
            except KeyError as missing:
                raise UsageError(
                    f"no action for {missing.args[0]}, which is waiting for one"
                ) from None
            # All at once: checking each action by itself would take longer than the step.
            chosen = self._read(names, sent)
            idle.discrete[acting] = chosen.discrete
            idle.continuous[acting] = chosen.continuous
        return idle

    def report(self, rows: SlotRows, result: StepResult) -> None:
        """Enter what this step means for all agents with a name, and for those that get one."""
        slots = np.flatnonzero(self._has_name)
        names = [self._name[slot] for slot in slots]
        views = self.layout.observe(rows.obs)
        shown, mask = views, rows.action_mask
        has_ended = rows.terminated | rows.truncated
        leaving = np.zeros(0, np.intp)
        if len(rows.final_slot) and self._mode != "slots":
            leaving = slots[has_ended[slots]]
            shown = self._with_final(views, rows)
            # After an end there is nothing to choose; a mask that allows nothing could not be
            # sampled from.
            mask = None if mask is None else mask | has_ended[:, None]
        reward = (rows.reward + rows.group_reward)[slots]
        observations = self._observations(shown, mask, slots)
        infos = self._infos(rows, slots, views)
        terminated = rows.terminated[slots].tolist()
        truncated = rows.truncated[slots].tolist()
        if self._mode == "slots":
            # Names never end and never begin; what ended is in `infos`.
            terminated = truncated = [False] * len(slots)
        result.add(names, observations, reward.tolist(), terminated, truncated, infos)
        self._has_name[leaving] = False
        if self._mode != "slots" and rows.begins.any():
            # In mode `one_episode`, only agents that appear for the first time.
            may_be_named = (self._num_used == 0) | (self._mode == "respawn")
            new = np.flatnonzero(rows.begins & ~self._has_name & may_be_named)
            if len(new):
                self._begin(new, rows, result)

    def _begin(
        self, slots: NDArray[np.intp], rows: SlotRows, result: StepResult
    ) -> None:
        self._give_names(slots)
        names = [self._name[slot] for slot in slots]
        views = self.layout.observe(rows.obs)
        observations = self._observations(views, rows.action_mask, slots)
        infos = self._infos(rows, slots, views, is_first=True)
        is_over = [False] * len(slots)
        result.add(names, observations, [0.0] * len(slots), is_over, is_over, infos)

    def _give_names(self, slots: NDArray[np.intp]) -> None:
        """The next name of each of these slots is in use from now on."""
        is_numbered = self._mode == "respawn"
        most_used = int(self._num_used[slots].max(initial=0))
        if is_numbered and most_used >= self._episodes_per_slot:
            raise RunError(
                f"{self.group}: all {self._episodes_per_slot} names of a slot are used; reset, or "
                "make the env with more episodes_per_slot"
            )
        for slot in slots:
            label = self._labels[slot]
            numbered = f"{label}_{self._num_used[slot]}"
            self._name[slot] = numbered if is_numbered else label
        self._num_used[slots] += 1
        self._has_name[slots] = True

    def _read(self, names: list[str], sent: list[Any]) -> ActionTuple:
        """The actions of several agents at once; where that fails, the agent at fault is named."""
        try:
            if isinstance(self.action_space, spaces.Dict):
                batched: Any = {
                    key: np.stack([action[key] for action in sent])
                    for key in self.action_space
                }
            else:
                batched = np.stack(sent)
            return read_actions(self.layout, batched, len(sent))
        except (UsageError, ValueError, TypeError, KeyError, IndexError) as error:
            for name, action in zip(names, sent, strict=True):
                if not self.action_space.contains(action):
                    raise UsageError(
                        f"{name}: expected an action in {self.action_space}, got {action!r}"
                    ) from error
            raise

    def _with_final(
        self, views: list[NDArray[Any]], rows: SlotRows
    ) -> list[NDArray[Any]]:
        """Copies of the views that show the true last observation where an episode ended."""
        shown = [view.copy() for view in views]
        last = self.layout.observe(rows.final_obs)
        for view, final in zip(shown, last, strict=True):
            view[rows.final_slot] = final
        return shown

    def _observations(
        self,
        views: list[NDArray[Any]],
        action_mask: NDArray[np.bool_] | None,
        slots: NDArray[np.intp],
    ) -> list[Any]:
        # Indexing copies, so that no observation shares memory with the rows.
        chosen = [view[slots] for view in views]
        by_slot = zip(*chosen, strict=True)
        observations = [self.layout.named(parts) for parts in by_slot]
        if action_mask is None:
            return observations
        masks = self.layout.mask(action_mask[slots]).astype(np.int8)
        pairs = zip(observations, masks, strict=True)
        return [{"observation": obs, "action_mask": mask} for obs, mask in pairs]

    def _infos(
        self,
        rows: SlotRows,
        slots: NDArray[np.intp],
        views: list[NDArray[Any]],
        *,
        is_first: bool = False,
    ) -> list[dict[str, Any]]:
        """One info per slot. `is_first`: an episode begins here, to which no result belongs."""
        columns: dict[str, Sequence[Any]] = {
            "group_reward": np.where(is_first, 0.0, rows.group_reward[slots]).tolist(),
            "agent_id": rows.agent_id[slots].tolist(),
            "group_id": rows.group_id[slots].tolist(),
            "deciding": rows.deciding[slots].tolist(),
        }
        if rows.second_mask is not None:
            columns["second_mask"] = list(rows.second_mask[slots].astype(np.int8))
        if self._mode == "slots":
            last = views if is_first else self._with_final(views, rows)
            columns["terminated"] = (rows.terminated[slots] & (not is_first)).tolist()
            columns["truncated"] = (rows.truncated[slots] & (not is_first)).tolist()
            columns["final_observation"] = self._observations(last, None, slots)
        by_slot = zip(*columns.values(), strict=True)
        return [dict(zip(columns, values, strict=True)) for values in by_slot]
