"""The flags of the command line that set a key: name, key, type and help come from the models."""

import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from touchline.flag import Flag
from touchline.training.config.settings import BehaviorConfig, RunConfig
from touchline.training.config.values import Part, meanings, plain_type

REMOVED_FLAGS = {
    "--load": "use --resume",
    "--train": "training is what happens without --inference",
    "--torch": "PyTorch is the only framework",
    "--tensorflow": "PyTorch is the only framework",
}
"""Switches of older ML-Agents versions -> what to do instead. They are accepted with a note."""
LOAD = "--load"
"""The one of them that still has a meaning: that of `--resume`."""


@dataclass(frozen=True)
class SettingFlag:
    """One flag of the command line, and the key that it sets."""

    name: str
    """As typed, such as `--num-envs`."""
    key: str
    """Dotted, such as `env_settings.num_envs`; a star stands for every behavior."""
    kind: type
    """bool for a switch, list for a flag that is repeated, else int, float or str."""
    metavar: str | None
    """How help shows the value; None: by its kind."""
    part: type[Part]
    """The model that holds the key."""

    @property
    def help(self) -> str:
        """What is written under the key."""
        text = meanings(self.part)[self.key.rpartition(".")[2]]
        return f"{text} (For every behavior.)" if "*" in self.key else text


@cache
def setting_flags() -> tuple[SettingFlag, ...]:
    """Every flag that sets a key, in the order of the models."""
    behaviors = _flags_of(BehaviorConfig, "behaviors.*.")
    return (*_flags_of(RunConfig, ""), *behaviors)


def setting_flag(name: str) -> SettingFlag:
    return next(flag for flag in setting_flags() if flag.name == name)


def _flags_of(part: type[Part], prefix: str) -> Iterator[SettingFlag]:
    """The flags of a block and of the blocks inside it; `prefix` is put before their keys."""
    for key, field in part.model_fields.items():
        kind = _plain(field.annotation)
        for flag in field.metadata:
            if isinstance(flag, Flag):
                yield SettingFlag(flag.name, prefix + key, kind, flag.metavar, part)
        # The blocks of behaviors are maps by name: their flags are those with a star.
        is_block = issubclass(kind, Part) and kind is not BehaviorConfig
        if is_block:
            yield from _flags_of(kind, f"{prefix}{key}.")


def _plain(annotation: Any) -> type:
    """The type of a value that is given: without None, annotations and what a list holds."""
    kind = plain_type(annotation)
    plain = typing.get_origin(kind) or kind
    return plain if isinstance(plain, type) else object
