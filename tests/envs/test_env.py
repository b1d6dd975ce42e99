"""An ENV as people type it."""

import pytest

from touchline.envs.env import EnvRecipe


@pytest.mark.parametrize(
    ("typed", "world"),
    [
        ("3DBall", "scene"),
        ("3DBal", "scene"),  # a scene misspelt is answered with the nearest name
        ("editor", "unity"),
        ("builds/3DBall", "unity"),
        ("./3DBall", "unity"),
        ("game.x86_64", "unity"),
        ("C:/games/game.exe", "unity"),
        ("Game.app", "unity"),
        ("session.wire.gz", "recording"),
        ("somewhere/session.wire.gz", "recording"),
    ],
)
def test_an_env_is_a_scene_a_player_the_editor_or_a_recording(typed, world):
    assert EnvRecipe.parse(typed) == EnvRecipe(world, typed)
    assert EnvRecipe.parse(typed, seed=3).seed == 3
