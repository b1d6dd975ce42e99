"""Bots of the engine as policies: they play our side, in our action forms.

So their games can be recorded as demonstrations, filmed, and played in tournaments.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.envs.slots import SlotRows
from touchline.errors import RunError
from touchline.microrts.action_forms import Form
from touchline.microrts.bots import bot_named, make_bot, seed_bot
from touchline.microrts.games import Games
from touchline.microrts.rules import ATTACK_REACH, ORDER_TYPES, PARTS
from touchline.policies.policy import RulePolicy
from touchline.specs import ActionTuple, BehaviorSpec

_MOVE, _HARVEST, _RETURN, _PRODUCE, _ATTACK = range(1, len(ORDER_TYPES))
# Order type -> the part that holds its direction.
_DIRECTION_PART = {_MOVE: 1, _HARVEST: 2, _RETURN: 3, _PRODUCE: 4}
_UNIT_TYPE_PART, _CELL_PART = 5, 6
_JAVA_SEEDS = 2**48  # java.util.Random uses as many bits


class BotPolicy(RulePolicy):
    """Acts as a bot; every agent has a bot of its own, a new one in each game.

    With the option `skip`, and in the asker form, it does not see the ticks without a decision.
    """

    def __init__(self, games: Games, form: Form, spec: BehaviorSpec, name: str) -> None:
        super().__init__(spec)
        self._games = games
        self._form = form
        self._name = name
        self._bots: dict[int, Any] = {}
        self._asked: dict[int, tuple[int, int]] = {}
        """Row -> the game and the tick in which its bot was asked last."""
        self._orders = np.zeros_like(games.orders)

    def choose(self, rows: SlotRows, generator: np.random.Generator) -> ActionTuple:
        agents = rows.agent_id[rows.deciding].tolist()
        game_rows = [self._games.row_of(agent) for agent in agents]
        for row in game_rows:
            self._ask(row, generator)
        actions = self._form.actions_for(self._orders)
        discrete = self.action_spec.empty_action(len(rows)).discrete
        discrete[rows.deciding] = actions[game_rows]
        return ActionTuple(discrete=discrete)

    def _ask(self, row: int, generator: np.random.Generator) -> None:
        """Write the orders for a row's idle units, once in every tick: bots remember what they saw.

        Raises a RunError for a bot that fails.
        """
        import jpype

        games = self._games
        game = games.game_of(row)
        now = int(games.begun[game]), int(games.clock[game])
        before = self._asked.get(row)
        # The unit and asker forms want one order at a time; `_orders` holds the tick's others.
        if before == now:
            return
        self._asked[row] = now
        if before is None or before[0] != now[0]:
            bot = make_bot(self._name, bot_named(self._name), games.unit_types)
            seed_bot(bot, int(generator.integers(_JAVA_SEEDS)))
            self._bots[row] = bot
        try:
            move = self._bots[row].getAction(
                int(games.player[row]), games.state_of(row)
            )
        except jpype.JException as error:
            raise RunError(
                f"microrts: the bot {self._name!r} failed: {error}"
            ) from None
        orders = self._orders[row]
        orders[:] = 0
        for pair in move.getActions():
            x, y = int(pair.m_a.getX()), int(pair.m_a.getY())
            orders[y * games.map.width + x] = _choices_of(pair.m_b, x, y)
        orders[games.allowed[row, :, 0] == 0] = 0  # busy units take no order


def _choices_of(order: Any, x: int, y: int) -> NDArray[np.int32]:
    """The choice of each part, for an order of the engine to the unit at x, y."""
    # The engine numbers order types and unit types as ORDER_TYPES and UNIT_TYPES do.
    kind = int(order.getType())
    choices = np.zeros(len(PARTS), np.int32)
    choices[0] = kind
    if kind in _DIRECTION_PART:
        choices[_DIRECTION_PART[kind]] = int(order.getDirection())
    if kind == _PRODUCE:
        choices[_UNIT_TYPE_PART] = int(order.getUnitType().ID)
    if kind == _ATTACK:
        dx = int(order.getLocationX()) - x
        dy = int(order.getLocationY()) - y
        width = 2 * ATTACK_REACH + 1
        choices[_CELL_PART] = (dy + ATTACK_REACH) * width + dx + ATTACK_REACH
    return choices
