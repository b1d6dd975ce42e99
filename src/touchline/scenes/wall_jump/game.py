"""The scene: walls, behaviors, rounds, rewards and ends."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.look import BLUE, CLEAR_GREEN, ORANGE, WALL_COLOR
from touchline.drawing.tableau import Camera, box_shapes, floor_shapes, join
from touchline.parameters import Parameter
from touchline.physics.shapes import COS, HALF_Y, SIN, Y, box
from touchline.physics.upright.boxes import Body
from touchline.physics.world import Arrays
from touchline.scenes.academy import Agents
from touchline.scenes.box_scene import (
    STATE_OF_BODY,
    BoxScene,
    gravity_times,
    state_of_bodies,
)
from touchline.scenes.scene import ActionNames
from touchline.scenes.wall_jump.motion import (
    AGENT,
    BLOCK,
    BLOCK_M,
    CONFIGURATIONS,
    FIXED,
    GOAL,
    GROUND,
    START_Y_M,
    START_Z_M,
    TAGS,
    WALL_BOX,
    Game,
    act,
    find_fallen,
    observe_place,
    place,
    play_rounds,
)
from touchline.sensors.rays import RayFan, RaySensor
from touchline.sensors.stacking import Stack, stacked_spec
from touchline.specs import ActionSpec, BehaviorSpec

SMALL, BIG = "SmallWallJump?team=0", "BigWallJump?team=0"
MAX_STEP = 2000
GOAL_REWARD, FALL_REWARD = 1.0, -1.0
STATE_M, STATE_MPS = 4.0, 6.0
"""Units of places and velocities in the state."""

WALL_HEIGHTS = ("no_wall_height", "small_wall_height", "big_wall_height")
"""Kinds of walls: the parameters that give their heights."""
WALL_OF = np.array([0, 1, 2, 2, 2])
"""Configuration -> kind of wall."""
BEHAVIOR_OF = np.array([0, 0, 1])
"""Kind of wall -> behavior, small or big."""

AGENT_KG, AGENT_DRAG = 25.0, 2.0
BLOCK_KG, BLOCK_DRAG = 10.0, 1.0
"""Drags are in 1/s."""
_AGENT_BOX = box((0.0, START_Y_M, START_Z_M), (1.0, 1.0, 1.0))
_BLOCK_BOX = box(BLOCK_M, (3.0, 2.0, 3.0), TAGS.index("block"))
_WALL = box((0.0, 0.0, -1.98), (20.0, 0.0, 1.5), TAGS.index("wall"))

FRAMES = 6
VECTOR_SIZE = 4
SEEN_TAGS = ["wall", "goal", "block"]
HIGH = RaySensor(
    TAGS,
    SEEN_TAGS,
    RayFan(
        rays_per_direction=3, max_degrees=90.0, length_m=20.0, start_m=2.5, end_m=5.0
    ),
)
LEVEL = RaySensor(
    TAGS, SEEN_TAGS, RayFan(rays_per_direction=3, max_degrees=90.0, length_m=20.0)
)
_SPEC = BehaviorSpec(
    (
        stacked_spec("OffsetRayPerceptionSensor", HIGH.size, FRAMES),
        stacked_spec("RayPerceptionSensor", LEVEL.size, FRAMES),
        stacked_spec("VectorSensor_size4", VECTOR_SIZE, FRAMES),
    ),
    ActionSpec.create_discrete([3, 3, 3, 2]),
)
_HEIGHT = "height of the wall's box, half of it in the ground, m"


class WallJump(BoxScene):
    """Reach the goal behind a wall, over it or by way of a block.

    Both behaviors observe, six frames each: `…OffsetRayPerceptionSensor` (210), seven rays over
    ±90°, 20 m, rising from 2.5 m to 5 m above the body; `…RayPerceptionSensor` (210), the same at
    body height; tags wall, goal, block; `…VectorSensor_size4` (24), place relative to the ground /
    20 (x, y, z) and whether it stands on something.

    Actions, branches of 3, 3, 3, 2: 1 ahead, 2 back · 1 turn left, 2 turn right · 1 left, 2 right,
    which wins over the first branch · 1 jump. Every fifth step, repeated in between.

    Reward: -0.0005 per step; standing within the goal sets +1, agent or block falling off the
    ground sets -1, and both end the episode. 2000 steps interrupt it.
    """

    name = "WallJump"
    action_names = ActionNames(
        branches=[
            ("nothing", "ahead", "back"),
            ("nothing", "turn left", "turn right"),
            ("nothing", "left", "right"),
            ("nothing", "jump"),
        ]
    )
    unity_areas = 24
    behaviors = {SMALL: _SPEC, BIG: _SPEC}
    max_step = MAX_STEP
    state_size = 2 * STATE_OF_BODY + 5
    parameters = {
        "no_wall_height": Parameter(0.0, 0.0, 100.0, _HEIGHT),
        "small_wall_height": Parameter(4.0, 0.0, 100.0, _HEIGHT),
        "big_wall_height": Parameter(8.0, 0.0, 100.0, _HEIGHT),
        "gravity": gravity_times(2.75),
    }
    fixed = FIXED
    bodies = [
        Body(_AGENT_BOX, AGENT_KG, AGENT_DRAG, turns=True),
        Body(_BLOCK_BOX, BLOCK_KG, BLOCK_DRAG, falls=False),
    ]
    placed = [_WALL]
    sensor = HIGH.joined_with(LEVEL)
    frames = FRAMES
    static = join(floor_shapes(FIXED[0]), box_shapes(FIXED[1:], CLEAR_GREEN))
    camera = Camera(eye=(-14.0, 16.0, -25.0), target=(0.0, 0.0, -4.0))
    colors = [BLUE, ORANGE, WALL_COLOR]

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        self.world.friction[:, :, GOAL] = -1.0  # nothing touches a trigger
        self.world.friction[:, BLOCK, GROUND] = -1.0  # it hovers 5 cm above
        self.configuration = np.full(num_areas, -1)
        """[A] which wall to put up at the end of this round; -1: none."""
        self._any_to_put_up = False
        """Whether there is such a wall."""
        self.jump_steps = np.zeros(num_areas, np.int64)
        self.jump_from_m = np.zeros(num_areas)
        self._place = Stack(num_areas, FRAMES, VECTOR_SIZE)
        self._game = Game(
            discrete=self.academy.discrete,
            reward=self.academy.reward,
            jump_steps=self.jump_steps,
            jump_from_m=self.jump_from_m,
            fallen=np.zeros(num_areas, np.bool_),
            in_goal=np.zeros(num_areas, np.bool_),
            world=self.world.kernel_arrays,
        )

    def arrays(self) -> Arrays:
        own = {
            "stack_0": self._stack.frames,
            "stack_1": self._place.frames,
            "configuration": self.configuration,
            "jump_steps": self.jump_steps,
            "jump_from_m": self.jump_from_m,
        }
        return own | super().arrays()

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        super().load_state(state)
        self._any_to_put_up = bool((self.configuration >= 0).any())

    # reset

    def restart(self) -> None:
        world = self.world
        world.boxes[:, AGENT, :3] = 0.0, START_Y_M, START_Z_M
        world.boxes[:, BLOCK, :3] = BLOCK_M
        world.yaw[:] = math.pi, 0.0  # agents start facing away from the wall
        world.boxes[:, AGENT, COS] = -1.0
        world.boxes[:, AGENT, SIN] = 0.0
        world.velocity[:] = 0.0
        self.jump_steps[:] = 0
        self._clear(self._areas)

    def begin_episodes(self, agents: Agents) -> None:
        """Draw places and a wall; the agent keeps its yaw and spin, as in Unity."""
        if not self.streams.episode[agents[0]]:
            self._start(agents)
        world = self.world
        self._next_episode(agents)
        place(
            agents,
            self.streams.arrays(),
            world.boxes,
            world.velocity,
            self.configuration,
        )
        # Whether any wall waits is kept apart, because looking at all areas in every round
        # costs more.
        self._any_to_put_up = True
        self._clear(agents)

    def _start(self, areas: Agents) -> None:
        """The very first setting, before the first episode begins: it always counts as a change."""
        # From the stream of episode 0, which nothing else draws from.
        drawn = self.streams.integers(areas, 1, 0, CONFIGURATIONS)
        self.configuration[areas] = drawn[:, 0]
        self.academy.end(self, areas)
        self._configure(areas)

    def _clear(self, areas: Agents) -> None:
        self._stack.clear(areas)
        self._place.clear(areas)

    def _configure(self, areas: Agents) -> None:
        """Put up the walls that were drawn, and move the agents to their behaviors."""
        academy = self.academy
        kind = WALL_OF[self.configuration[areas]]
        for k, name in enumerate(WALL_HEIGHTS):
            chosen = areas[kind == k]
            if len(chosen):
                height_m = self.parameter_values.read(name, chosen)
                self.world.boxes[chosen, WALL_BOX, HALF_Y] = 0.5 * height_m
        behavior = BEHAVIOR_OF[kind]
        changed = areas[academy.behavior[areas, 0] != behavior]
        if len(changed):
            academy.end(self, changed)
            self._clear(changed)
        academy.behavior[areas, 0] = behavior
        self.configuration[areas] = -1

    # observe

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        place = np.empty((len(agents), VECTOR_SIZE), np.float32)
        observe_place(agents, self.world.kernel_arrays, place)
        return [*self._see(agents), self._place.push(agents, place)]

    def observe_state(self, behavior: str, agents: Agents) -> NDArray[np.float32]:
        """Where agent and block are, how high the agent is, its jump, the wall, and the time."""
        world, areas = self.world, agents
        boxes = world.boxes[areas, : BLOCK + 1]
        velocity = world.velocity[areas, : BLOCK + 1]
        bodies = state_of_bodies(boxes, velocity, STATE_M, STATE_MPS)
        others = np.stack(
            [
                boxes[:, AGENT, Y] / STATE_M,
                velocity[:, AGENT, 1] / STATE_MPS,
                self.jump_steps[areas] > 0,
                world.boxes[areas, WALL_BOX, HALF_Y] / STATE_M,
                self.academy.step_count.reshape(-1)[areas] / MAX_STEP,
            ],
            axis=1,
        )
        return np.concatenate([bodies, others], axis=1, dtype=np.float32)

    # play

    def act(self) -> None:
        """Let every agent execute its stored action; a fall ends the episode before physics."""
        game = self._game
        act(0, self.num_areas, game)
        find_fallen(0, self.num_areas, game)
        self._end(game.fallen, FALL_REWARD)

    def simulate(self, most: int) -> int:
        if self._any_to_put_up:
            most = 1  # walls go up at the end of this round
        return self._play_kernel(play_rounds, most, self._game)

    # reward and end

    def fixed_update(self, rounds: int) -> None:
        self._end(self._game.in_goal, GOAL_REWARD)
        if self._any_to_put_up:
            self._any_to_put_up = False
            self._configure(np.flatnonzero(self.configuration >= 0))

    def _end(self, ended: NDArray[np.bool_], reward: float) -> None:
        """Set the reward of these areas' agents, and begin their next episodes."""
        if np.count_nonzero(ended):
            areas = np.flatnonzero(ended)
            # Not added: WallJumpAgent.cs calls SetReward, which replaces the step's cost.
            self.academy.reward[areas, 0] = reward
            self.academy.end(self, areas)
            self.begin_episodes(areas)
