"""MA-POCA: each member of a group learns from what the group got more than it would have without.

A group is paid together, also after some of its members are gone. The critic sees all members; a
member's baseline is what the critic expects when it knows everything but that member's action.
Agents without a group are groups of one: for them this is PPO with TD(λ). MAPPO is the same with
the group's value as the baseline of all.

Reads in order: put experience on the groups' time lines, descend `group_loss`, report.

Source: Cohen et al. 2021, arXiv:2111.05992; Yu et al. 2022, arXiv:2103.01955. Hyperparameters and
their names follow ML-Agents 1.1.0 (`docs/algorithms.md`); differences are listed there.
"""

import numpy as np
import torch

from touchline.errors import UsageError
from touchline.policies.nets.group_critic import GroupCritic
from touchline.policies.network import NETWORKS, make_network
from touchline.training.algorithms.learner import LearnerSetup, Metrics, architecture_of
from touchline.training.algorithms.on_policy import (
    OnPolicyLearner,
    Rates,
    change_of,
    rates_at,
)
from touchline.training.algorithms.poca.batch import GroupBatch, join_batches
from touchline.training.algorithms.poca.lines import time_lines
from touchline.training.algorithms.poca.loss import group_loss
from touchline.training.algorithms.poca.settings import POCASettings
from touchline.training.algorithms.poca.valuation import GroupValuation, Moments
from touchline.training.algorithms.ppo.loss import clipped_surrogate
from touchline.training.experience.trajectories import Trajectories


class POCA(OnPolicyLearner):
    """Learns one behavior; see `Learner` for the contract."""

    def __init__(self, setup: LearnerSetup) -> None:
        """Raises a UsageError for observations that only a network of their own takes."""
        super().__init__(setup)
        name = setup.spec.network
        if name in NETWORKS and name != "standard":
            raise UsageError(
                f"trainer_type poca and mappo do not work with the network {name!r}; use "
                "trainer_type: ppo"
            )
        self.hyper = setup.hyperparameters(POCASettings)
        # The policy's network needs no critic of its own; a shared one is only a value head.
        architecture = architecture_of(setup.config, shared_critic=True)
        # `devices=[]`: weights are made on the CPU, so no GPU's generator needs to be put back.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(setup.seed)
            # The group's critic alone may see the state of the scene.
            network = make_network(setup.spec.observed, architecture)
            critic = GroupCritic(setup.spec, architecture, len(self.signals))
        self.critic = critic.to(setup.device)
        self._learn_with(setup, network.to(setup.device), critic=self.critic)

    def update(self) -> Metrics:
        experience = self._added
        self._added = []
        rates = rates_at(self.hyper, self._progress)
        batch = self._batch(experience)
        losses: Metrics = {}
        for _ in range(self.hyper.num_epoch):
            losses = self._epoch(batch, rates)
        metrics = self._measured(batch, rates) | losses
        metrics["advantage_std"] = self._advantage_std
        metrics |= self._observed(self.network.normalized(batch.own_obs))
        return metrics | self._end_update(experience, len(batch))

    def _epoch(self, batch: GroupBatch, rates: Rates) -> Metrics:
        """One pass over the batch in shuffled minibatches; the critic's mean losses in it."""
        losses: dict[str, list[float]] = {"value_loss": [], "baseline_loss": []}
        for part in batch.minibatches(self.hyper.batch_size, self.generator):
            loss = group_loss(
                self.network,
                self.critic,
                part,
                rates,
                counterfactual=self.hyper.counterfactual,
            )
            self._weights.gradient_of(loss.total)
            gradient = self._weights.gradient
            self._adam.step(gradient, rates.learning_rate, self.hyper.max_grad_norm)
            losses["value_loss"].append(float(loss.value.detach()))
            if loss.baseline is not None:
                losses["baseline_loss"].append(float(loss.baseline.detach()))
        self.policy.forget_actor()
        return {name: float(np.mean(found)) for name, found in losses.items() if found}

    @torch.inference_mode()
    def _batch(self, experience: list[Trajectories]) -> GroupBatch:
        """Everything added, on the time lines of its groups; then side by side."""
        valuation = GroupValuation(
            **vars(self._valuation()),
            critic=self.critic,
            counterfactual=self.hyper.counterfactual,
        )
        lines = [time_lines(trajectories) for trajectories in experience]
        num_members = [found.present.sum(axis=2) for found in lines]  # [T, L] each
        most = max(int(found.max(initial=1)) for found in num_members)
        # The critic scales group sizes by the largest group so far; the buffer is saved with
        # its weights.
        self.critic.most_members.clamp_(min=most)
        pairs = zip(experience, lines, strict=True)
        batch = join_batches([Moments(valuation, *pair).batch() for pair in pairs])
        self._advantage_std = float(batch.credited.advantage.std(correction=0))
        return batch.with_normalized_advantage()

    @torch.inference_mode()
    def _measured(self, batch: GroupBatch, rates: Rates) -> Metrics:
        """The figures of the policy over all actions, with the weights as they are now."""
        taken = batch.credited
        obs = self.network.normalized(batch.own_obs)
        distribution, _ = self.network(obs, taken.allowed, batch.actor_sequences)
        log_prob = distribution.log_prob(taken.continuous, taken.discrete)
        objective = clipped_surrogate(
            log_prob, taken.log_prob, taken.advantage, rates.epsilon
        )
        metrics = {
            "policy_loss": -float(objective),
            "entropy": float(distribution.entropy(taken.discrete)),
        }
        for column, signal in enumerate(self.signals):
            value = torch.dot(batch.value[:, column], batch.weight) / batch.weight.sum()
            metrics[f"{signal.name}_value_estimate"] = float(value)
            if self.hyper.counterfactual:
                baseline = float(taken.baseline[:, column].mean())
                metrics[f"{signal.name}_baseline_estimate"] = baseline
        return metrics | change_of(log_prob, taken.log_prob, rates)
