"""N games of one map in the JVM, as arrays: boards, allowed orders and orders are memory that Java
shares.

A row is one side that we play: one per game against a bot, two per game in self-play. A tick is
played in one of two ways:

- The engine's own clients play, many games and ticks in one call (`quiet/touchline/Ticks.java`).
  They are used against bots that are known to be quick and sound.
- Otherwise the tick is composed here from public parts of the engine: in self-play, because the
  engine's client lets player 0 move first; with partial observation, because the engine's view is
  one tick old; against other bots, because their moves must be timed and checked.

Defects of the engine that are corrected here are marked D1 to D8, as in `docs/microrts.md`.
"""

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.microrts.bots import bot_named, limit_search, make_bot, seed_bot
from touchline.microrts.engine import Engine, GameMap
from touchline.microrts.java import java_class, java_orders, shared_array, start_java
from touchline.microrts.kernels import have_choices
from touchline.microrts.rules import BOTS, CHOICES, PARTS, PLANES, REWARDS, SELF

_JAVA_REWARDS = {
    "produce_worker": "ProduceWorker",
    "win_loss": "WinLoss",
    "gather": "ResourceGather",
    "produce_building": "ProduceBuilding",
    "attack": "Attack",
    "produce_combat_unit": "ProduceCombatUnit",
    "closer_to_enemy_base": "CloserToEnemyBase",
    "evaluation": "SimpleEvaluation",
}
# They look at every unit in every tick, so they are computed only where they have a weight.
_COSTLY_REWARDS = {"closer_to_enemy_base", "evaluation"}
# It holds for games without the costly rewards as well, because these come last.
_OVER = list(_JAVA_REWARDS).index("win_loss")
_WIN_LOSS = REWARDS.index("win_loss")
_EVALUATION = REWARDS.index("evaluation")
_NEVER = 2**31 - 1  # the largest step number that a Java int holds


@dataclass(frozen=True)
class GameSettings:
    """How games are played, apart from their map and opponents."""

    rewards: Collection[str] = REWARDS
    """Names of the rewards that are needed."""
    partial: bool = False
    """Each side observes only what its units see."""
    unit_rules: int = 1
    """The engine's `UnitTypeTable` version: 1 original, 2 fine-tuned, 3 random damage."""
    conflict_rule: int = 1
    """Its rule for two units that want one cell: 1 cancels both, 2 draws one, 3 alternates."""
    bot_time_ms: float = 2000.0
    """How long one move of a supervised bot may take."""
    search_ms: int | None = None
    """How long bots that search do so for a move; None: their own time, mostly 100 ms."""
    compat: bool = False
    """Keep the defects of 0.3.2."""


class Games:
    """The games of one env. Arrays are the JVM's: read them at once, copy what must last."""

    def __init__(
        self,
        engine: Engine,
        game_map: GameMap,
        opponents: Sequence[str],
        settings: GameSettings | None = None,
        *,
        maps: Sequence[GameMap] = (),
        java: str | None = None,
    ) -> None:
        """A game for each opponent, on `game_map` or on its own of `maps`, which are as large."""
        start_java(engine, java)
        settings = settings or GameSettings()
        self._settings = settings
        self._rewards = [
            name
            for name in _JAVA_REWARDS
            if name in settings.rewards or name not in _COSTLY_REWARDS
        ]
        self._reward_column = np.array([REWARDS.index(name) for name in self._rewards])
        self.map = game_map
        self.maps = list(maps) or [game_map] * len(opponents)
        """That of each game."""
        self.opponents = list(opponents)
        self.num_games = len(opponents)
        self.sides = np.array([2 if name == SELF else 1 for name in opponents])
        """How many sides of each game are ours: two in self-play."""
        self.num_rows = int(self.sides.sum())
        first_rows = np.cumsum(self.sides) - self.sides
        self._first_rows: list[int] = first_rows.tolist()
        """The first row of each game."""
        self._games_of_rows: list[int] = np.repeat(
            np.arange(self.num_games), self.sides
        ).tolist()
        self.rows_of_teams: list[NDArray[np.intp]] = [
            first_rows,
            first_rows[self.sides == 2] + 1,
        ]
        """The rows of team 0, one in each game, and those of team 1, in self-play alone."""
        # In self-play the engine still wants a bot for each game; it never moves.
        self._bots = [
            BOTS["passive"] if name == SELF else bot_named(name) for name in opponents
        ]
        self._is_composed = [
            name == SELF or settings.partial or bot.is_supervised
            for name, bot in zip(opponents, self._bots, strict=True)
        ]
        self.player = np.zeros(self.num_rows, np.int32)
        """Which player of the engine each row is."""
        self._players: list[tuple[Any, ...]] = [()] * self.num_games
        """Java's two players of each game: kept, because look-ups took 7 % of the time."""
        cells = game_map.height * game_map.width
        self.board, board = shared_array(
            self.num_rows, game_map.height, game_map.width, PLANES
        )
        self.allowed, allowed = shared_array(self.num_rows, cells, CHOICES)
        self.orders, orders = shared_array(self.num_rows, cells, len(PARTS))
        self.clock = np.zeros(self.num_games, np.int64)
        """Ticks played in each game."""
        self.begun = np.zeros(self.num_games, np.int64)
        """How often each game was begun."""
        self.winner = np.full(self.num_games, -1, np.int32)
        """The winner of each game that is over: player 0 or 1, or -1 for a tie."""
        self.resting = np.zeros(self.num_games, np.bool_)
        """Games that stay as they are when `tick` is not given a list of games."""
        self.faults: dict[int, str] = {}
        """Game -> what its opponent did wrong; such a game cannot continue."""
        self._make_clients(engine, (board, allowed, orders))

    def _make_clients(self, engine: Engine, buffers: tuple[Any, ...]) -> None:
        import jpype

        cells = self.map.height * self.map.width

        self.unit_types = java_class("rts.units.UnitTypeTable")(
            self._settings.unit_rules, self._settings.conflict_rule
        )
        root = jpype.JString(f"{engine.folder}/")
        # A client reads its map below the engine's folder; `begin` replaces it where it is another.
        self._map_of_clients = self.map.file
        if not self.map.file.is_relative_to(engine.folder):
            self._map_of_clients = engine.map_file("8x8/basesWorkers8x8")
        map_file = jpype.JString(str(self._map_of_clients.relative_to(engine.folder)))
        functions = jpype.JArray(
            java_class("ai.rewardfunction.RewardFunctionInterface")
        )
        players = []
        for name, bot, sides in zip(
            self.opponents, self._bots, self.sides.tolist(), strict=True
        ):
            player = make_bot(name, bot, self.unit_types)
            players += [player] * sides
        vector_client = java_class("tests.JNIGridnetSharedMemVecClient")(
            0,  # clients for self-play
            self.num_rows,
            _NEVER,  # steps after which it restarts a game (D3)
            functions(self._reward_functions()),
            root,
            map_file,
            jpype.JArray(java_class("ai.core.AI"))(players),
            self.unit_types,
            False,  # partial observation
            *buffers,
            0,  # offset of the players in the buffers
        )
        self._clients = list(vector_client.clients)
        reader = java_class("touchline.QuietOrders")
        for client in self._clients:
            client.ai1 = reader(self.unit_types)
            # The function "evaluation" remembers its game, so every game has its own.
            client.rfs = functions(self._reward_functions())
        self._ticks = java_class("touchline.Ticks")(
            vector_client.clients, buffers[1], cells, CHOICES, PARTS[0], _OVER
        )
        # These two play orders given as a list, for whichever game is put into them.
        idle_bot = make_bot("passive", BOTS["passive"], self.unit_types)
        self._list_client, self._trial_client = (
            java_class("tests.JNIGridnetClient")(
                functions(self._reward_functions()),
                root,
                map_file,
                idle_bot,
                self.unit_types,
                False,
            )
            for _ in range(2)
        )
        ndbuffer = java_class("util.NDBuffer")
        shape = jpype.JArray(jpype.JInt)
        self._board_buffer = ndbuffer(buffers[0], shape(list(self.board.shape)))
        self._order_buffer = ndbuffer(buffers[2], shape(list(self.orders.shape)))

    def begin(self, game: int, first_player: int, bot_seed: int) -> None:
        """Start a game: its first row is `first_player`, the second row or the bot the other."""
        rows = self.rows_of(game)
        if self.faults.pop(game, None):
            # A bot that failed may be in any state, so a new one takes its place.
            bot = make_bot(self.opponents[game], self._bots[game], self.unit_types)
            self._clients[rows[0]].ai2 = bot
        self.clock[game] = 0
        self.begun[game] += 1
        for row, player in zip(rows, (first_player, 1 - first_player), strict=False):
            self.player[row] = player
        first = self._clients[rows[0]]
        first.reset(int(first_player))
        if self.maps[game].file != self._map_of_clients:
            # A client knows one map, but plays whatever it holds.
            load = java_class("rts.PhysicalGameState").load
            first.pgs = load(str(self.maps[game].file), self.unit_types)
            first.gs = java_class("rts.GameState")(first.pgs, self.unit_types)
        for row in rows[1:]:  # both sides play the same game
            self._clients[row].gs = first.gs
            self._clients[row].pgs = first.pgs
        if self.opponents[game] != SELF:
            seed_bot(first.ai2, bot_seed)
            self._limit_search(game)
        self._players[game] = tuple(first.gs.getPlayer(player) for player in (0, 1))
        for row in rows:
            if "evaluation" in self._rewards:
                # It remembers the last game, so it is replaced. It is the last function.
                position = self._rewards.index("evaluation")
                self._clients[row].rfs[position] = self._reward_functions()[-1]
            self.update_board(row)
            self.update_allowed(row)

    def game_of(self, row: int) -> int:
        return self._games_of_rows[row]

    def row_of(self, agent_id: int) -> int:
        """The row of an agent; those of team 0 are numbered first."""
        return int(np.concatenate(self.rows_of_teams)[agent_id])

    def state_of(self, row: int) -> Any:
        """The engine's state of a row's game, as its side may see it."""
        return self._view(row)

    def rows_of(self, game: int) -> range:
        first = self._first_rows[game]
        return range(first, first + int(self.sides[game]))

    def tick(
        self, games: Iterable[int] | None = None, until: int | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Play the orders in `orders` for one tick of all games that do not rest, or of some.

        With `until`, each game plays them again and again until it is over, a side of ours has a
        choice, or its clock shows `until`. Returns rewards [R, K] by REWARDS, zero in other games,
        and which games [N] are over. Boards and allowed orders are updated.
        """
        if games is None:
            games = np.flatnonzero(~self.resting).tolist()
        reward = np.zeros((self.num_rows, len(REWARDS)))
        over = np.zeros(self.num_games, np.bool_)
        plain = [game for game in games if not self._is_composed[game]]
        if plain:
            self._tick_plain(np.array(plain), until, reward, over)
        for game in games:
            if self._is_composed[game]:
                over[game] = self._tick_composed(game, reward)
                while until is not None and not (
                    over[game] or self._stops(game, until)
                ):
                    over[game] = self._tick_composed(game, reward)
        return self._with_all_results(reward, over), over

    def _stops(self, game: int, until: int) -> bool:
        rows = self.rows_of(game)
        allowed = self.allowed[rows.start : rows.stop]
        return bool(self.clock[game] >= until or have_choices(allowed).any())

    def _tick_plain(
        self,
        games: NDArray[np.int64],
        until: int | None,
        reward: NDArray[np.float64],
        over: NDArray[np.bool_],
    ) -> None:
        """Ticks of games of one row each, all in one call; writes their part of both arrays."""
        rows = np.array(self._first_rows)[games]
        most = np.ones(len(games)) if until is None else until - self.clock[games]
        ticks = self._ticks
        ticks.play(rows.astype(np.int32), self.player[rows], most.astype(np.int32))
        self.clock[games] += np.array(ticks.played)
        over[games] = np.array(ticks.over)
        paid = np.array(ticks.paid).reshape(len(games), -1)
        reward[rows] = self._by_rewards(paid)
        for game, fault in zip(games.tolist(), ticks.faults, strict=True):
            if fault is not None:
                over[game] = self._end_by_fault(game, f"crashed: {fault}")

    def play(
        self, row: int, orders: NDArray[np.int32]
    ) -> tuple[NDArray[np.float64], bool]:
        """Play a list of orders [K, 8] (cell, then PARTS), in this order, for one tick.

        Returns rewards [K] by REWARDS and whether the game is over.
        """
        import jpype

        client = self._clients[row]
        player = int(self.player[row])
        reward = np.zeros((self.num_rows, len(REWARDS)))
        try:
            # A row has its game's number here, because the unit form refuses self-play.
            if self._is_composed[row]:
                move = client.ai1.getAction(
                    player, self._view(row), java_orders(orders)
                )
                over = self._compose_tick(row, {row: move}, reward)
            else:
                list_client = self._list_client
                list_client.gs = client.gs
                list_client.ai2 = client.ai2
                list_client.rfs = client.rfs
                response = list_client.gameStep(java_orders(orders), player)
                reward[row] = self._by_rewards(np.array(response.reward))
                over = bool(response.done[_OVER])
        except jpype.JException as error:
            over = self._end_by_fault(row, f"crashed: {error}")
        self.clock[row] += 1
        self.update_board(row)
        self.update_allowed(row)
        return self._with_result(row, reward[row], over), over

    def try_out(
        self, row: int, orders: NDArray[np.int32]
    ) -> tuple[NDArray[np.float64], bool]:
        """Play a list of orders on a copy of the game, while the opponent idles.

        Returns what `play` does. `board` shows the copy afterwards.
        """
        trial = self._trial_client
        state = self._clients[row].gs.clone()
        trial.gs = state
        response = trial.gameStep(java_orders(orders), int(self.player[row]))
        self.update_board(row, state)
        reward = self._by_rewards(np.array(response.reward))
        reward[_EVALUATION] = 0.0  # paid when the tick is really played
        over = bool(response.done[_OVER])
        return self._with_result(row, reward, over, state), over

    def update_board(self, row: int, state: Any = None) -> None:
        """Write `board` of one row, from its game or from the given state of it."""
        player = int(self.player[row])
        state = self._clients[row].gs if state is None else state
        if self._settings.partial:  # D5: the view after the tick, not the one before
            state = java_class("rts.PartiallyObservableGameState")(state, player)
        state.getBufferObservation(player, row, self._board_buffer)

    def update_allowed(self, row: int) -> None:
        """Write `allowed` of one row."""
        self._clients[row].getMasks(int(self.player[row]))

    def stock(self, game: int) -> tuple[int, int]:
        """Resources that player 0 and player 1 have in store."""
        first, second = self._players[game]
        return int(first.getResources()), int(second.getResources())

    def close(self) -> None:
        """Release the games. Java keeps running, for other envs. Idempotent."""
        self._clients, self._players = [], []
        self._ticks = self._list_client = self._trial_client = None

    def _tick_composed(self, game: int, reward: NDArray[np.float64]) -> bool:
        """One tick of one game; adds to its rows of `reward`, returns whether the game is over."""
        import jpype

        rows = self.rows_of(game)
        try:
            moves = {row: self._move_from_buffer(row) for row in rows}
            over = self._compose_tick(game, moves, reward)
        except jpype.JException as error:
            over = self._end_by_fault(game, f"crashed: {error}")
        self.clock[game] += 1
        for row in rows:
            self.update_board(row)
            self.update_allowed(row)
        return over

    def _move_from_buffer(self, row: int) -> Any:
        """The engine's form of the orders that `orders` holds for a row."""
        return self._clients[row].ai1.getActionFromBuffer(
            int(self.player[row]), self._view(row), row, self._order_buffer
        )

    def _view(self, row: int, *, of_opponent: bool = False) -> Any:
        """The state of a row's game as one side may see it."""
        state = self._clients[row].gs
        if not self._settings.partial:
            return state
        player = int(self.player[row])
        viewer = 1 - player if of_opponent else player
        return java_class("rts.PartiallyObservableGameState")(state, viewer)

    def _compose_tick(
        self, game: int, moves: dict[int, Any], reward: NDArray[np.float64]
    ) -> bool:
        """One tick from the engine's parts: all sides move, then all orders are issued (D8).

        Adds to the game's rows of `reward` and returns whether the game is over.
        """
        rows = self.rows_of(game)
        state = self._clients[rows[0]].gs
        by_player = {int(self.player[row]): move for row, move in moves.items()}
        is_self_play = self.opponents[game] == SELF
        if not is_self_play:
            bot_player = 1 - int(self.player[rows[0]])
            move = self._bot_move(game, bot_player)
            if move is None:
                return True
            by_player[bot_player] = move
        # Whatever our seat is: the engine resolves conflicts by the order of its list.
        issued = [by_player[player] for player in (0, 1)]
        for move in issued:
            state.issueSafe(move)
        # Copies, because reward functions compare with the state before the cycle changes it.
        trace = java_class("rts.TraceEntry")(
            state.getPhysicalGameState().clone(), state.getTime()
        )
        for move in issued:
            trace.addPlayerAction(move.clone())
        over = bool(state.cycle())
        for row in rows:
            player = int(self.player[row])
            functions = self._clients[row].rfs
            for function in functions:
                function.computeReward(player, 1 - player, trace, state)
            reward[row] += self._by_rewards(
                [function.getReward() for function in functions]
            )
        if over and not is_self_play:
            self._clients[rows[0]].ai2.gameOver(state.winner())
        return over

    def _bot_move(self, game: int, player: int) -> Any:
        """The bot's move, or None when it would break the game."""
        # The engine would end the whole process at an order for a unit that does not exist.
        row = self._first_rows[game]
        client = self._clients[row]
        start_s = time.perf_counter()
        move = client.ai2.getAction(player, self._view(row, of_opponent=True))
        took_s = time.perf_counter() - start_s
        if not self.clock[game]:
            # Some bots make what they search with at their first move.
            self._limit_search(game)
        limit_s = self._settings.bot_time_ms / 1000.0
        if took_s > limit_s:
            self._end_by_fault(
                game,
                f"thought for {took_s:.2f} s; at most {limit_s:g} s are allowed "
                "(option bot_time_ms)",
            )
            return None
        if move is None or any(pair.m_a is None for pair in move.getActions()):
            self._end_by_fault(game, "gave an order to a unit that does not exist")
            return None
        return move

    def _limit_search(self, game: int) -> None:
        if self._settings.search_ms is not None and self._bots[game].is_supervised:
            limit_search(
                self._clients[self._first_rows[game]].ai2, self._settings.search_ms
            )

    def _reward_functions(self) -> list[Any]:
        return [
            java_class(f"ai.rewardfunction.{_JAVA_REWARDS[name]}RewardFunction")()
            for name in self._rewards
        ]

    def _by_rewards(self, paid: Any) -> NDArray[np.float64]:
        """[..., K] by REWARDS, from what Java's reward functions returned."""
        paid = np.asarray(paid)
        reward = np.zeros((*paid.shape[:-1], len(REWARDS)))
        reward[..., self._reward_column] = paid
        return reward

    def _end_by_fault(self, game: int, what: str) -> bool:
        """Note what the opponent did wrong; True, because the game is over."""
        self.faults[game] = f"{self.opponents[game]} {what}"
        return True

    def _with_all_results(
        self, reward: NDArray[np.float64], over: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        for game in np.flatnonzero(over).tolist():
            own = self.rows_of(game)
            rows = slice(own.start, own.stop)
            reward[rows] = self._with_result(game, reward[rows], over=True)
        return reward

    def _with_result(
        self, game: int, reward: NDArray[np.float64], over: bool, state: Any = None
    ) -> NDArray[np.float64]:
        """Set `winner` if the game is over; returns its rewards [..., K], corrected."""
        # D7: the engine pays -1 to both sides when neither wins.
        if not over:
            return reward
        state = self._clients[self._first_rows[game]].gs if state is None else state
        self.winner[game] = int(state.winner())
        if self.winner[game] == -1 and not self._settings.compat:
            reward[..., _WIN_LOSS] = 0.0
        return reward
