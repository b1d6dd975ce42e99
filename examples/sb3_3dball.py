"""PPO of Stable-Baselines3 on 3DBall.

    python examples/sb3_3dball.py                     # 300,000 agent steps, then a plot

`touchline.make_sb3` shows all twelve agents as one `VecEnv`. The last observation of an ended
episode is in `infos[i]["terminal_observation"]`, and `infos[i]["TimeLimit.truncated"]` says that an
episode was cut short, so that Stable-Baselines3 counts the value of what would have followed.
"""

import argparse
from collections import deque
from pathlib import Path

import matplotlib
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecMonitor

import touchline

matplotlib.use("Agg")
import matplotlib.pyplot as plt


class FinishedEpisodes(BaseCallback):
    """Prints and keeps the mean return of the episodes that finished last, once per rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.curve: list[tuple[int, float]] = []
        self.recent: deque[float] = deque(maxlen=24)

    def _on_step(self) -> bool:
        self.recent.extend(
            info["episode"]["r"] for info in self.locals["infos"] if "episode" in info
        )
        return True

    def _on_rollout_end(self) -> None:
        if self.recent:
            self.curve.append((self.num_timesteps, float(np.mean(self.recent))))
            print(
                f"{self.num_timesteps:7d} agent steps  return {self.curve[-1][1]:6.2f}",
                flush=True,
            )


def train(
    frames: int, seed: int, rows_per_batch: int = 500, onnx: Path | None = None
) -> list[tuple[int, float]]:
    """Train; (agent steps so far, mean return of the last finished episodes), one per rollout."""
    torch.set_num_threads(1)
    env = VecMonitor(touchline.make_sb3("3DBall"))
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=rows_per_batch,
        batch_size=rows_per_batch,
        n_epochs=8,
        learning_rate=3e-4,
        policy_kwargs={"net_arch": [128, 128]},
        seed=seed,
        device="cpu",
    )
    finished = FinishedEpisodes()
    model.learn(frames, callback=finished)
    env.close()
    if onnx is not None:
        with touchline.make("3DBall") as world:
            spec = world.behaviors["3DBall?team=0"]
        touchline.export_policy(model, spec, onnx)
    return finished.curve


def plot(curve: list[tuple[int, float]], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.plot(*zip(*curve, strict=True))
    axes.set(
        xlabel="agent steps",
        ylabel="return of finished episodes",
        title="3DBall, PPO of Stable-Baselines3",
    )
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"plot: {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=300_000, help="agent steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows-per-batch", type=int, default=500)
    parser.add_argument("--plot", type=Path, default=Path("sb3_3dball.png"))
    parser.add_argument("--onnx", type=Path, help="write the policy for Unity")
    arguments = parser.parse_args()
    plot(
        train(
            arguments.frames, arguments.seed, arguments.rows_per_batch, arguments.onnx
        ),
        arguments.plot,
    )
