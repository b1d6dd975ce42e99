"""Returns, schedules and losses against ML-Agents' own numbers.

Source: ML-Agents 1.1.0, run on small tensors (`golden/returns_and_schedules.json`,
`golden/onpolicy_losses.json`).
"""

import json

import numpy as np
import pytest
import torch

from touchline.training.algorithms.ppo.loss import (
    clipped_surrogate,
    clipped_value_loss,
)
from touchline.training.algorithms.returns import generalized_advantage
from touchline.training.algorithms.settings import scheduled


def _read(shared, name):
    return json.loads((shared / "golden" / f"{name}.json").read_text(encoding="utf-8"))


def test_lambda_returns_are_generalized_advantage_plus_value(shared):
    for case in _read(shared, "returns_and_schedules")["cases"]:
        value = np.float32(case["values"])[:, None]
        last = np.float32([[case["value_next"]]])
        never = np.zeros(value.shape, bool)
        advantage = generalized_advantage(
            reward=np.float32(case["rewards"])[:, None],
            value=value,
            next_value=np.concatenate([value[1:], last]),
            terminated=never,
            truncated=never,
            valid=~never,
            discount=case["gamma"],
            gae_lambda=case["lambd"],
        )
        np.testing.assert_allclose(advantage[:, 0], case["gae"], atol=1e-5)
        returns = (advantage + value)[:, 0]
        np.testing.assert_allclose(returns, case["lambda_return"], atol=1e-5)


def test_schedules_are_straight_lines_to_their_floors(shared):
    for case in _read(shared, "returns_and_schedules")["schedules"]:
        progress = case["step"] / case["max_step"]
        found = scheduled(case["initial"], case["minimum"], case["schedule"], progress)
        assert found == pytest.approx(case["value"], abs=1e-9)


@pytest.fixture
def losses(shared):
    return _read(shared, "onpolicy_losses")


def _rows(losses, name):
    """The rows that are not masked out."""
    mask = torch.tensor(losses["mask"], dtype=torch.bool)
    return torch.tensor(losses[name])[mask]


def test_a_clipped_value_loss_with_true_old_values(losses):
    value, old, target = (
        _rows(losses, name)[:, None] for name in ("values", "old_values", "returns")
    )
    found = clipped_value_loss(value, old, target, losses["epsilon"])
    expected = losses["value_loss_with_true_old_values"]
    assert float(found) == pytest.approx(expected, abs=1e-5)


def test_a_plain_value_loss_is_as_ml_agents_calls_its_clipped_one(losses):
    value, target = _rows(losses, "values"), _rows(losses, "returns")
    found = float((value - target).square().mean())
    assert found == pytest.approx(losses["value_loss_as_called"], abs=1e-5)


def test_the_policy_loss_as_ml_agents_takes_one_ratio_for_each_dimension(losses):
    """Ours is one ratio for the whole action, as in the paper; the clip is the same."""
    new, old = _rows(losses, "log_probs"), _rows(losses, "old_log_probs")
    advantage = _rows(losses, "advantages")[:, None].expand_as(new)
    found = clipped_surrogate(
        new.flatten(), old.flatten(), advantage.flatten(), losses["epsilon"]
    )
    assert -float(found) == pytest.approx(losses["policy_loss"], abs=1e-5)
