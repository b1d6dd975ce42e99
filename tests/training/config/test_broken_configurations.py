"""A hundred and twenty broken configurations: each is one line that names the place and the key."""

import re

import pytest

from touchline.errors import UsageError
from touchline.training.config.reading import read_config

WHOLE = """\
default_settings:
  trainer_type: ppo
behaviors:
  Ball:
    trainer_type: ppo
    hyperparameters:
      batch_size: 64
      buffer_size: 2048
    network_settings:
      hidden_units: 128
    reward_signals:
      extrinsic:
        gamma: 0.99
    max_steps: 50000
env_settings:
  seed: 1
engine_settings:
  time_scale: 20
environment_parameters:
  mass: 2
checkpoint_settings:
  run_id: first
torch_settings:
  device: cpu
"""
HYPER = "      buffer_size: 2048\n"
NETWORK = "      hidden_units: 128\n"
SIGNAL = "        gamma: 0.99\n"
BLOCK = "    max_steps: 50000\n"
# Where a line stands -> lines that are wrong there; "key" in the message is the first key's name.
ADDED = {
    HYPER: [
        "learning_rate: 0", "learning_rate: -1", "learning_rate: .nan", "learning_rate: .inf",
        "learning_rate: fast", "learning_rate: [1]", "learning_rate: {a: 1}", "learning_rate: true",
        "beta: -0.1", "beta: small", "epsilon: -1", "epsilon: .nan", "lambd: 2", "lambd: -1",
        "lambd: x", "num_epoch: 0", "num_epoch: 1.5", "num_epoch: many", "num_epoch: -3",
        "learning_rate_schedule: cosine", "learning_rate_schedule: 3", "beta_schedule: lin",
        "epsilon_schedule: []", "learnin_rate: 1", "lamda: 0.9", "num_epochs: 3", "gamma: 0.9",
        "batch_size: none", "3: 4", "entropy: 1",
    ],
    NETWORK: [
        "hidden_units: wide", "num_layers: 0", "num_layers: 1.5", "num_layers: deep",
        "normalize: maybe", "normalize: 3", "vis_encode_type: big", "vis_encode_type: 1",
        "memory: {memory_size: 7}", "memory: {memory_size: 0}", "memory: {sequence_length: 0}",
        "memory: {sequence_len: 8}", "memory: {type: lstn}", "memory: 3", "memory: [1]", "goal_conditioning_type: maybe",
        "deterministic: 7", "normalise: true", "num_layer: 2", "hiden_units: 3", "activation: relu",
    ],
    SIGNAL: [
        "gamma: 9", "strength: x", "strength: .nan", "strength: [1]", "gama: 0.9",
        "discount: 0.9", "strenght: 1",
    ],
    BLOCK: [
        "max_steps: few", "time_horizon: 0", "time_horizon: -5", "time_horizon: long",
        "time_horizon: 1.5", "summary_freq: 0", "summary_freq: x", "keep_checkpoints: -1",
        "keep_checkpoints: x", "checkpoint_interval: 0", "checkpoint_interval: soon",
        "threaded: maybe", "init_path: [a]", "even_checkpoints: 3", "time_horizn: 3",
        "sumary_freq: 1", "self_play: 3", "self_play: {save_steps: 0}", "self_play: {window: 0}",
        "self_play: {team_change: -1}", "self_play: {play_against_latest_model_ratio: 2}",
        "self_play: {save_step: 3}", "behavioral_clonin: {}", "hyperparameter: {}", "rewards: {}",
    ],
    "  seed: 1\n": [
        "seed: two", "num_envs: 0", "num_envs: x", "num_envs: 1.5", "num_areas: 0", "num_areas: x",
        "base_port: -1", "base_port: x", "env_arg: a", "max_lifetime_restart: 1", "timeout: 1",
    ],
    "  time_scale: 20\n": [
        "time_scale: 0", "width: -1", "width: x", "height: wide", "quality_level: x",
        "target_frame_rate: x", "capture_frame_rate: x", "no_graphics: maybe", "heigth: 3",
    ],
    "  run_id: first\n": [
        "run_id: a/b", "resume: maybe", "force: 3", "results_dir: ''", "inference: x",
        "result_dir: a", "initialise_from: a",
    ],
    "  device: cpu\n": ["device: gpu", "device: 3", "devise: cpu"],
}  # fmt: skip
# What is wrong elsewhere: (in the whole text, instead, in the message).
CHANGED = [
    (
        "  Ball:\n    trainer_type: ppo",
        "  Ball: 3\n  Other:\n    trainer_type: ppo",
        "Ball",
    ),
    ("trainer_type: ppo", "trainer_type: pp", "trainer_type"),
    ("trainer_type: ppo", "trainer_type: 3", "trainer_type"),
    ("behaviors:", "behavior:", "behavior"),
    ("env_settings:", "env_setting:", "env_setting"),
    ("torch_settings:\n  device: cpu", "torch_settings: cpu", "torch_settings"),
    ("      extrinsic:", "      intrinsic:", "intrinsic"),
    ("batch_size: 64", "batch_size: 4096", "batch_size"),
    ("hidden_units: 128", "hidden_units: 0", "hidden_units"),
    ("gamma: 0.99", "gamma: 1.5", "gamma"),
    ("max_steps: 50000", "max_steps: -1", "max_steps"),
    ("max_steps: 50000", "max_steps:\n      a: 1", "max_steps"),
    ("  mass: 2", "  mass: {sampler_type: normal}", "sampler_type"),
    ("  mass: 2", "  mass: heavy", "mass"),
    ("  seed: 1", "  seed: one", "seed"),
    ("  seed: 1", "\tseed: 1", "not YAML"),
    ("  seed: 1", "  seed: 1: 2", "not YAML"),
    ("  seed: 1", "  seed: 'one", "not YAML"),
    ("  seed: 1", "  seed: *one", "not YAML"),
]
LONGEST = 400
CASES = [
    (WHOLE.replace(line, line + " " * (len(line) - len(line.lstrip())) + added + "\n", 1), re.split(r"[:{]", added)[0])
    for line, lines in ADDED.items()
    for added in lines
] + [(WHOLE.replace(old, new), named) for old, new, named in CHANGED]  # fmt: skip
NAMES = [added for lines in ADDED.values() for added in lines] + [
    new for _, new, _ in CHANGED
]


def test_the_configuration_that_is_broken_here_is_whole_before(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(WHOLE)
    assert read_config(str(path)).behaviors["Ball"].max_steps == 50_000
    assert len(CASES) >= 120


@pytest.mark.parametrize(("text", "named"), CASES, ids=NAMES)
def test_a_broken_configuration_is_one_line_with_place_and_key(tmp_path, text, named):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_config(str(path))
    line = str(caught.value)
    assert re.match(rf"{re.escape(str(path))}:\d+:\d+: ", line), line
    assert "\n" not in line
    assert len(line) - len(str(path)) < LONGEST, line
    assert named in line, line
