"""Basic: walk along a line of cells to the small prize on the left or the large one on the right.

There is no physics. The agent decides at every Academy step and pays 0.01 for it; cell 7 gives +0.1
and cell 17 gives +1, and both end the episode. Unity then reloads the whole scene, so each episode
has a new agent with the next id. The best return is 0.93: seven steps to the right from cell 10.

Source: ML-Agents Release 22, `BasicController.cs`, `BasicSensorComponent.cs`,
`BasicActuatorComponent.cs`. That the new agent appears one step after the old one's end is our
choice; Unity's depends on the frame rate.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.look import BLUE, GREEN, WALL_COLOR
from touchline.drawing.tableau import Camera, Kind, Tableau, join, make_shapes
from touchline.parameters import Parameter
from touchline.physics.world import Arrays
from touchline.scenes.academy import Agents
from touchline.scenes.scene import ActionNames, Scene
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

NUM_CELLS = 20
START_CELL = 10
SMALL_PRIZE_CELL, SMALL_PRIZE = 7, 0.1
LARGE_PRIZE_CELL, LARGE_PRIZE = 17, 1.0
SMALL_PRIZE_RADIUS_M, LARGE_PRIZE_RADIUS_M = 0.35, 0.75
STEP_COST = 0.01
MOVES = np.array([0, -1, 1])

CAMERA = Camera(
    eye=(-0.5, 13.0, -26.0),
    target=(-0.5, 1.5, -3.75),
    extent_m=20.3,
)


class Basic(Scene):
    """Walk to the small prize on the left or the large one on the right.

    Observation `Basic`: one-hot of the cell [20]. One branch: 0 stay, 1 left, 2 right.
    """

    name = "Basic"
    action_names = ActionNames(branches=[("nothing", "left", "right")])
    unity_areas = 1
    behaviors = {
        "Basic?team=0": BehaviorSpec(
            (ObservationSpec.vector(NUM_CELLS, "Basic"),),
            ActionSpec.create_discrete((3,)),
        )
    }
    decision_period = 1
    parameters = {
        "gravity": Parameter(
            9.81, 0.0, 100.0, "accepted as in Unity; nothing here falls"
        ),
    }

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        self._cell = np.full(num_areas, START_CELL)

    def arrays(self) -> Arrays:
        return {"cell": self._cell}

    def begin_episodes(self, agents: Agents) -> None:
        self._cell[agents] = START_CELL

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        one_hot = self._cell[agents, None] == np.arange(NUM_CELLS)
        return [one_hot.astype(np.float32)]

    def act(self) -> None:
        """Move and pay; a finished agent vanishes, and one step later its successor appears."""
        academy = self.academy
        # As it was before this round: an agent that finishes now reappears only in the next
        # one.
        enabled = academy.enabled[:, 0].copy()
        action = academy.discrete[:, 0, 0]
        move = np.where(enabled, MOVES[action], 0)
        # `np.clip` takes four times as long on so few numbers.
        # As far as Unity's limit; no agent gets there, because the large prize is in between.
        self._cell[:] = np.minimum(np.maximum(self._cell + move, 0), NUM_CELLS)
        at_small = enabled & (self._cell == SMALL_PRIZE_CELL)
        at_large = enabled & (self._cell == LARGE_PRIZE_CELL)
        academy.reward[:, 0] -= STEP_COST * enabled
        academy.reward[:, 0] += SMALL_PRIZE * at_small + LARGE_PRIZE * at_large

        finished = np.flatnonzero(at_small | at_large)
        if len(finished):
            academy.disable(self, finished)
        reloading = np.flatnonzero(~enabled)
        if len(reloading):
            academy.enable(reloading)
            self.begin_episodes(reloading)

    def tableau(self, area: int) -> Tableau:
        tiles = _positions(np.arange(NUM_CELLS), 0.0)
        small = _positions(SMALL_PRIZE_CELL, 0.1 + SMALL_PRIZE_RADIUS_M)
        large = _positions(LARGE_PRIZE_CELL, 0.1 + LARGE_PRIZE_RADIUS_M)
        agent = _positions(self._cell[area], 0.6)
        return Tableau(
            static=join(
                make_shapes(Kind.BOX, (0.46, 0.1, 0.46), tiles, WALL_COLOR),
                make_shapes(Kind.SPHERE, SMALL_PRIZE_RADIUS_M, small, GREEN),
                make_shapes(Kind.SPHERE, LARGE_PRIZE_RADIUS_M, large, GREEN),
            ),
            moving=make_shapes(Kind.BOX, 0.4, agent, BLUE),
            camera=CAMERA,
        )


def _positions(cells: int | NDArray[np.int64], height_m: float) -> NDArray[np.float64]:
    """Where things in these cells are drawn: [cells, 3], one meter apart, in m."""
    x = np.atleast_1d(cells) - NUM_CELLS / 2
    position = np.zeros((len(x), 3))
    position[:, 0] = x
    position[:, 1] = height_m
    return position
