"""What a training run is told: ML-Agents' YAML, checked key by key, with errors that name the line.

Keys, meanings and defaults are those of `mlagents-learn` 1.1.0. Each default is written once, here; the
command line and the saved YAML derive from these models.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from touchline.errors import UsageError

PRESETS = Path(__file__).with_name("presets")


def _whole(value: Any) -> Any:
    """5e5 and "5e5" mean 500000 where a whole number is wanted."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _numeric(value: Any) -> Any:
    """YAML 1.1 reads 1e-3 as text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Whole = Annotated[PositiveInt, BeforeValidator(_whole)]
Count = Annotated[int, Field(ge=0), BeforeValidator(_whole)]
Number = Annotated[float, BeforeValidator(_numeric)]
Positive = Annotated[float, Field(gt=0), BeforeValidator(_numeric)]
NotNegative = Annotated[float, Field(ge=0), BeforeValidator(_numeric)]
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(_numeric)]
Schedule = Literal["linear", "constant"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Hyperparameters(_Part):
    """How PPO learns."""

    batch_size: Whole = 1024
    """Experiences in one gradient step."""
    buffer_size: Whole = 10240
    """Experiences gathered before an update."""
    learning_rate: Positive = 3e-4
    """Adam's step size."""
    learning_rate_schedule: Schedule = "linear"
    """Linear: to nearly zero at max_steps."""
    beta: NotNegative = 5e-3
    """Weight of the entropy bonus."""
    beta_schedule: Schedule | None = None
    """None: as the learning rate."""
    epsilon: Positive = 0.2
    """Clip range of the probability ratio."""
    epsilon_schedule: Schedule | None = None
    """None: as the learning rate."""
    lambd: Share = 0.95
    """GAE's λ."""
    num_epoch: Whole = 3
    """Passes over the buffer in one update."""
    max_grad_norm: Positive = 0.5
    """Gradients are shortened to this length (not in ML-Agents)."""
    shared_critic: bool = False
    """Policy and value function share their encoders and layers."""
    clip_value_loss: bool = False
    """Values gain nothing from moving further than epsilon in one update (not in ML-Agents)."""
    target_kl: Positive | None = None
    """An update ends after the epoch that moved the policy further than this from the one that acted (not in
    ML-Agents)."""
    return_steps: Whole | None = None
    """Advantages from this many rewards and the value after them, instead of GAE (not in ML-Agents)."""
    advantage_normalization: Literal["batch", "minibatch", "none"] = "batch"
    """Over what advantages get mean 0 and spread 1 (not in ML-Agents)."""

    @model_validator(mode="before")
    @classmethod
    def _schedules_follow(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            follows = values.get("learning_rate_schedule", "linear")
            values = {"beta_schedule": follows, "epsilon_schedule": follows} | dict(values)
        return values

    @model_validator(mode="after")
    def _batches_fit(self) -> Self:
        if self.batch_size > self.buffer_size:
            raise ValueError(f"batch_size {self.batch_size} is larger than buffer_size {self.buffer_size}")
        return self


class MemorySettings(_Part):
    """A recurrent network's memory."""

    memory_size: Annotated[Whole, Field(multiple_of=2)] = 128
    """Numbers kept from decision to decision; half of them are the LSTM's output, half its cell."""
    sequence_length: Whole = 64
    """Decisions that gradients flow back through."""


class NetworkSettings(_Part):
    """The policy's and the value function's network."""

    normalize: bool = False
    """Shift and scale vector observations by their running mean and spread; part of the exported model."""
    hidden_units: Whole = 128
    """Width of each dense layer."""
    num_layers: Whole = 2
    """Dense layers."""
    vis_encode_type: Literal["simple", "nature_cnn", "resnet", "match3", "fully_connected"] = "simple"
    """What images go through first."""
    goal_conditioning_type: Literal["hyper", "none"] = "hyper"
    """How goal signals enter: their values make the weights, or they are inputs like others."""
    memory: MemorySettings | None = None
    """An LSTM; None: no memory."""
    orthogonal_init: bool = False
    """First weights are orthogonal (not in ML-Agents)."""
    deterministic: bool = False
    """Act with the most likely action instead of sampling."""


class RewardSignal(_Part):
    """The environment's own reward."""

    gamma: Share = 0.99
    """Discount per decision."""
    strength: NotNegative = 1.0
    """Multiplier on the reward."""


class BehaviorConfig(_Part):
    """How one behavior is trained."""

    trainer_type: Literal["ppo"] = "ppo"
    """The algorithm."""
    hyperparameters: Hyperparameters = Field(default_factory=Hyperparameters)
    """How it learns."""
    network_settings: NetworkSettings = Field(default_factory=NetworkSettings)
    """What it learns with."""
    reward_signals: dict[Literal["extrinsic"], RewardSignal] = Field(
        default={"extrinsic": RewardSignal()}, min_length=1
    )
    """What it learns from."""
    max_steps: Whole = 500_000
    """Agent steps after which learning stops."""
    time_horizon: Whole = 64
    """How many actions of one life an advantage looks ahead at most."""
    summary_freq: Whole = 50_000
    """Agent steps between two lines of metrics."""
    checkpoint_interval: Whole = 500_000
    """Agent steps between checkpoints."""
    keep_checkpoints: Whole = 5
    """How many checkpoints are kept."""


class EnvSettings(_Part):
    """The world."""

    env_path: str | None = None
    """The world, as ENV on the command line; None with an embedded scene's preset: that scene."""
    num_areas: Whole | None = None
    """Areas in one world; None: as many as Unity's own scene has."""
    seed: int = -1
    """Seed of world and learner; -1: chosen at random and printed."""


class CheckpointSettings(_Part):
    """Where results go."""

    run_id: str = "ppo"
    """Folder of this run below results_dir."""
    results_dir: str = "results"
    """Folder of all runs."""
    resume: bool = False
    """Continue the run."""
    force: bool = False
    """Overwrite the run."""


class RunConfig(_Part):
    """Everything that a training run is told."""

    behaviors: dict[str, BehaviorConfig] = Field(default_factory=dict)
    """Behavior name, without team -> how it is trained."""
    env_settings: EnvSettings = Field(default_factory=EnvSettings)
    environment_parameters: dict[str, Number] = Field(default_factory=dict)
    """Constants sent to the world."""
    checkpoint_settings: CheckpointSettings = Field(default_factory=CheckpointSettings)


def read_config(source: str, changes: Iterable[str] = (), overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """The configuration of a preset's name or a YAML file.

    `changes` are `a.b.c=value` texts (`--set`); `overrides` are dotted keys from the command line, which win.
    Raises a UsageError that names file, line, column and key.
    """
    path = Path(source) if Path(source).suffix in (".yaml", ".yml") else PRESETS / f"{source}.yaml"
    if not path.is_file():
        if path.parent == PRESETS:
            raise UsageError(_unknown_preset(source))
        raise UsageError(f"{source}: no such file")
    tree, places = _parsed(path, path.name if path.parent == PRESETS else str(path))
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {change}: expected a.b.c=value")
        _put(tree, key, yaml.safe_load(text), f"--set {change}")
        places[tuple(_keys(tree, key))] = f"--set {change}"
    for key, value in (overrides or {}).items():
        _put(tree, key, value, key)
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise UsageError(_explained(error, places, str(path))) from None


def preset_names() -> list[str]:
    """The presets that come with Touchline."""
    return sorted(p.stem for p in PRESETS.glob("*.yaml"))


def write_config(config: RunConfig, path: Path) -> None:
    """Save as YAML that `read_config` takes."""
    path.write_text(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False), encoding="utf-8")


Place = str
_Places = dict[tuple[str, ...], Place]


def _parsed(path: Path, shown: str) -> tuple[dict[str, Any], _Places]:
    """The file as plain values, and where each key stands."""
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        value = yaml.safe_load(text)
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown}: not a text file ({error.reason})") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{shown}:{mark.line + 1}:{mark.column + 1}" if mark else shown
        raise UsageError(f"{place}: not YAML: {error.problem}") from None
    places: _Places = {(): f"{shown}:1:1"}
    if node is None:
        return {}, places
    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"{shown}:1:1: expected keys and values, such as `behaviors:`")

    def walk(node: yaml.Node, keys: tuple[str, ...]) -> None:
        for key, child in node.value if isinstance(node, yaml.MappingNode) else ():
            here = (*keys, str(key.value))
            if here in places:
                raise UsageError(f"{shown}:{key.start_mark.line + 1}: {'.'.join(here)}: written twice")
            places[here] = f"{shown}:{key.start_mark.line + 1}:{key.start_mark.column + 1}"
            walk(child, here)

    walk(node, ())
    return value, places


def _keys(tree: Mapping[str, Any], dotted: str) -> list[str]:
    """The keys of a dotted path; behavior names may hold dots themselves."""
    keys, rest, level = [], dotted, tree
    while rest:
        names = [k for k in level if rest == k or rest.startswith(f"{k}.")] if isinstance(level, Mapping) else []
        key = max(names, key=len) if names else rest.partition(".")[0]
        keys.append(key)
        rest = rest[len(key) + 1 :]
        level = level.get(key, {}) if isinstance(level, Mapping) else {}
    return keys


def _put(tree: dict[str, Any], dotted: str, value: Any, shown: str) -> None:
    *above, last = _keys(tree, dotted)
    for key in above:
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise UsageError(f"{shown}: {key} holds a value, not keys")
    tree[last] = value


def _explained(error: ValidationError, places: _Places, shown: str) -> str:
    """One line for the first mistake: where it stands, which key, what is wrong, what was meant."""
    first = error.errors()[0]
    keys = tuple(str(k) for k in first["loc"] if k != "[key]")
    place = next((places[keys[:n]] for n in range(len(keys), -1, -1) if keys[:n] in places), shown)
    dotted = ".".join(keys)
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(keys[-1], _known_keys(keys[:-1]), n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(_known_keys(keys[:-1]))}"
        return f"{place}: {dotted}: unknown key{hint}"
    message = first["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    given = "" if isinstance(first["input"], dict) else f", got {first['input']!r}"
    return f"{place}: {dotted}: {message}{given}"


def _known_keys(keys: tuple[str, ...]) -> list[str]:
    """What may stand at this place of the file."""
    schema = RunConfig.model_json_schema()
    node = schema
    for key in keys:
        node = node.get("properties", {}).get(key) or node.get("additionalProperties") or {}
        node = node["anyOf"][0] if "anyOf" in node else node
        node = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    return sorted(node.get("properties", {}))


@cache
def _unknown_preset(name: str) -> str:
    near = difflib.get_close_matches(name, preset_names(), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"no preset {name!r}; {hint}give a YAML file, or one of: {', '.join(preset_names())}"
