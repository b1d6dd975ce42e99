"""Learning while the world runs: ML-Agents' `threaded: true`, with the same result every time.

While a thread learns from one batch, the world plays the next one with a copy of the policy. New
weights reach that copy only where a batch is full, so neither the speed of a machine nor its
scheduler changes what a seed gives. The threads share no tensor and no generator: the copy has
weights, normalizer and random draws of its own.

The policy that acts is at most one version behind: update k learns from actions of version k - 1
or, where it had to be waited for, of version k.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor

from touchline.policies.network_policy import NetworkPolicy
from touchline.training.algorithms.learned_state import (
    copied_part,
    pending,
    pending_again,
)
from touchline.training.algorithms.learner import (
    Delayed,
    Learner,
    LearnerSetup,
    Metrics,
    Remembering,
)
from touchline.training.experience.replay import Replay
from touchline.training.experience.trajectories import Trajectories

_OWN = "threaded."
"""Keys of a state that belong to the thread: no part of what was learned."""
_NETWORK = "network."
_METRIC = "metric."


class Threaded:
    """A `Learner` around another one, whose updates run in a thread of their own.

    `steps` and `policy` are those of the latest update that was waited for: they change in
    `update` alone.
    """

    def __init__(self, learner: Learner, setup: LearnerSetup) -> None:
        self._learner = learner
        self._max_steps = setup.config.max_steps
        network = learner.policy.network
        self._network = deepcopy(network)
        """Acts."""
        deterministic = setup.config.network_settings.deterministic
        self.policy = NetworkPolicy(
            self._network, deterministic=deterministic, device=setup.device
        )
        # Another stream than the learner's, whose draws continue at the same time.
        stream = np.random.SeedSequence([setup.seed, 1]).generate_state(1)
        self.generator = torch.Generator().manual_seed(int(stream[0]))
        if isinstance(learner, Delayed):
            learner.acting_network = deepcopy(network)
        # A new thread would take OpenMP's own number of threads, and sums would differ.
        num_threads = torch.get_num_threads()
        self._thread = ThreadPoolExecutor(
            1, "learner", torch.set_num_threads, (num_threads,)
        )
        self._update: Future[Metrics] | None = None
        self._unreported: Metrics = {}
        """Figures of an update that is over, and whose weights do not act yet."""
        self._added: list[tuple[str, Trajectories]] = []
        self._steps = learner.steps
        self._wanted = learner.wanted
        self._has_learned = False
        """Whether the latest update that was waited for made gradient steps."""

    @property
    def steps(self) -> int:
        return self._steps

    @steps.setter
    def steps(self, steps: int) -> None:
        self._steps = steps
        # A run that began without threads: its resume point holds no other count.
        self._learner.steps = max(self._learner.steps, steps)

    @property
    def wanted(self) -> int:
        return self._wanted - self._num_added

    @property
    def ready(self) -> bool:
        return bool(self._added) and self.wanted <= 0

    @property
    def _num_added(self) -> int:
        return sum(trajectories.num_results for _, trajectories in self._added)

    def add(self, team: str, trajectories: Trajectories) -> None:
        # Kept here: the learner may be in the middle of an update.
        self._added.append((team, trajectories))

    def update(self) -> Metrics:
        """Begin to learn from what was added; returns the figures of the update before."""
        self._wait()
        learner = self._learner
        if isinstance(learner, Delayed) and learner.acting_network is not None:
            # Who acted in what was added last, before newer weights act.
            learner.acting_network.load_state_dict(self._network.state_dict())
        metrics = self._publish()
        # The last update has no next batch to run with. The first ones may only fill a replay,
        # and how much is wanted after that is known when they are over.
        is_last = learner.steps + self._num_added >= self._max_steps
        waits = is_last or not self._has_learned
        added = self._added
        self._added = []
        self._update = self._thread.submit(self._learn, added)
        if waits:
            self._wait()
            metrics |= self._publish()
        return metrics

    def _learn(self, added: list[tuple[str, Trajectories]]) -> Metrics:
        """In the thread."""
        for team, trajectories in added:
            self._learner.add(team, trajectories)
        return self._learner.update()

    def _wait(self) -> None:
        """Until no update runs; raises what it raised."""
        if self._update is None:
            return
        update = self._update
        self._update = None
        self._unreported = update.result()
        self._has_learned = bool(self._unreported)

    def _publish(self) -> Metrics:
        """Let the newest weights act; returns the figures of their update."""
        weights = self._learner.policy.network.state_dict()
        self._network.load_state_dict(weights)
        self.policy.forget_actor()
        self._steps = self._learner.steps
        self._wanted = self._learner.wanted
        metrics = self._unreported
        self._unreported = {}
        return metrics

    # state

    @property
    def experience(self) -> Replay | None:
        """The learner's, as `Remembering` has it."""
        self._wait()
        learner = self._learner
        return learner.experience if isinstance(learner, Remembering) else None

    def state(self) -> dict[str, Tensor]:
        """Waits for the update that runs. The network is the one that acts, as evaluated.

        Keys that begin with `threaded.` hold what runs at the same time.
        """
        self._wait()
        state = self._learner.state()
        own: dict[str, Tensor] = {"generator": self.generator.get_state()}
        for name, value in self._network.state_dict().items():
            key = _NETWORK + name
            own[key] = state[key]
            state[key] = value.cpu().clone()
        for name, figure in self._unreported.items():
            # As float64, so that a resumed run reports the same digits.
            own[_METRIC + name] = torch.tensor([figure], dtype=torch.float64)
        # The learner's own steps, which may be an update ahead of those that are published.
        counters = [self._learner.steps, self._wanted, int(self._has_learned)]
        own["counters"] = torch.tensor(counters)
        teams = [team for team, _ in self._added]
        # As bytes, because a state holds tensors alone.
        own["teams"] = torch.tensor(list("\n".join(teams).encode()), dtype=torch.uint8)
        own |= pending([trajectories for _, trajectories in self._added])
        return state | {_OWN + name: value for name, value in own.items()}

    def learned(self) -> dict[str, Tensor]:
        """Waits, too; with the network that acts."""
        self._wait()
        acting = self._network.state_dict().items()
        return self._learner.learned() | {
            _NETWORK + name: value.cpu().clone() for name, value in acting
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Also takes the state of a learner without a thread."""
        learned = {k: v for k, v in state.items() if not k.startswith(_OWN)}
        own = copied_part(_OWN, state)
        newest = {k: v for k, v in own.items() if k.startswith(_NETWORK)}
        self._learner.load_state(learned | newest)
        self._network.load_state_dict(copied_part(_NETWORK, learned))
        self.policy.forget_actor()
        self._wanted = self._learner.wanted
        if not own:
            return
        self.generator.set_state(own["generator"])
        steps, self._wanted, has_learned = own["counters"].tolist()
        self._learner.steps = steps
        self._has_learned = bool(has_learned)
        added = pending_again(own)
        teams = bytes(own["teams"].tolist()).decode().split("\n")
        # An empty text splits into one empty name.
        self._added = list(zip(teams, added, strict=True)) if added else []
        figures = copied_part(_METRIC, own)
        self._unreported = {name: float(value) for name, value in figures.items()}
