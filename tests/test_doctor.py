"""The doctor: its report on worlds that work, and on each way in which they do not."""

import sys

import pytest

from touchline.doctor import examine
from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.player import build


def examined(recipe):
    lines = []
    return examine(recipe, lines.append), lines


def test_a_player_that_works(tmp_path):
    works, lines = examined(EnvRecipe("unity", str(build("3DBall", tmp_path)), 2))
    assert works
    assert [line[:4] for line in lines] == ["ok  "] * 7 + ["ever"]
    assert "com.unity.ml-agents 3.0.0, communication version 1.5.0" in lines[3]
    assert "3DBall?team=0: 2 agents observe 8" in lines[4]


@pytest.mark.skipif(sys.platform == "win32", reason="the player is a shell script")
def test_a_player_that_dies_shows_its_log_and_no_further_step(tmp_path):
    path = tmp_path / "game.x86_64"
    path.write_text("#!/bin/sh\necho cannot open display\nexit 3\n")
    path.chmod(0o755)
    works, lines = examined(EnvRecipe("unity", str(path)))
    assert not works
    assert len(lines) == 4
    assert lines[-1].startswith("FAIL  it starts and connects:")
    assert "exited with code 3" in lines[-1]
    assert "cannot open display" in lines[-1]


def test_a_path_without_a_player(tmp_path):
    works, lines = examined(EnvRecipe("unity", str(tmp_path / "none")))
    assert not works
    assert lines[0].startswith("FAIL  the player exists: no player at")


def test_the_editor_gets_advice():
    works, lines = examined(
        EnvRecipe("unity", "editor", options={"base_port": 6233, "timeout_wait": 0.3})
    )
    assert not works
    assert any(line.startswith("note  press Play") for line in lines)
    assert "did not connect to port 6233" in lines[-1]


@pytest.mark.parametrize("seconds", [-1.0, 0.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_no_fault_of_the_game(seconds):
    with pytest.raises(UsageError, match="--timeout-wait: expected seconds, more than"):
        examine("Basic", timeout_wait=seconds)


def test_scenes_and_recordings_can_be_examined_too(shared):
    assert examined(EnvRecipe("scene", "Basic"))[0]
    assert examined(
        EnvRecipe.parse(str(shared / "wire-recordings" / "Zoo-package-2.3.0.wire.gz"))
    )[0]
