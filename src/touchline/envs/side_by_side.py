"""Several worlds, stepped side by side: one thread each around the blocking exchange.

`SideBySide` offers what `Slots` offers, with the rows of all worlds in one table per behavior. Each
row belongs to one world (`env_index`) and keeps its place when another world's table grows.
`reset_each` and `step_each` give the rows of each world by itself.

With `RestartLimits`, a player that fails is replaced by a new one. Only its own open episodes are
truncated; the other worlds continue. The limits are those of ML-Agents' `env_settings`, where one
crash resets every world.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.envs.actions import ActionError
from touchline.envs.env import ClosesOnExit, Env, EnvRecipe, Waiting, make
from touchline.envs.giving_up import wait_only_until
from touchline.envs.saved_state import Arrays, below, prefixed
from touchline.envs.slots import Slots
from touchline.envs.slots.rows import SlotCounts, SlotRows, reorder_rows, stack_rows
from touchline.errors import UsageError
from touchline.jobs.job import RestartLimits, Restarts
from touchline.log import Log
from touchline.parameters import ParameterValue
from touchline.protocol.errors import UnityException
from touchline.protocol.recording import SUFFIX
from touchline.specs import ActionTuple, BehaviorSpec
from touchline.statistics import EnvironmentStats, merged_statistics

logger = logging.getLogger(__name__)

Rows = Mapping[str, SlotRows]
"""Full behavior name -> its rows."""
Actions = Mapping[str, ActionTuple]
"""Full behavior name -> the actions of its slots."""


@dataclass
class _World:
    """One world, its restarts, and its places in the tables of all."""

    index: int
    slots: Slots
    recipe: EnvRecipe | None
    """How to replace it; None for a world that the caller opened."""
    restarts: Restarts
    places: dict[str, NDArray[np.intp]] = field(default_factory=dict)
    """Per behavior: the row of each of its slots in the table of all worlds."""


class SideBySide(ClosesOnExit):
    """The slots of several worlds, all of which it closes.

    `worlds` are recipes, or worlds that are open already. Recipes are opened at the same time by
    `open_world`. `grow` and `spare_slots` are those of `Slots`. Without `limits` a failure is
    raised; with them a failed world that has a recipe is replaced, and `log` gets a line.
    `seed_step` keeps the seeds of worlds and of their replacements apart: the number of all worlds
    of the run, where these are only some of them.
    """

    def __init__(
        self,
        worlds: Sequence[EnvRecipe | Env],
        limits: RestartLimits | None = None,
        *,
        log: Log = logger.warning,
        open_world: Callable[[EnvRecipe], Env] = make,
        grow: bool = True,
        spare_slots: int = 0,
        seed_step: int | None = None,
    ) -> None:
        if not worlds:
            raise UsageError("expected one world or more, got an empty list")
        self._log = log
        self._open = open_world
        self._seed_step = seed_step or len(worlds)
        # Rows of each behavior's table of all worlds.
        self._sizes: dict[str, int] = {}
        self._worlds: list[_World] = []
        self._is_closed = False
        self._given_up = Event()
        """Once it is set, no thread waits for a player any more."""
        self._threads = ThreadPoolExecutor(
            len(worlds),
            thread_name_prefix="touchline-world",
            initializer=wait_only_until,
            initargs=(self._given_up,),
        )
        opened = self._opened(worlds)
        for index, (entry, env) in enumerate(zip(worlds, opened, strict=True)):
            slots = Slots(env, grow=grow, spare_slots=spare_slots, env_index=index)
            recipe = entry if isinstance(entry, EnvRecipe) else None
            restarts = Restarts(f"world {index}", limits)
            self._worlds.append(_World(index, slots, recipe, restarts))

    @property
    def slots(self) -> list[Slots]:
        """The slots of each world by itself."""
        return [world.slots for world in self._worlds]

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        """Full behavior name -> spec, of all worlds."""
        # Reversed, so that the first world's spec wins where versions of a game differ.
        found: dict[str, BehaviorSpec] = {}
        for world in reversed(self._worlds):
            found |= world.slots.behaviors
        return found

    @property
    def counts(self) -> Mapping[str, SlotCounts]:
        """What rows leave out, per behavior, all worlds together."""
        total: dict[str, SlotCounts] = {}
        for world in self._worlds:
            for name, counts in world.slots.counts.items():
                so_far = vars(total.setdefault(name, SlotCounts()))
                for part, count in vars(counts).items():
                    so_far[part] += count
        return total

    @property
    def waited_s(self) -> float | None:
        """Seconds spent waiting for worlds in other processes, on average; None without such."""
        # The worlds wait at the same time, so the mean, not the sum, is time of the run.
        waited = [world.slots.waited_s for world in self._worlds]
        known = [seconds for seconds in waited if seconds is not None]
        return sum(known) / len(known) if known else None

    @property
    def interface_options(self) -> Mapping[str, str]:
        """The worlds' options that change what is observed or done."""
        return self._worlds[0].slots.interface_options

    @property
    def game_scores(self) -> dict[tuple[int, int], float]:
        """How games ended in the last step; see `Slots.game_scores`."""
        scores: dict[tuple[int, int], float] = {}
        for world in self._worlds:
            scores |= world.slots.game_scores
        return scores

    def take_statistics(self) -> EnvironmentStats:
        """What the worlds reported about themselves since the last call, as one report."""
        return merged_statistics(
            world.slots.take_statistics() for world in self._worlds
        )

    def capacity(self, behavior: str) -> int | None:
        """The most agents that can exist at once in all worlds together; None where that is
        unknown.
        """
        total = 0
        for world in self._worlds:
            # A world that has no such behavior yet adds nothing to the sum.
            if behavior not in world.slots.env.behaviors:
                continue
            count = world.slots.capacity(behavior)
            if count is None:
                return None
            total += count
        return total

    def set_parameters(self, values: Mapping[str, ParameterValue]) -> None:
        """Set environment parameters of every world, and of those that may replace them."""
        for world in self._worlds:
            # First, because a world may refuse them.
            world.slots.set_parameters(values)
            # A world that replaces a failed one must start where the lessons are now.
            if world.recipe is not None:
                together = dict(world.recipe.parameters) | dict(values)
                world.recipe = replace(world.recipe, parameters=together)

    def state(self) -> Arrays | None:
        """The worlds and their tables, as copies; None if one of the worlds cannot be restored."""
        state: Arrays = {}
        for world in self._worlds:
            of_world = world.slots.state()
            if of_world is None:
                return None
            places = {name: array.copy() for name, array in world.places.items()}
            state |= prefixed(f"{world.index}", of_world)
            state |= prefixed(f"places/{world.index}", places)
        return state

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned for worlds of the same recipes."""
        self._sizes = {}
        for world in self._worlds:
            world.slots.load_state(below(f"{world.index}", state))
            world.places = below(f"places/{world.index}", state)
            for name, places in world.places.items():
                self._sizes[name] = self._sizes.get(name, 0) + len(places)

    def reset(self, seed: int | None = None) -> dict[str, SlotRows]:
        """Restart every world, world i with seed + i."""
        return self._merged(self.reset_each(seed))

    def step(self, actions: Actions) -> dict[str, SlotRows]:
        """Send the actions [N, ...] of the deciding slots to their worlds and advance each until
        some agent decides.
        """
        for name, given in actions.items():
            size = self._sizes.get(name, len(given))
            if len(given) != size:
                raise UsageError(
                    f"{name}: expected actions for {size} slots, got {len(given)}"
                )
        of_each = []
        for world in self._worlds:
            places = world.places
            own = {
                name: actions[name].select(places[name])
                for name in places
                if name in actions
            }
            of_each.append(own)
        return self._merged(self.step_each(of_each))

    def reset_each(self, seed: int | None = None) -> list[Rows]:
        """Restart every world, world i with seed + i; returns the rows of each by itself."""
        self._refuse_closed()
        seeds = [None if seed is None else seed + world.index for world in self._worlds]
        return self._each(Slots.reset, seeds)

    def step_each(self, actions: Sequence[Actions]) -> list[Rows]:
        """Step every world with its own actions; returns the rows of each by itself."""
        self._refuse_closed()
        # All before any: where one world refuses its actions, no other has moved.
        for world, own in zip(self._worlds, actions, strict=True):
            world.slots.set_actions(own)
        return self._each(_advanced, actions)

    def close(self) -> None:
        """Close every world. Idempotent."""
        self._close(self._worlds)

    def give_back(self) -> None:
        """Close the worlds that were opened here, and leave those of the caller open."""
        self._close([world for world in self._worlds if world.recipe is not None])

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise UsageError("this environment is closed; make a new one")

    def _close(self, worlds: Sequence[_World]) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        # After Ctrl-C in a step, threads may still wait, and the worlds are closed by them.
        self._given_up.set()
        closing = []
        try:
            for slots in [world.slots for world in worlds]:
                if isinstance(slots.env, Waiting):
                    # A player may take seconds to quit, so all of them do it at the same time.
                    closing.append(self._threads.submit(slots.close))
                else:
                    # Graphics must be released by the thread that drew, which is the caller's.
                    slots.close()
            for closed in closing:
                closed.result()
        finally:
            self._threads.shutdown()

    def _opened(self, worlds: Sequence[EnvRecipe | Env]) -> list[Env]:
        """All worlds, open. If one cannot be opened, those that were opened here are closed."""
        if len(worlds) == 1:
            # Here, because Ctrl-C cannot end a thread that waits for a player.
            return [self._open_env(worlds[0])]
        opening = [self._threads.submit(self._open_env, entry) for entry in worlds]
        try:
            return [future.result() for future in opening]
        # An interrupt, too, must not leave players behind.
        except BaseException:
            self._given_up.set()
            # Waits, so that every future below is done and none opens a player afterwards.
            self._threads.shutdown()
            for entry, future in zip(worlds, opening, strict=True):
                if isinstance(entry, EnvRecipe) and future.exception() is None:
                    future.result().close()
            raise

    def _open_env(self, entry: EnvRecipe | Env) -> Env:
        return self._open(entry) if isinstance(entry, EnvRecipe) else entry

    def _each(
        self, call: Callable[[Slots, Any], Rows], arguments: Sequence[Any]
    ) -> list[Rows]:
        """Call every world's slots with its own argument; failed worlds are replaced."""
        if len(self._worlds) == 1:
            # A thread would only add the time of its switches.
            outcomes = [_outcome(call, self._worlds[0].slots, arguments[0])]
        else:
            # All are waited for: if one fails for good, no other is closed in mid-step.
            attempt = partial(_outcome, call)
            outcomes = list(self._threads.map(attempt, self.slots, arguments))
        return [
            self._replaced(world, outcome)
            if isinstance(outcome, Exception)
            else outcome
            for world, outcome in zip(self._worlds, outcomes, strict=True)
        ]

    def _replaced(self, world: _World, error: Exception) -> Rows:
        """The rows of the world that replaces a failed one, as often as the limits allow."""
        recipe = world.recipe
        if recipe is None:
            raise error

        def replaced(error: Exception | None) -> Rows:
            number = world.restarts.number
            self._log(
                f"world {world.index} failed and is restarted (restart {number}); its "
                f"{world.slots.num_active} open episodes are cut, the other worlds continue: "
                f"{error}"
            )
            # Before the next one opens, which may need the same port.
            world.slots.close()
            # A new seed, because the same course of events might lead to the same crash.
            seed = recipe.seed + self._seed_step * number
            # The recording of the session that failed is the one that is wanted.
            again = _recorded_beside(recipe, f"restart{number}")
            opened = self._open(replace(again, seed=seed))
            return world.slots.replace_world(opened, seed)

        return world.restarts.alive(replaced, may_be_bad_luck, error)

    def _merged(self, of_each: list[Rows]) -> dict[str, SlotRows]:
        for world, tables in zip(self._worlds, of_each, strict=True):
            for name, rows in tables.items():
                self._add_places(world, name, len(rows))
        return {name: self._merged_behavior(name, of_each) for name in self._sizes}

    def _add_places(self, world: _World, name: str, num_slots: int) -> None:
        """Slots that a world has added go behind all others, so that no row changes its place."""
        places = world.places.get(name, np.zeros(0, np.intp))
        num_new = num_slots - len(places)
        if num_new or name not in world.places:
            size = self._sizes.get(name, 0)
            world.places[name] = np.concatenate(
                [places, np.arange(size, size + num_new)]
            )
            self._sizes[name] = size + num_new

    def _merged_behavior(self, name: str, of_each: list[Rows]) -> SlotRows:
        showing = [world for world in self._worlds if name in of_each[world.index]]
        rows = stack_rows([of_each[world.index][name] for world in showing])
        places = np.concatenate([world.places[name] for world in showing])
        in_order = bool((places[:-1] < places[1:]).all())
        return rows if in_order else reorder_rows(rows, places)


def copies_of(recipe: EnvRecipe, num_envs: int) -> list[EnvRecipe]:
    """Recipes of `num_envs` worlds that run at the same time.

    World i has the seed + i, and its own port and file where these are given.
    """
    if num_envs < 1:
        raise UsageError(f"num_envs must be 1 or more, got {num_envs}")
    if recipe.is_editor and num_envs > 1:
        raise UsageError("the Editor is one world; several need a player (--env FILE)")
    return [_copy_of(recipe, index) for index in range(num_envs)]


def _copy_of(recipe: EnvRecipe, index: int) -> EnvRecipe:
    options = dict(recipe.options)
    if "base_port" in options:
        # A player's port is the sum of the two, as in ML-Agents.
        options["worker_id"] = index
    if options.pop("no_graphics_monitor", False) and index:
        options["no_graphics"] = True  # only the first world shows a window
    own = replace(recipe, seed=recipe.seed + index, options=options)
    return _recorded_beside(own, f"env{index}") if index else own


def _recorded_beside(recipe: EnvRecipe, mark: str) -> EnvRecipe:
    """The recipe with this mark in the name of its recording, if it makes one."""
    if "record_wire" not in recipe.options:
        return recipe
    path = Path(recipe.options["record_wire"])
    marked = path.with_name(f"{path.name.removesuffix(SUFFIX)}-{mark}{SUFFIX}")
    return replace(recipe, options={**recipe.options, "record_wire": marked})


def may_be_bad_luck(error: Exception) -> bool:
    """Whether a player failed, so that another one may not; a wrong action would fail again."""
    return isinstance(error, UnityException) and not isinstance(error, ActionError)


def _advanced(slots: Slots, _actions: Actions) -> Rows:
    return slots.advance()


def _outcome(attempt: Callable[..., Rows], *arguments: Any) -> Rows | Exception:
    try:
        return attempt(*arguments)
    except Exception as error:
        return error
