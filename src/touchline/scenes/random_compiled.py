"""`random.Streams` for compiled kernels: the same numbers, drawn one block at a time.

A kernel that places bodies until they fit cannot say beforehand how often it will draw. It takes the arrays
of a `Streams` and moves the same counters, so kernels and arrays may take turns.

Source: as `random`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from touchline.scenes.compiled import compiled
from touchline.scenes.random import Streams

StreamArrays = tuple[np.uint64, NDArray[np.uint32], NDArray[np.uint32]]


def stream_arrays(streams: Streams) -> StreamArrays:
    """What `draw` needs of a `Streams`: its seed, and its two counters, which `draw` moves."""
    return np.uint64(streams.seed), streams.episode, streams.drawn


@compiled
def philox_words(c0: int, c1: int, c2: int, c3: int, k0: int, k1: int) -> tuple[int, int, int, int]:
    """Four random words for one counter under one key: Philox 4x32-10."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a, b, c, d = np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3)
    k, m = np.uint64(k0), np.uint64(k1)
    for _ in range(10):
        p, q = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (q >> half) ^ b ^ k, q & low, (p >> half) ^ d ^ m, p & low
        k, m = (k + np.uint64(0x9E3779B9)) & low, (m + np.uint64(0xBB67AE85)) & low
    return a, b, c, d


@compiled
def draw(streams: StreamArrays, area: int) -> tuple[float, float, float, float]:
    """The next four numbers in [0, 1) of an area: what `Streams.uniform(areas, 4)` gives."""
    seed, episode, drawn = streams
    a, b, c, d = philox_words(
        np.uint64(drawn[area]),
        np.uint64(episode[area]),
        np.uint64(area),
        np.uint64(0),
        seed & np.uint64(0xFFFFFFFF),
        seed >> np.uint64(32),
    )
    drawn[area] += np.uint32(1)
    unit = 2.0**-32
    return float(a) * unit, float(b) * unit, float(c) * unit, float(d) * unit
