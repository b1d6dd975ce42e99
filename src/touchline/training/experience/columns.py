"""Tables of tensors: dataclasses whose columns are tensors, tuples of them, tables, or None."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

Column = TypeVar("Column")


def joined(parts: Sequence[Column]) -> Column:
    """Tables, or columns of them, as one, in order; all of them have the same columns."""
    first: Any = parts[0]
    if len(parts) == 1 or first is None:
        return parts[0]
    if isinstance(first, Tensor):
        return torch.cat(list(parts))  # type: ignore[arg-type, return-value]
    if isinstance(first, tuple):  # observations: each sensor has a shape of its own
        return tuple(map(joined, zip(*parts, strict=True)))  # type: ignore[return-value]
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return type(first)(*map(joined, columns))  # type: ignore[no-any-return]


def mapped(column: Column, change: Callable[[Tensor], Tensor]) -> Column:
    """The same table, or column, with every tensor changed."""
    found: Any = column
    if isinstance(found, Tensor):
        return change(found)  # type: ignore[return-value]
    if isinstance(found, tuple):
        return tuple(mapped(part, change) for part in found)  # type: ignore[return-value]
    if found is None:
        return column
    return type(found)(*(mapped(own, change) for own in vars(found).values()))  # type: ignore[no-any-return]
