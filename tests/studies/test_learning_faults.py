"""The doctor for runs: one planted fault gives its one finding, healthy runs give none."""

import csv
import json

import numpy as np
import pytest
import torch

import touchline
from touchline.cli.app import run as run_command
from touchline.doctor import examine, findings
from touchline.errors import UsageError
from touchline.policies.files.checkpoints import network_metadata, write_checkpoint
from touchline.policies.files.run_layout import RunLayout
from touchline.policies.network import Architecture, make_network
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

ROWS = 20
MAX_STEPS = 1_000_000
BEHAVIOR = "Walker"


def healthy_columns():
    """A run that learns: the shapes of curves of PPO on a discrete scene."""
    t = np.linspace(0.0, 1.0, ROWS)
    rng = np.random.default_rng(0)
    wobble = 1.0 + 0.1 * rng.standard_normal(ROWS)
    return {
        "step": np.linspace(MAX_STEPS / ROWS, MAX_STEPS, ROWS),
        "time_s": 30.0 + 30.0 * np.arange(ROWS),
        "episodes": np.full(ROWS, 200.0),
        "mean_return": -0.5 + 1.4 * (1 - np.exp(-6 * t)) + 0.01 * wobble,
        "std_return": 0.6 - 0.4 * t,
        "value_loss": (0.002 + 0.16 * t) * wobble,
        "entropy": 3.29 - 2.4 * t,
        "kl": 0.006 * wobble,
        "clip_fraction": 0.08 * wobble,
        "learning_rate": 3e-4 * (1 - t) + 1e-10,
        "advantage_std": 0.3 * wobble,
        "obs_constant": np.full(ROWS, 0.05),
        "obs_clipped": 0.001 * wobble,
    }


def healthy_sac_columns():
    """A run of SAC that learns: temperature and entropy fall, values follow returns."""
    t = np.linspace(0.0, 1.0, ROWS)
    kept = ("step", "time_s", "episodes", "mean_return", "std_return", "obs_constant")
    return {name: healthy_columns()[name] for name in kept} | {
        "mean_length": np.full(ROWS, 80.0),
        "q1_loss": 0.02 + 0.05 * t,
        "q2_loss": 0.02 + 0.05 * t,
        "value_loss": 0.01 + 0.05 * t,
        "extrinsic_value": 0.2 + 0.6 * t,
        "entropy": 3.29 - 2.4 * t,
        "discrete_entropy_coeff": 0.05 * np.exp(-4 * t),
        "learning_rate": np.full(ROWS, 3e-4),
    }


def write_run(
    folder,
    columns,
    *,
    seconds=None,
    status=None,
    actions=None,
    obs_mean=0.0,
    hyper=None,
    trainer_type="ppo",
    strength=1.0,
):
    """A run's folder with these figures; its policy observes three numbers."""
    layout = RunLayout(folder)
    layout.logs.mkdir(parents=True)
    layout.folder(BEHAVIOR).mkdir()
    signals = {"extrinsic": {"strength": strength}}
    block = {"max_steps": MAX_STEPS, "hyperparameters": hyper or {}}
    block["trainer_type"] = trainer_type
    block |= {"reward_signals": signals}
    # JSON is YAML.
    layout.configuration.write_text(json.dumps({"behaviors": {BEHAVIOR: block}}))
    with layout.metrics(BEHAVIOR).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow(["" if np.isnan(value) else value for value in row])
    seconds = seconds or {"simulation": 130.0, "inference": 270.0, "learning": 900.0}
    layout.timers.write_text(json.dumps(seconds))
    layout.status.write_text(json.dumps({"seed": 0, BEHAVIOR: status or {}}))
    spec = BehaviorSpec((ObservationSpec((3,)),), actions or ActionSpec(0, (3, 3, 3)))
    network = make_network(spec, Architecture(normalize=True), 1)
    network.normalizer.mean.copy_(torch.full((3,), obs_mean))
    weights = {f"network.{k}": v for k, v in network.state_dict().items()}
    write_checkpoint(layout.latest(BEHAVIOR), weights, network_metadata(network))
    return folder


def constant(value):
    return np.full(ROWS, value)


def evaluated(score, mean_return):
    """A status with one evaluation of 50 episodes at the end."""
    evaluation = {
        "steps": MAX_STEPS,
        "score": score,
        "ci95": [score - 0.1, score + 0.1],
    }
    checkpoint = {"file": "x", "steps": MAX_STEPS, "mean_return": mean_return}
    return {"evaluations": [evaluation], "checkpoints": [checkpoint]}


def all_evaluated(*scores, half=0.02):
    """A status with evaluations at even distances, the last at the end."""
    every = MAX_STEPS // len(scores)
    evaluations = [
        {
            "steps": every * k,
            "score": score,
            "episodes": 50,
            "ci95": [score - half, score + half],
        }
        for k, score in enumerate(scores, 1)
    ]
    return {"evaluations": evaluations}


NEVER_PAID = {"mean_return": constant(-1.0), "std_return": constant(0.0)}
FLAT = {"mean_return": constant(-0.4) + 0.05 * np.sin(np.arange(ROWS))}
NO_END = {name: constant(np.nan) for name in ("mean_return", "std_return")} | {
    "episodes": constant(0.0)
}
STILL_RISING = {"mean_return": np.linspace(0.0, 5.0, ROWS)}

PLANTED = [
    ("entropy collapsed", FLAT | {"entropy": constant(0.01)}, {}),
    ("KL too high", {"kl": constant(0.7)}, {}),
    ("policy stands still", {"kl": constant(1e-9)}, {}),
    ("clip fraction too high", {"clip_fraction": constant(0.8)}, {}),
    ("value loss grows", {"value_loss": np.geomspace(0.1, 900.0, ROWS)}, {}),
    ("rewards never seen", NEVER_PAID, {}),
    ("no episode ended", NO_END, {}),
    ("observations constant", {"obs_constant": constant(1.0)}, {}),
    ("observations unbounded", {"obs_max": constant(5e4)}, {}),
    ("observations unbounded", {}, {"obs_mean": 4e7}),
    ("normalizer saturated", {"obs_clipped": constant(0.4)}, {}),
    ("advantages all equal", {"advantage_std": constant(1e-7)}, {}),
    ("learning rate at its end", STILL_RISING, {}),
    ("simulation-bound", {}, {"seconds": {"simulation": 980.0, "learning": 20.0}}),
    ("learning-bound", {}, {"seconds": {"simulation": 20.0, "learning": 980.0}}),
    ("evaluation below training", {}, {"status": evaluated(0.1, 0.9)}),
    ("evaluation at its minimum", {}, {"status": all_evaluated(0.2, 0.9, -0.3)}),
    ("evaluation at its minimum", {}, {"status": all_evaluated(-1.0, half=0.0)}),
]


SAC_HYPER = {
    "batch_size": 128,
    "buffer_size": 50_000,
    "steps_per_update": 10.0,
    "init_entcoef": 0.05,
}
SAC_PLANTED = [
    ("entropy below SAC's target", FLAT | {"entropy": constant(0.01)}, {}),
    ("temperature collapsed", FLAT | {"discrete_entropy_coeff": constant(1e-7)}, {}),
    (
        "temperature exploded",
        {"discrete_entropy_coeff": np.geomspace(0.05, 800.0, ROWS)},
        {},
    ),
    ("Q values grow", {"extrinsic_value": np.geomspace(0.2, 9e4, ROWS)}, {}),
    ("Q values grow", {"q1_loss": np.geomspace(0.02, 1e9, ROWS)}, {}),
    ("replay too small", {}, {"buffer_size": 1024}),
    ("replay too small", {"mean_length": constant(20_000.0)}, {}),
    ("update ratio off", {}, {"steps_per_update": 1000.0}),
    ("update ratio off", {}, {"steps_per_update": 0.01}),
]


@pytest.mark.parametrize(("name", "changed", "hyper"), SAC_PLANTED)
def test_a_planted_fault_of_sac_is_the_one_finding(tmp_path, name, changed, hyper):
    columns = healthy_sac_columns() | changed
    hyper = SAC_HYPER | hyper
    run = write_run(tmp_path / "run", columns, hyper=hyper, trainer_type="sac")
    found = findings(run)
    assert [finding["name"] for finding in found] == [name]
    assert any(character.isdigit() for character in found[0]["figure"])


def test_a_healthy_run_of_sac_has_no_finding(tmp_path):
    columns = healthy_sac_columns()
    run = write_run(tmp_path / "run", columns, hyper=SAC_HYPER, trainer_type="sac")
    assert findings(run) == []


@pytest.mark.parametrize(("name", "changed", "files"), PLANTED)
def test_a_planted_fault_is_the_one_finding(tmp_path, name, changed, files):
    run = write_run(tmp_path / "run", healthy_columns() | changed, **files)
    found = findings(run)
    assert [finding["name"] for finding in found] == [name]
    assert found[0]["behavior"] == BEHAVIOR
    assert any(character.isdigit() for character in found[0]["figure"])
    assert found[0]["advice"]


@pytest.mark.parametrize("strength", [0.01, 10.0])
def test_values_are_compared_with_returns_of_their_strength(tmp_path, strength):
    columns = healthy_columns()
    for name in ("mean_return", "std_return"):
        columns[name] = columns[name] / strength
    run = write_run(tmp_path / "run", columns, strength=strength)
    assert findings(run) == []
    columns["value_loss"] = np.geomspace(0.002, 40.0, ROWS)
    run = write_run(tmp_path / "grows", columns, strength=strength)
    assert [finding["name"] for finding in findings(run)] == ["value loss grows"]


def self_play_columns():
    """Returns stay at 0 in self-play; the rating is what grows."""
    t = np.linspace(0.05, 0.3, ROWS)
    return healthy_columns() | {
        "step": t * MAX_STEPS,
        "mean_return": 0.05 * np.sin(np.arange(ROWS)),
        "std_return": constant(0.98),
        "learning_rate": 3e-4 * (1 - t),
        "elo": np.linspace(1200.0, 1650.0, ROWS),
        "elo_error": constant(30.0),
    }


def solved_columns():
    """A scene that is solved early: its policy is sure, and its returns no longer vary."""
    t = np.linspace(0.0, 1.0, ROWS)
    return healthy_columns() | {
        "mean_return": np.minimum(100.0, 1.0 + 500.0 * t),
        "std_return": np.maximum(0.0, 0.8 - 5 * t),
        "entropy": np.maximum(0.005, 3.2 - 10 * t),
    }


def late_columns():
    """As the preset 3DBall: few episodes end before the policy keeps the ball to the end."""
    score = np.full(ROWS, np.nan)
    score[:8] = np.linspace(1.0, 20.0, 8)
    score[-5:] = (28.0, 100.0, 100.0, 100.0, 100.0)
    spread = np.where(np.isnan(score), np.nan, 1.0)
    return healthy_columns() | {"mean_return": score, "std_return": spread}


@pytest.mark.parametrize(
    ("columns", "files"),
    [
        (late_columns(), {"status": evaluated(100.0, 99.0)}),
        (healthy_columns(), {"status": evaluated(0.85, 0.9)}),
        (self_play_columns(), {"status": evaluated(1650.0, 0.0)}),
        (solved_columns(), {"status": evaluated(100.0, 99.0)}),
        (healthy_columns(), {"status": all_evaluated(0.2, 0.9, 0.85)}),
        (solved_columns(), {"status": all_evaluated(100.0, half=0.0)}),
        (healthy_columns(), {"status": all_evaluated(0.9, 0.89, 0.88)}),
    ],
    ids=["late", "learns", "self-play", "solved", "wobbles", "perfect", "equal"],
)
def test_a_healthy_run_has_no_finding(tmp_path, columns, files):
    run = write_run(tmp_path / "run", columns, **files)
    lines = []
    assert findings(run) == []
    assert examine(run, lines.append)
    assert lines == [f"nothing is conspicuous in the figures of {run.name}"]


def test_a_short_run_that_is_over_shows_the_plain_cases(tmp_path):
    """Too few steps and episodes for a run that goes on, but there will be no more."""
    # Its last step is the last of max_steps, which is what counts.
    few = {"episodes": constant(1.0)}
    run = write_run(tmp_path / "paid", healthy_columns() | NEVER_PAID | few)
    assert [found["name"] for found in findings(run)] == ["rewards never seen"]
    early = {"step": np.linspace(100.0, 0.05 * MAX_STEPS, ROWS)}
    run = write_run(tmp_path / "early", healthy_columns() | NO_END | early)
    assert findings(run) == []
    run = write_run(tmp_path / "ended", healthy_columns() | NO_END | early)
    configuration = RunLayout(run).configuration
    text = configuration.read_text().replace(str(MAX_STEPS), str(MAX_STEPS // 20))
    configuration.write_text(text)
    assert [found["name"] for found in findings(run)] == ["no episode ended"]


def test_continuous_entropy_is_judged_by_the_standard_deviation(tmp_path):
    # ½ log(2πe) + log σ for each of two actions, with σ = 0.01 and σ = 0.3
    spread = {name: 2 * (1.4189 + np.log(s)) for name, s in (("a", 0.01), ("b", 0.3))}
    names = {}
    for name, entropy in spread.items():
        columns = healthy_columns() | FLAT | {"entropy": constant(entropy)}
        run = write_run(tmp_path / name, columns, actions=ActionSpec(2, ()))
        names[name] = [finding["name"] for finding in findings(run)]
    assert names == {"a": ["entropy collapsed"], "b": []}


def test_an_early_run_may_still_look_for_its_first_reward(tmp_path):
    columns = healthy_columns() | NEVER_PAID
    early = np.linspace(100.0, 0.05 * MAX_STEPS, ROWS)
    run = write_run(tmp_path / "run", columns | {"step": early})
    assert findings(run) == []


def test_the_command_prints_findings_as_lines_and_as_json(tmp_path, capsys):
    columns = healthy_columns() | {"kl": constant(0.7)}
    run = write_run(tmp_path / "run", columns)
    assert run_command(["doctor", str(run)]) == 0
    assert capsys.readouterr().out.startswith(f"{BEHAVIOR}  KL too high: kl 0.7, ")
    assert run_command(["doctor", str(run), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == {"run": str(run), "findings": findings(run)}


def test_damaged_and_missing_files_are_one_line_each(tmp_path):
    with pytest.raises(UsageError, match=r"no run folder: expected results/RUN-ID"):
        findings(tmp_path)
    (tmp_path / "configuration.yaml").write_text("behaviors: {}\n")
    with pytest.raises(UsageError, match=r"no figures in metrics\.csv yet"):
        findings(tmp_path)
    only_clones = "behaviors: {A: {max_steps: 0}}\n"
    (tmp_path / "configuration.yaml").write_text(only_clones)
    with pytest.raises(UsageError, match=r"a run that only clones has no figures"):
        findings(tmp_path)
    run = write_run(tmp_path / "run", healthy_columns())
    metrics = RunLayout(run).metrics(BEHAVIOR)
    text = metrics.read_text(encoding="utf-8")
    metrics.write_text(text.replace("200.0", "many", 1))
    with pytest.raises(UsageError, match=r"metrics\.csv:2: episodes: .* 'many'"):
        findings(run)
    metrics.write_text(text + "1050000.0,63")  # cut off by a kill
    assert findings(run) == []
    RunLayout(run).timers.write_text("{")
    with pytest.raises(UsageError, match=r"timers\.json: not JSON"):
        findings(run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learning_rate", "name"),
    [(1e-9, "policy stands still"), (1e-3, None)],
)
def test_real_runs_with_a_wrong_learning_rate_are_found(tmp_path, learning_rate, name):
    hyperparameters = {
        "learning_rate": learning_rate,
        "learning_rate_schedule": "constant",
        "buffer_size": 1024,
        "batch_size": 256,
    }
    changes = {
        f"behaviors.*.hyperparameters.{key}": v for key, v in hyperparameters.items()
    }
    result = touchline.train(
        "3DBall",
        run_id="run",
        changes=changes
        | {
            "behaviors.*.max_steps": 8192,
            "behaviors.*.summary_freq": 1024,
            "checkpoint_settings.results_dir": str(tmp_path),
        },
    )
    found = [finding["name"] for finding in findings(result.folder)]
    assert name in found if name else found == []
