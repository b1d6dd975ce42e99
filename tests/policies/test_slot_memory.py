"""What belongs to one episode stays in it."""

import numpy as np
from tests.slot_rows import slot_rows

from touchline.policies.policy import SlotMemory


def _rows(begins, deciding):
    return slot_rows([np.zeros((len(begins), 1))], begins=begins, deciding=deciding)


def test_a_memory_is_empty_at_a_begin_and_rests_with_its_slot():
    memory = SlotMemory((1, 2))
    first = _rows([True, True], [True, False])
    before = memory.recall(first)
    memory.keep(first, before, before + 1)
    assert memory.values[:, 0, 0].tolist() == [1, 0], (
        "a slot that does not decide changes nothing"
    )
    second = _rows([False, False, True], [True, True, True])
    assert memory.recall(second)[:, 0, 0].tolist() == [1, 0, 0], "the table grew"
    third = _rows([True, False, False], [False, True, True])
    assert memory.recall(third)[:, 0, 0].tolist() == [0, 0, 0]
