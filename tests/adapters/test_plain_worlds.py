"""Worlds of others with ML-Agents' interface: what breaks its contract is one line."""

from dataclasses import replace

import numpy as np
import pytest

import touchline
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.steps import DecisionSteps, TerminalSteps

SPEC = BehaviorSpec((ObservationSpec.vector(2, "place"),), ActionSpec(0, (3,)))


class Still:
    """Two agents for which nothing happens; `change` is done to all that it sends."""

    def __init__(self, change):
        self.behavior_specs = {"Still?team=0": SPEC}
        self.change = change

    def reset(self):
        pass

    def step(self):
        pass

    def close(self):
        pass

    def set_actions(self, behavior_name, action):
        pass

    def get_steps(self, behavior_name):
        zeros, agents = np.zeros(2, np.float32), np.arange(2, dtype=np.int32)
        decisions = DecisionSteps(
            [np.zeros((2, 2), np.float32)], zeros, agents, None, agents * 0, zeros
        )
        return self.change(decisions, TerminalSteps.empty(SPEC))


def _decisions(**changes):
    return lambda decisions, ends: (replace(decisions, **changes), ends)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_decisions(obs=[np.zeros((2, 3))]), r"obs have the shapes \[\(2, 3\)\], expected"),
        (_decisions(obs=[np.zeros((1, 2))]), r"\[\(1, 2\)\], expected \[\(2, 2\)\]"),
        (_decisions(obs=[]), r"DecisionSteps.obs have the shapes \[\], expected"),
        (_decisions(reward=1.0), r"reward has the shape \(\), expected \(2,\)"),
        (_decisions(group_id=None), r"group_id has the shape \(\), expected \(2,\)"),
        (_decisions(action_mask=[np.zeros((2, 5), bool)]), r"\(2, 5\)\], expected \[\(2, 3"),
        (_decisions(action_mask=[]), r"action_mask has the shapes \[\], expected"),
        (_decisions(action_mask=[np.ones((2, 3), bool)]), "forbids every choice"),
        (lambda decisions, ends: None, "expected .DecisionSteps, TerminalSteps., got None"),
        (lambda decisions, ends: (ends, decisions), "got .TerminalSteps"),
    ],
)  # fmt: skip
def test_steps_that_break_the_contract_are_one_line(change, message):
    start = r"^Still.get_steps\('Still\?team=0'\): "
    with pytest.raises(touchline.UsageError, match=f"{start}.*{message}") as refused:
        touchline.make_pettingzoo(Still(change)).reset()
    assert "\n" not in str(refused.value)


def test_steps_that_hold_it_and_a_class_for_a_world():
    env = touchline.make_pettingzoo(Still(_decisions()))
    assert len(env.reset()[0]) == 2
    with pytest.raises(touchline.UsageError, match="expected an ENV, an EnvRecipe or"):
        touchline.make_pettingzoo(Still)
