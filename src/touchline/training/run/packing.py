"""Lists of records as plain named arrays and back, exactly: the content of resume points.

A record is a dataclass whose fields are arrays, tuples of arrays, or None. Records of one list may
differ in length (a table grew, another number of episodes ended), so every column keeps its
lengths; -1 stands for None.
"""

from collections.abc import Sequence
from dataclasses import fields
from itertools import count, takewhile
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from touchline.envs.saved_state import Arrays

Record = TypeVar("Record")


def pack(records: Sequence[Any]) -> Arrays:
    """Named arrays that hold all records:

    `field` or `field.0`, `field.1`, each with its `...#lengths`.
    """
    packed: Arrays = {}
    names = [f.name for f in fields(records[0])] if records else []
    for name in names:
        values = [getattr(record, name) for record in records]
        columns: dict[str, list[Any]] = {}
        if isinstance(values[0], tuple):
            for i, parts in enumerate(zip(*values, strict=True)):
                columns[f"{name}.{i}"] = list(parts)
        # A field that is None everywhere has no type to save; its absence says it all.
        elif any(value is not None for value in values):
            columns[name] = values
        for column, arrays in columns.items():
            known = [array for array in arrays if array is not None]
            lengths = [-1 if array is None else len(array) for array in arrays]
            packed[column] = np.concatenate(known)
            packed[f"{column}#lengths"] = np.array(lengths)
    return packed


def unpack(packed: Arrays, cls: type[Record]) -> list[Record]:
    """The records that `pack` was given."""
    columns: dict[str, list[Any]] = {}
    for name in (f.name for f in fields(cls)):  # type: ignore[arg-type]
        # As many parts as there are: nothing else says how many a tuple had.
        numbered = (f"{name}.{i}" for i in count())
        parts = list(takewhile(packed.__contains__, numbered))
        if parts:
            taken = [_taken(packed, part) for part in parts]
            columns[name] = list(zip(*taken, strict=True))
        elif name in packed:
            columns[name] = _taken(packed, name)
        else:
            columns[name] = []
    length = max(map(len, columns.values()))
    records = []
    for i in range(length):
        # A field without a column was None in every record.
        own = {name: values[i] if values else None for name, values in columns.items()}
        records.append(cls(**own))
    return records


def _taken(packed: Arrays, column: str) -> list[NDArray[Any] | None]:
    lengths = packed[f"{column}#lengths"]
    # A None has taken no rows, so its -1 counts as 0.
    ends = np.cumsum(lengths.clip(0))
    parts = np.split(packed[column], ends[:-1])
    pairs = zip(parts, lengths, strict=True)
    # Copies, because parts are views that would keep the whole column in memory.
    return [None if length < 0 else part.copy() for part, length in pairs]
