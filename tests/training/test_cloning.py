"""Behavioral cloning: what is sent is what was shown, and a killed run goes on bit for bit."""

import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.slot_rows import slot_rows
from tests.training.practice import Practice, make_learner

import touchline
from touchline.cli import run
from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.policies.distributions import ActionDistribution
from touchline.policies.memory import MEMORIES
from touchline.policies.nets.lstm import LSTM
from touchline.protocol.demonstrations import DemoFile, encode_demo
from touchline.specs import ActionSpec, ActionTuple, BehaviorSpec, ObservationSpec
from touchline.training.cloning import imitation_loss, kl_from
from touchline.training.config.reading import read_config
from touchline.training.config.settings import BehaviorConfig
from touchline.training.trainer import train

VECTOR = ObservationSpec.vector(2, "vector")


def demo(path, spec, obs, actions, lengths, forbidden=None):
    """A file of episodes: `obs` [M, 2] and what was done there; ends show zeros."""
    ends = np.cumsum(lengths)
    record = np.arange(len(obs)) + np.repeat(np.arange(len(lengths)), lengths)
    count = len(obs) + len(lengths)
    done = np.zeros(count, bool)
    done[ends + np.arange(len(lengths))] = True

    def at(rows, values, dtype):
        column = np.zeros((count, *np.shape(values)[1:]), dtype)
        column[rows] = values
        return column

    continuous = at(record + 1, actions.continuous, np.float32)
    discrete = at(record + 1, actions.discrete, np.int32)
    file = DemoFile(
        behavior="Tiny?team=0",
        spec=spec,
        obs=[at(record, obs, np.float32)],
        forbidden=None if forbidden is None else at(record, forbidden, bool),
        actions=ActionTuple(continuous, discrete),
        reward=np.zeros(count, np.float32),
        group_reward=np.zeros(count, np.float32),
        done=done,
        interrupted=np.zeros(count, bool),
        agent_id=(np.cumsum(np.append(False, done[:-1]))).astype(np.int32),
        group_id=np.zeros(count, np.int32),
        has_current_actions=True,
        name="Tiny",
    )
    path.write_bytes(encode_demo(file))
    return str(path)


def configured(trainer="ppo", cloning=None, memory=None, **others):
    hyper = {"batch_size": 32, "learning_rate": 0.003}
    if trainer != "sac":
        hyper["buffer_size"] = 64
    network = {"hidden_units": 32, "num_layers": 1, "memory": memory}
    return BehaviorConfig.model_validate(
        {
            "trainer_type": trainer,
            "hyperparameters": hyper,
            "network_settings": network,
            "behavioral_cloning": cloning,
            **others,
        }
    )


def deterministic_actions(learner, obs, allowed=None):
    """What the policy sends for observations [N, 2]."""
    policy = learner.policy
    policy.deterministic = True
    rows = slot_rows(obs=(obs.astype(np.float32),), action_mask=allowed)
    return policy.act(rows, policy.new_memory(), learner.generator).actions


def test_the_loss_is_that_of_ml_agents():
    # Golden: bc_loss.json, of mlagents 1.1.0.
    log_probs = [
        [[-0.8975763, -0.9975763, -1.497576], [-0.5514446, -1.551445, -1.551445]],
        [[-0.974077, -0.474077], [-0.437488, -1.037488]],
    ]
    loss = imitation_loss(
        torch.tensor([[0.1, -0.2], [0.5, 0.9]]),
        torch.tensor([[0.0, -0.4], [0.6, 0.2]]),
        [torch.tensor(branch) for branch in log_probs],
        torch.tensor([[2, 0], [1, 1]]).T,  # the file has it branch by branch
    )
    assert float(loss) == pytest.approx(1.027647, abs=1e-5)


def test_the_distance_to_the_clone_is_torchs_own():
    generator = torch.Generator().manual_seed(3)

    def drawn():
        mean = torch.randn(5, 2, generator=generator)
        log_std = 0.3 * torch.randn(2, generator=generator)
        logits = torch.randn(5, 4, generator=generator)
        return ActionDistribution(mean, log_std, [torch.log_softmax(logits, dim=1)])

    clone, policy = drawn(), drawn()
    kl = torch.distributions.kl_divergence
    normal = [
        torch.distributions.Normal(d.mean, torch.exp(d.log_std))
        for d in (clone, policy)
    ]
    choice = [
        torch.distributions.Categorical(logits=d.log_probs[0]) for d in (clone, policy)
    ]
    expected = kl(*normal).sum(dim=1).mean() + kl(*choice).mean()
    torch.testing.assert_close(kl_from(clone, policy), expected)
    assert float(kl_from(clone, clone)) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("trainer", ["ppo", "poca", "sac"])
def test_what_is_sent_is_what_was_shown(trainer, tmp_path):
    """ML-Agents sends a third of it with ppo and poca."""
    spec = BehaviorSpec((VECTOR,), ActionSpec(2))
    obs = np.random.default_rng(0).standard_normal((64, 2))
    shown = np.tile(np.float32([0.6, -0.3]), (64, 1))
    path = demo(tmp_path / "c.demo", spec, obs, ActionTuple(shown), [32, 32])
    cloning = {"demo_path": path, "first_passes": 150}
    learner = make_learner(spec, configured(trainer, cloning))
    learner.clone_first()
    sent = deterministic_actions(learner, obs).continuous
    np.testing.assert_allclose(sent, shown, atol=0.1)


def test_stored_masks_count(tmp_path):
    """The right answer is the lowest choice that is allowed: without masks, it cannot be known."""
    spec = BehaviorSpec((VECTOR,), ActionSpec(0, (3,)))
    rng = np.random.default_rng(0)
    forbidden = np.zeros((128, 3), bool)
    forbidden[:, 0] = rng.random(128) < 0.5
    answer = forbidden[:, :1].astype(np.int32)
    obs = np.zeros((128, 2))
    actions = ActionTuple(np.zeros((128, 0), np.float32), answer)
    path = demo(tmp_path / "m.demo", spec, obs, actions, [64, 64], forbidden)
    cloning = {"demo_path": path, "first_passes": 60}
    learner = make_learner(spec, configured(cloning=cloning))
    learner.clone_first()
    chosen = deterministic_actions(learner, obs, ~forbidden).discrete
    np.testing.assert_array_equal(chosen, answer)


@pytest.mark.parametrize("kind", MEMORIES)
def test_a_memory_learns_what_only_the_past_tells(tmp_path, kind):
    """The first of three observations shows what to do at all of them."""
    spec = BehaviorSpec((VECTOR,), ActionSpec(0, (2,)))
    answer = np.random.default_rng(0).integers(0, 2, 60)
    obs = np.zeros((60, 3, 2))
    obs[:, 0, 0] = 2 * answer - 1
    actions = ActionTuple(
        np.zeros((180, 0), np.float32), np.repeat(answer, 3)[:, None].astype(np.int32)
    )
    path = demo(tmp_path / "l.demo", spec, obs.reshape(180, 2), actions, [3] * 60)
    cloning = {"demo_path": path, "first_passes": 60, "batch_size": 48}
    config = configured(
        cloning=cloning,
        memory={"type": kind, "memory_size": 16, "sequence_length": 3},
    )
    learner = make_learner(spec, config)
    learner.clone_first()
    policy, generator = learner.policy, learner.generator
    policy.deterministic = True
    memory = policy.new_memory()
    for t in range(3):
        rows = slot_rows(
            obs=(obs[:, t].astype(np.float32),), begins=np.full(60, t == 0)
        )
        chosen = policy.act(rows, memory, generator).actions.discrete[:, 0]
        np.testing.assert_array_equal(chosen, answer)


def test_a_memory_is_cloned_where_the_network_is(tmp_path, monkeypatch):
    """On a GPU an LSTM refuses memories that are on the CPU."""
    spec = BehaviorSpec((VECTOR,), ActionSpec(2))
    nothing = ActionTuple(np.zeros((6, 2), np.float32), np.zeros((6, 0), np.int32))
    path = demo(tmp_path / "l.demo", spec, np.zeros((6, 2)), nothing, [6])
    config = configured(
        cloning={"demo_path": path}, memory={"memory_size": 4, "sequence_length": 3}
    )
    # PyTorch's device without memory stands in for a GPU. It has no numbers to take lengths from,
    # so the step ends before the LSTM.
    device = torch.device("meta")
    learner = make_learner(spec, config, device=device)
    places = []

    def without_numbers(lstm, x, sequences):
        places.extend([x.device, sequences.length.device, sequences.memory.device])
        return x.new_zeros(len(x), lstm.width)

    monkeypatch.setattr(LSTM, "run", without_numbers)
    cloning = learner._cloning
    rows, sequences = next(cloning._examples.minibatches(learner.generator))
    cloning._gradient_step(rows, sequences, 1e-3)
    assert set(places) == {device}


@pytest.fixture
def two_numbers(tmp_path):
    """A spec and a demonstration of 100 actions."""
    spec = BehaviorSpec((VECTOR,), ActionSpec(2))
    rng = np.random.default_rng(0)
    obs, shown = rng.standard_normal((100, 2)), rng.uniform(-1, 1, (100, 2))
    path = demo(tmp_path / "d.demo", spec, obs, ActionTuple(shown), [50, 50])
    return spec, path


def counted_steps(learner):
    return int(learner._cloning.state()["adam.step"])


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, 3 * (100 // 32)),
        ({"num_epoch": 5}, 5 * (100 // 32)),
        ({"batch_size": 10}, 3 * 10),
        ({"batch_size": 10, "samples_per_update": 40}, 3 * 4),
        ({"batch_size": 1000}, 3),
        ({"steps": 500}, 9),
        ({"steps": 100}, 0),
    ],
)
def test_an_update_makes_as_many_gradient_steps_as_configured(
    keys, expected, two_numbers
):
    spec, path = two_numbers
    learner = make_learner(spec, configured(cloning={"demo_path": path, **keys}))
    metrics = learner._cloning.update(steps=100)
    assert counted_steps(learner) == expected
    assert ("pretraining_loss" in metrics) == (expected > 0)


def practiced(learner, spec, updates):
    """So many updates from episodes of two actions, in a world without rewards."""
    practice = Practice(learner)
    rng = np.random.default_rng(1)
    obs = rng.standard_normal((400, 8, 2)).astype(np.float32)
    metrics = []
    for t in range(400):
        flags = {"begins": np.full(8, t == 0), "closed": np.full(8, t > 0)}
        rows = slot_rows(obs=(obs[t],), **flags)
        practice.add(rows)
        found = practice.learn(rows)
        if found:
            metrics.append(found)
        if len(metrics) == updates:
            break
        practice.act()
    return metrics


@pytest.mark.parametrize(
    ("trainer", "keys"),
    [
        ("ppo", {}),
        ("ppo", {"first_passes": 2, "clone_kl": 0.5, "steps": 10_000}),
        ("poca", {"samples_per_update": 64}),
    ],
)
def test_a_restored_learner_goes_on_bit_for_bit(trainer, keys, two_numbers):
    spec, path = two_numbers
    config = configured(trainer, {"demo_path": path, **keys})
    first = make_learner(spec, config)
    first.clone_first()
    practiced(first, spec, updates=2)
    second = make_learner(spec, config, seed=5)
    second.load_state({k: v.clone() for k, v in first.state().items()})
    second.steps = first.steps
    assert practiced(first, spec, 2) == practiced(second, spec, 2)
    ours, theirs = first.state(), second.state()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_a_run_without_a_clone_lets_that_of_the_run_before_go(two_numbers):
    spec, path = two_numbers
    near = {"demo_path": path, "first_passes": 2, "clone_kl": 0.5, "steps": 10_000}
    first = make_learner(spec, configured("ppo", near))
    first.clone_first()
    second = make_learner(spec, configured("ppo", {"demo_path": path}))
    second.load_state(first.state())
    assert second._cloning.leash_weight(0) == 0.0
    assert practiced(second, spec, updates=1)


@pytest.mark.parametrize("trainer", ["ppo", "poca", "sac"])
def test_every_trainer_reports_the_loss_of_its_imitation(trainer, two_numbers):
    spec, path = two_numbers
    learner = make_learner(spec, configured(trainer, {"demo_path": path}))
    metrics = practiced(learner, spec, updates=1)[0]
    assert 0.0 < metrics["pretraining_loss"] < 2.0
    assert counted_steps(learner) > 0


def test_a_policy_stays_near_its_clone_while_the_weight_falls_to_zero(two_numbers):
    spec, path = two_numbers
    keys = {"demo_path": path, "first_passes": 20, "clone_kl": 1.0, "steps": 1000}
    learner = make_learner(spec, configured(cloning=keys))
    learner.clone_first()
    cloning = learner._cloning
    before = counted_steps(learner)
    assert [cloning.leash_weight(step) for step in (0, 500, 1000, 2000)] == [
        1,
        0.5,
        0,
        0,
    ]
    practiced(learner, spec, updates=1)
    assert counted_steps(learner) == before  # nothing is cloned on
    obs = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    assert float(cloning.leash((obs,), None, None).detach()) < 0.05


CLONE_ONLY = """
behaviors:
  Basic:
    trainer_type: ppo
    hyperparameters: {{batch_size: 32, buffer_size: 320, learning_rate: 0.003}}
    network_settings: {{hidden_units: 32, num_layers: 1}}
    max_steps: 0
    behavioral_cloning:
      demo_path: {demo}
"""


def test_a_run_that_only_clones_saves_evaluates_and_exports(shared, tmp_path, capsys):
    """Basic: always to the right, where the large reward is."""
    config = tmp_path / "clone.yaml"
    path = shared / "demos" / "ExpertBasic.demo"
    config.write_text(CLONE_ONLY.format(demo=path) + "      steps: 4000\n")
    results = ["--results-dir", str(tmp_path / "results"), "--run-id", "clone"]
    assert run(["train", str(config), "--env", "Basic", "--seed", "1", *results]) == 0
    said = capsys.readouterr().err
    assert "action is in the same record" in said
    assert "Basic: cloned from 4,0" in said
    assert " gradient steps, loss " in said
    assert "which only imitates demonstrations" in said
    folder = tmp_path / "results" / "clone"
    for policy in (folder, folder / "Basic.onnx"):
        figures = touchline.evaluate("Basic", policy, episodes=20, deterministic=True)
        assert figures["mean_return"] == pytest.approx(0.93)
    # Resuming finds nothing left to do, and clones nothing again.
    assert run(["train", str(config), "--env", "Basic", "--resume", *results]) == 0
    assert "cloned from" not in capsys.readouterr().err


def refused(tmp_path, capsys, block, before="    max_steps: 100\n"):
    config = tmp_path / "config.yaml"
    config.write_text(f"behaviors:\n  Basic:\n    trainer_type: ppo\n{before}{block}")
    results = tmp_path / "results"
    call = ["train", str(config), "--env", "Basic", "--results-dir", str(results)]
    assert run(call) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"touchline: {config}:")
    assert not list(results.glob("*/Basic"))
    return line


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("    behavioral_cloning: {}\n", "behavioral_cloning.demo_path: "),
        (
            "    behavioral_cloning: {demo_path: gone.demo}\n",
            "behavioral_cloning.demo_path: gone.demo: no such file or folder",
        ),
        (
            "    behavioral_cloning: {demo_path: x.demo, strength: 0}\n",
            "behavioral_cloning.strength: expected greater than 0, got 0",
        ),
        (
            "    behavioral_cloning: {demo_path: x.demo, clone_kl: 0.1}\n",
            "behavioral_cloning.clone_kl: needs a clone to stay near",
        ),
        (
            "    behavioral_cloning: {demo_path: x.demo, demo_action: next}\n",
            "unknown key; did you mean 'demo_actions'?",
        ),
    ],
)
def test_a_mistake_in_the_block_is_one_line_with_its_place(
    block, message, tmp_path, capsys
):
    assert message in refused(tmp_path, capsys, block)


def test_without_steps_there_must_be_something_to_imitate(tmp_path, capsys):
    line = refused(tmp_path, capsys, "    max_steps: 0\n", before="")
    assert "max_steps: expected greater than 0, got 0; only a run with" in line


def test_a_demonstration_of_another_game_is_refused_with_its_line(
    two_numbers, tmp_path, capsys
):
    _, path = two_numbers
    line = refused(tmp_path, capsys, f"    behavioral_cloning: {{demo_path: {path}}}\n")
    assert (
        f"behavioral_cloning.demo_path: {path}: recorded in another game: Tiny" in line
    )


def test_only_ppo_stays_near_a_clone():
    keys = {"demo_path": "x.demo", "first_passes": 1, "steps": 9, "clone_kl": 1.0}
    with pytest.raises(ValueError, match="only ppo stays near its clone, not sac"):
        configured("sac", keys)


def test_cloning_first_makes_the_first_steps_good_ones(shared, tmp_path):
    """ExpertBasic: the clone reaches the large reward from the first episode on."""
    path = str(shared / "demos" / "ExpertBasic.demo")
    block = {"demo_path": path, "first_passes": 100, "clone_kl": 1.0}
    block |= {"steps": 50_000, "strength": 10}
    changes = {
        f"behaviors.Basic.behavioral_cloning.{key}": value
        for key, value in block.items()
    } | {
        "behaviors.Basic.max_steps": 500,
        "behaviors.Basic.summary_freq": 250,
        "checkpoint_settings.results_dir": str(tmp_path),
        "env_settings.seed": 1,
    }
    config = read_config("Basic_official", (), changes)
    said = []
    result = train(config, EnvRecipe("scene", "Basic"), said.append)
    assert any("cloned from" in line for line in said)
    assert result.behaviors["Basic"].mean_return > 0.8


def test_a_run_without_a_clone_cannot_be_resumed_near_one(shared, tmp_path, capsys):
    demo = shared / "demos" / "ExpertBasic.demo"
    text = CLONE_ONLY.format(demo=demo).replace("max_steps: 0", "max_steps: 500")
    config = tmp_path / "basic.yaml"
    config.write_text(text)
    command = ["train", str(config), "--env", "Basic", "--results-dir", str(tmp_path)]
    assert run(command) == 0
    near = ["first_passes: 1", "clone_kl: 0.5", "steps: 1000"]
    config.write_text(text + "".join(f"      {key}\n" for key in near))
    capsys.readouterr()
    assert run([*command, "--resume", "--max-steps", "1000"]) != 0
    assert "clone_kl: this run made no clone to stay near" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_cloning_at_once_and_leaves_the_signals_as_they_were(
    number, tmp_path
):
    config = tmp_path / "basic.yaml"
    demo = Path(__file__).parents[2] / "models" / "demos" / "Basic.demo"
    config.write_text(CLONE_ONLY.format(demo=demo) + "      steps: 100000\n")
    said = []

    def interrupt_cloning(line):
        said.append(line)
        if "cloned from" in line:
            signal.raise_signal(number)

    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    settings = read_config(
        str(config), (), {"checkpoint_settings.results_dir": str(tmp_path)}
    )
    with pytest.raises(KeyboardInterrupt):
        train(settings, EnvRecipe("scene", "Basic"), interrupt_cloning)
    assert len([line for line in said if "cloned from" in line]) == 1
    assert before == [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]


def test_a_demonstration_is_not_read_with_another_pairing_by_mistake(two_numbers):
    spec, path = two_numbers
    keys = {"demo_path": path, "demo_actions": "same"}
    said = []
    from touchline.training.algorithms.learner import LearnerSetup, learner_class

    config = configured(cloning=keys)
    setup = LearnerSetup("Tiny", spec, config, 0, torch.device("cpu"), said.append)
    learner_class("ppo")(setup)
    assert said[0].endswith("in the same record: as configured")


def test_a_file_that_turns_bad_is_one_error(two_numbers, tmp_path):
    spec, _ = two_numbers
    (tmp_path / "bad.demo").write_bytes(
        b"no demonstration at all, but long enough for one"
    )
    keys = {"demo_path": str(tmp_path / "bad.demo")}
    with pytest.raises(
        UsageError, match=r"demo_path: .*bad\.demo: not a demonstration"
    ):
        make_learner(spec, configured(cloning=keys))
