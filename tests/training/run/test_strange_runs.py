"""Runs copied from others: continuing one writes and deletes nothing outside its folder."""

import json
import shutil

import pytest
from tests.training.run.test_broken_runs import run

from touchline.errors import UsageError
from touchline.policies.files.checkpoints import read_arrays
from touchline.policies.files.run_layout import RunLayout


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


def test_a_linked_folder_of_a_behavior_is_refused(layout, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    shutil.move(layout.folder("Basic"), elsewhere)
    layout.folder("Basic").symlink_to(elsewhere, target_is_directory=True)
    before = sorted(path.name for path in elsewhere.iterdir())
    with pytest.raises(UsageError, match="a link"):
        run(tmp_path / "results", resume=True)
    assert sorted(path.name for path in elsewhere.iterdir()) == before


def test_a_link_in_place_of_a_part_file_is_not_followed(layout, tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    part = layout.configuration.with_name(layout.configuration.name + ".part")
    part.symlink_to(victim)
    run(tmp_path / "results", resume=True)
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


@pytest.mark.parametrize("value", [{"seed": "x"}, {"Basic": [1, 2]}, {"Basic": "x"}])
def test_a_status_of_other_kinds_is_one_line(layout, tmp_path, value):
    change_status(layout, lambda status: status.update(value))
    with pytest.raises(UsageError, match=r"training_status\.json"):
        run(tmp_path / "results", resume=True)
