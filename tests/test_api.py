"""What the command line does, as Python calls: the same figures, files and errors."""

import json
from pathlib import Path

import pytest

import touchline
from touchline import EnvRecipe, UsageError
from touchline.bench import run_bench
from touchline.cli import run
from touchline.player import build
from touchline.scenes import list_scenes

# They repeat calls whose shapes shorter tests check.
pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def test_a_run_is_trained_measured_exported_and_continued_from_python(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    lines = []
    settings = {"env_settings.seed": 1, "behaviors.*.max_steps": 300}
    first = touchline.train("Basic", run_id="x", changes=settings, log=lines.append)
    assert (first.folder, first.interrupted) == (Path("results/x"), False)
    assert first.behaviors["Basic"].steps >= 300
    assert any("preset Basic" in line for line in lines)

    more = ["behaviors.Basic.max_steps=600"]
    second = touchline.train(
        "Basic", run_id="x", resume=True, changes=more, log=lines.append
    )
    assert second.behaviors["Basic"].steps >= 600

    model = touchline.export("results/x", tmp_path / "model.onnx")
    assert model.stat().st_size > 1000
    assert capsys.readouterr().out == "", (
        "a library prints nothing when it is given a log"
    )

    figures = touchline.evaluate("Basic", model, episodes=4, seed=3)
    assert (
        run(
            [
                "eval",
                "Basic",
                "--policy",
                str(model),
                "--episodes",
                "4",
                "--seed",
                "3",
                "--json",
            ]
        )
        == 0
    )
    printed = json.loads(capsys.readouterr().out)
    speed = {"agent_steps_per_s": 0}
    assert printed | speed == figures | speed

    actor = touchline.load_policy("results/x", deterministic=True)
    with touchline.make("Basic") as env:
        slots = touchline.Slots(env)
        for rows in slots.reset(0).values():
            assert actor.act(rows).discrete.shape == (len(rows), 1)


def test_inference_only_acts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"behaviors.*.max_steps": 200}
    touchline.train("Basic", changes=settings, log=lambda _: None)
    before = sorted(p.stat().st_mtime_ns for p in tmp_path.rglob("*"))
    settings["checkpoint_settings.inference"] = True
    result = touchline.train("Basic", resume=True, changes=settings, log=lambda _: None)
    assert (result.folder, result.behaviors) == (Path("results/Basic"), {})
    assert sorted(p.stat().st_mtime_ns for p in tmp_path.rglob("*")) == before


def test_the_specs_of_a_world_are_plain_values_or_text():
    recipe = EnvRecipe.parse("Basic", num_areas=2)
    assert touchline.inspect(recipe)["Basic?team=0"]["branches"] == [3]
    assert touchline.describe(recipe).startswith("Basic?team=0: branches [3]")
    first = list_scenes()[0]
    assert {"scene", "areas", "about", "parameters"} <= set(first)
    assert first["behaviors"]["3DBall?team=0"] == {
        "agents": 1,
        "observations": [[8]],
        "continuous": 2,
        "branches": [],
    }
    assert (Path(__file__).parents[1] / first["picture"]).is_file()


SAME_ERRORS = [
    (lambda: touchline.train("3Dball"), ["train", "3Dball"]),
    (lambda: touchline.train("no.yaml"), ["train", "no.yaml"]),
    (lambda: touchline.train("3DBall", run_id="../x"), ["train", "3DBall", "--run-id", "../x"]),
    (lambda: touchline.train("3DBall", run_id="none", resume=True), ["train", "3DBall", "--run-id", "none", "--resume"]),
    (lambda: touchline.train("3DBall", env="Basic"), ["train", "3DBall", "--env", "Basic"]),
    (lambda: touchline.evaluate("3DBal", "random"), ["eval", "3DBal", "--policy", "random"]),
    (lambda: touchline.evaluate("Basic", "random", seed=-5), ["eval", "Basic", "--policy", "random", "--seed", "-5"]),
    (lambda: touchline.evaluate("Basic", "no.onnx"), ["eval", "Basic", "--policy", "no.onnx"]),
    (lambda: touchline.evaluate("Basic", "random", versus="random"), ["eval", "Basic", "--policy", "random", "--versus", "random"]),
    (lambda: touchline.evaluate("Basic", "random", record_wire=Path("a.wire.gz")), ["eval", "Basic", "--policy", "random", "--record-wire", "a.wire.gz"]),
    (lambda: touchline.evaluate_opponents("Basic", "random", ["x"]), ["eval", "Basic", "--policy", "random", "--opponents", "x"]),
    (lambda: touchline.play("Basic", "random"), ["play", "Basic", "--policy", "random"]),
    (lambda: touchline.play("Basic", "random", record="a.gif"), ["play", "Basic", "--policy", "random", "--record", "a.gif"]),
    (lambda: touchline.export("nowhere", "a.onnx"), ["export", "nowhere", "-o", "a.onnx"]),
    (lambda: touchline.inspect("./no-player"), ["inspect", "./no-player", "--json"]),
    (lambda: build("3DBal", "."), ["build", "3DBal", "-o", "."]),
    (lambda: run_bench("all"), ["bench", "all"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "arguments"), SAME_ERRORS, ids=[" ".join(a) for _, a in SAME_ERRORS]
)
def test_a_wrong_call_raises_what_the_command_line_prints(
    call, arguments, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        call()
    assert run(arguments) == 2
    assert (
        capsys.readouterr().err == f"touchline: {' '.join(str(caught.value).split())}\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_change_from_python_is_named_in_the_error():
    with pytest.raises(
        UsageError, match=r"^changes\['behaviors.\*.max_steps'\]: .*greater than 0"
    ):
        touchline.train("3DBall", changes={"behaviors.*.max_steps": -1})
    with pytest.raises(
        UsageError, match=r"^--set behaviors.\*.max_steps.*greater than"
    ):
        touchline.train("3DBall", changes="behaviors.*.max_steps=-1")
    with pytest.raises(UsageError, match="train what"):
        touchline.train()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("games.xyz", r"games\.xyz: expected a file name that ends in \.png"),
        ("file/games.png", r"games\.png: cannot be written: .*file is no folder"),
    ],
)
def test_a_picture_that_cannot_be_written_is_refused_before_games_are_played(
    name, expected, tmp_path
):
    (tmp_path / "file").touch()
    played = []
    shown = {"picture": tmp_path / name, "progress": lambda *_: played.append(1)}
    with pytest.raises(UsageError, match=expected):
        touchline.tournament(
            "SoccerTwos", ["random", "zero"], games=2, processes=1, **shown
        )
    with pytest.raises(UsageError, match=expected):
        touchline.parity("3DBall", "random", episodes=2, **shown)
    assert not played
