"""Files in the formats of ML-Agents 0.10 to 0.17, written for these tests."""

import pytest

import touchline
from touchline.cli import run
from touchline.errors import UsageError
from touchline.training.config.reading import read_config

FLAT = """\
default:
  trainer: ppo
  batch_size: 1024
  beta: 5.0e-3
  buffer_size: 10240
  epsilon: 0.2
  hidden_units: 128
  learning_rate: 3.0e-4
  max_steps: 5.0e4
  memory_size: 256
  normalize: false
  num_epoch: 3
  num_layers: 2
  sequence_length: 64
  use_recurrent: false
  vis_encode_type: simple
  reward_signals:
    extrinsic: {strength: 1.0, gamma: 0.99}

Rooms:
  use_recurrent: true
  sequence_length: 32
  batch_size: 128
  buffer_size: 2048
  max_steps: 2e5
  reward_signals:
    extrinsic: {strength: 1.0, gamma: 0.99}
    curiosity: {strength: 0.02, gamma: 0.99, encoding_size: 64}

BigRooms: Rooms

Arm:
  trainer: sac
  batch_size: 256
  beta: 0.01
  buffer_size: 500000
  buffer_init_steps: 1000
  init_entcoef: 0.5
  num_update: 2
  train_interval: 4
  tau: 0.005
  pretraining: {demo_path: arm.demo, strength: 0.5, steps: 10000}

Tennis:
  normalize: true
  self_play:
    window: 10
    play_against_current_self_ratio: 0.4
    save_steps: 50000

Clone:
  trainer: offline_bc
  demo_path: clone.demo
  batches_per_epoch: 5
"""
"""Keys as in the `trainer_config.yaml` of 0.10 to 0.16."""


def converted(tmp_path, text, **options):
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(text)
    lines = []
    assert touchline.convert(old, new, log=lines.append, **options) == new
    return read_config(str(new)), [line.removeprefix(f"{old}: ") for line in lines]


def test_flat_blocks_become_todays(tmp_path):
    config, lines = converted(tmp_path, FLAT)
    rooms = config.behaviors["Rooms"]
    assert rooms.trainer_type == "ppo"
    assert rooms.max_steps == 200_000
    assert rooms.hyperparameters.batch_size == 128
    assert rooms.hyperparameters.epsilon == 0.2
    assert rooms.network_settings.hidden_units == 128
    memory = rooms.network_settings.memory
    assert (memory.sequence_length, memory.memory_size) == (32, 256)
    assert rooms.reward_signals["curiosity"].network_settings.hidden_units == 64
    assert config.behaviors["BigRooms"] == rooms, "a name means the block of that name"
    arm = config.behaviors["Arm"]
    assert arm.trainer_type == "sac"
    assert arm.hyperparameters.steps_per_update == 2.0
    assert arm.network_settings.memory is None
    assert arm.behavioral_cloning.strength == 0.5
    tennis = config.behaviors["Tennis"]
    assert tennis.self_play.play_against_latest_model_ratio == 0.4
    assert tennis.hyperparameters.batch_size == 1024
    clone = config.behaviors["Clone"]
    assert (clone.max_steps, clone.behavioral_cloning.demo_path) == (0, "clone.demo")
    assert [line.partition(":")[0] for line in lines] == [
        "max_steps and summary_freq counted steps of the environment until 0.13",
        "Arm.steps_per_update",
        "Arm.beta",
        "Clone",
        "Clone.batches_per_epoch",
    ]
    assert "multiply it by the number of agents" in lines[1]


def test_an_old_file_is_answered_with_what_it_reads_like_today(tmp_path):
    path = tmp_path / "old.yaml"
    path.write_text(FLAT)
    with pytest.raises(UsageError) as refused:
        read_config(str(path))
    assert str(refused.value) == (
        f"{path}:1:1: default: this file is for ML-Agents 0.10 to 0.16; default is "
        "default_settings today, every other block stands below behaviors, and trainer: ppo with "
        "batch_size: 64 is trainer_type: ppo with hyperparameters: {batch_size: 64}; `touchline "
        f"convert {path} -o new.yaml` rewrites it"
    )
    path.write_text("Ball:\n  trainer: ppo\n  use_recurrent: false\n")
    with pytest.raises(UsageError, match=r"old.yaml:1:1: Ball: this file is for ML-Ag"):
        read_config(str(path))


CURRICULUM = """\
Wall:
  measure: progress
  thresholds: [0.1, 0.3]
  min_lesson_length: 100
  signal_smoothing: true
  parameters:
    height: [0.0, 4.0, 8.0]
    width: [1, 2, 3]
"""
SAMPLER = """\
resampling-interval: 5000
mass: {sampler-type: uniform, min_value: 0.5, max_value: 10}
gravity: {sampler-type: multirange_uniform, intervals: [[7, 10], [15, 20]]}
width: {sampler-type: gaussian, mean: 2, st_dev: 0.5}
"""


def check_parameters(config, lines):
    parameters = config.environment_parameters
    assert parameters["mass"].sampler_parameters.max_value == 10
    assert parameters["gravity"].sampler_type == "multirangeuniform"
    assert parameters["width"].sampler_parameters.st_dev == 0.5
    lessons = parameters["height"].curriculum
    assert [lesson.value for lesson in lessons] == [0.0, 4.0, 8.0]
    first, last = lessons[0].completion_criteria, lessons[-1].completion_criteria
    assert (first.behavior, first.measure, first.threshold) == ("Wall", "progress", 0.1)
    assert last is None
    assert lines[-2:] == [
        "resampling-interval: left out; parameters are drawn at every reset today",
        "width: its curriculum of Wall is left out; a parameter has one sampler or one curriculum",
    ]


def test_files_of_curricula_and_samplers_become_environment_parameters(tmp_path):
    (tmp_path / "sampler.yaml").write_text(SAMPLER)
    (tmp_path / "curriculum.yaml").write_text(CURRICULUM)
    check_parameters(
        *converted(
            tmp_path,
            "default: {trainer: ppo}\nWall: {batch_size: 64}\n",
            curricula=[tmp_path / "curriculum.yaml"],
            sampler=tmp_path / "sampler.yaml",
        )
    )


def test_curricula_until_0_13_are_a_folder_of_files_named_after_behaviors(tmp_path):
    folder = tmp_path / "curricula"
    folder.mkdir()
    (folder / "Wall.json").write_text(
        '{"measure": "reward", "thresholds": [1], "min_lesson_length": 3,'
        ' "signal_smoothing": false, "parameters": {"height": [1.5, 2.5]}}'
    )
    config, _ = converted(
        tmp_path, "Wall: {trainer: ppo, batch_size: 64}\n", curricula=[folder]
    )
    lessons = config.environment_parameters["height"].curriculum
    assert [lesson.value for lesson in lessons] == [1.5, 2.5]
    assert lessons[0].completion_criteria.behavior == "Wall"


def test_the_blocks_of_0_17_are_kept_and_its_parameters_converted(tmp_path):
    def indented(text):
        return "".join(f"  {line}\n" for line in text.splitlines())

    text = (
        "behaviors:\n  Wall: {trainer_type: ppo, max_steps: 7000}\n"
        f"curriculum:\n{indented(CURRICULUM)}parameter_randomization:\n{indented(SAMPLER)}"
    )
    config, lines = converted(tmp_path, text)
    assert config.behaviors["Wall"].max_steps == 7000
    check_parameters(config, lines)
    with pytest.raises(
        UsageError, match=r"this file is for ML-Agents 0.17; curriculum"
    ):
        read_config(str(tmp_path / "old.yaml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("behaviors: {Ball: {}}\n", "not a file of ML-Agents before 0.18"),
        ("colour: red\n", "not a file of ML-Agents before 0.18"),
        ("", "not a file of ML-Agents before 0.18"),
        ("Ball: {trainer: magic, batch_size: 3}\n", "Ball: no trainer 'magic' today"),
        ("Ball: {batch_size: 3}\nOther: text\n", "Other: expected keys and values"),
    ],
)
def test_what_cannot_be_converted_is_one_line(tmp_path, capsys, text, message):
    old = tmp_path / "old.yaml"
    old.write_text(text)
    assert run(["convert", str(old), "-o", str(tmp_path / "new.yaml")]) == 2
    printed = capsys.readouterr().err.strip()
    assert message in printed
    assert "\n" not in printed
    assert not (tmp_path / "new.yaml").exists()


def test_the_command_says_what_it_could_not_carry_over(tmp_path, capsys):
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(FLAT)
    assert run(["convert", str(old), "-o", str(new)]) == 0
    printed = capsys.readouterr().err
    assert "Arm.beta: left out; sac has no such setting today" in printed
    assert printed.endswith(f"wrote {new}\n")
