"""Makes settings of a preset or an ML-Agents YAML, with errors that name the line.

A built-in default gives way to `default_settings`, that to the behavior's own block, that to
`--set`, and all to a flag of the command line.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from touchline.errors import UsageError, shortened
from touchline.known_files import refuse_other_kinds
from touchline.log import Log, silent
from touchline.training.algorithms.settings import DEFAULT_ALGORITHM
from touchline.training.config.environment_parameters import lessons_of
from touchline.training.config.explain import explain
from touchline.training.config.flags import setting_flags
from touchline.training.config.settings import RunConfig
from touchline.training.config.yaml_tree import Keys, YamlTree, loaded
from touchline.training.rewards.settings import (
    SIGNAL_PLUGINS,
    WORLD_REWARD,
    signal_settings,
)
from touchline.whole import write_whole

PRESETS = {
    "scenes": "touchline.training.config:presets",
    "microrts": "touchline.microrts:presets",
}
"""Whose presets -> "package:folder" of their YAML files; a package that is absent has none."""


def read_config(
    source: str | None,
    changes: Mapping[str, Any] | Iterable[str] = (),
    overrides: Mapping[str, Any] | None = None,
    log: Log = silent,
    *,
    of_several: bool = False,
    text: str | None = None,
) -> RunConfig:
    """The configuration of a preset's name or of a YAML file; of None, ML-Agents' defaults.

    `changes` are `a.b.c=value` texts, as `--set` takes them, or dotted keys and their values; a
    star stands for every behavior, as in `behaviors.*.max_steps`. `overrides` are dotted keys and
    their values from the command line (see `flags`), which win. `log` gets a line for each old
    spelling, for each key that is ignored, and for each that is written twice.

    `of_several`: of several runs, only those that were begun can be resumed, so `initialize_from`
    stays next to `resume` for the others. `text` is what the file `source` will hold, where it is
    not written yet.

    Raises a UsageError that names file, line, column and key of the first mistake.
    """
    overrides = overrides or {}
    tree = (
        _tree(source)
        if text is None
        else YamlTree.parse(text, source or "settings.yaml")
    )
    notices = list(tree.notices)
    # Each step changes the tree, and a key that is changed later wins. Old spellings come after
    # `--set`, so that they may be used there, and before flags, which have today's.
    if isinstance(changes, Mapping):
        for key, value in changes.items():
            _put(tree, key, value, f"changes[{key!r}]")
    else:
        for change in changes:
            _put_text(tree, change)
    _modernize(tree, notices)
    flag_of_key = {flag.key: flag.name for flag in setting_flags()}
    for key, value in overrides.items():
        _put(tree, key, value, flag_of_key.get(key, key))
    # From here on every behavior's block is whole, so that a mistake in it is found once.
    _merge_defaults(tree)
    _settle_start(tree, overrides, notices, of_several=of_several)
    try:
        config = RunConfig.model_validate(tree.values)
    except ValidationError as error:
        # Names in a file may be of any length.
        raise UsageError(shortened(explain(error, tree), 1000)) from None
    for block in _blocks(tree):
        config.remember_places({block: tree.place_of_block(block)})
        config.remember_places(tree.places_below(block))
    notices += _idle_criteria(config, tree)
    for notice in notices:
        log(notice)
    return config


def config_text(config: RunConfig) -> str:
    """The configuration as YAML that `read_config` takes."""
    values = config.model_dump(mode="json")  # tuples become lists, which YAML has
    return yaml.safe_dump(values, sort_keys=False)


def write_config(config: RunConfig, path: Path) -> None:
    write_whole(path, config_text(config).encode())


def preset_names() -> list[str]:
    """The presets that come with Touchline."""
    return sorted(_preset_files())


def preset_file(name: str) -> Path:
    """The YAML file of a preset; raises KeyError for unknown names."""
    return _preset_files()[name]


def is_file(source: str) -> bool:
    """Whether CONFIG means a file; otherwise it is a preset's name."""
    return Path(source).suffix in (".yaml", ".yml")


def about_preset(name: str) -> str:
    """What the comment at the head of a preset's file says about it."""
    head = []
    for line in preset_file(name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        head.append(line.removeprefix("#").strip())
    return " ".join(head)


@cache
def _preset_files() -> dict[str, Path]:
    files = {}
    for place in PRESETS.values():
        package, _, folder = place.partition(":")
        spec = find_spec(package)  # finds the package's folder without importing it
        for location in (spec and spec.submodule_search_locations) or ():
            for file in Path(location, folder).glob("*.yaml"):
                files[file.stem] = file
    return files


def _tree(source: str | None) -> YamlTree:
    if source is None:
        tree = YamlTree()
        # These train every behavior that turns up.
        tree.values = {"default_settings": {}}
        return tree
    if is_file(source):
        if not Path(source).is_file():
            raise UsageError(f"{source}: no such file")
        tree = YamlTree.read(Path(source), source)
        if not tree.values:
            raise UsageError(
                f"{source}: holds no settings; expected keys and values, such as `behaviors:`"
            )
        _refuse_old(tree)
        return tree
    names = preset_names()
    if source not in names:
        refuse_other_kinds(
            Path(source), "a YAML file, or a preset that `touchline scenes` lists"
        )
        # Looser than difflib's 0.6: names of scenes are short, and one letter is a large share
        # of them.
        near = difflib.get_close_matches(source, names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(
            f"no preset {source!r}; {hint}give a YAML file, the path of a player, or a "
            "preset that `touchline scenes` lists"
        )
    return YamlTree.read(preset_file(source), f"{source}.yaml")


# Keys by which a flat block is recognized; today none of them stands directly in a behavior.
_FLAT = {"trainer", "use_recurrent", "batch_size", "hidden_units", "num_layers", "beta"}
# Keys that only today's blocks have.
_NESTED = {"trainer_type", "hyperparameters", "network_settings"}


def old_version(values: Mapping[str, Any]) -> str | None:
    """The versions of ML-Agents whose format these values have; None for today's."""
    if "curriculum" in values or "parameter_randomization" in values:
        return "0.17"
    # Without a trainer, today's keys may stand one block too high.
    if any("trainer" in block for block in flat_blocks(values.get("behaviors"))):
        return "0.16 to 0.17"
    if values.keys() & RunConfig.model_fields.keys():
        return None
    return "0.10 to 0.16" if flat_blocks(values) else None


def flat_blocks(around: object) -> list[Mapping[str, Any]]:
    """The blocks below this one that have settings themselves, as those of old files."""
    within = around.values() if isinstance(around, Mapping) else ()
    blocks = [block for block in within if isinstance(block, Mapping)]
    return [b for b in blocks if b.keys() & _FLAT and not b.keys() & _NESTED]


def _refuse_old(tree: YamlTree) -> None:
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


def _put_text(tree: YamlTree, change: str) -> None:
    """Set the key of one `a.b.c=value`."""
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {change}: expected a.b.c=value")
    try:
        value = loaded(text)
    except (yaml.YAMLError, ValueError):
        raise UsageError(f"--set {change}: {text!r} is not a YAML value") from None
    _put(tree, key, value, f"--set {change}")


def _put(tree: YamlTree, key: str, value: Any, place: str) -> None:
    """Set a dotted key, in every block of a behavior if it has a star."""
    if not key.startswith("behaviors.*."):
        tree.put(key, value, place)
        return
    rest = key.removeprefix("behaviors.*.")
    behaviors = tree.get(("behaviors",))
    for name in behaviors if isinstance(behaviors, dict) else ():
        tree.put(f"behaviors.{name}.{rest}", value, place)
    if tree.get(("default_settings",)) is not None:
        tree.put(f"default_settings.{rest}", value, place)


def _blocks(tree: YamlTree) -> list[Keys]:
    """The places of the default settings and of the behaviors' blocks that hold keys."""
    places: list[Keys] = [("default_settings",)]
    behaviors = tree.get(("behaviors",))
    if isinstance(behaviors, dict):
        places += [("behaviors", name) for name in behaviors]
    return [place for place in places if isinstance(tree.get(place), dict)]


# Keys of older documentation -> today's. Source: ML-Agents' documents before Release 20.
_OLD_SPELLINGS = {
    ("behavior_cloning",): "behavioral_cloning",
    ("network_settings", "vis_encoder_type"): "vis_encode_type",
}
# Keys of a behavior without any effect, which ML-Agents accepts or writes into its
# configuration.yaml -> why.
_IGNORED = {
    ("framework",): "PyTorch is the only one",
    ("reward_signals", WORLD_REWARD, "network_settings"): (
        "the environment's reward needs no network"
    ),
}
# Keys of `checkpoint_settings` -> what has taken their place.
_REPLACED = {"load_model": "resume", "train_model": "inference"}


def _modernize(tree: YamlTree, notices: list[str]) -> None:
    for block in _blocks(tree):
        for old, new in _OLD_SPELLINGS.items():
            _rename_old(tree, block + old, new, notices)
        _modernize_signals(tree, (*block, "reward_signals"), notices)
        for ignored, why in _IGNORED.items():
            _drop(tree, block + ignored, why, notices)
    for key, instead in _REPLACED.items():
        why = f"{instead} has taken its place"
        _drop(tree, ("checkpoint_settings", key), why, notices)


def _modernize_signals(tree: YamlTree, block: Keys, notices: list[str]) -> None:
    signals = tree.get(block)
    for name in signals if isinstance(signals, dict) else ():
        if name not in SIGNAL_PLUGINS:
            continue  # which is reported when the block is read
        keys, settings = (*block, name), signal_settings(name)
        if "network_settings" in settings.model_fields:
            _modernize_encoding_size(tree, keys, notices)
        given = tree.get(keys)
        differs = settings.differs_from_official(
            given if isinstance(given, dict) else {}
        )
        if differs:
            notices.append(f"{tree.place(keys)}: {'.'.join(keys)}: {differs}")


def _modernize_encoding_size(tree: YamlTree, signal: Keys, notices: list[str]) -> None:
    """`encoding_size` of a reward signal, which counts only next to no `network_settings`."""
    old = (*signal, "encoding_size")
    if _has(tree, (*signal, "network_settings")):
        _drop(tree, old, "network_settings is given too", notices)
    elif _has(tree, old):
        new = "network_settings.hidden_units"
        notices.append(f"{tree.place(old)}: {'.'.join(old)}: the old spelling of {new}")
        value, place = tree.get(old), tree.place(old)
        tree.take(old)
        tree.put(".".join((*signal, new)), value, place)


def _rename_old(tree: YamlTree, keys: Keys, new: str, notices: list[str]) -> None:
    if not _has(tree, keys):
        return
    notice = f"{tree.place(keys)}: {'.'.join(keys)}: the old spelling of {new}"
    if _has(tree, (*keys[:-1], new)):
        raise UsageError(f"{notice}, which is written too")
    notices.append(notice)
    tree.rename(keys, new)


def _has(tree: YamlTree, keys: Keys) -> bool:
    around = tree.get(keys[:-1])
    return isinstance(around, dict) and keys[-1] in around


def _drop(tree: YamlTree, keys: Keys, why: str, notices: list[str]) -> None:
    if _has(tree, keys):
        notices.append(f"{tree.place(keys)}: {'.'.join(keys)}: ignored; {why}")
        tree.take(keys)


def _merge_defaults(tree: YamlTree) -> None:
    behaviors = tree.get(("behaviors",))
    if tree.get(("default_settings",)) and isinstance(behaviors, dict):
        for name in behaviors:
            tree.merge_under(("default_settings",), ("behaviors", name))


def _settle_start(
    tree: YamlTree,
    overrides: Mapping[str, Any],
    notices: list[str],
    *,
    of_several: bool,
) -> None:
    """Of `resume` and `initialize_from`, the one of the command line wins; otherwise `resume`, and
    where it is `of_several` runs, both stay.
    """
    resume = ("checkpoint_settings", "resume")
    start = ("checkpoint_settings", "initialize_from")
    if not (tree.get(resume) and tree.get(start)):
        return
    resume_is_typed = ".".join(resume) in overrides
    start_is_typed = ".".join(start) in overrides
    only_start_is_typed = start_is_typed and not resume_is_typed
    if of_several and not only_start_is_typed:
        return
    loser, winner = (resume, start) if only_start_is_typed else (start, resume)
    _drop(tree, loser, f"{winner[-1]} is given too", notices)


def _idle_criteria(config: RunConfig, tree: YamlTree) -> Iterator[str]:
    """A line for each last lesson whose completion criteria have no effect."""
    for name, settings in config.environment_parameters.items():
        lessons = lessons_of(settings)
        if lessons[-1].completion_criteria is not None:
            last = f"curriculum.{len(lessons) - 1}.completion_criteria"
            keys = ("environment_parameters", name, *last.split("."))
            yield f"{tree.place(keys)}: {'.'.join(keys)}: ignored; the last lesson does not end"
