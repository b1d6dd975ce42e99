"""Random numbers that depend on nothing but (seed, area, episode).

The generator is Philox 4x32-10, which is counter-based: a draw is a pure function of its address.
So the number of threads, the number of areas, the order of resets and a resume change nothing, and
there is no generator state to save beyond two counters per area.

Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"; constants and known
answers from its Random123 library.
"""

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled

_ROUNDS = 10
_UINT32 = 0xFFFFFFFF


@compiled
def philox(
    c0: int, c1: int, c2: int, c3: int, k0: int | np.uint64, k1: int | np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Four random 32-bit words for a counter of four words, under a key of two."""
    a = np.uint64(c0)
    b = np.uint64(c1)
    c = np.uint64(c2)
    d = np.uint64(c3)
    key_0 = np.uint64(k0)
    key_1 = np.uint64(k1)
    low = np.uint64(_UINT32)
    for _ in range(_ROUNDS):
        # Philox's multipliers; the keys grow by Weyl's constants, from the golden ratio and √3.
        product_0 = a * np.uint64(0xD2511F53)
        product_1 = c * np.uint64(0xCD9E8D57)
        # Words are below 2³²: a product fits into 64 bits, of which the high half is mixed.
        a = (product_1 >> np.uint64(32)) ^ b ^ key_0
        b = product_1 & low
        c = (product_0 >> np.uint64(32)) ^ d ^ key_1
        d = product_0 & low
        key_0 = (key_0 + np.uint64(0x9E3779B9)) & low
        key_1 = (key_1 + np.uint64(0xBB67AE85)) & low
    return a, b, c, d


StreamArrays = tuple[np.uint64, NDArray[np.uint32], NDArray[np.uint32]]
"""A seed, and the episode and draw counters of every area: a `Streams` for kernels."""


@compiled
def draw(streams: StreamArrays, area: int) -> tuple[float, float, float, float]:
    """The next four numbers in [0, 1) of an area: what `Streams.uniform(areas, 4)` gives.

    For kernels that place bodies until they fit, and so cannot know how often they will draw.
    """
    seed, episode, drawn = streams
    low = np.uint64(_UINT32)
    key_0 = seed & low
    key_1 = seed >> np.uint64(32)
    a, b, c, d = philox(drawn[area], episode[area], area, 0, key_0, key_1)
    drawn[area] += np.uint32(1)
    return a * 2.0**-32, b * 2.0**-32, c * 2.0**-32, d * 2.0**-32


@compiled
def _fill_uniform(
    out: NDArray[np.float64], areas: NDArray[np.intp], streams: StreamArrays
) -> None:
    """Fill `out` [K, count] with the next numbers of K areas."""
    count = out.shape[1]
    for k in range(len(areas)):
        # What is left of the last block of four is thrown away.
        for first in range(0, count, 4):
            numbers = draw(streams, areas[k])
            for i in range(min(4, count - first)):
                # 32 bits, so never 1.0: a float64 holds all of them.
                out[k, first + i] = numbers[i]


class Streams:
    """One random stream per area, keyed by (seed, area, episode)."""

    def __init__(self, num_areas: int) -> None:
        self.seed = 0
        self.episode = np.zeros(num_areas, np.uint32)
        self.drawn = np.zeros(num_areas, np.uint32)
        """[A] blocks of four numbers drawn in the running episode."""

    def restart(self, seed: int) -> None:
        """Go back to before the first episode of another seed."""
        # Two words of 32 bits are the key.
        self.seed = int(seed) & 0xFFFFFFFFFFFFFFFF
        self.episode[:] = 0
        self.drawn[:] = 0

    def next_episode(self, areas: NDArray[np.intp]) -> None:
        """Move these areas to the start of their next episode's stream."""
        self.episode[areas] += 1
        # The episode is part of the address, so its draws are counted from 0 again.
        self.drawn[areas] = 0

    def uniform(
        self, areas: NDArray[np.intp], count: int, low: float = 0.0, high: float = 1.0
    ) -> NDArray[np.float64]:
        """The next `count` numbers in [low, high) of each of K areas: [K, count]."""
        unit = np.empty((len(areas), count))
        _fill_uniform(unit, areas, self.arrays())
        return low + (high - low) * unit

    def integers(
        self, areas: NDArray[np.intp], count: int, low: int, high: int
    ) -> NDArray[np.int64]:
        """The next `count` integers from low up to, but not including, high: [K, count]."""
        return np.floor(self.uniform(areas, count, low, high)).astype(np.int64)

    def arrays(self) -> StreamArrays:
        """The streams for `draw`, which advances the counters: views, not copies."""
        return np.uint64(self.seed), self.episode, self.drawn

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
