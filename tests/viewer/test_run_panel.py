"""A page that follows a training run."""

import contextlib
import math
import os
import shutil
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from tests.studies.written_runs import write_run
from tests.viewer.browser import (
    choose,
    close_notices,
    keep_picture,
    open_browser,
    press,
    wait_for,
)

import touchline
from touchline.cli import run as command
from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.player import build
from touchline.policies.files.run_layout import is_run
from touchline.training.run.figures import read_run_figures
from touchline.viewer.critic import Critic
from touchline.viewer.opening import ViewOptions, opened, with_critics
from touchline.viewer.run_panel import sources_of, steps_of, world_of
from touchline.viewer.simulation import Place

SHORT = (
    "env_settings.seed=1",  # episodes end before two of the summaries
    "behaviors.Basic.max_steps=256",
    "behaviors.Basic.summary_freq=64",
    "behaviors.Basic.checkpoint_interval=128",
    "behaviors.Basic.hyperparameters.buffer_size=64",
    "behaviors.Basic.hyperparameters.batch_size=32",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run of Basic."""
    folder = tmp_path_factory.mktemp("results")
    request = {"checkpoint_settings.results_dir": str(folder)}
    for text in SHORT:
        key, _, value = text.partition("=")
        request[key] = int(value)
    return touchline.train("Basic", changes=request, log=lambda line: None).folder


def test_a_run_says_where_it_learned_and_what_it_kept(run):
    assert is_run(str(run))
    assert world_of(run) == ("scene", "Basic")
    assert sources_of(run) == [f"Basic={run / 'Basic' / 'checkpoint.safetensors'}"]
    steps = steps_of(run)
    assert steps == sorted(steps, reverse=True)
    assert str(steps[0]) in sources_of(run, str(steps[0]))[0]


def test_a_folder_of_a_run_that_is_still_starting_is_one_line(tmp_path):
    (tmp_path / "configuration.yaml").write_text("behaviors: {}\n")
    with pytest.raises(UsageError, match="still starting"):
        world_of(tmp_path)
    with pytest.raises(UsageError, match="no checkpoint yet"):
        sources_of(tmp_path)


def test_a_checkpoint_of_thousands_of_digits_is_none_of_the_run(run):
    """A page may send any text, and a copied run may have any file."""
    odd = run / "Basic" / f"Basic-{'9' * 200}.safetensors"
    odd.write_bytes(b"")
    try:
        assert max(steps_of(run)) < 1e6
        assert sources_of(run, "9" * 5000) == sources_of(run)
    finally:
        odd.unlink()


def test_a_newer_checkpoint_takes_over_and_the_curve_is_drawn(run):
    recipe = EnvRecipe("scene", "Basic", num_areas=1)
    options = ViewOptions(port=0, run=Path(run))
    with opened(recipe, sources_of(run), options) as page:
        panel, simulation = page.run, page.simulation
        panel.refresh()
        step, score = panel._curve.data
        assert len(step) == len(score) > 1
        first = dict(simulation.actors)
        checkpoint = run / "Basic" / "checkpoint.safetensors"
        later = checkpoint.stat().st_mtime_ns + 10**9
        os.utime(checkpoint, ns=(later, later))
        panel._looked_s = float("-inf")
        panel.refresh()
        end = time.monotonic() + 10.0
        while dict(simulation.actors) == first:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert simulation.failure is None


def _order(simulation, do):
    """Give an order and wait until it was obeyed."""
    obeyed = threading.Event()
    simulation.order("test", lambda: (do(), obeyed.set()))
    assert obeyed.wait(10.0)


def _step(simulation, count):
    for _ in range(count):
        before = simulation.time_s()
        _order(simulation, simulation.step_once)
        end = time.monotonic() + 10.0
        while simulation.time_s() == before:
            assert time.monotonic() < end
            time.sleep(0.001)
        _order(simulation, lambda: None)  # the world beside has followed


@contextlib.contextmanager
def _two_sides(run, other):
    """A paused page of a run with a checkpoint beside."""
    recipe = EnvRecipe("scene", "Basic", num_areas=1)
    options = ViewOptions(port=0, run=Path(run))
    with opened(recipe, sources_of(run), options) as page:
        page.simulation.pause()
        page.simulation.is_watched = True
        _step(page.simulation, 3)
        page.run._other = other
        page.run._looked_s = float("-inf")
        page.run.refresh()
        _order(page.simulation, lambda: None)
        yield page


def _sides(simulation):
    """What both worlds observe now."""
    (own,) = simulation.rows.values()
    (other,) = simulation.beside.rows.values()
    return own.obs[0].copy(), other.obs[0].copy()


def test_the_same_checkpoint_beside_plays_the_same(run):
    with _two_sides(run, "latest") as page:
        for _ in range(30):
            _step(page.simulation, 1)
            own, other = _sides(page.simulation)
            np.testing.assert_array_equal(own, other)
        frame = page.simulation.frame
        assert list(frame.tableaux) == [0, ~0]
        np.testing.assert_array_equal(
            frame.tableaux[0].moving.position, frame.tableaux[~0].moving.position
        )


def test_two_checkpoints_start_from_the_same_state_and_go_back_together(run):
    first = str(steps_of(run)[-1])
    with _two_sides(run, first) as page:
        simulation = page.simulation
        assert page.run.names == ("latest", first)
        own, other = _sides(simulation)
        np.testing.assert_array_equal(own, other)
        there = simulation.time_s()
        _step(simulation, 10)
        both = _sides(simulation)
        _order(simulation, lambda: simulation.go_to(there))
        own, other = _sides(simulation)
        np.testing.assert_array_equal(own, other)
        _step(simulation, 10)
        np.testing.assert_array_equal(both, _sides(simulation))
        _order(simulation, simulation.restart)
        own, other = _sides(simulation)
        np.testing.assert_array_equal(own, other)


def test_value_and_advantage_are_those_of_the_checkpoints_critic(run):
    recipe = EnvRecipe("scene", "Basic", num_areas=1)
    with opened(recipe, [str(run)], ViewOptions(port=0)) as page:
        simulation = page.simulation
        simulation.pause()
        _step(simulation, 10)
        (name,) = simulation.actors
        while not simulation.rows[name].terminated[0]:
            _step(simulation, 1)
        actor, place = simulation.actors[name], Place(name, 0)
        moments = simulation.past()
        times, values, advantages = Critic().curve(moments, place, actor)
        assert times.tolist() == [moment.time_s for moment in moments[:-1]]
        expected = [
            float(actor.policy.outlook(moment.rows[name], None).value[0, 0])
            for moment in moments
        ]
        assert values.tolist() == expected[:-1]
        ended = 0
        for at, advantage in enumerate(advantages):
            # Before the pause, a loaded machine kept not every decision.
            if moments[at + 1].decisions - moments[at].decisions != 1:
                continue
            rows = moments[at + 1].rows[name]
            following = 0.9 * expected[at + 1]  # the discount of Basic's settings
            if rows.terminated[0]:
                following, ended = 0.0, ended + 1
            assert advantage == pytest.approx(
                float(rows.reward[0]) + following - expected[at], abs=1e-6
            )
        assert ended


def test_value_and_advantage_are_there_beside_a_player_too(run, tmp_path):
    recipe = EnvRecipe("unity", str(build("Basic", tmp_path)))
    with opened(recipe, [str(run)], ViewOptions(port=0)) as page:
        simulation, (name,) = page.simulation, page.simulation.rows
        place = Place(name, 0)
        simulation.order("speed", lambda: simulation.set_speed(math.inf))
        wait_for(lambda: simulation.board.ended and len(simulation.past()) > 20)
        simulation.order("play", simulation.pause)
        wait_for(lambda: simulation.is_paused)
        time.sleep(0.1)  # for the running exchange
        moments, actor = simulation.past_of(place), simulation.actors[name]
        decisions, values, advantages = Critic().curve(moments, place, actor)
        rows = {m.decisions: m.rows[name] for m in moments}
        assert len(values) > 10
        for decision, value, advantage in zip(
            decisions, values, advantages, strict=True
        ):
            outlook = actor.policy.outlook(rows[int(decision)], None)
            assert value == float(outlook.value[0, 0])
            then = rows[int(decision) + 1]
            following = 0.9 * float(actor.policy.outlook(then, None).value[0, 0])
            following = 0.0 if then.terminated[0] else following
            expected = float(then.reward[0]) + following - value
            assert advantage == pytest.approx(expected, abs=1e-6)
        board = page._board_html()
        assert "results" not in board
        assert run.name in board


def test_of_a_run_its_checkpoint_plays_and_not_the_model_without_values(run):
    checkpoint = str(run / "Basic" / "checkpoint.safetensors")
    assert with_critics([str(run), "random"]) == [checkpoint, "random"]
    model = str(run / "Basic.onnx")
    assert with_critics([model, f"Basic={run}"]) == [model, f"Basic={run}"]


# ----------------------------------------------------------------------------------------------
# in a browser


def _texts(browser):
    """The labels of all bars."""
    return [bar.text for bar in browser.find_elements("css selector", "span[title]")]


def _latest(run):
    """What the page says below the curve; a run ends with its last buffer, after 256 steps."""
    step = read_run_figures(run)[0].known("step")[-1]
    assert 256 <= step < 512
    return f"after {step:,.0f} steps"


@pytest.mark.slow
def test_a_run_is_followed_on_a_page_with_two_checkpoints_side_by_side(run):
    recipe = EnvRecipe("scene", "Basic", num_areas=1)
    options = ViewOptions(port=0, run=Path(run))
    with (
        opened(recipe, sources_of(run), options) as page,
        open_browser((1280, 800)) as browser,
    ):
        page.server.scene.configure_default_lights(cast_shadow=False)
        simulation = page.simulation
        browser.get(f"http://127.0.0.1:{page.port}")
        wait_for(lambda: _latest(run) in browser.page_source)
        wait_for(lambda: browser.find_elements("css selector", ".uplot"))
        choose(browser, "Beside", str(steps_of(run)[-1]))
        wait_for(lambda: simulation.beside is not None)
        wait_for(lambda: "mean return" in browser.page_source)  # of both sides
        wait_for(lambda: len(simulation.frame.tableaux) == 2)
        close_notices(browser)
        # Away from the curve: a button appears over it while the pointer is there.
        away = ActionChains(browser)
        away.w3c_actions.pointer_action.move_to_location(9, 9)
        away.perform()
        time.sleep(3.0)
        keep_picture(browser, "run")
        choose(browser, "Agent", "0 · Basic")
        # The scene names its actions, the critic judges, and a button says what decided.
        wait_for(lambda: "left" in _texts(browser) and "right" in _texts(browser))
        wait_for(lambda: "advantage" in browser.page_source)
        press(browser, "What decided this?")
        wait_for(lambda: "Strongest parts" in browser.page_source)
        assert any(text.startswith("index ") for text in _texts(browser))
        choose(browser, "Checkpoint", str(steps_of(run)[-1]))
        first = str(steps_of(run)[-1])
        # The same checkpoint on both sides has two names nevertheless.
        wait_for(lambda: page.run.names == (first, f"{first}, beside"))
        choose(browser, "Beside", "none")
        wait_for(lambda: simulation.beside is None)
        wait_for(lambda: len(simulation.frame.tableaux) == 1)


def test_the_command_opens_the_scene_of_a_run(run):
    def stop(line):
        assert "open http://127.0.0.1" in line
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        touchline.view(str(run), port=0, log=stop)


def test_the_flags_of_a_world_count_for_that_of_a_run(run, tmp_path, capsys):
    sizes = []
    for num_areas in ("1", "9"):
        path = tmp_path / f"{num_areas}.html"
        flags = ["--num-areas", num_areas, "--seed", "77", "--seconds", "0.2"]
        assert command(["view", str(run), "--save", str(path), *flags]) == 0
        assert "· seed 77</title>" in path.read_text(encoding="utf-8")
        sizes.append(path.stat().st_size)
    assert sizes[1] > sizes[0]
    assert command(["view", str(run), "--port", "0", "--parameter", "nonsense=5"]) == 2
    assert "nonsense" in capsys.readouterr().err


@pytest.mark.slow
def test_a_page_says_that_a_run_is_still_starting_and_then_shows_it(run, tmp_path):
    starting = tmp_path / "later"
    starting.mkdir()
    (starting / "configuration.yaml").write_text("behaviors: {}\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with open_browser() as browser, _viewing(starting, port) as lines:
        wait_for(lambda: lines)
        assert "still starting" in lines[0]
        assert f"http://127.0.0.1:{port}" in lines[0]
        browser.get(f"http://127.0.0.1:{port}")
        wait_for(lambda: "still starting" in browser.page_source)
        shutil.copytree(run, starting, dirs_exist_ok=True)
        # The same page, which nothing reloads, becomes the run's.
        wait_for(lambda: _latest(run) in browser.page_source)
        assert f"open http://127.0.0.1:{port}" in lines[1]


@contextlib.contextmanager
def _viewing(folder, port):
    """The lines of a view in a thread of its own, which ends with this context."""
    lines, done = [], threading.Event()

    def log(line):
        lines.append(line)
        if line.startswith("open"):
            done.wait()
            raise KeyboardInterrupt

    def view():
        with contextlib.suppress(KeyboardInterrupt):
            touchline.view(str(folder), port=port, log=log)

    thread = threading.Thread(target=view)
    thread.start()
    try:
        yield lines
    finally:
        done.set()
        thread.join(30.0)


def test_a_behavior_with_brackets_in_its_name_has_its_checkpoints(tmp_path):
    run = write_run(tmp_path / "x", [0.1], behavior="Ball[1]*")
    (run / "Ball[1]*" / "Ball[1]*-64.safetensors").write_bytes(b"")
    assert steps_of(run) == [64]
