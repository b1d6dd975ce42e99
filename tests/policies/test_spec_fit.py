"""Whether a policy fits a behavior."""

import pytest

from touchline.errors import UsageError
from touchline.policies.policy import is_fit, require_fit
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

CELL = (6, 4, 4, 4, 4, 7, 49)


def _board(side):
    return BehaviorSpec(
        (ObservationSpec((27, side, side)),), ActionSpec(0, CELL * side * side)
    )


def test_a_message_about_large_specs_is_short():
    with pytest.raises(UsageError) as caught:
        require_fit(
            "models/policy.safetensors", _board(8), "MicroRTS?team=0", _board(16)
        )
    message = str(caught.value)
    assert "it was trained on observations [27, 8, 8] and branches 64 x [6," in message
    assert "64 x [6, 4, 4, 4, 4, 7, 49]" in message
    assert "256 x [6, 4, 4, 4, 4, 7, 49]" in message
    assert len(message) < 300


def test_names_do_not_matter_and_sizes_do():
    one = BehaviorSpec((ObservationSpec.vector(3, "a"),), ActionSpec(1, (2,)))
    other = BehaviorSpec(
        (ObservationSpec.vector(3, "b"),), ActionSpec(1, (2,)), "board"
    )
    assert is_fit(one, other)
    assert not is_fit(one, BehaviorSpec(one.observation_specs, ActionSpec(1, (3,))))
    assert not is_fit(one, BehaviorSpec(one.observation_specs * 2, one.action_spec))
