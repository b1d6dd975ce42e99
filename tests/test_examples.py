"""The examples run, in short mode, and leave what they promise: finished returns on the terminal
and a plot.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import touchline

EXAMPLES = Path(__file__).parent.parent / "examples"

STRICT = ["-W", "error"]
NOISY = ["almost_works.py", "torchrl_3dball.py", "torchrl_soccertwos.py"]
"""TorchRL 0.14.1 warns about itself while it is imported."""


@pytest.fixture
def run(tmp_path):
    def run_example(name, *arguments):
        """Each in a process of its own, as users do: nothing was imported by another one before."""
        plot = tmp_path / "plot.png"
        strict = [] if name in NOISY else STRICT
        call = [sys.executable, *strict, EXAMPLES / name, *map(str, arguments)]
        done = subprocess.run(
            [*call, "--plot", plot],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert plot.stat().st_size > 5000, "a picture with something in it"
        return done.stdout

    return run_example


# `almost_works.py` below shows sooner that TorchRL works in a process of its own.
TORCHRL = pytest.param("torchrl_3dball.py", marks=pytest.mark.slow)


@pytest.mark.parametrize("example", [TORCHRL, "sb3_3dball.py", "cleanrl_style_ppo.py"])
def test_a_learning_example_reports_finished_returns(run, tmp_path, example):
    model = tmp_path / "policy.onnx"
    out = run(example, "--frames", 3600, "--rows-per-batch", 100, "--onnx", model)
    returns = [float(r) for r in re.findall(r"return +(-?[0-9.]+)", out)]
    assert len(returns) >= 2
    assert all(-1.1 < r < 20 for r in returns), (
        "a beginner drops the ball after a second or two"
    )
    figures = touchline.evaluate("3DBall", model, episodes=12)
    assert -1.1 < figures["mean_return"] < 20


def test_a_module_of_ones_own_balances_the_ball_as_a_model_for_unity(tmp_path):
    call = [sys.executable, *STRICT, EXAMPLES / "torch_module.py", "--episodes", "12"]
    done = subprocess.run(
        call, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"balancer\.onnx: return (\S+)", done.stdout)
    assert float(found[1]) > 80


@pytest.mark.parametrize("arguments", [("3DBall",), ("3DBall", "--mode", "respawn")])
def test_random_play_reports_every_episode(run, arguments):
    out = run("pettingzoo_random.py", *arguments, "--steps", 150)
    assert re.search(r"agent_\d+.* return", out)
    assert re.search(r"\d\d+ episodes ended, mean return", out)


@pytest.mark.slow
def test_soccer_learns_by_self_play_and_is_measured_against_random(run):
    out = run(
        "torchrl_soccertwos.py",
        "--frames",
        1024,
        "--rows-per-batch",
        128,
        "--fields",
        2,
        "--hidden",
        32,
        "--games",
        2,
    )
    assert re.search(r"1024 agent steps .* return", out)
    assert re.search(r"against random: \{'won': \d, 'lost': \d, 'undecided': \d\}", out)


@pytest.fixture
def run_notebook(monkeypatch, tmp_path):
    import nbformat
    from nbclient import NotebookClient

    def run_short(name, **settings):
        """The outputs of each cell that has any."""
        for key, value in settings.items():
            monkeypatch.setenv(key, str(value))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(EXAMPLES), *sys.path]))
        notebook = nbformat.read(EXAMPLES / name, as_version=4)
        place = {"metadata": {"path": str(tmp_path)}}
        NotebookClient(notebook, timeout=300, resources=place).execute()
        return [cell["outputs"] for cell in notebook.cells if cell.get("outputs")]

    return run_short


def _printed(outputs):
    return "".join(o.get("text", "") for cell in outputs for o in cell)


@pytest.mark.slow
def test_the_soccer_notebook_runs_from_top_to_bottom_and_ends_with_a_film(run_notebook):
    outputs = run_notebook(
        "soccer.ipynb",
        SOCCER_FRAMES=1024,
        SOCCER_HIDDEN=32,
        SOCCER_FIELDS=2,
        SOCCER_SECONDS=1,
    )
    assert "video/mp4" in str(outputs[-1])
    assert "SoccerTwos_0 with 4 slots" in _printed(outputs)


@pytest.mark.slow
def test_the_course_notebook_trains_films_and_shows_what_it_would_push(run_notebook):
    outputs = run_notebook(
        "course.ipynb", COURSE_STEPS=64, COURSE_GAMES=2, COURSE_SECONDS=1
    )
    assert sum("video/mp4" in str(cell) for cell in outputs) == 2
    printed = _printed(outputs)
    assert "Pyramids?team=0 does" in printed
    for line in ("SoccerTwos.onnx", "replay.mp4", "- ML-Agents-SoccerTwos"):
        assert line in printed


@pytest.mark.slow
def test_the_torchrl_notebook_ends_with_a_curve(run_notebook):
    outputs = run_notebook("torchrl_3dball.ipynb", BALL_FRAMES=2400, BALL_ROWS=100)
    assert "image/png" in str(outputs[-1])
    assert re.search(r"2400 agent steps .* return", _printed(outputs))


def test_wrong_ways_are_measured_beside_the_right_one(run):
    out = run("almost_works.py", "--rows", 120)
    assert re.search(r"right .* 1.00, .* 0%", out)
    assert "episodes cut per finished one" in out
