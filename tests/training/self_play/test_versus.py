"""Opponents from files, and games in Unity players."""

from shutil import copyfile

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from touchline.envs.env import WORLDS, EnvRecipe, World
from touchline.errors import RunError, UsageError
from touchline.player import build
from touchline.policies.files.checkpoints import (
    read_arrays,
    read_checkpoint,
    write_checkpoint,
)
from touchline.training.config.reading import read_config
from touchline.training.trainer import train
from touchline.training.world import recipe_of

SMALL = {
    "behaviors.*.hyperparameters.batch_size": 256,
    "behaviors.*.hyperparameters.buffer_size": 1024,
    "behaviors.*.network_settings.hidden_units": 8,
    "behaviors.*.self_play.save_steps": 1000,
    "behaviors.*.summary_freq": 2000,
    "behaviors.*.max_steps": 2000,
    "env_settings.num_areas": 4,
    "env_settings.seed": 1,
}


def _train(folder, versus=(), **changes):
    keys = SMALL | {
        "behaviors.*.self_play.versus": [str(file) for file in versus],
        "checkpoint_settings.results_dir": str(folder),
        "checkpoint_settings.run_id": "run",
        "checkpoint_settings.force": True,
    }
    config = read_config("SoccerTwos", keys | changes)
    return train(config, recipe_of(config, "SoccerTwos"))


ONLY_FILES = {
    "behaviors.*.self_play.window": 0,
    "behaviors.*.self_play.play_against_latest_model_ratio": 0.0,
}


RESUMED = {
    "checkpoint_settings.force": False,
    "checkpoint_settings.resume": True,
    "behaviors.*.max_steps": 4000,
}


def test_unitys_own_policy_is_an_opponent(tmp_path, shared):
    unity = shared / "unity-policies" / "SoccerTwos.onnx"
    result = _train(tmp_path, [unity], **ONLY_FILES)
    assert "| SoccerTwos.onnx |" in (result.folder / "report.md").read_text(
        encoding="utf-8"
    )
    _, about = read_arrays(result.folder / "resume.safetensors")
    pool = about["self_play"]["pools"]["SoccerTwos"]
    assert pool["opponent_steps"] > 1000
    assert pool["snapshots"] == []


def test_files_of_one_name_are_counted_apart(tmp_path, monkeypatch):
    monkeypatch.setitem(
        WORLDS, "duel", World("tests.training.self_play.duel:open_duel")
    )

    def trained(run, **changes):
        keys = {
            "checkpoint_settings.results_dir": str(tmp_path),
            "checkpoint_settings.run_id": run,
            "behaviors.Duel.trainer_type": "ppo",
            "behaviors.Duel.max_steps": 512,
            "behaviors.Duel.summary_freq": 256,
            "behaviors.Duel.hyperparameters": {"batch_size": 64, "buffer_size": 64},
            "behaviors.Duel.network_settings": {"hidden_units": 8, "num_layers": 1},
        }
        config = read_config(None, (), keys | changes)
        return train(config, EnvRecipe("duel", "Duel")).folder

    names = ("a/latest.safetensors", "b/latest.safetensors")
    for name in names:
        (tmp_path / name).parent.mkdir()
        copyfile(
            trained(name[0] + "-run") / "Duel/checkpoint.safetensors", tmp_path / name
        )
    against = {"save_steps": 200, "versus": [str(tmp_path / name) for name in names]}
    run = trained("run", **{"behaviors.Duel.self_play": against})
    report = (run / "report.md").read_text(encoding="utf-8")
    metrics = (run / "Duel" / "metrics.csv").read_text(encoding="utf-8")
    for name in names:
        assert f"| {name} |" in report
        assert f"win_rate_{name.removesuffix('.safetensors')}," in metrics


def test_an_opponent_that_does_not_fit_is_refused(tmp_path, shared):
    with pytest.raises(UsageError, match=r"Basic\.onnx: does not fit SoccerTwos"):
        _train(tmp_path, [shared / "unity-policies" / "Basic.onnx"])
    assert not (tmp_path / "run" / "configuration.yaml").exists()


def test_an_opponent_that_gives_nan_stops_the_run_and_is_named(tmp_path, shared):
    model = onnx.load(shared / "unity-policies" / "SoccerTwos.onnx")
    for constant in model.graph.initializer:
        values = numpy_helper.to_array(constant)
        if values.size > 1000:
            broken = numpy_helper.from_array(values * np.float32("nan"), constant.name)
            constant.CopyFrom(broken)
    onnx.save(model, tmp_path / "broken.onnx")
    with pytest.raises(RunError, match=r"the opponent .*broken\.onnx gave an action"):
        _train(tmp_path, [tmp_path / "broken.onnx"], **ONLY_FILES)
    saved = tmp_path / "run" / "SoccerTwos" / "checkpoint.safetensors"
    weights, _ = read_checkpoint(saved)
    assert all(np.isfinite(w.numpy()).all() for w in weights.values())


def test_a_checkpoint_with_nan_is_refused_as_an_opponent(tmp_path):
    result = _train(tmp_path)
    path = result.folder / "SoccerTwos" / "checkpoint.safetensors"
    weights, about = read_checkpoint(path)
    broken = {
        name: w * float("nan") if name.startswith("network.") else w
        for name, w in weights.items()
    }
    write_checkpoint(tmp_path / "broken.safetensors", broken, about)
    with pytest.raises(UsageError, match=r"broken.*weights are NaN or infinite"):
        _train(tmp_path / "second", [tmp_path / "broken.safetensors"])


def test_a_resumed_run_goes_on_without_a_file_that_it_no_longer_names(tmp_path):
    _train(tmp_path, ["random"])
    result = _train(tmp_path, **RESUMED)
    arrays, about = read_arrays(result.folder / "resume.safetensors")
    assert about["self_play"]["pools"]["SoccerTwos"]["files"] == []
    assert "| random |" not in (result.folder / "report.md").read_text(encoding="utf-8")
    random = about["self_play"]["ratings"]["names"].index("random")
    for team in (0, 1):
        players = arrays[f"self_play/player/SoccerTwos?team={team}"]
        assert not (players == random).any()


def test_a_pool_of_files_alone_that_a_resumed_run_leaves_empty_begins_again(tmp_path):
    _train(tmp_path, ["random"], **ONLY_FILES)
    result = _train(tmp_path, **RESUMED)
    _, about = read_arrays(result.folder / "resume.safetensors")
    assert about["self_play"]["pools"]["SoccerTwos"]["snapshots"]


@pytest.mark.slow
def test_games_in_several_unity_players_have_their_own_opponents(tmp_path):
    player = build("SoccerTwos", tmp_path / "player", num_areas=3)
    changes = {
        "env_settings.env_path": str(player),
        "env_settings.num_envs": 2,
        "env_settings.num_areas": None,
    }
    result = _train(tmp_path, ["random"], **ONLY_FILES, **changes)
    arrays, _ = read_arrays(result.folder / "resume.safetensors")
    games = "self_play/games/table/SoccerTwos"
    for team in (0, 1):
        areas = arrays[f"{games}?team={team}/area"]
        assert np.bincount(areas).tolist() == [2] * 6, "two of a team on each field"
    players = [arrays[f"self_play/player/SoccerTwos?team={team}"] for team in (0, 1)]
    assert ((players[0] == -1) != (players[1] == -1)).all(), "one opponent on each"


SAC = {
    "behaviors.SoccerTwos.trainer_type": "sac",
    "behaviors.SoccerTwos.hyperparameters": {
        "batch_size": 32,
        "buffer_size": 4000,
        "steps_per_update": 20,
        "save_replay_buffer": True,
    },
    "behaviors.*.network_settings.hidden_units": 8,
    "behaviors.*.self_play.save_steps": 500,
    "behaviors.*.self_play.play_against_latest_model_ratio": 0.3,
    "behaviors.*.summary_freq": 1000,
    "behaviors.*.max_steps": 2000,
    "env_settings.num_areas": 4,
    "env_settings.seed": 1,
}


def _train_sac(folder, **changes):
    keys = SAC | {
        "checkpoint_settings.results_dir": str(folder),
        "checkpoint_settings.run_id": "run",
    }
    config = read_config("SoccerTwos", keys | changes)
    return train(config, recipe_of(config, "SoccerTwos"))


def test_sac_remembers_its_own_side_and_not_that_of_its_opponents(tmp_path):
    result = _train_sac(tmp_path)
    arrays, about = read_arrays(result.folder / "resume.safetensors")
    pool = about["self_play"]["pools"]["SoccerTwos"]
    assert pool["opponent_steps"] > 100
    assert len(pool["snapshots"]) > 1
    remembered = int(arrays["learners/SoccerTwos/replay.added"])
    assert remembered == result.behaviors["SoccerTwos"].steps


@pytest.mark.slow
def test_sac_learns_in_several_unity_players_and_keeps_its_replay_when_resumed(
    tmp_path,
):
    player = build("SoccerTwos", tmp_path / "player", num_areas=2)
    players = {
        "env_settings.env_path": str(player),
        "env_settings.num_envs": 2,
        "env_settings.num_areas": None,
    }
    first = _train_sac(tmp_path, **players)
    go_on = {"checkpoint_settings.resume": True, "behaviors.*.max_steps": 3000}
    result = _train_sac(tmp_path, **players, **go_on)
    arrays, about = read_arrays(result.folder / "resume.safetensors")
    steps = result.behaviors["SoccerTwos"].steps
    assert steps >= 3000 > first.behaviors["SoccerTwos"].steps
    assert int(arrays["learners/SoccerTwos/replay.added"]) == steps
    assert int(arrays["learners/SoccerTwos/replay.oldest"]) == 0
    assert about["experience"]["SoccerTwos"][0][0] == 0
