"""Kernels called without numba's look at the types of their arguments."""

from typing import NamedTuple

import numpy as np

from touchline.physics.kernels import compiled, entry_of


class Pair(NamedTuple):
    counts: np.ndarray
    seed: np.uint64


@compiled
def _add(first, last, pair, by):
    for k in range(first, last):
        pair.counts[k] += by * np.int64(pair.seed)


def test_an_entry_does_what_its_kernel_does():
    pair = Pair(np.zeros(5, np.int64), np.uint64(3))
    add = entry_of(_add, 0, 0, pair, 1)
    assert not pair.counts.any(), "examples are only looked at"
    _add(0, 3, pair, 2)
    add(2, 5, Pair(pair.counts, np.uint64(4)), 5)
    assert pair.counts.tolist() == [6, 6, 26, 20, 20]


def test_a_plain_function_is_its_own_entry():
    assert entry_of(max, 1, 2) is max
