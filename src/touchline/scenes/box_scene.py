"""What scenes of upright boxes share: their world, their agents' rays, gravity and pictures."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.look import Color
from touchline.drawing.tableau import (
    Camera,
    DrawnShapes,
    Tableau,
    box_shapes,
    eye_shapes,
    join,
)
from touchline.parameters import Parameter
from touchline.physics.shapes import COS, SIN, Floats, X, Z, rounds
from touchline.physics.upright.boxes import Body, BoxWorld
from touchline.physics.world import GRAVITY, Arrays
from touchline.scenes.academy import Agents
from touchline.scenes.scene import Scene
from touchline.sensors.rays import RaySensor, Traces, View
from touchline.sensors.stacking import Stack


def gravity_times(multiplier: float) -> Parameter:
    """The parameter `gravity`, by the `gravityMultiplier` of a scene's settings in Unity."""
    gravity = GRAVITY * multiplier
    return Parameter(gravity, 0.0, 1000.0, "downward acceleration, m/s²")


class BoxScene(Scene):
    """Agents among boxes that stay upright; one of its `parameters` is `gravity`."""

    fixed: ClassVar[Floats]
    """[B, 9] the boxes that stand in every area alike; the first is the floor."""
    bodies: ClassVar[Sequence[Body]]
    """The boxes that physics moves, agents first."""
    placed: ClassVar[Sequence[list[float]]] = ()
    """The boxes that the scene alone moves."""
    pillars: ClassVar[Floats] = rounds()
    """[S, 6] round shapes that rays can hit."""
    sensor: ClassVar[RaySensor | None] = None
    """The agents' rays, all sensors joined."""
    frames: ClassVar[int] = 1
    """How many of the last frames each ray sensor shows."""
    static: ClassVar[DrawnShapes]
    camera: ClassVar[Camera]
    colors: ClassVar[Sequence[Color]]
    """Colors of bodies and placed boxes, where they stay the same."""

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        self.world = BoxWorld(
            num_areas,
            self.fixed,
            self.bodies,
            self.placed,
            self.parameters["gravity"].default,
            self._threads,
        )
        boxes = self.world.boxes
        self._view = View(
            bodies=boxes,
            yaw=self.world.yaw[:, : self.agents_per_area],
            fixed=self.fixed,
            boxes=boxes,
            rounds=np.tile(self.pillars, (num_areas, 1, 1)),
        )
        # Without rays the frames have no numbers, and all else stays the same.
        numbers = self.sensor.size if self.sensor else 0
        num_agents = num_areas * self.agents_per_area
        self._stack = Stack(num_agents, self.frames, numbers)

    def arrays(self) -> Arrays:
        return self.world.arrays()

    def parameter_arrays(self) -> dict[str, Floats]:
        return {"gravity": self.world.gravity}

    def _next_episode(self, areas: NDArray[np.intp]) -> None:
        self.streams.next_episode(areas)
        self.world.gravity[areas] = self.parameter_values.read("gravity", areas)

    def _see(self, agents: Agents) -> list[NDArray[Any]]:
        """What the rays of K agents show: [K, frames * size] for each sensor."""
        assert self.sensor is not None
        return self.sensor.observe(self._threads, self._stack, agents, self._view)

    def rays(self, area: int, agent: int) -> Traces | None:
        if self.sensor is None:
            return None
        frames = self._stack.frames[area * self.agents_per_area + agent]
        return self.sensor.traces(self._view, area, agent, frames[-1])

    def tableau(self, area: int) -> Tableau:
        boxes, yaw = self.world.boxes[area], self.world.yaw[area]
        agents = slice(self.agents_per_area)
        eyes = eye_shapes(boxes[agents], yaw[agents])
        moving = join(box_shapes(boxes, self.colors_of(area)), eyes)
        return Tableau(static=self.static, moving=moving, camera=self.camera)

    def colors_of(self, area: int) -> Sequence[Color] | Floats:
        """The colors of bodies and placed boxes now."""
        return self.colors


STATE_OF_BODY = 6
"""Numbers that `state_of_bodies` shows of each body."""


def state_of_bodies(
    boxes: Floats, velocity: Floats, length_m: float, speed_mps: float
) -> NDArray[np.float32]:
    """[K, 6 B] of K areas, from boxes [K, B, 9] and velocities [K, B, 6]: for each body its place
    and velocity on the ground, in these units, and which way it faces.
    """
    numbers = np.stack(
        [
            boxes[..., X] / length_m,
            boxes[..., Z] / length_m,
            velocity[..., 0] / speed_mps,
            velocity[..., 2] / speed_mps,
            boxes[..., COS],
            boxes[..., SIN],
        ],
        axis=-1,
    )
    return numbers.reshape(len(boxes), -1).astype(np.float32)
