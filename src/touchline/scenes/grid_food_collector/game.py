"""The scene: starts, observations, rounds and time limits."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.look import BLUE, GREEN, RED, WALL_COLOR, WHITE
from touchline.drawing.tableau import (
    Camera,
    DrawnShapes,
    Tableau,
    box_shapes,
    eye_shapes,
    floor_shapes,
    join,
    round_shapes,
)
from touchline.parameters import Parameter
from touchline.physics.shapes import (
    BOX_COLUMNS,
    BOX_TAG,
    COS,
    HALF_X,
    HALF_Y,
    HALF_Z,
    RADIUS,
    ROUND_COLUMNS,
    ROUND_TAG,
    SIN,
    Floats,
    X,
    Y,
    Z,
    boxes,
)
from touchline.physics.world import Arrays
from touchline.scenes.academy import Agents
from touchline.scenes.box_scene import STATE_OF_BODY, state_of_bodies
from touchline.scenes.grid_food_collector.actions import FROZEN_STEPS, act
from touchline.scenes.grid_food_collector.court import (
    AGENT_START_Y,
    AGENTS,
    BAD,
    BEAM_M,
    FLOOR,
    FOOD,
    FOOD_RADIUS_M,
    FOOD_START_Y,
    GOOD,
    START_SPREAD_M,
    TAG_AGENT,
    TAG_BAD,
    TAG_FOOD,
    TAG_FROZEN,
    TAGS,
    WALLS,
    Courts,
    inverse_masses,
)
from touchline.scenes.grid_food_collector.physics import play_rounds
from touchline.scenes.scene import ActionNames, Scene
from touchline.sensors.grids import Cells, GridSensor, GridView, bounds_of
from touchline.specs import ActionSpec, BehaviorSpec

_STATE = ("agent", "yaw", "food", "velocity", "push", "frozen", "shooting")
"""The arrays of `Courts` that change from one step to the next."""
MAX_STEP = 5000
STATE_M, STATE_MPS = 25.0, 10.0
NEAREST = 8
"""How many good items, and how many bad ones, the state shows."""
SENSOR = GridSensor(TAGS, TAGS, cells=(40, 40), cell_m=(1.0, 0.01, 1.0))
CAMERA = Camera(eye=(0.0, 100.0, -88.0), target=(0.0, 0.0, -6.0), extent_m=75.0)


def size_of_state(agents: int) -> int:
    """Numbers of the state, with this many agents on a court."""
    return STATE_OF_BODY + 2 + 3 * (agents - 1) + 2 * 2 * NEAREST


class GridFoodCollector(Scene):
    """Gather good food, avoid bad food, and freeze other agents.

    | observation | shape | meaning |
    | --- | --- | --- |
    | `GridSensor-OneHot` | (5, 40, 40) | cells of 1 m that turn with the agent |

    Its channels are one-hot: food, agent, wall, bad food, frozen agent. Row 0 is far right, column
    39 far ahead.

    | action | meaning |
    | --- | --- |
    | continuous 0, 1 | push ahead (+) or back, right (+) or left: 2 m/s per physics step |
    | continuous 2 | turn left (+) or right: 6 degrees per physics step |
    | branch 0 | 1 shoots: 25 m ahead, at half push and with the speed cut to 75 % |
    """

    name = "GridFoodCollector"
    action_names = ActionNames(
        ("ahead / back", "right / left", "turn left / turn right"),
        [("nothing", "shoot")],
    )
    unity_areas = 4
    behaviors = {
        "GridFoodCollector?team=0": BehaviorSpec(
            (SENSOR.spec("GridSensor"),), ActionSpec.create_hybrid(3, (2,))
        )
    }
    agents_per_area = AGENTS
    state_size = size_of_state(AGENTS)
    max_step = MAX_STEP
    parameters = {
        "laser_length": Parameter(
            1.0,
            0.0,
            100.0,
            "length of the drawn beam; it freezes at 25 m whatever this says",
        ),
        "agent_scale": Parameter(
            1.0,
            0.1,
            10.0,
            "edge of the agents' cubes, m; stretches their grids as well",
        ),
    }

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        count = self.agents_per_area
        self._laser = np.ones((num_areas, count))
        """Length of the drawn beam, as a share of 25 m."""
        self.courts = Courts(
            continuous=self.academy.continuous,
            discrete=self.academy.discrete,
            reward=self.academy.reward,
            walls=boxes(*WALLS),
            inverse=inverse_masses(count),
            agent=np.zeros((num_areas, count, BOX_COLUMNS)),
            yaw=np.zeros((num_areas, count)),
            food=np.zeros((num_areas, FOOD, ROUND_COLUMNS)),
            velocity=np.zeros((num_areas, count + FOOD + 1, 6)),
            push=np.zeros((num_areas, count, 2)),
            frozen=np.zeros((num_areas, count), np.int64),
            shooting=np.zeros((num_areas, count), np.bool_),
        )
        # The ring is one mesh in Unity, so every wall has the bounds of the whole ring.
        ring = bounds_of(*WALLS)
        self._wall_bounds = np.array([ring] * len(WALLS))

    def arrays(self) -> Arrays:
        courts = {name: getattr(self.courts, name) for name in _STATE}
        return courts | {"laser": self._laser}

    # reset

    def restart(self) -> None:
        """Put all bodies to rest, thawed; places follow when episodes begin."""
        courts = self.courts
        for name in _STATE:
            getattr(courts, name).fill(0)
        courts.agent[..., BOX_TAG] = TAG_AGENT
        courts.food[..., RADIUS] = FOOD_RADIUS_M
        courts.food[:, :GOOD, ROUND_TAG] = TAG_FOOD
        courts.food[:, GOOD:, ROUND_TAG] = TAG_BAD

    def begin_episodes(self, agents: Agents) -> None:
        """Put these agents somewhere, still and thawed; food only when the world restarts."""
        count = self.agents_per_area
        a, g = np.divmod(agents, count)
        # The areas, and the row of each agent's area among them.
        areas, k = np.unique(a, return_inverse=True)
        # Unity's reset of an agent leaves the food alone; only a reset of the world places it.
        if self.academy.clock == 0:
            self._place_food(areas)
        # All agents of an area draw, so that a place does not depend on which begin.
        draws = self.streams.uniform(areas, 3 * count).reshape(-1, count, 3)
        scale = self._read_per_agent("agent_scale", areas)
        laser = self._read_per_agent("laser_length", areas)

        courts = self.courts
        courts.agent[a, g, X] = (2 * draws[k, g, 0] - 1) * START_SPREAD_M
        courts.agent[a, g, Y] = AGENT_START_Y
        courts.agent[a, g, Z] = (2 * draws[k, g, 1] - 1) * START_SPREAD_M
        courts.agent[a, g, HALF_X : HALF_Z + 1] = scale[k, g, None] / 2
        courts.agent[a, g, BOX_TAG] = TAG_AGENT
        # Whole degrees: Unity's Random.Range of two integers gives integers.
        degrees = np.floor(360 * draws[k, g, 2])
        yaw = np.deg2rad(degrees)
        courts.yaw[a, g] = yaw
        courts.agent[a, g, COS] = np.cos(yaw)
        courts.agent[a, g, SIN] = np.sin(yaw)
        courts.velocity[a, g] = 0.0
        courts.push[a, g] = 0.0
        courts.frozen[a, g] = 0
        courts.shooting[a, g] = False
        self._laser[a, g] = laser[k, g]

    def _place_food(self, areas: NDArray[np.intp]) -> None:
        self.streams.next_episode(areas)
        drawn = self.streams.uniform(areas, 2 * FOOD)
        draws = 2.0 * drawn.reshape(-1, FOOD, 2) - 1.0
        food = self.courts.food
        food[areas, :, X] = START_SPREAD_M * draws[..., 0]
        food[areas, :, Z] = START_SPREAD_M * draws[..., 1]
        food[areas, :, Y] = FOOD_START_Y
        self.courts.velocity[areas, self.agents_per_area :] = 0.0

    def _read_per_agent(
        self, name: str, areas: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """A parameter, read once for each agent of K areas: [K, G]."""
        count = self.agents_per_area
        reads = [self.parameter_values.read(name, areas) for _ in range(count)]
        return np.stack(reads, axis=1)

    # observe

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        return [SENSOR.read(self._threads, agents, self._grid_view())]

    def observe_state(self, behavior: str, agents: Agents) -> NDArray[np.float32]:
        """Where the agent is and how long it stays frozen, the time; then, as seen from the agent,
        the others, who of them is frozen, and the nearest good and bad food.
        """
        courts, count = self.courts, self.agents_per_area
        areas, g = np.divmod(agents, count)
        own = state_of_bodies(
            courts.agent[areas, g], courts.velocity[areas, g], STATE_M, STATE_MPS
        )
        clock = self.academy.step_count.reshape(-1)[agents] / MAX_STEP
        left = courts.frozen[areas, g] / FROZEN_STEPS
        others = (g[:, None] + np.arange(1, count)) % count
        around = self._seen_from(areas, g, courts.agent[areas[:, None], others])
        stiff = courts.frozen[areas[:, None], others] > 0
        food = self._seen_from(areas, g, courts.food[areas])
        near = [_nearest(food[:, :GOOD]), _nearest(food[:, GOOD:])]
        parts: list[NDArray[Any]] = [own, left, clock, around, stiff, *near]
        return np.concatenate(
            [part.reshape(len(agents), -1) for part in parts], axis=1, dtype=np.float32
        )

    def _seen_from(
        self, areas: NDArray[np.intp], g: NDArray[np.intp], shapes: Floats
    ) -> Floats:
        """[K, N, 2] how far right and ahead of agent g of each area its N shapes lie."""
        me = self.courts.agent[areas, g][:, None]
        x, z = (shapes[..., axis] - me[..., axis] for axis in (X, Z))
        cos, sin = me[..., COS], me[..., SIN]
        return np.stack([x * cos - z * sin, x * sin + z * cos], axis=-1) / STATE_M

    def cells(self, area: int, agent: int) -> Cells | None:
        number = area * self.agents_per_area + agent
        return SENSOR.cells(self._threads, number, self._grid_view())

    def _grid_view(self) -> GridView:
        courts = self.courts
        areas, numbers = np.divmod(np.arange(courts.yaw.size), self.agents_per_area)
        eyes = np.empty((len(areas), 5))  # x, y, z, yaw, scale
        eyes[:, :3] = courts.agent[..., :3].reshape(-1, 3)
        eyes[:, 3] = courts.yaw.reshape(-1)
        eyes[:, 4] = 2.0 * courts.agent[..., HALF_X].reshape(-1)
        return GridView(
            areas=areas,
            eyes=eyes,
            own_box=numbers,
            fixed=courts.walls,
            fixed_bounds=self._wall_bounds,
            boxes=courts.agent,
            rounds=courts.food,
        )

    # play

    def act(self) -> None:
        self._threads.run(act, self.num_areas, self.courts)

    def simulate(self, most: int) -> int:
        # Rewards are paid within a round, and only the step limit ends an episode, so several
        # rounds may be played on several threads.
        streams = self.streams.arrays()
        self._threads.run(play_rounds, self.num_areas, most, self.courts, streams)
        return most

    def tableau(self, area: int) -> Tableau:
        agents = self.courts.agent[area]
        walls = self.courts.walls
        agent_colors = [
            WHITE if tag == TAG_FROZEN else BLUE for tag in agents[:, BOX_TAG]
        ]
        return Tableau(
            static=join(
                floor_shapes(FLOOR, cells=(20, 20)), box_shapes(walls, WALL_COLOR)
            ),
            moving=join(
                box_shapes(agents, agent_colors),
                self._beams(area),
                round_shapes(self.courts.food[area], [GREEN] * GOOD + [RED] * BAD),
                eye_shapes(agents, self.courts.yaw[area]),
            ),
            camera=CAMERA,
        )

    def _beams(self, area: int) -> DrawnShapes:
        """The laser of each agent, which starts at its center; shown while it shoots."""
        beams = self.courts.agent[area].copy()
        half_length = BEAM_M / 2 * self._laser[area]
        beams[:, [HALF_X, HALF_Y]] = 0.15
        beams[:, HALF_Z] = half_length
        beams[:, X] += half_length * beams[:, SIN]
        beams[:, Z] += half_length * beams[:, COS]
        return replace(box_shapes(beams, RED), shown=self.courts.shooting[area].copy())


def _nearest(places: Floats) -> Floats:
    """[K, NEAREST, 2] of places [K, N, 2], nearest first."""
    order = np.argsort((places**2).sum(axis=-1), axis=1)[:, :NEAREST, None]
    return np.take_along_axis(places, order, axis=1)
