"""The behaviors of a run: enrolled when the world first shows them, restored when a run resumes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from touchline.envs.env import EnvRecipe
from touchline.envs.saved_state import Arrays, below, prefixed
from touchline.envs.slots import SlotRows
from touchline.errors import UsageError
from touchline.policies.nets.encoders import check_images
from touchline.specs import BehaviorSpec, base_name
from touchline.training.algorithms.learner import (
    Imitating,
    Learner,
    LearnerSetup,
    SettingError,
    learner_class,
)
from touchline.training.algorithms.threaded import Threaded
from touchline.training.behavior_names import check_names
from touchline.training.behavior_training import BehaviorTraining
from touchline.training.collect.collector import GameScores, Seat
from touchline.training.config.settings import BehaviorConfig, RunConfig
from touchline.training.run.experience import ExperienceFiles
from touchline.training.run.folder import RunFolder
from touchline.training.run.metrics import MetricsWriter
from touchline.training.run.process import interruptible
from touchline.training.self_play.lineup import LONG_WAIT, Roster, SelfPlay
from touchline.training.self_play.seating import GameReport
from touchline.training.warm_start import first_checkpoint, warm_start


class Enrollment:
    """A learner for each behavior (base name) that the world has shown."""

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        seed: int,
        device: torch.device,
        log: Callable[[str], None],
    ) -> None:
        self.device = device
        self.trainings: dict[str, BehaviorTraining] = {}
        self._config = config
        self._folder = folder
        self._seed = seed
        self._log = log
        self.self_play = SelfPlay(seed) if config.has_self_play else None
        self._has_warned = False
        self._shown: dict[str, None] = {}
        """Base names that the world has shown."""
        self.experience = ExperienceFiles(folder.layout)
        self._absent: dict[str, tuple[Mapping[str, Any], Arrays]] = {}
        """Counters and arrays of a resumed run's behaviors that the world has not shown yet."""

    @property
    def all_done(self) -> bool:
        """Whether every behavior has its steps; a world that has shown none is not done."""
        return bool(self.trainings) and all(t.is_done for t in self.trainings.values())

    def training(self, name: str, spec: BehaviorSpec) -> BehaviorTraining:
        """The training of a behavior, begun if this is the first time that it is shown."""
        if name not in self.trainings:
            self.trainings[name] = self._enroll(name, spec)
        return self.trainings[name]

    def start(self, specs: Mapping[str, BehaviorSpec], recipe: EnvRecipe) -> None:
        """Enroll what a world shows at first.

        Raises a UsageError where the configuration names a behavior that the world does not have.
        """
        if not recipe.kind.is_player:
            shown = map(base_name, specs)
            check_names(self._config, recipe.target, shown, all_are_shown=True)
        self._enroll_all(specs)
        if self.self_play is not None:
            self.self_play.require_opponents(specs)

    def begin(
        self, rows: Mapping[str, SlotRows], specs: Mapping[str, BehaviorSpec]
    ) -> None:
        """The worlds were restarted."""
        if self.self_play is not None:
            self._enroll_all(specs)
            self.self_play.begin(rows)

    def follow(
        self,
        rows: Mapping[str, SlotRows],
        specs: Mapping[str, BehaviorSpec],
        game_scores: GameScores,
    ) -> None:
        """Take note of what one step led to."""
        if self.self_play is not None:
            self._enroll_all(specs)
            self.self_play.follow(rows, game_scores)
            self._warn_of_endless_games(self.self_play.steps_without_end)

    def roster(self, behaviors: Sequence[str]) -> Roster | None:
        """Who plays in the games of collectors; None without self-play."""
        return None if self.self_play is None else self.self_play.roster(behaviors)

    def record_games(
        self,
        behaviors: Sequence[str],
        reports: Sequence[GameReport],
        playing: Sequence[Mapping[str, set[int]]],
    ) -> None:
        """Count what happened in the games of collectors."""
        if self.self_play is not None:
            self.self_play.record(behaviors, reports, playing)
            self._warn_of_endless_games(self.self_play.steps_without_end)

    def _warn_of_endless_games(self, steps: int) -> None:
        if steps >= LONG_WAIT and not self._has_warned:
            self._has_warned = True
            self._log(
                f"self_play: no game was over for {LONG_WAIT:,} decision steps, so opponents "
                "and ratings stay as they are; the world should end its agents' episodes"
            )

    def _enroll_all(self, specs: Mapping[str, BehaviorSpec]) -> None:
        self._shown |= dict.fromkeys(map(base_name, specs))
        for name, spec in specs.items():
            self.training(base_name(name), spec)

    def seat(self, behavior: str, spec: BehaviorSpec) -> Seat:
        """Every team acts by its behavior's own latest policy, unless self-play has another."""
        training = self.training(base_name(behavior), spec)
        learner = training.learner
        if self.self_play is not None and training.pool is not None:
            # Opponents may need other parts of the observations than the learner's network.
            return Seat(
                self.self_play.policy(behavior, learner.policy),
                learner.generator,
                is_learned_from=not training.is_done,
            )
        return Seat(
            learner.policy,
            learner.generator,
            is_learned_from=not training.is_done,
            compact=learner.policy.network.compact,
        )

    def _enroll(self, name: str, spec: BehaviorSpec) -> BehaviorTraining:
        self._shown[name] = None
        check_names(self._config, "the world", self._shown, all_are_shown=False)
        config = self._config.behavior(name)
        if config is None:
            configured = ", ".join(self._config.behaviors) or "none"
            raise UsageError(
                f"the world has a behavior {name!r} without a configuration; "
                f"configured: {configured}"
            )
        setup = LearnerSetup(name, spec, config, self._seed, self.device, self._log)
        try:
            _check_encoders(config, spec)
            learner: Learner = learner_class(config.trainer_type)(setup)
        except SettingError as error:
            place = self._config.place(name, error.key)
            raise UsageError(f"{place}: {error.why}") from None
        # A resumed behavior goes on with its own weights.
        start = None if name in self._absent else first_checkpoint(self._config, name)
        if start is not None:
            warm_start(learner, name, start, list(config.reward_signals))
            self._log(f"{name} starts with {start}")
        if isinstance(learner, Imitating) and name not in self._absent:
            # It may take minutes, and a behavior without a step has nothing to save yet.
            with interruptible():
                learner.clone_first()
        if config.threaded:
            learner = Threaded(learner, setup)
        pool = None
        if config.self_play is not None and self.self_play is not None:
            pool = self.self_play.enroll(
                name, spec, config.self_play, learner.policy, learner.steps
            )
        writer = MetricsWriter(self._folder.layout, name)
        training = BehaviorTraining(name, config, learner, writer)
        training.pool = pool
        if name in self._absent:
            try:
                with self._folder.refusing_broken_point():
                    training.restore(*self._absent[name])
                    self.experience.restore(name, learner)
            except BaseException:
                # `close` does not know this writer yet.
                writer.close()
                raise
            del self._absent[name]
        return training

    @property
    def learners(self) -> dict[str, Learner]:
        """The learners of the behaviors that the world has shown."""
        return {name: training.learner for name, training in self.trainings.items()}

    def arrays(self) -> Arrays:
        """The learners of all behaviors, those not shown yet included."""
        arrays: Arrays = {}
        for name, training in self.trainings.items():
            arrays |= prefixed(name, training.arrays())
        for name, (_, own) in self._absent.items():
            arrays |= prefixed(name, own)
        return arrays

    def counters(self) -> dict[str, Any]:
        """The counters of all behaviors, as plain values."""
        absent = {name: counters for name, (counters, _) in self._absent.items()}
        return absent | {name: t.counters() for name, t in self.trainings.items()}

    def restore(
        self, counters: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        """Go on from what `counters` and `arrays` gave, once the world shows each behavior."""
        for name, own in counters.items():
            self._absent[name] = own, below(name, arrays)

    def self_play_arrays(self) -> Arrays:
        """Pools, areas and who plays in them."""
        return {} if self.self_play is None else self.self_play.arrays()

    def self_play_counters(self) -> dict[str, Any] | None:
        """What else self-play needs to go on, as plain values; None without."""
        return None if self.self_play is None else self.self_play.counters()

    def restore_self_play(
        self, counters: Mapping[str, Any] | None, arrays: Arrays
    ) -> None:
        """Go on from what the two above gave; a run that had no self-play begins it."""
        if self.self_play is not None and counters is not None:
            self.self_play.restore(counters, arrays)

    def close(self) -> None:
        """Finish every behavior's files."""
        for training in self.trainings.values():
            training.writer.close()


def _check_encoders(config: BehaviorConfig, spec: BehaviorSpec) -> None:
    """Raises a SettingError for an encoder that is too large for an image, with its key."""
    if spec.network != "standard":
        return
    blocks = {"network_settings": config.network_settings}
    for name, signal in config.reward_signals.items():
        if (own := getattr(signal, "network_settings", None)) is not None:
            blocks[f"reward_signals.{name}.network_settings"] = own
    for block, settings in blocks.items():
        try:
            check_images(settings.vis_encode_type, spec)
        except UsageError as error:
            raise SettingError(f"{block}.vis_encode_type", str(error)) from None
