"""Recording demonstrations: whole episodes, each action one record after its observation."""

import json
import math
import subprocess
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from tests.stderr import without_progress

import touchline
from touchline.cli import run
from touchline.envs.env import EnvRecipe
from touchline.errors import RunError, UsageError
from touchline.protocol.demonstrations import read_demo
from touchline.training.demonstrations import read_demonstration

DEMOS = Path(__file__).parents[2] / "models" / "demos"
MOVES = np.array([0, -1, 1])
"""What each action of Basic does to the agent's place."""


@pytest.fixture(scope="module")
def basic(tmp_path_factory):
    path = tmp_path_factory.mktemp("demos") / "basic.demo"
    assert touchline.record("Basic", "random", path, episodes=6, seed=3) == [path]
    return path


def test_each_action_leads_from_its_observation_to_the_next(basic):
    demo = read_demonstration(basic)
    place = demo.obs[0].argmax(axis=1)
    next_place = demo.next_obs()[0].argmax(axis=1)
    np.testing.assert_array_equal(
        next_place, place + MOVES[demo.actions.discrete[:, 0]]
    )


def test_it_holds_as_many_whole_episodes_as_were_wanted(basic):
    demo = read_demonstration(basic)
    assert demo.num_episodes == 6
    assert demo.finished.all()
    # Basic pays 0.1 or 1 at a goal, and costs 0.01 with every move.
    expected = demo.returns + 0.01 * demo.lengths
    assert all(round(float(value), 5) in (0.1, 1.0) for value in expected)


def test_records_are_as_current_packages_write_them(basic):
    file = read_demo(basic)
    assert file.has_current_actions
    assert file.behavior == "Basic?team=0"
    first = np.append(True, file.done[:-1])
    assert not file.actions.discrete[first].any()
    assert not file.reward[first].any()
    np.testing.assert_array_equal(file.agent_id, np.cumsum(first) - 1)


def test_masks_are_recorded_where_agents_have_them(tmp_path):
    (path,) = touchline.record("GridWorld", "random", tmp_path / "g.demo", episodes=3)
    demo = read_demonstration(path)
    assert demo.allowed is not None
    assert not demo.allowed.all()
    taken = np.take_along_axis(demo.allowed, demo.actions.discrete, axis=1)
    assert taken.all()


def test_pictures_are_png_files_and_lose_nothing(tmp_path):
    (path,) = touchline.record("GridWorld", "random", tmp_path / "g.demo", episodes=1)
    demo = read_demo(path)
    assert path.read_bytes().count(b"\x89PNG\r\n\x1a\n") == len(demo)
    shapes = [sensor.shape for sensor in demo.spec.observation_specs]
    (picture,) = [i for i, shape in enumerate(shapes) if len(shape) == 3]
    found = demo.obs[picture]
    np.testing.assert_array_equal(
        found, np.rint(found * 255).astype(np.float32) / np.float32(255)
    )
    floats = found.size * 4
    assert path.stat().st_size < floats / 20


def test_grids_are_png_files_of_three_channels_each(tmp_path):
    """Six channels, which are two files; as floats a record takes 9.6 kB."""
    (path,) = touchline.record(
        EnvRecipe("scene", "CooperativePushBlock", num_areas=1),
        "random",
        tmp_path / "c.demo",
        episodes=3,
    )
    demo = read_demo(path)
    assert path.read_bytes().count(b"\x89PNG\r\n\x1a\n") == 2 * len(demo)
    grid = demo.obs[0]
    assert grid.shape[1:] == (6, 20, 20)
    assert set(np.unique(grid)) == {0.0, 1.0}
    assert (grid.sum(axis=(0, 2, 3)) > 0).sum() >= 4
    assert path.stat().st_size < 600 * len(demo)


def test_every_behavior_gets_a_file_of_its_own(tmp_path):
    paths = touchline.record("WallJump", "random", tmp_path / "w.demo", episodes=2)
    assert sorted(path.name for path in paths) == [
        "w-BigWallJump-0.demo",
        "w-SmallWallJump-0.demo",
    ]
    assert all(read_demonstration(path).num_episodes == 2 for path in paths)


def test_an_agent_that_only_takes_another_behavior_records_no_episode(tmp_path):
    """WallJump's agents change their behavior right after the reset; idle ones last to the limit."""
    paths = touchline.record("WallJump", "zero", tmp_path / "w.demo", episodes=12)
    assert len(paths) == 2
    for path in paths:
        assert read_demonstration(path).lengths.tolist() == [400] * 12


def test_a_behavior_is_recorded_from_its_first_agent_on(tmp_path):
    """One agent of WallJump takes the behaviors by turns."""
    recipe = EnvRecipe("scene", "WallJump", num_areas=1)
    paths = touchline.record(recipe, "random", tmp_path / "w.demo", episodes=3)
    demos = [read_demonstration(path) for path in paths]
    assert [demo.num_episodes for demo in demos] == [3, 3]
    assert all(demo.finished.all() and demo.lengths.min() > 1 for demo in demos)


def test_the_same_seed_records_the_same_bytes(basic, tmp_path):
    (again,) = touchline.record(
        "Basic", "random", tmp_path / "b.demo", episodes=6, seed=3
    )
    assert again.read_bytes() == basic.read_bytes()


def test_the_command_records_and_inspect_shows_what_is_there(tmp_path, capsys):
    path = tmp_path / "b.demo"
    command = [
        "record",
        "Basic",
        "--policy",
        "random",
        "--episodes",
        "4",
        "-o",
        str(path),
    ]
    assert run(command) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "4 episodes" in said.err
    assert run(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "Basic: branches [3]" in shown
    assert "branch 0: chosen" in shown
    assert run(["inspect", str(path), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["episodes"] == figures["finished"] == len(figures["returns"]) == 4
    assert sum(figures["discrete_actions"][0]) == pytest.approx(1.0)
    assert figures["actions"] == sum(figures["lengths"])


def test_the_statistics_of_continuous_actions_are_those_of_the_file(tmp_path):
    (path,) = touchline.record("3DBall", "random", tmp_path / "ball.demo", episodes=3)
    demo, figures = read_demonstration(path), touchline.inspect_demonstration(path)
    for column, shown in zip(
        demo.actions.continuous.T, figures["continuous_actions"], strict=True
    ):
        assert shown["mean"] == pytest.approx(column.mean())
        assert shown["max"] == column.max()


def test_a_film_shows_what_the_camera_saw(tmp_path):
    """Compressed in color, so that single pixels differ a little."""
    path = tmp_path / "grid.demo"
    touchline.record("GridWorld", "random", path, episodes=2)
    assert run(["inspect", str(path), "--record", str(tmp_path / "grid.mp4")]) == 0
    demo = read_demonstration(str(path))
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(tmp_path / "grid.mp4")]
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    video = subprocess.run(command, capture_output=True, check=True).stdout
    pictures = np.frombuffer(video, np.uint8).reshape(len(demo), 5 * 64, 5 * 84, 3)
    shown = pictures[:, 2::5, 2::5].transpose(0, 3, 1, 2) / 255
    difference = np.abs(shown - demo.seen[0][demo.row])
    assert difference.mean(axis=(1, 2, 3)).max() < 0.02


def test_a_demonstration_without_pictures_cannot_be_filmed(tmp_path, capsys):
    (path,) = touchline.record("Basic", "random", tmp_path / "basic.demo", episodes=1)
    grid = DEMOS / "CooperativePushBlock.demo"  # it has the shape of two pictures
    for demo in (path, grid):
        film = str(tmp_path / "basic.mp4")
        assert run(["inspect", str(demo), "--record", film]) == 2
        assert "its agents observe no pictures" in capsys.readouterr().err
    assert run(["inspect", "Basic", "--record", str(tmp_path / "basic.mp4")]) == 2
    assert "--record films a demonstration" in capsys.readouterr().err
    assert not (tmp_path / "basic.mp4").exists()


def test_another_ending_is_refused_before_anything_is_played(tmp_path):
    with pytest.raises(UsageError, match=r"expected a file name that ends in \.demo"):
        touchline.record("Basic", "random", tmp_path / "basic.mp4")
    assert not list(tmp_path.iterdir())


def test_a_broken_demonstration_is_one_line_and_exit_code_2(tmp_path, capsys):
    (tmp_path / "x.demo").write_bytes(b"not one")
    assert run(["inspect", str(tmp_path / "x.demo")]) == 2
    (line,) = without_progress(capsys.readouterr().err)
    assert line.startswith(f"touchline: {tmp_path / 'x.demo'}: ")


def test_a_least_return_that_is_no_number_is_refused(tmp_path):
    with pytest.raises(UsageError, match="--min-return: expected a number, got nan"):
        touchline.record("Basic", "random", tmp_path / "x.demo", min_return=math.nan)
    assert not list(tmp_path.iterdir())


def test_episodes_that_return_too_little_are_left_out(basic, tmp_path):
    whole = read_demo(basic)
    returns = read_demonstration(basic).returns
    assert returns.min() < np.median(returns)
    least = float(np.median(returns))

    def recorded(min_return):
        path = tmp_path / "b.demo"
        touchline.record(
            "Basic", "random", path, episodes=6, seed=3, min_return=min_return
        )
        return path

    path = recorded(least)
    kept = read_demonstration(path)
    np.testing.assert_array_equal(kept.returns, returns[returns >= least])
    assert kept.finished.all()
    rows = np.isin(whole.agent_id, np.flatnonzero(returns >= least))
    file = read_demo(path)
    np.testing.assert_array_equal(file.obs[0], whole.obs[0][rows])
    np.testing.assert_array_equal(file.actions.discrete, whole.actions.discrete[rows])
    before = path.read_bytes()
    with pytest.raises(RunError, match=r"none of the 6 episodes returned 2 or more"):
        recorded(2.0)
    assert path.read_bytes() == before
