"""A world as a `VecEnv` of Stable-Baselines3: every agent of one behavior is a sub-environment.

Stable-Baselines3 has an interface of its own, older than Gymnasium's `VectorEnv`. An ended episode
is reported in `infos[i]`: `terminal_observation` is its true last observation, and
`TimeLimit.truncated` says that it was cut short, so that the value of what would have followed
still counts. Algorithms with masks (`sb3_contrib.MaskablePPO`) find them under `action_masks`.

Checked against Stable-Baselines3 2.9.
"""

from __future__ import annotations

import copy
from typing import Any, Unpack

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from touchline.adapters.groups import GroupBy
from touchline.adapters.options import AdapterOptions, OneWorld
from touchline.adapters.to_gymnasium import TouchlineVectorEnv
from touchline.errors import UsageError

ACTION_MASKS = "action_masks"
"""The method that `sb3_contrib` calls for masks."""


class SB3Options(AdapterOptions, total=False):
    """Keyword arguments of `make_sb3`."""

    num_envs: int | None
    group_by: GroupBy
    spare_slots: int
    render_mode: str | None


def make_sb3(env: OneWorld, **options: Unpack[SB3Options]) -> TouchlineVecEnv:
    """All agents of a world, or `num_envs` of a scene, as one `VecEnv`.

    Options are those of `make_gymnasium`, without `allow_idle`: Stable-Baselines3 learns from every
    row, so every row needs an agent that acts. Nor is there `autoreset_mode`: it expects the next
    episode in the step of an end. Raises a UsageError for these two, and for actions that it has no
    space for (continuous and discrete at once).
    """
    for name in ("allow_idle", "autoreset_mode"):
        if name in options:
            raise UsageError(
                f"{name}: Stable-Baselines3 expects an agent that acts in every row at every step; "
                "leave it out, or take make_gymnasium"
            )
    rows = TouchlineVectorEnv(env, **options)
    try:
        return TouchlineVecEnv(rows)
    except BaseException:
        # A world of the caller's stays open, for the adapter that the error advises.
        rows._groups.give_back()
        raise


class TouchlineVecEnv(VecEnv):
    """A `TouchlineVectorEnv` in Stable-Baselines3's terms; closes it."""

    def __init__(self, env: TouchlineVectorEnv) -> None:
        self.env = env
        if isinstance(env.single_action_space, spaces.Dict):
            raise UsageError(
                "Stable-Baselines3 has no algorithm for continuous and discrete actions at once, "
                f"as in {env.single_action_space}; take make_torchrl"
            )
        self._masks: NDArray[np.int8] | None = None
        # A copy: `VecNormalize` writes into the spaces of a dict.
        space = copy.deepcopy(env.single_observation_space)
        super().__init__(env.num_envs, space, env.single_action_space)

    def reset(self) -> Any:
        """The first observations of all agents."""
        # Stable-Baselines3 keeps a seed per sub-environment; there is one world, so the first
        # counts.
        observation, info = self.env.reset(seed=self._seeds[0])
        self._masks = info.get("action_mask")
        self.reset_infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        # Seeds and options of `seed` and `set_options` count once.
        self._reset_seeds()
        self._reset_options()
        return observation

    def step_async(self, actions: NDArray[Any]) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], Any]:
        """Observations, rewards (own plus group), ends, and one info per agent."""
        observation, reward, terminated, truncated, info = self.env.step(self._actions)
        self._masks = info.get("action_mask")
        has_ended = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(has_ended):
            is_cut_short = bool(truncated[row] and not terminated[row])
            infos[row] = {
                "terminal_observation": info["final_obs"][row],
                "TimeLimit.truncated": is_cut_short,
            }
        # float32 is what Stable-Baselines3's own vector environments return.
        return observation, reward.astype(np.float32), has_ended, infos

    def action_masks(self) -> NDArray[np.int8]:
        """What every agent may choose now, [N, choices], 1 = allowed."""
        if self._masks is not None:
            return self._masks
        # Before the first reset, and in worlds that mask nothing, everything is allowed.
        space = self.action_space
        choices = space.n if isinstance(space, spaces.Discrete) else sum(space.nvec)
        return np.ones((self.num_envs, int(choices)), np.int8)

    def close(self) -> None:
        """Close the world. Idempotent."""
        self.env.close()

    def get_images(self) -> list[NDArray[np.uint8] | None]:
        """One picture: the first area."""
        # `VecEnv.render` makes one large picture of all, too large for many areas.
        is_drawn = self.env.render_mode is not None
        return [self.env._groups.render() if is_drawn else None]

    def has_attr(self, attr_name: str) -> bool:
        if attr_name == ACTION_MASKS:
            return not isinstance(self.action_space, spaces.Box)
        return attr_name in dir(self.env)

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The world's attribute, the same for every agent."""
        return [getattr(self.env, attr_name)] * self._count(indices)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set it for the world, whatever the indices."""
        del indices
        setattr(self.env, attr_name, value)

    def env_method(
        self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any
    ) -> list[Any]:
        """Call it once for the world; `action_masks` gives each agent its own row."""
        if method_name == ACTION_MASKS:
            masks = self.action_masks()
            return [masks[row] for row in self._get_indices(indices)]
        result = getattr(self.env, method_name)(*args, **kwargs)
        return [result] * self._count(indices)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        del wrapper_class
        return [False] * self._count(indices)

    def _count(self, indices: Any) -> int:
        return len(list(self._get_indices(indices)))
