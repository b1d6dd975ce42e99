"""Draws the gallery: one state of each scene in a film, on the page, and on the page of a phone.

    python docs/draw_gallery.py [SCENE ...]

Pictures that are there already stay. Needs Chromium and its driver, as tests/viewer does.
"""

import sys
import time
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))

from tests.viewer.browser import (
    PHONE,
    close_notices,
    open_browser,
    picture,
    resize,
    wait_for,
)

from touchline.drawing.pixels import Painter
from touchline.envs.env import EnvRecipe
from touchline.scenes import SCENES
from touchline.viewer.opening import ViewOptions, opened

FOLDER = ROOT / "docs" / "images" / "gallery"
DESK = (1280, 800)
DRAWN_S = 5.0
"""For a browser without a GPU to draw a page."""


def draw(scene: str, browser: object, painter: Painter) -> None:
    """The three pictures of a scene after a second of random play."""
    recipe = EnvRecipe("scene", scene, num_areas=1)
    with opened(recipe, ["random"], ViewOptions(port=0)) as page:
        simulation = page.simulation
        wait_for(lambda: simulation.shown_s > 1.0)
        simulation.pause()
        wait_for(lambda: simulation.is_paused)
        (tableau,) = simulation.frame.tableaux.values()
        _save(painter.draw(tableau, 640, 480), f"{scene}-film", 480)
        for name, size, width in (("page", DESK, 640), ("phone", PHONE, 195)):
            resize(browser, size)
            if name == "page":
                browser.get(f"http://127.0.0.1:{page.server.get_port()}")
                wait_for(lambda: browser.find_elements("css selector", "canvas"))
                time.sleep(DRAWN_S)
                close_notices(browser)
            time.sleep(DRAWN_S)
            _save(picture(browser, tries=30), f"{scene}-{name}", width)


def _save(pixels: object, name: str, width: int) -> None:
    image = Image.fromarray(pixels)
    image = image.resize((width, round(width * image.height / image.width)))
    image.save(FOLDER / f"{name}.webp", quality=80)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    wanted = [
        scene
        for scene in sys.argv[1:] or SCENES
        if not (FOLDER / f"{scene}-phone.webp").exists()
    ]
    if wanted:
        painter = Painter()
        with open_browser(DESK) as browser:
            for scene in wanted:
                draw(scene, browser, painter)
