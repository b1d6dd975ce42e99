"""How a learner sees one behavior: which observations, which choices, which masks.

Two simplifications are offered by every adapter, and here as plain functions: the vector sensors
joined into one observation (SoccerTwos: 264 + 72 = 336), and the discrete branches flattened into
one choice (3 x 3 x 3 = 27) with the mask that follows. All functions work on arrays [N, ...]; in
masks True = allowed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from touchline.adapters.options import LayoutOptions
from touchline.errors import UsageError
from touchline.specs import (
    ActionTuple,
    BehaviorSpec,
    ObservationSpec,
    as_choices,
    describe_branches,
    describe_spec,
)

MAX_FLAT_CHOICES = 4096
"""With more joint choices than this a policy cannot rank them all; keep the branches apart."""

JOINED = "vector"
"""The name of the joined vector sensors, where other sensors stand next to them."""


@dataclass(frozen=True)
class View:
    """One observation as the learner gets it: one sensor, or several vectors joined."""

    name: str
    shape: tuple[int, ...]
    sensors: tuple[int, ...]
    """Which sensors of the spec it shows, in order."""

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3


class Layout:
    """One behavior's observations and actions, arranged for a learner.

    `spec` is the spec as slots give it (images CHW). `channels_last` turns images into HWC.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        *,
        channels_last: bool = False,
        **options: Unpack[LayoutOptions],
    ) -> None:
        action = spec.action_spec
        self.spec = spec
        self.continuous_size = action.continuous_size
        self.uint8_images = options.get("uint8_images", False)
        self.channels_last = channels_last
        flattens = options.get("flatten_branches", False)
        self._is_flat = flattens and action.discrete_size > 1
        if self._is_flat and action.staged:
            raise UsageError(
                "flatten_branches: what the later branches of staged actions allow depends on the "
                "first one; leave flatten_branches off"
            )
        branches = action.discrete_branches
        self.branches = (len(choice_table(branches)),) if self._is_flat else branches
        """Choices per branch as the learner sees them."""
        self.mask_ends = list(accumulate(self.branches))
        """End of each branch in a flat mask."""
        joins = options.get("join_vectors", False)
        self.views = _views(spec.observation_specs, joins, channels_last)
        """What the learner observes, in order."""
        self.names = [view.name for view in self.views]
        self.has_names = len(self.views) > 1 or options.get("name_single", False)
        """Whether observations are a dict by the views' names."""
        self._is_unchanged = all(
            len(view.sensors) == 1 and not view.is_image for view in self.views
        )

    def observe(self, obs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """One array [N, *shape] per view; a view of one sensor may share the sensor's memory."""
        if self._is_unchanged:
            return list(obs)
        return [self._observed(view, obs) for view in self.views]

    def copied(self, obs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """The same as arrays that the caller may keep and write to."""
        # Joined vectors and most images are new arrays already. One of a single channel is not.
        return [
            view.copy() if any(np.may_share_memory(view, own) for own in obs) else view
            for view in self.observe(obs)
        ]

    def named(self, views: Sequence[Any]) -> Any:
        """The only view by itself, or a dict by the views' names."""
        if not self.has_names:
            return views[0]
        return dict(zip(self.names, views, strict=True))

    def mask(self, action_mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """[N, sum of branches as the learner sees them]."""
        if self._is_flat:
            return flatten_mask(action_mask, self.spec.action_spec.discrete_branches)
        return action_mask

    def actions(
        self, continuous: NDArray[Any] | None, discrete: NDArray[Any] | None, count: int
    ) -> ActionTuple:
        """The world's actions of `count` agents from the learner's.

        The learner's are floats [N, C] and choices [N, branches], None where it has none.
        """
        if discrete is not None and self._is_flat:
            discrete = unflatten_choice(
                discrete[:, 0], self.spec.action_spec.discrete_branches
            )
        if continuous is None:
            continuous = np.zeros((count, 0), np.float32)
        if discrete is None:
            discrete = np.zeros((count, 0), np.int32)
        # The adapters have checked shapes and types against their spaces by now.
        return ActionTuple.unchecked(
            continuous.astype(np.float32, copy=False), as_choices(discrete)
        )

    def _observed(self, view: View, obs: Sequence[NDArray[Any]]) -> NDArray[Any]:
        sensors = [obs[i] for i in view.sensors]
        shown = sensors[0] if len(sensors) == 1 else join_vectors(sensors)
        return self._image(shown) if view.is_image else shown

    def _image(self, image: NDArray[Any]) -> NDArray[Any]:
        if self.channels_last:
            image = np.moveaxis(image, 1, -1)  # [N, H, W, C]
        if self.uint8_images:
            # A game's sensor may leave its range, and as a byte 256 would become 0.
            in_range = np.clip(image, 0.0, 1.0)
            return np.asarray(np.rint(in_range * 255.0).astype(np.uint8))
        return np.ascontiguousarray(image)


def join_vectors(obs: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The rank-1 observations [N, k] next to each other, in order: [N, sum of k].

    Images and lists are left out.
    """
    vectors = [sensor for sensor in obs if sensor.ndim == 2]
    return np.concatenate(vectors, axis=1)


@lru_cache
def choice_table(branches: tuple[int, ...]) -> NDArray[np.int32]:
    """[product of branches, branches]: row k holds the choice in each branch that the flat choice k
    means. The last branch varies fastest.
    """
    num_choices = prod(branches)
    if num_choices > MAX_FLAT_CHOICES:
        raise UsageError(
            f"branches {describe_branches(branches)} make more than {MAX_FLAT_CHOICES} joint "
            "choices; leave flatten_branches off"
        )
    choices = np.unravel_index(np.arange(num_choices), branches)
    table = np.stack(choices, axis=1).astype(np.int32)
    table.flags.writeable = False  # it is cached
    return table


def flatten_choice(
    discrete: NDArray[Any], branches: tuple[int, ...]
) -> NDArray[np.int64]:
    """The flat choice [N] for choices [N, branches]."""
    of_branches = tuple(np.asarray(discrete).T)
    return np.asarray(np.ravel_multi_index(of_branches, branches), np.int64)


def unflatten_choice(
    choice: NDArray[Any], branches: tuple[int, ...]
) -> NDArray[np.int32]:
    """The choices [N, branches] that the flat choices [N] mean."""
    table = choice_table(branches)
    inside = (choice >= 0) & (choice < len(table))
    if np.count_nonzero(inside) < len(choice):
        raise UsageError(
            f"flat choice: expected 0 to {len(table) - 1}, got {choice[~inside][0]}"
        )
    return np.asarray(table[choice])


def flatten_mask(
    action_mask: NDArray[np.bool_], branches: tuple[int, ...]
) -> NDArray[np.bool_]:
    """[N, product of branches] from [N, sum of branches].

    A joint choice is allowed if all its parts are.
    """
    # Most worlds mask rarely, and this runs at every step.
    if np.count_nonzero(action_mask) == action_mask.size:
        return np.ones((len(action_mask), prod(branches)), np.bool_)
    # The flat mask holds the branches' choices one after the other.
    first_column = np.cumsum(branches) - branches
    columns = choice_table(branches) + first_column  # [product of branches, branches]
    return np.asarray(action_mask[:, columns].all(axis=2))


def check_same_spec(
    specs: Mapping[str, BehaviorSpec], what: str, advice: str
) -> BehaviorSpec:
    """The one spec that all these behaviors share, or a UsageError that names two that differ."""
    (first, spec), *others = specs.items()
    for name, other in others:
        # By shape alone: teams of one behavior may name their sensors differently.
        shapes = [sensor.shape for sensor in spec.observation_specs]
        other_shapes = [sensor.shape for sensor in other.observation_specs]
        if shapes != other_shapes or spec.action_spec != other.action_spec:
            raise UsageError(
                f"{what} needs behaviors with the same observations and actions; {first} has "
                f"{describe_spec(spec)}, {name} has {describe_spec(other)}; {advice}"
            )
    return spec


def _views(
    sensors: Sequence[ObservationSpec], join: bool, channels_last: bool
) -> tuple[View, ...]:
    """The joined vectors, if there are any to join, and then the other sensors in order."""
    vectors = tuple(i for i, sensor in enumerate(sensors) if len(sensor.shape) == 1)
    joined = vectors if join and len(vectors) > 1 else ()
    # A sensor of the game may have the very name of the joined one.
    taken = {JOINED} if joined else set()
    names = unique_words([sensor.name for sensor in sensors], "sensor", taken)
    views = []
    if joined:
        size = sum(sensors[i].shape[0] for i in joined)
        views.append(View(JOINED, (size,), joined))
    for i, sensor in enumerate(sensors):
        if i in joined:
            continue
        shape = sensor.shape
        if channels_last and len(shape) == 3:
            shape = (*shape[1:], shape[0])
        views.append(View(names[i], shape, (i,)))
    return tuple(views)


def unique_words(
    names: Sequence[str], kind: str, taken: set[str] | None = None
) -> list[str]:
    """The names in letters, digits and underscores, all different; of what has none of these, the
    kind and a number.
    """
    taken = set() if taken is None else taken
    found: list[str] = []
    for i, name in enumerate(names):
        plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
        plain = plain or f"{kind}_{i}"
        unique = plain
        number = 1
        while unique in taken:
            unique = f"{plain}_{number}"
            number += 1
        taken.add(unique)
        found.append(unique)
    return found
