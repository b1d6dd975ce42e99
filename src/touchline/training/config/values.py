"""The kinds of values that settings hold, and the base of every block of keys.

Numbers are read as ML-Agents reads them: YAML 1.1 takes `5e5` and `1e-3` for text, and here they
are numbers wherever a number is expected.
"""

import ast
import inspect
import itertools
import sys
import typing
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from touchline.plugins import Plugins
from touchline.scenes import MOST_AREAS


def _whole(value: Any) -> Any:
    # 5e5 and "5e5" mean 500000 where a whole number is expected.
    value = numeric(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def numeric(value: Any) -> Any:
    """The number that a text shows; other values as they are.

    Raises a ValueError for true and false.
    """
    if isinstance(value, bool):  # in Python a kind of int
        raise ValueError("expected a number")
    if not isinstance(value, str):
        return value
    for kind in (int, float):  # an integer first: a float keeps only 53 bits of a seed
        try:
            return kind(value)
        except ValueError:
            continue
    return value  # pydantic words the error


def _text(value: Any) -> Any:
    # `run_id: 7` is a text that looks like a number.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


Integer = Annotated[int, BeforeValidator(_whole)]
MOST = 10**12
"""No number of steps, episodes, agents or bytes that is ever reached: beyond it, sums overflow."""
Whole = Annotated[int, Field(gt=0, le=MOST), BeforeValidator(_whole)]
Areas = Annotated[int, Field(gt=0, le=MOST_AREAS), BeforeValidator(_whole)]
Count = Annotated[int, Field(ge=0, le=MOST), BeforeValidator(_whole)]
OrNone = Annotated[int, Field(ge=-1), BeforeValidator(_whole)]
"""A count, or -1 for none."""
Number = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(numeric)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(numeric)]
NotNegative = Annotated[
    float, Field(ge=0, allow_inf_nan=False), BeforeValidator(numeric)
]
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(numeric)]
Switch = Annotated[bool, Strict()]
Text = Annotated[str, Field(min_length=1), BeforeValidator(_text)]
Schedule = Literal["linear", "constant"]


def known_in(plugins: Plugins) -> AfterValidator:
    """Refuses a text that is none of these names."""

    def known(name: str) -> str:
        if name not in plugins:
            expected = " or ".join(map(repr, plugins.names()))
            raise PydanticKnownError("literal_error", {"expected": expected})
        return name

    return AfterValidator(known)


def mistake_at(key: str, reason: str) -> PydanticCustomError:
    """What a validator raises about one key of its block; dotted below."""
    # pydantic puts the place of the block before the key; the reason may hold braces.
    return PydanticCustomError("at", "{reason}", {"at": key, "reason": reason})


class Part(BaseModel):
    """A block of keys: frozen, every key known, each with its meaning written under it.

    `meanings` reads these texts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _keys_are_known(cls, values: Any) -> Any:
        # Take out what was left empty, as in `memory:` with nothing behind it.
        # YAML reads that as null, and ML-Agents writes null for what was not given.
        if values is None:
            return {}
        if not isinstance(values, Mapping):
            return values
        given = {}
        for key, value in values.items():
            field = cls.model_fields.get(key)
            if field is None:
                # Unlike pydantic's own error, this one says which keys there are.
                context = {"key": str(key), "known": sorted(cls.model_fields)}
                raise PydanticCustomError("unknown_key", "unknown key {key}", context)
            if value is not None or not (
                field.default_factory or field.default is None
            ):
                given[key] = value
        return given


def plain_type(kind: Any) -> Any:
    """A type without annotations and without None."""
    while typing.get_origin(kind) is Annotated:
        kind = typing.get_args(kind)[0]
    members = typing.get_args(kind)
    if type(None) not in members:
        return kind
    return plain_type(next(m for m in members if m is not type(None)))


def meanings(part: type[Part]) -> dict[str, str]:
    """Key -> the text under it, as one line."""
    # pydantic can collect these texts too, but would at every start, which takes a tenth of a
    # second.
    found = {}
    # A key that a subclass defines again has the subclass's text.
    base_first = reversed(part.__mro__[: part.__mro__.index(Part)])
    for cls in base_first:
        body = _classes(cls.__module__)[cls.__name__].body
        for key, under in itertools.pairwise(body):
            match key, under:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                    value=ast.Constant(value=str(text))
                ) if name in part.model_fields:
                    found[name] = " ".join(text.split())
    return found


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    source = inspect.getsource(sys.modules[module])
    statements = ast.parse(source).body
    return {node.name: node for node in statements if isinstance(node, ast.ClassDef)}
