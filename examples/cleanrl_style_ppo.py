"""PPO in one file of plain PyTorch, on any scene with one behavior of continuous actions.

    python examples/cleanrl_style_ppo.py              # 3DBall, 300,000 agent steps, then a plot

After the manner of CleanRL: no library between the environment and the mathematics. The one thing
that many such files get wrong where agents reset by themselves: an ended agent's row already shows
its next episode, so the value after the last step must be read from `info["final_obs"]`, and counts
only if the episode was cut short.
"""

import argparse
from collections import deque
from pathlib import Path

import gymnasium
import matplotlib
import numpy as np
import torch
from torch import nn

import touchline

matplotlib.use("Agg")
import matplotlib.pyplot as plt

# Gymnasium's way to say what an import is for: `import touchline` registered the names.
gymnasium.register_envs(touchline)

EPOCHS, MINIBATCH = 8, 500
LEARNING_RATE, DISCOUNT, GAE_LAMBDA, CLIP_RANGE, VALUE_COEF = 3e-4, 0.99, 0.95, 0.2, 0.5


class Agent(nn.Module):
    """A Gaussian policy and a value, each of its own network; the names are CleanRL's."""

    def __init__(self, observation_size: int, action_size: int) -> None:
        super().__init__()
        self.actor_mean = self._network(observation_size, action_size, last_gain=0.01)
        self.critic = self._network(observation_size, 1, last_gain=1.0)
        self.actor_logstd = nn.Parameter(torch.zeros(1, action_size))

    @staticmethod
    def _network(inputs: int, outputs: int, last_gain: float) -> nn.Sequential:
        sizes, gains = (inputs, 128, 128, outputs), (2**0.5, 2**0.5, last_gain)
        layers: list[nn.Module] = []
        for size_in, size_out, gain in zip(sizes, sizes[1:], gains, strict=False):
            layers += [nn.Linear(size_in, size_out), nn.Tanh()]
            nn.init.orthogonal_(layers[-2].weight, gain)
            nn.init.zeros_(layers[-2].bias)
        return nn.Sequential(*layers[:-1])

    def policy(self, observation: torch.Tensor) -> torch.distributions.Distribution:
        mean = self.actor_mean(observation)
        normal = torch.distributions.Normal(mean, self.actor_logstd.exp())
        return torch.distributions.Independent(normal, 1)


def train(
    frames: int,
    seed: int,
    rows_per_batch: int = 500,
    scene: str = "3DBall",
    onnx: Path | None = None,
) -> list[tuple[int, float]]:
    """Train; (agent steps so far, mean return of the last finished episodes), one per rollout."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    env = gymnasium.make_vec(f"touchline/{scene}-v0", num_envs=12)
    (observation_size,), (action_size,) = (
        env.single_observation_space.shape,
        env.single_action_space.shape,
    )
    agent = Agent(observation_size, action_size)
    optimizer = torch.optim.Adam(agent.parameters(), LEARNING_RATE, eps=1e-5)

    T, N = rows_per_batch, env.num_envs
    observations = torch.zeros(T, N, observation_size)
    actions = torch.zeros(T, N, action_size)
    log_probs, rewards, values, next_values = (torch.zeros(T, N) for _ in range(4))
    ended = torch.zeros(T, N)

    curve: list[tuple[int, float]] = []
    recent: deque[float] = deque(maxlen=24)
    running = np.zeros(N)
    now = torch.from_numpy(env.reset(seed=seed)[0])
    for update in range(1, frames // (T * N) + 1):
        for t in range(T):
            with torch.no_grad():
                policy = agent.policy(now)
                action = policy.sample()
                log_probs[t], values[t] = (
                    policy.log_prob(action),
                    agent.critic(now).squeeze(-1),
                )
            observations[t], actions[t] = now, action
            obs, reward, terminated, truncated, info = env.step(
                action.clamp(-1, 1).numpy()
            )
            done = terminated | truncated
            running += reward
            now = torch.from_numpy(obs)
            rewards[t], ended[t] = torch.from_numpy(reward), torch.from_numpy(done)
            with torch.no_grad():
                next_values[t] = agent.critic(now).squeeze(-1)
                # The last observation of an ended agent, before its next episode began.
                if done.any():
                    last = torch.from_numpy(np.stack(list(info["final_obs"][done])))
                    cut_short = torch.from_numpy(~terminated[done])
                    next_values[t, torch.from_numpy(done)] = (
                        agent.critic(last).squeeze(-1) * cut_short
                    )
            recent.extend(running[done])
            running[done] = 0.0

        advantages = torch.zeros(T, N)
        ahead = torch.zeros(N)
        for t in reversed(range(T)):
            delta = rewards[t] + DISCOUNT * next_values[t] - values[t]
            advantages[t] = ahead = (
                delta + DISCOUNT * GAE_LAMBDA * (1.0 - ended[t]) * ahead
            )
        targets = (advantages + values).flatten()

        flat = [x.flatten(0, 1) for x in (observations, actions, log_probs, advantages)]
        for _ in range(EPOCHS):
            for index in torch.randperm(T * N).split(MINIBATCH):
                observation, action, old_log_prob, advantage = (x[index] for x in flat)
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                ratio = (
                    agent.policy(observation).log_prob(action) - old_log_prob
                ).exp()
                clipped = ratio.clamp(1.0 - CLIP_RANGE, 1.0 + CLIP_RANGE)
                policy_loss = -torch.minimum(
                    ratio * advantage, clipped * advantage
                ).mean()
                value_loss = (
                    (agent.critic(observation).squeeze(-1) - targets[index])
                    .square()
                    .mean()
                )
                optimizer.zero_grad()
                (policy_loss + VALUE_COEF * value_loss).backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        if recent:
            curve.append((update * T * N, float(np.mean(recent))))
            print(
                f"{curve[-1][0]:7d} agent steps  return {curve[-1][1]:6.2f}", flush=True
            )
    env.close()
    if onnx is not None:
        with touchline.make(scene) as world:
            (spec,) = world.behaviors.values()
        touchline.export_policy(agent, spec, onnx)
    return curve


def plot(curve: list[tuple[int, float]], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.plot(*zip(*curve, strict=True))
    axes.set(
        xlabel="agent steps",
        ylabel="return of finished episodes",
        title="PPO in one file",
    )
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"plot: {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scene", default="3DBall")
    parser.add_argument("--frames", type=int, default=300_000, help="agent steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows-per-batch", type=int, default=500)
    parser.add_argument("--plot", type=Path, default=Path("cleanrl_style_ppo.png"))
    parser.add_argument("--onnx", type=Path, help="write the policy for Unity")
    options = parser.parse_args()
    plot(
        train(
            options.frames,
            options.seed,
            options.rows_per_batch,
            options.scene,
            options.onnx,
        ),
        options.plot,
    )
