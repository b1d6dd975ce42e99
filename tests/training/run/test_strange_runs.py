"""Runs copied from others: continuing one writes and deletes nothing outside its folder."""

import json
import shutil
import sys

import pytest
from tests.training.run.test_broken_runs import run

import touchline
from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.operating_systems import quoted
from touchline.policies.files.checkpoints import read_arrays
from touchline.policies.files.run_layout import RunLayout
from touchline.studies.learning_faults import diagnose
from touchline.training.config.reading import read_config
from touchline.training.inference import act_only
from touchline.training.run.experience import ExperienceFiles
from touchline.whole import part_of, write_whole

links = pytest.mark.skipif(
    sys.platform == "win32",
    reason="Windows asks for a privilege before it makes a link",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    results = tmp_path_factory.mktemp("whole")
    run(results, resume=False)
    return results


@pytest.fixture
def layout(whole, tmp_path):
    shutil.copytree(whole / "r", tmp_path / "results" / "r")
    return RunLayout(tmp_path / "results" / "r")


def change_status(layout, change):
    status = json.loads(layout.status.read_text(encoding="utf-8"))
    change(status)
    layout.status.write_text(json.dumps(status), encoding="utf-8")


@pytest.mark.parametrize("steps", ["/../../../../victim/precious", -1, True, None, 1.5])
def test_steps_that_are_no_number_delete_no_file_elsewhere(layout, tmp_path, steps):
    precious = tmp_path / "victim" / "precious.safetensors"
    precious.parent.mkdir()
    precious.write_bytes(b"precious")
    (layout.folder("Basic") / "Basic-").mkdir()
    entry = {"file": "x", "steps": steps, "mean_return": 0.0}
    change_status(layout, lambda s: s["Basic"].update(checkpoints=[entry] * 9))
    with pytest.raises(UsageError, match="expected steps as a whole number"):
        run(tmp_path / "results", resume=True)
    assert precious.read_bytes() == b"precious"


def contents(folder):
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@links
def test_no_file_and_no_folder_of_a_run_may_be_a_link_to_elsewhere(layout, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    for path in sorted(layout.path.rglob("*")):
        shutil.move(path, elsewhere)
        path.symlink_to(elsewhere, target_is_directory=elsewhere.is_dir())
        is_file = elsewhere.is_file()
        before = elsewhere.read_bytes() if is_file else contents(elsewhere)
        with pytest.raises(UsageError, match="a link"):
            run(tmp_path / "results", resume=True)
        assert (elsewhere.read_bytes() if is_file else contents(elsewhere)) == before
        path.unlink()
        shutil.move(elsewhere, path)
    run(tmp_path / "results", resume=True)


@pytest.mark.parametrize("name", ["r/run_logs/Player-0.log", ".r.lock"])
@links
def test_no_file_is_made_through_a_link(layout, tmp_path, name):
    victim = tmp_path / "victim"
    (tmp_path / "results" / name).unlink(missing_ok=True)
    (tmp_path / "results" / name).symlink_to(victim)
    with pytest.raises(UsageError, match="a link"):
        run(tmp_path / "results", resume=True)
    assert not victim.exists()


@links
def test_a_link_within_a_run_is_no_harm(layout, tmp_path):
    """As Weights & Biases leaves one in a run's folder."""
    (layout.path / "latest-run").symlink_to(layout.folder("Basic").name)
    run(tmp_path / "results", resume=True)


@links
def test_seeds_and_trials_are_not_written_through_links(layout, tmp_path):
    results = tmp_path / "several"
    results.mkdir()
    (results / "x").mkdir()
    (results / "x" / "seed-1").symlink_to(layout.path, target_is_directory=True)
    before = contents(layout.path)
    here = [f"checkpoint_settings.results_dir={results}"]
    with pytest.raises(UsageError, match="seed-1: a link"):
        touchline.train_seeds("Basic", "1", run_id="x", resume=True, changes=here)
    (results / "x" / "seed-1").unlink()
    victim, space = tmp_path / "victim", tmp_path / "space.yaml"
    victim.write_bytes(b"precious")
    space.write_text("behaviors.Basic.hyperparameters.beta: {choices: [0.1]}")
    (results / "x" / "trials.journal").symlink_to(victim)
    with pytest.raises(UsageError, match=r"trials\.journal: a link"):
        touchline.tune("Basic", space, 1, run_id="x", resume=True, changes=here)
    assert contents(layout.path) == before
    assert victim.read_bytes() == b"precious"


@links
def test_a_run_that_is_a_link_is_replaced_and_not_what_it_leads_to(layout, tmp_path):
    results = tmp_path / "others"
    results.mkdir()
    (results / "r").symlink_to(layout.path, target_is_directory=True)
    before = contents(layout.path)
    run(results, resume=False, force=True)
    assert not (results / "r").is_symlink()
    assert contents(layout.path) == before


def test_files_of_the_user_among_the_experience_stay(layout, tmp_path):
    experience = layout.experience("Basic")
    experience.mkdir()
    (experience / "notes.txt").write_text("mine")
    for name in ("0-9.safetensors", "5-7.safetensors"):
        (experience / name).write_bytes(b"")
    files = ExperienceFiles(layout)
    files.load_state({"Basic": [(0, 9)]})
    files.drop_unnamed()
    left = sorted(path.name for path in experience.iterdir())
    assert left == ["0-9.safetensors", "notes.txt"]


@links
def test_a_link_in_place_of_a_part_file_is_not_followed(layout, tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    part_of(layout.configuration).symlink_to(victim)
    write_whole(layout.configuration, b"{}")
    assert layout.configuration.read_bytes() == b"{}"
    assert victim.read_bytes() == b"precious"


def test_a_status_of_brackets_is_one_line(layout, tmp_path):
    layout.status.write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(UsageError, match="not JSON"):
        run(tmp_path / "results", resume=True)


def flipped_last_bit(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_flipped_bit_in_a_resume_point_continues_from_the_one_before(
    layout, tmp_path
):
    flipped_last_bit(layout.resume_point)
    run(tmp_path / "results", resume=True)
    steps = [c["steps"] for c in status_of(layout)["Basic"]["checkpoints"]]
    assert steps[-1] >= 200


def test_acting_without_learning_survives_a_flipped_bit_too(layout, tmp_path):
    flipped_last_bit(layout.resume_point)
    overrides = {
        "checkpoint_settings.results_dir": str(tmp_path / "results"),
        "checkpoint_settings.run_id": "r",
        "checkpoint_settings.resume": True,
        "behaviors.*.max_steps": 200,
    }
    lines = []
    act_only(
        read_config("Basic", (), overrides), EnvRecipe("scene", "Basic"), lines.append
    )
    assert any("the resume point before it" in line for line in lines)


def test_two_damaged_resume_points_are_one_line(layout, tmp_path):
    flipped_last_bit(layout.resume_point)
    flipped_last_bit(layout.resume_point_before)
    with pytest.raises(UsageError, match=r"resume\.safetensors: damaged") as caught:
        run(tmp_path / "results", resume=True)
    assert "\n" not in str(caught.value)


def status_of(layout):
    return json.loads(layout.status.read_text(encoding="utf-8"))


def test_a_changed_figure_in_the_metadata_of_a_resume_point_is_noticed(layout):
    data = layout.resume_point.read_bytes()
    assert b"64" in data
    layout.resume_point.write_bytes(
        data.replace(b'\\"steps\\": 64', b'\\"steps\\": 65')
    )
    assert layout.resume_point.read_bytes() != data
    with pytest.raises(UsageError, match="damaged"):
        read_arrays(layout.resume_point)


def test_a_table_of_figures_that_is_no_table_is_one_line(layout, tmp_path):
    for content in (b"\xff\xfe\x00" * 500, b"a,b\n1,2\n"):
        layout.metrics("Basic").write_bytes(content)
        with pytest.raises(UsageError, match=r"metrics\.csv"):
            run(tmp_path / "results", resume=True)


@pytest.mark.parametrize(
    "entry",
    [
        {"steps": 64, "score": "x", "ci95": [0, 1]},
        {"steps": 64, "score": 10**400},
        {"steps": 64, "ci95": [0, 1]},
        {"steps": 64, "score": 0.5, "ci95": 3},
        {"steps": 64, "score": 0.5, "lessons": []},
        "x",
    ],
    ids=str,
)
def test_figures_of_other_kinds_are_one_line(layout, tmp_path, entry):
    change_status(layout, lambda s: s["Basic"].update(evaluations=[entry]))
    with pytest.raises(UsageError, match=r"training_status\.json: Basic: evaluations"):
        run(tmp_path / "results", resume=True)
    with pytest.raises(UsageError, match=r"training_status\.json: Basic: evaluations"):
        diagnose(layout.path)


def test_figures_that_do_not_fit_together_are_one_line(layout):
    table = "step,time_s,episodes,mean_return,std_return,value_loss\n"
    layout.metrics("Basic").write_text(table + "64,1,3,0.5,,2\n")
    with pytest.raises(UsageError, match="'value loss grows' cannot be checked"):
        diagnose(layout.path)


def test_no_run_names_the_program_that_is_started_to_view_it(layout, tmp_path):
    started = tmp_path / "started"
    program = tmp_path / "game.x86_64"
    program.write_text(f"#!/bin/sh\ntouch {started}\n")
    program.chmod(0o755)
    change_status(layout, lambda s: s.update(world="unity", target=str(program)))
    with pytest.raises(UsageError, match="which no file of a run starts") as caught:
        touchline.view(str(layout.path), port=0)
    assert f"touchline view {quoted(str(program))} --policy" in str(caught.value)
    assert not started.exists()


@pytest.mark.parametrize("value", [{"seed": "x"}, {"Basic": [1, 2]}, {"Basic": "x"}])
def test_a_status_of_other_kinds_is_one_line(layout, tmp_path, value):
    change_status(layout, lambda status: status.update(value))
    with pytest.raises(UsageError, match=r"training_status\.json"):
        run(tmp_path / "results", resume=True)
