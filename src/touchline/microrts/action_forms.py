"""Three forms of acting in the same game, as arrays.

- `grid`: an agent gives orders to all its units at once, seven choices for every cell of the map.
- `unit`: it chooses one unit and that unit's order. When all idle units have orders, the tick is
  played; before that, it observes a trial of the orders so far. This is the rule of gym-microrts
  0.3.2, "MultiActions".
- `asker`: it gives orders to its idle units one by one, in cell order. Masks are exact for every
  branch.

A form keeps what must be remembered between exchanges; `Games` plays the games.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from touchline.microrts.games import Games
from touchline.microrts.kernels import (
    count_orders,
    forbid,
    forbid_in_stages,
    have_choices,
    turn_orders,
)
from touchline.microrts.rules import (
    CHOICES,
    FIRST_CHOICE,
    FIRST_PLANE,
    PARTS,
    PLANE_GROUPS,
    READ_PARTS,
    REWARDS,
)
from touchline.specs import ActionSpec

_ACTION = FIRST_PLANE["action"]
_DIRECTIONS, _ATTACK_CELLS = 4, 49
"""Sizes of the parts of an order that half a turn changes: where to, and which cell of 7 x 7."""

Actions = NDArray[np.int32]
"""[R, branches] the choices of every row."""
Mask = NDArray[np.bool_]
"""True = forbidden."""


@dataclass(frozen=True)
class Played:
    """The outcome of one exchange."""

    reward: NDArray[np.float64]
    """[R, K] by REWARDS, unweighted."""
    over: NDArray[np.bool_]
    """[N] games that are over."""
    num_orders: NDArray[np.int64]
    """[R]"""
    num_invalid: NDArray[np.int64]
    """[R] of these orders, how many the rules refuse."""


class Form(ABC):
    """One way to play. Rows are those of `Games`."""

    action_spec: ActionSpec
    extra_planes = 0

    def begin(self, row: int) -> None:  # noqa: B027
        """Forget the last game of this row; a new one has begun."""

    @abstractmethod
    def invalid(self, actions: Actions) -> NDArray[np.bool_]:
        """[R] whether a row's actions hold an order that the engine would refuse."""

    @abstractmethod
    def play(self, actions: Actions) -> Played:
        """Carry out the actions [R, branches].

        Afterwards every row of a running game has a decision to make.
        """

    @abstractmethod
    def actions_for(self, orders: NDArray[np.int32]) -> Actions:
        """The actions [R, branches] that give these orders [R, cells, PARTS] to idle units."""

    def add_planes(self, planes: NDArray[np.float32]) -> None:  # noqa: B027
        """Write what this form adds to an observation into the planes [R, planes, h, w]."""

    @abstractmethod
    def masks(self) -> tuple[Mask, Mask | None]:
        """The forbidden choices [R, choices], and the second stage of the mask, if there is one."""


class GridForm(Form):
    """All units at once: branches are PARTS for cell 0, PARTS for cell 1, and so on."""

    def __init__(self, games: Games, max_ticks: int, *, skip: bool = False) -> None:
        """With `skip`, ticks in which no unit has a choice are played at once."""
        self._games = games
        self._max_ticks = max_ticks
        self._skip = skip
        num_cells = games.map.height * games.map.width
        self.action_spec = ActionSpec.create_discrete(PARTS * num_cells)

    def invalid(self, actions: Actions) -> NDArray[np.bool_]:
        _, num_invalid = self._count(actions)
        return np.asarray(num_invalid > 0)

    def play(self, actions: Actions) -> Played:
        games = self._games
        num_orders, num_invalid = self._count(actions)
        games.orders[...] = actions.reshape(games.orders.shape)
        reward, over = games.tick()
        if self._skip:
            self._play_idle_ticks(reward, over)
        return Played(reward, over, num_orders, num_invalid)

    def _play_idle_ticks(
        self, reward: NDArray[np.float64], over: NDArray[np.bool_]
    ) -> None:
        """Play on where no unit has a choice; adds to `reward` and `over`."""
        games = self._games
        games.orders[...] = 0  # whoever became idle has no choice but to wait
        # A game's rows follow each other, and either side's choice stops its game.
        has_choice = np.logical_or.reduceat(
            have_choices(games.allowed), games.rows_of_teams[0]
        )
        stops = has_choice | over | games.resting | (games.clock >= self._max_ticks)
        waiting = np.flatnonzero(~stops).tolist()
        paid, ended = games.tick(waiting, until=self._max_ticks)
        reward += paid
        over |= ended

    def actions_for(self, orders: NDArray[np.int32]) -> Actions:
        return orders.reshape(len(orders), -1)

    def masks(self) -> tuple[Mask, None]:
        allowed = self._games.allowed
        is_idle = allowed[:, :, 0]  # an idle unit may always do nothing
        table = forbidden_orders(allowed, is_idle)
        return table.reshape(len(table), -1), None

    def _count(self, actions: Actions) -> NDArray[np.int64]:
        """[2, R]: orders given to idle units, and those of them that are invalid."""
        orders = actions.reshape(self._games.orders.shape)
        counts = np.zeros((2, len(actions)), np.int64)
        count_orders(self._games.allowed, orders, counts)
        return counts


class UnitForm(Form):
    """One unit per exchange: branch 0 is the unit's cell, the others are PARTS.

    It adds no planes: the board is already that of the trial.
    """

    def __init__(self, games: Games, *, compat: bool = False) -> None:
        self._games = games
        self._compat = compat
        num_cells = games.map.height * games.map.width
        self.action_spec = ActionSpec(0, (num_cells, *PARTS), staged=True)
        self._waiting = np.zeros((games.num_rows, num_cells), np.bool_)
        """Idle units without an order in this tick."""
        self._orders: list[list[Actions]] = [[] for _ in range(games.num_rows)]
        """Each row's orders of this tick."""
        self._paid = np.zeros((games.num_rows, len(REWARDS)))
        """Rewards that the trials of this tick have already paid."""

    def begin(self, row: int) -> None:
        self._waiting[row] = self._games.allowed[row, :, 0] > 0
        self._orders[row] = []
        self._paid[row] = 0.0

    def invalid(self, actions: Actions) -> NDArray[np.bool_]:
        rows = np.arange(len(actions))
        cells = actions[:, 0]
        orders = actions[:, 1:]
        are_orders_valid = are_valid(orders, self._games.allowed[rows, cells])
        is_valid = self._waiting[rows, cells] & are_orders_valid
        # A side whose units are all busy has to send an action, too: that is no mistake.
        refused: NDArray[np.bool_] = ~is_valid & self._has_waiting()
        return refused

    def play(self, actions: Actions) -> Played:
        played = Played(
            reward=np.zeros_like(self._paid),
            over=np.zeros(self._games.num_games, np.bool_),
            num_orders=self._has_waiting().astype(np.int64),
            num_invalid=self.invalid(actions).astype(np.int64),
        )
        for row, action in enumerate(actions):
            reward, over = self._play_one(row, action)
            played.reward[row] = reward
            played.over[row] = over
        return played

    def _has_waiting(self) -> NDArray[np.bool_]:
        """[R] whether any unit waits for an order."""
        return np.asarray(self._waiting.any(axis=1))

    def _play_one(
        self, row: int, action: NDArray[np.int32]
    ) -> tuple[NDArray[np.float64], bool]:
        waiting = self._waiting[row]
        orders = self._orders[row]
        cell = int(action[0])
        num_waiting = int(waiting.sum())
        # D1: the engine pays twice for a unit that is named twice, so later orders are dropped.
        if waiting[cell] or self._compat:
            orders.append(action)
        waiting[cell] = False
        # The shape also where no order was kept: an empty list has no second axis.
        listed = np.array(orders, np.int32).reshape(-1, 1 + len(PARTS))
        # 0 where all units are busy: then there is nothing to try out.
        is_last = num_waiting <= 1
        # What earlier orders do must be on the board when the next unit is chosen, so all but the
        # last are tried out on a copy.
        play = self._games.play if is_last else self._games.try_out
        total, over = play(row, listed)
        reward = total - self._paid[row]  # each trial pays for all orders so far
        if is_last:
            self.begin(row)
        else:
            self._paid[row] = total
        return reward, over

    def actions_for(self, orders: NDArray[np.int32]) -> Actions:
        rows = np.arange(len(orders))
        cell = self._waiting.argmax(axis=1).astype(np.int32)  # the first that waits
        return np.column_stack([cell, orders[rows, cell]])

    def masks(self) -> tuple[Mask, Mask]:
        num_rows, num_cells = self._waiting.shape
        second = _only_nothing(num_rows, num_cells).copy()
        mask = np.ones((len(second), self.action_spec.mask_size), np.bool_)
        forbid_in_stages(self._games.allowed, self._waiting, second, mask)
        return mask, second


class AskerForm(Form):
    """Idle units get their orders one by one: branches are PARTS, for the unit in a marked cell."""

    extra_planes = 1

    def __init__(self, games: Games, max_ticks: int) -> None:
        self._games = games
        self._max_ticks = max_ticks
        self.action_spec = ActionSpec.create_discrete(PARTS)
        self._queue = [np.zeros(0, np.intp)] * games.num_rows
        """Cells of the units that have no order in this tick; the first is the marked one."""
        self._cell = np.zeros(games.num_rows, np.intp)
        """The marked cell of each row; 0 in a game that is over."""
        self._given: list[list[tuple[int, int]]] = [[] for _ in range(games.num_rows)]
        """Cell and order type of the units that have an order in this tick."""

    def begin(self, row: int) -> None:
        self._games.orders[row] = 0
        self._given[row] = []
        queue = np.flatnonzero(self._games.allowed[row, :, 0])
        self._queue[row] = queue
        self._cell[row] = _first_of(queue)

    def invalid(self, actions: Actions) -> NDArray[np.bool_]:
        rows = np.arange(len(actions))
        allowed = self._games.allowed[rows, self._cell]
        return ~are_valid(actions, allowed)

    def play(self, actions: Actions) -> Played:
        games = self._games
        rows = np.arange(len(actions))
        invalid = self.invalid(actions)
        # Orders that the rules refuse, too: the engine lets such a unit stand still.
        games.orders[rows, self._cell] = actions
        for row, action in enumerate(actions):
            order_type = int(action[0])
            self._given[row].append((int(self._cell[row]), order_type))
            self._queue[row] = self._queue[row][1:]
        # A row's tick is played once all of its idle units have orders.
        complete = [row for row, queue in enumerate(self._queue) if not len(queue)]
        reward, over = self._tick_until_idle(complete)
        self._cell = np.array([_first_of(queue) for queue in self._queue])
        one_each = np.ones(len(rows), np.int64)
        return Played(reward, over, one_each, invalid.astype(np.int64))

    def _tick_until_idle(
        self, rows: Sequence[int]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Play ticks of these rows until each has an idle unit, is over or reaches its limit.

        Returns the sum of rewards [R, K] and which games [N] are over.
        """
        games = self._games
        reward = np.zeros((games.num_rows, len(REWARDS)))
        over = np.zeros(games.num_games, np.bool_)
        while rows:
            paid, ended = games.tick(rows)
            reward += paid
            over |= ended
            for row in rows:
                self.begin(row)
            rows = [row for row in rows if not self._is_done_ticking(row, over)]
        return reward, over

    def _is_done_ticking(self, row: int, over: NDArray[np.bool_]) -> bool:
        has_idle_unit = len(self._queue[row]) > 0
        # A row has its game's number here, because this form refuses self-play.
        no_ticks_left = self._games.clock[row] >= self._max_ticks
        return bool(over[row] or has_idle_unit or no_ticks_left)

    def actions_for(self, orders: NDArray[np.int32]) -> Actions:
        return orders[np.arange(len(orders)), self._cell]

    def add_planes(self, planes: NDArray[np.float32]) -> None:
        """The marked cell in the last plane; units that have an order show it as running."""
        num_rows, _, height, width = planes.shape
        flat = planes.reshape(num_rows, -1, height * width)
        flat[:, -1] = 0.0
        flat[np.arange(num_rows), -1, self._cell] = 1.0
        end_of_action = _ACTION + PLANE_GROUPS["action"]
        for row, given in enumerate(self._given):
            for cell, order_type in given:
                flat[row, _ACTION:end_of_action, cell] = 0.0
                flat[row, _ACTION + order_type, cell] = 1.0

    def masks(self) -> tuple[Mask, None]:
        rows = np.arange(len(self._cell))
        allowed = self._games.allowed[rows, self._cell][:, None]  # [R, 1, CHOICES]
        # A game that is over has no idle unit: its row may choose only "nothing".
        is_idle = allowed[:, :, 0] > 0
        table = forbidden_orders(allowed, is_idle)
        return table[:, 0], None


def _first_of(cells: NDArray[np.intp]) -> int:
    """The first cell of a queue, 0 for an empty one."""
    return int(cells[0]) if len(cells) else 0


def _turned(size: int) -> NDArray[np.int64]:
    """What each choice of a part of an order becomes after half a turn, by the part's size."""
    choices = np.arange(size)
    if size == _DIRECTIONS:
        return (choices + 2) % _DIRECTIONS
    if size == _ATTACK_CELLS:
        return choices[::-1]  # (dy, dx) becomes (-dy, -dx)
    return choices


_PARTS_TURNED = [_turned(size) for size in PARTS]
_TURNED_CHOICES = np.concatenate(_PARTS_TURNED) + np.repeat(FIRST_CHOICE, PARTS)
"""[CHOICES] the same, for choices counted over all parts."""


class Turned(Form):
    """Another form, where player 1 observes and orders as if the board were turned by half a turn.

    Maps with two equal sides then look alike from both, so that a policy learns one game instead of
    two. The engine and the form inside know nothing of it.
    """

    def __init__(self, form: Form, games: Games) -> None:
        self._form = form
        self._games = games
        self.action_spec = form.action_spec
        self.extra_planes = form.extra_planes
        self._num_cells = games.map.height * games.map.width
        self._first_part = int(form.action_spec.staged)
        """The branch at which orders begin: 1 where a cell comes before them."""
        order_branches = form.action_spec.discrete_size - self._first_part
        self._num_orders = order_branches // len(PARTS)

    def begin(self, row: int) -> None:
        self._form.begin(row)

    def invalid(self, actions: Actions) -> NDArray[np.bool_]:
        return self._form.invalid(self._as_played(actions))

    def play(self, actions: Actions) -> Played:
        return self._form.play(self._as_played(actions))

    def actions_for(self, orders: NDArray[np.int32]) -> Actions:
        # Half a turn back is the same half turn.
        return self._as_played(self._form.actions_for(orders))

    def add_planes(self, planes: NDArray[np.float32]) -> None:
        self._form.add_planes(planes)
        rows = self._rows()
        planes[rows] = planes[rows, :, ::-1, ::-1]

    def masks(self) -> tuple[Mask, Mask | None]:
        mask, second = self._form.masks()
        rows = self._rows()
        first_order = self._num_cells * self._first_part
        # The table is its own inverse, so what maps actions maps masks as well.
        turn_orders(mask, first_order, rows, _TURNED_CHOICES)
        of_cells = mask[rows, :first_order]  # a copy: indexed by an array
        mask[rows, :first_order] = of_cells[:, ::-1]
        if second is not None:
            turn_orders(second.reshape(len(second), -1), 0, rows, _TURNED_CHOICES)
        return mask, second

    def _as_played(self, actions: Actions) -> NDArray[np.int32]:
        """The actions as the form inside takes them."""
        rows = self._rows()
        played = actions.copy()
        parts = actions[rows, self._first_part :]
        orders = parts.reshape(-1, self._num_orders, len(PARTS))
        orders = orders[:, ::-1]  # cells in opposite order
        # The table holds choices counted over all parts, an action those within its part.
        turned = _TURNED_CHOICES[orders + FIRST_CHOICE] - FIRST_CHOICE
        played[rows, self._first_part :] = turned.reshape(parts.shape)
        if self._first_part:
            played[rows, 0] = self._num_cells - 1 - actions[rows, 0]
        return played

    def _rows(self) -> NDArray[np.intp]:
        """The rows that are player 1."""
        return np.flatnonzero(self._games.player)


@cache
def _only_nothing(num_rows: int, num_cells: int) -> NDArray[np.bool_]:
    """[R, cells, CHOICES] the mask of cells that take no orders: only first choices are allowed."""
    # Cached, because a copy takes a quarter of the time that making it does. Do not write to it.
    table = np.ones((num_rows, num_cells, CHOICES), np.bool_)
    table[:, :, FIRST_CHOICE] = False
    return table


def forbidden_orders(
    allowed: NDArray[np.int32], cells: NDArray[np.bool_ | np.int32]
) -> NDArray[np.bool_]:
    """[R, cells, CHOICES] what the units in these `cells` [R, cells] may not choose.

    A part without any allowed choice keeps its first; no order type that is allowed reads it.
    """
    num_rows, num_cells, _ = allowed.shape
    table = _only_nothing(num_rows, num_cells).copy()
    forbid(allowed, cells, table)
    return table


def are_valid(
    orders: NDArray[np.int32], allowed: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """[K] whether every part that the engine reads of these orders [K, 7] is allowed [K, 78]."""
    chosen = np.take_along_axis(allowed, orders + FIRST_CHOICE, axis=1)
    order_type = orders[:, 0]
    is_read = READ_PARTS[order_type]
    is_fine = chosen.astype(np.bool_) | ~is_read
    return np.asarray(is_fine.all(axis=1))
