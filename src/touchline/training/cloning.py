"""Behavioral cloning: a policy imitates demonstrated actions, whatever else it learns.

ML-Agents regresses the raw sample of a continuous action on the demonstrated one, but divides raw
actions by 3 before it sends them, so that an agent does a third of what it was shown. Here actions
are compared in the scale in which they are sent. Stored masks count; ML-Agents allows everything.

Source: ML-Agents 1.1.0, `torch_entities/components/bc/module.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from touchline.errors import NonFiniteError, UsageError
from touchline.policies.distributions import (
    CONTINUOUS_LIMIT,
    ActionDistribution,
    SquashedDistribution,
)
from touchline.policies.nets.memory import Sequences
from touchline.policies.network import Distribution, Network, side_by_side
from touchline.training.algorithms.adam import Adam, FlatParameters
from touchline.training.algorithms.learned_state import copied_part, saved
from touchline.training.algorithms.learner import LearnerSetup, Metrics, SettingError
from touchline.training.algorithms.settings import (
    MinibatchSettings,
    linear_schedule,
    scheduled,
)
from touchline.training.config.cloning_settings import CloningSettings
from touchline.training.demonstrations import Demonstration, read_demonstration

PASSES = 3
"""Passes of an update, and of a run that only clones, where nothing is configured."""
LEAST_RATE = 1e-10
"""Final value of a decaying learning rate. Source: as above."""
LINES = 5
"""Number of progress lines while cloning before the first step."""


def imitation_loss(
    sent: Float[Tensor, "B C"],
    shown: Float[Tensor, "B C"],
    log_probs: Sequence[Float[Tensor, "B _"]],
    choices: Int[Tensor, "B D"],
) -> Float[Tensor, ""]:
    """E[(a − a*)²] over agents and continuous actions + E[−log π(b*)] over agents and branches.

    Source: as above.
    """
    loss = sent.new_zeros(())
    if sent.shape[1]:
        loss = loss + (sent - shown).square().mean()
    if len(log_probs):
        chosen = [
            of_branch.gather(1, choices[:, branch : branch + 1])
            for branch, of_branch in enumerate(log_probs)
        ]
        loss = loss - torch.cat(chosen, dim=1).mean()
    return loss


def kl_from(clone: ActionDistribution, policy: ActionDistribution) -> Float[Tensor, ""]:
    """KL(clone ‖ policy), averaged over agents; the parts of an action are independent."""
    # ln σ − ln σ* + (σ*² + (μ* − μ)²) / 2σ² − ½ of each continuous action, Σ p* (ln p* − ln p) of
    # each branch.
    spread = policy.log_std - clone.log_std
    ratio = torch.exp(-2.0 * spread)
    distance = (clone.mean - policy.mean) * torch.exp(-policy.log_std)
    total = (spread + 0.5 * (ratio + distance.square() - 1.0)).sum(dim=1).mean()
    for own, other in zip(clone.log_probs, policy.log_probs, strict=True):
        total = total + (torch.exp(own) * (own - other)).sum(dim=1).mean()
    return total


def make_cloning(
    setup: LearnerSetup,
    hyper: MinibatchSettings,
    network: Network,
    weights: FlatParameters,
    generator: torch.Generator,
) -> Cloning | None:
    """The imitation of a behavior's `behavioral_cloning` block; None without one.

    Raises a SettingError for demonstrations that cannot be read, or are of another game.
    """
    settings = setup.config.behavioral_cloning
    if settings is None:
        return None
    if setup.spec.action_spec.staged:
        raise SettingError(
            "behavioral_cloning",
            "actions whose later branches depend on the first cannot be cloned",
        )
    try:
        demonstration = read_demonstration(
            settings.demo_path,
            setup.spec,
            behavior=setup.behavior,
            pairing=settings.demo_actions,
        )
    except UsageError as error:
        raise SettingError("behavioral_cloning.demo_path", str(error)) from None
    for line in demonstration.lines:
        setup.log(line)
    return Cloning(setup, settings, hyper, network, weights, generator, demonstration)


class Cloning:
    """Moves the weights of a learner's network towards a demonstration, with an Adam of its own.

    Random numbers are drawn from the learner's generator.
    """

    def __init__(
        self,
        setup: LearnerSetup,
        settings: CloningSettings,
        hyper: MinibatchSettings,
        network: Network,
        weights: FlatParameters,
        generator: torch.Generator,
        demonstration: Demonstration,
    ) -> None:
        config = setup.config
        self.settings = settings
        self._behavior, self._log, self._device = (
            setup.behavior,
            setup.log,
            setup.device,
        )
        self._only_clones = config.max_steps == 0
        self._network, self._weights, self._generator = network, weights, generator
        self._adam = Adam(weights.vector)
        self._first_rate = hyper.learning_rate * self.settings.strength
        self._clone: Any = None
        """The network as it was when the first passes were done; None without a `clone_kl`."""
        memory = config.network_settings.memory
        self._examples = _Examples(
            demonstration,
            self.settings.batch_size or hyper.batch_size,
            None if memory is None else memory.sequence_length,
            network.memory_shape,
        )

    def clone_first(self) -> None:
        """Learn from the demonstrations before the first agent step, where that is configured."""
        # The normalizer sees them first.
        normalizer = self._network.normalizer
        if normalizer is not None:
            normalizer.update(self._examples.obs[0].to(self._device))
        examples, settings = self._examples, self.settings
        wanted = settings.first_passes * len(examples)
        if self._only_clones and not wanted:
            passes = settings.num_epoch or PASSES
            wanted = settings.steps or passes * len(examples)
        if not wanted:
            return
        fades = self._only_clones and settings.steps > 0
        schedule = "linear" if fades else "constant"
        done, num_steps, next_line, losses = 0, 0, wanted / LINES, list[Tensor]()
        while done < wanted:
            for rows, sequences in examples.minibatches(self._generator):
                rate = scheduled(self._first_rate, LEAST_RATE, schedule, done / wanted)
                losses.append(self._gradient_step(rows, sequences, rate))
                done += len(rows)
                num_steps += 1
                if done >= min(next_line, wanted):
                    loss = float(torch.stack(losses).mean())
                    self._log(
                        f"{self._behavior}: cloned from {done:,} actions in {num_steps:,} "
                        f"gradient steps, loss {loss:.5f}"
                    )
                    next_line, losses = done + wanted / LINES, []
                if done >= wanted:
                    break
        self._refuse_non_finite()
        if settings.clone_kl:
            self._clone = deepcopy(self._network)

    def update(self, steps: int) -> Metrics:
        """The passes that belong to an update of the learner, which has made this many steps."""
        if self.has_faded(steps):
            return {}
        rate, losses = self._rate(steps), list[Tensor]()
        for _ in range(self.settings.num_epoch or PASSES):
            left = self.settings.samples_per_update or len(self._examples)
            for rows, sequences in self._examples.minibatches(self._generator):
                losses.append(self._gradient_step(rows, sequences, rate))
                left -= len(rows)
                if left <= 0:
                    break
        self._refuse_non_finite()
        return {"pretraining_loss": float(torch.stack(losses).mean())}

    def has_faded(self, steps: int) -> bool:
        """Whether nothing is imitated any more; also where a `clone_kl` has taken its place."""
        settings = self.settings
        return settings.clone_kl > 0 or (0 < settings.steps <= steps)

    def leash_weight(self, steps: int) -> float:
        """The weight of KL(clone ‖ policy) in the learner's loss; it falls to 0.

        Source: Schmitt et al. 2018, arXiv:1803.03835, equation 3 (there a cross-entropy).
        """
        if self._clone is None:
            return 0.0
        return linear_schedule(self.settings.clone_kl, 0.0, steps / self.settings.steps)

    def leash(
        self, obs: Any, allowed: Tensor | None, sequences: Sequences | None
    ) -> Float[Tensor, ""]:
        """KL(clone ‖ policy) over a batch of normalized observations."""
        # The clone sees them as they are normalized now.
        with torch.no_grad():
            clone, _ = self._clone(obs, allowed, sequences)
        policy, _ = self._network(obs, allowed, sequences)
        if not isinstance(clone, ActionDistribution):
            raise SettingError(
                "behavioral_cloning.clone_kl",
                "is not known for policies that order the units of a board; leave it out",
            )
        assert isinstance(policy, ActionDistribution)
        return kl_from(clone, policy)

    # state

    def state(self) -> dict[str, Tensor]:
        """Adam's moments and the clone, on the CPU."""
        clone = {} if self._clone is None else {"clone": self._clone}
        return saved({"adam": self._adam, **clone})

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state` returned; from a run that did not clone, with a fresh Adam."""
        adam = copied_part("adam.", state)
        if adam:
            self._adam.load_state(adam)
        clone = copied_part("clone.", state)
        # Settings without a `clone_kl` have let it go.
        if clone and self.settings.clone_kl:
            self._clone = deepcopy(self._network)
            self._clone.load_state_dict(clone)

    # one gradient step

    def _rate(self, steps: int) -> float:
        fades = self.settings.steps > 0
        progress = steps / self.settings.steps if fades else 0.0
        return linear_schedule(self._first_rate, LEAST_RATE, progress)

    def _gradient_step(
        self, rows: Tensor, sequences: Sequences | None, rate: float
    ) -> Tensor:
        examples, device = self._examples, self._device
        obs = self._network.normalized(
            tuple(part[rows].to(device) for part in examples.obs)
        )
        allowed = examples.allowed
        allowed = None if allowed is None else allowed[rows].to(device)
        sequences = None if sequences is None else sequences.to(device)
        distribution, _ = self._network(obs, allowed, sequences)
        loss = self._loss(
            distribution,
            examples.continuous[rows].to(device),
            examples.discrete[rows].to(device),
        )
        self._weights.gradient_of(loss)
        # Gradients are not clipped, as in ML-Agents.
        self._adam.step(self._weights.gradient, rate, float("inf"))
        return loss.detach()

    def _loss(
        self, distribution: Distribution, shown: Tensor, choices: Tensor
    ) -> Float[Tensor, ""]:
        """The expected `imitation_loss` of an action drawn from the distribution."""
        if isinstance(distribution, SquashedDistribution):
            shape = distribution.mean.shape
            noise = torch.randn(shape, generator=self._generator).to(self._device)
            sent, _ = distribution.draw(noise)
            return imitation_loss(sent, shown, distribution.log_probs, choices)
        if not isinstance(distribution, ActionDistribution):
            # Orders to units: what is chosen for one cell decides what else counts there.
            return -distribution.log_prob(shown, choices).mean()
        sent = distribution.mean / CONTINUOUS_LIMIT
        loss = imitation_loss(sent, shown, distribution.log_probs, choices)
        if not sent.shape[1]:
            return loss
        # E[(μ + σε − a)²] = (μ − a)² + σ²
        return loss + torch.exp(2.0 * distribution.log_std).mean() / CONTINUOUS_LIMIT**2

    def _refuse_non_finite(self) -> None:
        if not bool(torch.isfinite(self._weights.vector).all()):
            raise NonFiniteError(
                f"{self._behavior}: cloning made weights NaN or infinite; a smaller strength of "
                "behavioral_cloning may help"
            )


class _Examples:
    """The actions of a demonstration as tensors on the CPU, to be drawn from."""

    def __init__(
        self,
        demonstration: Demonstration,
        batch_size: int,
        longest: int | None,
        memory_shape: tuple[int, int] | None,
    ) -> None:
        """`longest` is that of a sequence; None without a memory."""
        self.obs = tuple(
            torch.from_numpy(np.ascontiguousarray(part))
            for part in side_by_side(demonstration.obs)
        )
        allowed = demonstration.allowed
        self.allowed = None if allowed is None else torch.from_numpy(allowed)
        actions = demonstration.actions
        self.continuous = torch.from_numpy(actions.continuous)
        self.discrete = torch.from_numpy(actions.discrete.astype(np.int64))
        # A batch that is never full would keep `clone_first` from ending.
        self._batch_size = min(batch_size, len(demonstration))
        self._sequences: Sequences | None = None
        if longest is not None:
            length = _sequence_lengths(demonstration.lengths, longest)
            assert memory_shape is not None
            memory = torch.zeros(len(length), *memory_shape)
            self._sequences = Sequences(torch.from_numpy(length), memory)
            self._per_batch = max(1, batch_size // longest)

    def __len__(self) -> int:
        return len(self.discrete)

    def minibatches(
        self, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, Sequences | None]]:
        """Rows of all actions, shuffled, in pieces of the batch size; what is left over below that
        waits for the next shuffle. Sequences stay whole and begin with an empty memory.
        """
        if self._sequences is None:
            order = torch.randperm(len(self), generator=generator)
            whole = len(self) - len(self) % self._batch_size
            for rows in torch.split(order[:whole], self._batch_size):
                yield rows, None
            return
        order = torch.randperm(len(self._sequences), generator=generator)
        for chosen in torch.split(order, self._per_batch):
            yield self._sequences.at(chosen)


def _sequence_lengths(episodes: np.ndarray, longest: int) -> np.ndarray:
    """Episodes of these lengths in pieces of `longest` actions, or of what is left."""
    pieces = -(-episodes // longest)
    lengths = np.full(pieces.sum(), longest)
    lengths[np.cumsum(pieces) - 1] = episodes - (pieces - 1) * longest
    return lengths
