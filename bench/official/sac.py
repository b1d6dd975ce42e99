"""Times sampling and gradient steps of the official SAC of ML-Agents 1.1.0.

Run by the Python that has `mlagents`, not by ours. Its argument is the work as JSON; each line on
standard input is answered with the processor seconds of one turn, `sampling` and `gradient_steps`.
"""

import json
import sys
import time

import numpy as np
import torch
from mlagents.trainers.buffer import AgentBuffer, RewardSignalUtil
from mlagents.trainers.policy.torch_policy import TorchPolicy
from mlagents.trainers.sac.optimizer_torch import SACSettings, TorchSACOptimizer
from mlagents.trainers.settings import NetworkSettings, TrainerSettings
from mlagents.trainers.torch_entities.action_log_probs import LogProbsTuple
from mlagents.trainers.torch_entities.networks import SimpleActor
from mlagents.trainers.trajectory import AgentExperience, Trajectory
from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)

HORIZON = 100


def spec_of(work):
    sensor = ObservationSpec(
        (work["observations"],),
        (DimensionProperty.NONE,),
        ObservationType.DEFAULT,
        "vector",
    )
    action = ActionSpec(work["continuous"], tuple(work["branches"]))
    return BehaviorSpec([sensor], action)


def optimizer_of(work):
    network = NetworkSettings(
        normalize=work["normalize"],
        hidden_units=work["hidden_units"],
        num_layers=work["num_layers"],
    )
    hyper = SACSettings(batch_size=work["batch_size"], buffer_size=work["rows"])
    settings = TrainerSettings(
        trainer_type="sac", hyperparameters=hyper, network_settings=network
    )
    kwargs = {"conditional_sigma": True, "tanh_squash": True}
    policy = TorchPolicy(0, spec_of(work), network, SimpleActor, kwargs)
    return TorchSACOptimizer(policy, settings)


def filled(work):
    """A buffer as the trainer fills it, trajectory by trajectory."""
    rng = np.random.default_rng(0)
    buffer = AgentBuffer()
    sizes = work["branches"]
    for _ in range(work["rows"] // HORIZON):
        steps = [experience(work, rng, sizes) for _ in range(HORIZON)]
        last = [rng.normal(size=work["observations"]).astype(np.float32)]
        trajectory = Trajectory(steps, last, [], "agent", "B?team=0")
        trajectory.to_agentbuffer().resequence_and_append(buffer, training_length=1)
    return buffer


def experience(work, rng, sizes):
    continuous = rng.uniform(-1, 1, work["continuous"]).astype(np.float32)
    discrete = np.array([rng.integers(size) for size in sizes], np.int32)
    action = ActionTuple(continuous[None], discrete[None])
    action = ActionTuple(action.continuous[0], action.discrete[0])
    probs = LogProbsTuple(
        np.zeros(work["continuous"], np.float32), np.zeros(len(sizes), np.float32)
    )
    return AgentExperience(
        obs=[rng.normal(size=work["observations"]).astype(np.float32)],
        reward=float(rng.normal()),
        done=False,
        action=action,
        action_probs=probs,
        action_mask=[np.zeros(size, bool) for size in sizes] or None,
        prev_action=np.zeros(len(sizes), np.int32),
        interrupted=False,
        memory=None,
        group_status=[],
        group_reward=0.0,
    )


def sampled(buffer, optimizer, batch_size):
    """As `SACTrainer._update_sac_policy` prepares a minibatch."""
    batch = buffer.sample_mini_batch(batch_size, sequence_length=1)
    for name, signal in optimizer.reward_signals.items():
        key = RewardSignalUtil.rewards_key(name)
        batch[key] = signal.evaluate(batch) * signal.strength
    return batch


def main():
    work = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    optimizer = optimizer_of(work)
    buffer = filled(work)
    size = work["batch_size"]
    print("ready", flush=True)
    for _ in sys.stdin:
        count = range(work["steps_per_turn"])
        start = time.process_time()
        batches = [sampled(buffer, optimizer, size) for _ in count]
        middle = time.process_time()
        for batch in batches:
            optimizer.update(batch, size)
        end = time.process_time()
        times = {"sampling": middle - start, "gradient_steps": end - middle}
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
