"""Proximal policy optimisation: a better policy from what the last one lived through, in small sure steps.

Source: Schulman et al. 2017, arXiv:1707.06347. Hyperparameters and their names follow ML-Agents 1.1.0
(`docs/training.md`); differences are listed there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from touchline.envs.slots import SlotRows
from touchline.policies.distributions import to_environment
from touchline.policies.structured import make_network
from touchline.specs import ActionTuple, BehaviorSpec
from touchline.training.config import BehaviorConfig
from touchline.training.returns import generalized_advantage
from touchline.training.rollout import ChosenActions, Experience

VALUE_LOSS_WEIGHT = 0.5
"""Source: ML-Agents 1.1.0, `ppo/optimizer_torch.py`."""


def clipped_surrogate(
    log_prob: Float[Tensor, " B"],
    old_log_prob: Float[Tensor, " B"],
    advantage: Float[Tensor, " B"],
    epsilon: float,
) -> Float[Tensor, ""]:
    """The objective to maximise, L^CLIP: gains count only while the policy stays near the old one.

    L = E[min(r A, clip(r, 1 − ε, 1 + ε) A)] with r = π(a|s) / π_old(a|s).

    Source: Schulman et al. 2017, arXiv:1707.06347, equation 7.
    """
    ratio = torch.exp(log_prob - old_log_prob)
    return torch.minimum(ratio * advantage, ratio.clamp(1.0 - epsilon, 1.0 + epsilon) * advantage).mean()


def clipped_surrogate_gradient(
    log_prob: Float[Tensor, " B"],
    old_log_prob: Float[Tensor, " B"],
    advantage: Float[Tensor, " B"],
    epsilon: float,
) -> Float[Tensor, " B"]:
    """∂L/∂log π of `clipped_surrogate`: r A / B where the ratio may still move that way, else 0.

    Written out because a gradient step of a small network costs calls, not arithmetic.
    """
    ratio = torch.exp(log_prob - old_log_prob)
    free = torch.where(advantage > 0, ratio < 1.0 + epsilon, ratio > 1.0 - epsilon)
    return ratio * advantage * free / len(advantage)


def linear_schedule(start: float, end: float, progress: float) -> float:
    """From `start` to `end` as `progress` goes from 0 to 1, and no further."""
    return start + (end - start) * min(max(progress, 0.0), 1.0)


@dataclass(frozen=True)
class UpdateStats:
    """What one update did, measured over all its experiences after the last gradient step."""

    policy_loss: float
    """−L^CLIP."""
    value_loss: float
    """Mean squared distance of the values from their targets."""
    entropy: float
    """Of the policy, in nats."""
    clip_fraction: float
    """Share of actions whose ratio left 1 ± ε."""
    kl: float
    """Approximate KL divergence from the policy that acted: E[r − 1 − log r] (Schulman 2020)."""
    value_estimate: float
    """Mean value before the update."""
    learning_rate: float
    epsilon: float
    beta: float


@dataclass(frozen=True)
class _Batch:
    """M experiences side by side, ready to learn from."""

    obs: Float[Tensor, "M O"]
    allowed: Tensor | None
    continuous: Float[Tensor, "M C"]
    discrete: Tensor
    log_prob: Float[Tensor, " M"]
    advantage: Float[Tensor, " M"]
    target: Float[Tensor, " M"]

    def at(self, rows: Tensor | slice) -> "_Batch":
        allowed = None if self.allowed is None else self.allowed[rows]
        rest = (self.continuous[rows], self.discrete[rows], self.log_prob[rows], self.advantage[rows])
        return _Batch(self.obs[rows], allowed, *rest, self.target[rows])

    @staticmethod
    def joined(batches: "Sequence[_Batch]") -> "_Batch":
        parts: Any = zip(*(vars(b).values() for b in batches), strict=True)
        return _Batch(*(None if part[0] is None else torch.cat(part) for part in parts))  # type: ignore[arg-type]


class PPO:
    """Learns one behavior: acts for its slots, and improves from experience."""

    def __init__(self, behavior: str, spec: BehaviorSpec, config: BehaviorConfig, seed: int) -> None:
        self.behavior = behavior
        self.config = config
        self.steps = 0
        """Agent steps learned from so far."""
        self.generator = torch.Generator().manual_seed(seed)
        settings = config.network_settings
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = make_network(
                spec,
                hidden_units=settings.hidden_units,
                num_layers=settings.num_layers,
                normalize=settings.normalize,
            )
        self._parameters = list(self.network.parameters())
        self._flat = _flattened(self._parameters)
        self.optimizer = torch.optim.Adam([self._flat], lr=config.hyperparameters.learning_rate, fused=True)

    @property
    def progress(self) -> float:
        """Share of the behavior's steps that are done, 0 to 1."""
        return min(1.0, self.steps / self.config.max_steps)

    @torch.inference_mode()
    def act(self, rows: SlotRows) -> tuple[ActionTuple, ChosenActions]:
        """What all N slots do (only deciding ones matter), as the world sees it and as the learner keeps it."""
        obs = self.network.normalized(_tensor(rows.obs))
        allowed = None if rows.action_mask is None else torch.from_numpy(rows.action_mask)
        second = () if rows.second_mask is None else (torch.from_numpy(rows.second_mask),)
        distribution = self.network.distribution(obs, allowed, *second)
        if self.config.network_settings.deterministic:
            continuous, discrete = distribution.mode()
        else:
            continuous, discrete = distribution.sample(self.generator)
        seen = ActionTuple(to_environment(continuous).numpy(), discrete.numpy())
        return seen, ChosenActions(continuous.numpy(), discrete.numpy())

    def learn(self, experiences: Sequence[Experience]) -> UpdateStats:
        """One update: some epochs of small steps over the experiences of all slots."""
        hyper = self.config.hyperparameters
        rates = self._rates()
        self.optimizer.param_groups[0]["lr"] = rates["learning_rate"]
        batch, value_estimate = self._batch(experiences)
        for _ in range(hyper.num_epoch):
            shuffled = batch.at(torch.randperm(len(batch.target), generator=self.generator))
            for part in _minibatches(shuffled, hyper.batch_size):
                self._gradient_step(part, rates["epsilon"], rates["beta"])
        stats = self._stats(batch, value_estimate, rates)
        self.steps += len(batch.target)
        if self.network.normalizer is not None:  # only now, so that the policy that learned is the one that acted
            for e in experiences:
                self.network.normalizer.update(torch.from_numpy(e.obs[:-1][e.valid]))
        return stats

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on learning from here."""
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        adam = self.optimizer.state.get(self._flat, {})
        tensors |= {f"optimizer.{name}": value for name, value in adam.items()}
        return tensors | {"generator": self.generator.get_state()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave, in a learner of the same behavior and configuration."""

        def part(name: str) -> dict[str, Tensor]:
            return {k.removeprefix(name): v.clone() for k, v in state.items() if k.startswith(name)}

        self.network.load_state_dict(part("network."))
        if adam := part("optimizer."):
            self.optimizer.state[self._flat] = adam
        self.generator.set_state(state["generator"])

    def _gradient_step(self, part: _Batch, epsilon: float, beta: float) -> None:
        """Descend −L^CLIP + ½ (V − target)² − β H; the first step of the chain rule is written out."""
        distribution, value = self.network(part.obs, part.allowed)
        log_prob = distribution.log_prob(part.continuous, part.discrete)
        entropy = distribution.entropy(part.discrete)
        with torch.no_grad():
            to_log_prob = -clipped_surrogate_gradient(log_prob, part.log_prob, part.advantage, epsilon)
            to_value = (value - part.target) * (2.0 * VALUE_LOSS_WEIGHT / len(part.target))
            to_entropy = torch.full_like(entropy, -beta)
        gradients = torch.autograd.grad(
            (log_prob, value, entropy), self._parameters, (to_log_prob, to_value, to_entropy)
        )
        flat = torch.cat([g.reshape(-1) for g in gradients])
        self._flat.grad = flat * torch.clamp(self.config.hyperparameters.max_grad_norm / (flat.norm() + 1e-6), max=1.0)
        self.optimizer.step()

    @torch.inference_mode()
    def _batch(self, experiences: Sequence[Experience]) -> tuple[_Batch, float]:
        """Advantages and value targets, slot by slot in order of time; only then everything side by side."""
        batches, values = zip(*(self._judged(e) for e in experiences), strict=True)
        batch = batches[0] if len(batches) == 1 else _Batch.joined(batches)
        advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
        return replace(batch, advantage=advantage), float(torch.cat(values).mean())

    def _judged(self, e: Experience) -> tuple[_Batch, Tensor]:
        network, signal = self.network, self.config.reward_signals["extrinsic"]
        obs = network.normalized(torch.from_numpy(e.obs))  # [T + 1, N, O]
        value = network.value(obs.flatten(0, 1)).view(obs.shape[:2]).numpy()
        final_value = network.value(network.normalized(torch.from_numpy(e.final_obs))).numpy()
        next_value = np.take_along_axis(value, e.value_row, axis=0)
        ended = e.final >= 0
        next_value[ended] = final_value[e.final[ended]]
        advantage = generalized_advantage(
            reward=e.reward * np.float32(signal.strength),
            value=value[:-1],
            next_value=next_value,
            terminated=e.terminated,
            truncated=e.truncated | e.horizon_cut,
            valid=e.valid,
            discount=signal.gamma,
            gae_lambda=self.config.hyperparameters.lambd,
        )

        def chosen(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(array[e.valid])

        seen = obs[:-1][torch.from_numpy(e.valid)]
        allowed = None if e.action_mask is None else chosen(e.action_mask)
        continuous, discrete = chosen(e.continuous), chosen(e.discrete)
        old_log_prob = network.distribution(seen, allowed).log_prob(continuous, discrete)
        target = chosen(advantage + value[:-1])
        batch = _Batch(seen, allowed, continuous, discrete, old_log_prob, chosen(advantage), target)
        return batch, chosen(value[:-1])

    @torch.inference_mode()
    def _stats(self, batch: _Batch, value_estimate: float, rates: dict[str, float]) -> UpdateStats:
        distribution, value = self.network(batch.obs, batch.allowed)
        log_prob = distribution.log_prob(batch.continuous, batch.discrete)
        log_ratio = log_prob - batch.log_prob
        ratio = torch.exp(log_ratio)
        return UpdateStats(
            policy_loss=-float(clipped_surrogate(log_prob, batch.log_prob, batch.advantage, rates["epsilon"])),
            value_loss=float((value - batch.target).square().mean()),
            entropy=float(distribution.entropy(batch.discrete)),
            clip_fraction=float(((ratio - 1.0).abs() > rates["epsilon"]).float().mean()),
            kl=float((ratio - 1.0 - log_ratio).mean()),
            value_estimate=value_estimate,
            **rates,
        )

    def _rates(self) -> dict[str, float]:
        """Learning rate, clip range and entropy weight now; the floors are ML-Agents'."""
        hyper = self.config.hyperparameters

        def now(start: float, floor: float, schedule: str | None) -> float:
            return start if schedule == "constant" else max(floor, linear_schedule(start, 0.0, self.progress))

        return {
            "learning_rate": now(hyper.learning_rate, 1e-10, hyper.learning_rate_schedule),
            "epsilon": now(hyper.epsilon, 0.1, hyper.epsilon_schedule),
            "beta": now(hyper.beta, 1e-5, hyper.beta_schedule),
        }


def _minibatches(batch: _Batch, size: int) -> Iterator[_Batch]:
    """Pieces of `size` experiences; a rest smaller than that waits for the next shuffle, unless it is all."""
    total = len(batch.target)
    for start in range(0, max(total - size, 0) + 1, size):
        yield batch.at(slice(start, start + size))


def _flattened(parameters: list[torch.nn.Parameter]) -> torch.nn.Parameter:
    """One long parameter that the others become views of, so that the optimiser makes one call for all."""
    flat = torch.nn.Parameter(torch.cat([p.detach().reshape(-1) for p in parameters]))
    for p, piece in zip(parameters, torch.split(flat.data, [p.numel() for p in parameters]), strict=True):
        p.data = piece.view_as(p)
    return flat


def _tensor(obs: tuple[np.ndarray, ...]) -> Tensor:
    return torch.from_numpy(obs[0] if len(obs) == 1 else np.concatenate(obs, axis=1))
