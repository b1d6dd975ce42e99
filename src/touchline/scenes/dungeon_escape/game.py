"""The scene: observations, rounds, deaths, keys, rewards and ends."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.look import BLUE, DARK, ORANGE, PURPLE, RED, WALL_COLOR, YELLOW
from touchline.drawing.tableau import (
    Camera,
    box_shapes,
    floor_shapes,
    join,
    lowered,
    round_shapes,
)
from touchline.physics.shapes import ABSENT, BOX_TAG, COS, HALF_Y, SIN, X, Y, Z
from touchline.physics.world import Arrays
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
    observe_rigid_bodies,
)
from touchline.scenes.dungeon_escape.rounds import (
    AGENTS,
    BODIES,
    CARRIED_KEY,
    COLUMN_MU,
    COLUMNS_M,
    DRAGON,
    FIRST_COLUMN,
    FIXED,
    KEY,
    KEY_LEFT_M,
    KEY_TAG,
    KEY_Y_M,
    PILLARS,
    PLACED,
    TAGS,
    TOMB_FOOT,
    TOMB_STONE,
    WALL,
    Halls,
    place,
    play_rounds,
)
from touchline.sensors.rays import RayFan, RaySensor
from touchline.sensors.stacking import stacked_spec
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

BEHAVIOR = "DungeonEscape?team=0"
MAX_AREA_STEPS = 15000
"""The area's own time limit (MaxEnvironmentSteps); agents have none."""
ESCAPE_REWARD = 1.0
STATE_M, STATE_MPS = 7.0, 4.0
"""Units of what a critic sees."""

FRAMES = 3
SENSOR = RaySensor(
    TAGS, TAGS, RayFan(rays_per_direction=7, max_degrees=60.0, length_m=40.0)
)


class DungeonEscape(BoxScene):
    """Three agents take a key from a dragon and escape.

    | observation | size | meaning |
    | --- | --- | --- |
    | `RBSensor` | 10 | velocity in the agent's frame (x, y, z), then a pose that never changes |
    | `…RayPerceptionSensor` | 360 | 15 rays over ±60°, 40 m, at body height, three frames |
    | `VectorSensor_size1` | 1 | 1 with the key |

    Tags: wall, agent, dragon, key, lock, portal. The pose is (0, 0, 0 · 0, 0, 0, 1).

    Actions, one branch of seven: see `cube_agents`. Every fifth step, repeated in between.

    An agent that touches the dragon vanishes with it: a tombstone stands there, and the key lies
    where the dragon was. An agent that touches the door with the key earns +1 for the group, and
    the episode ends. An agent that touches the portal vanishes; if that was the last agent, or the
    one with the key, or if the dragon gets there, the episode ends without a reward. The area's own
    limit of 15000 steps interrupts it. An agent that vanished returns with the next episode, under
    a new id, and requests a decision at once, on the decision period or off it.
    """

    name = "DungeonEscape"
    action_names = NAMES
    unity_areas = 12
    behaviors = {
        BEHAVIOR: BehaviorSpec(
            (
                RIGID_BODY,
                stacked_spec("RayPerceptionSensor", SENSOR.size, FRAMES),
                ObservationSpec.vector(1, "VectorSensor_size1"),
            ),
            ActionSpec.create_discrete([CHOICES]),
        )
    }
    agents_per_area = AGENTS
    state_size = STATE_OF_BODY + 2 * 7 + 3
    parameters = {"gravity": gravity_times(1.5)}
    fixed = FIXED
    bodies = BODIES
    placed = PLACED
    pillars = PILLARS
    sensor = SENSOR
    frames = FRAMES
    static = join(
        floor_shapes(FIXED[0]),
        box_shapes(lowered(FIXED[1:5], 1.2), WALL_COLOR),
        box_shapes(FIXED[5:], [ORANGE, PURPLE, *[WALL_COLOR] * len(COLUMNS_M)]),
        round_shapes(PILLARS, WALL_COLOR),
    )
    camera = Camera(eye=(-7.0, 27.0, -22.0), target=(0.0, 0.0, -0.6))
    colors = [*[BLUE] * AGENTS, RED, *[YELLOW] * 2, *[DARK] * 2]

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        first_box = len(FIXED)
        friction = self.world.friction
        friction[:, :, [first_box + CARRIED_KEY, first_box + KEY]] = -1.0  # triggers
        friction[:, :, FIRST_COLUMN:first_box] = COLUMN_MU
        shape = (num_areas, AGENTS)
        self._halls = Halls(
            discrete=self.academy.discrete,
            enabled=self.academy.enabled,
            has_key=np.zeros(shape, np.bool_),
            dragon_speed_mps=np.zeros(num_areas),
            world=self.world.kernel_arrays,
            at_dragon=np.zeros(shape, np.bool_),
            at_key=np.zeros(shape, np.bool_),
            at_portal=np.zeros(shape, np.bool_),
            at_door=np.zeros(shape, np.bool_),
            opens=np.zeros(shape, np.bool_),
            escaped=np.zeros(num_areas, np.bool_),
        )
        self.has_key = self._halls.has_key
        self.at_door = self._halls.at_door
        self.dragon_speed_mps = self._halls.dragon_speed_mps
        self.timer = np.zeros(num_areas, np.int64)
        """[A] steps of the running episode."""
        self.restart()

    def arrays(self) -> Arrays:
        own = {
            "has_key": self.has_key,
            "at_door": self.at_door,
            "dragon_speed_mps": self.dragon_speed_mps,
            "timer": self.timer,
            "stack": self._stack.frames,
        }
        return own | super().arrays()

    # reset

    def restart(self) -> None:
        self.academy.group_id[:] = 1 + self._areas[:, None]
        self.world.boxes[:, :, Y] = NOWHERE_M
        self.world.boxes[:, AGENTS:, BOX_TAG] = ABSENT
        self.world.velocity[:] = 0.0

    def begin_episodes(self, agents: Agents) -> None:
        """Restart these agents' areas, which Unity's reset does not touch."""
        areas = np.unique(agents // AGENTS)
        self._reset(areas)
        # The controllers' first update comes before the first decision.
        self.timer[areas] = 1

    def _reset(self, areas: NDArray[np.intp]) -> None:
        """Give agents new places, the dead ones as new agents, and the dragon another speed."""
        academy, world = self.academy, self.world
        self._next_episode(areas)
        place(areas, self.streams.arrays(), world.kernel_arrays, self.dragon_speed_mps)
        agents = self._agents_of(areas)
        dead = agents[~academy.enabled.reshape(-1)[agents]]
        if len(dead):
            academy.enable(dead)
        self._stack.clear(agents)
        self.has_key[areas] = False
        self.at_door[areas] = False
        self.timer[areas] = 0

    # observe

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        world = self.world
        (rays,) = self._see(agents)
        area = agents // AGENTS
        member = agents % AGENTS
        velocity = world.velocity[area, member]
        body = observe_rigid_bodies(velocity, world.boxes[area, member])
        has_key = self.has_key[area, member][:, None].astype(np.float32)
        return [body, rays, has_key]

    def observe_state(self, behavior: str, agents: Agents) -> NDArray[np.float32]:
        """Where the agent is; dragon and key, seen from the hall and from the agent, and whether
        they are there; whether an agent has the key; the dragon's speed, and the time.
        """
        world, areas = self.world, agents // AGENTS
        here = (areas[:, None], (agents % AGENTS)[:, None])
        own = state_of_bodies(
            world.boxes[here], world.velocity[here], STATE_M, STATE_MPS
        )
        parts: list[NDArray[Any]] = [own]
        for row in (DRAGON, KEY):
            shapes = world.boxes[areas, row]
            is_there = (shapes[:, BOX_TAG] != ABSENT)[:, None]
            place = shapes[:, [X, Z]] / STATE_M
            ahead = shapes[:, [COS, SIN]]
            shown = [place, place - own[:, :2], ahead]
            parts += [np.where(is_there, part, 0.0) for part in shown] + [is_there]
        speed = self.dragon_speed_mps[areas, None] / STATE_MPS
        parts += [self.has_key[areas].max(axis=1, keepdims=True), speed]
        parts.append(self.timer[areas, None] / MAX_AREA_STEPS)
        return np.concatenate(parts, axis=1, dtype=np.float32)

    # play

    def simulate(self, most: int) -> int:
        # The area's limit ends an episode, and such a round must be the last one played.
        most = min(most, MAX_AREA_STEPS - int(self.timer.max()))
        return self._play_kernel(play_rounds, max(most, 1), self._halls)

    def fixed_update(self, rounds: int) -> None:
        self.timer += rounds - 1
        self._handle_touches()
        # Dead agents keep requesting decisions, so that they decide at once when they return.
        academy = self.academy
        if academy.clock % academy.decision_period == 0:
            academy.requested |= ~academy.enabled
        # The last of these rounds, which counts for areas that have just begun again, too.
        self.timer += 1
        if self.timer.max() >= MAX_AREA_STEPS:
            self._end(np.flatnonzero(self.timer >= MAX_AREA_STEPS), interrupted=True)

    def _handle_touches(self) -> None:
        """What the touches of the last round mean, in Unity's order: dragon, key, door, portal."""
        halls = self._halls
        enabled = self.academy.enabled
        if np.count_nonzero(halls.at_dragon):
            self._die_with_dragon(halls.at_dragon)
        if np.count_nonzero(halls.at_key):
            self._take_key(halls.at_key & enabled)
        over = np.asarray(halls.opens.any(axis=1))
        self.academy.group_reward[over] += ESCAPE_REWARD
        if np.count_nonzero(halls.at_portal):
            over |= self._enter_portal(halls.at_portal & enabled & ~over[:, None])
        # Unless an agent has just taken the dragon with it.
        is_alive = self.world.boxes[:, DRAGON, BOX_TAG] != ABSENT
        over |= halls.escaped & is_alive
        if np.count_nonzero(over):
            self._end(np.flatnonzero(over))

    def _die_with_dragon(self, touching: NDArray[np.bool_]) -> None:
        """Put a tombstone where agents [A, AGENTS] touch the dragon, and a key in its place."""
        areas, member = np.nonzero(touching)
        shapes = self.world.boxes
        shapes[areas, DRAGON, BOX_TAG] = ABSENT
        shapes[areas, CARRIED_KEY, BOX_TAG] = ABSENT
        self.academy.disable(self, areas * AGENTS + member)
        for part in (TOMB_FOOT, TOMB_STONE):
            for column in (X, Z, COS, SIN):
                shapes[areas, part, column] = shapes[areas, member, column]
            shapes[areas, part, Y] = shapes[areas, part, HALF_Y]
            shapes[areas, part, BOX_TAG] = WALL
        cos = shapes[areas, DRAGON, COS]
        sin = shapes[areas, DRAGON, SIN]
        shapes[areas, KEY, X] = shapes[areas, DRAGON, X] - KEY_LEFT_M * cos
        shapes[areas, KEY, Y] = KEY_Y_M
        shapes[areas, KEY, Z] = shapes[areas, DRAGON, Z] + KEY_LEFT_M * sin
        shapes[areas, KEY, COS] = cos
        shapes[areas, KEY, SIN] = sin
        shapes[areas, KEY, BOX_TAG] = KEY_TAG
        shapes[areas, member, BOX_TAG] = ABSENT

    def _take_key(self, taking: NDArray[np.bool_]) -> None:
        """Give the key to the first agent [A, AGENTS] that is at it."""
        areas = np.flatnonzero(taking.any(axis=1))
        first = taking[areas].argmax(axis=1)  # the first True of each row
        self.has_key[areas, first] = True
        self.world.boxes[areas, KEY, BOX_TAG] = ABSENT

    def _enter_portal(self, entering: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Remove agents [A, AGENTS], but where that ends the episode: returns those areas [A]."""
        num_left = self.academy.enabled.sum(axis=1) - entering.sum(axis=1)
        takes_key_along = (entering & self.has_key).any(axis=1)
        # Without an agent, or without the key, the door cannot be opened any more.
        is_lost = (num_left == 0) | takes_key_along
        over: NDArray[np.bool_] = entering.any(axis=1) & is_lost
        areas, member = np.nonzero(entering & ~over[:, None])
        if len(areas):
            self.academy.disable(self, areas * AGENTS + member)
            self.world.boxes[areas, member, BOX_TAG] = ABSENT
        return over

    # end

    def _end(self, areas: NDArray[np.intp], *, interrupted: bool = False) -> None:
        agents = self._agents_of(areas)
        is_alive = self.academy.enabled.reshape(-1)[agents]
        alive = agents[is_alive]
        self.academy.end(self, alive, interrupted=interrupted)
        # Or successors of the dead would inherit it.
        self.academy.group_reward[areas] = 0.0
        self._reset(areas)
