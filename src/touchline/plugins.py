"""Parts that are chosen by name: plain dictionaries, and what other packages add to them.

An entry is the text "module:name", imported when it is used. A package adds one with an entry point
of the dictionary's group, for example

    [project.entry-points."touchline.reward_signals"]
    novelty = "my_package:NoveltySettings"
"""

import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from touchline.errors import UsageError


def imported(path: str) -> Any:
    """What the text "module:name" names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def imported_from_here(path: str) -> Any:
    """The same; as with `python -m`, the module may be in the current folder."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return imported(path)


@dataclass(frozen=True)
class Plugins:
    """One dictionary of named parts."""

    noun: str
    """What an entry is, such as "a reward signal"."""
    group: str
    """The group of entry points in which other packages add entries."""
    own: dict[str, str]
    """Touchline's entries: name -> "module:name". No other package can replace one."""
    contract: str
    """The class of which every entry is a subclass, as "module:name"; of a protocol, every entry
    has the methods."""

    def names(self) -> list[str]:
        """Of all entries: those of other packages, then Touchline's."""
        return [
            *(name for name in _added(self.group) if name not in self.own),
            *self.own,
        ]

    def __contains__(self, name: str) -> bool:
        # Reading the entry points of all installed packages takes 20 ms or more, so Touchline's
        # entries are found without.
        return name in self.own or name in _added(self.group)

    def load(self, name: str) -> Any:
        """The entry of a name.

        Raises a KeyError for an unknown name, and a UsageError where another package's entry
        cannot be used.
        """
        if name in self.own:
            return imported(self.own[name])
        place, *_ = _added(self.group)[name]
        self.refuse_twice(name)
        return self.require(name, place, self.contract)

    def require(self, name: str, path: str, contract: str) -> Any:
        """What `path` names, which the entry of this name brings; it fulfills the contract.

        Raises a UsageError that names the entry point otherwise.
        """
        if name in self.own:
            return imported(path)
        try:
            found = imported(path)
        except (Exception, SystemExit) as error:  # whatever its import raises
            reason = f"{type(error).__name__}: {error}".replace("\n", " ")
            raise self._error(name, f"{path} cannot be imported: {reason}") from error
        breach = breach_of(imported(contract), found)
        if breach:
            raise self._error(name, f"{path} {breach}")
        return found

    def require_made(self, name: str, made: Any, protocol: type) -> None:
        """Raise a UsageError where what an entry made lacks something of a protocol."""
        if name in self.own:
            return
        names = {*vars(protocol), *protocol.__annotations__}
        public = sorted(each for each in names if not each.startswith("_"))
        missing = [each for each in public if each not in dir(made)]
        if missing:
            wanted = f"{protocol.__module__}.{protocol.__qualname__}"
            what = f"{type(made).__name__} has no {', '.join(missing)}"
            raise self._error(name, f"{what}; expected what {wanted} describes")

    def refuse_twice(self, name: str) -> None:
        """Raise a UsageError where several packages claim a name, or one claims Touchline's."""
        places = _added(self.group).get(name, ())
        if name in self.own and places:
            raise self._error(
                name,
                f"{', '.join(places)} has the name of {self.noun} of Touchline; "
                "expected another name, uninstall the package or rename its entry point",
            )
        if len(places) > 1:
            raise self._error(
                name,
                f"the name stands for {' and '.join(places)}; "
                "expected one of them, uninstall the other package",
            )

    def _error(self, name: str, what: str) -> UsageError:
        return UsageError(f"entry point {name!r} of {self.group}: {what}")


def breach_of(contract: type, found: Any) -> str:
    """How an entry breaks a contract, as the predicate of a sentence; empty where it does not."""
    wanted = f"{contract.__module__}.{contract.__qualname__}"
    is_protocol = getattr(contract, "_is_protocol", False)
    if not isinstance(found, type):
        # What makes an object of a protocol may as well be a function.
        if is_protocol and callable(found):
            return ""
        return f"is {found!r}; expected a class as {wanted} describes it"
    if is_protocol:
        methods = [
            k
            for k, v in vars(contract).items()
            if callable(v) or isinstance(v, property)
        ]
        names = [name for name in methods if not name.startswith("_")]
    elif not issubclass(found, contract):
        return f"is no subclass of {wanted}; expected one"
    else:
        # The class variables that a subclass must set. An annotation is text where it is postponed.
        annotations = contract.__annotations__.items()
        names = [name for name, kind in annotations if "ClassVar" in str(kind)]
    missing = [name for name in names if name not in dir(found)]
    if not missing:
        return ""
    return f"has no {', '.join(missing)}; expected what {wanted} describes"


@cache
def _added(group: str) -> dict[str, tuple[str, ...]]:
    """What installed packages add: name -> every place that it stands for."""
    from importlib.metadata import entry_points

    places: dict[str, tuple[str, ...]] = {}
    for entry in entry_points(group=group):
        known = places.get(entry.name, ())
        # A folder that is on the path twice has each of its packages once.
        if entry.value not in known:
            places[entry.name] = (*known, entry.value)
    return places
