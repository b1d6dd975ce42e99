"""Pictures of a scene, drawn off-screen by MuJoCo."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from touchline.errors import MissingError


class Drawing:
    """Draws one MuJoCo model, with one renderer per picture size, made when first needed."""

    def __init__(self, model: mujoco.MjModel, camera: str = "show") -> None:
        self.model = model
        self._camera = camera
        self._renderer: mujoco.Renderer | None = None

    def picture(
        self, data: mujoco.MjData, width: int, height: int, model: mujoco.MjModel | None = None
    ) -> NDArray[np.uint8]:
        """What the camera sees, uint8 [height, width, 3]. `data` needs only its state to be current."""
        model = model or self.model
        mujoco.mj_forward(model, data)
        renderer = self._sized(width, height)
        renderer.update_scene(data, camera=self._camera)
        return np.array(renderer.render())

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _sized(self, width: int, height: int) -> mujoco.Renderer:
        if self._renderer is not None and (self._renderer.width, self._renderer.height) == (width, height):
            return self._renderer
        self.close()
        try:
            self._renderer = mujoco.Renderer(self.model, height, width)
        except Exception as error:  # MuJoCo's GL layers raise whatever their library raised
            raise MissingError(
                f"cannot draw: MuJoCo found no working OpenGL ({type(error).__name__}: {error}); on Debian or Ubuntu "
                "install libegl1 (or libosmesa6 and set MUJOCO_GL=osmesa)"
            ) from error
        return self._renderer
