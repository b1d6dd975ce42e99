"""Hallway: look at the symbol in the corridor, then walk to the goal that shows the same one.

Source: ML-Agents 3.0.0, `HallwayArea.prefab`, `HallwayAgent.cs`.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.look import BLUE, ORANGE, WALL_COLOR, YELLOW
from touchline.drawing.tableau import Camera, box_shapes, floor_shapes, join, lowered
from touchline.parameters import Parameter
from touchline.physics.shapes import COS, SIN, Floats, X, Y, Z, box, boxes
from touchline.physics.upright.boxes import Body
from touchline.physics.upright.contacts import TOUCH_M
from touchline.physics.world import DT_S, Arrays
from touchline.scenes.academy import Agents
from touchline.scenes.box_scene import (
    STATE_OF_BODY,
    BoxScene,
    gravity_times,
    state_of_bodies,
)
from touchline.scenes.cube_agents import CubeGame, act_alone, play_alone
from touchline.scenes.scene import ActionNames
from touchline.sensors.rays import RayFan, RaySensor
from touchline.sensors.stacking import Stack, stacked_spec
from touchline.specs import ActionSpec, BehaviorSpec

BEHAVIOR = "Hallway?team=0"
MAX_STEP = 3000
DECISION_PERIOD = 6
CHOICES = 5
RUN_SPEED_MPS = 1.5
TURN_RAD = math.radians(150.0) * DT_S
RIGHT_REWARD, WRONG_REWARD = 1.0, -0.1
STEP_REWARD = -1.0 / MAX_STEP

AGENT_KG, AGENT_DRAG = 25.0, 2.0

TAGS = ["symbol_O_Goal", "symbol_X_Goal", "symbol_O", "symbol_X", "wall"]
FIXED = boxes(
    box((0.0, 0.0, 0.0), (20.0, 1.0, 50.0)),
    box((9.75, 1.5, 0.0), (0.5, 4.0, 50.0), TAGS.index("wall")),
    box((-9.75, 1.5, 0.0), (0.5, 4.0, 50.0), TAGS.index("wall")),
    box((0.0, 1.5, 25.0), (20.0, 4.0, 0.5), TAGS.index("wall")),
    box((0.0, 1.5, -25.0), (20.0, 4.0, 0.5), TAGS.index("wall")),
)
AGENT, SYMBOL_O, SYMBOL_X, PLATE_O, BOARD_O, PLATE_X, BOARD_X = range(7)

ORIGIN_X_M = 0.015
"""The ground object is this far off its area's middle; places are relative to it."""
START_Z_M, SPREAD_X_M, SPREAD_Z_M = -15.0, 3.0, 5.0
START_Y_M, SYMBOL_Y_M = 1.5, 2.5
HIDDEN_M = -1000.0
"""Height of the symbol that is not shown."""
GOAL_M = (7.0, 0.5, 22.29)
BOARD_ABOVE_M, BOARD_BEHIND_M = 2.0, 2.5

STATE_M, STATE_MPS = 12.0, 5.0
"""Units of places and velocities in the state."""
FRAMES = 3
SENSOR = RaySensor(
    TAGS, TAGS, RayFan(rays_per_direction=2, max_degrees=70.0, length_m=12.0)
)


def _goal(tag: int) -> list[list[float]]:
    """A goal's plate on the ground and the board behind it; both end the episode."""
    x, y, z = GOAL_M
    return [
        box((x, y, z), (4.0, 0.1, 4.0), tag),
        box((x, y + BOARD_ABOVE_M, z + BOARD_BEHIND_M), (4.08, 4.01, 1.145), tag),
    ]


PLACED = [
    box((0.0, HIDDEN_M, 0.0), (4.0, 4.0, 1.0), TAGS.index("symbol_O")),
    box((0.0, HIDDEN_M, 0.0), (4.0, 4.0, 1.0), TAGS.index("symbol_X")),
    *_goal(TAGS.index("symbol_O_Goal")),
    *_goal(TAGS.index("symbol_X_Goal")),
]
"""The boxes after the agent: `SYMBOL_O` to `BOARD_X`."""
_AGENT_BOX = box((0.0, START_Y_M, START_Z_M), (1.0, 1.0, 1.0))
_O_COLOR, _X_COLOR = ORANGE, YELLOW


class Hallway(BoxScene):
    """Look at the symbol in the corridor, then walk to the goal that shows the same one.

    Observations, three frames each: `…RayPerceptionSensor` (105), five rays over ±70°, 12 m, at
    body height, tags symbol_O_Goal, symbol_X_Goal, symbol_O, symbol_X, wall; `…VectorSensor_size1`
    (3), the share of the time limit that has passed.

    Actions, one branch of five: 0 nothing, 1 ahead, 2 back, 3 turn right, 4 turn left. Every sixth
    step, repeated in between.

    Reward: -1/3000 per step; touching the right goal sets +1, the wrong one -0.1, and both end the
    episode. 3000 steps interrupt it.
    """

    name = "Hallway"
    action_names = ActionNames(
        branches=[("nothing", "ahead", "back", "turn right", "turn left")]
    )
    unity_areas = 16
    behaviors = {
        BEHAVIOR: BehaviorSpec(
            (
                stacked_spec("RayPerceptionSensor", SENSOR.size, FRAMES),
                stacked_spec("VectorSensor_size1", 1, FRAMES),
            ),
            ActionSpec.create_discrete([CHOICES]),
        )
    }
    decision_period = DECISION_PERIOD
    max_step = MAX_STEP
    state_size = STATE_OF_BODY + 4
    parameters = {
        "gravity": gravity_times(2.0),
        "wrong_goal_ends": Parameter(
            1.0,
            0.0,
            1.0,
            "0: the wrong goal costs as much once and ends nothing, so that the right one can "
            "still be found; not in Unity",
        ),
    }
    fixed = FIXED
    bodies = [Body(_AGENT_BOX, AGENT_KG, AGENT_DRAG, turns=True)]
    placed = PLACED
    sensor = SENSOR
    frames = FRAMES
    static = join(
        floor_shapes(FIXED[0], cells=(8, 20)),
        box_shapes(lowered(FIXED[1:], 1.5), WALL_COLOR),
    )
    camera = Camera(eye=(26.0, 38.0, -30.0), target=(0.0, 0.0, 1.0))
    colors = [BLUE, _O_COLOR, _X_COLOR, *[_O_COLOR] * 2, *[_X_COLOR] * 2]

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        self.shows_x = np.zeros(num_areas, np.bool_)
        self.wrong_goal_ends = np.ones(num_areas)
        self.has_erred = np.zeros(num_areas, np.bool_)
        """[A] whether the running episode has touched the wrong goal, which did not end it."""
        self._time = Stack(num_areas, FRAMES, 1)
        self._game = CubeGame(
            discrete=self.academy.discrete,
            reward=self.academy.reward,
            world=self.world.kernel_arrays,
            step_reward=STEP_REWARD,
            speed_mps=RUN_SPEED_MPS,
            turn_rad=TURN_RAD,
            watched=AGENT,
            goals=(len(FIXED) + PLATE_O, len(FIXED) + BOARD_X),
        )

    def arrays(self) -> Arrays:
        own = {
            "shows_x": self.shows_x,
            "wrong_goal_ends": self.wrong_goal_ends,
            "has_erred": self.has_erred,
            "rays": self._stack.frames,
            "time": self._time.frames,
        }
        return own | super().arrays()

    def parameter_arrays(self) -> dict[str, Floats]:
        return super().parameter_arrays() | {"wrong_goal_ends": self.wrong_goal_ends}

    # reset

    def restart(self) -> None:
        self.world.velocity[:] = 0.0

    def begin_episodes(self, agents: Agents) -> None:
        """Draw the symbol, the sides of the goals and the agent's place."""
        # The agent keeps its spin, as in Unity.
        areas, world = agents, self.world
        self._next_episode(areas)
        wrong_goal_ends = self.parameter_values.read("wrong_goal_ends", areas)
        self.wrong_goal_ends[areas] = wrong_goal_ends
        self.has_erred[areas] = False
        draws = self.streams.uniform(areas, 7, -1.0, 1.0)
        boxes = world.boxes

        shows_x = draws[:, 0] >= 0.0
        self.shows_x[areas] = shows_x
        boxes[areas, SYMBOL_O, X] = ORIGIN_X_M + SPREAD_X_M * draws[:, 2]
        # In Unity, too, only the O varies sideways.
        boxes[areas, SYMBOL_X, X] = ORIGIN_X_M
        for symbol, is_shown in ((SYMBOL_O, ~shows_x), (SYMBOL_X, shows_x)):
            # Unity hides the other one in the same way: far below, not switched off.
            boxes[areas, symbol, Y] = np.where(is_shown, SYMBOL_Y_M, HIDDEN_M)
            boxes[areas, symbol, Z] = SPREAD_Z_M * draws[:, 3]

        is_swapped = draws[:, 1] >= 0.0
        side = np.where(is_swapped, -GOAL_M[0], GOAL_M[0])
        boxes[areas, PLATE_O, X] = boxes[areas, BOARD_O, X] = side
        boxes[areas, PLATE_X, X] = boxes[areas, BOARD_X, X] = -side

        boxes[areas, AGENT, X] = ORIGIN_X_M + SPREAD_X_M * draws[:, 4]
        boxes[areas, AGENT, Y] = START_Y_M
        boxes[areas, AGENT, Z] = START_Z_M + SPREAD_Z_M * draws[:, 5]
        yaw = math.pi * (1.0 + draws[:, 6])
        world.yaw[areas, AGENT] = yaw
        boxes[areas, AGENT, COS] = np.cos(yaw)
        boxes[areas, AGENT, SIN] = np.sin(yaw)
        world.velocity[areas, AGENT, :3] = 0.0
        self._stack.clear(areas)
        self._time.clear(areas)

    # observe

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        time_share = self.academy.step_count.reshape(-1)[agents, None] / MAX_STEP
        return [*self._see(agents), self._time.push(agents, time_share)]

    def observe_state(self, behavior: str, agents: Agents) -> NDArray[np.float32]:
        """Where the agent is, what the symbol shows, on which side its goal is, and the time."""
        world, areas = self.world, agents
        body = world.boxes[areas, AGENT : AGENT + 1]
        velocity = world.velocity[areas, AGENT : AGENT + 1]
        own = state_of_bodies(body, velocity, STATE_M, STATE_MPS)
        symbol = np.where(self.shows_x[areas], 1.0, -1.0)
        side_of_o = np.sign(world.boxes[areas, PLATE_O, X])
        right_side = np.where(self.shows_x[areas], -side_of_o, side_of_o)
        share = self.academy.step_count.reshape(-1)[areas] / MAX_STEP
        others = np.stack([symbol, side_of_o, right_side, share], axis=1)
        return np.concatenate([own, others.astype(np.float32)], axis=1)

    # play

    def act(self) -> None:
        act_alone(0, self.num_areas, self._game)

    def simulate(self, most: int) -> int:
        return self._play_kernel(play_alone, most, self._game)

    # reward and end

    def fixed_update(self, rounds: int) -> None:
        """Reward agents that touch a goal, and begin their next episodes."""
        gaps = self.world.gaps[:, AGENT, len(FIXED) + PLATE_O :]
        touched = gaps < TOUCH_M  # [A, 4]: plate and board of O, then of X
        if not np.count_nonzero(touched):
            return
        touched_o = touched[:, :2].any(axis=1)
        touched_x = touched[:, 2:].any(axis=1)
        areas = np.flatnonzero(touched_o | touched_x)
        # One that touches both counts as right.
        is_right = np.where(self.shows_x, touched_x, touched_o)[areas]
        continues = ~is_right & (self.wrong_goal_ends[areas] < 0.5)
        first = areas[continues & ~self.has_erred[areas]]
        self.academy.reward[first, 0] += WRONG_REWARD
        self.has_erred[first] = True
        areas, is_right = areas[~continues], is_right[~continues]
        # Set, not added: HallwayAgent.cs calls SetReward, which replaces the step's cost.
        self.academy.reward[areas, 0] = np.where(is_right, RIGHT_REWARD, WRONG_REWARD)
        self.add_statistic("Goal/Correct", float(is_right.sum()))
        self.add_statistic("Goal/Wrong", float((~is_right).sum()))
        self.academy.end(self, areas)
        self.begin_episodes(areas)
