"""ML-Agents' files from before 0.18, as they read today.

Up to 0.16 a file maps behaviors to flat blocks, with a block `default` under all of them, and
curricula and samplers stand in files of their own. 0.17 has today's blocks, with `curriculum` and
`parameter_randomization` next to them. Since 0.18 both are `environment_parameters`.

Source: ML-Agents' `docs/Migrating.md` and `config/` of the releases 0.10 to 0.18.
"""

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ValidationError

from touchline.errors import UsageError, shortened
from touchline.flag import Flag
from touchline.log import Log, silent
from touchline.training.algorithms.settings import (
    ALGORITHM_PLUGINS,
    DEFAULT_ALGORITHM,
    algorithm_settings,
)
from touchline.training.config.settings import BehaviorConfig, RunConfig
from touchline.training.config.yaml_tree import YamlTree
from touchline.whole import write_whole

Block = dict[str, Any]

# Keys by which a flat block is recognized; today none of them stands directly in a behavior.
_FLAT = {"trainer", "use_recurrent", "batch_size", "hidden_units", "num_layers", "beta"}
_NETWORK = ("normalize", "hidden_units", "num_layers", "vis_encode_type")
_RENAMED = {
    "pretraining": "behavioral_cloning",  # until 0.12
    "behavior_cloning": "behavioral_cloning",
}
# Trainers that only imitated, until 0.12.
_OFFLINE = ("offline_bc", "online_bc")
_SAMPLERS = {"multirange_uniform": "multirangeuniform"}


def old_version(values: Mapping[str, Any]) -> str | None:
    """The versions of ML-Agents whose format these values have; None for today's."""
    if "curriculum" in values or "parameter_randomization" in values:
        return "0.17"
    if values.keys() & RunConfig.model_fields.keys():
        return None
    blocks = [block for block in values.values() if isinstance(block, Mapping)]
    is_flat = any(block.keys() & _FLAT for block in blocks)
    return "0.10 to 0.16" if is_flat else None


def refuse_old(tree: YamlTree) -> None:
    """Raise a UsageError for a file in an old format: what its keys are called today."""
    version = old_version(tree.values)
    if version is None:
        return
    first = next(iter(tree.values))
    today = (
        "curriculum and parameter_randomization are environment_parameters today"
        if version == "0.17"
        else "default is default_settings today, every other block stands below behaviors, and "
        f"trainer: {DEFAULT_ALGORITHM} with batch_size: 64 is trainer_type: {DEFAULT_ALGORITHM} "
        "with hyperparameters: {batch_size: 64}"
    )
    raise UsageError(
        f"{tree.place((first,))}: {first}: this file is for ML-Agents {version}; {today}; "
        f"`touchline convert {tree.shown} -o new.yaml` rewrites it"
    )


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

    Returns
    -------
    Path
        The new file.
    """
    target = Path(output)
    values = _read(Path(config))
    if old_version(values) is None:
        raise UsageError(
            f"{config}: not a file of ML-Agents before 0.18, so there is nothing to convert"
        )
    lessons = _block("curriculum", values.pop("curriculum", None))
    for path in curricula or ():
        lessons |= _curricula_of(Path(path))
    samplers = _block(
        "parameter_randomization", values.pop("parameter_randomization", None)
    )
    if sampler is not None:
        samplers |= _read(Path(sampler))
    notices: list[str] = []
    new = (
        values if "behaviors" in values else {"behaviors": _behaviors(values, notices)}
    )
    parameters = _parameters(samplers, lessons, notices)
    if parameters:
        new["environment_parameters"] = parameters
    write_whole(target, yaml.safe_dump(new, sort_keys=False).encode())
    for notice in notices:
        log(f"{config}: {notice}")
    return target


def _read(path: Path) -> Block:
    return YamlTree.read(path, str(path)).values


def _block(name: str, value: object) -> Block:
    """The keys and values of one key; none where nothing is written behind it."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(
            f"{shortened(name)}: expected keys and values, got {str(value)[:80]!r}"
        )
    return dict(value)


def _curricula_of(path: Path) -> Block:
    """Behavior -> curriculum. Files for one behavior have its name; they are JSON, which YAML
    reads.
    """
    if path.is_dir():
        found: Block = {}
        for file in sorted(path.glob("*.json")):
            found |= _curricula_of(file)
        return found
    values = _read(path)
    return {path.stem: values} if "thresholds" in values else values


def _behaviors(blocks: Block, notices: list[str]) -> Block:
    default = _block("default", blocks.pop("default", None))
    notices.append(
        "max_steps and summary_freq counted steps of the environment until 0.13: if the file is "
        "that old, multiply them by the number of agents"
    )
    behaviors: Block = {}
    # Names that point at each other in a circle end where one comes again.
    for name in blocks:
        own, passed = blocks[name], {name}
        # A name in place of a block means the block of that name.
        while isinstance(own, str) and own in blocks and own not in passed:
            passed.add(own)
            own = blocks[own]
        block = _block(name, own)
        whole = deepcopy({**default, **block})
        behaviors[name] = _behavior(name, whole, block.keys(), notices)
    return behaviors


def _behavior(name: str, old: Block, own: Any, notices: list[str]) -> Block:
    """One flat block, sorted into today's; `own` are the keys that it has without `default`."""
    trainer = str(old.pop("trainer", DEFAULT_ALGORITHM))
    new: Block = {"trainer_type": trainer}
    if trainer in _OFFLINE:
        new["trainer_type"] = trainer = DEFAULT_ALGORITHM
        old["behavioral_cloning"] = {"demo_path": old.pop("demo_path", None)}
        old["max_steps"] = 0
        notices.append(
            f"{name}: its trainer only imitated; today max_steps: 0 with behavioral_cloning does "
            "that"
        )
    for before, today in _RENAMED.items():
        if before in old:
            old[today] = old.pop(before)
    if trainer not in ALGORITHM_PLUGINS:
        known = ", ".join(ALGORITHM_PLUGINS.names())
        raise UsageError(
            f"{shortened(name)}: no trainer {shortened(trainer)!r} today; trainers: {known}"
        )
    settings = algorithm_settings(trainer)
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
    if "self_play" in old:
        old["self_play"] = _block(f"{name}.self_play", old["self_play"])
        games, before = old["self_play"], "play_against_current_self_ratio"
        if before in games:
            games["play_against_latest_model_ratio"] = games.pop(before)
    for key, value in old.items():
        if key in BehaviorConfig.model_fields:
            new[key] = value
        # The default block holds keys of another trainer, which this one passed over.
        elif key in own:
            notices.append(
                f"{name}.{key}: left out; {trainer} has no such setting today"
            )
    return new


def _parameters(samplers: Block, curricula: Block, notices: list[str]) -> Block:
    """`environment_parameters` from both; a parameter with a sampler has no curriculum."""
    parameters: Block = {}
    if samplers.pop("resampling-interval", None) is not None:
        notices.append(
            "resampling-interval: left out; parameters are drawn at every reset today"
        )
    for name, old in samplers.items():
        block = _block(name, old)
        kind = block.pop("sampler-type", None) or block.pop("sampler_type", "uniform")
        given = block.pop("sampler_parameters", block)
        parameters[name] = {
            "sampler_type": _SAMPLERS.get(str(kind), kind),
            "sampler_parameters": given,
        }
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


class _Curriculum(BaseModel):
    """Lessons of one behavior, as files and blocks until 0.17 have them."""

    measure: str
    thresholds: list[float]
    parameters: dict[str, list[Any]]
    min_lesson_length: int = 1
    signal_smoothing: bool = False


def _curriculum(behavior: str, written: object) -> _Curriculum:
    try:
        return _Curriculum.model_validate(written)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        where = f"curriculum of {shortened(behavior)}: {shortened(key)}"
        raise UsageError(f"{where}: {first['msg']}") from None


def _lessons(
    behavior: str, curriculum: _Curriculum, values: Sequence[Any]
) -> list[Block]:
    thresholds = curriculum.thresholds
    if len(values) != len(thresholds) + 1:
        raise UsageError(
            f"curriculum of {behavior}: {len(thresholds)} thresholds need "
            f"{len(thresholds) + 1} values of each parameter, got {len(values)}"
        )
    lessons: list[Block] = [
        {"name": f"Lesson{number}", "value": value}
        for number, value in enumerate(values)
    ]
    for lesson, threshold in zip(lessons, thresholds, strict=False):
        lesson["completion_criteria"] = {
            "behavior": behavior,
            "measure": curriculum.measure,
            "min_lesson_length": curriculum.min_lesson_length,
            "signal_smoothing": curriculum.signal_smoothing,
            "threshold": threshold,
        }
    return lessons
