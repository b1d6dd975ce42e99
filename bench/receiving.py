"""How fast a head receives: 64 light collectors send arrays that were prepared before.

    python bench/receiving.py [--senders 64] [--processes 8] [--seconds 20] [--json]

A sender has no torch, no world and no policy. It holds one round of experience of a continuous
behavior with 100 observations and sends it again and again, packed as collectors pack theirs.
Senders share Ray actors, as threads: 64 processes would take this machine minutes to start, and
the head, which waits for 64 answers at a time, cannot tell the difference.

The head takes what has arrived, as in a run: unpacks it, computes advantages and returns (of values
that are 0, for estimates are the network's work), and puts the valid actions into one batch of
tensors for each round of all senders. Nothing is learned.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from typing import Any

import numpy as np
import torch

from touchline.training.algorithms.returns import generalized_advantage
from touchline.training.collect.opening import RAY
from touchline.training.experience.trajectories import Trajectories
from touchline.training.run.packing import pack, unpack

OBSERVATIONS, ACTIONS = 100, 4
STEPS, AGENTS = 64, 16
"""Of one message: 1024 agent steps, half a megabyte."""
EPISODE = 50
STORE_BYTES = 500 * 2**20


class Senders:
    """Collectors that have collected already."""

    def __init__(self, packed: list[dict[str, Any]]) -> None:
        # Ray's arrays are views of its memory; a collector's are its own.
        self.packed = [{n: array.copy() for n, array in own.items()} for own in packed]

    def collect(self, number: int) -> dict[str, Any]:
        return self.packed[number]


def prepared(seed: int) -> dict[str, Any]:
    """One round of experience, packed as a collector packs it."""
    rng = np.random.default_rng(seed)
    shape = (STEPS, AGENTS)
    ends = (np.arange(STEPS)[:, None] + rng.integers(EPISODE, size=AGENTS)) % EPISODE
    terminated = ends == EPISODE - 1
    steps = np.arange(STEPS)[:, None]
    count = int(terminated.sum())
    final = np.full(shape, -1)
    final[terminated] = np.arange(count)
    ids = np.broadcast_to(np.arange(AGENTS), shape)
    rows = rng.standard_normal((STEPS + 1, AGENTS, OBSERVATIONS), np.float32)
    trajectories = Trajectories(
        obs=(rows,),
        action_mask=None,
        continuous=rng.standard_normal((*shape, ACTIONS), np.float32),
        discrete=np.zeros((*shape, 0), np.int64),
        acted=np.ones(shape, np.bool_),
        valid=np.ones(shape, np.bool_),
        begins=ends == 0,
        reward=rng.standard_normal(shape, np.float32),
        group_reward=np.zeros(shape, np.float32),
        terminated=terminated,
        truncated=np.zeros(shape, np.bool_),
        agent_id=ids.astype(np.int32),
        group_id=np.zeros(shape, np.int32),
        env_index=np.zeros(shape, np.int32),
        value_row=np.broadcast_to(steps + 1, shape),
        final=final,
        final_obs=(rng.standard_normal((count, OBSERVATIONS), np.float32),),
    )
    return pack([trajectories])


def received(packed: dict[str, Any]) -> list[torch.Tensor]:
    """The valid actions of a message: observations, actions, advantages and returns."""
    (t,) = unpack(packed, Trajectories)
    value = np.zeros(t.valid.shape, np.float32)
    advantage = generalized_advantage(
        reward=t.reward + t.group_reward,
        value=value,
        next_value=np.take_along_axis(value, t.value_row - 1, axis=0),
        terminated=t.terminated,
        truncated=t.truncated,
        valid=t.valid,
        discount=0.99,
        gae_lambda=0.95,
    )
    columns = t.obs[0][:-1], t.continuous, advantage, advantage + value
    return [torch.from_numpy(column[t.valid]) for column in columns]


def measure(senders: list[tuple[Any, int]], seconds: float) -> tuple[int, float, int]:
    """Agent steps, the seconds that they took, and rounds of all senders (actor, number in it)."""
    import ray

    running = {actor.collect.remote(at): (actor, at) for actor, at in senders}
    batch: list[list[torch.Tensor]] = []
    steps = rounds = 0
    began = time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        ray.wait(list(running), timeout=1.0)
        waiting = list(running)
        ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        for reference in ready:
            actor, at = running.pop(reference)
            batch.append(received(ray.get(reference)))
            running[actor.collect.remote(at)] = actor, at
            steps += len(batch[-1][0])
        if len(batch) >= len(senders):
            whole = [torch.cat(parts) for parts in zip(*batch, strict=True)]
            assert whole[0].shape[1] == OBSERVATIONS
            batch = []
            rounds += 1
    return steps, took, rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--senders", type=int, default=64)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ.update(RAY)  # some of it is read when Ray is imported
    import ray

    torch.set_num_threads(1)
    ray.init(
        address="local",
        num_cpus=arguments.processes,
        object_store_memory=STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    try:
        each = -(-arguments.senders // arguments.processes)
        make = ray.remote(num_cpus=1, max_concurrency=each)(Senders)
        actors = [
            make.remote([prepared(process * each + at) for at in range(each)])
            for process in range(arguments.processes)
        ]
        senders = [(actor, at) for at in range(each) for actor in actors]
        senders = senders[: arguments.senders]
        ray.get([actor.collect.remote(at) for actor, at in senders])
        before = time.process_time()
        steps, took, rounds = measure(senders, arguments.seconds)
        busy = time.process_time() - before
    finally:
        ray.shutdown()
    figures = {
        "senders": arguments.senders,
        "agent_steps_per_s": steps / took,
        # On a busy machine: what the head would receive with a core of its own.
        "per_cpu_second_of_head": steps / busy,
        "megabytes_per_s": steps * OBSERVATIONS * 4 / took / 1e6,
        "rounds": rounds,
        "load": os.getloadavg()[0],
    }
    if arguments.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name:22} {value:12,.1f}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
