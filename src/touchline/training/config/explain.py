"""What pydantic found wrong with a configuration, as one line that names place, key and remedy."""

import difflib
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Tag, ValidationError
from pydantic_core import ErrorDetails

from touchline.training.algorithms.settings import (
    ALGORITHMS,
    DEFAULT_ALGORITHM,
    algorithm_settings,
)
from touchline.training.config.settings import BehaviorConfig, RunConfig
from touchline.training.config.values import Part, plain_type
from touchline.training.config.yaml_tree import Keys, YamlTree
from touchline.training.rewards.settings import SIGNAL_PLUGINS, signal_settings


def explain(
    error: ValidationError, tree: YamlTree, each: type[Part] | None = None
) -> str:
    """One line for the first mistake: `file:line:col: key: what is wrong; what was meant?`.

    `tree` is a configuration or, with `each`, a map of such blocks.
    """
    mistakes = error.errors()
    # An unknown key often is the cause of the others, such as a missing one.
    unknown = (mistake for mistake in mistakes if mistake["type"] == "extra_forbidden")
    mistake = next(unknown, mistakes[0])

    location = tuple(str(key) for key in mistake["loc"])
    # pydantic appends this mark where the key itself is wrong, not its value.
    is_key = location[-1:] == ("[key]",)
    if is_key:
        location = location[:-1]
    keys = _without_tags(location)
    if mistake["type"] == "at":
        keys += tuple(str(mistake["ctx"]["at"]).split("."))

    is_unknown = mistake["type"] == "extra_forbidden"
    if is_unknown or (is_key and mistake["type"] == "literal_error"):
        known = (
            _known_keys(location[:-1], tree)
            if each is None
            else list(each.model_fields)
        )
        problem = _unknown_key(keys, known)
    else:
        problem = _wrong_value(mistake)
    return f"{tree.place(keys)}: {'.'.join(keys)}: {problem}"


def _without_tags(location: Keys) -> Keys:
    """The keys of a place, without the tags of unions that pydantic puts between them."""
    return tuple(key for key in location if not key.startswith("["))


def _unknown_key(keys: Keys, known: list[str]) -> str:
    key = keys[-1]
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    others = _trainers_with(key) if keys[-2:-1] == ("hyperparameters",) else []
    if near and others:  # then the two only look alike
        known_keys = ", ".join(known)
        # Those of the trainer that is wanted: the unknown key is the preset's.
        fitting = (name for name in ALGORITHMS if {*_keys_of(name)} == {*known})
        wanted = next(fitting, DEFAULT_ALGORITHM)
        suffix = "" if wanted == DEFAULT_ALGORITHM else f"_{wanted}"
        return (
            f"unknown key; it belongs to {' and '.join(others)}; known keys: {known_keys}; for "
            f"another trainer than a preset's, take another preset, such as NAME{suffix}"
        )
    if near:
        return f"unknown key; did you mean {near[0]!r}?"
    return f"unknown key; known keys: {', '.join(known)}"


def _trainers_with(key: str) -> list[str]:
    return [name for name in ALGORITHMS if key in _keys_of(name)]


def _keys_of(trainer: str) -> Iterable[str]:
    return algorithm_settings(trainer).model_fields


def _wrong_value(mistake: ErrorDetails) -> str:
    kind, value = mistake["type"], mistake["input"]
    # A whole block would make the line endless.
    given = "" if isinstance(value, dict | Part) else f", got {value!r}"
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return f"expected keys and values{given}"
    if kind == "missing":
        return "missing"
    if kind == "at":  # our own, which says everything itself
        return mistake["msg"]
    if kind == "too_short":
        return f"expected at least one{given}"
    message = mistake["msg"].removeprefix("Value error, ")
    message = message.replace("Input should be", "expected", 1)
    message = message[0].lower() + message[1:]
    choices = _choices(mistake.get("ctx", {}))
    near = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{message}{given}{hint}"


def _choices(context: Mapping[str, Any]) -> list[str]:
    """The values that pydantic expected, of its text "'a', 'b' or 'c'"."""
    expected = context.get("expected")
    if expected is None:
        return []
    return str(expected).replace("'", "").replace(" or ", ", ").split(", ")


def _known_keys(location: Keys, tree: YamlTree) -> list[str]:
    # Walks down from the whole configuration, one type per key.
    kind: Any = RunConfig
    for depth, key in enumerate(location):
        around = _without_tags(location[:depth])
        # A trainer's own keys depend on its type, which stands in the file next to them.
        kind = _kind_below(kind, key, tree.get(around))
    if kind is SIGNAL_PLUGINS:
        return sorted(SIGNAL_PLUGINS.names())
    if isinstance(kind, type) and issubclass(kind, Part):
        return sorted(kind.model_fields)
    return []


def _kind_below(kind: Any, key: str, values: Any) -> Any:
    """The type of what stands under a key of a block, a map, a list or a union with tags.

    `values` are what the file holds in that block.
    """
    if kind is BehaviorConfig and key == "hyperparameters":
        return algorithm_settings(values["trainer_type"])
    if kind is BehaviorConfig and key == "reward_signals":
        return SIGNAL_PLUGINS
    if kind is SIGNAL_PLUGINS:
        # A signal of an unknown name may have a mistake below it, too.
        return signal_settings(key) if key in kind.names() else None
    if isinstance(kind, type) and issubclass(kind, Part):
        field = kind.model_fields.get(key)
        return None if field is None else plain_type(field.annotation)
    if typing.get_origin(kind) in (dict, list):
        return plain_type(typing.get_args(kind)[-1])
    for member in typing.get_args(kind):
        if any(isinstance(m, Tag) and m.tag == key for m in member.__metadata__):
            return plain_type(member)
    return None
