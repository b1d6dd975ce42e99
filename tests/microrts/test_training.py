"""The trainer learns from MicroRTS: one short run of each form, resumed and evaluated."""

import csv

import pytest

from touchline.cli import run
from touchline.envs.env import EnvRecipe, make
from touchline.errors import UsageError
from touchline.parameters import Uniform
from touchline.policies.loading import trained_options
from touchline.training.config.reading import preset_names, read_config


@pytest.mark.parametrize("form", ["unit", "grid"])
def test_a_preset_trains_resumes_and_plays(form, engine, tmp_path, caplog, capsys):
    env = f"microrts:basesWorkers8x8?form={form}&turned=1&opponent=passive&max_ticks=40&engine={engine.folder}"
    learn = {"buffer_size": 128, "batch_size": 64, "num_epoch": 1}
    command = [
        "train",
        "microrts-mining",
        *("--run-id", "short", "--results-dir", str(tmp_path), "--seed", "1"),
        *(
            "--set",
            f"env_settings.env_path={env}",
            "--set",
            "behaviors.MicroRTS.summary_freq=128",
        ),
        *(
            part
            for key, value in learn.items()
            for part in ("--set", f"behaviors.MicroRTS.hyperparameters.{key}={value}")
        ),
    ]
    assert run([*command, "--max-steps", "256"]) == 0
    assert run([*command, "--max-steps", "512", "--resume"]) == 0
    folder = tmp_path / "short"
    assert (folder / "MicroRTS" / "checkpoint.safetensors").is_file()
    assert (
        run(
            [
                "eval",
                env,
                "--policy",
                str(folder),
                "--opponents",
                "passive",
                "--episodes",
                "2",
            ]
        )
        == 0
    )
    shown = capsys.readouterr().err
    assert "Unity will be written: microRTS is no game of Unity's" in shown
    assert run(["export", str(folder), "-o", str(tmp_path / "x.onnx")]) == 2
    trained = trained_options(str(folder), "microrts")
    assert (trained["form"], trained["turned"]) == (form, "1")
    # Without its options, which the checkpoint holds.
    plain = (
        f"microrts:basesWorkers8x8?opponent=passive&max_ticks=40&engine={engine.folder}"
    )
    assert run(["eval", plain, "--policy", str(folder), "--episodes", "2"]) == 0
    filled_in = f"plays form={form}&turned=1, as it was trained"
    assert filled_in in caplog.text
    in_plain_world = [*command, "--set", f"env_settings.env_path={plain}"]
    caplog.clear()
    assert run([*in_plain_world, "--max-steps", "64", "--resume", "--inference"]) == 0
    assert filled_in in caplog.text + capsys.readouterr().err


def test_presets_of_microrts_can_be_read():
    names = [name for name in preset_names() if name.startswith("microrts-")]
    assert {
        "microrts-mining",
        "microrts-defeat-coac",
        "microrts-defeat-diverse",
    } <= set(names)
    for name in names:
        assert read_config(name).env_settings.env_path.startswith("microrts:")


def test_checkpoints_are_evaluated_against_each_bot_of_another_environment(
    engine, tmp_path
):
    game = (
        f"microrts:basesWorkers8x8?form=grid&max_ticks=40&engine={engine.folder}"
        "&opponent="
    )
    settings = {
        "env_settings.env_path": f"{game}passive",
        "evaluation.env": f"{game}passive,random",
        "evaluation.episodes": 8,
        "behaviors.MicroRTS.hyperparameters.buffer_size": 128,
        "behaviors.MicroRTS.hyperparameters.batch_size": 64,
        "behaviors.MicroRTS.summary_freq": 128,
    }
    given = [
        part for key, value in settings.items() for part in ("--set", f"{key}={value}")
    ]
    command = ["train", "microrts-mining", *given, "--run-id", "short", "--seed", "1"]
    command += ["--results-dir", str(tmp_path), "--max-steps", "256"]
    assert run(command) == 0
    folder = tmp_path / "short"
    with (folder / "MicroRTS" / "metrics.csv").open() as file:
        *_, last = csv.DictReader(file)
    # Games of 40 ticks end in a draw.
    assert last["evaluated_win_rate_passive"] == last["evaluated_win_rate_random"]
    assert float(last["evaluated_win_rate_random"]) == 0.0
    assert "| random | 4 | 0 | 4 | 0 |" in (folder / "report.md").read_text(
        encoding="utf-8"
    )


def test_a_curriculum_leads_from_shaped_rewards_to_results_alone(engine):
    recipe = EnvRecipe.parse(
        f"microrts:basesWorkers8x8?weights=win_loss:10,gather:2&engine={engine.folder}"
    )
    with make(recipe) as env:
        env.reset(0)
        assert env.weights[:2].tolist() == [10.0, 2.0]
        env.set_parameters({"shaping": 0.25})
        assert env.weights[:2].tolist() == [10.0, 0.5]
        env.reset(1, {"shaping": 0.0})
        assert env.weights.tolist() == [10.0, *[0.0] * 8]
        with pytest.raises(UsageError, match=r"unknown parameter 'shape'.* shaping"):
            env.set_parameters({"shape": 1.0})
        with pytest.raises(UsageError, match="takes a number"):
            env.set_parameters({"shaping": Uniform(0.0, 1.0)})


def test_self_play_and_bots_share_one_mix(engine, tmp_path):
    game = (
        "microrts:basesWorkers8x8?form=grid&skip=1&turned=1&max_ticks=60"
        f"&engine={engine.folder}&opponent=self:2,workerrush:2,random"
    )
    settings = {
        "env_settings.env_path": game,
        "env_settings.num_areas": 10,
        "evaluation.env": game.replace("self:2,workerrush:2,", ""),
        "evaluation.episodes": 10,
        "behaviors.MicroRTS.self_play.save_steps": 128,
        "behaviors.MicroRTS.self_play.play_against_latest_model_ratio": 0.25,
        "behaviors.MicroRTS.hyperparameters.buffer_size": 256,
        "behaviors.MicroRTS.hyperparameters.batch_size": 64,
        "behaviors.MicroRTS.summary_freq": 256,
    }
    given = [
        part for key, value in settings.items() for part in ("--set", f"{key}={value}")
    ]
    command = ["train", "microrts-mining", *given, "--run-id", "short", "--seed", "1"]
    command += ["--results-dir", str(tmp_path)]
    assert run([*command, "--max-steps", "512"]) == 0
    assert run([*command, "--max-steps", "1024", "--resume"]) == 0
    with (tmp_path / "short" / "MicroRTS" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[-1]["evaluated_win_rate_random"]
    # Games of 60 ticks end in a draw, so every snapshot scores half of the points.
    rated = [float(row["win_rate_pool"]) for row in rows if row.get("win_rate_pool")]
    assert rated
    assert set(rated) == {0.5}


def test_agents_of_a_mixed_env_are_those_of_its_games(engine):
    recipe = EnvRecipe.parse(
        f"microrts:basesWorkers8x8?opponent=workerrush,self&engine={engine.folder}",
        num_areas=4,
    )
    with make(recipe) as env:
        env.reset(0)
        first, second = (env.steps(name)[0] for name in env.behaviors)
        assert first.agent_id.tolist() == [0, 1, 2, 3]
        assert second.agent_id.tolist() == [4, 5]
        # A game against a bot has one side that is ours.
        assert first.group_id.tolist() == [0, 1, 0, 3]
        assert second.group_id.tolist() == [2, 4]
        assert [env.capacity(name) for name in env.behaviors] == [4, 2]
