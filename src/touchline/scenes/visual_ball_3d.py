"""Visual3DBall: 3DBall, observed by a camera alone.

Pixels cannot match Unity's: resolution, place and lens of the camera do, and so do the sizes and
places of cube and ball. Colors are worked out from the materials and the scene's lights, without
shadows and gloss.

Source: ML-Agents, `Visual3DBall.prefab`, `Visual3DBall.unity`, `AgentCube_Blue.prefab`,
`AgentBlue.mat`, `Headband.mat`. The prefab of the scene scales the agent's head by 5 and turns it
by 180 degrees about y, which turns the sign of the headband's tilt.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.physics.frames import rotate
from touchline.physics.kernels import compiled, inlined
from touchline.physics.shapes import Floats
from touchline.physics.world import Arrays
from touchline.scenes.academy import Agents
from touchline.scenes.ball_3d import BALL_RADIUS_M, CUBE_M, Ball3D
from touchline.sensors.cameras import MISS, brightness, meet_ball, meet_box, view_rays
from touchline.sensors.stacking import Stack
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

BEHAVIOR = "Visual3DBall?team=0"
SIDE = 84
FRAMES = 4
EYE_M = (0.0, 7.0, -8.0)
"""Position relative to the cube's center."""
CUBE_HALF_M = (CUBE_M / 2, CUBE_M / 2, CUBE_M / 2)
BAND_CENTER_M = (0.0, 1.705, 0.0)
BAND_HALF_M = (2.610, 0.482, 2.610)
"""A box around the cube's upper part, in the cube's frame, tilted about its z axis."""
BAND_TILT_RAD = math.radians(-1.892)
_BAND_COS, _BAND_SIN = math.cos(BAND_TILT_RAD), math.sin(BAND_TILT_RAD)
AROUND_CUBE_M = 4.4
"""A ball that holds cube and headband, whose corners are 4.34 m from the cube's center."""
PITCH_DEG, FIELD_OF_VIEW_DEG = 30.0, 60.0
CUBE_COLOR, BALL_COLOR = (0.129, 0.588, 0.953), (0.8, 0.8, 0.8)
"""The cube's is AgentBlue's; the ball's checkered texture is drawn as its mean."""
FACE_COLOR, BAND_COLOR = (0.05, 0.05, 0.05), (0.980, 0.651, 0.161)
FACE_EYES_M, FACE_EYE_RADIUS_M = (1.5, 0.37), 1.473 / 2
"""The eyes are round masks on quads of 1.473 m."""
FACE_MOUTH_M = (0.69, -1.02, -0.81)
"""Half of the mouth's width, and the heights of its edges."""
_COLORS = np.array([CUBE_COLOR, BALL_COLOR, FACE_COLOR, BAND_COLOR])
_CUBE, _BALL, _FACE, _BAND = range(4)


class VisualBall3D(Ball3D):
    """3DBall, observed by a camera alone.

    Observation `StackingSensor_size4_CameraSensor` (12, 84, 84): red, green, blue in 0 to 1 of the
    last four decisions, oldest first. The camera is 7 m above and 8 m in front of the cube's
    center, looks down by 30°, sees 60°, and black where there is nothing. Actions, rewards and
    parameters are 3DBall's.
    """

    name = "Visual3DBall"
    unity_areas = 8
    behaviors = {
        BEHAVIOR: BehaviorSpec(
            (
                ObservationSpec.picture(
                    (3 * FRAMES, SIDE, SIDE),
                    f"StackingSensor_size{FRAMES}_CameraSensor",
                ),
            ),
            ActionSpec.create_continuous(2),
        )
    }

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        self._rays = view_rays(PITCH_DEG, FIELD_OF_VIEW_DEG, SIDE, SIDE)
        self._near_cube = _meets_surroundings(self._rays)
        self._pictures = Stack(num_areas, FRAMES, 3 * SIDE * SIDE)

    def arrays(self) -> Arrays:
        return super().arrays() | {"pictures": self._pictures.frames}

    def begin_episodes(self, agents: Agents) -> None:
        super().begin_episodes(agents)
        self._pictures.clear(agents)

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        count = len(agents)
        ball = self.world.qpos[agents, :3][:, [0, 2, 1]]  # in Unity's frame
        radius = BALL_RADIUS_M * self._scale[agents]
        # The cube's axes in the area's frame: [K, axis, 3].
        axes = np.stack(
            [rotate(self._quaternion[agents], axis) for axis in np.eye(3)], axis=1
        )
        picture = np.zeros((count, 3, SIDE, SIDE), np.float32)
        self._threads.run(
            _draw,
            count,
            axes,
            ball,
            radius,
            self._rays,
            self._near_cube,
            picture,
        )
        stacked = self._pictures.push(agents, picture.reshape(count, -1))
        return [stacked.reshape(count, 3 * FRAMES, SIDE, SIDE)]


def _meets_surroundings(rays: Floats) -> NDArray[np.bool_]:
    """[H, W] rays that meet the ball which the cube fits into; it never leaves its place."""
    eye = np.array(EYE_M)
    ahead = -rays @ eye
    # Of the center from the ray's line, by Pythagoras: rays have length 1.
    squared_distance = eye @ eye - ahead**2
    return np.asarray(squared_distance < AROUND_CUBE_M**2)


@compiled
def _draw(
    first: int,
    last: int,
    axes: Floats,
    ball: Floats,
    radius: Floats,
    rays: Floats,
    near_cube: NDArray[np.bool_],
    picture: NDArray[np.float32],
) -> None:
    """Fill pictures [K, 3, H, W] (zeros before), in whole 255ths: Unity sends PNG files."""
    for k in range(first, last):
        eye = _turned(axes[k], EYE_M[0], EYE_M[1], EYE_M[2])
        band_eye = _in_band(
            eye[0] - BAND_CENTER_M[0], eye[1] - BAND_CENTER_M[1], eye[2]
        )
        for row in range(rays.shape[0]):
            for column in range(rays.shape[1]):
                x, y, z = rays[row, column]
                to_ball = meet_ball(EYE_M, (x, y, z), ball[k], radius[k])
                to_cube = MISS
                to_band = MISS
                face = 0
                band_face = 0
                ray = (x, y, z)
                band_ray = (x, y, z)
                if near_cube[row, column]:
                    ray = _turned(axes[k], x, y, z)
                    to_cube, face = meet_box(eye, ray, CUBE_HALF_M)
                    band_ray = _in_band(ray[0], ray[1], ray[2])
                    to_band, band_face = meet_box(band_eye, band_ray, BAND_HALF_M)
                nearest = min(to_ball, to_cube, to_band)
                if nearest == MISS:
                    continue
                if nearest == to_ball:
                    what = _BALL
                    light = brightness(
                        (EYE_M[0] + to_ball * x - ball[k, 0]) / radius[k],
                        (EYE_M[1] + to_ball * y - ball[k, 1]) / radius[k],
                        (EYE_M[2] + to_ball * z - ball[k, 2]) / radius[k],
                    )
                elif nearest == to_band:
                    what = _BAND
                    side = 1.0 if band_ray[band_face] < 0.0 else -1.0
                    light = _light_on_band(axes[k], band_face, side)
                else:
                    # A ray meets the side of a box that is turned against it.
                    side = 1.0 if ray[face] < 0.0 else -1.0
                    normal = axes[k, face]
                    light = brightness(
                        side * normal[0], side * normal[1], side * normal[2]
                    )
                    right = eye[0] + to_cube * ray[0]
                    up = eye[1] + to_cube * ray[1]
                    is_face = face == 2 and side < 0.0 and _is_in_face(right, up)
                    what = _FACE if is_face else _CUBE
                for c in range(3):
                    shade = min(_COLORS[what, c] * light, 1.0)
                    picture[k, c, row, column] = np.rint(shade * 255.0) / 255.0


@inlined
def _in_band(x: float, y: float, z: float) -> tuple[float, float, float]:
    """A vector of the cube's frame in the headband's, which is tilted about z."""
    return (_BAND_COS * x + _BAND_SIN * y, _BAND_COS * y - _BAND_SIN * x, z)


@inlined
def _light_on_band(axes: Floats, face: int, side: float) -> float:
    """Brightness of one side of the headband's faces, along its own axis 0 to 2."""
    # The face's normal in the cube's frame, then in the area's.
    x = 0.0
    y = 0.0
    z = 0.0
    if face == 0:
        x = side * _BAND_COS
        y = side * _BAND_SIN
    elif face == 1:
        x = -side * _BAND_SIN
        y = side * _BAND_COS
    else:
        z = side
    return brightness(
        x * axes[0, 0] + y * axes[1, 0] + z * axes[2, 0],
        x * axes[0, 1] + y * axes[1, 1] + z * axes[2, 1],
        x * axes[0, 2] + y * axes[1, 2] + z * axes[2, 2],
    )


@inlined
def _turned(axes: Floats, x: float, y: float, z: float) -> tuple[float, float, float]:
    """A vector of the area's frame in the cube's."""
    return (
        axes[0, 0] * x + axes[0, 1] * y + axes[0, 2] * z,
        axes[1, 0] * x + axes[1, 1] * y + axes[1, 2] * z,
        axes[2, 0] * x + axes[2, 1] * y + axes[2, 2] * z,
    )


@compiled
def _is_in_face(right: float, up: float) -> bool:
    """Whether a point of the cube's front, m from its middle, is part of an eye or the mouth."""
    across = abs(right) - FACE_EYES_M[0]
    above = up - FACE_EYES_M[1]
    if across * across + above * above < FACE_EYE_RADIUS_M * FACE_EYE_RADIUS_M:
        return True
    return abs(right) < FACE_MOUTH_M[0] and FACE_MOUTH_M[1] < up < FACE_MOUTH_M[2]
