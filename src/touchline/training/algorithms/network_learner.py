"""What learners share that learn the weights of a network: signals, draws, imitation, state."""

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from touchline.policies.nets.normalizer import observation_figures
from touchline.policies.network import Network, Obs
from touchline.policies.network_policy import NetworkPolicy
from touchline.training.algorithms.adam import Adam, FlatParameters
from touchline.training.algorithms.learned_state import restore, saved
from touchline.training.algorithms.learner import LearnerSetup, Metrics
from touchline.training.algorithms.settings import MinibatchSettings
from touchline.training.cloning import make_cloning
from touchline.training.experience.trajectories import Trajectories
from touchline.training.rewards.signal import SignalSetup, make_signals


class NetworkLearner:
    """A learner but for its experience and its update; see `Learner` for the contract.

    A subclass makes its networks between this `__init__` and `_learn`. They are on the setup's
    device; random numbers are drawn on the CPU, so that a run has the same draws everywhere.
    """

    network: Network
    policy: NetworkPolicy

    def __init__(
        self, setup: LearnerSetup, hyper: MinibatchSettings, num_epoch: int = 1
    ) -> None:
        """`num_epoch`: passes of the signals that learn, where their settings name none."""
        self.behavior = setup.behavior
        self.config = setup.config
        self.steps = 0
        self.generator = torch.Generator().manual_seed(setup.seed)
        for_signals = SignalSetup(
            behavior=setup.behavior,
            spec=setup.spec.observed,
            device=setup.device,
            seed=setup.seed,
            log=setup.log,
            batch_size=hyper.batch_size,
            num_epoch=num_epoch,
        )
        self.signals = make_signals(setup.config.reward_signals, for_signals)
        self._device = setup.device

    def _learn(
        self,
        setup: LearnerSetup,
        hyper: MinibatchSettings,
        networks: Mapping[str, Any],
        weights: FlatParameters,
        adam: Adam,
        **others: Any,
    ) -> None:
        """Act with the network of that name; `others` are parts of the state, too."""
        self.network = network = networks["network"]
        deterministic = setup.config.network_settings.deterministic
        self.policy = NetworkPolicy(
            network, deterministic=deterministic, device=setup.device
        )
        self._cloning = make_cloning(setup, hyper, network, weights, self.generator)
        of_signals = {f"signal.{signal.name}": signal for signal in self.signals}
        parts = {**networks, "optimizer": adam, **of_signals, **others}
        if self._cloning is not None:
            parts["cloning"] = self._cloning
        self._parts = parts
        """What is learned, by its name in a state."""

    def clone_first(self) -> None:
        if self._cloning is not None:
            self._cloning.clone_first()
            self.policy.forget_actor()

    @property
    def _progress(self) -> float:
        # The last update may end past `max_steps`.
        return min(1.0, self.steps / float(self.config.max_steps))

    def _include(self, trajectories: Trajectories, normalizer: Any) -> None:
        """Let a normalizer see what agents acted on."""
        # There is one row more than of actions: what the last ones led to.
        obs = trajectories.obs[0][:-1][trajectories.valid]
        observed = obs[:, : len(normalizer.mean)]  # not what critics alone see
        normalizer.update(self._tensor(observed))

    def _observed(self, obs: Obs) -> Metrics:
        """The figures of normalized observations."""
        is_normalized = self.network.normalizer is not None
        return observation_figures(obs[0], is_normalized=is_normalized)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def learned(self) -> dict[str, Tensor]:
        return saved(self._parts) | {"generator": self.generator.get_state()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        restore(state, self._parts)
        self.generator.set_state(state["generator"])
        self.policy.forget_actor()
