"""What every scene repeats, written once, and what each scene must supply.

A scene is A independent areas with up to G agents each, stepped together. It knows `specs`, `steps`
and `parameters` and nothing above them, so it can be judged against its Unity original alone.

A scene module reads in one order: constants with their units, reset, observe, play, reward, end.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.tableau import Tableau
from touchline.errors import NotDrawableError, UsageError
from touchline.parameters import Parameter, ParameterValue, Sampler
from touchline.physics.threads import Threads
from touchline.physics.world import DT_S, Arrays
from touchline.scenes.academy import Academy, Agents
from touchline.scenes.random import Streams
from touchline.sensors.rays import Traces
from touchline.specs import BehaviorSpec, ObservationSpec

_FLOAT32 = np.dtype(np.float32)


class ActionNames(NamedTuple):
    """What people call the actions of a scene's agents."""

    continuous: Sequence[str] = ()
    """One name, or two with ` / ` between: of positive and of negative values."""
    branches: Sequence[Sequence[str]] = ()
    """The choices of each branch."""


class Scene(ABC):
    """One of ML-Agents' scenes, or one of your own.

    A scene declares what it is as class attributes, makes its arrays in `__init__` after calling
    this class's, lists those that make up its state in `arrays`, and supplies `begin_episodes`,
    `observe`, and the parts of a round: `act`, `simulate` and `fixed_update`, which `play` runs.
    """

    name: ClassVar[str]
    unity_areas: ClassVar[int]
    """How many areas Unity's own scene file holds."""
    seconds_per_step: ClassVar[float] = DT_S
    """Simulated time of one Academy step."""
    behaviors: ClassVar[Mapping[str, BehaviorSpec]]
    """Full behavior name -> spec, in the order of the exchanges."""
    agents_per_area: ClassVar[int] = 1
    decision_period: ClassVar[int] = 5
    """Academy steps from one decision of an agent to the next."""
    max_step: ClassVar[int] = 0
    """Academy steps after which an agent's episode is interrupted; 0: never."""
    parameters: ClassVar[Mapping[str, Parameter]] = {}
    state_size: ClassVar[int] = 0
    """How many numbers `observe_state` shows to critics; 0: the scene has no state to show."""
    action_names: ClassVar[ActionNames] = ActionNames()
    """For pages; without them, they show numbers."""
    team_names: ClassVar[tuple[str, ...]] = ()
    """What people call team 0, team 1 and so on."""

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        """Make the parts that all scenes share; `num_threads` 0: one per processor.

        The scene is not ready before `restart` and `begin_episodes` were called.
        """
        self.num_areas = num_areas
        self.academy = self._make_academy(self.behaviors)
        self.streams = Streams(num_areas)
        self.parameter_values = ParameterReader(
            self.name, self.parameters, self.streams
        )
        self.statistics: dict[str, float] = {}
        """Sums for the training log since `take_statistics` was last called."""
        self.game_scores: dict[int, float] = {}
        """How games of two or more groups ended since it was last cleared.

        Group id -> 1 for the group that won, 0 for one that lost, 0.5 for a draw."""
        self._shows_state = False
        self._areas = np.arange(num_areas)
        self._threads = Threads(num_threads)

    def _make_academy(self, behaviors: Mapping[str, BehaviorSpec]) -> Academy:
        return Academy(
            behaviors,
            self.num_areas,
            self.agents_per_area,
            decision_period=self.decision_period,
            max_step=self.max_step,
        )

    # what a scene supplies

    @abstractmethod
    def arrays(self) -> Arrays:
        """The arrays that make up the state: physics, sensor stacks, timers; not copies.

        The Academy and the random streams keep their own.
        """

    @abstractmethod
    def begin_episodes(self, agents: Agents) -> None:
        """Start a new episode for these agents."""

    @abstractmethod
    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        """Read the sensors of K agents of one behavior: fresh float32 arrays [K, *shape].

        Stacked sensors take one frame per call.
        """

    def observe_state(self, behavior: str, agents: Agents) -> NDArray[np.float32]:
        """[K, state_size] what a critic may know besides what K agents of one behavior observe.

        In units that spread about as much as a standard normal.
        """
        raise UsageError(
            f"scene {self.name}: state_size is {self.state_size}, so it needs the method "
            "`observe_state`"
        )

    def act(self) -> None:  # noqa: B027
        """The first part of a round: every enabled agent executes its stored action.

        As in Unity, agents at their step limit are interrupted after it. A scene whose agents have
        no limit may let them act in `simulate` instead.
        """

    def simulate(self, most: int) -> int:
        """The second part: one step of physics. A scene without physics leaves it out.

        May play up to `most` rounds in one call, which is faster, and returns how many: between
        their steps agents act, and after a step that `fixed_update` must see there is no other.
        """
        return 1

    def fixed_update(self, rounds: int) -> None:  # noqa: B027
        """The last part: rewards and ends for what touched what, and timers.

        `rounds`: how many were simulated since the last call.
        """

    def tableau(self, area: int) -> Tableau:
        """What one area looks like now; a copy.

        A scene may do without: it cannot be filmed, and its page shows figures alone.
        """
        raise NotDrawableError(
            f"the scene {self.name} has no tableau, so there is nothing to draw; to see it, write "
            "its method `tableau`"
        )

    def action_mask(
        self,
        behavior: str,
        agents: Agents,
    ) -> list[NDArray[np.bool_]] | None:
        """What K agents must not choose now, one [K, choices] per branch, True = forbidden.

        None: everything is allowed.
        """
        return None

    def restart(self) -> None:  # noqa: B027
        """Put the physics back to the start of a world; episodes begin after this."""

    def agent_shapes(self) -> NDArray[np.intp]:
        """Which of a tableau's moving shapes is the body of each agent of an area.

        [G]; empty where agents have no bodies.
        """
        return np.arange(self.agents_per_area)

    def rays(self, area: int, agent: int) -> Traces | None:
        """What the rays of an area's agent last met, for drawing; None: it has no rays."""
        return None

    def parameter_arrays(self) -> dict[str, NDArray[np.float64]]:
        """Parameters that act at once, without waiting for the next episode: where each is kept.

        One value per area. A sampler draws at the next episode all the same.
        """
        return {}

    # what all scenes share

    def play(self, most: int) -> int:
        """Run up to `most` rounds, and return how many: at least 1.

        The only place where time advances. It stops after a round in which an episode ends or an
        agent requests a decision. `most` rounds in one call give the same results, bit for bit, as
        that many calls for one round.
        """
        academy = self.academy
        left = most
        while True:
            self.act()
            academy.interrupt_overdue(self)
            rounds = self.simulate(left)
            # The last round is counted by whoever plays on: below, or by `Academy.collect`.
            academy.advance_clock(rounds - 1)
            self.fixed_update(rounds)
            left -= rounds
            if left <= 0 or academy.has_news:
                return most - left
            academy.advance_clock(1)

    def show_state(self) -> None:
        """Show critics the state as each behavior's last sensor; only before the first reset."""
        sensor = ObservationSpec.vector(self.state_size, "State")
        self.academy.add_sensors(replace(sensor, critic_only=True))
        self._shows_state = True

    def observe_all(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        """What these agents observe and, where it is shown, the state.

        Raises a UsageError where that is not what the spec says.
        """
        observed = self.observe(behavior, agents)
        if self._shows_state:
            observed.append(self.observe_state(behavior, agents))
        sensors = self.academy.behaviors[behavior].observation_specs
        fits = len(observed) == len(sensors)
        for array, sensor in zip(observed, sensors, strict=False):
            fits &= array.shape == (len(agents), *sensor.shape)
            # Other objects for the same type exist, but NumPy makes arrays with this one.
            fits &= array.dtype is _FLOAT32
        return observed if fits else self._fitted(behavior, observed, len(agents))

    def _fitted(
        self, behavior: str, observed: list[NDArray[Any]], count: int
    ) -> list[NDArray[np.float32]]:
        """Observations of `count` agents as float32. Raises a UsageError for wrong shapes."""
        sensors = self.academy.behaviors[behavior].observation_specs
        if len(observed) != len(sensors):
            names = ", ".join(sensor.name for sensor in sensors)
            raise UsageError(
                f"scene {self.name}: {behavior}: `observe` returned {len(observed)} arrays, "
                f"expected {len(sensors)}: {names}"
            )
        for array, sensor in zip(observed, sensors, strict=True):
            expected = (count, *sensor.shape)
            # Booleans, integers and floats.
            if array.shape != expected or array.dtype.kind not in "biuf":
                raise UsageError(
                    f"scene {self.name}: {behavior}: sensor {sensor.name!r}: `observe` returned "
                    f"{array.dtype} of shape {array.shape}, expected float32 of shape {expected}"
                )
        return [array.astype(np.float32, copy=False) for array in observed]

    def capacity(self, behavior: str) -> int:
        """The most agents of this behavior that can exist at one time, all areas together."""
        return self.academy.agent_id.size

    def set_parameter(self, name: str, value: ParameterValue) -> None:
        """Set one of `parameters`; it acts when the scene reads it next.

        Raises a UsageError for an unknown name or a value out of range.
        """
        self.parameter_values.set(name, value)
        kept = self.parameter_arrays()
        if name in kept and not isinstance(value, Sampler):
            kept[name][:] = value

    def state(self) -> Arrays:
        """Copies of `arrays`."""
        return {name: array.copy() for name, array in self.arrays().items()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue exactly from what `state` returned."""
        for name, array in self.arrays().items():
            array[...] = state[name]

    def add_statistic(self, name: str, amount: float) -> None:
        """Add to one of the sums of the training log."""
        self.statistics[name] = self.statistics.get(name, 0.0) + amount

    def take_statistics(self) -> dict[str, float]:
        """The sums since the last call."""
        taken, self.statistics = self.statistics, {}
        return taken

    def close(self) -> None:
        """Release threads. Idempotent."""
        self._threads.close()

    def _agents_of(self, areas: NDArray[np.intp]) -> Agents:
        """All agents of these areas."""
        first = areas[:, None] * self.agents_per_area
        agents = first + np.arange(self.agents_per_area)  # [K, G]
        return agents.reshape(-1)

    def _play_kernel(
        self, kernel: Callable[..., int], most: int, *arguments: Any
    ) -> int:
        """Run kernel(first, last, most, *arguments) -> rounds over all areas, for `simulate`."""
        # Several threads play one round at a time, because a round in which an episode ends is the
        # last one for all areas, and the threads do not know each other's.
        if self._threads.parts(self.num_areas) == 1:
            return kernel(0, self.num_areas, most, *arguments)
        self._threads.run(kernel, self.num_areas, 1, *arguments)
        return 1


class ParameterReader:
    """The environment parameters of one scene.

    Holds what was set. A sampler is drawn from again wherever the scene reads it.
    """

    def __init__(
        self, scene: str, known: Mapping[str, Parameter], streams: Streams
    ) -> None:
        self._scene = scene
        self._known = known
        self._streams = streams
        self._set: dict[str, ParameterValue] = {}

    def set(self, name: str, value: ParameterValue) -> None:
        if name not in self._known:
            listed = ", ".join(sorted(self._known)) or "none"
            raise UsageError(
                f"{self._scene}: unknown parameter {name!r}; it knows: {listed}"
            )
        self._known[name].check(self._scene, name, value)
        self._set[name] = value

    def read(self, name: str, areas: NDArray[np.intp]) -> NDArray[np.float64]:
        """One value for each of K areas: [K].

        A sampler draws from each area's own stream.
        """
        known = self._known[name]
        value = self._set.get(name, known.default)
        if isinstance(value, Sampler):
            u = self._streams.uniform(areas, 2)
            # A normal distribution reaches everywhere, but a mass below 0 would break the
            # physics.
            return np.clip(value.quantile(u[:, 0], u[:, 1]), known.low, known.high)
        return np.full(len(areas), float(value))
