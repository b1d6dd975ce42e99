"""Soft actor-critic: every action is learned from many times, and uncertainty is paid for.

Reads in order: keep experience, draw a minibatch whenever one is due, descend its losses, report.

Sources: Haarnoja et al. 2018, arXiv:1801.01290 and arXiv:1812.05905. Hyperparameters and their
names follow ML-Agents 1.1.0 (`docs/algorithms.md`); differences are listed there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from touchline.operating_systems import memory_bytes
from touchline.training.algorithms.learned_state import copied_part, refuse_non_finite
from touchline.training.algorithms.learner import LearnerSetup, Metrics, SettingError
from touchline.training.algorithms.network_learner import NetworkLearner
from touchline.training.algorithms.sac.descent import Descent
from touchline.training.algorithms.sac.loss import Losses
from touchline.training.algorithms.sac.networks import SoftNetworks
from touchline.training.algorithms.sac.settings import SACSettings
from touchline.training.algorithms.settings import scheduled
from touchline.training.experience.replay import Replay, Sample, row_bytes
from touchline.training.experience.trajectories import Trajectories
from touchline.training.rewards.learned import models_of
from touchline.training.rewards.signal import Rejudging, RewardSignal


class StepRate:
    """Gradient steps at a rate of agent steps, so that the ratio of both holds over a whole run
    however unevenly experience arrives. As in ML-Agents (`trainer/off_policy_trainer.py`).
    """

    def __init__(self, steps_per_update: float) -> None:
        self.steps_per_update = steps_per_update
        self.count = 1
        """Gradient steps, counted from 1 as in ML-Agents."""

    def is_due(self, since: int) -> bool:
        """Whether a gradient step is, this many agent steps after learning began."""
        return since > self.steps_per_update * self.count

    def skip_to(self, since: float) -> None:
        """Neither catch up on what was not learned until now, nor wait for what was."""
        self.count = max(1, int(since / self.steps_per_update))


class JudgedReplay:
    """A replay next to the reward signals of its learner.

    A signal that learns judges an action again whenever it is drawn, because what it thinks of old
    experience changes.
    """

    def __init__(
        self,
        hyper: SACSettings,
        signals: Sequence[RewardSignal],
        sequence_length: int | None,
        row_bytes: int,
    ) -> None:
        """Raises a SettingError for a replay that is larger than this machine's memory."""
        _refuse_larger_than_memory(hyper.buffer_size, row_bytes)
        self.replay = Replay(hyper.buffer_size, sequence_length=sequence_length)
        self.signals = signals
        self._learning = {
            column: signal
            for column, signal in enumerate(signals)
            if isinstance(signal, Rejudging)
        }
        self._hyper = hyper
        own = hyper.reward_signal_steps_per_update
        self.rate = StepRate(hyper.steps_per_update if own is None else own)
        """Rate of the signals' gradient steps."""

    def add(self, team: str, trajectories: Trajectories) -> None:
        """Keep the actions with the rewards that do not change."""
        columns = np.zeros((*trajectories.valid.shape, len(self.signals)), np.float32)
        for column, signal in enumerate(self.signals):
            signal.observe(team, trajectories)
            if column not in self._learning:
                reward = signal.reward(trajectories)
                columns[..., column] = signal.strength * reward
        self.replay.add(team, trajectories, columns)

    def draw(self, generator: torch.Generator) -> Sample:
        return self.replay.sample(
            self._hyper.batch_size,
            [signal.discount for signal in self.signals],
            generator,
            return_steps=self._hyper.return_steps,
            ignores_ends=[signal.ignores_ends for signal in self.signals],
            rewards=self.rewards,
        )

    def rewards(self, place: NDArray[Any]) -> NDArray[np.float32]:
        """[B, S] of actions in the replay, as the signals judge them now."""
        rewards = self.replay.rewards(place)
        if self._learning:
            transitions = self.replay.transitions(place)
            for column, signal in self._learning.items():
                judged = signal.reward_of(transitions).numpy(force=True)
                rewards[:, column] = signal.strength * judged
        return rewards

    def teach_signals(self, since: int, generator: torch.Generator) -> Metrics:
        """The gradient steps of the signals that are due, on minibatches of their own."""
        steps: dict[int, list[Any]] = {column: [] for column in self._learning}
        while self.rate.is_due(since):
            for column, signal in self._learning.items():
                drawn = self.replay.draw(self._hyper.batch_size, generator)
                transitions = self.replay.transitions(drawn)
                steps[column].append(signal.gradient_step(transitions, generator))
            self.rate.count += 1
        metrics: Metrics = {}
        for column, signal in self._learning.items():
            metrics |= signal.metrics(steps[column])
        return metrics


def _refuse_larger_than_memory(buffer_size: int, row: int) -> None:
    memory, needed = memory_bytes(), buffer_size * row
    if needed > memory:
        raise SettingError(
            "hyperparameters.buffer_size",
            f"{buffer_size:,} experiences of {row:,} bytes need {needed / 1e9:.1f} GB, more than "
            f"the {memory / 1e9:.1f} GB of this machine; take a smaller one",
        )


if TYPE_CHECKING:
    from touchline.policies.files.official_weights import OfficialWeights

LONGEST_WAIT = 1024
"""Before the first gradient step, experience arrives in pieces of this many results."""
REFILL_BATCHES = 10
"""A replay that starts empty next to trained networks gets this many batches first."""


class SAC(NetworkLearner):
    """Learns one behavior; see `Learner` for the contract."""

    def __init__(self, setup: LearnerSetup) -> None:
        self.hyper = setup.hyperparameters(SACSettings)
        super().__init__(setup, self.hyper)
        # A single step is how a file says that a behavior is not to learn.
        if 1 < setup.config.max_steps <= self.hyper.buffer_init_steps:
            setup.log(
                f"{self.behavior} will not learn: buffer_init_steps "
                f"{self.hyper.buffer_init_steps:,} leaves nothing of max_steps "
                f"{setup.config.max_steps:,}"
            )
        self.networks = SoftNetworks(
            setup, len(self.signals), target_critics=self.hyper.target_critics
        )
        actions = setup.spec.action_spec
        self.descent = Descent(self.hyper, actions, self.networks, setup.device)
        self._learn(
            setup,
            self.hyper,
            self.networks.named(),
            self.networks.weights,
            self.descent.adam,
            temperature=self.descent,
        )
        memory = setup.config.network_settings.memory
        self.judged = JudgedReplay(
            self.hyper,
            self.signals,
            None if memory is None else memory.sequence_length,
            row_bytes(setup.spec, len(self.signals), self.network.memory_shape),
        )
        self.replay = self.judged.replay
        self._added: list[tuple[str, Trajectories]] = []
        self._rate = StepRate(self.hyper.steps_per_update)
        self._refills = False
        """Whether the replay is to be filled again, next to networks that have learned."""

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
        next_at = hyper.buffer_init_steps + hyper.steps_per_update * self._rate.count
        # One more, because a step is due when its number is exceeded, not reached.
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
        for team, trajectories in self._added:
            self.judged.add(team, trajectories)
            self.steps += trajectories.num_results
            if self.network.normalizer is not None:
                self._include(trajectories, self.network.normalizer)
        self._added = []

    # learning

    def update(self) -> Metrics:
        """No metrics where no gradient step was due yet."""
        self._store()
        since = self.steps - self.hyper.buffer_init_steps
        if self._refills:
            self._skip(since)
        if since < 0 or len(self.replay) < self._needed:
            return {}
        self._refills = False
        found: list[Losses] = []
        cloned: Metrics = {}
        while self._rate.is_due(since):
            sample = self.drawn()
            found.append(self.descend(sample))
            if self._cloning is not None:
                # Whole passes next to each gradient step, as in ML-Agents; with one minibatch, the
                # critics undo what was imitated (`docs/lab_log.md`).
                cloned = self._cloning.update(self.steps)
            self._rate.count += 1
        if not found:
            return {}
        self.policy.forget_actor()
        metrics = self._measured(found) | cloned
        metrics |= self.judged.teach_signals(since, self.generator)
        metrics |= self._observed(self.network.normalized(sample.obs))
        self._refuse_non_finite()
        return metrics

    def drawn(self) -> Sample:
        return self.judged.draw(self.generator).to(self._device)

    def descend(self, sample: Sample) -> Losses:
        return self.descent.step(sample, self.generator, self.learning_rate)

    @property
    def learning_rate(self) -> float:
        hyper = self.hyper
        schedule = hyper.learning_rate_schedule
        return scheduled(hyper.learning_rate, 1e-10, schedule, self._progress)

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
        alpha = torch.exp(self.descent.log_temperatures)
        split = int(self.descent.continuous_size > 0)
        if split:
            metrics["continuous_entropy_coeff"] = float(alpha[0])
        if self.descent.branches:
            metrics["discrete_entropy_coeff"] = float(alpha[split:].mean())
        return metrics | {"learning_rate": self.learning_rate}

    def _refuse_non_finite(self) -> None:
        # One sum over all weights, because a walk through the modules takes a tenth of a small
        # step; the walk follows where there is something to find, and names it.
        is_finite = bool(torch.isfinite(self.networks.weights.vector.sum()))
        parts: list[Any] = [*models_of(self.signals), self.descent.log_temperatures]
        if not is_finite:
            parts += [self.network, self.networks.critics]
        elif self.network.normalizer is not None:
            parts.append(self.network.normalizer)
        refuse_non_finite(
            self.behavior,
            self.steps,
            *parts,
            advice="a smaller learning_rate, or another init_entcoef, may help",
        )

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
        counters = [self._rate.count, int(self._refills), self.judged.rate.count]
        return state | {
            "replay.counters": torch.tensor(counters),
            "replay.steps": torch.tensor(self.steps),
            "replay.pace": torch.tensor(self._pace, dtype=torch.float64),
        }

    @property
    def _pace(self) -> list[float]:
        """The settings that say how many gradient steps there are after so many agent steps."""
        rates = [self._rate.steps_per_update, self.judged.rate.steps_per_update]
        return [self.hyper.buffer_init_steps, *rates]

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Without a replay in it, one is filled before the next gradient step."""
        super().load_state(state)
        kept = copied_part("replay.", state) if self.hyper.save_replay_buffer else {}
        self._refills = not kept
        if kept:
            updates, refills, signal_updates = kept.pop("counters").tolist()
            self._rate.count, self.judged.rate.count = updates, signal_updates
            self._refills = bool(refills)
            # Earlier resume points do not hold their pace.
            steps = int(kept.pop("steps", 0))
            pace = kept.pop("pace", None)
            kept.pop("ratios", None)
            if pace is not None and pace.tolist() != self._pace:
                self._skip(steps - self.hyper.buffer_init_steps)
            self.replay.load_state(kept)

    def _skip(self, since: int) -> None:
        self._rate.skip_to(since)
        self.judged.rate.skip_to(since)

    def official_networks(
        self, weights: OfficialWeights, signals: Sequence[str]
    ) -> dict[str, Tensor]:
        """What a file of ML-Agents holds; see `TakesOfficialNetworks`."""
        return self.networks.from_official(weights, signals)
