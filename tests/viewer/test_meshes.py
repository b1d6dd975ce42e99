"""Tableaux as copies of unit meshes."""

import numpy as np
import pytest

from touchline.drawing.look import BLUE, CLEAR_GREEN
from touchline.drawing.tableau import Kind, join, make_shapes
from touchline.scenes import SCENES, scene_class
from touchline.viewer.meshes import copies_of, unit_mesh


@pytest.mark.parametrize(
    ("kind", "ratio"), [(Kind.BOX, 0.0), (Kind.SPHERE, 0.0), (Kind.CAPSULE, 1.5)]
)
def test_a_mesh_is_closed_and_its_triangles_face_outward(kind, ratio):
    vertices, faces = unit_mesh(kind, ratio)
    a, b, c = (vertices[faces[:, k]].astype(np.float64) for k in range(3))
    normals = np.cross(b - a, c - a)
    centers = (a + b + c) / 3.0
    # Triangles at a pole have no area.
    assert (np.einsum("fk,fk->f", normals, centers) >= -1e-6).all()
    # The volume by the divergence theorem, against the formula.
    volume = np.einsum("fk,fk->", a, normals) / 6.0
    expected = {
        Kind.BOX: 8.0,
        Kind.SPHERE: 4 / 3 * np.pi,
        Kind.CAPSULE: 4 / 3 * np.pi + 2 * ratio * np.pi,
    }[kind]
    assert volume == pytest.approx(expected, rel=0.04)


def test_shapes_of_one_mesh_are_copies_of_it_in_a_frame_with_z_up():
    shapes = join(
        make_shapes(Kind.BOX, (1.0, 2.0, 3.0), (10.0, 20.0, 30.0), BLUE),
        make_shapes(Kind.BOX, 1.0, np.zeros((2, 3)), CLEAR_GREEN),
        make_shapes(Kind.CAPSULE, (0.5, 1.0, 0.5), (0.0, 1.0, 0.0), BLUE),
        make_shapes(Kind.ELLIPSOID, (1.0, 2.0, 3.0), (0.0, 0.0, 0.0), BLUE),
    )
    copies = copies_of(shapes)
    by_name = {(key.kind, key.ratio, key.is_clear): c for key, c in copies.items()}
    solid = by_name[Kind.BOX, 0.0, False]
    assert solid.position.tolist() == [[10.0, 30.0, 20.0]]
    assert solid.scale.tolist() == [[1.0, 3.0, 2.0]]
    assert solid.wxyz.tolist() == [[1.0, 0.0, 0.0, 0.0]]
    clear = by_name[Kind.BOX, 0.0, True]
    assert clear.index.tolist() == [1, 2]
    assert clear.opacity == pytest.approx(CLEAR_GREEN[3])
    capsule = by_name[Kind.CAPSULE, 2.0, False]
    assert capsule.scale.tolist() == [[0.5, 0.5, 0.5]]
    assert by_name[Kind.SPHERE, 0.0, False].scale.tolist() == [[1.0, 3.0, 2.0]]


@pytest.mark.parametrize("name", ["3DBall", "SoccerTwos", "GridWorld", "Match3"])
def test_every_shape_of_a_scene_is_a_copy_of_some_mesh(name):
    assert name in SCENES
    scene = scene_class(name)(1)
    scene.restart()
    scene.begin_episodes(np.arange(scene.academy.agent_id.size))
    shapes = scene.tableau(0).shapes
    index = np.concatenate([c.index for c in copies_of(shapes).values()])
    assert sorted(index.tolist()) == list(range(len(shapes)))
    scene.close()
