"""A YAML file as plain values that may be changed by dotted keys, and where each key stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from touchline.bounded import read_text
from touchline.errors import UsageError, shortened
from touchline.known_files import refuse_other_kinds

Keys = tuple[str, ...]

MOST_DEPTH = 50
"""Blocks within blocks; settings of ML-Agents have eight."""
MOST_KEYS = 100_000
"""Keys of one file, with what its aliases repeat; a few lines of aliases of aliases make billions.
"""


class _Loader(yaml.SafeLoader):
    """YAML without dates: `run_id: 2026-11-22` is a text, and so is one that no calendar has."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in found if not tag.endswith(":timestamp")]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def loaded(text: str) -> Any:
    """The plain values of a YAML text.

    Raises a YAMLError or a ValueError for anything else.
    """
    # A SafeLoader: it makes plain values only, and runs nothing.
    try:
        return yaml.load(text, _Loader)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # What the library's constructors raise: `!!timestamp x`, `!!int ""`, `!!bool x`.
    except (AttributeError, IndexError, KeyError):
        raise ValueError("a value does not fit the tag before it") from None


class YamlTree:
    """The values of a file, and the place of each key: `file:line:col`, or the flag that set it."""

    def __init__(self, shown: str = "defaults") -> None:
        """`shown` is the file's name in messages."""
        self.values: dict[str, Any] = {}
        self.shown = shown
        self.notices: list[str] = []
        """A line for each key that is written twice."""
        self._places: dict[Keys, str] = {}

    @staticmethod
    def read(path: Path, shown: str) -> YamlTree:
        """The values of a file.

        Raises a UsageError that names the place of what is not YAML.
        """
        refuse_other_kinds(path, "a YAML file", ".yaml", ".yml")
        text = read_text(path)
        # JSON is YAML but for tabs between its parts; within a text it writes them as \\t.
        return YamlTree.parse(
            text.replace("\t", " ") if path.suffix == ".json" else text, shown
        )

    @staticmethod
    def parse(text: str, shown: str) -> YamlTree:
        """The values of a text, like those of a file."""
        tree = YamlTree(shown)
        try:
            # Nodes know their places, values do not; both come from the same parser.
            node = yaml.compose(text, Loader=_Loader)
            if node is None:  # an empty file
                return tree
            if not isinstance(node, yaml.MappingNode):
                raise UsageError(
                    f"{shown}:1:1: expected keys and values, such as `behaviors:`"
                )
            # Before the values are taken: it refuses more keys than memory may hold.
            tree._note_places(node, (), frozenset())
            tree.values = _unshared(loaded(text), frozenset())
        except RecursionError:
            raise UsageError(f"{shown}: nested too deeply") from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            place = f"{shown}:{mark.line + 1}:{mark.column + 1}" if mark else shown
            raise UsageError(f"{place}: not YAML: {error.problem}") from None
        # A ValueError of values with a tag that they do not fit, such as `!!int x`.
        except (yaml.YAMLError, ValueError) as error:
            raise UsageError(f"{shown}: not YAML: {error}") from None
        return tree

    def place(self, keys: Keys) -> str:
        """Where a key stands, or the nearest block around it."""
        for depth in range(len(keys), 0, -1):
            place = self._places.get(keys[:depth])
            if place is not None:
                return place
        return self.shown

    def place_of_block(self, keys: Keys) -> str:
        """Where a block stands; where only its keys were set, the place of the first of these."""
        own = self._places.get(keys)
        if own is not None:
            return own
        within = self.places_below(keys).values()
        return next(iter(within), self.shown)

    def get(self, keys: Keys) -> Any:
        """The value at a key, None where there is none."""
        level: Any = self.values
        for key in keys:
            level = level.get(key) if isinstance(level, Mapping) else None
        return level

    def put(self, dotted: str, value: Any, place: str) -> None:
        """Set a dotted key; errors about it will name `place`."""
        # Behavior names may hold dots themselves.
        keys = self._split(dotted)
        level = self.values
        for depth, key in enumerate(keys[:-1], 1):
            if level.get(key) is None:
                level[key] = {}
            level = level[key]
            if not isinstance(level, dict):
                block = ".".join(map(str, keys[:depth]))
                raise UsageError(
                    f"{self.place(keys[:depth])}: {block}: expected keys and values, got "
                    f"{shortened(repr(level))}"
                )
        level[keys[-1]] = value
        # What stood at this key in the file, and below it, is gone.
        for old in self.places_below(keys):
            del self._places[old]
        self._places[keys] = place

    def take(self, keys: Keys) -> Any:
        """Remove a key; returns its value."""
        return self.get(keys[:-1]).pop(keys[-1])

    def rename(self, keys: Keys, new: str) -> None:
        """Give a key another name at its place."""
        block = self.get(keys[:-1])
        block[new] = block.pop(keys[-1])
        renamed = (*keys[:-1], new)
        for old in self.places_below(keys):
            self._places[renamed + old[len(keys) :]] = self._places.pop(old)

    def merge_under(self, defaults: Keys, keys: Keys) -> None:
        """Fill what a block leaves out from another block, at every depth."""
        *above, last = keys
        around = self.get(tuple(above))
        block = {} if around[last] is None else around[last]
        around[last] = _merged(self.get(defaults), block)
        for old, place in self.places_below(defaults).items():
            merged = keys + old[len(defaults) :]
            # A key that the block has itself keeps its own place.
            self._places.setdefault(merged, place)

    def places_below(self, keys: Keys) -> dict[Keys, str]:
        """The keys with a place that begin with these, and their places."""
        places = self._places.items()
        return {key: place for key, place in places if key[: len(keys)] == keys}

    def _note_places(self, node: yaml.Node, keys: Keys, around: frozenset[int]) -> None:
        """Note the places of all that is below a node; `around` are the nodes that hold it."""
        if id(node) in around:  # an alias of a block inside itself, which never ends
            return
        if len(keys) > MOST_DEPTH:
            raise UsageError(
                f"{self.shown}: nested too deeply: beyond {MOST_DEPTH} blocks"
            )
        around |= {id(node)}
        children: Iterable[tuple[Keys, yaml.Node, yaml.Node]] = ()
        if isinstance(node, yaml.SequenceNode):
            children = (
                ((*keys, str(n)), child, child) for n, child in enumerate(node.value)
            )
        elif isinstance(node, yaml.MappingNode):
            children = (
                ((*keys, str(key.value)), key, child) for key, child in node.value
            )
        for here, marked, child in children:
            place = f"{self.shown}:{marked.start_mark.line + 1}:{marked.start_mark.column + 1}"
            is_merge = marked.tag == "tag:yaml.org,2002:merge"  # several are all used
            # YAML parsers keep the last one, silently.
            if here in self._places and not is_merge:
                first = self._places[here]
                self.notices.append(
                    f"{place}: {'.'.join(here)}: written twice, first at {first}; this one counts"
                )
                for old in self.places_below(here):
                    del self._places[old]
            if len(self._places) == MOST_KEYS:
                raise UsageError(
                    f"{place}: more than {MOST_KEYS:,} keys, with those that aliases repeat"
                )
            self._places[here] = place
            self._note_places(child, here, around)

    def _split(self, dotted: str) -> Keys:
        """The keys of a dotted key: names that the tree holds are recognized, dots and all."""
        keys: list[str] = []
        rest, level = dotted, self.values
        while rest:
            names = [
                name for name in map(str, level) if f"{rest}.".startswith(f"{name}.")
            ]
            # The longest name wins: of the behaviors `Ball` and `Ball.v2`, `Ball.v2.max_steps`
            # means the second.
            key = max(names, key=len) if names else rest.partition(".")[0]
            keys.append(key)
            rest = rest[len(key) + 1 :]
            below = level.get(key)
            level = below if isinstance(below, dict) else {}
        return tuple(keys)


def _unshared(value: Any, around: frozenset[int]) -> Any:
    """A copy in which what aliases name is there once for each, so that each can be changed alone.

    `around` are the blocks that hold the value; one that holds itself stays as it is.
    """
    if id(value) in around:
        return value
    around |= {id(value)}
    if isinstance(value, dict):
        return {key: _unshared(below, around) for key, below in value.items()}
    if isinstance(value, list):
        return [_unshared(below, around) for below in value]
    return value


def _merged(under: Any, over: Any) -> Any:
    """`over`, with what it leaves out taken from `under`."""
    if not (isinstance(under, Mapping) and isinstance(over, Mapping)):
        return over
    merged = deepcopy(dict(under))
    for key, value in over.items():
        merged[key] = _merged(under.get(key), value)
    return merged
