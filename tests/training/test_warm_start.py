"""Runs that start with what ML-Agents trained: its run folders, checkpoints and ONNX files."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

import touchline
from touchline.cli import run
from touchline.errors import UsageError
from touchline.policies.files.checkpoints import read_checkpoint, write_checkpoint

OFFICIAL = Path(__file__).parents[1] / "policies" / "files" / "official"
SHORT = {
    "env_settings.num_areas": 4,
    "behaviors.3DBall.max_steps": 64,
    "behaviors.3DBall.hyperparameters.buffer_size": 64,
    "behaviors.3DBall.hyperparameters.batch_size": 64,
    "behaviors.3DBall.hyperparameters.num_epoch": 1,
    "behaviors.3DBall.hyperparameters.learning_rate": 1e-6,
    "behaviors.3DBall.network_settings.normalize": True,
}
SMALL = SHORT | {"behaviors.3DBall.network_settings.hidden_units": 16}
"""The network of the run in `official/`."""


@pytest.fixture
def official_run(tmp_path, monkeypatch):
    """A results folder as mlagents-learn 1.1.0 leaves it."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "results" / "theirs" / "3DBall"
    folder.mkdir(parents=True)
    shutil.copy(OFFICIAL / "3DBall.pt", folder / "checkpoint.pt")
    shutil.copy(OFFICIAL / "3DBall.pt", folder / "3DBall-3019.pt")
    shutil.copy(OFFICIAL / "3DBall.onnx", folder.parent / "3DBall.onnx")
    return folder.parent


STARTS = {
    "the run's name": {"checkpoint_settings.initialize_from": "theirs"},
    "a bare name in the run": {
        "checkpoint_settings.initialize_from": "theirs",
        "behaviors.3DBall.init_path": "3DBall-3019.pt",
    },
    "the run's folder": {"behaviors.3DBall.init_path": "results/theirs"},
    "the behavior's folder": {"behaviors.3DBall.init_path": "results/theirs/3DBall"},
    "a checkpoint": {
        "behaviors.3DBall.init_path": "results/theirs/3DBall/checkpoint.pt"
    },
    "a model": {"behaviors.3DBall.init_path": "results/theirs/3DBall.onnx"},
    "a path in place of a run that a preset names": {
        "checkpoint_settings.initialize_from": "none",
        "behaviors.3DBall.init_path": "results/theirs/3DBall",
    },
}


@pytest.mark.parametrize("start", STARTS)
def test_a_run_starts_with_a_run_of_ml_agents(start, official_run, monkeypatch):
    said = []
    result = touchline.train(
        "3DBall", run_id="ours", changes=SMALL | STARTS[start], log=said.append
    )
    theirs = f"3DBall starts with {Path('results/theirs')}{os.sep}"
    assert any(theirs in line for line in said)
    tensors, about = read_checkpoint(
        result.folder / "3DBall" / "checkpoint.safetensors"
    )
    assert about["steps"] < 200, "its own steps, not the official run's"
    modules = torch.load(OFFICIAL / "3DBall.pt", weights_only=True)
    theirs = modules["Policy"]["network_body._body_endoder.seq_layers.2.weight"]
    ours = tensors["network.trunk.weights.1"]
    torch.testing.assert_close(ours[0].t(), theirs, atol=1e-5, rtol=0)
    critic = modules["Optimizer:critic"]["value_heads.value_heads.extrinsic.weight"]
    is_same = torch.allclose(tensors["network.trunk.value_weight"], critic, atol=1e-5)
    assert is_same == (start != "a model"), "a model holds no critic"


@pytest.mark.slow
def test_unitys_own_model_balances_from_the_first_step_on(shared, tmp_path):
    path = shared / "unity-policies" / "3DBall.onnx"
    result = touchline.train(
        "3DBall",
        run_id="warm",
        changes=SHORT
        | {
            "behaviors.3DBall.init_path": str(path),
            "checkpoint_settings.results_dir": str(tmp_path),
        },
    )
    figures = touchline.evaluate(
        "3DBall", result.folder, episodes=12, deterministic=True
    )
    assert figures["mean_return"] > 95, "Unity's model reaches 100"


@pytest.mark.parametrize("bits", [16, 32])
def test_a_published_policy_without_an_optimizer_starts_a_run(
    bits, tmp_path, monkeypatch
):
    """As `models/microrts-8x8.safetensors` and, in 16 bits, its 16x16 are."""
    monkeypatch.chdir(tmp_path)
    first = touchline.train("3DBall", run_id="first", changes=SMALL)
    tensors, about = read_checkpoint(first.folder / "3DBall/checkpoint.safetensors")
    network = {name: part for name, part in tensors.items() if "network." in name}
    if bits == 16:
        network = {
            n: t.half() if t.is_floating_point() else t for n, t in network.items()
        }
    write_checkpoint(tmp_path / "policy.safetensors", network, about)
    start = {"behaviors.3DBall.init_path": "policy.safetensors"}
    second = touchline.train("3DBall", run_id="second", changes=SMALL | start)
    after, _ = read_checkpoint(second.folder / "3DBall/checkpoint.safetensors")
    for name, part in network.items():
        if part.is_floating_point() and "normalizer" not in name:
            assert after[name].dtype == torch.float32
            torch.testing.assert_close(after[name], part.float(), atol=1e-5, rtol=0)
    block = "behaviors.3DBall.network_settings"
    for other in ({f"{block}.hidden_units": 32}, {f"{block}.num_layers": 3}):
        with pytest.raises(UsageError, match="does not fit the configured network"):
            touchline.train("3DBall", run_id="third", changes=SMALL | start | other)


class Hostile:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def test_a_hostile_checkpoint_ends_the_command_in_one_line(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    torch.save({"Policy": Hostile(tmp_path / "ran")}, tmp_path / "bad.pt")
    arguments = ["--set", "behaviors.3DBall.init_path=bad.pt", "--run-id", "x"]
    assert run(["train", "3DBall", *arguments]) == 2
    (line,) = [
        line for line in capsys.readouterr().err.splitlines() if "bad.pt" in line
    ]
    assert line.endswith(f"(it names {os.name}.mkdir); nothing in it was run")
    assert not (tmp_path / "ran").exists()


def test_other_settings_are_named_before_anything_is_learned(official_run):
    changes = SHORT | {"checkpoint_settings.initialize_from": "theirs"}
    with pytest.raises(
        UsageError, match="it has hidden_units 16; configured: hidden_units 128"
    ):
        touchline.train("3DBall", run_id="ours", changes=changes)


TWO_SIGNALS = SHORT | {
    "behaviors.3DBall.reward_signals": {
        "extrinsic": {},
        "curiosity": {"network_settings": {"hidden_units": 8}},
    }
}


@pytest.mark.parametrize("resume", [False, True])
def test_values_of_other_reward_signals_are_refused(resume, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    touchline.train("3DBall", run_id="first", changes=TWO_SIGNALS)
    signals = TWO_SIGNALS["behaviors.3DBall.reward_signals"]
    exchanged = {
        "trainer_type": "ppo",
        "reward_signals": dict(reversed(signals.items())),
    }
    text = json.dumps({"behaviors": {"3DBall": exchanged}})
    Path("config.yaml").write_text(text, encoding="utf-8")
    run_id = "first" if resume else "second"
    changes = SHORT | (
        {} if resume else {"checkpoint_settings.initialize_from": "first"}
    )
    where = {"env": "3DBall", "run_id": run_id, "resume": resume, "changes": changes}
    with pytest.raises(
        UsageError, match=r"signals.* extrinsic, curiosity.*, extrinsic"
    ):
        touchline.train("config.yaml", **where)
