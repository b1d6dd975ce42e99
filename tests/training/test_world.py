"""Which world a run opens, how, and what is refused before anything is written."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from touchline.cli import run
from touchline.envs.env import EnvRecipe
from touchline.envs.side_by_side import SideBySide, copies_of
from touchline.errors import UsageError
from touchline.player import build
from touchline.policies.files.checkpoints import read_checkpoint
from touchline.training.config.reading import read_config
from touchline.training.trainer import train
from touchline.training.warm_start import first_checkpoint
from touchline.training.world import recipe_of

# They repeat calls whose shapes shorter tests check.
pytestmark = pytest.mark.usefixtures("unchecked_shapes")


@pytest.fixture(scope="session")
def player(tmp_path_factory):
    return build("3DBall", tmp_path_factory.mktemp("builds"))


def _yaml(tmp_path, **blocks):
    path = tmp_path / "config.yaml"
    path.write_text(
        yaml.safe_dump({"behaviors": {"3DBall": {"max_steps": 2000}}} | blocks)
    )
    return str(path)


def test_a_preset_opens_its_scene_and_a_yaml_waits_for_the_editor(tmp_path):
    assert recipe_of(read_config("3DBall"), "3DBall").target == "3DBall"
    assert (
        recipe_of(read_config("3DBall_randomize"), "3DBall_randomize").target
        == "3DBall"
    )
    recipe = recipe_of(read_config(_yaml(tmp_path, env_settings={"base_port": 6000})))
    assert (recipe.world, recipe.target) == ("unity", "editor")
    assert "base_port" not in recipe.options, "the Editor calls on 5004"


def test_a_players_settings_are_handed_on(tmp_path, player):
    path = _yaml(
        tmp_path,
        engine_settings={"time_scale": 3, "width": 320, "no_graphics_monitor": True},
        env_settings={
            "env_path": str(player),
            "env_args": ["-x", 3],
            "timeout_wait": 7,
            "num_areas": 2,
        },
        checkpoint_settings={"run_id": "me"},
    )
    recipe = recipe_of(read_config(path))
    assert (recipe.world, recipe.target, recipe.num_areas) == ("unity", str(player), 2)
    options = dict(recipe.options)
    assert options.pop("engine") == {
        "width": 320, "height": 84, "quality_level": 5, "time_scale": 3, "target_frame_rate": -1, "capture_frame_rate": 60,
    }  # fmt: skip
    assert options == {
        "timeout_wait": 7, "base_port": 0, "no_graphics": False, "no_graphics_monitor": True,
        "additional_args": ["-x", "3"], "log_folder": str(Path("results/me/run_logs")),
    }  # fmt: skip


def test_only_the_first_of_many_worlds_keeps_its_window():
    seen = []

    def open_world(recipe):
        seen.append(recipe.options)
        raise UsageError("enough")

    recipe = EnvRecipe(
        "unity", "x", options={"base_port": 0, "no_graphics_monitor": True}
    )
    with pytest.raises(UsageError, match="enough"):
        SideBySide(copies_of(recipe, 3), open_world=open_world)
    by_worker = sorted(seen, key=lambda o: o["worker_id"])
    assert [o.get("no_graphics", False) for o in by_worker] == [False, True, True][
        : len(by_worker)
    ]
    assert not any("no_graphics_monitor" in o for o in by_worker)


def test_settings_of_a_player_are_reported_to_change_nothing_for_a_scene(tmp_path):
    lines = []
    recipe_of(
        read_config(_yaml(tmp_path, engine_settings={"time_scale": 3})),
        "3DBall",
        lines.append,
    )
    recipe_of(read_config(_yaml(tmp_path)), "3DBall", lines.append)
    assert lines == [
        "3DBall runs without Unity: engine_settings and env_args change nothing"
    ]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (
            {"mas": 1},
            r"environment_parameters.mas: 3DBall has no such parameter; did you mean 'mass'\? it knows: ",
        ),
        ({"mass": 0}, r"3DBall: parameter 'mass' .* takes 0.001 to 1000, got 0"),
        (
            {
                "mass": {
                    "curriculum": [
                        {
                            "name": "a",
                            "value": 1,
                            "completion_criteria": {"behavior": "3DBall"},
                        },
                        {"name": "b", "value": -1},
                    ]
                }
            },
            r"3DBall: parameter 'mass' .* got -1",
        ),
    ],
)
def test_parameters_of_every_lesson_are_checked_before_the_run(
    tmp_path, parameters, expected
):
    config = read_config(_yaml(tmp_path, environment_parameters=parameters))
    with pytest.raises(UsageError, match=expected):
        recipe_of(config, "3DBall")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["config.yaml", "--env", "nowhere.x86_64"], "no player at nowhere.x86_64"),
        (["config.yaml", "--num-envs", "2"], "num_envs is 2, but the Editor is one"),
        (
            ["config.yaml", "--env", "3Dball"],
            "unknown scene '3Dball'; did you mean '3DBall'?",
        ),
        (
            ["config.yaml", "--env", "Basic"],
            "Basic has a behavior 'Basic', which is not configured; configured: 3DBall",
        ),
        (["config.yaml", "--env", "a.wire.gz"], "a recording plays what was recorded"),
        (
            ["3DBall", "--num-envs", "0"],
            "--num-envs: env_settings.num_envs: expected greater than 0, got 0",
        ),
        (
            ["3DBall", "--set", "behaviors.3DBal.max_steps=9"],
            "--set behaviors.3DBal.max_steps=9: behaviors.3DBal: 3DBall has no such behavior; "
            "did you mean '3DBall'? it has: 3DBall",
        ),
        (
            ["3DBall", "--torch-device", "gpu"],
            "--torch-device: torch_settings.device: expected cpu, cuda",
        ),
        (
            ["3DBall", "--max-steps", "many"],
            "--max-steps: behaviors.3DBall.max_steps: expected a valid integer",
        ),
        (
            ["3DBall", "--initialize-from", "nix"],
            f"there is no run {Path('results/nix')}",
        ),
        (
            ["3DBall", "--initialize-from", "3DBall"],
            "the run 3DBall cannot start from itself",
        ),
        (
            ["3DBall", "--inference"],
            "3DBall has none: add --resume or --initialize-from",
        ),
        (["3DBall", "--inference", "--resume"], "there is no run to resume"),
        (
            ["3DBall", "--set", "behaviors.3DBall.init_path=a.pt"],
            "a.pt: no such checkpoint to start 3DBall with",
        ),
        (
            ["3DBall", "--set", "behaviors.3DBall.init_path=a"],
            "no such checkpoint to start 3DBall with",
        ),
        (
            ["3DBall", "--evaluation-env", "3DBal"],
            "evaluation.env: unknown scene '3DBal'",
        ),
        (
            ["Basic", "--evaluation-env", "3DBall"],
            "evaluation.env: behaviors: 3DBall has a behavior '3DBall', which is not configured",
        ),
        (
            [
                "3DBall",
                "--set",
                "environment_parameters.mass=2",
                "--evaluation-env",
                "Basic",
            ],
            "evaluation.env: environment_parameters.mass: Basic has no such parameter",
        ),
        (
            ["3DBall", "--evaluation-env", "builds/none.x86_64"],
            "evaluation.env: no player at",
        ),
        (["empty.yaml", "--env", "3DBall"], "empty.yaml: holds no settings; expected"),
        (
            ["flat.yaml", "--env", "3DBall"],
            "flat.yaml:1:1: env_settings: expected keys and values, got []",
        ),
        (
            ["3DBall", "--results-dir", "empty.yaml"],
            "--results-dir empty.yaml: expected a folder, or room for one (File exists)",
        ),
        (
            [],
            "train what? give a preset's name (3DBall), a YAML file, or a player with --env",
        ),
    ],
)
def test_what_is_wrong_is_one_line_and_leaves_no_run(
    arguments, expected, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    _yaml(tmp_path)
    (tmp_path / "empty.yaml").write_text("# to be written\n")
    (tmp_path / "flat.yaml").write_text("env_settings: []\n")
    assert run(["train", *arguments]) == 2
    captured = capsys.readouterr()
    assert expected in captured.err
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_print_config_shows_what_would_be_used(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = "--max-steps 5e4 --time-scale 3 --seed 0 --capture-frame-rate 0 --deterministic --num-envs 2"
    assert (
        run(
            [
                "train",
                "WallJump",
                *flags.split(),
                "--print-config",
                "--env-args",
                "-a",
                "--run-id",
                "x",
            ]
        )
        == 0
    )
    shown = yaml.safe_load(capsys.readouterr().out)
    assert {b["max_steps"] for b in shown["behaviors"].values()} == {50_000}
    assert all(
        b["network_settings"]["deterministic"] for b in shown["behaviors"].values()
    )
    assert shown["engine_settings"]["time_scale"] == 3
    assert (
        shown["engine_settings"]["capture_frame_rate"]
        == shown["env_settings"]["seed"]
        == 0
    )
    assert shown["env_settings"]["env_args"] == ["-a", "--run-id", "x"], (
        "all that follows is the player's"
    )
    assert shown["checkpoint_settings"]["run_id"] == "WallJump"
    assert not (tmp_path / "results").exists()


def test_a_preset_says_what_it_is_and_old_flags_get_a_line(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert (
        run(["train", "Basic_official", "--max-steps", "300", "--torch", "--seed", "1"])
        == 0
    )
    shown = capsys.readouterr().err
    assert (
        "preset Basic_official: ML-Agents' official settings for this scene (Release 22, config/ppo/Basic.yaml)."
        in shown
    )
    assert "--torch is no longer needed: PyTorch is the only framework" in shown


def test_a_run_starts_with_the_networks_of_another_at_step_0_and_acts_without_learning(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert (
        run(
            [
                "train",
                "Basic_official",
                "--run-id",
                "a",
                "--max-steps",
                "600",
                "--seed",
                "1",
            ]
        )
        == 0
    )
    before = {
        p: p.read_bytes()
        for p in (tmp_path / "results" / "a").rglob("*")
        if p.is_file()
    }
    config = read_config(
        "Basic_official", (), {"checkpoint_settings.initialize_from": "a"}
    )
    start = first_checkpoint(config, "Basic")
    assert start == Path("results/a/Basic/checkpoint.safetensors")
    by_path = read_config("Basic_official", ["behaviors.Basic.init_path=results/a"])
    assert first_checkpoint(by_path, "Basic") == start
    assert (
        run(
            [
                "train",
                "Basic_official",
                "--run-id",
                "b",
                "--initialize-from",
                "a",
                "--max-steps",
                "256",
                "--seed",
                "2",
            ]
        )
        == 0
    )
    shown = capsys.readouterr().err
    assert f"Basic starts with {start}" in shown
    first, about = read_checkpoint(tmp_path / "results/b/Basic/checkpoint.safetensors")
    old, _ = read_checkpoint(tmp_path / start)
    assert about["steps"] < 600
    moved = [
        np.abs((first[k] - old[k]).numpy()).max()
        for k in old
        if k.startswith("network.") and "weight" in k
    ]
    assert max(moved) < 0.02, "one update away from where it started"
    few = ["--max-steps", "2500", "--set", "behaviors.Basic.summary_freq=9000"]
    assert (
        run(
            [
                "train",
                "Basic_official",
                "--run-id",
                "a",
                "--resume",
                "--inference",
                "--seed",
                "1",
                *few,
            ]
        )
        == 0
    )
    assert "steps without learning  return" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in before} == before, "inference writes nothing"
    itself = [
        "--run-id",
        "a",
        "--force",
        "--set",
        "behaviors.Basic.init_path=results/a/Basic/checkpoint.safetensors",
    ]
    assert run(["train", "Basic_official", *itself]) == 2
    assert "--force would delete it" in capsys.readouterr().err
    assert (tmp_path / start).exists()
    changed = ["--set", "behaviors.Basic.network_settings.hidden_units=7"]
    assert (
        run(
            [
                "train",
                "Basic_official",
                "--run-id",
                "c",
                "--initialize-from",
                "a",
                *changed,
            ]
        )
        == 2
    )
    assert "does not fit the configured" in capsys.readouterr().err


def test_training_over_the_wire_is_training_in_process(tmp_path, player):
    """Same seed, same lessons and samplers, same weights: the player's scene draws as the embedded
    one does.
    """
    parameters = {
        "scale": {"sampler_type": "uniform", "sampler_parameters": {"min_value": 0.75, "max_value": 3}},
        "mass": {
            "curriculum": [
                {"name": "a", "value": 1, "completion_criteria": {"behavior": "3DBall", "measure": "progress", "threshold": 0.4}},
                {"name": "b", "value": 5},
            ]
        },
    }  # fmt: skip
    path = _yaml(
        tmp_path,
        behaviors={"3DBall": {"trainer_type": "ppo", "max_steps": 2000, "hyperparameters": {"batch_size": 64, "buffer_size": 500}}},
        environment_parameters=parameters,
        env_settings={"seed": 5, "num_areas": 3, "timeout_wait": 30},
    )  # fmt: skip
    weights = {}
    for world in ("3DBall", str(player)):
        name = "wired" if world == str(player) else "embedded"
        overrides = {
            "env_settings.env_path": world,
            "checkpoint_settings.results_dir": str(tmp_path / name),
        }
        config = read_config(path, (), overrides)
        folder = train(config, recipe_of(config)).folder
        weights[world], _ = read_checkpoint(
            folder / "3DBall" / "checkpoint.safetensors"
        )
    assert (folder / "run_logs" / "Player-0.log").exists()
    embedded, wired = weights.values()
    for key, tensor in embedded.items():
        assert tensor.equal(wired[key]), key


def test_several_players_train_one_policy_each_with_its_log(tmp_path, player):
    config = read_config(
        _yaml(tmp_path, env_settings={"env_path": str(player), "num_envs": 2, "num_areas": 2, "seed": 1}),
        ["behaviors.3DBall.trainer_type=ppo", "behaviors.3DBall.hyperparameters.buffer_size=500",
         "behaviors.3DBall.hyperparameters.batch_size=64", "behaviors.3DBall.max_steps=1000"],
        {"checkpoint_settings.results_dir": str(tmp_path)},
    )  # fmt: skip
    folder = train(config, recipe_of(config)).folder
    assert {p.name for p in (folder / "run_logs").glob("Player-*.log")} == {
        "Player-0.log",
        "Player-1.log",
    }
    assert (folder / "3DBall.onnx").exists()
