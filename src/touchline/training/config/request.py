"""The configuration of a run as a verb takes it: a name or a file, changes, and settings."""

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from touchline.bounded import read_text
from touchline.errors import UsageError
from touchline.training.config.flags import setting_flags
from touchline.training.config.reading import (
    about_preset,
    is_file,
    preset_names,
    read_config,
)
from touchline.training.config.settings import RunConfig

Changes = Mapping[str, Any] | Iterable[str]
"""Dotted keys and their values, or `a.b.c=value` texts as `--set` takes them."""
RUN_ID = "checkpoint_settings.run_id"
SEED = "env_settings.seed"


@dataclass(frozen=True)
class RunRequest:
    """A run that is configured, not yet started."""

    config: RunConfig
    preset: str | None = None
    """The preset that it was made from, which names its scene."""
    notes: tuple[str, ...] = ()
    """Lines for people about the configuration."""
    chosen: str = ""
    """The YAML that was chosen for a game without a configuration, to be written into the run."""


def read_run(
    config: str | os.PathLike[str] | None,
    changes: Changes = (),
    settings: Mapping[str, Any] | None = None,
    *,
    more: Mapping[str, Any] | None = None,
    verb: str = "train",
    of_several: bool = False,
) -> RunRequest:
    """Read the configuration of a run.

    `config` is a preset's name, the path of an ML-Agents YAML, or a game, which is played for some
    seconds to choose its settings; None: ML-Agents' defaults. `settings` are names of flags as
    identifiers (`num_envs`) and their values, which win over `changes`; `more` are dotted keys,
    which win over all. `verb` is for the error where there is neither a configuration nor a world;
    `of_several` as in `read_config`. Raises a UsageError that names the place of the first mistake.
    """
    given = keys_of(settings or {})
    if config is None and "env_settings.env_path" not in given:
        raise UsageError(
            f"{verb} what? give a preset's name (3DBall), a YAML file, or a player with --env"
        )
    overrides = {**given, **(more or {})}
    source = None if config is None else os.fspath(config)
    changes = listed(changes)
    if source is not None and is_game(source):
        return _read_for_game(source, changes, overrides, of_several=of_several)
    preset = None if source is None or is_file(source) else source
    if preset is not None and not is_changed(RUN_ID, changes):
        # A run is named after its preset; ML-Agents' default, "ppo", would put runs of
        # different scenes into one folder.
        overrides.setdefault(RUN_ID, preset)
    notes: list[str] = []
    read = read_config(source, changes, overrides, notes.append, of_several=of_several)
    if source is None:
        notes.append("no CONFIG: every behavior is trained with ML-Agents' defaults")
    elif preset is not None:
        notes.append(f"preset {preset}: {about_preset(preset)}")
    return RunRequest(read, preset, tuple(notes))


def _read_for_game(
    game: str, changes: Changes, overrides: dict[str, Any], *, of_several: bool
) -> RunRequest:
    """A run with settings that are chosen for it, or were when it was started."""
    # Opening a game imports what reading a file does without.
    from touchline.policies.files.run_layout import RunLayout
    from touchline.training.chosen_settings import look_at, say, settings_text
    from touchline.training.world import recipe_of

    other = overrides.setdefault("env_settings.env_path", game)
    if other != game:
        raise UsageError(f"{game} and {other} (--env) are two games: leave one out")
    if not is_changed(RUN_ID, changes):
        # The class of MODULE:CLASS, or a path's file without its ending.
        overrides.setdefault(RUN_ID, Path(game.strip(":").rpartition(":")[2]).stem)
    # How the game is opened and where the run is, which no behavior has a part in.
    of_run = {k: v for k, v in overrides.items() if not k.startswith("behaviors.")}
    outside = read_config(None, _outside(changes), of_run)
    checkpoints = outside.checkpoint_settings
    layout = RunLayout(Path(checkpoints.results_dir, checkpoints.run_id))
    notes: list[str] = []
    if checkpoints.resume and layout.chosen_settings.is_file():
        text, shown = read_text(layout.chosen_settings), str(layout.chosen_settings)
    else:
        seen = look_at(recipe_of(outside))
        text = settings_text(game, seen)
        # Their file is written when the run begins, so errors cannot name it.
        shown = f"settings chosen for {game}"
        notes.append(
            f"{shown}; the run keeps them, with reasons: {layout.chosen_settings}"
        )
        say(seen, notes.append)
    read = read_config(
        shown,
        changes,
        overrides,
        notes.append,
        of_several=of_several,
        text=text,
    )
    return RunRequest(read, None, tuple(notes), text)


def listed(changes: Changes) -> Mapping[str, Any] | list[str]:
    """Changes that can be looked through several times; a text is one change."""
    if isinstance(changes, Mapping):
        return changes
    return [changes] if isinstance(changes, str) else list(changes)


def _outside(changes: Changes) -> Mapping[str, Any] | list[str]:
    """Those of these changes that are to no behavior."""
    if isinstance(changes, Mapping):
        return {k: v for k, v in changes.items() if not k.startswith("behaviors.")}
    return [change for change in changes if not change.startswith("behaviors.")]


def is_game(source: str) -> bool:
    """Whether CONFIG is a player, or a scene of another module, rather than settings for one."""
    has_place = any(mark in source for mark in "/\\:") or Path(source).exists()
    if is_file(source) or source in preset_names() or not has_place:
        return False
    # Imports numpy, which a misspelled preset does without.
    from touchline.envs.env import EnvRecipe

    kind = EnvRecipe.parse(source).kind
    is_own_scene = kind.is_scene and ":" in source
    return kind.is_player or is_own_scene


def keys_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys and their values; raises a UsageError for a name that no flag has."""
    key_of = {
        flag.name.removeprefix("--").replace("-", "_"): flag.key
        for flag in setting_flags()
    }
    for name in settings:
        if name not in key_of:
            near = difflib.get_close_matches(name, key_of, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"no setting {name!r}{hint}")
    # What was not given must leave the configuration's own value alone.
    return {
        key_of[name]: value
        for name, value in settings.items()
        if value is not None and value is not False
    }


def is_changed(key: str, changes: Changes) -> bool:
    if isinstance(changes, Mapping):
        return key in changes
    return any(change.startswith(f"{key}=") for change in changes)
