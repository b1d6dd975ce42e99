"""Joining vectors and flattening branches, as laws on arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from touchline.adapters.layout import (
    Layout,
    choice_table,
    flatten_choice,
    flatten_mask,
    join_vectors,
    unflatten_choice,
)
from touchline.errors import UsageError
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

BRANCHES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


def _spec(*shapes, branches=(), continuous=0, names=()):
    names = [*names, *[""] * len(shapes)]
    sensors = tuple(
        ObservationSpec(shape, name=name)
        for shape, name in zip(shapes, names, strict=False)
    )
    return BehaviorSpec(sensors, ActionSpec(continuous, branches))


@given(BRANCHES, st.data())
def test_flattening_a_choice_and_back_changes_nothing(branches, data):
    table = choice_table(branches)
    flat = data.draw(hnp.arrays(np.int64, 7, elements=st.integers(0, len(table) - 1)))
    np.testing.assert_array_equal(
        flatten_choice(unflatten_choice(flat, branches), branches), flat
    )


@given(BRANCHES, st.data())
def test_a_flat_choice_is_allowed_exactly_when_all_its_parts_are(branches, data):
    mask = data.draw(hnp.arrays(np.bool_, (4, sum(branches))))
    flat = flatten_mask(mask, branches)
    parts = np.split(mask, np.cumsum(branches)[:-1], axis=1)
    for k, choices in enumerate(choice_table(branches)):
        allowed = np.all(
            [part[:, c] for part, c in zip(parts, choices, strict=True)], axis=0
        )
        np.testing.assert_array_equal(flat[:, k], allowed)


def test_soccer_has_27_joint_choices_and_336_numbers():
    layout = Layout(
        _spec((264,), (72,), branches=(3, 3, 3)),
        join_vectors=True,
        flatten_branches=True,
    )
    assert layout.branches == (27,)
    assert [(v.name, v.shape) for v in layout.views] == [("vector", (336,))]
    first, second = np.full((2, 264), 1.0), np.full((2, 72), 2.0)
    (joined,) = layout.observe([first, second])
    np.testing.assert_array_equal(joined, np.hstack([first, second]))
    assert layout.actions(None, np.array([[0], [26]]), 2).discrete.tolist() == [
        [0, 0, 0],
        [2, 2, 2],
    ]


def test_images_stay_apart_from_joined_vectors_and_turn_as_asked():
    spec = _spec((3, 4, 5), (2,), (3,))
    image = np.linspace(-0.5, 1.5, 60, dtype=np.float32).reshape(1, 3, 4, 5)
    layout = Layout(spec, join_vectors=True, uint8_images=True, channels_last=True)
    joined, seen = layout.observe([image, np.zeros((1, 2)), np.ones((1, 3))])
    assert joined.shape == (1, 5)
    assert seen.shape == (1, 4, 5, 3)
    assert (seen.dtype, seen.min(), seen.max()) == (np.uint8, 0, 255)
    np.testing.assert_array_equal(
        seen[0, :, :, 1], np.rint(np.clip(image[0, 1], 0, 1) * 255)
    )
    assert join_vectors([image, np.zeros((1, 2))]).shape == (1, 2)


def test_sensor_names_become_unique_keys():
    layout = Layout(
        _spec((1,), (2,), (3,), (1,), names=("A:b.c", "A:b.c", "", "vector"))
    )
    assert [v.name for v in layout.views] == ["A_b_c", "A_b_c_1", "sensor_2", "vector"]
    joined = Layout(
        _spec((1,), (2,), (3, 4), names=("a", "b", "vector")),
        join_vectors=True,
    )
    assert [v.name for v in joined.views] == ["vector", "vector_1"]


def test_bad_choices_and_too_many_choices_are_refused():
    with pytest.raises(UsageError, match="expected 0 to 26, got 27"):
        unflatten_choice(np.array([3, 27]), (3, 3, 3))
    with pytest.raises(
        UsageError,
        match="make more than 4096 joint choices; leave flatten_branches off",
    ):
        Layout(_spec((1,), branches=(100, 100)), flatten_branches=True)
    staged = BehaviorSpec((ObservationSpec((1,)),), ActionSpec(0, (4, 3), staged=True))
    with pytest.raises(
        UsageError, match="depends on the first one; leave flatten_branches off"
    ):
        Layout(staged, flatten_branches=True)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("shape", [(1, 4, 5), (3, 4, 5), (7,), (2, 3)])
@pytest.mark.parametrize("bytes_for_images", [False, True])
def test_a_copy_shares_no_memory_with_the_world(shape, channels_last, bytes_for_images):
    layout = Layout(
        _spec(shape, (2,)), channels_last=channels_last, uint8_images=bytes_for_images
    )
    obs = [np.zeros((2, *shape), np.float32), np.zeros((2, 2), np.float32)]
    for view, sensor in zip(layout.copied(obs), obs, strict=True):
        assert not np.shares_memory(view, sensor)
        assert view.flags.writeable
