"""PPO on MicrortsMining-v4: steps per second of our learner next to a well-known plain loop.

    python bench/microrts/ppo.py [--steps 16384]

Both play 8 games for 128 steps between updates, with 4 epochs of 4 minibatches, on the same
environment, so that they differ in drawing actions and learning. The plain loop is written like the
notebooks and scripts of gym-microrts: one convolutional network (16 and 32 channels, 128 units),
eight `Categorical`s per decision, all of them in the log-probability; the network runs once for the
action and once for the value. The loops alternate, update by update. Processor time is counted, and
figures are medians over the updates.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is imported

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from touchline.envs.env import Env, EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.microrts.rules import CHOICES, PARTS, PLANES
from touchline.specs import ActionTuple
from touchline.steps import DecisionSteps
from touchline.training.algorithms.learner import LearnerSetup
from touchline.training.algorithms.ppo.learner import PPO
from touchline.training.config.reading import read_config
from touchline.training.experience.rollout import Rollout

GAMES, LENGTH = 8, 128
EPOCHS, MINIBATCH = 4, 256
SIDE = 16
"""Of the map, in cells."""
DISCOUNT, GAE_LAMBDA = 0.99, 0.95
CLIP_RANGE, ENTROPY_WEIGHT, VALUE_WEIGHT = 0.2, 0.01, 0.5
RECIPE = EnvRecipe(
    "microrts", "MicrortsMining-v4", GAMES, options={"weights": "gather:1"}
)
WARM_UP = 2
"""Updates that are not counted."""


def initialized(module: nn.Linear | nn.Conv2d, gain: float = 2**0.5) -> nn.Module:
    nn.init.orthogonal_(module.weight, gain)
    assert module.bias is not None
    nn.init.zeros_(module.bias)
    return module


def masked(logits: Tensor, allowed: Tensor) -> Categorical:
    return Categorical(logits=torch.where(allowed, logits, torch.tensor(-1e8)))


class Agent(nn.Module):
    """The notebook's network. Its attack head has only the 49 values that the engine reads."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            initialized(nn.Conv2d(PLANES, 16, 3, stride=2)),
            nn.ReLU(),
            initialized(nn.Conv2d(16, 32, 2)),
            nn.ReLU(),
            nn.Flatten(),
            initialized(nn.Linear(32 * 6 * 6, 128)),
            nn.ReLU(),
        )
        self.actor = initialized(nn.Linear(128, SIDE**2 + CHOICES), gain=0.01)
        self.critic = initialized(nn.Linear(128, 1), gain=1.0)

    def value(self, obs: Tensor) -> Tensor:
        value: Tensor = self.critic(self.network(obs))[:, 0]
        return value

    def act(
        self, obs: Tensor, cells: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Actions [B, 8], their log-probabilities [B], and the masks [B, 78] of the chosen units.

        `cells` [B, 256] is the mask of the first choice, `table` [B, 256, 78] those of the second.
        """
        logits = self.actor(self.network(obs))
        first = masked(logits[:, : SIDE**2], cells)
        cell = first.sample()
        # What may be ordered depends on the unit that was chosen.
        orders = table[torch.arange(len(cell)), cell]
        later = self._parts(logits, orders)
        choices = [branch.sample() for branch in later]
        action = torch.stack([cell, *choices], dim=1)
        return action, log_prob_of([first, *later], action), orders

    def evaluate(
        self, obs: Tensor, cells: Tensor, orders: Tensor, action: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies [B] of actions, with the masks they were drawn with."""
        logits = self.actor(self.network(obs))
        first = masked(logits[:, : SIDE**2], cells)
        branches = [first, *self._parts(logits, orders)]
        entropies = torch.stack([branch.entropy() for branch in branches])
        return log_prob_of(branches, action), entropies.sum(0)

    def _parts(self, logits: Tensor, orders: Tensor) -> list[Categorical]:
        logits_of_parts = logits[:, SIDE**2 :].split(PARTS, dim=1)
        masks_of_parts = orders.split(PARTS, dim=1)
        pairs = zip(logits_of_parts, masks_of_parts, strict=True)
        return [masked(part, allowed) for part, allowed in pairs]


def log_prob_of(branches: list[Categorical], action: Tensor) -> Tensor:
    of_branches = [branch.log_prob(action[:, i]) for i, branch in enumerate(branches)]
    return torch.stack(of_branches).sum(0)


class Batch(NamedTuple):
    """What the plain loop keeps of its steps: [T, N, ...] while playing, [B, ...] to learn from."""

    obs: Tensor
    cells: Tensor
    orders: Tensor
    actions: Tensor
    log_prob: Tensor
    reward: Tensor
    follows_end: Tensor
    """Whether the step before this one ended an episode."""
    value: Tensor

    @staticmethod
    def empty() -> Batch:
        shape = (LENGTH, GAMES)
        return Batch(
            obs=torch.zeros((*shape, PLANES, SIDE, SIDE)),
            cells=torch.zeros((*shape, SIDE**2), dtype=torch.bool),
            orders=torch.zeros((*shape, CHOICES), dtype=torch.bool),
            actions=torch.zeros((*shape, 1 + len(PARTS)), dtype=torch.int64),
            log_prob=torch.zeros(shape),
            reward=torch.zeros(shape),
            follows_end=torch.zeros(shape),
            value=torch.zeros(shape),
        )


def plain_loop() -> Iterator[None]:
    """The notebook's loop with masks; one update per item."""
    with make(RECIPE) as env:
        (name,) = env.behaviors
        env.reset(0)
        agent = Agent()
        optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)
        batch = Batch.empty()
        end = torch.zeros(GAMES)
        while True:
            for t in range(LENGTH):
                batch.follows_end[t] = end
                end = play_step(env, name, agent, batch, t)
            decisions, _ = env.steps(name)
            with torch.no_grad():
                next_value = agent.value(torch.from_numpy(decisions.obs[0]))
            advantage = generalized_advantage(batch, next_value, end)
            learn(agent, optimizer, batch, advantage)
            yield


def play_step(env: Env, name: str, agent: Agent, batch: Batch, t: int) -> Tensor:
    """Play step t into the batch; returns which games [N] ended."""
    decisions, _ = env.steps(name)
    batch.obs[t] = torch.from_numpy(decisions.obs[0])
    batch.cells[t], table = allowed_by(decisions)
    with torch.no_grad():
        # The network runs once for the value and once for the action, as in the notebooks.
        batch.value[t] = agent.value(batch.obs[t])
        acted = agent.act(batch.obs[t], batch.cells[t], table)
    batch.actions[t], batch.log_prob[t], batch.orders[t] = acted
    discrete = acted[0].numpy().astype(np.int32)
    env.set_actions(name, ActionTuple(discrete=discrete))
    env.step()
    decisions, terminals = env.steps(name)
    batch.reward[t] = torch.from_numpy(decisions.reward)
    end = torch.zeros(GAMES)
    end[terminals.agent_id] = 1.0
    return end


def allowed_by(decisions: DecisionSteps) -> tuple[Tensor, Tensor]:
    """The masks of both stages, True = allowed."""
    assert decisions.action_mask is not None
    assert decisions.second_mask is not None
    cells = torch.from_numpy(~decisions.action_mask[0])
    return cells, torch.from_numpy(~decisions.second_mask)


def generalized_advantage(batch: Batch, next_value: Tensor, end: Tensor) -> Tensor:
    """[T, N], from the value and the ends [N] after the last step."""
    advantage = torch.zeros_like(batch.reward)
    later = torch.zeros(GAMES)
    for t in reversed(range(LENGTH)):
        is_last = t == LENGTH - 1
        alive = 1.0 - (end if is_last else batch.follows_end[t + 1])
        following = next_value if is_last else batch.value[t + 1]
        delta = batch.reward[t] + DISCOUNT * following * alive - batch.value[t]
        later = delta + DISCOUNT * GAE_LAMBDA * alive * later
        advantage[t] = later
    return advantage


def learn(
    agent: Agent, optimizer: torch.optim.Optimizer, batch: Batch, advantage: Tensor
) -> None:
    """One update of PPO."""
    flat = Batch(*(part.flatten(0, 1) for part in batch))
    target = (advantage + batch.value).flatten()
    advantage = advantage.flatten()
    for _ in range(EPOCHS):
        for rows in torch.randperm(LENGTH * GAMES).split(MINIBATCH):
            part = Batch(*(tensor[rows] for tensor in flat))
            loss = loss_of(agent, part, advantage[rows], target[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def loss_of(agent: Agent, part: Batch, advantage: Tensor, target: Tensor) -> Tensor:
    log_prob, entropy = agent.evaluate(part.obs, part.cells, part.orders, part.actions)
    ratio = (log_prob - part.log_prob).exp()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped_ratio = ratio.clamp(1 - CLIP_RANGE, 1 + CLIP_RANGE)
    # The larger of two losses is the more cautious one: PPO never gains by leaving the range.
    unclipped_loss = -advantage * ratio
    clipped_loss = -advantage * clipped_ratio
    policy_loss = torch.max(unclipped_loss, clipped_loss).mean()
    value = agent.value(part.obs)
    change = (value - part.value).clamp(-CLIP_RANGE, CLIP_RANGE)
    clipped = part.value + change
    squares = (value - target) ** 2
    clipped_squares = (clipped - target) ** 2
    value_loss = 0.5 * torch.max(squares, clipped_squares).mean()
    return policy_loss - ENTROPY_WEIGHT * entropy.mean() + VALUE_WEIGHT * value_loss


def our_loop() -> Iterator[None]:
    """Our learner with the preset's network; one update per item."""
    config = read_config("microrts-mining").behavior("MicroRTS")
    assert config is not None
    sizes = {
        "buffer_size": GAMES * LENGTH,
        "batch_size": MINIBATCH,
        "num_epoch": EPOCHS,
    }
    hyperparameters = config.hyperparameters.model_copy(update=sizes)
    config = config.model_copy(update={"hyperparameters": hyperparameters})
    with make(RECIPE) as env:
        slots = Slots(env)
        rows = slots.reset(0)
        (name,) = rows
        setup = LearnerSetup(
            "MicroRTS", slots.behaviors[name], config, 0, torch.device("cpu")
        )
        learner = PPO(setup)
        rollout = Rollout(compact=learner.network.compact)
        rollout.begin(rows[name])
        while True:
            decision = learner.policy.act(rollout.rows[-1], None, learner.generator)
            rollout.chosen = decision.kept
            rows = slots.step({name: decision.actions})
            rollout.add(rows[name])
            if rollout.num_results >= learner.wanted:
                learner.add(name, rollout.trajectories())
                learner.update()
                rollout.begin(rows[name])
                yield


def main() -> None:
    assert __doc__ is not None
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--steps", type=int, default=16384)
    steps = arguments.parse_args().steps
    num_updates = -(-steps // (GAMES * LENGTH))
    torch.set_num_threads(1)
    loops = {"plain loop": plain_loop(), "touchline": our_loop()}
    times_s: dict[str, list[float]] = {name: [] for name in loops}
    for update in range(WARM_UP + num_updates):
        for name, loop in loops.items():
            start_s = time.process_time()
            next(loop)
            if update >= WARM_UP:
                times_s[name].append(time.process_time() - start_s)
    steps_per_update = GAMES * LENGTH
    rates = {n: steps_per_update / float(np.median(t)) for n, t in times_s.items()}
    figures: dict[str, float] = {name: round(rate) for name, rate in rates.items()}
    figures["ratio"] = rates["touchline"] / rates["plain loop"]
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
