"""Draws the film that the README opens with, if it is not there: policies of models/ at play.

They were trained here from nothing ([Results](results.md)). Each is filmed, and the films are put
together into one GIF.
"""

import subprocess
import tempfile
from pathlib import Path

import imageio_ffmpeg

import touchline

ROOT = Path(__file__).parents[1]
FILM = ROOT / "docs" / "images" / "trained.gif"
MOST_BYTES = 2_000_000
SCENES = ("SoccerTwos", "Walker", "CooperativePushBlock", "Crawler")
SIZE = (304, 228)
SECONDS = 6.0
TWO_BY_TWO = (
    "[0][1]hstack[a];[2][3]hstack[b];[a][b]vstack,fps=10,"
    # One palette for all pictures, and no dithering: scenes have few colors, and dots that
    # change in every picture would double the size.
    "split[c][d];[c]palettegen=max_colors=64[p];[d][p]paletteuse=dither=none"
)


def draw(film: Path, folder: Path) -> None:
    """Film and join; single films go to `folder`."""
    inputs = []
    for scene in SCENES:
        part = folder / f"{scene}.mp4"
        model = ROOT / "models" / f"{scene}.onnx"
        touchline.play(scene, str(model), record=part, seconds=SECONDS, size=SIZE)
        inputs += ["-i", str(part)]
    ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    command = [ffmpeg, "-y", "-loglevel", "error", *inputs]
    subprocess.run([*command, "-filter_complex", TWO_BY_TWO, str(film)], check=True)
    assert film.stat().st_size < MOST_BYTES, "too large for the top of a page"


if __name__ == "__main__" and not FILM.exists():
    with tempfile.TemporaryDirectory() as folder:
        draw(FILM, Path(folder))
