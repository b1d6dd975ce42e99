"""The two scenes: SoccerTwos, and StrikersVsGoalie with two strikers against a goalie."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.physics.shapes import boxes
from touchline.scenes.academy import Agents
from touchline.scenes.soccer.field import (
    BLUE,
    BLUE_GOAL_BLOCK,
    FIELD,
    PURPLE,
    START_X_M,
    START_Z_M,
    Player,
)
from touchline.scenes.soccer.game import (
    MAX_FIELD_STEPS,
    Soccer,
    behaviors_of,
    field_player_sensors,
    ray_sensor,
)
from touchline.scenes.soccer.state import state_size
from touchline.sensors.rays import observe_together
from touchline.specs import base_name, team_of

BLUE_NAME, PURPLE_NAME = "SoccerTwos?team=0", "SoccerTwos?team=1"
AHEAD_MPS, SIDEWAYS_MPS = 2.0, 0.6


def _player(team: int, side_z: float) -> Player:
    name = BLUE_NAME if team == BLUE else PURPLE_NAME
    x = -START_X_M if team == BLUE else START_X_M
    return Player(
        name, team, x, side_z * START_Z_M, AHEAD_MPS, SIDEWAYS_MPS, False, 0.0
    )


class SoccerTwos(Soccer):
    """Soccer, two against two.

    Observations of blue (purple: colors exchanged): `…BlueRayPerceptionSensor` (264), eleven rays
    over ±60°, and `…BlueRayPerceptionSensorReverse` (72), three rays over ±45° behind; 20 m, 0.5 m
    above the body, three frames; tags ball, own goal, other goal, wall, own agent, other agent.
    """

    name = "SoccerTwos"
    players = (
        _player(PURPLE, 1.0),
        _player(BLUE, 1.0),
        _player(PURPLE, -1.0),
        _player(BLUE, -1.0),
    )
    agents_per_area = len(players)
    state_size = state_size(len(players))
    field = FIELD
    sensors = {
        PURPLE_NAME: field_player_sensors(
            "Purple",
            ["ball", "purpleGoal", "blueGoal", "wall", "purpleAgent", "blueAgent"],
        ),
        BLUE_NAME: field_player_sensors(
            "Blue",
            ["ball", "blueGoal", "purpleGoal", "wall", "blueAgent", "purpleAgent"],
        ),
    }
    behaviors = behaviors_of(sensors)

    def merge_teams(self) -> None:
        """Present both teams as one behavior from the next restart on, team after team.

        For learners that train one policy for both teams: a step costs half the calls. With the
        state shown, teams stay apart.
        """
        if self._shows_state:
            return
        spec = self.behaviors[PURPLE_NAME]
        self._names = [base_name(player.behavior) for player in self.players]
        self.academy = self._make_academy({self._names[0]: spec})
        by_team = self._split(np.arange(self.num_areas * len(self.players)))
        self.academy.order = np.concatenate(list(by_team.values()))
        self.restart()

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        if behavior in self._rays:
            return super().observe(behavior, agents)
        rows_of = self._split(agents)
        teams = [
            (self._rays[name], self._stacks[name], agents[rows])
            for name, rows in rows_of.items()
        ]
        observed = observe_together(self._threads, self._view, teams)
        # By identity: the academy gives this very array, team after team, when all agents decide.
        if agents is self.academy.order:
            return observed
        # The inverse permutation: from team after team back to the caller's order.
        back = np.argsort(np.concatenate(list(rows_of.values())))
        return [obs[back] for obs in observed]

    def _split(self, agents: Agents) -> dict[str, NDArray[np.intp]]:
        """Full behavior name of a team -> the rows of its players among these agents."""
        team = self._teams[agents % len(self.players)]
        return {name: np.flatnonzero(team == team_of(name)) for name in self._rays}


STRIKER, GOALIE = "Striker?team=0", "Goalie?team=1"
STEP_REWARD = 1.0 / MAX_FIELD_STEPS
"""What time gives to the goalie and takes from each striker."""
GOALIE_X_M = 4.0


def _striker(z_m: float) -> Player:
    return Player(STRIKER, BLUE, -START_X_M, z_m, 2.6, 0.6, False, -STEP_REWARD)


class StrikersVsGoalie(Soccer):
    """Two strikers, which lose 1/5000 per step, against a goalie, which earns as much.

    Observations of a striker: `…BlueRayPerceptionSensor` (231) and `…Reverse` (63) as in
    SoccerTwos, tags ball, purpleGoal, wall, blueAgent, purpleAgent. Of the goalie:
    `…PurpleGoalieRayPerceptionSensor` (738), 41 rays all round, tags ball, purpleGoal, wall,
    blueAgent. Strikers are faster ahead, the goalie sideways, and its every touch kicks.
    """

    name = "StrikersVsGoalie"
    players = (
        _striker(START_Z_M),
        Player(GOALIE, PURPLE, GOALIE_X_M, 0.0, 2.0, 2.0, True, STEP_REWARD),
        _striker(-START_Z_M),
    )
    agents_per_area = len(players)
    state_size = state_size(len(players))
    field = np.concatenate([FIELD, boxes(BLUE_GOAL_BLOCK)])
    sensors = {
        STRIKER: field_player_sensors(
            "Blue", ["ball", "purpleGoal", "wall", "blueAgent", "purpleAgent"]
        ),
        GOALIE: {
            "PurpleGoalieRayPerceptionSensor": ray_sensor(
                ["ball", "purpleGoal", "wall", "blueAgent"], 20, 180.0
            )
        },
    }
    behaviors = behaviors_of(sensors)
