"""Whole runs: what they leave behind, how they resume, and that they learn."""

import json
import os
import shutil
import signal
import sys
import time

import numpy as np
import pytest
import torch
from filelock import FileLock
from tests.training.practice import make_learner

from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.errors import NonFiniteError, UsageError
from touchline.jobs.job import Here
from touchline.policies.files.checkpoints import (
    read_arrays,
    read_checkpoint,
    write_arrays,
)
from touchline.policies.loading import load_policies
from touchline.policies.network_policy import NetworkPolicy
from touchline.training import inference, trainer
from touchline.training.config.reading import read_config
from touchline.training.evaluation import measure
from touchline.training.run.folder import RunFolder
from touchline.training.trainer import train


def _config(tmp_path, scene, seed=0, **changes):
    overrides = {
        "checkpoint_settings.results_dir": str(tmp_path),
        "checkpoint_settings.run_id": "run",
        "env_settings.seed": seed,
    }
    return read_config(
        scene, (), overrides | {k.replace("__", "."): v for k, v in changes.items()}
    )


# They repeat calls whose shapes shorter tests check.
pytestmark = pytest.mark.usefixtures("unchecked_shapes")


@pytest.fixture(scope="module")
def brief(tmp_path_factory):
    """The configuration, the result and the lines of a run that no test changes.

    It is made before a test's own fixtures, and so ends with an evaluation of full length.
    """
    folder, lines = tmp_path_factory.mktemp("brief"), []
    config = _config(folder, "Basic_official", seed=5, behaviors__Basic__max_steps=300)
    result = train(config, EnvRecipe("scene", "Basic"), lines.append)
    return config, result, lines


@pytest.fixture
def trained(brief, tmp_path):
    """The folder of a finished run of the test's own."""
    return shutil.copytree(brief[1].folder, tmp_path / "run")


def _score(scene, folder, episodes):
    with make(scene) as env:
        slots = Slots(env)
        slots.reset(0)
        policies = load_policies([str(folder)], slots.behaviors, deterministic=True)
        return measure(slots, policies, episodes, seed=123)["mean_return"]


def test_the_same_seed_trains_the_same_weights(tmp_path):
    files = []
    changes = {
        "behaviors__3DBall__max_steps": 4000,
        "behaviors__3DBall__hyperparameters__buffer_size": 2000,
    }
    for name in ("a", "b", "c"):
        config = _config(tmp_path / name, "3DBall", seed=4, **changes)
        result = train(config, EnvRecipe("scene", "3DBall"))
        files.append((result.folder / "3DBall" / "checkpoint.safetensors").read_bytes())
    assert files[0] == files[1] == files[2]


def test_a_behavior_that_is_done_still_acts_and_its_experience_is_not_kept(tmp_path):
    config = _config(
        tmp_path, "WallJump_official",
        behaviors__SmallWallJump__max_steps=1, behaviors__SmallWallJump__hyperparameters__buffer_size=128,
        behaviors__BigWallJump__max_steps=1000, behaviors__BigWallJump__hyperparameters__buffer_size=512,
    )  # fmt: skip
    result = train(config, EnvRecipe("scene", "WallJump"))
    arrays, metadata = read_arrays(result.folder / "resume.safetensors")
    counters = metadata["behaviors"]["SmallWallJump"]
    assert 128 <= counters["steps"] < 256
    # A rollout that has just begun holds the latest rows alone, which are saved once.
    assert "collector/rows/SmallWallJump?team=0/deciding" in arrays
    assert not any("rollout/SmallWallJump?team=0/rows" in name for name in arrays)
    assert counters["returns"] == []


@pytest.mark.parametrize("begun", ["force", "resume"])
def test_a_runs_own_settings_do_not_begin_as_it_did(tmp_path, begun):
    about = {"seed": 0, "world": "scene", "target": "Basic"}
    with RunFolder(_config(tmp_path, "Basic_official"), about) as first:
        first.settle({})
        (first.path / "Basic").mkdir()  # what only a run that has begun has
    begins = {f"checkpoint_settings__{begun}": True}
    with RunFolder(_config(tmp_path, "Basic_official", **begins), about) as second:
        second.settle({})
        (second.path / "Basic").mkdir(exist_ok=True)
    settings = read_config(str(second.path / "configuration.yaml"))
    with pytest.raises(UsageError, match="exists"):
        RunFolder(settings, about)


def test_a_run_introduces_itself(brief):
    config, result, lines = brief
    assert "seed 5" in lines[0]
    assert any(
        "steps/s" in line and "return" in line and "left" in line for line in lines
    )
    status = json.loads(
        (result.folder / "run_logs" / "training_status.json").read_text(
            encoding="utf-8"
        )
    )
    assert status["seed"] == 5
    assert status["Basic"]["checkpoints"][-1]["steps"] >= 300
    kept = read_config(str(result.folder / "configuration.yaml"))
    assert kept.env_settings.env_path == "Basic", "the preset's own scene"
    changes = {"env_settings": config.env_settings}
    assert kept.model_copy(update=changes) == config
    assert list((result.folder / "Basic").glob("events.out.tfevents.*"))


def test_a_run_ends_with_an_evaluation_and_a_report(brief):
    folder = brief[1].folder
    status = json.loads(
        (folder / "run_logs" / "training_status.json").read_text(encoding="utf-8")
    )
    (evaluation,) = status["Basic"]["evaluations"]
    assert evaluation["episodes"] == 50
    assert evaluation["ci95"][0] <= evaluation["mean_return"] <= evaluation["ci95"][1]
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert f"| {evaluation['mean_return']:.3f}, 95 % within" in report
    assert "![Basic](Basic.png)" in report
    assert "learning_rate: 0.0003" in report
    settings = (folder / "configuration.yaml").read_text(encoding="utf-8")
    assert settings in report, "the same, with the preset's own scene"
    seconds = json.loads(
        (folder / "run_logs" / "timers.json").read_text(encoding="utf-8")
    )
    assert {
        "simulation",
        "inference",
        "learning",
        "saving",
        "evaluation",
        "other",
    } == set(seconds)
    assert all(s >= 0 for s in seconds.values())


def test_without_episodes_nothing_is_evaluated(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(Here, "start", lambda _, job: started.append(job))
    changes = {"behaviors__Basic__max_steps": 3000, "evaluation__episodes": 0}
    config = _config(tmp_path, "Basic_official", **changes)
    folder = train(config, EnvRecipe("scene", "Basic")).folder
    status = json.loads(
        (folder / "run_logs/training_status.json").read_text(encoding="utf-8")
    )
    (evaluation,) = status["Basic"]["evaluations"]
    assert evaluation.keys() == {"steps", "lessons", "score"}
    assert not started
    assert (folder / "Basic" / "best.safetensors").exists()


def test_without_evaluations_a_checkpoint_has_the_mean_of_the_episodes_until_then(
    tmp_path,
):
    changes = {"max_steps": 6000, "checkpoint_interval": 1000, "keep_checkpoints": 9}
    changes = {f"behaviors__Basic__{key}": value for key, value in changes.items()}
    changes |= {"behaviors__Basic__summary_freq": 6000, "evaluation__episodes": 0}
    config = _config(tmp_path, "Basic_official", **changes)
    folder = train(config, EnvRecipe("scene", "Basic")).folder
    text = (folder / "run_logs/training_status.json").read_text(encoding="utf-8")
    scores = [e["score"] for e in json.loads(text)["Basic"]["evaluations"]]
    assert len(scores) == len(set(scores)) == 6


def test_the_best_checkpoint_by_evaluation_is_kept(tmp_path):
    folder = RunFolder(_config(tmp_path, "Basic_official"), {"seed": 0})
    spec = make("Basic").behaviors["Basic?team=0"]
    learner = make_learner(spec, read_config("Basic").behaviors["Basic"], name="Basic")
    for learner.steps, score in ((100, 0.5), (200, 0.9), (300, 0.7)):
        folder.save("Basic", learner, None)
        folder.add_evaluation("Basic", {"steps": learner.steps, "score": score})
    _, best = read_checkpoint(folder.path / "Basic" / "best.safetensors")
    assert best["steps"] == 200
    assert (folder.path / "Basic" / "best.onnx").exists()
    assert [e["score"] for e in folder.evaluations("Basic")] == [0.5, 0.9, 0.7]


def test_an_evaluation_changes_nothing_in_training(tmp_path):
    """With or without checkpoints, and so evaluations, on the way: the same weights in the end."""
    ends = []
    for name, interval in (("often", 300), ("never", 500_000)):
        changes = {
            "behaviors__Basic__max_steps": 1000,
            "behaviors__Basic__checkpoint_interval": interval,
        }
        folder = train(
            _config(tmp_path / name, "Basic_official", **changes),
            EnvRecipe("scene", "Basic"),
        ).folder
        ends.append(read_checkpoint(folder / "Basic" / "checkpoint.safetensors")[0])
    assert all(torch.equal(tensor, ends[1][key]) for key, tensor in ends[0].items())


def test_an_evaluation_that_goes_on_beside_training_is_of_its_own_checkpoint(
    tmp_path, monkeypatch
):
    start = Here.start

    class Late:
        """Its figures are there only for who waits, as on a busy cluster."""

        def __init__(self, place, job):
            self._outcome = start(place, job).look()

        def look(self, patience_s=0.0):
            return self._outcome if patience_s else None

    found = []
    for name in ("here", "beside"):
        changes = {
            "behaviors__Basic__max_steps": 1500,
            "behaviors__Basic__checkpoint_interval": 300,
        }
        config = _config(tmp_path / name, "Basic_official", **changes)
        folder = train(config, EnvRecipe("scene", "Basic")).folder
        status = json.loads(
            (folder / "run_logs/training_status.json").read_text(encoding="utf-8")
        )
        best = (folder / "Basic" / "best.safetensors").read_bytes()
        found.append((status["Basic"]["evaluations"], best))
        monkeypatch.setattr(Here, "start", lambda here, job: Late(here, job))
    assert len(found[0][0]) > 2
    assert found[0] == found[1]


def test_weights_and_biases_gets_what_tensorboard_gets(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    config = _config(tmp_path, "Basic_official", behaviors__Basic__max_steps=300)
    lines = []
    result = train(config, EnvRecipe("scene", "Basic"), lines.append, to_wandb=True)
    folder = result.folder
    (where,) = folder.glob("wandb/offline-run-*")
    assert lines[-1] == f"W&B: offline; to upload the run: wandb sync {where.resolve()}"
    (log,) = folder.glob("wandb/offline-run-*/*.wandb")
    tag = b"Environment/Cumulative Reward"
    # A process of wandb's own writes the file, and has not always done so by now.
    deadline = time.monotonic() + 30.0
    while tag not in log.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert tag in log.read_bytes()


def _files(folder):
    return {
        p.relative_to(folder): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.suffix != ".lock"
    }


@pytest.mark.usefixtures("trained")
def test_a_forced_run_that_cannot_start_leaves_the_old_one_as_it_was(tmp_path):
    before = _files(tmp_path)
    forced = _config(tmp_path, "Basic_official", checkpoint_settings__force=True)
    with pytest.raises(UsageError, match="unknown scene"):
        train(forced, EnvRecipe("scene", "Basik"))
    with pytest.raises(UsageError, match="3DBall has no such behavior"):
        train(forced, EnvRecipe("scene", "3DBall"))
    assert _files(tmp_path) == before


def test_a_first_run_that_cannot_start_leaves_nothing_in_the_way(tmp_path):
    config = _config(tmp_path, "Basic_official", behaviors__Basic__max_steps=300)
    with pytest.raises(UsageError, match="3DBall has no such behavior"):
        train(config, EnvRecipe("scene", "3DBall"))
    train(config, EnvRecipe("scene", "Basic"))


def test_one_run_is_trained_by_one_process_at_a_time(trained, tmp_path):
    before = _files(tmp_path)
    with FileLock(trained.with_name(".run.lock")):
        for change in (
            {"checkpoint_settings__resume": True},
            {"checkpoint_settings__force": True},
        ):
            with pytest.raises(
                UsageError, match="another process trains this run just now"
            ):
                train(
                    _config(tmp_path, "Basic_official", **change),
                    EnvRecipe("scene", "Basic"),
                )
    assert _files(tmp_path) == before


def test_a_run_killed_before_it_began_is_no_run_and_restores_the_run_it_was_to_replace(
    tmp_path,
):
    def killed(**change):
        folder = RunFolder(
            _config(tmp_path, "Basic_official", **change),
            {"seed": 0, "world": "scene", "target": "Basic"},
        )
        folder._claim.release()  # as the system does for a dead process

    killed()
    killed()  # does not complain that the run exists
    train(
        _config(tmp_path, "Basic_official", behaviors__Basic__max_steps=300),
        EnvRecipe("scene", "Basic"),
    )
    before = _files(tmp_path / "run")
    killed(checkpoint_settings__force=True)
    assert not (tmp_path / "run" / "resume.safetensors").exists()
    with pytest.raises(UsageError, match="this run exists"):
        RunFolder(
            _config(tmp_path, "Basic_official"),
            {"seed": 0, "world": "scene", "target": "Basic"},
        )
    assert _files(tmp_path / "run") == before
    assert not (tmp_path / ".run.replaced").exists()


@pytest.mark.usefixtures("trained")
def test_a_resumed_run_keeps_its_seed_and_says_so(tmp_path):
    lines = []
    for seed in (-1, 9):
        change = {"checkpoint_settings__resume": True}
        config = _config(
            tmp_path,
            "Basic_official",
            seed=seed,
            behaviors__Basic__max_steps=300,
            **change,
        )
        train(config, EnvRecipe("scene", "Basic"), lines.append)
        settings = read_config(tmp_path / "run" / "configuration.yaml")
        assert settings.env_settings.seed == 5
    said = [line for line in lines if "keeps its seed" in line]
    assert said == ["the run keeps its seed 5: another one is ignored"]


def test_no_run_is_taken_for_another_one_that_was_put_aside(trained):
    other = trained.rename(trained.with_name("next.replaced"))
    before = _files(other)
    for run_id in ("next", "next.replaced"):
        change = {"run_id": run_id, "results_dir": str(other.parent), "force": True}
        changes = {
            f"checkpoint_settings__{key}": value for key, value in change.items()
        }
        folder = RunFolder(
            _config(other.parent, "Basic_official", **changes),
            {"seed": 0, "world": "scene", "target": "Basic"},
        )
        with folder:
            assert (_files(other) == before) == (run_id == "next")
        assert _files(other) == before


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to catch")
def test_sigterm_while_the_world_opens_ends_like_ctrl_c(tmp_path, monkeypatch):
    def opening(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("goes on after SIGTERM")

    monkeypatch.setattr(trainer, "open_collector", opening)
    with pytest.raises(KeyboardInterrupt):
        train(_config(tmp_path, "Basic_official"), EnvRecipe("scene", "Basic"))
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_resume_point_of_an_earlier_version_is_refused_and_kept(trained, tmp_path):
    arrays, metadata = read_arrays(trained / "resume.safetensors")
    del metadata["resume_format"]
    write_arrays(trained / "resume.safetensors", arrays, metadata)
    before = _files(trained)
    with pytest.raises(
        UsageError,
        match="is of an earlier Touchline; start another run with --initialize-from run",
    ):
        train(
            _config(tmp_path, "Basic_official", checkpoint_settings__resume=True),
            EnvRecipe("scene", "Basic"),
        )
    assert _files(trained) == before


def test_a_parameter_that_was_changed_for_a_resumed_run_reaches_the_world(tmp_path):
    for gravity, steps, resume in ((4.0, 1000, False), (40.0, 2000, True)):
        config = _config(
            tmp_path, "3DBall_official", checkpoint_settings__resume=resume, behaviors__3DBall__max_steps=steps,
            behaviors__3DBall__hyperparameters__buffer_size=500, environment_parameters__gravity=gravity,
        )  # fmt: skip
        folder = train(config, EnvRecipe("scene", "3DBall")).folder
        saved, _ = read_arrays(folder / "resume.safetensors")
        (in_world,) = (a for name, a in saved.items() if name.endswith("scene/gravity"))
        assert (in_world == gravity).all()


def test_acting_without_learning_goes_on_in_the_lesson_that_the_run_had_reached(
    tmp_path, monkeypatch
):
    lesson = {
        "completion_criteria": {
            "measure": "progress",
            "behavior": "3DBall",
            "threshold": 0.4,
            "min_lesson_length": 1,
        }
    }
    lessons = [
        {"name": "easy", "value": 4.0, **lesson},
        {"name": "hard", "value": 15.0},
    ]
    changes = {
        "behaviors__3DBall__max_steps": 2000, "behaviors__3DBall__hyperparameters__buffer_size": 500,
        "environment_parameters__gravity": {"curriculum": lessons},
    }  # fmt: skip
    train(_config(tmp_path, "3DBall_official", **changes), EnvRecipe("scene", "3DBall"))
    opened = []

    def opening(recipe, *_):
        opened.append(recipe.parameters["gravity"])
        raise KeyboardInterrupt

    monkeypatch.setattr(inference, "open_slots", opening)
    for resume in (True, False):
        config = _config(
            tmp_path, "3DBall_official", checkpoint_settings__resume=resume, **changes
        )
        config.behaviors["3DBall"].__dict__["init_path"] = str(tmp_path / "run")
        with pytest.raises(KeyboardInterrupt):
            inference.act_only(config, EnvRecipe("scene", "3DBall"), lambda _: None)
    assert opened == [15.0, 4.0]


def test_the_best_checkpoint_is_the_best_of_the_latest_lesson(tmp_path):
    config = _config(tmp_path, "Basic_official", behaviors__Basic__max_steps=300)
    folder = RunFolder(config, {"seed": 0, "world": "scene", "target": "Basic"})
    spec = make("Basic").behaviors["Basic?team=0"]
    learner = make_learner(spec, config.behaviors["Basic"], name="Basic")
    best = []
    for steps, lesson, score in (
        (1, 0, 5.0),
        (2, 0, 4.0),
        (3, 1, 0.5),
        (4, 1, 0.7),
        (5, 1, 0.6),
    ):
        learner.steps = steps
        folder.save("Basic", learner, None)
        folder.add_evaluation(
            "Basic", {"steps": steps, "lessons": {"big": lesson}, "score": score}
        )
        best.append(
            read_checkpoint(folder.path / "Basic" / "best.safetensors")[1]["steps"]
        )
    assert best == [1, 1, 3, 4, 4]


def test_only_the_last_few_checkpoints_are_kept(tmp_path):
    config = _config(
        tmp_path, "Basic_official", behaviors__Basic__max_steps=1000,
        behaviors__Basic__checkpoint_interval=256, behaviors__Basic__keep_checkpoints=2,
    )  # fmt: skip
    folder = train(config, EnvRecipe("scene", "Basic")).folder
    assert len(list((folder / "Basic").glob("Basic-*.safetensors"))) == 2
    assert len(list((folder / "Basic").glob("Basic-*.onnx"))) == 2


def test_weights_that_turn_to_nan_stop_the_run_and_are_saved_nowhere(tmp_path):
    config = _config(
        tmp_path, "3DBall_official", behaviors__3DBall__max_steps=6000, behaviors__3DBall__hyperparameters__buffer_size=2000,
    )  # fmt: skip
    config.behaviors["3DBall"].hyperparameters.__dict__["learning_rate"] = 1e38
    with pytest.raises(
        NonFiniteError, match=r"3DBall: the update .* made weights NaN .*replay.npz"
    ):
        train(config, EnvRecipe("scene", "3DBall"))
    replay = np.load(tmp_path / "run" / "replay.npz")
    state = {
        k.removeprefix("state/"): replay[k]
        for k in replay.files
        if k.startswith("state/")
    }
    with make("3DBall") as env:
        Slots(env).load_state(state)
        assert len(env.steps("3DBall?team=0")[0]) == 12
    assert not (tmp_path / "run" / "3DBall.onnx").exists(), (
        "NaN is not saved as a model"
    )
    saved, _ = read_arrays(tmp_path / "run" / "resume.safetensors")
    assert all(
        np.isfinite(array).all()
        for name, array in saved.items()
        if name.startswith("learners/")
    )


def test_ctrl_c_in_an_evaluation_gives_it_up(tmp_path, monkeypatch):
    """An evaluation may take minutes; after Ctrl-C its figures are not waited for."""

    def at_once(log, *names):
        def progress(done, total):
            if done == 0:
                signal.raise_signal(signal.SIGINT)

        return progress

    monkeypatch.setattr("touchline.training.evaluation.now_and_then", at_once)
    lines = []
    config = _config(
        tmp_path, "3DBall_official", behaviors__3DBall__max_steps=100_000,
        behaviors__3DBall__checkpoint_interval=1000, evaluation__episodes=100_000,
    )  # fmt: skip
    result = train(config, EnvRecipe("scene", "3DBall"), lines.append)
    assert result.interrupted
    assert not any("evaluated at" in line or "no evaluation" in line for line in lines)
    assert (tmp_path / "run" / "resume.safetensors").exists()


def test_an_action_that_is_nan_is_named_and_can_be_replayed(tmp_path, monkeypatch):
    act = NetworkPolicy.act

    def spoiled(self, *given):
        decision = act(self, *given)
        decision.actions.continuous[3] = np.nan
        return decision

    monkeypatch.setattr(NetworkPolicy, "act", spoiled)
    with pytest.raises(
        NonFiniteError, match=r"3DBall\?team=0: agent 3 .* at exchange \d+.*replay.npz"
    ):
        train(_config(tmp_path, "3DBall"), EnvRecipe("scene", "3DBall"))
    replay = np.load(tmp_path / "run" / "replay.npz")
    assert np.isnan(replay["actions/0/3DBall?team=0/continuous"][3]).all()


def test_a_behavior_without_configuration_is_named(tmp_path):
    config = _config(tmp_path, "WallJump")
    del config.behaviors["BigWallJump"]
    with pytest.raises(
        UsageError,
        match="'BigWallJump' without a configuration; configured: SmallWallJump",
    ):
        train(config, EnvRecipe("scene", "WallJump"))


@pytest.mark.usefixtures("trained")
def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    config = _config(
        tmp_path,
        "Basic_official",
        checkpoint_settings__resume=True,
        behaviors__Basic__network_settings__hidden_units=32,
    )
    with pytest.raises(UsageError, match="does not fit the configured"):
        train(config, EnvRecipe("scene", "Basic"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scene", "score", "seed"),
    [("3DBall", 99.0, s) for s in range(3)]
    + [("3DBallHard", 95.0, s) for s in range(3)]
    + [("Basic", 0.9, s) for s in range(3)],
)
def test_the_presets_reach_their_benchmarks(tmp_path, scene, score, seed):
    """Source of the scores: ML-Agents' published benchmarks, 100, 100 and 0.93."""
    result = train(_config(tmp_path, scene, seed=seed), EnvRecipe("scene", scene))
    assert _score(scene, result.folder, 100) >= score


@pytest.mark.parametrize(
    "block", ["network_settings", "reward_signals.curiosity.network_settings"]
)
def test_an_encoder_that_is_too_large_for_an_image_is_refused_with_its_line(
    block, tmp_path
):
    settings = "{network_settings: {vis_encode_type: nature_cnn}}"
    if block != "network_settings":
        settings = (
            "{network_settings: {vis_encode_type: match3}, "
            f"reward_signals: {{curiosity: {settings}}}}}"
        )
    path = tmp_path / "config.yaml"
    path.write_text(
        f"behaviors:\n  Match3VisualObs: {settings}\n"
        "default_settings: {trainer_type: ppo}\n"
        f"checkpoint_settings: {{results_dir: {tmp_path}}}\n"
    )
    with pytest.raises(
        UsageError,
        match=rf"config.yaml:2:\d+: behaviors.Match3VisualObs.{block}.vis_encode_type: "
        r"observation 'Match3 Sensor \(cells\)': .* this one is 9 x 8",
    ):
        train(read_config(str(path)), EnvRecipe("scene", "Match3"))
