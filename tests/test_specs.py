"""Specs in messages: short, whatever the spec."""

import numpy as np
import pytest

from tests.protocol.wires import floats, plain_message
from touchline.adapters.layout import check_same_spec, choice_table
from touchline.envs.actions import check_actions
from touchline.errors import TouchlineError
from touchline.policies.policy import require_fit
from touchline.specs import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    ObservationSpec,
    describe_branches,
    describe_spec,
)
from touchline.steps import DecisionSteps

CELL = (6, 4, 4, 4, 4, 7, 49)
BOARD = BehaviorSpec((ObservationSpec((27, 16, 16)),), ActionSpec(0, CELL * 256))
SENSORS = BehaviorSpec(
    tuple(ObservationSpec((i,)) for i in range(1, 501)), ActionSpec(1)
)


@pytest.mark.parametrize(
    ("branches", "text"),
    [
        ((), "[]"),
        ((3, 2), "[3, 2]"),
        (CELL * 256, "256 x [6, 4, 4, 4, 4, 7, 49]"),
        ((256, *CELL), "[256, 6, 4, 4, 4, 4, 7, 49]"),
        ((2,) * 9, "9 x [2]"),
        (tuple(range(1, 100)), "[1, 2, 3, 4, 5, 6, 7, 8, ...] (99 branches)"),
    ],
)
def test_branches_are_listed_or_summarized(branches, text):
    assert describe_branches(branches) == text


def test_many_sensors_are_counted():
    text = describe_spec(SENSORS)
    assert text.startswith("observations [1], [2], ")
    assert "[8] and 492 more" in text
    assert len(text) < 200


def _announce_other_actions():
    decoder, first = plain_message(brain=_announced(CELL * 256))
    decoder.decode(first)
    _, second = plain_message(brain=_announced(CELL * 255))
    decoder.decode(second)


def _announce_a_branch_without_choices():
    decoder, output = plain_message(brain=_announced((*CELL * 256, 0)))
    decoder.decode(output)


def _send_a_mask_of_wrong_length():
    agent = {"observations": [floats(1.0)], "action_mask": [False]}
    decoder, output = plain_message(agent, brain=_announced(CELL * 256))
    decoder.decode(output)


def _send_a_picture_with_a_nan():
    pixels = floats(*[np.nan] * 3 * 84 * 84, shape=(3, 84, 84))
    decoder, output = plain_message({"observations": [pixels]})
    decoder.decode(output)


def _send_an_observation_of_many_axes():
    decoder, output = plain_message({"observations": [floats(shape=[1] * 1000)]})
    decoder.decode(output)


def _send_many_dimension_properties():
    sensor = floats(1.0, dimension_properties=[1] * 1000)
    decoder, output = plain_message({"observations": [sensor]})
    decoder.decode(output)


def _announced(branches):
    return {"num_discrete_actions": len(branches), "discrete_branch_sizes": branches}


def _act(spec, actions, mask=None):
    ones = np.ones(1, np.int32)
    decisions = DecisionSteps((), np.zeros(1, np.float32), ones, mask, ones, ones * 0.0)
    check_actions("world", "A?team=0", spec, actions, decisions, 1)


MISTAKES = {
    "a policy of another size": lambda: require_fit("p.onnx", SENSORS, "A", BOARD),
    "a branch without choices": lambda: ActionSpec(0, (*CELL * 256, 0)),
    "too many joint choices": lambda: choice_table(CELL * 4096),
    "behaviors that differ": lambda: check_same_spec(
        {"A": BOARD, "B": SENSORS}, "a group", "leave it out"
    ),
    "other actions than announced": _announce_other_actions,
    "an announced branch without choices": _announce_a_branch_without_choices,
    "a mask of the wrong length": _send_a_mask_of_wrong_length,
    "a picture with a NaN": _send_a_picture_with_a_nan,
    "many axes": _send_an_observation_of_many_axes,
    "many dimension properties": _send_many_dimension_properties,
    "a continuous action that is a NaN": lambda: _act(
        ActionSpec(1000), ActionTuple(np.full((1, 1000), np.nan))
    ),
    "a masked choice": lambda: _act(
        ActionSpec(0, (1000,)),
        ActionTuple(discrete=np.zeros((1, 1))),
        (np.arange(1000)[None] == 0,),
    ),
    "a choice out of range": lambda: _act(
        BOARD.action_spec, ActionTuple(discrete=np.full((1, 1792), 99))
    ),
    "actions of the wrong shape": lambda: _act(
        BOARD.action_spec, ActionTuple(discrete=np.zeros((1, 3)))
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_message_about_a_large_spec_is_one_short_line(mistake):
    with pytest.raises(TouchlineError) as caught:
        mistake()
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)
