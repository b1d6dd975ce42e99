"""Draws the film that the README opens with, if it is not there: agents trained from nothing.

Trains each scene (four minutes in all on two cores), films it, and puts the films side by side into
one GIF.
"""

import subprocess
import tempfile
from pathlib import Path

import imageio_ffmpeg

import touchline

FILM = Path(__file__).parent / "images" / "trained.gif"
MOST_BYTES = 3_000_000
TRAININGS = {
    "3DBall": {"env_settings.num_areas": 128},
    "PushBlock": {"behaviors.PushBlock.max_steps": 800_000},
}
"""Scene, also the preset's name -> changed settings."""
SIZE = (360, 270)
SECONDS = 8.0
SIDE_BY_SIDE = (
    f"hstack=inputs={len(TRAININGS)},fps=12.5,"
    # One palette for all pictures, and no dithering: scenes have few colors, and dots that
    # change in every picture would double the size.
    "split[a][b];[a]palettegen=max_colors=128[p];[b][p]paletteuse=dither=none"
)


def draw(film: Path, folder: Path) -> None:
    """Train, film, join; runs and single films go to `folder`."""
    inputs = []
    for scene, changes in TRAININGS.items():
        results = {"checkpoint_settings.results_dir": str(folder)}
        run = touchline.train(scene, run_id=scene, changes=changes | results)
        part = folder / f"{scene}.mp4"
        touchline.play(scene, str(run.folder), record=part, seconds=SECONDS, size=SIZE)
        inputs += ["-i", str(part)]
    ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    command = [ffmpeg, "-y", "-loglevel", "error", *inputs]
    subprocess.run([*command, "-filter_complex", SIDE_BY_SIDE, str(film)], check=True)
    assert film.stat().st_size < MOST_BYTES, "too large for the top of a page"


if __name__ == "__main__" and not FILM.exists():
    with tempfile.TemporaryDirectory() as folder:
        draw(FILM, Path(folder))
