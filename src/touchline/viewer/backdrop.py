"""The look of scenes (`drawing.look`) in a page: light and shadows, the ground, the sky.

three.js, which viser draws with, maps all tones by a curve that films do not have (ACES), and adds
up light where brightness is linear. What is given to it here is therefore what comes out as in a
film: colors through the inverse of that curve, and brightnesses of light that fit them.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray

from touchline.drawing.look import (
    FILL_DIRECTION,
    GROUND_REACH,
    SUN_DIRECTION,
    Light,
    ground_colors,
    sky_colors,
)
from touchline.drawing.tableau import DrawnShapes
from touchline.physics.frames import rotate, swap_axes

Array = NDArray[np.float64]

# ACESInputMat and ACESOutputMat of three.js' tone mapping shader, as rows.
_TO_ACES = np.array(
    [
        (0.59719, 0.35458, 0.04823),
        (0.07600, 0.90834, 0.01566),
        (0.02840, 0.13383, 0.83777),
    ]
)
_FROM_ACES = np.array(
    [
        (1.60475, -0.53108, -0.07367),
        (-0.10208, 1.10813, -0.00605),
        (-0.00327, -0.07276, 1.07602),
    ]
)
# three.js divides the exposure by 0.6 before the curve.
_EXPOSURE = 1 / 0.6
_BRIGHTEST = 2.1
"""What the curve needs for the brightest white of scenes; colors of instances end at 1."""
_GLOSS = 0.022
"""What three.js' matt surfaces return besides their color, measured on a dark floor."""
_SHADES = np.array([1.0, 0.71, 0.62, 0.55, 0.4])
_SHADE_WEIGHTS = (3.0, 1.0, 1.0, 1.0, 1.0)
"""Brightness of a box's top and of its sides in daylight; the top is seen most."""
_SUN_AWAY = 6.0
"""Distance of the sun in units of what it shines on, far enough for nearly parallel rays."""


def page_colors(color: NDArray[Any]) -> Array:
    """What three.js shows as these colors [..., 3], where light is 1: linear, 0 or more.

    Inverse of three.js' `ACESFilmicToneMapping` and of its sRGB encoding.
    """
    shown = np.asarray(color, np.float64)
    linear = np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4)
    # Toward 1 the curve is nearly flat: 0.95 takes an input of 6, and 1 would take one of 26.
    fitted = np.clip(linear @ np.linalg.inv(_FROM_ACES).T, 0.0, 0.95)
    # fitted = (v (v + 0.0245786) - 0.000090537) / (v (0.983729 v + 0.4329510) + 0.238081)
    a = 1.0 - 0.983729 * fitted
    b = 0.0245786 - 0.4329510 * fitted
    c = -0.000090537 - 0.238081 * fitted
    v = (-b + np.sqrt(b * b - 4.0 * a * c)) / (2.0 * a)
    color_in = np.maximum(v @ np.linalg.inv(_TO_ACES).T, 0.0)
    return np.asarray(color_in / _EXPOSURE)


def instance_colors(color: NDArray[Any], *, is_flat: bool = False) -> NDArray[np.uint8]:
    """Colors [S, 3] of surfaces, as instances take them; flat light has no gloss.

    What is right in full light is too saturated in the shade; a mean of both is wrong by less.
    """
    if is_flat:
        linear = page_colors(color)
    else:
        shown = _SHADES[:, None] * np.asarray(color)[..., None, :]  # [S, shades, 3]
        needed = page_colors(shown) / _SHADE_LIGHT[:, None]
        linear = np.average(needed, axis=-2, weights=_SHADE_WEIGHTS) - _GLOSS
    share = np.clip(linear / _BRIGHTEST, 0.0, 1.0)
    return np.asarray(np.rint(255.0 * share), np.uint8)


def _needed(shown: Array) -> Array:
    """Brightness of light, where it is linear, that shows a gray by so much [K] darker."""
    gray = 0.6 * np.array([1.0, *shown])
    linear = page_colors(np.repeat(gray[:, None], 3, axis=1))[:, 0]
    return np.asarray(linear[1:] / linear[0])


_SHADE_LIGHT = _needed(_SHADES)


def line_colors(color: NDArray[Any]) -> NDArray[np.uint8]:
    """Colors [..., 3] of lines, which are not lit."""
    return np.asarray(np.rint(255.0 * np.minimum(page_colors(color), 1.0)), np.uint8)


def light_up(
    scene: viser.SceneApi, light: Light, middle: Array, radius: float, root: str
) -> viser.SpotLightHandle:
    """Light what is within this radius of the middle [3], both in the page's frame.

    Returns the sun, which alone casts shadows.
    """
    scene.configure_default_lights(False)
    scene.configure_environment_map(None)
    # Times pi, because three.js' matt surfaces return color / pi of their light.
    ambient, sun, fill = np.pi * _BRIGHTEST * np.array(_page_brightness(light))
    scene.add_light_ambient(f"{root}/ambient", intensity=ambient)
    scene.add_light_directional(
        f"{root}/fill",
        intensity=fill,
        position=_triple(swap_axes(-np.array(FILL_DIRECTION))),
    )
    # A spot's shadows reach as far as its light, unlike those of viser's directional lights.
    sun_way = swap_axes(np.array(SUN_DIRECTION))
    return scene.add_light_spot(
        f"{root}/sun",
        intensity=sun,
        decay=0.0,
        # No wider than needed: a spot's shadow map covers its cone, so a wide one is coarse.
        angle=float(np.arctan(1.0 / _SUN_AWAY)),
        cast_shadow=True,
        direction=_triple(sun_way),
        position=_triple(middle - _SUN_AWAY * radius * sun_way),
    )


def _triple(vector: Array) -> tuple[float, float, float]:
    x, y, z = map(float, vector)
    return x, y, z


def _page_brightness(light: Light) -> tuple[float, float, float]:
    """Ambient, sun and fill where light is linear, as they show a gray least unlike a film.

    Fitted over the sides of a box, in the sun and in the shade.
    """
    normals = np.concatenate([np.eye(3), -np.eye(3)])
    sun = np.maximum(-normals @ SUN_DIRECTION, 0.0)
    fill = np.maximum(-normals @ FILL_DIRECTION, 0.0)
    sides = np.concatenate(
        [
            np.stack([np.ones(6), sun, fill], axis=1),
            np.stack([np.ones(6), np.zeros(6), fill], axis=1),
        ]
    )
    shown = np.minimum(sides @ (light.ambient, light.sun, light.fill), 1.0)
    weights, *_ = np.linalg.lstsq(sides, _needed(shown), rcond=None)
    ambient, sunny, filled = np.maximum(weights, 0.0)
    return float(ambient), float(sunny), float(filled)


def shade(light: Light) -> float:
    return min(1.0, light.sun * -SUN_DIRECTION[1])


def ground_glb(distance_m: float) -> bytes:
    """A disk around the origin that fades toward the horizon, for an eye so far away."""
    reach = GROUND_REACH * np.linspace(0.0, 1.0, 41) ** 2
    around = np.linspace(0.0, 2.0 * np.pi, 65)
    circle = np.stack([np.cos(around), np.sin(around), np.zeros(65)], axis=1)
    corners = distance_m * reach[:, None, None] * circle
    colors = np.repeat(ground_colors(reach)[:, None], 65, axis=1)
    return _glb(corners, colors, _faces(41, 65))


def sky_glb(radius_m: float) -> bytes:
    """A sphere around the origin, seen from within."""
    height = np.sin(np.linspace(np.pi / 2, -np.pi / 2, 33))
    # Backward, so that triangles face inward; those that face away are not drawn.
    around = np.linspace(0.0, -2.0 * np.pi, 33)
    flat = np.sqrt(1.0 - height**2)[:, None]
    up = np.repeat(height[:, None], 33, axis=1)
    corners = np.stack([flat * np.cos(around), flat * np.sin(around), up], axis=2)
    return _glb(radius_m * corners, sky_colors(up), _faces(33, 33))


def floor_glb(planes: DrawnShapes) -> bytes:
    """Planes [S] in their own colors: they face up, where the brightness of all light is 1."""
    around = np.array(
        [(-1.0, 0.0, -1.0), (1.0, 0.0, -1.0), (1.0, 0.0, 1.0), (-1.0, 0.0, 1.0)]
    )
    offsets = planes.size[:, None] * around  # [S, 4, 3]
    corners = planes.position[:, None] + rotate(planes.rotation[:, None], offsets)
    # What lies under them is far from the eye where several areas are shown.
    corners[..., 1] += 0.004
    colors = np.repeat(planes.color[:, None, :3], 4, axis=1)
    first = 4 * np.arange(len(planes))[:, None]
    return _glb(swap_axes(corners), colors, first + (0, 1, 2, 0, 2, 3))


def _faces(rows: int, columns: int) -> NDArray[np.intp]:
    """Triangles of a grid of corners, seen from where lower rows go counterclockwise."""
    first = (
        np.arange((rows - 1) * columns)
        .reshape(rows - 1, columns)[:, :-1]
        .reshape(-1, 1)
    )
    return np.asarray(first + (0, columns, columns + 1, 0, columns + 1, 1))


def _glb(corners: Array, colors: NDArray[Any], faces: NDArray[np.intp]) -> bytes:
    """Triangles between corners [..., 3] with colors, not lit, as a binary glTF file.

    Its frame is the page's: here z is up, too.
    """
    parts = [
        corners.reshape(-1, 3).astype("<f4"),
        page_colors(colors).reshape(-1, 3).astype("<f4"),
        faces.reshape(-1).astype("<u4"),
    ]
    blob = b"".join(part.tobytes() for part in parts)
    starts = np.cumsum([0, *(part.nbytes for part in parts)])
    views = [
        {"buffer": 0, "byteOffset": int(start), "byteLength": part.nbytes}
        for start, part in zip(starts, parts, strict=False)
    ]
    # OpenGL's numbers, which glTF took over: 5126 is float32, 5125 is uint32.
    vectors = {"componentType": 5126, "count": len(parts[0]), "type": "VEC3"}
    # glTF 2.0 requires these of positions, and of nothing else here.
    bounds = {"min": parts[0].min(0).tolist(), "max": parts[0].max(0).tolist()}
    indices = {"componentType": 5125, "count": faces.size, "type": "SCALAR"}
    mesh = {"attributes": {"POSITION": 0, "COLOR_0": 1}, "indices": 2, "material": 0}
    tree = {
        "asset": {"version": "2.0"},
        "extensionsUsed": ["KHR_materials_unlit"],
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [mesh]}],
        "materials": [{"extensions": {"KHR_materials_unlit": {}}}],
        "accessors": [
            {"bufferView": 0, **vectors, **bounds},
            {"bufferView": 1, **vectors},
            {"bufferView": 2, **indices},
        ],
        "bufferViews": views,
        "buffers": [{"byteLength": len(blob)}],
    }
    text = json.dumps(tree).encode()
    # glTF 2.0: chunks start at multiples of 4 bytes, and JSON is filled up with spaces.
    text += b" " * (-len(text) % 4)
    chunks = struct.pack("<I4s", len(text), b"JSON") + text
    chunks += struct.pack("<I4s", len(blob), b"BIN\0") + blob
    return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks
