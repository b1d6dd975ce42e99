"""The agents of one or several worlds in named groups, each a table of rows.

Every adapter translates these tables. A group is one behavior of one team, both teams of it, or all
agents, in all the worlds given. Its rows are the slots of its parts one after the other, so row
numbers never change. Nothing here knows Gymnasium, PettingZoo or TorchRL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from touchline.adapters.layout import check_same_spec, unique_words
from touchline.adapters.options import Worlds
from touchline.envs.env import (
    Drawable,
    Env,
    EnvRecipe,
    Placed,
    SetInMidRun,
    TeamMerging,
)
from touchline.envs.ml_agents_names import MLAgentsWorld, as_env
from touchline.envs.side_by_side import Rows, SideBySide
from touchline.envs.slots import SlotCounts, SlotRows
from touchline.envs.slots.rows import stack_rows
from touchline.errors import RunError, UsageError
from touchline.specs import ActionTuple, BehaviorSpec, base_name, team_of

GroupBy = Literal["behavior", "base", "all"]
_Key = tuple[str, int | None]
"""Base name of a group's behaviors, and their team where teams are apart."""


@dataclass(frozen=True)
class Part:
    """Rows `start` to `stop` of a group: one behavior of one world."""

    world: int
    behavior: str
    start: int
    stop: int


class Groups:
    """The groups of some worlds, all of which it closes.

    `group_by`: "behavior" keeps full names apart (teams too), "base" merges the teams of a
    behavior, "all" puts all agents together. `spare_slots`: room for agents beyond those of the
    first exchange, per behavior, in worlds whose capacity is unknown.
    """

    def __init__(
        self,
        env: Worlds,
        *,
        group_by: GroupBy = "behavior",
        spare_slots: int = 0,
    ) -> None:
        if group_by not in ("behavior", "base", "all"):
            raise UsageError(
                f"group_by: expected 'behavior', 'base' or 'all', got {group_by!r}"
            )
        if spare_slots < 0:
            raise UsageError(f"spare_slots: expected 0 or more, got {spare_slots}")
        self._is_new = True
        """Whether nothing has happened since the worlds were opened, not even a reset."""
        worlds = _listed(env)
        self._num_worlds = len(worlds)
        # Spaces and batch sizes are fixed once they are made, so the tables must not grow.
        self._worlds = SideBySide(worlds, grow=False, spare_slots=spare_slots)
        try:
            if group_by != "behavior":
                # It saves joining rows at every step.
                for world in self.worlds:
                    if isinstance(world, TeamMerging):
                        world.merge_teams()
            self._arrange(self._worlds.reset_each(), group_by)
        except BaseException:
            # Also on Ctrl-C: players that were started must not outlive the adapter.
            self.give_back()
            raise

    @property
    def counts(self) -> dict[str, list[SlotCounts]]:
        """What rows leave out: group -> one entry per part (`Slots.counts`)."""
        slots = self._worlds.slots
        return {
            group: [slots[part.world].counts[part.behavior] for part in parts]
            for group, parts in self.parts.items()
        }

    @property
    def worlds(self) -> list[Env]:
        """The open worlds."""
        return [slots.env for slots in self._worlds.slots]

    @property
    def rows(self) -> dict[str, SlotRows]:
        """The rows of the last reset or step."""
        return self._rows

    def reset(self, seed: int | None = None) -> dict[str, SlotRows]:
        """Restart all worlds (world i with seed + i), unless nothing has happened since they were
        opened, no seed is given, and no parameter waits for the reset.
        """
        if seed is not None or not self._is_new or self._some_wait_for_reset():
            self._rows = self._grouped(self._worlds.reset_each(seed))
        self._is_new = False
        return self._rows

    def step(self, actions: Mapping[str, ActionTuple]) -> dict[str, SlotRows]:
        """One step of every world.

        `actions`: group -> actions [N, ...], of which those of deciding rows count.
        """
        of_each: list[dict[str, ActionTuple]] = [{} for _ in range(self._num_worlds)]
        for group, parts in self.parts.items():
            action = actions[group]
            for part in parts:
                # Most groups have one part, which then needs no copy.
                if len(parts) > 1:
                    action = actions[group].select(slice(part.start, part.stop))
                of_each[part.world][part.behavior] = action
        self._is_new = False
        self._rows = self._grouped(self._worlds.step_each(of_each))
        return self._rows

    def render(
        self, world: int = 0, area: int = 0, width: int = 640, height: int = 480
    ) -> NDArray[np.uint8]:
        """One area of one world as a picture [H, W, 3]. Raises a UsageError where that is not
        possible.
        """
        return self._drawable(world).render(area, width, height)

    def render_rows(self, group: str) -> tuple[NDArray[np.uint8], ...]:
        """For each row of a group the area of its agent as a picture; rows of one area share it."""
        agent_id = self._rows[group].agent_id
        pictures: list[NDArray[np.uint8]] = []
        for part in self.parts[group]:
            drawn = self._drawable(part.world)
            areas = [0] * (part.stop - part.start)
            if isinstance(drawn, Placed):
                areas = drawn.areas_of(agent_id[part.start : part.stop]).tolist()
            picture_of = {area: drawn.render(area) for area in set(areas)}
            pictures += [picture_of[area] for area in areas]
        return tuple(pictures)

    def close(self) -> None:
        """Close all worlds. Idempotent."""
        # The next reset is for the closed worlds to refuse.
        self._is_new = False
        self._worlds.close()

    def give_back(self) -> None:
        """Close the worlds that were opened here; the caller can show its own in another way."""
        self._is_new = False
        self._worlds.give_back()

    def _drawable(self, world: int) -> Drawable:
        drawn = self.worlds[world]
        if not isinstance(drawn, Drawable):
            raise UsageError(
                "this world cannot be drawn: a Unity player draws in a window of its own, and a "
                "recording holds only what agents observed"
            )
        return drawn

    def _some_wait_for_reset(self) -> bool:
        return any(
            isinstance(world, SetInMidRun) and world.has_settings_to_come
            for world in self.worlds
        )

    def _arrange(self, first: list[Rows], group_by: GroupBy) -> None:
        """Decide which rows of which world belong to which group, from the first rows."""
        behaviors = [slots.behaviors for slots in self._worlds.slots]
        teams: dict[str, set[int]] = {}
        for specs in behaviors:
            for name in specs:
                teams.setdefault(base_name(name), set()).add(team_of(name))
        members: dict[_Key, list[tuple[int, str]]] = {}
        for world, specs in enumerate(behaviors):
            for name in specs:
                base = base_name(name)
                has_one_team = group_by == "base" or len(teams[base]) == 1
                key = base, None if has_one_team else team_of(name)
                if group_by == "all":
                    key = "agents", None
                members.setdefault(key, []).append((world, name))
        self.specs: dict[str, BehaviorSpec] = {}
        self.parts: dict[str, list[Part]] = {}
        names = _group_names(list(members))
        for group, parts in zip(names, members.values(), strict=True):
            of_part = {
                self._label(world, name): behaviors[world][name]
                for world, name in parts
            }
            advice = "take group_by='behavior'"
            self.specs[group] = check_same_spec(of_part, f"group {group!r}", advice)
            self.parts[group] = _consecutive(parts, first)
        self._num_parts = sum(map(len, self.parts.values()))
        self.sizes = {group: own[-1].stop for group, own in self.parts.items()}
        """Group -> how many rows it has."""
        self._rows = self._grouped(first)

    def _label(self, world: int, behavior: str) -> str:
        return behavior if self._num_worlds == 1 else f"{behavior} (world {world})"

    def _grouped(self, rows: list[Rows]) -> dict[str, SlotRows]:
        if sum(map(len, rows)) != self._num_parts:
            self._refuse_new_behavior(rows)
        return {
            group: stack_rows([rows[part.world][part.behavior] for part in parts])
            for group, parts in self.parts.items()
        }

    def _refuse_new_behavior(self, rows: list[Rows]) -> None:
        known = {part.behavior for parts in self.parts.values() for part in parts}
        new = [name for of_world in rows for name in of_world if name not in known]
        raise RunError(
            f"behavior {new[0] if new else '?'} appeared after the adapter was made with "
            f"{', '.join(sorted(known))}; make the adapter when all behaviors are there"
        )


def _listed(env: Worlds) -> list[EnvRecipe | Env]:
    """Recipes and open worlds, of which two never play the same game."""
    # A string is a sequence, too, but names one world.
    if isinstance(env, Sequence) and not isinstance(env, str):
        entries = list(env)
    else:
        entries = [env]
    listed: list[EnvRecipe | Env] = []
    for entry in entries:
        if isinstance(entry, str | EnvRecipe):
            recipe = EnvRecipe.parse(entry)
            # The same recipe twice must not play the same game twice.
            taken = {
                other.seed
                for other in listed
                if isinstance(other, EnvRecipe)
                and replace(other, seed=recipe.seed) == recipe
            }
            seed = recipe.seed
            while seed in taken:
                seed += 1
            listed.append(replace(recipe, seed=seed))
        elif isinstance(entry, Env | MLAgentsWorld) and not isinstance(entry, type):
            listed.append(as_env(entry))
        else:
            raise UsageError(f"expected an ENV, an EnvRecipe or a world, got {entry!r}")
    return listed


def _group_names(keys: Sequence[_Key]) -> list[str]:
    # Behaviors may have any name in Unity, but tensordict keys and agent names should be words.
    bases = list(dict.fromkeys(base for base, _ in keys))
    words = dict(zip(bases, unique_words(bases, "behavior"), strict=True))
    names = []
    for base, team in keys:
        names.append(words[base] if team is None else f"{words[base]}_{team}")
    # Again: team 1 of `A` is called like a behavior `A_1`.
    return unique_words(names, "behavior")


def _consecutive(members: list[tuple[int, str]], first: list[Rows]) -> list[Part]:
    """Behaviors of worlds as parts of one group, one after the other."""
    parts = []
    start = 0
    for world, behavior in members:
        stop = start + len(first[world][behavior])
        parts.append(Part(world, behavior, start, stop))
        start = stop
    return parts
