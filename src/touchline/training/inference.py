"""Acting without learning: `--inference`. Nothing is written.

`mlagents-learn` does this until Ctrl-C; here it also ends when every behavior has acted `max_steps`
times.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.log import Log
from touchline.policies.files.run_layout import RunLayout
from touchline.policies.loading import as_trained, load_policies
from touchline.specs import BehaviorSpec, base_name
from touchline.training.collect.collector import Lineup, Seat
from touchline.training.collect.local import LocalCollector
from touchline.training.config.settings import BehaviorConfig, RunConfig
from touchline.training.curriculum import Curriculum
from touchline.training.run.folder import read_resume_point
from touchline.training.run.stopwatch import Stopwatch
from touchline.training.warm_start import first_checkpoint
from touchline.training.world import open_slots


def act_only(
    config: RunConfig, recipe: EnvRecipe, log: Log, notes: Sequence[str] = ()
) -> None:
    """Act with the policies of a run: of this one with `resume`, else those it would start with."""
    seed = config.env_settings.seed
    seed = seed if seed >= 0 else random.SystemRandom().randrange(10_000)
    # Refuses a behavior without a trained policy.
    sources = [str(_source(config, name)) for name in config.behaviors]
    for note in notes:
        log(note)
    recipe = as_trained(recipe, dict.fromkeys(sources), log)
    parameters = dict(recipe.parameters) | _curriculum(config, log).values
    recipe = EnvRecipe.parse(recipe, seed=seed, parameters=parameters)
    lineup = _TrainedPolicies(config, seed)
    with open_slots(recipe, config.env_settings, log) as slots:
        collector = LocalCollector(slots, lineup, Stopwatch())
        collector.reset(seed)
        while not lineup.all_done:
            # Nothing is wanted, so that nothing is kept for a learner.
            collection = collector.collect({})
            for name, results in collection.results.items():
                behavior = lineup.behaviors[base_name(name)]
                behavior.steps += results
                behavior.returns += collection.episodes[name].returns
            for behavior in lineup.behaviors.values():
                if behavior.summary_is_due or lineup.all_done:
                    behavior.summarize(log)


@dataclass
class _Behavior:
    """One behavior that acts."""

    name: str
    config: BehaviorConfig
    steps: int = 0
    returns: list[float] = field(default_factory=list)
    """Returns of the episodes that ended since the last summary."""
    last_summary: int = 0

    @property
    def summary_is_due(self) -> bool:
        return self.steps >= self.last_summary + self.config.summary_freq

    def summarize(self, log: Log) -> None:
        self.last_summary = self.steps
        result = "no episode ended"
        if self.returns:
            mean = np.mean(self.returns)
            spread = np.std(self.returns)
            result = f"return {mean:.3f} ± {spread:.3f} ({len(self.returns)} episodes)"
        self.returns = []
        log(f"{self.name}  {self.steps:,} steps without learning  {result}")


class _TrainedPolicies(Lineup):
    """The lineup: every behavior acts by its trained policy, and nothing is learned."""

    def __init__(self, config: RunConfig, seed: int) -> None:
        self.behaviors: dict[str, _Behavior] = {}
        self._config = config
        self._seed = seed
        self._seats: dict[str, Seat] = {}

    @property
    def all_done(self) -> bool:
        """Whether every behavior has acted for its steps; without behaviors, not yet."""
        behaviors = self.behaviors.values()
        return bool(behaviors) and all(b.steps >= b.config.max_steps for b in behaviors)

    def seat(self, behavior: str, spec: BehaviorSpec) -> Seat:
        if behavior in self._seats:
            return self._seats[behavior]
        name = base_name(behavior)
        settings = self._config.behavior(name)
        if settings is None:
            raise UsageError(
                f"the world has a behavior {name!r} without a configuration"
            )
        self.behaviors.setdefault(name, _Behavior(name, settings))
        loaded = load_policies(
            [str(_source(self._config, name))],
            {behavior: spec},
            deterministic=settings.network_settings.deterministic,
            # Another stream for each, or the teams of a behavior would draw the same noise.
            seed=self._seed + len(self._seats),
        )
        actor = loaded[behavior]
        seat = Seat(actor.policy, actor.generator, is_learned_from=False)
        return self._seats.setdefault(behavior, seat)


def _curriculum(config: RunConfig, log: Log) -> Curriculum:
    """The curriculum in the lessons that a resumed run had reached."""
    curriculum = Curriculum(config)
    settings = config.checkpoint_settings
    layout = RunLayout(Path(settings.results_dir, settings.run_id))
    if settings.resume and layout.resume_point.exists():
        _, metadata = read_resume_point(layout, log)
        curriculum.load_state(metadata["curriculum"])
    return curriculum


def _source(config: RunConfig, name: str) -> Path:
    settings = config.checkpoint_settings
    if settings.resume:
        folder = Path(settings.results_dir) / settings.run_id
        if not folder.is_dir():
            raise UsageError(f"{folder}: there is no run to resume")
        return folder
    path = first_checkpoint(config, name)
    if path is None:
        raise UsageError(
            f"--inference acts with trained networks, and {name} has none: "
            "add --resume or --initialize-from"
        )
    return path
