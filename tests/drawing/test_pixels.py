"""Pictures of tableaux."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from touchline.drawing.look import FLAT
from touchline.drawing.pixels import Painter
from touchline.drawing.tableau import NO_SHAPES, Camera, Kind, Tableau, make_shapes
from touchline.envs.env import EnvRecipe, make
from touchline.errors import UsageError

RED = (1.0, 0.0, 0.0, 1.0)


def _seen_from_above(shapes):
    camera = Camera(
        eye=(0.0, 5.0, 0.0), target=(0.0, 0.0, 0.0), height_m=4.0, smooth=False
    )
    return Tableau(static=NO_SHAPES, moving=shapes, camera=camera, light=FLAT)


def test_z_is_up_and_x_is_right_in_a_picture_from_above():
    square = make_shapes(Kind.BOX, 0.5, (1.5, 0.0, 1.5), RED)
    picture = Painter().draw(_seen_from_above(square), 40, 40)
    is_red = (picture == (255, 0, 0)).all(axis=2)
    expected = np.zeros((40, 40), np.bool_)
    expected[:10, 30:] = True  # 10 pixels per meter; row 0 is the top
    assert (is_red == expected).all()


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_of_shape_is_drawn(kind):
    picture = Painter().draw(
        _seen_from_above(make_shapes(kind, 1.0, (0.0, 0.0, 0.0), RED)), 40, 40
    )
    assert (picture[20, 20] == (255, 0, 0)).all()


def test_what_is_not_shown_is_not_drawn():
    square = make_shapes(Kind.BOX, 0.5, (0.0, 0.0, 0.0), RED)
    hidden = replace(square, shown=np.array([False]))
    picture = Painter().draw(_seen_from_above(hidden), 40, 40)
    assert (picture == Painter().draw(_seen_from_above(NO_SHAPES), 40, 40)).all()


def test_a_painter_draws_any_size_and_after_it_was_closed():
    painter = Painter()
    tableau = _seen_from_above(make_shapes(Kind.BOX, 0.5, (0.0, 0.0, 0.0), RED))
    small, large = painter.draw(tableau, 40, 40), painter.draw(tableau, 80, 60)
    assert large.shape == (60, 80, 3)
    painter.close()
    painter.close()
    assert (painter.draw(tableau, 40, 40) == small).all()
    painter.close()


def test_a_picture_that_is_too_large_is_refused():
    with pytest.raises(UsageError, match="largest is 3840 x 2160"):
        Painter().draw(_seen_from_above(NO_SHAPES), 4000, 100)


def test_an_environment_draws_its_tableau():
    with make(EnvRecipe("scene", "Basic")) as env:
        env.reset(seed=0)
        assert (
            env.render(0, 160, 120) == Painter().draw(env.tableau(0), 160, 120)
        ).all()
        with pytest.raises(UsageError, match="area must be 0 to 0, got 1"):
            env.render(1)


@pytest.mark.skipif(
    sys.platform != "linux", reason="MUJOCO_GL chooses among Linux's libraries"
)
@pytest.mark.parametrize("scene", ["Basic", "3DBall"])
def test_an_opengl_library_that_cannot_be_loaded_is_one_line(
    scene, tmp_path, monkeypatch
):
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    command = [
        "play",
        scene,
        "--policy",
        "random",
        "--record",
        str(tmp_path / "film.mp4"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "touchline", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    *before, error = done.stderr.splitlines()
    assert "MUJOCO_GL=nonsense" in error
    # The first use of a scene on a machine announces that it compiles.
    expected = ("compiling ", "play ")
    assert [line for line in before if not line.startswith(expected)] == []
    assert not list(tmp_path.iterdir())
