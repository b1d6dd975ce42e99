"""MicroRTS as an Env: episodes, rewards and time limits over `Games` and a `Form`.

One area is one game, one agent is one side of it. Behaviors are `MicroRTS?team=0` (we against a
bot) and, in self-play, `MicroRTS?team=1` for the other side. This world is not `Stateful`: the Java
engine cannot be restored to an earlier state, because its bots keep state that cannot be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.envs.actions import ActionError, check_ranges
from touchline.envs.env import EnvRecipe, MLAgentsEnv
from touchline.errors import UsageError
from touchline.microrts.action_forms import AskerForm, Form, GridForm, Turned, UnitForm
from touchline.microrts.bot_policy import BotPolicy
from touchline.microrts.bots import opponents_of_areas, seed_engine
from touchline.microrts.engine import Engine, GameMap, find_engine
from touchline.microrts.games import Games, GameSettings
from touchline.microrts.java import refuse_forked
from touchline.microrts.kernels import are_choices
from touchline.microrts.observations import board_planes, visible_cells
from touchline.microrts.options import Match, Options, task_named
from touchline.microrts.records import GameRecord, figures_by_opponent
from touchline.microrts.render import Scoreboard, draw_board
from touchline.microrts.rules import BOTS, PLANES, REWARDS, SELF, balance_of, one_turn
from touchline.parameters import Parameter, ParameterValue, Sampler
from touchline.scenes.random import Streams
from touchline.specs import (
    ActionTuple,
    BehaviorSpec,
    ObservationSpec,
)
from touchline.statistics import EnvironmentStats, StatsAggregationMethod
from touchline.steps import BranchMasks, DecisionSteps, Exchange, TerminalSteps

BEHAVIOR = "MicroRTS"
_DEFAULT_AREAS = 8  # as many games as the notebooks of gym-microrts run
_FILM_FPS = 30.0  # a game of 2000 ticks takes a minute
_CLOSER = REWARDS.index("closer_to_enemy_base")
_WIN_LOSS = REWARDS.index("win_loss")
_MATERIAL = REWARDS.index("material")
# Stocks are observed in tens.
_STOCK_UNIT = 10
PARAMETERS: Mapping[str, Parameter] = {
    "shaping": Parameter(1.0, 0.0, 1000.0, "factor of all weights but that of win_loss")
}
"""Environment parameters: a curriculum of `shaping` leads from shaped rewards to results alone."""


def open_microrts(recipe: EnvRecipe) -> MicrortsEnv:
    """The world "microrts".

    `target` is a task of gym-microrts 0.3.2 or a map, `options` are those of `Options`.
    """
    refuse_forked()
    return MicrortsEnv(
        recipe.target,
        Options.parse(recipe.options),
        recipe.num_areas or _DEFAULT_AREAS,
        seed=recipe.seed,
        parameters=recipe.parameters,
    )


class _Ended(NamedTuple):
    """The rows whose game ended in this exchange."""

    rows: NDArray[np.bool_]
    """[R]"""
    obs: list[NDArray[np.float32]]
    """The last observation of each of them."""
    interrupted: NDArray[np.bool_]
    """Whether a limit or a fault ended the game, for each of them."""


class MicrortsEnv(MLAgentsEnv):
    """N games of MicroRTS. Use as a context manager, or call `close`."""

    def __init__(
        self,
        target: str,
        options: Options | None = None,
        num_areas: int = _DEFAULT_AREAS,
        *,
        seed: int = 0,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> None:
        self.name = f"microrts:{target}"
        self.options = options or Options()
        task = task_named(target)
        self.match = Match.of(self.options, task)
        self.weights = np.array(self.match.weights)
        """Current weight of each of REWARDS; the parameter `shaping` changes them."""
        self.set_parameters(parameters or {})
        self.games = _open_games(
            self.options, self.match, task.map if task else target, num_areas
        )
        self.map = self.games.map
        self.form = _form(self.options, self.match, self.games)
        if self.options.walls is None:
            self._shows_walls = bool(self.map.walls.any())
        else:
            self._shows_walls = self.options.walls
        num_teams = int(self.games.sides.max())
        self._teams = [f"{BEHAVIOR}?team={team}" for team in range(num_teams)]
        self._spec = self._behavior_spec()
        self._prepare_constant_parts()
        self._seed: int | None = seed
        self._streams = Streams(num_areas)
        num_rows = self.games.num_rows
        self._episodes = np.zeros(num_areas, np.int64)
        """Games begun in each area."""
        # By number alone, a bot that has every other area would be met from one seat.
        files = [game_map.file for game_map in self.games.maps]
        self._ranks = _ranks(zip(self.games.opponents, files, strict=True))
        """How many areas before each one play the same bot on the same map."""
        self._steps = np.zeros(num_areas, np.int64)
        """Decisions of the running game of each area."""
        self._share: NDArray[np.int64] | None = None
        """Games after which each area rests; None: never."""
        self._left = np.zeros(num_areas, np.int64)
        """Those that it still has to play."""
        self._reward_sums = np.zeros((num_rows, len(REWARDS)))
        """Unweighted rewards of the running games, by REWARDS."""
        self._balance = np.zeros(num_rows)
        """What `balance_of` said of each row last."""
        self._num_orders = np.zeros(num_rows, np.int64)
        self._num_invalid = np.zeros(num_rows, np.int64)
        self._records: list[GameRecord] = []
        """Games that ended since they were last taken."""
        self._exchanges = 0
        self._watcher: tuple[Callable[[], None], int] | None = None
        self._exchange: Exchange | None = None
        self._actions = np.zeros((num_rows, len(self._branches)), np.int32)

    def _prepare_constant_parts(self) -> None:
        """Arrays that every exchange repeats; made once and protected from writing."""
        num_areas = self.num_areas
        self._no_terminals = TerminalSteps.empty(self._spec)
        agent_ids = np.arange(self.games.num_rows, dtype=np.int32)
        # [areas] of team 0, [areas of self-play] of team 1
        self._agent_ids = np.split(agent_ids, [num_areas])
        self._groups = self._groups_of_teams()
        self._no_rewards = np.zeros(num_areas, np.float32)
        for constant in (*self._agent_ids, *self._groups, self._no_rewards):
            constant.setflags(write=False)
        self._branches = np.array(self.form.action_spec.discrete_branches, np.int32)
        self._branch_ends = np.cumsum(self._branches).tolist()

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return dict.fromkeys(self._teams, self._spec)

    @property
    def num_areas(self) -> int:
        return self.games.num_games

    @property
    def interface_options(self) -> Mapping[str, str]:
        """Of the options, those that change what is observed or done."""
        switches = {
            "partial": self.options.partial,
            "economy": self.options.economy,
            "walls": self._shows_walls,
            "turned": self.options.turned,
            "skip": self.options.skip,
        }
        on = {name: str(int(value)) for name, value in switches.items()}
        return {"form": self.match.form, **on}

    def capacity(self, behavior: str) -> int | None:
        if behavior not in self._teams:
            return 0
        return len(self._agent_ids[self._teams.index(behavior)])

    @property
    def most_decisions(self) -> int:
        """By the limits of steps and ticks; `unit` and `asker` decide for each unit in a tick."""
        cells = self.map.height * self.map.width
        per_tick = 1 if self.match.form == "grid" else cells
        return min(self.match.max_steps, self.match.max_ticks * per_tick)

    def reset(
        self,
        seed: int | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> None:
        self.set_parameters(parameters or {})
        if seed is None:
            seed = self._seed  # that of the recipe, at the first reset only
        self._seed = None
        if seed is not None:
            self._streams.restart(seed)
            self._episodes[:] = 0
            # These belong to the whole process: games of another env in it draw from them, too.
            seed_engine(seed)
        for game in range(self.num_areas):
            self._begin(game)
        if self._share is not None:
            self._left[:] = self._share
            self.games.resting[:] = self._left == 0
        obs = self._observe()
        self._balance = self._balance_of(obs, np.ones(self.games.num_rows, np.bool_))
        self._receive(obs, np.zeros(self.games.num_rows, np.float32))

    def set_parameters(self, parameters: Mapping[str, ParameterValue]) -> None:
        """Set `PARAMETERS`, for the games that are running too."""
        for name, value in parameters.items():
            if name not in PARAMETERS:
                raise UsageError(
                    f"{self.name}: unknown parameter {name!r}; it knows: {', '.join(PARAMETERS)}"
                )
            PARAMETERS[name].check(self.name, name, value)
            if isinstance(value, Sampler):
                raise UsageError(
                    f"{self.name}: parameter {name!r} takes a number, got {value}"
                )
            is_shaped = np.arange(len(REWARDS)) != _WIN_LOSS
            given = np.array(self.match.weights)
            self.weights = np.where(is_shaped, given * float(value), given)

    def _check(
        self, behavior: str, actions: ActionTuple, decisions: DecisionSteps
    ) -> None:
        spec = self._spec.action_spec
        expected = (len(decisions), spec.discrete_size)
        if actions.discrete.shape != expected:
            raise ActionError(
                f"{self.name}: {behavior}: expected discrete actions {expected} "
                f"[agents, branches], got {actions.discrete.shape}"
            )
        # The quick check finds that something is wrong, the slow one says what.
        if not are_choices(actions.discrete, self._branches):
            check_ranges(self.name, behavior, spec, actions, decisions)

    def execute(self, behavior: str, actions: ActionTuple) -> None:
        self._actions[self._rows(behavior)] = actions.discrete
        if self.options.strict:
            self._refuse_invalid(behavior)

    def _actions_so_far(self, behavior: str) -> ActionTuple:
        return ActionTuple(discrete=self._actions[self._rows(behavior)])

    def step(self) -> None:
        self.steps(self._teams[0])  # raises before the first reset
        games = self.games
        played = self.form.play(self._actions)
        # Zeros order nothing: who gets no actions before the next step does nothing.
        self._actions = np.zeros_like(self._actions)
        self._steps += 1
        reward = played.reward
        if self.weights[_CLOSER]:  # clipped, as by the wrapper of 0.3.2
            reward[:, _CLOSER] = reward[:, _CLOSER].clip(-1.0, 1.0)
        obs = self._observe()
        if self.weights[_MATERIAL]:
            balance = self._balance_of(obs, np.ones(games.num_rows, np.bool_))
            reward[:, _MATERIAL] = balance - self._balance
            self._balance = balance
        self._reward_sums += reward
        self._num_orders += played.num_orders
        self._num_invalid += played.num_invalid
        weighted = (reward @ self.weights).astype(np.float32)
        # Before the games that ended begin again, so that their last board is filmed.
        self._show_watcher()
        no_steps_left = self._steps >= self.match.max_steps
        no_ticks_left = games.clock >= self.match.max_ticks
        is_cut = no_steps_left | no_ticks_left
        is_ended = (played.over | is_cut) & ~games.resting
        if not np.count_nonzero(is_ended):
            self._receive(obs, weighted)
            return
        # A game that a fault of the engine ended has no result, whatever its board says.
        is_decided = played.over.copy()
        is_decided[list(games.faults)] = False
        rows = np.repeat(is_ended, games.sides)
        interrupted = ~np.repeat(is_decided, games.sides)[rows]
        # Chosen by an array, so these are copies: the rows get the next games' boards below.
        ended = _Ended(rows, [part[rows] for part in obs], interrupted)
        for game in np.flatnonzero(is_ended).tolist():
            # First, because `_begin` clears the sums and the fault.
            self._record(game, is_decided=bool(is_decided[game]))
            self._left[game] -= 1
            games.resting[game] = self._share is not None and self._left[game] == 0
            if not games.resting[game]:
                self._begin(game)
        begun = self._observe(rows)
        self._balance[rows] = self._balance_of(begun, rows)
        for part, first in zip(obs, begun, strict=True):
            part[rows] = first
        self._receive(obs, weighted, ended)

    @property
    def own_policies(self) -> Mapping[str, Callable[[str], BotPolicy]]:
        """The engine's bots by name: each makes a policy for a full behavior name."""

        def policy_of(bot: str, _: str) -> BotPolicy:
            return BotPolicy(self.games, self.form, self._spec, bot)

        return {name: partial(policy_of, name) for name in BOTS}

    def pop_records(self) -> list[GameRecord]:
        """The games that ended since the last call, in order."""
        records, self._records = self._records, []
        return records

    def rest_after(self, episodes: int) -> None:
        """In grid form, against bots: an area that has played its share of so many games stays on
        its last board, which saves the bot's moves. Elsewhere areas play on.
        """
        if self.match.form == "grid" and len(self._teams) == 1:
            self._share = _shares(episodes, self.num_areas)

    def game_figures(self, episodes: int) -> dict[str, Any]:
        """{"opponents": {name: figures}} of an evaluation of this many episodes.

        The first games of every area count, in equal shares. Takes the records, as `pop_records`
        does.
        """
        quota = _shares(episodes, self.num_areas)
        return {"opponents": figures_by_opponent(self.pop_records(), quota)}

    def take_statistics(self) -> EnvironmentStats:
        """For each opponent, 1 for a game won and 0 for any other, of games since the last call.

        Takes the records, as `pop_records` does: a training would pile them up.
        """
        statistics: dict[str, list[tuple[float, StatsAggregationMethod]]] = {}
        for record in self.pop_records():
            # Self-play records each side of a game, which counts once.
            if record.team == 0 and record.result != "fault":
                name = f"MicroRTS/Win Rate vs {record.opponent}"
                won = float(record.result == "win")
                values = statistics.setdefault(name, [])
                values.append((won, StatsAggregationMethod.AVERAGE))
        return statistics

    def areas_of(self, agent_ids: NDArray[np.int32]) -> NDArray[np.intp]:
        """The area of each of these agents; 0 for those that are not there."""
        # One agent of team 0 in every area, then those of team 1 where both sides are ours.
        areas = [*range(self.num_areas), *np.flatnonzero(self.games.sides == 2)]
        return np.asarray(np.array(areas)[np.maximum(agent_ids, 0)])

    def render(
        self, area: int = 0, width: int = 640, height: int = 480
    ) -> NDArray[np.uint8]:
        """One game as a picture [H, W, 3], from the side of team 0."""
        if not 0 <= area < self.num_areas:
            raise UsageError(
                f"{self.name}: area must be 0 to {self.num_areas - 1}, got {area}"
            )
        games = self.games
        row = games.rows_of(area)[0]
        board = games.board[row : row + 1]
        player = games.player[row : row + 1]
        scoreboard = Scoreboard(
            player=int(player[0]),
            opponent=games.opponents[area],
            stock=games.stock(area),
            ticks=int(games.clock[area]),
        )
        planes = board_planes(board, player)[0]
        return draw_board(planes, self.map.walls, scoreboard, (width, height))

    @property
    def film_rate(self) -> tuple[float, int]:
        """Pictures per second of film, and decisions per picture."""
        return _FILM_FPS, 1

    @contextmanager
    def watched(self, look: Callable[[], None], every: int = 1) -> Iterator[None]:
        """Within this context, call `look` after every `every` exchanges.

        A game that ended is still on its board then.
        """
        self._watcher = look, every
        try:
            yield
        finally:
            self._watcher = None

    def close(self) -> None:
        self.games.close()

    def _show_watcher(self) -> None:
        self._exchanges += 1
        if self._watcher is None:
            return
        look, every = self._watcher
        if self._exchanges % every == 0:
            look()

    def _begin(self, game: int) -> None:
        """Start the next game of an area; its seat and its bot's seed come from its own stream."""
        area = np.array([game])
        self._streams.next_episode(area)
        # Both for every kind of seat, so that the option changes no bot's seed.
        chance, bot_seed = self._streams.uniform(area, 2)[0]
        first_player = self._first_player(game, chance)
        self._episodes[game] += 1
        self._steps[game] = 0
        # Java's seeds have 48 bits.
        self.games.begin(game, first_player, int(bot_seed * 2**48))
        for row in self.games.rows_of(game):
            self._reward_sums[row] = 0.0
            self._num_orders[row] = 0
            self._num_invalid[row] = 0
            self.form.begin(row)

    def _first_player(self, game: int, chance: float) -> int:
        """Which player team 0 is in the next game of an area."""
        if self.games.maps[game].file != self.map.file:
            return 0
        if self.match.seat == "both":
            # Areas start with different seats, so that both are played at any time.
            return (self._ranks[game] + int(self._episodes[game])) % 2
        if self.match.seat == "random":
            return int(chance >= 0.5)
        return int(self.match.seat)

    def _observe(
        self, rows: NDArray[np.bool_] | None = None
    ) -> list[NDArray[np.float32]]:
        """New observations [R, ...] of all rows, or of those chosen."""
        games = self.games
        num_planes = self._spec.observation_specs[0].shape[0]
        compat = bool(self.options.compat)
        planes = board_planes(games.board, games.player, num_planes, compat=compat)
        used = PLANES
        if self.options.partial:
            visible = visible_cells(planes)
            planes[:, used] = ~visible
            planes[:, used + 1] = visible
            used += 2
        if self._shows_walls:
            planes[:, used] = ~self.map.walls
            planes[:, used + 1] = self.map.walls
        self.form.add_planes(planes)
        obs = [planes, self._economy()] if self.options.economy else [planes]
        return obs if rows is None else [part[rows] for part in obs]

    def _economy(self) -> NDArray[np.float32]:
        """[R, 3]: own stock and the opponent's in tens, and the share of the time that is used."""
        # With partial observation the opponent's stock is 0.
        games = self.games
        # Steps are ticks, unless `skip` leaves some out.
        ticks, steps = (
            games.clock / self.match.max_ticks,
            self._steps / self.match.max_steps,
        )
        used = np.maximum(ticks, steps)
        economy = np.zeros((games.num_rows, 3), np.float32)
        for row in range(games.num_rows):
            game = games.game_of(row)
            player = int(games.player[row])
            stock = games.stock(game)
            economy[row, 0] = stock[player] / _STOCK_UNIT
            if not self.options.partial:
                economy[row, 1] = stock[1 - player] / _STOCK_UNIT
            economy[row, 2] = used[game]
        return economy

    def _balance_of(
        self, obs: list[NDArray[np.float32]], rows: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """`balance_of` these rows, from what is observed of them."""
        economy = obs[1] if self.options.economy else self._economy()[rows]
        own_stock, other_stock, _ = economy.T * _STOCK_UNIT
        return balance_of(obs[0], own_stock, other_stock)

    def _receive(
        self,
        obs: list[NDArray[np.float32]],
        reward: NDArray[np.float32],
        ended: _Ended | None = None,
    ) -> None:
        """Make the exchange from observations [R, ...] and rewards [R] of all rows."""
        masks, second = self.form.masks()
        # The reward that came with the end of a game belongs to its terminal step.
        decision_reward = reward if ended is None else reward * ~ended.rows
        exchange = {}
        for team, name in enumerate(self._teams):
            mine = self._rows(name)
            decisions = DecisionSteps(
                obs=[part[mine] for part in obs],
                reward=decision_reward[mine],
                agent_id=self._agent_ids[team],
                action_mask=BranchMasks(masks[mine], self._branch_ends),
                group_id=self._groups[team],
                group_reward=self._no_rewards[: len(self._groups[team])],
                second_mask=None if second is None else second[mine],
            )
            terminals = self._no_terminals
            if ended is not None:
                terminals = self._terminals(team, ended, reward[mine])
            exchange[name] = decisions, terminals
        self._exchange = exchange

    def _terminals(
        self, team: int, ended: _Ended, reward: NDArray[np.float32]
    ) -> TerminalSteps:
        """The terminal steps of a team, from the rewards of its agents."""
        rows = self.games.rows_of_teams[team]
        is_of_team = np.isin(np.flatnonzero(ended.rows), rows)
        agents = np.flatnonzero(ended.rows[rows])
        return TerminalSteps(
            obs=[part[is_of_team] for part in ended.obs],
            reward=reward[agents],
            interrupted=ended.interrupted[is_of_team],
            agent_id=self._agent_ids[team][agents],
            group_id=self._groups[team][agents],
            group_reward=np.zeros(len(agents), np.float32),
        )

    def _record(self, game: int, *, is_decided: bool) -> None:
        """Keep the records of a game that has ended, one for each side."""
        games = self.games
        for team, row in enumerate(games.rows_of(game)):
            player = int(games.player[row])
            record = GameRecord(
                area=game,
                team=team,
                player=player,
                opponent=games.opponents[game],
                result=self._result(game, player, is_decided=is_decided),
                steps=int(self._steps[game]),
                ticks=int(games.clock[game]),
                rewards=dict(
                    zip(REWARDS, self._reward_sums[row].tolist(), strict=True)
                ),
                # By the weights at the game's end; a curriculum may have changed them meanwhile.
                episode_return=float(self._reward_sums[row] @ self.weights),
                orders=int(self._num_orders[row]),
                invalid_orders=int(self._num_invalid[row]),
                fault=games.faults.get(game, ""),
            )
            self._records.append(record)

    def _result(self, game: int, player: int, *, is_decided: bool) -> str:
        if game in self.games.faults:
            return "fault"
        winner = int(self.games.winner[game])
        if not is_decided or winner < 0:
            return "tie"
        return "win" if winner == player else "loss"

    def _rows(self, behavior: str) -> slice | NDArray[np.intp]:
        """The rows of a behavior; a slice, which copies nothing, where all games are alike."""
        team, sides = self._teams.index(behavior), self.games.sides
        rows = self.games.rows_of_teams[team]
        return slice(team, None, int(sides[0])) if (sides == sides[0]).all() else rows

    def _groups_of_teams(self) -> list[NDArray[np.int32]]:
        """The group of each agent: where only some areas have two sides, a group for each side of
        these tells which agents meet. Others have none.
        """
        games = self.games
        is_self_play = games.sides == 2
        of_first = np.zeros(games.num_games, np.int32)
        if not is_self_play.all():
            # From 1 on, because 0 means no group; the even numbers are the other sides'.
            of_first[is_self_play] = 1 + 2 * np.arange(is_self_play.sum())
        return [of_first, of_first[is_self_play] + (of_first[is_self_play] > 0)]

    def _refuse_invalid(self, behavior: str) -> None:
        invalid = np.flatnonzero(self.form.invalid(self._actions)[self._rows(behavior)])
        if len(invalid):
            raise ActionError(
                f"{self.name}: {behavior}: agent {invalid[0]} gave an order that the rules do not "
                "allow now; choose from action_mask (and second_mask), or leave out strict"
            )

    def _behavior_spec(self) -> BehaviorSpec:
        options = self.options
        num_planes = PLANES + self.form.extra_planes
        num_planes += 2 * options.partial + 2 * self._shows_walls
        shape = (num_planes, self.map.height, self.map.width)
        sensors = [ObservationSpec.picture(shape, "board")]
        if options.economy:
            sensors.append(ObservationSpec((3,), name="economy"))
        # The board network orders any cell; the asker form's actions name none.
        has_board_network = self.match.form in ("unit", "grid")
        network = "board" if has_board_network else "standard"
        return BehaviorSpec(tuple(sensors), self.form.action_spec, network=network)


def _ranks(kinds: Iterable[Hashable]) -> list[int]:
    """How many of those before each one are equal to it."""
    seen: Counter[Hashable] = Counter()
    ranks = []
    for kind in kinds:
        ranks.append(seen[kind])
        seen[kind] += 1
    return ranks


def _shares(episodes: int, num_areas: int) -> NDArray[np.int64]:
    # Only evaluations ask. The module needs torch, which playing does not.
    from touchline.training.quotas import shares

    return shares(episodes, num_areas)


def _open_games(options: Options, match: Match, map_name: str, num_areas: int) -> Games:
    opponents = opponents_of_areas(match.opponent, num_areas)
    if SELF in opponents and match.form != "grid":
        raise UsageError(
            f"microrts: opponent=self needs form=grid (both sides decide at once), not {match.form}"
        )
    engine = find_engine(options.engine or None)
    # As given: where `shaping` is 0 now, a curriculum may raise it later.
    weighted = [
        name for name, weight in zip(REWARDS, match.weights, strict=True) if weight
    ]
    settings = GameSettings(
        rewards=weighted,
        partial=options.partial,
        unit_rules=match.unit_rules,
        conflict_rule=match.conflict_rule,
        bot_time_ms=options.bot_time_ms,
        search_ms=options.search_ms,
        compat=bool(options.compat),
    )
    game_map = GameMap.read(engine, map_name)
    maps = _maps_of_areas(engine, options.maps, game_map, num_areas)
    return Games(
        engine, game_map, opponents, settings, maps=maps, java=options.java or None
    )


def _maps_of_areas(
    engine: Engine, given: str, target: GameMap, num_areas: int
) -> list[GameMap]:
    turn = [target]
    if given:
        names = one_turn("maps", given, "MAP")
        read = {name: GameMap.read(engine, name) for name in names}
        turn = [read[name] for name in names]
    for game_map in turn:
        if not np.array_equal(game_map.walls, target.walls):
            raise UsageError(
                f"microrts: maps={given}: {game_map.name} has another size or other walls than "
                f"{target.name}; all areas need the same"
            )
    return [turn[area % len(turn)] for area in range(num_areas)]


def _form(options: Options, match: Match, games: Games) -> Form:
    form: Form
    if match.form == "grid":
        form = GridForm(games, match.max_ticks, skip=options.skip)
    elif match.form == "unit":
        form = UnitForm(games, compat=bool(options.compat))
    else:
        form = AskerForm(games, match.max_ticks)
    return Turned(form, games) if options.turned else form
