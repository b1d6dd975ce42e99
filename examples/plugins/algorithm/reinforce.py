"""An algorithm of another package: REINFORCE, with the mean reward as its baseline.

Source: Williams 1992, doi:10.1007/BF00992696.
"""

from typing import ClassVar

import torch

from touchline.policies.network import make_network
from touchline.policies.network_policy import NetworkPolicy
from touchline.training.algorithms.learner import architecture_of
from touchline.training.algorithms.settings import HyperparameterSettings
from touchline.training.config.values import Positive, Whole


class ReinforceSettings(HyperparameterSettings):
    """How REINFORCE learns."""

    learner: ClassVar[str] = "reinforce:Reinforce"

    num_results: Whole = 256
    """Actions in one update."""
    step_size: Positive = 0.003
    """Adam's step size."""


class Reinforce:
    """Makes actions that paid more than the average more likely."""

    def __init__(self, setup):
        torch.manual_seed(setup.seed)
        self.hyper = setup.config.hyperparameters
        self.steps = 0
        self.generator = torch.Generator().manual_seed(setup.seed)
        self.network = make_network(setup.spec, architecture_of(setup.config))
        self.policy = NetworkPolicy(self.network)
        self.adam = torch.optim.Adam(self.network.parameters(), self.hyper.step_size)
        self.added = []

    @property
    def wanted(self):
        return self.hyper.num_results - sum(t.num_results for t in self.added)

    @property
    def ready(self):
        return bool(self.added) and self.wanted <= 0

    def add(self, team, trajectories):
        self.added.append(trajectories)

    def update(self):
        losses = []
        for t in self.added:
            valid = torch.from_numpy(t.valid)
            obs = tuple(torch.from_numpy(part[:-1])[valid] for part in t.obs)
            mask = (
                None
                if t.action_mask is None
                else torch.from_numpy(t.action_mask)[valid]
            )
            reward = torch.from_numpy(t.reward + t.group_reward)[valid]
            distribution, _ = self.network(self.network.normalized(obs), mask)
            actions = (torch.from_numpy(a)[valid] for a in (t.continuous, t.discrete))
            losses.append(
                -(distribution.log_prob(*actions) * (reward - reward.mean())).mean()
            )
        self.adam.zero_grad()
        loss = torch.stack(losses).mean()
        loss.backward()
        self.adam.step()
        self.policy.forget_actor()
        self.steps += sum(t.num_results for t in self.added)
        self.added = []
        return {"reinforce_loss": float(loss)}

    def state(self):
        return {f"network.{k}": v for k, v in self.network.state_dict().items()}

    learned = state  # no experience is kept between updates

    def load_state(self, state):
        self.network.load_state_dict(
            {k.removeprefix("network."): v for k, v in state.items()}
        )
        self.policy.forget_actor()
