"""Proximal policy optimization: small, sure steps towards actions that did better than expected.

Reads in order: add values to experience, descend `ppo_loss` for some epochs, report.

Source: Schulman et al. 2017, arXiv:1707.06347. Hyperparameters and their names follow ML-Agents
1.1.0 (`docs/algorithms.md`); differences are listed there.
"""

import torch

from touchline.policies.network import make_network
from touchline.training.algorithms.batch import Batch
from touchline.training.algorithms.learner import LearnerSetup, Metrics, architecture_of
from touchline.training.algorithms.on_policy import (
    OnPolicyLearner,
    Rates,
    change_of,
    rates_at,
)
from touchline.training.algorithms.ppo.loss import (
    clipped_surrogate,
    output_gradients,
    ppo_loss,
)
from touchline.training.algorithms.ppo.settings import PPOSettings
from touchline.training.algorithms.valuation import with_values
from touchline.training.experience.columns import joined
from touchline.training.experience.trajectories import Trajectories

MEASURED_ACTIONS = 4096
"""Number of a buffer's actions from which the figures of an update are estimated. A pass over all
of them costs as much as a third of an epoch; over 4,096 the standard error of a mean is a
sixty-fourth of the spread."""


class PPO(OnPolicyLearner):
    """Learns one behavior; see `Learner` for the contract."""

    def __init__(self, setup: LearnerSetup) -> None:
        super().__init__(setup)
        self.hyper = setup.hyperparameters(PPOSettings)
        shared_critic = self.hyper.shared_critic
        has_bfloat16 = _has_bfloat16(setup.device)
        self._is_rounded = self.hyper.precision == "bfloat16" and has_bfloat16
        architecture = architecture_of(setup.config, shared_critic=shared_critic)
        # Initial weights come from torch's global generator; a program that calls us keeps its
        # own state.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(setup.seed)
            num_signals = len(self.signals)
            network = make_network(setup.spec, architecture, num_signals=num_signals)
        self._learn_with(setup, network.to(setup.device))

    def update(self) -> Metrics:
        experience = self._added
        self._added = []
        clips = self.hyper.clip_value_loss
        rates = rates_at(self.hyper, self._progress, clip_value_loss=clips)
        batch = self._batch(experience)
        sample = batch.sample(MEASURED_ACTIONS)
        too_far = self.hyper.target_kl
        for _ in range(self.hyper.num_epoch):
            self._epoch(batch, rates)
            if too_far is None:
                continue
            # The figure of one minibatch is too noisy to stop at.
            kl = self._measured(sample, rates)["kl"]
            if kl > too_far:
                break
        metrics = self._measured(sample, rates)
        metrics["advantage_std"] = self._advantage_std
        metrics |= self._observed(batch.obs)
        return metrics | self._end_update(experience, len(batch))

    def _epoch(self, batch: Batch, rates: Rates) -> None:
        """One pass over the batch in shuffled minibatches."""
        # Where the gradient is written out, recording for autograd would only cost time.
        needs_no_autograd = self.network.has_gradient and not self._leash_weight
        with torch.inference_mode(needs_no_autograd):
            for part in batch.minibatches(self.hyper.batch_size, self.generator):
                if self.hyper.advantage_normalization == "minibatch":
                    part = part.with_normalized_advantage()
                self._gradient_step(part, rates)
        # The policy holds matrices prepared from the old weights.
        self.policy.forget_actor()

    def _gradient_step(self, part: Batch, rates: Rates) -> None:
        weights = self._weights
        if self._leash_weight:
            assert self._cloning is not None
            leash = self._cloning.leash(part.obs, part.allowed, part.sequences)
            loss = ppo_loss(self.network, part, rates)
            weights.gradient_of(loss + self._leash_weight * leash)
        elif self.network.has_gradient:
            actions = (part.continuous, part.discrete)
            # The loss holds −β H, so its derivative by the entropy is −β.
            entropy_gradient = -rates.beta
            self.network.gradient(
                part.obs,
                part.allowed,
                actions,
                output_gradients(part, rates),
                entropy_gradient,
                weights.gradient_views,
                torch.bfloat16 if self._is_rounded else None,
            )
        else:
            loss = ppo_loss(self.network, part, rates)
            weights.gradient_of(loss)
        self._adam.step(weights.gradient, rates.learning_rate, self.hyper.max_grad_norm)

    @torch.inference_mode()
    def _batch(self, experience: list[Trajectories]) -> Batch:
        """Advantages and value targets, slot by slot in order of time; then side by side."""
        valuation = self._valuation(self.hyper.return_steps)
        batch = joined([with_values(valuation, own) for own in experience])
        self._advantage_std = float(batch.advantage.std(correction=0))
        # All teams together, as in ML-Agents (`trainer/on_policy_trainer.py`): normalized one
        # by one, a team that only lost would look as good as its opponents.
        if self.hyper.advantage_normalization == "batch":
            return batch.with_normalized_advantage()
        return batch

    @torch.inference_mode()
    def _measured(self, batch: Batch, rates: Rates) -> Metrics:
        """The figures of an update, over these of its actions, with the weights as they are now."""
        distribution, value = self.network(batch.obs, batch.allowed, batch.sequences)
        log_prob = distribution.log_prob(batch.continuous, batch.discrete)
        objective = clipped_surrogate(
            log_prob, batch.log_prob, batch.advantage, rates.epsilon
        )
        value_error = value - batch.target
        metrics = {
            "policy_loss": -float(objective),
            # Without the clip, even where the loss has it: figures of runs stay comparable.
            "value_loss": float(value_error.square().mean()),
            "entropy": float(distribution.entropy(batch.discrete)),
        }
        for column, signal in enumerate(self.signals):
            # Of the weights that acted, not of the present ones.
            estimate = batch.value[:, column].mean()
            metrics[f"{signal.name}_value_estimate"] = float(estimate)
        return metrics | change_of(log_prob, batch.log_prob, rates)

    @property
    def _leash_weight(self) -> float:
        """The weight of the distance to a clone in the loss; 0 without one."""
        if self._cloning is None:
            return 0.0
        return self._cloning.leash_weight(self.steps)


def _has_bfloat16(device: torch.device) -> bool:
    """Whether products of such numbers are fast there; PyTorch emulates them elsewhere."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    processor = torch.cpu.get_capabilities()
    return bool(processor.get("avx512_bf16") or processor.get("amx_bf16"))
