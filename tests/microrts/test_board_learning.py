"""A learner of boards: it acts with the weights it has, and learns what autograd would teach it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.training.practice import Practice, make_learner
from tests.training.rows import any_rows

from touchline.errors import UsageError
from touchline.microrts.board_network import BoardActorCritic
from touchline.microrts.rules import CHOICES, FIRST_CHOICE, PARTS, PLANE_GROUPS, PLANES
from touchline.policies.files.checkpoints import network_metadata, write_checkpoint
from touchline.policies.network import make_network
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.config.settings import BehaviorConfig
from touchline.training.experience.rollout import Rollout
from touchline.training.warm_start import warm_start
from touchline.viewer.insight import only_slot

HYPER = {"learning_rate": 0.001, "batch_size": 16, "buffer_size": 64}


def _practice(seed, height=4, width=5, *, staged=True, hidden_units=32):
    board = ObservationSpec((PLANES, height, width), name="board")
    cells = height * width
    unit = ActionSpec(0, (cells, *PARTS), staged=True)
    grid = ActionSpec.create_discrete(PARTS * cells)
    spec = BehaviorSpec((board,), unit if staged else grid, "board")
    network = {"hidden_units": hidden_units, "normalize": False}
    config = BehaviorConfig.model_validate(
        {"trainer_type": "ppo", "hyperparameters": HYPER, "network_settings": network}
    )
    return Practice(make_learner(spec, config, seed, name="A"))


def _rows(rng, begins, *, staged=True):
    groups = [
        np.eye(n, dtype=np.float32)[rng.integers(n, size=(4, 4, 5))]
        for n in PLANE_GROUPS.values()
    ]
    planes = np.ascontiguousarray(np.moveaxis(np.concatenate(groups, axis=-1), -1, 1))
    flat, second = (
        rng.random((4, 20 + CHOICES)) < 0.3,
        rng.random((4, 20, CHOICES)) < 0.5,
    )
    flat[:, 0], second[:, :, FIRST_CHOICE] = True, True
    rows = any_rows(rng, begins)
    reward, group_reward = rng.normal(size=(4, 2)).astype(np.float32).T
    return replace(
        rows,
        obs=(planes,),
        action_mask=flat if staged else second.reshape(4, -1),
        second_mask=second if staged else None,
        reward=reward,
        group_reward=group_reward,
        final_obs=(np.zeros((0, *planes.shape[1:]), np.float32),),
    )


def _play(practice, steps=16, *, staged=True):
    """Rows, actions and results for one update."""
    rng = np.random.default_rng(3)
    rows = _rows(rng, True, staged=staged)
    practice.add(rows)
    for _ in range(steps):
        practice.act()
        rows = _rows(rng, False, staged=staged)
        practice.add(rows)
    return rows


def test_it_acts_with_the_weights_it_has_from_learning_or_from_a_checkpoint():
    one, other = _practice(0), _practice(1)
    rows = _rows(np.random.default_rng(0), True)

    def actions_of_its_weights():
        learner = one.learner
        generators = [torch.Generator().manual_seed(5) for _ in range(2)]
        actions = learner.policy.act(rows, None, generators[0]).actions
        fresh = make_network(learner.network.spec, learner.network.architecture)
        fresh.load_state_dict(learner.network.state_dict())
        obs = fresh.normalized(
            (torch.zeros(len(rows), 0), torch.from_numpy(rows.obs[0]))
        )
        masks = torch.from_numpy(rows.action_mask), torch.from_numpy(rows.second_mask)
        _, expected = fresh.distribution(obs, *masks).sample(generators[1])
        assert np.array_equal(actions.discrete, expected)
        return actions.discrete

    first = actions_of_its_weights()
    one.learn(_play(one))
    learned = actions_of_its_weights()
    one.learner.load_state(other.learner.state())
    loaded = actions_of_its_weights()
    assert not np.array_equal(first, learned)
    assert not np.array_equal(learned, loaded)


@pytest.mark.parametrize("staged", [True, False], ids=["unit", "grid"])
def test_its_written_gradient_learns_what_the_loss_does(staged, monkeypatch):
    metrics = []
    for has_gradient in (True, False):
        practice = _practice(0, staged=staged)
        assert practice.learner.network.has_gradient
        rows = _play(practice, staged=staged)
        monkeypatch.setattr(BoardActorCritic, "has_gradient", has_gradient)
        metrics.append(practice.learn(rows))
        monkeypatch.undo()
    assert metrics[0]["kl"] > 1e-3
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-3, abs=1e-6)


def test_a_rollout_keeps_boards_as_codes_and_masks_of_the_second_stage():
    practice, rng = _practice(0), np.random.default_rng(3)
    rows = [_rows(rng, t == 0) for t in range(7)]
    plain = Rollout()
    practice.add(rows[0])
    plain.begin(rows[0])
    for row in rows[1:]:
        practice.act()
        plain.chosen = practice.rollout.chosen
        practice.add(row)
        plain.add(row)
    assert all(row.obs[0].dtype == np.int16 for row in practice.rollout.rows)
    coded, whole = practice.rollout.trajectories(), plain.trajectories()
    np.testing.assert_array_equal(coded.action_mask, whole.action_mask)
    network = practice.learner.network
    np.testing.assert_array_equal(coded.obs[1], network.compact(whole.obs[1:])[0])


def test_the_outlook_of_one_of_several_boards_heeds_its_second_mask():
    """As pages ask for it."""
    practice = _practice(0)
    rows = _rows(np.random.default_rng(3), begins=True)
    policy = practice.learner.policy
    one = policy.outlook(only_slot(rows, 1), None)
    every = policy.outlook(rows, None)
    np.testing.assert_allclose(one.value, every.value[1:2], rtol=1e-4, atol=1e-5)


def test_orders_to_whole_boards_are_kept_in_8_bits():
    practice = _practice(0, staged=False)
    _play(practice, staged=False)
    kept = practice.rollout.trajectories()
    assert kept.discrete.dtype == np.int8
    assert max(PARTS) <= np.iinfo(np.int8).max


def _saved(practice, folder, **metadata):
    """The checkpoint of a learner."""
    file = folder / "other.safetensors"
    metadata = network_metadata(practice.learner.network) | metadata
    write_checkpoint(file, practice.learner.state(), metadata)
    return file


def test_a_run_starts_with_the_policy_of_a_smaller_board(tmp_path):
    small, large = _practice(0), _practice(1, height=8, width=10)
    small.learn(_play(small))
    network = small.learner.network
    before = large.learner.state()
    warm_start(large.learner, "A", _saved(small, tmp_path), ["extrinsic"])
    after = large.learner.state()
    expected = large.learner.network.resized(network.spec, network.state_dict())
    for name, weight in large.learner.network.state_dict().items():
        assert torch.equal(weight, expected[name]), name
    # A policy that is kept in 16 bits starts a run, too.
    halved = {
        n: t.half()
        for n, t in small.learner.state().items()
        if n.startswith("network.")
    }
    write_checkpoint(tmp_path / "half.safetensors", halved, network_metadata(network))
    warm_start(large.learner, "A", tmp_path / "half.safetensors", ["extrinsic"])
    for name, weight in large.learner.network.state_dict().items():
        assert torch.allclose(weight, expected[name], atol=1e-3), name
    # The optimizer's moments belong to other weights.
    others = [name for name in after if not name.startswith("network.")]
    assert any(name.startswith("optimizer.") for name in others)
    assert all(torch.equal(before[name], after[name]) for name in others)


@pytest.mark.parametrize(
    ("saved", "metadata", "reason"),
    [
        (
            {"hidden_units": 64},
            {},
            "does not fit the configured network: .*size mismatch",
        ),
        ({}, {"reward_signals": ["curiosity"]}, "reward signals curiosity; expected"),
        ({"staged": False}, {}, "does not fit A"),
    ],
)
def test_what_fits_in_no_size_is_refused(saved, metadata, reason, tmp_path):
    file = _saved(_practice(0, **saved), tmp_path, **metadata)
    large = _practice(1, height=8, width=10)
    with pytest.raises(UsageError, match=reason):
        warm_start(large.learner, "A", file, ["extrinsic"])
