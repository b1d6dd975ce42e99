"""Record the answers of gym-microrts 0.3.2's engine, which a test holds our unit form to.

    python bench/microrts/record_032.py [--sdist FILE] [--out FILE.npz]

Plays `MicrortsMining-v4`'s rules through 0.3.2's own `tests.JNIClient`: 12,000 steps, 2,000 as each
player alternately, nine of ten orders drawn from the two-stage mask and one drawn without it. Kept
are the orders, the rewards, the clock, and a checksum of observation, unit mask and order mask per
step (in full they are 30 MB). The 0.3.2 sdist (59 MB) is fetched through pip's index settings and
its hash is checked; nothing of it is kept.
"""

from __future__ import annotations

import argparse
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.microrts.download import download
from touchline.microrts.engine import Engine, check_hash
from touchline.microrts.java import java_class, start_java
from touchline.microrts.rules import CHOICES, PARTS

NAME = "gym_microrts-0.3.2.tar.gz"
SHA256 = "b49b3eb985054001936e9790eabc4f3859ef2e9eabeaedd54f9e8016771c6872"
STEPS, PER_GAME = 12_000, 2_000
BLIND_SHARE = 0.1
"""Of the orders, how many are drawn without a mask."""
MOST = np.array([4, 4, 2, 7, 5])
"""0.3.2's wrapper clips the engine's five numbers of a cell to these."""
REWARDS = (
    "WinLoss",
    "ResourceGather",
    "ProduceWorker",
    "ProduceBuilding",
    "Attack",
    "ProduceCombatUnit",
    "CloserToEnemyBase",
)


def main() -> None:
    assert __doc__ is not None
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--sdist", type=Path)
    arguments.add_argument(
        "--out", type=Path, default=Path("tests/microrts/microrts_032.npz")
    )
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        np.savez_compressed(given.out, **record(unpacked(given.sdist, folder)))
    print(f"{given.out}: {STEPS} steps, {given.out.stat().st_size / 1024:.0f} KB")


def unpacked(sdist: Path | None, folder: Path) -> Engine:
    """0.3.2's engine in a folder, from a given sdist or a download."""
    if sdist is None:
        sdist = folder / NAME
        download(NAME, SHA256, sdist)
    check_hash(sdist, SHA256)
    with tarfile.open(sdist) as archive:
        # The maps of StarCraft are most of the size, and not needed.
        members = [
            member
            for member in archive
            if "/gym_microrts/microrts/" in member.name
            and "/maps/BroodWar" not in member.name
        ]
        archive.extractall(folder, members, filter="data")
    return Engine(next(folder.glob("*/gym_microrts/microrts")))


def new_client(engine: Engine) -> Any:
    """0.3.2's own client for one game against a passive bot, as Java object."""
    import jpype

    start_java(engine)
    types = java_class("rts.units.UnitTypeTable")()
    functions = jpype.JArray(java_class("ai.rewardfunction.RewardFunctionInterface"))
    return java_class("tests.JNIClient")(
        functions(
            [
                java_class(f"ai.rewardfunction.{name}RewardFunction")()
                for name in REWARDS
            ]
        ),
        jpype.JString(f"{engine.folder}/"),
        jpype.JString("maps/16x16/basesWorkers16x16.xml"),
        java_class("ai.PassiveAI")(types),
        types,
    )


def record(engine: Engine) -> dict[str, Any]:
    """The arrays of the recording, by name."""
    client = new_client(engine)
    state = java_class("tests.JNIClient").class_.getDeclaredField("gs")
    state.setAccessible(True)
    rng = np.random.default_rng(32)
    orders = np.zeros((STEPS, 1 + len(PARTS)), np.int16)
    rewards = np.zeros((STEPS, len(REWARDS)), np.float64)
    clock = np.zeros(STEPS, np.int32)
    checks = np.zeros((STEPS, 3), np.uint32)
    begins = np.zeros((STEPS // PER_GAME, 2), np.uint32)
    for step in range(STEPS):
        player = step // PER_GAME % 2
        if step % PER_GAME == 0:
            observation = clipped(client.reset(player))
            units = np.array(client.ai1UnitMasks, np.int8)
            begins[step // PER_GAME] = checksums(observation, units)
        orders[step], order_mask = choose(client, units.reshape(-1), rng)
        response = client.step(orders[step : step + 1].astype(np.int32), player)
        observation = clipped(response)
        units = np.array(client.ai1UnitMasks, np.int8)
        assert not response.done[0], "no game ends against a passive opponent"
        rewards[step] = np.array(response.reward)
        clock[step] = state.get(client).getTime()
        checks[step] = checksums(observation, units, order_mask)
    return {
        "orders": orders,
        "rewards": rewards,
        "clock": clock,
        "checks": checks,
        "begins": begins,
    }


def checksums(*arrays: NDArray[Any]) -> list[int]:
    return [zlib.crc32(array.tobytes()) for array in arrays]


def clipped(response: Any) -> NDArray[np.int8]:
    """int8 [5, 16, 16], clipped as 0.3.2's wrapper does before its one-hot planes."""
    observation = np.array(response.observation)
    return observation.clip(0, MOST[:, None, None]).astype(np.int8)


def choose(
    client: Any, units: NDArray[np.int8], rng: np.random.Generator
) -> tuple[NDArray[np.int16], NDArray[np.int8]]:
    """An order, and the mask that 0.3.2 gives for its cell (zeros where no unit waits)."""
    is_blind = rng.random() < BLIND_SHARE or not units.any()
    if is_blind:
        order = np.array(
            [rng.integers(len(units)), *(rng.integers(n) for n in PARTS)], np.int16
        )
    else:
        order = np.zeros(1 + len(PARTS), np.int16)
        order[0] = rng.choice(np.flatnonzero(units))
    cell = order[0]
    if not units[cell]:
        return order, np.zeros(CHOICES, np.int8)
    masks = np.array(client.getUnitActionMasks(np.array([[cell]], np.int32)), np.int8)[
        0
    ]
    if not order[1:].any():  # also a blind order of zeros, as when the record was made
        parts = np.split(masks, np.cumsum(PARTS)[:-1])
        order[1:] = [
            rng.choice(np.flatnonzero(part)) if part.any() else 0 for part in parts
        ]
    return order, masks


if __name__ == "__main__":
    main()
