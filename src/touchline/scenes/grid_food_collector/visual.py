"""VisualFoodCollector: the food court, observed by a camera on each agent.

Pixels cannot match Unity's: resolution, place and lens of the camera do, and so do the sizes and
places of what it shows. An item is drawn with the radius of its mesh, which is smaller than that of
its collider. Colors are worked out from materials and the scene's lights, without shadows; the
other court, headbands and the flash of an agent that has just eaten are left out. An agent does not
see its own beam: the camera is inside of it.

Source: ML-Agents Release 22, `VisualFoodCollectorArea.prefab`, `VisualFoodCollector.unity`,
`Food.prefab`, `AgentBlue.mat`, `Green.mat`, `RedEmissive.mat`.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, inlined, makes_arrays
from touchline.physics.shapes import (
    BOX_TAG,
    COS,
    HALF_X,
    ROUND_TAG,
    SIN,
    Floats,
    Vector,
    X,
    Y,
    Z,
)
from touchline.scenes.academy import Agents
from touchline.scenes.grid_food_collector.court import (
    COURT_M,
    FLOOR_Y,
    FOOD,
    TAG_FOOD,
    TAG_FROZEN,
    Courts,
)
from touchline.scenes.grid_food_collector.game import GridFoodCollector, size_of_state
from touchline.sensors.cameras import MISS, brightness, meet_ball, meet_box, view_rays
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

UNIT_HALF = (1.0, 1.0, 1.0)
"""Half of the size of a cube in its own frame, which is scaled to it."""
BEHAVIOR = "VisualFoodCollector?team=0"
SIDE = 84
EYE_AHEAD_M, FIELD_OF_VIEW_DEG = 0.15, 60.0
"""The camera looks level from here, relative to the agent's center."""
SHOWN_RADIUS_M = 0.5
"""Radius of an item: Unity's sphere mesh at scale 1. Its collider has 0.75 m."""
WALL_TOP_Y = FLOOR_Y + 2.5
SHOWN_BEAM_M = (0.77, 0.26, 20.0)
"""The wider of the beam's two cubes, at `laser_length` 1; it begins at the agent's center."""
BEAM_Y_M = -0.06
FACE_EYES_M, FACE_EYE_RADIUS_M = (0.3, 0.074), 0.147
FACE_MOUTH_M = (0.138, 0.021, -0.183)
"""Half of the mouth's width and height, and where its middle is."""

_COLORS = np.array(
    [
        (0.467, 0.565, 0.608),  # the camera's background
        (0.116, 0.116, 0.116),  # the cells of the project's grid materials
        (
            0.392,
            0.392,
            0.392,
        ),  # as GridWorld's walls; the court's own material is not known
        (0.509, 0.509, 0.509),  # good food, and what it emits below
        (0.519, 0.519, 0.519),  # bad food
        (0.129, 0.588, 0.953),  # AgentBlue
        (0.9, 0.9, 0.9),  # a frozen agent: white in ML-Agents' pictures
        (0.05, 0.05, 0.05),  # eyes and mouth
        (1.0, 0.1, 0.1),  # the beam: red in ML-Agents' pictures
    ]
)
_GLOW = np.zeros_like(_COLORS)
"""What materials emit by themselves."""
_SKY, _FLOOR, _WALL, _GOOD, _BAD, _AGENT, _FROZEN, _FACE, _BEAM = range(9)
_GLOW[_GOOD] = 0.375, 0.83, 0.0
_GLOW[_BAD] = 1.0, 0.0, 0.0


class VisualFoodCollector(GridFoodCollector):
    """Gather good food, avoid bad food, and freeze other agents, all seen through a camera.

    | observation | shape | meaning |
    | --- | --- | --- |
    | `CameraSensor` | (3, 84, 84) | red, green, blue in 0 to 1, from the agent's center ahead |
    | `VectorSensor_size1` | (1,) | 1 while the agent is frozen |

    Four agents on each of two courts. The lens takes 60°. Actions, rewards and parameters are
    GridFoodCollector's.
    """

    name = "VisualFoodCollector"
    unity_areas = 2
    behaviors = {
        BEHAVIOR: BehaviorSpec(
            (
                ObservationSpec.picture((3, SIDE, SIDE), "CameraSensor"),
                ObservationSpec.vector(1, "VectorSensor_size1"),
            ),
            ActionSpec.create_hybrid(3, (2,)),
        )
    }
    agents_per_area = 4
    state_size = size_of_state(agents_per_area)

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        self._rays = view_rays(0.0, FIELD_OF_VIEW_DEG, SIDE, SIDE)

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        count = len(agents)
        picture = np.empty((count, 3, SIDE, SIDE), np.float32)
        self._threads.run(
            draw, count, agents, self.courts, self._laser, self._rays, picture
        )
        frozen = self.courts.frozen.reshape(-1)[agents] > 0
        return [picture, frozen[:, None].astype(np.float32)]

    def cells(self, area: int, agent: int) -> None:
        return None


class _View(NamedTuple):
    """One agent's picture while it is drawn."""

    eye: Vector
    cos: float
    sin: float
    rays: Floats
    """[H, W, 3] in the camera's frame."""
    far: Floats
    """[H, W] how far along each ray lies what it shows so far."""
    picture: NDArray[np.float32]
    """[3, H, W]"""


@makes_arrays
def draw(
    first: int,
    last: int,
    agents: NDArray[np.intp],
    courts: Courts,
    laser: Floats,
    rays: Floats,
    pictures: NDArray[np.float32],
) -> None:
    """Fill pictures [K, 3, H, W], in whole 255ths: Unity sends PNG files."""
    far = np.empty(pictures.shape[2:])
    count = courts.agent.shape[1]
    for row in range(first, last):
        a = agents[row] // count
        g = agents[row] % count
        me = courts.agent[a, g]
        ahead = 2.0 * me[HALF_X] * EYE_AHEAD_M
        eye = (me[X] + ahead * me[SIN], me[Y], me[Z] + ahead * me[COS])
        view = _View(eye, me[COS], me[SIN], rays, far, pictures[row])
        _draw_court(view)
        for k in range(FOOD):
            _draw_item(view, courts.food[a, k])
        for k in range(count):
            if k != g:
                _draw_agent(view, courts.agent[a, k])
                if courts.shooting[a, k]:
                    _draw_beam(view, courts.agent[a, k], laser[a, k])


@inlined
def _paint(
    view: _View, row: int, column: int, what: int, light: float, far: float
) -> None:
    view.far[row, column] = far
    for c in range(3):
        shade = min(_COLORS[what, c] * light + _GLOW[what, c], 1.0)
        view.picture[c, row, column] = np.rint(shade * 255.0) / 255.0


@inlined
def _in_area(view: _View, x: float, y: float, z: float) -> Vector:
    """A vector of the camera's frame in the area's."""
    return x * view.cos + z * view.sin, y, z * view.cos - x * view.sin


@compiled
def _draw_court(view: _View) -> None:
    """Floor and walls, and the background above them."""
    eye = view.eye
    floor_light = brightness(0.0, 1.0, 0.0)
    for row in range(view.rays.shape[0]):
        for column in range(view.rays.shape[1]):
            ray = view.rays[row, column]
            x, y, z = _in_area(view, ray[0], ray[1], ray[2])
            # The walls' inner faces: the one that the ray meets first.
            side_x = math.copysign(1.0, x)
            side_z = math.copysign(1.0, z)
            to_x = (COURT_M - side_x * eye[0]) / max(abs(x), 1e-12)
            to_z = (COURT_M - side_z * eye[2]) / max(abs(z), 1e-12)
            far = min(to_x, to_z)
            height = eye[1] + far * y
            if height < FLOOR_Y:
                _paint(view, row, column, _FLOOR, floor_light, (FLOOR_Y - eye[1]) / y)
            elif height > WALL_TOP_Y:
                _paint(view, row, column, _SKY, 1.0, MISS)
            elif to_x < to_z:
                light = brightness(-side_x, 0.0, 0.0)
                _paint(view, row, column, _WALL, light, far)
            else:
                light = brightness(0.0, 0.0, -side_z)
                _paint(view, row, column, _WALL, light, far)


@inlined
def _from_camera(view: _View, x: float, y: float, z: float) -> Vector:
    """A point of the area in the camera's frame."""
    dx = x - view.eye[0]
    dz = z - view.eye[2]
    return (
        dx * view.cos - dz * view.sin,
        y - view.eye[1],
        dx * view.sin + dz * view.cos,
    )


@compiled
def _window(view: _View, center: Vector, radius: float) -> tuple[int, int, int, int]:
    """The rows and columns (first, end) that may show a ball; none of one behind the camera."""
    # A ball's outline lies where rays touch it. In the plane of depth and one axis across, their
    # slopes are (x z ± r √(x² + z² − r²)) / (z² − r²).
    x, y, z = center
    height, width = view.far.shape
    if z <= -radius:
        return 0, 0, 0, 0
    square = z * z - radius * radius
    # As deep as the camera, its outline may be anywhere in the picture.
    if z <= radius or square < 1e-9:
        return 0, height, 0, width
    half = math.tan(math.radians(FIELD_OF_VIEW_DEG) / 2)
    across = radius * math.sqrt(x * x + square)
    upward = radius * math.sqrt(y * y + square)
    left = (x * z - across) / square / half
    right = (x * z + across) / square / half
    top = (y * z + upward) / square / half
    bottom = (y * z - upward) / square / half
    first_row = int(max(math.floor((1.0 - top) * height / 2), 0.0))
    end_row = int(min(math.ceil((1.0 - bottom) * height / 2), float(height)))
    first_column = int(max(math.floor((1.0 + left) * width / 2), 0.0))
    end_column = int(min(math.ceil((1.0 + right) * width / 2), float(width)))
    return first_row, end_row, first_column, end_column


@compiled
def _draw_item(view: _View, item: Floats) -> None:
    center = _from_camera(view, item[X], item[Y], item[Z])
    what = _GOOD if item[ROUND_TAG] == TAG_FOOD else _BAD
    top, bottom, left, right = _window(view, center, SHOWN_RADIUS_M)
    for row in range(top, bottom):
        for column in range(left, right):
            ray = view.rays[row, column]
            far = meet_ball((0.0, 0.0, 0.0), ray, center, SHOWN_RADIUS_M)
            if far < view.far[row, column]:
                normal = _in_area(
                    view,
                    (far * ray[0] - center[0]) / SHOWN_RADIUS_M,
                    (far * ray[1] - center[1]) / SHOWN_RADIUS_M,
                    (far * ray[2] - center[2]) / SHOWN_RADIUS_M,
                )
                light = brightness(normal[0], normal[1], normal[2])
                _paint(view, row, column, what, light, far)


@compiled
def _draw_agent(view: _View, agent: Floats) -> None:
    half = agent[HALF_X]
    what = _FROZEN if agent[BOX_TAG] == TAG_FROZEN else _AGENT
    at = (agent[X], agent[Y], agent[Z])
    _draw_box(view, at, agent, (half, half, half), what)


@compiled
def _draw_beam(view: _View, agent: Floats, laser: float) -> None:
    """The beam is a child of its agent, whose scale it takes."""
    scale = 2.0 * agent[HALF_X]
    # Never without length, because `_draw_box` divides by it.
    half = (
        0.5 * scale * SHOWN_BEAM_M[0],
        0.5 * scale * SHOWN_BEAM_M[1],
        max(0.5 * scale * SHOWN_BEAM_M[2] * laser, 1e-6),
    )
    at = (
        agent[X] + half[2] * agent[SIN],
        agent[Y] + scale * BEAM_Y_M,
        agent[Z] + half[2] * agent[COS],
    )
    _draw_box(view, at, agent, half, _BEAM)


@compiled
def _draw_box(view: _View, at: Vector, turned: Floats, half: Vector, what: int) -> None:
    """A box around `at` that is turned as the upright box `turned` is."""
    around = math.sqrt(half[0] * half[0] + half[1] * half[1] + half[2] * half[2])
    center = _from_camera(view, at[0], at[1], at[2])
    top, bottom, left, right = _window(view, center, around)
    cos, sin = turned[COS], turned[SIN]
    dx, dy, dz = view.eye[0] - at[0], view.eye[1] - at[1], view.eye[2] - at[2]
    # Measured in half sizes the box is a cube.
    eye = (
        (dx * cos - dz * sin) / half[0],
        dy / half[1],
        (dx * sin + dz * cos) / half[2],
    )
    for row in range(top, bottom):
        for column in range(left, right):
            own = view.rays[row, column]
            x, y, z = _in_area(view, own[0], own[1], own[2])
            ray = (
                (x * cos - z * sin) / half[0],
                y / half[1],
                (x * sin + z * cos) / half[2],
            )
            far, face = meet_box(eye, ray, UNIT_HALF)
            if far >= view.far[row, column]:
                continue
            side = 1.0 if ray[face] < 0.0 else -1.0
            light = brightness(0.0, side, 0.0)
            if face == 0:
                light = brightness(side * cos, 0.0, -side * sin)
            elif face == 2:
                light = brightness(side * sin, 0.0, side * cos)
            shown = what
            if face == 2 and side > 0.0 and what != _BEAM:
                # On a cube of 1 m, whatever its scale.
                right_m = 0.5 * (eye[0] + far * ray[0])
                up_m = 0.5 * (eye[1] + far * ray[1])
                shown = _FACE if _is_in_face(right_m, up_m) else what
            _paint(view, row, column, shown, light, far)


@compiled
def _is_in_face(right: float, up: float) -> bool:
    """Whether a point of an agent's front, m from its middle, is part of an eye or the mouth."""
    across = abs(right) - FACE_EYES_M[0]
    above = up - FACE_EYES_M[1]
    if across * across + above * above < FACE_EYE_RADIUS_M * FACE_EYE_RADIUS_M:
        return True
    half_width, half_height, middle = FACE_MOUTH_M
    return abs(right) < half_width and abs(up - middle) < half_height
