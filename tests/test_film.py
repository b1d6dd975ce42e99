"""Films of policies at play, and players that show themselves."""

import time
from pathlib import Path

import imageio_ffmpeg
import pytest

import touchline
from tests.scripted_world import ScriptedWorld
from touchline.cli import run
from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.film import film
from touchline.player import build
from touchline.policies.loading import load_sides


def test_a_player_that_shows_itself_plays_for_as_long_as_asked(tmp_path, monkeypatch):
    steps = []
    step = Slots.step

    def counted(slots, actions):
        steps.append(sorted(actions))
        return step(slots, actions)

    monkeypatch.setattr(Slots, "step", counted)
    player = build("Basic", tmp_path / "builds")
    began = time.monotonic()
    touchline.play(str(player), "random", seconds=1.0)
    assert time.monotonic() - began >= 1.0
    assert len(steps) >= 5
    assert steps[0] == ["Basic?team=0"]


def test_a_world_that_cannot_be_watched_says_so(tmp_path):
    with pytest.raises(UsageError, match="cannot be recorded"):
        film(ScriptedWorld(), ["random"], tmp_path / "game.mp4")


def test_a_film_is_as_long_and_as_large_as_asked_for(tmp_path):
    path = tmp_path / "walk.mp4"
    with make("Basic") as env:
        film(env, ["random"], path, seconds=2.0, size=(161, 119))
        frames_per_second, _ = env.film_rate
    count, seconds = imageio_ffmpeg.count_frames_and_secs(str(path))
    assert count == round(2.0 * frames_per_second)
    assert seconds == pytest.approx(2.0)
    reader = imageio_ffmpeg.read_frames(str(path))
    assert next(reader)["size"] == (162, 120)  # rounded up to even numbers
    reader.close()


def test_a_film_of_no_time_shows_one_picture(tmp_path):
    path = tmp_path / "blink.mp4"
    with make("Basic") as env:
        film(env, ["random"], path, seconds=0.01)
    assert imageio_ffmpeg.count_frames_and_secs(str(path))[0] == 1


def test_a_film_needs_an_mp4_file_and_leaves_none_behind_otherwise(tmp_path):
    with make("Basic") as env, pytest.raises(UsageError, match=r"ends in \.mp4"):
        film(env, ["random"], tmp_path / "walk.gif")
    assert not list(tmp_path.iterdir())


def test_a_film_that_is_interrupted_leaves_an_earlier_one_whole(tmp_path):
    path = tmp_path / "walk.mp4"
    path.write_bytes(b"a good film")

    def interrupt(done, total):
        raise KeyboardInterrupt

    with make("Basic") as env, pytest.raises(KeyboardInterrupt):
        film(env, ["random"], path, progress=interrupt)
    assert path.read_bytes() == b"a good film"
    assert list(tmp_path.iterdir()) == [path]


def test_a_film_that_cannot_be_written_is_refused_before_the_world_opens(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.mp4").mkdir()
    (tmp_path / "file").touch()
    for wrong in ("folder.mp4", "file/x.mp4", "x.gif"):
        # The scene does not exist either, which only opening it would show.
        assert run(["play", "NoScene", "--policy", "random", "--record", wrong]) == 2
        error = capsys.readouterr().err
        assert str(Path(wrong)) in error
        assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--area=1000000", "--area: expected 0 to 999,999, got 1000000"),
        ("--num-areas=1000001", "num_areas must be 1,000,000 or less"),
        ("--seconds=inf", "--seconds: expected a finite number, got inf"),
    ],
)
def test_a_film_without_limits_is_one_line(flag, expected, tmp_path, capsys):
    path = tmp_path / "x.mp4"
    command = ["play", "Basic", "--policy", "random", "--record", str(path), flag]
    assert run(command) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1


def test_ffmpeg_takes_any_name_of_a_film_for_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["--record=-x.mp4", "--seconds", "0.1"]
    assert run(["play", "Basic", "--policy", "random", *flags]) == 0
    assert imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "-x.mp4"))[0] > 0


def test_each_side_plays_by_its_own_policy():
    with make(EnvRecipe("scene", "SoccerTwos", num_areas=2)) as env:
        slots = Slots(env)
        rows = slots.reset(0)
        actors = load_sides(
            ["zero"], ["random"], slots, "it", deterministic=False, seed=0
        )
        chosen = {name: actors[name].act(row).discrete for name, row in rows.items()}
        assert not chosen["SoccerTwos?team=0"].any()
        assert chosen["SoccerTwos?team=1"].any()


def test_a_side_against_another_is_filmed(tmp_path):
    path = tmp_path / "game.mp4"
    with make(EnvRecipe("scene", "SoccerTwos", num_areas=1)) as env:
        film(env, ["zero"], path, seconds=0.2, size=(64, 48), versus=["random"])
    assert imageio_ffmpeg.count_frames_and_secs(str(path))[0] == 10


def test_a_film_of_two_sides_needs_two_teams(tmp_path):
    with (
        make("Basic") as env,
        pytest.raises(UsageError, match=r"--versus: .* only one team"),
    ):
        film(env, ["random"], tmp_path / "game.mp4", versus=["random"])
    assert not list(tmp_path.iterdir())


def test_a_film_of_a_recording_is_refused(shared):
    recording = shared / "wire-recordings" / "Basic-package-3.0.0.wire.gz"
    with pytest.raises(UsageError, match="a recording has no picture"):
        touchline.play(str(recording), "random", record="film.mp4")
