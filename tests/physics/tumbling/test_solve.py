"""Contacts of cubes that tumble: what impulses may and may not do."""

import numpy as np
import pytest
from tests.physics.tumbling.test_touch import cuboid, random_turn

from touchline.physics.tumbling.patches import add_patch, new_contacts
from touchline.physics.tumbling.solve import solve
from touchline.physics.tumbling.touch import new_touching, touch, touch_plane
from touchline.physics.world import DT_S, GRAVITY

CUBE_KG = 2.0
CUBE = (1 / CUBE_KG, 6 / CUBE_KG)
STATIC = (0.0, 0.0)


def solved(cuboids, velocity, pairs, friction=0.6, on_floor=()):
    """Kept and moving velocities after one step's contacts, without gravity."""
    count = len(cuboids)
    inverse = np.array([CUBE] * count + [STATIC])
    contacts = new_contacts(count)
    room = new_touching()
    kept = np.vstack([velocity, np.zeros(6)])
    n = 0
    for a, b in pairs:
        found = touch(cuboids[a], cuboids[b], room)
        centers = tuple(cuboids[a][:3]), tuple(cuboids[b][:3])
        n = add_patch(contacts, n, a, b, room, found, centers, friction, kept, inverse)
    for a in on_floor:
        found = touch_plane(cuboids[a], (0.0, 1.0, 0.0), 0.0, room)
        centers = tuple(cuboids[a][:3]), (0.0, 0.0, 0.0)
        n = add_patch(
            contacts, n, a, count, room, found, centers, friction, kept, inverse
        )
    moving = np.empty_like(kept)
    solve(contacts, n, kept, inverse, moving)
    return kept[:-1], moving[:-1]


def test_two_cubes_that_meet_keep_their_momentum_and_their_angular_momentum():
    rng = np.random.default_rng(0)
    met = 0
    for _ in range(100):
        cubes = [
            cuboid(rng.uniform(-0.45, 0.45, 3), turn=random_turn(rng)) for _ in "ab"
        ]
        before = rng.normal(0, 3, (2, 6))
        after, _ = solved(cubes, before, [(0, 1)])
        met += not np.allclose(before, after)
        center = np.array([c[:3] for c in cubes])
        for v in (before, after):
            momentum = CUBE_KG * v[:, :3].sum(axis=0)
            spin = (CUBE_KG / 6 * v[:, 3:]).sum(axis=0)
            spin = spin + CUBE_KG * np.cross(center, v[:, :3]).sum(axis=0)
            if v is before:
                want = momentum, spin
        assert momentum == pytest.approx(want[0])
        # Friction and normals act at one point on both cubes.
        assert spin == pytest.approx(want[1], abs=1e-9)
        energy = [
            (v[:, :3] ** 2).sum() + (v[:, 3:] ** 2).sum() / 6 for v in (before, after)
        ]
        assert energy[1] <= energy[0] * (1 + 1e-6), "nothing bounces"
    assert met > 50


def test_a_cube_that_falls_on_the_floor_stops_and_one_that_slides_is_braked():
    cube = cuboid((0, 0.5, 0))
    kept, _ = solved([cube], [[0, -3.0, 0, 0, 0, 0]], [], on_floor=[0])
    assert kept[0] == pytest.approx(np.zeros(6), abs=1e-3)
    down = -GRAVITY * DT_S
    kept, _ = solved([cube], [[5.0, down, 0, 0, 0, 0]], [], 0.3, on_floor=[0])
    # Two anchors: twice the coefficient. With twice 0.6 the cube would tip over.
    assert kept[0, 0] == pytest.approx(5 + 2 * 0.3 * down, abs=2e-3)


def test_a_penetration_is_removed_but_gives_no_velocity():
    cube = cuboid((0, 0.4, 0))
    kept, moving = solved([cube], [[0, 0.0, 0, 0, 0, 0]], [], on_floor=[0])
    assert moving[0, 1] == pytest.approx(0.8 * 0.1 / DT_S, abs=0.02)
    assert kept[0, 1] == pytest.approx(0, abs=1e-2)
