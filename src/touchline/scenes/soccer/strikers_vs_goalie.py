"""StrikersVsGoalie: two strikers against a goalie."""

import numpy as np

from touchline.physics.shapes import boxes
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
