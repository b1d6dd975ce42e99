"""A scene of your own in one file: a puck on a rail is pushed to a light that moves.

Check it with `python chase.py`, then train on it: `touchline train --env chase:Chase`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from touchline import ActionSpec, BehaviorSpec, EnvRecipe, ObservationSpec, make
from touchline.drawing.look import BLUE, WALL_COLOR, YELLOW
from touchline.drawing.tableau import Camera, Kind, Tableau, make_shapes
from touchline.parameters import Parameter
from touchline.physics.world import Arrays
from touchline.scenes.academy import Agents
from touchline.scenes.scene import Scene
from touchline.testing import check_env, check_slots

RAIL_M = 5.0  # from the middle to either end
PUSH_M_S2 = 20.0
DRAG_PER_S = 2.0
REACHED_M = 0.3
REACHED_REWARD, STEP_COST = 1.0, 0.001

CAMERA = Camera(eye=(0.0, 6.0, -10.0), target=(0.0, 0.5, 0.0), extent_m=12.0)


class Chase(Scene):
    """Push a puck along a rail to the light.

    Observation `Puck`: the light's distance along the rail (m), the puck's speed (m/s). One
    continuous action pushes the puck.
    """

    name: ClassVar[str] = "Chase"
    unity_areas: ClassVar[int] = 16
    seconds_per_step: ClassVar[float] = 0.02
    max_step: ClassVar[int] = 1000
    behaviors: ClassVar[Mapping[str, BehaviorSpec]] = {
        "Chase?team=0": BehaviorSpec(
            (ObservationSpec.vector(2, "Puck"),), ActionSpec.create_continuous(1)
        )
    }
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "drag": Parameter(DRAG_PER_S, 0.0, 20.0, "how fast the puck slows down, 1/s"),
    }

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        self._position, self._speed = np.zeros(num_areas), np.zeros(num_areas)
        self._light, self._drag = np.zeros(num_areas), np.zeros(num_areas)

    def arrays(self) -> Arrays:
        return {
            "position": self._position,
            "speed": self._speed,
            "light": self._light,
            "drag": self._drag,
        }

    def begin_episodes(self, agents: Agents) -> None:
        self.streams.next_episode(agents)
        draws = self.streams.uniform(agents, 2, -RAIL_M, RAIL_M)
        self._position[agents], self._light[agents] = draws[:, 0], draws[:, 1]
        self._speed[agents] = 0.0
        self._drag[agents] = self.parameter_values.read("drag", agents)

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        distance = self._light[agents] - self._position[agents]
        return [np.stack([distance, self._speed[agents]], axis=1).astype(np.float32)]

    def act(self) -> None:
        push = PUSH_M_S2 * np.clip(self.academy.continuous[:, 0, 0], -1.0, 1.0)
        self._speed += push * self.seconds_per_step

    def simulate(self, most: int) -> int:
        self._speed *= 1.0 - self._drag * self.seconds_per_step
        self._position += self._speed * self.seconds_per_step
        at_an_end = np.abs(self._position) >= RAIL_M
        self._speed[at_an_end] = 0.0
        np.clip(self._position, -RAIL_M, RAIL_M, out=self._position)
        return 1  # one round, however many were offered

    def fixed_update(self, rounds: int) -> None:
        academy = self.academy
        academy.reward[:, 0] -= STEP_COST
        reached = np.flatnonzero(np.abs(self._light - self._position) < REACHED_M)
        if len(reached):
            academy.reward[reached, 0] += REACHED_REWARD
            academy.end(self, reached)
            self.begin_episodes(reached)

    def tableau(self, area: int) -> Tableau:
        puck = (self._position[area], 0.4, 0.0)
        light = (self._light[area], 1.5, 0.0)
        return Tableau(
            static=make_shapes(
                Kind.BOX, (RAIL_M, 0.1, 0.2), (0.0, 0.0, 0.0), WALL_COLOR
            ),
            moving=make_shapes(
                Kind.SPHERE, [[0.3], [0.2]], [puck, light], [BLUE, YELLOW]
            ),
            camera=CAMERA,
        )


if __name__ == "__main__":
    check_env(EnvRecipe("scene", "chase:Chase", num_areas=3))
    with make(EnvRecipe("scene", "chase:Chase")) as env:
        check_slots(env, steps=300)
    print("Chase keeps the contract.")
