"""What learners share that start over with every update: experience, rates, figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from touchline.policies.network import Network
from touchline.training.algorithms.adam import Adam, FlatParameters
from touchline.training.algorithms.learned_state import (
    pending,
    pending_again,
    refuse_non_finite,
)
from touchline.training.algorithms.learner import LearnerSetup, Metrics
from touchline.training.algorithms.network_learner import NetworkLearner
from touchline.training.algorithms.settings import OnPolicySettings, scheduled
from touchline.training.algorithms.valuation import Valuation
from touchline.training.experience.trajectories import Trajectories
from touchline.training.rewards.learned import models_of


@dataclass(frozen=True)
class Rates:
    """What an update depends on besides policy and batch; most of it changes in training."""

    learning_rate: float
    epsilon: float
    """Clip range of the probability ratio."""
    beta: float
    """Weight of the entropy bonus."""
    clip_value_loss: bool = False
    """Whether values gain nothing from moving further than epsilon."""


def rates_at(
    hyper: OnPolicySettings, progress: float, *, clip_value_loss: bool = False
) -> Rates:
    """Learning rate, clip range and entropy weight at a progress of 0 to 1."""
    # Floors: `min_value` of the three DecayedValue in ML-Agents' `ppo/optimizer_torch.py`.
    rate_schedule = hyper.learning_rate_schedule
    rate = scheduled(hyper.learning_rate, 1e-10, rate_schedule, progress)
    epsilon = scheduled(hyper.epsilon, 0.1, hyper.epsilon_schedule, progress)
    beta = scheduled(hyper.beta, 1e-5, hyper.beta_schedule, progress)
    return Rates(rate, epsilon, beta, clip_value_loss)


def change_of(log_prob: Tensor, old_log_prob: Tensor, rates: Rates) -> Metrics:
    """How far an update moved the policy, [B] log-probabilities of the same actions, and its rates.

    Source of `kl`: Schulman 2020, http://joschu.net/blog/kl-approx.html
    """
    log_ratio = log_prob - old_log_prob
    ratio = torch.exp(log_ratio)
    # (r − 1) − log r is never negative and varies less than −log r, which has the same mean.
    kl = (ratio - 1.0 - log_ratio).mean()
    is_clipped = (ratio - 1.0).abs() > rates.epsilon
    return {
        "kl": float(kl),
        "clip_fraction": float(is_clipped.float().mean()),
        "learning_rate": rates.learning_rate,
        "epsilon": rates.epsilon,
        "beta": rates.beta,
    }


class OnPolicyLearner(NetworkLearner):
    """A learner but for its networks and its update."""

    def __init__(self, setup: LearnerSetup) -> None:
        self._hyper = hyper = setup.hyperparameters(OnPolicySettings)
        # Signals that learn make as many passes over their batch as the policy does.
        super().__init__(setup, hyper, hyper.num_epoch)
        self.acting_network: Network | None = None
        self._added: list[Trajectories] = []
        self._advantage_std = 0.0
        """Advantages' spread in the latest batch before they were normalized."""

    def _learn_with(
        self, setup: LearnerSetup, network: Network, **others: Module
    ) -> None:
        """Act with this network, and learn its weights and those of the others."""
        self._networks: dict[str, Any] = {"network": network, **others}
        # One vector for all: their gradients are clipped together. After `to(device)`: from here
        # on the networks' parameters are views of it, and moving one would cut them loose.
        parameters = [p for one in self._networks.values() for p in one.parameters()]
        self._weights = FlatParameters(parameters)
        self._adam = Adam(self._weights.vector)
        self._learn(setup, self._hyper, self._networks, self._weights, self._adam)

    @property
    def wanted(self) -> int:
        num_added = sum(trajectories.num_results for trajectories in self._added)
        return self._hyper.buffer_size - num_added

    @property
    def ready(self) -> bool:
        # Trajectories arrive whole, so more may come than was wanted.
        return bool(self._added) and self.wanted <= 0

    def add(self, team: str, trajectories: Trajectories) -> None:
        """All teams of a behavior are learned from alike."""
        # Signals may keep figures of each team, and only here the team is known.
        for signal in self.signals:
            signal.observe(team, trajectories)
        self._added.append(trajectories)

    def _end_update(self, experience: list[Trajectories], num_actions: int) -> Metrics:
        """What follows the passes over an update's experience; returns the figures of that."""
        metrics: Metrics = {}
        if self._cloning is not None:
            metrics |= self._cloning.update(self.steps)
            self.policy.forget_actor()
        # Counted only now: this update's rates are those of the steps before it.
        self.steps += num_actions
        # Only after the update: its values and the policy that acted saw the same normalization.
        for network in self._networks.values():
            if network.normalizer is not None:
                for trajectories in experience:
                    self._include(trajectories, network.normalizer)
        for signal in self.signals:
            metrics |= signal.update(experience, self.generator)
        learned = [*self._networks.values(), *models_of(self.signals)]
        refuse_non_finite(self.behavior, self.steps, *learned)
        return metrics

    def _valuation(self, return_steps: int | None = None) -> Valuation:
        """How what was added is valued."""
        memory = self.config.network_settings.memory
        return Valuation(
            self.network,
            self.acting_network or self.network,
            self._device,
            self.signals,
            lambd=self._hyper.lambd,
            return_steps=return_steps,
            time_horizon=self.config.time_horizon,
            sequence_length=None if memory is None else memory.sequence_length,
        )

    def state(self) -> dict[str, Tensor]:
        return self.learned() | pending(self._added)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        super().load_state(state)
        # Signals have seen it: what they keep of it is in their own state.
        self._added = pending_again(state)
