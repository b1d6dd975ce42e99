"""The page in a real browser.

With TOUCHLINE_PICTURES set, the pictures of docs/view.md are written to that folder.
"""

import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from tests.viewer.browser import (
    PHONE,
    SMALL,
    choose,
    close_notices,
    field,
    keep_picture,
    open_browser,
    picture,
    press,
    resize,
    wait_for,
)

from touchline.drawing.look import FLOOR_COLORS, GREEN, ORANGE, ground_colors
from touchline.drawing.pixels import Painter
from touchline.envs.env import EnvRecipe
from touchline.specs import ActionTuple
from touchline.training.demonstrations import read_demonstration
from touchline.viewer.insight import Seat
from touchline.viewer.opening import ViewOptions, opened

pytestmark = (
    pytest.mark.slow
)  # a browser takes seconds to start, and draws without a GPU


PLAYERS = str(Path(__file__).parents[2] / "models" / "SoccerTwos.onnx")


@contextmanager
def _page(num_areas=2, record=None, log=print, scene="SoccerTwos", policy="random"):
    recipe = EnvRecipe("scene", scene, num_areas=num_areas)
    options = ViewOptions(port=0, record=record, log=log)
    with opened(recipe, [policy], options) as page:
        # Shadows take most of the time of a renderer without a GPU.
        page.stage.sun.cast_shadow = False
        yield page


@pytest.fixture(scope="module")
def browser():
    with open_browser() as driver:
        yield driver


def _open(browser, page, *, drawn=True):
    """Open the page and wait until it is there; one that is not drawn is much faster."""
    page.server.scene.set_global_visibility(drawn)
    browser.get(f"http://127.0.0.1:{page.port}")
    if not drawn:
        wait_for(
            lambda: browser.find_elements(
                "xpath", "//button[normalize-space()='Pause']"
            )
        )
        return
    wait_for(lambda: _num_colors(_scene(picture(browser))) > 50)
    close_notices(browser)


def _scene(pixels):
    """The 3-D part of a picture, without its margin."""
    return pixels[50:, : int(0.7 * pixels.shape[1])]


def _num_colors(pixels):
    return len(np.unique(pixels.reshape(-1, 3), axis=0))


def _pause(browser, page):
    press(browser, "Pause")
    wait_for(lambda: page.simulation.is_paused)
    wait_for(
        lambda: browser.find_elements("xpath", "//button[normalize-space()='Resume']")
    )


def test_a_page_draws_the_scene_and_the_ball_moves(browser):
    with _page() as page:
        _open(browser, page)
        first = _scene(picture(browser)).astype(int)
        wait_for(
            lambda: np.abs(_scene(picture(browser)).astype(int) - first).max() > 60
        )
        errors = [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]
        assert not errors


def test_a_page_shows_what_a_film_shows_in_the_same_colors(browser):
    """Floor, ground, goal and block, each as much of the picture as in the film, or about so."""
    with _page(num_areas=1, scene="PushBlock") as page:
        page.simulation.pause()
        wait_for(lambda: page.simulation.is_paused)
        (tableau,) = page.simulation.frame.tableaux.values()
        _open(browser, page)
        shown = _scene(picture(browser)) / 255
    film = Painter().draw(tableau, 640, 480) / 255
    for name, color in {
        "goal": GREEN,
        "block": ORANGE,
        "floor": FLOOR_COLORS[0],
        "ground": ground_colors(np.array(0.0)),
    }.items():
        near = [
            (np.abs(pixels - color[:3]).max(axis=2) < 0.08).mean()
            for pixels in (film, shown)
        ]
        assert near[1] > 0.2 * near[0] > 0.0, (name, near)


def test_a_page_pauses_steps_goes_back_and_goes_on(browser):
    with _page() as page:
        simulation = page.simulation
        _open(browser, page, drawn=False)
        wait_for(lambda: simulation.time_s() > 3.0)
        _pause(browser, page)
        stopped = simulation.time_s()
        press(browser, "Step")
        wait_for(lambda: simulation.time_s() > stopped + 0.09)
        time.sleep(0.2)
        assert simulation.time_s() == pytest.approx(stopped + 0.1)

        press(browser, "Step back")
        wait_for(lambda: simulation.time_s() == pytest.approx(stopped))

        path = "//*[@role='slider']"
        browser.find_element("xpath", path).send_keys(Keys.HOME)
        earliest, latest = simulation.history[0].time_s, simulation.history[-1].time_s
        wait_for(lambda: simulation.time_s() == pytest.approx(earliest, abs=0.11))
        assert simulation.is_paused
        press(browser, "Resume")
        wait_for(lambda: simulation.time_s() > earliest + 0.5)
        assert (
            simulation.history[-1].time_s == latest
        )  # the recorded future is followed
        # Only a change begins another future, and the one that was can be chosen.
        simulation.order("hands", lambda: simulation.take_over(Seat(0, 1), _nothing()))
        wait_for(lambda: len(simulation.history.branches) == 2)
        _pause(browser, page)
        assert simulation.history[-1].time_s < latest
        choose(browser, "Branch", "1 · from 0.0 s")
        wait_for(lambda: simulation.history[-1].time_s == latest)


def _nothing():
    """The action of a person who holds no key in SoccerTwos."""
    return ActionTuple(np.zeros((1, 0), np.float32), np.zeros((1, 3), np.int32))


def test_a_page_shows_an_agent_and_lets_a_person_play_and_record_it(browser, tmp_path):
    record = tmp_path / "play.demo"
    lines = []
    with _page(record=record, log=lines.append) as page:
        simulation = page.simulation
        _open(browser, page, drawn=False)
        choose(browser, "Agent", "1 · SoccerTwos?team=0")
        seat = Seat(0, 1)
        wait_for(lambda: simulation.selected == seat)
        wait_for(lambda: simulation.frame.rays is not None)
        assert len(simulation.frame.rays.start) == 14
        wait_for(lambda: "rewards so far" in browser.page_source)
        wait_for(lambda: "11 rays, 6 tags, drawn in the scene" in browser.page_source)
        for tag in ("ball", "blueGoal", "purpleAgent"):
            assert f"■ {tag}<" in browser.page_source
        assert "index 263" not in browser.page_source  # no wall of numbers
        numbers = field(browser, "Numbers")
        browser.execute_script("arguments[0].click()", numbers)
        wait_for(lambda: "index 263" in browser.page_source)
        assert "data-key" not in browser.page_source

        box = field(browser, "Take over")
        browser.execute_script("arguments[0].click()", box)
        wait_for(lambda: browser.execute_script(LISTENS))
        yaw = simulation.env.scene.yaw
        before = yaw[0, 1]
        # Each key says what it does, from the moment on in which one takes over.
        meanings = {"KeyA": "A\nturn left", "KeyQ": "Q\nleft", "KeyW": "W\nahead"}
        wait_for(lambda: meanings.items() <= _caps(browser).items())
        # The keys are the game's, also where one could type.
        seconds = _seconds(browser)
        browser.execute_script("arguments[0].focus()", seconds)
        ActionChains(browser).key_down("a").perform()
        # Only a turn to the left at every step goes so far.
        wait_for(lambda: np.degrees(yaw[0, 1] - before) < -60.0)
        # With a file named, recording began with the take-over.
        wait_for(lambda: simulation.tape is not None and len(simulation.tape) > 3)
        ActionChains(browser).key_up("a").perform()
        wait_for(lambda: not _held(browser))
        assert "a" not in seconds.get_attribute("value")
        time.sleep(0.5)
        still = yaw[0, 1]
        time.sleep(0.5)
        assert yaw[0, 1] == still

        browser.execute_script("arguments[0].click()", box)
        wait_for(record.exists)
        wait_for(lambda: f"saved {record}" in browser.page_source)
        wait_for(lambda: lines)
        assert lines[-1].startswith(f"saved {record}: ")
        shown = read_demonstration(record)
        assert shown.behavior == "SoccerTwos"
        assert [0, 0, 1] in shown.actions.discrete.tolist()


@contextmanager
def _taken_over(browser, page):
    """This browser plays agent 1; gives its yaw, of which turning to the left lowers the value."""
    simulation = page.simulation
    _open(browser, page, drawn=False)
    choose(browser, "Agent", "1 · SoccerTwos?team=0")
    wait_for(lambda: simulation.selected == Seat(0, 1))
    box = field(browser, "Take over")
    browser.execute_script("arguments[0].click()", box)
    wait_for(lambda: browser.execute_script(LISTENS))
    yield lambda: float(simulation.env.scene.yaw[0, 1])


LISTENS = "return !!window.touchlineKeys"


def _seconds(browser):
    """The field beside the slider of the time, in which one can type."""
    shown = "input[not(@type='hidden')]"
    path = (
        f"//label[normalize-space()='Time (s)']/ancestor::div[.//{shown}][1]//{shown}"
    )
    return browser.find_element("xpath", path)


def _caps(browser, attribute="innerText"):
    """The drawn keys with their texts; at once, because the page replaces them at any time."""
    keys = "[...document.querySelectorAll('[data-key]')]"
    return dict(
        browser.execute_script(
            f"return {keys}.map((k) => [k.dataset.key, k.{attribute}])"
        )
    )


def _held(browser):
    """The keys that are drawn as held."""
    colors = _caps(browser, "style.backgroundColor")
    return [code for code, color in colors.items() if color != "transparent"]


def test_a_second_browser_does_not_disturb_the_one_that_plays(browser):
    with (
        _page() as page,
        _taken_over(browser, page) as yaw,
        open_browser() as other,
    ):
        _open(other, page, drawn=False)
        wait_for(lambda: len(page.server.get_clients()) == 2)
        ActionChains(browser).key_down("a").perform()
        wait_for(lambda: _held(other) == ["KeyA"])
        assert not other.execute_script(LISTENS)
        ActionChains(other).send_keys("d").perform()
        other.execute_script("window.dispatchEvent(new Event('blur'))")
        assert "Keys held" not in other.page_source  # the field is the player's alone
        other.refresh()
        wait_for(lambda: len(page.server.get_clients()) == 2)
        other.get("about:blank")
        wait_for(lambda: len(page.server.get_clients()) == 1)
        # Still turning to the left, at every step.
        before = yaw()
        wait_for(lambda: np.degrees(yaw() - before) < -60.0)
        ActionChains(browser).key_up("a").perform()
        _stands_still(yaw)


def test_a_player_whose_page_reloads_releases_its_keys_and_goes_on(browser):
    with _page() as page, _taken_over(browser, page) as yaw:
        ActionChains(browser).key_down("a").perform()
        before = yaw()
        wait_for(lambda: np.degrees(yaw() - before) < -30.0)
        browser.get("about:blank")
        wait_for(lambda: not page.server.get_clients())
        ActionChains(browser).key_up("a").perform()
        _stands_still(yaw)

        _open(browser, page, drawn=False)
        wait_for(lambda: browser.execute_script(LISTENS))
        before = yaw()
        ActionChains(browser).key_down("a").perform()
        wait_for(lambda: np.degrees(yaw() - before) < -30.0)
        ActionChains(browser).key_up("a").perform()


def _stands_still(yaw):
    """An agent that holds no key stops to turn."""
    before = None
    while before != yaw():
        before = yaw()
        time.sleep(0.5)


def test_all_areas_are_shown_side_by_side(browser):
    with _page(num_areas=4) as page:
        _open(browser, page)
        choose(browser, "Area", "all")
        wait_for(lambda: len(page.simulation.frame.tableaux) == 4)
        time.sleep(2.0)
        assert len(page.stage.offsets) == 4


def test_a_page_that_reloads_or_closes_does_not_disturb_the_simulation(browser):
    with _page() as page:
        simulation = page.simulation
        for _ in range(3):
            browser.get(f"http://127.0.0.1:{page.port}")
            wait_for(lambda: simulation.is_watched)
        browser.get("about:blank")
        wait_for(lambda: not simulation.is_watched)
        before = simulation.time_s()
        wait_for(lambda: simulation.time_s() > before + 0.5)
        assert simulation.failure is None


def test_a_page_of_1280_by_800_shows_scene_and_agent_beside_each_other(browser):
    with _page(num_areas=1, policy=PLAYERS) as page:
        simulation = page.simulation
        wait_for(lambda: simulation.time_s() > 2.0)
        page.agent._agent.value = "1 · SoccerTwos?team=0"
        wait_for(lambda: simulation.selected == Seat(0, 1))
        simulation.order("play", simulation.pause)  # one drawing is enough
        resize(browser, (1280, 800))
        _open(browser, page)
        wait_for(lambda: "11 rays, 6 tags" in browser.page_source)
        time.sleep(3.0)
        keep_picture(browser, "agent")
        # The panel is beside the picture and no wider than a third of the page.
        place = browser.find_element("xpath", "//button[normalize-space()='Step']").rect
        assert place["x"] > 1280 * 2 / 3
        assert place["x"] + place["width"] <= 1280
        resize(browser, SMALL)


def test_a_page_as_wide_as_a_phone_has_its_controls_below_the_picture(browser):
    with _page(num_areas=1) as page:
        simulation = page.simulation
        wait_for(lambda: simulation.time_s() > 2.0)
        page.agent._agent.value = "1 · SoccerTwos?team=0"
        wait_for(lambda: simulation.selected == Seat(0, 1))
        simulation.order("play", simulation.pause)
        resize(browser, PHONE)
        _open(browser, page)
        wait_for(lambda: "11 rays, 6 tags" in browser.page_source)
        time.sleep(3.0)
        keep_picture(browser, "phone")
        width, height = PHONE
        button = browser.find_element("xpath", "//button[normalize-space()='Step']")
        place = button.rect
        # The sheet takes the lower half, in its full width.
        assert place["y"] >= height / 2
        assert place["width"] > 0.9 * width
        assert place["x"] + place["width"] <= width
        page_width = "return document.scrollingElement.scrollWidth"
        assert browser.execute_script(page_width) == width
        # The whole field is in the upper half: its margins are as empty as the sky.
        pixels = picture(browser)[: height // 2]
        assert _num_colors(pixels[:, width // 4 : -width // 4]) > 50
        assert _num_colors(pixels[height // 4 :, :4]) < 20
        resize(browser, SMALL)


def test_a_browser_without_webgl_says_so():
    with _page(num_areas=1) as page, open_browser(webgl=False) as browser:
        browser.get(f"http://127.0.0.1:{page.port}")
        wait_for(lambda: "WebGL is unavailable" in browser.page_source)
        before = page.simulation.time_s()
        wait_for(lambda: page.simulation.time_s() > before + 0.5)
        assert page.simulation.failure is None
