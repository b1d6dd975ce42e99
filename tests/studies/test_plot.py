"""Learning curves in one figure: what is one curve, what is drawn, and files that can be opened."""

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.studies.written_runs import write_run

import touchline
from touchline.cli import run
from touchline.errors import UsageError
from touchline.studies.plot import Curve, curve_of


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Three seeds of one way of training, and a single run of another."""
    monkeypatch.chdir(tmp_path)
    for seed in range(3):
        write_run(
            tmp_path / f"ppo/seed-{seed}",
            [0.1 * k + 0.01 * seed for k in range(5)],
            scores=[0.4 + seed, 0.6 + seed],
        )
    write_run(tmp_path / "sac", [0.5, 0.9], scores=[0.9])
    return tmp_path


def _texts(path):
    """The texts of an SVG whose letters are drawn: they stay as comments."""
    parser = ET.XMLParser(target=ET.TreeBuilder(insert_comments=True))
    tree = ET.parse(path, parser)
    return [e.text.strip() for e in tree.iter() if e.tag is ET.Comment]


def test_a_folder_of_seeds_is_one_curve_and_a_run_another(results):
    lines = []
    path = touchline.plot(["ppo", "sac"], "out/figure.svg", log=lines.append)
    assert lines == [
        "Basic  ppo: return 0.410 [0.400, 0.420] at 500, 3 seeds",
        "Basic  sac: return 0.900 at 200, 1 run",
    ]
    assert path.read_bytes() == touchline.plot(["ppo", "sac"], "b.svg").read_bytes()
    texts = _texts(path)
    assert "ppo (3 seeds)" in texts
    assert "sac (1 run)" in texts
    assert "return (mean over seeds, 95 % interval)" in texts
    assert "agent steps" in texts


@pytest.mark.parametrize(
    ("end", "words"),
    [(0.0431, "0.043"), (2.5, "2.5"), (2052.333, "2,052"), (12_000_000, "12,000,000")],
)
def test_the_last_point_is_said_exactly_enough(end, words):
    ends = np.array([0.0, end])
    curve = Curve("ppo", ends, ends, None, None, [(ends, ends)], "return")
    assert curve.latest.endswith(f" at {words}, 1 run")


def test_runs_with_one_name_are_one_curve(results, capsys):
    named = ["mine=ppo/seed-0", "mine=sac", "all=ppo"]
    assert run(["plot", *named, "--average", "iqm", "--against", "minutes"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert lines[0].startswith("Basic  mine: return ")
    assert lines[0].endswith("at 2, 2 seeds")  # minutes that both have
    assert lines[-1] == "wrote curves.svg"
    assert "minutes" in _texts("curves.svg")


def test_folders_of_the_same_name_are_two_curves(results):
    lines = []
    write_run(results / "old/sac", [0.2])
    touchline.plot(["sac", "old/sac"], "x.svg", log=lines.append)
    assert [line.split(":")[0] for line in lines] == [
        "Basic  sac",
        f"Basic  {Path('old/sac')}",
    ]


def test_every_behavior_has_a_panel(results):
    write_run(results / "sac", [1.0, 2.0], behavior="BigWallJump")
    path = touchline.plot(["ppo", "sac"], "x.svg")
    assert {"Basic", "BigWallJump"} <= set(_texts(path))


def test_evaluations_are_a_metric_with_a_time(results):
    lines = []
    touchline.plot(
        ["ppo"], "x.png", metric="evaluation", against="minutes", log=lines.append
    )
    assert lines == ["Basic  ppo: evaluation 1.500 [0.500, 2.500] at 5, 3 seeds"]


def test_names_are_drawn_as_they_are_written(results):
    """Two dollar signs are mathematics to matplotlib, and its font has no such letters."""
    write_run(results / "$}$ a", [0.5, 0.9], behavior="$}$ 跑")
    texts = _texts(touchline.plot(["$}$ a"], "x.svg"))
    assert {"$}$ 跑", "$}$ a (1 run)"} <= set(texts)


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_the_file_has_the_format_of_its_ending(ending, results):
    path = touchline.plot(["ppo", "sac"], f"figure.{ending}")
    start = path.read_bytes()[:5]
    assert start == {"png": b"\x89PNG\r", "pdf": b"%PDF-", "svg": b"<?xml"}[ending]
    if ending == "png":
        colors = np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3)
        # The colors of both curves, beside those of text and grid.
        for color in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):
            assert (colors == color).all(axis=1).sum() > 100


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["ppo", "-o", "x.jpg"],
            "x.jpg: expected a file that ends in .svg, .pdf, .png",
        ),
        (["A=ppo", "A=ppo"], "is given twice"),
        (["nowhere"], "nowhere: no run folder: expected results/RUN-ID"),
        (
            ["ppo", "--metric", "elo"],
            "no run has elo; they have evaluation, mean_return",
        ),
        (["ppo", "--against", "days"], "--against days: expected steps or minutes"),
        (["ppo", "--average", "best"], "--average best: expected mean or iqm"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(arguments, expected, results, capsys):
    assert run(["plot", *arguments]) == 2
    printed = capsys.readouterr().err
    assert expected in printed
    assert printed.count("\n") == 1


def test_the_interval_holds_the_mean_of_new_seeds_as_often_as_it_says():
    rng = np.random.default_rng(1)
    x = np.array([0.0, 1.0])
    held = 0
    for _ in range(200):
        seeds = [(x, np.full(2, value)) for value in rng.normal(size=20)]
        curve = curve_of("x", seeds, "return", "mean")
        held += bool(curve.low[0] <= 0.0 <= curve.high[0])
    # 93 % with 20 seeds: the bootstrap is a little too narrow.
    assert 175 <= held <= 198


def test_a_run_without_rows_is_refused(tmp_path):
    write_run(tmp_path / "new", [])
    with pytest.raises(UsageError, match="no run has score; they have no figures"):
        touchline.plot([tmp_path / "new"], tmp_path / "x.svg")
