"""Settings of a training run, as frozen models: ML-Agents' YAML with a meaning under every key.

Keys, meanings and defaults are those of `mlagents-learn` 1.1.0. Each default is written once, here
or next to the algorithm and the reward signal that it belongs to; the command line, the saved YAML
and the JSON Schema for editors derive from these models. `reading` makes them from a file.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    SerializeAsAny,
    TypeAdapter,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from touchline.errors import UsageError
from touchline.flag import Flag
from touchline.training.algorithms.settings import (
    ALGORITHM_PLUGINS,
    DEFAULT_ALGORITHM,
    HyperparameterSettings,
    algorithm_settings,
)
from touchline.training.config.cloning_settings import CloningSettings
from touchline.training.config.environment_parameters import (
    ParameterSettings,
    lessons_of,
)
from touchline.training.config.network_settings import PolicyNetworkSettings
from touchline.training.config.values import (
    MOST,
    Areas,
    Count,
    Integer,
    OrNone,
    Part,
    Positive,
    Switch,
    Text,
    Whole,
    known_in,
    mistake_at,
)
from touchline.training.rewards.settings import (
    SIGNAL_PLUGINS,
    WORLD_REWARD,
    SignalSettings,
    signal_settings,
)
from touchline.training.self_play.settings import SelfPlaySettings

TrainerType = Annotated[Text, known_in(ALGORITHM_PLUGINS)]
SignalName = Annotated[str, known_in(SIGNAL_PLUGINS)]


def _not_negative(steps: int) -> int:
    if steps < 0:
        raise PydanticKnownError("greater_than", {"gt": 0})
    return steps


StepsOrNone = Annotated[Integer, Field(le=MOST), AfterValidator(_not_negative)]
"""A number of steps; 0, which few blocks take, is checked where it is used."""


class BehaviorConfig(Part):
    """How one behavior is trained."""

    trainer_type: TrainerType = DEFAULT_ALGORITHM
    """The algorithm."""
    # The default is None so that `_read_hyperparameters` makes those of the trainer_type.
    hyperparameters: SerializeAsAny[HyperparameterSettings] = Field(
        default=None, validate_default=True
    )
    """The settings of the algorithm, such as `PPOSettings`."""
    network_settings: PolicyNetworkSettings = Field(
        default_factory=PolicyNetworkSettings
    )
    """The networks."""
    reward_signals: Annotated[
        dict[SignalName, SerializeAsAny[SignalSettings]], Field(min_length=1)
    ] = Field(default_factory=lambda: {WORLD_REWARD: signal_settings(WORLD_REWARD)()})
    """The rewards that it learns from."""
    init_path: Text | None = None
    """Checkpoint to start from: a path, or a file's bare name in the run of `initialize_from`.
    Also a `.pt` or `.onnx` of ML-Agents."""
    max_steps: Annotated[StepsOrNone, Flag("--max-steps", "N")] = 500_000
    """Agent steps after which training stops. 0, with behavioral_cloning: only imitate, and save
    the result."""
    time_horizon: Whole = 64
    """Largest number of actions that an advantage looks ahead within one episode."""
    summary_freq: Whole = 50_000
    """Agent steps between two rows of metrics."""
    checkpoint_interval: Whole = 500_000
    """Agent steps between checkpoints."""
    keep_checkpoints: Whole = 5
    """How many checkpoints are kept."""
    even_checkpoints: Switch = False
    """Space the kept checkpoints evenly: checkpoint_interval becomes max_steps /
    keep_checkpoints."""
    threaded: Switch = False
    """Learn in a thread while the simulation continues with the policy of the previous update."""
    behavioral_cloning: CloningSettings | None = None
    """Imitate demonstrations in addition to learning from rewards; None: no imitation."""
    self_play: SelfPlaySettings | None = None
    """Opponents in games of several teams; None: all teams play by the latest policy."""

    @model_validator(mode="before")
    @classmethod
    def _hyperparameters_have_a_trainer(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        if values.get("hyperparameters") and not values.get("trainer_type"):
            missing = "trainer_type is missing"
            raise mistake_at(
                "hyperparameters", f"{missing}; write trainer_type: {DEFAULT_ALGORITHM}"
            )
        return values

    @field_validator("hyperparameters", mode="before")
    @classmethod
    def _read_hyperparameters(cls, value: Any, info: ValidationInfo) -> Any:
        if "trainer_type" not in info.data:  # it is unknown, which is reported already
            return HyperparameterSettings()
        # pydantic puts the place of this field before the places in errors raised here.
        model = algorithm_settings(info.data["trainer_type"])
        return model.model_validate({} if value is None else value)

    @field_validator("reward_signals", mode="before")
    @classmethod
    def _read_signals(cls, blocks: Any) -> Any:
        """The settings of each signal, by its key; unknown keys are left for `SignalName`."""
        if not isinstance(blocks, Mapping):
            return blocks
        signals = dict(blocks)
        for name in signals:
            if name in SIGNAL_PLUGINS:
                model = signal_settings(name)
                # As an entry of a dictionary, so that errors name its key.
                reader = TypeAdapter(dict[str, model])  # type: ignore[valid-type]
                signals |= reader.validate_python({name: signals[name]})
        return signals

    @model_validator(mode="after")
    def _parts_fit_each_other(self) -> Self:
        for conflict in self._conflicts():
            raise mistake_at(*conflict)
        return self

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        """Key and reason of each setting that cannot be combined with the others."""
        hyper, cloning = self.hyperparameters, self.behavioral_cloning
        if self.threaded and not hyper.takes_delay:
            why = f"{self.trainer_type} learns from actions of its present policy alone"
            yield "threaded", f"{why}; leave this out"
        elif refused := hyper.conflict(self):
            yield refused
        if not self.max_steps and cloning is None:
            yield (
                "max_steps",
                "expected greater than 0, got 0; only a run with behavioral_cloning can do "
                "without steps",
            )
        if cloning and (refused := cloning.conflict(self.trainer_type, hyper)):
            yield refused
        memory, longest = self.network_settings.memory, hyper.longest_sequence
        if memory and longest is not None and memory.sequence_length > longest:
            yield (
                "network_settings.memory.sequence_length",
                f"a sequence of {memory.sequence_length} does not fit a batch_size of {longest}",
            )
        units, multiple = self.network_settings.hidden_units, hyper.width_multiple
        if units % multiple:
            yield (
                "network_settings.hidden_units",
                f"expected a multiple of {multiple}, the attention heads of {self.trainer_type}, "
                f"got {units}",
            )

    @model_validator(mode="after")
    def _space_checkpoints(self) -> Self:
        if self.even_checkpoints:
            interval = max(1, self.max_steps // self.keep_checkpoints)
            # The model is frozen for users; here it is still being made.
            object.__setattr__(self, "checkpoint_interval", interval)
        return self


class EnvSettings(Part):
    """The environment, and how players are started and restarted."""

    env_path: Annotated[Text | None, Flag("--env", "ENV")] = None
    """The environment: a scene's name, a Unity player's path or `editor`. Without one, a preset
    opens its own scene, and a YAML waits for the Unity Editor."""
    env_args: Annotated[list[Text], Flag("--env-args", "...")] = Field(
        default_factory=list
    )
    """Further arguments for the player. On the command line, everything after the flag goes to the
    player, so it comes last."""
    base_port: Annotated[
        Annotated[Integer, Field(ge=1, le=65535)] | None, Flag("--base-port")
    ] = None
    """Port of the first player; the next ones follow. Default: free ports."""
    num_envs: Annotated[Whole, Flag("--num-envs")] = 1
    """Environments to run in parallel."""
    num_areas: Annotated[Areas | None, Flag("--num-areas")] = None
    """Areas (copies of the game) in one environment. Default: as many as Unity's scene has; 1 for a
    player."""
    timeout_wait: Annotated[Positive, Flag("--timeout-wait")] = 60
    """Seconds to wait for a player's answer."""
    seed: Annotated[OrNone, Field(le=2**63 - 1), Flag("--seed")] = -1
    """Seed of all random numbers; -1, the default: chosen at random and printed."""
    max_lifetime_restarts: Annotated[OrNone, Flag("--max-lifetime-restarts")] = 10
    """How often each player is restarted after a failure; -1: no limit."""
    restarts_rate_limit_n: Annotated[OrNone, Flag("--restarts-rate-limit-n")] = 1
    """How often it is restarted within restarts_rate_limit_period_s; -1: no limit."""
    restarts_rate_limit_period_s: Annotated[
        Positive, Flag("--restarts-rate-limit-period-s")
    ] = 60
    """The period in which restarts_rate_limit_n counts, in seconds."""


class EngineSettings(Part):
    """A Unity player's window and clock; embedded scenes have neither."""

    width: Annotated[Whole, Flag("--width")] = 84
    """Width of a player's window in pixels."""
    height: Annotated[Whole, Flag("--height")] = 84
    """Height of a player's window in pixels."""
    quality_level: Annotated[Count, Flag("--quality-level")] = 5
    """Unity's quality level."""
    time_scale: Annotated[Positive, Flag("--time-scale")] = 20
    """Speed of a player as a multiple of real time; Unity accepts up to 100."""
    target_frame_rate: Annotated[OrNone, Flag("--target-frame-rate")] = -1
    """A player's frames per second; -1: Unity's own choice."""
    capture_frame_rate: Annotated[Count, Flag("--capture-frame-rate")] = 60
    """A player's frames per simulated second; 0: simulated time follows real time."""
    no_graphics: Annotated[Switch, Flag("--no-graphics")] = False
    """Players run without a window; their cameras then see nothing."""
    no_graphics_monitor: Annotated[Switch, Flag("--no-graphics-monitor")] = False
    """Only the first player has a window."""


LONGEST_NAME = 200
"""Bytes; file systems take 255, and suffixes are added to a run's name."""
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Source: Microsoft, "Naming Files, Paths, and Namespaces"."""


def _folder_name(name: str) -> str:
    # A run is deleted by --force: a name that leads out of results_dir could delete anything.
    if re.search(r"[/\\\0]", name) or not name.strip(". "):
        raise ValueError("expected the name of a folder, without separators")
    if not name.isprintable() or len(name.encode()) > LONGEST_NAME:
        raise ValueError(
            f"expected printable characters, at most {LONGEST_NAME} bytes of them"
        )
    # Shells, other programs and Windows read these as something else than a folder.
    if name[0] in "-.~" or RESERVED.fullmatch(name):
        raise ValueError(
            "expected a name that does not begin with -, . or ~, and that "
            "is not one of Windows' devices"
        )
    return name


class CheckpointSettings(Part):
    """Where results go, and what to start from."""

    run_id: Annotated[Text, AfterValidator(_folder_name), Flag("--run-id")] = (
        DEFAULT_ALGORITHM
    )
    """Name of the run and of its folder in results_dir. Default: the preset's name, or ppo."""
    results_dir: Annotated[Text, Flag("--results-dir")] = "results"
    """Folder of all runs."""
    resume: Annotated[Switch, Flag("--resume")] = False
    """Continue the run."""
    force: Annotated[Switch, Flag("--force")] = False
    """Overwrite the run."""
    initialize_from: Annotated[Text | None, Flag("--initialize-from", "RUN_ID")] = None
    """Start at step 0 with the networks of this run."""
    inference: Annotated[Switch, Flag("--inference")] = False
    """Act with the networks of a run, without learning."""


class EvaluationSettings(Part):
    """The evaluation at each checkpoint (not in ML-Agents)."""

    episodes: Annotated[Count | None, Flag("--evaluation-episodes", "N")] = None
    """Episodes per behavior, with sampled actions, in a second copy of a scene. 0: no evaluation;
    a checkpoint's score is then the mean return of the latest episodes in training, as with
    players. Default: 50."""
    env: Annotated[Text | None, Flag("--evaluation-env", "ENV")] = None
    """The environment of these episodes. Default: that of training."""


def _device(value: str) -> str:
    if value == "mps":
        raise ValueError(
            "mps lacks the 64-bit numbers that the normalizer counts in; take cpu"
        )
    # PyTorch keeps a number in 8 bits: `cuda:256` would be the first GPU.
    if not re.fullmatch(r"cpu|cuda(:(0|[1-9]\d?))?", value):
        raise ValueError("expected cpu, cuda or cuda:1 (the second GPU)")
    return value


class TorchSettings(Part):
    """Where PyTorch computes."""

    device: Annotated[
        Annotated[Text, AfterValidator(_device)] | None, Flag("--torch-device")
    ] = None
    """cpu, cuda or cuda:1 (the second GPU). Default: the first GPU, else the CPU."""


def _place(value: str) -> str:
    # No host is called `local`, so that local:0 is a mistake and not an address.
    if not re.fullmatch(r"local:[1-9]\d*|auto|(?!local:)[^/]+:\d+", value):
        raise ValueError(
            "expected local:N (N processors of this machine), auto (the cluster that this machine "
            "is in) or an address as HOST:PORT"
        )
    return value


def place_of(value: str) -> str:
    """A cluster as `--cluster` names it; raises a UsageError for anything else."""
    try:
        return _place(value)
    except ValueError as error:
        raise UsageError(f"--cluster {value}: {error}") from None


class ClusterSettings(Part):
    """Who collects experience for the process that learns (not in ML-Agents)."""

    collectors: Annotated[Whole | None, Flag("--collectors", "N")] = None
    """Number of collectors, each with its own num_envs environments, forward passes and random
    numbers. Without cluster, they take turns in this process. Default: no collectors."""

    cluster: Annotated[
        Annotated[Text, AfterValidator(_place)] | None, Flag("--cluster", "WHERE")
    ] = None
    """Run the collectors in parallel with Ray: local:N (N cores of this machine), auto (the cluster
    that this machine belongs to) or HOST:PORT. Default: in this process. With --seeds or tune and
    without collectors, the cluster runs whole seeds or trials."""
    cpus_per_collector: Annotated[Positive, Flag("--cpus-per-collector", "C")] = 1
    """Cores that each collector, or each run of --seeds or tune, reserves on a cluster."""
    ship: Annotated[Switch, Flag("--ship")] = False
    """Send the player of env_path to the nodes of the cluster; each unpacks it once. Without it,
    the player must be at the same path on every node."""

    @property
    def takes_whole_runs(self) -> bool:
        """Whether the cluster is for whole runs (seeds, trials), not for collectors of one."""
        return self.cluster is not None and self.collectors is None

    @model_validator(mode="after")
    def _a_player_is_sent_to_a_cluster(self) -> Self:
        if self.ship and self.cluster is None:
            raise mistake_at(
                "ship",
                "sends the player to the nodes of a cluster; give --cluster WHERE, or leave it out",
            )
        return self


class Places(dict[tuple[str, ...], str]):
    """Where the keys of behaviors stand in a file; no setting, so all places are equal."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Places)


class RunConfig(Part):
    """All settings of a training run."""

    default_settings: BehaviorConfig | None = None
    """Defaults for all behaviors, also for those that are not listed."""
    behaviors: dict[Text, BehaviorConfig] = Field(default_factory=dict)
    """Behavior name, without team -> how it is trained."""
    env_settings: EnvSettings = Field(default_factory=EnvSettings)
    """The environment."""
    cluster_settings: ClusterSettings = Field(default_factory=ClusterSettings)
    """Who collects experience."""
    engine_settings: EngineSettings = Field(default_factory=EngineSettings)
    """A Unity player's window and clock."""
    environment_parameters: dict[Text, ParameterSettings] = Field(default_factory=dict)
    """Name -> a number, a sampler or a curriculum."""
    checkpoint_settings: CheckpointSettings = Field(default_factory=CheckpointSettings)
    """Folder of the results, and how a run begins there."""
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    """The evaluation at each checkpoint."""
    torch_settings: TorchSettings = Field(default_factory=TorchSettings)
    """Device on which PyTorch computes."""
    debug: Annotated[Switch, Flag("--debug")] = False
    """Log more details."""
    _places: Places = PrivateAttr(default_factory=Places)

    @model_validator(mode="after")
    def _lessons_name_configured_behaviors(self) -> Self:
        for name, settings in self.environment_parameters.items():
            for number, lesson in enumerate(lessons_of(settings)[:-1]):
                criteria = lesson.completion_criteria
                if criteria is None or self.behavior(criteria.behavior):
                    continue
                place = f"environment_parameters.{name}.curriculum.{number}"
                known = ", ".join(self.behaviors) or "none"
                raise mistake_at(
                    f"{place}.completion_criteria.behavior",
                    f"no behavior '{criteria.behavior}' is configured; configured: {known}",
                )
        return self

    @model_validator(mode="after")
    def _collectors_take_the_rest(self) -> Self:
        cluster = self.cluster_settings
        if cluster.collectors is not None and self.checkpoint_settings.inference:
            raise mistake_at(
                "cluster_settings.collectors",
                "they bring what is learned from, and --inference only acts; give one of them",
            )
        blocks = {f"behaviors.{name}": block for name, block in self.behaviors.items()}
        if self.default_settings is not None:
            blocks["default_settings"] = self.default_settings
        kinds = {p: b.hyperparameters.collects_in_rounds for p, b in blocks.items()}
        if cluster.collectors is not None and len(set(kinds.values())) > 1:
            place = next(place for place, in_rounds in kinds.items() if not in_rounds)
            raise mistake_at(
                f"{place}.trainer_type",
                "with --collectors it learns from experience as it arrives, and other behaviors "
                "from whole rounds; give all a trainer_type of one kind, or leave out --collectors",
            )
        return self

    @property
    def collects_in_rounds(self) -> bool:
        """Whether all collectors bring their shares before something is learned."""
        blocks = [self.default_settings, *self.behaviors.values()]
        return all(b.hyperparameters.collects_in_rounds for b in blocks if b)

    @property
    def has_self_play(self) -> bool:
        """Whether a behavior plays against opponents of a pool."""
        blocks = [self.default_settings, *self.behaviors.values()]
        return any(block and block.self_play is not None for block in blocks)

    def remember_places(self, places: Mapping[tuple[str, ...], str]) -> None:
        """Where the keys of behaviors stand, each by its path, for messages about them."""
        self._places.update(places)

    def place(self, behavior: str, key: str = "") -> str:
        """`file:line:col: key` of a behavior's block, or of a dotted key in it, for messages."""
        block: tuple[str, ...] = ("behaviors", behavior)
        if behavior not in self.behaviors:
            block = ("default_settings",)
        keys = (*block, *filter(None, key.split(".")))
        shown = ".".join(keys)
        for depth in range(len(keys), len(block) - 1, -1):
            if keys[:depth] in self._places:
                return f"{self._places[keys[:depth]]}: {shown}"
        return shown

    def behavior(self, name: str) -> BehaviorConfig | None:
        """How a behavior is trained: its own block, or the default settings."""
        return self.behaviors.get(name) or self.default_settings
