"""MA-POCA and MAPPO as learners: what they compute on groups, and that it learns."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.group_tasks import Anything, Sacrifice, mean_return, practiced
from tests.training.practice import make_learner
from tests.training.rewards.test_signals import thrift as thrift  # a fixture
from tests.training.tiny_tasks import Count, Heed, Look, Remember, solve

from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.policies.files.onnx_in import OnnxPolicy
from touchline.policies.files.onnx_out import export_onnx
from touchline.policies.loading import load_policies
from touchline.training.algorithms.poca.lines import time_lines
from touchline.training.config.reading import read_config
from touchline.training.config.settings import BehaviorConfig
from touchline.training.trainer import train

MEMORY = {"memory_size": 8, "sequence_length": 5}
REMEMBERING = {"memory_size": 32, "sequence_length": 8}
TWO_SIGNALS = {"extrinsic": {"gamma": 0.9}, "thrift": {"gamma": 0.5, "strength": 0.1}}


def _config(trainer="poca", hyper=None, signals=None, horizon=64, **network):
    hyper = {"batch_size": 32, "buffer_size": 64} | (hyper or {})
    settings = {
        "trainer_type": trainer,
        "hyperparameters": hyper,
        "time_horizon": horizon,
        "network_settings": {"hidden_units": 16, "num_layers": 1} | network,
    }
    signals = signals or {"extrinsic": {"gamma": 0.9}}
    return BehaviorConfig.model_validate(settings | {"reward_signals": signals})


def _valued(config, num_rows=40, seed=0):
    """A learner, trajectories of its policy among deaths, births and waits, and their batch."""
    learner = make_learner(Anything.spec, config, seed)
    with torch.no_grad():  # first values are near 0, where errors would hide
        for parameter in learner.critic.parameters():
            parameter += torch.randn(parameter.shape) / 4
    trajectories = practiced(Anything(seed), learner, num_rows)
    return learner, trajectories, learner._batch([trajectories])


@pytest.mark.parametrize(
    "memory", [None, MEMORY, MEMORY | {"type": "gru"}], ids=["plain", "memory", "gru"]
)
@pytest.mark.parametrize("trainer", ["poca", "mappo"])
def test_what_is_learned_from_is_what_was_valued(thrift, trainer, memory):
    """In each minibatch the networks give again what they gave along the whole lines."""
    config = _config(trainer, signals=TWO_SIGNALS, memory=memory, normalize=True)
    learner, trajectories, batch = _valued(config)
    seen = 0
    with torch.no_grad():
        for part in batch.minibatches(32, torch.Generator().manual_seed(1)):
            distribution, _ = learner.network(
                learner.network.normalized(part.own_obs),
                part.credited.allowed,
                part.actor_sequences,
            )
            taken = part.credited
            log_prob = distribution.log_prob(taken.continuous, taken.discrete)
            torch.testing.assert_close(log_prob, taken.log_prob)
            value, baseline = learner.critic(part.groups, part.critic_sequences)
            torch.testing.assert_close(value, part.value)
            if trainer == "poca":
                torch.testing.assert_close(baseline, taken.baseline)
            seen += len(part)
    assert seen == len(batch) == trajectories.num_results
    assert batch.weight.sum() == seen


def test_returns_are_those_of_a_walk_along_each_group_by_hand():
    """Past deaths and births, in plain Python: the definition, moment by moment."""
    gamma, lambd, horizon = 0.9, 0.95, 7
    learner, trajectories, batch = _valued(_config(horizon=horizon), num_rows=60)
    lines = time_lines(trajectories)
    own = lines.placed(trajectories.reward)
    group = lines.once(trajectories.group_reward)
    value = np.zeros(lines.decides.shape)
    line, step = np.nonzero(lines.decides.T)
    value[step, line] = batch.value[:, 0]
    expected = np.zeros_like(value)
    for number in range(lines.decides.shape[1]):
        moments = np.flatnonzero(lines.decides[:, number])
        position, positions = -1, []
        for t in moments:
            position = 0 if lines.begins[t, number] else position + 1
            positions.append(position)
        target = None
        for order in reversed(range(len(moments))):
            t = moments[order]
            who = lines.present[t, number]
            reward = own[t, number][who].sum() + group[t, number]
            if not lines.known[t, number]:
                continue
            if lines.ends[t, number] and not lines.interrupted[t, number]:
                follows = target = 0.0
            elif lines.ends[t, number] or order == len(moments) - 1:
                follows = target = _follows(learner, trajectories, lines, t, number)
            else:
                follows = value[moments[order + 1], number]
                if positions[order] % horizon == horizon - 1 or target is None:
                    target = follows
            target = reward + gamma * ((1 - lambd) * follows + lambd * target)
            expected[t, number] = target
    found = np.zeros_like(value)
    found[step, line] = batch.value_target[:, 0]
    learned = np.zeros(value.shape, bool)
    learned[step, line] = batch.weight.numpy() > 0
    np.testing.assert_allclose(found[learned], expected[learned], atol=1e-4)
    assert lines.interrupted.any(), "the case is among them"


def _follows(learner, trajectories, lines, step, line):
    """The value of who is left after a moment: of the last row, or of final observations."""
    obs = []
    for member in range(lines.slot.shape[1]):
        final, slot = lines.final[step, line, member], lines.slot[line, member]
        if final >= 0:
            obs.append([part[final] for part in trajectories.final_obs])
        elif lines.stays[step, line, member]:
            obs.append([part[-1, slot] for part in trajectories.obs])
    from touchline.policies.nets.group_critic import Groups

    groups = Groups(
        obs=tuple(torch.tensor(np.stack(part)) for part in zip(*obs, strict=True)),
        actions=torch.zeros(len(obs), 5),
        moment=torch.zeros(len(obs), dtype=torch.int64),
        num_moments=1,
        credited=torch.zeros(0, dtype=torch.int64),
    )
    with torch.no_grad():
        return float(learner.critic(groups)[0])


def test_members_share_own_rewards_in_poca_and_keep_them_in_mappo():
    returns = {}
    for trainer in ("poca", "mappo"):
        _, _, batch = _valued(_config(trainer, hyper={"lambd": 1.0}))
        moment = batch.groups.moment[batch.groups.credited]
        target = batch.credited.target[:, 0]
        spread = [
            float(target[moment == k].max() - target[moment == k].min())
            for k in torch.unique(moment)
        ]
        returns[trainer] = max(spread)
    assert returns["poca"] < 1e-6, "one return for all members of a moment"
    assert returns["mappo"] > 0.1


@pytest.mark.parametrize(
    "memory", [None, MEMORY, MEMORY | {"type": "gru"}], ids=["plain", "memory", "gru"]
)
@pytest.mark.parametrize("trainer", ["poca", "mappo"])
def test_it_goes_on_from_its_state_bit_for_bit(trainer, memory):
    config = _config(trainer, memory=memory, normalize=True)
    whole, task = make_learner(Anything.spec, config), Anything()
    experience = [practiced(task, whole, 20) for _ in range(2)]

    def learn(learner, trajectories):
        learner.add("A?team=0", trajectories)
        return learner.update()

    learn(whole, experience[0])
    resumed = make_learner(Anything.spec, config, seed=9)
    resumed.load_state(whole.state())
    resumed.steps = whole.steps
    assert learn(whole, experience[1]) == learn(resumed, experience[1])
    for name, value in whole.state().items():
        assert torch.equal(value, resumed.state()[name]), name


@pytest.mark.parametrize("memory", [None, MEMORY], ids=["plain", "memory"])
def test_its_onnx_file_acts_as_its_policy(tmp_path: Path, memory):
    learner = make_learner(Anything.spec, _config(memory=memory, normalize=True))
    learner.add("A?team=0", practiced(Anything(), learner, 30))
    learner.update()
    path = tmp_path / "poca.onnx"
    export_onnx(learner.network, path)
    loaded = OnnxPolicy(path, deterministic=True)
    own = type(learner.policy)(learner.network, deterministic=True)
    rows = Anything().begin()
    decisions = [p.act(rows, p.new_memory(), None).actions for p in (loaded, own)]
    np.testing.assert_allclose(
        decisions[0].continuous, decisions[1].continuous, atol=1e-5
    )
    np.testing.assert_array_equal(decisions[0].discrete, decisions[1].discrete)


def _run(tmp_path, preset, behavior, **changes):
    """A short run of a small network; gives what it said and its last row of metrics."""
    lines: list[str] = []
    block = {
        "trainer_type": "poca",
        "hyperparameters.batch_size": 128,
        "hyperparameters.buffer_size": 512,
        "network_settings.hidden_units": 16,
        "max_steps": 1000,
        "summary_freq": 500,
    }
    overrides = {f"behaviors.{behavior}.{key}": value for key, value in block.items()}
    places = {
        "checkpoint_settings.results_dir": str(tmp_path),
        "checkpoint_settings.run_id": "run",
        "env_settings.num_areas": 4,
        "env_settings.seed": 1,
    }
    config = read_config(preset, (), overrides | places | changes)
    recipe = EnvRecipe("scene", preset.partition("_")[0], num_areas=4)
    folder = train(config, recipe, lines.append).folder
    assert (folder / f"{behavior}.onnx").exists()
    with (folder / behavior / "metrics.csv").open(newline="") as file:
        return lines, list(csv.DictReader(file))[-1]


def test_a_run_names_its_figures_acts_with_its_files_and_says_that_no_agent_has_mates(
    tmp_path,
):
    lines, row = _run(tmp_path, "Basic", "Basic")
    for name in ("value_loss", "baseline_loss", "extrinsic_baseline_estimate", "kl"):
        assert np.isfinite(float(row[name])), name
    for file in ("Basic.onnx", "Basic/checkpoint.safetensors"):
        with make("Basic") as env:
            slots = Slots(env)
            rows = slots.reset(0)
            actors = load_policies([str(tmp_path / "run" / file)], slots.behaviors)
            for name, actor in actors.items():
                assert len(actor.act(rows[name])) == len(rows[name])
    (line,) = [line for line in lines if "no agent here" in line]
    assert line.startswith("Basic?team=0: poca shares rewards within groups")


@pytest.mark.slow  # the evaluations at their ends take a minute each
@pytest.mark.parametrize(
    ("preset", "behavior"),
    [("DungeonEscape_official", "DungeonEscape"), ("SoccerTwos", "SoccerTwos")],
)
def test_scenes_of_groups_are_trained_also_with_self_play(tmp_path, preset, behavior):
    lines, row = _run(tmp_path, preset, behavior)
    assert np.isfinite(float(row["baseline_loss"]))
    assert not any("no agent here" in line for line in lines)


def _practice(trainer, hyper=None, **network):
    hyper = {"batch_size": 256, "buffer_size": 2048, "learning_rate": 3e-3} | (
        hyper or {}
    )
    return {
        "trainer_type": trainer,
        "hyperparameters": hyper,
        "network_settings": {"hidden_units": 32, "num_layers": 1} | network,
        "reward_signals": {"extrinsic": {"gamma": 0.95}},
    }


# With a smaller entropy bonus some seeds stay where nobody dies and nobody is paid.
QUICK = {"batch_size": 512, "buffer_size": 1024, "learning_rate": 1e-2, "beta": 0.2}


@pytest.mark.usefixtures("unchecked_shapes")
def test_who_is_gone_is_credited_for_what_its_group_is_paid_later():
    """One agent must end its own episode. With PPO it is never paid for that, and does not."""
    assert mean_return(Sacrifice(16), _practice("poca", QUICK), 40_000) > 0.95
    assert mean_return(Sacrifice(16), _practice("ppo", QUICK), 20_000) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(("trainer", "steps"), [("poca", 70_000), ("mappo", 100_000)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_so_it_is_under_other_seeds_and_with_mappo(trainer, steps, seed):
    assert mean_return(Sacrifice(32), _practice(trainer), steps, seed) > 0.95


def test_an_agent_alone_learns_as_with_ppo():
    hyper = {"batch_size": 256, "buffer_size": 1024, "learning_rate": 5e-3}
    assert solve(Heed(), _practice("poca", hyper), 8_000) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "steps", "network"),
    [
        (Count(), 14_000, {}),
        (Look(), 14_000, {"vis_encode_type": "match3"}),
        (Remember(), 24_000, {"memory": REMEMBERING}),
        (Remember(), 24_000, {"memory": REMEMBERING | {"type": "gru"}}),
    ],
    ids=["entities", "picture", "memory", "gru"],
)
def test_every_part_of_its_networks_learns(task, steps, network):
    assert solve(task, _practice("poca", **network), steps) > 0.9


@pytest.mark.parametrize("memory", [None, MEMORY], ids=["plain", "memory"])
@pytest.mark.parametrize("trainer", ["poca", "mappo"])
def test_many_moments_are_valued_in_pieces_with_the_same_result(
    trainer, memory, monkeypatch
):
    learner, trajectories, whole = _valued(_config(trainer, memory=memory))
    monkeypatch.setattr("touchline.policies.nets.group_critic.CHUNK_SIZE", 8)
    pieces = learner._batch([trajectories])
    torch.testing.assert_close(pieces.value, whole.value)
    torch.testing.assert_close(pieces.credited.baseline, whole.credited.baseline)
