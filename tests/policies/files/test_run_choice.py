"""Which run a folder stands for, and the verbs that take a folder of several."""

import json
from pathlib import Path

import pytest
from tests.studies.written_runs import write_run

import touchline
from touchline.cli import run
from touchline.doctor import examine
from touchline.errors import UsageError
from touchline.policies.files.run_layout import (
    RunLayout,
    has_runs,
    run_of,
    runs_in,
    with_run,
)


def test_a_run_stands_for_itself_and_seeds_are_in_order_of_their_numbers(tmp_path):
    for seed in (10, 9, 0):
        write_run(tmp_path / f"s/seed-{seed}", [1.0], scores=[1.0])
    (tmp_path / "s/seed-x").mkdir()
    (tmp_path / "s/seed-3").mkdir()  # not begun
    names = [path.name for path in runs_in(tmp_path / "s")]
    assert names == ["seed-0", "seed-9", "seed-10"]
    assert runs_in(tmp_path / "s/seed-9") == [tmp_path / "s/seed-9"]
    assert runs_in(tmp_path) == runs_in(tmp_path / "nowhere") == []
    assert not has_runs(tmp_path)


def test_the_best_by_evaluation_is_taken_and_named(tmp_path):
    for seed, score in enumerate((0.3, 0.9, 0.5)):
        write_run(tmp_path / f"s/seed-{seed}", [2.0 - score], scores=[score])
    lines = []
    assert run_of(tmp_path / "s", lines.append) == tmp_path / "s/seed-1"
    assert lines == [
        f"{tmp_path / 's'}: takes seed-1 of 3 runs: its evaluation, 0.900, is the best; "
        f"to take another: {tmp_path / 's/seed-0'}"
    ]
    assert run_of(tmp_path / "s/seed-2", lines.append) == tmp_path / "s/seed-2"
    assert len(lines) == 1
    assert with_run(f"Basic={tmp_path / 's'}") == f"Basic={tmp_path / 's/seed-1'}"
    assert with_run("random") == "random"


def test_a_run_with_a_damaged_status_is_not_the_best(tmp_path):
    write_run(tmp_path / "s/seed-0", [0.1], scores=[0.1])
    write_run(tmp_path / "s/seed-1", [0.1], scores=[0.9])
    status = RunLayout(tmp_path / "s/seed-1").status
    for text in (
        "{",
        '{"Basic": {"checkpoints": [1]}}',
        '{"Basic": {"checkpoints": 3}}',
    ):
        status.write_text(text)
        assert run_of(tmp_path / "s", lambda _: None) == tmp_path / "s/seed-0"


def test_seeds_without_a_policy_are_one_line(tmp_path):
    write_run(tmp_path / "s/seed-0", [])
    RunLayout(tmp_path / "s/seed-0").latest("Basic").unlink()
    with pytest.raises(UsageError, match="none of its runs has saved a policy yet"):
        run_of(tmp_path / "s", lambda _: None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two seeds of Basic in one folder; the second has the better evaluation."""
    folder = tmp_path_factory.mktemp("trained")
    for seed in (0, 1):
        touchline.train(
            "Basic",
            run_id=f"seed-{seed}",
            changes={"behaviors.*.max_steps": 300, "evaluation.episodes": 4},
            settings={"results_dir": str(folder / "s"), "seed": seed},
            log=lambda _: None,
        )
        status = RunLayout(folder / f"s/seed-{seed}").status
        content = json.loads(status.read_text(encoding="utf-8"))
        content["Basic"]["evaluations"][-1]["score"] = float(seed)
        status.write_text(json.dumps(content))
    return folder / "s"


def test_every_verb_takes_the_best_seed(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    named = "takes seed-1 of 2 runs"
    model = touchline.export(trained, "x.onnx")
    assert model.read_bytes() == (trained / "seed-1/Basic.onnx").read_bytes()
    best, whole = str(trained / "seed-1"), str(trained)
    assert run(["eval", "Basic", "--policy", best, "--episodes", "4", "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    assert run(["eval", "Basic", "--policy", whole, "--episodes", "4", "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["policy"] == best
    speed = {"agent_steps_per_s": 0}
    assert found | speed == expected | speed
    upload = touchline.push(trained, "me/basic", dry_run=True, log=print)
    assert "Basic.onnx" in upload.files
    assert named in capsys.readouterr().out


def test_the_doctor_examines_every_seed(trained):
    from touchline.doctor import findings

    path = Path(trained, "seed-0/Basic/metrics.csv")
    whole = path.read_text(encoding="utf-8")
    header, *rows = whole.splitlines()
    at = header.split(",").index("kl")
    spoiled = [row.split(",") for row in rows]
    for row in spoiled:
        row[at] = "5.0"
    path.write_text("\n".join([header, *map(",".join, spoiled)]) + "\n")
    try:
        behaviors = {found["behavior"] for found in findings(trained)}
    finally:
        path.write_text(whole)
    assert "seed-0 Basic" in behaviors
    lines = []
    assert examine(trained, lines.append)
    assert lines == ["nothing is conspicuous in the figures of seed-0, seed-1"]
