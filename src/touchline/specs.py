"""What a behavior observes and does.

Agents that share a policy share a behavior, and a behavior is described by one `BehaviorSpec`.
Names and meaning follow ML-Agents' low-level Python API (`mlagents_envs.base_env`, 1.1.0), so code
written for it ports by changing the import. Here every value is checked when it is built.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from touchline.errors import ActionError, UsageError

# Sensors or branches listed in messages; the rest is counted. A board of 256 cells has 1,792
# branches, and no message should exceed some hundred characters.
_SHOWN = 8


class NamedFields:
    """A dataclass that unpacks like the named tuple that ML-Agents has in its place."""

    _fields: ClassVar[tuple[str, ...]]
    """Those that ML-Agents has, in its order."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self._asdict().values())

    def __len__(self) -> int:
        return len(self._fields)

    def __getitem__(self, index: int | slice) -> Any:
        return tuple(self)[index]

    def _asdict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._fields}

    def _replace(self, **changes: Any) -> Self:
        return replace(self, **changes)  # type: ignore[type-var]


class DimensionProperty(enum.IntFlag):
    """What may be assumed about one axis of an observation; bit flags as on the wire."""

    UNSPECIFIED = 0
    NONE = 1
    TRANSLATIONAL_EQUIVARIANCE = 2
    VARIABLE_SIZE = 4


class ObservationType(enum.IntEnum):
    """What an observation is for: the state of the world, or the goal."""

    DEFAULT = 0
    GOAL_SIGNAL = 1


@dataclass(frozen=True)
class ObservationSpec(NamedFields):
    """One sensor: its shape without the batch axis, and its name as the sender spells it.

    Rank 1 is a vector, rank 2 a variable-length list of entities, rank 3 an image or grid. Whether
    an image is HWC or CHW is the sender's choice; from slots onward it is CHW.
    """

    _fields = ("shape", "dimension_property", "observation_type", "name")
    shape: tuple[int, ...]
    dimension_property: tuple[DimensionProperty, ...] = ()
    observation_type: ObservationType = ObservationType.DEFAULT
    name: str = ""
    critic_only: bool = False
    """Only a value function learns from it; agents do not observe it. Not on Unity's wire."""

    def __post_init__(self) -> None:
        # Lists and NumPy integers become a tuple of ints, so that specs compare equal and hash.
        # A frozen dataclass can be normalized in no other way.
        object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))
        if any(n < 1 for n in self.shape):
            raise UsageError(
                f"observation {self.name!r}: every axis needs a size of 1 or more, got {self.shape}"
            )
        properties = tuple(DimensionProperty(p) for p in self.dimension_property)
        # Packages before 1.8 send no properties.
        properties = properties or (DimensionProperty.UNSPECIFIED,) * len(self.shape)
        if len(properties) != len(self.shape):
            raise UsageError(
                f"observation {self.name!r}: {len(self.shape)} axes but {len(properties)} "
                "dimension properties"
            )
        object.__setattr__(self, "dimension_property", properties)

    @staticmethod
    def vector(size: int, name: str) -> ObservationSpec:
        """A plain list of numbers, marked as Unity marks it."""
        return ObservationSpec((size,), (DimensionProperty.NONE,), name=name)

    @staticmethod
    def picture(shape: tuple[int, int, int], name: str) -> ObservationSpec:
        """A camera's picture or a grid, [channels, rows, columns], marked as Unity marks it."""
        equivariant = DimensionProperty.TRANSLATIONAL_EQUIVARIANCE
        properties = (DimensionProperty.NONE, equivariant, equivariant)
        return ObservationSpec(shape, properties, name=name)


@dataclass(frozen=True)
class ActionSpec(NamedFields):
    """How many continuous actions an agent takes, and how many choices each discrete branch offers.

    `staged`: what the later branches allow depends on the choice in the first one (first a unit,
    then one of its orders). Steps of such agents hold a second-stage mask besides the flat one.
    """

    _fields = ("continuous_size", "discrete_branches")
    continuous_size: int = 0
    discrete_branches: tuple[int, ...] = ()
    staged: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "discrete_branches", tuple(int(n) for n in self.discrete_branches)
        )
        if self.continuous_size < 0:
            raise UsageError(
                f"continuous_size must be 0 or more, got {self.continuous_size}"
            )
        if any(n < 1 for n in self.discrete_branches):
            raise UsageError(
                "every branch needs 1 choice or more, "
                f"got {describe_branches(self.discrete_branches)}"
            )
        if self.staged and len(self.discrete_branches) < 2:
            raise UsageError(
                f"staged actions need two discrete branches or more, got {self.discrete_branches}"
            )

    @property
    def discrete_size(self) -> int:
        """The number of discrete branches."""
        return len(self.discrete_branches)

    @cached_property
    def branch_sizes(self) -> NDArray[np.uint32]:
        """`discrete_branches` as an array."""
        return np.array(self.discrete_branches, np.uint32)

    @property
    def mask_size(self) -> int:
        """The number of choices of all branches together: the width of a flat action mask."""
        return sum(self.discrete_branches)

    @property
    def second_mask_shape(self) -> tuple[int, int] | None:
        """(choices of the first branch, choices of all later branches), or None for actions that
        are not staged.
        """
        if not self.staged:
            return None
        first = self.discrete_branches[0]
        return first, self.mask_size - first

    def is_continuous(self) -> bool:
        """Whether there are continuous actions and no others."""
        return self.continuous_size > 0 and not self.discrete_branches

    def is_discrete(self) -> bool:
        """Whether there are discrete branches and nothing else."""
        return self.continuous_size == 0 and bool(self.discrete_branches)

    def empty_action(self, n_agents: int) -> ActionTuple:
        """Zeros for `n_agents` agents: what an agent does for which no action was set."""
        return ActionTuple(
            np.zeros((n_agents, self.continuous_size), np.float32),
            np.zeros((n_agents, self.discrete_size), np.int32),
        )

    def random_action(
        self, n_agents: int, rng: np.random.Generator | None = None
    ) -> ActionTuple:
        """Uniform in [-1, 1) and over all choices, masks ignored.

        Without `rng`, fresh entropy is used.
        """
        rng = rng or np.random.default_rng()
        continuous_shape = (n_agents, self.continuous_size)
        discrete_shape = (n_agents, self.discrete_size)
        continuous = rng.uniform(-1.0, 1.0, continuous_shape).astype(np.float32)
        # NumPy refuses an empty bound, even for an array without columns.
        num_choices = self.discrete_branches or 1
        discrete = rng.integers(0, num_choices, discrete_shape, np.int32)
        return ActionTuple(continuous, discrete)

    @staticmethod
    def create_continuous(continuous_size: int) -> ActionSpec:
        """A spec of continuous actions only."""
        return ActionSpec(continuous_size, ())

    @staticmethod
    def create_discrete(discrete_branches: Sequence[int]) -> ActionSpec:
        """A spec of discrete branches only."""
        return ActionSpec(0, tuple(discrete_branches))

    @staticmethod
    def create_hybrid(
        continuous_size: int, discrete_branches: Sequence[int]
    ) -> ActionSpec:
        """A spec of both kinds."""
        return ActionSpec(continuous_size, tuple(discrete_branches))


@dataclass(frozen=True)
class BehaviorSpec(NamedFields):
    """What all agents of one behavior observe, sensor by sensor, and do."""

    _fields = ("observation_specs", "action_spec")
    observation_specs: tuple[ObservationSpec, ...]
    action_spec: ActionSpec
    network: str = field(default="standard", compare=False)
    """The network to train: a key of `touchline.policies.network.NETWORKS`. Not on Unity's wire."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "observation_specs", tuple(self.observation_specs))

    @property
    def observed(self) -> BehaviorSpec:
        """The same with nothing but what agents observe: without the sensors for a critic."""
        sensors = tuple(o for o in self.observation_specs if not o.critic_only)
        if len(sensors) == len(self.observation_specs):
            return self
        return replace(self, observation_specs=sensors)

    @property
    def state_size(self) -> int:
        """How many numbers only a critic sees. They come after all other sensors."""
        return self.observation_size - self.observed.observation_size

    @property
    def observation_size(self) -> int:
        """How many numbers one agent observes, all sensors together."""
        return sum(prod(o.shape) for o in self.observation_specs)


Specs = Mapping[str, BehaviorSpec]
"""Specs of several behaviors, by name."""


class ActionTuple:
    """The actions of N agents: `continuous` float32 [N, C] and `discrete` int32 [N, branches].

    A part that is not given has width 0. Arrays are kept, not copied, when they have the right
    type.
    """

    __slots__ = ("_continuous", "_discrete")

    def __init__(
        self, continuous: ArrayLike | None = None, discrete: ArrayLike | None = None
    ) -> None:
        self._continuous: NDArray[np.float32] | None = None
        self._discrete: NDArray[np.int32] | None = None
        if continuous is not None:
            self.add_continuous(continuous)
        if discrete is not None:
            self.add_discrete(discrete)

    @property
    def continuous(self) -> NDArray[np.float32]:
        if self._continuous is None:
            return np.zeros((len(self), 0), np.float32)
        return self._continuous

    @property
    def discrete_dtype(self) -> type[np.int32]:
        return np.int32

    @property
    def discrete(self) -> NDArray[np.int32]:
        if self._discrete is None:
            return np.zeros((len(self), 0), np.int32)
        return self._discrete

    def add_continuous(self, continuous: ArrayLike) -> None:
        """Set the continuous part, [N, C]."""
        self._continuous = self._checked(
            "continuous", np.asarray(continuous), np.float32, self._discrete
        )

    def add_discrete(self, discrete: ArrayLike) -> None:
        """Set the discrete part, [N, branches]: the index chosen in each branch."""
        self._discrete = self._checked(
            "discrete", as_choices(np.asarray(discrete)), np.int32, self._continuous
        )

    def select(self, agents: Any) -> ActionTuple:
        """The actions of some agents, by an index array or a slice."""
        return ActionTuple.unchecked(
            None if self._continuous is None else self._continuous[agents],
            None if self._discrete is None else self._discrete[agents],
        )

    @staticmethod
    def unchecked(
        continuous: NDArray[np.float32] | None, discrete: NDArray[np.int32] | None
    ) -> ActionTuple:
        """Actions from arrays that are not checked."""
        # For inner loops: the checks cost more than a step of a small policy.
        made = ActionTuple()
        made._continuous, made._discrete = continuous, discrete
        return made

    @staticmethod
    def _checked(
        part: str, value: NDArray[Any], dtype: Any, other: NDArray[Any] | None
    ) -> NDArray[Any] | None:
        # ML-Agents' users write an empty array for a part that their agents do not have.
        if value.shape == (0,):
            return None
        if value.ndim != 2:
            raise ActionError(
                f"{part} actions: expected two axes [agents, actions], got shape {value.shape}"
            )
        if other is not None and len(other) != len(value):
            raise ActionError(
                f"{part} actions are for {len(value)} agents, the other part is for {len(other)}"
            )
        return value.astype(dtype, copy=False)

    def __len__(self) -> int:
        part = self._discrete if self._continuous is None else self._continuous
        return 0 if part is None else len(part)

    def __repr__(self) -> str:
        return f"ActionTuple(continuous={self.continuous.shape}, discrete={self.discrete.shape})"


def as_choices(discrete: NDArray[Any]) -> NDArray[Any]:
    """Integers as int32. Raises an ActionError where one does not fit; other types are kept."""
    if discrete.dtype == np.int32 or discrete.dtype.kind not in "iu":
        return discrete
    narrow = discrete.astype(np.int32)
    # The cast alone turns 2**32 + 2 into 2, which may be a choice.
    is_cut = narrow != discrete
    if np.count_nonzero(is_cut):
        raise ActionError(
            f"discrete actions: expected choices counted from 0, got {discrete[is_cut][0]}"
        )
    return narrow


def base_name(behavior: str) -> str:
    """The behavior's name without its team: `SoccerTwos?team=1` -> `SoccerTwos`.

    Learners are keyed by base name, data by full name.
    """
    return behavior.partition("?")[0]


def team_of(behavior: str) -> int:
    """The team in a full behavior name, 0 when it names none."""
    _, _, query = behavior.partition("?team=")
    # Users name behaviors freely in Unity, so "?team=" need not be followed by a number.
    return int(query) if query.isdigit() else 0


def describe_spec(spec: BehaviorSpec) -> str:
    """Observation shapes and action sizes, in at most some hundred characters."""
    sensors = describe_shapes([o.shape for o in spec.observation_specs])
    return f"observations {sensors} and {describe_actions(spec.action_spec)}"


def describe_shapes(shapes: Sequence[Sequence[int]]) -> str:
    """`[8], [3, 84, 84]`; those beyond the first few are counted."""
    shown = ", ".join(str(list(shape)) for shape in shapes[:_SHOWN])
    extra = len(shapes) - _SHOWN
    return f"{shown} and {extra} more" if extra > 0 else shown or "none"


def describe_actions(action: ActionSpec) -> str:
    """`2 continuous actions, branches [3, 2]`, without what there is none of."""
    parts = []
    if action.continuous_size:
        plural = "" if action.continuous_size == 1 else "s"
        parts.append(f"{action.continuous_size} continuous action{plural}")
    if action.discrete_size:
        staged = ", the later ones' masks depend on the first" * action.staged
        parts.append(f"branches {describe_branches(action.discrete_branches)}{staged}")
    return ", ".join(parts) or "no actions"


def describe_branches(branches: Sequence[int]) -> str:
    """Branch sizes: all, or what repeats (`256 x [6, 4, 4, 4, 4, 7, 49]`), or the first few."""
    sizes = list(branches)
    if len(sizes) <= _SHOWN:
        return str(sizes)
    # The shortest pattern is found first, so 256 equal branches are `256 x [n]` and not `128 x
    # [n, n]`.
    for period in range(1, _SHOWN + 1):
        pattern = sizes[:period]
        repeats, rest = divmod(len(sizes), period)
        if rest == 0 and sizes == pattern * repeats:
            return f"{repeats} x {pattern}"
    shown = ", ".join(map(str, sizes[:_SHOWN]))
    return f"[{shown}, ...] ({len(sizes)} branches)"
