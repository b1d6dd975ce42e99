"""Configuration: the presets, ML-Agents' spellings, and errors that name the line."""

import pytest

from touchline.errors import UsageError
from touchline.training.config import preset_names, read_config, write_config

YAML = """\
behaviors:
  3DBall:
    trainer_type: ppo
    hyperparameters:
      batch_size: 64
      learning_rate: 3e-4
    max_steps: 5e5
environment_parameters:
  mass: 2
"""


def _read(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return read_config(str(path))


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_survives_being_saved_and_read(name, tmp_path):
    config = read_config(name)
    write_config(config, tmp_path / "again.yaml")
    assert read_config(str(tmp_path / "again.yaml")) == config


def test_the_presets_carry_the_official_figures():
    ball = read_config("3DBall").behaviors["3DBall"]
    assert (ball.hyperparameters.batch_size, ball.hyperparameters.buffer_size) == (64, 12000)
    assert (ball.hyperparameters.lambd, ball.max_steps, ball.time_horizon) == (0.99, 500_000, 1000)
    hard = read_config("3DBallHard").behaviors["3DBallHard"]
    assert (hard.hyperparameters.batch_size, hard.hyperparameters.lambd) == (120, 0.95)
    basic = read_config("Basic").behaviors["Basic"]
    assert (basic.network_settings.hidden_units, basic.reward_signals["extrinsic"].gamma) == (20, 0.9)


def test_numbers_are_read_as_ml_agents_reads_them(tmp_path):
    config = _read(tmp_path, YAML)
    behavior = config.behaviors["3DBall"]
    assert behavior.hyperparameters.learning_rate == 3e-4
    assert behavior.max_steps == 500_000
    assert config.environment_parameters == {"mass": 2.0}


def test_schedules_follow_the_learning_rates(tmp_path):
    hyper = _read(tmp_path, YAML + "").behaviors["3DBall"].hyperparameters
    assert (hyper.beta_schedule, hyper.epsilon_schedule) == ("linear", "linear")
    text = YAML.replace("batch_size: 64", "batch_size: 64\n      learning_rate_schedule: constant")
    hyper = _read(tmp_path, text).behaviors["3DBall"].hyperparameters
    assert (hyper.beta_schedule, hyper.epsilon_schedule) == ("constant", "constant")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("batch_size: 64", "batch_sise: 64", r"config.yaml:5:7: behaviors.3DBall.hyperparameters.batch_sise: unknown key; did you mean 'batch_size'\?"),
        ("batch_size: 64", "batch_size: many", r"config.yaml:5:7: .*batch_size: .*integer.*, got 'many'"),
        ("batch_size: 64", "batch_size: 64.5", r"config.yaml:5:7: .*batch_size: .*integer"),
        ("batch_size: 64", "batch_size: 0", r"config.yaml:5:7: .*batch_size: .*greater than 0, got 0"),
        ("batch_size: 64", "batch_size: 99999", r"config.yaml:4:5: .*batch_size 99999 is larger than buffer_size 10240"),
        ("learning_rate: 3e-4", "learning_rate: fast", r"config.yaml:6:7: .*learning_rate: .*number.*, got 'fast'"),
        ("trainer_type: ppo", "trainer_type: sac", r"config.yaml:3:5: behaviors.3DBall.trainer_type: the trainer 'sac' is not built yet; built: ppo"),
        ("max_steps: 5e5", "max_step: 5e5", r"config.yaml:7:5: .*max_step: unknown key; did you mean 'max_steps'\?"),
        ("behaviors:", "behaviours:", r"config.yaml:1:1: behaviours: unknown key; did you mean 'behaviors'\?"),
        ("behaviors:", "behaviors: [", r"config.yaml:\d+:\d+: not YAML"),
        (YAML, "- a list", r"config.yaml:1:1: expected keys and values"),
        ("  mass: 2", "  mass: 2\n  mass: 3", r"config.yaml:10:3: environment_parameters.mass: written twice"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(tmp_path, old, new, expected):
    with pytest.raises(UsageError, match=expected):
        _read(tmp_path, YAML.replace(old, new))


def test_set_changes_one_key_and_keeps_the_rest():
    config = read_config("3DBall", ["behaviors.3DBall.hyperparameters.learning_rate=1e-3"])
    assert config.behaviors["3DBall"].hyperparameters.learning_rate == 1e-3
    assert config.behaviors["3DBall"].hyperparameters.batch_size == 64


def test_building_one_config_leaves_the_next_alone():
    read_config("3DBall", ["behaviors.3DBall.max_steps=1"])
    assert read_config("3DBall").behaviors["3DBall"].max_steps == 500_000
