"""Configuration: the presets, ML-Agents' spellings, and errors that name the line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from docs.config_schema import json_schema

from touchline.errors import UsageError
from touchline.parameters import Gaussian, MultiRangeUniform, Uniform
from touchline.scenes import SCENES, scene_class
from touchline.specs import base_name
from touchline.training.config.environment_parameters import lessons_of, value_of
from touchline.training.config.flags import setting_flag, setting_flags
from touchline.training.config.reading import (
    config_text,
    preset_names,
    read_config,
    write_config,
)
from touchline.training.config.settings import RunConfig

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


def _read(tmp_path, text, *arguments, **options):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return read_config(str(path), *arguments, **options)


def _nested(dotted, value):
    """The YAML of one key; behavior A stands for any."""
    tree = value
    for key in reversed(dotted.split(".")):
        tree = {key: tree}
    if "hyperparameters" in dotted:
        tree["behaviors"]["A"]["trainer_type"] = "ppo"
    return yaml.safe_dump(tree)


def _at(config, dotted):
    for key in dotted.split("."):
        config = config[key] if isinstance(config, dict) else getattr(config, key)
    return config


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_the_same_after_saving_and_reading(name, tmp_path):
    config = read_config(name)
    write_config(config, tmp_path / "again.yaml")
    assert read_config(str(tmp_path / "again.yaml")) == config


def test_the_presets_carry_the_official_figures():
    ball = read_config("3DBall_official").behaviors["3DBall"]
    assert (ball.hyperparameters.batch_size, ball.hyperparameters.buffer_size) == (
        64,
        12000,
    )
    assert (ball.hyperparameters.lambd, ball.max_steps, ball.time_horizon) == (
        0.99,
        500_000,
        1000,
    )
    hard = read_config("3DBallHard_official").behaviors["3DBallHard"]
    assert (hard.hyperparameters.batch_size, hard.hyperparameters.lambd) == (120, 0.95)
    basic = read_config("Basic_official").behaviors["Basic"]
    assert (
        basic.network_settings.hidden_units,
        basic.reward_signals["extrinsic"].gamma,
    ) == (
        20,
        0.9,
    )


def test_numbers_are_read_as_ml_agents_reads_them(tmp_path):
    config = _read(tmp_path, YAML)
    behavior = config.behaviors["3DBall"]
    assert behavior.hyperparameters.learning_rate == 3e-4
    assert behavior.max_steps == 500_000
    assert config.environment_parameters == {"mass": 2.0}


def test_schedules_follow_the_learning_rates(tmp_path):
    hyper = _read(tmp_path, YAML + "").behaviors["3DBall"].hyperparameters
    assert (hyper.beta_schedule, hyper.epsilon_schedule) == ("linear", "linear")
    text = YAML.replace(
        "batch_size: 64", "batch_size: 64\n      learning_rate_schedule: constant"
    )
    hyper = _read(tmp_path, text).behaviors["3DBall"].hyperparameters
    assert (hyper.beta_schedule, hyper.epsilon_schedule) == ("constant", "constant")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("batch_size: 64", "batch_sise: 64", r"config.yaml:5:7: behaviors.3DBall.hyperparameters.batch_sise: unknown key; did you mean 'batch_size'\?"),
        ("batch_size: 64", "tau: 0.01", r"config.yaml:5:7: behaviors.3DBall.hyperparameters.tau: unknown key; it belongs to sac; known keys: advantage"),
        ("batch_size: 64", "tau: 0.01", r"such as NAME$"),
        ("trainer_type: ppo\n    hyperparameters:", "trainer_type: sac\n    hyperparameters:\n      beta: 0.01", r"beta: unknown key; it belongs to ppo and .*, such as NAME_sac$"),
        ("batch_size: 64", "batch_size: many", r"config.yaml:5:7: .*batch_size: .*integer.*, got 'many'"),
        ("batch_size: 64", "batch_size: 64.5", r"config.yaml:5:7: .*batch_size: .*integer"),
        ("batch_size: 64", "batch_size: 0", r"config.yaml:5:7: .*batch_size: .*greater than 0, got 0"),
        ("batch_size: 64", "batch_size: 99999", r"config.yaml:4:5: .*batch_size 99999 is larger than buffer_size 10240"),
        ("learning_rate: 3e-4", "learning_rate: fast", r"config.yaml:6:7: .*learning_rate: .*number.*, got 'fast'"),
        ("trainer_type: ppo", "trainer_type: sac\n    network_settings: {memory: {sequence_length: 65}}", r"config.yaml:4:33: behaviors.3DBall.network_settings.memory.sequence_length: a sequence of 65 does not fit a batch_size of 64"),
        ("max_steps: 5e5", "max_step: 5e5", r"config.yaml:7:5: .*max_step: unknown key; did you mean 'max_steps'\?"),
        ("behaviors:", "behaviours:", r"config.yaml:1:1: behaviours: unknown key; did you mean 'behaviors'\?"),
        ("behaviors:", "behaviors: [", r"config.yaml:\d+:\d+: not YAML"),
        ("mass: 2", "mass: !!int two", r"config.yaml: not YAML: invalid literal"),
        (YAML, "- a list", r"config.yaml:1:1: expected keys and values"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_place(tmp_path, old, new, expected):
    with pytest.raises(UsageError, match=expected):
        _read(tmp_path, YAML.replace(old, new))


def test_several_merged_blocks_are_no_key_written_twice(tmp_path):
    path = tmp_path / "config.yaml"
    blocks = "default_settings: {}\nbehaviors:\n  A: &a {max_steps: 7}\n"
    blocks += "  B: &b {time_horizon: 9}\n  C:\n    <<: *a\n    <<: *b\n"
    path.write_text(blocks)
    lines = []
    c = read_config(str(path), log=lines.append).behaviors["C"]
    assert (c.max_steps, c.time_horizon, lines) == (7, 9, [])


def test_of_a_key_that_is_written_twice_the_last_counts(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(
        YAML.replace("  mass: 2", "  mass: {sampler_type: uniform}\n  mass: 3")
    )
    lines = []
    config = read_config(str(path), log=lines.append)
    assert config.environment_parameters == {"mass": 3.0}
    assert lines == [
        f"{path}:10:3: environment_parameters.mass: written twice, first at {path}:9:3; this "
        "one counts"
    ]
    path.write_text(YAML.replace("max_steps: 5e5", "max_steps: 5\n    max_steps: few"))
    with pytest.raises(UsageError, match=r"config.yaml:8:5: .*max_steps: .*got 'few'"):
        read_config(str(path))


def test_set_changes_one_key_and_keeps_the_rest():
    config = read_config(
        "3DBall", ["behaviors.3DBall.hyperparameters.learning_rate=1e-3"]
    )
    assert config.behaviors["3DBall"].hyperparameters.learning_rate == 1e-3
    assert config.behaviors["3DBall"].hyperparameters.batch_size == 1024


def test_a_run_may_be_named_after_a_day_or_what_looks_like_one(tmp_path):
    for name in ("2026-11-22", "2026-13-45"):
        text = YAML + f"checkpoint_settings:\n  run_id: {name}\n"
        assert _read(tmp_path, text).checkpoint_settings.run_id == name
        config = read_config("3DBall", [f"checkpoint_settings.run_id={name}"])
        assert config.checkpoint_settings.run_id == name
        assert yaml.safe_load(config_text(config)) == config.model_dump(mode="json")


@pytest.mark.parametrize("second", ["*first", "{<<: *first, max_steps: 7}"])
def test_a_behavior_changes_alone_where_the_file_has_an_alias(tmp_path, second):
    block = "{trainer_type: ppo, hyperparameters: {batch_size: 64}}"
    text = f"behaviors:\n  A: &first {block}\n  B: {second}\n"
    (tmp_path / "config.yaml").write_text(text)
    changes = {"behaviors.B.hyperparameters.batch_size": 32}
    behaviors = read_config(str(tmp_path / "config.yaml"), changes).behaviors
    sizes = [behaviors[name].hyperparameters.batch_size for name in "AB"]
    assert sizes == [64, 32]


@pytest.mark.parametrize("how", ["[{}]", "{{<<: [{}]}}"])
def test_aliases_of_aliases_that_would_fill_the_memory_are_refused(tmp_path, how):
    repeated = (how.format(", ".join([f"*a{n}"] * 9)) for n in range(12))
    lines = (f"a{n}: &a{n} {value}\n" for n, value in enumerate(repeated, start=1))
    path = tmp_path / "bomb.yaml"
    path.write_text("a0: &a0 {key: 1}\n" + "".join(lines))
    with pytest.raises(UsageError, match=r"bomb.yaml:\d+:\d+: more than 100,000 keys"):
        read_config(str(path))


def test_building_one_config_leaves_the_next_alone():
    read_config("3DBall", ["behaviors.3DBall.max_steps=1"])
    assert read_config("3DBall").behaviors["3DBall"].max_steps == 240_000


A = "behaviors.A."
HYPER, NETWORK, EXTRINSIC = (
    A + "hyperparameters.",
    A + "network_settings.",
    A + "reward_signals.extrinsic.",
)
CURIOSITY, RND = (A + f"reward_signals.{name}." for name in ("curiosity", "rnd"))
GAIL = A + "reward_signals.gail"
SELF_PLAY = A + "self_play."
# Every key of ML-Agents' reference for PPO: its default, a value that it takes, and values that it
# does not.
# Source: mlagents 1.1.0, trainers/settings.py and cli_utils.py.
KEYS = [
    (A + "trainer_type", "ppo", "ppo", ["pop", 3]),
    (A + "max_steps", 500_000, "5e5", [0, -1, "many", 1.5, True, ".inf"]),
    (A + "time_horizon", 64, 1000, [0, "long", 2.5]),
    (A + "summary_freq", 50_000, 1e4, [0, [1]]),
    (A + "checkpoint_interval", 500_000, "5.0e5", [0, {"a": 1}]),
    (A + "keep_checkpoints", 5, 1, [0, -3]),
    (A + "even_checkpoints", False, False, ["perhaps", 1]),
    (A + "threaded", False, True, ["often"]),
    (A + "init_path", None, "a.safetensors", [["a"], True]),
    (A + "behavioral_cloning", None, {"demo_path": "x.demo"}, ["x.demo", {}]),
    (A + "self_play", None, {}, [3, "yes", {"windw": 10}]),
    (SELF_PLAY + "save_steps", ..., "5e4", [0, -1, "often"]),
    (SELF_PLAY + "team_change", ..., 200_000, [0, 1.5]),
    (SELF_PLAY + "swap_steps", ..., 25_000, [0, "never"]),
    (SELF_PLAY + "window", ..., 3, [0, -1, 2.5]),
    (SELF_PLAY + "play_against_latest_model_ratio", ..., 1, [1.1, -0.1]),
    (SELF_PLAY + "initial_elo", ..., 1000, ["high", ".inf"]),
    (SELF_PLAY + "pool", ..., "latest", ["best", 3]),
    (SELF_PLAY + "take_turns", ..., True, ["sometimes"]),
    (SELF_PLAY + "versus", ..., ["a.onnx"], ["a.onnx", [["b"]]]),
    (A + "hyperparameters", ..., ..., [5, [1]]),
    (A + "network_settings", ..., ..., ["big"]),
    (
        A + "reward_signals",
        ...,
        ...,
        [{}, {"extrinsc": {}}, 3],
    ),
    (HYPER + "batch_size", 1024, "64", [0, 99_999, "small"]),
    (HYPER + "buffer_size", 10_240, "2e4", [0, 64]),
    (HYPER + "learning_rate", 3e-4, "1e-3", [0, -1, "fast", ".nan"]),
    (HYPER + "learning_rate_schedule", "linear", "constant", ["linar", 1]),
    (HYPER + "beta", 5e-3, 0, [-1, "b"]),
    (HYPER + "beta_schedule", "linear", "constant", ["none"]),
    (HYPER + "epsilon", 0.2, 0.3, [0, -1]),
    (HYPER + "epsilon_schedule", "linear", "constant", ["quadratic"]),
    (HYPER + "lambd", 0.95, 1, [1.1, -0.1]),
    (HYPER + "num_epoch", 3, 8, [0, 1.5]),
    (HYPER + "shared_critic", False, True, ["no way"]),
    (NETWORK + "normalize", False, True, ["yes please", 1]),
    (NETWORK + "hidden_units", 128, 512, [0, "wide"]),
    (NETWORK + "num_layers", 2, 1, [0]),
    (NETWORK + "vis_encode_type", "simple", "resnet", ["resnt", 3]),
    (NETWORK + "goal_conditioning_type", "hyper", "none", ["hiper"]),
    (NETWORK + "deterministic", False, True, [2]),
    (NETWORK + "memory", None, {}, [3, "yes"]),
    (NETWORK + "memory.type", ..., "gru", ["lstn", 3]),
    (NETWORK + "memory.memory_size", ..., 256, [0, 3, -2]),
    (NETWORK + "memory.sequence_length", ..., 32, [0, 5000]),
    (EXTRINSIC + "gamma", 0.99, 1, [1.01, -1, "g"]),
    (EXTRINSIC + "strength", 1.0, 2, [-1, "strong"]),
    (CURIOSITY + "gamma", ..., 0.9, [1.01, -1, "g"]),
    (CURIOSITY + "strength", ..., 0.02, [0, -1, "strong"]),
    (CURIOSITY + "learning_rate", ..., "1e-3", [0, -1, "fast"]),
    (CURIOSITY + "network_settings", ..., {"hidden_units": 256}, ["big"]),
    (CURIOSITY + "num_epoch", ..., 1, [0, "all"]),
    (RND + "gamma", ..., 0.9, [1.01, -1, "g"]),
    (RND + "strength", ..., 0.01, [0, -1, "strong"]),
    (RND + "learning_rate", ..., "1e-3", [0, -1, "fast"]),
    (RND + "network_settings", ..., {"num_layers": 3}, ["big"]),
    (RND + "normalized", ..., False, ["as ML-Agents"]),
    (GAIL, ..., {"demo_path": "x", "use_vail": True}, [{}, {"demo_path": ""}, 3]),
    (GAIL, ..., {"demo_path": "x", "reward_form": "signed"}, [{"reward_form": "log"}]),
    (GAIL, ..., {"demo_path": "x", "gamma": 1}, [{"gamma": 2}]),
    ("env_settings.env_path", None, "game.x86_64", [["a"]]),
    ("env_settings.env_args", [], ["-x", "y"], ["-x", 3]),
    ("env_settings.base_port", None, 5005, [0, 70_000, "p"]),
    ("env_settings.num_envs", 1, 4, [0, -1, 1.5]),
    ("env_settings.num_areas", None, 12, [0]),
    ("env_settings.timeout_wait", 60, 5, [0, "long"]),
    ("env_settings.seed", -1, 7, [-2, 2**63, "s"]),
    ("env_settings.max_lifetime_restarts", 10, -1, [-2]),
    ("env_settings.restarts_rate_limit_n", 1, -1, [-2]),
    ("env_settings.restarts_rate_limit_period_s", 60, 10, [0]),
    ("engine_settings.width", 84, 640, [0]),
    ("engine_settings.height", 84, 480, [0]),
    ("engine_settings.quality_level", 5, 0, [-1]),
    ("engine_settings.time_scale", 20, 1, [0, "slow"]),
    ("engine_settings.target_frame_rate", -1, 60, [-2]),
    ("engine_settings.capture_frame_rate", 60, 0, [-1]),
    ("engine_settings.no_graphics", False, True, ["dark"]),
    ("engine_settings.no_graphics_monitor", False, True, ["dark"]),
    ("checkpoint_settings.run_id", "ppo", 7, ["", ["a"]]),
    ("checkpoint_settings.results_dir", "results", "out", [""]),
    ("checkpoint_settings.resume", False, True, ["again"]),
    ("checkpoint_settings.force", False, True, ["again"]),
    ("checkpoint_settings.initialize_from", None, "first", [""]),
    ("checkpoint_settings.inference", False, True, ["again"]),
    ("torch_settings.device", None, "cuda:1", ["gpu", "cuda:256", "cuda:07", 3]),
    ("debug", False, True, ["loud"]),
]


@pytest.mark.parametrize(
    ("key", "default", "good", "bad"), KEYS, ids=[k[0] for k in KEYS]
)
def test_every_key_has_its_default_takes_what_it_should_and_refuses_the_rest(
    tmp_path, key, default, good, bad
):
    if default is not ...:
        config = read_config(None)
        assert _at(config, key.replace("behaviors.A", "default_settings")) == default
    if good is not ...:
        _at(_read(tmp_path, _nested(key, good)), key)
    for value in bad:
        with pytest.raises(UsageError) as caught:
            _read(
                tmp_path,
                _nested(key, value).replace("'.inf'", ".inf").replace("'.nan'", ".nan"),
            )
        message = str(caught.value)
        # The line that the key stands on; what two keys make wrong stands at their block.
        depth = key.count(".") + 1
        assert any(
            f"config.yaml:{line}:" in message for line in range(depth - 1, depth + 2)
        ), message
        assert ".".join(key.split(".")[:3]) in message, message
        assert "\n" not in message


@pytest.mark.parametrize(
    "key", [k[0] for k in KEYS if "." in k[0] and "memory." not in k[0]]
)
def test_a_misspelled_key_is_named_with_the_key_meant(tmp_path, key):
    above, _, last = key.rpartition(".")
    wrong = f"{above}.{last[:-1]}x"
    with pytest.raises(UsageError) as caught:
        _read(tmp_path, _nested(wrong, 1))
    assert f"{wrong}: unknown key; did you mean {last!r}?" in str(caught.value)


def test_the_reference_holds_no_key_that_is_not_in_the_table(shared):
    text = (shared / "reference" / "mlagents-config.md").read_text(encoding="utf-8")
    sections = {
        "## 2.": A,
        "## 4.": NETWORK,
        "## 8.": "env_settings.",
        "## 9.": "engine_settings.",
    }
    sections |= {
        "PPO and POCA:": HYPER,
        "Common:": HYPER,
        "## 10.": "checkpoint_settings.",
    }
    known, block, found = {k[0] for k in KEYS}, None, 0
    for line in text.splitlines():
        if line.startswith("#") or line.endswith(":"):
            block = next(
                (b for title, b in sections.items() if line.startswith(title)), None
            )
        elif block and line.startswith("| `"):
            for name in line.split("|")[1].replace("`", "").split(","):
                name = name.strip()
                if name not in ("load_model", "train_model"):
                    assert block + name in known, name
                    found += 1
    assert found > 40


def test_self_play_has_the_defaults_of_ml_agents(tmp_path):
    """Source: mlagents 1.1.0, trainers/settings.py, SelfPlaySettings."""
    settings = _read(tmp_path, _nested(A + "self_play.save_steps", 7000))
    block = settings.behaviors["A"].self_play
    assert (block.swap_steps, block.window, block.initial_elo) == (2000, 10, 1200)
    assert block.play_against_latest_model_ratio == 0.5
    assert block.turn_steps == 5 * 7000


def test_a_pool_without_snapshots_needs_files(tmp_path):
    expected = r"config.yaml:\d+:\d+: behaviors.A.self_play.window: a pool without snap"
    with pytest.raises(UsageError, match=expected):
        _read(tmp_path, _nested(A + "self_play.window", 0))


def test_a_file_to_play_against_switches_self_play_on():
    flags = {"behaviors.*.self_play.versus": ["a.onnx", "random"]}
    block = read_config("WallJump", (), flags).behaviors["BigWallJump"].self_play
    assert block.versus == ["a.onnx", "random"]
    assert block.window == 10


@pytest.mark.parametrize("trainer", ["poca", "mappo"])
def test_poca_and_mappo_take_ppos_common_keys_and_no_shared_critic(tmp_path, trainer):
    """Source: mlagents 1.1.0, trainers/settings.py: POCA's keys are PPO's without that one."""
    common = [k for k in KEYS if k[0].startswith(HYPER) and "shared" not in k[0]]
    for key, default, good, _ in common:
        name = key.removeprefix(HYPER)
        tree = {"trainer_type": trainer, "hyperparameters": {name: good}}
        found = _read(tmp_path, yaml.safe_dump({"behaviors": {"A": tree}}))
        assert type(found.behaviors["A"].hyperparameters).__name__ == (
            f"{trainer.upper()}Settings"
        )
        unset = {"behaviors": {"A": {"trainer_type": trainer}}}
        hyper = _read(tmp_path, yaml.safe_dump(unset)).behaviors["A"].hyperparameters
        assert getattr(hyper, name) == default
    shared = {"trainer_type": trainer, "hyperparameters": {"shared_critic": True}}
    with pytest.raises(UsageError, match=r"hyperparameters.shared_critic: unknown key"):
        _read(tmp_path, yaml.safe_dump({"behaviors": {"A": shared}}))


def test_the_width_of_pocas_networks_is_a_multiple_of_its_attention_heads(tmp_path):
    text = "behaviors:\n  A:\n    trainer_type: poca\n    network_settings:\n      hidden_units: 10\n"
    expected = (
        r"config.yaml:5:7: behaviors.A.network_settings.hidden_units: "
        r"expected a multiple of 4, the attention heads of poca, got 10"
    )
    with pytest.raises(UsageError, match=expected):
        _read(tmp_path, text)
    assert _read(tmp_path, text.replace("poca", "ppo")), "ppo has none"


@pytest.mark.parametrize(
    ("key", "value", "notice"),
    [
        (NETWORK + "vis_encoder_type", "resnet", "the old spelling of vis_encode_type"),
        (A + "framework", "tensorflow", "ignored; PyTorch is the only one"),
        (
            EXTRINSIC + "network_settings",
            {"num_layers": 3},
            "ignored; the environment's reward needs no network",
        ),
        ("checkpoint_settings.load_model", True, "ignored; resume has taken its place"),
        (
            "checkpoint_settings.train_model",
            True,
            "ignored; inference has taken its place",
        ),
    ],
)
def test_old_spellings_are_accepted_with_one_line_each(tmp_path, key, value, notice):
    lines = []
    config = _read(tmp_path, _nested(key, value), log=lines.append)
    assert len(lines) == 1
    assert "config.yaml:" in lines[0]
    assert lines[0].endswith(f"{key}: {notice}")
    if "vis" in key:
        assert config.behaviors["A"].network_settings.vis_encode_type == "resnet"


def test_an_old_spelling_beside_the_new_one_or_of_what_is_not_built_is_refused(
    tmp_path,
):
    both = "behaviors: {A: {network_settings: {vis_encoder_type: simple, vis_encode_type: resnet}}}"
    with pytest.raises(
        UsageError, match="the old spelling of vis_encode_type, which is written too"
    ):
        _read(tmp_path, both)
    old = _read(tmp_path, "behaviors: {A: {behavior_cloning: {demo_path: x}}}")
    assert old.behaviors["A"].behavioral_cloning.demo_path == "x"


def test_hyperparameters_need_their_trainer(tmp_path):
    with pytest.raises(
        UsageError,
        match=r"behaviors.A.hyperparameters: trainer_type is missing",
    ):
        _read(tmp_path, "behaviors: {A: {hyperparameters: {batch_size: 5}}}")


def test_default_settings_reach_every_behavior_at_every_depth(tmp_path):
    text = """\
default_settings:
  trainer_type: ppo
  max_steps: 7
  network_settings: {num_layers: 1, memory: {memory_size: 64}}
behaviors:
  A: {network_settings: {hidden_units: 5}, max_steps: 8}
  B: {network_settings: {memory: null}}
  C:
"""
    config = _read(tmp_path, text)
    a, b, c = (config.behavior(name) for name in "ABC")
    assert (a.max_steps, b.max_steps, c.max_steps, config.behavior("D").max_steps) == (
        8,
        7,
        7,
        7,
    )
    assert (a.network_settings.num_layers, a.network_settings.hidden_units) == (1, 5)
    assert (a.network_settings.memory.memory_size, b.network_settings.memory) == (
        64,
        None,
    )
    assert _read(tmp_path, "behaviors: {A: }").behavior("B") is None


def test_a_mistake_in_the_defaults_is_reported_where_it_stands(tmp_path):
    with pytest.raises(
        UsageError,
        match=r"config.yaml:2:3: .*max_steps: expected greater than 0, got -1",
    ):
        _read(
            tmp_path,
            "default_settings:\n  max_steps: -1\nbehaviors:\n  A:\n    time_horizon: 5\n",
        )


def test_built_in_gives_way_to_defaults_to_the_block_to_set_to_a_typed_flag(tmp_path):
    key = "behaviors.A.max_steps"
    text, defaults = (
        "behaviors: {A: {time_horizon: 3}}",
        "default_settings: {max_steps: 1}\n",
    )
    block = "behaviors: {A: {max_steps: 2}}"
    assert _at(_read(tmp_path, text), key) == 500_000
    assert _at(_read(tmp_path, defaults + text), key) == 1
    assert _at(_read(tmp_path, defaults + block), key) == 2
    assert _at(_read(tmp_path, defaults + block, [f"{key}=3"]), key) == 3
    flagged = _read(
        tmp_path,
        defaults + block,
        [f"{key}=3"],
        {setting_flag("--max-steps").key: "4e0"},
    )
    assert _at(flagged, key) == flagged.default_settings.max_steps == 4


def test_a_mistake_on_the_command_line_is_reported_by_its_flag(tmp_path):
    with pytest.raises(
        UsageError,
        match=r"^--num-envs: env_settings.num_envs: expected greater than 0, got 0",
    ):
        read_config("3DBall", (), {"env_settings.num_envs": 0})
    with pytest.raises(
        UsageError,
        match=r"^--set env_settings.num_envs=x: env_settings.num_envs: .*got 'x'",
    ):
        read_config("3DBall", ["env_settings.num_envs=x"])


@pytest.mark.parametrize(
    ("yaml_keys", "typed", "resume", "start"),
    [
        ({"resume": True, "initialize_from": "a"}, {}, True, None),
        ({"resume": True}, {"initialize_from": "a"}, False, "a"),
        ({"initialize_from": "a"}, {"resume": True}, True, None),
        ({}, {"resume": True, "initialize_from": "a"}, True, None),
    ],
)
def test_of_resume_and_initialize_from_the_typed_one_wins(
    tmp_path, yaml_keys, typed, resume, start
):
    lines = []
    text = yaml.safe_dump({"checkpoint_settings": yaml_keys, "behaviors": {"A": {}}})
    typed = {f"checkpoint_settings.{k}": v for k, v in typed.items()}
    settings = _read(tmp_path, text, (), typed, lines.append).checkpoint_settings
    assert (settings.resume, settings.initialize_from) == (resume, start)
    assert len(lines) == 1


def test_of_several_runs_those_that_cannot_be_resumed_start_as_their_settings_say():
    resume, start = "checkpoint_settings.resume", "checkpoint_settings.initialize_from"
    lines = []

    def read(changes, typed):
        config = read_config("Basic", changes, typed, lines.append, of_several=True)
        settings = config.checkpoint_settings
        return settings.resume, settings.initialize_from

    assert read({start: "a"}, {resume: True}) == (True, "a")
    assert read({resume: True, start: "a"}, {}) == (True, "a")
    assert not lines
    assert read({resume: True}, {start: "a"}) == (False, "a")
    assert len(lines) == 1


def test_even_checkpoints_share_out_the_steps(tmp_path):
    text = (
        "behaviors: {A: {even_checkpoints: true, max_steps: 1000, keep_checkpoints: 4}}"
    )
    assert _read(tmp_path, text).behaviors["A"].checkpoint_interval == 250


def test_behavior_names_may_hold_dots(tmp_path):
    config = _read(
        tmp_path,
        "behaviors: {My.Agent: {max_steps: 5}}",
        ["behaviors.My.Agent.max_steps=6"],
    )
    assert config.behaviors["My.Agent"].max_steps == 6


PARAMETER = "environment_parameters:\n  mass:\n    "


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3.0),
        ("1e-1", 0.1),
        ("{sampler_type: constant, sampler_parameters: {value: 2}}", 2.0),
        ("{sampler_type: constant}", 0.0),
        ("{sampler_type: uniform}", Uniform(0.0, 1.0)),
        (
            "{sampler_type: uniform, sampler_parameters: {min_value: -1, max_value: 2, seed: 9}}",
            Uniform(-1.0, 2.0, 9),
        ),
        ("{sampler_type: gaussian}", Gaussian(1.0, 1.0)),
        ("{sampler_type: multirangeuniform}", MultiRangeUniform(((0.0, 1.0),))),
        (
            "{sampler_type: multirangeuniform, sampler_parameters: {intervals: [[0, 1], [3, 4]]}}",
            MultiRangeUniform(((0.0, 1.0), (3.0, 4.0))),
        ),
    ],
)
def test_samplers_have_ml_agents_defaults(tmp_path, text, value):
    config = _read(tmp_path, PARAMETER + text)
    assert value_of(lessons_of(config.environment_parameters["mass"])[0]) == value
    write_config(config, tmp_path / "again.yaml")
    assert read_config(str(tmp_path / "again.yaml")) == config


LESSON = "{name: a, value: 1, completion_criteria: {behavior: A, "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("heavy", r"mass: expected a valid number.*got 'heavy'"),
        ("{sampler_type: unifrm}", r"mass.sampler_type: expected .*got 'unifrm'; did you mean 'uniform'\?"),
        ("{sampler_parameters: {}}", r"mass.sampler_type: missing"),
        ("{sampler_type: uniform, sampler_parameters: {min_value: 3}}", r"min_value 3 is larger than max_value 1"),
        ("{sampler_type: uniform, sampler_parameters: {min_valu: 3}}", r"min_valu: unknown key; did you mean 'min_value'"),
        ("{sampler_type: uniform, sampler_parameters: {mean: 3}}", r"mean: unknown key; known keys: max_value, min_value, seed"),
        ("{sampler_type: gaussian, sampler_parameters: {st_dev: -1}}", r"st_dev: expected greater than or equal to 0, got -1"),
        ("{sampler_type: uniform, sampler_parameters: {seed: -2}}", r"seed: expected greater than or equal to -1, got -2"),
        ("{sampler_type: uniform, sampler_parameters: {seed: 3000000000}}", r"seed: expected less than or equal to 2147483647, got 3000000000"),
        ("{sampler_type: multirangeuniform, sampler_parameters: {intervals: []}}", r"intervals: expected at least one"),
        ("{sampler_type: multirangeuniform, sampler_parameters: {intervals: [[2, 1]]}}", r"intervals: 2 is larger than 1"),
        ("{sampler_type: multirangeuniform, sampler_parameters: {intervals: [3]}}", r"intervals.0: .*got 3"),
        ("{curriculum: []}", r"mass.curriculum: expected at least one"),
        ("{curriculum: [{name: a}]}", r"mass.curriculum.0.value: missing"),
        ("{curriculum: [{value: 3}]}", r"mass.curriculum.0.name: missing"),
        ("{curriculum: [{name: a, value: 1}, {name: b, value: 2}]}", r"mass.curriculum.0: completion_criteria are missing; only the last"),
        ("{curriculum: [" + LESSON + "threshold: x}}, {name: b, value: 2}]}", r"curriculum.0.completion_criteria.threshold: .*got 'x'"),
        ("{curriculum: [" + LESSON + "measure: progress, threshold: 2}}, {name: b, value: 2}]}", r"threshold: progress goes from 0 to 1, got 2"),
        ("{curriculum: [" + LESSON + "measure: rewards}}, {name: b, value: 2}]}", r"measure: .*got 'rewards'; did you mean 'reward'\?"),
        ("{curriculum: [" + LESSON + "min_lesson_length: -1}}, {name: b, value: 2}]}", r"min_lesson_length: .*got -1"),
        ("{curriculum: [" + LESSON + "signal_smoothing: x}}, {name: b, value: 2}]}", r"signal_smoothing: expected a valid boolean"),
        ("{curriculum: [" + LESSON + "require_reset: 3}}, {name: b, value: 2}]}", r"require_reset: expected a valid boolean"),
        ("{curriculum: [" + LESSON + "treshold: 3}}, {name: b, value: 2}]}", r"treshold: unknown key; did you mean 'threshold'"),
        ("{curriculum: [{name: a, value: 1, completion_criteria: {}}, {name: b, value: 2}]}", r"completion_criteria.behavior: missing"),
        ("{curriculum: [" + LESSON.replace("A", "B") + "threshold: 1}}, {name: b, value: 2}]}", r"config.yaml:3:61: .*no behavior 'B' is configured; configured: A"),
    ],
)  # fmt: skip
def test_a_mistake_in_an_environment_parameter_is_reported_with_its_place(
    tmp_path, text, expected
):
    with pytest.raises(
        UsageError, match=r"config.yaml:[23]:\d+: environment_parameters.mass"
    ) as caught:
        _read(tmp_path, PARAMETER + text + "\nbehaviors: {A: }\n")
    assert caught.match(expected)


def test_the_last_lessons_criteria_are_ignored_with_a_line(tmp_path):
    lines = []
    _read(
        tmp_path,
        PARAMETER + "{curriculum: [" + LESSON + "threshold: 1}}]}",
        log=lines.append,
    )
    assert (
        "mass.curriculum.0.completion_criteria: ignored; the last lesson does not end"
        in lines[0]
    )


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]",
        "a: &a {b: *a}",
        "a: \x00",
        "a: !!python/name:os.system",
        "? [1]\n: 2",
        "---\na: 1\n---\nb: 2",
    ],
)
def test_strange_files_are_one_line(tmp_path, text):
    with pytest.raises(UsageError) as caught:
        _read(tmp_path, text)
    assert str(caught.value)


def test_a_missing_file_and_one_that_is_not_text_are_one_line(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"a.yaml: not a text file"):
        read_config(str(tmp_path / "a.yaml"))
    with pytest.raises(UsageError, match=r"b.yaml: no such file"):
        read_config(str(tmp_path / "b.yaml"))
    with pytest.raises(
        UsageError, match=r"no preset '3dball'; did you mean '3DBall'\?"
    ):
        read_config("3dball")


def test_every_flag_sets_a_key_that_there_is():
    for flag in setting_flags():
        config = read_config(None, ["default_settings.self_play={}"])
        _at(config, flag.key.replace("behaviors.*", "default_settings"))
        assert flag.help


def test_the_schema_for_editors_is_the_one_in_the_docs():
    kept = Path(__file__).parents[3] / "docs" / "config.schema.json"
    written, made = json.loads(kept.read_text(encoding="utf-8")), json_schema()
    assert set(written["$defs"]) == set(made["$defs"]), "run `make schema`"
    for name, part in made["$defs"].items():
        for key, about in part["properties"].items():
            assert written["$defs"][name]["properties"][key].get(
                "description"
            ) == about.get("description"), (
                name,
                key,
            )
            assert written["$defs"][name]["properties"][key].get(
                "default"
            ) == about.get("default"), (name, key)


def test_every_scene_has_a_preset_for_each_of_its_behaviors():
    for scene in SCENES:
        configured = read_config(scene).behaviors
        made = scene_class(scene)(1, 1)
        try:
            assert {base_name(name) for name in made.academy.behaviors} == set(
                configured
            )
        finally:
            made.close()


def test_the_presets_of_pyramids_carry_ml_agents_reward_signals():
    """Source: ML-Agents Release 22, config/ppo/Pyramids.yaml and PyramidsRND.yaml."""
    signals = read_config("Pyramids_official").behaviors["Pyramids"].reward_signals
    curiosity = signals["curiosity"]
    assert (curiosity.gamma, curiosity.strength) == (0.99, 0.02)
    assert (curiosity.learning_rate, curiosity.network_settings.hidden_units) == (
        3e-4,
        256,
    )
    official = read_config("Pyramids_rnd_official").behaviors["Pyramids"]
    rnd, network = official.reward_signals["rnd"], {"hidden_units": 64, "num_layers": 3}
    assert (rnd.gamma, rnd.strength, rnd.learning_rate) == (0.99, 0.01, 1e-4)
    assert network.items() <= rnd.network_settings.model_dump().items()
    assert official.max_steps == 3_000_000
    assert not rnd.normalized, "the strength is that of ML-Agents' form"
    own = read_config("Pyramids_rnd").behaviors["Pyramids"].reward_signals["rnd"]
    assert own.normalized


def test_rewards_of_another_size_than_ml_agents_are_announced(tmp_path):
    lines = []
    for block in ({}, {"normalized": True}, {"normalized": False}):
        text = _nested(A + "reward_signals.rnd", block)
        _read(tmp_path, text, log=lines.append)
    (line,) = lines
    assert "config.yaml:4:7: behaviors.A.reward_signals.rnd: rewards are norm" in line


@pytest.mark.parametrize(
    ("behavior", "preset", "figures"),
    [
        (
            "3DBall",
            "3DBall_randomize",
            (64, 12000, 0.001, 0.99, "linear", 128, 2, 500_000, 1000, 12000),
        ),
        (
            "GridWorld",
            "GridWorld_official",
            (32, 256, 0.005, 0.95, "linear", 128, 1, 500_000, 5, 20000),
        ),
        (
            "PushBlock",
            "PushBlock_official",
            (128, 2048, 0.01, 0.95, "linear", 256, 2, 2_000_000, 64, 60000),
        ),
        (
            "Pyramids",
            "Pyramids_official",
            (128, 2048, 0.01, 0.95, "linear", 512, 2, 10_000_000, 128, 30000),
        ),
        (
            "Pyramids",
            "Pyramids_rnd_official",
            (128, 2048, 0.01, 0.95, "linear", 512, 2, 3_000_000, 128, 30000),
        ),
        (
            "Hallway",
            "Hallway_official",
            (128, 1024, 0.03, 0.95, "linear", 128, 2, 10_000_000, 64, 10000),
        ),
        (
            "BigWallJump",
            "WallJump_official",
            (128, 2048, 0.005, 0.95, "linear", 256, 2, 20_000_000, 128, 20000),
        ),
        (
            "SmallWallJump",
            "WallJump_curriculum",
            (128, 2048, 0.005, 0.95, "linear", 256, 2, 5_000_000, 128, 20000),
        ),
        (
            "GridFoodCollector",
            "GridFoodCollector_official",
            (1024, 10240, 0.005, 0.95, "linear", 256, 1, 2_000_000, 64, 10000),
        ),
        (
            "SoccerTwos",
            "SoccerTwos_official",
            (2048, 20480, 0.005, 0.95, "constant", 512, 2, 50_000_000, 1000, 10000),
        ),
        (
            "Striker",
            "StrikersVsGoalie_official",
            (2048, 20480, 0.005, 0.95, "constant", 512, 2, 30_000_000, 1000, 10000),
        ),
        (
            "Goalie",
            "StrikersVsGoalie_official",
            (2048, 20480, 0.005, 0.95, "constant", 512, 2, 30_000_000, 1000, 10000),
        ),
        (
            "Visual3DBall",
            "Visual3DBall_official",
            (256, 2560, 0.005, 0.95, "linear", 128, 2, 400_000, 64, 20000),
        ),
        (
            "VisualFoodCollector",
            "VisualFoodCollector_official",
            (1024, 10240, 0.005, 0.95, "linear", 128, 2, 3_000_000, 100, 40000),
        ),
        (
            "Sorter",
            "Sorter_official",
            (512, 40960, 0.005, 0.95, "constant", 128, 2, 5_000_000, 256, 10000),
        ),
        (
            "Match3VisualObs",
            "Match3_official",
            (16, 120, 0.005, 0.99, "constant", 256, 4, 5_000_000, 128, 10000),
        ),
        (
            "Match3SimpleHeuristic",
            "Match3_official",
            (16, 120, 0.005, 0.99, "constant", 4, 1, 5_000_000, 128, 10000),
        ),
        (
            "DungeonEscape",
            "DungeonEscape_official",
            (1024, 10240, 0.01, 0.95, "constant", 256, 2, 20_000_000, 64, 60000),
        ),
        (
            "PushBlockCollab",
            "CooperativePushBlock_official",
            (1024, 10240, 0.01, 0.95, "constant", 256, 2, 15_000_000, 64, 60000),
        ),
    ],
)
def test_presets_carry_ml_agents_numbers(behavior, preset, figures):
    """Source: ML-Agents Release 22, config/ppo and config/poca."""
    b = read_config(preset).behavior(behavior)
    h, n = b.hyperparameters, b.network_settings
    mine = (
        h.batch_size,
        h.buffer_size,
        h.beta,
        h.lambd,
        h.learning_rate_schedule,
        n.hidden_units,
        n.num_layers,
    )
    assert (*mine, b.max_steps, b.time_horizon, b.summary_freq) == figures
    assert (h.learning_rate, h.epsilon, h.num_epoch) == (3e-4, 0.2, 3)
    assert (n.memory is not None) == (behavior == "Hallway")


def test_signals_that_learn_have_ml_agents_defaults(tmp_path):
    """Source: mlagents 1.1.0, trainers/settings.py."""
    for name, rate in (("curiosity", 3e-4), ("rnd", 1e-4)):
        block = _at(_read(tmp_path, _nested(A + f"reward_signals.{name}", {})), A[:-1])
        settings = block.reward_signals[name]
        assert (settings.gamma, settings.strength) == (0.99, 1.0)
        assert settings.learning_rate == rate
        network = settings.network_settings
        assert (network.hidden_units, network.num_layers) == (128, 2)


def test_a_signal_of_strength_0_is_refused_with_its_line_and_key(tmp_path):
    with pytest.raises(UsageError) as caught:
        _read(tmp_path, _nested(CURIOSITY + "strength", 0))
    assert str(caught.value).endswith(
        "config.yaml:5:9: behaviors.A.reward_signals.curiosity.strength: expected a number above "
        "0; leave the block out to train without this signal"
    )


def test_gail_needs_demonstrations_and_ends_of_finite_worth(tmp_path):
    for block, expected in (
        ({}, "config.yaml:4:7: behaviors.A.reward_signals.gail.demo_path: missing"),
        (
            {"demo_path": "x", "gamma": 1, "absorbing_ends": True},
            "reward_signals.gail.absorbing_ends: expected a gamma below 1 with it, because what "
            "lasts forever is paid for",
        ),
    ):
        with pytest.raises(UsageError) as caught:
            _read(tmp_path, _nested(GAIL, block))
        assert str(caught.value).endswith(expected)


def test_encoding_size_is_the_old_spelling_of_the_hidden_units(tmp_path):
    """It counts only beside no network_settings, as in ML-Agents."""
    lines = []
    text = _nested(CURIOSITY + "encoding_size", 64)
    settings = _at(
        _read(tmp_path, text, log=lines.append), A + "reward_signals.curiosity"
    )
    assert settings.network_settings.hidden_units == 64
    (line,) = lines
    assert line.endswith(
        "config.yaml:5:9: behaviors.A.reward_signals.curiosity.encoding_size: the old spelling "
        "of network_settings.hidden_units"
    )
    text += "        network_settings: {hidden_units: 256}\n"
    settings = _at(
        _read(tmp_path, text, log=lines.append), A + "reward_signals.curiosity"
    )
    assert settings.network_settings.hidden_units == 256
    assert lines[-1].endswith("ignored; network_settings is given too")


def test_a_configuration_saved_by_ml_agents_is_read(tmp_path):
    """The form of `configuration.yaml` that mlagents-learn 1.1.0 writes: every key, null where
    nothing was given.
    """
    text = """\
default_settings: null
behaviors:
  A:
    trainer_type: ppo
    hyperparameters: {batch_size: 64, buffer_size: 12000, learning_rate: 0.0003, beta: 0.001, epsilon: 0.2,
      lambd: 0.99, num_epoch: 3, shared_critic: false, learning_rate_schedule: linear, beta_schedule: linear,
      epsilon_schedule: linear}
    checkpoint_interval: 500000
    network_settings: {normalize: true, hidden_units: 128, num_layers: 2, vis_encode_type: simple, memory: null,
      goal_conditioning_type: hyper, deterministic: false}
    reward_signals:
      extrinsic: {gamma: 0.99, strength: 1.0, network_settings: {normalize: false, memory: null}}
    init_path: null
    keep_checkpoints: 5
    even_checkpoints: false
    max_steps: 500000
    time_horizon: 1000
    summary_freq: 12000
    threaded: false
    self_play: null
    behavioral_cloning: null
env_settings: {env_path: null, env_args: null, base_port: 5005, num_envs: 1, num_areas: 1, timeout_wait: 60,
  seed: -1, max_lifetime_restarts: 10, restarts_rate_limit_n: 1, restarts_rate_limit_period_s: 60}
engine_settings: {width: 84, height: 84, quality_level: 5, time_scale: 20, target_frame_rate: -1,
  capture_frame_rate: 60, no_graphics: false, no_graphics_monitor: false}
environment_parameters: null
checkpoint_settings: {run_id: ppo, initialize_from: null, load_model: false, resume: false, force: false,
  train_model: false, inference: false, results_dir: results}
torch_settings: {device: null}
debug: false
"""
    assert _read(tmp_path, text).behaviors["A"].time_horizon == 1000


def test_the_printed_configuration_is_whole():
    tree = yaml.safe_load(config_text(read_config("Hallway")))
    assert set(tree) == set(RunConfig.model_fields)
    assert tree["behaviors"]["Hallway"]["network_settings"]["memory"] == {
        "type": "lstm",
        "memory_size": 128,
        "sequence_length": 64,
    }


def test_reading_a_configuration_does_not_load_numpy():
    """It would double the time that a configuration error takes."""
    code = "import sys; from touchline.training.config.reading import read_config; read_config('WallJump_curriculum'); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("preset", "behavior", "swap_steps"),
    [
        ("SoccerTwos_official", "SoccerTwos", 2000),
        ("StrikersVsGoalie_official", "Goalie", 1000),
        ("StrikersVsGoalie_official", "Striker", 4000),
    ],
)
def test_official_presets_carry_ml_agents_self_play(preset, behavior, swap_steps):
    """Source: ML-Agents Release 22, config/poca."""
    settings = read_config(preset).behaviors[behavior]
    block = settings.self_play
    assert settings.trainer_type == "poca"
    assert (block.save_steps, block.team_change, block.swap_steps) == (
        50_000,
        200_000,
        swap_steps,
    )
    figures = (block.window, block.play_against_latest_model_ratio, block.initial_elo)
    assert figures == (10, 0.5, 1200)


OFFICIAL_SAC = {
    "3DBall": (64, 200_000, 10, 0.5, 200_000),
    "3DBallHard": (256, 500_000, 10, 1.0, 500_000),
    "Basic": (64, 50_000, 10, 0.01, 500_000),
    "Crawler": (256, 500_000, 20, 1.0, 5_000_000),
    "GridFoodCollector": (256, 2_048, 10, 0.05, 2_000_000),
    "GridWorld": (128, 50_000, 10, 0.5, 500_000),
    "Hallway": (512, 200_000, 10, 0.1, 4_000_000),
    "PushBlock": (128, 50_000, 10, 0.05, 2_000_000),
    "Pyramids": (128, 2_000_000, 10, 0.01, 3_000_000),
    "Walker": (1024, 2_000_000, 30, 1.0, 15_000_000),
    "WallJump": (128, 200_000, 20, 0.1, 15_000_000),
    "Worm": (256, 500_000, 20, 1.0, 5_000_000),
}
"""Batch, buffer, steps per update, first temperature and steps, of the first behavior."""


def test_the_official_files_of_sac_have_their_figures():
    for scene, figures in OFFICIAL_SAC.items():
        config = read_config(f"{scene}_sac_official")
        assert config.env_settings.env_path == scene
        first = next(iter(config.behaviors.values()))
        hyper = first.hyperparameters
        found = hyper.batch_size, hyper.buffer_size, hyper.steps_per_update
        assert (*found, hyper.init_entcoef, first.max_steps) == figures, scene
        assert not hyper.target_critics, scene
        assert hyper.return_steps == 1, scene
