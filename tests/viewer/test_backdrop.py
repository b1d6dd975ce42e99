"""Pages show the colors that films show."""

import io

import numpy as np
import pytest
import trimesh

from touchline.drawing import look
from touchline.drawing.look import DAYLIGHT, FLAT, GROUND_REACH
from touchline.drawing.tableau import floor_shapes
from touchline.physics.shapes import box
from touchline.viewer.backdrop import (
    floor_glb,
    ground_glb,
    instance_colors,
    page_colors,
    shade,
    sky_glb,
)

COLORS = {
    name: value[:3]
    for name, value in vars(look).items()
    if name.isupper() and isinstance(value, tuple) and len(value) == 4
}


def shown_by_three(color):
    """three.js' `ACESFilmicToneMapping` at exposure 1, then its sRGB encoding, as in its shaders."""
    to_aces = np.array(
        [
            (0.59719, 0.35458, 0.04823),
            (0.07600, 0.90834, 0.01566),
            (0.02840, 0.13383, 0.83777),
        ]
    )
    from_aces = np.array(
        [
            (1.60475, -0.53108, -0.07367),
            (-0.10208, 1.10813, -0.00605),
            (-0.00327, -0.07276, 1.07602),
        ]
    )
    v = to_aces @ (color / 0.6)
    v = (v * (v + 0.0245786) - 0.000090537) / (
        v * (0.983729 * v + 0.4329510) + 0.238081
    )
    v = np.clip(from_aces @ v, 0.0, 1.0)
    return np.where(v <= 0.0031308, 12.92 * v, 1.055 * v ** (1 / 2.4) - 0.055)


@pytest.mark.parametrize("name", COLORS)
def test_every_material_has_a_color_that_a_page_can_show(name):
    wanted = np.array(COLORS[name])
    np.testing.assert_allclose(shown_by_three(page_colors(wanted)), wanted, atol=0.06)
    in_instances = 2.1 * instance_colors(wanted[None], is_flat=True)[0] / 255
    np.testing.assert_allclose(shown_by_three(in_instances), wanted, atol=0.07)


@pytest.mark.parametrize("name", COLORS)
def test_no_side_of_a_box_is_far_from_its_color_in_a_film(name):
    wanted, gloss = np.array(COLORS[name]), 0.022
    color = 2.1 * instance_colors(wanted[None])[0] / 255 + gloss
    for shown in (1.0, 0.7, 0.55):
        light = page_colors(np.full(3, 0.6 * shown)) / page_colors(np.full(3, 0.6))
        np.testing.assert_allclose(
            shown_by_three(color * light), shown * wanted, atol=0.23
        )


@pytest.mark.parametrize("glb", [ground_glb(30.0), sky_glb(900.0)])
def test_ground_and_sky_are_meshes_that_other_readers_open(glb):
    mesh = trimesh.load(io.BytesIO(glb), file_type="glb", force="mesh")
    assert np.isfinite(mesh.vertices).all()
    assert np.abs(mesh.vertices).max() == pytest.approx(
        GROUND_REACH * 30.0 if len(mesh.vertices) > 2000 else 900.0, rel=0.01
    )


def test_a_floor_faces_up_and_covers_its_box():
    row = box((1.0, 0.0, 2.0), (10.0, 1.0, 20.0))
    shapes = floor_shapes(row, cells=(5, 4))
    is_plane = shapes.kind == shapes.kind[-1]
    planes = type(shapes)(**{key: a[is_plane] for key, a in vars(shapes).items()})
    assert len(planes) == 20
    mesh = trimesh.load(io.BytesIO(floor_glb(planes)), file_type="glb", force="mesh")
    assert mesh.area == pytest.approx(200.0)
    assert (mesh.face_normals[:, 2] > 0.99).all()
    np.testing.assert_allclose(mesh.bounds[:, :2], [(-4.0, -8.0), (6.0, 12.0)])
    assert 0.5 < mesh.bounds[0, 2] < 0.51, "just above the box, in a frame with z up"


def test_light_adds_up_to_one_on_a_floor_and_flat_light_has_no_shadows():
    up = (0.0, 1.0, 0.0)
    total = DAYLIGHT.ambient
    total -= DAYLIGHT.sun * np.dot(look.SUN_DIRECTION, up)
    total -= DAYLIGHT.fill * np.dot(look.FILL_DIRECTION, up)
    assert total == pytest.approx(1.0, abs=0.01)
    assert shade(FLAT) == 0.0
