"""What a run costs here: it is trained as usual for some seconds, and its parts are timed."""

import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from touchline.envs.env import EnvRecipe
from touchline.log import silent
from touchline.operating_systems import removed_when_over
from touchline.specs import base_name
from touchline.training.collect.local import AnySlots, LocalCollector
from touchline.training.collect.opening import world_of
from touchline.training.config.settings import BehaviorConfig, RunConfig
from touchline.training.experience.trajectories import Trajectories
from touchline.training.run import process
from touchline.training.run.enrollment import Enrollment
from touchline.training.run.folder import RunFolder
from touchline.training.run.process import device_of
from touchline.training.run.seats import lineup_of
from touchline.training.run.stopwatch import Stopwatch
from touchline.training.world import open_slots

_NEVER = 10**12
"""Agent steps that no measurement reaches."""
# Updates are measured on buffers of about this size: what a step of learning costs does not depend
# on it.
_SMALL_BUFFER = 2048


@dataclass(frozen=True)
class Costs:
    """Seconds of each part of a run, for one decision step of all its agents."""

    simulation: float
    wire: float
    """0 without a player."""
    acting: float
    other: float
    """Slots, rollouts, counting."""
    learning: float
    """Seconds of learning from one decision step's actions."""
    agents: float
    """Actions that get a result, of one decision step."""
    shares: Mapping[str, float]
    """Base name -> its share of those actions."""
    bytes_per_action: float
    weight_bytes: float

    @property
    def collecting(self) -> float:
        """All but learning."""
        return self.simulation + self.wire + self.acting + self.other


def measure(config: RunConfig, recipe: EnvRecipe, seconds: float) -> Costs:
    """Train for a number of seconds, after a first update, and time the parts."""
    with tempfile.TemporaryDirectory(prefix="touchline-plan-") as results:
        # A second Ctrl-C ends this process at once, without the end of this block.
        over = removed_when_over(results)
        config = _small(config, results)
        about = {"seed": recipe.seed, "world": recipe.world, "target": recipe.target}
        folder = RunFolder(config, about)
        recipe = world_of(recipe, config, recipe.seed)
        world = open_slots(recipe, config.env_settings, silent)
        try:
            with process.tuned_process(config), folder, world as slots:
                device = device_of(config)
                enrollment = Enrollment(config, folder, recipe.seed, device, silent)
                try:
                    return _Measurement(slots, enrollment, recipe).run(seconds)
                finally:
                    enrollment.close()
        finally:
            for descriptor in over:
                os.close(descriptor)


def _small(config: RunConfig, results: str) -> RunConfig:
    """The same work for each action, with updates that come soon, and nothing saved."""
    files = {
        "results_dir": results,
        "run_id": "plan",
        "resume": False,
        "force": False,
        "initialize_from": None,
    }
    default = config.default_settings
    behaviors = {name: _small_behavior(b) for name, b in config.behaviors.items()}
    return config.model_copy(
        update={
            "checkpoint_settings": config.checkpoint_settings.model_copy(update=files),
            "default_settings": None if default is None else _small_behavior(default),
            "behaviors": behaviors,
        }
    )


def _small_behavior(behavior: BehaviorConfig) -> BehaviorConfig:
    own = {
        "hyperparameters": behavior.hyperparameters.with_early_updates(_SMALL_BUFFER),
        "max_steps": _NEVER,
        # In a thread, learning would run while other parts are timed, and slow them down.
        "threaded": False,
        "init_path": None,
    }
    return behavior.model_copy(update=own)


class _Measurement:
    """Collects and learns as a trainer does, and counts."""

    def __init__(
        self, slots: AnySlots, enrollment: Enrollment, recipe: EnvRecipe
    ) -> None:
        self._enrollment = enrollment
        self._stopwatch = Stopwatch()
        self._collector = LocalCollector(slots, lineup_of(enrollment), self._stopwatch)
        self._collector.reset(recipe.seed)
        enrollment.start(slots.behaviors, recipe)
        self._begin()

    def _begin(self) -> None:
        self._steps = 0
        self._updates = 0
        self._results: dict[str, int] = {}
        self._learned = 0
        self._bytes = 0
        self._before = self._stopwatch.seconds()

    def run(self, seconds: float) -> Costs:
        # What is compiled at the first step or update would count for many.
        self._go_on(seconds / 4, most_s=2 * seconds)
        self._begin()
        self._go_on(seconds, most_s=2 * seconds)
        return self._costs()

    def _go_on(self, seconds: float, most_s: float) -> None:
        """For so long, and until something was learned, but no longer than `most_s`."""
        began = time.monotonic()
        while True:
            took = time.monotonic() - began
            if took > most_s or (took > seconds and self._updates):
                return
            self._step()

    def _step(self) -> None:
        trainings = self._enrollment.trainings
        wanted = {name: t.learner.wanted for name, t in trainings.items()}
        collection = self._collector.collect(wanted)
        self._steps += 1
        for name, count in collection.results.items():
            base = base_name(name)
            self._results[base] = self._results.get(base, 0) + count
        for name, trajectories in collection.trajectories.items():
            self._bytes += _size(trajectories)
            self._learned += trajectories.num_results
            trainings[base_name(name)].learner.add(name, trajectories)
        ready = [t for t in trainings.values() if t.learner.ready]
        with self._stopwatch("learning"):
            for training in ready:
                training.update()
        self._updates += len(ready)

    def _costs(self) -> Costs:
        now = self._stopwatch.seconds()
        spent = {part: s - self._before.get(part, 0.0) for part, s in now.items()}
        results = sum(self._results.values())
        agents = results / self._steps
        learned = max(self._learned, 1)
        networks = [
            t.learner.policy.network for t in self._enrollment.trainings.values()
        ]
        parameters = [p for network in networks for p in network.parameters()]

        def each(part: str) -> float:
            return spent.get(part, 0.0) / self._steps

        return Costs(
            simulation=each("simulation"),
            wire=each("wire"),
            acting=each("inference"),
            other=each("other"),
            # Not of all that was collected: some of it was not learned from yet.
            learning=spent.get("learning", 0.0) / learned * agents,
            agents=agents,
            shares={name: n / max(results, 1) for name, n in self._results.items()},
            bytes_per_action=self._bytes / learned,
            weight_bytes=float(sum(p.numel() * p.element_size() for p in parameters)),
        )


def _size(trajectories: Trajectories) -> int:
    found = 0
    for value in vars(trajectories).values():
        parts = value if isinstance(value, tuple) else (value,)
        found += sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
    return found
