"""Pictures of tableaux, drawn off-screen by MuJoCo, which only draws here and simulates nothing.

MuJoCo's frame has y and z swapped against Unity's; `physics.frames` converts.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from importlib import reload

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.look import (
    FILL_DIRECTION,
    GROUND_REACH,
    SUN_DIRECTION,
    Light,
    Point,
    ground_colors,
    sky_colors,
)
from touchline.drawing.tableau import Camera, DrawnShapes, Kind, Tableau
from touchline.errors import MissingError, UsageError
from touchline.operating_systems import draws_without_display
from touchline.physics.frames import swap_axes, to_mujoco_quaternion
from touchline.physics.mujoco_import import mujoco

MAX_WIDTH, MAX_HEIGHT = 3840, 2160

_GEOM_TYPES = {
    Kind.BOX: mujoco.mjtGeom.mjGEOM_BOX,
    Kind.SPHERE: mujoco.mjtGeom.mjGEOM_SPHERE,
    Kind.ELLIPSOID: mujoco.mjtGeom.mjGEOM_ELLIPSOID,
    Kind.CAPSULE: mujoco.mjtGeom.mjGEOM_CAPSULE,
    Kind.PLANE: mujoco.mjtGeom.mjGEOM_PLANE,
}
_GROUND = 0
"""The only shape of the model."""
_TEXELS = 256
"""A side of the ground's picture, and of each of the six of the sky."""


class Painter:
    """Draws tableaux of any scene at any size.

    Making an OpenGL context takes tens of milliseconds, so one is kept for as long as pictures have
    the same size, lens and light.
    """

    def __init__(self) -> None:
        self._renderer: mujoco.Renderer | None = None
        self._data: mujoco.MjData | None = None
        self._drawn: tuple[Camera, Light, int, int] | None = None
        """Camera around its target, light, width and height that the renderer was made for."""

    def draw(self, tableau: Tableau, width: int, height: int) -> NDArray[np.uint8]:
        """What the tableau's camera shows, uint8 [height, width, 3].

        Raises a MissingError where OpenGL does not work, and a UsageError for a size that cannot be
        drawn.
        """
        # Everything is drawn around the target, so that a camera that follows is always the same.
        camera = tableau.camera
        target = np.array(camera.target)
        # Rounded, or the last digits of a camera that follows would cost a context each time.
        away = np.round(np.subtract(camera.eye, target), 6)
        x, y, z = map(float, away)
        camera = replace(camera, eye=(x, y, z), target=(0.0, 0.0, 0.0))
        wanted = camera, tableau.light, width, height
        if self._drawn != wanted:
            self.close()
            self._open(*wanted)
            self._drawn = wanted
        assert self._renderer is not None
        assert self._data is not None
        # Nothing computes poses again after `_open`, so `update_scene` finds what is written here.
        self._data.geom_xpos[_GROUND, 2] = tableau.ground_y_m - target[1]
        self._renderer.update_scene(self._data, camera="show")
        _add_shapes(self._renderer.scene, tableau.shapes, target)
        # A copy: MuJoCo draws the next picture into the same memory.
        return np.array(self._renderer.render())

    def close(self) -> None:
        """Release the OpenGL context. Idempotent; the next picture opens another."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        self._drawn = None

    def _open(self, camera: Camera, light: Light, width: int, height: int) -> None:
        if not (1 <= width <= MAX_WIDTH and 1 <= height <= MAX_HEIGHT):
            raise UsageError(
                f"a picture of {width} x {height} pixels cannot be drawn; "
                f"the largest is {MAX_WIDTH} x {MAX_HEIGHT}"
            )
        model = mujoco.MjModel.from_xml_string(_model_xml(camera, light))
        _paint(model)
        self._data = mujoco.MjData(model)
        mujoco.mj_forward(model, self._data)
        _choose_opengl()
        try:
            self._renderer = mujoco.Renderer(model, height, width)
        # MuJoCo's GL layers raise whatever their library raised.
        except Exception as error:
            raise MissingError(
                f"cannot draw: MuJoCo found no working OpenGL ({type(error).__name__}: {error}); "
                "on Debian or Ubuntu install libegl1 (or libosmesa6 and set MUJOCO_GL=osmesa)"
            ) from error


def _add_shapes(
    scene: mujoco.MjvScene, shapes: DrawnShapes, target: NDArray[np.float64]
) -> None:
    """Put the shown shapes into MuJoCo's list of what is to be drawn, around the target [3]."""
    position = swap_axes(shapes.position - target)
    size = swap_axes(shapes.size)
    # A capsule's sizes are radius and half height, not lengths along axes.
    is_capsule = shapes.kind == Kind.CAPSULE
    size[is_capsule, 1] = shapes.size[is_capsule, 1]
    quaternion = to_mujoco_quaternion(shapes.rotation)
    matrix = np.empty(9)
    for i in np.flatnonzero(shapes.shown):
        geom = scene.geoms[scene.ngeom]
        kind = _GEOM_TYPES[Kind(shapes.kind[i])]
        mujoco.mju_quat2Mat(matrix, quaternion[i])
        mujoco.mjv_initGeom(geom, kind, size[i], position[i], matrix, shapes.color[i])
        geom.category = mujoco.mjtCatBit.mjCAT_DYNAMIC
        # Matt, as surfaces are on the page, which has no highlights either (`look`).
        geom.specular = 0.0
        scene.ngeom += 1


def _model_xml(camera: Camera, light: Light) -> str:
    """A model without bodies: the sky, the ground, the light and the camera, whose target is 0."""
    samples = 4 if camera.smooth else 0
    reach = GROUND_REACH * np.linalg.norm(camera.eye)
    suns = [
        _sun_xml(direction, brightness, camera, casts)
        for direction, brightness, casts in (
            (SUN_DIRECTION, light.sun, "true"),
            (FILL_DIRECTION, light.fill, "false"),
        )
        if brightness > 0.0
    ]
    return f"""
    <mujoco>
      <visual>
        <global offwidth="{MAX_WIDTH}" offheight="{MAX_HEIGHT}"/>
        <quality shadowsize="2048" numquads="1" offsamples="{samples}"/>
        <map shadowclip="2"/>
        <headlight ambient="{_gray(light.ambient)}" diffuse="0 0 0" specular="0 0 0"/>
      </visual>
      <statistic center="0 0 0" extent="{camera.extent_m}"/>
      <asset>
        <texture name="sky" type="skybox" builtin="flat" width="{_TEXELS}" height="{_TEXELS}"/>
        <texture name="ground" type="2d" builtin="flat" width="{_TEXELS}" height="{_TEXELS}"/>
        <material name="ground" texture="ground" specular="0"/>
      </asset>
      <worldbody>
        <geom type="plane" size="{reach} {reach} 1" material="ground"/>
        {"".join(suns)}
        {_camera_xml(camera)}
      </worldbody>
    </mujoco>"""


def _paint(model: mujoco.MjModel) -> None:
    """Fill the pictures of sky and ground, which fade into each other at the horizon."""
    across, up = np.meshgrid(*2 * [np.linspace(-1.0, 1.0, _TEXELS)])
    from_middle = np.hypot(across, up)
    side = -up / np.sqrt(1.0 + from_middle**2)  # the first row is the uppermost
    above = 1.0 / np.sqrt(1.0 + from_middle**2)
    # MuJoCo's order of a cube's sides: right, left, up, down, front, back.
    sky = sky_colors(np.stack([side, side, above, -above, side, side]))
    for name, colors in (
        ("sky", sky),
        ("ground", ground_colors(from_middle * GROUND_REACH)),
    ):
        texture = model.texture(name)
        texels = np.rint(255.0 * colors).astype(np.uint8).reshape(-1)
        start = int(texture.adr[0])
        model.tex_data[start : start + len(texels)] = texels


def _sun_xml(direction: Point, brightness: float, camera: Camera, casts: str) -> str:
    """A light from far away; shadows are worked out from this place."""
    x, y, z = map(float, np.multiply(direction, -3.0 * camera.extent_m))
    return (
        f'<light directional="true" castshadow="{casts}" diffuse="{_gray(brightness)}" '
        f'specular="0 0 0" pos="{x} {z} {y}" dir="{_in_mujoco(direction)}"/>'
    )


def _camera_xml(camera: Camera) -> str:
    """A camera at the eye that looks at 0 and is level from left to right."""
    ahead = -swap_axes(np.array(camera.eye))
    right = np.cross(ahead, (0.0, 0.0, 1.0))
    if not right.any():  # straight down: z points up in the picture, as on a map
        right = np.array((1.0, 0.0, 0.0))
    up = np.cross(right, ahead)
    right = right / np.linalg.norm(right)
    up = up / np.linalg.norm(up)
    axes = np.concatenate([right, up])
    if camera.height_m is None:
        lens = f'fovy="{camera.field_of_view_deg}"'
    else:  # MuJoCo then takes the height for the field of view
        lens = f'projection="orthographic" fovy="{camera.height_m}"'
    xyaxes = " ".join(map(str, axes))
    return (
        f'<camera name="show" pos="{_in_mujoco(camera.eye)}" xyaxes="{xyaxes}" {lens}/>'
    )


def _gray(brightness: float) -> str:
    return f"{brightness} {brightness} {brightness}"


def _in_mujoco(point: Point) -> str:
    x, y, z = point
    return f"{x} {z} {y}"


def _choose_opengl() -> None:
    """On Linux without a display, draw through EGL unless MUJOCO_GL names something else.

    MuJoCo read the variable when it was imported, before it was set here.
    """
    if "MUJOCO_GL" in os.environ or not draws_without_display():
        return
    os.environ["MUJOCO_GL"] = "egl"
    chosen = sys.modules.get("mujoco.rendering.classic.gl_context")
    if chosen is not None:
        reload(chosen)
