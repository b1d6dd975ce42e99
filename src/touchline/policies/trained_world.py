"""In which world a policy was trained, as far as that changes what is observed or done.

A policy of a MicroRTS game that is turned by half for player 1 loses where nothing is turned, and
nothing fails. So checkpoints hold such options, and whatever plays a policy uses them.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.log import Log, silent
from touchline.policies.files.run_choice import run_of
from touchline.policies.files.run_layout import CHECKPOINT, RunLayout

logger = logging.getLogger(__name__)

_SWITCHES = {"true": "1", "false": "0"}


def as_trained(
    recipe: EnvRecipe, sources: Iterable[str], log: Log = logger.warning
) -> EnvRecipe:
    """The recipe with the options that its policies were trained with, where it names no others.

    `sources` are policies as `load_policies` takes them. Where several differ, the first decides.
    `log` gets a line for options that were filled in, and for each policy that meets other ones.
    """
    options = dict(recipe.options)
    for source in sources:
        trained = trained_options(source, recipe.world)
        added = {name: trained[name] for name in trained if name not in options}
        options |= added
        here = {name: _plain(options[name]) for name in trained}
        other = {name: here[name] for name in trained if here[name] != trained[name]}
        if other:
            before = {name: trained[name] for name in other}
            log(f"{source} was trained with {_text(before)}, and plays {_text(other)}")
        used = {name: value for name, value in added.items() if value != "0"}
        if used:
            log(f"{source} plays {_text(used)}, as it was trained")
    return replace(recipe, options=options)


def trained_options(source: str, world: str) -> Mapping[str, str]:
    """The options in the checkpoint or run folder of a source; none in anything else."""
    path = Path(source)
    if not path.exists():
        path = Path(source.partition("=")[2] or source)  # BEHAVIOR=FILE
    if path.is_dir():
        path = next(iter(RunLayout(run_of(path, silent)).checkpoints().values()), path)
    if path.suffix != CHECKPOINT or not path.is_file():
        return {}
    from touchline.policies.files.checkpoints import read_metadata

    try:
        about: Mapping[str, Any] = read_metadata(path).get("world", {})
    except UsageError:
        return {}  # loading it is refused with the reason
    options: Mapping[str, str] = about.get("options", {})
    return options if about.get("kind") == world else {}


def _plain(value: object) -> str:
    text = str(value).lower()
    return _SWITCHES.get(text, text)


def _text(options: Mapping[str, str]) -> str:
    return "&".join(f"{name}={value}" for name, value in options.items())
