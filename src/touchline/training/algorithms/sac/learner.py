"""Soft actor-critic: every action is learned from many times, and uncertainty is paid for.

Reads in order: keep experience, draw a minibatch whenever one is due, descend the losses of
`loss.py`, let the targets follow, report.

Sources: Haarnoja et al. 2018, arXiv:1801.01290 and arXiv:1812.05905. Hyperparameters and their
names follow ML-Agents 1.1.0 (`docs/algorithms.md`); differences are listed there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from touchline.errors import UsageError
from touchline.policies.distributions import SquashedDistribution
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.nets.memory import Sequences
from touchline.policies.nets.normalizer import observation_figures
from touchline.policies.network import Obs, make_network
from touchline.policies.network_policy import NetworkPolicy
from touchline.training.algorithms.adam import Adam, FlatParameters
from touchline.training.algorithms.learned_state import (
    part_of,
    refuse_non_finite,
    restore,
    saved,
)
from touchline.training.algorithms.learner import (
    LearnerSetup,
    Metrics,
    SettingError,
    architecture_of,
    signal_setup,
)
from touchline.training.algorithms.sac.critics import Critic
from touchline.training.algorithms.sac.dense_passes import DensePasses
from touchline.training.algorithms.sac.loss import (
    Evaluation,
    LogTemperatures,
    Losses,
    PolicyDraw,
    chosen,
    entropy_bonus,
    expected,
    soft_value,
    target_entropies,
)
from touchline.training.algorithms.sac.passes import AutogradPasses, Memories, Passes
from touchline.training.algorithms.sac.settings import SACSettings
from touchline.training.algorithms.schedules import scheduled
from touchline.training.cloning import make_cloning
from touchline.training.experience.replay import (
    Replay,
    Sample,
    memory_bytes,
    row_bytes,
)
from touchline.training.experience.trajectories import Trajectories
from touchline.training.rewards.learned import Figures, LearnedSignal, models_of
from touchline.training.rewards.signal import RewardSignal, make_signals

if TYPE_CHECKING:
    from touchline.policies.files.official_weights import OfficialWeights

LONGEST_WAIT = 1024
"""Before the first gradient step, experience arrives in pieces of this many results."""
REFILL_BATCHES = 10
"""A replay that starts empty beside trained networks gets this many batches first."""


class SAC:
    """Learns one behavior; see `Learner` for the contract.

    Networks are on the setup's device. Random numbers are drawn on the CPU, so that a run has the
    same draws everywhere.
    """

    def __init__(self, setup: LearnerSetup) -> None:
        """Raises a UsageError for behaviors whose network has no squashed actions, and a
        SettingError for a replay that is larger than this machine's memory.
        """
        self.behavior = setup.behavior
        self.config = setup.config
        self.hyper = setup.hyperparameters(SACSettings)
        self.steps = 0
        self.generator = torch.Generator().manual_seed(setup.seed)
        for_signals = signal_setup(setup, self.hyper)
        signals = make_signals(setup.config.reward_signals, for_signals)
        self.signals: list[RewardSignal] = signals
        self._device = setup.device
        # A single step is how a file says that a behavior is not to learn.
        if 1 < setup.config.max_steps <= self.hyper.buffer_init_steps:
            setup.log(
                f"{self.behavior} will not learn: buffer_init_steps "
                f"{self.hyper.buffer_init_steps:,} leaves nothing of max_steps "
                f"{setup.config.max_steps:,}"
            )
        self._make_networks(setup)
        row = row_bytes(setup.spec, len(self.signals), self.network.memory_shape)
        _refuse_larger_than_memory(self.hyper.buffer_size, row)
        deterministic = setup.config.network_settings.deterministic
        self.policy = NetworkPolicy(
            self.network, deterministic=deterministic, device=setup.device
        )
        self._make_optimizers()
        self._cloning = make_cloning(
            setup, self.hyper, self.network, self._weights, self.generator
        )
        memory = setup.config.network_settings.memory
        length = None if memory is None else memory.sequence_length
        self.replay = Replay(self.hyper.buffer_size, sequence_length=length)
        self._added: list[tuple[str, Trajectories]] = []
        self._updates = 1
        """Gradient steps, counted from 1 as in ML-Agents."""
        self._signal_updates = 1
        """Those of reward signals, which have a rate of their own."""
        self._refills = False

    def _make_networks(self, setup: LearnerSetup) -> None:
        spec = setup.spec
        num_signals = len(self.signals)
        architecture = architecture_of(setup.config, squashed=True)
        # Initial weights come from torch's global generator; a program that calls us keeps its
        # own state.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(setup.seed)
            network = make_network(spec, architecture, num_signals)
            if not isinstance(network, ActorCritic):
                raise UsageError(
                    f"{self.behavior}: SAC cannot train the network {spec.network!r}; take ppo"
                )
            critics = [Critic(spec, architecture, num_signals) for _ in range(2)]
        self.network = network.to(setup.device)
        self.critics = nn.ModuleList(critics).to(setup.device)
        self._branches = spec.action_spec.discrete_branches
        self._continuous_size = spec.action_spec.continuous_size

    def _make_optimizers(self) -> None:
        own = self.network.parameters()
        self._weights = FlatParameters([*own, *_side_by_side(self.critics)])
        self._adam = Adam(self._weights.vector)
        # Targets follow a part of that vector: the critics' or the network's own.
        of_network = sum(p.numel() for p in self.network.parameters())
        if self.hyper.target_critics:
            critics = deepcopy(self.critics)
            self.target: nn.Module = critics
            self._followed = self._weights.vector[of_network:]
            self._target_weights = FlatParameters(_side_by_side(critics))
        else:
            self.target = deepcopy(self.network)
            self._followed = self._weights.vector[:of_network]
            self._target_weights = FlatParameters(self.target.parameters())
        make = DensePasses if DensePasses.fits(self.network) else AutogradPasses
        self._passes: Passes = make(
            self.network, self.critics, self.target, self._weights
        )
        count = bool(self._continuous_size) + len(self._branches)
        first = float(np.log(self.hyper.init_entcoef))
        self.log_temperatures = torch.full((count,), first, device=self._device)
        """ln α: of the continuous actions together, if there are any, then of each branch."""
        self._temperature_adam = Adam(self.log_temperatures)

    # experience

    @property
    def wanted(self) -> int:
        added = sum(t.num_results for _, t in self._added)
        return self._missing() - added

    def _missing(self) -> int:
        """Results until the next gradient step, or until the next piece before the first one."""
        hyper = self.hyper
        missing_steps = hyper.buffer_init_steps - self.steps
        missing_rows = self._needed - len(self.replay)
        missing = max(missing_steps, missing_rows)
        if missing > 0:
            return min(missing, LONGEST_WAIT)
        next_at = hyper.buffer_init_steps + hyper.steps_per_update * self._updates
        # One more, because a step is due when its number is exceeded, not reached (`update`).
        return max(1, int(next_at) + 1 - self.steps)

    @property
    def _needed(self) -> int:
        """Experiences without which nothing is learned."""
        if not self._refills:
            return self.hyper.batch_size
        some_batches = REFILL_BATCHES * self.hyper.batch_size
        enough = max(self.hyper.buffer_init_steps, some_batches)
        # A small buffer never holds more.
        return min(enough, self.hyper.buffer_size)

    @property
    def ready(self) -> bool:
        return bool(self._added) and self.wanted <= 0

    def add(self, team: str, trajectories: Trajectories) -> None:
        """All teams of a behavior are learned from alike."""
        self._added.append((team, trajectories))

    def _store(self) -> None:
        """Put what was added into the replay."""
        for team, trajectories in self._added:
            shape = (*trajectories.valid.shape, len(self.signals))
            columns = np.zeros(shape, np.float32)
            for column, signal in enumerate(self.signals):
                signal.observe(team, trajectories)
                # A signal that learns judges an action again whenever it is sampled.
                if not isinstance(signal, LearnedSignal):
                    reward = signal.reward(trajectories)
                    columns[..., column] = signal.strength * reward
            self.replay.add(team, trajectories, columns)
            self.steps += trajectories.num_results
            if self.network.normalizer is not None:
                seen = trajectories.obs[0][:-1][trajectories.valid]
                self.network.normalizer.update(torch.from_numpy(seen).to(self._device))
        self._added = []

    # learning

    def clone_first(self) -> None:
        """Imitate before the first step, where that is configured."""
        if self._cloning is not None:
            self._cloning.clone_first()
            self.policy.forget_actor()

    def update(self) -> Metrics:
        """No metrics where no gradient step was due yet."""
        self._store()
        hyper = self.hyper
        since = self.steps - hyper.buffer_init_steps
        # Updates are counted against steps, so that the ratio of both holds over the whole run
        # however unevenly experience arrives. As in ML-Agents
        # (`trainer/off_policy_trainer.py`).
        if self._refills:
            # What was not learned while the replay filled again is not caught up on.
            self._updates = max(1, int(since / hyper.steps_per_update))
            self._signal_updates = max(1, int(since / self._steps_per_signal_update))
        if since < 0 or len(self.replay) < self._needed:
            return {}
        self._refills = False
        found: list[Losses] = []
        cloned: Metrics = {}
        while since > hyper.steps_per_update * self._updates:
            sample = self.drawn()
            found.append(self.descend(sample))
            if self._cloning is not None:
                cloned = self._cloning.gradient_step(self.steps)
            self._updates += 1
        if not found:
            return {}
        self.policy.forget_actor()
        metrics = self._measured(found) | cloned | self._learn_rewards(since)
        seen = self._inputs(sample.obs)
        is_normalized = self.network.normalizer is not None
        metrics |= observation_figures(seen[0], is_normalized=is_normalized)
        # One sum over all weights, because a walk through the modules takes a tenth of a small
        # step; the walk follows where there is something to find, and names it.
        is_finite = bool(torch.isfinite(self._weights.vector.sum()))
        parts = [self.network.normalizer] if is_finite else [self.network, self.critics]
        own = [part for part in parts if part is not None]
        learned = models_of(self.signals)
        refuse_non_finite(self.behavior, self.steps, *own, *learned)
        return metrics

    @property
    def _steps_per_signal_update(self) -> float:
        own = self.hyper.reward_signal_steps_per_update
        return self.hyper.steps_per_update if own is None else own

    def _learn_rewards(self, since: int) -> Metrics:
        """Gradient steps of the signals that learn, on minibatches of their own."""
        learners = [s for s in self.signals if isinstance(s, LearnedSignal)]
        found: list[list[Figures]] = [[] for _ in learners]
        while since > self._steps_per_signal_update * self._signal_updates:
            for signal, steps in zip(learners, found, strict=True):
                drawn = self.replay.draw(self.hyper.batch_size, self.generator)
                transitions = self.replay.transitions(drawn)
                steps.append(signal.gradient_step(transitions, self.generator))
            self._signal_updates += 1
        metrics: Metrics = {}
        for signal, steps in zip(learners, found, strict=True):
            metrics |= signal.metrics(steps)
        return metrics

    def _rewards(self, place: NDArray[Any]) -> NDArray[np.float32]:
        """[B, S] of actions in the replay, as the signals judge them now."""
        rewards = self.replay.rewards(place)
        learners = [isinstance(signal, LearnedSignal) for signal in self.signals]
        if not any(learners):
            return rewards
        transitions = self.replay.transitions(place)
        for column, signal in enumerate(self.signals):
            if isinstance(signal, LearnedSignal):
                judged = signal.reward_of(transitions).numpy(force=True)
                rewards[:, column] = signal.strength * judged
        return rewards

    def drawn(self) -> Sample:
        """A minibatch of the replay."""
        return self.replay.sample(
            self.hyper.batch_size,
            [signal.discount for signal in self.signals],
            self.generator,
            return_steps=self.hyper.return_steps,
            ignores_ends=[signal.ignores_ends for signal in self.signals],
            rewards=self._rewards,
        )

    def descend(self, sample: Sample) -> Losses:
        """One gradient step; the targets follow."""
        passes = self._passes
        log_alpha = self.log_temperatures.detach().requires_grad_()
        noise = self._noise(len(sample))
        next_noise = self._noise(len(sample))
        with torch.set_grad_enabled(passes.uses_autograd):
            found = self.evaluated(sample, noise, next_noise)
            losses = self.losses(found, log_alpha)
        gradient = passes.descend(found, losses, log_alpha)
        rate = self._learning_rate()
        # Gradients are not clipped, as in ML-Agents.
        self._adam.step(self._weights.gradient, rate, float("inf"))
        self._temperature_adam.step(gradient, rate, float("inf"))
        # θ' ← (1 − τ) θ' + τ θ
        self._target_weights.vector.lerp_(self._followed, self.hyper.tau)
        return losses

    def losses(self, found: Evaluation, log_alpha: Tensor) -> Losses:
        """Of a minibatch."""
        temperatures = LogTemperatures.of(log_alpha, self._continuous_size)
        return Losses.of(found, temperatures)

    def evaluated(
        self, sample: Sample, noise: Tensor, next_noise: Tensor
    ) -> Evaluation:
        """What the networks make of a minibatch, with this noise [B, C] in the actions that are
        drawn for it.
        """
        alpha = LogTemperatures.of(self.log_temperatures, self._continuous_size)
        obs = self._inputs(sample.obs)
        allowed = self._moved(sample.allowed)
        sequences = self._sequences(sample)
        without_memory = self._empty(sequences)
        distribution, value = self._passes.policy(obs, allowed, sequences)
        assert isinstance(distribution, SquashedDistribution)
        noise = noise.to(self._device)
        draw = PolicyDraw.of(distribution, noise)
        taken = sample.continuous.to(self._device)
        drawn_q, taken_q = self._passes.q(obs, draw.continuous, taken, without_memory)
        choices = sample.discrete.to(self._device)
        entropies = target_entropies(self._branches, sample.allowed, len(sample))
        return Evaluation(
            distribution=distribution,
            noise=noise,
            draw=draw,
            drawn_q=drawn_q,
            num_climbed=len(drawn_q) if self.hyper.target_critics else 1,
            of_critics=[expected(q, draw.chances) for q in drawn_q],
            bonus=entropy_bonus(draw, alpha),
            taken=choices,
            taken_q=[chosen(q, choices, self._branches) for q in taken_q],
            target=self._target(sample, next_noise, alpha),
            value=value,
            target_entropies=entropies.to(self._device),
        )

    @torch.no_grad()
    def _target(
        self, sample: Sample, noise: Tensor, temperatures: LogTemperatures
    ) -> Tensor:
        """[B, S] the rewards, and the discounted value of what they led to."""
        obs = self._inputs(sample.next_obs)
        sequences = self._following(sample)
        if not self.hyper.target_critics:
            value = self._passes.target_value(obs, sequences)
        else:
            allowed = self._moved(sample.next_allowed)
            distribution = self._passes.following(obs, allowed, sequences)
            assert isinstance(distribution, SquashedDistribution)
            draw = PolicyDraw.of(distribution, noise.to(self._device))
            remembered = self._remembered(sample)
            q = self._passes.target_q(obs, draw.continuous, remembered)
            value = soft_value(q, draw, temperatures)
        if sample.last is not None:
            value = value[sample.last.to(self._device)]
        reward = self._moved(sample.reward)
        discount = self._moved(sample.discount)
        assert reward is not None
        assert discount is not None
        return reward + discount * value

    def _measured(self, found: list[Losses]) -> Metrics:
        """The figures of an update: losses averaged over its gradient steps."""

        def mean(values: list[Tensor]) -> float:
            return float(torch.stack([v.detach() for v in values]).mean())

        metrics = {
            "policy_loss": mean([losses.policy for losses in found]),
            "q1_loss": mean([losses.critics[0] for losses in found]),
            "q2_loss": mean([losses.critics[1] for losses in found]),
        }
        if not self.hyper.target_critics:
            metrics["value_loss"] = mean([losses.value for losses in found])
        for column, signal in enumerate(self.signals):
            values = [losses.expected[:, column].mean() for losses in found]
            metrics[f"{signal.name}_value"] = mean(values)
        metrics["entropy"] = mean([losses.entropy for losses in found])
        alpha = torch.exp(self.log_temperatures)
        split = int(self._continuous_size > 0)
        if split:
            metrics["continuous_entropy_coeff"] = float(alpha[0])
        if self._branches:
            metrics["discrete_entropy_coeff"] = float(alpha[split:].mean())
        return metrics | {"learning_rate": self._learning_rate()}

    def _learning_rate(self) -> float:
        progress = min(1.0, self.steps / self.config.max_steps)
        hyper = self.hyper
        schedule = hyper.learning_rate_schedule
        return scheduled(hyper.learning_rate, 1e-10, schedule, progress)

    # memory: the network's is stored, that of critics begins with each sequence, as in ML-Agents

    def _sequences(self, sample: Sample) -> Sequences | None:
        """The sequences of a minibatch, with what was remembered before each."""
        return None if sample.sequences is None else sample.sequences.to(self._device)

    def _empty(self, sequences: Sequences | None) -> Memories:
        """For each critic, the same sequences without anything remembered before them."""
        if sequences is None:
            return [None, None]
        nothing = torch.zeros_like(sequences.memory[:, :1])
        return [Sequences(sequences.length, nothing)] * 2

    def _following(self, sample: Sample) -> Sequences | None:
        """The sequences of what followed each action: memories are one step on."""
        sequences = self._sequences(sample)
        if sequences is None:
            return None
        obs = self._first_obs(sample)
        _, _, memory = self.network.step(obs, None, sequences.memory)
        return Sequences(sequences.length, memory)

    def _remembered(self, sample: Sample) -> Memories:
        """The same, with what the target of each critic remembers."""
        sequences = self._sequences(sample)
        if sequences is None:
            return [None, None]
        obs = self._first_obs(sample)
        continuous = sample.continuous.to(self._device)[sequences.first]
        found: list[Sequences | None] = []
        for critic in self.target.children():
            assert isinstance(critic, Critic)
            memory = critic.remembered(obs, continuous)
            found.append(Sequences(sequences.length, memory[:, None]))
        return found

    def _first_obs(self, sample: Sample) -> Obs:
        """What was observed at the first action of each sequence."""
        assert sample.sequences is not None
        first = sample.sequences.first
        return self._inputs(tuple(part[first] for part in sample.obs))

    def _inputs(self, obs: Obs) -> Obs:
        return self.network.normalized(tuple(part.to(self._device) for part in obs))

    def _moved(self, tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.to(self._device)

    def _noise(self, size: int) -> Tensor:
        shape = size, self._continuous_size
        return torch.randn(shape, generator=self.generator)

    # state

    @property
    def experience(self) -> Replay | None:
        """The replay, where `save_replay_buffer` says so."""
        return self.replay if self.hyper.save_replay_buffer else None

    def state(self) -> dict[str, Tensor]:
        """Keys that begin with `replay.` belong to `experience`, and are left out without it."""
        state = self.learned()
        if self.experience is None:
            return state
        state |= {f"replay.{name}": v for name, v in self.experience.state().items()}
        # Beside the replay: a run that starts with this checkpoint counts from 0.
        counters = [self._updates, int(self._refills), self._signal_updates]
        return state | {"replay.counters": torch.tensor(counters)}

    def learned(self) -> dict[str, Tensor]:
        learned = saved(self._networks(), self._adam, self.signals, self.generator)
        own = {"log": self.log_temperatures.clone(), **self._temperature_adam.state()}
        learned |= {f"temperature.{name}": v.cpu() for name, v in own.items()}
        return learned if self._cloning is None else learned | self._cloning.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Without a replay in it, one is filled before the next gradient step."""
        networks = self._networks()
        restore(state, networks, self._adam, self.signals, self.generator)
        own = part_of("temperature.", state)
        self.log_temperatures.copy_(own.pop("log"))
        self._temperature_adam.load_state(own)
        if self._cloning is not None:
            self._cloning.load_state(state)
        self.policy.forget_actor()
        kept = part_of("replay.", state) if self.hyper.save_replay_buffer else {}
        self._refills = not kept
        if kept:
            counters = kept.pop("counters").tolist()
            self._updates, self._refills = counters[0], bool(counters[1])
            self._signal_updates = counters[2]
            self.replay.load_state(kept)

    def official_networks(
        self, weights: OfficialWeights, signals: Sequence[str]
    ) -> dict[str, Tensor]:
        """What a file of ML-Agents holds; see `TakesOfficialNetworks`."""
        from touchline.training.algorithms.sac.official import official_networks

        return official_networks(
            self.network,
            self.critics,
            weights,
            signals,
            target_critics=self.hyper.target_critics,
        )

    def _networks(self) -> dict[str, nn.Module]:
        return {
            "network": self.network,
            "critics": self.critics,
            "target": self.target,
        }


def _side_by_side(critics: nn.ModuleList) -> Iterator[nn.Parameter]:
    """The first weight of all critics, then the second: `DensePasses` takes each as one array."""
    for equal in zip(*(critic.parameters() for critic in critics), strict=True):
        yield from equal


def _refuse_larger_than_memory(buffer_size: int, row: int) -> None:
    memory, needed = memory_bytes(), buffer_size * row
    if memory is not None and needed > memory:
        raise SettingError(
            "hyperparameters.buffer_size",
            f"{buffer_size:,} experiences of {row:,} bytes need {needed / 1e9:.1f} GB, more than "
            f"the {memory / 1e9:.1f} GB of this machine; take a smaller one",
        )
