"""The examples run, in short mode, and leave what they promise: finished returns on the terminal and a plot."""

import re
import runpy
import sys
import warnings
from pathlib import Path

import pytest

with warnings.catch_warnings():  # TorchRL 0.14.1 warns about itself while it is imported
    warnings.simplefilter("ignore")
    import torchrl.collectors
    import torchrl.objectives  # noqa: F401

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    def run_example(name, *arguments):
        plot = tmp_path / "plot.png"
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments), "--plot", str(plot)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        assert plot.stat().st_size > 5000, "a picture with something in it"
        return capsys.readouterr().out

    return run_example


@pytest.mark.parametrize("example", ["torchrl_3dball.py", "sb3_3dball.py", "cleanrl_style_ppo.py"])
def test_a_learning_example_reports_finished_returns(run, example):
    out = run(example, "--frames", 3600, "--rows-per-batch", 100)
    returns = [float(r) for r in re.findall(r"return +(-?[0-9.]+)", out)]
    assert len(returns) >= 2
    assert all(-1.1 < r < 20 for r in returns), "a beginner drops the ball after a second or two"


@pytest.mark.parametrize("arguments", [("3DBall",), ("3DBall", "--mode", "respawn")])
def test_random_play_reports_every_life(run, arguments):
    out = run("pettingzoo_random.py", *arguments, "--steps", 150)
    assert re.search(r"agent_\d+.* return", out)
    assert re.search(r"\d\d+ lives ended, mean return", out)
