"""What official `mlagents_envs` offers, as JSON: module -> name -> members and their parameters.

A message has the entry `fields` instead, and an enum `values`.
A class also has the entries `bases` (names of the classes that it derives from) and `abstract`;
members are inherited ones, too, and attributes that `__init__` sets. A name that a module imports
from another one of the package has the entry `imported` alone.

Runs in the environment of the official package: `python official_signatures.py`.
"""

import importlib
import inspect
import json
import pkgutil
import re
from enum import Enum

import mlagents_envs
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message
from message_fields import fields
from mlagents_envs.registry import default_registry

default_registry.clear()  # importing `mlagents_envs.envs` would download its manifest


def parameters(function):
    function = inspect.unwrap(getattr(function, "__func__", function))
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    return [
        [one.name, one.default is not one.empty]
        for one in found
        if one.name != "self" and one.kind is one.POSITIONAL_OR_KEYWORD
    ]


def described(thing):
    if isinstance(thing, EnumTypeWrapper):
        return {"values": dict(thing.items())}
    if inspect.isclass(thing) and issubclass(thing, Message):
        return {"fields": fields(thing)}
    if not inspect.isclass(thing):
        return {"": parameters(thing) if callable(thing) else None}
    bases = [f"{base.__module__}.{base.__name__}" for base in thing.__mro__[1:-1]]
    members = {"bases": bases, "abstract": inspect.isabstract(thing)}
    members[""] = parameters(thing.__init__) if "__init__" in vars(thing) else None
    if issubclass(thing, tuple):
        members[""] = [[f, f in thing._field_defaults] for f in thing._fields]
        members |= dict.fromkeys(
            ("_replace", "_asdict", "_fields", "__iter__", "__getitem__")
        )
    if issubclass(thing, (Exception, Enum)):
        return members
    for name in dir(thing):
        if not name.startswith("_"):
            member = inspect.getattr_static(thing, name)
            members[name] = (
                parameters(member) if callable(getattr(thing, name)) else None
            )
    for base in thing.__mro__:
        if base.__module__.startswith("mlagents_envs"):
            for name in re.findall(r"self\.([a-z]\w*)\b.* = ", source_of(base)):
                members.setdefault(name, None)
    return members


def source_of(kind):
    init = vars(kind).get("__init__")
    try:
        return inspect.getsource(init)
    except (TypeError, OSError):  # none of its own, or that of a named tuple
        return ""


def untimed(thing):
    """The function that `timed` hides: its name, module and parameters are those of `timed`."""
    if inspect.isfunction(thing) and thing.__qualname__.startswith("timed.<locals>"):
        return thing.__closure__[0].cell_contents
    return thing


found = {}
for module in [
    "mlagents_envs",
    *(m.name for m in pkgutil.walk_packages(mlagents_envs.__path__, "mlagents_envs.")),
]:
    loaded = importlib.import_module(module)
    names = found[module.partition(".")[2]] = {}
    for name, thing in vars(loaded).items():
        thing = untimed(thing)
        home = getattr(thing, "__module__", module)
        if isinstance(thing, EnumTypeWrapper):
            home = module
        if name.startswith("_") or inspect.ismodule(thing):
            continue
        if home == module and type(thing).__module__ != "typing":
            names[name] = described(thing)
        elif home.startswith("mlagents_envs."):
            names[name] = {"imported": home.partition(".")[2]}
print(json.dumps(found))
