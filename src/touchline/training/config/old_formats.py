"""ML-Agents' files from before 0.18, as they read today.

Up to 0.16 a file maps behaviors to flat blocks, with a block `default` under all of them, and
curricula and samplers stand in files of their own. 0.17 has today's blocks, and versions shortly
before it flat ones, below `behaviors`, with `curriculum` and `parameter_randomization` next to
them. Since 0.18 both are `environment_parameters`.

Source: ML-Agents' `docs/Migrating.md` and `config/` of the releases 0.10 to 0.18.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import ValidationError

from touchline.errors import UsageError, shortened
from touchline.flag import Flag
from touchline.log import Log, silent
from touchline.training.algorithms.settings import (
    ALGORITHM_PLUGINS,
    DEFAULT_ALGORITHM,
    algorithm_settings,
)
from touchline.training.config.cloning_settings import CloningSettings
from touchline.training.config.explain import explain
from touchline.training.config.reading import flat_blocks, old_version, read_config
from touchline.training.config.settings import BehaviorConfig, RunConfig
from touchline.training.config.values import Part
from touchline.training.config.yaml_tree import YamlTree
from touchline.training.rewards.settings import SIGNAL_PLUGINS, signal_settings
from touchline.training.self_play.settings import SelfPlaySettings
from touchline.whole import require_writable, write_whole

Block = dict[str, Any]

_NETWORK = ("normalize", "hidden_units", "num_layers", "vis_encode_type")
_RENAMED = {
    "pretraining": "behavioral_cloning",  # until 0.12
    "behavior_cloning": "behavioral_cloning",
}
# Trainers that only imitated, until 0.12.
_OFFLINE = ("offline_bc", "online_bc")
_SAMPLERS = {"multirange_uniform": "multirangeuniform"}
# Stood among the signals: the first until 0.14, and in templates; the second in 0.15 to 0.17.
_OF_SIGNALS = ("reward_signal_num_update", "reward_signal_steps_per_update")


def convert(
    config: Annotated[str | os.PathLike[str], Flag("OLD")],
    output: Annotated[str | os.PathLike[str], Flag(short="-o")],
    *,
    curricula: Annotated[
        Sequence[str | os.PathLike[str]] | None, Flag("--curriculum")
    ] = None,
    sampler: str | os.PathLike[str] | None = None,
    log: Log = silent,
) -> Path:
    """Rewrite a configuration of ML-Agents 0.10 to 0.17 as today's `train` reads it.

    Parameters
    ----------
    config
        The old YAML file.
    output
        The YAML file to write.
    curricula
        What mlagents-learn took as --curriculum: a file for all behaviors (0.14 to 0.16), or files
        named after behaviors, or their folder (until 0.13).
    sampler
        What mlagents-learn took as --sampler.
    log
        Gets a line for everything that could not be carried over.
    """
    target = Path(output)
    if target.suffix not in (".yaml", ".yml"):
        raise UsageError(f"-o {target}: expected the name of a .yaml file")
    require_writable(target)
    values = _read(Path(config), target, log)
    if old_version(values) is None:
        raise UsageError(
            f"{config}: not a file of ML-Agents before 0.18, so there is nothing to convert"
        )
    old = ("curriculum", "parameter_randomization")
    lessons, samplers = (_block(key, values.pop(key, None)) for key in old)
    notices: list[str] = []
    for path in curricula or ():
        _put_over(lessons, _curricula_of(Path(path), target, log), str(path), notices)
    if sampler is not None:
        _put_over(samplers, _read(Path(sampler), target, log), str(sampler), notices)
    new = values
    if not values.keys() & RunConfig.model_fields.keys():
        notices.append(
            "max_steps and summary_freq counted steps of the environment until 0.13: if the file "
            "is that old, multiply them by the number of agents"
        )
        new = _from_flat(values, notices)
    elif flat_blocks(new.get("behaviors")):
        converted = _from_flat(_block("behaviors", new["behaviors"]), notices)
        if "default_settings" in new and "default_settings" in converted:
            del converted["default_settings"]
            notices.append("behaviors.default: left out; the file has default_settings")
        new |= converted
    parameters = _parameters(samplers, lessons, notices)
    today = _block("environment_parameters", new.get("environment_parameters"))
    if parameters:
        _put_over(today, parameters, "samplers and curricula", notices)
        new["environment_parameters"] = today
    try:
        _as_trained(new)
    except UsageError as error:
        # Its place would be one in the new file.
        why = str(error).partition(": ")[2]
        raise UsageError(f"{config}: not converted; as of today, {why}") from None
    write_whole(target, yaml.safe_dump(new, sort_keys=False).encode())
    for notice in notices:
        log(f"{config}: {notice}")
    return target


def _put_over(below: Block, above: Block, source: str, notices: list[str]) -> None:
    """Add the entries of another source, which win."""
    notices += [
        f"{key}: left out as the file has it; that of {source} counts"
        for key in below.keys() & above.keys()
    ]
    below |= above


def _as_trained(new: Block) -> RunConfig:
    """What `train` reads; raises its UsageError."""
    return read_config(None, text=yaml.safe_dump(new))


def _read(path: Path, target: Path, log: Log) -> Block:
    if target.exists() and path.exists() and target.samefile(path):
        raise UsageError(f"-o {target}: is an input; give the new file another name")
    tree = YamlTree.read(path, str(path))
    for notice in tree.notices:
        log(notice)
    return _block(str(path), tree.values)


def _block(name: str, value: object) -> Block:
    """The keys and values of one key; none where nothing is written behind it."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(
            f"{shortened(name)}: expected keys and values, got {str(value)[:80]!r}"
        )
    return {str(key): below for key, below in value.items()}


def _curricula_of(path: Path, target: Path, log: Log) -> Block:
    """Behavior -> curriculum. Files of JSON, which YAML reads, have the name of one behavior."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"--curriculum {path}: no BEHAVIOR.json in this folder")
    found: Block = {}
    for file in files:
        values = _read(file, target, log)
        found |= {file.stem: values} if "thresholds" in values else values
    return found


def _from_flat(blocks: Block, notices: list[str]) -> Block:
    default = _block("default", blocks.pop("default", None))
    behaviors: Block = {}
    lost: set[str] = set()
    carried: set[str] = set()
    # Names that point at each other in a circle end where one comes again.
    for name in blocks:
        own, passed = blocks[name], {name}
        # A name in place of a block means the block of that name.
        while isinstance(own, str) and own in blocks and own not in passed:
            passed.add(own)
            own = blocks[own]
        block = _block(name, own)
        whole = deepcopy({**default, **block})
        behaviors[name], left_out = _behavior(name, whole, block.keys(), notices)
        of_default = default.keys() - block.keys()
        lost |= of_default & left_out
        carried |= of_default - left_out
    new = {"behaviors": behaviors}
    if not default:
        return new
    about_default: list[str] = []
    try:
        block, _ = _behavior(
            "default", deepcopy(default), default.keys(), about_default
        )
    except UsageError:
        if not behaviors:
            raise
        block = {}
    kept = {"default_settings": block, **new}
    # What is wrong with it is said when the whole file is read.
    if block and not behaviors:
        notices += about_default
        return kept
    with suppress(UsageError):
        # Today's defaults fill blocks at every depth; those of a flat file were whole keys.
        if block and _as_trained(kept).behaviors == _as_trained(new).behaviors:
            notices += about_default
            return kept
    notices += [
        f"default.{key}: left out; no behavior has such a setting"
        for key in sorted(lost - carried)
    ]
    notices.append(
        "default: carried over into the listed behaviors alone, as default_settings would change "
        "them today; a behavior that is not listed needs a block of its own"
    )
    return new


def _behavior(
    name: str, old: Block, own: Any, notices: list[str]
) -> tuple[Block, set[str]]:
    """One flat block, sorted into today's, and the keys that have no place there.

    `own` are the keys that it has without `default`.
    """
    trainer = _trainer_of(name, old, notices)
    new: Block = {"trainer_type": trainer}
    if trainer in _OFFLINE:
        notices.append(_imitate(name, old, trainer))
        new["trainer_type"] = trainer = DEFAULT_ALGORITHM
    for before, today in _RENAMED.items():
        _rename(name, old, before, today, notices)
    if trainer not in ALGORITHM_PLUGINS:
        known = ", ".join(ALGORITHM_PLUGINS.names())
        raise UsageError(
            f"{shortened(name)}: no trainer {shortened(trainer)!r} today; trainers: {known}"
        )
    settings = algorithm_settings(trainer)
    _tidy_blocks_within(name, old, notices)
    try:
        notices += [f"{name}.{line}" for line in settings.modernize(old)]
    except ValueError as error:
        raise UsageError(f"{shortened(name)}.{error}") from None
    keys = settings.model_fields
    new["hyperparameters"] = {k: old.pop(k) for k in list(old) if k in keys}
    new["network_settings"] = {k: old.pop(k) for k in _NETWORK if k in old}
    memory = {k: old.pop(k) for k in ("sequence_length", "memory_size") if k in old}
    if old.pop("use_recurrent", False):
        new["network_settings"]["memory"] = memory
    else:
        notices += [
            f"{name}.{key}: left out, as without use_recurrent it had no effect"
            for key in memory.keys() & own
        ]
    return new, _place_the_rest(name, old, new, own, notices)


def _rename(
    name: str, block: Block, before: str, today: str, notices: list[str]
) -> None:
    if before in block and today in block:
        notices.append(f"{name}.{before}: left out; the block has {today}")
        del block[before]
    elif before in block:
        block[today] = block.pop(before)


def _trainer_of(name: str, old: Block, notices: list[str]) -> str:
    today = old.pop("trainer_type", None)
    trainer = str(old.pop("trainer", today or DEFAULT_ALGORITHM))
    if today not in (None, trainer):
        notices.append(f"{name}.trainer_type: left out; the block has a trainer")
    return trainer


def _place_the_rest(
    name: str, old: Block, new: Block, own: Any, notices: list[str]
) -> set[str]:
    """Carry over what stays where it was; returns the keys that are left out."""
    left_out = set()
    for key, value in old.items():
        if key in ("hyperparameters", "network_settings"):
            # Today's block among flat keys, as in files that were rewritten by half.
            given = _block(f"{name}.{key}", value)
            _put_over(new[key], given, f"{name}.{key}", notices)
        elif key in BehaviorConfig.model_fields:
            new[key] = value
        else:
            left_out.add(key)
            # The default block holds keys of another trainer, which this one passed over.
            if key in own or key in _OF_SIGNALS:
                notices.append(
                    f"{name}.{key}: left out; {new['trainer_type']} has no such setting today"
                )
    return left_out


def _tidy_blocks_within(name: str, old: Block, notices: list[str]) -> None:
    """Leave out what the blocks within a behavior's do not have today."""
    kinds: dict[str, type[Part]] = {
        "behavioral_cloning": CloningSettings,
        "self_play": SelfPlaySettings,
    }
    for key in kinds.keys() & old.keys():
        old[key] = _block(f"{name}.{key}", old[key])
    games, today = old.get("self_play", {}), "play_against_latest_model_ratio"
    before = "play_against_current_self_ratio"
    _rename(f"{name}.self_play", games, before, today, notices)
    blocks = [(key, old[key], kind) for key, kind in kinds.items() if key in old]
    if "reward_signals" in old:
        signals = old["reward_signals"] = _block(
            f"{name}.reward_signals", old["reward_signals"]
        )
        for key in signals.keys() & {*_OF_SIGNALS}:
            if key in old:
                notices.append(f"{name}.reward_signals.{key}: left out; twice there")
            old.setdefault(key, signals.pop(key))
        for signal in signals.keys() & set(SIGNAL_PLUGINS.names()):
            within = f"reward_signals.{signal}"
            signals[signal] = _block(f"{name}.{within}", signals[signal])
            blocks.append((within, signals[signal], signal_settings(signal)))
    for key, block, kind in blocks:
        known = {*kind.model_fields}
        # `train` reads this one still.
        known |= {"encoding_size"} if "network_settings" in known else set()
        for old_key in block.keys() - known:
            del block[old_key]
            notices.append(
                f"{name}.{key}.{old_key}: left out; there is no such setting"
            )


def _imitate(name: str, old: Block, trainer: str) -> str:
    """Replace the keys of a trainer that only imitated; returns a line about it."""
    if not old.get("demo_path"):
        raise UsageError(
            f"{shortened(name)}: nothing imitates a player in the game today, as {trainer} did; "
            "record a demonstration, and write demo_path: FILE into this block"
        )
    if old.keys() & {"behavioral_cloning", "pretraining"}:
        raise UsageError(
            f"{shortened(name)}: {trainer} has cloning of its own; leave behavioral_cloning out"
        )
    old |= {"behavioral_cloning": {"demo_path": old.pop("demo_path")}, "max_steps": 0}
    return f"{name}: it only imitated; max_steps: 0 with behavioral_cloning does that today"


def _parameters(samplers: Block, curricula: Block, notices: list[str]) -> Block:
    """`environment_parameters` from both; a parameter with a sampler has no curriculum."""
    parameters: Block = {}
    if samplers.pop("resampling-interval", None) is not None:
        notices.append(
            "resampling-interval: left out; parameters are drawn at every reset today"
        )
    for name, old in samplers.items():
        block = _block(f"sampler {name}", old)
        kind = block.pop("sampler-type", None) or block.pop("sampler_type", None)
        if kind is None:
            raise UsageError(f"{shortened(name)}: no sampler-type; is it a curriculum?")
        given = block.pop("sampler_parameters", None)
        if given is None:
            given, block = block, {}
        notices += [f"{name}.{key}: left out; it is no sampler's" for key in block]
        kind = _SAMPLERS.get(str(kind), kind)
        parameters[name] = {"sampler_type": kind, "sampler_parameters": given}
    for behavior, written in curricula.items():
        curriculum = _curriculum(behavior, written)
        for name, lesson_values in curriculum.parameters.items():
            if name in parameters:
                notices.append(
                    f"{name}: its curriculum of {behavior} is left out; a parameter has one "
                    "sampler or one curriculum"
                )
            else:
                lessons = _lessons(behavior, curriculum, lesson_values)
                parameters[name] = {"curriculum": lessons}
    return parameters


class _Curriculum(Part):
    """Lessons of one behavior, as files and blocks until 0.17 have them."""

    measure: str
    thresholds: list[float]
    parameters: dict[str, list[Any]]
    min_lesson_length: int = 1
    signal_smoothing: bool = False


def _curriculum(behavior: str, written: object) -> _Curriculum:
    shown = f"curriculum of {shortened(behavior)}"
    try:
        return _Curriculum.model_validate(_block(shown, written))
    except ValidationError as error:
        raise UsageError(shortened(explain(error, YamlTree(shown)), 1000)) from None


def _lessons(behavior: str, curriculum: _Curriculum, values: list[Any]) -> list[Block]:
    expected = len(curriculum.thresholds) + 1
    if len(values) != expected:
        raise UsageError(
            f"curriculum of {shortened(behavior)}: {expected - 1} thresholds need {expected} "
            f"values of each parameter, got {len(values)}"
        )
    lessons = [{"name": f"Lesson{n}", "value": v} for n, v in enumerate(values)]
    criteria = curriculum.model_dump(exclude={"thresholds", "parameters"})
    # One lesson more than thresholds: the last one does not end.
    for lesson, threshold in zip(lessons, curriculum.thresholds, strict=False):
        own = {"behavior": behavior, "threshold": threshold}
        lesson["completion_criteria"] = own | criteria
    return lessons
