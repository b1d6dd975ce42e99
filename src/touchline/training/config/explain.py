"""What pydantic found wrong with a configuration, as one line that names place, key and remedy."""

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from touchline.training.algorithms.settings import (
    ALGORITHMS,
    DEFAULT_ALGORITHM,
    algorithm_settings,
)
from touchline.training.config.values import Part
from touchline.training.config.yaml_tree import Keys, YamlTree


def explain(error: ValidationError, tree: YamlTree) -> str:
    """One line for the first mistake: `file:line:col: key: what is wrong; what was meant?`."""
    mistakes = error.errors()
    # An unknown key often is the cause of the others, such as a missing one.
    unknown = (mistake for mistake in mistakes if mistake["type"] == "unknown_key")
    mistake = next(unknown, mistakes[0])
    context = mistake.get("ctx", {})

    location = tuple(str(key) for key in mistake["loc"])
    # pydantic appends this mark where the key itself is wrong, not its value.
    is_key = location[-1:] == ("[key]",)
    # Tags of unions, which pydantic puts between the keys, are in brackets, too.
    keys = tuple(key for key in location if not key.startswith("["))
    if mistake["type"] == "at":
        keys += tuple(str(context["at"]).split("."))
    if mistake["type"] == "unknown_key":
        keys += (context["key"],)
        problem = _unknown_key(keys, context["known"])
    elif is_key and mistake["type"] == "literal_error":
        problem = _unknown_key(keys, sorted(_choices(context)))
    else:
        problem = _wrong_value(mistake)
    return f"{tree.place(keys)}: {'.'.join(keys)}: {problem}"


def _unknown_key(keys: Keys, known: list[str]) -> str:
    key = keys[-1]
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    trainers = ALGORITHMS if keys[-2:-1] == ("hyperparameters",) else ()
    keys_of = {name: algorithm_settings(name).model_fields for name in trainers}
    others = [name for name in trainers if key in keys_of[name]]
    if near and others:  # then the two only look alike
        known_keys = ", ".join(known)
        # Those of the trainer that is wanted: the unknown key is the preset's.
        fitting = (name for name in trainers if {*keys_of[name]} == {*known})
        wanted = next(fitting, DEFAULT_ALGORITHM)
        suffix = "" if wanted == DEFAULT_ALGORITHM else f"_{wanted}"
        return (
            f"unknown key; it belongs to {' and '.join(others)}; known keys: {known_keys}; for "
            f"another trainer than a preset's, take another preset, such as NAME{suffix}"
        )
    if near:
        return f"unknown key; did you mean {near[0]!r}?"
    return f"unknown key; known keys: {', '.join(known)}"


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
