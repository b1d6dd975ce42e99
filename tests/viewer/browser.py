"""A headless Chromium that looks at a page, or a reason why there is none."""

import io
import os
import shutil
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SMALL = (820, 320)
"""Drawn sooner by a browser without a GPU; narrower pages are laid out for phones."""
PHONE = (390, 844)
SOFTWARE_WEBGL = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader")
"""Without a GPU, WebGL is drawn by this software renderer."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVERS = ("chromedriver", "chromium.chromedriver")


def _program(names):
    return next((path for path in map(shutil.which, names) if path), None)


@contextmanager
def open_browser(size=SMALL, *, webgl=True):
    """A Selenium driver with a small window, which is drawn sooner without a GPU.

    Skips where Chromium or its driver is not installed.
    """
    program, driver = _program(BROWSERS), _program(DRIVERS)
    if program is None or driver is None:
        pytest.skip(
            "no Chromium here (Debian: apt-get install chromium chromium-driver)"
        )
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        *(SOFTWARE_WEBGL if webgl else ("--disable-3d-apis",)),
        f"--window-size={size[0]},{size[1]}",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    service = webdriver.ChromeService(driver)
    browser = webdriver.Chrome(options, service)
    try:
        resize(browser, size)
        yield browser
    finally:
        browser.quit()


def resize(browser, size):
    """Make the page so wide and high, without the browser's own bars."""
    width, height = size
    view = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", view)


def picture(browser, tries=6):
    """What the browser shows, uint8 [H, W, 3]."""
    from selenium.common.exceptions import TimeoutException

    while True:
        tries -= 1
        try:
            data = browser.get_screenshot_as_png()
        except TimeoutException:  # it was still drawing
            if not tries:
                raise
        else:
            return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def close_notices(browser):
    """Close messages such as viser's, which warns where there is no GPU."""
    for close in browser.find_elements(
        "css selector", ".mantine-Notification-closeButton"
    ):
        browser.execute_script("arguments[0].click()", close)


def keep_picture(browser, name):
    """Write what the browser shows as a picture of the docs, if TOUCHLINE_PICTURES is set."""
    image = Image.fromarray(picture(browser))
    folder = os.environ.get("TOUCHLINE_PICTURES")
    if folder:
        image = image.convert("P", palette=Image.Palette.ADAPTIVE)
        image.save(Path(folder) / f"view-{name}.png", optimize=True)


def wait_for(condition, timeout_s=120.0, pause_s=0.2):
    """What the condition gives as soon as that is true."""
    end = time.monotonic() + timeout_s
    while not (result := condition()):
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(pause_s)
    return result


def press(browser, label):
    """Click the button with this label, as soon as there is one."""
    path = f"//button[normalize-space()='{label}']"
    (found,) = wait_for(lambda: browser.find_elements("xpath", path))
    browser.execute_script("arguments[0].click()", found)


def field(browser, label):
    """The input of the control with this label, as soon as there is one."""
    path = f"//label[normalize-space()='{label}']/ancestor::div[.//input][1]//input"
    return wait_for(lambda: browser.find_elements("xpath", path))[0]


def choose(browser, label, text):
    """Choose the option of a dropdown whose text contains this."""
    field(browser, label).click()
    path = f"//*[@role='option'][contains(., '{text}')]"

    def shown():
        # Options of dropdowns that were opened before stay in the page, hidden.
        found = browser.find_elements("xpath", path)
        return next((option for option in found if option.is_displayed()), None)

    wait_for(shown).click()
