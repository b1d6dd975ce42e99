"""CooperativePushBlock: three agents push six blocks onto the goal strip, the heavy ones together.

Unity turns the area by a multiple of 90° at each reset. No observation depends on that, so here the
area stays and everything is in its frame: the goal lies at -z.

Source: ML-Agents 3.0.0, `PushBlockCollabAreaGrid.prefab`, `PushBlockAgentGridCollab.prefab`,
`PushAgentCollab.cs`, `PushBlockEnvController.cs`, `GoalDetectTrigger.cs`.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.look import BLUE, GREEN, ORANGE, PURPLE, WALL_COLOR, YELLOW
from touchline.drawing.tableau import Camera, box_shapes, floor_shapes, join, lowered
from touchline.parameters import Parameter
from touchline.physics.kernels import compiled, makes_arrays
from touchline.physics.shapes import (
    ABSENT,
    BOX_TAG,
    COS,
    SIN,
    Floats,
    X,
    Y,
    Z,
    box,
    boxes,
    rounds,
)
from touchline.physics.upright.boxes import Body, Boxes, box_gap, step_areas
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
    RIGID_BODY,
    is_free,
    move_cube,
    new_slab,
    observe_rigid_bodies,
    put_at,
    throw,
    turn_to,
)
from touchline.scenes.random import StreamArrays
from touchline.sensors.grids import Cells, GridSensor, GridView, bounds_of
from touchline.specs import ActionSpec, BehaviorSpec

AGENTS, BLOCKS = 3, 6
AGENT_KG, AGENT_DRAG = 10.0, 4.0
BLOCK_DRAG, BLOCK_HEIGHT_M = 0.5, 0.75

TAGS = ["wall", "agent", "goal", "blockSmall", "blockLarge", "blockVeryLarge"]
WALL, AGENT_TAG, GOAL_TAG, SMALL, LARGE, VERY_LARGE = range(6)
EDGE_M = {SMALL: 1.0, LARGE: 2.0, VERY_LARGE: 3.0}
MASS_KG = {SMALL: 10.0, LARGE: 100.0, VERY_LARGE: 150.0}
VALUE = {SMALL: 1.0, LARGE: 2.0, VERY_LARGE: 3.0}
"""What the group earns for a block in the goal."""
BLOCK_COLORS = {SMALL: YELLOW, LARGE: ORANGE, VERY_LARGE: PURPLE}
BLOCK_TAGS = (LARGE, VERY_LARGE, VERY_LARGE, SMALL, SMALL, LARGE)
"""The six blocks in the prefab's order, in which they are placed; they follow the agents."""
BLOCK_TAG = np.array(BLOCK_TAGS, np.float64)
BLOCK_VALUE = np.array([VALUE[tag] for tag in BLOCK_TAGS], np.float32)

FLOOR, GOAL = 0, 1
FIXED = boxes(
    box((0.0, -0.5, 0.0), (25.0, 1.0, 25.0)),
    box((0.0, 0.97, -10.5), (25.0, 3.0, 4.2995), GOAL_TAG),
    box((12.75, 2.0, 0.0), (0.5, 5.0, 26.0), WALL),
    box((-12.75, 2.0, 0.0), (0.5, 5.0, 26.0), WALL),
    box((0.0, 2.0, 12.75), (26.0, 5.0, 0.5), WALL),
    box((0.0, 2.0, -12.75), (26.0, 5.0, 0.5), WALL),
)
_NOWHERE = (0.0, NOWHERE_M, 0.0)

CLEAR_M = (1.5, 0.01, 1.5)
"""Half extents of the flat box around a new place that must be free."""


BEHAVIOR = "PushBlockCollab?team=0"
MAX_AREA_STEPS = 5000
"""The area's own time limit (MaxEnvironmentSteps); agents have none."""
STEP_REWARD = np.float32(-0.5 / MAX_AREA_STEPS)
STATE_M, STATE_MPS = 7.0, 3.0
"""Units of what a critic sees."""
RUN_SPEED_MPS = 3.0
TURN_RAD = math.radians(200.0) * DT_S

SENSOR = GridSensor(TAGS, TAGS, cells=(20, 20), cell_m=(1.0, 0.5, 1.0))
AHEAD_M = 10.0
"""The grid's middle is a child object so far ahead of the agent."""


class Yards(NamedTuple):
    """What the rounds of A areas read and write, for kernels."""

    discrete: NDArray[np.int32]
    """[A, AGENTS, 1] stored actions."""
    group_reward: NDArray[np.float32]
    """[A, AGENTS]"""
    in_goal: NDArray[np.bool_]
    """[A, BLOCKS] whether a block was in the goal before the last step."""
    progress_reward: Floats
    """[A] for each meter of a block towards the goal, times its value."""
    z_before_m: Floats
    """[A, BLOCKS] where a block was before the last step."""
    world: Boxes


def _blocks() -> list[Body]:
    """The blocks, which turn when they are pushed off center."""
    bodies = []
    for tag in BLOCK_TAGS:
        size = (EDGE_M[tag], BLOCK_HEIGHT_M, EDGE_M[tag])
        row = box(_NOWHERE, size, tag)
        bodies.append(Body(row, MASS_KG[tag], BLOCK_DRAG, turns=True))
    return bodies


class CooperativePushBlock(BoxScene):
    """Push six blocks onto the goal strip, the heavy ones together.

    | observation | shape | meaning |
    | --- | --- | --- |
    | `GridSensor-OneHot` | (6, 20, 20) | cells of 1 m, the middle 10 m ahead of the agent |
    | `RBSensor` | 10 | velocity in the agent's frame (x, y, z), then a pose that never changes |

    The grid turns with its agent, which does not see itself. Its channels are one-hot: wall, agent,
    goal, small, large and very large block. Row 0 is far right, column 19 far ahead. The pose is
    (0, 0, 0 · 0, 0, 0, 1).

    Actions, one branch of seven: see `cube_agents`. Every fifth step, repeated in between.

    Group rewards: -0.5/5000 per step; 1, 2 or 3 for a small, large or very large block that enters
    the goal, where it vanishes. The last block ends the episode; 5000 steps interrupt it.
    """

    name = "CooperativePushBlock"
    action_names = NAMES
    unity_areas = 4
    behaviors = {
        BEHAVIOR: BehaviorSpec(
            (SENSOR.spec("GridSensor"), RIGID_BODY),
            ActionSpec.create_discrete([CHOICES]),
        )
    }
    agents_per_area = AGENTS
    state_size = STATE_OF_BODY * (1 + BLOCKS) + BLOCKS + 1
    parameters = {
        "gravity": gravity_times(1.5),
        "block_progress": Parameter(
            0.0,
            -1000.0,
            1000.0,
            "paid to the group for each meter that a block moves towards the goal, times the "
            "block's value; not in Unity",
        ),
    }
    fixed = FIXED
    bodies = [
        *[Body(box(_NOWHERE, (1.0, 1.0, 1.0), AGENT_TAG), AGENT_KG, AGENT_DRAG)]
        * AGENTS,
        *_blocks(),
    ]
    static = join(
        floor_shapes(FIXED[0]),
        # The goal's box is higher than the agents, which would vanish in it.
        box_shapes(lowered(FIXED[1:2], 0.04), GREEN),
        box_shapes(lowered(FIXED[2:], 1.0), WALL_COLOR),
    )
    camera = Camera(eye=(0.0, 25.0, -22.0), target=(0.0, 0.0, -1.2))
    colors = [*[BLUE] * AGENTS, *(BLOCK_COLORS[tag] for tag in BLOCK_TAGS)]

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        self.world.friction[:, :, GOAL] = -1.0  # a trigger: nothing touches it
        self.timer = np.zeros(num_areas, np.int64)
        """[A] steps of the running episode."""
        self.progress_reward = np.zeros(num_areas)
        self._yards = Yards(
            discrete=self.academy.discrete,
            group_reward=self.academy.group_reward,
            in_goal=np.zeros((num_areas, BLOCKS), np.bool_),
            progress_reward=self.progress_reward,
            z_before_m=np.zeros((num_areas, BLOCKS)),
            world=self.world.kernel_arrays,
        )
        self._eyes = np.ones((num_areas, AGENTS, 5))  # x, y, z, yaw, size
        self._grid = GridView(
            areas=np.repeat(self._areas, AGENTS),
            eyes=self._eyes.reshape(-1, 5),
            own_box=np.tile(np.arange(AGENTS), num_areas),
            fixed=FIXED,
            fixed_bounds=np.array([bounds_of(list(shape)) for shape in FIXED]),
            boxes=self.world.boxes,
            rounds=np.tile(rounds(), (num_areas, 1, 1)),
        )
        self.restart()

    def arrays(self) -> Arrays:
        own = {"timer": self.timer, "progress_reward": self.progress_reward}
        return own | super().arrays()

    def parameter_arrays(self) -> dict[str, Floats]:
        return super().parameter_arrays() | {"block_progress": self.progress_reward}

    # reset

    def restart(self) -> None:
        # From 1, because 0 stands for no group.
        self.academy.group_id[:] = 1 + self._areas[:, None]
        self.world.boxes[:, :, Y] = NOWHERE_M
        self.world.velocity[:] = 0.0

    def begin_episodes(self, agents: Agents) -> None:
        """Restart these agents' areas, which Unity's reset does not touch."""
        areas = np.unique(agents // AGENTS)
        self._reset(areas)
        # The controllers' first update comes before the first decision.
        self.timer[areas] = 1
        self.academy.group_reward[areas] += STEP_REWARD

    def _reset(self, areas: NDArray[np.intp]) -> None:
        """Give agents and blocks new places and all blocks back."""
        self._next_episode(areas)
        progress_reward = self.parameter_values.read("block_progress", areas)
        self.progress_reward[areas] = progress_reward
        _place(areas, self.streams.arrays(), self.world.kernel_arrays)
        self.timer[areas] = 0

    # observe

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        world = self.world
        _look_ahead(world.boxes, world.yaw, self._eyes)
        grids = SENSOR.read(self._threads, agents, self._grid)
        area = agents // AGENTS
        member = agents % AGENTS
        velocity = world.velocity[area, member]
        bodies = observe_rigid_bodies(velocity, world.boxes[area, member])
        return [grids, bodies]

    def observe_state(self, behavior: str, agents: Agents) -> NDArray[np.float32]:
        """Where the agent is, where the blocks are and which of them are left, and the time."""
        world, areas = self.world, agents // AGENTS
        blocks = np.tile(np.arange(AGENTS, AGENTS + BLOCKS), (len(agents), 1))
        shown = np.column_stack([agents % AGENTS, blocks])
        shapes = world.boxes[areas[:, None], shown]
        velocity = world.velocity[areas[:, None], shown]
        bodies = state_of_bodies(shapes, velocity, STATE_M, STATE_MPS)
        # Blocks that vanished show zeros.
        is_there = shapes[:, :, BOX_TAG] != ABSENT
        bodies *= np.repeat(is_there, STATE_OF_BODY, axis=1)
        share = self.timer[areas, None] / MAX_AREA_STEPS
        others = [is_there[:, 1:], share]
        return np.concatenate([bodies, *others], axis=1, dtype=np.float32)

    def cells(self, area: int, agent: int) -> Cells:
        _look_ahead(self.world.boxes, self.world.yaw, self._eyes)
        return SENSOR.cells(self._threads, area * AGENTS + agent, self._grid)

    # play

    def simulate(self, most: int) -> int:
        # No area may run out of time before the last round of a call.
        most = min(most, MAX_AREA_STEPS - int(self.timer.max()))
        return self._play_kernel(_play_rounds, max(most, 1), self._yards)

    # reward and end

    def fixed_update(self, rounds: int) -> None:
        self.timer += rounds - 1
        if np.count_nonzero(self._yards.in_goal):
            self._score()
        # The last of these rounds, which counts for areas that have just begun again, too.
        self.timer += 1
        if self.timer.max() >= MAX_AREA_STEPS:
            self._end(np.flatnonzero(self.timer >= MAX_AREA_STEPS), interrupted=True)
        # So a step that interrupts an episode is charged to the next one.
        self.academy.group_reward += STEP_REWARD

    def _score(self) -> None:
        """Pay for the blocks in the goal and remove them; an area without any is done."""
        areas, blocks = np.nonzero(self._yards.in_goal)
        reward = self._yards.in_goal @ BLOCK_VALUE
        self.academy.group_reward += reward[:, None]
        tags = self.world.boxes[:, AGENTS:, BOX_TAG]
        tags[areas, blocks] = ABSENT
        done = np.flatnonzero((tags == ABSENT).all(axis=1))
        if len(done):
            self._end(done)

    def _end(self, areas: NDArray[np.intp], *, interrupted: bool = False) -> None:
        self.academy.end(self, self._agents_of(areas), interrupted=interrupted)
        self._reset(areas)


@makes_arrays
def _place(areas: NDArray[np.intp], streams: StreamArrays, world: Boxes) -> None:
    """Put agents, then blocks, where a flat box is free, turned at random, at rest 1 m up."""
    # An agent's old place is in the way, because it reaches up to that flat box; a block on the
    # floor does not. The flat box is the same for all, so a very large block may overlap a
    # neighbor; the contact rule parts them without a jolt. No new place reaches walls or goal.
    slab = new_slab(CLEAR_M)
    for area in areas:
        shapes = world.boxes[area]
        world.velocity[area] = 0.0
        for i in range(AGENTS + BLOCKS):
            if i >= AGENTS:  # it may have vanished in the goal
                shapes[i, BOX_TAG] = BLOCK_TAG[i - AGENTS]
            turn = throw(slab, streams, area)
            while not is_free(slab, shapes):
                turn = throw(slab, streams, area)
            put_at(slab, shapes[i])
            turn_to(turn, i, shapes, world.yaw[area])


@compiled
def _play_rounds(first: int, last: int, most: int, yards: Yards) -> int:
    """Play rounds until a block was in the goal; how many."""
    for played in range(1, most + 1):
        any_in_goal = False
        for area in range(first, last):
            if played > 1:
                # The controllers' update that comes between two rounds.
                for i in range(AGENTS):
                    yards.group_reward[area, i] += STEP_REWARD
            _act(area, yards)
            any_in_goal |= _find_in_goal(area, yards)
        step_areas(first, last, yards.world)
        for area in range(first, last):
            _pay_progress(area, yards)
        if any_in_goal:
            return played
    return most


@compiled
def _act(area: int, yards: Yards) -> None:
    """Let every agent execute its action."""
    world = yards.world
    for i in range(AGENTS):
        move_cube(
            yards.discrete[area, i, 0],
            i,
            RUN_SPEED_MPS,
            TURN_RAD,
            world.boxes[area],
            world.yaw[area],
            world.velocity[area],
        )


@compiled
def _find_in_goal(area: int, yards: Yards) -> bool:
    """Mark the blocks in the goal's trigger, which acts on the places before a step; note these."""
    goal = yards.world.fixed[GOAL]
    any_in_goal = False
    for k in range(BLOCKS):
        block = yards.world.boxes[area, AGENTS + k]
        yards.z_before_m[area, k] = block[Z]
        # `box_gap` gives the gap first, then where it is.
        is_in = block[BOX_TAG] != ABSENT and box_gap(block, goal)[0] < 0.0
        yards.in_goal[area, k] = is_in
        any_in_goal |= is_in
    return any_in_goal


@compiled
def _pay_progress(area: int, yards: Yards) -> None:
    """Pay the group for the way of all blocks that are there; the goal is at low z."""
    # Every round by itself: several threads play one at a time, and sums have to be the same.
    if yards.progress_reward[area] == 0.0:
        return
    moved_m = 0.0  # times the blocks' values
    for k in range(BLOCKS):
        block = yards.world.boxes[area, AGENTS + k]
        if block[BOX_TAG] != ABSENT:
            moved_m += BLOCK_VALUE[k] * (yards.z_before_m[area, k] - block[Z])
    for i in range(AGENTS):
        yards.group_reward[area, i] += yards.progress_reward[area] * moved_m


@compiled
def _look_ahead(shapes: Floats, yaw: Floats, eyes: Floats) -> None:
    """Put the middle of each agent's grid where it is now."""
    for area in range(len(shapes)):
        for i in range(AGENTS):
            agent = shapes[area, i]
            eye = eyes[area, i]
            eye[0] = agent[X] + AHEAD_M * agent[SIN]
            eye[1] = agent[Y]
            eye[2] = agent[Z] + AHEAD_M * agent[COS]
            eye[3] = yaw[area, i]
