"""The behaviors of a run: enrolled when the world first shows them, restored when a run resumes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from touchline.envs.env import EnvRecipe
from touchline.envs.saved_state import Arrays, below, prefixed
from touchline.errors import UsageError
from touchline.log import Log
from touchline.policies.files.onnx_out import onnx_obstacle
from touchline.policies.nets.encoders import check_images
from touchline.policies.network import network_class
from touchline.specs import BehaviorSpec, Specs, base_name
from touchline.training.algorithms.learner import (
    Imitating,
    Learner,
    LearnerSetup,
    SettingError,
    learner_class,
)
from touchline.training.algorithms.threaded import Threaded
from touchline.training.behavior_training import BehaviorTraining
from touchline.training.config.settings import BehaviorConfig, RunConfig
from touchline.training.run.experience import ExperienceFiles
from touchline.training.run.folder import RunFolder
from touchline.training.run.metrics import MetricsWriter, tags_of
from touchline.training.run.process import interruptible
from touchline.training.self_play.lineup import SelfPlay
from touchline.training.warm_start import first_checkpoint, warm_start
from touchline.training.world import check_names


class Enrollment:
    """The training of each behavior (base name) that the world has shown."""

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        seed: int,
        device: torch.device,
        log: Log,
    ) -> None:
        self.config = config
        self.device = device
        self.log = log
        self.trainings: dict[str, BehaviorTraining] = {}
        self.self_play = SelfPlay(seed)
        """Without pools unless a behavior has the block `self_play`."""
        self.experience = ExperienceFiles(folder.layout)
        self._folder = folder
        self._seed = seed
        self._shown: dict[str, None] = {}
        """Base names that the world has shown."""
        self._absent: dict[str, tuple[Mapping[str, Any], Arrays]] = {}
        """Counters and arrays of a resumed run's behaviors that the world has not shown yet."""

    @property
    def all_done(self) -> bool:
        """Whether every behavior has its steps; a world that has shown none is not done."""
        return bool(self.trainings) and all(t.is_done for t in self.trainings.values())

    @property
    def learners(self) -> dict[str, Learner]:
        """The learners of the behaviors that the world has shown."""
        return {name: training.learner for name, training in self.trainings.items()}

    def start(self, specs: Specs, recipe: EnvRecipe) -> None:
        """Enroll what a world shows at first.

        Raises a UsageError where the configuration names a behavior that the world does not have.
        """
        # A player may show further behaviors later; their names are checked as they come.
        if not recipe.kind.is_player:
            shown = map(base_name, specs)
            check_names(self.config, recipe.target, shown, all_are_shown=True)
        self.enroll_all(specs)
        self.self_play.require_opponents(specs)

    def enroll_all(self, specs: Specs) -> None:
        """Enroll behaviors (full names) that were not seen before."""
        # All names first: a message about one of them lists the others.
        self._shown |= dict.fromkeys(map(base_name, specs))
        for name, spec in specs.items():
            self.training(base_name(name), spec)

    def training(self, name: str, spec: BehaviorSpec) -> BehaviorTraining:
        """The training of a behavior, begun if this is the first time that it is shown."""
        if name not in self.trainings:
            self.trainings[name] = self._enroll(name, spec)
        return self.trainings[name]

    def _enroll(self, name: str, spec: BehaviorSpec) -> BehaviorTraining:
        config = self._config_of(name)
        learner = self._new_learner(name, spec, config)
        writer = MetricsWriter(self._folder.layout, name, tags_of(config))
        training = BehaviorTraining(name, config, learner, writer)
        try:
            if name in self._absent:
                with self._folder.refusing_broken_point():
                    training.restore(*self._absent[name])
                    self.experience.restore(name, learner)
            if config.self_play is not None:
                # After the weights: the first snapshot of a new pool is a copy of them.
                pool = self.self_play.enroll(
                    name, spec, config.self_play, learner.policy, learner.steps
                )
                # A resumed behavior may have its steps already, and then it learns no more.
                pool.is_done = training.is_done
                training.pool = pool
        except BaseException:
            # `close` does not know this writer yet.
            writer.close()
            raise
        self._absent.pop(name, None)
        return training

    def _config_of(self, name: str) -> BehaviorConfig:
        self._shown[name] = None
        check_names(self.config, "the world", self._shown, all_are_shown=False)
        config = self.config.behavior(name)
        if config is None:
            configured = ", ".join(self.config.behaviors) or "none"
            raise UsageError(
                f"the world has a behavior {name!r} without a configuration; "
                f"configured: {configured}"
            )
        return config

    def _new_learner(
        self, name: str, spec: BehaviorSpec, config: BehaviorConfig
    ) -> Learner:
        try:
            spec = _with_network(spec, config)
            _check_encoders(config, spec)
            setup = LearnerSetup(name, spec, config, self._seed, self.device, self.log)
            learner: Learner = learner_class(config.trainer_type)(setup)
        except SettingError as error:
            place = self.config.place(name, error.key)
            raise UsageError(f"{place}: {error.why}") from None
        reason = onnx_obstacle(learner.policy.network)
        if reason:
            self.log(f"{name}: no ONNX file for Unity will be written: {reason}")
        if name not in self._absent:  # a resumed behavior has weights of its own
            start = first_checkpoint(self.config, name)
            if start is not None:
                warm_start(learner, name, start, list(config.reward_signals))
                self.log(f"{name} starts with {start}")
            if isinstance(learner, Imitating):
                # It may take minutes, and a behavior without a step has nothing to save yet.
                with interruptible():
                    learner.clone_first()
        return Threaded(learner, setup) if config.threaded else learner

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

    def restore(self, counters: Mapping[str, Any], arrays: Arrays) -> None:
        """Continue from saved counters and arrays, once the world shows each behavior."""
        for name, own in counters.items():
            self._absent[name] = own, below(name, arrays)

    def close(self) -> None:
        """Finish every behavior's files."""
        for training in self.trainings.values():
            training.writer.close()


def _with_network(spec: BehaviorSpec, config: BehaviorConfig) -> BehaviorSpec:
    """A spec that names the configured network. Raises a SettingError for one that is none."""
    name = config.network_settings.type
    if name is None:
        return spec
    try:
        network_class(name)
    except UsageError as error:
        raise SettingError("network_settings.type", str(error)) from None
    return replace(spec, network=name)


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
