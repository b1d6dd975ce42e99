"""The contract that every world keeps, what only some worlds can do, and the recipe that makes one.

An `Env` speaks `specs` and `steps`, so that callers need not know Unity from MuJoCo. An `EnvRecipe`
is all that worker processes, checkpoints and command lines need to carry.

What only some worlds can do is a small protocol (`Stateful`, `Drawable`, ...). A caller checks for
it by type:

    if isinstance(env, Stateful):
        saved = env.state()
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from touchline.envs.actions import ActionError, as_actions, check_actions
from touchline.envs.saved_state import Arrays
from touchline.errors import UsageError
from touchline.extras import explain_missing
from touchline.known_files import refuse_other_kinds
from touchline.parameters import ParameterValue
from touchline.plugins import imported
from touchline.scenes import MOST_AREAS, SCENES
from touchline.specs import ActionTuple, BehaviorSpec
from touchline.statistics import EnvironmentStats
from touchline.steps import DecisionSteps, Exchange, TerminalSteps

EDITOR = "editor"
"""The target that means the Unity Editor rather than a player's executable."""
LARGEST_SEED = 2**63 - 1
"""PyTorch takes twice that, and further worlds and networks get the next seeds."""


@runtime_checkable
class Env(Protocol):
    """An environment of any kind, called world: the methods that every world has.

    One `step` is one exchange: actions go in, then some agents need a decision and some have ended.
    """

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        """Full behavior name -> spec. A live view: a Unity world may add behaviors later."""

    def capacity(self, behavior: str) -> int | None:
        """The most agents of this behavior that can exist at once; None where that is unknown."""

    def reset(
        self,
        seed: int | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> None:
        """Restart the whole world.

        The same seed gives the same course of events; None continues the random streams.
        """

    def set_parameters(self, parameters: Mapping[str, ParameterValue]) -> None:
        """Set environment parameters during a run; each acts when the world next reads it."""

    def set_actions(self, behavior: str, actions: ActionTuple) -> None:
        """Actions for the agents of `steps(behavior)[0]`, in that order.

        Agents without one do nothing (zeros). Raises an ActionError for a wrong shape, a choice out
        of range or a masked choice.
        """

    def step(self) -> None:
        """Deliver the actions and wait for the next exchange."""

    def steps(self, behavior: str) -> tuple[DecisionSteps, TerminalSteps]:
        """Which agents need a decision and which ended in the last exchange.

        Later steps never change these arrays.
        """

    def close(self) -> None:
        """Release processes, ports, threads and graphics. Idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class ClosesOnExit:
    """A context manager that calls `close` at its end."""

    def close(self) -> None:
        """Release everything. Idempotent."""
        # Every environment holds other things: each class writes its own.
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class MLAgentsEnv(ClosesOnExit, Env):
    """An Env that also has the names of ML-Agents' Python API (`BaseEnv` of mlagents_envs 1.1.0).

    Every world that `make` opens is one; a world of your own need not be.
    """

    name: str
    """What messages call the world."""
    exchanges: int
    """Number of the last exchange, for messages."""
    _exchange: Exchange | None = None
    """The last exchange; None before the first reset."""

    @property
    def exchange(self) -> Exchange:
        """The last exchange, all behaviors. Raises a UsageError before the first reset."""
        if self._exchange is None:
            raise UsageError(f"{self.name}: call reset() before steps()")
        return self._exchange

    def steps(self, behavior: str) -> tuple[DecisionSteps, TerminalSteps]:
        """Which agents need a decision and which ended in the last exchange."""
        if behavior not in self.exchange:
            known = ", ".join(self.exchange)
            raise UsageError(
                f"{self.name}: unknown behavior {behavior!r}; behaviors: {known}"
            )
        return self.exchange[behavior]

    @abstractmethod
    def execute(self, behavior: str, actions: ActionTuple) -> None:
        """Set actions without checking them."""

    @abstractmethod
    def _actions_so_far(self, behavior: str) -> ActionTuple | None:
        """The actions that were set since the last exchange; None: none yet."""

    @property
    def behavior_specs(self) -> Mapping[str, BehaviorSpec]:
        """Full behavior name -> spec: `behaviors`."""
        return self.behaviors

    def get_steps(self, behavior_name: str) -> tuple[DecisionSteps, TerminalSteps]:
        """`steps`, with masks as Unity sends them.

        Wherever agents choose in discrete branches there are arrays, all False where everything is
        allowed. In `steps` that is None, which costs nothing.
        """
        decisions, terminals = self.steps(behavior_name)
        branches = self.behaviors[behavior_name].action_spec.discrete_branches
        if branches and len(decisions) and decisions.action_mask is None:
            masks = [np.zeros((len(decisions), size), np.bool_) for size in branches]
            decisions = replace(decisions, action_mask=masks)
        return decisions, terminals

    def set_actions(self, behavior: str, actions: ActionTuple | NDArray[Any]) -> None:
        """Actions for the agents of `steps(behavior)[0]`, in that order.

        A bare array [agents, actions] is taken where the behavior has actions of one kind. Raises
        an ActionError for a wrong shape, a choice out of range or a masked choice.
        """
        decisions, _ = self.steps(behavior)
        if not isinstance(actions, ActionTuple):
            spec = self.behaviors[behavior].action_spec
            actions = as_actions(behavior, spec, actions)
        self._check(behavior, actions, decisions)
        self.execute(behavior, actions)

    def set_action_for_agent(
        self, behavior_name: str, agent_id: int, action: ActionTuple | NDArray[Any]
    ) -> None:
        """The action of one agent; others of the behavior do nothing unless theirs is set too.

        Raises an ActionError for an agent that needs no decision, and as `set_actions`.
        """
        decisions, _ = self.steps(behavior_name)
        if agent_id not in decisions:
            raise ActionError(
                f"{behavior_name}: agent {agent_id} needs no decision; those that do: "
                f"{list(decisions)[:20]}"
            )
        spec = self.behaviors[behavior_name].action_spec
        own = as_actions(behavior_name, spec, action)
        row = decisions.agent_id_to_index[agent_id]
        self._check(behavior_name, own, _one_of(decisions, row))
        before = self._actions_so_far(behavior_name)
        together = before or spec.empty_action(len(decisions))
        # Copies: what was set before may be the caller's own arrays.
        continuous = together.continuous.copy()
        discrete = together.discrete.copy()
        continuous[row] = own.continuous[0]
        discrete[row] = own.discrete[0]
        self.execute(behavior_name, ActionTuple(continuous, discrete))

    def _check(
        self, behavior: str, actions: ActionTuple, decisions: DecisionSteps
    ) -> None:
        """Raise an ActionError unless these actions fit the agents of `decisions`."""
        spec = self.behaviors[behavior].action_spec
        check_actions(self.name, behavior, spec, actions, decisions, self.exchanges)


def _one_of(decisions: DecisionSteps, row: int) -> DecisionSteps:
    one = slice(row, row + 1)
    masks, second = decisions.action_mask, decisions.second_mask
    return DecisionSteps(
        obs=[obs[one] for obs in decisions.obs],
        reward=decisions.reward[one],
        agent_id=decisions.agent_id[one],
        action_mask=None if masks is None else [mask[one] for mask in masks],
        group_id=decisions.group_id[one],
        group_reward=decisions.group_reward[one],
        second_mask=None if second is None else second[one],
    )


@runtime_checkable
class Stateful(Protocol):
    """A world that can be saved and restored exactly."""

    def state(self) -> Arrays:
        """Everything needed to continue from here bit for bit, as copies."""

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned in a world of the same recipe."""


@runtime_checkable
class Drawable(Protocol):
    """A world that can draw itself."""

    def render(
        self, area: int = 0, width: int = 640, height: int = 480
    ) -> NDArray[np.uint8]:
        """One area as a picture [H, W, 3]."""


@runtime_checkable
class Placed(Protocol):
    """A world that knows in which of its areas an agent is."""

    def areas_of(self, agent_ids: NDArray[np.int32]) -> NDArray[np.intp]:
        """The area of each of these agents, [N]; 0 for those that are not there."""


@runtime_checkable
class Watchable(Protocol):
    """A world that can be filmed between its exchanges."""

    @property
    def film_rate(self) -> tuple[float, int]:
        """Pictures per second of film, and the number of the world's small steps per picture."""

    def watched(
        self, look: Callable[[], None], every: int = 1
    ) -> AbstractContextManager[None]:
        """Within this context, `look` is called after every `every` small steps."""


@runtime_checkable
class Reporting(Protocol):
    """A world that reports numbers about itself for the training log."""

    def take_statistics(self) -> EnvironmentStats:
        """What was reported since the last call."""


@runtime_checkable
class SetInMidRun(Protocol):
    """A world that knows whether its next reset differs from the one before."""

    @property
    def has_settings_to_come(self) -> bool:
        """Whether anything was set that no episode has begun with yet."""


@runtime_checkable
class Limited(Protocol):
    """A world that may end an episode after some time."""

    @property
    def most_decisions(self) -> int | None:
        """No episode of an agent has more of them; None: there is no limit."""


@runtime_checkable
class GameReporting(Protocol):
    """A world of games that have results."""

    def rest_after(self, episodes: int) -> None:
        """From the next reset on, an area may rest that has played its share of so many games."""

    def game_figures(self, episodes: int) -> dict[str, Any]:
        """Results of the first `episodes` games of an evaluation, ready for JSON."""


@runtime_checkable
class Refereed(Protocol):
    """A world that states how the games of two or more groups ended."""

    @property
    def game_scores(self) -> Mapping[int, float]:
        """Games that ended since the exchange before the last one.

        Group id -> 1 for the group that won, 0 for one that lost, 0.5 for a draw.
        """


@runtime_checkable
class Configured(Protocol):
    """A world with options that change what is observed or done."""

    @property
    def interface_options(self) -> Mapping[str, str]:
        """All of these options, as a recipe takes them."""


@runtime_checkable
class Staffed(Protocol):
    """A world with policies of its own, such as the bots of a game."""

    @property
    def own_policies(self) -> Mapping[str, Callable[[str], Any]]:
        """Name -> makes the policy that plays a full behavior name."""


@runtime_checkable
class TeamMerging(Protocol):
    """A world that can show the teams of a behavior as one behavior."""

    def merge_teams(self) -> None:
        """Show one behavior instead of one per team. No effect after the first reset."""


@runtime_checkable
class Waiting(Protocol):
    """A world that runs in another process."""

    @property
    def waited_s(self) -> float:
        """Seconds spent waiting for that process since the world was opened."""


@dataclass(frozen=True)
class World:
    """One kind of world, and what is known of it before one is opened."""

    open: str
    """`module:function(recipe) -> MLAgentsEnv`; imported when a world is opened."""
    is_player: bool = False
    """A Unity player or the Editor: a process behind a socket, which can fail and be restarted."""
    is_replay: bool = False
    """Replays what was recorded, whatever the actions."""
    is_scene: bool = False
    """One of `touchline.scenes`: in process, with any number of areas and known parameters."""
    prefix: str = ""
    """How an ENV of this kind begins, as in `microrts:MAP?option=value`."""
    opponents: str = ""
    """`module:function` that plays a policy against named opponents, where the world has any."""
    both_sides: Mapping[str, str] = field(default_factory=dict)
    """Options with which policies play all sides of a game, where that is not the default."""


@dataclass(frozen=True)
class EnvRecipe:
    """How to open a world: frozen, picklable, comparable.

    `world` names an entry of `WORLDS`, `target` what to open there (a scene's name, a player's
    path). `num_areas` None means the world's own number. `options` are those of one kind of world.
    """

    world: str
    target: str
    num_areas: int | None = None
    seed: int = 0
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.world not in WORLDS:
            raise UsageError(
                f"unknown world {self.world!r}; worlds: {', '.join(WORLDS)}"
            )
        if self.num_areas is not None and self.num_areas < 1:
            raise UsageError(f"num_areas must be 1 or more, got {self.num_areas}")
        if self.num_areas is not None and self.num_areas > MOST_AREAS:
            raise UsageError(
                f"num_areas must be {MOST_AREAS:,} or less, got {self.num_areas}"
            )
        if not 0 <= self.seed <= LARGEST_SEED:
            raise UsageError(f"seed must be 0 to {LARGEST_SEED}, got {self.seed}")

    @property
    def kind(self) -> World:
        """What is known of this kind of world."""
        return WORLDS[self.world]

    @property
    def is_editor(self) -> bool:
        """Whether this is the Unity Editor, of which there is only one."""
        return self.kind.is_player and self.target == EDITOR

    def check_options(self, *known: str) -> None:
        """Raise a UsageError for an option that this kind of world does not have."""
        unknown = sorted(self.options.keys() - set(known))
        if unknown:
            raise UsageError(
                f"{self.target}: unknown option {unknown[0]!r}; options: {', '.join(known)}"
            )

    @staticmethod
    def parse(env: str | EnvRecipe, **changes: Any) -> EnvRecipe:
        """A recipe from an ENV as on the command line.

        That is a scene's name, a player's path, `editor`, a recording, or
        `microrts:TASK_OR_MAP?option=value&...`.
        """
        if isinstance(env, EnvRecipe):
            return replace(env, **changes)
        if not isinstance(env, str):
            raise UsageError(f"expected an ENV as text or an EnvRecipe, got {env!r}")
        if not env.strip():
            raise UsageError(
                "expected a scene's name or a player's path, got an empty text"
            )
        # Prefixes are looked for first: the text behind one may look like a path.
        for name, world in WORLDS.items():
            if world.prefix and env.startswith(world.prefix):
                target, _, query = env.removeprefix(world.prefix).partition("?")
                recipe = EnvRecipe(name, target, options=_options(env, query))
                return replace(recipe, **changes)
        return replace(EnvRecipe(_world_of(env), env), **changes)

    def at_natural_pace(self, width: int, height: int) -> EnvRecipe:
        """The recipe of a player with a window of this size that runs as fast as the clock.

        Other worlds have no clock of their own, and their recipes stay as they are.
        """
        if not self.kind.is_player:
            return self
        engine = {
            "width": width,
            "height": height,
            # A capture frame rate would fix the time between two frames, however long they took.
            "time_scale": 1.0,
            "capture_frame_rate": 0,
        }
        return replace(self, options={**self.options, "engine": engine})

    def with_recorded_wire(self, path: Path | None) -> EnvRecipe:
        """The recipe of the same world with its wire recorded into this file, if there is one."""
        if path is None:
            return self
        if not self.kind.is_player:
            raise UsageError(
                f"--record-wire: {self.target} has no wire; only a Unity player or the Editor has"
            )
        if not path.name.endswith(".wire.gz"):
            raise UsageError(
                f"--record-wire: expected a name that ends with .wire.gz, got {path.name}"
            )
        return replace(self, options={**self.options, "record_wire": str(path)})


WORLDS = {
    "scene": World("touchline.envs.scene_env:open_scene", is_scene=True),
    "unity": World("touchline.envs.unity_env:open_unity", is_player=True),
    "recording": World("touchline.envs.recorded_env:open_recording", is_replay=True),
}

# Looks for the folder without importing it: the wing can be deleted.
if find_spec("touchline.microrts") is not None:
    WORLDS["microrts"] = World(
        "touchline.microrts.env:open_microrts",
        prefix="microrts:",
        opponents="touchline.microrts.opponents:evaluate_opponents",
        both_sides={"opponent": "self"},
    )


def _world_of(env: str) -> str:
    """Which world an ENV without a prefix means."""
    # A bare word is a scene. A file with the name of a scene is written with its folder.
    if env == EDITOR:
        return "unity"
    if env.endswith(".wire.gz"):
        return "recording"
    path = Path(env)
    if env not in SCENES:
        refuse_other_kinds(path, "a scene's name, a player or a recording")
    has_separator = "/" in env or "\\" in env
    # These suffixes are Unity's own for builds on Linux, Windows and macOS.
    has_player_suffix = path.suffix in (".x86_64", ".x86", ".exe", ".app")
    is_player = has_separator or has_player_suffix or path.exists()
    # A file in the current folder must not hide the scene of its name. What is neither becomes
    # a scene, whose error lists the names that exist.
    return "unity" if is_player and env not in SCENES else "scene"


def _options(env: str, query: str) -> dict[str, str]:
    """The options behind the question mark: name=value, joined by &."""
    options: dict[str, str] = {}
    if not query:
        return options
    for part in query.split("&"):
        name, equals, value = part.partition("=")
        if not (name and equals and value):
            raise UsageError(
                f"{env}: expected option=value&option=value after the question mark, got {part!r}"
            )
        options[name] = value
    return options


def make(recipe: EnvRecipe | str) -> MLAgentsEnv:
    """Open an environment, from a recipe or from an ENV as on the command line."""
    recipe = EnvRecipe.parse(recipe)
    with explain_missing(recipe.target):
        env: MLAgentsEnv = imported(recipe.kind.open)(recipe)
    return env
