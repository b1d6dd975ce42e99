"""Saved state as named values: a class declares the attributes that it keeps, once for both ways.

In flat states of arrays, the names of a part stand below `part/`.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, TypeVar

from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Value = TypeVar("Value")


def kept(owner: object, attributes: Iterable[str]) -> dict[str, Any]:
    """Copies of these attributes, under their names without a leading underscore."""
    return {name.lstrip("_"): deepcopy(getattr(owner, name)) for name in attributes}


def put_back(
    owner: object, attributes: Iterable[str], state: Mapping[str, Any]
) -> None:
    """Set these attributes to copies of what `kept` returned."""
    # Copies, because the owner may write to them in place and the state belongs to the caller.
    for name in attributes:
        setattr(owner, name, deepcopy(state[name.lstrip("_")]))


def prefixed(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The same arrays, each below `prefix/`."""
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


def below(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays below `prefix/`, without it."""
    return part_of(f"{prefix}/", arrays)


def part_of(prefix: str, values: Mapping[str, Value]) -> dict[str, Value]:
    """The values whose names begin with the prefix, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in values.items()
        if name.startswith(prefix)
    }
