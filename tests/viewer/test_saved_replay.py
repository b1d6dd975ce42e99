"""A replay is one file that a browser opens from disk, alone."""

import re

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from tests.viewer.browser import close_notices, open_browser, picture, wait_for

import touchline
from touchline.cli import run
from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.specs import ActionTuple
from touchline.viewer.replay import MOST_BYTES
from touchline.viewer.scoreboard import Scoreboard, Tally
from touchline.viewer.simulation import new_returns, no_returns


@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    """Four seconds of soccer by random play."""
    path = tmp_path_factory.mktemp("replay") / "soccer.html"
    touchline.view("SoccerTwos", save=path, seconds=4.0, log=lambda _: None)
    return path


def test_a_replay_is_one_small_file_without_addresses_of_this_machine(replay):
    text = replay.read_text(encoding="utf-8")
    assert len(text) < MOST_BYTES / 10
    assert "<title>SoccerTwos · random · seed 0</title>" in text
    assert str(replay.parent) not in text


def test_it_plays_pauses_and_scrubs_from_disk_without_a_network(replay):
    with open_browser() as browser:
        browser.execute_cdp_cmd("Network.enable", {})
        offline = {
            "offline": True,
            "latency": 0,
            "downloadThroughput": -1,
            "uploadThroughput": -1,
        }
        browser.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        browser.get(replay.as_uri())

        def clock():
            found = browser.find_elements("css selector", "input[inputmode='decimal']")
            return float(found[0].get_attribute("value")) if found else None

        def pressed():
            (button,) = browser.find_elements(
                "css selector", "button.mantine-ActionIcon-root"
            )[:1]
            browser.execute_script("arguments[0].click()", button)

        first = wait_for(clock)
        wait_for(lambda: clock() != first)  # it plays by itself
        pressed()
        at = clock()
        close_notices(browser)
        still = picture(browser)
        assert clock() == at
        assert "SoccerTwos · random · seed 0" in browser.page_source
        # The blue and the purple goal.
        channels = still.astype(int)
        blue = (channels[..., 2] - channels[..., 0] > 60).sum()
        purple = (
            np.minimum(channels[..., 0], channels[..., 2]) - channels[..., 1] > 20
        ).sum()
        assert min(blue, purple) > 100
        # Scrubbing: another time has another picture.
        (track,) = browser.find_elements("css selector", ".mantine-Slider-root")
        aside = round(
            track.size["width"] * (0.4 if at < 2 else -0.4)
        )  # from its middle
        ActionChains(browser).move_to_element_with_offset(
            track, aside, 0
        ).click().perform()
        wait_for(lambda: abs(clock() - at) > 0.5)
        wait_for(lambda: (picture(browser) != still).mean() > 1e-3)
        loaded = "return performance.getEntriesByType('resource').length"
        assert browser.execute_script(loaded) == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["Basic", "--save", "x.mp4"],
            "--save x.mp4: expected a file name that ends in .html",
        ),
        (["Basic", "--save", "x.html", "--record", "x.demo"], "give one"),
        (["Basic", "--save", "x.html", "--seconds", "inf"], "a finite number, got inf"),
    ],
)
def test_what_cannot_be_saved_is_one_line(
    arguments, expected, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert run(["view", *arguments]) == 2
    printed = capsys.readouterr().err
    assert re.search(re.escape(expected), printed)
    assert printed.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_games_and_returns_are_counted_by_team():
    board = Scoreboard(("blue", "purple"))
    assert str(board) == "no episode ended yet"
    with make(EnvRecipe("scene", "SoccerTwos", num_areas=1)) as env:
        slots = Slots(env)
        rows = slots.reset(0)
        returns = no_returns(rows)
        for decision in range(1000):  # of five rounds, to the time limit
            actions = {
                name: ActionTuple(discrete=np.zeros((len(row), 3), np.int32))
                for name, row in rows.items()
            }
            before, rows = rows, slots.step(actions)
            earlier = board
            board = board.after(
                slots, before, returns, rows, f"{0.1 * (decision + 1):.1f} s"
            )
            returns = new_returns(returns, rows)
    assert earlier == Scoreboard(("blue", "purple")), "it is never changed"
    assert board.won == {0: 0.5, 1: 0.5}  # no agent moved: a draw
    assert str(board) == "blue 0.5 : 0.5 purple"
    assert board.last == "100.0 s: a draw"
    assert {name: tally.episodes for name, tally in board.ended.items()} == {
        "SoccerTwos?team=0": 2,
        "SoccerTwos?team=1": 2,
    }


def test_without_games_the_score_is_that_of_episodes():
    board = Scoreboard(ended={"A": Tally(3, 4.0), "B": Tally(1, 2.0)})
    assert str(board) == "mean return 1.500 of 4 episodes"
