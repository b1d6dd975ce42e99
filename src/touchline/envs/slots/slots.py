"""Agents that come and go, as rows that stay: the one model behind every learner and adapter.

A world's agents end, vanish, appear and move between behaviors at any time. `Slots` gives each
behavior a table whose rows (slots) learners can hold on to. One `step` sends the actions of the
slots that decide, then advances the world until some agent decides again, and merges all exchanges
on the way. `table.py` shows the states of a slot.

These invariants always hold (`touchline.testing.check_slots` checks them on any world):

- actions sent = rows that were deciding;
- rewards in rows + counted unattributed + still open = rewards the world sent;
- no observation is followed by one from another episode;
- nothing is reset because something else ended.
"""

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.envs.env import (
    Configured,
    Env,
    Limited,
    Refereed,
    Reporting,
    Stateful,
    Waiting,
)
from touchline.envs.saved_state import Arrays, below, prefixed
from touchline.envs.slots.rows import SlotCounts, SlotRows
from touchline.envs.slots.table import Table
from touchline.errors import RunError, UsageError
from touchline.parameters import ParameterValue
from touchline.specs import ActionTuple, BehaviorSpec
from touchline.statistics import EnvironmentStats
from touchline.steps import DecisionSteps, TerminalSteps

MAX_EXCHANGES_WITHOUT_DECISION = 100_000
"""A world that sends only ends for this long will never request a decision again. At one exchange
per physics step this is half an hour of game time."""


class Slots:
    """The slot tables of one world.

    With `grow` (what a trainer wants) a full table grows. Otherwise it holds what the world says it
    can hold, or, where that is unknown, the first number of agents plus `spare_slots`; one agent
    more is a RunError at that exchange.
    """

    def __init__(
        self, env: Env, *, grow: bool = True, spare_slots: int = 0, env_index: int = 0
    ) -> None:
        self._set_world(env)
        self.env_index = env_index
        self._grow = grow
        self._spare_slots = spare_slots
        self._tables: dict[str, Table] = {}
        self._exchanges = 0
        self.game_scores: dict[tuple[int, int], float] = {}
        """How games ended in the last step, where the world states that.

        (Index of the world, group id) -> 1 won, 0 lost, 0.5 drawn; NaN: the game was lost with its
        world, and has no result."""

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        """Full behavior name -> spec as learners see it: images are CHW. Grows with the world."""
        return {name: table.spec for name, table in self._tables.items()}

    @property
    def counts(self) -> Mapping[str, SlotCounts]:
        """What rows leave out, per behavior."""
        return {name: table.counts for name, table in self._tables.items()}

    @property
    def num_active(self) -> int:
        """How many episodes are open."""
        return sum(table.num_active for table in self._tables.values())

    @property
    def waited_s(self) -> float | None:
        """Seconds spent waiting for a world in another process; None for a world in this one."""
        return None if self._waiting is None else self._waiting.waited_s

    @property
    def interface_options(self) -> Mapping[str, str]:
        """The world's options that change what is observed or done; most worlds have none."""
        return self.env.interface_options if isinstance(self.env, Configured) else {}

    def take_statistics(self) -> EnvironmentStats:
        """What the world reported about itself since the last call; most worlds report nothing."""
        return {} if self._reporting is None else self._reporting.take_statistics()

    def capacity(self, behavior: str) -> int | None:
        """The most agents of this behavior that can exist at once; None where that is unknown."""
        return self.env.capacity(behavior)

    @property
    def most_decisions(self) -> int | None:
        """No episode has more of them; None where the world states no limit."""
        return self.env.most_decisions if isinstance(self.env, Limited) else None

    def set_parameters(self, values: Mapping[str, ParameterValue]) -> None:
        """Set environment parameters of the world."""
        self.env.set_parameters(values)

    def reset(self, seed: int | None = None) -> dict[str, SlotRows]:
        """Restart the whole world.

        Open actions get no result, and running episodes are forgotten.
        """
        # First: if the world fails in the reset and is replaced, the next rows must not show the
        # results of the step before again.
        self._start_step()
        self.env.reset(seed)
        for table in self._tables.values():
            # After the reset: where that fails, the open episodes are still there to be cut.
            table.clear()
        # The first exchange may be empty: Unity's agents ask for decisions at their own times.
        if not self._receive():
            self._advance()
        return self._rows()

    def step(self, actions: Mapping[str, ActionTuple]) -> dict[str, SlotRows]:
        """Send the actions [N, ...] of the deciding slots (other rows are ignored) and advance
        until some agent decides.
        """
        self.set_actions(actions)
        return self.advance()

    def set_actions(self, actions: Mapping[str, ActionTuple]) -> None:
        """The first half of `step`: where an action is refused, the same agents wait for a better
        one.
        """
        for name, table in self._tables.items():
            num_deciding = table.num_deciding
            if not num_deciding:
                continue
            if name not in actions:
                raise UsageError(
                    f"no actions for {name}, of which {num_deciding} agents are waiting for one"
                )
            self.env.set_actions(name, table.actions_of_deciding(actions[name]))

    def advance(self) -> dict[str, SlotRows]:
        """The second half of `step`: send what was set, until some agent decides."""
        for table in self._tables.values():
            table.acted()
        self._start_step()
        self._advance()
        return self._rows()

    def state(self) -> Arrays | None:
        """The world and its tables, as copies; None if the world cannot be restored."""
        if not isinstance(self.env, Stateful):
            return None
        state = prefixed("world", self.env.state())
        # Reserved slots are ordered by this count, so it must not start over.
        state["exchanges"] = np.array(self._exchanges)
        for name, table in self._tables.items():
            state |= prefixed(f"tables/{name}", table.state())
        return state

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned for a world of the same recipe."""
        if not isinstance(self.env, Stateful):
            raise UsageError("this world cannot be restored; it can only be reset")
        self.env.load_state(below("world", state))
        self._exchanges = int(state["exchanges"])
        tables = below("tables", state)
        for name in self.env.behaviors:
            own = below(name, tables)
            # A behavior that had not appeared when the state was saved has no table in it.
            if own:
                self._table(name).load_state(own)

    def replace_world(self, env: Env, seed: int) -> dict[str, SlotRows]:
        """Continue with another world after this one failed within `step`.

        Its open episodes are truncated here. What the step received before the failure stays in the
        rows.
        """
        # An exchange of its own: slots reserved here are younger than all reserved before.
        self._exchanges += 1
        for table in self._tables.values():
            for group in table.active_groups:
                self.game_scores[self.env_index, group] = nan
            table.truncate_all(self._exchanges)
        self._set_world(env)
        env.reset(seed)
        if not self._receive():
            self._advance()
        return self._rows()

    def close(self) -> None:
        """Close the world. Idempotent."""
        self.env.close()

    def _set_world(self, env: Env) -> None:
        self.env = env
        # Not at every step: looking through a protocol takes 30 µs, a twentieth of a small step.
        self._waiting = env if isinstance(env, Waiting) else None
        self._reporting = env if isinstance(env, Reporting) else None
        self._refereed = env if isinstance(env, Refereed) else None

    def _advance(self) -> None:
        for _ in range(MAX_EXCHANGES_WITHOUT_DECISION):
            self.env.step()
            if self._receive():
                return
        raise RunError(
            f"no agent asked for a decision within {MAX_EXCHANGES_WITHOUT_DECISION} exchanges"
        )

    def _receive(self) -> bool:
        """Merge one exchange into the tables; returns whether some agent decides now."""
        self._exchanges += 1
        if self._refereed is not None:
            for group, score in self._refereed.game_scores.items():
                self.game_scores[self.env_index, group] = score
        arrived = []
        for name in self.env.behaviors:
            decisions, terminals = self.env.steps(name)
            arrived.append((self._table(name), decisions, terminals))
        # Ends of all behaviors come first: an agent may end in one and decide in another.
        for table, _, terminals in arrived:
            if len(terminals):
                table.add_ends(terminals, self._exchanges)
        some_agent_decides = False
        for table, decisions, _ in arrived:
            if len(decisions):
                some_agent_decides = True
                beginning = table.add_decisions(decisions)
                if len(beginning):
                    self._refuse_twins(beginning, table, arrived)
                    # An agent whose episode begins in one table cannot continue in another.
                    for other in self._tables.values():
                        if other is not table:
                            other.truncate_moved(beginning, self._exchanges)
        return some_agent_decides

    def _refuse_twins(
        self,
        agent_ids: NDArray[np.int32],
        own: Table,
        arrived: Sequence[tuple[Table, DecisionSteps, TerminalSteps]],
    ) -> None:
        """Raise where an id decides in two behaviors at once: it would always move between them."""
        for table, decisions, _ in arrived:
            twins = np.intersect1d(agent_ids, decisions.agent_id)
            if table is not own and len(twins):
                raise RunError(
                    f"agent {twins[0]} needs a decision in {own.name} and in {table.name} at once; "
                    "give all agents of a world ids of their own"
                )

    def _table(self, name: str) -> Table:
        table = self._tables.get(name)
        if table is None:
            size = self.env.capacity(name)
            if size is None:
                # A Unity player never says how many agents it may create, so those of its first
                # exchange are counted.
                size = len(self.env.steps(name)[0]) + self._spare_slots
            spec = self.env.behaviors[name]
            table = Table(name, spec, size, grow=self._grow, env_index=self.env_index)
            self._tables[name] = table
        return table

    def _start_step(self) -> None:
        self.game_scores = {}
        for table in self._tables.values():
            table.start_step()

    def _rows(self) -> dict[str, SlotRows]:
        return {name: table.rows() for name, table in self._tables.items()}
