"""Random numbers that depend on nothing but (seed, area, episode): Philox 4x32-10, a counter-based generator.

A draw is a pure function of its address, so the number of threads, the number of areas, the order of resets
and a resume change nothing, and there is no generator state to save beyond two counters per area.

Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"; constants and known answers from
its Random123 library.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW_32 = np.uint64(0xFFFFFFFF)
_ROUNDS = 10


def philox(counter: NDArray[np.uint32], key: tuple[int, int]) -> NDArray[np.uint32]:
    """Four random words [..., 4] for each counter [..., 4] under a key of two 32-bit words."""
    c0, c1, c2, c3 = (counter[..., i].astype(np.uint64) for i in range(4))
    k0, k1 = key
    for _ in range(_ROUNDS):
        product_0, product_1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = (
            (product_1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            (product_0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
        )
        c1, c3 = product_1 & _LOW_32, product_0 & _LOW_32
        k0, k1 = (k0 + _KEY_STEPS[0]) & 0xFFFFFFFF, (k1 + _KEY_STEPS[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


class Streams:
    """One random stream per area: keyed by (seed, area, episode), read front to back within an episode."""

    def __init__(self, num_areas: int) -> None:
        self.seed = 0
        self.episode = np.zeros(num_areas, np.uint32)
        self.drawn = np.zeros(num_areas, np.uint32)

    def restart(self, seed: int) -> None:
        """Go back to before the first episode of another seed."""
        self.seed = int(seed) & 0xFFFFFFFFFFFFFFFF
        self.episode[:] = 0
        self.drawn[:] = 0

    def next_episode(self, areas: NDArray[np.intp]) -> None:
        """Let these areas start their next episode's stream."""
        self.episode[areas] += 1
        self.drawn[areas] = 0

    def uniform(self, areas: NDArray[np.intp], count: int, low: float = 0.0, high: float = 1.0) -> NDArray[np.float64]:
        """The next `count` numbers in [low, high) of each of K areas: [K, count]."""
        blocks = -(-count // 4)
        counter = np.empty((len(areas), blocks, 4), np.uint32)
        counter[..., 0] = self.drawn[areas, None] + np.arange(blocks, dtype=np.uint32)
        counter[..., 1] = self.episode[areas, None]
        counter[..., 2] = areas[:, None]
        counter[..., 3] = 0
        words = philox(counter, (self.seed & 0xFFFFFFFF, self.seed >> 32))
        self.drawn[areas] += np.uint32(blocks)
        unit = words.reshape(len(areas), 4 * blocks)[:, :count] * 2.0**-32
        return np.asarray(low + (high - low) * unit)

    def integers(self, areas: NDArray[np.intp], count: int, low: int, high: int) -> NDArray[np.int64]:
        """The next `count` integers from low up to, but not including, high: [K, count]."""
        return np.floor(self.uniform(areas, count, low, high)).astype(np.int64)

    def state(self) -> dict[str, NDArray[np.generic]]:
        return {
            "seed": np.array(self.seed, np.uint64),
            "episode": self.episode.copy(),
            "drawn": self.drawn.copy(),
        }

    def load_state(self, state: dict[str, NDArray[np.generic]]) -> None:
        self.seed = int(state["seed"])
        self.episode[:] = state["episode"]
        self.drawn[:] = state["drawn"]
