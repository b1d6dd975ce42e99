"""From sensors to numbers: what must not matter does not, and what does not fit is named."""

import numpy as np
import pytest
import torch

from touchline.errors import UsageError
from touchline.policies.nets.encoders import (
    SMALLEST_SIDE,
    Sensors,
    image_encoder,
)
from touchline.policies.network import side_by_side
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec, ObservationType


def _goal(size):
    return ObservationSpec(
        (size,), observation_type=ObservationType.GOAL_SIGNAL, name="goal"
    )


MIXED = BehaviorSpec(
    (
        ObservationSpec((3, 20, 30), name="camera"),
        ObservationSpec.vector(2, "a"),
        ObservationSpec((4, 5), name="list"),
        _goal(3),
        ObservationSpec((1, 24, 24), name="grid"),
        ObservationSpec.vector(1, "b"),
    ),
    ActionSpec(2, (3,)),
)


def test_vectors_are_joined_in_order_and_the_rest_follows_in_order():
    obs = [
        np.full((7, *o.shape), i, np.float32)
        for i, o in enumerate(MIXED.observation_specs)
    ]
    vectors, *others = side_by_side(obs)
    assert vectors[0].tolist() == [1, 1, 3, 3, 3, 5]
    assert [o.flat[0] for o in others] == [0, 2, 4]
    sensors = Sensors.from_spec(MIXED)
    assert sensors.goals(torch.from_numpy(vectors))[0].tolist() == [3, 3, 3]
    assert (sensors.images, sensors.entities) == ((1, 3), (2,))
    assert side_by_side([obs[1]])[0] is obs[1], "one vector alone is not copied"
    assert side_by_side([obs[0]])[0].shape == (7, 0)


@pytest.mark.parametrize("kind", SMALLEST_SIDE)
def test_an_image_encoder_takes_its_smallest_side_and_no_smaller(kind):
    side = SMALLEST_SIDE[kind]
    encode = image_encoder(kind, ObservationSpec((3, side, side + 3)), 11)
    assert encode(torch.rand(5, 3, side, side + 3)).shape == (5, 11)
    if side > 1:
        with pytest.raises(
            UsageError,
            match=rf"camera': .*{kind} takes images of {side} or more .* fit: .*fully_con",
        ):
            image_encoder(
                kind, ObservationSpec((3, side + 3, side - 1), name="camera"), 11
            )
