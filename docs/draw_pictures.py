"""Draws the pictures of docs/scenes.md that are not there: a scene after a few random steps."""

from pathlib import Path

import matplotlib.image

from touchline.envs.env import EnvRecipe, make
from touchline.scenes import SCENES
from touchline.testing import play_randomly

FOLDER = Path(__file__).parent / "images"

for scene in SCENES:
    if (FOLDER / f"{scene}.png").exists():
        continue  # posed by hand, or drawn before
    with make(EnvRecipe("scene", scene, num_areas=1)) as env:
        env.reset(seed=3)
        play_randomly(env, 8)
        matplotlib.image.imsave(FOLDER / f"{scene}.png", env.render(0, 480, 360))
