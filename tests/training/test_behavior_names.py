"""Configured behaviors that a world does not have."""

import pytest

from touchline import player
from touchline.cli import run
from touchline.errors import UsageError
from touchline.training.config.reading import read_config, write_config
from touchline.training.world import check_names, recipe_of

BLOCK = "{max_steps: 100}"


def _config(tmp_path, *names):
    path = tmp_path / "config.yaml"
    blocks = "".join(f"  {name}: {BLOCK}\n" for name in names)
    path.write_text(f"# Mine.\nbehaviors:\n{blocks}")
    return path


def test_a_misspelled_behavior_is_refused_at_its_line_with_the_nearest_name(tmp_path):
    path = _config(tmp_path, "3DBall", "3DBal")
    expected = (
        f"{path}:4:3: behaviors.3DBal: 3DBall has no such behavior; "
        "did you mean '3DBall'? it has: 3DBall"
    )
    with pytest.raises(UsageError) as error:
        recipe_of(read_config(str(path)), "3DBall")
    assert str(error.value) == expected


def test_a_behavior_of_another_scene_is_refused_where_all_are_known(tmp_path):
    config = read_config(str(_config(tmp_path, "Basic", "Walker")))
    with pytest.raises(UsageError, match="Basic has no such behavior; it has: Basic"):
        recipe_of(config, "Basic")


@pytest.mark.parametrize(
    ("configured", "shown"),
    [
        ("SmallWallJump", "BigWallJump"),
        ("Agent1", "Agent2"),
        ("SoccerAgentA", "SoccerAgentB"),
        ("Walker", "3DBall"),
    ],
)
def test_a_game_may_show_a_configured_behavior_later(tmp_path, configured, shown):
    config = read_config(str(_config(tmp_path, configured, shown)))
    check_names(config, "the world", [shown], all_are_shown=False)


@pytest.mark.parametrize("slip", ["3DBal", "3DBalls", "3dBall", "3DBlal"])
def test_a_slip_is_refused_before_a_game_has_shown_everything(tmp_path, slip):
    config = read_config(str(_config(tmp_path, "3DBall", slip)))
    with pytest.raises(UsageError, match="did you mean '3DBall'"):
        check_names(config, "the world", ["3DBall"], all_are_shown=False)


def test_places_make_no_difference_between_configurations(tmp_path):
    config = read_config(str(_config(tmp_path, "3DBall")))
    write_config(config, tmp_path / "copy.yaml")
    assert read_config(str(tmp_path / "copy.yaml")) == config


def test_a_player_refuses_a_misspelled_behavior_once_it_has_shown_its_own(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    game = player.build("Basic", tmp_path)
    path = _config(tmp_path, "Basic", "Basics")
    assert run(["train", str(path), "--env", str(game)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == (
        f"touchline: {path}:4:3: behaviors.Basics: the world has no such behavior; "
        "did you mean 'Basic'? it has: Basic"
    )
    assert not (tmp_path / "results" / "ppo" / "Basic").exists()


def test_a_lesson_that_waits_for_no_behavior_is_refused(tmp_path):
    """With default settings, its name is not one of the configured ones."""
    path = tmp_path / "config.yaml"
    path.write_text(
        f"""
default_settings: {BLOCK}
environment_parameters:
  mass:
    curriculum:
      - {{name: light, value: 1,
          completion_criteria: {{behavior: 3DBal, measure: progress, threshold: 0.2}}}}
      - {{name: heavy, value: 2}}
"""
    )
    expected = (
        "environment_parameters.mass.curriculum.0.completion_criteria.behavior: 3DBall has no "
        "such behavior; did you mean '3DBall'? it has: 3DBall"
    )
    with pytest.raises(UsageError) as error:
        recipe_of(read_config(str(path)), "3DBall")
    assert str(error.value) == expected
