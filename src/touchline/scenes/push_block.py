"""PushBlock: push a block onto the goal strip.

Unity turns the area by a multiple of 90° at each reset. No observation depends on that, so here the
area stays and everything is in its frame: the goal lies at -z.

Source: ML-Agents 3.0.0, `PushBlockArea.prefab`, `PushAgentBasic.cs`, `GoalDetect.cs`; every physics
step of a running Unity scene.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.look import BLUE, GREEN, ORANGE, WALL_COLOR
from touchline.drawing.tableau import Camera, box_shapes, floor_shapes, join, lowered
from touchline.parameters import Parameter
from touchline.physics.kernels import makes_arrays
from touchline.physics.shapes import HALF_X, HALF_Z, X, Y, Z, box, boxes
from touchline.physics.upright.boxes import Body, Boxes
from touchline.physics.upright.contacts import MU, TOUCH_M
from touchline.physics.world import DT_S, Arrays
from touchline.scenes.academy import Agents
from touchline.scenes.box_scene import (
    STATE_OF_BODY,
    BoxScene,
    gravity_times,
    state_of_bodies,
)
from touchline.scenes.cube_agents import (
    CHOICES,
    NAMES,
    NOWHERE_M,
    SPAWN_HEIGHT_M,
    CubeGame,
    act_alone,
    is_free,
    new_slab,
    play_alone,
    put_at,
    throw,
    turn_to,
)
from touchline.scenes.random import StreamArrays
from touchline.sensors.rays import RayFan, RaySensor
from touchline.sensors.stacking import stacked_spec
from touchline.specs import ActionSpec, BehaviorSpec

BEHAVIOR = "PushBlock?team=0"
MAX_STEP = 5000
RUN_SPEED_MPS = 3.0
TURN_RAD = math.radians(200.0) * DT_S
GOAL_REWARD = 5.0
STEP_REWARD = -1.0 / MAX_STEP

AGENT, BLOCK = 0, 1
MASS_KG = 10.0
AGENT_DRAG, BLOCK_DRAG = 4.0, 0.5
BLOCK_HEIGHT_M = 0.75

CLEAR_M = (2.5, 0.01, 2.5)
"""Half extents of the box around a new place that must be free."""

TAGS = ["block", "goal", "wall"]
FLOOR, GOAL = 0, 1
FIXED = boxes(
    box((0.0, -0.5, 0.0), (25.0, 1.0, 25.0)),
    box((0.0, -0.005, -10.5), (25.0, 3.0, 4.3), TAGS.index("goal")),
    box((12.75, 0.5, 0.0), (0.5, 2.0, 26.0), TAGS.index("wall")),
    box((-12.75, 0.5, 0.0), (0.5, 2.0, 26.0), TAGS.index("wall")),
    box((0.0, 0.5, 12.75), (26.0, 2.0, 0.5), TAGS.index("wall")),
    box((0.0, 0.5, -12.75), (26.0, 2.0, 0.5), TAGS.index("wall")),
)
STATE_M, STATE_MPS = 6.0, 5.0
"""Units of places and velocities in the state."""
FRAMES = 3
HIGH = RaySensor(
    TAGS,
    TAGS,
    RayFan(
        rays_per_direction=3, max_degrees=90.0, length_m=12.0, start_m=1.5, end_m=1.5
    ),
)
LEVEL = RaySensor(
    TAGS, TAGS, RayFan(rays_per_direction=3, max_degrees=90.0, length_m=12.0)
)
_UP = (0.0, SPAWN_HEIGHT_M, 0.0)


class PushBlock(BoxScene):
    """Push a block onto the goal strip.

    Observations, two ray sensors of three frames each: `…OffsetRayPerceptionSensor` (105) 1.5 m
    above the body, `…RayPerceptionSensor` (105) at body height; seven rays over ±90°, 12 m, tags
    block, goal, wall.

    Actions, one branch of seven: see `cube_agents`. Every fifth step, repeated in between.

    Reward: -1/5000 per step; +5 when the block touches the goal, which ends the episode. 5000 steps
    interrupt it.
    """

    name = "PushBlock"
    action_names = NAMES
    unity_areas = 32
    behaviors = {
        BEHAVIOR: BehaviorSpec(
            (
                stacked_spec("OffsetRayPerceptionSensor", HIGH.size, FRAMES),
                stacked_spec("RayPerceptionSensor", LEVEL.size, FRAMES),
            ),
            ActionSpec.create_discrete([CHOICES]),
        )
    }
    max_step = MAX_STEP
    state_size = 2 * STATE_OF_BODY + 4
    parameters = {
        "block_scale": Parameter(2.0, 0.1, 5.0, "the block's length and width, m"),
        "dynamic_friction": Parameter(
            0.0, 0.0, 10.0, "the ground's friction under sliding bodies"
        ),
        "static_friction": Parameter(
            0.0, 0.0, 10.0, "the ground's friction under resting bodies"
        ),
        "block_drag": Parameter(BLOCK_DRAG, 0.0, 49.0, "the block's drag, 1/s"),
        "gravity": gravity_times(2.5),
    }
    fixed = FIXED
    bodies = [
        Body(box(_UP, (1.0, 1.0, 1.0)), MASS_KG, AGENT_DRAG),
        Body(
            box(_UP, (2.0, BLOCK_HEIGHT_M, 2.0), TAGS.index("block")),
            MASS_KG,
            BLOCK_DRAG,
        ),
    ]
    sensor = HIGH.joined_with(LEVEL)
    frames = FRAMES
    static = join(
        floor_shapes(FIXED[0]),
        # The goal's box is higher than the agent, which would vanish in it.
        box_shapes(lowered(FIXED[1:2], 0.04), GREEN),
        box_shapes(lowered(FIXED[2:], 1.0), WALL_COLOR),
    )
    camera = Camera(eye=(0.0, 25.0, -22.0), target=(0.0, 0.0, -1.2))
    colors = [BLUE, ORANGE]

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        self._game = CubeGame(
            discrete=self.academy.discrete,
            reward=self.academy.reward,
            world=self.world.kernel_arrays,
            step_reward=STEP_REWARD,
            speed_mps=RUN_SPEED_MPS,
            turn_rad=TURN_RAD,
            watched=BLOCK,
            goals=(GOAL, GOAL),
        )
        self.restart()

    def arrays(self) -> Arrays:
        return {"stack": self._stack.frames} | super().arrays()

    # reset

    def restart(self) -> None:
        world = self.world
        world.boxes[:, :, [X, Z]] = 0.0
        world.boxes[:, :, Y] = NOWHERE_M
        world.yaw[:, AGENT] = math.pi  # towards the goal
        world.velocity[:] = 0.0

    def begin_episodes(self, agents: Agents) -> None:
        areas = agents
        world = self.world
        parameters = self.parameter_values
        self.streams.next_episode(areas)
        half_m = 0.5 * parameters.read("block_scale", areas)
        # The height stays, as in PushAgentBasic.cs.
        world.boxes[areas, BLOCK, HALF_X] = half_m
        world.boxes[areas, BLOCK, HALF_Z] = half_m
        # Two materials combine by their average; bodies have the default, the ground these.
        static = 0.5 * (MU + parameters.read("static_friction", areas))
        dynamic = 0.5 * (MU + parameters.read("dynamic_friction", areas))
        world.friction[areas, :, FLOOR, 0] = static[:, None]
        world.friction[areas, :, FLOOR, 1] = dynamic[:, None]
        world.drag[areas, BLOCK] = parameters.read("block_drag", areas)
        world.gravity[areas] = parameters.read("gravity", areas)
        _place(areas, self.streams.arrays(), world.kernel_arrays)
        self._stack.clear(areas)

    # observe

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        return self._see(agents)

    def observe_state(self, behavior: str, agents: Agents) -> NDArray[np.float32]:
        """Where agent and block are, the block seen from the agent, how large it is, the time."""
        world, areas = self.world, agents
        boxes = world.boxes[areas, : BLOCK + 1]
        velocity = world.velocity[areas, : BLOCK + 1]
        bodies = state_of_bodies(boxes, velocity, STATE_M, STATE_MPS)
        away = (boxes[:, BLOCK][:, [X, Z]] - boxes[:, AGENT][:, [X, Z]]) / STATE_M
        size = boxes[:, BLOCK, HALF_X, None]
        share = self.academy.step_count.reshape(-1)[areas, None] / MAX_STEP
        others = np.concatenate([away, size, share], axis=1, dtype=np.float32)
        return np.concatenate([bodies, others], axis=1)

    # play

    def act(self) -> None:
        act_alone(0, self.num_areas, self._game)

    def simulate(self, most: int) -> int:
        return self._play_kernel(play_alone, most, self._game)

    # reward and end

    def fixed_update(self, rounds: int) -> None:
        """Reward agents whose block touches the goal, and begin their next episodes."""
        scored = np.flatnonzero(self.world.gaps[:, BLOCK, GOAL] < TOUCH_M)
        if len(scored):
            self.academy.reward[scored] += GOAL_REWARD
            self.academy.end(self, scored)
            self.begin_episodes(scored)


@makes_arrays
def _place(areas: Agents, streams: StreamArrays, world: Boxes) -> None:
    """Put the block, then the agent, where a box around it is free, at rest 1 m up."""
    # A body's own old place is in its way if it reaches as high as that flat box: the agent's does,
    # the block's does not.
    slab = new_slab(CLEAR_M)
    for area in areas:
        shapes = world.boxes[area]
        yaw = world.yaw[area]
        for body in (BLOCK, AGENT):
            while True:
                throw(slab, streams, area)
                if is_free(slab, world.fixed) and is_free(slab, shapes):
                    break
            put_at(slab, shapes[body])
            world.velocity[area, body] = 0.0
        turn_to(yaw[AGENT], AGENT, shapes, yaw)
        # The block starts square to the walls; the agent keeps its yaw.
        turn_to(0.0, BLOCK, shapes, yaw)
