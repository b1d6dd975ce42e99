"""Two fixed pieces of work, timed next to a benchmark: what the machine can do at the moment.

Machines differ, and one machine differs from hour to hour. Figures of two days are compared by
these: simulation by bare MuJoCo, learning by a product of matrices.
"""

import statistics
import time
from collections.abc import Callable

import torch

PHYSICS_AREAS, PHYSICS_SUBSTEPS = 256, 5
MATRIX_SIZES = 1024, 336, 256
REFERENCE_PHYSICS_MS, REFERENCE_MATRIX_MS = 3.5, 0.76
"""Of the machine that targets mean: times of simulation and of learning are scaled to these."""
REPEATS = 7


class Probe:
    """Times of the two; make it before what is measured, because MuJoCo loads a model."""

    def __init__(self) -> None:
        from touchline.envs.env import EnvRecipe, make

        recipe = EnvRecipe("scene", "3DBall", PHYSICS_AREAS, options={"num_threads": 1})
        with make(recipe) as env:
            env.reset(0)
            self._world = env.scene.world
        self._start = {k: v.copy() for k, v in self._world.arrays().items()}
        rows, inner, columns = MATRIX_SIZES
        self._factors = torch.rand(rows, inner), torch.rand(inner, columns)

    def physics_ms(self) -> float:
        """Processor time of bare MuJoCo stepping 3DBall's 256 areas for one decision round."""

        def again() -> None:
            for name, values in self._world.arrays().items():
                values[:] = self._start[name]

        return _median_ms(lambda: self._world.step(PHYSICS_SUBSTEPS), again)

    def matrix_ms(self) -> float:
        """Processor time of a product of float32 matrices, 1,024 x 336 x 256, on one thread."""
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return _median_ms(lambda: torch.mm(*self._factors))
        finally:
            torch.set_num_threads(before)


def _median_ms(
    work: Callable[[], object], prepare: Callable[[], None] | None = None
) -> float:
    times = []
    for _ in range(REPEATS):
        if prepare is not None:
            prepare()
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return 1e3 * statistics.median(times)
