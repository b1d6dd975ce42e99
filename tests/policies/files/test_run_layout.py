"""The files of a run folder, by name."""

import pytest

from touchline.errors import UsageError
from touchline.policies.files.run_layout import RunLayout


def _run(path, *files):
    for file in files:
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (path / file).write_bytes(b"")
    return RunLayout(path)


def test_the_newest_policy_is_the_model_or_else_the_latest_checkpoint(tmp_path):
    run = _run(
        tmp_path, "A.onnx", "A/checkpoint.safetensors", "B/checkpoint.safetensors"
    )
    assert run.newest("A") == tmp_path / "A.onnx"
    assert run.newest("B") == tmp_path / "B" / "checkpoint.safetensors"
    assert run.behaviors() == ["A", "B"]
    assert list(run.checkpoints()) == ["A", "B"]
    assert run.checkpoint("B") == run.latest("B")


def test_the_only_behavior_needs_no_name(tmp_path):
    run = _run(tmp_path, "A.onnx", "A/checkpoint.safetensors")
    assert run.newest() == run.model("A")
    assert run.checkpoint() == run.latest("A")


def test_what_is_missing_is_said_with_what_is_there(tmp_path):
    run = _run(
        tmp_path, "A.onnx", "A/checkpoint.safetensors", "B/checkpoint.safetensors"
    )
    with pytest.raises(
        UsageError, match="no run folder with a model for C; it has models for A, B"
    ):
        run.newest("C")
    with pytest.raises(UsageError, match="say which behavior: A, B"):
        run.newest()
    with pytest.raises(UsageError, match="say which --behavior: A, B"):
        run.checkpoint()
    with pytest.raises(UsageError, match="no behavior 'C'; say which --behavior: A, B"):
        run.checkpoint("C")
    empty = RunLayout(tmp_path / "empty")
    with pytest.raises(
        UsageError, match="no run folder with a model for A; it has no models"
    ):
        empty.newest("A")
    with pytest.raises(UsageError, match="no run folder with a checkpoint"):
        empty.checkpoint()


def test_every_file_has_its_own_place(tmp_path):
    run = RunLayout(tmp_path)
    files = [
        run.configuration,
        run.status,
        run.timers,
        run.resume_point,
        run.report,
        run.replay,
    ]
    files += [run.model("A"), run.curve("A"), run.latest("A"), run.metrics("A")]
    files += [
        run.best("A"),
        run.best("A", ".onnx"),
        run.numbered("A", 5),
        run.numbered("A", 6),
    ]
    assert len(set(files)) == len(files)
    assert all(tmp_path in file.parents for file in files)


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/b",
        "/tmp/x",
        "a\\b",
        ".",
        "..",
        ".. ",
        "",
        "a\nb",
        "a\0b",
        "run_logs",
        "lessons",
        "world",
        "x" * 300,
    ],
)
def test_a_name_that_cannot_be_a_file_name_is_refused_in_one_short_line(name, tmp_path):
    run = RunLayout(tmp_path)
    for file in (run.model, run.curve, run.folder, run.latest, run.best, run.metrics):
        with pytest.raises(UsageError, match="expected a name without separators") as e:
            file(name)
        assert "\n" not in str(e.value)
        assert len(str(e.value)) < 400


def test_names_that_unity_projects_use_are_file_names(tmp_path):
    for name in ("3DBall", "My Behavior", "Walker.Dynamic", "走る", "x" * 200):
        assert RunLayout(tmp_path).folder(name) == tmp_path / name
