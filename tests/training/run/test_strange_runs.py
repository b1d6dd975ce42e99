"""Runs copied from others: continuing one writes and deletes nothing outside its folder."""

import json
import shutil

import pytest
from tests.training.run.test_broken_runs import run

from touchline.errors import UsageError
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
