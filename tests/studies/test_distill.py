"""A small student that plays like its teacher."""

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch

import touchline
from touchline.cli.app import run
from touchline.errors import UsageError
from touchline.policies.files.checkpoints import network_metadata, write_checkpoint
from touchline.policies.files.onnx_in import OnnxPolicy
from touchline.policies.files.onnx_out import export_onnx
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.network import Architecture
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.studies import distill as module
from touchline.studies.distill import distill, distill_lines

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
BASIC = BehaviorSpec((ObservationSpec.vector(20, "position"),), ActionSpec(0, (3,)))


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(module, "TIMED", 10)


@pytest.mark.parametrize(("scene", "decisions"), [("3DBall", 8_000), ("Basic", 3_000)])
def test_a_student_with_a_tenth_of_the_weights_keeps_the_return(
    shared, tmp_path, scene, decisions
):
    teacher = shared / "unity-policies" / f"{scene}.onnx"
    small = tmp_path / "small.onnx"
    units = 32 if scene == "3DBall" else 16
    figures = distill(
        teacher,
        small,
        world=scene,
        hidden_units=units,
        decisions=decisions,
        episodes=24,
    )
    assert figures["kept"] > 0.97
    own, others = figures["student"], figures["teacher"]
    assert own["bytes"] == small.stat().st_size
    assert own["weights"] < others["weights"]
    if scene == "3DBall":
        assert own["weights"] < others["weights"] / 10
    assert others["mean_return"] == pytest.approx(100 if scene == "3DBall" else 0.93)
    played = touchline.evaluate(scene, small, episodes=24, seed=5)
    assert played["mean_return"] > 0.95 * others["mean_return"]
    (table,) = [line for line in distill_lines(figures) if line.startswith("student")]
    assert f"{own['weights']:,}" in table


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_student_in_the_place_of_its_teacher_is_refused(tmp_path, is_folder):
    teacher = tmp_path / "rate=3e-4.onnx"
    export_onnx(ActorCritic(BASIC, Architecture(64, 2, True)), teacher)
    content = teacher.read_bytes()
    output = tmp_path / "student.onnx" if is_folder else teacher
    if is_folder:
        output.mkdir()
    reason = "is a folder" if is_folder else "is the teacher"
    with pytest.raises(UsageError, match=f"{reason}; expected another file"):
        distill(f"Basic={teacher}", output, world="Basic", decisions=10, episodes=1)
    assert teacher.read_bytes() == content


def test_a_student_that_cannot_be_written_is_refused_before_it_learns(tmp_path):
    teacher = tmp_path / "teacher.onnx"
    export_onnx(ActorCritic(BASIC, Architecture(64, 2, True)), teacher)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file is no folder that you may write to"):
        distill(teacher, tmp_path / "file" / "student.onnx", world="Basic")


def test_one_of_two_behaviors_is_distilled_beside_the_other_ones_policy(tmp_path):
    models = Path(__file__).parents[2] / "models"
    small = tmp_path / "small.onnx"
    about = {"behavior": "Goalie", "decisions": 320, "episodes": 1}
    teachers = [models / "Striker.onnx", models / "Goalie.onnx"]
    figures = distill(teachers, small, world="StrikersVsGoalie", **about)
    assert figures["teacher"]["policy"] == str(models / "Goalie.onnx")
    with touchline.make("StrikersVsGoalie") as world:
        for name, spec in world.behaviors.items():
            if name.startswith("Goalie"):
                OnnxPolicy(small).check(name, spec)
    with pytest.raises(
        UsageError, match=r"--behavior: expected one of Striker, Goalie"
    ):
        distill(teachers, small, world="StrikersVsGoalie")
    with pytest.raises(
        UsageError, match=r"Striker.*; add the policy random, or Striker="
    ):
        distill(teachers[1], small, world="StrikersVsGoalie", **about)


def test_two_teachers_of_one_behavior_are_one_line(tmp_path):
    models = Path(__file__).parents[2] / "models"
    one, other = models / "SoccerTwos.onnx", tmp_path / "other.onnx"
    other.write_bytes(one.read_bytes())
    teachers = [f"SoccerTwos?team=0={one}", f"SoccerTwos?team=1={other}"]
    with pytest.raises(
        UsageError, match=r"SoccerTwos has two teachers, .*; expected one"
    ):
        distill(teachers, tmp_path / "small.onnx", world="SoccerTwos")


def test_the_same_seed_makes_the_same_student(shared, tmp_path):
    teacher = shared / "unity-policies" / "Basic.onnx"
    for name in ("a", "b"):
        distill(
            teacher,
            tmp_path / f"{name}.onnx",
            world="Basic",
            hidden_units=8,
            decisions=640,
            episodes=1,
        )
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_a_student_draws_with_the_spread_of_its_teacher(tmp_path):
    spec = BehaviorSpec((ObservationSpec.vector(8, "ball"),), ActionSpec(2))
    torch.manual_seed(0)
    network = ActorCritic(spec, Architecture(hidden_units=64))
    with torch.no_grad():
        network.log_std.copy_(torch.tensor([-1.0, -2.0]))
    export_onnx(network, tmp_path / "teacher.onnx")
    small = tmp_path / "small.onnx"
    distill(
        tmp_path / "teacher.onnx", small, world="3DBall", decisions=3000, episodes=1
    )
    session = ort.InferenceSession(small.read_bytes())
    rows = np.zeros((4000, 8), np.float32)
    mean, drawn = session.run(
        ["deterministic_continuous_actions", "continuous_actions"], {"obs_0": rows}
    )
    spread = np.exp([-1.0, -2.0]) / 3  # raw actions are divided by 3
    np.testing.assert_allclose((drawn - mean).std(axis=0), spread, rtol=0.1)


def _checkpoint(path, architecture):
    network = ActorCritic(BASIC, architecture)
    tensors = {f"network.{k}": v for k, v in network.state_dict().items()}
    write_checkpoint(path, tensors, network_metadata(network))
    return path


@pytest.mark.parametrize(
    ("architecture", "arguments", "line"),
    [
        (Architecture(8, 1), ["--env", "Basic"], "the student would have 816 weights, its teacher has"),
        (Architecture(8, 1, memory_size=8), ["--env", "Basic"], "the teacher of Basic has a memory"),
        (Architecture(64, 1), [], "name the environment to play in, --env ENV"),
        (Architecture(64, 1), ["--env", "Basic", "--behavior", "Other"], "--behavior Other: expected one of Basic"),
        (Architecture(64, 1), ["--env", "3DBall"], "does not fit 3DBall"),
    ],
)  # fmt: skip
def test_what_cannot_be_distilled_is_one_line(
    tmp_path, capsys, architecture, arguments, line
):
    teacher = _checkpoint(tmp_path / "teacher.safetensors", architecture)
    small = tmp_path / "small.onnx"
    assert run(["distill", str(teacher), "-o", str(small), *arguments]) == 2
    (shown,) = [s for s in capsys.readouterr().err.splitlines() if "touchline: " in s]
    assert line in shown
    assert "--policy" not in shown, "distill has no such option"
    assert not small.exists()


@pytest.mark.parametrize(
    ("name", "value"), [("decisions", 9), ("episodes", 0), ("hidden_units", "8")]
)
def test_numbers_out_of_range_are_one_line(tmp_path, name, value):
    with pytest.raises(UsageError, match=f"{name}: expected a whole number from"):
        distill("zero", tmp_path / "small.onnx", world="Basic", **{name: value})


def test_rules_are_no_teachers_and_students_are_onnx_files(tmp_path):
    with pytest.raises(UsageError, match="zero: expected a trained policy"):
        distill("zero", tmp_path / "small.onnx", world="Basic")
    with pytest.raises(UsageError, match="nothing: no such run or policy file"):
        distill("nothing", tmp_path / "small.onnx")
    with pytest.raises(UsageError, match=r"small\.pt: expected a file NAME\.onnx"):
        distill("zero", tmp_path / "small.pt", world="Basic")


@pytest.mark.parametrize("name", ["", "Basic="])
def test_a_run_knows_its_scene_and_figures_can_be_json(tmp_path, capsys, name):
    folder, small = tmp_path / "results", tmp_path / "small.onnx"
    about = {"results_dir": str(folder), "num_areas": 4, "max_steps": 64}
    settings = {**about, "evaluation_episodes": 0}
    touchline.train("Basic", settings=settings, log=lambda _: None)
    capsys.readouterr()
    arguments = [
        "--decisions",
        "200",
        "--episodes",
        "2",
        "--hidden-units",
        "4",
        "--json",
    ]
    teacher = f"{name}{folder / 'Basic'}"
    assert run(["distill", teacher, "-o", str(small), *arguments]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["scene"] == figures["behavior"] == "Basic"
    assert figures["teacher"]["policy"] == str(folder / "Basic")
    assert figures["decisions"] >= 200
