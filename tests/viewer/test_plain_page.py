"""Worlds without shapes: Unity players, recordings, scenes without tableau."""

import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests.viewer.browser import (
    choose,
    close_notices,
    keep_picture,
    open_browser,
    press,
    wait_for,
)

import touchline
from touchline.cli import run
from touchline.doctor import examine
from touchline.envs.env import EnvRecipe, make
from touchline.envs.recorded_env import RecordedEnv
from touchline.envs.unity_env import UnityEnvironment
from touchline.errors import RunError, UsageError
from touchline.player import build
from touchline.policies.loading import load_policies
from touchline.scenes.basic import Basic
from touchline.scenes.scene import Scene
from touchline.specs import ActionTuple, ObservationSpec
from touchline.viewer.fans import FanLayout, FanReader, is_ray_sensor, layouts_of
from touchline.viewer.opening import ViewOptions, opened
from touchline.viewer.page import Page
from touchline.viewer.sheet import bars_html, fan_html
from touchline.viewer.simulation import Place, Simulation, grown_returns

ROOT = Path(__file__).parents[2]


def _recording(shared, name):
    return str(shared / "wire-recordings" / f"{name}.wire.gz")


def _simulation(target):
    env = make(target)
    playing = Simulation(env, lambda slots: load_policies(["random"], slots.behaviors))
    playing.set_speed(float("inf"))
    return playing


# ----------------------------------------------------------------------------------------------
# ray sensors


def _layouts(shared, name, behavior):
    """What is found of each sensor of a behavior after a whole recording."""
    with RecordedEnv(_recording(shared, name)) as env:
        readers, found = {}, {}
        for exchange in env.replay():
            decisions, _ = exchange[behavior]
            for i, obs in enumerate(decisions.obs):
                sensor = env.behaviors[behavior].observation_specs[i]
                reader = readers.setdefault(i, FanReader(sensor))
                for values in obs:
                    found[i] = reader.read(values)
    return [found[i] for i in sorted(found)]


def test_the_rays_of_unitys_sensors_are_found_from_their_numbers(shared):
    # PushBlock: seven rays, tags wall, goal, block. SoccerTwos: eleven rays and three behind, six
    # tags (the scenes' prefabs, ML-Agents Release 22).
    push_block = _layouts(shared, "PushBlock-package-3.0.0", "PushBlock?team=0")
    assert push_block == [FanLayout(3, 7, 3)] * 2
    soccer = _layouts(shared, "SoccerTwos-package-2.3.0", "SoccerTwos?team=0")
    assert soccer == [FanLayout(3, 11, 6), FanLayout(3, 3, 6)]


def test_numbers_that_cannot_be_rays_are_not_read_as_rays():
    reader = FanReader(ObservationSpec.vector(8, "RayOfLight"))
    assert reader.read(np.array([0.3, 7.0, -1.0, 0, 0, 0, 0, 0], np.float32)) is None
    assert reader.read(np.zeros(8, np.float32)) is None  # it was decided before


def test_only_a_name_makes_a_vector_a_candidate():
    assert is_ray_sensor(ObservationSpec.vector(8, "StackingSensor_size2_MyRays"))
    assert not is_ray_sensor(ObservationSpec.vector(8, "VectorSensor_size8"))


def test_layouts_have_an_odd_number_of_rays_and_whole_frames():
    layouts = layouts_of(ObservationSpec.vector(105, "StackingSensor_size3_Ray"))
    assert layouts == [FanLayout(3, 7, 3), FanLayout(3, 5, 5), FanLayout(3, 1, 33)]
    assert not layouts_of(ObservationSpec.vector(8, "StackingSensor_size3_Ray"))


def test_a_fan_has_a_line_for_each_ray_and_bars_one_for_each_number():
    rays = np.zeros((7, 5), np.float32)
    rays[:, 3] = rays[:, 4] = 1.0
    rays[0] = (0, 1, 0, 0, 0.5)
    drawn = fan_html(rays, 70.0)
    assert drawn.count("<line") == 7
    # The first ray points ahead, and met the second tag half way.
    assert '<circle cx="105.0" cy="55.0"' in drawn
    assert "tag 1 at 0.500" in drawn
    assert bars_html(np.zeros(12)).count("<rect") == 12


# ----------------------------------------------------------------------------------------------
# the simulation


def _wait(condition, timeout_s=60.0):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "the simulation did not get there"
        time.sleep(0.005)


def test_a_recording_plays_to_its_end_and_starts_again(shared):
    playing = _simulation(_recording(shared, "Basic-package-3.0.0"))
    playing.start()
    _wait(lambda: playing.is_paused)
    assert "ends after" in playing.note
    played = playing.decisions
    assert played > 20
    playing.order("go", playing.restart)
    playing.order("play", playing.resume)
    _wait(lambda: playing.decisions == 0 or not playing.is_paused)
    _wait(lambda: playing.is_paused and playing.decisions == played)
    playing.close()
    assert playing.failure is None


def test_of_a_recording_the_page_has_the_actions_that_were_sent(shared):
    path = _recording(shared, "Basic-package-3.0.0")
    playing = _simulation(path)
    playing.pause()
    playing.start()
    playing.order("step", playing.step_once)
    _wait(lambda: playing.decisions == 1)
    with RecordedEnv(path) as env:
        env.reset(0)
        sent = env.recorded_actions("Basic?team=0")
    taken = playing.taken["Basic?team=0"]
    assert taken.discrete.tolist() == sent.discrete.tolist()
    playing.close()


@pytest.fixture(scope="module")
def reset_after_ends(tmp_path_factory):
    """A short session of Basic, reset whenever its agent reached a prize, as loops often do."""
    folder = tmp_path_factory.mktemp("session")
    path = folder / "session.wire.gz"
    with UnityEnvironment(build("Basic", folder), seed=1, record_wire=path) as env:
        env.reset()
        (name,) = env.behaviors
        for _ in range(2):
            while not len(env.steps(name)[1]):
                env.set_actions(name, ActionTuple(None, np.full((1, 1), 2)))
                env.step()
            assert not len(env.steps(name)[0]), (
                "nobody decides in the exchange of an end"
            )
            env.reset()
    return path


def test_a_recording_is_followed_through_resets_after_ends(reset_after_ends):
    playing = _simulation(str(reset_after_ends))
    playing.start()
    _wait(lambda: playing.is_paused)
    playing.close()
    assert playing.failure is None
    assert "ends after" in playing.note


def test_the_doctor_examines_a_short_recording_with_resets(reset_after_ends):
    lines = []
    assert examine(EnvRecipe.parse(str(reset_after_ends)), lines.append), lines
    assert any("the recording ends after" in line for line in lines)


def test_a_single_step_is_one_decision(shared):
    playing = _simulation(_recording(shared, "PushBlock-package-3.0.0"))
    playing.pause()
    playing.start()
    for count in (1, 2, 3):
        playing.order("step", playing.step_once)
        _wait(lambda count=count: playing.decisions == count)
    time.sleep(0.1)
    assert playing.decisions == 3
    numbers, returns = playing.curve(Place("PushBlock?team=0", 0))
    assert numbers.tolist() == [1, 2, 3]
    assert len(returns) == 3
    playing.close()


def test_the_moments_kept_of_a_player_are_bounded_in_number_and_bytes(
    shared, monkeypatch
):
    path = _recording(shared, "PushBlock-package-3.0.0")
    monkeypatch.setattr("touchline.viewer.simulation.MOST_MOMENTS", 8)
    playing = _simulation(path)
    playing.start()
    _wait(lambda: playing.is_paused)
    first, *_, last = playing.past()
    assert last.decisions == playing.decisions == first.decisions + 7
    playing.close()
    monkeypatch.setattr("touchline.viewer.simulation.BUDGET_BYTES", 3 * last.num_bytes)
    playing = _simulation(path)
    playing.start()
    _wait(lambda: playing.is_paused)
    assert len(playing.past()) == 3
    playing.close()


def test_the_board_counts_the_episodes_of_a_recording(shared):
    path = _recording(shared, "Basic-package-3.0.0")
    with RecordedEnv(path) as env:
        ends = sum(
            len(terminals)
            for exchange in env.replay()
            for _, terminals in exchange.values()
        )
    playing = _simulation(path)
    playing.start()
    _wait(lambda: playing.is_paused)
    (tally,) = playing.board.ended.values()
    assert 0 < tally.episodes <= ends
    assert "Basic ended, return" in playing.board.last
    assert playing.board.last.startswith("decision ")
    playing.close()


def test_returns_are_kept_where_a_players_table_grows():
    before = {"A": np.array([1.0, 2.0])}
    grown = grown_returns(before, {"A": range(3), "B": range(1)})
    assert {name: own.tolist() for name, own in grown.items()} == {
        "A": [1.0, 2.0, 0.0],
        "B": [0.0],
    }
    assert before["A"].tolist() == [1.0, 2.0]


def test_every_kind_of_sensor_is_in_an_insight(shared):
    playing = _simulation(_recording(shared, "Zoo-package-3.0.0"))
    place = next(
        place for place in playing.agents().values() if "Zoo" in place.behavior
    )
    shapes = [obs.shape for obs in playing.insight(place).obs]
    assert shapes == [(8,), (5, 3), (3, 16, 20), (2,), (2, 6, 6), (2, 5, 5)]
    assert playing.insight(Place(place.behavior, 10**6)) is None
    playing.close()


# ----------------------------------------------------------------------------------------------
# wrong calls


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nowhere/game.x86_64"], str(Path("nowhere/game.x86_64"))),
        (["nowhere.wire.gz"], "nowhere.wire.gz"),
        (["nowhere/game.x86_64", "--record", "play.demo"], "touchline record"),
        (["Walker", "--record", "play.demo"], "Walker has no keys to play it with"),
        (["Basic", "--record", f"{__file__}/play.demo"], "is no folder that you may"),
    ],
)
def test_a_wrong_call_is_one_line(arguments, expected, capsys):
    assert run(["view", *arguments, "--port", "0"]) == 2
    shown = capsys.readouterr()
    assert expected in shown.err
    assert len(shown.err.strip().splitlines()) == 1


def test_a_policy_that_fits_no_behavior_of_a_recording_is_one_line(shared, capsys):
    path = _recording(shared, "Basic-package-3.0.0")
    assert run(["view", path, "--policy", "greedy", "--port", "0"]) == 2
    shown = capsys.readouterr()
    assert "Match3" in shown.err
    assert len(shown.err.strip().splitlines()) == 1


class Blind(Basic):
    """A scene without a tableau."""

    def tableau(self, area):
        return Scene.tableau(self, area)


def test_a_scene_without_tableau_is_shown_by_figures_and_says_why():
    recipe = EnvRecipe("scene", f"{__name__}:Blind", num_areas=2)
    with opened(recipe, ["random"], ViewOptions(port=0)) as page:
        assert type(page) is Page
        assert "has no tableau" in page.about.content
        _wait(lambda: page.simulation.decisions > 1)


def test_of_a_scene_without_tableau_the_terminal_says_why_there_is_no_picture():
    lines = []

    def log(line):
        lines.append(line)
        if len(lines) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        touchline.view(f"{__name__}:Blind", port=0, log=log)
    assert lines[0].startswith("open http://127.0.0.1")
    assert "has no tableau" in lines[1]


def test_a_scene_without_tableau_cannot_be_drawn_and_one_line_says_so():
    with make(EnvRecipe("scene", f"{__name__}:Blind", num_areas=1)) as env:
        env.reset()
        with pytest.raises(UsageError, match=r"has no tableau.*write its method"):
            env.render()


# ----------------------------------------------------------------------------------------------
# in a browser


@pytest.fixture(scope="module")
def browser():
    with open_browser((1280, 800)) as driver:
        yield driver


def _open(browser, page):
    browser.get(f"http://127.0.0.1:{page.port}")
    wait_for(lambda: "decision" in browser.page_source)
    close_notices(browser)


def _looks_far(simulation):
    """Whether the selected soccer player's newest rays ahead are long and differ, for a picture."""
    rays = np.reshape(simulation.insight(simulation.selected).obs[0], (3, 11, 8))[-1]
    return rays[:, -1].mean() > 0.4 and len(np.unique(rays[:, :6].argmax(axis=1))) > 2


@pytest.mark.slow
def test_a_player_plays_on_a_page_pauses_and_steps(browser, tmp_path):
    player = str(build("SoccerTwos", tmp_path))
    policy = str(ROOT / "models" / "SoccerTwos.onnx")
    with opened(EnvRecipe("unity", player), [policy], ViewOptions(port=0)) as page:
        simulation = page.simulation
        _open(browser, page)
        wait_for(lambda: "11 rays, 6 tags" in browser.page_source)
        wait_for(lambda: "Branch 2" in browser.page_source)
        wait_for(lambda: simulation.decisions > 40)  # or its curve is empty
        wait_for(lambda: _looks_far(simulation), pause_s=0.02)
        simulation.order("play", simulation.pause)
        time.sleep(1.0)  # until the page shows that moment
        keep_picture(browser, "player")
        figures, controls = (
            browser.find_element("css selector", f"[data-dock-region={side}]").rect
            for side in ("left", "right")
        )
        assert figures["x"] + figures["width"] == pytest.approx(controls["x"], abs=1)
        press(browser, "Resume")
        press(browser, "Pause")
        wait_for(lambda: simulation.is_paused)
        time.sleep(0.5)
        stopped = simulation.decisions
        press(browser, "Step")
        wait_for(lambda: simulation.decisions == stopped + 1)
        wait_for(lambda: f"decision {stopped + 1}" in browser.page_source)
        choose(browser, "Agent", "3 · SoccerTwos?team=1")
        wait_for(lambda: page.simulation.selected == Place("SoccerTwos?team=1", 3))
        press(browser, "Resume")
        wait_for(lambda: simulation.decisions > stopped + 3)
        errors = [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]
        assert not errors


def _watch_until_killed(browser, recipe):
    """Open a player's page, kill the player, and wait for the end of the view."""
    with opened(recipe, ["random"], ViewOptions(port=0)) as page:
        _open(browser, page)
        psutil.Process(page.simulation.slots.env.pid).kill()
        page.simulation.join()


@pytest.mark.slow
def test_a_page_says_why_its_player_ended(browser, tmp_path):
    recipe = EnvRecipe("unity", str(build("Basic", tmp_path)))
    with pytest.raises(RunError, match="signal"):
        _watch_until_killed(browser, recipe)
    wait_for(lambda: "The viewer has ended" in browser.page_source)
    assert "signal" in browser.page_source


@pytest.mark.slow
def test_a_page_shows_pictures_and_vectors(browser, shared):
    path = str(shared / "wire-recordings" / "Zoo-package-3.0.0.wire.gz")
    with opened(EnvRecipe.parse(path), ["random"], ViewOptions(port=0)) as page:
        _open(browser, page)
        choose(browser, "Agent", "Zoo")
        wait_for(lambda: 'alt="20 x 16"' in browser.page_source)
        assert "ZooBuffer [5, 3]" in browser.page_source
        assert "as recorded" in browser.page_source
        keep_picture(browser, "recording")
