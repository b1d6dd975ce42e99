"""decode(encode(x)) = x for records of arrays."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.scripted_world import ScriptedWorld

from touchline.envs.slots import SlotRows, Slots
from touchline.testing import random_slot_actions
from touchline.training.run.packing import pack, unpack


@given(seed=st.integers(0, 1000), steps=st.integers(0, 30))
def test_rows_survive_packing(seed, steps):
    slots, rng = Slots(ScriptedWorld()), np.random.default_rng(seed)
    rows = slots.reset(seed)
    kept = [rows["Walker?team=0"]]
    for _ in range(steps):
        rows = slots.step(
            {
                n: random_slot_actions(slots.behaviors[n], r, rng)
                for n, r in rows.items()
            }
        )
        kept.append(rows["Walker?team=0"])
    again = unpack(pack(kept), SlotRows)
    assert len(again) == len(kept)
    for a, b in zip(kept, again, strict=True):
        for name, value in vars(a).items():
            other = getattr(b, name)
            if isinstance(value, tuple):
                assert len(value) == len(other)
                assert all(
                    np.array_equal(x, y) and x.dtype == y.dtype
                    for x, y in zip(value, other, strict=True)
                )
            elif value is None:
                assert other is None
            else:
                assert np.array_equal(value, other)
                assert value.dtype == other.dtype


def test_no_records_are_no_arrays():
    assert pack([]) == {}
    assert unpack({}, SlotRows) == []
