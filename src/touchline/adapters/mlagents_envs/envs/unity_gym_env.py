"""One agent behind old Gym's interface, `obs, reward, done, info = env.step(action)`.

For code that was written for ML-Agents' wrapper. New code takes `touchline.make_gymnasium`, which
distinguishes ends from limits.
"""

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from touchline.adapters.layout import choice_table
from touchline.adapters.options import OneWorld
from touchline.adapters.to_gymnasium import TouchlineEnv
from touchline.errors import UsageError
from touchline.steps import DecisionSteps, TerminalSteps

logger = logging.getLogger(__name__)


class UnityGymException(UsageError, gymnasium.error.Error):
    """An environment that one agent of old Gym cannot stand for, or a call out of turn."""


class UnityToGymWrapper(gymnasium.Env[Any, Any]):
    """A world with one behavior and one agent. Closes it.

    An `Env` by type alone: wrappers that unpack five values from `step` need
    `touchline.make_gymnasium`.

    An observation is the only image or the joined vectors; with `allow_multiple_obs` a list, images
    first and the joined vectors last. Images are [H, W, C]. `flatten_branched`: all discrete
    branches as one choice. `reset` after an end continues with the episode that has begun by
    itself; within an episode it restarts the world.
    """

    # Old Gym's spelling, with a dot.
    metadata: ClassVar[dict[str, Any]] = {"render.modes": ["rgb_array"]}
    reward_range = (-float("inf"), float("inf"))

    def __init__(
        self,
        unity_env: OneWorld,
        uint8_visual: bool = False,
        flatten_branched: bool = False,
        allow_multiple_obs: bool = False,
        action_space_seed: int | None = None,
    ) -> None:
        try:
            self._env = TouchlineEnv(
                unity_env,
                join_vectors=True,
                flatten_branches=flatten_branched,
                uint8_images=uint8_visual,
                # Always a dict, from which images and vectors are picked below.
                name_single=True,
            )
        except UsageError as error:
            raise UnityGymException(str(error)) from error
        ((self.name, self.group_spec),) = self._env._groups.worlds[0].behaviors.items()
        action = self.group_spec.action_spec
        self.action_size = action.continuous_size + action.discrete_size
        self.uint8_visual = uint8_visual
        self._allow_multiple_obs = allow_multiple_obs
        self.game_over = False
        self.visual_obs: NDArray[Any] | None = None
        """The latest image, which `render` returns."""
        spaces = self._env.observation_space
        assert isinstance(spaces, gymnasium.spaces.Dict)
        of_rank = {name: len(space.shape or ()) for name, space in spaces.items()}
        self._images = [name for name, rank in of_rank.items() if rank == 3]
        vectors = [name for name, rank in of_rank.items() if rank == 1]
        self._names = [*self._images, *vectors]
        if not self._names:
            # As in ML-Agents, the caller's world stays open.
            self._env._groups.give_back()
            raise UnityGymException("this environment observes no image and no vector")
        parts = [spaces[name] for name in self._names]
        self.observation_space: gymnasium.Space[Any] = parts[0]
        if allow_multiple_obs:
            self.observation_space = gymnasium.spaces.Tuple(parts)
        self.action_space = self._env.action_space
        if action_space_seed is not None:
            self.action_space.seed(action_space_seed)

    def reset(self, **_: Any) -> Any:
        """The first observation of an episode. Gymnasium's keywords have no effect."""
        named, _ = self._env.reset()
        self.game_over = False
        return self._observation(named)

    def step(self, action: Any) -> tuple[Any, ...]:
        """Observation, reward (own plus group), whether the episode ended, and `info`.

        `info` is that of `TouchlineEnv`, but `step` is a DecisionSteps or, at an end, a
        TerminalSteps with one agent. Raises a UnityGymException after an end.
        """
        if self.game_over:
            raise UnityGymException(
                "the episode has ended: call reset() before the next step()"
            )
        named, reward, terminated, truncated, info = self._env.step(action)
        self.game_over = terminated or truncated
        info["step"] = _rows(info["step"])
        return self._observation(named), reward, self.game_over, info

    def render(self, mode: str = "rgb_array") -> Any:  # noqa: ARG002
        """The latest image that the agent observed, None without images."""
        return self.visual_obs

    def seed(self, seed: Any = None) -> None:
        """Nothing but a warning: a world takes its seed when it is opened."""
        logger.warning("seed %s has no effect; pass a seed to the world instead", seed)

    def close(self) -> None:
        self._env.close()

    def _observation(self, named: dict[str, NDArray[Any]]) -> Any:
        if self._images:
            self.visual_obs = named[self._images[0]]
        if self._allow_multiple_obs:
            return [named[name] for name in self._names]
        return named[self._names[0]]


def _rows(step: dict[str, Any]) -> DecisionSteps | TerminalSteps:
    """One agent's step, as `TouchlineEnv` has it, as rows of arrays."""
    rows: dict[str, Any] = {"action_mask": None}
    for name, value in step.items():
        is_listed = isinstance(value, list)
        rows[name] = [part[None] for part in value] if is_listed else np.array([value])
    if "interrupted" not in step:
        return DecisionSteps(**rows)
    del rows["action_mask"]
    return TerminalSteps(**rows)


class ActionFlattener:
    """All discrete branches as one choice; the last branch varies fastest."""

    def __init__(self, branched_action_space: Sequence[int]) -> None:
        table = choice_table(tuple(branched_action_space))
        self.action_lookup = dict(enumerate(table.tolist()))
        self.action_space = gymnasium.spaces.Discrete(len(table))

    def lookup_action(self, action: int) -> list[int]:
        """The choice in each branch that this one choice means."""
        return list(self.action_lookup[int(action)])
