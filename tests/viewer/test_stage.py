"""Where things are on a page: the camera, what it follows, marks, names and the scoreboard."""

import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest
from tests.viewer.browser import wait_for

from touchline.envs.env import EnvRecipe, make
from touchline.viewer.insight import Seat
from touchline.viewer.opening import ViewOptions, opened
from touchline.viewer.scoreboard import Scoreboard
from touchline.viewer.server import LOOPBACK, close_server, open_server
from touchline.viewer.stage import Stage, camera_of, grid_places, swap_axes

AWAY = np.array([3.0, 0.5, -2.0])


@pytest.fixture
def page():
    recipe = EnvRecipe("scene", "Walker", num_areas=1)
    with opened(recipe, ["random"], ViewOptions(port=0)) as page:
        simulation, stands = page.simulation, threading.Event()

        def stop():
            simulation.pause()
            stands.set()

        simulation.order("play", stop)
        assert stands.wait(60.0)
        wait_for(lambda: page._drawn == simulation.frame.number)
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


class Phone:
    """A narrow page, whose camera and whose player panels ask for no more than this."""

    def __init__(self, first):
        self.camera, self.client_id = self, 0
        self.aspect, self.position = 0.46, np.array(first)
        self.look_at = np.zeros(3)

    def on_update(self, moved):
        self.moved = moved


def test_a_narrow_page_that_takes_its_first_camera_late_is_aimed_again(page):
    first = page.server.initial_camera.position
    phone = Phone(first)
    asyncio.run(page._meet(phone))
    aimed = phone.position
    assert np.linalg.norm(aimed) > 1.5 * np.linalg.norm(first)
    phone.position = np.array(first)
    asyncio.run(phone.moved(phone))
    np.testing.assert_array_equal(phone.position, aimed)
    # What a person does with the camera stays.
    phone.position = own = 1.1 * aimed
    asyncio.run(phone.moved(phone))
    np.testing.assert_array_equal(phone.position, own)


@pytest.mark.parametrize("aspect", [1.0, 4 / 3, 2.2])
@pytest.mark.parametrize("count", [2, 4, 7, 16])
def test_the_overview_shows_the_floors_of_all_areas_whole(count, aspect):
    with make(EnvRecipe("scene", "SoccerTwos", num_areas=1)) as env:
        env.reset()
        camera = env.tableau(0).camera
    width_m, depth_m = 34.0, 18.0
    places = grid_places(count, width_m, depth_m)
    eye, target, field = camera_of(camera, places, aspect, (width_m, depth_m))
    back = (eye - target) / np.linalg.norm(eye - target)
    right = np.cross((0.0, 0.0, 1.0), back)
    right /= np.linalg.norm(right)
    up = np.cross(back, right)
    reach = 0.0
    for place in places:
        for x in (-0.5, 0.5):
            for z in (-0.5, 0.5):
                corner = swap_axes(place + (x * width_m, 0.0, z * depth_m)) - eye
                ahead = -(corner @ back)
                assert ahead > 0
                high = ahead * np.tan(field / 2)
                reach = max(
                    reach, abs(corner @ up) / high, abs(corner @ right) / high / aspect
                )
    assert 0.8 < reach <= 1.0, "whole, and not smaller than it must be"


def test_the_selected_agent_is_marked_and_followed():
    recipe = EnvRecipe("scene", "SoccerTwos", num_areas=2)
    with opened(recipe, ["random"], ViewOptions(port=0)) as page:
        simulation, stage = page.simulation, page.stage
        simulation.pause()
        seat = Seat(0, 2)
        page.agent.pick(seat)
        wait_for(lambda: simulation.selected == seat)
        page._draw(simulation.frame)
        body = simulation.env.scene.agent_shapes()[2]
        center = simulation.frame.tableaux[0].moving.position[body]
        (tip,) = stage._mark.batched_positions
        np.testing.assert_allclose(tip, swap_axes(center + (0.0, 0.8, 0.0)), rtol=1e-6)
        before = stage.places[0]
        page.agent._follow.value = True
        page._draw(simulation.frame)
        # Its place on the page is now where the camera looks.
        camera = simulation.frame.tableaux[0].camera
        np.testing.assert_allclose(center + stage.places[0], camera.target, atol=1e-9)
        assert not np.allclose(before, stage.places[0])
        page.agent._choose_by("none", None)
        wait_for(lambda: simulation.selected is None)
        page._draw(simulation.frame)
        assert not stage._mark.visible
        np.testing.assert_allclose(stage.places[0], before)


def test_a_scoreboard_names_teams_policies_games_and_the_last_end():
    recipe = EnvRecipe("scene", "SoccerTwos", num_areas=1)
    options = ViewOptions(port=0, versus=("zero",))
    with opened(recipe, ["random"], options) as page:
        page.simulation.pause()
        wait_for(lambda: page.simulation.is_paused)
        text = page._board_html()
        for part in ("color:blue", "<b>blue</b>", "<b>purple</b>", "random", "zero"):
            assert part in text
        assert ">won<" not in text, "there was no game yet"
        page.simulation.board = Scoreboard(
            ("blue", "purple"), {0: 2.0, 1: 1.5}, {}, "7.1 s: blue won"
        )
        text = page._board_html()
        for part in (">won<", ">2<", ">1.5<", "7.1 s: blue won"):
            assert part in text


def test_two_names_lie_on_different_sides_of_their_places():
    recipe = EnvRecipe("scene", "Basic", num_areas=1)
    with opened(recipe, ["random"], ViewOptions(port=0)) as page:
        page.stage.label(["a name of any length", "another"])
        anchors = [label.anchor for label in page.stage._labels]
        assert anchors == ["bottom-right"]
        tableau = page.simulation.frame.tableaux[0]
        page.stage.show({0: tableau, ~0: tableau})
        page.stage.label(["a name of any length", "another"])
        anchors = [label.anchor for label in page.stage._labels]
        assert anchors == ["bottom-right", "bottom-left"]


def test_more_areas_are_drawn_smaller_so_that_shadows_stay_right():
    with make(EnvRecipe("scene", "Basic", num_areas=1)) as env:
        env.reset()
        tableau = env.tableau(0)
    server = open_server(LOOPBACK, 0, "areas")
    try:
        stage = Stage(server)
        stage.show({0: tableau})
        unit = stage.unit
        stage.show(dict.fromkeys(range(4), tableau))
        assert stage.unit < 0.7 * unit
        scales = [handle.scale for handle in stage._handles.values()]
        np.testing.assert_allclose(scales, stage.unit)
    finally:
        close_server(server)
