"""The scene: places, observations, rounds, rewards and ends."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.look import BLUE, WALL_COLOR, WHITE
from touchline.drawing.tableau import (
    Camera,
    DrawnShapes,
    Kind,
    Tableau,
    box_shapes,
    eye_shapes,
    floor_shapes,
    join,
    make_shapes,
)
from touchline.physics.kernels import compiled, makes_arrays
from touchline.physics.shapes import (
    BOX_COLUMNS,
    BOX_TAG,
    COS,
    SIN,
    Floats,
    X,
    Y,
    Z,
    box,
)
from touchline.physics.upright.boxes import BoxWorld
from touchline.physics.world import DT_S, GRAVITY, Arrays
from touchline.scenes.academy import Agents
from touchline.scenes.box_scene import STATE_OF_BODY, state_of_bodies
from touchline.scenes.cube_agents import CubeGame, act_alone
from touchline.scenes.pyramids.agent import (
    AGENT,
    BODIES,
    BRICK_M,
    BUTTON,
    BUTTON_SIZE_M,
    BUTTON_UP_M,
    GOLD_M,
    PLACE_CENTERS_M,
    PLACE_SPREAD_M,
    PYRAMIDS,
    SOLID,
    STONE_BOXES,
    SWITCH,
    SWITCH_COLUMN,
    SWITCH_M,
    SWITCH_ON,
    UPRIGHT,
    VISIBLE,
    Upright,
    step_upright,
)
from touchline.scenes.pyramids.bricks import Bricks, new_bricks, step_bricks
from touchline.scenes.pyramids.collisions import new_room
from touchline.scenes.pyramids.sight import RAYS, SENSORS, add_bricks
from touchline.scenes.scene import ActionNames, Scene
from touchline.sensors.rays import Traces, View
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec


@makes_arrays
def play_rounds(
    first: int,
    last: int,
    most: int,
    game: CubeGame,
    upright: Upright,
    bricks: Bricks,
) -> int:
    """Play rounds from the first one's physics on, until a switch or gold is touched; how many."""
    room = new_room()
    for played in range(1, most + 1):
        if played > 1:
            act_alone(first, last, game)
        step_upright(first, last, upright)
        step_bricks(first, last, upright, bricks, room)
        if _has_happened(first, last, upright, bricks):
            return played
    return most


@compiled
def _has_happened(first: int, last: int, upright: Upright, bricks: Bricks) -> bool:
    for a in range(first, last):
        is_pressed = upright.pressed[a] and not bricks.on[a]
        if is_pressed or bricks.at_gold[a]:
            return True
    return False


MAX_STEP = 5000
STEP_REWARD = -1.0 / MAX_STEP
PUSH_MPS = 2.0  # PyramidAgent.cs: ForceMode.VelocityChange, whatever the mass
TURN_RAD = math.radians(200.0) * DT_S  # PyramidAgent.cs: 200 degrees per second
GOLD_REWARD = 2.0
CAMERA = Camera(eye=(0.0, 97.0, -83.0), target=(0.0, 18.0, -22.0), extent_m=217.5)
STONE_COLOR = (0.55, 0.55, 0.58, 1.0)
BRICK_COLOR = (0.80, 0.45, 0.30, 1.0)
GOLD_COLOR = (0.95, 0.75, 0.20, 1.0)
SWITCH_OFF_COLOR = (0.75, 0.25, 0.20, 1.0)
SWITCH_ON_COLOR = (0.30, 0.75, 0.35, 1.0)
STATIC = join(
    floor_shapes(box((0.0, -0.5, 0.0), (120.0, 1.0, 120.0)), cells=(20, 20)),
    box_shapes(VISIBLE[1:], WALL_COLOR),  # without the collider of the floor
)
STATE_M, STATE_MPS = 25.0, 10.0
"""Units of places and velocities in the state."""


class Pyramids(Scene):
    """Press a switch, find the pyramid of bricks that appears, and topple its golden top.

    | observation | size | meaning |
    | --- | --- | --- |
    | `RayPerceptionSensor` | 56 | 7 level rays over ±70°, 35 m |
    | `RayPerceptionSensor1` | 56 | likewise over ±65°, rising 5 m |
    | `RayPerceptionSensor2` | 56 | likewise over ±75°, rising 10 m |
    | `VectorSensor_size4` | 4 | 1 if the switch is on; velocity to the right, up, ahead, m/s |

    Tags: block, wall, goal, switch off, switch on, stone. The velocity is in the agent's frame.

    Branch 0: 0 nothing, 1 ahead, 2 back (2 m/s per physics step), 3 turn right, 4 turn left (4° per
    step).
    """

    name = "Pyramids"
    action_names = ActionNames(
        branches=[("nothing", "ahead", "back", "turn right", "turn left")]
    )
    unity_areas = 16
    behaviors = {
        "Pyramids?team=0": BehaviorSpec(
            (
                *(
                    ObservationSpec.vector(sensor.size, name)
                    for name, sensor in SENSORS.items()
                ),
                ObservationSpec.vector(4, "VectorSensor_size4"),
            ),
            ActionSpec.create_discrete((5,)),
        )
    }
    max_step = MAX_STEP
    state_size = STATE_OF_BODY + 8

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        placed = [[0.0] * BOX_COLUMNS] * (BUTTON + 1 - BODIES)
        self.world = BoxWorld(num_areas, SOLID, UPRIGHT, placed, GRAVITY, self._threads)
        # The switch turns freely on the floor and ignores walls and stones. Nothing touches the
        # button, which is well inside the switch.
        friction = self.world.friction
        friction[:, SWITCH] = -1.0
        friction[:, SWITCH, 0] = 0.0
        friction[:, :, len(SOLID) + BUTTON] = -1.0
        self.upright = Upright(
            world=self.world.kernel_arrays,
            moving=np.zeros((num_areas, 3)),
            before=np.zeros((num_areas, 3)),
            pressed=np.zeros(num_areas, np.bool_),
        )
        self._game = CubeGame(
            discrete=self.academy.discrete,
            reward=self.academy.reward,
            world=self.world.kernel_arrays,
            step_reward=STEP_REWARD,
            speed_mps=PUSH_MPS,
            turn_rad=TURN_RAD,
            watched=AGENT,
            goals=(SWITCH_COLUMN, SWITCH_COLUMN),
        )
        self.bricks = new_bricks(num_areas)
        boxes = self.world.boxes
        self._view = View(
            bodies=boxes,
            yaw=self.world.yaw[:, : AGENT + 1],
            fixed=VISIBLE,
            boxes=boxes,
            rounds=np.zeros((num_areas, 0, 6)),
        )

    def arrays(self) -> Arrays:
        names = ("boxes", "yaw", "velocity")
        return {
            name: getattr(self.world, name) for name in names
        } | self.bricks.arrays()

    # reset

    def restart(self) -> None:
        self.bricks.restart()

    def begin_episodes(self, agents: Agents) -> None:
        """Shuffle the nine places: for agent, switch, bricks, and six pyramids of stone."""
        areas = agents
        self.streams.next_episode(areas)
        draws = self.streams.uniform(areas, 28)
        # Sorting nine random numbers shuffles nine places, all areas at once.
        order = np.argsort(draws[:, :9], axis=1)
        row, column = np.divmod(order, 3)
        center = np.take(PLACE_CENTERS_M, np.stack([column, row], axis=2))
        aside = draws[:, 9:27].reshape(-1, 9, 2)
        spread = PLACE_SPREAD_M * (2.0 * aside - 1.0)
        place = center + spread  # [K, 9, (x, z)]

        boxes = self.world.boxes
        yaw = self.world.yaw
        boxes[areas, :BODIES] = [body.row for body in UPRIGHT]
        boxes[areas, :BODIES, X] = place[:, :2, 0]
        boxes[areas, :BODIES, Z] = place[:, :2, 1]
        # Whole degrees: Unity's Random.Range of two integers gives integers.
        degrees = np.floor(360.0 * draws[:, 27])
        yaw[areas, AGENT] = np.deg2rad(degrees)
        yaw[areas, SWITCH] = 0.0
        boxes[areas, AGENT, COS] = np.cos(yaw[areas, AGENT])
        boxes[areas, AGENT, SIN] = np.sin(yaw[areas, AGENT])
        boxes[areas, BUTTON] = box((0, 0, 0), BUTTON_SIZE_M)
        self.world.velocity[areas] = 0.0

        stones = np.tile(STONE_BOXES, (len(areas), PYRAMIDS, 1, 1))
        stones[..., [X, Z]] += place[:, 3:, None]
        boxes[areas, BODIES:BUTTON] = stones.reshape(len(areas), -1, 9)
        self.bricks.remove(areas, spot=place[:, 2])

    # observe

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        boxes = self.world.boxes
        on = self.bricks.on
        self._place_buttons()
        view = self._view
        frames = []
        for sensor in SENSORS.values():
            frame = sensor.read(self._threads, agents, view)
            self._threads.run(
                add_bricks,
                len(agents),
                agents,
                view,
                on,
                self.bricks.pose,
                sensor.directions,
                sensor.reach_m,
                sensor.radius_m,
                frame,
            )
            frames.append(frame)

        cos = boxes[agents, AGENT, COS]
        sin = boxes[agents, AGENT, SIN]
        vx, vy, vz = self.world.velocity[agents, AGENT, :3].T
        right = vx * cos - vz * sin
        ahead = vx * sin + vz * cos
        own = np.stack([on[agents], right, vy, ahead], axis=1)
        return [*frames, own.astype(np.float32)]

    def observe_state(self, behavior: str, agents: Agents) -> NDArray[np.float32]:
        """Where the agent is, whether the switch is on, the ways to go from here, and the time."""
        areas, world, bricks = agents, self.world, self.bricks
        body = world.boxes[areas, AGENT : AGENT + 1]
        velocity = world.velocity[areas, AGENT : AGENT + 1]
        own = state_of_bodies(body, velocity, STATE_M, STATE_MPS)
        on = bricks.on[areas]
        gold = bricks.pose[areas, -1][:, [X, Z]]
        switch = world.boxes[areas, SWITCH][:, [X, Z]]
        goal = np.where(on[:, None], gold, switch)
        away = goal - body[:, 0, [X, Z]]
        between = bricks.spot[areas] - switch
        share = self.academy.step_count.reshape(-1)[areas, None] / MAX_STEP
        others: list[NDArray[Any]] = [on[:, None]]
        for way in (away, between):
            far = np.linalg.norm(way, axis=1, keepdims=True)
            others += [way / STATE_M, far / STATE_M]
        others.append(share)
        return np.concatenate([own, *others], axis=1, dtype=np.float32)

    def _place_buttons(self) -> None:
        """Put the buttons into their switches."""
        # An agent that leans on its switch overlaps it and sees through it; what it sees instead is
        # the button.
        boxes = self.world.boxes
        boxes[:, BUTTON, [X, Y, Z]] = boxes[:, SWITCH, [X, Y, Z]]
        boxes[:, BUTTON, Y] += BUTTON_UP_M - SWITCH_M / 2
        boxes[:, BUTTON, [COS, SIN]] = boxes[:, SWITCH, [COS, SIN]]

    def rays(self, area: int, agent: int) -> Traces:
        *frames, _ = self.observe(self.name, self._areas[[area]])
        frame = np.concatenate([of_sensor[0] for of_sensor in frames])
        return RAYS.traces(self._view, area, AGENT, frame)

    # play

    def act(self) -> None:
        act_alone(0, self.num_areas, self._game)

    def simulate(self, most: int) -> int:
        return self._play_kernel(
            play_rounds, most, self._game, self.upright, self.bricks
        )

    def fixed_update(self, rounds: int) -> None:
        newly_pressed = self.upright.pressed & ~self.bricks.on
        if np.count_nonzero(newly_pressed):
            areas = np.flatnonzero(newly_pressed)
            self.world.boxes[areas, SWITCH, BOX_TAG] = SWITCH_ON
            self.bricks.place(areas)
        at_gold = self.bricks.at_gold
        if np.count_nonzero(at_gold):
            areas = np.flatnonzero(at_gold)
            # Set, not added: PyramidAgent.cs calls SetReward, which replaces the step's cost.
            self.academy.reward[areas] = GOLD_REWARD
            self.academy.end(self, areas)
            self.begin_episodes(areas)

    def tableau(self, area: int) -> Tableau:
        boxes = self.world.boxes[area]
        agent = boxes[[AGENT]]
        is_on = bool(self.bricks.on[area])
        switch_color = SWITCH_ON_COLOR if is_on else SWITCH_OFF_COLOR
        return Tableau(
            static=STATIC,
            moving=join(
                box_shapes(agent, BLUE),
                eye_shapes(agent, self.world.yaw[area, [AGENT]], WHITE),
                box_shapes(boxes[[SWITCH]], switch_color),
                box_shapes(boxes[BODIES:BUTTON], STONE_COLOR),
                _brick_shapes(self.bricks.pose[area], is_on),
            ),
            camera=CAMERA,
        )


def _brick_shapes(bricks: Floats, shown: bool) -> DrawnShapes:
    """Bricks [NUM_BRICKS, 7], which appear when the switch is pressed; gold is the last."""
    position = bricks[:, :3]
    rotation = bricks[:, 3:]
    red = make_shapes(Kind.BOX, BRICK_M / 2, position[:-1], BRICK_COLOR, rotation[:-1])
    gold = make_shapes(Kind.BOX, GOLD_M / 2, position[-1:], GOLD_COLOR, rotation[-1:])
    pyramid = join(red, gold)
    return replace(pyramid, shown=np.full(len(pyramid), shown))
