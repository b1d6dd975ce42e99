"""PPO with TorchRL on 3DBall: twelve agents as one batch.

    python examples/torchrl_3dball.py                 # about 400,000 agent steps, then a plot
    python examples/torchrl_3dball.py --seed 1 --frames 100000

Every slot of the environment is one agent with episodes of its own. The rules that keep its data
right are marked (1) to (4); `docs/from_a_notebook_that_almost_works.md` shows with figures what
happens without them.
"""

import argparse
import time
from collections import deque
from pathlib import Path

import matplotlib
import torch
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import RewardSum, TransformedEnv
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import touchline

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROWS_PER_BATCH = 500
EPOCHS, MINIBATCH = 8, 500
LEARNING_RATE, DISCOUNT, GAE_LAMBDA, CLIP_RANGE, ENTROPY_BONUS = (
    3e-4,
    0.99,
    0.95,
    0.2,
    1e-3,
)


def train(
    frames: int,
    seed: int,
    rows_per_batch: int = ROWS_PER_BATCH,
    onnx: Path | None = None,
) -> list[tuple[int, float]]:
    """Train; (agent steps so far, mean return of the episodes that finished since the last report),
    one per batch.
    """
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # networks this small gain nothing from more
    env = TransformedEnv(touchline.make_torchrl("3DBall", seed=seed), RewardSum())
    (num_agents,) = env.batch_size

    actor_net = nn.Sequential(
        MLP(out_features=4, num_cells=[128, 128], in_features=8), NormalParamExtractor()
    )
    actor = ProbabilisticActor(
        TensorDictModule(actor_net, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        return_log_prob=True,
    )
    critic = ValueOperator(
        MLP(out_features=1, num_cells=[128, 128], in_features=8),
        in_keys=["observation"],
    )
    advantage = GAE(gamma=DISCOUNT, lmbda=GAE_LAMBDA, value_network=critic)
    loss = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=CLIP_RANGE,
        entropy_coeff=ENTROPY_BONUS,
        normalize_advantage=True,
    )
    optimizer = torch.optim.Adam(loss.parameters(), LEARNING_RATE)

    collector = Collector(
        env,
        actor,
        frames_per_batch=rows_per_batch
        * num_agents,  # in layout `batch` TorchRL counts agent steps
        total_frames=frames - frames % (rows_per_batch * num_agents),
        auto_register_policy_transforms=False,
    )
    curve: list[tuple[int, float]] = []
    recent: deque[float] = deque(maxlen=24)
    started, steps = time.perf_counter(), 0
    for batch in collector:  # [agents, time]
        steps += batch.numel()
        ended = batch["next", "done"]
        finished = batch["next", "episode_reward"][
            ended
        ]  # (1) a return is what a finished episode earned
        recent.extend(finished.tolist())
        if recent:
            curve.append((steps, sum(recent) / len(recent)))
            print(
                f"{steps:7d} agent steps  {time.perf_counter() - started:5.0f} s  "
                f"{len(finished):3d} episodes finished"
                f"  return {curve[-1][1]:6.2f} (mean of the last {len(recent)})",
                flush=True,
            )
        with torch.no_grad():
            # (2) while time is still an axis; ends and truncations are read per agent.
            advantage(batch)
        rows = batch.reshape(-1)
        rows = rows[
            rows["mask"]
        ]  # (3) rows in which no agent acted are no data; 3DBall has none, other scenes do
        # (4) else the loss would estimate its own, from shuffled rows.
        assert rows.get("advantage") is not None
        # Smaller and smaller steps, so that what is learned stays.
        for setting in optimizer.param_groups:
            setting["lr"] = LEARNING_RATE * (1.0 - steps / frames)
        for _ in range(EPOCHS):
            for index in torch.randperm(len(rows)).split(MINIBATCH):
                parts = loss(rows[index])
                total = (
                    parts["loss_objective"]
                    + parts["loss_critic"]
                    + parts["loss_entropy"]
                )
                optimizer.zero_grad()
                total.backward()
                nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimizer.step()
    collector.shutdown()
    if onnx is not None:
        with touchline.make("3DBall") as world:
            spec = world.behaviors["3DBall?team=0"]
        touchline.export_policy(actor, spec, onnx)
    return curve


def plot(curve: list[tuple[int, float]], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.plot(*zip(*curve, strict=True))
    axes.set(
        xlabel="agent steps",
        ylabel="return of finished episodes",
        title="3DBall, PPO with TorchRL",
        ylim=(0, 101),
    )
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"plot: {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=400_000, help="agent steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows-per-batch", type=int, default=ROWS_PER_BATCH)
    parser.add_argument("--plot", type=Path, default=Path("torchrl_3dball.png"))
    parser.add_argument("--onnx", type=Path, help="write the policy for Unity")
    arguments = parser.parse_args()
    plot(
        train(
            arguments.frames, arguments.seed, arguments.rows_per_batch, arguments.onnx
        ),
        arguments.plot,
    )
