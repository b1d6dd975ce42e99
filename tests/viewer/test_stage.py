"""Where things are on a page whose camera follows a ragdoll."""

from dataclasses import replace

import numpy as np
import pytest

from touchline.envs.env import EnvRecipe
from touchline.viewer.insight import Seat
from touchline.viewer.opening import ViewOptions, opened
from touchline.viewer.stage import swap_axes

AWAY = np.array([3.0, 0.5, -2.0])


@pytest.fixture
def page():
    recipe = EnvRecipe("scene", "Walker", num_areas=1)
    with opened(recipe, ["random"], ViewOptions(port=0)) as page:
        page.simulation.pause()
        yield page


def walked(tableau):
    """The same ragdoll and its camera somewhere else."""
    camera = tableau.camera
    eye, target = np.add(camera.eye, AWAY), np.add(camera.target, AWAY)
    moving = replace(tableau.moving, position=tableau.moving.position + AWAY)
    camera = replace(camera, eye=tuple(eye), target=tuple(target))
    return replace(tableau, moving=moving, camera=camera)


def test_a_ragdoll_that_has_walked_away_is_where_it_began(page):
    """The scene moves back under the camera, and so do clicks and new viewers' cameras."""
    stage, frame = page.stage, page.simulation.frame
    stage.show(frame.tableaux)
    (body,) = page.simulation.env.scene.agent_shapes()
    center = frame.tableaux[0].moving.position[body] + stage.offsets[0]
    eye = swap_axes(center + (0.0, 0.0, -5.0))
    begun = page._view(1.5)
    page.simulation.frame = replace(frame, tableaux={0: walked(frame.tableaux[0])})
    stage.show(page.simulation.frame.tableaux)
    for now, before in zip(page._view(1.5), begun, strict=True):
        np.testing.assert_allclose(now, before, atol=1e-9)
    assert page._seat_at(eye, swap_axes(np.array([0.0, 0.0, 1.0]))) == Seat(0, 0)
