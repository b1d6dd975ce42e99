"""A world as a Gymnasium `Env` (one agent) or `VectorEnv` (many agents of one behavior).

Agents start new episodes by themselves, so a `VectorEnv` resets in the same step: an ended agent's
row shows the first observation of its next episode, and `info["final_obs"]` the true last one.
Rewards are own plus group rewards; `info["group_reward"]` holds the group's part. `reset` without a
seed continues with the episode that has begun by itself when the last step ended one; otherwise it
restarts the world.

After `import touchline` Gymnasium knows the scenes by name (`gymnasium_names`):
`gymnasium.make("touchline/3DBall-v0")`, `gymnasium.make_vec("touchline/3DBall-v0", num_envs=12)`,
and "touchline/World-v0" with `env=` anything else.

Checked against Gymnasium 1.4 (`gymnasium.utils.env_checker`, `gymnasium.vector.SyncVectorEnv`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Literal, NoReturn, Unpack, overload

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from touchline.adapters.groups import GroupBy, Groups
from touchline.adapters.gymnasium_names import WITH_GAPS
from touchline.adapters.layout import Layout
from touchline.adapters.options import (
    AdapterOptions,
    OneWorld,
    OpenedAgain,
    checked_render_mode,
    layout_options,
    recipe_changes,
    with_changes,
)
from touchline.adapters.spaces import action_space, observation_space, read_actions
from touchline.envs.env import EnvRecipe
from touchline.envs.slots import SlotRows
from touchline.envs.slots.rows import idle_actions
from touchline.errors import RunError, UsageError
from touchline.specs import ActionTuple, base_name

FRAMES_PER_SECOND = 10
"""Five physics steps of 0.02 s between decisions, as in most of Unity's scenes."""
VectorStep = tuple[
    Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
]
"""Observation, reward, terminated, truncated and info."""


class GymnasiumOptions(AdapterOptions, total=False):
    """Keyword arguments of `TouchlineEnv`."""

    render_mode: str | None


class VectorOptions(GymnasiumOptions, total=False):
    """Keyword arguments of `TouchlineVectorEnv`."""

    autoreset_mode: AutoresetMode
    allow_idle: bool
    group_by: GroupBy
    spare_slots: int


@overload
def make_gymnasium(
    env: OneWorld,
    *,
    vector: Literal[False] = False,
    num_envs: None = None,
    **options: Unpack[GymnasiumOptions],
) -> TouchlineEnv: ...


@overload
def make_gymnasium(
    env: OneWorld,
    *,
    vector: Literal[True],
    num_envs: int | None = None,
    **options: Unpack[VectorOptions],
) -> TouchlineVectorEnv: ...


@overload
def make_gymnasium(
    env: OneWorld,
    *,
    vector: bool = False,
    num_envs: int,
    **options: Unpack[VectorOptions],
) -> TouchlineVectorEnv: ...


def make_gymnasium(
    env: OneWorld, *, vector: bool = False, num_envs: int | None = None, **options: Any
) -> TouchlineEnv | TouchlineVectorEnv:
    """A `gymnasium.Env` with one agent; with `vector` a `VectorEnv` with all agents of the world,
    with `num_envs` a `VectorEnv` with that many.

    A scene is built in the size that is needed. Options: `seed`, `parameters` and other fields of
    `EnvRecipe`, `join_vectors`, `flatten_branches`, `uint8_images`, `render_mode`; for a VectorEnv
    also `group_by`, `allow_idle` and `spare_slots`.
    """
    if vector or num_envs is not None:
        return TouchlineVectorEnv(env, num_envs=num_envs, **options)
    return TouchlineEnv(env, **options)


def refuse_single_agent(*, env: str, **options: Any) -> NoReturn:  # noqa: ARG001
    """What `gymnasium.make` calls for scenes with several agents in each area."""
    raise UsageError(
        f"a Gymnasium Env shows one agent, {env} has several in each area; "
        f'take gymnasium.make_vec("touchline/{env}-v0", num_envs=...)'
    )


class TouchlineEnv(OpenedAgain, gymnasium.Env[Any, Any]):
    """A world with one behavior and one agent.

    `info`: `step`, the raw decision or terminal step with ML-Agents' names; `group_reward`;
    `action_mask`, one flat int8 array, 1 = allowed, which `action_space.sample` accepts (after an
    end everything is allowed). For staged actions also `second_mask`, int8 [first branch, choices
    of the later branches].
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": ["rgb_array"],
        "render_fps": FRAMES_PER_SECOND,
    }

    def __init__(
        self,
        env: OneWorld,
        *,
        render_mode: str | None = None,
        **options: Unpack[AdapterOptions],
    ) -> None:
        self.render_mode = checked_render_mode(render_mode)
        self._groups = Groups(
            with_changes(_with_areas(env, 1), recipe_changes(options))
        )
        try:
            self._group = _only_group(self._groups, "a Gymnasium Env")
            size = self._groups.sizes[self._group]
            if size != 1:
                raise UsageError(
                    f"a Gymnasium Env shows one agent, {self._group} has room for {size}; take a "
                    "VectorEnv with vector=True"
                )
            spec = self._groups.specs[self._group]
            looks = layout_options(options)
            self._layout = Layout(spec, channels_last=True, **looks)
        except BaseException:
            self._groups.give_back()
            raise
        self.observation_space = observation_space(self._layout)
        self.action_space = action_space(self._layout)
        self._is_between_episodes = False
        self._is_ready = False

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> tuple[Any, dict[str, Any]]:
        """The first observation of an episode: of the one that has begun by itself after an end, or
        else of a restarted world.
        """
        super().reset(seed=seed)
        if seed is not None or not self._is_between_episodes:
            self._groups.reset(seed)
        self._is_ready = True
        # The episode that has begun by itself is given out once.
        self._is_between_episodes = False
        rows = self._groups.rows[self._group]
        return self._observation(rows.obs), self._info(rows, rows.obs, has_ended=False)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act once; the episode's true last observation comes with its end."""
        if not self._is_ready:
            raise UsageError("call reset() before step()")
        if isinstance(action, dict):
            batched: Any = {
                name: np.asarray(part)[None] for name, part in action.items()
            }
        else:
            batched = np.asarray(action)[None]
        actions = read_actions(self._layout, batched, 1)
        rows = self._groups.step({self._group: actions})[self._group]
        terminated = bool(rows.terminated[0])
        truncated = bool(rows.truncated[0])
        has_ended = terminated or truncated
        self._is_between_episodes = has_ended
        # `rows.obs` already shows the first observation of the next episode.
        obs = rows.final_obs if has_ended else rows.obs
        reward = float(rows.reward[0]) + float(rows.group_reward[0])
        info = self._info(rows, obs, has_ended=has_ended)
        return self._observation(obs), reward, terminated, truncated, info

    def render(self) -> NDArray[np.uint8] | None:
        """The first area as a picture [H, W, 3], in render mode "rgb_array"."""
        return None if self.render_mode is None else self._groups.render()

    def close(self) -> None:
        """Close the world. Idempotent."""
        self._groups.close()

    def _observation(self, obs: tuple[NDArray[Any], ...]) -> Any:
        views = [view[0].copy() for view in self._layout.observe(obs)]
        return self._layout.named(views)

    def _info(
        self, rows: SlotRows, obs: tuple[NDArray[Any], ...], *, has_ended: bool
    ) -> dict[str, Any]:
        step: dict[str, Any] = {
            "obs": [sensor[0].copy() for sensor in obs],
            "reward": float(rows.reward[0]),
            "agent_id": int(rows.agent_id[0]),
            "group_id": int(rows.group_id[0]),
            "group_reward": float(rows.group_reward[0]),
        }
        info: dict[str, Any] = {"step": step, "group_reward": step["group_reward"]}
        if has_ended:
            step["interrupted"] = bool(rows.truncated[0])
        elif rows.action_mask is not None:
            # ML-Agents' own form: one array per branch, True = forbidden.
            ends = np.cumsum(self._layout.spec.action_spec.discrete_branches)[:-1]
            step["action_mask"] = np.split(~rows.action_mask[0], ends)
        if rows.action_mask is not None:
            allowed = rows.action_mask | has_ended
            info["action_mask"] = self._layout.mask(allowed)[0].astype(np.int8)
        if rows.second_mask is not None:
            info["second_mask"] = (rows.second_mask[0] | has_ended).astype(np.int8)
        return info


class TouchlineVectorEnv(OpenedAgain, VectorEnv[Any, Any, Any]):
    """The agents of one behavior as sub-environments.

    `autoreset_mode`: with SAME_STEP (the default), an ended row shows the first observation of its
    next episode. With NEXT_STEP it shows the last observation, and the next step, in which its
    agent does nothing, shows the next episode; so each episode loses its first decision. With
    DISABLED it shows the last observation until `reset(options={"reset_mask": mask})`.

    `info`: `final_obs` and `final_info` with `_final_obs` and `_final_info` where episodes ended;
    `agent_id`, `group_id`, `group_reward`; `action_mask` int8 [N, choices], 1 = allowed; for staged
    actions `second_mask` int8 [N, first branch, choices of the later branches]; `mask` bool [N]:
    this row acts now. With `allow_idle` rows may be empty or wait, and their actions are ignored;
    without it that is an error. `group_by` "base" merges the teams of a behavior, "all" merges
    everything that observes and does the same.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - an env has its own with its mode
        "render_modes": ["rgb_array"],
        "render_fps": FRAMES_PER_SECOND,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        env: OneWorld,
        *,
        num_envs: int | None = None,
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
        allow_idle: bool = False,
        group_by: GroupBy = "behavior",
        spare_slots: int = 0,
        render_mode: str | None = None,
        **options: Unpack[AdapterOptions],
    ) -> None:
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        # TorchRL reads the attribute, Gymnasium's wrappers the metadata.
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = checked_render_mode(render_mode)
        changes = recipe_changes(options)
        self._allow_idle = allow_idle
        self._groups = _groups_of_size(env, num_envs, changes, group_by, spare_slots)
        try:
            self._group = _only_group(self._groups, "a VectorEnv")
            # One agent alone is never missed: the world steps until it is back.
            if not allow_idle and self._groups.sizes[self._group] > 1:
                _refuse_gaps(env)
            self._refuse_idle(self._groups.rows[self._group])
            spec = self._groups.specs[self._group]
            looks = layout_options(options)
            self._layout = Layout(spec, channels_last=True, **looks)
        except BaseException:
            self._groups.give_back()
            raise
        self.num_envs = self._groups.sizes[self._group]
        self.single_observation_space = observation_space(self._layout)
        self.single_action_space = action_space(self._layout)
        self.observation_space = batch_space(
            self.single_observation_space, self.num_envs
        )
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._all_ended = False
        self._ended = np.zeros(self.num_envs, np.bool_)
        """Rows that show an end, and have not been reset since; none with SAME_STEP."""
        self._is_ready = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Restart the world; after a step in which every agent ended, that has happened already.

        With DISABLED, `options={"reset_mask": mask}` continues with the next episodes of the rows
        that ended, and leaves the others as they are.
        """
        mask = (options or {}).get("reset_mask")
        if mask is not None and self._is_ready:
            return self._reset_ended(np.asarray(mask))
        if isinstance(seed, list | tuple):
            raise UsageError(
                "seed: expected one number for the whole world, got one for each sub-environment"
            )
        super().reset(seed=seed)
        # Some libraries call reset when every sub-environment is done, although all have begun
        # their next episodes by then.
        if seed is not None or not self._all_ended:
            self._groups.reset(seed)
        self._is_ready, self._all_ended = True, False
        self._ended[:] = False
        rows = self._groups.rows[self._group]
        self._refuse_idle(rows)
        return self._observation(rows), self._info(rows)

    def step(self, actions: Any) -> VectorStep:
        """Act once in every row; see the class for what ends look like."""
        if not self._is_ready:
            raise UsageError("call reset() before step()")
        sent = read_actions(self._layout, actions, self.num_envs)
        if self._ended.any():
            sent = self._without_ended(sent)
        rows = self._groups.step({self._group: sent})[self._group]
        self._refuse_idle(rows)
        info = self._info(rows)
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            return self._step_with_pause(rows, info)
        if len(rows.final_slot):
            self._add_ends(info, rows)
        self._all_ended = len(rows.final_slot) == self.num_envs
        observation = self._observation(rows)
        # float64 is what Gymnasium's own vector environments return.
        reward = rows.reward.astype(np.float64) + rows.group_reward
        return observation, reward, rows.terminated, rows.truncated, info

    def _without_ended(self, sent: ActionTuple) -> ActionTuple:
        """The actions, but none of rows that are being reset: the world cannot hold them."""
        if self.autoreset_mode is AutoresetMode.DISABLED:
            raise UsageError(
                f"{np.count_nonzero(self._ended)} episodes have ended: call "
                "reset(options={'reset_mask': terminated | truncated}) before step()"
            )
        rows, spec = self._groups.rows[self._group], self._layout.spec.action_spec
        idle = idle_actions(spec, rows)
        ended = self._ended[:, None]
        return ActionTuple(
            np.where(ended, idle.continuous, sent.continuous),
            np.where(ended, idle.discrete, sent.discrete),
        )

    def _step_with_pause(self, rows: SlotRows, info: dict[str, Any]) -> VectorStep:
        """The step of NEXT_STEP and DISABLED: an end comes with its own last observation."""
        # In the next step, such a row shows the next episode, without reward.
        was_ended = self._ended
        terminated = rows.terminated & ~was_ended
        truncated = rows.truncated & ~was_ended
        reward = rows.reward.astype(np.float64) + rows.group_reward
        reward[was_ended] = 0.0
        self._ended = terminated | truncated
        self._all_ended = bool(self._ended.all())
        return self._with_last(rows), reward, terminated, truncated, info

    def _with_last(self, rows: SlotRows) -> Any:
        """Observations, of which those of ended rows are their last."""
        views = self._layout.copied(rows.obs)
        last = self._layout.observe(rows.final_obs)
        # A row that is being reset shows the beginning of an episode, even if one ended meanwhile.
        is_shown = self._ended[rows.final_slot]
        for view, final in zip(views, last, strict=True):
            view[rows.final_slot[is_shown]] = final[is_shown]
        return self._layout.named(views)

    def _reset_ended(self, mask: NDArray[np.bool_]) -> tuple[Any, dict[str, Any]]:
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise UsageError(
                f"reset_mask: expected {self.num_envs} booleans, at least one of them True, got "
                f"{mask.dtype} of shape {mask.shape}"
            )
        running = np.flatnonzero(mask & ~self._ended)
        if len(running):
            raise UsageError(
                f"reset_mask: row {running[0]} is in the middle of an episode, and one agent of a "
                "world cannot be reset alone; mask rows that ended, or reset all"
            )
        self._ended = self._ended & ~mask
        rows = self._groups.rows[self._group]
        return self._with_last(rows), self._info(rows)

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """For each row its area as a picture, in render mode "rgb_array"."""
        if self.render_mode is None:
            return None
        return self._groups.render_rows(self._group)

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002
        """Close the world. Idempotent."""
        self._groups.close()

    def _observation(self, rows: SlotRows) -> Any:
        """Arrays that users may write to, while the world or the slots use theirs again."""
        return self._layout.named(self._layout.copied(rows.obs))

    def _info(self, rows: SlotRows) -> dict[str, Any]:
        # Copies, because later steps show the same arrays of ids, and a reset the other two.
        info: dict[str, Any] = {
            "agent_id": rows.agent_id.copy(),
            "group_id": rows.group_id.copy(),
            "group_reward": rows.group_reward.copy(),
            "mask": rows.deciding.copy(),
        }
        if rows.action_mask is not None:
            info["action_mask"] = self._layout.mask(rows.action_mask).astype(np.int8)
        if rows.second_mask is not None:
            info["second_mask"] = rows.second_mask.astype(np.int8)
        # Gymnasium's convention: `_key` says which sub-environments have the key.
        all_rows = np.ones(self.num_envs, np.bool_)
        return info | {f"_{key}": all_rows for key in info}

    def _add_ends(self, info: dict[str, Any], rows: SlotRows) -> None:
        """Gymnasium keeps last observations one by one, in an array of objects, None elsewhere."""
        has_ended = rows.terminated | rows.truncated
        views = self._layout.observe(rows.final_obs)
        final_obs = np.full(self.num_envs, None, dtype=object)
        for k, slot in enumerate(rows.final_slot):
            own = [view[k].copy() for view in views]
            final_obs[slot] = self._layout.named(own)
        info["final_obs"] = final_obs
        info["_final_obs"] = has_ended
        info["final_info"] = {
            "group_reward": rows.group_reward,
            "_group_reward": has_ended,
        }
        info["_final_info"] = has_ended

    def _refuse_idle(self, rows: SlotRows) -> None:
        num_deciding = np.count_nonzero(rows.deciding)
        if not self._allow_idle and num_deciding < len(rows):
            raise RunError(
                f"{len(rows) - num_deciding} of {len(rows)} rows have no agent that acts "
                f"now{_FULL_ROWS}"
            )


WithIdleRows = partial(TouchlineVectorEnv, allow_idle=True)
"""What `gymnasium.make_vec` opens for `WITH_GAPS`: `info["mask"]` says which rows act."""
_FULL_ROWS = (
    ", and this view expects one in every row at every step; take make_gymnasium with "
    "allow_idle=True and heed info['mask'], make_torchrl, or one make_gymnasium for each agent"
)


def _refuse_gaps(env: OneWorld) -> None:
    """Raise a UsageError for a scene whose agents are gone while others continue to act."""
    if isinstance(env, str | EnvRecipe):
        scene = EnvRecipe.parse(env).target
        if scene in WITH_GAPS:
            raise UsageError(f"agents of {scene} are gone for some steps{_FULL_ROWS}")


def _only_group(groups: Groups, view: str) -> str:
    if len(groups.specs) == 1:
        (group,) = groups.specs
        return group
    names = set()
    for parts in groups.parts.values():
        names |= {base_name(part.behavior) for part in parts}
    # One table can show behaviors that observe and do the same.
    shapes = {
        (tuple(o.shape for o in spec.observation_specs), spec.action_spec)
        for spec in groups.specs.values()
    }
    advice = "take make_torchrl or make_pettingzoo"
    if len(shapes) == 1:
        merging = "base" if len(names) == 1 else "all"
        advice = f"take vector=True with group_by={merging!r}, or {advice[5:]}"
    raise UsageError(
        f"{view} shows one behavior, this world has {', '.join(groups.specs)}; {advice}"
    )


def _with_areas(env: OneWorld, num_areas: int) -> OneWorld:
    """A scene with this many areas, where the caller did not say how many."""
    if isinstance(env, str | EnvRecipe):
        recipe = EnvRecipe.parse(env)
        if recipe.kind.is_scene and recipe.num_areas is None:
            return EnvRecipe.parse(recipe, num_areas=num_areas)
    return env


def _groups_of_size(
    env: OneWorld,
    num_envs: int | None,
    changes: dict[str, Any],
    group_by: GroupBy,
    spare_slots: int,
) -> Groups:
    """Groups with `num_envs` rows in all; a scene is built to measure."""

    def opened(sized: OneWorld) -> Groups:
        world = with_changes(sized, changes)
        return Groups(world, group_by=group_by, spare_slots=spare_slots)

    if num_envs is None:
        return opened(env)
    sized = env if "num_areas" in changes else _with_areas(env, num_envs)
    # On trial: how many agents an area has is known only of an open scene.
    groups = opened(sized)
    count = sum(groups.sizes.values())
    if count == num_envs:
        return groups
    # A world of the caller's stays open: `None` shows it, as the error below advises.
    groups.give_back()
    expected = f"{count}, the agents that this world has, or None"
    if sized is not env:
        # There are several agents in each area, so fewer areas are needed.
        agents_per_area = count // num_envs
        if num_envs % agents_per_area == 0:
            return opened(_with_areas(env, num_envs // agents_per_area))
        expected = f"a multiple of {agents_per_area}, the agents in each area"
    raise UsageError(f"num_envs: expected {expected}; got {num_envs}")
