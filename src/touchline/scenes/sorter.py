"""Sorter: touch the numbered tiles around a round arena in ascending order.

Source: ML-Agents 3.0.0 (Release 22), `Area.prefab`, `SorterAgent.cs`, `NumberTile.cs`,
`ArenaWalls.fbx`.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.look import BLUE, GREEN, WALL_COLOR
from touchline.drawing.tableau import Camera, box_shapes, floor_shapes, join, lowered
from touchline.parameters import Parameter
from touchline.physics.kernels import compiled
from touchline.physics.shapes import (
    ABSENT,
    BOX_TAG,
    COS,
    HALF_X,
    SIN,
    Floats,
    X,
    Z,
    box,
    boxes,
)
from touchline.physics.upright.boxes import Body, Boxes, step_areas
from touchline.physics.upright.contacts import TOUCH_M
from touchline.physics.world import DT_S, Arrays
from touchline.scenes.academy import Agents
from touchline.scenes.box_scene import BoxScene, gravity_times
from touchline.scenes.cube_agents import turn_to
from touchline.scenes.scene import ActionNames
from touchline.sensors.stacking import Stack, stacked_spec
from touchline.specs import ActionSpec, BehaviorSpec, DimensionProperty, ObservationSpec

BEHAVIOR = "Sorter?team=0"
MAX_STEP = 5000
RUN_SPEED_MPS = 2.0
TURN_RAD = math.radians(200.0) * DT_S
TILE_REWARD, WRONG_REWARD = 1.0, -1.0
STEP_REWARD = -1.0 / MAX_STEP

AGENT_KG, AGENT_DRAG = 10.0, 4.0
START_Y_M = 1.0

TILES = 20
"""Values 1 to 20, and as many bearings, 18 degrees apart."""
BEARINGS_RAD = np.radians(np.arange(TILES) * 360.0 / TILES)
TILE_SIZE_M = (3.5, 4.2825, 1.5204)
TILE_RADIUS_M, TILE_Y_M = 20.5, 1.84

FLOOR_TOP_M = -0.2085
WALLS = 48
WALL_FACE_M = 19.943
"""Distance from the middle to the flat inner faces; their corners are at 19.986 m."""
WALL_WIDTH_M = 3 * 2 * 19.986 * math.sin(math.pi / WALLS)
"""Three times a face's. What is too wide lies outside of the arena, behind the next faces: so an
agent that is inside one wall by a step's motion never meets the end of another."""
WALL_DEPTH_M, WALL_Y_M, WALL_HEIGHT_M = 1.187, 1.5, 4.36


def _wall(k: int) -> list[float]:
    bearing = 2.0 * math.pi * (k + 0.5) / WALLS
    radius = WALL_FACE_M + 0.5 * WALL_DEPTH_M
    center = (radius * math.sin(bearing), WALL_Y_M, radius * math.cos(bearing))
    size = (WALL_WIDTH_M, WALL_HEIGHT_M, WALL_DEPTH_M)
    return box(center, size, yaw_deg=math.degrees(bearing))


FIXED = boxes(
    box((0.0, FLOOR_TOP_M - 0.5, 0.0), (42.0, 1.0, 42.0)),
    *(_wall(k) for k in range(WALLS)),
)
DRAWN = lowered(FIXED[1:], 1.0)
"""For pictures: every wall as wide as its face."""
DRAWN[:, HALF_X] /= 3
AGENT, FIRST_TILE = 0, 1
"""Rows of the boxes: the agent, then the tiles from the lowest value to the highest."""

SCALE_M = 20.0
"""Places in observations are in units of this."""
BUFFER_COLUMNS = 1 + TILES + 2
DX, DZ, VISITED = 20, 21, 22
"""Columns of the buffer after the one-hot. Value 20's one-hot falls on `DX` and is overwritten, as
in Unity."""
FRAMES = 2
LIGHTEST = np.array([1.0, 0.85, 0.35])
DARKENING = np.array([0.4, 0.65, 0.33])
"""Darkening of red, green and blue of tiles, from the lowest value to the highest."""


class Sorter(BoxScene):
    """Touch the numbered tiles around a round arena in ascending order.

    | observation | shape | meaning |
    | --- | --- | --- |
    | `BufferSensor` | (20, 23) | a row per tile, ascending; the others are zeros |
    | `RBSensor` | (10,) | a pose that never changes, then velocity in the agent's frame |
    | `…VectorSensor_size4` | (8,) | x, z of its place / 20, x, z of its facing; two frames |

    A row of the buffer: 1 at the index of the tile's value (1 to 19), 20 and 21 the tile's place
    from the agent / 20 along the arena's x and z, 22 whether it was visited. The pose is (0, 0, 0 ·
    0, 0, 0, 1).

    Actions, three branches of three: 0 nothing, 1 ahead, 2 back · 1 right, 2 left, which wins over
    the first branch · 1 turn left, 2 turn right by 4° per step. Every fifth step, repeated in
    between.

    Reward: -1/5000 per step; +1 for the lowest tile that was not visited yet, and the episode ends
    with the last of them; -1 for another one, which ends it too. 5000 steps interrupt it.
    """

    name = "Sorter"
    action_names = ActionNames(
        branches=[
            ("nothing", "ahead", "back"),
            ("nothing", "right", "left"),
            ("nothing", "turn left", "turn right"),
        ]
    )
    unity_areas = 8
    behaviors = {
        BEHAVIOR: BehaviorSpec(
            (
                ObservationSpec(
                    (TILES, BUFFER_COLUMNS),
                    (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE),
                    name="BufferSensor",
                ),
                ObservationSpec.vector(10, "RBSensor"),
                stacked_spec("VectorSensor_size4", 4, FRAMES),
            ),
            ActionSpec.create_discrete([3, 3, 3]),
        )
    }
    max_step = MAX_STEP
    parameters = {
        "num_tiles": Parameter(
            TILES,
            1.0,
            TILES,
            "the most tiles of an episode, which has a random number of them",
        ),
        "gravity": gravity_times(2.5),
    }
    fixed = FIXED
    bodies = [Body(box((0.0, START_Y_M, 0.0), (1.0, 1.0, 1.0)), AGENT_KG, AGENT_DRAG)]
    placed = [box((0.0, TILE_Y_M, 0.0), TILE_SIZE_M, ABSENT)] * TILES
    static = join(floor_shapes(FIXED[0], cells=(20, 20)), box_shapes(DRAWN, WALL_COLOR))
    camera = Camera(eye=(0.0, 36.0, -31.0), target=(0.0, 0.0, -2.2), extent_m=32.0)

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        self.value = np.zeros((num_areas, TILES), np.int64)
        """[A, tiles] ascending; 0 for tiles that an episode does not have."""
        self.visited = np.zeros(num_areas, np.int64)
        """[A] how many tiles were visited: always the lowest."""
        self._own = Stack(num_areas, FRAMES, 4)
        self._game = SorterGame(
            discrete=self.academy.discrete,
            reward=self.academy.reward,
            world=self.world.kernel_arrays,
            value=self.value,
            visited=self.visited,
            ended=np.zeros(num_areas, np.int8),
        )
        self.restart()

    def arrays(self) -> Arrays:
        own: Arrays = {
            "value": self.value,
            "visited": self.visited,
            "stack": self._own.frames,
        }
        return own | super().arrays()

    # reset

    def restart(self) -> None:
        self.world.yaw[:, AGENT] = math.pi

    def begin_episodes(self, agents: Agents) -> None:
        """Draw the tiles and their bearings, and put the agent in the middle, as it faces."""
        areas = agents
        world = self.world
        self._next_episode(areas)
        most = self.parameter_values.read("num_tiles", areas).astype(np.int64)
        # One number for how many tiles there are, one per value, one per bearing.
        draws = self.streams.uniform(areas, 1 + 2 * TILES)
        count = 1 + (draws[:, 0] * most).astype(np.int64)  # [K]
        is_there = np.arange(TILES) < count[:, None]

        # The first `count` values of a random order, sorted; those that are not there come last.
        of_values = draws[:, 1 : 1 + TILES]
        drawn = 1 + np.argsort(of_values, axis=1)
        value = np.sort(np.where(is_there, drawn, TILES + 1), axis=1)
        self.value[areas] = np.where(is_there, value, 0)
        self.visited[areas] = 0

        of_bearings = draws[:, 1 + TILES :]
        order = np.argsort(of_bearings, axis=1)
        bearing = BEARINGS_RAD[order]
        cos = np.cos(bearing)
        sin = np.sin(bearing)
        tiles = world.boxes[areas, FIRST_TILE:]  # [K, tiles, 9], a copy
        tiles[..., X] = TILE_RADIUS_M * sin
        tiles[..., Z] = TILE_RADIUS_M * cos
        tiles[..., COS] = cos
        tiles[..., SIN] = sin
        tiles[..., BOX_TAG] = np.where(is_there, 0.0, ABSENT)
        world.boxes[areas, FIRST_TILE:] = tiles

        yaw = world.yaw[areas, AGENT]
        world.boxes[areas, AGENT, X : Z + 1] = 0.0, START_Y_M, 0.0
        world.boxes[areas, AGENT, COS] = np.cos(yaw)
        world.boxes[areas, AGENT, SIN] = np.sin(yaw)
        world.velocity[areas] = 0.0
        # Unity clears a stacked sensor with its episode: the first frame follows zeros.
        self._own.clear(areas)

    # observe

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        count = len(agents)
        tiles = np.zeros((count, TILES, BUFFER_COLUMNS), np.float32)
        body = np.zeros((count, 10), np.float32)
        own = np.empty((count, 4), np.float32)
        _observe(agents, self._game, tiles, body, own)
        return [tiles, body, self._own.push(agents, own)]

    # play

    def act(self) -> None:
        _act(0, self.num_areas, self._game)

    def simulate(self, most: int) -> int:
        return self._play_kernel(_play_rounds, most, self._game)

    def fixed_update(self, rounds: int) -> None:
        ended = np.flatnonzero(self._game.ended)
        if len(ended):
            self.academy.end(self, ended)
            self.begin_episodes(ended)

    def colors_of(self, area: int) -> Floats:
        """Tiles are from light to dark orange by value, and green once they were visited."""
        shades = np.linspace(0.0, 1.0, TILES + 1)
        shade = shades[self.value[area]][:, None]
        colors = np.ones((1 + TILES, 4))
        colors[AGENT] = BLUE
        colors[FIRST_TILE:, :3] = LIGHTEST - shade * DARKENING
        colors[FIRST_TILE : FIRST_TILE + self.visited[area]] = GREEN
        return colors


class SorterGame(NamedTuple):
    """What the rounds of A areas read and write, for kernels."""

    discrete: NDArray[np.int32]
    """[A, 1, 3] stored actions."""
    reward: NDArray[np.float32]
    world: Boxes
    value: NDArray[np.int64]
    visited: NDArray[np.int64]
    ended: NDArray[np.int8]
    """[A] whether the last round ended the episode."""


@compiled
def _act(first: int, last: int, game: SorterGame) -> None:
    """Let every agent get its reward for the step and execute its action."""
    world = game.world
    for area in range(first, last):
        game.reward[area, 0] += np.float32(STEP_REWARD)
        ahead = game.discrete[area, 0, 0]
        side = game.discrete[area, 0, 1]
        turn = game.discrete[area, 0, 2]
        cos = world.boxes[area, AGENT, COS]
        sin = world.boxes[area, AGENT, SIN]
        velocity = world.velocity[area, AGENT]
        if side != 0:
            push = RUN_SPEED_MPS if side == 1 else -RUN_SPEED_MPS
            velocity[0] += push * cos
            velocity[2] -= push * sin
        elif ahead != 0:
            push = RUN_SPEED_MPS if ahead == 1 else -RUN_SPEED_MPS
            velocity[0] += push * sin
            velocity[2] += push * cos
        if turn != 0:
            yaw = world.yaw[area]
            angle = yaw[AGENT] + (-TURN_RAD if turn == 1 else TURN_RAD)
            turn_to(angle, AGENT, world.boxes[area], yaw)


@compiled
def _play_rounds(first: int, last: int, most: int, game: SorterGame) -> int:
    """Play rounds from the first one's physics on, until an episode ends; how many."""
    for played in range(1, most + 1):
        if played > 1:
            _act(first, last, game)
        step_areas(first, last, game.world)
        if _touch_tiles(first, last, game):
            return played
    return most


@compiled
def _touch_tiles(first: int, last: int, game: SorterGame) -> bool:
    """Reward what every agent touches; whether that ended an episode."""
    any_ended = False
    skipped = len(game.world.fixed) + FIRST_TILE
    for area in range(first, last):
        game.ended[area] = 0
        for tile in range(game.visited[area], TILES):
            if game.world.gaps[area, AGENT, skipped + tile] >= TOUCH_M:
                continue
            if tile == game.visited[area]:
                game.reward[area, 0] += np.float32(TILE_REWARD)
                game.visited[area] += 1
                was_last = tile + 1 == TILES or game.value[area, tile + 1] == 0
                game.ended[area] = was_last
            else:
                game.reward[area, 0] += np.float32(WRONG_REWARD)
                game.ended[area] = 1
            any_ended = any_ended or game.ended[area] != 0
            break  # tiles are 2.8 m apart: an agent touches one at a time
    return any_ended


@compiled
def _observe(
    agents: Agents,
    game: SorterGame,
    tiles: NDArray[np.float32],
    body: NDArray[np.float32],
    own: NDArray[np.float32],
) -> None:
    """Fill tiles [K, 20, 23] (zeros before), body [K, 10] (zeros before) and own [K, 4]."""
    for k in range(len(agents)):
        area = agents[k]
        boxes = game.world.boxes[area]
        x = boxes[AGENT, X]
        z = boxes[AGENT, Z]
        cos = boxes[AGENT, COS]
        sin = boxes[AGENT, SIN]
        for tile in range(TILES):
            value = game.value[area, tile]
            # Tiles that are there come first.
            if value == 0:
                break
            row = tiles[k, tile]
            row[value] = 1.0
            row[DX] = (boxes[FIRST_TILE + tile, X] - x) / SCALE_M
            row[DZ] = (boxes[FIRST_TILE + tile, Z] - z) / SCALE_M
            row[VISITED] = 1.0 if tile < game.visited[area] else 0.0
        velocity = game.world.velocity[area, AGENT]
        body[k, 6] = 1.0  # w of a quaternion that never turns
        body[k, 7] = velocity[0] * cos - velocity[2] * sin
        body[k, 8] = velocity[1]
        body[k, 9] = velocity[0] * sin + velocity[2] * cos
        own[k, 0] = x / SCALE_M
        own[k, 1] = z / SCALE_M
        own[k, 2] = sin
        own[k, 3] = cos
