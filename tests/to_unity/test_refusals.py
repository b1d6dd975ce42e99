"""Policies that `export_policy` cannot follow: one line, and no file."""

import pytest
import torch
from torch import nn

import touchline
from touchline.errors import UsageError
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

BALL = BehaviorSpec((ObservationSpec.vector(8, "ball"),), ActionSpec(2))
BASIC = BehaviorSpec((ObservationSpec.vector(20, "position"),), ActionSpec(0, (3,)))
PICTURE = BehaviorSpec((ObservationSpec((3, 36, 40), name="eye"),), ActionSpec(0, (5,)))


def _refusal(policy, spec, tmp_path):
    path = tmp_path / "policy.onnx"
    with pytest.raises(UsageError) as refusal:
        touchline.export_policy(policy, spec, path)
    assert "\n" not in str(refusal.value)
    assert not any(tmp_path.iterdir())
    return str(refusal.value)


class Agent(nn.Module):
    """After the manner of CleanRL, with parts of any names."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


@pytest.mark.parametrize(
    ("other", "part", "actor"),
    [
        ("lstm", nn.LSTM(20, 20), "actor"),
        ("shared", nn.Linear(20, 20), "actor"),
        ("encoder", nn.Linear(20, 20), "actor"),
        ("scale", nn.Parameter(torch.ones(20)), "actor"),
        ("network", nn.Linear(8, 8), "actor_mean"),
    ],
)
def test_an_agent_with_a_part_of_another_name_is_refused(tmp_path, other, part, actor):
    agent = Agent(actor=nn.Linear(20, 3), critic=nn.Linear(20, 1), **{other: part})
    spec = BASIC
    if actor == "actor_mean":
        std = nn.Parameter(torch.zeros(1, 2))
        agent = Agent(actor_mean=nn.Linear(8, 2), actor_logstd=std, **{other: part})
        spec = BALL
    line = _refusal(agent, spec, tmp_path)
    assert f"and critics, got {other}; wrap what acts in a torch module" in line


class QNetwork(nn.Sequential):
    def forward(self, x):
        return super().forward(x / 255.0)


def test_a_q_network_that_sees_pictures_is_refused(tmp_path):
    network = QNetwork(nn.Flatten(), nn.Linear(3 * 36 * 40, 5))
    assert "divides them by 255" in _refusal(network, PICTURE, tmp_path)


class Does(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_limits_that_are_tensors_are_refused(tmp_path):
    policy = Does(lambda x: x[:, :2].clamp(torch.zeros(2), torch.ones(2)))
    line = _refusal(policy, BALL, tmp_path)
    assert "its operator aten.clamp has no form that Unity's importer knows" in line
