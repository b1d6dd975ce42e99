"""The solver's contacts, of every kind together."""

import numpy as np
import pytest

from touchline.physics.shapes import box, boxes
from touchline.physics.upright.balls import add_floor_friction, touch_at
from touchline.physics.upright.boxes import touch_boxes
from touchline.physics.upright.contacts import MU, Contacts, new_records
from touchline.physics.upright.solve import solve


def _fill(records, number):
    """Write a number into every float of records, and -1 into every integer."""
    for name in records.dtype.names:
        field = records[name]
        if field.dtype.names:
            _fill(field, number)
        else:
            field[:] = number if field.dtype == np.float64 else -1


@pytest.mark.parametrize("turns", [0.0, 2.0])
def test_contacts_depend_on_nothing_that_was_in_their_room_before(turns):
    ends = []
    for left_behind in (0.0, np.nan):
        records, none = new_records(), (0.0, 0.0, 0.0)
        _fill(records, left_behind)
        speed = np.array(
            [[5.0, 0.0, -3.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.5, 0.0, 0.0], [0.0] * 6]
        )
        inverse, moving = np.zeros((3, 6)), np.zeros((3, 6))
        inverse[:2, :3], inverse[:2, 3:] = 0.1, turns
        contacts = Contacts(records, speed, inverse)
        one, two = boxes(box((0, 0, 0), (1, 1, 1)), box((0.99, 0.1, 0.2), (1, 1, 1)))
        floor = box((0, -1.0, 0), (9, 1.0, 9))
        # Sideways.
        n, _ = touch_boxes(contacts, 0, 0, one, 1, two, MU, MU)
        # From above.
        n, _ = touch_boxes(contacts, n, 0, one, 2, np.array(floor), MU, MU)
        n = touch_at(
            contacts,
            n,
            0,
            1,
            (1.0, 0.0, 0.0),
            -0.01,
            (0.5, 0.0, 0.0),
            none,
            MU,
            0.5,
        )
        n = add_floor_friction(contacts, n, 1, 0.5, 1.0, 0.8, MU)
        assert n == 4
        solve(contacts, n, moving)
        ends.append(np.concatenate([speed, moving]))
    assert np.isfinite(ends[1]).all()
    np.testing.assert_array_equal(*ends)
