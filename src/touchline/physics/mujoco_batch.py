"""MuJoCo for bodies that tumble: one model, simulated in A areas.

Arrays are in MuJoCo's frame (right-handed, z up); `frames` converts. They are the batch's own
memory, bound once: writing to them sets the next step's state.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.physics.mujoco_import import mujoco
from touchline.physics.shapes import Floats
from touchline.physics.world import Arrays, PhysicsWorld


class MujocoBatch(PhysicsWorld):
    """A areas of a model. Results do not depend on the number of threads."""

    def __init__(
        self, model: mujoco.MjModel, num_areas: int, num_threads: int = 0
    ) -> None:
        """0 threads: all processors."""
        self.model = model
        self._batch = mujoco.batch.Batch(model, num_areas, num_threads)
        self.qpos: Floats = self._batch.bind("qpos")
        """[A, positions], a joint after another."""
        self.qvel: Floats = self._batch.bind("qvel")
        """[A, degrees of freedom]"""
        self.warm_start: Floats = self._batch.bind("qacc_warmstart")
        """[A, degrees of freedom] from where the solver starts."""
        self.mocap_pos: Floats = self._batch.bind("mocap_pos")
        """[A, bodies that the scene moves, 3]"""
        self.mocap_quat: Floats = self._batch.bind("mocap_quat")
        """[A, bodies that the scene moves, 4]"""

    def reset(self) -> None:
        """The model's own start, in all areas."""
        self._batch.reset(stage=mujoco.mjtStage.mjSTAGE_NONE)

    def step(self, rounds: int = 1) -> None:
        self._batch.step(nstep=rounds)

    def step_areas(self, areas: NDArray[np.intp]) -> None:
        """One time step of these areas only."""
        self._batch.step(areas)

    def per_area(self, field: str) -> NDArray[Any]:
        """A field of the model, [A, ...], from now on with values of each area's own.

        After writing to it, call `update_constants`.
        """
        values: NDArray[Any] = self._batch.expand(field)
        return values

    def update_constants(self) -> None:
        """Derive again what the model derives from its masses and sizes."""
        self._batch.set_const()

    def arrays(self) -> Arrays:
        """What a step depends on but for the poses of mocap bodies, which the scene sets."""
        # The solver starts from its last accelerations, so without them a restored run differs
        # in the last bits.
        return {"qpos": self.qpos, "qvel": self.qvel, "warmstart": self.warm_start}
