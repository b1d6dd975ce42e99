"""A scene in this process, as an Env.

Checks what callers send, keeps the last exchange, saves and restores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.tableau import Tableau
from touchline.envs.env import EnvRecipe, MLAgentsEnv, TeamMerging
from touchline.envs.saved_state import Arrays, below, prefixed
from touchline.errors import NonFiniteError, UsageError
from touchline.parameters import ParameterValue
from touchline.physics.kernels import announce_as, compiled
from touchline.scenes import compile_seconds, scene_class
from touchline.scenes.scene import Scene
from touchline.specs import ActionTuple, BehaviorSpec
from touchline.statistics import EnvironmentStats, StatsAggregationMethod
from touchline.steps import DecisionSteps, Exchange, TerminalSteps

if TYPE_CHECKING:
    from touchline.drawing.pixels import Painter

# A scene that decides at every step is slowed down to what an eye can follow.
_SLOW_FPS, _FASTEST_FPS = 5, 50


def open_scene(recipe: EnvRecipe) -> SceneEnv:
    """The world "scene".

    Options: `num_threads`, simulation threads (0: all processors, the default); `state`, whether to
    show critics the state of the scene, which not every scene can.
    """
    recipe.check_options("num_threads", "state")
    cls = scene_class(recipe.target)
    # Before the scene is built, because building it starts the compiler.
    announce_as(recipe.target, compile_seconds(recipe.target))
    scene = cls(
        recipe.num_areas or cls.unity_areas, int(recipe.options.get("num_threads", 0))
    )
    if recipe.options.get("state"):
        if not scene.state_size:
            raise UsageError(
                f"scene {recipe.target}: it has no state to show; set critic_sees_state to false"
            )
        scene.show_state()
    return SceneEnv(scene, recipe.seed, recipe.parameters)


class SceneEnv(MLAgentsEnv):
    """One scene, stepped exchange by exchange. Use as a context manager, or call `close`."""

    def __init__(
        self,
        scene: Scene,
        seed: int = 0,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> None:
        self.scene = scene
        self.name = scene.name
        self._seed: int | None = seed
        self._is_closed = False
        self.exchanges = 0
        self._sent: dict[str, ActionTuple] = {}
        """What `execute` was given since the last exchange."""
        self._painter: Painter | None = None
        """Keeps the OpenGL context of the last picture's size."""
        self.has_settings_to_come = False
        """Whether anything was set since the last reset."""
        self.set_parameters(parameters or {})

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return self.scene.academy.behaviors

    @property
    def num_areas(self) -> int:
        return len(self.scene.academy.agent_id)

    def capacity(self, behavior: str) -> int | None:
        return self.scene.capacity(behavior)

    @property
    def most_decisions(self) -> int | None:
        """The scene's limit for agents; an agent decides once in a step at most."""
        return self.scene.max_step or None

    def merge_teams(self) -> None:
        """Present the teams of a behavior as one behavior, from the first reset on.

        Does nothing after a reset, or for a scene that cannot.
        """
        if self._exchange is None and isinstance(self.scene, TeamMerging):
            self.scene.merge_teams()

    def set_parameters(self, parameters: Mapping[str, ParameterValue]) -> None:
        """Set environment parameters in mid-run; each acts when the scene reads it next.

        Where one is refused, those that are allowed are set nevertheless.
        """
        left = dict(parameters)
        self.has_settings_to_come |= bool(left)
        while left:
            # Again and again, because one may be allowed only next to another of them.
            refused: dict[str, UsageError] = {}
            for name, value in left.items():
                try:
                    self.scene.set_parameter(name, value)
                except UsageError as error:
                    refused[name] = error
            if len(refused) == len(left):
                raise next(iter(refused.values()))
            left = {name: left[name] for name in refused}

    def reset(
        self,
        seed: int | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> None:
        """With a seed, the start of that world; without, what Unity does on RESET."""
        # After a RESET every agent begins a new episode and does nothing (zeros) for one physics
        # step before it decides, as recorded sessions show.
        self._check_open()
        scene = self.scene
        academy = self.scene.academy
        scene.game_scores = {}
        self.set_parameters(parameters or {})
        self.has_settings_to_come = False
        if seed is None:
            seed = self._seed  # the recipe's, for the very first reset
        # Later resets without a seed continue the random streams, as the contract of Env says.
        self._seed = None
        if seed is not None:
            # The order is that of the dependencies: streams, then the Academy's ids, then the
            # scene that draws from one and registers with the other.
            scene.streams.restart(seed)
            academy.restart()
            scene.restart()
            scene.begin_episodes(np.flatnonzero(academy.enabled))
            self._receive(academy.collect(scene))
        else:
            academy.restart_clock()
            scene.begin_episodes(np.flatnonzero(academy.enabled))
            self._receive(academy.advance(scene))

    def execute(self, behavior: str, actions: ActionTuple) -> None:
        """Set actions without checking masks, as a Unity player does."""
        self.scene.academy.set_actions(behavior, actions)
        self._sent[behavior] = actions

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError(
                f"{self.scene.name}: this environment is closed; make a new one"
            )

    def step(self) -> None:
        self._check_open()
        if self._exchange is None:
            self.reset()  # as a Unity world does
            return
        academy = self.scene.academy
        # Agents without an action do nothing; otherwise they would repeat their last one.
        for behavior, (decisions, _) in self._exchange.items():
            if len(decisions) and behavior not in self._sent:
                action_spec = self.behaviors[behavior].action_spec
                academy.set_actions(behavior, action_spec.empty_action(len(decisions)))
        self.scene.game_scores = {}
        self._receive(academy.advance(self.scene))

    def state(self) -> Arrays:
        """Scene, Academy, random streams and the last exchange, under names with their part."""
        parts = {
            "scene": self.scene.state(),
            "academy": self.scene.academy.state(),
            "streams": self.scene.streams.state(),
            "exchange": _flattened(self._exchange or {}),
        }
        state: Arrays = {}
        for part, values in parts.items():
            state |= prefixed(part, values)
        return state

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.scene.streams.load_state(below("streams", state))
        self.scene.academy.load_state(below("academy", state))
        self.scene.load_state(below("scene", state))
        # This world has begun, so a reset must not start over with the recipe's seed.
        self._seed = None
        exchange = {}
        for name, spec in self.behaviors.items():
            exchange[name] = _unflattened(below(f"exchange/{name}", state), spec)
        self._receive(exchange)

    @property
    def game_scores(self) -> Mapping[int, float]:
        """How the games that ended since the last exchange but one ended; see `Refereed`."""
        return self.scene.game_scores

    def take_statistics(self) -> EnvironmentStats:
        """The scene's sums since the last call."""
        sums = self.scene.take_statistics()
        return {
            name: [(value, StatsAggregationMethod.SUM)] for name, value in sums.items()
        }

    def tableau(self, area: int = 0) -> Tableau:
        """What one area looks like now, as data: see `drawing.tableau`."""
        if not 0 <= area < self.num_areas:
            raise UsageError(
                f"{self.scene.name}: area must be 0 to {self.num_areas - 1}, got {area}"
            )
        return self.scene.tableau(area)

    def areas_of(self, agent_ids: NDArray[np.int32]) -> NDArray[np.intp]:
        """The area of each of these agents; 0 for those that are not there."""
        present = self.scene.academy.agent_id
        is_agent = agent_ids[:, None] == present.reshape(-1)  # [N, A * G]
        # Where none is, `argmax` gives the first.
        return np.asarray(is_agent.argmax(axis=1) // present.shape[1])

    def render(
        self, area: int = 0, width: int = 640, height: int = 480
    ) -> NDArray[np.uint8]:
        tableau = self.tableau(area)
        if self._painter is None:
            # MuJoCo takes a while to import, and scenes without it are often never drawn.
            from touchline.drawing.pixels import Painter

            self._painter = Painter()
        return self._painter.draw(tableau, width, height)

    @property
    def film_rate(self) -> tuple[float, int]:
        """Frames per second of a film, and physics steps per frame."""
        # Films show simulated time, unless that is too fast to follow.
        # Such a scene moves by whole cells.
        if self.scene.decision_period == 1:
            return _SLOW_FPS, 1
        physics_fps = 1.0 / self.scene.seconds_per_step
        fps = min(physics_fps, _FASTEST_FPS)
        return fps, max(1, round(physics_fps / fps))

    @contextmanager
    def watched(self, look: Callable[[], None], every: int = 1) -> Iterator[None]:
        """While this lasts, call `look` after every `every` physics steps.

        For films, which show more than one moment per exchange.
        """
        academy, rounds = self.scene.academy, 0

        def count_and_look() -> None:
            nonlocal rounds
            rounds += 1
            if rounds % every == 0:
                look()

        academy.after_round = count_and_look
        try:
            yield
        finally:
            academy.after_round = None

    def close(self) -> None:
        self._is_closed = True
        self.scene.close()
        if self._painter is not None:
            self._painter.close()

    def _actions_so_far(self, behavior: str) -> ActionTuple | None:
        return self._sent.get(behavior)

    def _receive(self, exchange: Exchange | None) -> None:
        assert exchange is not None, "after a reset every agent decides"
        self.exchanges += 1
        _refuse_non_finite(self.name, exchange, self.exchanges)
        self._exchange = exchange
        self._sent.clear()


def _refuse_non_finite(scene: str, exchange: Exchange, number: int) -> None:
    for behavior, pair in exchange.items():
        for steps in pair:
            if not len(steps):
                continue
            arrays = (steps.reward, *steps.obs)
            # One compiled pass over everything; only a failure is searched for its place.
            flat = tuple(array.reshape(-1) for array in arrays)
            if _are_finite(flat):
                continue
            for i, array in enumerate(arrays):
                if np.isfinite(array).all():
                    continue
                row = int(np.argwhere(~np.isfinite(array))[0, 0])
                what = f"observation {i - 1}" if i else "reward"
                raise NonFiniteError(
                    f"{scene}: {behavior}: agent {steps.agent_id[row]} sent {what} with a NaN or "
                    f"an infinity at exchange {number}"
                )


@compiled
def _are_finite(arrays: tuple[NDArray[np.float32], ...]) -> bool:
    not_finite = 0
    for values in arrays:
        # By index and to the end, without a break: so it becomes vector instructions.
        for i in range(len(values)):
            # "Not less" is true of NaN, too, with which every comparison fails.
            not_finite += not abs(values[i]) < np.float32(np.inf)
    return not_finite == 0


def _flattened(exchange: Exchange) -> dict[str, NDArray[Any]]:
    """An exchange as named arrays, copied: behavior/decision or terminal/field."""
    flat: dict[str, NDArray[Any]] = {}
    for behavior, pair in exchange.items():
        for kind, steps in zip(("decision", "terminal"), pair, strict=True):
            for key, value in vars(steps).items():
                name = f"{behavior}/{kind}/{key}"
                # A cached property leaves its value among the fields, and can be computed
                # again.
                if key == "agent_id_to_index" or value is None:
                    continue
                if isinstance(value, list):
                    for i, part in enumerate(value):
                        flat[f"{name}/{i}"] = part.copy()
                else:
                    flat[name] = value.copy()
    return flat


def _unflattened(
    flat: Mapping[str, NDArray[Any]], spec: BehaviorSpec
) -> tuple[DecisionSteps, TerminalSteps]:
    """One behavior's steps from what `_flattened` made of them, copied."""
    copies = {name: array.copy() for name, array in flat.items()}
    decision = below("decision", copies)
    terminal = below("terminal", copies)
    decision_obs = _take_list(decision, "obs")
    terminal_obs = _take_list(terminal, "obs")
    masks = _take_list(decision, "action_mask")
    if not decision_obs:
        return DecisionSteps.empty(spec), TerminalSteps.empty(spec)
    decisions = DecisionSteps(obs=decision_obs, action_mask=masks or None, **decision)
    return decisions, TerminalSteps(obs=terminal_obs, **terminal)


def _take_list(named: dict[str, NDArray[Any]], key: str) -> list[NDArray[Any]]:
    """Remove `key/0`, `key/1` and so on; returns them in order."""
    parts = [name for name in named if name.startswith(key + "/")]
    # As numbers: as text, "10" comes before "2".
    parts.sort(key=lambda name: int(name.rpartition("/")[2]))
    return [named.pop(name) for name in parts]
