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
        "default",
    ]
    assert config.default_settings is None, "ppo's keys would reach into Arm's block"
    assert "multiply it by the number of agents" in lines[1]


def test_blocks_within_a_block_lose_what_they_do_not_have_today(tmp_path):
    """As in the templates of ML-Agents' docs/Training-ML-Agents.md of 0.16."""
    text = """
Soft:
  trainer: sac
  batch_size: 128
  reward_signals:
    reward_signal_num_update: 2
    extrinsic: {strength: 1.0, gamma: 0.99}
    gail: {strength: 0.5, demo_path: a.demo, samples_per_update: 3, encoding_size: 32}
  behavioral_cloning:
    demo_path: a.demo
    init_path:
Plain:
  trainer: ppo
  batch_size: 64
  reward_signals: {reward_signal_num_update: 1, extrinsic: {strength: 1.0}}
  self_play: {window: 10, play_against_current_self_ratio: 0.4, mode: old}
"""
    config, lines = converted(tmp_path, text)
    soft = config.behaviors["Soft"]
    assert soft.hyperparameters.reward_signal_steps_per_update == 0.5
    assert soft.reward_signals["gail"].network_settings.hidden_units == 32
    assert config.behaviors["Plain"].self_play.play_against_latest_model_ratio == 0.4
    assert sorted(line for line in lines if "left out" in line) == [
        "Plain.reward_signal_num_update: left out; ppo has no such setting today",
        "Plain.self_play.mode: left out; there is no such setting",
        "Soft.behavioral_cloning.init_path: left out; there is no such setting",
        "Soft.reward_signals.gail.samples_per_update: left out; there is no such setting",
    ]


def test_nothing_is_lost_without_a_line(tmp_path):
    """Files that were rewritten by half, and settings that two sources have."""
    text = """
behaviors:
  default: {trainer: ppo, network_settings: {num_layers: 3}}
  Flat: {trainer: ppo, batch_size: 16}
  Mixed:
    trainer: ppo
    batch_size: 32
    hidden_units: 512
    memory_size: 16
    hyperparameters: {beta: 0.1, batch_size: 64}
    pretraining: {demo_path: a.demo}
    behavioral_cloning: {demo_path: b.demo}
    reward_signals: {extrinsic: {gamma: 0.9, encoding_size: 5}}
  Soft: {trainer: sac, batch_size: 64, num_update: 2, steps_per_update: 7, trainer_type: ppo}
default_settings: {max_steps: 77}
environment_parameters: {mass: 4}
curriculum: {Mixed: {measure: reward, thresholds: [1], parameters: {h: [1, 2]}}}
parameter_randomization:
  mass: {sampler-type: uniform, sampler_parameters: {min_value: 1, max_value: 2}, seed: 7}
"""
    folder = tmp_path / "lessons"
    folder.mkdir()
    lessons = '{\n\t"measure": "reward",\n\t"thresholds": [2],\n\t"parameters": {"g": [1, 2]}\n}'
    (folder / "Mixed.json").write_text(lessons)
    config, lines = converted(tmp_path, text, curricula=[folder])
    mixed = config.behaviors["Mixed"]
    assert (mixed.hyperparameters.beta, mixed.hyperparameters.batch_size) == (0.1, 64)
    network = mixed.network_settings
    assert (network.hidden_units, network.num_layers) == (512, 3)
    assert mixed.max_steps == 77
    assert config.behaviors["Soft"].hyperparameters.steps_per_update == 7
    assert {line.partition(":")[0] for line in lines} == {
        "Mixed", "batch_size", "Mixed.memory_size", "Mixed.pretraining", "Soft.trainer_type",
        "Mixed.reward_signals.extrinsic.encoding_size", "Soft.num_update", "mass", "mass.seed",
        "behaviors.default",
    }  # fmt: skip


def test_intervals_of_updates_and_keys_of_default_are_not_lost_without_a_line(tmp_path):
    text = """
default: {trainer: ppo, batch_size: 64, beta: 0.1, tau: 0.1}
A: {trainer: sac, hidden_units: 5, train_interval: 5}
B: {trainer: sac, train_interval: 5, num_update: 2, steps_per_update: 7}
"""
    config, lines = converted(tmp_path, text)
    assert config.behaviors["A"].hyperparameters.steps_per_update == 5
    assert config.behaviors["A"].hyperparameters.tau == 0.1
    assert config.behaviors["B"].hyperparameters.steps_per_update == 7
    about = {line.partition(":")[0] for line in lines}
    assert {"B.num_update", "B.train_interval", "default.beta"} <= about
    assert "default.tau" not in about


def test_signals_have_the_updates_of_both_versions(tmp_path):
    """ML-Agents 0.15 to 0.17 read the steps of an update next to the signals' names."""
    text = """
Soft:
  trainer: sac
  batch_size: 64
  reward_signals: {reward_signal_steps_per_update: 10, extrinsic: {strength: 1.0}}
Plain:
  trainer: ppo
  batch_size: 64
  reward_signals: {reward_signal_steps_per_update: 10, extrinsic: {strength: 1.0}}
"""
    config, lines = converted(tmp_path, text)
    soft = config.behaviors["Soft"].hyperparameters
    assert soft.reward_signal_steps_per_update == 10
    assert lines[1:] == [
        "Plain.reward_signal_steps_per_update: left out; ppo has no such setting today"
    ]


@pytest.mark.parametrize("trainer", ["", "trainer: ppo, ", "trainer_type: ppo, "])
def test_keys_of_default_that_no_behavior_has_get_a_line_of_their_own(
    tmp_path, trainer
):
    signals = "{extrinsic: {gamma: 0.9}, curiosity: {strength: 0.02}}"
    text = f"""
default: {{{trainer}batch_size: 64, gone: 1, tau: 0.1, beta: 0.1, reward_signals: {signals}}}
A: {{hidden_units: 5, gone: 2, reward_signals: {{extrinsic: {{gamma: 0.8}}}}}}
B: {{hidden_units: 6}}
"""
    _, lines = converted(tmp_path, text)
    assert [line for line in lines if "left out" in line] == [
        "A.gone: left out; ppo has no such setting today",
        "default.gone: left out; no behavior has such a setting",
        "default.tau: left out; no behavior has such a setting",
    ]


def test_keys_that_a_block_has_by_another_name_are_not_said_to_be_gone(tmp_path):
    text = """
default: {trainer_type: ppo, beta: 0.1, pretraining: {demo_path: a.demo}}
A: {trainer: sac, behavioral_cloning: {demo_path: b.demo}}
"""
    _, lines = converted(tmp_path, text)
    assert [line for line in lines if "no behavior has" in line] == [
        "default.beta: left out; no behavior has such a setting"
    ]


def test_default_becomes_the_default_settings(tmp_path):
    default = "default: {trainer: ppo, batch_size: 64, max_steps: 9, gone: 1}\n"
    config, lines = converted(tmp_path, default)
    assert config.behavior("Any").hyperparameters.batch_size == 64
    assert config.behavior("Any").max_steps == 9
    assert lines[1:] == ["default.gone: left out; ppo has no such setting today"]

    config, _ = converted(tmp_path, f"{default}Ball: {{hidden_units: 32}}\n")
    assert config.behaviors["Ball"].max_steps == 9, "as in a listed behavior"
    assert config.behaviors["Ball"].network_settings.hidden_units == 32
    assert config.behavior("Any").network_settings.hidden_units == 128


def test_default_never_reaches_into_a_block_that_has_the_key(tmp_path):
    signals = "{extrinsic: {gamma: 0.9}, curiosity: {strength: 0.02}}"
    config, lines = converted(
        tmp_path,
        f"default: {{trainer: ppo, use_recurrent: true, reward_signals: {signals}}}\n"
        "Ball: {use_recurrent: false, reward_signals: {extrinsic: {strength: 2}}}\n",
    )
    ball = config.behaviors["Ball"]
    assert list(ball.reward_signals) == ["extrinsic"]
    assert ball.reward_signals["extrinsic"].gamma == 0.99
    assert ball.network_settings.memory is None
    assert "a behavior that is not listed needs a block of its own" in lines[-1]


def test_flat_blocks_below_behaviors_become_todays(tmp_path):
    flat = "behaviors: {Ball: {trainer: sac, batch_size: 64, normalize: true}}\n"
    sampler = "{mass: {sampler-type: uniform, max_value: 3}}"
    for parameters in ("", f"parameter_randomization: {sampler}\n"):
        config, lines = converted(tmp_path, flat + parameters)
        ball = config.behaviors["Ball"]
        assert (ball.trainer_type, ball.hyperparameters.batch_size) == ("sac", 64)
        assert ball.network_settings.normalize
        assert list(config.environment_parameters) == ["mass"] * bool(parameters)
        assert not lines
    path = tmp_path / "old.yaml"
    path.write_text(flat)
    with pytest.raises(UsageError, match=r"is for ML-Agents 0.16 to 0.17; .*convert"):
        read_config(str(path))


def test_todays_blocks_with_a_misplaced_key_are_not_called_old(tmp_path):
    path = tmp_path / "new.yaml"
    for block in ("trainer_type: ppo, batch_size: 3", "batch_size: 3"):
        path.write_text(f"behaviors: {{Ball: {{{block}}}}}\n")
        with pytest.raises(UsageError, match=r"behaviors.Ball.batch_size: unknown key"):
            read_config(str(path))


def test_a_key_that_is_written_twice_is_a_line(tmp_path):
    _, lines = converted(
        tmp_path, "Ball: {trainer: ppo, batch_size: 3, batch_size: 4}\n"
    )
    first, second = f"{tmp_path / 'old.yaml'}:1:22", f"{tmp_path / 'old.yaml'}:1:37"
    assert lines[0] == (
        f"{second}: Ball.batch_size: written twice, first at {first}; this one counts"
    )


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
        (
            "default: {trainer: online_bc, batch_size: 64}\nHall: {brain_to_imitate: X}\n",
            "Hall: nothing imitates a player in the game today, as online_bc did; record a "
            "demonstration, and write demo_path: FILE into this block",
        ),
        ("default: {trainer: online_bc}\n", "default: nothing imitates a player"),
        (
            "Ball: {trainer: ppo, batch_size: 64, buffer_size: 3}\n",
            "old.yaml: not converted; as of today, behaviors.Ball.hyperparameters: batch_size 64 "
            "is larger than buffer_size 3",
        ),
        (
            "behaviors: {Wall: {trainer_type: ppo, colour: 3}}\ncurriculum: {}\n",
            "old.yaml: not converted; as of today, behaviors.Wall.colour: unknown key",
        ),
        (
            "behaviors: {Wall: {}}\ncurriculum: {Wall: {meassure: reward}}\n",
            "curriculum of Wall: meassure: unknown key; did you mean 'measure'?",
        ),
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


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--sampler curriculum.yaml", "Wall: no sampler-type; is it a curriculum?"),
        ("--sampler Wall.json", "sampler measure: expected keys and values"),
        (
            "--curriculum sampler.yaml",
            "curriculum of resampling-interval: expected keys and values, got '5000'",
        ),
        (
            "--curriculum mass.yaml",
            "curriculum of mass: sampler-type: unknown key; known keys: measure, min_lesson_length",
        ),
        ("--curriculum empty", "--curriculum empty: no BEHAVIOR.json in this folder"),
        ("-o old.yaml", "-o old.yaml: is an input; give the new file another name"),
        ("--sampler mass.yaml -o mass.yaml", "-o mass.yaml: is an input"),
        ("--curriculum curriculum.yaml -o ./curriculum.yaml", "is an input"),
        ("-o new.txt", "-o new.txt: expected the name of a .yaml file"),
    ],
)
def test_files_that_cannot_serve_are_one_line_and_stay(
    tmp_path, monkeypatch, capsys, flags, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for name, text in {
        "old.yaml": "Wall: {trainer: ppo, batch_size: 64}\n",
        "sampler.yaml": SAMPLER,
        "mass.yaml": "mass: {sampler-type: uniform}\n",
        "curriculum.yaml": CURRICULUM,
        "Wall.json": '{"measure": "reward", "thresholds": [], "parameters": {"a": [1]}}',
    }.items():
        (tmp_path / name).write_text(text)
    before = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    output = [] if "-o" in flags else ["-o", "new.yaml"]
    assert run(["convert", "old.yaml", *flags.split(), *output]) == 2
    printed = capsys.readouterr().err.strip()
    assert message in printed
    assert "\n" not in printed
    after = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert after == before
